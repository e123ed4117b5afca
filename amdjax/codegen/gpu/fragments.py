"""Layouts of tiles that a matrix unit makes or takes.

In them the place of an element along each axis is the sum of what the thread's number says and of
what the register says. The sums of a product lie so, rows of them or columns, what is computed of
them, and what may be an operand of the next product. `docs/gpu.md` has a drawing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from amdjax.codegen.gpu.layout import Place, Threads
from amdjax.codegen.llvm import Value
from amdjax.core.integers import floor_power_of_two
from amdjax.targets.mma import CELL_BYTES, Digits, MmaAtom, Tiling, digits_of


@dataclass(frozen=True)
class FragmentLayout:
    """How threads hold a tile.

    Args:
      shape: of the tile, of rank 1 or 2.
      threads: of the workgroup.
      bases: for each axis where the thread's elements begin, by the thread's number; powers of two.
      elements: for each register its distances from there.
    """

    shape: tuple[int, ...]
    threads: int
    bases: tuple[Digits, ...]
    elements: tuple[tuple[int, ...], ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.threads, self.bases, self.elements))

    def __hash__(self) -> int:  # of many registers, asked often
        return self._hash

    @property
    def registers(self) -> int:
        """Elements that a thread holds."""
        return len(self.elements)

    @cached_property
    def minor_axis(self) -> int:
        """The axis along which neighboring registers are neighbors."""
        return max(reversed(range(len(self.shape))), key=self._run)

    @cached_property
    def width(self) -> int:
        """Neighbors along the minor axis that a thread holds side by side, in aligned groups."""
        return self._run(self.minor_axis)

    def _run(self, axis: int) -> int:
        scales = [scale for _, _, scale in self.bases[axis]]
        width = 1
        while self.registers % (2 * width) == 0 and self._is_run(axis, 2 * width, scales):
            width *= 2
        return width

    def _is_run(self, axis: int, width: int, scales: Sequence[int]) -> bool:
        if any(scale % width for scale in scales):
            return False
        for first in range(0, self.registers, width):
            start = self.elements[first]
            if start[axis] % width:
                return False
            for j in range(1, width):
                moved = tuple(p + j * (a == axis) for a, p in enumerate(start))
                if self.elements[first + j] != moved:
                    return False
        return True

    def last_thread(self, register: int) -> int:
        """The highest thread whose register holds an element."""
        return self.threads - 1

    def thread_bits(self, axis: int) -> int:
        """The bits of the thread's number that the place along an axis depends on."""
        return sum(divisor * (modulus - 1) for divisor, modulus, _ in self.bases[axis])

    def owner(self, threads: Threads) -> Value | None:
        """Whether the thread is the first that holds its elements; None if it is the only one."""
        spare = self.threads - 1
        for axis in range(len(self.shape)):
            spare &= ~self.thread_bits(axis)
        if not spare:
            return None
        return threads.compare("eq", threads.apply("and", threads.number, spare), 0)

    def places(self, threads: Threads) -> list[tuple[Place, ...]]:
        """For each register its element's place along each axis."""
        bases = [_base(threads, digits) for digits in self.bases]
        return [tuple(map(Place, bases, steps)) for steps in self.elements]

    def place(self, thread: int, register: int) -> tuple[int, ...]:
        """Where the element of a thread's register is."""
        steps = self.elements[register]
        return tuple(digits_of(d, thread) + s for d, s in zip(self.bases, steps, strict=True))

    # Layouts of what is made of the tile

    def without(self, axis: int) -> FragmentLayout:
        """Of a tile reduced along an axis, whose results all threads along it hold."""
        kept = dict.fromkeys(_drop(steps, axis) for steps in self.elements)
        return FragmentLayout(
            _drop(self.shape, axis), self.threads, _drop(self.bases, axis), tuple(kept)
        )

    def along(self, axis: int) -> FragmentLayout:
        """Of a tile with one element along an axis, of which this is the broadcast."""
        return self.without(axis).expanded(axis) if len(self.shape) > 1 else self

    def expanded(self, axis: int) -> FragmentLayout:
        """Of the tile with one more axis, of length one."""

        def more(xs: tuple[Any, ...], x: object) -> tuple[Any, ...]:
            return (*xs[:axis], x, *xs[axis:])

        return FragmentLayout(
            more(self.shape, 1), self.threads, more(self.bases, ()),
            tuple(more(steps, 0) for steps in self.elements),
        )  # fmt: skip

    @property
    def transposed(self) -> FragmentLayout:
        """Of the transposed tile, in the same registers."""
        elements = tuple(steps[::-1] for steps in self.elements)
        return FragmentLayout(self.shape[::-1], self.threads, self.bases[::-1], elements)


