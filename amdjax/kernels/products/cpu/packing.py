"""Copies operands of a contraction into panels that micro-kernels read from end to end.

A panel holds a few lines of an operand (rows of `a`, columns of `b`). Laid out by depth, the lines'
elements of one depth stand side by side; laid out by line, each line is contiguous. What lies
outside an operand's limits is stored as zero; lines past the last one repeat it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from amdjax import tile
from amdjax.core.dims import Dim, divisor, size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.products.contraction import Contraction, Source, product
from amdjax.kernels.products.cpu.reading import LanesPlace, Part, Reader, numbers_of, steps
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.search import remembered
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize
from amdjax.tile.types import CACHE_LINE

Value = tile.Value

UNROLLED = 48  # vectors or taps that are copied without loops
PREFETCH_DISTANCE = 48  # vectors of lines that are copied
PREFETCH_STEPS = 64  # in depth, where lines lie side by side


def copy_lines(
    part: Part,
    count: Value,
    target: tile.Buffer,
    stride: int,
    lanes: int,
    whole: bool = False,
    at: Value | int = 0,
) -> None:
    """`count` lines of a part by line, from `at` in `target` on, `stride` elements apart.

    Up to `lanes` elements after a line's last one are overwritten. `whole` says that the part is
    all of the depth.
    """
    reader, k = part.reader, part.reader.k

    def load(
        at: Value, e: Value | int, line: list[Value], shifts: list[Value], mask: Value | None
    ) -> Value:
        place = k.iota(lanes) + k.index(e) if any(reader.inner().shifts) else k.index(e)
        within = reader.inside(reader.moved(line, shifts, place), (lanes,))
        if mask is None or within is None:
            mask = within if mask is None else mask
        else:
            mask = mask & within
        return reader.source.packed(
            k, k.load(reader.buffer, at, (lanes,), (1,), mask), target.dtype
        )

    def one(i: Value) -> None:
        line_base, line = part.line(i)
        later, _ = part.line(i + ceil_div(PREFETCH_DISTANCE * lanes, size_hint(stride)))
        row = i * stride + at

        def run(
            offset: Value, shifts: list[Value], low: Value, high: Value, position: Value
        ) -> None:
            def strip(e: Value, mask: Value | None = None) -> None:
                k.prefetch(reader.buffer, later + offset + e)
                x = load(line_base + offset + e, e, line, shifts, mask)
                k.store(target, row + position + (e - low), x, (1,))

            def rest() -> None:
                strip(end, k.iota(lanes, "i32") < k.convert(high - end, "i32"))

            end = high - (high - low) % lanes
            k.for_(low, end, lanes, strip)
            k.if_(end < high, rest)

        def straight() -> None:
            *outer, inner = reader.source.depth
            position = 0
            for offset, shifts in steps(outer, len(part.coords)):
                moved = [k.const("index", m) for m in shifts]
                for e in range(0, inner.extent, lanes):
                    left = inner.extent - e
                    mask = k.iota(lanes, "i32") < k.const("i32", left) if left < lanes else None
                    x = load(line_base + (offset + e), e, line, moved, mask)
                    k.store(target, row + (position + e), x, (1,))
                position += inner.extent

        if whole and _vectors(reader, lanes) <= UNROLLED:
            straight()
        else:
            part.runs(run)

    k.for_(0, count, 1, one)


def depth_granularity(source: Source) -> int:
    """What blocks of depth should be multiples of: the steps of the loops that are unrolled."""
    inner = product(source.depth[1:])
    fixed = len(source.depth) > 1 and not isinstance(inner, Dim)
    return inner if fixed and inner <= UNROLLED else 1


def _vectors(reader: Reader, lanes: int) -> int:
    """Vectors that cover the whole depth of a line run by run; many if sizes are not known."""
    if reader.program.runtime or not reader.source.depth:
        return UNROLLED + 1
    *outer, inner = reader.source.depth
    count = product(outer) * ceil_div(inner.extent, lanes)
    return UNROLLED + 1 if isinstance(count, Dim) else count


class PanelVector(NamedTuple):
    """Lanes over lines of a panel.

    Args:
      offset: where they go in a row of panels.
      left: lines of the panel, from the first of them on.
      place: where they lie.
    """

    offset: Value | int
    left: int
    place: LanesPlace


def panel_vectors(
    part: Part, lines: int, lanes: int, panels: Sequence[Value | int]
) -> list[PanelVector]:
    """The lanes of neighboring panels that are packed at once, by where each begins."""
    return [
        PanelVector(begin + v, lines - v, part.lanes(n * lines + v, lanes, lines))
        for n, begin in enumerate(panels)
        for v in range(0, lines, lanes)
    ]


def prefetch_vectors(
    reader: Reader, vectors: Sequence[PanelVector], lanes: int, offset: Value
) -> None:
    """Ask for what contiguous vectors of `lanes` will read at an offset.

    Steps in depth are mostly too far apart for a machine to see which come next.
    """
    each = max(1, CACHE_LINE // (lanes * itemsize(reader.source.dtype)))
    for vector in vectors[::each]:
        for origin, _ in vector.place.segments:
            if not origin.shape:
                reader.k.prefetch(reader.buffer, origin + offset)


def pack_lanes(
    part: Part,
    lines: int,
    target: tile.Buffer,
    at: Value,
    lanes: int,
    granularity: int = 1,
    panels: Sequence[Value | int] = (0,),
) -> None:
    """Panels of `lines` lines by depth, which begin at `panels` behind `at` in `target`.

    The part's first line is a multiple of `lines`. Up to `lanes` elements after a panel are
    overwritten. `granularity` divides the depth where the part starts and stops.
    """
    reader, k = part.reader, part.reader.k
    vectors = panel_vectors(part, lines, lanes, panels)

    def load(vector: PanelVector, offset: Value, mask: Value | None) -> Value:
        if vector.left < lanes:
            own = k.iota(lanes, "i32") < k.const("i32", vector.left)
            mask = own if mask is None else mask & own
        x: Value | None = None
        for origin, exists in vector.place.segments:
            here = exists if mask is None else mask if exists is None else mask & exists
            if origin.shape:
                strip = k.load_at(reader.buffer, origin + offset, here)
            else:
                strip = k.load(reader.buffer, origin + offset, (lanes,), (1,), here)
            if x is None or exists is None:
                x = strip
            else:
                x = k.select(exists, strip, x)
        assert x is not None
        return reader.source.packed(k, x, target.dtype)

    def run(offset: Value, shifts: list[Value], low: Value, high: Value, position: Value) -> None:
        def step(i: Value) -> None:
            there = offset + reader.inner_step(i)
            later = reader.inner_step(i + PREFETCH_STEPS)
            prefetch_vectors(reader, vectors, lanes, offset + later)
            row = at + (position + (i - low)) * lines
            for vector in vectors:
                mask = reader.inside(reader.moved(vector.place.coords, shifts, i), (lanes,))
                k.store(target, row + vector.offset, load(vector, there, mask), (1,))

        k.for_(low, high, 1, step)

    taps = reader.taps(UNROLLED)
    if taps is None or granularity % len(taps):
        part.runs(run)
        return
    # What each tap sees of the limits does not depend on the outermost loop of the depth.
    fixed = not any(reader.source.depth[0].shifts)
    masks: dict[tuple[int, int], Value | None] = {}

    def mask_of(t: int, place: LanesPlace, outer: Sequence[Value]) -> Value | None:
        moved = [
            (c + k.convert(o, c.dtype)) + k.const(c.dtype, m)
            for c, o, m in zip(place.coords, outer, taps[t][1])
        ]
        return reader.inside(moved, (lanes,))

    still = [k.const("index", 0)] * len(part.coords)
    if fixed:
        masks = {
            (t, n): mask_of(t, vector.place, still)
            for t in range(len(taps))
            for n, vector in enumerate(vectors)
        }

    def block(o: Value) -> None:
        offset, outer = reader.place("depth", [o], k.const("index", 0), still)
        row = at + (o * len(taps) - part.start) * lines
        for t, (tap, _) in enumerate(taps):
            for n, vector in enumerate(vectors):
                mask = masks[t, n] if fixed else mask_of(t, vector.place, outer)
                there = row + t * lines + vector.offset
                k.store(target, there, load(vector, offset + tap, mask), (1,))

    count = k.const("index", len(taps))
    k.for_(part.start // count, part.stop // count, 1, block)


GROUP = 4  # panels at most that are packed at once, so that memory is read in longer runs
CHUNK = 64  # depth that one program of a transposing pack handles at a time


class PanelPacker:
    """Packs `b` by depth, either all of it once or the part a program needs.

    Panel `p` of batch entry `q` begins at `(q * panels + p) * depth * columns`; the depth is
    rounded up so that square tiles can be transposed without looking at the end.
    """

    def __init__(
        self, ctx: ShapedContext, problem: Contraction, columns: int, lanes: int, target: CpuTarget
    ):
        self.ctx, self.columns, self.lanes, self.target = ctx, columns, lanes, target
        self.is_complex, self.dtype = problem.is_complex, problem.accumulate
        self.steps = problem.b.depth_count
        self.depth = round_up(self.steps, lanes)
        self.panels = ceil_div(problem.b.line_count, columns)
        #: which batch loops `b` depends on
        self.batch = [i for i, axis in enumerate(problem.b.batch) if axis.stride]
        self.granularity = 1 if problem.cuts_depth else depth_granularity(problem.b)
        self.source = replace(problem.b, batch=tuple(problem.b.batch[i] for i in self.batch))
        self.batches = product(self.source.batch)
        self.result = Temp(
            self.dtype, max(self.batches * self.panels * self.depth, 1) * columns + columns
        )

    def call(self) -> Call:
        """The launch that packs everything."""
        source = self.source
        # Sizes are parameters, so that products share this code, unless they are unrolled.
        loops = len(source.depth) <= 1 or self.granularity == 1
        plain = not source.limits and len(source.lines) <= 1 and loops
        side_by_side = plain and source.lines_contiguous and not self.is_complex
        group = divisor(self.panels, GROUP) if side_by_side else 1
        length = self._chunk(group)
        numbers = {
            "depth": self.steps, "padded": self.depth, "groups": self.panels // group,
            "chunks": ceil_div(self.steps, length), "length": length,
        }  # fmt: skip
        elements = self.batches * self.panels * self.depth * self.columns
        grid = self.batches * self.panels // group * numbers["chunks"]
        write = lambda: self._written(plain, group, numbers).launch(grid, 0.3 * elements)
        told = numbers | numbers_of(source, "b") | {"b.offset": source.offset}
        if not plain or source.cut or any(isinstance(n, Dim) for n in told.values()):
            return write()
        call = remembered(self._alike(group), write)
        given = {"in": source.owner, "out": self.result}
        args = [told[p.name] if p.role == "size" else given[p.role] for p in call.kernel.params]
        return Call(call.kernel, args, grid, 0.3 * elements)

    def _alike(self, group: int) -> Hashable:
        """What the code depends on that is told all sizes."""
        source = self.source
        strides = tuple(
            tuple(axis.stride if axis.stride in (0, 1) else None for axis in axes)
            for axes in (source.batch, source.lines, source.depth)
        )
        owner = source.owner.dtype if isinstance(source.owner, Temp) else source.owner.aval.dtype
        eqn = self.ctx.eqn
        line = eqn.primitive.name, eqn.source.file, eqn.source.line  # which people are told
        return (
            "pack", line, owner, source.dtype, source.flip, strides, self.dtype, self.is_complex,
            self.columns, self.lanes, self.granularity, group,
        )  # fmt: skip

    def _written(self, plain: bool, group: int, numbers: Mapping[str, int]) -> Program:
        program = Program(self.ctx, "pack", runtime=plain)
        k, source = program.k, self.source
        reader = Reader(program, source, "b")
        target = program.buffer(self.result, self.dtype, "out")
        depth, padded, groups, count, size = (program.num(n, x) for n, x in numbers.items())
        pid = k.program_id()
        start = (pid % count) * size
        stop = k.min(start + size, depth)
        pid = pid // count
        first, entry = pid % groups * group, pid // groups
        batch = program.split(entry, "b.batch", source.batch)
        part = Part.of(reader, batch, first * self.columns, start, stop)
        panels = [n * padded * self.columns for n in range(1, group)]
        self.pack(part, target, (pid * group * padded + start) * self.columns, (0, *panels))
        return program

    def _chunk(self, group: int) -> int:
        """Depth that one program packs of its panels."""
        depth = size_hint(self.steps)
        programs = size_hint(self.batches * self.panels // group)
        wanted = max(1, ceil_div(4 * self.target.threads, programs))
        granularity = math.lcm(self.lanes, self.granularity)
        return round_up(max(depth // wanted, 4 * self.lanes), granularity)

    def index(self, batch: Sequence[Value], panel: Value) -> Value:
        """The place of a panel among all panels, for the place in each batch loop."""
        entry: Value | None = None
        for i, axis in zip(self.batch, self.source.batch, strict=True):
            entry = batch[i] if entry is None else entry * axis.extent + batch[i]
        return panel if entry is None else entry * self.panels + panel

    def place(self, batch: Sequence[Value], panel: Value) -> Value:
        """Where a panel begins that all of it was packed to, for the place in each batch loop."""
        return self.index(batch, panel) * (self.depth * self.columns)

    def pack(
        self, part: Part, target: tile.Buffer, at: Value, panels: Sequence[Value | int] = (0,)
    ) -> None:
        """The panel of a part to `at` in `target`, or several, by where they begin behind it."""
        if self.is_complex:
            self._complex(part, target, at)
        elif part.reader.depth_contiguous and not part.reader.lines_contiguous:
            self._transposing(part, target, at)
        else:
            pack_lanes(part, self.columns, target, at, self.lanes, self.granularity, panels)

    def _transposing(self, part: Part, target: tile.Buffer, at: Value) -> None:
        """Lines are contiguous: copy strips of them, then turn squares in registers."""
        k, lanes, columns = part.reader.k, self.lanes, self.columns
        stride = CHUNK + lanes
        strip = k.scratch("strip", self.dtype, columns * stride + lanes)

        def chunk(low: Value) -> None:
            high = k.min(low + CHUNK, part.stop)
            lines = k.const("index", columns)
            copy_lines(part.within(low, high), lines, strip, stride, lanes)

            def square(e: Value) -> None:
                row = at + (low - part.start + e) * columns
                for v in range(0, columns, lanes):
                    x = k.load(strip, e + v * stride, (lanes, lanes), (1, stride))
                    k.store(target, row + v, x, (columns, 1))

            k.for_(0, high - low, lanes, square)

        k.for_(part.start, part.stop, CHUNK, chunk)

    def _complex(self, part: Part, target: tile.Buffer, at: Value) -> None:
        """Columns and depth alternate between real and imaginary parts.

        Against the real part of `a` stands (re, im), against the imaginary part (-im, re).
        """
        reader, k, lanes = part.reader, part.reader.k, self.lanes
        one = k.const("index", 1)
        for v in range(0, self.columns, lanes):
            lines = k.iota(lanes) + (part.first + v)
            odd = lines & one
            place = part.lanes(v, lanes, 0)
            (origin, _), line_coords = place.segments[0], place.coords
            minus = k.eq(odd, 0)

            def run(
                offset: Value, shifts: list[Value], low: Value, high: Value, position: Value
            ) -> None:
                def step(i: Value) -> None:
                    phase = i & one
                    there = origin + (offset + reader.inner_step(i) - phase)
                    turned = odd ^ k.broadcast(phase, (lanes,))
                    there = (there - odd) + turned
                    mask = reader.inside(reader.moved(line_coords, shifts, i), (lanes,))
                    x = k.load_at(reader.buffer, there, mask)
                    flip = minus & k.broadcast(k.ne(phase, 0), (lanes,))
                    x = k.select(flip, -x, x)
                    k.store(target, at + (position + (i - low)) * self.columns + v, x, (1,))

                k.for_(low, high, 1, step)

            part.runs(run)
