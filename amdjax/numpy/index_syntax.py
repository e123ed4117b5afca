"""What may stand between brackets: an index parsed into one entry for each axis of the array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.dims import as_size, is_symbolic_dim, max_dim, min_dim, surely_equal
from amdjax.core.errors import NonConcreteBooleanIndexError
from amdjax.core.slices import Slice
from amdjax.core.trace import is_concrete
from amdjax.numpy._util import convert, is_kind
from amdjax.numpy.conversion import asarray

Mode = Any
Modes = lax.GatherScatterMode


class NewAxis:
    """`None` in an index."""


@dataclass(frozen=True, eq=False, repr=False)
class Window:
    """A slice with known bounds: `count` elements from `start` at distance `step`.

    Attributes:
      limit: where it ends at the latest, for a backward one counted as `start`; None where `count`
        tells it, as of all that is not symbolic.
    """

    start: int
    step: int
    count: int
    limit: Any = None

    def whole(self, n: int) -> bool:
        """Whether this is all of an axis of `n`."""
        return self.step == 1 and self.start == 0 and self.count == n


@dataclass(frozen=True, eq=False, repr=False)
class Dynamic:
    """A window of known size at a start that may be traced (`ds`)."""

    start: Any
    size: int
    step: int = 1


@dataclass(frozen=True, eq=False, repr=False)
class Point:
    """A known position."""

    at: int


@dataclass(frozen=True, eq=False, repr=False)
class Points:
    """An array of positions, negative ones counted from the end."""

    at: Any


class Gap:
    """An ellipsis that stands for no axes: index arrays on its two sides are not neighbors."""


Entry = NewAxis | Window | Dynamic | Point | Points | Gap


def parse(shape: tuple[int, ...], index: tuple[Any, ...]) -> list[tuple[Entry, int | None]]:
    """The entries of an index, each with the axis it consumes (None for new axes and gaps).

    Args:
      shape: shape of the array.
      index: entries as `without_scalar_masks` returns them.

    Raises:
      IndexError: too many indices, several ellipses, or an entry that is no index.
      TypeError: the index is a list, or an entry a float or an array of neither integers nor
        booleans.
    """
    for item in index:
        _check_type(item)
    items = _expand_booleans(shape, index)
    consuming = sum(1 for item in items if item is not None and item is not Ellipsis)
    if consuming > len(shape):
        raise IndexError(
            f"Too many indices: array is {len(shape)}-dimensional, but {consuming} were indexed"
        )
    ellipses = sum(1 for item in items if item is Ellipsis)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not ellipses:
        items = [*items, Ellipsis]
    entries: list[tuple[Entry, int | None]] = []
    axis = 0
    for item in items:
        if item is None:
            entries.append((NewAxis(), None))
        elif item is Ellipsis:
            if ellipses and consuming == len(shape) and _has_index_array(items):
                entries.append((Gap(), None))
            for _ in range(len(shape) - consuming):
                entries.append((Window(0, 1, shape[axis]), axis))
                axis += 1
        else:
            entries.append((_entry(item, shape[axis]), axis))
            axis += 1
    return entries


def _has_index_array(items: list[Any]) -> bool:
    return any(np.ndim(item) > 0 for item in items if getattr(item, "dtype", None) is not None)


def _is_boolean(item: Any) -> bool:
    return isinstance(item, (bool, np.bool_)) or getattr(item, "dtype", None) == np.bool_


def _expand_booleans(shape: tuple[int, ...], items: tuple[Any, ...]) -> list[Any]:
    """The index with every boolean mask replaced by the positions where it is true."""
    out: list[Any] = []
    for place, item in enumerate(items):
        if not _is_boolean(item):
            out.append(item)
            continue
        mask = _known_mask(item)
        axis = _axis_of(items, place, len(shape))
        expected = shape[axis : axis + mask.ndim]
        if (
            any(have not in (0, want) for have, want in zip(mask.shape, expected))
            or len(expected) < mask.ndim
        ):
            raise IndexError(
                f"boolean index did not match shape of indexed array in index {place}: got"
                f" {mask.shape}, expected {expected}"
            )
        out.extend(np.nonzero(mask))
    return out


def _known_mask(mask: Any) -> np.ndarray:
    if not is_concrete(mask):
        raise NonConcreteBooleanIndexError(mask)
    return np.asarray(mask)


def as_items(index: Any) -> tuple[Any, ...]:
    """The entries of an index, sequences among them as arrays.

    Raises:
      TypeError: the whole index is a list: it could mean a tuple or an array.
    """
    if not isinstance(index, tuple):
        if isinstance(index, list):
            several = any(
                i is None or isinstance(i, (slice, list, tuple)) or i is ... or np.ndim(i)
                for i in index
            )
            raise TypeError(
                "Using a non-tuple sequence for multidimensional indexing is not allowed; use"
                f" `arr[{'tuple' if several else 'array'}(seq)]` instead of `arr[seq]`."
                f" Got {index}"
            )
        return (index,)
    return tuple(_as_positions(i) if isinstance(i, (list, tuple)) else i for i in index)


def _as_positions(entries: Any) -> Any:
    positions = asarray(entries)
    return positions if positions.size else convert(positions, dtypes.default_int_dtype())


def without_scalar_masks(shape: tuple[int, ...], index: Any) -> tuple[Any, tuple[int, ...]]:
    """An index without its boolean scalars, and the axes of one that these stand for.

    A scalar is a mask of no axis: it selects from an axis of one that the array is given for it.
    """
    items = as_items(index)
    flags = [place for place, item in enumerate(items) if _is_boolean(item) and not np.ndim(item)]
    if not flags:
        return items, ()
    axes = tuple(_axis_of(items, place, len(shape)) + n for n, place in enumerate(flags))
    positions = lambda item: np.arange(int(_known_mask(item)), dtype=np.int32)
    return tuple(positions(v) if i in flags else v for i, v in enumerate(items)), axes


def _axis_of(items: tuple[Any, ...], place: int, rank: int) -> int:
    """The first axis that the entry at `place` consumes."""

    def width(item: Any) -> int:
        if item is None or item is Ellipsis:
            return 0
        return np.ndim(item) if _is_boolean(item) else 1

    before = items[:place]
    axis = sum(width(item) for item in before)
    if any(item is Ellipsis for item in before):
        axis += rank - sum(width(item) for item in items)
    return axis


def _check_type(item: Any) -> None:
    """Refuse what is a value, but not of a type to index with."""
    if isinstance(item, str):
        raise TypeError(f"JAX does not support string indexing; got idx={item!r}")
    if not isinstance(item, (float, complex, np.generic, np.ndarray, Array)):
        return
    dtype = dtypes.dtype(item)
    if dtype != np.bool_ and not is_kind(dtype, np.integer):
        raise TypeError(
            f"Indexer must have integer or boolean type, got indexer with type {dtype} at indexer"
            f" value {item}"
        )


def _entry(item: Any, n: int) -> Entry:
    if isinstance(item, slice):
        return _slice_entry(item, n)
    if isinstance(item, Slice):
        if item.is_dynamic_size:
            raise TypeError(
                f"Shapes must be 1D sequences of concrete values of integer type, got {item.size}: "
                "the size in ds(start, size) must be known"
            )
        return Dynamic(item.start, item.size, item.stride)
    if isinstance(item, (int, np.integer)):
        return Point(int(item))
    if isinstance(item, (Array, np.ndarray)):
        return Points(item)
    if hasattr(item, "__jax_array__"):
        return _entry(item.__jax_array__(), n)
    if hasattr(item, "__index__"):
        return Point(item.__index__())
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean"
        f" arrays are valid indices. Got {item}"
    )


def _slice_entry(item: slice, n: int) -> Entry:
    try:
        if any(map(is_symbolic_dim, (n, item.start, item.stop, item.step))):
            return _symbolic_window(item, n)
        start, stop, step = item.indices(n)
    except TypeError:
        raise IndexError(
            "Array slice indices must have static start/stop/step to be used with NumPy indexing"
            f" syntax. Found slice({item.start}, {item.stop}, {item.step}). To index a statically"
            " sized array at a dynamic position, try lax.dynamic_slice/dynamic_update_slice."
        ) from None
    return Window(start, step, len(range(start, stop, step)))


def _symbolic_window(item: slice, n: Any) -> Window:
    """What a slice takes of an axis where the size or a bound is symbolic."""
    step = 1 if item.step is None else as_size(item.step)
    if surely_equal(step, 0):
        raise ValueError("slice step cannot be zero")
    first, end = (0, n) if step > 0 else (n - 1, -1)  # where the slice may begin and end

    def bound(value: Any, default: Any) -> Any:
        if value is None:
            return default
        value = as_size(value)
        least, most = (0, n) if step > 0 else (-1, n - 1)
        return min_dim(max_dim(value + n if value < 0 else value, least), most)

    start, stop = bound(item.start, first), bound(item.stop, end)
    span = stop - start if step > 0 else start - stop
    return Window(start, step, max_dim((span + abs(step) - 1) // abs(step), 0), stop)


def parse_mode(mode: Mode, default: Mode) -> Mode:
    """How an index out of bounds is treated, as lax's enumeration."""
    return default if mode is None else Modes.from_any(mode)
