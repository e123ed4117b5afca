"""Scatter: updates written or combined into windows of an array, in the order of their indices.

The result is the same as if one update after the other were applied, whatever the number of
threads: programs of the grid own disjoint parts of the result. Of a chain of scatters into one
array the first updates of all come first, then the second ones: what they meet in is in the cache,
and additions to one place are not behind each other. The parts are, whichever there is:

- positions along an axis of the windows that no index moves (the features of an embedding);
- batches, or single updates where the caller promises unique indices;
- ranges of one indexed axis, each program skipping the updates that belong to others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from amdjax.core.dims import choosing, size_hint
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
from amdjax.schedule.arithmetic import Arithmetic
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import Family, Solver, busy_time
from amdjax.schedule.values import El, short_dtype
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import Buffer, Builder, Value, itemsize

PARALLEL_ELEMENTS = 1 << 14
#: Bytes of windows from which picking updates out is faster than applying all, one by one:
#: memory fetches ahead only what is read in order.
OWNED_WINDOW = 512


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


@dataclass(frozen=True)
class Layout:
    """How operand, indices and updates of one scatter fit together.

    Args:
      indexed: operand axes along which indices position windows.
      window: the loops within a window.
      rows: the loops over updates.
      row_count: number of updates.
      window_size: elements of each.
      vector_length: of index vectors.
    """

    indexed: tuple[IndexedAxis, ...]
    window: tuple[WindowAxis, ...]
    rows: tuple[UpdateAxis, ...]
    row_count: int
    window_size: int
    vector_length: int

    @staticmethod
    def of(ctx: ShapedContext) -> Layout:
        operand, indices, updates = (x.aval.shape for x in ctx.inputs[:3])
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
        indexed = (
            IndexedAxis(operand[d], extents[d], strides[d]) for d in dn.scatter_dims_to_operand_dims
        )
        return Layout(
            tuple(indexed), tuple(_merge_window(window)), tuple(_merge_rows(rows)),
            math.prod(a.extent for a in rows), math.prod(a.extent for a in window), indices[-1],
        )  # fmt: skip


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


@dataclass(frozen=True)
class ScatterPlan:
    """Updates in the order of their indices, by programs that own parts of the result.

    Args:
      layout: how operand, indices and updates fit together.
      owned: what a program owns.
      grid: number of programs.
      length: of what each owns: positions of a window axis, updates, or positions of an indexed
        axis.
      axis: which axis.
      scatters: how many are one after the other.
      separate: whether the operand is copied even if its memory is free, since it is read again.
    """

    layout: Layout
    owned: Literal["window positions", "updates", "ranges", "all"]
    grid: int
    length: int = 0
    axis: int = 0
    scatters: int = 1
    separate: bool = False

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return [initial(ctx, self.separate), *self._updates(ctx)]

    def _updates(self, ctx: ShapedContext) -> list[Call]:
        return [ScatterKernel(ctx, self.layout).build(self)] if self.grid else []

    def __str__(self) -> str:
        out = f"{described(self.layout, self.scatters)}, {counted(self.grid, 'program')}"
        if self.owned == "all":
            return out
        return f"{out} by {self.owned}" + (f", {self.length} each" if self.length else "")


def described(layout: Layout, scatters: int) -> str:
    """What is scattered."""
    out = f"scatter of {counted(layout.row_count, 'window')} of {layout.window_size}"
    return out if scatters == 1 else f"{scatters} times {out}"


def number_of_scatters(ctx: ShapedContext) -> int:
    """How many sets of updates there are."""
    return len(ctx.inputs) // 2


def is_read_again(ctx: ShapedContext) -> bool:
    """Whether taking over the operand's memory would change updates or indices."""
    operand, *others = ctx.inputs
    return any(operand is x for x in others)


def initial(ctx: ShapedContext, separate: bool) -> Call | Copy:
    """The result before any update."""
    operand, result = ctx.inputs[0], ctx.outputs[0]
    return copy_call(ctx, operand, result) if separate else Copy(operand, result)


@dataclass(frozen=True)
class ScatterProblem:
    """A scatter, as far as it decides about programs.

    Args:
      layout: how operand, indices and updates fit together.
      itemsize: bytes of an element.
      unique: whether no two updates meet.
      scatters: how many are one after the other.
      separate: whether the operand is read again.
    """

    layout: Layout
    itemsize: int
    unique: bool
    scatters: int
    separate: bool

    @property
    def elements(self) -> int:
        return self.scatters * self.layout.row_count * self.layout.window_size


@shaped("scatter")
def plan_scatter(ctx: ShapedContext) -> ScatterPlan:
    """What each program owns."""
    operand, _, updates = ctx.inputs[:3]
    layout, dtype = Layout.of(ctx), short_dtype(operand.aval.dtype)
    scatters, separate = number_of_scatters(ctx), is_read_again(ctx)
    if not operand.aval.size or not updates.aval.size:
        return ScatterPlan(layout, "all", 0, scatters=scatters, separate=separate)
    unique = ctx.params["unique_indices"]
    problem = ScatterProblem(layout, itemsize(dtype), unique, scatters, separate)
    return SCATTERS.best(problem, ctx.target)


