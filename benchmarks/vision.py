"""MobileNet-v2, Inception-v3 and U-Net, NHWC, each written once for every library.

A network is a function of operations and an image: `Jax` and `Torch` compute them, `Drawing` draws
the parameters that they ask for, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import lib as libraries
from .resnet import EPSILON, _conv_params, _norm
from .training import _batch_to_torch, _torch_kernel, cross_entropy, training_step
from .workload import Prepared, Workload

Pair = tuple[int, int]


def _pair(x: int | Pair) -> Pair:
    return x if isinstance(x, tuple) else (x, x)


class Drawing:
    """Draws parameters; an image is the number of its channels."""

    def __init__(self, rng: np.random.Generator):
        self.rng, self.params = rng, []

    def unit(self, x: int, features: int, size: Any, stride: int = 1, act: str = "relu",
             groups: int = 1, pad: Any = None) -> int:  # fmt: skip
        """Convolution, normalization and activation."""
        high, wide = _pair(size)
        p = _conv_params(self.rng, 1, high * wide * x // groups, features)
        p["kernel"] = p["kernel"].reshape(high, wide, x // groups, features)
        # Not zero: before another norm its gradient is, and rounding alone would be compared.
        p["bias"] = self.rng.standard_normal(features, dtype=np.float32)
        self.params.append(p)
        return features

    def up(self, x: int) -> int:
        return x

    def max_pool(self, x: int, size: int, stride: int, pad: int = 0) -> int:
        return x

    avg_pool = max_pool

    def concat(self, *xs: int) -> int:
        return sum(xs)

    def add(self, x: int, y: int) -> int:
        return x

    def features(self, x: int) -> int:
        return x

    def head(self, x: int, classes: int) -> int:
        """Mean over space, then a dense layer."""
        w = self.rng.standard_normal((x, classes), dtype=np.float32) / np.float32(x**0.5)
        self.params.append({"w": w, "b": np.zeros(classes, np.float32)})
        return classes


class Jax:
    """The operations in JAX's names."""

    def __init__(self, l: Any, params: list, train: bool):
        self.l, self.train, self.params = l, train, iter(params)

    def unit(self, x, features, size, stride=1, act="relu", groups=1, pad=None):
        p = next(self.params)
        pads = [((n - 1) // 2 if pad is None else pad,) * 2 for n in p["kernel"].shape[:2]]
        y = self.l.lax.conv_general_dilated(
            x, p["kernel"], (stride, stride), pads, feature_group_count=groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        y = _norm(self.l, p, y, self.train)
        return {"relu": self.l.nn.relu, "relu6": self.l.nn.relu6, "none": lambda v: v}[act](y)

    def up(self, x):
        return self.l.np.repeat(self.l.np.repeat(x, 2, axis=1), 2, axis=2)

    def _windows(self, x, start, fn, size, stride, pad):
        pads = [(0, 0), (pad, pad), (pad, pad), (0, 0)]
        return self.l.lax.reduce_window(
            x, start, fn, (1, size, size, 1), (1, stride, stride, 1), pads
        )

    def max_pool(self, x, size, stride, pad=0):
        return self._windows(x, -self.l.np.inf, self.l.lax.max, size, stride, pad)

    def avg_pool(self, x, size, stride, pad=0):
        return self._windows(x, 0.0, self.l.lax.add, size, stride, pad) / (size * size)

    def concat(self, *xs):
        return self.l.np.concatenate(xs, axis=-1)

    def add(self, x, y):
        return x + y

    def features(self, x):
        return x.shape[-1]

    def head(self, x, classes):
        p = next(self.params)
        return self.l.np.mean(x, axis=(1, 2)) @ p["w"] + p["b"]


class Torch:
    """The operations in PyTorch's."""

    def __init__(self, t: Any, params: list, train: bool):
        self.t, self.f, self.train, self.params = t, t.nn.functional, train, iter(params)

    def unit(self, x, features, size, stride=1, act="relu", groups=1, pad=None):
        p = next(self.params)
        pads = [(n - 1) // 2 if pad is None else pad for n in p["kernel"].shape[2:]]
        y = self.f.conv2d(x, p["kernel"], None, stride, pads, 1, groups)
        running = (None, None)
        if not self.train:
            running = self.t.zeros_like(p["bias"]), self.t.ones_like(p["bias"])
        y = self.f.batch_norm(y, *running, p["scale"], p["bias"], self.train, 0.1, EPSILON)
        return {"relu": self.f.relu, "relu6": self.f.relu6, "none": lambda v: v}[act](y)

    def up(self, x):
        return self.f.interpolate(x, scale_factor=2, mode="nearest")

    def max_pool(self, x, size, stride, pad=0):
        return self.f.max_pool2d(x, size, stride, pad)

    def avg_pool(self, x, size, stride, pad=0):
        return self.f.avg_pool2d(x, size, stride, pad)

    def concat(self, *xs):
        return self.t.cat(xs, 1)

    def add(self, x, y):
        return x + y

    def features(self, x):
        return x.shape[1]

    def head(self, x, classes):
        p = next(self.params)
        return self.t.addmm(p["b"], x.mean((2, 3)), p["w"])


def mobilenet_v2(o: Any, x: Any) -> Any:
    """Sandler et al., 2018."""
    x = o.unit(x, 32, 3, 2, "relu6")
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1)]  # fmt: skip
    for expansion, features, count, first_stride in stages:
        for i in range(count):
            stride, n = first_stride if i == 0 else 1, o.features(x)
            y = o.unit(x, n * expansion, 1, act="relu6") if expansion > 1 else x
            wide = n * expansion
            y = o.unit(y, wide, 3, stride, "relu6", groups=wide)
            y = o.unit(y, features, 1, act="none")
            x = o.add(x, y) if stride == 1 and n == features else y
    return o.head(o.unit(x, 1280, 1, act="relu6"), 1000)


def inception_v3(o: Any, x: Any) -> Any:
    """Szegedy et al., 2015; without the auxiliary head."""
    x = o.unit(o.unit(x, 32, 3, 2, pad=0), 32, 3, pad=0)
    x = o.max_pool(o.unit(x, 64, 3), 3, 2)
    x = o.max_pool(o.unit(o.unit(x, 80, 1), 192, 3, pad=0), 3, 2)
    for pooled in (32, 64, 64):
        five = o.unit(o.unit(x, 48, 1), 64, 5)
        three = o.unit(o.unit(o.unit(x, 64, 1), 96, 3), 96, 3)
        pool = o.unit(o.avg_pool(x, 3, 1, 1), pooled, 1)
        x = o.concat(o.unit(x, 64, 1), five, three, pool)
    three = o.unit(o.unit(o.unit(x, 64, 1), 96, 3), 96, 3, 2, pad=0)
    x = o.concat(o.unit(x, 384, 3, 2, pad=0), three, o.max_pool(x, 3, 2))
    for n in (128, 160, 160, 192):
        seven = o.unit(o.unit(o.unit(x, n, 1), n, (1, 7)), 192, (7, 1))
        twice = o.unit(o.unit(o.unit(x, n, 1), n, (7, 1)), n, (1, 7))
        twice = o.unit(o.unit(twice, n, (7, 1)), 192, (1, 7))
        pool = o.unit(o.avg_pool(x, 3, 1, 1), 192, 1)
        x = o.concat(o.unit(x, 192, 1), seven, twice, pool)
    three = o.unit(o.unit(x, 192, 1), 320, 3, 2, pad=0)
    seven = o.unit(o.unit(o.unit(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    x = o.concat(three, o.unit(seven, 192, 3, 2, pad=0), o.max_pool(x, 3, 2))
    for _ in range(2):
        three = o.unit(x, 384, 1)
        three = o.concat(o.unit(three, 384, (1, 3)), o.unit(three, 384, (3, 1)))
        twice = o.unit(o.unit(x, 448, 1), 384, 3)
        twice = o.concat(o.unit(twice, 384, (1, 3)), o.unit(twice, 384, (3, 1)))
        pool = o.unit(o.avg_pool(x, 3, 1, 1), 192, 1)
        x = o.concat(o.unit(x, 320, 1), three, twice, pool)
    return o.head(x, 1000)


def unet(o: Any, x: Any) -> Any:
    """Ronneberger et al., 2015, padded, by nearest upsampling; its maps are pooled to classes."""
    kept = []
    for features in (32, 64, 128, 256):
        x = o.unit(o.unit(x, features, 3), features, 3)
        kept.append(x)
        x = o.max_pool(x, 2, 2)
    x = o.unit(o.unit(x, 512, 3), 512, 3)
    for y in reversed(kept):
        x = o.concat(o.unit(o.up(x), o.features(y), 1), y)
        x = o.unit(o.unit(x, o.features(y), 3), o.features(y), 3)
    return o.head(x, 21)


def _model(network: Callable, batch: int, size: int, small: int, rng: Any, quick: bool) -> tuple:
    drawing = Drawing(rng)
    classes = network(drawing, 3)
    batch, size = (2, small) if quick else (batch, size)
    images = rng.standard_normal((batch, size, size, 3), dtype=np.float32)
    return drawing.params, images, rng.integers(0, classes, batch, dtype=np.int32)


def _loss(network: Callable, l: Any, params: list, x: Any, labels: Any) -> Any:
    return cross_entropy(l, network(Jax(l, params, True), x), labels)


def _loss_torch(network: Callable, t: Any, params: list, x: Any, labels: Any) -> Any:
    return t.nn.functional.cross_entropy(network(Torch(t, params, True), x), labels.long())


def _inference(network: Callable, model: Callable, lib: Any) -> Prepared:
    params, images, _ = model(np.random.default_rng(0), lib.quick)
    forward = lib.jit(lambda params, x: network(Jax(lib, params, False), x))
    args = lib.arrays((params, images))
    return Prepared(lambda: forward(*args))


def _inference_torch(network: Callable, model: Callable, lib: Any) -> Prepared:
    params, images, _ = model(np.random.default_rng(0), lib.quick)
    params = libraries.map_leaves(partial(_torch_kernel, lib), lib.arrays(params))
    x = _batch_to_torch(lib, lib.arrays(images))
    forward = lib.compile(lambda params, x: network(Torch(lib.torch, params, False), x))

    def run() -> Any:
        with lib.torch.no_grad():
            return forward(params, x)

    return Prepared(run)


#: Name, network, (batch, size, size of quick runs), whether it trains.
NETWORKS = [
    (f"{name} {work}, {sizes[0]}×{sizes[1]}²", network, sizes, train)
    for name, network, sizes in (
        ("MobileNet-v2", mobilenet_v2, (8, 224, 128)),
        ("Inception-v3", inception_v3, (4, 299, 171)),
        ("U-Net", unet, (2, 128, 32)),
    )
    for work, train in (("inference", False), ("training step", True))
]


def _row(name: str, network: Callable, sizes: tuple[int, int, int], train: bool) -> Workload:
    model = partial(_model, network, *sizes)
    if not train:
        prepare = (partial(f, network, model) for f in (_inference, _inference_torch))
        return Workload(name, *prepare, 1e-3)
    # As for ResNet-18: a rounding that flips one maximum moves a whole gradient.
    losses = partial(_loss, network), partial(_loss_torch, network)
    return training_step(name, model, *losses, tolerance=0.1)


WORKLOADS = [_row(*row) for row in NETWORKS]
