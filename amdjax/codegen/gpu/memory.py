"""Loads and stores of tiles by a workgroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.accesses import (
    BlockPointer,
    Masks,
    Places,
    VectorAccess,
    element_pointers,
    gathered,
    load_tile,
    pointer,
    scattered,
    store_element,
    store_tile,
)
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.layout import Layout
from amdjax.codegen.gpu.layout_conversion import transposed, transposed_rep
from amdjax.codegen.gpu.positions import AnyLayout, Held, Positional, Rep
from amdjax.codegen.gpu.registers import from_memory, register, splat, to_memory
from amdjax.codegen.gpu.warpgroup_tiles import cell_layout, copy_tile
from amdjax.codegen.llvm import I32, Value
from amdjax.tile import ops
from amdjax.tile.axis_info import minor_axis

LOWERINGS = Lowerings()

_Access = ops.Load | ops.Store | ops.LoadAt | ops.StoreAt

#: Which of a thread's elements, whose positions grow, are inside only if all are, by the form of a
#: mask.
_ENDS: dict[str, tuple[int, ...]] = {"": (), "prefix": (-1,), "interval": (0, -1)}
#: Least rows and columns for which transposing through LDS pays.
_WORTH_TRANSPOSING = 8


@dataclass(frozen=True)
class _Operands:
    """Where a load or store is.

    Args:
      where: in memory.
      mask: which elements are there; None for all.
      values: numbers of the SSA values that say where.
    """

    where: BlockPointer
    mask: tile.Value | None
    values: tuple[int, ...]


def _operands(g: GpuEmitter, op: ops.Load | ops.Store, skip: int) -> _Operands:
    rest = list(op.operands[skip:])
    mask = rest.pop() if op.masked else None
    values = (op.operands[0].number, *(v.number for v in rest))
    strides = tuple([s if s is not None else g.scalar(rest.pop(0)) for s in op.strides])
    offset = op.operands[0]
    added = offset.number in g.added_offsets and not g.buffers.is_shifted(op.buffer)
    where = BlockPointer(op.buffer, g.scalar(offset), strides, op.divisibility, added)
    return _Operands(where, mask, values)


def _pattern(layout: AnyLayout, strides: Sequence[int | None], values: tuple[int, ...]) -> object:
    """What makes an access each thread's own: how threads hold it, and where it is."""
    return layout, tuple(strides), values


def _flags(op: ops.Store) -> str:
    """Behind the stores of an op."""
    return ", !nontemporal !{i32 1}" if op.streaming else ""


@LOWERINGS.of(ops.Load)
def lower_load(g: GpuEmitter, op: ops.Load) -> list[Rep]:
    t = op.results[0].type
    if op.result.number in g.copied.tiles:
        cells = cell_layout((t.shape[0], t.shape[1]), g.workgroup, g.types.bytes(t.dtype))
        return [copy_tile(g, op, _operands(g, op, 1).where, cells, _masks(g, op, cells))]
    if _is_column_major(g, op, op.result):
        return [_load_transposed(g, op)]
    at = _operands(g, op, 1)
    buffer = at.where.buffer
    if not t.shape:
        g.buffers.access(buffer, "read")
        return [_load_scalar(g, buffer, op.operands[0], t.dtype, at.mask, op.other)]
    layout = g.layout(op.result)
    g.buffers.access(buffer, "read", _pattern(layout, op.strides, at.values), at.values)
    ends, masks = _ends(op, layout), _masks(g, op, layout)
    return [Held(load_tile(g, at.where, t.dtype, layout, masks, op.other, ends, op.eager))]


@LOWERINGS.of(ops.Store)
def lower_store(g: GpuEmitter, op: ops.Store) -> list[Rep]:
    value = op.operands[1]
    if _is_column_major(g, op, value):
        _store_transposed(g, op)
        return []
    at = _operands(g, op, 2)
    buffer = at.where.buffer
    if not value.shape:
        g.buffers.access(buffer, "write", "first thread", store=id(op))
        _store_scalar(g, buffer, op.operands[0], value, at.mask)
        return []
    layout = g.layout(value)
    x, masks = g.where_held(value), _masks(g, op, layout)
    pattern = _pattern(layout, op.strides, at.values)
    g.buffers.access(buffer, "write", pattern, at.values, id(op))
    store_tile(g, at.where, value.dtype, layout, x, masks, _flags(op), _ends(op, layout))
    return []


