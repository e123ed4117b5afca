"""Hands the transforms, a floor below, the operations they need."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.lax._rules import shape_of
from amdjax.lax.casting import convert
from amdjax.lax.comparison import eq
from amdjax.lax.elementwise import add, div, mul
from amdjax.lax.filling import broadcasted_iota, iota
from amdjax.lax.gather import gather
from amdjax.lax.index_vectors import GatherDimensionNumbers
from amdjax.lax.joining import concatenate
from amdjax.lax.reductions import reduce_max, reduce_min, reduce_sum
from amdjax.lax.scatter import scatter_add
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, reshape, transpose
from amdjax.lax.slicing import slice_in_dim
from amdjax.transforms import ops


def _take(x: Any, indices: Any, axis: int) -> Any:
    """`x` at a vector of known positions along an axis."""
    shape = shape_of(x)
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(len(shape)) if d != axis),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    sizes = tuple(1 if d == axis else n for d, n in enumerate(shape))
    return gather(x, np.asarray(indices, np.int32)[:, None], numbers, sizes)


def _eye(rows: int, columns: int, offset: int, dtype: Any) -> Any:
    """Ones where column == row + offset."""
    row = broadcasted_iota(np.int32, (rows, columns), 0)
    column = broadcasted_iota(np.int32, (rows, columns), 1)
    return convert(eq(add(row, np.int32(offset)), column), dtype)


ops.install(
    broadcast_in_dim=broadcast_in_dim, transpose=transpose, reshape=reshape, reduce_sum=reduce_sum,
    reduce_max=reduce_max, reduce_min=reduce_min, select=select, iota=iota, take=_take,
    concatenate=concatenate, scatter_add=scatter_add, mul=mul, div=div, convert=convert, eye=_eye,
    slice_in_dim=lambda x, start, stop, axis: slice_in_dim(x, start, stop, axis=axis),
)  # fmt: skip
