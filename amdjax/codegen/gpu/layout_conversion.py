"""Ops that move elements between the threads of a workgroup.

A function of position moves by looking elsewhere, and what a thread holds already stays; all else
goes through LDS: written in one layout, read in another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.accesses import (
    BlockPointer,
    element_pointers,
    gathered,
    load_tile,
    store_element,
    store_tile,
)
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.fragments import FragmentLayout
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.positions import AnyLayout, Coordinates, Held, Positional, Rep
from amdjax.codegen.gpu.registers import from_memory, joined, register, splat, to_memory
from amdjax.codegen.llvm import I32, Type, Value
from amdjax.tile import ops

LOWERINGS = Lowerings()

#: Registers of a tile from which a scalar operand of all is better read into a scalar register.
_MANY = 16

_CONSTANT = Type("ptr addrspace(4)")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tile that lies row by row."""
    return (shape[-1], 1) if len(shape) == 2 else (1,)


# Through LDS


def moved(g: GpuEmitter, x: Value, dtype: str, layout: AnyLayout, wanted: AnyLayout) -> Value:
    """Registers of one layout as those of another."""
    strides = row_major(layout.shape)
    buffer = g.buffers.temporary(dtype, math.prod(layout.shape))
    where = BlockPointer(buffer, 0, strides)
    g.buffers.access(buffer, "write")
    store_tile(g, where, dtype, layout, x)
    g.buffers.access(buffer, "read")
    return load_tile(g, where, dtype, wanted)


def put(
    g: GpuEmitter,
    dtype: str,
    shape: tuple[int, ...],
    x: Value,
    strides: Sequence[int],
    elements: int,
) -> tile.Buffer:
    """A tile's registers in LDS."""
    buffer = g.buffers.temporary(dtype, elements)
    g.buffers.access(buffer, "write")
    store_tile(g, BlockPointer(buffer, 0, tuple(strides)), dtype, g.layouts.of(shape), x)
    return buffer


def _put_rows(g: GpuEmitter, v: tile.Value) -> tile.Buffer:
    """A tile in LDS, row by row."""
    size = g.layouts.of(v.shape).size
    return put(g, v.dtype, v.shape, g.in_registers(v), row_major(v.shape), size)


def take(
    g: GpuEmitter, buffer: tile.Buffer, shape: tuple[int, ...], offset: int, strides: Sequence[int]
) -> Held:
    """A tile out of LDS."""
    g.buffers.access(buffer, "read")
    where = BlockPointer(buffer, offset, tuple(strides))
    return Held(load_tile(g, where, buffer.dtype, g.layouts.of(shape)))


