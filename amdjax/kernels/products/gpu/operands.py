"""Operands of contractions on GPUs: where their elements are, and which lie side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amdjax import tile
from amdjax.core.dims import Dim, divisor, is_multiple
from amdjax.kernels.products.contraction import Axis, Source
from amdjax.kernels.products.program import Program
from amdjax.targets import GpuTarget
from amdjax.targets.mma import MmaAtom
from amdjax.tile import TOLD, Side, itemsize

Value = tile.Value

MOST_LINES_TOGETHER = 4
EDGE_BYTES = 8
MOST_STEPS_TOGETHER = 16  # in depth: a cell has no more


class SourcePlaces:
    """Where the lines and steps in depth of an operand are.

    Args:
      program: the kernel.
      source: the operand, merged.
      first: the tile's first line.
      batch: the place along each batch loop.
      depth: of the product's tiles.
      atom: what multiplies.
      end: where lines end; None for those of the operand.
    """

    def __init__(
        self, program: Program, source: Source, first: Value, batch: Sequence[Value],
        depth: int, atom: MmaAtom, end: Value | None = None,
    ):  # fmt: skip
        self.program, self.k, self.source, self.first = program, program.k, source, first
        k = self.k
        buffer = program.buffer(source.owner, source.dtype)
        extents = [limit.extent for limit in source.limits]
        #: Those that are known when the kernel runs.
        self.told = [k.const("index", n) for n in extents if isinstance(n, Dim)]
        limits = tuple(TOLD if isinstance(n, Dim) else n for n in extents)
        along, vector, edge = contiguity(source, atom, program.ctx.gpu)
        run = run_of_tiles(source, depth)
        shifts = tuple(map(int, source.depth[-1].shifts)) if source.depth else (0,) * len(limits)
        granule = 1 if run is not None else granule_of_tiles(source, program.ctx.gpu)
        shifts = shifts if run is not None or granule > 1 else ()
        stride = int(source.depth[-1].stride) if granule > 1 else 0
        self.side = Side(buffer, along, vector, run, limits, shifts, edge, granule, stride)
        base = k.const("index", source.offset)
        self.starts = [k.const("index", limit.start) for limit in source.limits]
        base, self.starts = self._moved(source.batch, batch, base, self.starts)
        if len(source.lines) == 1:
            base, self.starts = self._moved(source.lines, [first], base, self.starts)
        self.base = base
        self.last = (source.line_count - 1) - first if end is None else end - 1 - first

    def line(self, number: Value) -> list[Value]:
        """A line, counted from the tile's first."""
        axes = self.source.lines
        if len(axes) > 1:
            number = number + self.first
        digits = self._digits(number, axes)
        offset, coords = self._moved(axes, digits, self.k.const("index", 0), self.starts)
        return [offset, *coords]

    def step(self, number: Value) -> list[Value]:
        """A step in depth."""
        axes = self.source.depth
        zero = self.k.const("index", 0)
        still = [zero] * len(self.source.limits)
        offset, shifts = self._moved(axes, self._digits(number, axes), zero, still)
        return [offset, *shifts]

    def _digits(self, number: Value, axes: Sequence[Axis]) -> list[Value]:
        """The place along each of several loops; positions divide as unsigned 32-bit numbers."""
        if len(axes) <= 1:
            return [number] * len(axes)
        k, number = self.k, self.k.convert(number, "u32")
        digits: list[Value] = []
        for axis in reversed(axes[1:]):
            count = k.const("u32", axis.extent)
            digits.insert(0, number % count)
            number = number // count
        return [k.convert(d, "index") for d in (number, *digits)]

    def _moved(
        self, axes: Sequence[Axis], digits: Sequence[Value], base: Value, coords: Sequence[Value]
    ) -> tuple[Value, list[Value]]:
        k, coords = self.k, list(coords)
        for axis, digit in zip(axes, digits, strict=True):
            if axis.stride:
                base = base + _times(k, digit, axis.stride)
            for j, shift in enumerate(axis.shifts):
                if shift:
                    coords[j] = coords[j] + _times(k, digit, shift)
        return base, coords


