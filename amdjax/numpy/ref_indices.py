"""Indices of references: a static form, which is a parameter, and the arrays in it, operands."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray, get_aval, is_valid_value
from amdjax.core.errors import NonConcreteBooleanIndexError
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.ref import is_ref
from amdjax.core.slices import Slice
from amdjax.core.trace import is_concrete
from amdjax.numpy.index_syntax import parse, without_scalar_masks
from amdjax.numpy.index_updates import update_index
from amdjax.numpy.indexing import contiguous, take_index
from amdjax.transforms.forward import jvp_flat


class _Operand:
    """Stands in an index for an operand."""

    def __repr__(self) -> str:
        return "_"


OPERAND = _Operand()
Index = tuple[Any, ...]


def split_index(shape: Sequence[int], index: Any) -> tuple[Index, list[Any]]:
    """An index as a hashable form and the arrays in it.

    Raises:
      ValueError: there are too many indices, or a known position is out of bounds.
      TypeError: an entry is no index.
    """
    if index is None or index is Ellipsis:
        return (), []
    items = index if isinstance(index, tuple) else (index,)
    consumed = sum(_rank_of(i) for i in items)
    if consumed > len(shape):
        raise ValueError(
            f"`indices` must not be longer than `shape`: indices={items}, shape={tuple(shape)}"
        )
    static: list[Any] = []
    arrays: list[Any] = []

    def operand(value: Any) -> Any:
        arrays.append(value)
        return OPERAND

    axis = 0
    for place, item in enumerate(items):
        if item is Ellipsis:
            static.append(item)
            axis = len(shape) - sum(_rank_of(i) for i in items[place + 1 :])
        elif item is None:
            static.append(item)
        elif isinstance(item, slice):
            parts = (item.start, item.stop, item.step)
            static.append(("slice", *(p if _known(p) else operand(p) for p in parts)))
            axis += 1
        elif isinstance(item, Slice):
            start = item.start if _known(item.start) else operand(_checked_index(item.start))
            static.append(("window", start, item.size, item.stride))
            axis += 1
        elif _is_integer(item) and not isinstance(item, Array):
            static.append(_position(int(item), shape[axis]))
            axis += 1
        elif getattr(item, "dtype", None) == np.bool_:
            for positions in np.nonzero(_known_mask(item)):
                static.append(operand(positions))
            axis += np.ndim(item)
        else:
            static.append(operand(_checked_index(item)))
            axis += 1
    return tuple(static), arrays


def _rank_of(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return np.ndim(item) if getattr(item, "dtype", None) == np.bool_ else 1


def _known(part: Any) -> bool:
    return part is None or isinstance(part, (int, np.integer))


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def _position(at: int, n: int) -> int:
    if not -n <= at < n:
        raise ValueError(f"Out of bound indexer: idx={at}, dim={n}.")
    return at % n


def _known_mask(mask: Any) -> np.ndarray:
    if not is_concrete(mask):
        raise NonConcreteBooleanIndexError(mask)
    return np.asarray(mask)


def _checked_index(item: Any) -> Any:
    if not is_valid_value(item) or is_ref(item):
        raise TypeError(f"Argument '{item}' of type {type(item)} is not a valid JAX type")
    if not dtypes.issubdtype(get_aval(item).dtype, np.integer):
        raise TypeError(f"an index must be an integer, got {item!r} of {get_aval(item)}.")
    return item


def _joined(index: Index, arrays: Any) -> tuple[Any, ...]:
    """The index with operands in their places; `arrays` is an iterator."""

    def place(part: Any) -> Any:
        return next(arrays) if part is OPERAND else part

    out: list[Any] = []
    for part in index:
        if isinstance(part, tuple):
            made = slice if part[0] == "slice" else Slice
            out.append(made(*(place(p) for p in part[1:])))
        else:
            out.append(place(part))
    return tuple(out)


def _is_reshape(index: Index) -> bool:
    """Whether in place of an index there is `("reshape", shape)`: all elements in another shape."""
    return index[:1] == ("reshape",)


def read_part(value: Any, indices: Sequence[Index], arrays: Any) -> Any:
    """What indices, one after the other, speak of in `value`; `arrays` iterates over operands."""
    for index in indices:
        if _is_reshape(index):
            value = lax.reshape(value, index[1])
        else:
            value = take_index(value, _joined(index, arrays))
    return value


def write_part(value: Any, indices: Sequence[Index], arrays: Any, new: Any, add: bool) -> Any:
    """`value` with what the last index speaks of replaced, or added to."""
    if not indices:
        return lax.add(value, new) if add else new
    if _is_reshape(indices[0]):
        part = lax.reshape(value, indices[0][1])
        return lax.reshape(write_part(part, indices[1:], arrays, new, add), value.shape)
    index = _joined(indices[0], arrays)
    if len(indices) > 1:
        part = write_part(take_index(value, index), indices[1:], arrays, new, add)
        return _write_at(value, index, part, False)
    return _write_at(value, index, new, add)


def _write_at(value: Any, index: tuple[Any, ...], new: Any, add: bool) -> Any:
    items, single = without_scalar_masks(value.shape, index)
    window = None if single else contiguous(value, parse(value.shape, items))
    if window is None or window.reversed:
        return update_index(value, index, new, lax.scatter_add if add else lax.scatter)
    if add:
        new = lax.add(take_index(value, index), new)
    new = lax.reshape(new, window.sizes)
    if window.sizes == value.shape:
        return new
    return lax.dynamic_update_slice_p.bind(value, new, *window.starts)


def write_tangent(value: Any, indices: Any, arrays: Sequence[Any], t: Any, add: bool) -> Any:
    """What `write_part` does to tangents; written so that it can be transposed."""

    def write(value: Any, new: Any) -> list[Any]:
        return [write_part(value, indices, iter(arrays), new, add)]

    if not any(np.ndim(a) for a in arrays):
        return write(value, t)[0]
    # Of several updates of one place one wins; the derivative of a scatter finds out which.
    zeros = [lax.full_like(x, 0) for x in (value, t)]
    return jvp_flat(write, zeros, [value, t])[1][0]


@functools.lru_cache(4096)
def indexed_type(inner: ShapedArray, indices: tuple[Index, ...], arrays: tuple[Any, ...]) -> Any:
    """The type of what indices speak of."""
    if not indices:
        return inner
    closed = trace_to_jaxpr(
        lambda value, *arrays: [read_part(value, indices, iter(arrays))], [inner, *arrays]
    )
    return closed.out_avals[0]
