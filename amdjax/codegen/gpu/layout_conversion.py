"""Ops that move elements between the threads of a workgroup.

A function of position moves by looking elsewhere, and what a thread holds already stays; all else
goes through LDS: written in one layout, read in another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import arrival, lowers
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.layout import Layout
from amdjax.codegen.gpu.memory import GpuMemory, Groups, Masks, Pointers, Spread
from amdjax.codegen.gpu.tiles import Coordinates, Held, Positional, Rep
from amdjax.codegen.llvm import I32, Type, Value
from amdjax.tile import ops

__all__ = ["GpuLayoutConversion"]

_CONSTANT = Type("ptr addrspace(4)")


#: Least rows and columns for which going through LDS pays.
_WORTH_TURNING = 8


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tile that lies row by row."""
    return (shape[-1], 1) if len(shape) == 2 else (1,)


class GpuLayoutConversion(GpuMemory):
    # Through LDS

    def put(
        self, dtype: str, shape: tuple[int, ...], x: Value, strides: Sequence[int], elements: int
    ) -> tile.Buffer:
        """A tile's registers in LDS."""
        buffer = self.temporary(dtype, elements)
        self.access(buffer, "write")
        self.store_tile(Spread(buffer, 0, tuple(strides)), dtype, self.layout(shape), x)
        return buffer

    def put_rows(self, v: tile.Value) -> tile.Buffer:
        """A tile in LDS, row by row."""
        size = self.layout(v.shape).size
        return self.put(v.dtype, v.shape, self.in_registers(v), row_major(v.shape), size)

    def take(
        self, buffer: tile.Buffer, shape: tuple[int, ...], offset: int, strides: Sequence[int]
    ) -> Held:
        """A tile out of LDS."""
        self.access(buffer, "read")
        where = Spread(buffer, offset, tuple(strides))
        return Held(self.load_tile(where, buffer.dtype, self.layout(shape)))

    # Shapes

    @lowers(ops.Expand)
    def lower_expand(self, op: ops.Expand) -> list[Rep]:
        x, axis = self.rep(op.operands[0]), op.axis
        if isinstance(x, Positional):
            return [self._elsewhere(x, ("expand", axis), lambda at, a: at.axis(1 - axis))]
        return [x]  # one axis of length one changes nothing about who holds what

    def _elsewhere(
        self,
        x: Positional,
        key: tuple[object, ...],
        axis: Callable[[Coordinates, int], Value],
        registers: int = 0,
    ) -> Positional:
        """A function of position whose elements are those of `x` at other positions."""

        def at(here: Coordinates) -> Value:
            there = Coordinates(
                (*key, here.key), registers or here.registers, lambda a: axis(here, a)
            )
            return self.evaluate(x, there)

        return Positional(at)

    @lowers(ops.Broadcast)
    def lower_broadcast(self, op: ops.Broadcast) -> list[Rep]:
        (v,) = op.operands
        x, shape = self.rep(v), op.results[0].shape
        if isinstance(x, Value):
            return [Positional(lambda at: self.splat(x, at.registers))]
        ahead = len(shape) - len(v.shape)
        if isinstance(x, Positional):

            def axis(at: Coordinates, a: int) -> Value:
                if v.shape[a] == 1 and shape[a + ahead] != 1:
                    return self.splat(llvm.const(I32, 0), at.registers)
                return at.axis(a + ahead)

            return [self._elsewhere(x, ("broadcast", v.shape, shape), axis)]
        assert isinstance(x, Held)
        if all(n == 1 for n in v.shape):
            return [Positional(lambda at: self.splat(x.value, at.registers))]
        found = self._at_hand(v.shape, x.value, shape)
        if found is not None:
            return [Held(found)]
        strides = row_major(v.shape)
        across = [0 if n == 1 else s for n, s in zip(v.shape, strides, strict=True)]
        return [self.take(self.put_rows(v), shape, 0, (*[0] * ahead, *across))]

    def _at_hand(self, source: tuple[int, ...], x: Value, shape: tuple[int, ...]) -> Value | None:
        """The broadcast tile where each thread holds what it needs of it, else None."""
        held = {p: r for r, p in enumerate(self.places(self.layout(source)))}
        nowhere = self.places(self.layout((1,)))[0][0]
        out = []
        for place in self.places(self.layout(shape)):
            near = place[len(shape) - len(source) :]
            wanted = tuple(nowhere if n == 1 else p for n, p in zip(source, near, strict=True))
            if wanted not in held:
                return None
            out.append(self.register(x, held[wanted]))
        return self.joined(out)

    @lowers(ops.Reshape)
    def lower_reshape(self, op: ops.Reshape) -> list[Rep]:
        (v,), shape = op.operands, op.results[0].shape
        if self.layout(v.shape).width == self.layout(shape).width:  # dealt in the same order
            return [Held(self.in_registers(v))]
        return [self.take(self.put_rows(v), shape, 0, row_major(shape))]

    @lowers(ops.Transpose)
    def lower_transpose(self, op: ops.Transpose) -> list[Rep]:
        (v,) = op.operands
        x, (rows, columns) = self.rep(v), v.shape
        if isinstance(x, Held) and min(rows, columns) > 1:
            return [self._transposed(v.dtype, v.shape, x.value)]
        return [self._turned(x)]

    def _turned(self, x: Rep) -> Rep:
        """The transpose of a tile that follows from position, or has one row or column."""
        if isinstance(x, Positional):
            return self._elsewhere(x, ("transpose",), lambda at, a: at.axis(1 - a))
        return x

    def _transposed(self, dtype: str, shape: tuple[int, ...], x: Value) -> Held:
        """Through LDS, where a word behind each row puts columns into different banks."""
        rows, columns = shape
        pitch = columns + max(4 // (self.memory_type(dtype).bits // 8), 1)
        buffer = self.put(dtype, shape, x, (pitch, 1), rows * pitch)
        return self.take(buffer, (columns, rows), 0, (1, pitch))

    # Tiles whose columns are contiguous in memory

    def _is_sideways(self, op: ops.Load | ops.Store, shape: tuple[int, ...]) -> bool:
        if len(shape) < 2 or min(shape) < _WORTH_TURNING:
            return False
        near, far = op.strides
        masked = op.masked
        return near == 1 != far and not (masked and isinstance(self.rep(op.operands[-1]), Held))

    @lowers(ops.Load)
    def lower_load(self, op: ops.Load) -> list[Rep]:
        v = op.results[0]
        if not self._is_sideways(op, v.shape):
            return super().lower_load(op)
        where, mask, numbers = self.memory_operands(op, 1)
        turned = v.shape[::-1]
        masks = None if mask is None else self.held(self._turned(self.rep(mask)), turned)
        where = replace(where, strides=where.strides[::-1])
        pattern = self.pattern(turned, op.strides[::-1], numbers)
        self.access(where.buffer, "read", pattern, numbers)
        x = self.load_tile(where, v.dtype, self.layout(turned), masks, op.other)
        return [self._transposed(v.dtype, turned, x)]

    @lowers(ops.Store)
    def lower_store(self, op: ops.Store) -> list[Rep]:
        v = op.operands[1]
        if not self._is_sideways(op, v.shape):
            return super().lower_store(op)
        where, mask, numbers = self.memory_operands(op, 2)
        turned, rep = v.shape[::-1], self.rep(v)
        if isinstance(rep, Held):
            rep = self._transposed(v.dtype, v.shape, rep.value)
        x = self.held(self._turned(rep) if isinstance(rep, Positional) else rep, turned)
        masks = None if mask is None else self.held(self._turned(self.rep(mask)), turned)
        where = replace(where, strides=where.strides[::-1])
        pattern = self.pattern(turned, op.strides[::-1], numbers)
        self.access(where.buffer, "write", pattern, numbers, id(op))
        self.store_tile(where, v.dtype, self.layout(turned), x, masks, self.store_flags(op))
        return []

    @lowers(ops.Extract)
    def lower_extract(self, op: ops.Extract) -> list[Rep]:
        (v,), lane = op.operands, op.lane
        x = self.rep(v)
        if len(v.shape) == 2:
            return [self._row(v, x, lane)]
        if isinstance(x, Positional):
            at = Coordinates(("lane", lane), 1, lambda _: llvm.const(I32, lane))
            return [self.evaluate(x, at)]
        assert isinstance(x, Held)
        return [self.element_of(v.dtype, v.shape, x.value, lane)]

    def _row(self, v: tile.Value, x: Rep, row: int) -> Rep:
        if isinstance(x, Positional):

            def axis(at: Coordinates, a: int) -> Value:
                return at.axis(0) if a else self.splat(llvm.const(I32, row), at.registers)

            return self._elsewhere(x, ("row", row), axis)
        return self.take(self.put_rows(v), v.shape[1:], row * v.shape[1], (1,))

    def element_of(self, dtype: str, shape: tuple[int, ...], x: Value, element: int) -> Value:
        """One element of a tile, in all threads."""
        layout = self.layout(shape)
        r, thread = layout.holder(element)
        one, wave = self.register(x, r), self.isa.wave
        if min(layout.period, self.workgroup) <= wave:  # each wave holds all of it
            return by_words(self.f, one, lambda word: self.isa.lane(self.f, word, thread))
        buffer = self.temporary(dtype, 1)
        self.access(buffer, "write")
        memory = self.memory_type(dtype)
        stored = self.to_memory(one, dtype, memory)

        def write() -> list[Value]:
            self.f.store(stored, self.addresses[buffer.name], memory.bits // 8)
            return []

        self.when(self.threads.compare("eq", self.threads.number, thread), write)
        self.access(buffer, "read")
        return self.from_memory(
            self.f.load(memory, self.addresses[buffer.name], memory.bits // 8), dtype
        )

    @lowers(ops.Shuffle)
    def lower_shuffle(self, op: ops.Shuffle) -> list[Rep]:
        v, lanes = op.operands[0], op.lanes
        x, shape = self.rep(v), (len(lanes),)
        if isinstance(x, Positional) and len(op.operands) == 1:
            place = self._picked
            return [self._elsewhere(x, ("shuffle", lanes), lambda at, a: place(lanes, at))]
        n = v.shape[0]
        held = [self.in_registers(o) for o in op.operands]
        buffer = self.temporary(v.dtype, n * len(held))
        self.access(buffer, "write")
        for i, part in enumerate(held):
            self.store_tile(Spread(buffer, i * n, (1,)), v.dtype, self.layout(v.shape), part)
        self.access(buffer, "read")
        picked = self._picked(lanes, self.coordinates(self.layout(shape)))
        offsets = self.f.int_resize(picked, self.index.elem, False)
        places = self._one_by_one(buffer, offsets)
        return [Held(self.gathered(buffer, *places, self.layout(shape)))]

    def _picked(self, lanes: tuple[int, ...], at: Coordinates) -> Value:
        """`lanes[i]` for each position `i`: computed if regular, else from a table."""
        f, i = self.f, at.axis(0)
        step = lanes[1] - lanes[0] if len(lanes) > 1 else 0
        if all(lane == lanes[0] + k * step for k, lane in enumerate(lanes)):
            scaled = f.mul(i, llvm.const(i.type, step))
            return f.add(scaled, llvm.const(i.type, lanes[0]))
        words = ", ".join(f"i32 {lane}" for lane in lanes)
        name = f"lanes.{len(f.module.globals)}"
        text = f"internal addrspace(4) constant [{len(lanes)} x i32] [{words}], align 4"
        f.module.add_global(name, text)
        table = Value(_CONSTANT, f"@{name}")
        last = llvm.const(i.type, len(lanes) - 1)
        inside = f.intrinsic("umin", i.type, i, last)  # also where there is no element
        picked = [
            f.load(I32, f.gep(table, f.cast("zext", self.register(inside, r), "i64"), I32), 4)
            for r in range(at.registers)
        ]
        return self.joined(picked)

    def gathered(
        self,
        buffer: tile.Buffer,
        pointers: Pointers,
        groups: Groups,
        layout: Layout,
        mask: Masks = None,
        other: float | int = 0,
    ) -> Value:
        """Elements of a buffer at the addresses that threads have."""
        kind = self.memory_type(buffer.dtype)
        guards = self.both(self.guards(layout), mask)
        fill = llvm.undef(kind) if mask is None else llvm.const(kind, other)
        return self.from_memory(self.read(pointers, kind, groups, guards, fill), buffer.dtype)

    def scattered(
        self,
        buffer: tile.Buffer,
        pointers: Pointers,
        groups: Groups,
        x: Value,
        layout: Layout,
        mask: Masks = None,
    ) -> None:
        """Write elements to addresses that differ."""
        stored = self.to_memory(x, buffer.dtype, self.memory_type(buffer.dtype))
        guards, owner = self.both(self.guards(layout), mask), self.owner(layout)

        def write() -> list[Value]:
            self.overwrite(pointers, stored, groups, guards)
            return []

        write() if owner is None else self.when(owner, write)

    def _places(self, op: ops.LoadAt | ops.StoreAt) -> tuple[Pointers, Groups]:
        """Addresses of the elements at a tile of offsets, and how many neighbours move at once."""
        buffer, v = op.buffer, op.offsets
        layout = self.layout(v.shape)
        size = self.memory_type(buffer.dtype).bits // 8
        if op.contiguity < layout.width or layout.width == 1:
            return self._one_by_one(buffer, self.in_registers(v))
        firsts, width = self.firsts(v, layout), layout.width
        first = op.divisibility if op.contiguity == width else min(op.divisibility, width)
        known = min(16 if buffer.role == "scratch" else self.kernel.align, first * size)
        while width > 1 and self.isa.alignment(width * size, size) > known:
            width //= 2

        def pointer(r: int) -> Value:
            group, step = divmod(r, layout.width)
            place = firsts[group]
            return self.pointer(buffer, self.f.add(place, llvm.const(place.type, step)))

        return pointer, Groups(width, max(size, self.isa.alignment(width * size, size)))

    def _one_by_one(self, buffer: tile.Buffer, offsets: Value) -> tuple[Pointers, Groups]:
        """Addresses of elements at the offsets that a thread holds."""

        def pointer(r: int) -> Value:
            return self.pointer(buffer, self.register(offsets, r))

        return pointer, Groups(1, self.memory_type(buffer.dtype).bits // 8)

    @lowers(ops.LoadAt)
    def lower_load_at(self, op: ops.LoadAt) -> list[Rep]:
        buffer, v = op.buffer, op.operands[0]
        mask = op.operands[1] if op.masked else None
        if not v.shape:
            self.access(buffer, "read")
            return [self.load_scalar(buffer, v, buffer.dtype, mask, op.other)]
        layout = self.layout(v.shape)
        places = self._places(op)
        masks = self.masks(op, layout)
        self.access(buffer, "read")
        return [Held(self.gathered(buffer, *places, layout, masks, op.other))]

    @lowers(ops.StoreAt)
    def lower_store_at(self, op: ops.StoreAt) -> list[Rep]:
        buffer, (v, value) = op.buffer, op.operands[:2]
        mask = op.operands[2] if op.masked else None
        if not v.shape:
            self.access(buffer, "write", "first thread", store=id(op))
            self.store_scalar(buffer, v, value, mask)
            return []
        layout, x = self.layout(v.shape), self.in_registers(value)
        if op.unique:
            places, masks = self._places(op), self.masks(op, layout)
            self.access(buffer, "write", store=id(op))
            self.scattered(buffer, *places, x, layout, masks)
            return []
        offsets = self.in_registers(v)
        alive = None if mask is None else self.in_registers(mask)
        last = self._last_of_equals(offsets, alive, v.shape)
        self.access(buffer, "write")
        self.scattered(buffer, *self._one_by_one(buffer, offsets), x, layout, last)
        return []

    def _last_of_equals(self, offsets: Value, mask: Value | None, shape: tuple[int, ...]) -> Value:
        """Elements behind which no other has the same offset; they are compared one by one."""
        f, layout = self.f, self.layout(shape)
        none = llvm.const(offsets.type, -1)
        known = offsets if mask is None else f.select(mask, offsets, none)
        buffer = self.temporary("index", layout.size)
        self.access(buffer, "write")
        self.store_tile(Spread(buffer, 0, (1,)), "index", layout, known)
        self.access(buffer, "read")
        axis = self.coordinates(layout).axis(0)
        if len(shape) == 2:
            rows = f.mul(axis, llvm.const(axis.type, shape[1]))
            axis = f.add(rows, self.coordinates(layout).axis(1))
        alive = mask or llvm.const(axis.type.with_elem("i1"), True)

        def compare(i: Value, carried: list[Value]) -> list[Value]:
            other = f.load(self.index, f.gep(self.addresses[buffer.name], i, self.index), 4)
            same = f.icmp("eq", known, self.splat(other, layout.registers))
            later = f.icmp("sgt", self.splat(i, layout.registers), axis)
            return [f.and_(carried[0], f.not_(f.and_(same, later)))]

        bounds = llvm.const(I32, 0), llvm.const(I32, layout.size)
        (alive,) = f.loop(*bounds, 1, [alive], compare)
        return alive

    @lowers(ops.Atomic)
    def lower_atomic(self, op: ops.Atomic) -> list[Rep]:
        """One thread does it for a scalar; for a tile, each for its elements."""
        buffer, (v, value) = op.buffer, op.operands[:2]
        mask = op.operands[2] if op.attrs.get("masked") else None
        self.access(buffer, "atomic", None if v.shape else "first thread")
        if v.shape:
            return [self._atomic_tile(op, buffer, v, value, mask)]
        first = self.threads.compare("eq", self.threads.number, 0)
        if mask is not None:
            first = self.f.and_(first, self.scalar(mask))
        (old,) = self.when(
            first,
            lambda: [self._atomic(op, self.scalar(v), self.scalar(value))],
            lambda: [llvm.zero(self.vector(value.dtype, 1))],
        )
        if op.results[0].number not in self.used:
            return [old]
        if self.workgroup > self.isa.wave:
            return [self.element_of(value.dtype, (self.workgroup,), old, 0)]
        return [by_words(self.f, old, lambda word: self.isa.lane(self.f, word, 0))]

    def _atomic(self, op: ops.Atomic, offset: Value, x: Value) -> Value:
        return self.atomic(op.combine, op.operands[1].dtype, self.pointer(op.buffer, offset), x)

    def _atomic_tile(
        self,
        op: ops.Atomic,
        buffer: tile.Buffer,
        v: tile.Value,
        value: tile.Value,
        mask: tile.Value | None,
    ) -> Rep:
        layout = self.layout(v.shape)
        offsets, x = self.in_registers(v), self.in_registers(value)
        masks = None if mask is None else self.in_registers(mask)
        guards = self.both(self.both(self.guards(layout), masks), self.owner(layout))
        old, nothing = [], llvm.zero(x.type.with_lanes(0))
        for r, guard in enumerate(guards):

            def one(r: int = r) -> list[Value]:
                return [self._atomic(op, self.register(offsets, r), self.register(x, r))]

            old += one() if guard is None else self.when(guard, one, lambda: [nothing])
        before = self.joined(old)
        if layout.period == self.workgroup or op.results[0].number not in self.used:
            return Held(before)
        shared = self.temporary(value.dtype, layout.size)  # threads that did nothing learn it too
        self.access(shared, "write")
        strides = row_major(v.shape)
        self.store_tile(Spread(shared, 0, strides), value.dtype, layout, before)
        return self.take(shared, v.shape, 0, strides)

    @lowers(ops.Arrive)
    def lower_arrive(self, op: ops.Arrive) -> list[Rep]:
        """One thread arrives for all of them, behind their stores, and tells them."""
        waves = self.workgroup // self.isa.wave
        self.isa.gather(self.f, waves)
        self.barriers.waited()
        counter = self._uniform_pointer(op.buffer, self.scalar(op.operands[0]))
        told = self.temporary("bool", 1)
        place = self.addresses[told.name]
        self.access(told, "write")

        def arrive() -> list[Value]:
            self.isa.release(self.f)  # NVPTX drops the ordering of an atomic itself
            suffix = f"{self.isa.device_scope}monotonic{self.isa.atomic_metadata}"
            last = arrival(self.f, counter, op.programs, suffix)
            self.isa.acquire(self.f)
            self.f.store(self.f.cast("zext", last, "i8"), place, 1)
            return []

        self.once(arrive)
        # Also of global memory: what the one thread may see now, all may.
        self.isa.barrier(self.f, waves, only_lds=False)
        self.barriers.waited()
        self.access(told, "read")
        return [self.f.icmp("ne", self.f.load(Type("i8"), place, 1), llvm.const(Type("i8"), 0))]

    @lowers(ops.Compress)
    def lower_compress(self, op: ops.Compress) -> list[Rep]:
        """Elements that are kept go to the front, the others to the back."""
        f, (v, mask) = self.f, op.operands
        x, keep = self.in_registers(v), self.in_registers(mask)
        (n,) = v.shape
        sofar = self.scanned("add", "i32", f.cast("zext", keep, "i32"), n, reverse=False)
        place = self.coordinates(self.layout(v.shape)).axis(0)
        left = f.sub(llvm.const(place.type, n - 1), f.sub(place, sofar))
        offsets = f.select(keep, f.sub(sofar, llvm.const(place.type, 1)), left)
        buffer = self.temporary(v.dtype, n)
        self.access(buffer, "write")
        places = self._one_by_one(buffer, f.int_resize(offsets, self.index.elem, True))
        self.scattered(buffer, *places, x, self.layout(v.shape))
        return [self.take(buffer, v.shape, 0, (1,))]

    @abstractmethod
    def scanned(self, name: str, dtype: str, x: Value, n: int, reverse: bool) -> Value:
        """Inclusive scan of `n` elements, each with those before it."""
