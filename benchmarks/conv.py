"""Convolutions and pooling, forward and with gradients, NHWC."""

from __future__ import annotations

from functools import partial

import numpy as np

from .lib import Torch
from .workload import Inputs, Workload, array_function

DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def _inputs(x_shape: tuple[int, ...], w_shape: tuple[int, ...] | None) -> Inputs:
    def make(rng: np.random.Generator, quick: bool) -> tuple:
        _, h, w, c = x_shape
        shape = (1, h // 4, w // 4, c) if quick else x_shape
        x = rng.standard_normal(shape, dtype=np.float32)
        if w_shape is None:
            return (x,)
        fan_in = w_shape[0] * w_shape[1] * w_shape[2]
        return x, rng.standard_normal(w_shape, dtype=np.float32) / np.float32(fan_in**0.5)

    return make


def channels_last(lib: Torch, x):
    """NHWC data as a logical NCHW tensor: the same bytes, in the form PyTorch wants."""
    return x.permute(0, 3, 1, 2)


def _layout(lib: Torch, args: tuple) -> tuple:
    x, *weights = args
    layout = lib.torch.channels_last
    kernels = [w.permute(3, 2, 0, 1).contiguous(memory_format=layout) for w in weights]
    return (channels_last(lib, x), *kernels)


def _transposed_layout(lib: Torch, args: tuple) -> tuple:
    x, *weights = args
    # lax.conv_transpose correlates; PyTorch's transposed convolution flips the kernel.
    kernels = [w.flip(0, 1).permute(2, 3, 0, 1).contiguous() for w in weights]
    return (channels_last(lib, x), *kernels)


def _canonical(result):
    if isinstance(result, tuple):
        x, *kernels = result
        return (x.permute(0, 2, 3, 1), *(w.permute(2, 3, 1, 0) for w in kernels))
    return result.permute(0, 2, 3, 1)


def _transposed_canonical(result):
    if isinstance(result, tuple):
        x, w = result
        return x.permute(0, 2, 3, 1), w.permute(2, 3, 0, 1).flip(0, 1)
    return result.permute(0, 2, 3, 1)


def _conv(stride: int, pad: int, groups: int, l, x, w):
    return l.lax.conv_general_dilated(
        x, w, (stride, stride), [(pad, pad)] * 2,
        dimension_numbers=DIMENSIONS, feature_group_count=groups,
    )  # fmt: skip


def _conv_torch(stride: int, pad: int, groups: int, t, x, w):
    return t.nn.functional.conv2d(x, w, None, stride, pad, 1, groups)


def _transposed(l, x, w):
    return l.lax.conv_transpose(x, w, (2, 2), [(2, 2), (2, 2)], dimension_numbers=DIMENSIONS)


def _transposed_torch(t, x, w):
    return t.nn.functional.conv_transpose2d(x, w, stride=2, padding=1)


def _both(name: str, x: tuple[int, ...], w: tuple[int, ...], stride: int, groups: int = 1):
    """Forward and gradient rows of one convolution."""
    pad = (w[0] - 1) // 2
    shared = dict(torch_layout=_layout, torch_canonical=_canonical)
    fn, fn_torch = partial(_conv, stride, pad, groups), partial(_conv_torch, stride, pad, groups)
    inputs = _inputs(x, w)
    return [
        array_function(name, inputs, fn, fn_torch, tolerance=1e-4, **shared),
        array_function(
            f"{name} gradient", inputs, fn, fn_torch, argnums=(0, 1), tolerance=1e-3, **shared
        ),
    ]


def _both_transposed() -> list[Workload]:
    inputs = _inputs((8, 28, 28, 128), (4, 4, 128, 64))
    shared = dict(torch_layout=_transposed_layout, torch_canonical=_transposed_canonical)
    name = "conv transposed 4×4/2, 8×28²×128→64"
    return [
        array_function(name, inputs, _transposed, _transposed_torch, tolerance=1e-4, **shared),
        array_function(
            f"{name} gradient", inputs, _transposed, _transposed_torch,
            argnums=(0, 1), tolerance=1e-3, **shared,
        ),
    ]  # fmt: skip


def max_pool(l, x):
    """3×3 windows, stride 2, padding 1."""
    return l.lax.reduce_window(
        x, -l.np.inf, l.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]
    )


def _max_pool_torch(t, x):
    return t.nn.functional.max_pool2d(x, 3, 2, 1)


def _avg_pool(l, x):
    window = (1, 2, 2, 1)
    return l.lax.reduce_window(x, 0.0, l.lax.add, window, window, "VALID") / 4


def _avg_pool_torch(t, x):
    return t.nn.functional.avg_pool2d(x, 2)


def _pools() -> list[Workload]:
    inputs = _inputs((8, 112, 112, 64), None)
    shared = dict(torch_layout=_layout, torch_canonical=_pool_canonical)
    return [
        array_function("max pool 3×3/2, 8×112²×64", inputs, max_pool, _max_pool_torch, **shared),
        array_function(
            "max pool 3×3/2 gradient, 8×112²×64", inputs, max_pool, _max_pool_torch,
            argnums=(0,), **shared,
        ),
        array_function("average pool 2×2, 8×112²×64", inputs, _avg_pool, _avg_pool_torch, **shared),
    ]  # fmt: skip


def _pool_canonical(result):
    x = result[0] if isinstance(result, tuple) else result
    return x.permute(0, 2, 3, 1)


WORKLOADS = [
    *_both("conv 3×3, 8×56²×64→64", (8, 56, 56, 64), (3, 3, 64, 64), 1),
    *_both("conv 1×1, 8×56²×64→256", (8, 56, 56, 64), (1, 1, 64, 256), 1),
    *_both("conv 7×7/2, 8×224²×3→64", (8, 224, 224, 3), (7, 7, 3, 64), 2),
    *_both("conv depthwise 3×3, 8×56²×128", (8, 56, 56, 128), (3, 3, 1, 128), 1, 128),
    *_both("conv grouped 3×3 by 8, 8×28²×256", (8, 28, 28, 256), (3, 3, 32, 256), 1, 8),
    *_both_transposed(),
    *_pools(),
]
