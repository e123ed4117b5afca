"""Loops and branches of a workgroup, all of whose threads take them together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from amdjax import tile
from amdjax.codegen import emitter
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.copied_tiles import reads_lds
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.positions import Rep
from amdjax.codegen.gpu.warpgroup_tiles import await_own_copies, hidden_sums
from amdjax.codegen.llvm import Value
from amdjax.tile import ops

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.For)
def lower_for(g: GpuEmitter, op: ops.For) -> list[Rep]:
    (body,) = op.blocks
    barriers, write = g.buffers.barriers, g.buffers.barrier_here()
    loop = None
    inside = [x for x in tile.nested_ops(body) if isinstance(x, ops.Dot) and x.tiling]
    if inside:
        loop = functools.partial(g.f.loop, metadata=g.not_unrolled())
    elif op.users:
        loop = functools.partial(g.f.loop, metadata=g.not_unrolled("runtime"))
    if any(reads_lds(x, g.isa.target) for x in inside):
        loop = functools.partial(_with_hidden_sums, g)
    with barriers.loop(write, tile.lowest_number(body), 0):
        results = emitter.lower_for(g, op, loop)
    if id(body) in g.copied.waiting:  # the last copies may be of no use, but have their places
        await_own_copies(g)
    return _as_results(g, op, results, body.args[1:])


def _with_hidden_sums(
    g: GpuEmitter, start: Value, stop: Value, step: Value | int, carried: Sequence[Value],
    body: Callable[[Value, list[Value]], Sequence[Value]],
) -> list[Value]:  # fmt: skip
    carried = [hidden_sums(g, x) for x in carried]
    return g.f.loop(start, stop, step, carried, body, metadata=g.not_unrolled())


@LOWERINGS.of(ops.While)
def lower_while(g: GpuEmitter, op: ops.While) -> list[Rep]:
    first = min(map(tile.lowest_number, op.blocks))
    barriers, write = g.buffers.barriers, g.buffers.barrier_here()
    with barriers.loop(write, first, 1):
        results = emitter.lower_while(g, op)
    return _as_results(g, op, results, op.body.args)


def _as_results(
    g: GpuEmitter, op: tile.Op, reps: Sequence[Rep], held: Sequence[tile.Value]
) -> list[Rep]:
    """What a loop carried, held as its results are."""
    g.bind(held, reps)
    flat = g.flat(held, op.results)
    return g.unflatten(flat, [v.type for v in op.results])


@LOWERINGS.of(ops.If)
def lower_if(g: GpuEmitter, op: ops.If) -> list[Rep]:
    with g.buffers.barriers.branch():
        return emitter.lower_if(g, op)


@LOWERINGS.of(ops.Shift)
def lower_shift(g: GpuEmitter, op: ops.Shift) -> list[Rep]:
    offsets = [g.scalar(v) for v in op.offsets]
    with (
        g.buffers.barriers.branch(),
        g.buffers.shifted(op.moved, offsets),
        g.vectors_of(op.vector),
    ):
        g.block(op.body)
    return []


@LOWERINGS.of(ops.Once)
def lower_once(g: GpuEmitter, op: ops.Once) -> list[Rep]:
    with g.buffers.barriers.branch():
        g.block(op.body)
    return []
