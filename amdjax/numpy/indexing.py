"""Indexing with `x[index]` and updates with `x.at[index]`.

An index is parsed into one entry for each axis of the array. Where all entries are known it becomes
`slice`, with one traced start a `dynamic_slice`, otherwise a `gather` (for updates a `scatter`)
whose dimension numbers are worked out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax import dtypes, lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.config import config
from amdjax.core.context import Context, context
from amdjax.core.dims import (
    is_natural,
    is_symbolic_dim,
    largest,
    max_dim,
    same_shape,
    surely_equal,
)
from amdjax.numpy._util import (
    as_array,
    broadcast_arrays,
    convert,
    is_kind,
    scalar_of,
    select,
    strong,
)
from amdjax.numpy.index_syntax import (
    Dynamic,
    Gap,
    Mode,
    Modes,
    NewAxis,
    Point,
    Points,
    Window,
    parse,
    parse_mode,
    without_scalar_masks,
)


def take_index(
    x: Array, index: Any, *, mode: Mode = None, fill_value: Any = None,
    indices_are_sorted: bool = False, unique_indices: bool = False,
    wrap_negative_indices: bool = True,
) -> Array:  # fmt: skip
    """`x[index]`.

    Positions known to Python are clamped by default, and so are those of index arrays
    (`mode="promise_in_bounds"` of lax); `mode` changes that.
    """
    index, single = without_scalar_masks(x.shape, index)
    x = lax.expand_dims(x, single) if single else x
    entries = parse(x.shape, index)
    plain = mode is None or parse_mode(mode, None) in (Modes.PROMISE_IN_BOUNDS, Modes.CLIP)
    if config.check_static_indices:
        _check_static(x, entries)
    if plain and all(isinstance(e, (NewAxis, Window, Point)) for e, _ in entries):
        if (_moves(x, entries) or _outside(x, entries)) and _is_dynamic_slice(entries):
            return _dynamic(x, entries, wrap_negative_indices)
        if all(x.shape[axis or 0] for e, axis in entries if isinstance(e, Point)):
            return _static(x, entries, wrap_negative_indices)
        raise IndexError("index is out of bounds for axis with size 0")
    if plain and _is_dynamic_slice(entries):
        return _dynamic(x, entries, wrap_negative_indices)
    plan = index_plan(x, entries, wrap_negative_indices)
    if plan.out_of_reach:
        raise IndexError("cannot do a non-empty take() from an empty axis.")
    y = lax.gather(
        x, plan.indices, dimension_numbers=plan.gather_numbers(), slice_sizes=plan.slice_sizes,
        indices_are_sorted=indices_are_sorted or plan.sorted,
        unique_indices=unique_indices or plan.unique,
        mode=parse_mode(mode, Modes.PROMISE_IN_BOUNDS), fill_value=fill_value,
    )  # fmt: skip
    if plan.reversed:
        y = lax.rev(y, plan.reversed)
    return lax.expand_dims(y, plan.new_axes) if plan.new_axes else y


def _moves(x: Array, entries: list[Any]) -> bool:
    """Whether an eager slice should take its start as an operand.

    A loop over batches or rows would otherwise compile a program for each start.
    """
    if context.trace is not Context.base:
        return False
    return any(
        isinstance(e, Point) or (isinstance(e, Window) and not e.whole(x.shape[axis]))
        for e, axis in entries
    )


def _outside(x: Array, entries: list[Any]) -> bool:
    """Whether a known position lies outside the array; it stays in the program, to be checked."""
    points = [(e.at, x.shape[axis]) for e, axis in entries if isinstance(e, Point)]
    inside = lambda at, n: is_natural(at + n) and is_natural(n - 1 - at)
    return all(n for _, n in points) and not all(inside(at, n) for at, n in points)


@composite
def row(x: Array, at: Array) -> Array:
    """The slice of `x` at a position of its first axis that is known to exist."""
    return lax.dynamic_index_in_dim(x, at, 0, keepdims=False)


def _check_static(x: Array, entries: list[Any]) -> None:
    for entry, axis in entries:
        if isinstance(entry, Point) and not -x.shape[axis] <= entry.at < x.shape[axis]:
            raise IndexError(
                f"index {entry.at} out of bounds for axis {axis} with size {x.shape[axis]}"
            )


def _static(x: Array, entries: list[Any], wrap: bool) -> Array:
    """An index of known windows and positions: slice, reverse, drop and add axes."""
    starts, limits, steps = [], [], []
    turned, flipped, dropped, added = [], [], [], []
    out = 0
    for entry, axis in entries:
        if isinstance(entry, NewAxis):
            added.append(out)
            out += 1
            continue
        n = x.shape[axis]
        if isinstance(entry, Point):
            at = entry.at + n if wrap and entry.at < 0 else entry.at
            at = min(max(at, 0), n - 1)
            starts.append(at)
            limits.append(at + 1)
            steps.append(1)
            dropped.append(axis)
            continue
        first, step, count = entry.start, entry.step, entry.count
        if entry.limit is not None and abs(step) != 1:
            # The last one depends on how often the step fits: the slice ends where it was said to.
            limit = entry.limit
            if step < 0:
                turned.append(axis)
                first, limit, step = n - 1 - first, n - 1 - limit, -step
            starts.append(first)
            limits.append(max_dim(first, limit))
        else:
            # From the first element to the last one, or none where a symbolic count is 0.
            reach = max_dim((count - 1) * abs(step) + 1, 0)
            if step < 0:
                flipped.append(axis)
                first, step = max_dim(first + 1 - reach, 0), -step
            first = 0 if surely_equal(reach, 0) else first
            starts.append(first)
            limits.append(first + reach)
        steps.append(step)
        out += 1
    x = lax.rev(x, tuple(turned)) if turned else x
    whole = all(surely_equal(s, 0) for s in starts) and same_shape(limits, x.shape)
    if any(s != 1 for s in steps) or not whole:
        x = lax.slice(x, starts, limits, None if all(s == 1 for s in steps) else steps)
    x = lax.rev(x, tuple(flipped)) if flipped else x
    x = lax.squeeze(x, tuple(dropped)) if dropped else x
    return lax.expand_dims(x, tuple(added)) if added else x


def _is_dynamic_slice(entries: list[Any]) -> bool:
    """Whether windows are contiguous and every traced position is a scalar."""
    for entry, _ in entries:
        if isinstance(entry, Window) and entry.step not in (1, -1) and largest(entry.count) > 1:
            return False
        if isinstance(entry, Points) and np.ndim(entry.at):
            return False
        if isinstance(entry, Dynamic) and entry.step != 1:
            return False
    return True


@dataclass
class Contiguous:
    """A window of an array whose start may be traced.

    Attributes:
      starts, sizes: for each axis; starts are scalars of one dtype.
      reversed, dropped: axes that run backwards, and those that are left out.
      new_axes: where axes of one are put in.
    """

    starts: list[Any]
    sizes: tuple[int, ...]
    reversed: tuple[int, ...]
    dropped: tuple[int, ...]
    new_axes: tuple[int, ...]


def contiguous(x: Array, entries: list[Any], wrap: bool = True) -> Contiguous | None:
    """The window that an index speaks of, None if it is none."""
    if not _is_dynamic_slice(entries):
        return None
    starts: list[Any] = []
    sizes, flipped, dropped, added = [], [], [], []
    out = 0
    for entry, axis in entries:
        if isinstance(entry, NewAxis):
            added.append(out)
            out += 1
            continue
        n = x.shape[axis]
        if isinstance(entry, Window):
            backwards = entry.step < 0
            first = entry.start - entry.count + 1 if backwards else entry.start
            if backwards:
                flipped.append(axis)
            starts.append(0 if surely_equal(entry.count, 0) else first)
            sizes.append(entry.count)
            out += 1
        elif isinstance(entry, Dynamic):
            starts.append(_wrapped(entry.start, n) if wrap else entry.start)
            sizes.append(entry.size)
            out += 1
        else:
            at = _wrapped(entry.at, n) if wrap else entry.at
            if n == 0:
                raise IndexError(f"index is out of bounds for axis {axis} with size 0")
            starts.append(at)
            sizes.append(1)
            dropped.append(axis)
    kind = _index_dtype(starts)
    starts = [
        scalar_of(s, kind) if isinstance(s, (int, np.integer)) else convert(s, kind) for s in starts
    ]
    return Contiguous(starts, tuple(sizes), tuple(flipped), tuple(dropped), tuple(added))


def _dynamic(x: Array, entries: list[Any], wrap: bool) -> Array:
    window = contiguous(x, entries, wrap)
    assert window is not None
    y = lax.dynamic_slice_p.bind(x, *window.starts, slice_sizes=window.sizes)
    y = lax.rev(y, window.reversed) if window.reversed else y
    y = lax.squeeze(y, window.dropped) if window.dropped else y
    return lax.expand_dims(y, window.new_axes) if window.new_axes else y


def _index_dtype(starts: Sequence[Any]) -> np.dtype:
    """One signed dtype for all index operands, whatever they may be promoted to elsewhere."""
    widest = max((s.dtype.itemsize for s in starts if hasattr(s, "dtype")), default=4)
    return np.dtype("int64" if widest > 4 else "int32")


def _wrapped(at: Any, n: int) -> Any:
    """Positions counted from the end as positions counted from the start."""
    if isinstance(at, (int, np.integer)):
        return at + n if at < 0 else at
    at = as_array("index", at)
    if is_kind(at.dtype, np.unsignedinteger):
        return at
    narrow = dtypes.iinfo(at.dtype).max < (2**31 - 1 if is_symbolic_dim(n) else n)
    at = convert(at, np.dtype("int32") if narrow else at.dtype)
    return select(lax.lt(at, np.zeros((), at.dtype)), lax.add(at, strong(at, n)), at)


@dataclass
class Plan:
    """What gather and scatter need to know of an index.

    Attributes:
      indices: index vectors in the last axis.
      index_map: the array's axis for each component of an index vector.
      slice_sizes: the window taken at each index.
      offset_dims: axes of the result that run over windows.
      collapsed: axes of the array that windows of one drop.
      new_axes, reversed: what is done to the gathered array afterwards.
      shape: the shape of the gathered array before that.
    """

    indices: Any
    index_map: tuple[int, ...]
    slice_sizes: tuple[int, ...]
    offset_dims: tuple[int, ...]
    collapsed: tuple[int, ...]
    new_axes: tuple[int, ...]
    reversed: tuple[int, ...]
    shape: tuple[int, ...]
    sorted: bool
    unique: bool
    out_of_reach: bool = False

    def gather_numbers(self) -> Any:
        """The dimension numbers of the gather."""
        return lax.GatherDimensionNumbers(
            offset_dims=self.offset_dims,
            collapsed_slice_dims=self.collapsed,
            start_index_map=self.index_map,
        )

    def scatter_numbers(self) -> Any:
        """The dimension numbers of the scatter."""
        return lax.ScatterDimensionNumbers(
            update_window_dims=self.offset_dims,
            inserted_window_dims=self.collapsed,
            scatter_dims_to_operand_dims=self.index_map,
        )


def index_plan(x: Array, entries: list[Any], wrap: bool) -> Plan:
    """Work out dimension numbers: NumPy's rules on where the index axes go."""
    advanced = [i for i, (e, _) in enumerate(entries) if isinstance(e, (Points, Point))]
    is_array = any(
        isinstance(entries[i][0], Points) and np.ndim(entries[i][0].at) for i in advanced
    )
    # With an index array among them, known positions take part in broadcasting.
    together = advanced if is_array else []
    contiguous = together == list(range(together[0], together[-1] + 1)) if together else True
    found = _Axes(x, wrap)
    for i, (entry, axis) in enumerate(entries):
        if together and i == (together[0] if contiguous else 0):
            found.add_block([entries[j] for j in together])
        if i not in together:
            found.add(entry, axis)
    return found.plan(known=not together)


