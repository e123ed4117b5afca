"""Prefetches: what loops are about to read, asked for in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from amdjax.tile import ops
from amdjax.tile.builder import Builder
from amdjax.tile.ir import Op, Value, highest_number, nested_ops
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import rewritten
from amdjax.tile.types import CACHE_LINE, itemsize

_FAR = 1024  # bytes between reads of two rounds that no hardware foresees
_PAGE = 4096  # bytes that hardware does not look beyond


def place_prefetches(kernel: Kernel) -> Kernel:
    """Ask for what loops read, where they name memory to prefetch.

    A loop with a `prefetch_distance` asks beside each read for that of so many rounds later, if
    rounds are far apart, or if they lie side by side and those are on another page. Before a loop
    without, all is asked for that a loop inside it reads a line at a time, along the lines: the
    rows of a matrix that it takes by columns.
    """
    loops = [op for op in nested_ops(kernel.body) if isinstance(op, ops.For) and op.prefetch]
    return rewritten(kernel, _Placement(kernel, loops).change) if loops else kernel


class _Placement:
    def __init__(self, kernel: Kernel, loops: Sequence[ops.For]):
        self.k = Builder(kernel.name, highest_number(kernel.body))
        self.made = {v.number: op for op in nested_ops(kernel.body) for v in op.results}
        #: Elements between a read and lines of later rounds, by numbers of what is read.
        self.distances: dict[int, Sequence[int]] = {}
        for loop in loops:
            self._measure(loop)

    def change(self, op: Op) -> Op | list[Op]:
        if isinstance(op, ops.For) and op.prefetch and not op.prefetch_distance:
            return [*self.k.written(lambda: self._whole(op)), op]
        if isinstance(op, ops.Load) and op.result.number in self.distances:
            return [*self.k.written(lambda: self._later(op)), op]
        return op

    # Rounds ahead

    def _measure(self, loop: ops.For) -> None:
        step = self._constant(loop.step) if loop.prefetch_distance else None
        for op in loop.body.ops:
            if step and isinstance(op, ops.Load) and _names(loop, op):
                (multiple,) = self._multiples(op.offset, loop)
                elements, size = multiple * step, itemsize(op.buffer.dtype)
                later = elements * loop.prefetch_distance
                if (op.result.shape, op.strides) == ((elements,), (1,)):
                    if later * size > _PAGE:
                        lines = range(later, later + elements, CACHE_LINE // size)
                        self.distances[op.result.number] = lines
                elif abs(elements) * size >= _FAR:
                    self.distances[op.result.number] = [later]

    def _later(self, op: ops.Load) -> None:
        k = self.k
        for distance in self.distances[op.result.number]:
            k.prefetch(op.buffer, k.op("add", op.offset, k.const("index", distance)))

    # Everything before the loop

    def _whole(self, outer: ops.For) -> None:
        """Rows are rounds of a loop inside, along which reads are far apart."""
        seen = set()
        for inner, op in _reads(outer):
            along, across = self._multiples(op.offset, outer, inner)
            key = op.buffer.name, across
            if along == 1 and across and key not in seen:
                seen.add(key)
                self._rows(op, outer, inner)

    def _rows(self, op: ops.Load, outer: ops.For, inner: ops.For) -> None:
        k, line = self.k, CACHE_LINE // itemsize(op.buffer.dtype)
        high, wide = self._rounds(inner), self._rounds(outer)
        if not high or not wide:
            return

        def row(i: Value) -> None:
            numbers = {_number(outer): outer.start, _number(inner): k.op("add", inner.start, i)}
            start = self._moved(op.offset, _within(outer), numbers)
            for at in range(0, wide, line):
                k.prefetch(op.buffer, k.op("add", start, k.const("index", at)), level=2)

        k.for_(0, high, 1, row)

    def _rounds(self, loop: ops.For) -> int | None:
        """The most numbers between start and stop: of `range(x, min(x + n, …), …)`, `n`."""
        end = self.made.get(loop.stop.number)
        for v in end.operands if isinstance(end, ops.Min) else (loop.stop,):
            sum_ = self.made.get(v.number)
            if isinstance(sum_, ops.Add) and sum_.operands[0].number == loop.start.number:
                return self._constant(sum_.operands[1])
        return None

    # Offsets that are linear in the numbers of rounds

    def _multiples(self, offset: Value, *loops: ops.For) -> list[int]:
        """By how much an offset grows with the number of each of some nested loops.

        Nothing is known of one that is not linear, and said to grow by 0.
        """
        inside, numbers = _within(loops[0]), [_number(loop) for loop in loops]

        def of(v: Value) -> list[int] | None:
            if v.number in numbers:
                return [int(v.number == n) for n in numbers]
            op = self.made.get(v.number)
            if v.number not in inside or isinstance(op, ops.Const):
                return [0] * len(numbers)
            if not isinstance(op, (ops.Add, ops.Sub, ops.Mul)):
                return None
            a, b = map(of, op.operands)
            if a is None or b is None:
                return None
            if not isinstance(op, ops.Mul):
                sign = -1 if isinstance(op, ops.Sub) else 1
                return [x + sign * y for x, y in zip(a, b, strict=True)]
            factor = self._constant(op.operands[1])
            return [x * factor for x in a] if factor is not None else None if any(a + b) else a

        return of(offset) or [0] * len(loops)

    def _moved(self, v: Value, inside: Set[int], numbers: Mapping[int, Value]) -> Value:
        """A linear offset in front of loops, for given numbers of their rounds."""
        if v.number in numbers or v.number not in inside:
            return numbers.get(v.number, v)
        op = self.made[v.number]
        if isinstance(op, ops.Const):
            return self.k.const(v.dtype, op.value.x, v.shape)
        return self.k.op(op.name, *[self._moved(x, inside, numbers) for x in op.operands])

    def _constant(self, v: Value) -> int | None:
        op = self.made.get(v.number)
        return int(op.value.x) if isinstance(op, ops.Const) else None


def _number(loop: ops.For) -> int:
    """The value that counts rounds."""
    return loop.body.args[0].number


def _within(loop: ops.For) -> frozenset[int]:
    """Values that rounds make."""
    made = [v.number for v in loop.body.args]
    for op in nested_ops(loop.body):
        made += [v.number for v in op.results]
        made += [v.number for block in op.blocks for v in block.args]
    return frozenset(made)


def _names(loop: ops.For, op: ops.Load) -> bool:
    return any(op.buffer.name == buffer.name for buffer in loop.prefetch)


def _reads(outer: ops.For) -> Iterator[tuple[ops.For, ops.Load]]:
    """What the loops right inside one read of the memory that it names."""
    for inner in outer.body.ops:
        if isinstance(inner, ops.For):
            for op in nested_ops(inner.body):
                if isinstance(op, ops.Load) and _names(outer, op):
                    yield inner, op
