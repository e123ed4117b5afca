"""Sorting long rows on a GPU: by digits of eight bits, the lowest first.

A row is cut into blocks. For each digit three kernels run: one counts the digits of each block, one
turns the counts of a digit into how many precede each block, and one moves the records. It sorts a
block by its digit first, in LDS, two bits at a time, so that records which go to neighboring
places are written together, and equal digits stay in order. The first digit is taken from the
operands, the last one writes the results.

Records hold the bits of elements as they are: keys are made where digits are needed, so that zeros
of both signs keep their order, and NaN its bits, without the position they came from.

Source: N. Satish, M. Harris, M. Garland, "Designing efficient sorting algorithms for manycore GPUs"
(2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amdjax.core.dims import choosing
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.kernels.loops import split_position, view
from amdjax.kernels.shaped import Call, ShapedContext, ShapedKernel, Temp
from amdjax.kernels.sorting.rows import RecordLayout, SortedRows, SortProblem
from amdjax.schedule.gpu.calls import scratch_limit
from amdjax.schedule.row_plan import counted
from amdjax.targets import GpuTarget
from amdjax.tile import Value, itemsize

EACH = 8  # records of a thread
BITS = 8  # of a digit
BINS = 1 << BITS
FIELD = 16  # bits of a counter; four of them count the values of two bits
#: What moving records by a digit costs, in passes of a bitonic network through memory.
DIGIT_PASSES = 3

Records = list[Value]


@dataclass(frozen=True)
class GpuRadixPlan:
    """Digits, the lowest first.

    Args:
      problem: the rows.
      layout: of records.
      threads: of a program.
      block: records that a program orders in LDS; 0 if they are too large for that.
    """

    problem: SortProblem
    layout: RecordLayout
    threads: int
    block: int

    @property
    def digits(self) -> list[tuple[int, int]]:
        """Which key and how far from its lowest bit, for each digit."""
        keys = self.problem.keys
        return [
            (part, shift)
            for part in reversed(range(len(keys)))
            for shift in range(0, keys[part][1].width, BITS)
        ]

    @property
    def passes(self) -> float:
        """As many passes of a bitonic network through memory take as long."""
        return DIGIT_PASSES * len(self.digits)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return GpuRadix(ctx, self).build()

    def __str__(self) -> str:
        out = f"radix sort of {self.problem}, {counted(len(self.digits), 'digit')} of {BITS} bits"
        return f"{out}, blocks of {self.block} in LDS, {self.threads} threads"


def plan_gpu_radix(target: GpuTarget, problem: SortProblem) -> GpuRadixPlan:
    """As many records in a block as LDS has room for, with their digits."""
    layout = RecordLayout.of(problem.keys, problem.needs_position)
    threads = target.usual_workgroup
    left = scratch_limit(target) - BINS * itemsize("u32")
    each = EACH
    while each and threads * each * (layout.nbytes + itemsize("u32")) > left:
        each //= 2
    return GpuRadixPlan(problem, layout, threads, threads * each)


class GpuRadix(SortedRows):
    """Sorts rows of records."""

    def __init__(self, ctx: ShapedContext, plan: GpuRadixPlan):
        super().__init__(ctx, plan.problem)
        self.layout, self.kinds, self.digits = plan.layout, plan.layout.kinds, plan.digits
        self.threads, self.block = plan.threads, plan.block
        self.blocks = ceil_div(self.geometry.n, self.block)

    def build(self) -> list[Call]:
        """The launches."""
        g = self.geometry
        halves = [[Temp(kind, g.rows * g.n) for kind in self.kinds] for _ in range(2)]
        counts = Temp("u32", g.rows * BINS * self.blocks)
        totals = Temp("u32", g.rows * BINS)
        calls: list[Call] = []
        source: list[Temp] | None = None
        for number, (part, shift) in enumerate(self.digits):
            target = halves[number % 2] if number < len(self.digits) - 1 else None
            calls.append(self._count(source, part, shift, counts))
            calls.append(self._sum(counts, totals))
            calls.append(self._move(source, target, part, shift, counts, totals))
            source = target
        return calls

    # The three kernels

    def _count(self, source: list[Temp] | None, part: int, shift: int, counts: Temp) -> Call:
        """How often each digit occurs in each block."""
        kernel, row, block = self._begin("sort_count")
        k = self.k
        mask = self._mask(block)
        digit = self._digit(kernel, self._key_bits(kernel, source, row, block, part), part, shift)
        bins = k.scratch("bins", "u32", BINS)
        k.store(bins, 0, k.const("u32", 0, (BINS,)))
        one = k.const("u32", 1, digit.shape)
        k.atomic("add", bins, k.convert(digit, "index"), one, mask)
        found = k.load(bins, 0, (BINS,))
        k.store(kernel.output(counts), self._first_count(row, block), found, [self.blocks])
        return kernel.launch(self._programs, self._nanoseconds)

    def _sum(self, counts: Temp, totals: Temp) -> Call:
        """Turn the counts of a digit into how many there are in the blocks before."""
        kernel = self.ctx.kernel("sort_sum")
        k = kernel.k
        with choosing():
            count = min(power_of_two(self.blocks), self.threads * EACH)
        k.schedule.workgroup = max(self.ctx.gpu.wave_size, count // EACH)
        k.schedule.vector = min(EACH, max(1, count // k.schedule.workgroup))
        number, buffer = k.program_id(), kernel.inout(counts)

        def tile(first: Value, before: Value) -> Value:
            rest = k.convert(k.const("index", self.blocks) - first, "i32")
            mask = k.iota(count, "i32") < rest
            at = number * self.blocks + first
            x = k.load(buffer, at, (count,), None, mask)
            upto = k.cumulative("add", x)
            k.store(buffer, at, upto - x + k.broadcast(before, (count,)), None, mask)
            return before + k.extract(upto, count - 1)

        (total,) = k.for_(0, self.blocks, count, tile, [k.const("u32", 0)])
        k.store(kernel.output(totals), number, total)
        return kernel.launch(self.geometry.rows * BINS, 0.5 * self.blocks)

    def _move(
        self, source: list[Temp] | None, target: list[Temp] | None, part: int, shift: int,
        counts: Temp, totals: Temp,
    ) -> Call:  # fmt: skip
        """Bring records to where their digit puts them."""
        kernel, row, block = self._begin("sort_move")
        k, n = self.k, self.geometry.n
        mask = self._mask(block)
        records = self._records(kernel, source, row, block)
        digit = self._digit(kernel, self._bits(records, part, part), part, shift)
        # What lies behind the row comes last in its block.
        digit = k.select(mask, digit, k.const("u32", BINS - 1, digit.shape))
        staged = [k.scratch(f"r{i}", kind, self.block) for i, kind in enumerate(self.kinds)]
        for buffer, x in zip(staged, records, strict=True):
            k.store(buffer, 0, x)
        self._sort_block(digit)
        self._find_bases(kernel, row, block, counts, totals)

        def write(first: Value) -> None:
            count = self.threads
            packed = k.load(self.order, first, (count,))
            there = k.load_at(self.bases, k.convert(self._digit_of(packed), "index"))
            here = k.iota(count, "u32") + k.broadcast(k.convert(first, "u32"), (count,))
            to = k.convert(there + here, "index")
            rest = k.const("index", n) - block * self.block
            exists = k.convert(here, "index") < k.broadcast(rest, (count,))
            number = packed & k.const("u32", self.block - 1, (count,))
            moved = [k.load_at(buffer, k.convert(number, "index")) for buffer in staged]
            if target is None:
                self._emit(kernel, row, moved, to, exists)
                return
            for temp, x in zip(target, moved, strict=True):
                k.store_at(kernel.output(temp), to + row * n, x, exists, unique=True)

        k.for_(0, self.block, self.threads, write)
        return kernel.launch(self._programs, 4 * self._nanoseconds)

    # What they consist of

    @property
    def _programs(self) -> int:
        return self.geometry.rows * self.blocks

    @property
    def _nanoseconds(self) -> float:
        return 1.0 * self.geometry.rows * self.geometry.n

    def _begin(self, name: str) -> tuple[ShapedKernel, Value, Value]:
        """A kernel over blocks: row and block of a program."""
        kernel = self.ctx.kernel(name)
        k = self.k = kernel.k
        # Neighbors in one thread make running sums cheap.
        k.schedule.workgroup, k.schedule.vector = self.threads, self.block // self.threads
        row, block = split_position(k, k.program_id(), (self.geometry.rows, self.blocks))
        return kernel, row, block

    def _mask(self, block: Value) -> Value:
        """Which records of a block exist."""
        k = self.k
        rest = k.convert(k.const("index", self.geometry.n) - block * self.block, "i32")
        return k.iota(self.block, "i32") < rest

    def _first_count(self, row: Value, block: Value) -> Value:
        """Where the counts of a block begin; those of one digit in all blocks are neighbors."""
        return row * (BINS * self.blocks) + block

    def _loaded(
        self, kernel: ShapedKernel, source: Sequence[Temp], row: Value, block: Value
    ) -> Records:
        """A block of records in workspace."""
        k, at = self.k, row * self.geometry.n + block * self.block
        mask = self._mask(block)
        return [k.load(kernel.input(t), at, (self.block,), None, mask) for t in source]

    def _operand_bits(self, kernel: ShapedKernel, row: Value, block: Value, part: int) -> Value:
        """What a key is made from, of a block of an operand."""
        k, g = self.k, self.geometry
        operand, key = self.keys[part]
        at = g.start(k, row) + block * self.block * g.inner
        return key.load(k, kernel.input(operand), at, self.block, g.inner, self._mask(block))

    def _records(
        self, kernel: ShapedKernel, source: Sequence[Temp] | None, row: Value, block: Value
    ) -> Records:
        """A block; from the operands if there is no `source`."""
        if source is not None:
            return self._loaded(kernel, source, row, block)
        k = self.k
        parts = [self._operand_bits(kernel, row, block, i) for i in range(len(self.keys))]
        place = k.iota(self.block) + block * self.block if self.needs_position else parts[0]
        return self.layout.join(k, parts, place)

    def _key_bits(
        self, kernel: ShapedKernel, source: Sequence[Temp] | None, row: Value, block: Value,
        part: int,
    ) -> Value:  # fmt: skip
        """What one key is made from, of the records of a block; no others are loaded."""
        if source is None:
            return self._operand_bits(kernel, row, block, part)
        (x,) = self._loaded(kernel, source[part : part + 1], row, block)
        return self._bits([x], 0, part)

    def _bits(self, records: Records, i: int, part: int) -> Value:
        """What key `part` is made from, which is number `i` of the parts that are given."""
        return self.layout.part(self.k, records[i], self.keys[part][1].unsigned)

    def _digit(self, kernel: ShapedKernel, bits: Value, part: int, shift: int) -> Value:
        """A digit of a key; which one the launch says, so that one kernel does for several."""
        k, key = self.k, self.keys[part][1]
        told = k.convert(k.size(k.param("shift", "index", "size")), key.unsigned)
        kernel.args.append(shift)
        x = key.encode(k, bits) >> k.broadcast(told, bits.shape)
        return k.convert(x, "u32") & k.const("u32", BINS - 1, bits.shape)

    def _digit_of(self, packed: Value) -> Value:
        """The digit of a number and a digit in one integer."""
        width = self.block.bit_length() - 1
        return packed >> self.k.const("u32", width, packed.shape)

    def _sort_block(self, digit: Value) -> None:
        """Put the numbers of a block's records into the order of their digits, in `self.order`."""
        k, count = self.k, self.block
        width = count.bit_length() - 1
        order = self.order = k.scratch("order", "u32", count)
        packed = digit << k.const("u32", width, (count,))
        packed = packed | k.iota(count, "u32")
        wide = lambda x: k.broadcast(x, (count,))
        const = lambda x: k.const("u64", x, (count,))

        def split(shift: Value, packed: Value) -> Value:
            """Order by two bits; all that is counted fits one integer of 64 bits."""
            value = packed >> wide(k.convert(shift + width, "u32"))
            value = value & k.const("u32", 3, (count,))
            field = k.convert(value, "u64") * const(FIELD)
            one = const(1) << field
            upto = k.cumulative("add", one)
            totals = k.extract(upto, count - 1)
            less = k.const("u64", 0)
            for i in (1, 2, 3):
                less = less + (totals << k.const("u64", i * FIELD))
            place = (upto - one + wide(less)) >> field
            place = place & const((1 << FIELD) - 1)
            k.store_at(order, k.convert(place, "index"), packed, unique=True)
            return k.load(order, 0, (count,))

        k.for_(0, BITS, 2, split, [packed])

    def _find_bases(
        self, kernel: ShapedKernel, row: Value, block: Value, counts: Temp, totals: Temp
    ) -> None:
        """What to add to a place in the sorted block, by digit: `self.bases`."""
        k, count = self.k, self.block
        total = k.load(kernel.input(totals), row * BINS, (BINS,))
        first = self._first_count(row, block)
        before = k.load(kernel.input(counts), first, (BINS,), [self.blocks])
        bases = self.bases = k.scratch("bases", "u32", BINS)
        k.store(bases, 0, k.cumulative("add", total) - total + before)
        # Where a digit begins in the block is subtracted there.
        here, zero = k.iota(count), k.const("index", 0, (count,))
        one = k.const("index", 1, (count,))
        digit = self._digit_of(k.load(self.order, 0, (count,)))
        previous = self._digit_of(k.load_at(self.order, k.max(here, one) - one))
        begins = k.eq(here, zero) | k.ne(digit, previous)
        at = k.convert(digit, "index")
        base = k.load_at(bases, at, begins) - k.iota(count, "u32")
        k.store_at(bases, at, base, begins, unique=True)

    def _emit(
        self, kernel: ShapedKernel, row: Value, records: Records, to: Value, exists: Value
    ) -> None:
        """Write elements to their places among the results."""
        k, g = self.k, self.geometry
        if self.taken < g.n:
            exists = exists & (to < k.const("index", self.taken, to.shape))
        to = g.start(k, row, self.taken) + to * g.inner
        for source, target in self.outputs:
            if key := self.decoding(source):
                bits = self._bits(records, 0, 0)
                if not key.is_float:
                    bits = key.decode(k, key.encode(k, bits))
                k.store_at(view(kernel.output(target), key.unsigned), to, bits, exists, unique=True)
                continue
            position = k.convert(k.convert(records[-1], "u32"), "index")
            self.scatter(kernel, source, target, to, g.start(k, row), position, exists)