def scatter_plans(problem: ScatterProblem, target: CpuTarget) -> list[ScatterPlan]:
    """One program, and where there is work for several, what each of them can own."""
    plans = [ScatterPlan(problem.layout, "all", 1)]
    with choosing():  # each way is right for all sizes
        if target.threads > 1 and problem.elements >= PARALLEL_ELEMENTS:
            plans += filter(None, [_shared(problem, target.threads)])
    scatters, separate = problem.scatters, problem.separate
    return [replace(plan, scatters=scatters, separate=separate) for plan in plans]


def _shared(problem: ScatterProblem, programs: int) -> ScatterPlan | None:
    """What several programs can own."""
    layout = problem.layout
    return (
        _by_window(layout, programs, problem.itemsize)
        or _by_update(layout, programs, problem.unique)
        or _by_range(layout, programs, problem.itemsize)
    )


def scatter_cost(problem: ScatterProblem, plan: ScatterPlan, target: CpuTarget) -> float:
    """Elements that a thread writes."""
    return busy_time(problem.elements, plan.grid, target.threads)


SCATTERS: Family[ScatterProblem, CpuTarget, ScatterPlan] = Family(
    "scatter on a CPU", Solver("scatter", scatter_plans, scatter_cost)
)


def replaces(ctx: ShapedContext) -> bool:
    """Whether updates replace elements."""
    return not ctx.rule.op and ctx.params["update_jaxpr"] is None


