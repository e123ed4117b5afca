"""Loops and branches of a workgroup, all of whose threads take them together."""

from __future__ import annotations

from amdjax import tile
from amdjax.codegen import emitter
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.positions import Rep
from amdjax.tile import ops

__all__ = ["LOWERINGS"]

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.For)
def lower_for(g: GpuEmitter, op: ops.For) -> list[Rep]:
    (body,) = op.blocks
    barriers, write = g.buffers.barriers, g.buffers.barrier_here()
    with barriers.loop(write, tile.lowest_number(body), 0):
        return emitter.lower_for(g, op)


@LOWERINGS.of(ops.While)
def lower_while(g: GpuEmitter, op: ops.While) -> list[Rep]:
    first = min(map(tile.lowest_number, op.blocks))
    barriers, write = g.buffers.barriers, g.buffers.barrier_here()
    with barriers.loop(write, first, 1):
        return emitter.lower_while(g, op)


@LOWERINGS.of(ops.If)
def lower_if(g: GpuEmitter, op: ops.If) -> list[Rep]:
    with g.buffers.barriers.branch():
        return emitter.lower_if(g, op)
