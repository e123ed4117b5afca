"""Scatter on a GPU: every element of the updates goes its own way.

Updates meet in atomics, in any order, so that sums of floats may differ in their last bits from
call to call; with `unique_indices` none meet. Of several updates that replace one element the last
one wins, as on a CPU: before anything is stored each update leaves its number where it goes, and
the greatest number stays. What atomics cannot do is left to the family for CPUs, which applies
updates in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdjax.core.config import config
from amdjax.kernels.gpu_loops import element_tile, spread
from amdjax.kernels.loops import bits_dtype, offset_of, row_major, split_position, view
from amdjax.kernels.scatter.cpu import (
    Layout,
    ScatterKernel,
    described,
    initial,
    is_read_again,
    number_of_scatters,
    replaces,
)
from amdjax.kernels.shaped import Call, Copy, ShapedContext, ShapedKernel, Temp, shaped
from amdjax.schedule.values import El, compute_dtype, part_dtype, short_dtype
from amdjax.tile import Buffer, Value

#: What LLVM has atomics for on every target, directly or by compare and exchange.
ATOMIC = frozenset(("f16", "bf16", "f32", "f64", "i32", "u32", "i64", "u64"))
#: Of which sums alone, and as parts of words of 32 bits.
NARROW = frozenset(("f16", "bf16"))


@dataclass(frozen=True)
class GpuScatterPlan:
    """Every element of the updates by itself.

    Args:
      layout: how operand, indices and updates fit together.
      atomic: operation by which updates that meet are combined; None where they are stored.
      numbered: whether the last of those that meet is found first.
      scatters: how many are one after the other.
      separate: whether the operand is copied even if its memory is free, since it is read again.
    """

    layout: Layout
    atomic: str | None
    numbered: bool
    scatters: int
    separate: bool

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return [initial(ctx, self.separate), *_GpuScatter(ctx, self).build_all()]

    def __str__(self) -> str:
        out = f"{described(self.layout, self.scatters)}, "
        if self.numbered:
            return out + "the last of each element is found first"
        return out + (f"combined by atomic {self.atomic}" if self.atomic else "stored")


@shaped("scatter", on="gpu")
def plan_scatter(ctx: ShapedContext) -> GpuScatterPlan | None:
    """How updates meet; None where atomics do not suffice."""
    operand, _, updates = ctx.inputs[:3]
    if not operand.aval.size or not updates.aval.size:
        return None
    layout, unique = Layout.of(ctx), ctx.params["unique_indices"]
    atomic = _atomic(ctx)
    if not (replaces(ctx) or unique or atomic):
        return None
    numbered = replaces(ctx) and not unique and layout.row_count > 1
    meet = not (replaces(ctx) or unique)
    return GpuScatterPlan(
        layout, atomic if meet else None, numbered, number_of_scatters(ctx), is_read_again(ctx)
    )


def _atomic(ctx: ShapedContext) -> str | None:
    """The atomic operation that combines updates."""
    op, dtype = ctx.rule.op, short_dtype(ctx.inputs[0].aval.dtype)
    part = part_dtype(dtype)
    if op not in ("add", "sub", "min", "max") or part not in ATOMIC:
        return None
    if part in NARROW and (op in ("min", "max") or ctx.outputs[0].aval.size % 2):
        return None
    if config.deterministic and part.startswith(("f", "bf")) and op in ("add", "sub"):
        return None
    if part != dtype and op in ("min", "max"):
        return None
    return "add" if op == "sub" else op


class _GpuScatter(ScatterKernel):
    """Writes the kernel that applies the updates."""

    def __init__(self, ctx: ShapedContext, plan: GpuScatterPlan):
        super().__init__(ctx, plan.layout)
        self.plan = plan

    def build_all(self) -> list[Call]:
        """The launches that apply the updates."""
        if not self.plan.numbered:
            return [self._apply_all(None)]
        places = self._place_strides()
        size = math.prod(self._sizes()) if places else math.prod(self.ctx.outputs[0].aval.shape)
        last = Temp("u32", size)
        return [_zeros(self.ctx, last), self._number(last), self._apply_all(last)]

    def _sizes(self) -> list[int]:
        """Of the batches and of the axes along which windows are positioned."""
        batches = [a.extent for a in self.layout.rows if a.target]
        return batches + [a.size for a in self.layout.indexed]

    def _place_strides(self) -> list[int] | None:
        """How to number windows that overlap either in all elements or in none; else None."""
        return row_major(self._sizes()) if all(a.window == 1 for a in self.layout.indexed) else None

    def _number(self, last: Temp) -> Call:
        """Find the last update for each window, or for each element."""
        kernel = self.ctx.kernel("scatter_number")
        whole = self._place_strides() is not None
        indices = kernel.input(self.ctx.inputs[1])
        row, _, _, place, exists, grid = self._updates(kernel, indices, 1 if whole else None)
        k, places = kernel.k, kernel.inout(last)
        k.atomic("max", places, place, k.convert(row + 1, "u32"), exists)
        return kernel.launch(grid, 2.0 * self.layout.row_count)

    def _apply_all(self, last: Temp | None) -> Call:
        grid = 0
        for indices, updates in self.sets:
            row, source, target, place, exists, grid = self._updates(self.kernel, indices)
            if last is not None:
                k = self.k
                found = k.load_at(self.kernel.input(last), place, exists)
                wins = k.eq(found, k.convert(row + 1, "u32"))
                exists = wins if exists is None else exists & wins
            self._apply_element(updates, source, target, exists)
        total = len(self.sets) * self.layout.row_count * self.layout.window_size
        return self.kernel.launch(grid, 2.0 * total)

    def _updates(
        self, kernel: ShapedKernel, indices: Buffer, window_size: int | None = None
    ) -> tuple[Value, Value, Value, Value, Value | None, int]:
        """Deal elements of the updates to programs.

        Args:
          kernel: gets the tile of elements.
          indices: of the updates.
          window_size: 1 for the first element of each window only; None for all.

        Returns:
          Which update each element is of, where it is read and written, where the number of the
          update that wins there is kept, whether it exists, and the number of programs.
        """
        k, layout = kernel.k, self.layout
        window = layout.window if window_size is None else []
        total = layout.row_count * math.prod(a.extent for a in window)
        number, mask, grid = element_tile(k, self.ctx.gpu, total)
        row, *inside = split_position(k, number, (layout.row_count, *(a.extent for a in window)))
        starts, exists = self._starts(kernel, indices, row, mask)
        index = split_position(k, row, [a.extent for a in layout.rows])
        batches = [i for i, a in zip(index, layout.rows, strict=True) if a.target]
        targets = [a.target for a in layout.rows if a.target] + [a.stride for a in layout.indexed]
        source = offset_of(k, index, [a.source for a in layout.rows])
        source = source + offset_of(k, inside, [a.source for a in window])
        target = offset_of(k, [*batches, *starts], targets)
        target = target + offset_of(k, inside, [a.target for a in window])
        places = self._place_strides()
        place = target if places is None else offset_of(k, [*batches, *starts], places)
        if mask is not None:
            exists = mask if exists is None else exists & mask
        row, source, target, place = (spread(k, x, number) for x in (row, source, target, place))
        return row, source, target, place, exists, grid

    def _starts(
        self, kernel: ShapedKernel, indices: Buffer, row: Value, mask: Value | None
    ) -> tuple[list[Value], Value | None]:
        """Where along the indexed axes the window of each update begins; which ones lie inside."""
        k, layout = kernel.k, self.layout
        starts, inside = [], None
        for j, axis in enumerate(layout.indexed):
            x = k.convert(k.load_at(indices, row * layout.vector_length + j, mask), "index")
            limit = axis.size - axis.window
            if self.clip:
                low, high = (k.const("index", n, row.shape) for n in (0, limit))
                x = k.min(k.max(x, low), high)
            else:  # as unsigned numbers the negative ones are beyond every limit
                test = k.bitcast(x, "u64") <= k.const("u64", limit, row.shape)
                inside = test if inside is None else inside & test
            starts.append(x)
        return starts, inside

    def _apply_element(
        self, updates: Buffer, source: Value, target: Value, mask: Value | None
    ) -> None:
        k, dtype = self.k, self.dtype
        if self.replaces:
            unsigned, parts = bits_dtype(dtype)
            for j in range(parts):
                x = k.load_at(view(updates, unsigned), source * parts + j, mask)
                k.store_at(view(self.result, unsigned), target * parts + j, x, mask, unique=True)
            return
        part = part_dtype(dtype)
        parts = 1 if part == dtype else 2
        news, result = view(updates, part), view(self.result, part)
        new = [k.load_at(news, source * parts + j, mask) for j in range(parts)]
        places = [target * parts + j for j in range(parts)]
        if not self.unique:
            assert self.plan.atomic is not None
            negated = self.ctx.rule.op == "sub"
            for place, x in zip(places, new, strict=True):
                k.atomic(self.plan.atomic, result, place, -x if negated else x, mask)
            return

        def element(xs: list[Value]) -> El:
            return El(dtype, *(k.convert(x, compute_dtype(part)) for x in xs))

        old = element([k.load_at(result, place, mask) for place in places])
        combined = self.combine(old, element(new))
        for place, x in zip(places, combined.parts, strict=True):
            k.store_at(result, place, k.convert(x, part), mask, unique=True)


def _zeros(ctx: ShapedContext, temp: Temp) -> Call:
    """Fill workspace with zeros."""
    kernel = ctx.kernel("zeros")
    k = kernel.k
    number, mask, grid = element_tile(k, ctx.gpu, temp.size)
    zeros = k.const(temp.dtype, 0, number.shape)
    k.store(kernel.output(temp), k.program_id() * number.shape[0], zeros, None, mask)
    return kernel.launch(grid, 0.1 * temp.size)
