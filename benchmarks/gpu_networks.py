"""Networks for GPUs, products in bfloat16: written once in JAX's names and once in PyTorch's.

Parameters are nested dicts of NumPy arrays in float32, equal for all libraries. Images have their
channels last; kernels are HWIO, which PyTorch gets as OIHW with channels last in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Params = dict[str, Any]
EPSILON = 1e-5


class Drawing:
    """Draws parameters."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 0.02) -> np.ndarray:
        return self.rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def dense(self, n: int, m: int) -> Params:
        return {"w": self.normal(n, m, scale=n**-0.5), "b": np.zeros(m, np.float32)}

    def conv(self, n: int, m: int, size: int) -> np.ndarray:
        return self.normal(size, size, n, m, scale=(2 / (size * size * n)) ** 0.5)

    def norm(self, n: int) -> Params:
        return {"scale": np.ones(n, np.float32), "bias": np.zeros(n, np.float32)}


class Jax:
    """What networks are made of, in JAX's names."""

    def __init__(self, lib: Any):
        self.lib = lib

    def half(self, x: Any) -> Any:
        return x.astype(self.lib.np.bfloat16)

    def dense(self, p: Params, x: Any) -> Any:
        return x @ self.half(p["w"]) + self.half(p["b"])

    def embed(self, table: Any, ids: Any) -> Any:
        return self.half(table[ids])

    def unembed(self, table: Any, x: Any) -> Any:
        return x @ self.half(table).T

    def conv(self, w: Any, x: Any, stride: int = 1) -> Any:
        pad = (w.shape[0] - 1) // 2
        return self.lib.lax.conv_general_dilated(
            x, self.half(w), (stride, stride), [(pad, pad)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    def _normalized(self, p: Params, x: Any, axes: tuple[int, ...]) -> Any:
        l, wide = self.lib, x.astype(self.lib.np.float32)
        mean = l.np.mean(wide, axes, keepdims=True)
        variance = l.np.mean(l.np.square(wide - mean), axes, keepdims=True)
        return (wide - mean) * l.lax.rsqrt(variance + EPSILON)

    def layer_norm(self, p: Params, x: Any) -> Any:
        return self.half(self._normalized(p, x, (-1,)) * p["scale"] + p["bias"])

    def batch_norm(self, p: Params, x: Any, train: bool) -> Any:
        if train:
            return self.half(self._normalized(p, x, (0, 1, 2)) * p["scale"] + p["bias"])
        return x * self.half(p["scale"]) + self.half(p["bias"])  # mean 0, variance 1

    def group_norm(self, p: Params, x: Any, groups: int) -> Any:
        b, h, w, c = x.shape
        y = self._normalized(p, x.reshape(b, h, w, groups, c // groups), (1, 2, 4))
        return self.half(y.reshape(x.shape) * p["scale"] + p["bias"])

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        """Of [batch, time, heads, features]; in JAX by cuDNN's kernel."""
        cudnn = self.lib.name == "jax" and self.lib.device != "cpu"
        kernel = {"implementation": "cudnn"} if cudnn else {}
        return self.lib.nn.dot_product_attention(q, k, v, is_causal=causal, **kernel)

    def lstm(self, p: Params, x: Any) -> Any:
        """Of [time, batch, features]; cells in float32."""
        l = self.lib
        wh, sigmoid = self.half(p["wh"]), l.nn.sigmoid

        def cell(state: Any, z: Any) -> Any:
            h, c = state
            i, f, g, o = l.np.split((z + h @ wh).astype(l.np.float32), 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * l.np.tanh(g)
            h = self.half(sigmoid(o) * l.np.tanh(c))
            return (h, c), h

        zeros = l.np.zeros((x.shape[1], wh.shape[0]), l.np.float32)
        return l.lax.scan(
            cell, (self.half(zeros), zeros), x @ self.half(p["wx"]) + self.half(p["b"])
        )[1]

    def gelu(self, x: Any) -> Any:
        return self.lib.nn.gelu(x)

    def relu(self, x: Any) -> Any:
        return self.lib.nn.relu(x)

    def silu(self, x: Any) -> Any:
        return self.lib.nn.silu(x)

    def max_pool(self, x: Any) -> Any:
        l, ones = self.lib, [(0, 0), (1, 1), (1, 1), (0, 0)]
        return l.lax.reduce_window(x, -l.np.inf, l.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ones)

    def up(self, x: Any) -> Any:
        return self.lib.np.repeat(self.lib.np.repeat(x, 2, 1), 2, 2)

    def mean(self, x: Any) -> Any:
        return self.lib.np.mean(x, (1, 2))

    def concat(self, *xs: Any) -> Any:
        return self.lib.np.concatenate(xs, -1)

    def split(self, x: Any, parts: int) -> Any:
        return self.lib.np.split(x, parts, -1)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        l = self.lib
        log_p = l.nn.log_softmax(logits.astype(l.np.float32))
        return -l.np.mean(l.np.take_along_axis(log_p, labels[..., None], -1))

    def square_error(self, x: Any, y: Any) -> Any:
        return self.lib.np.mean(self.lib.np.square(x.astype(self.lib.np.float32) - y))


class Torch:
    """The same in PyTorch's names, under autocast. Images are NCHW with channels last in memory."""

    def __init__(self, torch: Any):
        self.t, self.f = torch, torch.nn.functional

    def half(self, x: Any) -> Any:
        return x.to(self.t.bfloat16)

    def dense(self, p: Params, x: Any) -> Any:
        return self.f.linear(x, p["w"].T, p["b"])

    def embed(self, table: Any, ids: Any) -> Any:
        return self.half(self.f.embedding(ids, table))

    def unembed(self, table: Any, x: Any) -> Any:
        return self.f.linear(x, table)

    def conv(self, w: Any, x: Any, stride: int = 1) -> Any:
        return self.f.conv2d(x, w, None, stride, (w.shape[-1] - 1) // 2)

    def layer_norm(self, p: Params, x: Any) -> Any:
        return self.half(self.f.layer_norm(x, x.shape[-1:], p["scale"], p["bias"], EPSILON))

    def batch_norm(self, p: Params, x: Any, train: bool) -> Any:
        if train:
            return self.f.batch_norm(x, None, None, p["scale"], p["bias"], True, 0.1, EPSILON)
        return x * self.half(p["scale"])[:, None, None] + self.half(p["bias"])[:, None, None]

    def group_norm(self, p: Params, x: Any, groups: int) -> Any:
        return self.half(self.f.group_norm(x, groups, p["scale"], p["bias"], EPSILON))

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        views = [x.transpose(1, 2) for x in (q, k, v)]
        return self.f.scaled_dot_product_attention(*views, is_causal=causal).transpose(1, 2)

    def lstm(self, p: Params, x: Any) -> Any:
        zeros = x.new_zeros(1, x.shape[1], p["wh"].shape[0])
        weights = [self.half(w).contiguous() for w in (p["wx"].T, p["wh"].T, p["b"])]
        weights.append(self.t.zeros_like(weights[2]))
        return self.t.lstm(x, (zeros, zeros), weights, True, 1, 0.0, True, False, False)[0]

    def gelu(self, x: Any) -> Any:
        return self.f.gelu(x, approximate="tanh")

    def relu(self, x: Any) -> Any:
        return self.t.relu(x)

    def silu(self, x: Any) -> Any:
        return self.f.silu(x)

    def max_pool(self, x: Any) -> Any:
        return self.f.max_pool2d(x, 3, 2, 1)

    def up(self, x: Any) -> Any:
        return self.f.interpolate(x, scale_factor=2, mode="nearest")

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def concat(self, *xs: Any) -> Any:
        return self.t.cat(xs, 1)

    def split(self, x: Any, parts: int) -> Any:
        return x.chunk(parts, -1)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.f.cross_entropy(logits.float().flatten(0, -2), labels.flatten())

    def square_error(self, x: Any, y: Any) -> Any:
        return self.f.mse_loss(x.float(), y)


@dataclass(frozen=True)
class Network:
    """A network, how it is trained and what it is fed with.

    Args:
      name: of its rows.
      params: draws them.
      batch: draws inputs and targets.
      forward: `(ops, params, inputs, train) -> outputs`, `ops` a `Jax` or `Torch`.
      loss: `(ops, outputs, targets) -> scalar`.
      optimizer: "adam" or "momentum".
      tolerance: of losses, as a fraction.
    """

    name: str
    params: Callable[[Drawing], Params]
    batch: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    forward: Callable[..., Any]
    loss: Callable[..., Any]
    optimizer: str = "adam"
    tolerance: float = field(default=2e-2)


@dataclass(frozen=True)
class Gpt:
    """GPT-2 small (Radford et al., 2019), whose norms precede."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    words: int = 50257
    batch: int = 8
    time: int = 1024

    def params(self, draw: Drawing) -> Params:
        d = self.width
        block = lambda: {
            "norm1": draw.norm(d), "qkv": draw.dense(d, 3 * d), "out": draw.dense(d, d),
            "norm2": draw.norm(d), "up": draw.dense(d, 4 * d), "down": draw.dense(4 * d, d),
        }  # fmt: skip
        return {
            "tokens": draw.normal(self.words, d), "places": draw.normal(self.time, d),
            "blocks": [block() for _ in range(self.layers)], "norm": draw.norm(d),
        }  # fmt: skip

    def inputs(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        ids = rng.integers(0, self.words, (self.batch, self.time + 1))
        return ids[:, :-1].astype(np.int32), ids[:, 1:].astype(np.int32)

    def forward(self, o: Any, params: Params, ids: Any, train: bool) -> Any:
        """Logits; of the last position only where it does not train."""
        x = o.embed(params["tokens"], ids) + o.half(params["places"])
        b, t, d = x.shape
        for p in params["blocks"]:
            heads = [
                y.reshape(b, t, self.heads, d // self.heads)
                for y in o.split(o.dense(p["qkv"], o.layer_norm(p["norm1"], x)), 3)
            ]
            x = x + o.dense(p["out"], o.attention(*heads, True).reshape(b, t, d))
            x = x + o.dense(p["down"], o.gelu(o.dense(p["up"], o.layer_norm(p["norm2"], x))))
        x = o.layer_norm(params["norm"], x if train else x[:, -1:])
        return o.unembed(params["tokens"], x)


@dataclass(frozen=True)
class ResNet:
    """ResNet-50 (He et al., 2015; strides in 3×3)."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    batch: int = 64
    size: int = 224

    def params(self, draw: Drawing) -> Params:
        unit = lambda n, m, size: {"kernel": draw.conv(n, m, size), **draw.norm(m)}
        blocks, n = [], self.width
        for stage, depth in enumerate(self.depths):
            middle = self.width << stage
            for i in range(depth):
                block = {
                    "a": unit(n, middle, 1), "b": unit(middle, middle, 3),
                    "c": unit(middle, 4 * middle, 1),
                }  # fmt: skip
                if i == 0:
                    block["shortcut"] = unit(n, 4 * middle, 1)
                blocks.append(block)
                n = 4 * middle
        return {
            "stem": unit(3, self.width, 7), "blocks": blocks, "head": draw.dense(n, self.classes)
        }  # fmt: skip

    def inputs(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        images = rng.standard_normal((self.batch, self.size, self.size, 3), dtype=np.float32)
        return images, rng.integers(0, self.classes, self.batch).astype(np.int32)

    def forward(self, o: Any, params: Params, images: Any, train: bool) -> Any:
        unit = lambda p, x, stride=1: o.batch_norm(p, o.conv(p["kernel"], x, stride), train)
        x = o.max_pool(o.relu(unit(params["stem"], o.half(images), 2)))
        starts = {sum(self.depths[:i]) for i in range(1, len(self.depths))}
        for i, p in enumerate(params["blocks"]):
            stride = 2 if i in starts else 1
            y = o.relu(unit(p["b"], o.relu(unit(p["a"], x)), stride))
            x = o.relu(unit(p["c"], y) + (unit(p["shortcut"], x, stride) if "shortcut" in p else x))
        return o.dense(params["head"], o.mean(x))


@dataclass(frozen=True)
class UNet:
    """A diffusion model's U-Net (Ho et al., 2020), which attends at 16²."""

    widths: tuple[int, ...] = (128, 256, 256, 256)
    depth: int = 2
    heads: int = 4
    attended: int = 16
    batch: int = 16
    size: int = 64

    def params(self, draw: Drawing) -> Params:
        wide = 4 * self.widths[0]

        def block(n: int, m: int, attended: bool) -> Params:
            p = {
                "norm1": draw.norm(n), "conv1": draw.conv(n, m, 3), "time": draw.dense(wide, m),
                "norm2": draw.norm(m), "conv2": draw.conv(m, m, 3),
            }  # fmt: skip
            if n != m:
                p["skip"] = draw.conv(n, m, 1)
            if attended:
                p["attention"] = {
                    "norm": draw.norm(m), "qkv": draw.dense(m, 3 * m), "out": draw.dense(m, m)
                }  # fmt: skip
            return p

        n, kept, size = self.widths[0], [self.widths[0]], self.size
        down: list[Params] = []
        for i, m in enumerate(self.widths):
            level: Params = {"blocks": []}
            for _ in range(self.depth):
                level["blocks"].append(block(n, m, size == self.attended))
                n = m
                kept.append(n)
            if i + 1 < len(self.widths):
                level["down"] = draw.conv(n, n, 3)
                kept.append(n)
                size //= 2
            down.append(level)
        middle = [block(n, n, True), block(n, n, False)]
        up: list[Params] = []
        for i, m in reversed(list(enumerate(self.widths))):
            level = {"blocks": []}
            for _ in range(self.depth + 1):
                level["blocks"].append(block(n + kept.pop(), m, size == self.attended))
                n = m
            if i:
                level["up"] = draw.conv(n, n, 3)
                size *= 2
            up.append(level)
        return {
            "time1": draw.dense(self.widths[0], wide), "time2": draw.dense(wide, wide),
            "first": draw.conv(3, self.widths[0], 3), "down": down, "middle": middle, "up": up,
            "norm": draw.norm(n), "last": draw.conv(n, 3, 3),
        }  # fmt: skip

    def inputs(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        shape = (self.batch, self.size, self.size, 3)
        return rng.standard_normal(shape, dtype=np.float32), rng.standard_normal(
            shape, dtype=np.float32
        )

    def forward(self, o: Any, params: Params, images: Any, train: bool) -> Any:
        torch = isinstance(o, Torch)
        moments = images.mean((1, 2, 3))[:, None]  # stands for the time of each image
        sines = params["time1"]["w"].sum(1)[None] * moments  # and for its features
        time = o.dense(params["time2"], o.silu(o.dense(params["time1"], o.half(sines))))

        def attention(p: Params, x: Any) -> Any:
            y = o.group_norm(p["norm"], x, 32)
            y = y.permute(0, 2, 3, 1) if torch else y
            b, h, w, c = y.shape
            heads = [
                part.reshape(b, h * w, self.heads, c // self.heads)
                for part in o.split(o.dense(p["qkv"], y), 3)
            ]
            y = o.dense(p["out"], o.attention(*heads, False).reshape(b, h, w, c))
            return x + (y.permute(0, 3, 1, 2) if torch else y)

        def block(p: Params, x: Any) -> Any:
            y = o.conv(p["conv1"], o.silu(o.group_norm(p["norm1"], x, 32)))
            t = o.dense(p["time"], o.silu(time))
            y = y + (t[:, :, None, None] if torch else t[:, None, None, :])
            y = o.conv(p["conv2"], o.silu(o.group_norm(p["norm2"], y, 32)))
            x = (o.conv(p["skip"], x) if "skip" in p else x) + y
            return attention(p["attention"], x) if "attention" in p else x

        x = o.conv(params["first"], o.half(images))
        kept = [x]
        for level in params["down"]:
            for p in level["blocks"]:
                x = block(p, x)
                kept.append(x)
            if "down" in level:
                x = o.conv(level["down"], x, 2)
                kept.append(x)
        for p in params["middle"]:
            x = block(p, x)
        for level in params["up"]:
            for p in level["blocks"]:
                x = block(p, o.concat(x, kept.pop()))
            if "up" in level:
                x = o.conv(level["up"], o.up(x))
        return o.conv(params["last"], o.silu(o.group_norm(params["norm"], x, 32)))


@dataclass(frozen=True)
class LstmModel:
    """A language model of two LSTM layers."""

    layers: int = 2
    width: int = 1024
    words: int = 10_000
    batch: int = 64
    time: int = 128

    def params(self, draw: Drawing) -> Params:
        d, scale = self.width, self.width**-0.5
        layer = lambda: {
            "wx": draw.normal(d, 4 * d, scale=scale), "wh": draw.normal(d, 4 * d, scale=scale),
            "b": np.zeros(4 * d, np.float32),
        }  # fmt: skip
        return {
            "tokens": draw.normal(self.words, d), "layers": [layer() for _ in range(self.layers)],
            "head": draw.dense(d, self.words),
        }  # fmt: skip

    def inputs(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        ids = rng.integers(0, self.words, (self.time + 1, self.batch))
        return ids[:-1].astype(np.int32), ids[1:].astype(np.int32)

    def forward(self, o: Any, params: Params, ids: Any, train: bool) -> Any:
        x = o.embed(params["tokens"], ids)
        for p in params["layers"]:
            x = o.lstm(p, x)
        return o.dense(params["head"], x if train else x[-1:])


def _cross_entropy(o: Any, logits: Any, labels: Any) -> Any:
    return o.cross_entropy(logits, labels)


def _square_error(o: Any, outputs: Any, noise: Any) -> Any:
    return o.square_error(outputs, noise)


def _network(name: str, model: Any, loss: Any, **options: Any) -> Network:
    return Network(name, model.params, model.inputs, model.forward, loss, **options)


def networks(quick: bool = False) -> list[Network]:
    """The four of them; small ones for tests."""
    gpt = Gpt(2, 64, 4, 256, 2, 32) if quick else Gpt()
    resnet = ResNet((1, 1), 16, 10, 2, 32) if quick else ResNet()
    unet = UNet((32, 64), 1, 2, 8, 2, 16) if quick else UNet()
    lstm = LstmModel(2, 64, 128, 4, 8) if quick else LstmModel()
    return [
        _network("GPT-2 small, 8×1024", gpt, _cross_entropy),
        _network("ResNet-50, 64×224²", resnet, _cross_entropy, optimizer="momentum"),
        _network("diffusion U-Net, 16×64²", unet, _square_error),
        _network("LSTM language model, 64×128×1024", lstm, _cross_entropy),
    ]