class _Axes:
    """Dimension numbers of an index whose entries are added one by one.

    An axis of the array is a window of the result, a loop over positions, or dropped.
    """

    def __init__(self, x: Array, wrap: bool):
        self.x, self.wrap = x, wrap
        self.components: list[tuple[int, Any, int]] = []  # axis, values, first loop they run over
        self.loops: list[int] = []  # extents of the index array's axes, in order
        self.slice_sizes = [0] * x.ndim
        self.offset_dims: list[int] = []
        self.collapsed: list[int] = []
        self.new_axes: list[int] = []
        self.flipped: list[int] = []
        self.position = 0  # axis of the gathered array, new axes not counted

    def add_block(self, entries: list[Any]) -> None:
        """Index arrays that are broadcast against each other."""
        block = _broadcast_points(self.x, entries, self.wrap)
        for (_, axis), values in zip(entries, block):
            self._add_single(axis, values)
        self.loops.extend(block[0].shape)
        self.position += block[0].ndim

    def add(self, entry: Any, axis: Any) -> None:
        """An entry that stands by itself."""
        if isinstance(entry, NewAxis):
            self.new_axes.append(self.position + len(self.new_axes))
        elif isinstance(entry, (Point, Points)):
            at = entry.at
            self._add_single(axis, _wrapped(at, self.x.shape[axis]) if self.wrap else at)
        elif isinstance(entry, Dynamic):
            self._add_dynamic(entry, axis)
        elif isinstance(entry, Window):
            self._add_known_window(entry, axis)
        else:
            assert isinstance(entry, Gap)

    def _add_dynamic(self, entry: Dynamic, axis: int) -> None:
        start = _wrapped(entry.start, self.x.shape[axis]) if self.wrap else entry.start
        if entry.step == 1:
            self._add_window(axis, entry.size, start)
        else:
            steps = lax.mul(lax.iota(np.dtype("int32"), entry.size), np.int32(entry.step))
            self._add_loop(axis, lax.add(steps, convert(start, np.dtype("int32"))))

    def _add_known_window(self, entry: Window, axis: int) -> None:
        n, count, start, step = self.x.shape[axis], entry.count, entry.start, entry.step
        if entry.whole(n):
            self._add_window(axis, n)
            return
        if step < 0:
            self.flipped.append(self.position)
            start, step = start + (count - 1) * step, -step
        if step == 1 or any(surely_equal(count, few) for few in (0, 1)):
            self._add_window(axis, count, 0 if surely_equal(count, 0) else start)
        elif any(map(is_symbolic_dim, (count, start, step))):
            steps = lax.mul(lax.iota(np.dtype("int32"), count), convert(step, np.dtype("int32")))
            self._add_loop(axis, lax.add(steps, convert(start, np.dtype("int32"))))
        else:
            self._add_loop(axis, np.arange(start, start + count * step, step, dtype=np.int32))

    def _add_single(self, axis: int, at: Any) -> None:
        self.components.append((axis, at, len(self.loops)))
        self.slice_sizes[axis] = 1
        self.collapsed.append(axis)

    def _add_loop(self, axis: int, positions: Any) -> None:
        self._add_single(axis, positions)
        self.loops.append(positions.shape[0])
        self.position += 1

    def _add_window(self, axis: int, size: int, start: Any = None) -> None:
        if start is not None:
            self.components.append((axis, start, len(self.loops)))
        self.slice_sizes[axis] = size
        self.offset_dims.append(self.position)
        self.position += 1

    def plan(self, known: bool) -> Plan:
        """The dimension numbers; `known` if positions are met in order, each once."""
        components, loops, sizes = self.components, self.loops, self.slice_sizes
        empty = any(self.x.shape[axis] == 0 and sizes[axis] == 1 for axis, _, _ in components)
        return Plan(
            indices=_index_vectors(components, loops),
            index_map=tuple(axis for axis, _, _ in components), slice_sizes=tuple(sizes),
            offset_dims=tuple(self.offset_dims), collapsed=tuple(sorted(self.collapsed)),
            new_axes=tuple(self.new_axes), reversed=tuple(self.flipped),
            shape=_gathered_shape(loops, self.offset_dims, self.collapsed, sizes),
            sorted=known and all(isinstance(v, (int, np.ndarray)) for _, v, _ in components),
            unique=known, out_of_reach=empty and 0 not in loops,
        )  # fmt: skip


