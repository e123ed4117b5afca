"""Real graphs, exported from PyTorch with random weights, and compared with onnxruntime.

    python tools/export_models.py OUT [--small] [--only bert,gpt2] [--check] [--opsets 13,17,20,23]

Each model is written for each opset, by the tracing exporter (`trace`, up to opset 20) and by the
one on `torch.export` (`dynamo`, from opset 18), with static and with dynamic axes. With `--check`
each file is run by onnxruntime and by amdjax, dynamic ones with two sizes, and a table is printed;
the exit status is 1 where a relative error exceeds 1e-5. Needs torch, transformers, onnxscript and
onnxruntime, which are no dependencies of amdjax.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

TOLERANCE = 1e-5
TRACE_OPSETS, DYNAMO_OPSETS = range(9, 21), range(18, 24)


@dataclass
class Case:
    """A model to export: its inputs by name, of which some axes are dynamic, by names of sizes."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    axes: dict[str, dict[int, str]]
    outputs: tuple[str, ...] = ("y",)
    tail: Callable[[Any], Any] | None = None  # what is added to the graph after the export
    fixed: tuple[str, ...] = ()  # sizes that torch.export does not let change


MODELS: dict[str, Callable[[bool], Case]] = {}


def model(function: Callable[[bool], Case]) -> Callable[[bool], Case]:
    """Enter a model in the table: a function of whether it is to be small."""
    MODELS[function.__name__] = function
    return function


# Convolutions


class Block(nn.Module):
    """A residual block, with a bottleneck or without."""

    def __init__(self, before: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        after = width * (4 if bottleneck else 1)
        sizes = [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)]
        if not bottleneck:
            sizes = [(before, width, 3, stride), (width, width, 3, 1)]
        parts: list[nn.Module] = []
        for i, o, k, s in sizes:
            parts += [nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.main = nn.Sequential(*parts[:-1])
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.skip = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.main(x) + self.skip(x))


def resnet(depths: tuple[int, ...], bottleneck: bool, small: bool) -> Case:
    """A residual network for images."""
    width, size = (16, 64) if small else (64, 224)
    parts = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    parts.append(nn.MaxPool2d(3, 2, 1))
    before = width
    for stage, depth in enumerate(depths):
        here = width * 2**stage
        for i in range(depth):
            parts.append(Block(before, here, 2 if stage and not i else 1, bottleneck))
            before = here * (4 if bottleneck else 1)
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)]
    return Case(nn.Sequential(*parts), {"x": images(2, size)}, {"x": {0: "batch"}})


@model
def resnet18(small: bool) -> Case:
    """ResNet-18."""
    return resnet((2, 2, 2, 2), False, small)


@model
def resnet50(small: bool) -> Case:
    """ResNet-50."""
    return resnet((3, 4, 6, 3), True, small)


