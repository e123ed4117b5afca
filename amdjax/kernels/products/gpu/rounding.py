"""Operands of products that are rounded before, in launches of their own.

Where `precision` lets float32 enter a large product in a narrower format, each element would be
read, rounded and put into LDS as often as there are tiles in its row. Rounded once it may take half
of the memory, and lies as asynchronous copies bring it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from amdjax import tile
from amdjax.core.jaxpr import Var
from amdjax.kernels.gpu_loops import every
from amdjax.kernels.loops import offset_of
from amdjax.kernels.products.contraction import Axis, Contraction, Source
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.gpu.tiles import TileAxis, first_lanes, tile_lanes
from amdjax.schedule.index import LoopVar
from amdjax.schedule.values import short_dtype
from amdjax.tile import itemsize

EACH = 8  # elements of a thread
SIDE = 64  # lines, and steps in depth, of a tile
FORMATS = ("f16", "bf16", "xf32")
DROPPED = 13  # bits of float32 that TF32 has not


@dataclass(frozen=True)
class Rounding:
    """An operand that is rounded: to another dtype as it lies, or to TF32, along the depth.

    Args:
      source: as it is read.
      result: the same of workspace.
    """

    source: Source
    result: Source

    @property
    def moved(self) -> int:
        """Bytes that are read and written."""
        size: int = self.result.owner.size
        return size * (itemsize("f32") + itemsize(self.result.dtype))

    def call(self, ctx: ShapedContext) -> Call:
        """The launch."""
        source, result = self.source, self.result
        program = Program(ctx, "round")
        k, temp = program.k, result.owner
        k.schedule.workgroup = ctx.gpu.usual_workgroup
        if result.dtype != "f32":
            k.schedule.vector, side = EACH, EACH * k.schedule.workgroup
            source = result = replace(
                source, offset=0, batch=(), lines=(), depth=(Axis(temp.size, 1),)
            )
        else:
            k.schedule.vector, side = 4, SIDE
        loops = (*source.lines, *source.depth)
        axes = [TileAxis(LoopVar(f"i{i}", loop.extent), side) for i, loop in enumerate(loops)]
        bases, number = first_lanes(k, axes, k.program_id(), len(source.batch))
        place = [*program.split(number, "batch", source.batch), *bases]
        shape = tuple(axis.count for axis in axes)
        edges = [x.mask for x in tile_lanes(k, axes, bases) if x.mask is not None]
        mask = every(k, [k.broadcast(edge, shape) for edge in edges])

        def where(x: Source) -> tuple[tile.Value, list[int]]:
            """The tile's first element, and the strides of its axes."""
            strides = [axis.stride for axis in (*x.batch, *x.lines, *x.depth)]
            return offset_of(k, place, strides) + x.offset, strides[len(x.batch) :]

        (at, read), (to, written) = where(source), where(result)
        x = k.load(program.buffer(source.owner, "f32"), at, shape, read, mask)
        x = _tf32(k, x) if temp.dtype == "f32" else k.convert(x, temp.dtype)
        k.store(program.buffer(temp, temp.dtype, "out"), to, x, written, mask)
        grid = math.prod(axis.blocks for axis in axes) * math.prod(x.extent for x in source.batch)
        return program.launch(grid, float(math.prod(shape)))


def rounded(problem: Contraction, format: str) -> tuple[Contraction, tuple[Rounding, ...]] | None:
    """A merged product of rounded arrays, and what makes these.

    None where an operand is no whole array of float32 of a known size, or TF32 is not to be had
    along the depth.
    """
    if format not in FORMATS:
        return None
    made: dict[object, Rounding] = {}
    sources = []
    for source in (problem.a, problem.b):
        owner, size = source.owner, 0
        if isinstance(owner, Var) and short_dtype(owner.aval.dtype) == "f32":
            size = owner.aval.size
        if not isinstance(size, int) or not size or source.flip:
            return None
        key: object = owner
        result = replace(source, owner=Temp(format, size), dtype=format)
        if format == "xf32":
            if len(source.lines) != 1 or len(source.depth) != 1 or source.limits:
                return None
            result, key = _along_depth(source), source
        rounding = made.setdefault(key, Rounding(source, result))
        sources.append(replace(result, owner=rounding.result.owner))
    a, b = sources
    return replace(problem, a=a, b=b, formats=()), tuple(made.values())


def _along_depth(source: Source) -> Source:
    """Workspace whose innermost loop is the depth."""
    extents = [x.extent for x in (*source.batch, *source.lines, *source.depth)]
    strides = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    *batch, lines, depth = (Axis(n, s) for n, s in zip(extents, strides, strict=True))
    owner = Temp("f32", math.prod(extents))
    return Source(owner, "f32", 0, tuple(batch), (lines,), (depth,))


def _tf32(k: tile.Builder, x: tile.Value) -> tile.Value:
    """To ten bits of mantissa, as `operand_formats.rounded_to_xf32`."""
    most = np.finfo(np.float32).max.view(np.uint32) >> DROPPED << DROPPED
    bits = k.bitcast(x, "u32")
    magnitude = bits & k.const("u32", 0x7FFFFFFF, x.shape)
    below = magnitude < k.const("u32", int(most), x.shape)
    half = k.const("u32", 1 << DROPPED - 1, x.shape)
    up = k.select(below, bits + half, bits)
    return k.bitcast(up & k.const("u32", -1 << DROPPED & 0xFFFFFFFF, x.shape), "f32")
