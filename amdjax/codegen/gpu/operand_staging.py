"""What the threads of a product bring of its operands: from memory to cells in LDS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from amdjax.codegen import llvm
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.isa import ZERO_BYTE
from amdjax.codegen.gpu.matrix import emit_digits, i32, joined_words, lds_address, log2
from amdjax.codegen.gpu.operand_formats import float_parts, rounded_to_xf32
from amdjax.codegen.gpu.registers import register
from amdjax.codegen.llvm import I8, I32, Function, Type, Value
from amdjax.codegen.pointwise import lower_convert
from amdjax.targets.mma import CELL_BYTES, WARPGROUP_ROW_BYTES, SharedLayout, Tiling
from amdjax.tile import Side, itemsize

#: Bytes that accesses add as a constant, on every target.
_REACH = 2048

#: `fn(number) -> (offset, coordinates …)` of a line or a step in depth, written for each thread.
Places = Callable[[Value], Sequence[Value]]


@dataclass
class Operand:
    """One operand of a product in a kernel.

    Args:
      side: how it lies in memory.
      address: of its buffer, in global memory.
      lines, depth: where lines and steps in depth are.
      base: uniform offset of all of it.
      last: the last line that exists, counted from the tile's first.
      limits: extents of the coordinates.
      run: elements from one step in depth to the next in a tile; None where steps are no run.
      is_linear: whether it is the same from tile to tile.
    """

    side: Side
    address: Value
    lines: Places
    depth: Places
    base: Value
    last: Value
    limits: Sequence[Value]
    run: Value | None
    is_linear: bool = False

    def line(self, f: Function, number: Value) -> tuple[Value, list[Value]]:
        """Offset and coordinates of a line, or of the first of a group that lies side by side.

        Lines past the last repeat it.
        """
        index, last = self.base.type, self.last
        if self.side.axis == "lines" and self.side.vector > 1:
            last = f.sub(last, llvm.const(index, self.side.vector - 1))
        number = f.intrinsic("smin", index, f.int_resize(number, index.elem, False), last)
        offset, *coords = self.lines(number)
        return offset, coords

    def tile(self, g: GpuEmitter, k: Value, limit: Value | None) -> Address:
        """The tile whose depth begins at `k`: where steps of lines are in it.

        Where nothing is, the address is that of elements near the buffer's first, which exist.
        """
        f, side, run = g.f, self.side, self.run
        element = g.types.memory(side.buffer.dtype)
        if (limit is not None or side.limits) and (run is None or side.run is not None):
            return self._masked(g, k, limit)
        origin = f.gep(self.address, self.base, element)
        if run is not None:
            origin = f.gep(origin, self.depth(k)[0], element)
            if side.run is None:
                return self._chained(g, origin, k, limit)
        steps = self._steps(f, k)

        def address(
            offset: Value, coords: list[Value], depth: Value, behind: int, more: int = 0
        ) -> _Place:
            if run is None:
                offset = f.add(offset, steps(depth, more)[0])
            else:
                offset = f.add(offset, f.mul(f.add(depth, llvm.const(k.type, more)), run))
            if side.run is not None and side.run >= 0:
                # Not negative: a register besides an address that all threads share.
                offset = f.int_resize(offset, "i64", False)
            return _Place(f.gep(origin, offset, element))

        return address

    def _steps(self, f: Function, k: Value) -> Callable[[Value, int], Sequence[Value]]:
        """Writes where a step in depth is, so many behind one of a tile, and its coordinates.

        What numbers of a granule share is computed once.
        """
        side, index = self.side, k.type
        known: dict[tuple[str, int], Sequence[Value]] = {}

        def place(depth: Value, more: int) -> Sequence[Value]:
            inside = more % side.granule
            key = depth.ref, more - inside
            if side.granule == 1 or key not in known:
                first = f.add(depth, llvm.const(index, more - inside))
                known[key] = self.depth(f.add(k, first))
            shifts = [inside * by for by in (side.stride, *side.shifts)] if inside else []
            shifts += [0] * (len(known[key]) - len(shifts))
            return [
                f.add(x, llvm.const(index, by)) if by else x
                for x, by in zip(known[key], shifts, strict=True)
            ]

        return place

    def _masked(self, g: GpuEmitter, k: Value, limit: Value | None) -> Address:
        """Addresses of lines and steps that may not be there.

        Steps of a run are all there or none is, unless it ends in the tile or moves a coordinate;
        then one choice is that of all, and where none is, the first elements of a run are read.
        """
        f, side, run, index = g.f, self.side, self.run, self.base.type
        element = g.types.memory(side.buffer.dtype)
        by_run = 0 if side.run is None else side.run
        alike = run is not None and by_run >= 0 and limit is None and not any(side.shifts)
        first, moved = self.base, list[Value]()
        if run is not None:
            start, *moved = self.depth(k)
            first = f.add(first, start)
        resource = g.buffers.resource(side.buffer)
        known: dict[tuple[str, str], _Place] = {}

        steps = self._steps(f, k)

        def place(offset: Value, coords: list[Value], depth: Value, more: int) -> _Place:
            shifts, step = moved, f.add(depth, llvm.const(k.type, more))
            if run is not None:
                offset = f.add(offset, f.mul(step, run))
                shifts = [
                    f.add(x, f.mul(step, llvm.const(k.type, by))) if by else x
                    for x, by in zip(moved, side.shifts, strict=True)
                ]
            else:
                along, *shifts = steps(depth, more)
                offset = f.add(offset, along)
            valid = f.icmp("slt", f.add(k, step), limit) if limit is not None else None
            behind: Value | None = None
            for j, (coordinate, shift, extent) in enumerate(
                zip(coords, shifts, self.limits, strict=True)
            ):
                at = f.add(coordinate, shift)
                if j == side.edge:  # the nearest neighbors of which all are inside
                    rest = llvm.const(index, side.vector - 1)
                    last = f.sub(extent, llvm.const(index, side.vector))
                    start = f.intrinsic("smax", index, at, llvm.zero(index))
                    behind = f.sub(at, f.intrinsic("smin", index, start, last))
                    offset = f.sub(offset, behind)
                    at, extent = f.add(at, rest), f.add(extent, rest)
                # Negative numbers are large unsigned ones: one comparison for both ends.
                inside = f.icmp("ult", at, extent)
                valid = inside if valid is None else f.and_(valid, inside)
            assert valid is not None
            if resource is not None:
                at = f.shl(f.add(first, offset), i32(log2(itemsize(side.buffer.dtype))))
                at = g.isa.offset_if(f, valid, at)
                return _Place(_InResource(resource, at), None, behind)
            if not g.isa.adds_offsets:
                found = f.gep(f.gep(self.address, first, element), offset, element)
                return _Place(f.select(valid, found, self.address), valid, behind)
            at = f.select(valid, f.add(first, offset), llvm.zero(index))
            # Bytes of a buffer need no more bits than its elements.
            at = f.op(f"shl nuw nsw {at}, {log2(itemsize(side.buffer.dtype))}", index)
            return _Place(f.gep(self.address, f.int_resize(at, "i64", False), I8), valid, behind)

        def address(
            offset: Value, coords: list[Value], depth: Value, behind: int, more: int = 0
        ) -> _Place:
            if not alike:
                return place(offset, coords, depth, more)
            key = offset.ref, depth.ref
            if key not in known:
                known[key] = place(offset, coords, depth, 0)
            found, steps = known[key].address, more * by_run
            if isinstance(found, _InResource):
                there: Value | _InResource = replace(
                    found, more=steps * itemsize(side.buffer.dtype)
                )
            else:
                there = f.gep(found, steps, element) if more else found
            return known[key]._replace(address=there)

        return address

    def _chained(self, g: GpuEmitter, origin: Value, k: Value, limit: Value | None) -> Address:
        """Addresses of lines whose run is known at run time, each from the one before.

        LLVM would look for what products that differ in a factor have in common, pair by pair.
        """
        f, run, element = g.f, self.run, g.types.memory(self.side.buffer.dtype)
        assert run is not None
        last: dict[str, tuple[Value, int]] = {}  # by offsets of lines

        def address(
            offset: Value, coords: list[Value], depth: Value, behind: int, more: int = 0
        ) -> _Place:
            step, behind = f.add(depth, llvm.const(k.type, more)), behind + more
            before = last.get(offset.ref)
            if before is None:
                found = f.gep(origin, f.add(offset, f.mul(step, run)), element)
            else:
                found = f.gep(
                    before[0], f.mul(run, llvm.const(run.type, behind - before[1])), element
                )
            last[offset.ref] = found, behind
            if limit is None:
                return _Place(found)
            valid = f.icmp("slt", f.add(k, step), limit)
            return _Place(f.select(valid, found, self.address), valid)

        return address


@dataclass(frozen=True)
class _InResource:
    """A place in a buffer from which zeros come where nothing is.

    Args:
      resource: what names the buffer.
      offset: in bytes.
      more: bytes behind that.
    """

    resource: Value
    offset: Value
    more: int = 0


class _Place(NamedTuple):
    """Where a step of a line is, and whether something is there.

    Args:
      address: of it.
      valid: the condition; None for always.
      behind: by how many elements neighbors that are wanted lie behind those that are there.
    """

    address: Value | _InResource
    valid: Value | None = None
    behind: Value | None = None


class Address(Protocol):
    """Finds a step of a line."""

    def __call__(
        self, offset: Value, coords: list[Value], depth: Value, behind: int, more: int = 0
    ) -> _Place:
        """Where it is.

        Args:
          offset, coords: of the line.
          depth: the step.
          behind: steps behind the first ones that a thread has of the line.
          more: steps behind that one.
        """


def shared_layout(tiling: Tiling, side: Side, lines: int) -> SharedLayout:
    """Where the cells of an operand's tile lie in LDS."""
    atom = tiling.atom
    slices = tiling.depth // atom.cell_depth
    interleave = side.vector if side.axis == "lines" and not atom.across else 1
    return SharedLayout(lines, slices, interleave, atom.cell_lines)


