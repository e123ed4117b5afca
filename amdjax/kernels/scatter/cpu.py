"""Scatter: updates written or combined into windows of an array, in the order of their indices.

The result is the same as if one update after the other were applied, whatever the number of
threads: programs of the grid own disjoint parts of the result. The parts are, whichever there is:

- positions along an axis of the windows that no index moves (the features of an embedding);
- batches, or single updates where the caller promises unique indices;
- ranges of one indexed axis, each program skipping the updates that belong to others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.kernels.loops import (
    bits_dtype,
    copy_call,
    lane_loop,
    lanes_for,
    load_element,
    offset_of,
    precedes,
    row_major,
    split_position,
    store_element,
    view,
)
from amdjax.kernels.shaped import Call, Copy, ShapedContext, shaped
from amdjax.passes import prepare
from amdjax.schedule.element import El, ElementBuilder, compute_dtype, part_dtype, short_dtype
from amdjax.tile import Builder, Value, itemsize

PARALLEL_ELEMENTS = 1 << 14
#: Bytes of windows from which picking updates out is faster than applying all, one by one:
#: memory fetches ahead only what is read in order.
OWNED_WINDOW = 512
SINGLES = 4096  # single elements that a program writes


@dataclass(frozen=True)
class WindowAxis:
    """A loop within the windows; `moved` if indices shift windows along it."""

    extent: int
    source: int
    target: int
    moved: bool


@dataclass(frozen=True)
class UpdateAxis:
    """A loop over updates; `target` is the operand's stride if it is a batch, else 0."""

    extent: int
    source: int
    target: int


@dataclass(frozen=True)
class IndexedAxis:
    """An operand axis along which an entry of the index vector positions the window."""

    size: int
    window: int
    stride: int


@dataclass(frozen=True)
class Owner:
    """The range of an operand axis that a program writes: `length` positions from `first` on.

    Args:
      entry: which entry of the index vectors positions the axis.
      first: a value of the kernel.
      length: the same for all programs.
    """

    entry: int
    first: Value
    length: int


class Layout:
    """How operand, indices and updates of one scatter fit together."""

    def __init__(self, ctx: ShapedContext):
        operand, indices, updates = (x.aval.shape for x in ctx.inputs)
        dn = ctx.params["dimension_numbers"]
        strides, source = row_major(operand), row_major(updates)
        left_out = {*dn.inserted_window_dims, *dn.operand_batching_dims}
        window_dims = [d for d in range(len(operand)) if d not in left_out]
        extents = dict.fromkeys(range(len(operand)), 1)
        window = []
        for u, d in zip(dn.update_window_dims, window_dims, strict=True):
            extents[d] = updates[u]
            moved = d in dn.scatter_dims_to_operand_dims and updates[u] < operand[d]
            window.append(WindowAxis(updates[u], source[u], strides[d], moved))
        batch = dict(zip(dn.scatter_indices_batching_dims, dn.operand_batching_dims, strict=True))
        update_dims = [u for u in range(len(updates)) if u not in dn.update_window_dims]
        rows = [
            UpdateAxis(updates[u], source[u], strides[batch[i]] if i in batch else 0)
            for i, u in enumerate(update_dims)
        ]
        self.indexed = [
            IndexedAxis(operand[d], extents[d], strides[d]) for d in dn.scatter_dims_to_operand_dims
        ]
        self.window = _merge_window(window)
        self.rows = _merge_rows(rows)
        self.row_count = math.prod(a.extent for a in rows)
        self.window_size = math.prod(a.extent for a in window)
        self.vector_length = indices[-1]


def _merge_window(axes: Sequence[WindowAxis]) -> list[WindowAxis]:
    out: list[WindowAxis] = []
    for a in axes:
        if a.extent == 1:
            continue
        last = out[-1] if out else None
        if last and last.source == a.source * a.extent and last.target == a.target * a.extent:
            out[-1] = WindowAxis(last.extent * a.extent, a.source, a.target, last.moved or a.moved)
        else:
            out.append(a)
    return out


