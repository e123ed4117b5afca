"""A padded copy of the part of a convolution's input that a block of positions sees.

Each element is copied once, with the zeros around the input, to where it stays in the second-level
cache; products then read windows of the copy at constant distances, and ask for no limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import is_multiple, size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.loops import lane_loop
from amdjax.kernels.products.contraction import Axis, Source, WindowAxis
from amdjax.kernels.products.cpu.blocking import extents
from amdjax.kernels.products.program import Program
from amdjax.targets.cpu import CpuCosts

Value = tile.Value


@dataclass(frozen=True)
class WindowBlock:
    """Positions of windows that a program copies the input of.

    Args:
      axes: along which windows move, see `ProductProblem`.
      positions: how many of each axis.
      features: elements of a pixel, side by side.
      line_elements: of a cache line.
    """

    axes: tuple[WindowAxis, ...]
    positions: tuple[int, ...]
    features: int
    line_elements: int = 16

    @property
    def copied(self) -> tuple[int, ...]:
        """Coordinates along each axis."""
        return tuple(a.reach(n) for a, n in zip(self.axes, self.positions, strict=True))

    @property
    def counts(self) -> tuple[int, ...]:
        """Blocks along each axis."""
        return tuple(ceil_div(a.positions, n) for a, n in zip(self.axes, self.positions))

    @property
    def line(self) -> int:
        """Elements from one copied line to the next; a multiple of a page would fill few sets."""
        each = self.line_elements
        return round_up(self.copied[-1] * self.features, each) + each

    @property
    def elements(self) -> int:
        """Size of the copy."""
        return math.prod(self.copied[:-1]) * self.line

    def copy_cycles(self, costs: CpuCosts, lanes: int) -> float:
        """Cycles to write the copy, by lines or, of a group's features, by pixels."""
        if self.axes[-1].stride == self.features:
            return costs.copy * self.elements / lanes
        pixel = costs.line + costs.copy * ceil_div(self.features, lanes)
        return math.prod(self.copied) * pixel

    @property
    def pitches(self) -> list[int]:
        """Elements of the copy from one coordinate of each axis to the next."""
        outer = self.copied[1:-1]
        lines = [math.prod(outer[d:]) * self.line for d in range(len(self.axes) - 1)]
        return [*lines, self.features]


def position_blocks(axes: Sequence[WindowAxis], unit: int) -> Iterator[tuple[int, ...]]:
    """All positions of inner axes, some of one axis, one of each outer axis.

    Of the last axis a block has a multiple of `unit`.
    """
    counts = [size_hint(axis.positions) for axis in axes]
    for d, count in enumerate(counts):
        step = unit if d + 1 == len(counts) else 1
        for n in extents(ceil_div(count, step), ceil_div(count, step)):
            yield ((1,) * d + (min(n * step, count), *counts[d + 1 :]))


class WindowCopy:
    """Writes the copy of a block.

    Args:
      program: the kernel.
      source: the input.
      block: what is copied.
      dtype: of the copy.
      lanes: of a vector.
      beyond: elements behind the copy that may be read.
    """

    def __init__(
        self, program: Program, source: Source, block: WindowBlock, dtype: str, lanes: int,
        beyond: int,
    ) -> None:  # fmt: skip
        self.k, self.source, self.block, self.dtype = program.k, source, block, dtype
        #: lanes in which the input is copied
        self.strip = lanes * max(1, min(4, block.features // lanes))
        self.input = program.buffer(source.owner, source.dtype)
        self.buffer = self.k.scratch("window", dtype, block.elements + beyond + self.strip)

    def write(self, batch: Sequence[Value], first: Sequence[Value]) -> None:
        """Copy a block of a batch entry, whose first positions are given."""
        self.first = first
        at = self.k.const("index", self.source.offset)
        for loop, digit in zip(self.source.batch, batch, strict=True):
            at = at + digit * loop.stride
        self._lines([], at, None)

    def stop(self, d: int) -> Value:
        """How many positions a block has along an axis."""
        k, count, n = self.k, self.block.axes[d].positions, self.block.positions[d]
        return k.const("index", n) if is_multiple(count, n) else k.min(-self.first[d] + count, n)

    def _lines(self, line: list[Value], at: Value, inside: Value | None) -> None:
        """Copy the lines whose first places are given, and what they begin with in the input."""
        k, block, d = self.k, self.block, len(line)
        axis = block.axes[d]
        at = at + self.first[d] * (axis.shift * axis.stride)
        first = self.first[d] * axis.shift + axis.start
        if d + 1 < len(block.axes):

            def one(i: Value) -> None:
                here = k.convert(first + i, "u64") < k.const("u64", axis.extent)
                both = here if inside is None else inside & here
                self._lines([*line, i], at + i * axis.stride, both)

            k.for_(0, block.copied[d], 1, one)
            return
        row = k.const("index", 0)
        for i, pitch in zip(line, block.pitches):
            row = row + i * pitch
        pixels, zero = k.const("index", block.copied[d]), k.const("index", 0)
        low = k.min(k.max(-first, zero), pixels)
        high = k.max(k.min(-first + axis.extent, pixels), low)
        if inside is not None:
            low, high = k.select(inside, low, pixels), k.select(inside, high, pixels)
        self._strips(row, zero, low * block.features, None)
        if axis.stride == block.features:
            self._strips(row, low * block.features, high * block.features, at)
        else:

            def pixel(i: Value) -> None:
                start = i * block.features
                self._strips(row + start, 0, block.features, at + i * axis.stride)

            k.for_(low, high, 1, pixel)
        self._strips(row, high * block.features, pixels * block.features, None)

    def _strips(self, row: Value, start: Value | int, stop: Value | int, at: Value | None) -> None:
        """Elements of a line from the input, or zeros; what follows is overwritten."""
        k, shape = self.k, (self.strip,)

        def strip(e: Value, mask: Value | None = None) -> list[Value]:
            if at is None:
                x = k.const(self.dtype, self.source.flip, shape)
            else:
                x = k.load(self.input, at + e, shape, (1,), mask)
                x = self.source.packed(k, x, self.dtype)
            k.store(self.buffer, row + e, x, (1,))
            return []

        # Masks are for what ends within a strip, and would be read beyond it.
        if at is None or self.block.features % self.strip == 0:
            k.for_(start, stop, self.strip, strip)
        else:
            lane_loop(k, start, stop, self.strip, strip)


def block_loops(block: WindowBlock) -> list[Axis]:
    """The loops over blocks."""
    return [Axis(n, 0) for n in block.counts]
