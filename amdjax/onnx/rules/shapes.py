"""Shapes, and what moves elements without looking at them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax import numpy as jnp
from amdjax.core.dims import is_symbolic_dim

from ..errors import OnnxError
from ..registry import integer, ints, is_host, namespace, rule


def sizes(values: Any) -> np.ndarray:
    """Sizes as an array of int64, or of objects where some are symbolic."""
    values = list(values)
    return np.array(values, object if any(map(is_symbolic_dim, values)) else np.int64)


@rule("Shape")
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return sizes(x.shape[start:end])


@rule("Size")
def size(x: Any) -> Any:
    return sizes([math.prod(x.shape)]).reshape(())


@rule("Reshape", since=5)
def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    wanted = ints(shape, "shape")
    if not allowzero:
        wanted = [x.shape[i] if isinstance(n, int) and n == 0 else n for i, n in enumerate(wanted)]
    return namespace(x).reshape(x, tuple(wanted))


@rule("Reshape")
def reshape_before(x: Any, *, shape: Any, consumed_inputs: Any = None) -> Any:
    return reshape(x, np.asarray(shape))


@rule("Flatten")
def flatten(x: Any, *, axis: int = 1) -> Any:
    axis += x.ndim if axis < 0 else 0
    shape = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return namespace(x).reshape(x, shape)


@rule("Squeeze", since=13)
def squeeze(x: Any, axes: Any = None) -> Any:
    axis = None if axes is None else tuple(ints(axes, "axes"))
    return namespace(x).squeeze(x, axis)


@rule("Squeeze")
def squeeze_before(x: Any, *, axes: Any = None) -> Any:
    return squeeze(x, None if axes is None else np.asarray(axes))


@rule("Unsqueeze", since=13)
def unsqueeze(x: Any, axes: Any) -> Any:
    return namespace(x).expand_dims(x, tuple(ints(axes, "axes")))


@rule("Unsqueeze")
def unsqueeze_before(x: Any, *, axes: Any) -> Any:
    return unsqueeze(x, np.asarray(axes))


@rule("Transpose")
def transpose(x: Any, *, perm: Any = None) -> Any:
    return namespace(x).transpose(x, perm)


@rule("Concat")
def concat(*xs: Any, axis: int = 1) -> Any:
    return namespace(*xs).concatenate(xs, axis)


@rule("Split", since=13)
def split(
    x: Any, split: Any = None, *, axis: int = 0, num_outputs: int | None = None, node: Any
) -> Any:
    length = x.shape[axis]
    if split is not None:
        parts = ints(split, "split")
    else:
        count = num_outputs or node.outputs
        part = -(-length // count)
        parts = [part] * (count - 1) + [length - part * (count - 1)]
    ends = np.cumsum(parts).tolist()
    if ends[-1] != length:
        raise OnnxError(f"split: parts of {parts} do not add up to {length}")
    return tuple(namespace(x).split(x, ends[:-1], axis))


@rule("Split")
def split_before(x: Any, parts: Any = None, *, axis: int = 0, split: Any = None, node: Any) -> Any:
    if parts is None and split is not None:
        parts = np.asarray(split)
    return globals()["split"](x, parts, axis=axis, node=node)


@rule("Slice", since=10)
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = ints(starts, "starts"), ints(ends, "ends")
    over = range(len(first)) if axes is None else ints(axes, "axes")
    by = [1] * len(first) if steps is None else ints(steps, "steps")
    index = [slice(None)] * x.ndim
    for axis, low, high, step in zip(over, first, last, by):
        index[axis] = _bounds(low, high, step, x.shape[axis])
    if is_host(x) and any(is_symbolic_dim(n) for n in (*first, *last, *by)):
        x = jnp.asarray(x)  # of which a part is taken whose size is symbolic
    return x[tuple(index)]


def _bounds(low: Any, high: Any, step: int, length: Any) -> slice:
    """A slice as Python has it: an end before the first element is None."""
    if step == 0:
        raise OnnxError("steps must not be zero")
    if step < 0 and not is_symbolic_dim(high) and not is_symbolic_dim(length) and high < -length:
        high = None
    if not is_symbolic_dim(high) and high is not None and high >= 2**31 - 1:
        high = None
    return slice(low, high, step)


@rule("Slice")
def slice_before(x: Any, *, starts: Any, ends: Any, axes: Any = None) -> Any:
    return slice_(x, *map(np.asarray, (starts, ends)), None if axes is None else np.asarray(axes))


@rule("Expand", since=8)
def expand(x: Any, shape: Any) -> Any:
    """Both are repeated to what they have in common."""
    wanted = ints(shape, "shape")
    rank = max(len(wanted), x.ndim)
    own = [1] * (rank - x.ndim) + list(x.shape)
    wanted = [1] * (rank - len(wanted)) + wanted
    common = tuple(o if isinstance(w, int) and w == 1 else w for o, w in zip(own, wanted))
    xp = jnp if any(map(is_symbolic_dim, common)) else namespace(x)
    return xp.broadcast_to(x, common)


@rule("Tile", since=6)
def tile(x: Any, repeats: Any) -> Any:
    return namespace(x).tile(x, ints(repeats, "repeats"))


@rule("Tile")
def tile_before(x: Any, tiles: Any, axis: Any) -> Any:
    repeats = [1] * x.ndim
    repeats[integer(axis, "axis")] = integer(tiles, "tiles")
    return namespace(x).tile(x, repeats)


_PADS = ("constant", "reflect", "edge", "wrap")


@rule("Pad", since=11)
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    amounts = ints(pads, "pads")
    over = list(range(x.ndim)) if axes is None else ints(axes, "axes")
    width = [(0, 0)] * x.ndim
    for axis, before, after in zip(over, amounts[: len(over)], amounts[len(over) :], strict=True):
        width[axis] = (before, after)
    # What is cut away is so before anything is put on.
    cut = tuple(slice(-min(b, 0), n + min(a, 0)) for (b, a), n in zip(width, x.shape))
    x = x[cut]
    width = [(max(b, 0), max(a, 0)) for b, a in width]
    if mode not in _PADS:
        raise OnnxError(f"mode must be one of {', '.join(_PADS)}, got {mode!r}")
    if mode != "constant":
        return jnp.pad(x, width, mode=mode)
    fill = np.zeros((), x.dtype) if value is None else value.reshape(())
    return jnp.pad(x, width, constant_values=fill)


@rule("Pad")
def pad_before(
    x: Any, *, pads: Any = None, paddings: Any = None, mode: str = "constant", value: float = 0.0
) -> Any:
    amounts = np.asarray(paddings if pads is None else pads)
    return pad(x, amounts, np.asarray(value).astype(x.dtype), mode=mode)


@rule("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    b, c, h, w = x.shape
    s, rest = blocksize, c // blocksize**2
    if mode == "DCR":
        y = x.reshape(b, s, s, rest, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(b, rest, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(b, rest, h * s, w * s)


@rule("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    b, c, h, w = x.shape
    s = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = x.reshape(b, c, h // s, s, w // s, s).transpose(order)
    return y.reshape(b, c * s * s, h // s, w // s)


@rule("Trilu", since=14)
def trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    diagonal = 0 if k is None else integer(k, "k")
    xp = namespace(x)
    return (xp.triu if upper else xp.tril)(x, diagonal)


@rule("ReverseSequence", since=10)
def reverse_sequence(x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    """The first steps of each sequence in the other order, the rest as it is."""
    steps = jnp.arange(x.shape[time_axis])
    spread = [1] * x.ndim
    spread[time_axis] = x.shape[time_axis]
    steps = steps.reshape(spread)
    spread = [1] * x.ndim
    spread[batch_axis] = x.shape[batch_axis]
    lengths = jnp.asarray(lengths).astype(steps.dtype).reshape(spread)
    index = jnp.where(steps < lengths, lengths - 1 - steps, steps)
    return jnp.take_along_axis(x, index, time_axis)