def _drop(xs: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*xs[:axis], *xs[axis + 1 :])


def _base(threads: Threads, digits: Digits) -> Value | None:
    terms = []
    for divisor, modulus, scale in digits:
        x = threads.apply("lshr", threads.number, divisor.bit_length() - 1)
        terms.append(threads.apply("mul", threads.apply("and", x, modulus - 1), scale))
    return threads.total(terms) if terms else None


def _wave_lines(tiling: Tiling, wave: int) -> Digits:
    """Where the rows of a wave begin."""
    each = tiling.fragments[0] * tiling.atom.m
    return ((wave, tiling.waves[0], each),) if tiling.waves[0] > 1 else ()


@cache
def accumulator_layout(tiling: Tiling, wave: int) -> FragmentLayout:
    """Of the sums of a product, whose waves have rows of their own."""
    atom, (high, wide) = tiling.atom, tiling.fragments
    elements = tuple(
        (i * atom.m + r, j * atom.n + c)
        for i in range(high)
        for j in range(wide)
        for r, c in atom.elements
    )
    bases = (*_wave_lines(tiling, wave), *_real(atom.row)), _real(atom.column)
    return FragmentLayout((tiling.rows, tiling.columns), tiling.waves[0] * wave, bases, elements)


@cache
def operand_layout(tiling: Tiling, wave: int) -> FragmentLayout:
    """Of the left operand of a product, as lanes take it: its columns are the depth."""
    atom = tiling.atom
    if atom.takes_sums:
        fragments = tiling.fragments[0], tiling.depth // atom.n
        return accumulator_layout(replace(tiling, fragments=fragments), wave)
    unit = atom.cells * atom.cell_depth
    steps = itertools.product(
        range(tiling.fragments[0]), atom.more[0], range(0, tiling.depth, atom.depth), range(unit)
    )
    elements = tuple((i * atom.m + more, s + x) for i, more, s, x in steps)
    depth = tuple((divisor, modulus, scale * unit) for divisor, modulus, scale in atom.group[0])
    bases = (*_wave_lines(tiling, wave), *_real(atom.line[0])), _real(depth)
    return FragmentLayout((tiling.rows, tiling.depth), tiling.waves[0] * wave, bases, elements)


def _real(digits: Digits) -> Digits:
    """Digits without those that are always zero."""
    return tuple(d for d in digits if d[1] > 1 and d[2])


