"""Convolutions and pooling, forward and with gradients, NHWC."""

from __future__ import annotations

from functools import partial

import numpy as np

from .lib import Torch
from .workload import Inputs, Workload, array_function


def _inputs(x_shape: tuple[int, ...], w_shape: tuple[int, ...] | None) -> Inputs:
    def make(rng: np.random.Generator, quick: bool) -> tuple:
        _, *space, c = x_shape
        shape = (1, *(n // 4 for n in space), c) if quick else x_shape
        x = rng.standard_normal(shape, dtype=np.float32)
        if w_shape is None:
            return (x,)
        fan_in = np.prod(w_shape[:-1])
        return x, rng.standard_normal(w_shape, dtype=np.float32) / np.float32(fan_in**0.5)

    return make


# The same bytes in the form that PyTorch wants: logical NC…, its memory channels last


def to_torch(lib: Torch, args: tuple) -> tuple:
    """Images N…C become NC…, kernels …IO become OI…; vectors stay."""
    x, *weights = args
    return (x.movedim(-1, 1), *(_kernel(lib, w) if w.ndim > 1 else w for w in weights))


def _kernel(lib: Torch, w):
    formats = {4: lib.torch.channels_last, 5: lib.torch.channels_last_3d}
    return w.movedim((-1, -2), (0, 1)).contiguous(memory_format=formats[w.ndim])


def from_torch(result):
    """What `to_torch` undoes, of a result or of gradients."""
    if not isinstance(result, tuple):
        return result.movedim(1, -1)
    x, *weights = result
    weights = (w.movedim((0, 1), (-1, -2)) if w.ndim > 1 else w for w in weights)
    return (x.movedim(1, -1), *weights)


IMAGES = dict(torch_layout=to_torch, torch_canonical=from_torch)


def _transposed_layout(lib: Torch, args: tuple) -> tuple:
    x, *weights = args
    # lax.conv_transpose correlates; PyTorch's transposed convolution flips the kernel.
    kernels = [w.flip(0, 1).permute(2, 3, 0, 1).contiguous() for w in weights]
    return (x.movedim(-1, 1), *kernels)


def _transposed_canonical(result):
    if isinstance(result, tuple):
        x, w = result
        return x.permute(0, 2, 3, 1), w.permute(2, 3, 0, 1).flip(0, 1)
    return result.permute(0, 2, 3, 1)


def _conv(stride: int, groups: int, l, x, w):
    space = "DHW"[5 - x.ndim :]
    pads = [((n - 1) // 2,) * 2 for n in w.shape[: len(space)]]
    return l.lax.conv_general_dilated(
        x, w, (stride,) * len(space), pads, feature_group_count=groups,
        dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
    )  # fmt: skip


def _conv_torch(stride: int, groups: int, t, x, w):
    function = {4: t.nn.functional.conv2d, 5: t.nn.functional.conv3d}[x.ndim]
    return function(x, w, None, stride, [(n - 1) // 2 for n in w.shape[2:]], 1, groups)


def _transposed(l, x, w):
    return l.lax.conv_transpose(
        x, w, (2, 2), [(2, 2), (2, 2)], dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _transposed_torch(t, x, w):
    return t.nn.functional.conv_transpose2d(x, w, stride=2, padding=1)


def both(name: str, x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, groups: int = 1):
    """Forward and gradient rows of one convolution."""
    fn, fn_torch = partial(_conv, stride, groups), partial(_conv_torch, stride, groups)
    inputs = _inputs(x, w)
    return [
        array_function(name, inputs, fn, fn_torch, tolerance=1e-4, **IMAGES),
        array_function(
            f"{name} gradient", inputs, fn, fn_torch, argnums=(0, 1), tolerance=1e-3, **IMAGES
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
    shared = dict(torch_layout=to_torch, torch_canonical=_pool_canonical)
    return [
        array_function("max pool 3×3/2, 8×112²×64", inputs, max_pool, _max_pool_torch, **shared),
        array_function(
            "max pool 3×3/2 gradient, 8×112²×64", inputs, max_pool, _max_pool_torch,
            argnums=(0,), **shared,
        ),
        array_function("average pool 2×2, 8×112²×64", inputs, _avg_pool, _avg_pool_torch, **shared),
    ]  # fmt: skip


def _pool_canonical(result):
    return from_torch(result[0] if isinstance(result, tuple) else result)


WORKLOADS = [
    *both("conv 3×3, 8×56²×64→64", (8, 56, 56, 64), (3, 3, 64, 64), 1),
    *both("conv 1×1, 8×56²×64→256", (8, 56, 56, 64), (1, 1, 64, 256), 1),
    *both("conv 7×7/2, 8×224²×3→64", (8, 224, 224, 3), (7, 7, 3, 64), 2),
    *both("conv depthwise 3×3, 8×56²×128", (8, 56, 56, 128), (3, 3, 1, 128), 1, 128),
    *both("conv grouped 3×3 by 8, 8×28²×256", (8, 28, 28, 256), (3, 3, 32, 256), 1, 8),
    *_both_transposed(),
    *_pools(),
]