def _merge_rows(axes: Sequence[UpdateAxis]) -> list[UpdateAxis]:
    out: list[UpdateAxis] = []
    for a in axes:
        last = out[-1] if out else None
        if last and last.source == a.source * a.extent and last.target == a.target == 0:
            out[-1] = UpdateAxis(last.extent * a.extent, a.source, 0)
        else:
            out.append(a)
    return out


@shaped("scatter")
def lower_scatter(ctx: ShapedContext) -> list[Call | Copy]:
    """Start from the operand, then apply the updates."""
    operand, indices, updates = ctx.inputs
    result = ctx.outputs[0]
    # Taking over the operand's memory would change updates or indices that are the same array.
    again = operand is indices or operand is updates
    start: Call | Copy = copy_call(ctx, operand, result) if again else Copy(operand, result)
    if not math.prod(result.aval.shape) or not math.prod(updates.aval.shape):
        return [start]
    return [start, ScatterKernel(ctx).build()]


class ScatterKernel:
    """Writes the kernel that applies the updates."""

    def __init__(self, ctx: ShapedContext):
        self.ctx = ctx
        self.layout = Layout(ctx)
        self.kernel = ctx.kernel("scatter")
        self.k = self.kernel.k
        operand, indices, updates = ctx.inputs
        self.dtype = short_dtype(operand.aval.dtype)
        self.indices = self.kernel.input(indices)
        self.updates = self.kernel.input(updates)
        self.result = self.kernel.inout(ctx.outputs[0])
        self.clip = ctx.params["mode"].name == "CLIP"
        self.unique = ctx.params["unique_indices"]
        self.replaces = not ctx.rule.op and ctx.params["update_jaxpr"] is None
        self.combine = _combiner(ctx, self.k)

    def build(self) -> Call:
        layout = self.layout
        total = layout.row_count * layout.window_size
        cost = (0.2 if layout.window_size > 8 else 2.0) * total + 2.0 * layout.row_count
        if (
            layout.window_size == 1
            and (self.replaces or self.unique)
            and not self.dtype.startswith("c128")
        ):
            return self._single_elements(cost)
        pieces = self.ctx.target.threads if total >= PARALLEL_ELEMENTS else 1
        for plan in (self._by_window, self._by_update, self._by_range):
            grid = plan(pieces) if pieces > 1 else None
            if grid is not None:
                return self.kernel.launch(grid, cost)
        self._apply(0, layout.row_count)
        return self.kernel.launch(1, cost)

    # Who does what

    def _by_window(self, pieces: int) -> int | None:
        """Programs own positions along the longest window axis that stays in place."""
        window = self.layout.window
        free = [i for i, a in enumerate(window) if not a.moved and a.extent >= 2 * pieces]
        if not free:
            return None
        chosen = max(free, key=lambda i: window[i].extent)
        axis, k = window[chosen], self.k
        # Programs should not share cache lines.
        unit = max(1, 64 // itemsize(self.dtype)) if axis.target == 1 else 1
        length = ceil_div(axis.extent, pieces * unit) * unit
        grid = ceil_div(axis.extent, length)
        if grid == 1:
            return None
        start = k.program_id() * length
        bounds: tuple[Value | int, Value | int] = (
            start,
            k.min(start + length, axis.extent),
        )
        if axis.extent % length == 0:
            bounds = (start, start + length)
        self._apply(0, self.layout.row_count, {chosen: bounds})
        return grid

    def _by_update(self, pieces: int) -> int | None:
        """Programs own updates, where these cannot meet."""
        rows, k = self.layout.rows, self.k
        if self.unique:
            unit = 1
        elif rows and rows[0].target:
            unit = math.prod(a.extent for a in rows[1:])
        else:
            return None
        units = self.layout.row_count // unit
        if units < pieces:
            return None
        each = ceil_div(units, 4 * pieces) * unit
        start = k.program_id() * each
        self._apply(start, k.min(start + each, self.layout.row_count))
        return ceil_div(self.layout.row_count, each)

    def _by_range(self, pieces: int) -> int | None:
        """Programs own ranges of an axis in which windows have size 1."""
        if self.layout.window_size * itemsize(self.dtype) < OWNED_WINDOW:
            return None
        owner = self._owner(pieces)
        if owner is None:
            return None
        self._apply(0, self.layout.row_count, owner=owner)
        return pieces

    def _owner(self, pieces: int) -> Owner | None:
        axes = [a for a in self.layout.indexed if a.window == 1 and a.size >= 2 * pieces]
        if not axes:
            return None
        axis = max(axes, key=lambda a: a.size)
        length = ceil_div(axis.size, pieces)
        return Owner(self.layout.indexed.index(axis), self.k.program_id() * length, length)

    # Applying updates

    def _apply(
        self,
        start: Value | int,
        stop: Value | int,
        bounds: dict[int, tuple[Value | int, Value | int]] | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Apply the updates of a range, or the part of them that this program owns."""
        k = self.k

        def update(row: Value) -> None:
            position, inside = self._window_start(row, 0, None, owner)
            source, target = self._offsets(row, position)
            if inside is None:
                self._window(0, source, target, bounds or {})
            else:
                k.if_(inside, lambda: self._window(0, source, target, bounds or {}))

        k.for_(start, stop, 1, update)

    def _offsets(self, row: Value, position: Value) -> tuple[Value, Value]:
        """Where an update is read, and where its window begins in its batch."""
        rows = self.layout.rows
        index = split_position(self.k, row, [a.extent for a in rows])
        source = offset_of(self.k, index, [a.source for a in rows])
        return source, position + offset_of(self.k, index, [a.target for a in rows])

    def _window_start(
        self,
        row: Value,
        count: int,
        mask: Value | None,
        owner: Owner | None = None,
    ) -> tuple[Value, Value | None]:
        """Offset of the window of an update, or of `count` ones in lanes; whether they count."""
        k, layout = self.k, self.layout
        base = row * layout.vector_length
        shape = (count,) if count else ()
        position, inside = k.const("index", 0, shape), None
        for j, axis in enumerate(layout.indexed):
            strides = [layout.vector_length] if count else None
            x = k.load(self.indices, base + j, shape, strides, mask)
            x = k.convert(x, "index")
            tests = []
            limit = axis.size - axis.window
            if self.clip:
                x = k.min(k.max(x, 0), limit)
            else:  # as unsigned numbers the negative ones are beyond every limit
                tests.append(k.bitcast(x, "u64") <= k.const("u64", limit))
            if owner and owner.entry == j:
                distance = k.bitcast(x - owner.first, "u64")
                tests.append(distance < k.const("u64", owner.length))
            for test in tests:
                inside = test if inside is None else inside & test
            position = position + x * axis.stride
        return position, inside

    def _window(
        self,
        depth: int,
        source: Value,
        target: Value,
        bounds: dict[int, tuple[Value | int, Value | int]],
    ) -> None:
        """The loops over one window, from the axis `depth` on."""
        k, window = self.k, self.layout.window
        if not window:
            self._element(source, target)
            return
        axis = window[depth]
        low, high = bounds.get(depth, (0, axis.extent))
        if depth < len(window) - 1:

            def step(i: Value) -> None:
                inner = [offset_of(k, [i], [s]) for s in (axis.source, axis.target)]
                self._window(depth + 1, source + inner[0], target + inner[1], bounds)

            k.for_(low, high, 1, step)
            return
        count = lanes_for(self.ctx, self.dtype, axis.extent if depth not in bounds else 1 << 20, 1)

        def lanes(i: Value, mask: Value | None) -> None:
            read, write = (
                source + offset_of(k, [i], [axis.source]),
                target + offset_of(k, [i], [axis.target]),
            )
            self._element(read, write, count, axis, mask)

        lane_loop(k, low, high, count, lanes)

    def _element(
        self,
        source: Value,
        target: Value,
        count: int = 0,
        axis: WindowAxis | None = None,
        mask: Value | None = None,
    ) -> None:
        """Combine one element of an update, or a row of lanes, into the result."""
        k, dtype = self.k, self.dtype
        read, write = (axis.source, axis.target) if axis else (1, 1)
        if self.replaces:
            unsigned, parts = bits_dtype(dtype)
            if parts == 1:
                x = k.load(
                    view(self.updates, unsigned),
                    source,
                    (count,) if count else (),
                    [read] if count else None,
                    mask,
                )
                k.store(view(self.result, unsigned), target, x, [write] if count else None, mask)
                return
        new = load_element(k, self.updates, dtype, source, count, read, mask)
        if not self.replaces:
            old = load_element(k, self.result, dtype, target, count, write, mask)
            new = self.combine(old, new)
        store_element(k, self.result, target, new, write, mask)

    # Windows of one element

    def _single_elements(self, cost: float) -> Call:
        """Updates in lanes. The last of equal offsets wins, as in the order one by one."""
        k, layout = self.k, self.layout
        start: Value | int = 0
        stop: Value | int = layout.row_count
        grid, owner, threads = 1, None, self.ctx.target.threads
        if layout.row_count >= PARALLEL_ELEMENTS and threads > 1:
            owner = None if self.unique else self._owner(threads)
            grid = 1 if owner is None else threads
            if self.unique:
                grid = ceil_div(layout.row_count, SINGLES)
                start = k.program_id() * SINGLES
                stop = k.min(start + SINGLES, layout.row_count)
        count = lanes_for(self.ctx, "i64", layout.row_count, 2)

        def body(base: Value, mask: Value | None) -> None:
            position, inside = self._window_start(base, count, mask, owner)
            position = k.broadcast(position, (count,))
            rows = k.iota(count) + k.broadcast(base, (count,))
            source, target = self._offsets(rows, position)
            if mask is not None:
                inside = mask if inside is None else inside & mask
            self._scattered(k.broadcast(source, (count,)), k.broadcast(target, (count,)), inside)

        lane_loop(k, start, stop, count, body)
        return self.kernel.launch(grid, cost)

    def _scattered(self, source: Value, target: Value, mask: Value | None) -> None:
        k, dtype = self.k, self.dtype
        if self.replaces:
            unsigned, _ = bits_dtype(dtype)
            x = k.load_at(view(self.updates, unsigned), source, mask)
            k.store_at(view(self.result, unsigned), target, x, mask)
            return
        part = part_dtype(dtype)
        parts = 1 if part == dtype else 2

        def places(offsets: Value) -> list[Value]:
            return [(offsets * parts) + j for j in range(parts)]

        def load(buffer: Any, offsets: Value) -> El:
            read = [
                k.convert(k.load_at(view(buffer, part), p, mask), compute_dtype(part))
                for p in places(offsets)
            ]
            return El(dtype, *read)

        value = self.combine(load(self.result, target), load(self.updates, source))
        for p, x in zip(places(target), value.parts, strict=True):
            k.store_at(view(self.result, part), p, k.convert(x, part), mask)


# Combining


def _combiner(ctx: ShapedContext, k: Builder) -> Callable[[El, El], El]:
    """How an element of the operand and one of the updates become the new element."""
    program = ctx.params["update_jaxpr"]
    op = ctx.rule.op
    if program is not None and not op:
        return _applied(prepare(ClosedJaxpr(program, list(ctx.params["update_consts"]))), k)

    def combine(old: El, new: El) -> El:
        b = ElementBuilder(k, {}, _no_memory)
        if not op:
            return new
        if op in ("min", "max") and old.is_complex:
            return b.select(precedes(b, old, new), *((old, new) if op == "min" else (new, old)))
        return b.op(op, old, new)

    return combine


def _applied(closed: ClosedJaxpr, k: Builder) -> Callable[[El, El], El]:
    """The program of `scatter_apply`, written out for one element."""
    jaxpr = closed.jaxpr
    producers = {v: e for e in jaxpr.eqns for v in e.outvars}

    def combine(old: El, new: El) -> El:
        known = dict(zip(jaxpr.invars, (old, new)))
        b = ElementBuilder(k, producers, _no_memory)
        for v, value in zip(jaxpr.constvars, closed.consts):
            known[v] = b.const(np.asarray(value).item(), v.aval.dtype)
        b.special = lambda var, index: known.get(var)
        return b.value(jaxpr.outvars[0], ())

    return combine


def _no_memory(var: Any) -> Any:
    raise NotImplementedError("scatter_apply takes a function of elementwise operations.")
