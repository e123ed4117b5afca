"""Addresses in operands of contractions: of lines, of lanes over lines, and of steps in depth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import Dim, is_multiple, surely_equal
from amdjax.kernels.products.contraction import Axis, Source, product
from amdjax.kernels.products.program import Program

Value = tile.Value


@dataclass
class LanesPlace:
    """Where lines spread over lanes lie.

    Args:
      segments: where to load from, a scalar for contiguous lanes or offsets in a tile, and the
        lanes that lie there; None for all.
      coords: the limited coordinates, in a scalar where all lanes have the same.
    """

    segments: list[tuple[Value, Value | None]]
    coords: list[Value]


def steps(axes: Sequence[Axis], limits: int) -> list[tuple[int, tuple[int, ...]]]:
    """Offset and moves of every step of nested loops."""
    out = []
    for digits in itertools.product(*(range(axis.extent) for axis in axes)):
        offset = sum(d * axis.stride for d, axis in zip(digits, axes))
        shifts = tuple(
            sum(d * axis.shifts[j] for d, axis in zip(digits, axes)) for j in range(limits)
        )
        out.append((offset, shifts))
    return out


def numbers_of(source: Source, name: str) -> dict[str, int]:
    """The sizes that a source is read by, by their names."""
    numbers = {f"{name}.lines": source.line_count}
    for group in ("batch", "lines", "depth"):
        for i, axis in enumerate(getattr(source, group)):
            numbers[f"{name}.{group}{i}.extent"] = axis.extent
            if axis.stride != 1:
                numbers[f"{name}.{group}{i}.stride"] = axis.stride
    return numbers


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
        program.declare(numbers_of(source, name))
        # Where things begin is all that tells the phases of a convolution apart.
        self.origin = program.param(f"{name}.offset", source.offset)
        starts = (limit.start for limit in source.limits)
        self.starts = [program.param(f"{name}.start{j}", x) for j, x in enumerate(starts)]

    def _scaled(self, group: str, i: int, digit: Value) -> Value | None:
        stride = getattr(self.source, group)[i].stride
        if stride == 0:
            return None
        if stride == 1:
            return digit
        return digit * self.program.num(f"{self.name}.{group}{i}.stride", stride)

    def place(
        self, group: str, digits: Sequence[Value], base: Value, coords: list[Value]
    ) -> tuple[Value, list[Value]]:
        """Offset and limited coordinates after moving along the loops of a group."""
        axes = getattr(self.source, group)
        for i, digit in enumerate(digits):
            step = self._scaled(group, i, digit)
            if step is not None:
                base = base + step
            coords = [
                c + (digit * axes[i].shifts[j]) if axes[i].shifts and axes[i].shifts[j] else c
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
        digits = self.program.split(self.k.min(line, last), f"{self.name}.lines", self.source.lines)
        return self.place("lines", digits, base, coords)

    def lanes_contiguous(self, count: int) -> bool:
        """Whether tiles of `count` lines from multiples of `count` on lie side by side."""
        lines = self.source.lines
        if not lines or lines[-1].stride != 1 or any(lines[-1].shifts):
            return False
        return len(lines) == 1 or (
            not self.program.runtime and is_multiple(lines[-1].extent, count)
        )

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
        exists = lane < remaining
        if aligned and self.lanes_contiguous(aligned):
            digits = program.split(first, f"{self.name}.lines", axes)
            origin, coords = self.place("lines", digits, base, coords)
            return LanesPlace([(origin, exists)], coords)
        spread, lane_coords = self._spread(first, count, base, coords, total)
        if not aligned or not axes or axes[-1].stride != 1 or program.runtime:
            return LanesPlace([(k.broadcast(spread, (count,)), None)], lane_coords)
        pairs = itertools.pairwise(axes)
        if all(surely_equal(far.stride, near.stride * near.extent) for far, near in pairs):
            return LanesPlace([(base + first, exists)], lane_coords)
        if axes[-1].extent < count - 1:
            return LanesPlace([(k.broadcast(spread, (count,)), None)], lane_coords)
        # The lanes fill the end of one run of the innermost loop and the start of the next.
        digits = program.split(first, f"{self.name}.lines", axes)
        room = k.const("index", axes[-1].extent) - digits[-1]
        here, _ = self.place("lines", digits, base, [])
        following = program.split(k.min(first + room, total - 1), f"{self.name}.lines", axes)
        there, _ = self.place("lines", following, base, [])
        before = lane < k.convert(room, "i32")
        segments: list[tuple[Value, Value | None]] = [
            (here, before & exists),
            (there - room, (~before) & exists),
        ]
        return LanesPlace(segments, lane_coords)

    def _spread(
        self, first: Value, count: int, base: Value, coords: list[Value], total: Value
    ) -> tuple[Value, list[Value]]:
        """Offsets and coordinates of lines in lanes; lines past the last repeat it."""
        k, program, axes = self.k, self.program, self.source.lines
        lines = k.min(k.iota(count) + first, total - 1)
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
            test = k.convert(c, unsigned) < k.const(unsigned, limit.extent)
            out = test if out is None else out & test
        return out if out is None or not shape else k.broadcast(out, shape)

    def runs(self, start: Value, stop: Value, body: Callable[..., None]) -> None:
        """Loop over depth `start..stop` in runs of the innermost loop.

        `body(offset, shifts, low, high, position)` gets the offset and the coordinates' moves of a
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
            base, shifts = self.place("depth", digits, zero, still)
            first = r * extent
            low = k.max(start - first, zero)
            high = k.min(stop - first, extent)
            body(base, shifts, low, high, k.max(first - start, zero))

        k.for_(start // extent, (stop + (extent - 1)) // extent, 1, run)

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

    def moved(self, coords: Sequence[Value], shifts: Sequence[Value], i: Value) -> list[Value]:
        """Coordinates at step `i` of a run."""
        k, out = self.k, []
        for j, (c, m) in enumerate(zip(coords, shifts)):
            near = self.inner().shifts[j]
            step = m + (i * near) if near else m
            out.append(c + k.convert(step, c.dtype))
        return out

    def taps(self, most: int) -> list[tuple[int, tuple[int, ...]]] | None:
        """Offset and moves of each step of all depth loops but the outermost; None if too many."""
        inner = self.source.depth[1:]
        count = product(inner)
        if not inner or isinstance(count, Dim) or count > most or self.program.runtime:
            return None
        return steps(inner, len(self.source.limits))

    @property
    def lines_contiguous(self) -> bool:
        return self.source.lines_contiguous

    @property
    def depth_contiguous(self) -> bool:
        return self.source.depth_contiguous


@dataclass(frozen=True)
class Part:
    """Lines of a source from one on, and a part of their depth.

    Args:
      reader: of the source.
      base: offset of the first line of a batch entry ...
      coords: ... and its limited coordinates.
      first: the first line.
      start: where in the depth the part begins ...
      stop: ... and ends.
    """

    reader: Reader
    base: Value
    coords: list[Value]
    first: Value
    start: Value
    stop: Value

    @classmethod
    def of(
        cls, reader: Reader, batch: Sequence[Value], first: Value, start: Value, stop: Value
    ) -> Part:
        """The part of a batch entry, which is given by its place along each batch loop."""
        base, coords = reader.start(batch)
        return cls(reader, base, coords, first, start, stop)

    def after(self, lines: Value | int) -> Part:
        """The same part of depth, some lines further on."""
        return replace(self, first=self.first + lines)

    def within(self, start: Value, stop: Value) -> Part:
        """The same lines, another part of depth."""
        return replace(self, start=start, stop=stop)

    def line(self, i: Value) -> tuple[Value, list[Value]]:
        """Offset and coordinates of a line; lines past the last repeat it."""
        return self.reader.line(self.first + i, self.base, self.coords)

    def lanes(self, line: int, count: int, aligned: int) -> LanesPlace:
        """Where `count` lines from `line` on lie, spread over lanes; see `Reader.lanes`."""
        return self.reader.lanes(self.first + line, count, self.base, self.coords, aligned)

    def runs(self, body: Callable[..., None]) -> None:
        """Loop over the depth in runs of the innermost loop; see `Reader.runs`."""
        self.reader.runs(self.start, self.stop, body)
