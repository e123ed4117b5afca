"""How the threads of a workgroup read and write memory.

A thread's registers that are neighbors in memory move in one access. Where a mask leaves all
elements of a thread alive, which is so everywhere but at the ends of arrays, the accesses are the
same as without a mask; other threads take a path with a branch for each element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.gpu.buffers import LDS
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.layout import Place
from amdjax.codegen.gpu.positions import AnyLayout
from amdjax.codegen.gpu.registers import from_memory, joined, register, splat, to_memory
from amdjax.codegen.llvm import I32, I64, Type, Value

__all__ = [
    "BlockPointer", "Guards", "Masks", "Places", "Pointers", "VectorAccess", "element_pointers",
    "gathered", "guarded", "load_tile", "overwrite", "pointer", "read", "scattered",
    "store_element", "store_tile", "tile_pointers",
]  # fmt: skip

Guards = Sequence[Value | None]
#: Of registers: each its own, as they are in a vector, or one for all.
Masks = Sequence[Value] | Value | None
#: Writes the address of a register's element.
Pointers = Callable[[int], Value]
#: What names a buffer, see `Buffers.resource`, and offsets from its address in place of addresses.
Bounded = tuple[Value, Pointers]
#: Accesses that are not worth a question for all of them.
FEW = 4
_WIDEST = 16
_REACH = 1 << 31
#: Bytes that accesses add as a constant, on most targets.
_CONSTANTS = 4096
#: The block with which a kernel begins.
_FIRST = "body"
_ZERO = Value(LDS, "null")


class Places(Protocol):
    """Writes the address of a register's element; `from_zero` as in `BlockPointer`."""

    def __call__(self, r: int, from_zero: bool = False) -> Value: ...


@dataclass(frozen=True)
class BlockPointer:
    """Where in a buffer a tile lies.

    Args:
      offset: of its first element.
      strides: one for each axis, in elements.
      divisibility: a power of two that divides the offset.
      in_offsets: whether the offset is not negative, and better added to those of threads than to
        the buffer's address.
      from_zero: whether addresses are wanted that are offsets from the buffer's, as those in LDS.
    """

    buffer: tile.Buffer
    offset: Value | int
    strides: tuple[int | Value, ...]
    divisibility: int = 1
    in_offsets: bool = False
    from_zero: bool = False


@dataclass(frozen=True)
class VectorAccess:
    """How registers move.

    Args:
      width: registers that move at once.
      alignment: of such accesses in bytes.
      aligned: whether they are that aligned, where it is known at run time only.
    """

    width: int
    alignment: int
    aligned: Value | None = None


# Addresses


