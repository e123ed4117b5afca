"""Copies operands of a contraction into panels that micro-kernels read from end to end.

A panel holds a few lines of an operand (rows of `a`, columns of `b`). Laid out by depth, the lines'
elements of one depth stand side by side; laid out by line, each line is contiguous. What lies
outside an operand's limits is stored as zero; lines past the last one repeat it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amdjax.codegen import tile
from amdjax.jit.shaped import Call, ShapedContext, Temp
from amdjax.kernels.contraction import Axis, Contraction, Source, product
from amdjax.targets.cpu import CpuTarget

Value = tile.Value


class Program:
    """A kernel being written.

    Args:
      runtime: sizes are parameters of the launch, so that other sizes share the machine code.
    """

    def __init__(self, ctx: ShapedContext, name: str, *, runtime: bool = False):
        self.kernel = ctx.kernel(name)
        self.k = self.kernel.k
        self.ctx, self.runtime = ctx, runtime
        self._numbers: dict[str, Value] = {}

    def num(self, name: str, x: int) -> Value:
        """A size: a constant, or the parameter of that name."""
        return self.param(name, x) if self.runtime else self.k.const("index", x)

    def param(self, name: str, x: int) -> Value:
        """The parameter of that name, which must first be named outside all blocks."""
        if name not in self._numbers:
            size = self.k.param(name, "index", "size")
            self.kernel.args.append(int(x))
            self._numbers[name] = self.k.size(size)
        return self._numbers[name]

    def declare(self, numbers: dict[str, int]) -> None:
        """Name sizes before any block is entered, where all code sees them."""
        for name, x in numbers.items():
            self.num(name, x)

    def buffer(self, owner: Any, dtype: str, role: str = "in") -> tile.Buffer:
        """The parameter of `owner`, seen as memory of `dtype`."""
        get = {"in": self.kernel.input, "out": self.kernel.output, "inout": self.kernel.inout}[role]
        found = get(owner)
        return tile.Buffer(found.name, dtype, found.role, found.size)

    def launch(self, grid: int, nanoseconds: float) -> Call:
        return self.kernel.launch(grid, nanoseconds)

    def split(self, index: Value, name: str, axes: Sequence[Axis]) -> list[Value]:
        """The place along each of several loops that `index` counts through."""
        k = self.k
        digits: list[Value] = []
        for i in range(len(axes) - 1, 0, -1):
            n = self._like(self.num(f"{name}{i}.extent", axes[i].extent), index)
            digits.insert(0, k.op("rem", index, n))
            index = k.op("div", index, n)
        return [index, *digits] if axes else []

    def _like(self, n: Value, index: Value) -> Value:
        """A size in the type of a tile of indices; tiles divide in 32 bits."""
        return self.k.convert(n, "u32") if index.dtype == "u32" else n

    def less(self, a: Value, b: Value) -> Value:
        return self.k.op("lt", a, b)


@dataclass
class LanesPlace:
    """Where lines spread over lanes lie.

    Args:
      pieces: where to load from, a scalar for contiguous lanes or offsets in a tile, and the lanes
        that lie there; None for all.
      coords: the limited coordinates, in a scalar where all lanes have the same.
    """

    pieces: list[tuple[Value, Value | None]]
    coords: list[Value]


def _steps(axes: Sequence[Axis], limits: int) -> list[tuple[int, tuple[int, ...]]]:
    """Offset and moves of every step of nested loops."""
    out = []
    for digits in itertools.product(*(range(axis.extent) for axis in axes)):
        offset = sum(d * axis.stride for d, axis in zip(digits, axes))
        moves = tuple(
            sum(d * axis.moves[j] for d, axis in zip(digits, axes)) for j in range(limits)
        )
        out.append((offset, moves))
    return out


class Reader:
    """Writes the address arithmetic of a source.

    Args:
      program: the kernel.
      source: a merged source.
      name: prefix of its sizes.
    """

    def __init__(self, program: Program, source: Source, name: str):
        self.program, self.source, self.name = program, source, name
        self.k = program.k
        self.buffer = program.buffer(source.owner, source.dtype)
        program.declare(self._numbers())
        # Where things begin is all that tells the phases of a convolution apart.
        self.origin = program.param(f"{name}.offset", source.offset)
        starts = (limit.start for limit in source.limits)
        self.starts = [program.param(f"{name}.start{j}", x) for j, x in enumerate(starts)]

    def packed(self, x: Value, dtype: str) -> Value:
        """An element as it stands in a panel."""
        x, flip = self.k.convert(x, dtype), self.source.flip
        return self.k.op("xor", x, self.k.const(dtype, flip, x.shape)) if flip else x

    def _numbers(self) -> dict[str, int]:
        s, name = self.source, self.name
        numbers = {f"{name}.lines": s.line_count}
        for group in ("batch", "lines", "depth"):
            for i, axis in enumerate(getattr(s, group)):
                numbers[f"{name}.{group}{i}.extent"] = axis.extent
                if axis.stride != 1:
                    numbers[f"{name}.{group}{i}.stride"] = axis.stride
        return numbers

    def _scaled(self, group: str, i: int, digit: Value) -> Value | None:
        stride = getattr(self.source, group)[i].stride
        if stride == 0:
            return None
        if stride == 1:
            return digit
        return self.k.op("mul", digit, self.program.num(f"{self.name}.{group}{i}.stride", stride))

    def place(
        self, group: str, digits: Sequence[Value], base: Value, coords: list[Value]
    ) -> tuple[Value, list[Value]]:
        """Offset and limited coordinates after moving along the loops of a group."""
        k, axes = self.k, getattr(self.source, group)
        for i, digit in enumerate(digits):
            step = self._scaled(group, i, digit)
            if step is not None:
                base = k.op("add", base, step)
            coords = [
                k.op("add", c, k.op("mul", digit, k.const("index", axes[i].moves[j])))
                if axes[i].moves and axes[i].moves[j]
                else c
                for j, c in enumerate(coords)
            ]
        return base, coords

    def start(self, batch: Sequence[Value]) -> tuple[Value, list[Value]]:
        """Offset and coordinates of the first line of a batch entry."""
        base, coords = self.origin, list(self.starts)
        return self.place("batch", batch, base, coords)

    def line(self, line: Value, base: Value, coords: list[Value]) -> tuple[Value, list[Value]]:
        """Offset and coordinates of a line; lines past the last repeat it."""
        last = self.program.num(f"{self.name}.lines", self.source.line_count) - 1
        digits = self.program.split(
            self.k.op("min", line, last), f"{self.name}.lines", self.source.lines
        )
        return self.place("lines", digits, base, coords)

    def lanes_contiguous(self, count: int) -> bool:
        """Whether tiles of `count` lines from multiples of `count` on lie side by side."""
        lines = self.source.lines
        if not lines or lines[-1].stride != 1 or any(lines[-1].moves):
            return False
        return len(lines) == 1 or (not self.program.runtime and lines[-1].extent % count == 0)

    def lanes(
        self, first: Value, count: int, base: Value, coords: list[Value], aligned: int
    ) -> LanesPlace:
        """Where `count` lines spread over lanes lie.

        `first` is a multiple of `aligned`; 0 for that asks for an offset in each lane.
        """
        k, program, axes = self.k, self.program, self.source.lines
        total = program.num(f"{self.name}.lines", self.source.line_count)
        remaining = k.convert(total - first, "i32")
        lane = k.iota(count, "i32")
        exists = k.op("lt", lane, remaining)
        if aligned and self.lanes_contiguous(aligned):
            digits = program.split(first, f"{self.name}.lines", axes)
            origin, coords = self.place("lines", digits, base, coords)
            return LanesPlace([(origin, exists)], coords)
        spread, lane_coords = self._spread(first, count, base, coords, total)
        if not aligned or not axes or axes[-1].stride != 1 or program.runtime:
            return LanesPlace([(k.broadcast(spread, (count,)), None)], lane_coords)
        if all(far.stride == near.stride * near.extent for far, near in itertools.pairwise(axes)):
            return LanesPlace([(base + first, exists)], lane_coords)
        if axes[-1].extent < count - 1:
            return LanesPlace([(k.broadcast(spread, (count,)), None)], lane_coords)
        # The lanes fill the end of one run of the innermost loop and the start of the next.
        digits = program.split(first, f"{self.name}.lines", axes)
        room = k.const("index", axes[-1].extent) - digits[-1]
        here, _ = self.place("lines", digits, base, [])
        following = program.split(k.op("min", first + room, total - 1), f"{self.name}.lines", axes)
        there, _ = self.place("lines", following, base, [])
        before = k.op("lt", lane, k.convert(room, "i32"))
        pieces: list[tuple[Value, Value | None]] = [
            (here, k.op("and", before, exists)),
            (there - room, k.op("and", k.op("not", before), exists)),
        ]
        return LanesPlace(pieces, lane_coords)

    def _spread(
        self, first: Value, count: int, base: Value, coords: list[Value], total: Value
    ) -> tuple[Value, list[Value]]:
        """Offsets and coordinates of lines in lanes; lines past the last repeat it."""
        k, program, axes = self.k, self.program, self.source.lines
        lines = k.op("min", k.op("add", k.iota(count), first), total - 1)
        if len(axes) > 1:
            digits = program.split(k.convert(lines, "u32"), f"{self.name}.lines", axes)
            digits = [k.convert(d, "index") for d in digits]
        else:
            digits = [lines] * len(axes)
        offsets, coords = self.place("lines", digits, base, coords)
        # Coordinates are small: half as many registers as offsets.
        return offsets, [k.convert(c, "i32") for c in coords]

    def inside(self, coords: Sequence[Value], shape: tuple[int, ...] = ()) -> Value | None:
        """Whether coordinates are within their limits, None where there are none."""
        k, out = self.k, None
        for c, limit in zip(coords, self.source.limits):
            # Negative numbers are large unsigned ones: one comparison for both ends.
            unsigned = "u32" if c.dtype == "i32" else "u64"
            test = k.op("lt", k.convert(c, unsigned), k.const(unsigned, limit.extent))
            out = test if out is None else k.op("and", out, test)
        return out if out is None or not shape else k.broadcast(out, shape)

    def runs(self, start: Value, stop: Value, body: Callable[..., None]) -> None:
        """Walk depth `start..stop` in runs of the innermost loop.

        `body(offset, moves, low, high, position)` gets the offset and the coordinates' moves of a
        run's beginning, the part `low..high` of it to visit, and the depth of `low` past `start`.
        """
        k, source = self.k, self.source
        zero = k.const("index", 0)
        still = [zero] * len(source.limits)
        if len(source.depth) <= 1:
            body(zero, still, start, stop, zero)
            return
        *outer, inner = source.depth
        extent = self.program.num(f"{self.name}.depth{len(outer)}.extent", inner.extent)

        def run(r: Value) -> None:
            digits = self.program.split(r, f"{self.name}.depth", outer)
            base, moves = self.place("depth", digits, zero, still)
            first = r * extent
            low = k.op("max", start - first, zero)
            high = k.op("min", stop - first, extent)
            body(base, moves, low, high, k.op("max", first - start, zero))

        k.for_(k.op("div", start, extent), k.op("div", stop + (extent - 1), extent), 1, run)

    def inner(self) -> Axis:
        return (
            self.source.depth[-1]
            if self.source.depth
            else Axis(1, 1, (0,) * len(self.source.limits))
        )

    def inner_step(self, i: Value) -> Value:
        """Offset of step `i` of the innermost depth loop."""
        axis = self.inner()
        if axis.stride == 1 or not self.source.depth:
            return i
        return i * self.program.num(
            f"{self.name}.depth{len(self.source.depth) - 1}.stride", axis.stride
        )

    def moved(self, coords: Sequence[Value], moves: Sequence[Value], i: Value) -> list[Value]:
        """Coordinates at step `i` of a run."""
        k, out = self.k, []
        for j, (c, m) in enumerate(zip(coords, moves)):
            near = self.inner().moves[j]
            step = k.op("add", m, k.op("mul", i, k.const("index", near))) if near else m
            out.append(k.op("add", c, k.convert(step, c.dtype)))
        return out

    def taps(self, most: int) -> list[tuple[int, tuple[int, ...]]] | None:
        """Offset and moves of each step of all depth loops but the outermost; None if too many."""
        inner = self.source.depth[1:]
        if not inner or product(inner) > most or self.program.runtime:
            return None
        return _steps(inner, len(self.source.limits))

    @property
    def lines_contiguous(self) -> bool:
        return bool(self.source.lines) and self.source.lines[-1].stride == 1

    @property
    def depth_contiguous(self) -> bool:
        return bool(self.source.depth) and self.source.depth[-1].stride == 1


UNROLLED = 48  # vectors or taps that are copied without loops


def copy_lines(
    reader: Reader,
    first: Value,
    count: Value,
    base: Value,
    coords: list[Value],
    start: Value,
    stop: Value,
    target: tile.Buffer,
    stride: int,
    lanes: int,
    whole: bool = False,
) -> None:
    """Lines `first..first+count` by line into `target`, `stride` elements from one to the next.

    Up to `lanes` elements after a line's last one are overwritten. `whole` says that
    `start..stop` is all of the depth.
    """
    k = reader.k

    def load(
        at: Value, e: Value | int, line: list[Value], moves: list[Value], mask: Value | None
    ) -> Value:
        place = k.op("add", k.iota(lanes), k.index(e)) if any(reader.inner().moves) else k.index(e)
        within = reader.inside(reader.moved(line, moves, place), (lanes,))
        if mask is None or within is None:
            mask = within if mask is None else mask
        else:
            mask = k.op("and", mask, within)
        return reader.packed(k.load(reader.buffer, at, (lanes,), (1,), mask), target.dtype)

    def one(i: Value) -> None:
        line_base, line = reader.line(first + i, base, coords)
        row = i * stride

        def run(
            offset: Value, moves: list[Value], low: Value, high: Value, position: Value
        ) -> None:
            def piece(e: Value) -> None:
                mask = k.op("lt", k.iota(lanes, "i32"), k.convert(high - e, "i32"))
                x = load(line_base + offset + e, e, line, moves, mask)
                k.store(target, row + position + (e - low), x, (1,))

            k.for_(low, high, lanes, piece)

        def straight() -> None:
            *outer, inner = reader.source.depth
            position = 0
            for offset, moves in _steps(outer, len(coords)):
                moved = [k.const("index", m) for m in moves]
                for e in range(0, inner.extent, lanes):
                    left = inner.extent - e
                    mask = (
                        k.op("lt", k.iota(lanes, "i32"), k.const("i32", left))
                        if left < lanes
                        else None
                    )
                    x = load(line_base + (offset + e), e, line, moved, mask)
                    k.store(target, row + (position + e), x, (1,))
                position += inner.extent

        if whole and _vectors(reader, lanes) <= UNROLLED:
            straight()
        else:
            reader.runs(start, stop, run)

    k.for_(0, count, 1, one)


def depth_unit(source: Source) -> int:
    """What blocks of depth should be multiples of: the steps of the loops that are unrolled."""
    inner = product(source.depth[1:])
    return inner if len(source.depth) > 1 and inner <= UNROLLED else 1


def _vectors(reader: Reader, lanes: int) -> int:
    """Vectors that cover the whole depth of a line run by run; many if sizes are not known."""
    if reader.program.runtime or not reader.source.depth:
        return UNROLLED + 1
    *outer, inner = reader.source.depth
    return product(outer) * -(-inner.extent // lanes)


def pack_lanes(
    reader: Reader,
    first: Value,
    lines: int,
    base: Value,
    coords: list[Value],
    start: Value,
    stop: Value,
    target: tile.Buffer,
    at: Value,
    lanes: int,
    aligned: int,
    unit: int = 1,
) -> None:
    """One panel of `lines` lines by depth, from `at` in `target`.

    Up to `lanes` elements after the panel are overwritten. `start` and `stop` are multiples of
    `unit`.
    """
    k = reader.k
    vectors = [
        (v, reader.lanes(first + v, lanes, base, coords, aligned)) for v in range(0, lines, lanes)
    ]

    def load(place: LanesPlace, v: int, offset: Value, mask: Value | None) -> Value:
        if lines - v < lanes:
            own = k.op("lt", k.iota(lanes, "i32"), k.const("i32", lines - v))
            mask = own if mask is None else k.op("and", mask, own)
        x: Value | None = None
        for origin, exists in place.pieces:
            here = exists if mask is None else mask if exists is None else k.op("and", mask, exists)
            if origin.shape:
                part = k.load_at(reader.buffer, k.op("add", origin, offset), here)
            else:
                part = k.load(reader.buffer, origin + offset, (lanes,), (1,), here)
            if x is None or exists is None:
                x = part
            else:
                x = k.select(exists, part, x)
        assert x is not None
        return reader.packed(x, target.dtype)

    def run(offset: Value, moves: list[Value], low: Value, high: Value, position: Value) -> None:
        def step(i: Value) -> None:
            there = offset + reader.inner_step(i)
            row = at + (position + (i - low)) * lines
            for v, place in vectors:
                mask = reader.inside(reader.moved(place.coords, moves, i), (lanes,))
                k.store(target, row + v, load(place, v, there, mask), (1,))

        k.for_(low, high, 1, step)

    taps = reader.taps(UNROLLED)
    if taps is None or unit % len(taps):
        reader.runs(start, stop, run)
        return
    # What each tap sees of the limits does not depend on the outermost loop of the depth.
    fixed = not any(reader.source.depth[0].moves)
    masks: dict[tuple[int, int], Value | None] = {}

    def mask_of(t: int, v: int, place: LanesPlace, outer: Sequence[Value]) -> Value | None:
        moved = [
            k.op("add", k.op("add", c, k.convert(o, c.dtype)), k.const(c.dtype, m))
            for c, o, m in zip(place.coords, outer, taps[t][1])
        ]
        return reader.inside(moved, (lanes,))

    still = [k.const("index", 0)] * len(coords)
    if fixed:
        masks = {
            (t, v): mask_of(t, v, place, still) for t in range(len(taps)) for v, place in vectors
        }

    def block(o: Value) -> None:
        offset, outer = reader.place("depth", [o], k.const("index", 0), still)
        row = at + (o * len(taps) - start) * lines
        for t, (tap, _) in enumerate(taps):
            for v, place in vectors:
                mask = masks[t, v] if fixed else mask_of(t, v, place, outer)
                k.store(target, row + (t * lines + v), load(place, v, offset + tap, mask), (1,))

    count = k.const("index", len(taps))
    k.for_(k.op("div", start, count), k.op("div", stop, count), 1, block)


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
        self.depth = -(-self.steps // lanes) * lanes
        self.panels = -(-problem.b.line_count // columns)
        #: which batch loops `b` depends on
        self.batch = [i for i, axis in enumerate(problem.b.batch) if axis.stride]
        self.unit = depth_unit(problem.b)
        self.source = replace(problem.b, batch=tuple(problem.b.batch[i] for i in self.batch))
        self.batches = product(self.source.batch)
        self.result = Temp(
            self.dtype, max(self.batches * self.panels * self.depth, 1) * columns + columns
        )

    def call(self) -> Call:
        """The launch that packs everything."""
        source = self.source
        plain = not source.limits and len(source.lines) <= 1 and len(source.depth) <= 1
        program = Program(self.ctx, "pack", runtime=plain)
        k = program.k
        reader = Reader(program, source, "b")
        target = program.buffer(self.result, self.dtype, "out")
        depth = program.num("depth", self.steps)
        padded, panels = program.num("padded", self.depth), program.num("panels", self.panels)
        length = self._chunk()
        chunks = -(-self.steps // length)
        count, size = program.num("chunks", chunks), program.num("length", length)
        pid = k.program_id()
        start = k.op("rem", pid, count) * size
        stop = k.op("min", start + size, depth)
        pid = k.op("div", pid, count)
        panel, entry = k.op("rem", pid, panels), k.op("div", pid, panels)
        base, coords = reader.start(program.split(entry, "b.batch", source.batch))
        at = (pid * padded + start) * self.columns
        self.pack(reader, panel * self.columns, base, coords, start, stop, target, at)
        elements = self.batches * self.panels * self.depth * self.columns
        return program.launch(self.batches * self.panels * chunks, 0.3 * elements)

    def _chunk(self) -> int:
        """Depth that one program packs."""
        depth = self.steps
        programs = self.batches * self.panels
        wanted = max(1, -(-4 * self.target.threads // programs))
        unit = math.lcm(self.lanes, self.unit)
        return -(-max(depth // wanted, 4 * self.lanes) // unit) * unit

    def pack(
        self,
        reader: Reader,
        first: Value,
        base: Value,
        coords: list[Value],
        start: Value,
        stop: Value,
        target: tile.Buffer,
        at: Value,
    ) -> None:
        """One panel of depth `start..stop` to `at` in `target`."""
        if self.is_complex:
            self._complex(reader, first, base, coords, start, stop, target, at)
        elif reader.depth_contiguous and not reader.lines_contiguous:
            self._transposing(reader, first, base, coords, start, stop, target, at)
        else:
            pack_lanes(
                reader,
                first,
                self.columns,
                base,
                coords,
                start,
                stop,
                target,
                at,
                self.lanes,
                self.columns,
                self.unit,
            )

    def _transposing(
        self,
        reader: Reader,
        first: Value,
        base: Value,
        coords: list[Value],
        start: Value,
        stop: Value,
        target: tile.Buffer,
        at: Value,
    ) -> None:
        """Lines are contiguous: copy pieces of them, then turn squares in registers."""
        k, lanes, columns = reader.k, self.lanes, self.columns
        stride = CHUNK + lanes
        piece = k.scratch("piece", self.dtype, columns * stride + lanes)

        def chunk(low: Value) -> None:
            high = k.op("min", low + CHUNK, stop)
            copy_lines(
                reader,
                first,
                k.const("index", columns),
                base,
                coords,
                low,
                high,
                piece,
                stride,
                lanes,
            )

            def square(e: Value) -> None:
                row = at + (low - start + e) * columns
                for v in range(0, columns, lanes):
                    x = k.load(piece, e + v * stride, (lanes, lanes), (1, stride))
                    k.store(target, row + v, x, (columns, 1))

            k.for_(0, high - low, lanes, square)

        k.for_(start, stop, CHUNK, chunk)

    def _complex(
        self,
        reader: Reader,
        first: Value,
        base: Value,
        coords: list[Value],
        start: Value,
        stop: Value,
        target: tile.Buffer,
        at: Value,
    ) -> None:
        """Columns and depth alternate between real and imaginary parts.

        Against the real part of `a` stands (re, im), against the imaginary part (-im, re).
        """
        k, lanes = reader.k, self.lanes
        one = k.const("index", 1)
        for v in range(0, self.columns, lanes):
            lines = k.op("add", k.iota(lanes), first + v)
            part = k.op("and", lines, one)
            place = reader.lanes(first + v, lanes, base, coords, 0)
            (origin, _), line_coords = place.pieces[0], place.coords
            minus = k.op("eq", part, k.const("index", 0))

            def run(
                offset: Value, moves: list[Value], low: Value, high: Value, position: Value
            ) -> None:
                def step(i: Value) -> None:
                    phase = k.op("and", i, one)
                    there = k.op("add", origin, offset + reader.inner_step(i) - phase)
                    turned = k.op("xor", part, k.broadcast(phase, (lanes,)))
                    there = k.op("add", k.op("sub", there, part), turned)
                    mask = reader.inside(reader.moved(line_coords, moves, i), (lanes,))
                    x = k.load_at(reader.buffer, there, mask)
                    flip = k.op(
                        "and", minus, k.broadcast(k.op("ne", phase, k.const("index", 0)), (lanes,))
                    )
                    x = k.select(flip, k.op("neg", x), x)
                    k.store(target, at + (position + (i - low)) * self.columns + v, x, (1,))

                k.for_(low, high, 1, step)

            reader.runs(start, stop, run)