def transposed(g: GpuEmitter, dtype: str, shape: tuple[int, ...], x: Value) -> Held:
    """Through LDS, where a word behind each row puts columns into different banks."""
    rows, columns = shape
    pitch = columns + max(4 // g.types.bytes(dtype), 1)
    buffer = put(g, dtype, shape, x, (pitch, 1), rows * pitch)
    return take(g, buffer, (columns, rows), 0, (1, pitch))


def transposed_rep(g: GpuEmitter, x: Rep) -> Rep:
    """The transpose of a tile that follows from position, or has one row or column."""
    if isinstance(x, Positional):
        return _repositioned(g, x, ("transpose",), lambda at, a: at.axis(1 - a))
    return x


def element_of(g: GpuEmitter, dtype: str, shape: tuple[int, ...], x: Value, element: int) -> Value:
    """One element of a tile, in all threads."""
    f, layout = g.f, g.layouts.of(shape)
    r, thread = layout.holder(element)
    one, wave = register(f, x, r), g.isa.wave
    if min(layout.period, g.workgroup) <= wave:  # each wave holds all of it
        return by_words(f, one, lambda word: g.isa.lane(f, word, thread))
    buffer = g.buffers.temporary(dtype, 1)
    g.buffers.access(buffer, "write")
    memory = g.types.memory(dtype)
    stored, at = to_memory(f, one, dtype, memory), g.buffers.address(buffer)
    holds = g.threads.compare("eq", g.threads.number, thread)
    g.when(holds, lambda: store_element(g, stored, at))
    g.buffers.access(buffer, "read")
    return from_memory(f, g.types, f.load(memory, at, memory.bits // 8), dtype)


# Shapes


def _repositioned(
    g: GpuEmitter, x: Positional, key: tuple[object, ...], axis: Callable[[Coordinates, int], Value]
) -> Positional:
    """A function of position whose elements are those of `x` at other positions."""

    def at(here: Coordinates) -> Value:
        there = Coordinates((*key, here.key), here.registers, lambda a: axis(here, a))
        return g.evaluate(x, there)

    return Positional(at)


@LOWERINGS.of(ops.Expand)
def lower_expand(g: GpuEmitter, op: ops.Expand) -> list[Rep]:
    (v,), axis = op.operands, op.axis
    x = g.rep(v)
    if isinstance(x, Positional):
        return [_repositioned(g, x, ("expand", axis), lambda at, a: at.axis(1 - axis))]
    layout = g.layout(op.result)
    if isinstance(layout, FragmentLayout):
        return [Held(g.in_layout(v, layout.without(axis)))]
    return [Held(g.in_registers(v))]  # an axis of length one changes nothing about who holds what


def _operand(g: GpuEmitter, v: tile.Value, x: Value, at: Coordinates) -> Value:
    """A scalar as all elements; many operations had better read it from a scalar register."""
    if v.dtype != "f32" or at.registers < _MANY or not g.isa.target.issues_pairs:
        return x
    return by_words(g.f, x, lambda word: g.isa.uniform(g.f, word))


@LOWERINGS.of(ops.Broadcast)
def lower_broadcast(g: GpuEmitter, op: ops.Broadcast) -> list[Rep]:
    (v,) = op.operands
    x, shape = g.rep(v), op.results[0].shape
    if isinstance(x, Value):
        return [Positional(lambda at: splat(g.f, _operand(g, v, x, at), at.registers))]
    new = len(shape) - len(v.shape)
    if isinstance(x, Positional):

        def axis(at: Coordinates, a: int) -> Value:
            if v.shape[a] == 1 and shape[a + new] != 1:
                return splat(g.f, llvm.const(I32, 0), at.registers)
            return at.axis(a + new)

        return [_repositioned(g, x, ("broadcast", v.shape, shape), axis)]
    assert isinstance(x, Held)
    if all(n == 1 for n in v.shape):
        return [Positional(lambda at: splat(g.f, x.value, at.registers))]
    found = _broadcast_in_registers(g, v, x.value, g.layout(op.result))
    if found is not None:
        return [Held(found)]
    strides = row_major(v.shape)
    across = [0 if n == 1 else s for n, s in zip(v.shape, strides, strict=True)]
    buffer = _put_rows(g, v)
    g.buffers.access(buffer, "read")
    where = BlockPointer(buffer, 0, (*[0] * new, *across))
    return [Held(load_tile(g, where, v.dtype, g.layout(op.result)))]


def _broadcast_in_registers(
    g: GpuEmitter, v: tile.Value, x: Value, layout: AnyLayout
) -> Value | None:
    """The broadcast tile where each thread holds what it needs of it, else None."""
    source, shape = v.shape, layout.shape
    held = {p: r for r, p in enumerate(g.layouts.places(g.layout(v)))}
    nowhere = g.layouts.places(g.layouts.of((1,)))[0][0]
    out = []
    for place in g.layouts.places(layout):
        near = place[len(shape) - len(source) :]
        wanted = tuple(nowhere if n == 1 else p for n, p in zip(source, near, strict=True))
        if wanted not in held:
            return None
        out.append(register(g.f, x, held[wanted]))
    return joined(g.f, out)


@LOWERINGS.of(ops.Reshape)
def lower_reshape(g: GpuEmitter, op: ops.Reshape) -> list[Rep]:
    (v,), shape = op.operands, op.results[0].shape
    if g.layouts.of(v.shape).width == g.layouts.of(shape).width:  # dealt in the same order
        return [Held(g.in_registers(v))]
    return [take(g, _put_rows(g, v), shape, 0, row_major(shape))]


@LOWERINGS.of(ops.Transpose)
def lower_transpose(g: GpuEmitter, op: ops.Transpose) -> list[Rep]:
    (v,) = op.operands
    x, layout = g.rep(v), g.layout(op.result)
    if v.number in g.copied.tiles:  # a place in LDS, where either is read
        return [x]
    if isinstance(x, Held) and isinstance(layout, FragmentLayout):
        return [Held(g.in_layout(v, layout.transposed))]
    if isinstance(x, Held) and isinstance(g.layout(v), FragmentLayout):
        x = Held(g.in_registers(v))
    if isinstance(x, Held) and min(v.shape) > 1:
        return [transposed(g, v.dtype, v.shape, x.value)]
    return [transposed_rep(g, x)]


@LOWERINGS.of(ops.Extract)
def lower_extract(g: GpuEmitter, op: ops.Extract) -> list[Rep]:
    (v,), lane = op.operands, op.lane
    x = g.rep(v)
    if len(v.shape) == 2:
        return [_row(g, v, x, lane)]
    if isinstance(x, Positional):
        at = Coordinates(("lane", lane), 1, lambda _: llvm.const(I32, lane))
        return [g.evaluate(x, at)]
    return [element_of(g, v.dtype, v.shape, g.in_registers(v), lane)]


def _row(g: GpuEmitter, v: tile.Value, x: Rep, row: int) -> Rep:
    if isinstance(x, Positional):

        def axis(at: Coordinates, a: int) -> Value:
            return at.axis(0) if a else splat(g.f, llvm.const(I32, row), at.registers)

        return _repositioned(g, x, ("row", row), axis)
    return take(g, _put_rows(g, v), v.shape[1:], row * v.shape[1], (1,))


@LOWERINGS.of(ops.Interleave)
def lower_interleave(g: GpuEmitter, op: ops.Interleave) -> list[Rep]:
    x, other = (g.rep(v) for v in op.operands)
    if isinstance(x, Positional) and isinstance(other, Positional):
        return [Positional(lambda at: _in_turns(g, x, other, op.axis, at))]
    dtype, shape = op.result.dtype, op.result.shape
    strides = row_major(shape)
    wide = tuple(s * (2 if a == op.axis else 1) for a, s in enumerate(strides))
    buffer = g.buffers.temporary(dtype, math.prod(shape))
    g.buffers.access(buffer, "write")
    for i, v in enumerate(op.operands):
        where = BlockPointer(buffer, i * strides[op.axis], wide)
        store_tile(g, where, dtype, g.layout(v), g.where_held(v))
    g.buffers.access(buffer, "read")
    layout = g.layout(op.result)
    return [Held(load_tile(g, BlockPointer(buffer, 0, strides), dtype, layout))]


def _in_turns(g: GpuEmitter, x: Positional, other: Positional, axis: int, at: Coordinates) -> Value:
    """Elements of both, once for two neighbors that a thread holds side by side."""
    f, n = g.f, at.registers
    one = splat(f, llvm.const(I32, 1), n)
    if at.pair_axis != axis:

        def half(a: int) -> Value:
            return f.lshr(at.axis(a), one) if a == axis else at.axis(a)

        there = Coordinates(("half", axis, at.key), n, half)
        odd = f.icmp("ne", f.and_(at.axis(axis), one), llvm.zero(one.type))
        return f.select(odd, g.evaluate(other, there), g.evaluate(x, there))

    def pair(a: int) -> Value:
        first = f.shuffle(at.axis(a), None, range(0, n, 2)) if n > 2 else f.extract(at.axis(a), 0)
        return f.lshr(first, splat(f, llvm.const(I32, 1), n // 2)) if a == axis else first

    there = Coordinates(("pair", axis, at.key), n // 2, pair)
    first, second = (g.evaluate(rep, there) for rep in (x, other))
    if n == 2:
        return joined(f, [first, second])
    return f.shuffle(first, second, [i + turn for i in range(n // 2) for turn in (0, n // 2)])


@LOWERINGS.of(ops.Shuffle)
def lower_shuffle(g: GpuEmitter, op: ops.Shuffle) -> list[Rep]:
    v, lanes = op.operands[0], op.lanes
    x, layout = g.rep(v), g.layouts.of((len(lanes),))
    if isinstance(x, Positional) and len(op.operands) == 1:
        return [_repositioned(g, x, ("shuffle", lanes), lambda at, a: _picked(g, lanes, at))]
    n = v.shape[0]
    held = [g.in_registers(o) for o in op.operands]
    buffer = g.buffers.temporary(v.dtype, n * len(held))
    g.buffers.access(buffer, "write")
    for i, part in enumerate(held):
        where = BlockPointer(buffer, i * n, (1,))
        store_tile(g, where, v.dtype, g.layouts.of(v.shape), part)
    g.buffers.access(buffer, "read")
    picked = _picked(g, lanes, g.layouts.coordinates(layout))
    offsets = g.f.int_resize(picked, g.types.index.elem, False)
    return [Held(gathered(g, buffer, *element_pointers(g, buffer, offsets), layout))]


def _picked(g: GpuEmitter, lanes: tuple[int, ...], at: Coordinates) -> Value:
    """`lanes[i]` for each position `i`: computed if regular, else from a table."""
    f, i = g.f, at.axis(0)
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
        f.load(I32, f.gep(table, f.cast("zext", register(f, inside, r), "i64"), I32), 4)
        for r in range(at.registers)
    ]
    return joined(f, picked)