def _by_window(layout: Layout, programs: int, size: int) -> ScatterPlan | None:
    """Programs own positions along the longest window axis that stays in place."""
    window = layout.window
    free = [i for i, a in enumerate(window) if not a.moved and a.extent >= 2 * programs]
    if not free:
        return None
    chosen = max(free, key=lambda i: window[i].extent)
    axis = window[chosen]
    # Programs should not share cache lines.
    grain = max(1, 64 // size) if axis.target == 1 else 1
    length = ceil_div(axis.extent, programs * grain) * grain
    grid = ceil_div(axis.extent, length)
    return None if grid == 1 else ScatterPlan(layout, "window positions", grid, length, chosen)


def _by_update(layout: Layout, programs: int, unique: bool) -> ScatterPlan | None:
    """Programs own updates, where these cannot meet."""
    rows = layout.rows
    if unique:
        grain = 1
    elif rows and rows[0].target:
        grain = math.prod(a.extent for a in rows[1:])
    else:
        return None
    grains = layout.row_count // grain
    if grains < programs:
        return None
    each = ceil_div(grains, 4 * programs) * grain
    return ScatterPlan(layout, "updates", ceil_div(layout.row_count, each), each)


def _by_range(layout: Layout, programs: int, size: int) -> ScatterPlan | None:
    """Programs own ranges of an axis in which windows have size 1, if elements are so large."""
    axes = [a for a in layout.indexed if a.window == 1 and a.size >= 2 * programs]
    if layout.window_size * size < OWNED_WINDOW or not axes:
        return None
    axis = max(axes, key=lambda a: a.size)
    length = ceil_div(axis.size, programs)
    return ScatterPlan(layout, "ranges", programs, length, layout.indexed.index(axis))


class ScatterKernel:
    """Writes the kernel that applies the updates."""

    def __init__(self, ctx: ShapedContext, layout: Layout):
        self.ctx = ctx
        self.layout = layout
        self.kernel = ctx.kernel("scatter")
        self.k = self.kernel.k
        operand, *sets = ctx.inputs
        self.dtype = short_dtype(operand.aval.dtype)
        inputs = [self.kernel.input(x) for x in sets]
        self.sets = [*zip(inputs[::2], inputs[1::2], strict=True)]  # of indices and updates
        self.result = self.kernel.inout(ctx.outputs[0])
        self.clip = ctx.params["mode"].name == "CLIP"
        self.unique = ctx.params["unique_indices"]
        self.replaces = replaces(ctx)
        self.combine = _combiner(ctx, self.k)

    def build(self, plan: ScatterPlan) -> Call:
        """The launch."""
        layout, k = self.layout, self.k
        total = layout.row_count * layout.window_size
        cost = (0.2 if size_hint(layout.window_size) > 8 else 2.0) * total + 2.0 * layout.row_count
        cost *= len(self.sets)
        count, length = layout.row_count, plan.length
        start: Value | int = 0
        stop: Value | int = count
        bounds: dict[int, tuple[Value | int, Value | int]] = {}
        owner = None
        if plan.owned == "window positions":
            extent, first = layout.window[plan.axis].extent, k.program_id() * length
            last = first + length if extent % length == 0 else k.min(first + length, extent)
            bounds = {plan.axis: (first, last)}
        elif plan.owned == "updates":
            start = k.program_id() * length
            stop = k.min(start + length, count)
        elif plan.owned == "ranges":
            owner = Owner(plan.axis, k.program_id() * length, length)
        self._apply(start, stop, bounds, owner)
        return self.kernel.launch(plan.grid, cost)

    # Applying updates

    def _apply(
        self, start: Value | int, stop: Value | int,
        bounds: dict[int, tuple[Value | int, Value | int]], owner: Owner | None,
    ) -> None:  # fmt: skip
        """Apply the updates of a range, or the part of them that this program owns."""
        k = self.k
        *outer, inner = self.layout.rows or (UpdateAxis(1, 0, 0),)

        def line(number: Value) -> None:
            """The updates along the innermost loop, whose place is divided out once."""
            digits = split_position(k, number, [a.extent for a in outer])
            source = offset_of(k, digits, [a.source for a in outer])
            target = offset_of(k, digits, [a.target for a in outer])
            first = number * inner.extent

            def update(row: Value) -> None:
                along = row - first
                read = source + along * inner.source
                for indices, updates in self.sets:
                    position, inside = self._window_start(indices, row, owner)
                    written = target + along * inner.target + position

                    def apply(updates: Buffer = updates, written: Value = written) -> None:
                        self._window(updates, 0, read, written, bounds)

                    if inside is None:
                        apply()
                    else:
                        k.if_(inside, apply)

            k.for_(k.max(first, start), k.min(first + inner.extent, stop), 1, update)

        if outer:
            k.for_(k.index(start) // inner.extent, (k.index(stop) - 1) // inner.extent + 1, 1, line)
        else:
            line(k.const("index", 0))

    def _window_start(
        self, indices: Buffer, row: Value, owner: Owner | None
    ) -> tuple[Value, Value | None]:
        """Offset of the window of an update, and whether it counts."""
        k, layout = self.k, self.layout
        base = row * layout.vector_length
        position, inside = k.const("index", 0), None
        for j, axis in enumerate(layout.indexed):
            x = k.convert(k.load(indices, base + j), "index")
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
        updates: Buffer,
        depth: int,
        source: Value,
        target: Value,
        bounds: dict[int, tuple[Value | int, Value | int]],
    ) -> None:
        """The loops over one window, from the axis `depth` on."""
        k, window = self.k, self.layout.window
        if not window:
            self._element(updates, source, target)
            return
        axis = window[depth]
        low, high = bounds.get(depth, (0, axis.extent))
        if depth < len(window) - 1:

            def step(i: Value) -> None:
                inner = [offset_of(k, [i], [s]) for s in (axis.source, axis.target)]
                self._window(updates, depth + 1, source + inner[0], target + inner[1], bounds)

            k.for_(low, high, 1, step)
            return
        count = lanes_for(
            self.ctx.target, self.dtype, axis.extent if depth not in bounds else 1 << 20, 1
        )

        def lanes(i: Value, mask: Value | None, count: int = count) -> None:
            read, write = (
                source + offset_of(k, [i], [axis.source]),
                target + offset_of(k, [i], [axis.target]),
            )
            self._element(updates, read, write, count, axis, mask)

        if isinstance(low, int) and isinstance(high, int) and high - low < count:
            for start, part in _power_of_two_parts(low, high):
                lanes(k.const("index", start), None, part)
            return
        lane_loop(k, low, high, count, lanes)

    def _element(
        self, updates: Buffer, source: Value, target: Value, count: int = 0,
        axis: WindowAxis | None = None, mask: Value | None = None,
    ) -> None:  # fmt: skip
        """Combine one element of an update, or a row of lanes, into the result."""
        k, dtype = self.k, self.dtype
        read, write = (axis.source, axis.target) if axis else (1, 1)
        if self.replaces:
            unsigned, parts = bits_dtype(dtype)
            if parts == 1:
                x = k.load(
                    view(updates, unsigned),
                    source,
                    (count,) if count else (),
                    [read] if count else None,
                    mask,
                )
                k.store(view(self.result, unsigned), target, x, [write] if count else None, mask)
                return
        new = load_element(k, updates, dtype, source, count, read, mask)
        if not self.replaces:
            old = load_element(k, self.result, dtype, target, count, write, mask)
            new = self.combine(old, new)
        store_element(k, self.result, target, new, write, mask)


def _power_of_two_parts(low: int, high: int) -> Iterator[tuple[int, int]]:
    """Starts and lengths, of which each is a power of two, of the parts of a short range.

    What was just stored is read again at once where the next update meets it, if it is the same
    part; a load under another mask would wait until the store is through.
    """
    while low < high:
        length = 1 << (high - low).bit_length() - 1
        yield low, length if length > 1 else 0
        low += length


# Combining


def _combiner(ctx: ShapedContext, k: Builder) -> Callable[[El, El], El]:
    """How an element of the operand and one of the updates become the new element."""
    program = ctx.params["update_jaxpr"]
    op = ctx.rule.op
    if program is not None and not op:
        return _applied(prepare(ClosedJaxpr(program, list(ctx.params["update_consts"]))), k)

    def combine(old: El, new: El) -> El:
        b = Arithmetic(k)
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
