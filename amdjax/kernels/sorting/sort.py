"""Sorting along an axis.

Elements become unsigned keys (`keys.py`), and what is sorted are *records*: keys alone, or keys
with the position they came from, by which the other operands are then gathered. Short rows go
through networks (`cpu/network.py`), others are sorted by digits (`cpu/radix.py`). GPUs have
networks (`gpu/sort.py`) and digits (`gpu/radix.py`) of their own.
"""

from __future__ import annotations

import math
from typing import Any

from amdjax.kernels.shaped import Call, Copy, ShapedContext, shaped
from amdjax.kernels.sorting.cpu.network import Network
from amdjax.kernels.sorting.cpu.radix import Radix
from amdjax.kernels.sorting.gpu.bitonic import GpuSort
from amdjax.kernels.sorting.gpu.radix import GpuRadix
from amdjax.kernels.sorting.keys import Key
from amdjax.kernels.sorting.rows import Geometry
from amdjax.schedule.element import short_dtype

NETWORK = 2048  # longest rows that go through networks, if there are rows for all lanes
NETWORK_FEW, NETWORK_ALONE = 512, 96  # the same for rows that fill half of them, or fewer


@shaped("sort")
def lower_sort(ctx: ShapedContext) -> list[Call | Copy]:
    """Sort all operands by the first `num_keys` of them."""
    shape, axis = ctx.inputs[0].aval.shape, ctx.params["dimension"]
    if not math.prod(shape) or not shape or shape[axis] == 1:
        return [Copy(x, y) for x, y in zip(ctx.inputs, ctx.outputs, strict=True)]
    geometry = Geometry.of(shape, axis)
    keys: list[tuple[Any, Key]] = []
    for x in ctx.inputs[: ctx.params["num_keys"]]:
        dtype = short_dtype(x.aval.dtype)
        parts = 2 if dtype in ("c64", "c128") else 1
        keys += [(x, Key(dtype, part)) for part in range(parts)]
    outputs = [(x, y) for x, y in zip(ctx.inputs, ctx.outputs, strict=True)]
    return sort_calls(ctx, geometry, keys, outputs)


def sort_calls(
    ctx: ShapedContext,
    geometry: Geometry,
    keys: list[tuple[Any, Key]],
    outputs: list[tuple[Any, Any]],
    taken: int | None = None,
) -> list[Call | Copy]:
    """The kernels that sort rows.

    Args:
      ctx: the equation.
      geometry: the rows.
      keys: operands that decide, the first one first.
      outputs: pairs of an operand and where it goes, sorted; None as operand stands for positions.
      taken: how many elements of each sorted row are wanted; None for all.
    """
    if ctx.on_gpu:
        network = GpuSort(ctx, geometry, keys, outputs, taken)
        digits = GpuRadix(ctx, geometry, keys, outputs, taken)
        return list(digits.build()) if digits.beats(network.walks) else network.build()
    limit = NETWORK_ALONE if geometry.rows < 8 else NETWORK_FEW if geometry.rows < 16 else NETWORK
    if geometry.n <= limit:
        return [Network(ctx, geometry, keys, outputs, taken).build()]
    return Radix(ctx, geometry, keys, outputs, taken).build()