@cache
def rectangles(shape: tuple[int, int], threads: int, itemsize: int) -> FragmentLayout:
    """Of a tile on its way to LDS: each thread has a few neighbors in each of a few rows.

    Neighboring threads have what follows in a row, as it lies in memory. Of either axis a thread
    then has neighbors, which make cells, or large parts of them.
    """
    rows, columns = shape
    across = min(CELL_BYTES // itemsize, columns)
    wide = columns // across
    each = max(rows * wide // threads, 1)
    high = min(CELL_BYTES // itemsize, floor_power_of_two(each), rows)
    while rows // high * wide < threads and high > 1:
        high //= 2
    beside = min(wide, threads)
    below = min(threads // beside, rows // high)
    elements = tuple(
        (top + r, left + c)
        for top in range(0, rows, high * below)
        for left in range(0, columns, across * beside)
        for r in range(high)
        for c in range(across)
    )
    bases = _real(((beside, below, high),)), _real(((1, beside, across),))
    return FragmentLayout(shape, threads, bases, elements)


# From the sums of one product to an operand of the next


@dataclass(frozen=True)
class OperandOrder:
    """How registers of a layout are the left operand of an atom.

    Args:
      lane: distance of the lanes that share a row and first have to exchange what they hold; 0
        where none do.
      lines: for each line that a lane takes, its registers in the order in which they are taken;
        of those that come from the lane with the higher number, one complement is given.
      depth: for each place in the operand's depth the column of the tile that stands there.
    """

    lane: int
    lines: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]


@cache
def operand_order(layout: FragmentLayout, tiling: Tiling, wave: int) -> OperandOrder | None:
    """How registers serve as the left operand of a product; None if lanes hold other rows.

    Any order of the depth will do, if the right operand is brought in the same one.
    """
    atom, wanted = tiling.atom, operand_layout(tiling, wave)
    if layout.shape != wanted.shape or layout.bases[0] != wanted.bases[0]:
        return None
    lines = dict.fromkeys(row for row, _ in wanted.elements)
    held = {row: [] for row in lines}  # type: dict[int, list[tuple[int, int]]]
    for r, (row, column) in enumerate(layout.elements):
        if row not in held:
            return None
        held[row].append((column, r))
    steps = [sorted(x) for x in held.values()]
    if any([c for c, _ in x] != [c for c, _ in steps[0]] for x in steps):
        return None
    firsts = _group_firsts(layout, atom, wave)
    if firsts is None:
        return None
    lane, bases = firsts
    return _ordered(atom, tiling.depth, lane, bases, steps)


def _group_firsts(layout: FragmentLayout, atom: MmaAtom, wave: int) -> tuple[int, list[int]] | None:
    """What lanes exchange, and the first column of each group of lanes that share a row."""
    by_group: dict[int, set[int]] = {}
    for lane in range(wave):
        by_group.setdefault(digits_of(atom.group[0], lane), set()).add(
            digits_of(layout.bases[1], lane)
        )
    if all(len(x) == 1 for x in by_group.values()):
        return 0, [min(by_group[g]) for g in range(atom.groups)]
    digits = layout.bases[1]
    if atom.groups == 1 and len(digits) == 1 and digits[0][1] == 2:
        return digits[0][0], [0, digits[0][2]]
    return None


def _ordered(
    atom: MmaAtom, depth: int, lane: int, bases: list[int], steps: list[list[tuple[int, int]]]
) -> OperandOrder | None:
    """The order for lanes whose columns are `bases` and steps from there."""
    unit = atom.cells * atom.cell_depth // (2 if lane else 1)
    parts = range(0, len(steps[0]), unit)
    order = [
        base + column for at in parts for base in bases for column, _ in steps[0][at : at + unit]
    ]
    if sorted(order) != list(range(depth)):
        return None
    lines = []
    for line in steps:
        taken = [[r for _, r in line[at : at + unit]] for at in parts]
        if lane:
            taken = [[*own, *(~r for r in own)] for own in taken]
        lines.append(tuple(itertools.chain.from_iterable(taken)))
    return OperandOrder(lane, tuple(lines), tuple(order))


def bit_digits(depth: Sequence[int]) -> Digits:
    """The digits that say where each column stands, of what `OperandOrder.depth` says."""
    place = {column: at for at, column in enumerate(depth)}
    bits = [1 << i for i in range((len(depth) - 1).bit_length())]
    digits = [(bit, 2, place[bit]) for bit in bits]
    merged: list[tuple[int, int, int]] = []
    for bit, two, to in digits:
        if merged and merged[-1][2] * merged[-1][1] == to:
            first, count, scale = merged[-1]
            merged[-1] = first, count * two, scale
        else:
            merged.append((bit, two, to))
    assert all(digits_of(tuple(merged), c) == at for c, at in place.items()), depth
    return tuple(merged)