class Squeeze(nn.Module):
    """Channels scaled by what follows from their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, channels // 4, 1)
        self.up = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.up(F.relu(self.down(mean))))


class Inverted(nn.Module):
    """A block of MobileNet-v3."""

    def __init__(self, i: int, k: int, wide: int, o: int, squeeze: bool, act: type, s: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        if wide != i:
            parts += [nn.Conv2d(i, wide, 1, bias=False), nn.BatchNorm2d(wide), act()]
        parts += [nn.Conv2d(wide, wide, k, s, k // 2, groups=wide, bias=False)]
        parts += [nn.BatchNorm2d(wide), act()]
        parts += [Squeeze(wide)] if squeeze else []
        parts += [nn.Conv2d(wide, o, 1, bias=False), nn.BatchNorm2d(o)]
        self.main, self.adds = nn.Sequential(*parts), s == 1 and i == o

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.main(x)
        return x + y if self.adds else y


@model
def mobilenet_v3(small: bool) -> Case:
    """MobileNet-v3 small."""
    rows = [  # those of MobileNet-v3 small
        (3, 16, 16, True, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 2),
        (3, 88, 24, False, nn.ReLU, 1), (5, 96, 40, True, nn.Hardswish, 2),
        (5, 240, 40, True, nn.Hardswish, 1), (5, 240, 40, True, nn.Hardswish, 1),
        (5, 120, 48, True, nn.Hardswish, 1), (5, 144, 48, True, nn.Hardswish, 1),
        (5, 288, 96, True, nn.Hardswish, 2), (5, 576, 96, True, nn.Hardswish, 1),
        (5, 576, 96, True, nn.Hardswish, 1),
    ]  # fmt: skip
    parts = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
    before = 16
    for k, wide, after, squeeze, act, stride in rows:
        parts.append(Inverted(before, k, wide, after, squeeze, act, stride))
        before = after
    parts += [nn.Conv2d(96, 576, 1, bias=False), nn.BatchNorm2d(576), nn.Hardswish()]
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 1024), nn.Hardswish()]
    parts += [nn.Dropout(), nn.Linear(1024, 1000)]
    size = 64 if small else 224
    return Case(nn.Sequential(*parts), {"x": images(2, size)}, {"x": {0: "batch"}})


class UNet(nn.Module):
    """Down and up again, with group norms, skips and an interpolation at the end."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w = width
        conv = lambda i, o: nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU()
        )
        self.down = nn.ModuleList([conv(3, w), conv(w, 2 * w), conv(2 * w, 4 * w)])
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)]
        )
        self.after = nn.ModuleList([conv(4 * w, 2 * w), conv(2 * w, w)])
        self.out = nn.Conv2d(w, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for i, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        for up, after, skip in zip(self.up, self.after, skips[-2::-1]):
            x = after(torch.cat([skip, up(x)], 1))
        return F.interpolate(self.out(x), scale_factor=2, mode="bilinear", align_corners=False)


@model
def unet(small: bool) -> Case:
    """A U-Net, which segments images."""
    width, size = (8, 32) if small else (32, 128)
    axes = {0: "batch", 2: "height", 3: "width"}
    return Case(UNet(width), {"x": images(2, size)}, {"x": axes})


class Detector(nn.Module):
    """Boxes and scores of an image, from two scales, as YOLO's heads have them."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        conv = lambda i, o, s: nn.Sequential(
            nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU()
        )
        w = width
        self.stem = nn.Sequential(conv(3, w, 2), conv(w, 2 * w, 2))
        self.split, self.inner = conv(2 * w, 2 * w, 1), conv(w, w, 1)
        self.down, self.join = conv(2 * w, 2 * w, 2), conv(4 * w, 2 * w, 1)
        self.heads = nn.ModuleList([nn.Conv2d(2 * w, 4 + classes, 1) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(x)
        a, b = self.split(x).chunk(2, 1)
        fine = torch.cat([a, b + self.inner(b)], 1)
        coarse = self.down(fine)
        pooled = [coarse, F.max_pool2d(coarse, 5, 1, 2)]
        coarse = self.join(torch.cat(pooled, 1))
        fine = fine + F.interpolate(coarse, scale_factor=2.0, mode="nearest")
        flat = [h(y).flatten(2) for h, y in zip(self.heads, (fine, coarse))]
        made = torch.cat(flat, 2).sigmoid()
        center, size = made[:, :2], made[:, 2:4]
        boxes = torch.cat([center - size / 4, center + size / 4], 1).transpose(1, 2)
        return boxes, made[:, 4:]


@model
def yolo(small: bool) -> Case:
    """A detector, with NonMaxSuppression behind it."""
    width, size = (8, 64) if small else (32, 320)
    axes = {"x": {0: "batch"}}
    module = Detector(width, 6)
    return Case(module, {"x": images(2, size)}, axes, ("boxes", "scores"), suppressed)


def suppressed(proto: Any) -> Any:
    """The graph with NonMaxSuppression behind it, and the boxes that it chose."""
    from onnx import TensorProto, helper, numpy_helper

    numbers = {
        "nms_most": np.int64([5]), "nms_overlap": np.float32([0.5]), "nms_score": np.float32([0.5]),
        "nms_columns": np.int64([0, 2]),
    }  # fmt: skip
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in numbers.items())
    proto.graph.node.extend(
        [
            helper.make_node(
                "NonMaxSuppression", ["boxes", "scores", *list(numbers)[:3]], ["found"]
            ),
            helper.make_node("Gather", ["found", "nms_columns"], ["places"], axis=1),
            helper.make_node("GatherND", ["boxes", "places"], ["kept"]),
        ]
    )
    made = [("found", TensorProto.INT64, ["n", 3]), ("kept", TensorProto.FLOAT, ["n", 4])]
    proto.graph.output.extend(helper.make_tensor_value_info(*each) for each in made)
    return proto


def images(batch: int, size: int) -> torch.Tensor:
    """Random images, channels first."""
    return torch.randn(batch, 3, size, size)


# Transformers


def sizes(small: bool) -> dict[str, int]:
    """Sizes of a transformer, as transformers names them."""
    width, layers = (64, 2) if small else (256, 4)
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4}


def tokens(*shape: int) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(3, 100, shape)


class Part(nn.Module):
    """One tensor of what a model gives, for inputs by their order."""

    def __init__(self, inner: nn.Module, *names: str) -> None:
        super().__init__()
        self.inner, self.names = inner, names

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.inner(**dict(zip(self.names, args)), return_dict=False)[0]


@model
def bert(small: bool) -> Case:
    """BERT, with a mask."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=100, intermediate_size=256, **sizes(small))
    config._attn_implementation = "eager"
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 8:] = 0
    axes = {0: "batch", 1: "length"}
    inputs = {"input_ids": tokens(2, 12), "attention_mask": mask}
    module = Part(BertModel(config, add_pooling_layer=False), *inputs)
    return Case(module, inputs, dict.fromkeys(inputs, axes))