def _gathered_shape(
    loops: list[int], offset_dims: list[int], collapsed: list[int], sizes: list[int]
) -> tuple[int, ...]:
    windows = iter(n for axis, n in enumerate(sizes) if axis not in collapsed)
    outer = iter(loops)
    rank = len(loops) + len(offset_dims)
    return tuple(next(windows) if i in offset_dims else next(outer) for i in range(rank))


def _broadcast_points(x: Array, entries: list[Any], wrap: bool) -> list[Any]:
    """Index arrays of one shape and dtype, counted from the start."""
    if not entries:
        return []
    points = []
    for entry, axis in entries:
        at = _wrapped(entry.at, x.shape[axis]) if wrap else entry.at
        points.append(at)
    kind = _index_dtype([p for p in points if hasattr(p, "dtype")])
    arrays = [convert(p, kind) for p in points]
    shapes = [a.shape for a in arrays]
    try:
        return broadcast_arrays(*arrays)
    except (ValueError, TypeError) as error:
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={shapes}") from error


def _index_vectors(components: list[tuple[int, Any, int]], loops: list[int]) -> Any:
    """The components of the index vectors, broadcast over all loops and stacked last."""
    kind = _index_dtype([v for _, v, _ in components])
    if not components:
        return lax.full((*loops, 0), 0, kind)
    parts = []
    for _, values, first in components:
        values = convert(values, kind)
        dims = tuple(range(first, first + values.ndim))
        full = (*loops, 1)
        if values.shape == tuple(loops):
            parts.append(lax.expand_dims(values, (len(loops),)))
        else:
            parts.append(lax.broadcast_in_dim(values, full, dims))
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, len(loops))
