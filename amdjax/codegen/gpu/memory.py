"""Loads and stores of tiles by a workgroup.

A thread's registers that are neighbours in memory move in one access. Where a mask leaves all
elements of a thread alive, which is so everywhere but at the ends of arrays, the accesses are the
same as without a mask; other threads take a path with a branch for each element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import atomic_operation, lowers
from amdjax.codegen.gpu.isa import Isa
from amdjax.codegen.gpu.layout import Layout
from amdjax.codegen.gpu.tiles import LDS, GpuTiles, Held, Positional, Rep
from amdjax.codegen.llvm import I32, I64, Module, Type, Value
from amdjax.tile import ops
from amdjax.tile.ops.memory import Tiled

__all__ = ["GpuMemory", "Groups", "Spread"]

Guards = Sequence[Value | None]
#: Of registers: each its own, as they are in a vector, or one for all.
Masks = Sequence[Value] | Value | None
#: Writes the address of a register's element.
Pointers = Callable[[int], Value]
_WIDEST = 16
#: Which of a thread's elements, whose positions grow, are inside only if all are, by the form of a
#: mask.
_ENDS: dict[str, tuple[int, ...]] = {"": (), "prefix": (-1,), "interval": (0, -1)}
_REACH = 1 << 31


@dataclass(frozen=True)
class Spread:
    """Where in a buffer a tile lies.

    Args:
      offset: of its first element.
      strides: one for each axis, in elements.
      divisor: a power of two that divides the offset.
    """

    buffer: tile.Buffer
    offset: Value | int
    strides: tuple[int | Value, ...]
    divisor: int = 1


@dataclass(frozen=True)
class Groups:
    """Registers that move at once.

    Args:
      width: how many.
      align: of such accesses in bytes.
      aligned: whether they are that aligned, where it is known at run time only.
    """

    width: int
    align: int
    aligned: Value | None = None


class GpuMemory(GpuTiles):
    def __init__(self, module: Module, kernel: tile.Kernel, isa: Isa, name: str, index_bits: int):
        super().__init__(module, kernel, isa, name, index_bits)
        self._low: dict[str, Value] = {}

    # Addresses

    def _scaled(self, offset: Value, size: int) -> Value:
        """Elements as bytes from a buffer's start: never negative where anything is accessed."""
        f = self.f
        if size > 1:
            offset = f.mul(offset, llvm.const(offset.type, size))
        return offset if offset.type == I64 else f.cast("zext", offset, "i64")

    def pointer(self, buffer: tile.Buffer, offset: Value) -> Value:
        """The address of one element, or of many."""
        base = self.addresses[buffer.name]
        kind = self.memory_type(buffer.dtype)
        if base.type == LDS:
            return self.f.gep(base, self.f.int_resize(offset, "i32", True), kind)
        return self.f.gep(base, self._scaled(offset, kind.bits // 8), Type("i8"))

    def _pointers(self, where: Spread, layout: Layout) -> Pointers:
        """The address of each register's element."""
        if all(isinstance(s, int) and s >= 0 for s in where.strides):
            return self._static_pointers(where, layout)
        f, coordinates = self.f, self.coordinates(layout)
        total = self.splat(self._index(where.offset), layout.registers)
        for axis, stride in enumerate(where.strides):
            place = f.int_resize(coordinates.axis(axis), self.index.elem, False)
            step = self.splat(self._index(stride), layout.registers)
            total = f.add(total, f.mul(place, step))
        return lambda r: self.pointer(where.buffer, self.register(total, r))

    def _index(self, x: Value | int) -> Value:
        return llvm.const(self.index, x) if isinstance(x, int) else x

    def _static_pointers(self, where: Spread, layout: Layout) -> Pointers:
        """A scalar address, to which threads add what depends on their number, then constants.

        The sum is written where it is used: an access adds a scalar address and 32 bits by itself
        if LLVM sees them in one block.
        """
        f, strides = self.f, [s for s in where.strides if isinstance(s, int)]
        kind = self.memory_type(where.buffer.dtype)
        size = kind.bits // 8
        base = f.gep(self.addresses[where.buffer.name], where.offset, kind)
        places = self.places(layout)

        def pointer(r: int) -> Value:
            bases = [p.base for p in places[r]]
            lanes = self._lane_offset(bases, [s * size for s in strides], base.type == LDS)
            start = base if lanes is None else f.gep(base, lanes, Type("i8"))
            step = sum(s * p.step for s, p in zip(strides, places[r], strict=True)) * size
            return f.gep(start, step, Type("i8")) if step else start

        return pointer

    def _lane_offset(
        self, bases: Sequence[Value | None], strides: Sequence[int], lds: bool
    ) -> Value | None:
        """Bytes that depend on the thread: 32 bits, widened, which the address units add."""
        terms = [(b, s) for b, s in zip(bases, strides, strict=True) if b is not None and s]
        if not terms:
            return None
        far = self.index == I64 and not lds and any(s * self._most() >= _REACH for _, s in terms)
        if far:
            wide = [(self.threads.widened(b), s) for b, s in terms]
            return self.threads.total([self.threads.apply("mul", b, s) for b, s in wide])
        total = self.threads.total([self.threads.apply("mul", b, s) for b, s in terms])
        return total if lds else self.f.cast("zext", total, "i64")

    def _most(self) -> int:
        """More than any position of a thread along an axis."""
        return 2 * self.workgroup * max(self.kernel.schedule.vector, 1)

    def _groups(self, where: Spread, layout: Layout, size: int) -> Groups:
        """How many neighbours of `size` bytes move at once, if they lie where they must."""
        width = layout.width if where.strides and where.strides[layout.near_axis] == 1 else 1
        needed = self.isa.alignment(width * size, size)
        scratch = where.buffer.role == "scratch"
        known = min(_WIDEST if scratch else self.kernel.align, where.divisor * size)
        others = [s for a, s in enumerate(where.strides) if a != layout.near_axis]
        static = [s * size for s in others if isinstance(s, int) and s]
        least = min([width * size, known, *(s & -s for s in static)])
        dynamic = [s for s in others if not isinstance(s, int)]
        if width == 1 or needed <= size or (least >= needed and not dynamic):
            return Groups(width, size if dynamic else max(least, size))
        if any(s % needed for s in static):
            return Groups(1, size)
        terms = [] if scratch else [self._low_bits(where.buffer)]
        for x in (where.offset, *dynamic):
            scaled = self.f.mul(self._index(x), llvm.const(self.index, size))
            terms.append(self.f.int_resize(scaled, "i32", False))
        bits = functools.reduce(self.f.or_, terms)
        rest = self.f.and_(bits, llvm.const(I32, needed - 1))
        return Groups(width, needed, self.f.icmp("eq", rest, llvm.const(I32, 0)))

    def _low_bits(self, buffer: tile.Buffer) -> Value:
        """The low half of a parameter's address."""
        if buffer.name not in self._low:
            address = self.addresses[buffer.name]

            def low() -> Value:
                return self.f.cast("trunc", self.f.op(f"ptrtoint {address} to i64", I64), "i32")

            self._low[buffer.name] = self._at_head(low)
        return self._low[buffer.name]

    # Elements

    def from_memory(self, x: Value, dtype: str) -> Value:
        if dtype == "bool":
            return self.f.icmp("ne", x, llvm.zero(x.type))
        return self.f.bitcast(x, x.type.with_elem(self.element(dtype)))

    def to_memory(self, x: Value, dtype: str, memory: Type) -> Value:
        if dtype == "bool":
            x = self.f.cast("zext", x, "i8")
        return self.f.bitcast(x, x.type.with_elem(memory.elem))

    def _every(self, guards: Guards) -> Value | None:
        """Whether all are true; None if nothing needs to be asked."""
        every: Value | None = None
        for guard in dict.fromkeys(g for g in guards if g is not None):
            every = guard if every is None else self.f.and_(every, guard)
        return every

    def both(self, guards: Guards, mask: Masks) -> Guards:
        """Guards, and masks of the registers or one for all of them."""
        if mask is None:
            return guards
        if isinstance(mask, Value):
            mask = [self.register(mask, i) for i in range(len(guards))]
        return [m if g is None else self.f.and_(g, m) for g, m in zip(guards, mask, strict=True)]

    def read(
        self,
        pointers: Pointers,
        kind: Type,
        groups: Groups,
        guards: Guards,
        other: Value,
        ends: Sequence[int] = (),
    ) -> Value:
        """Load registers, where guards are true; `other` is one element.

        The guards at `ends`, where there are some, imply the others.
        """
        f, registers, width = self.f, len(guards), groups.width
        size = kind.bits // 8

        def wide() -> list[Value]:
            part = kind.with_lanes(width if width > 1 else 0)
            return [f.load(part, pointers(r), groups.align) for r in range(0, registers, width)]

        def one(r: int, n: int = 1) -> Value:
            guard, part = guards[r], kind.with_lanes(n if n > 1 else 0)
            align = groups.align if n > 1 else size
            if guard is None:
                return f.load(part, pointers(r), align)
            filling = self.splat(other, n)
            (x,) = self.when(guard, lambda: [f.load(part, pointers(r), align)], lambda: [filling])
            return x

        def single() -> list[Value]:
            steps = self._together(groups, guards)
            parts = [[one(r + i, n) for i in range(0, width, n)] for r, n in steps]
            return [self.joined(part) for part in parts]

        every = self._every([*([guards[i] for i in ends] or guards), groups.aligned])
        if every is None:
            return self.joined(wide())
        if registers == width and self._together(groups, guards) == [(0, width)]:
            return one(0, width)
        return self.joined(self.when(every, wide, single))

    def _together(self, groups: Groups, guards: Guards) -> list[tuple[int, int]]:
        """Of groups, the first register and how many of them are there or not as one."""
        width = groups.width

        def size(r: int) -> int:
            same = all(g is guards[r] for g in guards[r : r + width])
            return width if same and groups.aligned is None else 1

        return [(r, size(r)) for r in range(0, len(guards), width)]

    def _read_eagerly(
        self,
        pointers: Pointers,
        kind: Type,
        groups: Groups,
        guards: Guards,
        other: Value,
        base: Value,
    ) -> Value:
        """Load registers without branches: where guards are false, from the buffer's start."""
        f, parts = self.f, []
        for first, n in self._together(groups, guards):
            part = kind.with_lanes(n if n > 1 else 0)
            align = groups.align if n > 1 else kind.bits // 8
            for r in range(first, first + groups.width, n):
                guard = guards[r]
                if guard is None:
                    parts.append(f.load(part, pointers(r), align))
                    continue
                loaded = f.load(part, f.select(guard, pointers(r), base), align)
                parts.append(f.select(guard, loaded, self.splat(other, n)))
        return self.joined(parts)

    def overwrite(
        self,
        pointers: Pointers,
        x: Value,
        groups: Groups,
        guards: Guards,
        flags: str = "",
        ends: Sequence[int] = (),
    ) -> None:
        """Store registers where guards are true; `ends` as for `read`."""
        f, width = self.f, groups.width
        registers, size = x.type.lanes or 1, x.type.bits // 8

        def put(r: int, n: int) -> list[Value]:
            part = f.shuffle(x, None, range(r, r + n)) if n > 1 else self.register(x, r)
            f.store(part, pointers(r), groups.align if n > 1 else size, flags)
            return []

        def wide() -> list[Value]:
            for r in range(0, registers, width):
                put(r, width)
            return []

        def single() -> list[Value]:
            for first, n in self._together(groups, guards):
                for r in range(first, first + width, n):
                    guard = guards[r]
                    if guard is None:
                        put(r, n)
                    else:
                        self.when(guard, lambda r=r, n=n: put(r, n))  # type: ignore[misc]
            return []

        every = self._every([*([guards[i] for i in ends] or guards), groups.aligned])
        if every is None:
            wide()
        elif registers == width and self._together(groups, guards) == [(0, width)]:
            single()
        else:
            self.when(every, wide, single)

    # Tiles

    def load_tile(
        self,
        where: Spread,
        dtype: str,
        layout: Layout,
        mask: Masks = None,
        other: Any = 0,
        ends: Sequence[int] = (),
        eager: bool = False,
    ) -> Value:
        """The elements of a tile, in registers; `ends` as for `read`."""
        memory = self.memory_type(where.buffer.dtype)
        if dtype != where.buffer.dtype:
            memory = self.memory_type(dtype)
        pointers, guards = self._pointers(where, layout), self.both(self.guards(layout), mask)
        groups = self._groups(where, layout, memory.bits // 8)
        filling = llvm.const(memory, other) if mask is not None else llvm.undef(memory)
        if eager and mask is not None and not ends:
            base = self.addresses[where.buffer.name]
            loaded = self._read_eagerly(pointers, memory, groups, guards, filling, base)
        else:
            loaded = self.read(pointers, memory, groups, guards, filling, ends)
        return self.from_memory(loaded, dtype)

    def store_tile(
        self,
        where: Spread,
        dtype: str,
        layout: Layout,
        x: Value,
        mask: Masks = None,
        flags: str = "",
        ends: Sequence[int] = (),
    ) -> None:
        """Write the elements of a tile, each once; `ends` as for `read`."""
        memory = self.memory_type(where.buffer.dtype)
        guards, pointers = self.both(self.guards(layout), mask), self._pointers(where, layout)
        groups = self._groups(where, layout, memory.bits // 8)
        x = self.to_memory(x, dtype, memory)

        def write() -> list[Value]:
            self.overwrite(pointers, x, groups, guards, flags, ends)
            return []

        owner = self.owner(layout)
        if owner is None:
            write()
        else:
            self.when(owner, write)

    # Ops

    def memory_operands(
        self, op: ops.Load | ops.Store, skip: int
    ) -> tuple[Spread, tile.Value | None, tuple[int, ...]]:
        """Where a load or store is, its mask, and the numbers of the values that say where."""
        rest = list(op.operands[skip:])
        mask = rest.pop() if op.masked else None
        numbers = (op.operands[0].number, *(v.number for v in rest))
        strides = tuple([s if s is not None else self.scalar(rest.pop(0)) for s in op.strides])
        offset = self.scalar(op.operands[0])
        return Spread(op.buffer, offset, strides, op.divisibility), mask, numbers

    def pattern(
        self, shape: tuple[int, ...], strides: Sequence[int | None], numbers: tuple[int, ...]
    ) -> object:
        """What makes an access each thread's own: how threads hold it, and where it is."""
        return shape, tuple(strides), numbers

    def store_flags(self, op: ops.Store) -> str:
        """Behind the stores of an op."""
        return ", !nontemporal !{i32 1}" if op.streaming else ""

    @lowers(ops.Load)
    def lower_load(self, op: ops.Load) -> list[Rep]:
        t = op.results[0].type
        where, mask, numbers = self.memory_operands(op, 1)
        if not t.shape:
            self.access(where.buffer, "read")
            return [self.load_scalar(where.buffer, op.operands[0], t.dtype, mask, op.other)]
        layout = self.layout(t.shape)
        self.access(where.buffer, "read", self.pattern(t.shape, op.strides, numbers), numbers)
        ends, masks = _ENDS[op.mask_form], self.masks(op, layout)
        other, eager = op.other, op.eager
        return [Held(self.load_tile(where, t.dtype, layout, masks, other, ends, eager))]

    def masks(self, op: Tiled, layout: Layout) -> list[Value] | None:
        """For each register whether the mask is true: one value for neighbours where it can be."""
        mask = op.mask
        if mask is None:
            return None
        if op.mask_constancy >= layout.width:
            groups = self.firsts(mask, layout)
            return [m for m in groups for _ in range(layout.width)]
        masks = self.in_registers(mask)
        return [self.register(masks, r) for r in range(layout.registers)]

    def firsts(self, v: tile.Value, layout: Layout) -> list[Value]:
        """Of each few elements that a thread holds side by side the first."""
        rep = self.rep(v)
        if isinstance(rep, Positional):
            first = self.evaluate(rep, self.leaders(layout))
            return [self.register(first, g) for g in range(layout.registers // layout.width)]
        held = self.in_registers(v)
        return [self.register(held, r) for r in range(0, layout.registers, layout.width)]

    def load_scalar(
        self,
        buffer: tile.Buffer,
        offset: tile.Value,
        dtype: str,
        mask: tile.Value | None,
        other: float | int,
    ) -> Value:
        """One element, in all threads."""
        kind = self.memory_type(dtype)
        size = kind.bits // 8

        def load() -> list[Value]:
            return [self.f.load(kind, self._uniform_pointer(buffer, self.scalar(offset)), size)]

        if mask is None:
            (x,) = load()
        else:
            (x,) = self.when(self.scalar(mask), load, lambda: [llvm.const(kind, other)])
        return self.from_memory(x, dtype)

    def _uniform_pointer(self, buffer: tile.Buffer, offset: Value) -> Value:
        return self.f.gep(self.addresses[buffer.name], offset, self.memory_type(buffer.dtype))

    @lowers(ops.Store)
    def lower_store(self, op: ops.Store) -> list[Rep]:
        value = op.operands[1]
        where, mask, numbers = self.memory_operands(op, 2)
        if not value.shape:
            self.access(where.buffer, "write", "first thread", store=id(op))
            self.store_scalar(where.buffer, op.operands[0], value, mask)
            return []
        layout = self.layout(value.shape)
        x, masks = self.in_registers(value), self.masks(op, layout)
        pattern = self.pattern(value.shape, op.strides, numbers)
        self.access(where.buffer, "write", pattern, numbers, id(op))
        flags, ends = self.store_flags(op), _ENDS[op.mask_form]
        self.store_tile(where, value.dtype, layout, x, masks, flags, ends)
        return []

    def store_scalar(
        self, buffer: tile.Buffer, offset: tile.Value, value: tile.Value, mask: tile.Value | None
    ) -> None:
        first = self.threads.compare("eq", self.threads.number, 0)
        if mask is not None:
            first = self.f.and_(first, self.scalar(mask))
        x = self.to_memory(self.scalar(value), value.dtype, self.memory_type(buffer.dtype))

        def write() -> list[Value]:
            pointer = self._uniform_pointer(buffer, self.scalar(offset))
            self.f.store(x, pointer, x.type.bits // 8)
            return []

        self.when(first, write)

    def atomic(self, combine: str, dtype: str, pointer: Value, x: Value) -> Value:
        """Combine into memory at once; what was there before."""
        name = atomic_operation(combine, dtype)
        extra = self.isa.atomic_metadata if dtype in tile.FLOATS else ""
        scope = self.isa.device_scope
        return self.f.op(f"atomicrmw {name} {pointer}, {x} {scope}monotonic{extra}", x.type)

    @lowers(ops.Prefetch)
    def lower_prefetch(self, op: ops.Prefetch) -> list[Rep]:
        """Other waves run while one waits for memory."""
        return []
