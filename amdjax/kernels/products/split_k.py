"""Products whose programs share the depth: where the parts of sums wait, and their addition."""

from __future__ import annotations

from amdjax import tile
from amdjax.kernels.products.contraction import Axis, Contraction, Sink, lane_count, product
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.writing import Writer, store_lanes
from amdjax.kernels.shaped import Call, ShapedContext, Temp

Value = tile.Value


def split_sink(problem: Contraction, splits: int) -> tuple[Sink, Temp]:
    """Where programs that share the depth put their sums: (part, batch, row, column)."""
    rows, columns, batches = problem.rows, problem.columns, problem.batches
    temp = Temp(problem.accumulate, splits * batches * rows * columns)
    batch = [Axis(splits, batches * rows * columns)]
    for i, axis in enumerate(problem.out.batch):
        inner = product(problem.out.batch[i + 1 :])
        batch.append(Axis(axis.extent, inner * rows * columns))
    sink = Sink(
        temp, problem.accumulate, 0, tuple(batch), (Axis(rows, columns),), (Axis(columns, 1),)
    )
    return sink, temp


def combine_parts(ctx: ShapedContext, problem: Contraction, temp: Temp, splits: int) -> Call:
    """The launch that adds parts and stores the result."""
    program = Program(ctx, "combine")
    k = program.k
    lanes, dtype = lane_count(ctx.target, problem.accumulate), problem.accumulate
    parts = program.buffer(temp, dtype)
    rows, columns, batches = problem.rows, problem.columns, problem.batches
    total = k.scratch("sum", dtype, lanes)
    pid = k.program_id()
    row = pid % rows
    entry = pid // rows
    writer = Writer(program, problem, program.split(entry, "batch", problem.out.batch))
    width = k.const("index", columns)

    def segment(column: Value) -> None:
        mask = k.iota(lanes, "i32") < k.convert(width - column, "i32")

        def add(part: Value, x: Value) -> Value:
            at = (part * (batches * rows) + pid) * columns + column
            return x + k.load(parts, at, (lanes,), (1,), mask)

        (x,) = k.for_(0, splits, 1, add, [k.const(dtype, 0, (lanes,))])
        k.store(total, k.const("index", 0), x, (1,))
        store_lanes(k, writer, total, k.const("index", 0), row, column, width, lanes)

    k.for_(0, columns, lanes, segment)
    return program.launch(batches * rows, 0.1 * splits * batches * rows * columns)
