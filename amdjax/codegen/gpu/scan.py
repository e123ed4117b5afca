"""Scans of tiles.

Within a thread, then over the lanes of a wave by permutes, then over waves through LDS. The order
depends on shape and layout alone, so results are the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.accesses import (
    BlockPointer,
    element_pointers,
    load_tile,
    scattered,
    store_element,
    store_tile,
)
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.layout import Layout
from amdjax.codegen.gpu.layout_conversion import put, take
from amdjax.codegen.gpu.positions import Held, Rep
from amdjax.codegen.gpu.reduce import filled
from amdjax.codegen.gpu.registers import elementwise, from_memory, joined, register, to_memory
from amdjax.codegen.llvm import I32, Value
from amdjax.tile import ops
from amdjax.tile.identities import identity

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.Cumulative)
def lower_cumulative(g: GpuEmitter, op: ops.Cumulative) -> list[Rep]:
    (v,), name, reverse = op.operands, op.combine, op.reverse
    if len(v.shape) == 2:
        return [_scanned_rows(g, name, v, reverse)]
    x = g.in_registers(v)
    return [Held(scanned(g, name, v.dtype, x, v.shape[0], reverse))]


def scanned(g: GpuEmitter, name: str, dtype: str, x: Value, n: int, reverse: bool) -> Value:
    """Inclusive scan of `n` elements, each with those before it."""
    layout, forward = g.layouts.of((n,)), -1 if reverse else 1
    neutral = llvm.const(x.type.with_lanes(0), identity(name, dtype, x.type.bits))
    x = filled(g, x, layout, neutral)
    chunks = []
    for c in range(0, layout.registers, layout.width):
        local = [register(g.f, x, r) for r in range(c, c + layout.width)][::forward]
        for i in range(1, layout.width):
            local[i] = elementwise(g.f, name, dtype, local[i - 1], local[i])
        chunks.append(local)
    chunks = chunks[::forward]
    lanes = [_over_lanes_below(g, name, dtype, c[-1], layout, neutral, reverse) for c in chunks]
    waves = _before_waves(g, name, dtype, [t for _, t in lanes], layout, neutral, reverse)
    out: list[Value] = []
    for local, (below, _), before in zip(chunks, lanes, waves, strict=True):
        start = elementwise(g.f, name, dtype, before, below)
        out += [elementwise(g.f, name, dtype, start, one) for one in local]
    return joined(g.f, out[::forward])


def _over_lanes_below(
    g: GpuEmitter, name: str, dtype: str, x: Value, layout: Layout, neutral: Value, reverse: bool
) -> tuple[Value, Value]:
    """What lanes before each one (behind, if `reverse`) hold together, and all of the wave."""
    f, t = g.f, g.threads
    lanes = min(layout.period, g.isa.wave)
    lane = t.apply("and", t.number, lanes - 1)

    def shifted(x: Value, distance: int) -> Value:
        moved = by_words(f, x, lambda word: g.isa.moved(f, word, distance, not reverse))
        inside = (
            t.compare("slt", lane, lanes - distance)
            if reverse
            else t.compare("sge", lane, distance)
        )
        return f.select(inside, moved, neutral)

    distance = 1
    while distance < lanes:
        x = elementwise(g.f, name, dtype, shifted(x, distance), x)
        distance *= 2
    below = shifted(x, 1) if lanes > 1 else neutral
    return below, g.from_lane(x, 0 if reverse else lanes - 1)


def _before_waves(
    g: GpuEmitter,
    name: str,
    dtype: str,
    totals: Sequence[Value],
    layout: Layout,
    neutral: Value,
    reverse: bool,
) -> list[Value]:
    """What comes before this thread's wave in each chunk, earlier chunks included."""
    t = g.threads
    waves = max(layout.period // g.isa.wave, 1)
    wave = t.apply("and", g.wave_number(), waves - 1)
    prefix, out = neutral, []
    for parts in _of_waves(g, dtype, totals, waves, layout, wave):
        before = prefix
        for w in range(waves)[:: -1 if reverse else 1]:
            if w != (waves - 1 if reverse else 0):
                reached = t.compare("sle" if reverse else "sge", wave, w)
                before = g.f.select(reached, prefix, before)
            prefix = elementwise(g.f, name, dtype, prefix, parts[w])
        out.append(before)
    return out


def _of_waves(
    g: GpuEmitter, dtype: str, totals: Sequence[Value], waves: int, layout: Layout, wave: Value
) -> list[list[Value]]:
    """The totals of all waves, in all threads."""
    if waves == 1:
        return [[total] for total in totals]
    f, t, memory = g.f, g.threads, g.types.memory(dtype)
    buffer = g.buffers.temporary(dtype, waves * len(totals))
    g.buffers.access(buffer, "write")
    writes = t.compare("eq", g.lane_number(), 0)
    if layout.period < g.workgroup:
        writes = f.and_(writes, t.compare("ult", t.number, layout.period))
    first = f.gep(g.buffers.address(buffer), wave, memory)

    def write() -> list[Value]:
        for i, total in enumerate(totals):
            store_element(g, to_memory(g.f, total, dtype, memory), f.gep(first, i * waves, memory))
        return []

    g.when(writes, write)
    g.buffers.access(buffer, "read")
    every = memory.with_lanes(waves)
    rows = [
        f.load(every, f.gep(g.buffers.address(buffer), i * waves, memory), memory.bits // 8)
        for i in range(len(totals))
    ]
    rows = [from_memory(g.f, g.types, row, dtype) for row in rows]
    return [[f.extract(row, w) for w in range(waves)] for row in rows]


def _scanned_rows(g: GpuEmitter, name: str, v: tile.Value, reverse: bool) -> Held:
    """Each row by a thread; a word behind each row puts them into different banks."""
    rows, columns = v.shape
    pitch = columns + max(4 // (g.types.memory(v.dtype).bits // 8), 1)
    buffer = put(g, v.dtype, v.shape, g.in_registers(v), (pitch, 1), rows * pitch)
    g.buffers.access(buffer, "write")
    target, dtype = g.layouts.of((rows,)), v.dtype
    first = columns - 1 if reverse else 0

    def column(i: Value) -> Value:
        return g.f.sub(llvm.const(I32, first), i) if reverse else i

    def body(i: Value, carried: list[Value]) -> list[Value]:
        with g.scope():
            where = BlockPointer(buffer, column(i), (pitch,))
            one = load_tile(g, where, dtype, target)
            total = elementwise(g.f, name, dtype, carried[0], one)
            store_tile(g, where, dtype, target, total)
        return [total]

    def scan_rows() -> list[Value]:
        start = load_tile(g, BlockPointer(buffer, first, (pitch,)), dtype, target)
        g.f.loop(llvm.const(I32, 1), llvm.const(I32, columns), 1, [start], body)
        return []

    if target.period < g.workgroup:  # threads that repeat rows would read what others wrote
        g.when(g.threads.compare("ult", g.threads.number, target.period), scan_rows)
    else:
        scan_rows()
    return take(g, buffer, v.shape, 0, (pitch, 1))


@LOWERINGS.of(ops.Compress)
def lower_compress(g: GpuEmitter, op: ops.Compress) -> list[Rep]:
    """Elements that are kept go to the front, the others to the back."""
    f, (v, mask) = g.f, op.operands
    x, keep = g.in_registers(v), g.in_registers(mask)
    (n,), layout = v.shape, g.layouts.of(v.shape)
    kept = scanned(g, "add", "i32", f.cast("zext", keep, "i32"), n, reverse=False)
    place = g.layouts.coordinates(layout).axis(0)
    left = f.sub(llvm.const(place.type, n - 1), f.sub(place, kept))
    offsets = f.select(keep, f.sub(kept, llvm.const(place.type, 1)), left)
    buffer = g.buffers.temporary(v.dtype, n)
    g.buffers.access(buffer, "write")
    wide = f.int_resize(offsets, g.types.index.elem, True)
    scattered(g, buffer, *element_pointers(g, buffer, wide), x, layout)
    return [take(g, buffer, v.shape, 0, (1,))]