def _times(k: tile.Builder, x: Value, n: int) -> Value:
    return x if n == 1 else x * n


class Neighbors(NamedTuple):
    """What lies side by side in an operand.

    Args:
      axis: steps in `depth` or `lines`.
      vector: how many are read at once.
      edge: see `Side`.
    """

    axis: str
    vector: int
    edge: int | None = None


def contiguity(source: Source, atom: MmaAtom, target: GpuTarget) -> Neighbors:
    """Whether steps in depth or lines lie side by side, and how many are read at once."""
    most = max(1, 16 // itemsize(source.dtype))
    inner = {"depth": source.depth[-1:], "lines": source.lines[-1:]}
    lines = atom.cell if atom.copied or atom.across else MOST_LINES_TOGETHER
    for along, limit in (("depth", atom.cell), ("lines", lines)):
        axis = next(iter(inner[along]), None)
        if axis is not None and axis.stride == 1 and axis.extent > 1:
            together = min(most, limit, aligned(axis.extent, most))
            if source.cut == along:
                together = min(together, aligned(source.granularity, most))
            whole = min(together, _groups_inside(source, axis, most))
            if target.loads_unaligned:
                parts, edge = _groups_at_edges(source, axis, together)
                if parts > whole:
                    return Neighbors(along, parts, edge)
            return Neighbors(along, whole)
    strides = {name: axes[0].stride if axes else 0 for name, axes in inner.items()}
    by_lines = 0 < strides["lines"] < strides["depth"] or not strides["depth"]
    return Neighbors("lines" if by_lines else "depth", 1)


def _groups_at_edges(source: Source, axis: Axis, most: int) -> tuple[int, int]:
    """Neighbors along an axis of which parts may be inside of a limit, and which; none of others.

    They are a word or two, which are turned in registers.
    """
    together = min(most, EDGE_BYTES // itemsize(source.dtype))
    moved = [j for j, shift in enumerate(axis.shifts) if shift]
    if len(moved) != 1 or axis.shifts[moved[0]] != 1:
        return 0, 0
    extent = source.limits[moved[0]].extent
    fits = isinstance(extent, int) and extent >= together and together * itemsize(source.dtype) >= 4
    return (together, moved[0]) if fits else (0, 0)


def _groups_inside(source: Source, axis: Axis, most: int) -> int:
    """Neighbors along an axis, in groups that lie inside or outside of every limit as a whole."""
    others = [x for x in (*source.batch, *source.lines, *source.depth) if x is not axis]
    distances = [source.offset, *(x.stride for x in others)]
    for j, (limit, shift) in enumerate(zip(source.limits, axis.shifts, strict=True)):
        if shift not in (0, 1):
            return 1
        if shift:  # the coordinate counts neighbors
            distances += [limit.start, limit.extent, *(x.shifts[j] for x in others)]
    return min(aligned(distance, most) for distance in distances)


def aligned(x: int, most: int) -> int:
    """The largest power of two up to `most`, which is one, that divides a number."""
    return divisor(x, most)


def run_of_tiles(source: Source, depth: int) -> int | None:
    """The stride of tiles in depth if each lies within a run of the innermost loop."""
    if not source.depth:
        return 0
    inner = source.depth[-1]
    within = len(source.depth) == 1 or is_multiple(inner.extent, depth)
    return inner.stride if within and isinstance(inner.stride, int) else None


def granule_of_tiles(source: Source, target: GpuTarget) -> int:
    """Steps in depth that lie within a run of the innermost loop, where whole tiles do not."""
    inner = source.depth[-1]
    known = all(isinstance(n, int) for n in (inner.stride, *inner.shifts))
    # Code for others was measured as it is.
    return aligned(inner.extent, MOST_STEPS_TOGETHER) if known and target.is_amdgpu else 1
