"""The few array operations that the transforms themselves need.

They are primitives of `lax`, a floor above, which registers them here with `install`; the
transforms then apply them as anybody would. Rules within `lax` find here what stands in a file
above theirs, where two primitives are each other's transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.backend import get_backend

_installed: dict[str, Callable[..., Any]] = {}

NAMES = (
    "broadcast_in_dim",  # (x, shape, broadcast_dimensions)
    "transpose",  # (x, permutation)
    "reshape",  # (x, new_sizes)
    "reduce_sum",  # (x, axes), and so the next three
    "reduce_max",
    "reduce_min",
    "select",  # (pred, on_true, on_false)
    "eye",  # (rows, columns, offset, dtype): ones where column == row + offset
    "slice_in_dim",  # (x, start, stop, axis)
    "iota",  # (dtype, size)
    "take",  # (x, indices, axis): x at a vector of indices along an axis
    "concatenate",  # (xs, axis)
    "scatter_add",  # (operand, indices, updates, dimension_numbers, ...)
    "mul",  # (x, y), and so the next
    "div",
    "convert",  # (x, dtype, weak_type)
)


def install(**functions: Callable[..., Any]) -> None:
    """Register the operations listed in `NAMES`."""
    unknown = set(functions) - set(NAMES)
    if unknown:
        raise ValueError(f"not operations of the transforms: {sorted(unknown)}")
    _installed.update(functions)


def __getattr__(name: str) -> Callable[..., Any]:
    try:
        return _installed[name]
    except KeyError:
        if name in NAMES:
            raise RuntimeError(
                f"{name} is registered by amdjax.lax, which is not imported"
            ) from None
        raise AttributeError(name) from None


def full(shape: Sequence[int], value: Any, dtype: Any, weak_type: bool = False) -> Any:
    """An array filled with one number; a fill operation where a program is recorded."""
    aval = ShapedArray((), dtype, weak_type)
    scalar: Any = np.asarray(value, dtype)[()]
    if weak_type:
        scalar = scalar.item()
    if get_aval(scalar) is not aval:  # numbers have the default dtypes
        scalar = get_backend().array(aval, np.asarray(value, dtype))
    if not shape:
        return scalar
    return _installed["broadcast_in_dim"](scalar, tuple(shape), ())


def moveaxis(x: Any, source: int, destination: int) -> Any:
    """`x` with one axis moved; `x` itself if it is in place."""
    ndim = get_aval(x).ndim
    source, destination = source % ndim, destination % ndim
    if source == destination:
        return x
    order = [i for i in range(ndim) if i != source]
    order.insert(destination, source)
    return _installed["transpose"](x, tuple(order))


def broadcast(x: Any, size: int, axis: int) -> Any:
    """`x` repeated along a new axis."""
    shape = list(get_aval(x).shape)
    shape.insert(axis, size)
    kept = tuple(i for i in range(len(shape)) if i != axis)
    return _installed["broadcast_in_dim"](x, tuple(shape), kept)
