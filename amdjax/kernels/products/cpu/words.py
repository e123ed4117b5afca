"""Operands packed in words of 32 bits: neighbors in depth of a line, two of 16 bits or four bytes.

That is how AMX reads columns of `b`, and how vector instructions which sum the products in a word
read both operands. What a block lacks in depth to a whole step of AMX, 64 bytes, is zero in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import Contraction, Source
from amdjax.kernels.products.cpu.blocking import Blocking, is_at_most
from amdjax.kernels.products.cpu.packed import room_for
from amdjax.kernels.products.cpu.packing import (
    PREFETCH_STEPS,
    PanelPacker,
    copy_lines,
    panel_vectors,
    prefetch_vectors,
)
from amdjax.kernels.products.cpu.reading import Part, Reader
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import ShapedContext
from amdjax.targets.cpu import AMX_ROW_BYTES, CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

WORDS = 16  # of 32 bits in a register


def takes_words(problem: Contraction, sums: str | None) -> bool:
    """Whether operands can be packed in words, of products that are summed in `sums`."""
    a, b = problem.a, problem.b
    if problem.is_complex or problem.accumulate != sums or not problem.depth:
        return False
    by_line = bool(a.depth) and a.depth[-1].stride == 1
    return (by_line or _is_plain(a)) and _is_plain(b)


def _is_plain(source: Source) -> bool:
    return not source.limits and len(source.lines) <= 1 and len(source.depth) <= 1


@dataclass(frozen=True)
class WordPlan:
    """A packed product of operands in words.

    Args:
      problem: the contraction, whose operands are moved as bits if they are what is multiplied.
      types: of the elements of words.
      blocking: how it is cut.
    """

    problem: Contraction
    types: tuple[str, str]
    blocking: Blocking

    @classmethod
    def of(
        cls, problem: Contraction, blocking: Blocking, types: tuple[str, str] | None = None
    ) -> Self:
        """The plan of a contraction; other `types` than those of its operands are converted to."""
        types = types or (problem.a.dtype, problem.b.dtype)
        return cls(as_bits(problem, types), types, blocking)

    @property
    def element(self) -> str:
        """The dtype of what lies in a word, as bits."""
        return f"u{8 * itemsize(self.types[0])}"


def as_bits(problem: Contraction, types: tuple[str, str]) -> Contraction:
    """A contraction whose operands are moved as bits if words are of their own `types`."""
    if types != (problem.a.dtype, problem.b.dtype):
        return problem
    a, b = (replace(x, dtype=f"u{8 * itemsize(x.dtype)}") for x in (problem.a, problem.b))
    return replace(problem, a=a, b=b)


class WordRows:
    """Rows of `a` packed by line, a whole number of steps of AMX after one another.

    Args:
      program: the kernel.
      reader: of `a`.
      problem: the contraction.
      blocking: how it is cut.
      element: the dtype of what lies in a word.

    Attributes:
      buffer: where rows lie, as bits.
      stride: elements from one to the next.
    """

    def __init__(
        self, program: Program, reader: Reader, problem: Contraction, blocking: Blocking,
        element: str,
    ) -> None:  # fmt: skip
        self.k, self.problem, self.blocking = program.k, problem, blocking
        rows, size = blocking.tile.rows, itemsize(element)
        self.grain, self.per = AMX_ROW_BYTES // size, 4 // size
        room, depth = room_for(program, blocking.depth)
        # Whole cache lines, an odd number of them: rows then lie in different cache sets.
        self.stride = (ceil_div(depth, self.grain) + 1 | 1) * self.grain
        count = blocking.rows * rows + -rows % WORDS  # squares may end behind a tile
        self.buffer = self.k.scratch("a", element, room(count * self.stride))
        self.turned = not reader.depth_contiguous
        if self.turned:
            self.strip = self.k.scratch("turned", "i32", WORDS * (rows + 1))

    def pack(self, part: Part, high: Value) -> None:
        """A part, the rows of `high` tiles."""
        k, rows = self.k, self.blocking.tile.rows
        if not self.turned:
            whole = is_at_most(self.problem.depth, self.blocking.depth)
            copy_lines(part, high * rows, self.buffer, self.stride, self.grain, whole)
            if len(self.problem.a.depth) > 1 and self.problem.depth % self.grain:
                self._clear_ends(high * rows, part.stop - part.start)
            return
        words, stride = replace(self.buffer, dtype="i32"), self.stride // self.per

        def panel(i: Value) -> None:
            def turn(low: Value) -> None:
                high = k.min(low + self.grain, part.stop)
                zero = k.const("index", 0)
                square = part.after(i * rows).within(low, high)
                interleave(square, rows, self.buffer.dtype, self.strip, zero)
                word = (low - part.start) // self.per
                for r in range(0, rows, WORDS):
                    x = k.load(self.strip, r, (WORDS, WORDS), (1, rows))
                    k.store(words, (i * rows + r) * stride + word, x, (stride, 1))

            k.for_(part.start, part.stop, self.grain, turn)

        k.for_(0, high, 1, panel)

    def _clear_ends(self, lines: Value, depth: Value) -> None:
        """Zero behind each line: the last of several runs need not have ended a step."""
        k, zero = self.k, self.k.const(self.buffer.dtype, 0, (self.grain,))
        k.for_(0, lines, 1, lambda i: k.store(self.buffer, i * self.stride + depth, zero, (1,)))


class WordPacker(PanelPacker):
    """Packs `b` in words that hold neighbors in depth of one column."""

    def __init__(
        self, ctx: ShapedContext, problem: Contraction, columns: int, target: CpuTarget,
        element: str,
    ) -> None:  # fmt: skip
        grain, self.per = AMX_ROW_BYTES // itemsize(element), 4 // itemsize(element)
        self.element = element
        super().__init__(ctx, replace(problem, accumulate=element), columns, grain, target)

    def pack(
        self, part: Part, target: tile.Buffer, at: Value, panels: Sequence[Value | int] = (0,)
    ) -> None:
        words, at = replace(target, dtype="i32"), at // self.per
        if part.reader.depth_contiguous and not part.reader.lines_contiguous:
            _pack_turned(part, self.columns, self.element, words, at)
        else:
            apart = [p // self.per for p in panels]
            interleave(part, self.columns, self.element, words, at, apart)


def interleave(
    part: Part, lines: int, element: str, words: tile.Buffer, at: Value,
    panels: Sequence[Value | int] = (0,),
) -> None:  # fmt: skip
    """Panels of `lines` lines by depth, in words of neighbors in depth; see `pack_lanes`.

    The part starts with a step of the unit; from where it stops to the end of one there are zeros.
    """
    reader, k, stop = part.reader, part.reader.k, part.stop
    bits = 8 * itemsize(element)
    per = 32 // bits
    size = k.const("index", per)
    vectors = panel_vectors(part, lines, WORDS, panels)

    def read(origin: Value, exists: Value | None, at: Value, guarded: bool) -> Value:
        there = origin + reader.inner_step(at)
        if guarded:
            inside = k.broadcast(at < stop, (WORDS,))
            exists = inside if exists is None else exists & inside
        if origin.shape:
            return k.load_at(reader.buffer, there, exists)
        return k.load(reader.buffer, there, (WORDS,), (1,), exists)

    def step(i: Value, guarded: bool) -> None:
        for n in range(0 if guarded else per):
            later = k.min(i * per + (n + PREFETCH_STEPS), stop - 1)
            prefetch_vectors(reader, vectors, WORDS, reader.inner_step(later))
        for vector in vectors:
            ((origin, exists),) = vector.place.segments
            word: Value | None = None
            for n in range(per):
                x = reader.source.packed(k, read(origin, exists, i * per + n, guarded), element)
                x = k.convert(x, "u32")
                x = x << k.const("u32", bits * n, x.shape) if n else x
                word = x if word is None else word | x
            assert word is not None
            row = at + (i - low) * lines
            k.store(words, row + vector.offset, k.bitcast(word, "i32"), (1,))

    low, whole = part.start // size, stop // size
    grain = AMX_ROW_BYTES * 8 // bits
    steps = (stop - part.start + (grain - 1)) // grain
    k.for_(low, whole, 1, lambda i: step(i, False))
    k.for_(whole, low + steps * WORDS, 1, lambda i: step(i, True))


def _pack_turned(part: Part, lines: int, element: str, words: tile.Buffer, at: Value) -> None:
    """The same where lines are contiguous, and so the bytes of a word: turn squares of words."""
    k, per = part.reader.k, 4 // itemsize(element)
    grain = WORDS * per
    strip = k.scratch("strip", element, lines * grain)
    count = k.const("index", lines)

    def step(low: Value) -> None:
        high = k.min(low + grain, part.stop)
        copy_lines(part.within(low, high), count, strip, grain, grain)
        row = at + ((low - part.start) // per) * lines
        for v in range(0, lines, WORDS):
            square = replace(strip, dtype="i32")
            x = k.load(square, v * WORDS, (WORDS, WORDS), (1, WORDS))
            k.store(words, row + v, x, (lines, 1))

    k.for_(part.start, part.stop, grain, step)
