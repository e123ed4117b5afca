"""What a matrix product, a convolution and their gradients have in common.

A contraction is `out[b, i, j] = Σ_k a[b, i, k] * b[b, k, j]` where each of `b`, `i`, `j` and `k`
may stand for several loops, and where an operand is read through strides and, for convolutions,
only inside its bounds. The kernels beside this file compute contractions; `dot.py` and
`convolution.py` state their operations as such.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, cast

from amdjax.core.dims import Dim, choosing, size_hint, surely_equal
from amdjax.core.integers import ceil_div
from amdjax.schedule.values import compute_dtype, part_dtype, short_dtype
from amdjax.targets.cpu import CpuCosts, CpuTarget
from amdjax.tile import FLOATS, Builder, Value

MANY_TILES = 16  # of a matrix, at whose edge little is lost
EVEN_GAIN = 0.98  # of the cycles of tiles of one height, below which two heights are worth it ...
FEW_ROWS_OF_GROUP = 8  # as many as it takes for copying its other operand not to be all there is
EVEN_WORK = 1 << 26  # ... where there are so many multiply-adds


@dataclass(frozen=True)
class Axis:
    """One loop over an array.

    Args:
      extent: number of steps.
      stride: elements from one step to the next.
      shifts: by how much a step changes each limited coordinate of the array.
    """

    extent: int
    stride: int
    shifts: tuple[int, ...] = ()

    def at_hand(self) -> Axis:
        """The same for the sizes at hand."""
        return Axis(size_hint(self.extent), size_hint(self.stride), _hints(self.shifts))


def _hints(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(size_hint, sizes))


def _axes_at_hand(x: Any, *groups: str) -> Any:
    """The same with those groups of loops for the sizes at hand."""
    loops = {g: tuple(axis.at_hand() for axis in getattr(x, g)) for g in groups}
    return replace(x, offset=size_hint(x.offset), **loops)


@dataclass(frozen=True)
class Limit:
    """A coordinate that starts at `start` and is valid in `range(extent)`; zero is read outside."""

    start: int
    extent: int


@dataclass(frozen=True)
class Source:
    """How an operand is read.

    Args:
      owner: the variable, literal or workspace.
      dtype: of its elements.
      offset: where element zero of all loops lies.
      batch: loops shared by both operands and the result.
      lines: loops shared with the result only: rows of `a`, columns of `b`.
      depth: loops that are summed over; both operands count through them in the same order.
      limits: coordinates with bounds.
      flip: bits that packing turns over in each element.
      fixed: the loop that the contraction stands in does not change it: what packs all of it runs
        once, before the loop.
      cut: which of its loops begin anywhere, where groups do ...
      granularity: ... but for what divides all places at which one begins.
    """

    owner: Any
    dtype: str
    offset: int
    batch: tuple[Axis, ...]
    lines: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    limits: tuple[Limit, ...] = ()
    flip: int = 0
    fixed: bool = False
    cut: Literal["", "lines", "depth"] = ""
    granularity: int = 1

    @cached_property
    def line_count(self) -> int:
        return product(self.lines)

    @cached_property
    def depth_count(self) -> int:
        return product(self.depth)

    @property
    def depth_contiguous(self) -> bool:
        """Whether elements of a line lie side by side, as far as its innermost loop goes."""
        return bool(self.depth) and self.depth[-1].stride == 1

    @property
    def lines_contiguous(self) -> bool:
        """Whether elements of a step in depth do, as far as the innermost loop of lines goes."""
        return bool(self.lines) and self.lines[-1].stride == 1

    def packed(self, k: Builder, x: Value, dtype: str) -> Value:
        """An element as it stands where it was copied to."""
        x = k.convert(x, dtype)
        return x ^ k.const(dtype, self.flip, x.shape) if self.flip else x

    def at_hand(self) -> Source:
        """The same for the sizes at hand: for estimates, and for choices that are right for all."""
        limits = tuple(Limit(size_hint(x.start), size_hint(x.extent)) for x in self.limits)
        return replace(_axes_at_hand(self, "batch", "lines", "depth"), limits=limits)

    def merged(self) -> Source:
        """The same with as few loops as possible."""
        groups = {name: _without_ones(getattr(self, name)) for name in ("batch", "lines", "depth")}
        limits = list(self.limits)
        for name in ("lines", "depth"):
            i = 0
            while i + 1 < len(groups[name]):
                outer, inner = groups[name][i : i + 2]
                scaled = _joins(outer, inner)
                if scaled is None or (scaled and name == "lines"):
                    i += 1
                    continue
                for j in scaled:
                    limits[j] = Limit(
                        limits[j].start * inner.extent, limits[j].extent * inner.extent
                    )
                    groups = {g: _scale(axes, j, inner.extent) for g, axes in groups.items()}
                shifts = tuple(1 if j in scaled else shift for j, shift in enumerate(inner.shifts))
                joined = Axis(outer.extent * inner.extent, inner.stride, shifts)
                groups[name] = (*groups[name][:i], joined, *groups[name][i + 2 :])
        batch, lines, depth = groups["batch"], groups["lines"], groups["depth"]
        return replace(self, batch=batch, lines=lines, depth=depth, limits=tuple(limits))


def product(axes: Sequence[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)


def _part_of(axes: tuple[Axis, ...], count: int, least: int = 1) -> tuple[Axis, ...]:
    """Loops over one of `count` parts, of `least` steps at least."""
    if not axes:
        return axes
    first, *inner = axes
    least = ceil_div(least, product(inner))
    part = ceil_div(first.extent, count)
    return (replace(first, extent=max(part, least) if size_hint(part) < least else part), *inner)


def _without_ones(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if axis.extent != 1)


def _scale(axes: tuple[Axis, ...], j: int, by: int) -> tuple[Axis, ...]:
    def shifts(axis: Axis) -> tuple[int, ...]:
        return tuple(m * by if i == j else m for i, m in enumerate(axis.shifts))

    return tuple(replace(axis, shifts=shifts(axis)) for axis in axes)


def _joins(outer: Axis, inner: Axis) -> list[int] | None:
    """Whether two loops are one to memory; names the limits that have to be counted finer.

    A coordinate that only the outer loop moves, by one, is counted in steps of the inner loop:
    `0 <= x < n` is `0 <= x * e + i < n * e` for `i` in `range(e)`.
    """
    if not surely_equal(outer.stride, inner.stride * inner.extent):
        return None
    scaled = []
    for j, (far, near) in enumerate(zip(outer.shifts, inner.shifts)):
        if near == 0 and far == 1:
            scaled.append(j)
        elif not surely_equal(far, near * inner.extent):
            return None
    return scaled


@dataclass(frozen=True)
class Sink:
    """Where the result goes: the position of element (batch, row, column) in a variable.

    Args:
      owner: the variable or workspace.
      dtype: of its elements.
      offset: position of the first element.
      batch: one axis for each batch loop of the operands.
      rows: the loops over rows; may be split differently from those of the operand.
      columns: likewise.
    """

    owner: Any
    dtype: str
    offset: int
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    def at_hand(self) -> Sink:
        """The same for the sizes at hand."""
        return cast("Sink", _axes_at_hand(self, "batch", "rows", "columns"))

    def merged(self) -> Sink:
        rows, columns = (_merge_plain(_without_ones(x)) for x in (self.rows, self.columns))
        return replace(self, batch=_without_ones(self.batch), rows=rows, columns=columns)


def _merge_plain(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    out: list[Axis] = []
    for axis in axes:
        if out and surely_equal(out[-1].stride, axis.stride * axis.extent):
            out[-1] = Axis(out[-1].extent * axis.extent, axis.stride)
        else:
            out.append(axis)
    return tuple(out)


@dataclass(frozen=True)
class Groups:
    """How rows or depth are cut into groups, which is known as the program runs.

    Args:
      owner: the variable with where groups begin, and the last one ends, in the order of elements.
      count: how many groups.
      cut: what is cut.
      strides: elements of `owner` from one step of each batch loop but that of groups to the next.
      scale: rows or steps in depth of what is counted in `owner`.
      outer: how often the cut depth is passed through, each time with bounds of its own ...
      step: ... so many elements of `owner` further on.
    """

    owner: Any
    count: int
    cut: Literal["rows", "depth"]
    strides: tuple[int, ...]
    scale: int = 1
    outer: int = 1
    step: int = 0


@dataclass(frozen=True)
class Contraction:
    """`out = a @ b` over the loops of the three.

    Args:
      accumulate: dtype of the sums.
      is_complex: operands and result hold pairs; their strides and offsets still count pairs.
      formats: that may stand for float32 (`formats.py`).
      groups: of the rows, which meet entries of `b`, or of the depth, which give entries of `out`.
        The innermost batch loop counts them.
    """

    a: Source
    b: Source
    out: Sink
    accumulate: str
    is_complex: bool = False
    formats: tuple[str, ...] = ()
    groups: Groups | None = None

    @cached_property
    def rows(self) -> int:
        return self.a.line_count

    @cached_property
    def columns(self) -> int:
        return self.b.line_count

    @cached_property
    def depth(self) -> int:
        return self.a.depth_count

    @cached_property
    def batches(self) -> int:
        return product(self.out.batch)

    @cached_property
    def at_hand(self) -> Contraction:
        """The same for the sizes at hand: for estimates, and for choices that are right for all."""
        if not any(isinstance(x, Dim) for x in self._sizes()):
            return self
        a, b, out = self.a.at_hand(), self.b.at_hand(), self.out.at_hand()
        return replace(self, a=a, b=b, out=out)

    @property
    def cuts_rows(self) -> bool:
        """Whether rows are cut into groups."""
        return self.groups is not None and self.groups.cut == "rows"

    @property
    def cuts_depth(self) -> bool:
        """Whether the depth is."""
        return self.groups is not None and self.groups.cut == "depth"

    @cached_property
    def typical(self) -> Contraction:
        """The same if groups were of equal sizes: for estimates."""
        if (groups := self.groups) is None:
            return self
        a, b = self.a, self.b
        if groups.cut == "rows":
            least = min(self.at_hand.rows, FEW_ROWS_OF_GROUP)
            a = replace(a, lines=_part_of(a.lines, groups.count, least))
        else:
            a, b = (replace(x, depth=_part_of(x.depth, groups.count)) for x in (a, b))
        return replace(self, a=a, b=b, groups=None)

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What is computed once of this product, by keys of those who compute it."""
        return {}

    def _sizes(self) -> Iterator[int]:
        """All numbers that depend on shapes."""
        a, b, out = self.a, self.b, self.out
        groups = (a.batch, a.lines, a.depth, b.batch, b.lines, b.depth, out.batch, out.rows)
        for axis in itertools.chain(*groups, out.columns):
            yield from (axis.extent, axis.stride, *axis.shifts)
        for limit in (*a.limits, *b.limits):
            yield from (limit.start, limit.extent)
        yield from (a.offset, b.offset, out.offset)

    def __str__(self) -> str:
        size = f"{self.rows}×{self.columns} over {self.depth}"
        many = f"{self.batches} of " if self.batches > 1 else ""
        if (groups := self.groups) is not None:
            count = self.batches // groups.count
            many = f"{count} of " if count > 1 else ""
            size += f" in {groups.count} groups of {groups.cut}"
        return f"{many}{size} in {self.accumulate}"

    def merged(self) -> Contraction:
        """The same with as few loops as possible; batch loops keep to one order in all three."""
        keep = [i for i, axis in enumerate(self.out.batch) if axis.extent != 1]
        groups = [tuple(x.batch[i] for i in keep) for x in (self.a, self.b, self.out)]
        i = 0
        while i + 1 < len(groups[0]):
            if all(_joins(g[i], g[i + 1]) == [] for g in groups):
                groups = [
                    (*g[:i], replace(g[i + 1], extent=g[i].extent * g[i + 1].extent), *g[i + 2 :])
                    for g in groups
                ]
            else:
                i += 1
        a, b = (replace(x, batch=g).merged() for x, g in zip((self.a, self.b), groups))
        return replace(self, a=a, b=b, out=replace(self.out, batch=groups[2]).merged())

    def swapped(self) -> Contraction:
        """The transposed product."""
        out = replace(self.out, rows=self.out.columns, columns=self.out.rows)
        return replace(self, a=self.b, b=self.a, out=out)

    def as_real(self) -> Contraction:
        """A complex product as a real one of twice the depth and twice the columns.

        Memory holds real and imaginary parts side by side: rows of `a` read that way have twice
        the depth, rows of the result twice the columns. What `b` then has to be is left to its
        packing; here it only gets the right extents.
        """
        pair = Axis(2, 1)

        def double(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(replace(axis, stride=axis.stride * 2) for axis in axes)

        def parts(source: Source, lines: tuple[Axis, ...], depth: tuple[Axis, ...]) -> Source:
            still = (0,) * len(source.limits)
            return replace(
                source,
                offset=source.offset * 2,
                batch=double(source.batch),
                lines=double(source.lines) + tuple(replace(x, shifts=still) for x in lines),
                depth=double(source.depth) + tuple(replace(x, shifts=still) for x in depth),
            )

        out = replace(
            self.out,
            offset=self.out.offset * 2,
            batch=double(self.out.batch),
            rows=double(self.out.rows),
            columns=(*double(self.out.columns), pair),
        )
        a, b = parts(self.a, (), (pair,)), parts(self.b, (pair,), (pair,))
        return replace(self, a=a, b=b, out=out)


@dataclass(frozen=True)
class WindowAxis:
    """An axis of the left operand along which a window moves.

    Args:
      extent: of the operand.
      stride: elements from one coordinate to the next.
      start: coordinate of the first position's first tap; zero is read outside the operand.
      positions: how many there are.
      shift: coordinates from one position to the next.
      taps: how many a position sees.
      tap_shift: coordinates from one tap to the next.
    """

    extent: int
    stride: int
    start: int
    positions: int
    shift: int
    taps: int
    tap_shift: int

    def at_hand(self) -> WindowAxis:
        """The same for the sizes at hand."""
        return WindowAxis(*(size_hint(getattr(self, f.name)) for f in fields(self)))

    @property
    def leaves(self) -> bool:
        """Whether some tap of some position lies outside the operand.

        What asks of each tap whether it does is right of other sizes, where none does.
        """
        if not self.taps:
            return False
        with choosing():
            outside = self._begins_outside or self._ends_outside
        return outside or self._begins_outside or self._ends_outside

    @property
    def _begins_outside(self) -> bool:
        return self.start < 0

    @property
    def _ends_outside(self) -> bool:
        return self.start + self.reach(self.positions) > self.extent

    def turned(self) -> WindowAxis:
        """With positions for taps, and taps for positions."""
        return replace(
            self, positions=self.taps, shift=self.tap_shift, taps=self.positions,
            tap_shift=self.shift,
        )  # fmt: skip

    def reach(self, positions: int) -> int:
        """Coordinates from the first tap of a position to the last one of the last of several."""
        return (positions - 1) * self.shift + (self.taps - 1) * self.tap_shift + 1

    def taps_inside(self, k: Builder, position: Value) -> tuple[Value, Value]:
        """The range of taps that a position sees inside the operand."""
        at = position * self.shift + self.start
        step, zero = self.tap_shift, k.const("index", 0)
        low = (k.max(-at, zero) + (step - 1)) // step
        outside = k.max(-at + (self.extent - 1 + step), zero)
        return low, k.min(outside // step, self.taps)


class ProductProblem(NamedTuple):
    """A contraction that the solvers of a family compute.

    Args:
      loops: as it is stated.
      merged: with as few loops as possible.
      windows: of a convolution whose rows are images and positions and whose depth are taps and
        features, in this order and the features side by side: images, as windows of one tap, and
        the spatial axes, outermost first.
      gradient: of the gradient of a convolution's kernel, whose rows are taps and features and
        whose depth are images and positions, the windows of that convolution, likewise.
    """

    loops: Contraction
    merged: Contraction
    windows: tuple[WindowAxis, ...] = ()
    gradient: tuple[WindowAxis, ...] = ()

    @staticmethod
    def of(
        problem: Contraction,
        windows: tuple[WindowAxis, ...] = (),
        gradient: tuple[WindowAxis, ...] = (),
    ) -> ProductProblem:
        """A contraction of real numbers, or a complex one as such."""
        if problem.is_complex:
            problem, windows, gradient = problem.as_real(), (), ()
        return ProductProblem(problem, problem.merged(), windows, gradient)


def accumulate_dtype(out: Any, *operands: Any) -> str:
    """The dtype in which products are summed: at least float32, and 32 or 64-bit integers."""
    name = part_dtype(short_dtype(out))
    ins = [compute_dtype(part_dtype(short_dtype(d))) for d in operands]
    name = compute_dtype(name)
    if name in FLOATS or any(d in FLOATS for d in ins):
        return "f64" if "f64" in (name, *ins) else "f32"
    bits = int("".join(ch for ch in name if ch.isdigit()))
    return "i64" if bits > 32 else "i32"


@dataclass(frozen=True)
class TileShape:
    """The part of the result that a micro-kernel keeps in registers.

    Args:
      rows: number of rows.
      vectors: vector registers along the columns.
      lanes: elements in a register.
      even: whether the last tiles of a block have a row less, as many as make all rows exist.
    """

    rows: int
    vectors: int
    lanes: int
    even: bool = False

    def __str__(self) -> str:
        low = f" and {self.lower}" if self.even else ""
        return f"{self.rows}×{self.columns}{low}"

    @property
    def lower(self) -> TileShape:
        """The tile with a row less."""
        return _heights(self)[1]

    def covering(self, rows: int) -> list[tuple[int, TileShape]]:
        """Tiles that cover so many rows, from the first on: how many of which shape."""
        tiles = ceil_div(rows, self.rows)
        if not self.even:
            return [(tiles, self)]
        short = min(tiles * self.rows - rows, tiles)
        whole, lower = _heights(self)
        return [(tiles - short, whole), (short, lower)]

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def cycles(self, costs: CpuCosts) -> float:
        """Cycles a step in depth takes: two multiply-adds, loads, the latency of a sum.

        Wide tiles read more of `b` than the first-level cache holds, and that costs too.
        """
        loads = (self.rows + self.vectors) * costs.load
        busy = max(self.rows * self.vectors / 2, loads, costs.latency)
        return busy + costs.step + max(0, self.vectors - 2) * costs.wide


@lru_cache(256)  # there are few, each of which is asked for very often
def _heights(shape: TileShape) -> tuple[TileShape, TileShape]:
    """A tile for all rows but the last ones, and one with a row less."""
    return replace(shape, even=False), replace(shape, rows=shape.rows - 1, even=False)


def lane_count(target: CpuTarget, dtype: str) -> int:
    return max(target.vector_bits // int(dtype[1:]), 2)


def private_cache(target: CpuTarget) -> int:
    """Bytes of second-level cache to plan for; blocks in it are on the stack of a thread."""
    return min(target.l2_bytes, 2 << 20)


def max_rows(target: CpuTarget, vectors: int) -> int:
    """Rows of a tile whose accumulators, operands and one spare fit the registers."""
    registers = 32 if target.vector_bits >= 512 else 16
    return (
        {1: 24, 2: 14, 3: 9, 4: 6}[vectors]
        if registers == 32
        else {1: 12, 2: 6, 3: 4, 4: 2}[vectors]
    )


def choose_tile(target: CpuTarget, rows: int, columns: int, dtype: str) -> TileShape:
    """The tile that covers a matrix in the fewest cycles."""
    best, least = None, math.inf
    for tile in tile_candidates(target, rows, columns, dtype):
        cost = tile_cost(tile, rows, columns, target)
        if cost < least - 1e-9:
            best, least = tile, cost
    assert best is not None
    return best


def tile_candidates(target: CpuTarget, rows: int, columns: int, dtype: str) -> Iterator[TileShape]:
    """Tiles of at most four vectors that the registers hold."""
    lanes = lane_count(target, dtype)
    for vectors in range(1, min(4, ceil_div(columns, lanes)) + 1):
        full = max_rows(target, vectors)
        # Large matrices share machine code: little is lost at their edge.
        least = full - 2 if rows >= MANY_TILES * full else 1
        for count in range(full, max(least, 1) - 1, -1):
            yield TileShape(count, vectors, lanes)


def best_tiles(problem: Contraction, target: CpuTarget, rows: int | None = None) -> list[TileShape]:
    """The tiles worth a look, by the cycles in which they cover a product, or some rows of it."""
    p = problem.at_hand
    return list(_best_tiles(target, p.rows if rows is None else rows, p.columns, p.accumulate))


@lru_cache(256)  # solvers ask for those of the same product one after the other
def _best_tiles(target: CpuTarget, rows: int, columns: int, dtype: str) -> tuple[TileShape, ...]:
    shapes = tile_candidates(target, rows, columns, dtype)
    return tuple(sorted(shapes, key=lambda shape: tile_cost(shape, rows, columns, target)))


def best_even_tiles(problem: Contraction, target: CpuTarget, rows: int) -> list[TileShape]:
    """Likewise, for kernels that may have tiles of two heights, each of which cover some rows.

    Those are twice the machine code: there has to be something in them.
    """
    p = problem.at_hand

    def cost(shape: TileShape) -> float:
        return tile_cost(shape, rows, p.columns, target)

    shapes = best_tiles(problem, target, rows)
    if p.batches * p.rows * p.columns * p.depth < EVEN_WORK:
        return shapes
    pairs = [replace(x, even=True) for x in shapes if 1 < x.rows < rows and rows % x.rows]
    best = min(pairs, key=cost, default=shapes[0])
    few = rows < MANY_TILES * best.rows
    return [best, *shapes] if few and cost(best) < EVEN_GAIN * cost(shapes[0]) else shapes


def tile_cost(tile: TileShape, rows: int, columns: int, target: CpuTarget) -> float:
    """Cycles of a step in depth of a whole matrix."""
    cycles = sum(count * shape.cycles(target.costs) for count, shape in tile.covering(rows))
    return ceil_div(columns, tile.columns) * cycles