def pointer(g: GpuEmitter, buffer: tile.Buffer, offset: Value, from_zero: bool = False) -> Value:
    """The address of one element, or of many; `from_zero` as in `BlockPointer`."""
    base = _ZERO if from_zero else g.buffers.address(buffer)
    kind = g.types.memory(buffer.dtype)
    if base.type == LDS:
        return g.f.gep(base, g.f.int_resize(offset, "i32", True), kind)
    return g.f.gep(base, _scaled(g, offset, kind.bits // 8), Type("i8"))


def _scaled(g: GpuEmitter, offset: Value, size: int) -> Value:
    """Elements as bytes from a buffer's start: never negative where anything is accessed."""
    if size > 1:
        offset = g.f.mul(offset, llvm.const(offset.type, size))
    return offset if offset.type == I64 else g.f.cast("zext", offset, "i64")


def tile_pointers(g: GpuEmitter, where: BlockPointer, layout: AnyLayout) -> Pointers:
    """The address of each register's element."""
    if all(isinstance(s, int) and s >= 0 for s in where.strides):
        return _static_pointers(g, where, layout)
    return _dynamic_pointers(g, where, layout)


def _dynamic_pointers(g: GpuEmitter, where: BlockPointer, layout: AnyLayout) -> Pointers:
    """An address for each step along strides that are known at run time, each from the one before.

    LLVM would look for what products that differ in a factor have in common, pair by pair.
    """
    f, kind, index = g.f, g.types.memory(where.buffer.dtype), g.types.index
    strides = [(s, _index(g, s)) for s in where.strides]
    steps: dict[tuple[int, ...], Value] = {}  # elements, by what they are multiples of
    known: dict[tuple[Any, tuple[int, ...]], Value] = {}
    begun: dict[Any, tuple[Value, tuple[int, ...]]] = {}  # the last address of each base

    def moved(start: Value, by: tuple[int, ...]) -> Value:
        if by not in steps:
            terms = [f.mul(s, llvm.const(index, n)) for (_, s), n in zip(strides, by) if n]
            steps[by] = functools.reduce(f.add, terms)
        return f.gep(start, steps[by], kind)

    def begin(place: Sequence[Place]) -> Value:
        total = _index(g, where.offset)
        for p, (_, stride) in zip(place, strides, strict=True):
            if p.base is not None:
                total = f.add(total, f.mul(f.int_resize(p.base, index.elem, False), stride))
        return f.gep(_ZERO if where.from_zero else g.buffers.address(where.buffer), total, kind)

    def split(place: Sequence[Place]) -> tuple[Any, tuple[int, ...], int]:
        """Bases, steps along strides known at run time, and elements along the others."""
        pairs = list(zip(place, where.strides, strict=True))
        far = tuple([0 if isinstance(s, int) else p.step for p, s in pairs])
        near = sum(p.step * s for p, s in pairs if isinstance(s, int))
        return tuple([p.base for p in place]), far, near

    parts = [split(place) for place in g.layouts.places(layout)]
    for place, (bases, far, _) in zip(g.layouts.places(layout), parts, strict=True):
        if (bases, far) not in known:
            start, since = begun.get(bases) or (begin(place), (0,) * len(far))
            by = tuple([n - m for n, m in zip(far, since, strict=True)])
            known[bases, far] = moved(start, by) if any(by) else start
            begun[bases] = known[bases, far], far

    def at(r: int) -> Value:
        bases, far, near = parts[r]
        start = known[bases, far]
        return f.gep(start, near, kind) if near else start

    return at


def _index(g: GpuEmitter, x: Value | int) -> Value:
    return llvm.const(g.types.index, x) if isinstance(x, int) else x


def _static_pointers(g: GpuEmitter, where: BlockPointer, layout: AnyLayout) -> Pointers:
    """A scalar address, to which threads add what depends on their number, then constants.

    The sum is written where it is used: an access adds a scalar address and 32 bits by itself
    if LLVM sees them in one block. Where those bits have the tile's offset, too, buffers that are
    read alike share them.
    """
    f, strides = g.f, [s for s in where.strides if isinstance(s, int)]
    size = g.types.bytes(where.buffer.dtype)
    base = _ZERO if where.from_zero else g.buffers.address(where.buffer)
    offset = where.offset
    lds = base.type == LDS
    shared: Value | None = None
    if where.in_offsets and isinstance(offset, Value) and not lds:
        scale = lambda: f.mul(offset, llvm.const(I32, size))
        shared = g.once_in_block(("scaled", offset.ref, size), scale)
    else:
        base = f.gep(base, offset, g.types.memory(where.buffer.dtype))
    places = g.layouts.places(layout)

    def at(r: int) -> Value:
        bases = [p.base for p in places[r]]
        step = sum(s * p.step for s, p in zip(strides, places[r], strict=True)) * size
        far = step // _CONSTANTS * _CONSTANTS if shared is not None and step > 0 else 0
        lanes = _lane_offset(g, bases, [s * size for s in strides], lds, shared, far)
        start = base if lanes is None else f.gep(base, lanes, Type("i8"))
        return f.gep(start, step - far, Type("i8")) if step - far else start

    return at


def _lane_offset(
    g: GpuEmitter, bases: Sequence[Value | None], strides: Sequence[int], lds: bool,
    shared: Value | None, more: int = 0,
) -> Value | None:  # fmt: skip
    """Bytes that depend on the thread: 32 bits, widened, which the address units add.

    `shared` of them all threads have, and `more` besides.
    """
    terms = [(b, s) for b, s in zip(bases, strides, strict=True) if b is not None and s]
    if not terms:
        return None if shared is None else g.f.cast("zext", _plus(g, shared, more), "i64")
    # More than any position of a thread along an axis.
    most = 2 * g.workgroup * max(g.layouts.vector, 1)
    far = g.types.index == I64 and not lds and any(s * most >= _REACH for _, s in terms)
    if far:
        wide = [(g.threads.widened(b), s) for b, s in terms]
        return g.threads.total([g.threads.apply("mul", b, s) for b, s in wide])
    total = g.threads.total([g.threads.apply("mul", b, s) for b, s in terms])
    if shared is None:
        return total if lds else g.f.cast("zext", total, "i64")

    def write() -> Value:
        x = g.f.add(total, shared)
        if g.f.block != _FIRST:  # LLVM would widen it where another block does, and add 64 bits
            x = g.isa.computed_here(g.f, x)
        return x

    offset = g.once_in_block(("offset", total.ref, shared.ref), write)
    return g.f.cast("zext", _plus(g, offset, more), "i64")


def _plus(g: GpuEmitter, offset: Value, more: int) -> Value:
    return g.f.op(f"add nuw {offset}, {more}", I32) if more else offset


def _vectorized(g: GpuEmitter, where: BlockPointer, layout: AnyLayout, size: int) -> VectorAccess:
    """How many neighbors of `size` bytes move at once, if they lie where they must."""
    f, index = g.f, g.types.index
    width = layout.width if where.strides and where.strides[layout.minor_axis] == 1 else 1
    needed = g.isa.alignment(width * size, size)
    scratch = where.buffer.role == "scratch"
    known = min(_WIDEST if scratch else g.kernel.align, where.divisibility * size)
    others = [s for a, s in enumerate(where.strides) if a != layout.minor_axis]
    static = [s * size for s in others if isinstance(s, int) and s]
    least = min([width * size, known, *(s & -s for s in static)])
    dynamic = [s for s in others if not isinstance(s, int)]
    if width == 1 or needed <= size or (least >= needed and not dynamic):
        return VectorAccess(width, size if dynamic else max(least, size))
    if any(s % needed for s in static):
        return VectorAccess(1, size)
    terms = [] if scratch else [g.buffers.low_bits(where.buffer)]
    for x in (where.offset, *dynamic):
        scaled = f.mul(_index(g, x), llvm.const(index, size))
        terms.append(f.int_resize(scaled, "i32", False))
    bits = functools.reduce(f.or_, terms)
    rest = f.and_(bits, llvm.const(I32, needed - 1))
    return VectorAccess(width, needed, f.icmp("eq", rest, llvm.const(I32, 0)))


def element_pointers(
    g: GpuEmitter, buffer: tile.Buffer, offsets: Value
) -> tuple[Places, VectorAccess]:
    """Addresses of elements at the offsets that a thread holds, which move one by one."""

    def at(r: int, from_zero: bool = False) -> Value:
        return pointer(g, buffer, register(g.f, offsets, r), from_zero)

    return at, VectorAccess(1, g.types.bytes(buffer.dtype))


# Elements


def guarded(g: GpuEmitter, guards: Guards, mask: Masks) -> Guards:
    """Guards, and masks of the registers or one for all of them."""
    if mask is None:
        return guards
    if isinstance(mask, Value):
        mask = [register(g.f, mask, i) for i in range(len(guards))]
    return [m if x is None else g.f.and_(x, m) for x, m in zip(guards, mask, strict=True)]


def _every(g: GpuEmitter, guards: Guards) -> Value | None:
    """Whether all are true; None if nothing needs to be asked."""
    every: Value | None = None
    for guard in dict.fromkeys(x for x in guards if x is not None):
        every = guard if every is None else g.f.and_(every, guard)
    return every


def _merged(access: VectorAccess, guards: Guards) -> list[tuple[int, int]]:
    """Of registers that move at once, the first and how many are there or not as one."""
    width = access.width

    def size(r: int) -> int:
        same = all(x is guards[r] for x in guards[r : r + width])
        return width if same and access.aligned is None else 1

    return [(r, size(r)) for r in range(0, len(guards), width)]


def _are_few(access: VectorAccess, guards: Guards, most: int = 1) -> bool:
    """Whether registers move in at most so many accesses, each of which is there or not as one."""
    return sum(access.width // n for _, n in _merged(access, guards)) <= most


def _guards_whole(access: VectorAccess, guards: Guards) -> bool:
    """Whether there are guards, each of all registers that move at once."""
    return any(guards) and _are_few(access, guards, len(guards) // access.width)


def _bounded(g: GpuEmitter, buffer: tile.Buffer, offsets: Callable[[], Pointers]) -> Bounded | None:
    resource = g.buffers.resource(buffer)
    return None if resource is None else (resource, offsets())


def read(
    g: GpuEmitter,
    pointers: Pointers,
    kind: Type,
    access: VectorAccess,
    guards: Guards,
    other: Value,
    ends: Sequence[int] = (),
    base: Value | None = None,
    bounded: Bounded | None = None,
) -> Value:
    """Load registers, where guards are true; `other` is one element.

    The guards at `ends`, where there are some, imply the others. Where a guard is false elements
    may be read from `base`, which takes no branch. Nor do loads of a buffer that is `bounded`.
    """
    f, registers, width = g.f, len(guards), access.width
    size, zero, undefined = kind.bits // 8, llvm.zero(kind), llvm.undef(kind)

    def wide() -> list[Value]:
        part = kind.with_lanes(width if width > 1 else 0)
        return [f.load(part, pointers(r), access.alignment) for r in range(0, registers, width)]

    def one(r: int, n: int = 1) -> Value:
        guard, part = guards[r], kind.with_lanes(n if n > 1 else 0)
        align = access.alignment if n > 1 else size
        if guard is None:
            return f.load(part, pointers(r), align)
        filling = splat(f, other, n)
        if bounded is not None:
            resource, offsets = bounded
            offset = f.op(f"ptrtoint {offsets(r)} to i32", I32)
            offset = g.isa.offset_if(f, guard, offset)
            found = g.isa.load_bounded(f, part, resource, offset)
            return found if other in (undefined, zero) else f.select(guard, found, filling)
        if base is not None:
            return f.select(guard, f.load(part, f.select(guard, pointers(r), base), align), filling)
        (x,) = g.when(guard, lambda: [f.load(part, pointers(r), align)], lambda: [filling])
        return x

    def single() -> list[Value]:
        steps = _merged(access, guards)
        parts = [[one(r + i, n) for i in range(0, width, n)] for r, n in steps]
        if bounded is not None and base is None:  # lest LLVM wait for some before it issues others
            g.isa.begin_region(f)
        return [joined(f, part) for part in parts]

    every = _every(g, [*([guards[i] for i in ends] or guards), access.aligned])
    if every is None:
        return joined(f, wide())
    if base is None:
        most = 1 if bounded is None else registers
    else:
        most = FEW if ends and bounded is None else registers
    if _are_few(access, guards, most):
        return joined(f, single())
    return joined(f, g.when(every, wide, single))


def overwrite(
    g: GpuEmitter,
    pointers: Pointers,
    x: Value,
    access: VectorAccess,
    guards: Guards,
    flags: str = "",
    ends: Sequence[int] = (),
) -> None:
    """Store registers where guards are true; `ends` as for `read`."""
    f, width = g.f, access.width
    registers, size = x.type.lanes or 1, x.type.bits // 8

    def put(r: int, n: int) -> list[Value]:
        part = f.shuffle(x, None, range(r, r + n)) if n > 1 else register(f, x, r)
        f.store(part, pointers(r), access.alignment if n > 1 else size, flags)
        return []

    def wide() -> list[Value]:
        for r in range(0, registers, width):
            put(r, width)
        return []

    def single() -> list[Value]:
        for first, n in _merged(access, guards):
            for r in range(first, first + width, n):
                guard = guards[r]
                if guard is None:
                    put(r, n)
                else:
                    g.when(guard, lambda r=r, n=n: put(r, n))  # type: ignore[misc]
        return []

    every = _every(g, [*([guards[i] for i in ends] or guards), access.aligned])
    if every is None:
        wide()
    elif _are_few(access, guards, FEW):
        single()
    else:
        g.when(every, wide, single)


# Tiles


def load_tile(
    g: GpuEmitter,
    where: BlockPointer,
    dtype: str,
    layout: AnyLayout,
    mask: Masks = None,
    other: Any = 0,
    ends: Sequence[int] = (),
    eager: bool = False,
) -> Value:
    """The elements of a tile, in registers; `ends` as for `read`."""
    memory = g.types.memory(dtype)
    pointers = tile_pointers(g, where, layout)
    guards = guarded(g, g.layouts.guards(layout), mask)
    access = _vectorized(g, where, layout, memory.bits // 8)
    base = g.buffers.address(where.buffer) if eager and mask is not None else None
    bounded = None
    if base is not None or _guards_whole(access, guards):
        offsets = lambda: tile_pointers(g, replace(where, from_zero=True), layout)
        bounded = _bounded(g, where.buffer, offsets)
    filling = llvm.const(memory, other) if mask is not None else llvm.undef(memory)
    loaded = read(g, pointers, memory, access, guards, filling, ends, base, bounded)
    return from_memory(g.f, g.types, loaded, dtype)


def store_tile(
    g: GpuEmitter,
    where: BlockPointer,
    dtype: str,
    layout: AnyLayout,
    x: Value,
    mask: Masks = None,
    flags: str = "",
    ends: Sequence[int] = (),
) -> None:
    """Write the elements of a tile, each once; `ends` as for `read`."""
    memory = g.types.memory(where.buffer.dtype)
    guards = guarded(g, g.layouts.guards(layout), mask)
    pointers = tile_pointers(g, where, layout)
    access = _vectorized(g, where, layout, memory.bits // 8)
    stored = to_memory(g.f, x, dtype, memory)
    _by_owner(g, layout, lambda: overwrite(g, pointers, stored, access, guards, flags, ends))


def _by_owner(g: GpuEmitter, layout: AnyLayout, write: Callable[[], None]) -> None:
    """Where threads repeat each other's elements, the first writes them."""

    def run() -> list[Value]:
        write()
        return []

    owner = g.layouts.owner(layout)
    if owner is None:
        write()
    else:
        g.when(owner, run)


def gathered(
    g: GpuEmitter,
    buffer: tile.Buffer,
    places: Places,
    access: VectorAccess,
    layout: AnyLayout,
    mask: Masks = None,
    other: float | int = 0,
) -> Value:
    """Elements of a buffer at the addresses that threads have."""
    kind = g.types.memory(buffer.dtype)
    guards = guarded(g, g.layouts.guards(layout), mask)
    fill = llvm.undef(kind) if mask is None else llvm.const(kind, other)
    bounded = None
    if _guards_whole(access, guards):
        bounded = _bounded(g, buffer, lambda: functools.partial(places, from_zero=True))
    loaded = read(g, places, kind, access, guards, fill, bounded=bounded)
    return from_memory(g.f, g.types, loaded, buffer.dtype)


def scattered(
    g: GpuEmitter,
    buffer: tile.Buffer,
    pointers: Pointers,
    access: VectorAccess,
    x: Value,
    layout: AnyLayout,
    mask: Masks = None,
) -> None:
    """Write elements to addresses that differ."""
    stored = to_memory(g.f, x, buffer.dtype, g.types.memory(buffer.dtype))
    guards = guarded(g, g.layouts.guards(layout), mask)
    _by_owner(g, layout, lambda: overwrite(g, pointers, stored, access, guards))


def store_element(g: GpuEmitter, x: Value, at: Value) -> list[Value]:
    """Store one element; a branch that yields nothing may consist of it."""
    g.f.store(x, at, x.type.bits // 8)
    return []
