"""Scatter on a GPU: every element of the updates goes its own way.

Updates meet in atomics, in any order, so that sums of floats may differ in their last bits from
call to call; with `unique_indices` none meet. Of several updates that replace one element any may
win. What atomics cannot do is left to the family for CPUs, which applies updates in order.
"""

from __future__ import annotations

from amdjax.codegen.tile import Value
from amdjax.core.config import config
from amdjax.jit.element import El, compute_dtype, part_dtype
from amdjax.jit.shaped import Call, Copy, ShapedContext, shaped
from amdjax.kernels.gpu_loops import element_tile, spread
from amdjax.kernels.loops import bits_dtype, copy_call, offset_of, split_position, view
from amdjax.kernels.scatter import OPS, ScatterKernel

#: What LLVM has atomics for on every target, directly or by compare and exchange.
ATOMIC = frozenset(("f32", "f64", "i32", "u32", "i64", "u64"))


@shaped("scatter", on="gpu")
def lower_scatter(ctx: ShapedContext) -> list[Call | Copy] | None:
    """Start from the operand, then apply the updates; None where atomics do not suffice."""
    operand, indices, updates = ctx.inputs
    result = ctx.outputs[0]
    if not operand.aval.size or not updates.aval.size:
        return None
    kernel = _GpuScatter(ctx)
    if not kernel.is_possible:
        return None
    again = operand is indices or operand is updates
    start: Call | Copy = copy_call(ctx, operand, result) if again else Copy(operand, result)
    return [start, kernel.build()]


class _GpuScatter(ScatterKernel):
    """Writes the kernel that applies the updates."""

    @property
    def is_possible(self) -> bool:
        """Whether updates that meet are combined rightly."""
        return self.replaces or self.unique or self._atomic is not None

    @property
    def _atomic(self) -> str | None:
        """The atomic operation that combines updates."""
        op = OPS.get(self.ctx.eqn.primitive.name)
        part = part_dtype(self.dtype)
        if op not in ("add", "sub", "min", "max") or part not in ATOMIC:
            return None
        if config.deterministic and part.startswith("f") and op in ("add", "sub"):
            return None
        if part != self.dtype and op in ("min", "max"):
            return None
        return "add" if op == "sub" else op

    def build(self) -> Call:
        k, layout = self.k, self.layout
        total = layout.row_count * layout.window_size
        number, mask, grid = element_tile(k, self.ctx.gpu, total)
        row, *inside = split_position(
            k, number, (layout.row_count, *(a.extent for a in layout.window))
        )
        position, exists = self._start(row, mask)
        source, target = self._offsets(row, position)
        source = source + offset_of(k, inside, [a.source for a in layout.window])
        target = target + offset_of(k, inside, [a.target for a in layout.window])
        if mask is not None:
            exists = mask if exists is None else k.op("and", exists, mask)
        self._apply_element(spread(k, source, number), spread(k, target, number), exists)
        return self.kernel.launch(grid, 2.0 * total)

    def _start(self, row: Value, mask: Value | None) -> tuple[Value, Value | None]:
        """Where the window of each update begins; which ones lie inside."""
        k, layout = self.k, self.layout
        position, inside = k.const("index", 0, row.shape), None
        for j, axis in enumerate(layout.indexed):
            x = k.convert(k.load_at(self.indices, row * layout.vector_length + j, mask), "index")
            limit = axis.size - axis.window
            if self.clip:
                low, high = (k.const("index", n, row.shape) for n in (0, limit))
                x = k.op("min", k.op("max", x, low), high)
            else:  # as unsigned numbers the negative ones are beyond every limit
                test = k.bitcast(x, "u64") <= k.const("u64", limit, row.shape)
                inside = test if inside is None else k.op("and", inside, test)
            position = position + x * axis.stride
        return position, inside

    def _apply_element(self, source: Value, target: Value, mask: Value | None) -> None:
        k, dtype = self.k, self.dtype
        if self.replaces:
            unsigned, parts = bits_dtype(dtype)
            for j in range(parts):
                x = k.load_at(view(self.updates, unsigned), source * parts + j, mask)
                k.store_at(view(self.result, unsigned), target * parts + j, x, mask, unique=True)
            return
        part = part_dtype(dtype)
        parts = 1 if part == dtype else 2
        updates, result = view(self.updates, part), view(self.result, part)
        new = [k.load_at(updates, source * parts + j, mask) for j in range(parts)]
        places = [target * parts + j for j in range(parts)]
        if not self.unique:
            assert self._atomic is not None
            negated = OPS[self.ctx.eqn.primitive.name] == "sub"
            for place, x in zip(places, new, strict=True):
                k.atomic(self._atomic, result, place, k.op("neg", x) if negated else x, mask)
            return

        def element(xs: list[Value]) -> El:
            return El(dtype, *(k.convert(x, compute_dtype(part)) for x in xs))

        old = element([k.load_at(result, place, mask) for place in places])
        combined = self.combine(old, element(new))
        for place, x in zip(places, combined.parts, strict=True):
            k.store_at(result, place, k.convert(x, part), mask, unique=True)
