"""Reductions of tiles.

Within a thread, then between the lanes of a wave by permutes, then between waves through LDS. The
order depends on shape and layout alone, so results are the same in every run. Several tiles may be
reduced together: what stands for two elements then depends on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.accesses import BlockPointer, load_tile, pointer, store_element, store_tile
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.extrema import extremum, of_numbers, or_nan
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.layout import Place
from amdjax.codegen.gpu.layout_conversion import row_major
from amdjax.codegen.gpu.positions import AnyLayout, Held, Rep
from amdjax.codegen.gpu.registers import (
    elementwise,
    from_memory,
    joined,
    register,
    splat,
    to_memory,
)
from amdjax.codegen.llvm import I1, I32, Value
from amdjax.tile import ops
from amdjax.tile.identities import identity

LOWERINGS = Lowerings()

#: An element of each tile that is reduced, or registers of each.
Parts = Sequence[Value]


@dataclass(frozen=True)
class _Merge:
    """What combines elements of tiles that are reduced together.

    Args:
      dtypes: of the tiles.
      neutral: elements that change nothing.
      of: what stands for the elements at two places.
      expensive: whether that takes longer than a permute.
      packed: whether one instruction merges two elements with their neighbors.
      extremum: `max` or `min` of floats, where that had better be told of all at once.
    """

    dtypes: Sequence[str]
    neutral: Parts
    of: Callable[[Parts, Parts], Parts]
    expensive: bool = False
    packed: bool = False
    extremum: str = ""


@LOWERINGS.of(ops.Reduce)
def lower_reduce(g: GpuEmitter, op: ops.Reduce) -> list[Rep]:
    (v,), name = op.operands, op.combine
    kind = g.types.vector(v.dtype, 1)
    neutral = llvm.const(kind, identity(name, v.dtype, kind.bits))

    contracts = op.contracts and g.isa.target.is_amdgpu

    def merge(left: Parts, right: Parts) -> Parts:
        return [elementwise(g.f, name, v.dtype, left[0], right[0], relaxed=contracts)]

    def merge_numbers(left: Parts, right: Parts) -> Parts:
        return [of_numbers(g.f, name, left[0], right[0])]

    by_extremum = name in ("max", "min") and v.dtype in tile.FLOATS and not g.isa.passes_nan
    numbers = by_extremum and op.numbers
    one = _Merge(
        [v.dtype], [neutral], merge_numbers if numbers else merge,
        packed=name == "add" and v.dtype == "f32" and "f32" in g.isa.target.packed,
        extremum=name if by_extremum and not numbers else "",
    )  # fmt: skip
    reps = _reduced(g, one, op.operands, op.axis, op.results)
    return [_any_number(g, rep) for rep in reps] if numbers else reps


def _any_number(g: GpuEmitter, rep: Rep) -> Rep:
    """An extremum of numbers; where there were NaN among them, a number nevertheless."""
    assert isinstance(rep, Value | Held)
    return Held(g.f.freeze(rep.value)) if isinstance(rep, Held) else g.f.freeze(rep)


@LOWERINGS.of(ops.ReduceBy)
def lower_reduce_by(g: GpuEmitter, op: ops.ReduceBy) -> list[Rep]:
    n, (block,) = len(op.results), op.blocks
    tiles, neutral = op.operands[:n], [g.scalar(v) for v in op.operands[n:]]

    def one(left: Parts, right: Parts) -> list[Value]:
        return g.inlined(block, (*left, *right))

    def merge(left: Parts, right: Parts) -> Parts:
        lanes = left[0].type.lanes
        if not lanes:
            return one(left, right)
        sides = [[register(g.f, x, r) for x in (*left, *right)] for r in range(lanes)]
        merged = [one(both[:n], both[n:]) for both in sides]
        return [joined(g.f, registers) for registers in zip(*merged, strict=True)]

    together = _Merge([v.dtype for v in tiles], neutral, merge, expensive=True)
    return _reduced(g, together, tiles, op.axis, op.results)


def _reduced(
    g: GpuEmitter,
    merge: _Merge,
    tiles: Sequence[tile.Value],
    axis: int,
    results: Sequence[tile.Value],
) -> list[Rep]:
    shape, layout = tiles[0].shape, g.layout(tiles[0])
    bits = layout.thread_bits(axis)
    if bits is None:
        return _reduce_in_lds(g, merge, tiles, axis)
    if len(shape) == 1 and bits & bits + 1:  # lanes in between repeat elements
        layout = g.layouts.of(shape)
        bits = layout.thread_bits(axis)
        assert bits is not None
    held = [
        filled(g, g.in_layout(v, layout), layout, x)
        for v, x in zip(tiles, merge.neutral, strict=True)
    ]
    groups: dict[tuple[Place, ...], list[Parts]] = {}
    for r, place in enumerate(g.layouts.places(layout)):
        kept = (*place[:axis], *place[axis + 1 :])
        groups.setdefault(kept, []).append([register(g.f, x, r) for x in held])
    totals = _in_threads(g, merge, groups, columns=len(shape) == 2 and axis == 0)
    if len(shape) == 1:
        (total,) = totals.values()
        return list(_in_all_lanes(g, merge, total, bits))
    lanes = {kept[0]: _over_lanes(g, merge, t, bits) for kept, t in totals.items()}
    return _into_layout(g, merge, layout, axis, lanes, g.layout(results[0]))


def filled(g: GpuEmitter, x: Value, layout: AnyLayout, neutral: Value) -> Value:
    """Registers; those that hold no element get a value."""
    guards = g.layouts.guards(layout)
    if all(g is None for g in guards):
        return x
    alive = joined(g.f, [g or llvm.const(I1, True) for g in guards])
    return g.f.select(alive, x, splat(g.f, neutral, layout.registers))


def _in_threads(
    g: GpuEmitter, merge: _Merge, groups: dict[tuple[Place, ...], list[Parts]], columns: bool
) -> dict[tuple[Place, ...], Parts]:
    """Each group combined; neighbors in memory are in several groups where these are `columns`."""
    if not merge.packed:
        return {kept: _tree(g, merge, group) for kept, group in groups.items()}
    if columns and len(set(map(len, groups.values()))) == 1:
        lines = [[joined(g.f, [x for (x,) in line])] for line in zip(*groups.values(), strict=True)]
        (sums,) = _tree(g, merge, lines)
        return {kept: [register(g.f, sums, i)] for i, kept in enumerate(groups)}
    return {kept: _tree(g, merge, _halved(g, merge, group)) for kept, group in groups.items()}


def _halved(g: GpuEmitter, merge: _Merge, xs: Sequence[Parts]) -> Sequence[Parts]:
    """Few elements, of halves that are combined as vectors."""
    while len(xs) > 2 and len(xs) % 2 == 0:
        half = len(xs) // 2
        low, high = (joined(g.f, [x for (x,) in part]) for part in (xs[:half], xs[half:]))
        (sums,) = merge.of([low], [high])
        xs = [[g.f.extract(sums, i)] for i in range(half)]
    return xs


def _tree(g: GpuEmitter, merge: _Merge, xs: Sequence[Parts]) -> Parts:
    """All of them combined, neighbors first."""
    if merge.extremum:
        return [extremum(g.f, merge.extremum, [x for (x,) in xs])]
    while len(xs) > 1:
        pairs = [merge.of(a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)]
        xs = [*pairs, *xs[len(xs) & ~1 :]]
    return xs[0]


def _over_lanes(g: GpuEmitter, merge: _Merge, parts: Parts, bits: int) -> Parts:
    """Combined over the lanes of a wave that differ in the given bits of their number."""
    distance = 1
    while distance < g.isa.wave:
        if bits & distance:
            settled = bits & (distance - 1) == distance - 1
            others = [_partner(g, x, distance, settled) for x in parts]
            parts = merge.of(parts, others)
        distance *= 2
    return parts


def _partner(g: GpuEmitter, x: Value, distance: int, settled: bool) -> Value:
    f = g.f
    return by_words(f, x, lambda word: g.isa.partner(f, word, distance, settled))


def _in_all_lanes(g: GpuEmitter, merge: _Merge, parts: Parts, bits: int) -> Parts:
    """Combined over all lanes and waves: scalars."""
    parts, lane = _over_wave(g, merge, parts, bits)
    if bits < g.isa.wave:
        return parts if lane is None else [g.from_lane(x, lane) for x in parts]
    waves = (bits + 1) // g.isa.wave
    whole, buffers = g.buffers.temporaries(merge.dtypes, waves)
    g.buffers.access(whole, "write")
    kinds = [g.types.memory(dtype) for dtype in merge.dtypes]
    stored = [
        to_memory(g.f, x, dtype, kind)
        for x, dtype, kind in zip(parts, merge.dtypes, kinds, strict=True)
    ]

    def write() -> list[Value]:
        for x, buffer in zip(stored, buffers, strict=True):
            store_element(g, x, pointer(g, buffer, g.wave_number()))
        return []

    writes = g.threads.compare("eq", g.lane_number(), lane or 0)
    if bits + 1 < g.workgroup:  # the other waves repeat what these have
        writes = g.f.and_(writes, g.threads.compare("ult", g.threads.number, bits + 1))
    g.when(writes, write)
    g.buffers.access(whole, "read")
    if merge.expensive:  # fewer steps, of a permute each
        wave = g.threads.apply("and", g.threads.number, waves - 1)
        partial = [
            from_memory(g.f, g.types, g.f.load(k, pointer(g, b, wave), k.bits // 8), b.dtype)
            for k, b in zip(kinds, buffers, strict=True)
        ]
        return [g.from_lane(x, 0) for x in _over_lanes(g, merge, partial, waves - 1)]
    loaded = [
        from_memory(g.f, g.types, g.f.load(k.with_lanes(waves), g.buffers.address(b), 16), b.dtype)
        for k, b in zip(kinds, buffers, strict=True)
    ]
    return _tree(g, merge, [[register(g.f, x, i) for x in loaded] for i in range(waves)])


def _over_wave(g: GpuEmitter, merge: _Merge, parts: Parts, bits: int) -> tuple[Parts, int | None]:
    """Combined over all lanes of each wave, and the lane that has it if not all do."""
    row, lanes = g.isa.row, min(bits + 1, g.isa.wave)
    if merge.extremum:
        f, name, (x,) = g.f, merge.extremum, parts
        numbers = replace(merge, of=lambda a, b: [of_numbers(f, name, a[0], b[0])], extremum="")
        (number,), lane = _over_wave(g, numbers, parts, bits)
        return [or_nan(f, g.isa.any(f, f.fcmp("uno", x, x)), number)], lane
    parts = _over_lanes(g, merge, parts, bits & (row - 1))
    if not g.isa.has_row_broadcasts or lanes <= row:
        rows = [[g.from_lane(x, lane) for x in parts] for lane in range(0, lanes, row)]
        return _tree(g, merge, rows), None
    for before in (1, 2):
        if before * row < lanes:
            parts = merge.of([_before_rows(g, x, before) for x in parts], parts)
    # LLVM would merge the last ones where they are stored, and so without their permute.
    return [g.isa.computed_here(g.f, x) for x in parts], lanes - 1


def _before_rows(g: GpuEmitter, x: Value, rows: int) -> Value:
    return by_words(g.f, x, lambda word: g.isa.before_rows(g.f, word, rows))


def _into_layout(
    g: GpuEmitter,
    merge: _Merge,
    layout: AnyLayout,
    axis: int,
    totals: dict[Place, Parts],
    target: AnyLayout,
) -> list[Rep]:
    """Totals of rows or columns of a layout, combined over waves, in that of a tile of them.

    Lanes that are equal in the reduced bits hold the same total; the first one writes it.
    """
    n, bits = layout.shape[1 - axis], layout.thread_bits(axis)
    assert bits is not None
    across = bits & -g.isa.wave
    waves = 1 << across.bit_count()
    wanted = [place for (place,) in g.layouts.places(target)]
    if waves == 1 and all(place in totals for place in wanted):
        registers = zip(*(totals[place] for place in wanted), strict=True)
        return [Held(joined(g.f, x)) for x in registers]
    whole, buffers = g.buffers.temporaries(merge.dtypes, n * waves)
    g.buffers.access(whole, "write")
    _write_totals(g, buffers, layout, axis, bits, totals)
    g.buffers.access(whole, "read")
    parts = [
        [load_tile(g, BlockPointer(b, part * n, (1,)), b.dtype, target) for b in buffers]
        for part in range(waves)
    ]
    return [Held(x) for x in _tree(g, merge, parts)]


def _write_totals(
    g: GpuEmitter,
    buffers: Sequence[tile.Buffer],
    layout: AnyLayout,
    axis: int,
    bits: int,
    totals: dict[Place, Parts],
) -> None:
    f, t, n = g.f, g.threads, layout.shape[1 - axis]
    across = bits & -g.isa.wave
    writes = t.compare("eq", t.apply("and", t.number, bits & ~across), 0)
    owner = g.layouts.owner(layout)
    if owner is not None:
        writes = f.and_(writes, owner)
    shift = (across & -across).bit_length() - 1
    part = t.apply("lshr", t.apply("and", t.number, across), shift) if across else None

    def put(place: Place, x: Value, buffer: tile.Buffer) -> None:
        memory = g.types.memory(buffer.dtype)
        stored = to_memory(g.f, x, buffer.dtype, memory)
        at = f.gep(g.buffers.address(buffer), place.step, memory)
        if place.base is not None:
            at = f.gep(at, place.base, memory)
        if part is not None:
            at = f.gep(at, t.apply("mul", part, n), memory)
        inside = _exists(g, place, n)
        if inside is None:
            store_element(g, stored, at)
        else:
            g.when(inside, lambda: store_element(g, stored, at))

    def write() -> list[Value]:
        for place, parts in totals.items():
            for x, buffer in zip(parts, buffers, strict=True):
                put(place, x, buffer)
        return []

    g.when(writes, write)


def _exists(g: GpuEmitter, place: Place, n: int) -> Value | None:
    """Whether a place is below `n`; None where it always is."""
    if place.base is None:
        return None if place.step < n else llvm.const(I1, False)
    if n & (n - 1) == 0:
        return None if place.step < n else llvm.const(I1, False)
    return g.threads.compare("slt", place.base, n - place.step)


def _reduce_in_lds(
    g: GpuEmitter, merge: _Merge, tiles: Sequence[tile.Value], axis: int
) -> list[Rep]:
    """Where threads hold rows in part: each reads the elements of its results."""
    shape = tiles[0].shape
    rows, columns = shape
    held = [g.in_registers(v) for v in tiles]
    whole, buffers = g.buffers.temporaries(merge.dtypes, rows * columns)
    g.buffers.access(whole, "write")
    for buffer, x in zip(buffers, held, strict=True):
        store_tile(
            g, BlockPointer(buffer, 0, row_major(shape)), buffer.dtype, g.layouts.of(shape), x
        )
    g.buffers.access(whole, "read")
    stride, step = (1, columns) if axis == 0 else (columns, 1)
    target = g.layouts.of((shape[1 - axis],))

    def at(i: Value | int) -> Parts:
        offset = i if isinstance(i, int) else g.f.mul(i, llvm.const(I32, step))
        return [load_tile(g, BlockPointer(b, offset, (stride,)), b.dtype, target) for b in buffers]

    def body(i: Value, carried: list[Value]) -> list[Value]:
        with g.scope():
            return list(merge.of(carried, at(i)))

    bounds = llvm.const(I32, 1), llvm.const(I32, shape[axis])
    return [Held(x) for x in g.f.loop(*bounds, 1, list(at(0)), body)]