@model
def vit(small: bool) -> Case:
    """ViT, a transformer on patches of images."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(image_size=32, patch_size=8, intermediate_size=256, **sizes(small))
    config._attn_implementation = "eager"  # the tracing exporter writes no other before opset 14
    module = Part(ViTModel(config, add_pooling_layer=False), "pixel_values")
    return Case(module, {"x": images(2, 32)}, {"x": {0: "batch"}})


class Cached(nn.Module):
    """A decoder that is given keys and values of earlier tokens, and returns those of all."""

    def __init__(self, inner: nn.Module, layers: int) -> None:
        super().__init__()
        self.inner, self.layers = inner, layers

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor) -> Any:
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for i in range(self.layers):
            cache.update(past[2 * i], past[2 * i + 1], i)
        made = self.inner(input_ids=ids, attention_mask=mask, past_key_values=cache)
        entries = [x for layer in cache.layers for x in (layer.keys, layer.values)]
        return made.logits, *entries


def decoder(inner: nn.Module, layers: int, heads: int, head_size: int) -> Case:
    """A decoder with a cache, of which a row is padded."""
    inputs = {"ids": tokens(2, 3), "mask": torch.ones(2, 8, dtype=torch.int64)}
    inputs["mask"][1, :2] = 0
    axes = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "total"}}
    names = [f"{kind}{i}" for i in range(layers) for kind in ("key", "value")]
    for name in names:
        inputs[name] = torch.randn(2, heads, 5, head_size)
        axes[name] = {0: "batch", 2: "past"}
    outputs = ("logits", *(f"new_{name}" for name in names))
    return Case(Cached(inner, layers), inputs, axes, outputs)


@model
def gpt2(small: bool) -> Case:
    """GPT-2 with a cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    n, width = (2, 64) if small else (4, 256)
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=width, n_layer=n, n_head=4)
    config._attn_implementation = "eager"
    return decoder(GPT2LMHeadModel(config), n, 4, width // 4)


@model
def llama(small: bool) -> Case:
    """Llama, with grouped heads and rotary positions, with a cache."""
    from transformers import LlamaConfig, LlamaForCausalLM

    own = sizes(small)
    config = LlamaConfig(
        vocab_size=100, intermediate_size=192, num_key_value_heads=2, **own,
        max_position_embeddings=64,
    )  # fmt: skip
    config._attn_implementation = "eager"
    head = own["hidden_size"] // 4
    return decoder(LlamaForCausalLM(config), own["num_hidden_layers"], 2, head)


def whisper(small: bool) -> Any:
    """Whisper, and its configuration."""
    from transformers import WhisperConfig, WhisperModel

    width, layers = (64, 2) if small else (256, 4)
    config = WhisperConfig(
        vocab_size=100, num_mel_bins=20, d_model=width, encoder_layers=layers,
        decoder_layers=layers, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=40,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    config._attn_implementation = "eager"
    return WhisperModel(config), config


@model
def whisper_encoder(small: bool) -> Case:
    """Whisper's encoder."""
    inner, _ = whisper(small)
    module = Part(inner.encoder, "input_features")
    return Case(module, {"x": torch.randn(2, 20, 80)}, {"x": {0: "batch"}})


class CachedCross(nn.Module):
    """Whisper's decoder: attention to earlier tokens, by a cache, and to what was heard."""

    def __init__(self, inner: nn.Module, layers: int) -> None:
        super().__init__()
        self.inner, self.layers = inner, layers

    def forward(self, ids: torch.Tensor, heard: torch.Tensor, *past: torch.Tensor) -> Any:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        own = DynamicCache()
        for i in range(self.layers):
            own.update(past[2 * i], past[2 * i + 1], i)
        made = self.inner(
            input_ids=ids, encoder_hidden_states=heard,
            past_key_values=EncoderDecoderCache(own, DynamicCache()),
        )  # fmt: skip
        entries = [x for layer in own.layers for x in (layer.keys, layer.values)]
        return made.last_hidden_state, *entries


@model
def whisper_decoder(small: bool) -> Case:
    """Whisper's decoder with a cache."""
    inner, config = whisper(small)
    layers, head = config.decoder_layers, config.d_model // 4
    inputs = {"ids": tokens(2, 3), "heard": torch.randn(2, 40, config.d_model)}
    axes = {"ids": {0: "batch", 1: "length"}, "heard": {0: "batch"}}
    names = [f"{kind}{i}" for i in range(layers) for kind in ("key", "value")]
    for name in names:
        inputs[name] = torch.randn(2, 4, 5, head)
        axes[name] = {0: "batch", 2: "past"}
    outputs = ("y", *(f"new_{name}" for name in names))
    return Case(CachedCross(inner.decoder, layers), inputs, axes, outputs)


# Recurrent layers


class First(nn.Module):
    """The outputs of a recurrent layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


def recurrent(layer: nn.Module, width: int) -> Case:
    """A layer over sequences, whose length torch.export fixes."""
    axes = {"x": {0: "batch", 1: "length"}}
    inputs = {"x": torch.randn(2, 7, width)}
    return Case(First(layer), inputs, axes, fixed=("length",))


@model
def bi_lstm(small: bool) -> Case:
    """Two layers of LSTMs, forward and backward."""
    width = 16 if small else 128
    layer = nn.LSTM(width, 2 * width, 2, batch_first=True, bidirectional=True)
    return recurrent(layer, width)


@model
def gru(small: bool) -> Case:
    """Two layers of GRUs."""
    width = 16 if small else 128
    layer = nn.GRU(width, 2 * width, 2, batch_first=True)
    return recurrent(layer, width)


# Export


def export(case: Case, opset: int, dynamo: bool, dynamic: bool) -> bytes:
    """The model as a file."""
    names, arguments = list(case.inputs), tuple(case.inputs.values())
    file = io.BytesIO()
    how: dict[str, Any] = {"opset_version": opset, "input_names": names}
    how["output_names"] = list(case.outputs)
    if not dynamo:
        how["dynamic_axes"] = case.axes if dynamic else None
        torch.onnx.export(case.module, arguments, file, dynamo=False, **how)
        data = file.getvalue()
    else:
        shapes = None
        if dynamic:
            kind = torch.export.Dim.DYNAMIC
            free = lambda axes: {d: kind for d, size in axes.items() if size not in case.fixed}
            each = [free(case.axes.get(n, {})) for n in names]
            shapes = _by_parameters(case.module, each)
        program = torch.onnx.export(
            case.module, arguments, dynamo=True, dynamic_shapes=shapes, verbose=False, **how
        )
        data = program.model_proto.SerializeToString()
    if case.tail is None:
        return data
    import onnx

    return case.tail(onnx.ModelProto.FromString(data)).SerializeToString()


def _by_parameters(module: nn.Module, each: list[Any]) -> Any:
    """Shapes for the parameters of `forward`, of which the last may take all that are left."""
    import inspect

    parameters = list(inspect.signature(module.forward).parameters.values())
    if parameters[-1].kind is not inspect.Parameter.VAR_POSITIONAL:
        return tuple(each)
    named = len(parameters) - 1
    return (*each[:named], tuple(each[named:]))


def exports(
    names: list[str], opsets: list[int], small: bool
) -> Iterator[tuple[str, int, str, bool, Case, bytes | Exception]]:
    """All models in all forms; an exception where an exporter fails."""
    for name in names:
        torch.manual_seed(0)
        case = MODELS[name](small)
        case.module.eval()
        for layer in case.module.modules():
            if isinstance(layer, nn.BatchNorm2d):  # as after training
                layer.running_mean.normal_(0, 0.1)
                layer.running_var.uniform_(0.5, 1.5)
        for exporter, known in (("trace", TRACE_OPSETS), ("dynamo", DYNAMO_OPSETS)):
            for opset in (n for n in opsets if n in known):
                for dynamic in (False, True):
                    try:
                        made: Any = quietly(export, case, opset, exporter == "dynamo", dynamic)
                    except Exception as e:
                        made = e
                    yield name, opset, exporter, dynamic, case, made


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives, without what it prints."""
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        return function(*args)


# Comparison


def feeds(case: Case, dynamic: bool, fixed: tuple[str, ...]) -> Iterator[dict[str, np.ndarray]]:
    """Inputs as at the export; with dynamic axes, a second time with those longer."""
    yield {n: x.numpy() for n, x in case.inputs.items()}
    if dynamic:
        grown = {}
        for name, x in case.inputs.items():
            for d, size in case.axes.get(name, {}).items():
                by = 0 if size in fixed else {"total": 2, "height": 16, "width": 16}.get(size, 1)
                x = torch.cat([x, x.narrow(d, 0, by)], d)
            grown[name] = x.numpy()
        yield grown


def compare(case: Case, data: bytes, dynamic: bool, exporter: str) -> dict[str, Any]:
    """The largest relative error, and how the model was run."""
    import onnxruntime

    from amdjax import onnx as amdjax_onnx

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    started = time.perf_counter()
    made = amdjax_onnx.load(data)
    worst = 0.0
    fixed = case.fixed if exporter == "dynamo" else ()
    for feed in feeds(case, dynamic, fixed):
        feed = {i.name: feed[i.name] for i in session.get_inputs()}
        try:
            values = session.run(None, feed)
        except Exception as e:  # of a class of its own
            raise Unknown(f"onnxruntime fails: {e}") from None
        want = dict(zip((o.name for o in session.get_outputs()), values))
        got = made(**feed)
        worst = max(worst, *(error(np.asarray(got[n]), w) for n, w in want.items()))
    how = "compiled" if made._traceable else "in part" if made._parts else "by node"
    return {
        "error": worst, "nodes": len(made.program.graph.nodes), "how": how,
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


class Unknown(Exception):
    """There is nothing to compare with."""


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the largest number; infinite where types differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if not want.size:
        return 0.0
    if want.dtype.kind in "biu":
        return 0.0 if (got == want).all() else float("inf")
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))


def main() -> int:
    """Export, and compare where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", help="folder for the files")
    parser.add_argument("--small", action="store_true", help="few channels and layers")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--opsets", default="13,17,20,23")
    parser.add_argument("--check", action="store_true", help="compare with onnxruntime")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(MODELS)
    opsets = [int(n) for n in args.opsets.split(",")]
    bad = 0
    for name, opset, exporter, dynamic, case, made in exports(names, opsets, args.small):
        axes = "dynamic" if dynamic else "static"
        head = f"{name:16} {opset:>3} {exporter:7} {axes:8}"
        if isinstance(made, Exception):
            print(f"{head} not exported: {' '.join(str(made).split())[:120]}", flush=True)
            continue
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / f"{name}-{opset}-{exporter}-{axes}.onnx").write_bytes(made)
        if not args.check:
            print(f"{head} {len(made) >> 10:>7} KiB", flush=True)
            continue
        try:
            found = compare(case, made, dynamic, exporter)
        except Exception as e:
            bad += not isinstance(e, Unknown)
            print(f"{head} {type(e).__name__}: {' '.join(str(e).split())[:400]}", flush=True)
            continue
        ok = found["error"] <= TOLERANCE
        bad += not ok
        print(
            f"{head} {found['nodes']:>5} nodes {found['how']:8} error {found['error']:.1e} "
            f"{found['seconds']:6.1f} s {'' if ok else 'TOO LARGE'}",
            flush=True,
        )
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