def staging_of(
    g: GpuEmitter, tiling: Tiling, operand: Operand, lines: int, origin: int
) -> LineStaging | DepthStaging:
    """What a thread brings of an operand, for what multiplies; `origin` is its place in LDS."""
    kind = LineStaging if tiling.atom.across else DepthStaging
    return kind(g, tiling, operand, shared_layout(tiling, operand.side, lines), origin)


class Staging(ABC):
    """What a thread brings of one operand's tiles.

    Attributes:
      part_bytes: LDS from one part of the operand to the next.
      origin: of this operand in LDS, in bytes.
      parts: cells or rectangles of a tile.
      slots: those that are the thread's.
      depth_steps: steps in depth of each.
    """

    parts: int
    slots: list[_Slot]
    depth_steps: int

    def __init__(
        self, g: GpuEmitter, tiling: Tiling, operand: Operand, part_bytes: int, origin: int
    ):
        self.g, self.f, self.operand, self.side = g, g.f, operand, operand.side
        self.atom = tiling.atom
        self.part_bytes, self.origin = part_bytes, origin
        self._lines: dict[str, tuple[Value, tuple[Value, list[Value]]]] = {}

    def _group(self, number: Value) -> tuple[Value, tuple[Value, list[Value]]]:
        """The first line of a group of neighbors, and where it is: one value for all its slots."""
        if number.ref not in self._lines:
            line = self.f.mul(number, i32(self.side.vector))
            self._lines[number.ref] = line, self.operand.line(self.f, line)
        return self._lines[number.ref]

    def offsets(self) -> list[Value]:
        """Bytes from a tile's begin to what the thread loads, as far apart as constants reach.

        Empty where accesses do not add them, where something may not be there, or steps are no run.
        """
        side, run = self.side, self.side.run
        added = self.g.isa.adds_offsets and self.operand.base.type == I32
        if not added or side.limits or run is None or run < 0 or not self.operand.is_linear:
            return []
        f, steps = self.f, [x for x, more in self._steps(run) if not more]
        slots = [(s.offset, f.mul(s.depth, i32(run))) for s in self.slots]
        return [
            self._bytes(f.add(f.add(line, depth), i32(x * run)))
            for line, depth in slots
            for x in steps
        ]

    def _steps(self, run: int) -> list[tuple[int, int]]:
        """Steps in depth of a slot's loads, and bytes from the last one with an own offset."""
        size, found, first = itemsize(self.side.buffer.dtype), list[tuple[int, int]](), 0
        for x in range(0, self.depth_steps, self.step):
            if (x - first) * run * size >= _REACH:
                first = x
            found.append((x, (x - first) * run * size))
        return found

    def _bytes(self, elements: Value) -> Value:
        """Elements from a buffer's start as bytes; these take 32 bits, too."""
        return self.f.op(f"shl nuw {elements}, {log2(itemsize(self.side.buffer.dtype))}", I32)

    def load_at(self, k: Value, offsets: Sequence[Value]) -> list[Load]:
        """What `load` does of a tile that is all there, by what `offsets` made."""
        f, side, run = self.f, self.side, self.side.run
        assert run is not None
        kind = self.g.types.memory(side.buffer.dtype)
        first = self._bytes(self.operand.depth(k)[0])
        origin = f.gep(self.operand.address, self.operand.base, kind)
        origin = f.gep(origin, f.cast("zext", first, "i64"), I8)
        starts, steps, out = iter(offsets), self._steps(run), list[Load]()
        for _, more in steps * len(self.slots):
            if not more:
                start = f.gep(origin, f.cast("zext", next(starts), "i64"), I8)
            address = f.gep(start, more, I8) if more else start
            loaded = f.load(kind.with_lanes(side.vector), address, side.vector * (kind.bits // 8))
            out.append(Load(loaded, None))
        return out

    def load(self, k: Value, limit: Value | None) -> list[Load]:
        """The thread's part of the tile whose depth begins at `k`, on its way."""
        f, side = self.f, self.side
        place, known = self.operand.tile(self.g, k, limit), dict[str, list[Value]]()
        kind = self.g.types.memory(side.buffer.dtype).with_lanes(side.vector)
        out = []
        for slot in self.slots:
            for x in range(0, self.depth_steps, self.step):
                address, valid, behind = place(slot.offset, slot.coords, slot.depth, slot.behind, x)
                if isinstance(address, _InResource):
                    at = address.resource, address.offset, address.more
                    loaded = self.g.isa.load_bounded(f, kind, *at)
                else:
                    together = side.vector if side.edge is None else 1
                    loaded = f.load(kind, address, together * itemsize(side.buffer.dtype))
                if behind is not None and behind.ref not in known:
                    known[behind.ref] = self._selectors(behind)
                out.append(Load(loaded, valid, known[behind.ref] if behind is not None else ()))
        return out

    def _selectors(self, behind: Value) -> list[Value]:
        """Of bytes of neighbors those that are so many elements behind; zeros where none are.

        For each word that is wanted the operand of `picked`: numbers of bytes, shifted past each
        other, with that of a zero before and behind them.
        """
        f, size = self.f, itemsize(self.side.buffer.dtype)
        kind = Type(f"i{8 * size * self.side.vector}")
        zeros = int.from_bytes(bytes([ZERO_BYTE] * (kind.bits // 8)), "little")
        numbers = int.from_bytes(bytes(range(kind.bits // 8)), "little")
        table, none = llvm.const(kind, numbers ^ zeros), llvm.zero(behind.type)
        before = f.sub(none, behind)
        for shift, by in ((f.lshr, behind), (f.shl, before)):
            by = f.intrinsic("smax", by.type, by, none)
            by = f.shl(by, llvm.const(by.type, log2(8 * size)))
            # As many bits as there are, and more, are shifted where nothing is inside.
            by = f.and_(by, llvm.const(by.type, kind.bits - 1))
            table = shift(table, f.int_resize(by, kind.elem, False))
        words = f.bitcast(
            f.xor(table, llvm.const(kind, zeros)), I32.with_lanes(kind.bits // 64 * 2)
        )
        return [register(f, words, i) for i in range(kind.bits // 32)]

    @property
    def nbytes(self) -> int:
        """LDS of all parts."""
        return self.part_bytes * self.atom.parts

    @property
    def step(self) -> int:
        """Steps in depth of one load."""
        return self.side.vector if self.side.axis == "depth" else 1

    def store(self, loads: list[Load], stage: Value) -> None:
        """What `load` brought, zero outside, as cells in LDS.

        LLVM would select and turn words where they are loaded, and so wait for them there.
        """
        f, values = self.f, []
        for x in loads:
            value = self.g.isa.computed_here(f, x.value)
            if x.valid is not None:
                value = f.select(x.valid, value, llvm.zero(value.type))
            if x.selectors:
                words = f.bitcast(value, I32.with_lanes(len(x.selectors) // 2 * 2))
                parts = [register(f, words, i) for i in range(len(x.selectors))]
                low, high = parts[0], parts[-1]
                picked = [self.g.isa.picked(f, low, high, y) for y in x.selectors]
                value = f.bitcast(joined_words(f, picked, words.type), value.type)
            values.append(value)
        if self.parts < self.g.workgroup:  # threads that repeat the loads of others
            own = self.f.icmp("ult", self.g.threads.number, i32(self.parts))
            self.f.if_(own, lambda: self._store(values, stage))
        else:
            self._store(values, stage)

    def _store(self, values: list[Value], stage: Value) -> list[Value]:
        each = self.depth_steps // self.step
        for slot, at in zip(self.slots, range(0, len(values), each), strict=True):
            loads = [self._converted(x) for x in values[at : at + each]]
            for i, parts in enumerate(zip(*loads, strict=True)):
                place = lds_address(self.f, stage, i32(0), i * self.part_bytes)
                self._put_all(place, slot.target, list(parts))
        return []

    @abstractmethod
    def _put_all(self, stage: Value, target: Value, parts: list[Value]) -> None:
        """The loads of one slot, to LDS."""

    def _converted(self, x: Value) -> list[Value]:
        """What was loaded as the parts that are multiplied."""
        source, f, atom = self.side.buffer.dtype, self.f, self.atom
        if source == "bool":
            x = f.cast("trunc", x, "i1")
        narrow = atom.terms > 1 or atom.operand == "xf32"
        dtype = "f32" if narrow else atom.operand
        x = lower_convert(f, x, source, dtype) if source != dtype else x
        if atom.terms > 1:
            return float_parts(f, x, atom.operand, atom.parts)
        return [rounded_to_xf32(f, x)] if narrow else [x]

    def _put(self, stage: Value, target: Value, offset: int, parts: list[Value]) -> None:
        f = self.f
        while len(parts) > 1:
            parts = [
                f.shuffle(x, y, range(2 * x.type.lanes))
                for x, y in zip(parts[::2], parts[1::2], strict=True)
            ]
        (x,) = parts
        at = lds_address(f, stage, f.add(target, i32(self.origin)), offset)
        nbytes = x.type.lanes * x.type.bits // 8
        if nbytes >= 4:
            x = f.bitcast(x, Type("i32", nbytes // 4))
        f.store(x, at, nbytes)


class LineStaging(Staging):
    """Operands whose cells hold neighboring lines.

    Along lines, a thread brings cells or parts of them as they are. Along depth, it brings a few
    steps of a line, each of which belongs to another slice.
    """

    def __init__(
        self, g: GpuEmitter, tiling: Tiling, operand: Operand, layout: SharedLayout, origin: int
    ):
        super().__init__(g, tiling, operand, layout.cells * CELL_BYTES, origin)
        self.layout = layout
        lines = layout.lines
        f, wide, vector = self.f, tiling.atom.cell_lines, self.side.vector
        along = self.side.axis == "depth"
        self.depth_steps = vector if along else 1
        fast, slow = (tiling.depth // vector, lines) if along else (lines // vector, tiling.depth)
        self.parts = fast * slow
        self.slots = []
        for inner, outer, behind in distribute(f, g.threads.number, g.workgroup, fast, slow):
            if along:
                line, depth, behind = outer, f.mul(inner, i32(vector)), 0
                place = operand.line(f, line)
            else:
                (line, place), depth = self._group(inner), outer
            cell = f.add(f.mul(depth, i32(self.layout.slice_stride)), f.lshr(line, i32(log2(wide))))
            inside = f.mul(f.and_(line, i32(wide - 1)), i32(CELL_BYTES // wide))
            target = f.add(f.mul(cell, i32(CELL_BYTES)), inside)
            step = f.int_resize(depth, place[0].type.elem, False)
            self.slots.append(_Slot(*place, step, behind, target))

    def _put_all(self, stage: Value, target: Value, parts: list[Value]) -> None:
        (x,) = parts
        if self.side.axis == "lines":
            self._put(stage, target, 0, [x])
            return
        for j in range(self.side.vector):
            one = self.f.shuffle(x, None, [j]) if x.type.lanes else x
            self._put(stage, target, j * self.layout.slice_stride * CELL_BYTES, [one])


class DepthStaging(Staging):
    """Operands whose cells hold steps in depth of one line.

    Along depth, a thread brings whole cells of one line. Along lines, it brings a rectangle of a
    few lines by a few steps in depth, and transposes it in registers.
    """

    def __init__(
        self, g: GpuEmitter, tiling: Tiling, operand: Operand, layout: SharedLayout, origin: int
    ):
        super().__init__(g, tiling, operand, layout.cells * CELL_BYTES, origin)
        self.layout = layout
        lines = layout.lines
        self.cell = tiling.atom.cell
        vector = self.side.vector
        if self.side.axis == "depth":
            self.depth_steps = self.cell
            self.parts = layout.slices * lines
            distributed = distribute(self.f, g.threads.number, g.workgroup, layout.slices, lines)
            slots = [(line, operand.line(self.f, line), slice, 0) for slice, line, _ in distributed]
        else:
            each = max(lines * tiling.depth // g.workgroup, 1)
            self.depth_steps = max(1, min(self.cell, each // vector))
            across = lines // vector
            blocks = tiling.depth // self.depth_steps
            self.parts = across * blocks
            distributed = distribute(self.f, g.threads.number, g.workgroup, across, blocks)
            slots = [(*self._group(number), block, n) for number, block, n in distributed]
        self.slots = [self._slot(*slot) for slot in slots]

    def _slot(
        self, line: Value, where: tuple[Value, list[Value]], block: Value, behind: int
    ) -> _Slot:
        """What is known of a cell or rectangle before the loop."""
        f, side = self.f, self.side
        depth = f.mul(block, i32(self.depth_steps))
        if side.axis == "depth":
            cell = f.add(f.mul(block, i32(self.layout.slice_stride)), line)
            target = f.mul(cell, i32(CELL_BYTES))
        else:
            per = self.cell // self.depth_steps
            slice = f.lshr(block, i32(log2(per)))
            place = f.lshr(line, i32(log2(side.vector)))
            cell = f.add(f.mul(slice, i32(self.layout.slice_stride)), place)
            inside = f.mul(f.and_(block, i32(per - 1)), i32(CELL_BYTES // per))
            target = f.add(f.mul(cell, i32(CELL_BYTES)), inside)
        step = f.int_resize(depth, where[0].type.elem, False)
        return _Slot(*where, step, behind * self.depth_steps, target)

    def _put_all(self, stage: Value, target: Value, parts: list[Value]) -> None:
        if self.side.axis == "depth":
            self._put(stage, target, 0, parts)
            return
        vector, bits = self.side.vector, parts[0].type.bits
        if bits == 8 and vector == 4 and len(parts) % 4 == 0:
            columns = self._transposed_bytes(parts)
        elif bits == 16 and vector in (2, 4) and len(parts) % 2 == 0:
            columns = self._transposed_halves(parts)
        else:
            lines = range(vector)
            columns = [[self.f.shuffle(x, None, [j]) for x in parts] for j in lines]
        for j, column in enumerate(columns):
            self._put(stage, target, j * self.layout.interleave_stride * CELL_BYTES, column)

    def _transposed_bytes(self, parts: list[Value]) -> list[list[Value]]:
        """The depth of each of four lines, from four lines of bytes at each step of depth.

        LLVM would take words apart into bytes.
        """
        f, turn = self.f, self.g.isa.bytes_of
        words = [f.bitcast(x, I32) for x in parts]
        lines: list[list[Value]] = [[] for _ in range(4)]
        for first in range(0, len(words), 4):
            a, b, c, d = words[first : first + 4]
            for order, pair in (((0, 4, 1, 5), (0, 1)), ((2, 6, 3, 7), (2, 3))):
                x, y = turn(f, a, b, order), turn(f, c, d, order)
                for line, halves in zip(pair, ((0, 1, 4, 5), (2, 3, 6, 7)), strict=True):
                    lines[line].append(turn(f, x, y, halves))
        kind = I32.with_lanes(len(words) // 4)
        return [[joined_words(f, line, kind)] for line in lines]

    def _transposed_halves(self, parts: list[Value]) -> list[list[Value]]:
        """The depth of each line, from two or four lines of 16 bits at each step of depth.

        LLVM would move each half by itself where registers have names for halves.
        """
        f, count = self.f, self.side.vector // 2
        words = [
            [register(f, f.bitcast(x, I32.with_lanes(count)), i) for i in range(count)]
            for x in parts
        ]
        kind = I32.with_lanes(len(parts) // 2)
        columns = []
        for line in range(self.side.vector):
            halves = (2, 3, 6, 7) if line % 2 else (0, 1, 4, 5)
            column = [
                self.g.isa.bytes_of(f, x[line // 2], y[line // 2], halves)
                for x, y in zip(words[::2], words[1::2], strict=True)
            ]
            columns.append([joined_words(f, column, kind)])
        return columns


@dataclass
class Load:
    """A load that may be on its way.

    Args:
      value: what comes; anything where it is not valid.
      valid: whether it is of the operand; None for always.
      selectors: for each word that is wanted, of which bytes of those that come it consists.
    """

    value: Value
    valid: Value | None
    selectors: Sequence[Value] = ()

    @property
    def values(self) -> list[Value]:
        """Those that loops carry."""
        return [self.value] if self.valid is None else [self.value, self.valid]

    def of(self, values: Iterator[Value]) -> Load:
        """The same load of other values, the next ones of many loads'."""
        return Load(next(values), None if self.valid is None else next(values))


class RowStaging(Staging):
    """Operands whose lines are rows of 128 bytes, with cells exchanged by the number of the row.

    Along depth, a thread brings whole cells of a line. Along lines, it brings a rectangle, of the
    depth of a cell, and transposes it in registers; four neighboring threads have as many cells of
    the same lines, so that those that store together meet in no banks.
    """

    def __init__(self, g: GpuEmitter, tiling: Tiling, operand: Operand, lines: int, origin: int):
        super().__init__(g, tiling, operand, lines * WARPGROUP_ROW_BYTES, origin)
        f, vector, cells = self.f, self.side.vector, WARPGROUP_ROW_BYTES // CELL_BYTES
        self.depth_steps = tiling.atom.cell
        along = self.side.axis == "depth"
        self.parts = cells * (lines if along else lines // vector)
        self.slots = []
        for at in range(0, max(self.parts, g.workgroup), g.workgroup):
            number = f.add(f.and_(g.threads.number, i32(self.parts - 1)), i32(at))
            if along:
                cell, line = f.and_(number, i32(cells - 1)), f.lshr(number, i32(log2(cells)))
                place = operand.line(f, line)
            else:
                cell = emit_digits(f, ((1, 4, 1), (32, 2, 4)), number)
                group = emit_digits(f, ((4, 8, 1), (64, 1 << 20, 8)), number)
                line, place = self._group(group)
            exchanged = f.xor(cell, f.and_(line, i32(cells - 1)))
            target = f.add(f.mul(line, i32(WARPGROUP_ROW_BYTES)), f.mul(exchanged, i32(CELL_BYTES)))
            step = f.int_resize(f.mul(cell, i32(self.depth_steps)), place[0].type.elem, False)
            self.slots.append(_Slot(*place, step, 0, target))

    def _put_all(self, stage: Value, target: Value, parts: list[Value]) -> None:
        if self.side.axis == "depth":
            self._put(stage, target, 0, parts)
            return
        for j in range(self.side.vector):
            column = [self.f.shuffle(x, None, [j]) if x.type.lanes else x for x in parts]
            place = self.f.xor(target, i32(j * CELL_BYTES))
            self._put(stage, place, j * WARPGROUP_ROW_BYTES, column)


@dataclass
class _Slot:
    """A cell or rectangle that a thread brings again and again.

    Args:
      offset, coords: of its line.
      depth: its first step in depth, from the tile's.
      behind: by how many steps it comes behind the first one of the line.
      target: where it goes in LDS, in bytes.
    """

    offset: Value
    coords: list[Value]
    depth: Value
    behind: int
    target: Value


def distribute(
    f: Function, thread: Value, workgroup: int, fast: int, slow: int
) -> list[tuple[Value, Value, int]]:
    """(fast, slow) numbers of the things a thread gets of `fast * slow`, all powers of two.

    Also what the slow number has beyond the first one.
    """
    total = fast * slow
    if total < workgroup:  # threads repeat what others do
        thread, workgroup = f.and_(thread, i32(total - 1)), total
    if fast <= workgroup:
        low = f.and_(thread, i32(fast - 1))
        high = f.lshr(thread, i32(log2(fast)))
        each = workgroup // fast
        return [(low, f.add(high, i32(c * each)), c * each) for c in range(slow // each)]
    across = fast // workgroup
    return [
        (f.add(thread, i32(c % across * workgroup)), i32(c // across), c // across)
        for c in range(across * slow)
    ]
