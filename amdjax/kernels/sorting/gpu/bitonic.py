"""Sorting on a GPU: bitonic networks.

A row of records is padded to a power of two. A workgroup sorts a block of records, or several short
rows, in LDS; longer rows are merged through global memory until the distance between the records
that are compared fits a block again. All steps of a kind are one kernel, which is told the step.

Sources: K. Batcher, "Sorting networks and their applications" (1968); D. Knuth, The Art of Computer
Programming, volume 3, 5.3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amdjax.core.dims import choosing, covering
from amdjax.core.integers import ceil_div, floor_power_of_two, power_of_two
from amdjax.kernels.gpu_loops import element_tile
from amdjax.kernels.loops import view
from amdjax.kernels.shaped import Call, Copy, ShapedContext, ShapedKernel, Temp
from amdjax.kernels.sorting.rows import RecordLayout, SortedRows, SortProblem, precedes
from amdjax.schedule.gpu.calls import scratch_limit
from amdjax.schedule.row_plan import counted
from amdjax.targets import GpuTarget
from amdjax.tile import Buffer, Value

EACH = 8  # records of a thread in a block


@dataclass(frozen=True)
class BitonicPlan:
    """A bitonic network.

    Args:
      problem: the rows.
      layout: of records.
      padded: length of rows, a power of two.
      block: records that a workgroup has in LDS.
      threads: of a program.
    """

    problem: SortProblem
    layout: RecordLayout
    padded: int
    block: int
    threads: int

    @property
    def passes(self) -> int:
        """How often records go through memory, each time in a launch."""
        apart = self.padded.bit_length() - self.block.bit_length()
        return 1 if apart <= 0 else 1 + apart * (apart + 1) // 2 + apart

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return BitonicSort(ctx, self).build()

    def __str__(self) -> str:
        out = f"bitonic sort of {self.problem}, blocks of {self.block} in LDS"
        return f"{out}, {self.threads} threads, {counted(self.passes, 'pass', 'passes')}"


def plan_bitonic(target: GpuTarget, problem: SortProblem) -> BitonicPlan:
    """How many records a workgroup orders at once."""
    g, key = problem.geometry, problem.single
    # Zeros of both signs have one key; only their positions keep them in order.
    positioned = problem.needs_position or key is None or key.loses_zeros
    layout, padded = RecordLayout.of(problem.keys, positioned), covering(g.n)
    most = min(target.usual_workgroup * EACH, scratch_limit(target) // (2 * layout.nbytes))
    with choosing():
        rows = power_of_two(ceil_div(g.rows, target.compute_units))
    block = min(floor_power_of_two(most), max(padded * rows, target.wave_size * 2))
    threads = max(target.wave_size, min(target.usual_workgroup, block // 2))
    return BitonicPlan(problem, layout, padded, block, threads)


class BitonicSort(SortedRows):
    """Sorts rows of records."""

    def __init__(self, ctx: ShapedContext, plan: BitonicPlan):
        super().__init__(ctx, plan.problem)
        self.layout, self.kinds = plan.layout, plan.layout.kinds
        self.padded, self.block, self.threads = plan.padded, plan.block, plan.threads
        self.blocks = ceil_div(self.geometry.rows * self.padded, self.block)

    def build(self) -> list[Call | Copy]:
        """The launches."""
        row, block = self.padded.bit_length() - 1, self.block.bit_length() - 1
        if row <= block:
            return [self._in_block(None, None, 1, row)]
        temps = [Temp(kind, self.blocks * self.block) for kind in self.kinds]
        calls: list[Call | Copy] = [self._in_block(None, temps, 1, block)]
        step, merge = self._step(temps), self._in_block(temps, temps, None, None)
        for level in range(block + 1, row + 1):
            for distance in range(level - 1, block - 1, -1):
                calls.append(replace(step, args=[*step.args[:-2], level, distance]))
            if level < row:
                calls.append(replace(merge, args=[*merge.args[:-1], level]))
        return [*calls, self._in_block(temps, None, row, row)]

    @property
    def _nanoseconds(self) -> float:
        return 5.0 * self.geometry.rows * self.padded

    # A block in LDS

    def _in_block(
        self,
        source: Sequence[Temp] | None,
        target: Sequence[Temp] | None,
        first: int | None,
        last: int | None,
    ) -> Call:
        """Read a block, run levels of the network as far as they lie within it, write it.

        Args:
          source: where the records are; None to make them from the operands.
          target: where they go; None for the results.
          first: the first level: runs of `2**level` records become sorted.
          last: the last one; of a single level, and of one known at run time (None), only the steps
            that lie within a block are done.
        """
        kernel = self.ctx.kernel("sort_" + ("fill" if source is None else "merge"))
        k = self.k = kernel.k
        k.schedule.workgroup = self.threads
        self.base = k.program_id() * self.block
        records: Sequence[Value]
        if source is None:
            records = self._records(kernel)
        else:
            memory = kernel.input if target is None else kernel.inout
            records = [k.load(memory(t), self.base, (self.block,)) for t in source]
        records = self._levels(kernel, records, first, last)
        if target is None:
            self._emit(kernel, records)
        else:
            for temp, x in zip(target, records, strict=True):
                k.store(kernel.inout(temp), self.base, x)
        return kernel.launch(self.blocks, self._nanoseconds)

    def _levels(
        self, kernel: ShapedKernel, records: Sequence[Value], first: int | None, last: int | None
    ) -> Sequence[Value]:
        k, within = self.k, self.block.bit_length() - 1
        scratch = [k.scratch(f"r{i}", kind, self.block) for i, kind in enumerate(self.kinds)]

        def steps(level: Value, count: Value | int, now: Sequence[Value]) -> Sequence[Value]:
            def step(i: Value, *xs: Value) -> list[Value]:
                return self._step_in_block(scratch, xs, level, k.index(count) - i - 1)

            return k.for_(0, count, 1, step, now)

        if first is None or last is None:
            return steps(self._told(kernel, "level"), within, records)
        if first == last:
            return steps(k.const("index", first), min(first, within), records)
        return k.for_(first, last + 1, 1, lambda level, *xs: steps(level, level, xs), records)

    def _step_in_block(
        self, scratch: Sequence[Buffer], records: Sequence[Value], level: Value, distance: Value
    ) -> list[Value]:
        """Each record becomes the lesser or the greater one of it and its partner."""
        k, shape = self.k, (self.block,)
        wide: Callable[[Value], Value] = lambda x: k.broadcast(x, shape)
        number, zero = k.iota(self.block), k.const("index", 0, shape)
        apart = wide(k.const("index", 1) << distance)
        for buffer, x in zip(scratch, records, strict=True):
            k.store(buffer, 0, x)
        partner = number ^ apart
        others = [k.load_at(buffer, partner) for buffer in scratch]
        upper = k.ne(number & apart, zero)
        keep_greater = upper ^ self._is_down(number + wide(self.base), level)
        take = precedes(k, others, records) ^ keep_greater
        return [k.select(take, y, x) for x, y in zip(records, others, strict=True)]

    def _is_down(self, number: Value, level: Value) -> Value:
        """Which records belong to runs that become sorted downwards: every second one."""
        k = self.k
        bit = k.const("index", 1) << level
        bit = bit & (self.padded - 1)
        turns = number & k.broadcast(bit, number.shape)
        return k.ne(turns, k.const("index", 0, number.shape))

    def _told(self, kernel: ShapedKernel, name: str) -> Value:
        """A number that the launch gives."""
        kernel.args.append(0)
        return self.k.size(self.k.param(name, "index", "size"))

    # A step through global memory

    def _step(self, temps: Sequence[Temp]) -> Call:
        """Order pairs of records that lie `2**distance` apart."""
        kernel = self.ctx.kernel("sort_step")
        k = self.k = kernel.k
        number, mask, grid = element_tile(k, self.ctx.gpu, self.blocks * self.block // 2)
        assert mask is None  # blocks are whole
        buffers = [kernel.inout(t) for t in temps]
        level, distance = self._told(kernel, "level"), self._told(kernel, "distance")
        wide: Callable[[Value], Value] = lambda x: k.broadcast(x, number.shape)
        apart = k.const("index", 1) << distance
        inside = number & wide(apart - 1)
        low = ((number >> wide(distance)) << wide(distance + 1)) + inside
        high = low + wide(apart)
        a, b = ([k.load_at(buffer, at) for buffer in buffers] for at in (low, high))
        swap = precedes(k, b, a) ^ self._is_down(low, level)
        for buffer, x, y in zip(buffers, a, b, strict=True):
            k.store_at(buffer, low, k.select(swap, y, x), unique=True)
            k.store_at(buffer, high, k.select(swap, x, y), unique=True)
        return kernel.launch(grid, self._nanoseconds)

    # Records and elements

    def _places(self) -> tuple[Value, Value, Value]:
        """Row and place of each record of a block, and whether there is such a row."""
        k = self.k
        number = k.iota(self.block) + k.broadcast(self.base, (self.block,))
        place = number & k.const("index", self.padded - 1, number.shape)
        bits = k.const("index", self.padded.bit_length() - 1, number.shape)
        row = number >> bits
        return row, place, row < k.const("index", self.geometry.rows, row.shape)

    def _records(self, kernel: ShapedKernel) -> list[Value]:
        """Records of the operands; what pads rows is greater than all of them."""
        k, g = self.k, self.geometry
        row, place, exists = self._places()
        exists = exists & (place < k.const("index", g.n, place.shape))
        offsets = g.start(k, row) + place * g.inner
        parts = []
        for source, key in self.keys:
            x = key.encode(k, key.load_at(k, kernel.input(source), offsets, exists))
            last = k.const(key.unsigned, (1 << key.width) - 1, x.shape)
            parts.append(k.select(exists, x, last))
        return self.layout.join(k, parts, place)

    def _emit(self, kernel: ShapedKernel, records: Sequence[Value]) -> None:
        """Write the elements whose records are in order now."""
        k, g = self.k, self.geometry
        row, place, exists = self._places()
        exists = exists & (place < k.const("index", self.taken, place.shape))
        to = g.start(k, row, self.taken) + place * g.inner
        for source, target in self.outputs:
            if key := self.decoding(source, self.layout.positioned):
                bits = key.decode(k, self.layout.part(k, records[0], key.unsigned))
                out = view(kernel.output(target), key.unsigned)
                k.store_at(out, to, bits, exists, unique=True)
                continue
            position = k.convert(k.convert(records[-1], "u32"), "index")
            self.scatter(kernel, source, target, to, g.start(k, row), position, exists)
