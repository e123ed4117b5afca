"""Layers of `amdjax.nn` that JAX has no function for: pools, norms, resampling, tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .lib import Torch
from .workload import Inputs, Workload, array_function, normal, together

IMAGES = normal(8, 56, 56, 64, quick=(2, 14, 14, 16))
FEATURES = normal(8, 512, 768, quick=(2, 32, 96))


def both(
    name: str, inputs: Inputs, fn: Any, fn_torch: Any, argnums: tuple[int, ...] = (0,),
    tolerance: float = 1e-4, **options: Any,
) -> list[Workload]:  # fmt: skip
    """Forward and gradient rows of what JAX lacks."""
    shared = dict(in_jax=False, **options)
    return [
        array_function(name, inputs, fn, fn_torch, tolerance=tolerance, **shared),
        array_function(
            f"{name} gradient", inputs, fn, fn_torch, argnums=argnums, tolerance=10 * tolerance,
            **shared,
        ),
    ]  # fmt: skip


# Images in PyTorch's memory format of channels last; what is no image stays


def _first_moved(lib: Torch, args: tuple) -> tuple:
    x, *others = args
    return (_moved(x, 1, -1), *others)


def _all_moved(lib: Torch, args: tuple) -> tuple:
    return tuple(_moved(x, 1, -1) for x in args)


def _moved(x: Any, to: int, source: int) -> Any:
    return x.movedim(source, to) if x.ndim > 2 else x


def _first_back(result: Any) -> Any:
    if isinstance(result, tuple):
        x, *others = result
        return (_moved(x, -1, 1), *others)
    return _moved(result, -1, 1)


def _all_back(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_moved(x, -1, 1) for x in result)
    return _moved(result, -1, 1)


FIRST = dict(torch_layout=_first_moved, torch_canonical=_first_back)
ALL = dict(torch_layout=_all_moved, torch_canonical=_all_back)


def _called(name: str, args: tuple, options: dict[str, Any], l: Any, *arrays: Any) -> Any:
    return getattr(l.nn, name)(*arrays, *args, **options)


def _called_torch(name: str, args: tuple, options: dict[str, Any], t: Any, *arrays: Any) -> Any:
    return getattr(t.nn.functional, name)(*arrays, *args, **options)


def ours(name: str, *args: Any, **options: Any) -> Callable[..., Any]:
    """A function of `nn`, with arguments after the arrays."""
    return partial(_called, name, args, options)


def theirs(name: str, *args: Any, **options: Any) -> Callable[..., Any]:
    """One of ``torch.nn.functional``."""
    return partial(_called_torch, name, args, options)


# Pools


def _unpooled(rng: np.random.Generator, quick: bool) -> tuple:
    """What 2×2 windows chose of images twice as wide, and where."""
    (x,) = IMAGES(rng, quick)
    h, w = x.shape[1:3]
    dy, dx = (rng.integers(0, 2, x.shape) for _ in range(2))
    rows, columns = np.arange(h)[:, None, None], np.arange(w)[:, None]
    return x, (2 * rows + dy) * 2 * w + 2 * columns + dx


def _global_max_torch(t: Any, x: Any) -> Any:
    return t.amax(x, (2, 3))


def _global_mean_torch(t: Any, x: Any) -> Any:
    return t.mean(x, (2, 3))


def _pools() -> list[Workload]:
    wide = normal(8, 112, 112, 64, quick=(1, 28, 28, 16))
    odd = normal(8, 13, 13, 256, quick=(1, 13, 13, 16))
    volumes = normal(2, 32, 32, 32, 32, quick=(1, 8, 8, 8, 8))
    window = dict(strides=2, padding=1)
    rows = [
        ("average pool 3×3/2, 8×112²×64", wide, ours("avg_pool", 3, **window),
         theirs("avg_pool2d", 3, 2, 1), FIRST),
        ("lp pool 2×2, 8×112²×64", wide, ours("lp_pool", 2, 2), theirs("lp_pool2d", 2.0, 2), FIRST),
        ("max pool 2×2×2, 2×32³×32", volumes, ours("max_pool", 2), theirs("max_pool3d", 2), FIRST),
        ("average pool 2×2×2, 2×32³×32", volumes, ours("avg_pool", 2), theirs("avg_pool3d", 2),
         FIRST),
        ("adaptive average pool 7², 8×56²×64", IMAGES, ours("adaptive_avg_pool", 7),
         theirs("adaptive_avg_pool2d", 7), FIRST),
        ("adaptive average pool 6², 8×13²×256", odd, ours("adaptive_avg_pool", 6),
         theirs("adaptive_avg_pool2d", 6), FIRST),
        ("adaptive max pool 6², 8×13²×256", odd, ours("adaptive_max_pool", 6),
         theirs("adaptive_max_pool2d", 6), FIRST),
        ("global max pool, 8×56²×64", IMAGES, ours("global_max_pool"), _global_max_torch, FIRST),
        ("global average pool, 8×56²×64", IMAGES, ours("global_avg_pool"), _global_mean_torch,
         FIRST),
        ("max unpool 2×2, 8×56²×64", _unpooled, ours("max_unpool", 2), theirs("max_unpool2d", 2),
         ALL),
    ]  # fmt: skip
    found = [row for *most, options in rows for row in both(*most, **options)]
    found.append(
        array_function(
            "max pool 3×3/2 with indices, 8×112²×64", wide,
            ours("max_pool", 3, return_indices=True, **window),
            theirs("max_pool2d", 3, 2, 1, return_indices=True), in_jax=False, **ALL,
        )
    )  # fmt: skip
    return found


# Norms


def _batch_norm(train: bool, l: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    return l.nn.batch_norm(x, scale, bias, mean, var * var + 0.5, train=train)[0]


def _batch_norm_torch(train: bool, t: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any):
    var = var * var + 0.5
    return t.nn.functional.batch_norm(x, mean.clone(), var, scale, bias, training=train)


def _group_norm_torch(t: Any, x: Any, scale: Any, bias: Any) -> Any:
    return t.nn.functional.group_norm(x, 8, scale, bias)


def _layer_norm_torch(t: Any, x: Any, scale: Any, bias: Any) -> Any:
    return t.nn.functional.layer_norm(x, x.shape[-1:], scale, bias)


def _add_layer_norm_torch(t: Any, x: Any, y: Any, scale: Any, bias: Any) -> Any:
    return t.nn.functional.layer_norm(x + y, x.shape[-1:], scale, bias)


def _rms_norm_torch(t: Any, x: Any, scale: Any) -> Any:
    return t.nn.functional.rms_norm(x, x.shape[-1:], scale, 1e-6)


def _instance_norm_torch(t: Any, x: Any, scale: Any, bias: Any) -> Any:
    return t.nn.functional.instance_norm(x, None, None, scale, bias)


def _norms() -> list[Workload]:
    channel, feature = normal(64, quick=(16,)), normal(768, quick=(96,))
    image = together(IMAGES, channel, channel)
    running = together(image, channel, channel)
    rows = [
        ("batch norm training, 8×56²×64", running, partial(_batch_norm, True),
         partial(_batch_norm_torch, True), (0, 1, 2), ALL),
        ("batch norm, 8×56²×64", running, partial(_batch_norm, False),
         partial(_batch_norm_torch, False), (0, 1, 2), ALL),
        ("nn.group_norm by 8, 8×56²×64", image, ours("group_norm", groups=8), _group_norm_torch,
         (0, 1, 2), ALL),
        ("instance norm, 8×56²×64", image, ours("instance_norm"), _instance_norm_torch, (0, 1, 2),
         ALL),
        ("local response norm, 8×56²×64", IMAGES, ours("local_response_norm", 5),
         theirs("local_response_norm", 5), (0,), ALL),
        ("layer norm, 8×512×768", together(FEATURES, feature, feature), ours("layer_norm"),
         _layer_norm_torch, (0, 1, 2), {}),
        ("add layer norm, 8×512×768", together(FEATURES, FEATURES, feature, feature),
         ours("add_layer_norm"), _add_layer_norm_torch, (0, 1, 2, 3), {}),
        ("rms norm, 8×512×768", together(FEATURES, feature), ours("rms_norm"), _rms_norm_torch,
         (0, 1), {}),
    ]  # fmt: skip
    return [row for *most, options in rows for row in both(*most, **options)]


# Resampling


def _points(*shape: int, channels: int) -> Inputs:
    """Images and points around theirs, some of which lie outside."""

    def make(rng: np.random.Generator, quick: bool) -> tuple:
        n, h, w = (1, 16, 16) if quick else shape
        x = rng.standard_normal((n, h, w, channels), dtype=np.float32)
        line = np.linspace(-1, 1, w, dtype=np.float32), np.linspace(-1, 1, h, dtype=np.float32)
        grid = np.stack(np.meshgrid(*line), -1) + rng.normal(0, 0.05, (n, h, w, 2))
        return x, grid.astype(np.float32)

    return make


def _sample_torch(mode: str, padding: str, t: Any, x: Any, grid: Any) -> Any:
    return t.nn.functional.grid_sample(x, grid, mode, padding, align_corners=False)


def _maps(rng: np.random.Generator, quick: bool) -> tuple:
    return (rng.standard_normal((2 if quick else 32, 2, 3), dtype=np.float32),)


def _affine_torch(n: int, t: Any, theta: Any) -> Any:
    size = [len(theta), 1, n, n]
    return t.nn.functional.affine_grid(theta, size, align_corners=False)


def _resampling() -> list[Workload]:
    found = []
    for method, name, ties in [
        ("linear", "bilinear", {}), ("linear", "bilinear", dict(align_corners=True)),
        ("cubic", "bicubic", {}),
    ]:  # fmt: skip
        corners = " aligned" if ties else ""
        found += both(
            f"upsampling {name}{corners} ×2, 8×56²×64", IMAGES,
            ours("upsample", scale_factor=2, method=method, **ties),
            theirs("interpolate", scale_factor=2, mode=name, **ties), **FIRST,
        )  # fmt: skip
    found += both(
        "resize to 40², 8×56²×64", IMAGES, ours("resize", 40),
        theirs("interpolate", size=40, mode="bilinear", antialias=True), **FIRST,
    )  # fmt: skip
    for method, padding, channels in [
        ("linear", "zeros", 3), ("linear", "border", 3), ("nearest", "zeros", 3),
        ("cubic", "zeros", 3), ("linear", "zeros", 64),
    ]:  # fmt: skip
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(method, method)
        side = 56 if channels == 64 else 224
        found += both(
            f"grid sampling {method} {padding}, 8×{side}²×{channels}",
            _points(8, side, side, channels=channels),
            ours("grid_sample", method=method, padding_mode=padding),
            partial(_sample_torch, mode, padding), (0, 1) if method != "nearest" else (0,),
            tolerance=1e-3, **FIRST,
        )  # fmt: skip
    found += both(
        "affine grid, 32×112²", _maps, ours("affine_grid", (112, 112)), partial(_affine_torch, 112)
    )
    for name in ("pixel_shuffle", "pixel_unshuffle"):
        found += both(f"{name} 2, 8×56²×64", IMAGES, ours(name, 2), theirs(name, 2), **FIRST)
    return found


# Tables, positions, order


def _ids(high: int, *shape: int, quick: tuple[int, ...]) -> Inputs:
    def make(rng: np.random.Generator, is_quick: bool) -> tuple:
        return (rng.integers(0, 500 if is_quick else high, quick if is_quick else shape),)

    return make


def _embedding_torch(t: Any, table: Any, ids: Any) -> Any:
    return t.nn.functional.embedding(ids, table)


def _bag(l: Any, table: Any, ids: Any) -> Any:
    return l.nn.embedding(table, ids).sum(1)


def _bag_torch(t: Any, table: Any, ids: Any) -> Any:
    return t.nn.functional.embedding_bag(ids, table, mode="sum")


def _rope_torch(t: Any, x: Any) -> Any:
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-t.arange(half) / half)
    angles = t.arange(x.shape[1])[:, None, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    a, b = x.chunk(2, -1)
    return t.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _kth(l: Any, x: Any) -> Any:
    return l.nn.kthvalue(x, 100)[0]


def _kth_torch(t: Any, x: Any) -> Any:
    return t.kthvalue(x, 100)[0]


def _one_hot(l: Any, ids: Any) -> Any:
    return l.nn.one_hot(ids, 1000)


def _one_hot_torch(t: Any, ids: Any) -> Any:
    return t.nn.functional.one_hot(ids, 1000).float()


def _dropout(l: Any, x: Any) -> Any:
    return l.nn.dropout(l.random.key(0), x, 0.1)


def _tables() -> list[Workload]:
    table = normal(50_000, 512, quick=(500, 16))
    ids = _ids(50_000, 8, 512, quick=(2, 32))
    bags = _ids(50_000, 1024, 32, quick=(4, 8))
    heads = normal(4, 1024, 16, 64, quick=(1, 32, 2, 16))
    dense = together(normal(512, 1024), normal(1024, 1024), normal(1024))
    slope = together(IMAGES, normal(64, quick=(16,)))
    return [
        *both("embedding, 50k×512, 8×512", together(table, ids), ours("embedding"),
              _embedding_torch),
        *both("embedding sums, 50k×512, 1024×32", together(table, bags), _bag, _bag_torch),
        *both("rope, 4×1024×16×64", heads, ours("rope"), _rope_torch),
        *both("kth value, 1024×1000", normal(1024, 1000, quick=(16, 200)), _kth, _kth_torch),
        array_function("one hot, 4096×1000", _ids(1000, 4096, quick=(64,)), _one_hot,
                       _one_hot_torch, in_jax=False),
        array_function("dropout, 8×512×768", FEATURES, _dropout, theirs("dropout", 0.1),
                       in_jax=False, tolerance=None),
        *both("prelu, 8×56²×64", slope, ours("prelu"), theirs("prelu"), (0, 1), **ALL),
        *both("dense, 512×1024→1024", dense, ours("dense"),
              lambda t, x, w, b: t.addmm(b, x, w), (0, 1, 2)),
    ]  # fmt: skip


WORKLOADS = [*_pools(), *_norms(), *_resampling(), *_tables()]
