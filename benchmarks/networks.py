"""Networks with random weights, written in PyTorch, which exports them to ONNX files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

Arrays = dict[str, np.ndarray]


def _unit(n: int, m: int, size: int, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> Any:
    conv = nn.Conv2d(n, m, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(m), *([act()] if act else []))


class _Residual(nn.Module):
    """A block of a ResNet: of two 3×3 convolutions, or of three with a narrow middle."""

    def __init__(self, n: int, width: int, stride: int, narrow: bool):
        super().__init__()
        m = 4 * width if narrow else width
        if narrow:
            parts = (_unit(n, width, 1), _unit(width, width, 3, stride), _unit(width, m, 1, act=0))
        else:
            parts = (_unit(n, m, 3, stride), _unit(m, m, 3, act=0))
        self.main = nn.Sequential(*parts)
        same = stride == 1 and n == m
        self.shortcut = nn.Identity() if same else _unit(n, m, 1, stride, act=0)

    def forward(self, x):
        return F.relu(self.main(x) + self.shortcut(x))


def _resnet(depths: tuple[int, ...], narrow: bool) -> nn.Module:
    parts: list[nn.Module] = [_unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    n = 64
    for i, depth in enumerate(depths):
        for j in range(depth):
            parts.append(_Residual(n, 64 << i, 2 if i and not j else 1, narrow))
            n = (64 << i) * (4 if narrow else 1)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, 1000))


class _SqueezeExcite(nn.Module):
    def __init__(self, n: int):
        super().__init__()
        m = max(8, (n // 4 + 4) // 8 * 8)
        self.down, self.up = nn.Conv2d(n, m, 1), nn.Conv2d(m, n, 1)

    def forward(self, x):
        s = F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))
        return x * F.hardsigmoid(self.up(s))


class _Inverted(nn.Module):
    def __init__(self, n, size, middle, m, excite, act, stride):
        super().__init__()
        self.same = stride == 1 and n == m
        self.main = nn.Sequential(
            *([_unit(n, middle, 1, act=act)] if middle != n else []),
            _unit(middle, middle, size, stride, middle, act=act),
            *([_SqueezeExcite(middle)] if excite else []),
            _unit(middle, m, 1, act=0),
        )

    def forward(self, x):
        y = self.main(x)
        return x + y if self.same else y


#: Of MobileNet-v3 large: size of the kernel, channels between and after, squeeze and excitation,
#: hard swish, stride.
_INVERTED = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
    (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
    (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
    (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
)  # fmt: skip


def _mobilenet() -> nn.Module:
    parts: list[nn.Module] = [_unit(3, 16, 3, 2, act=nn.Hardswish)]
    n = 16
    for size, middle, m, excite, swish, stride in _INVERTED:
        act = nn.Hardswish if swish else nn.ReLU
        parts.append(_Inverted(n, size, middle, m, excite, act, stride))
        n = m
    parts += [_unit(n, 960, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))


class _UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256)):
        super().__init__()
        pair = lambda n, m: nn.Sequential(_unit(n, m, 3), _unit(m, m, 3))
        self.down = nn.ModuleList(pair(n, m) for n, m in zip((3, *widths), widths))
        steps = list(zip(widths[:0:-1], widths[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(n, m, 2, 2) for n, m in steps)
        self.merge = nn.ModuleList(pair(2 * m, m) for _, m in steps)
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1]):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


class _Block(nn.Module):
    """A layer of a transformer, with the norms before it or behind it."""

    def __init__(self, width: int, heads: int, before: bool):
        super().__init__()
        self.heads, self.before = heads, before
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x, mask, past):
        b, n, width = x.shape
        split = lambda y: y.view(b, n, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = map(split, self.qkv(x).split(width, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        weights = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        weights = torch.softmax(weights if mask is None else weights + mask, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, width)), k, v

    def feed(self, x):
        return self.narrow(F.gelu(self.wide(x)))

    def forward(self, x, mask=None, past=None):
        if self.before:
            y, k, v = self.attention(self.norm1(x), mask, past)
            x = x + y
            return x + self.feed(self.norm2(x)), k, v
        y, k, v = self.attention(x, mask, past)
        x = self.norm1(x + y)
        return self.norm2(x + self.feed(x)), k, v


class _Bert(nn.Module):
    def __init__(self, layers: int = 6, width: int = 512, heads: int = 8, words: int = 8192):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(_Block(width, heads, False) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens, mask):
        x = self.norm(
            self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        )
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for block in self.blocks:
            x = block(x, added)[0]
        return torch.tanh(self.pooler(x[:, 0]))


class _Gpt(nn.Module):
    """GPT-2's layers: a prompt at once, or one more token after the keys and values of others."""

    def __init__(self, layers: int, width: int, heads: int, words: int, cached: bool):
        super().__init__()
        self.cached = cached
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(_Block(width, heads, True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, *past):
        n = tokens.shape[1]
        seen = past[0].shape[2] if past else 0
        x = self.words(tokens) + self.places(torch.arange(seen, seen + n, device=tokens.device))
        mask = None if past else torch.full((n, n), -1e4, device=tokens.device).triu(1)
        kept = []
        for i, block in enumerate(self.blocks):
            x, k, v = block(x, mask, past[2 * i : 2 * i + 2] if past else None)
            kept += [k, v]
        logits = self.norm(x[:, -1]) @ self.words.weight.T
        return (logits, *kept) if self.cached else logits


class _ViT(nn.Module):
    def __init__(self, layers: int = 12, width: int = 384, heads: int = 6):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, width) / 50)
        self.places = nn.Parameter(torch.randn(1, 197, width) / 50)
        self.blocks = nn.ModuleList(_Block(width, heads, True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)[0]
        return self.head(self.norm(x[:, 0]))


class _Recurrent(nn.Module):
    def __init__(self, layer: type[nn.Module], bidirectional: bool):
        super().__init__()
        self.layer = layer(128, 256, 2, batch_first=True, bidirectional=bidirectional)

    def forward(self, x):
        return self.layer(x)[0]


def _images(size: int) -> Callable[[np.random.Generator, int], Arrays]:
    return lambda rng, b: {"images": rng.standard_normal((b, 3, size, size), dtype=np.float32)}


def _sentences(rng: np.random.Generator, batch: int) -> Arrays:
    mask = np.ones((batch, 128), np.int64)
    mask[:, 112:] = 0
    return {"tokens": rng.integers(0, 8192, (batch, 128)), "mask": mask}


def _prompt(rng: np.random.Generator, batch: int) -> Arrays:
    return {"tokens": rng.integers(0, 8192, (batch, 128))}


def _next_token(rng: np.random.Generator, batch: int) -> Arrays:
    past = {
        f"{kind}{i}": rng.standard_normal((batch, 12, 255, 64), dtype=np.float32)
        for i in range(6)
        for kind in ("keys", "values")
    }
    return {"tokens": rng.integers(0, 8192, (batch, 1)), **past}


def _series(rng: np.random.Generator, batch: int) -> Arrays:
    return {"series": rng.standard_normal((batch, 100, 128), dtype=np.float32)}


@dataclass(frozen=True)
class Network:
    """A network that is exported.

    Args:
      make: the module, with weights from PyTorch's current generator.
      inputs: those of a batch, by name.
      int8: how PyTorch quantizes it, "static" or "dynamic"; the others do it statically. Empty:
        it is timed in float32 alone.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[np.random.Generator, int], Arrays]
    int8: str = ""


NETWORKS = {
    "ResNet-18": Network(lambda: _resnet((2, 2, 2, 2), False), _images(224), "static"),
    "ResNet-50": Network(lambda: _resnet((3, 4, 6, 3), True), _images(224), "static"),
    "MobileNet-v3": Network(_mobilenet, _images(224), "static"),
    "ViT-S/16": Network(_ViT, _images(224), "dynamic"),
    "U-Net 128²": Network(_UNet, _images(128)),
    "BERT 6×512, 128 tokens": Network(_Bert, _sentences, "dynamic"),
    "GPT-2 6×768, prompt of 128": Network(lambda: _Gpt(6, 768, 12, 8192, False), _prompt),
    "GPT-2 6×768, token 256": Network(lambda: _Gpt(6, 768, 12, 8192, True), _next_token),
    "bi-LSTM 2×256, 100 steps": Network(lambda: _Recurrent(nn.LSTM, True), _series),
    "GRU 2×256, 100 steps": Network(lambda: _Recurrent(nn.GRU, False), _series),
}


def build(name: str) -> nn.Module:
    """The network, ready for inference: the same weights each time.

    Kernels keep the size of what they are given, and norms of batches have seen some, so that
    numbers are of a trained network's sizes.
    """
    torch.manual_seed(0)
    network = NETWORKS[name]
    module = network.make()
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    if any(isinstance(part, nn.BatchNorm2d) for part in module.modules()):
        module.train()
        with torch.no_grad():
            for batch in batches(name, 4, 3):
                module(*map(torch.from_numpy, batch.values()))
    return module.eval()


def batches(name: str, batch: int, count: int) -> list[Arrays]:
    """Inputs to calibrate with, or to run."""
    rng = np.random.default_rng(batch)
    return [NETWORKS[name].inputs(rng, batch) for _ in range(count)]


def export(name: str, path: Path) -> nn.Module:
    """Write the network to an ONNX file whose batch is symbolic, and return it."""
    module, (given,) = build(name), batches(name, 2, 1)
    args = tuple(map(torch.from_numpy, given.values()))
    with torch.no_grad():
        made = module(*args)
    outputs = [f"output{i}" for i in range(len(made) if isinstance(made, tuple) else 1)]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, args, file, opset_version=17, input_names=list(given), output_names=outputs,
            dynamic_axes={n: {0: "batch"} for n in (*given, *outputs)}, dynamo=False,
        )  # fmt: skip
    path.write_bytes(file.getvalue())
    return module