def _ends(op: ops.Load | ops.Store, layout: AnyLayout) -> tuple[int, ...]:
    """Of which elements of a thread the masks imply those of all."""
    return _ENDS[op.mask_form] if isinstance(layout, Layout) else ()


def _masks(g: GpuEmitter, op: _Access, layout: AnyLayout) -> list[Value] | None:
    """For each register whether the mask is true: one value for neighbors where it can be."""
    mask = op.mask
    if mask is None or (g.exit is not None and mask.number == g.exit.mask.number):
        return None
    if op.mask_constancy >= layout.width and layout.minor_axis == minor_axis(layout.shape):
        return [m for m in _firsts(g, mask, layout) for _ in range(layout.width)]
    masks = g.in_layout(mask, layout)
    return [register(g.f, masks, r) for r in range(layout.registers)]


def _firsts(g: GpuEmitter, v: tile.Value, layout: AnyLayout) -> list[Value]:
    """Of each few elements that a thread holds side by side the first."""
    rep = g.rep(v)
    if isinstance(rep, Positional):
        first = g.evaluate(rep, g.layouts.leaders(layout))
        return [register(g.f, first, i) for i in range(layout.registers // layout.width)]
    held = g.in_layout(v, layout)
    return [register(g.f, held, r) for r in range(0, layout.registers, layout.width)]


# Numbers


def _load_scalar(
    g: GpuEmitter,
    buffer: tile.Buffer,
    offset: tile.Value,
    dtype: str,
    mask: tile.Value | None,
    other: float | int,
) -> Value:
    """One element, in all threads."""
    kind = g.types.memory(dtype)

    def load() -> list[Value]:
        return [g.f.load(kind, g.buffers.element(buffer, g.scalar(offset)), kind.bits // 8)]

    if mask is None:
        (x,) = load()
    else:
        (x,) = g.when(g.scalar(mask), load, lambda: [llvm.const(kind, other)])
    return from_memory(g.f, g.types, x, dtype)


def _store_scalar(
    g: GpuEmitter,
    buffer: tile.Buffer,
    offset: tile.Value,
    value: tile.Value,
    mask: tile.Value | None,
) -> None:
    first = g.threads.compare("eq", g.threads.number, 0)
    if mask is not None:
        first = g.f.and_(first, g.scalar(mask))
    x = to_memory(g.f, g.scalar(value), value.dtype, g.types.memory(buffer.dtype))
    g.when(first, lambda: store_element(g, x, g.buffers.element(buffer, g.scalar(offset))))


# Tiles whose columns are contiguous in memory


def _is_column_major(g: GpuEmitter, op: ops.Load | ops.Store, v: tile.Value) -> bool:
    if len(v.shape) < 2 or min(v.shape) < _WORTH_TRANSPOSING or not isinstance(g.layout(v), Layout):
        return False
    near, far = op.strides
    return near == 1 != far and not (op.masked and isinstance(g.rep(op.operands[-1]), Held))


def _transposed_access(
    g: GpuEmitter, at: _Operands, shape: tuple[int, ...]
) -> tuple[BlockPointer, Masks]:
    """Where the transpose of a tile is, whose shape is `shape`, and its mask."""
    masks = None if at.mask is None else g.held(transposed_rep(g, g.rep(at.mask)), shape)
    where = at.where
    strides = where.strides[::-1]
    return replace(where, strides=strides), masks


def _load_transposed(g: GpuEmitter, op: ops.Load) -> Rep:
    v, at = op.results[0], _operands(g, op, 1)
    shape = v.shape[::-1]
    where, masks = _transposed_access(g, at, shape)
    pattern = _pattern(g.layouts.of(shape), op.strides[::-1], at.values)
    g.buffers.access(where.buffer, "read", pattern, at.values)
    x = load_tile(g, where, v.dtype, g.layouts.of(shape), masks, op.other)
    return transposed(g, v.dtype, shape, x)


def _store_transposed(g: GpuEmitter, op: ops.Store) -> None:
    v, at = op.operands[1], _operands(g, op, 2)
    shape, rep = v.shape[::-1], g.rep(v)
    if isinstance(rep, Held):
        rep = transposed(g, v.dtype, v.shape, g.in_registers(v))
    else:
        rep = transposed_rep(g, rep)
    x = g.held(rep, shape)
    where, masks = _transposed_access(g, at, shape)
    pattern = _pattern(g.layouts.of(shape), op.strides[::-1], at.values)
    g.buffers.access(where.buffer, "write", pattern, at.values, id(op))
    store_tile(g, where, v.dtype, g.layouts.of(shape), x, masks, _flags(op))


# Elements at offsets of their own


def _places(g: GpuEmitter, op: ops.LoadAt | ops.StoreAt) -> tuple[Places, VectorAccess]:
    """Addresses of the elements at a tile of offsets, and how many neighbors move at once."""
    buffer, v = op.buffer, op.offsets
    layout = g.layouts.of(v.shape)
    size = g.types.bytes(buffer.dtype)
    if op.contiguity < layout.width or layout.width == 1:
        return element_pointers(g, buffer, g.in_registers(v))
    firsts, width = _firsts(g, v, layout), layout.width
    first = op.divisibility if op.contiguity == width else min(op.divisibility, width)
    known = min(16 if buffer.role == "scratch" else g.kernel.align, first * size)
    while width > 1 and g.isa.alignment(width * size, size) > known:
        width //= 2

    def at(r: int, from_zero: bool = False) -> Value:
        group, step = divmod(r, layout.width)
        place = firsts[group]
        return pointer(g, buffer, g.f.add(place, llvm.const(place.type, step)), from_zero)

    return at, VectorAccess(width, max(size, g.isa.alignment(width * size, size)))


@LOWERINGS.of(ops.LoadAt)
def lower_load_at(g: GpuEmitter, op: ops.LoadAt) -> list[Rep]:
    buffer, v = op.buffer, op.operands[0]
    if not v.shape:
        mask = op.operands[1] if op.masked else None
        g.buffers.access(buffer, "read")
        return [_load_scalar(g, buffer, v, buffer.dtype, mask, op.other)]
    layout = g.layouts.of(v.shape)
    places, masks = _places(g, op), _masks(g, op, layout)
    g.buffers.access(buffer, "read")
    return [Held(gathered(g, buffer, *places, layout, masks, op.other))]


@LOWERINGS.of(ops.StoreAt)
def lower_store_at(g: GpuEmitter, op: ops.StoreAt) -> list[Rep]:
    buffer, (v, value) = op.buffer, op.operands[:2]
    mask = op.operands[2] if op.masked else None
    if not v.shape:
        g.buffers.access(buffer, "write", "first thread", store=id(op))
        _store_scalar(g, buffer, v, value, mask)
        return []
    layout, x = g.layouts.of(v.shape), g.in_registers(value)
    if op.unique:
        places, masks = _places(g, op), _masks(g, op, layout)
        g.buffers.access(buffer, "write", store=id(op))
        scattered(g, buffer, *places, x, layout, masks)
        return []
    offsets = g.in_registers(v)
    alive = None if mask is None else g.in_registers(mask)
    last = _last_of_equals(g, offsets, alive, v.shape)
    g.buffers.access(buffer, "write")
    scattered(g, buffer, *element_pointers(g, buffer, offsets), x, layout, last)
    return []


def _last_of_equals(
    g: GpuEmitter, offsets: Value, mask: Value | None, shape: tuple[int, ...]
) -> Value:
    """Elements behind which no other has the same offset; they are compared one by one."""
    f, layout, index = g.f, g.layouts.of(shape), g.types.index
    none = llvm.const(offsets.type, -1)
    known = offsets if mask is None else f.select(mask, offsets, none)
    buffer = g.buffers.temporary("index", layout.size)
    g.buffers.access(buffer, "write")
    store_tile(g, BlockPointer(buffer, 0, (1,)), "index", layout, known)
    g.buffers.access(buffer, "read")
    at = g.layouts.coordinates(layout)
    place = at.axis(0)
    if len(shape) == 2:
        rows = f.mul(place, llvm.const(place.type, shape[1]))
        place = f.add(rows, at.axis(1))
    alive = mask or llvm.const(place.type.with_elem("i1"), True)

    def compare(i: Value, carried: list[Value]) -> list[Value]:
        other = f.load(index, f.gep(g.buffers.address(buffer), i, index), 4)
        same = f.icmp("eq", known, splat(f, other, layout.registers))
        later = f.icmp("sgt", splat(f, i, layout.registers), place)
        return [f.and_(carried[0], f.not_(f.and_(same, later)))]

    bounds = llvm.const(I32, 0), llvm.const(I32, layout.size)
    (alive,) = f.loop(*bounds, 1, [alive], compare)
    return alive


@LOWERINGS.of(ops.Prefetch)
def lower_prefetch(g: GpuEmitter, op: ops.Prefetch) -> list[Rep]:
    """Other waves run while one waits for memory."""
    return []
