"""Reductions of segments: rows with the same number are combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

import amdjax.numpy as jnp
from amdjax import _docs, lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.core.integers import ceil_div
from amdjax.core.trace import concrete_or_error
from amdjax.lax._public import named
from amdjax.numpy._util import as_arrays, concrete_int, is_kind
from amdjax.numpy.index_updates import update_index

__all__ = [
    "segment_max", "segment_min", "segment_prod", "segment_sum",
]  # fmt: skip


def _identity(name: str, dtype: Any) -> Any:
    if name in ("segment_sum", "segment_prod"):
        return 0 if name == "segment_sum" else 1
    if dtype == np.bool_:
        return name == "segment_min"
    if dtypes.issubdtype(dtype, np.inexact):
        return -np.inf if name == "segment_max" else np.inf
    info = dtypes.iinfo(dtype)
    return info.min if name == "segment_max" else info.max


def _segment(
    name: str, scatter: Callable[..., Array], data: Any, segment_ids: Any, num_segments: int | None,
    is_sorted: bool, unique: bool, bucket_size: int | None, mode: Any,
) -> Array:  # fmt: skip
    data, ids = as_arrays(name, data, segment_ids)
    if not ids.ndim:
        raise ValueError(f"{name}: segment_ids must have an axis, got a scalar")
    if not data.ndim:  # one row for all
        data = jnp.broadcast_to(data, ids.shape)
    if bucket_size is not None and bucket_size < 1:
        raise ValueError(f"{name}: bucket_size must be positive, got {bucket_size}")
    if not is_kind(ids.dtype, np.integer) and ids.dtype != bool:
        raise TypeError(f"{name}: segment_ids must be integers, got dtype {ids.dtype}")
    if num_segments is not None:
        num_segments = concrete_int(num_segments, f"num_segments of {name}")
    else:
        known = concrete_or_error(
            None, ids, f"{name}: without `num_segments` the result's shape depends on segment_ids."
        )
        num_segments = int(known.max()) + 1 if known.size else 0
    if num_segments < 0:
        raise ValueError("num_segments must be non-negative.")
    if ids.shape != data.shape[: ids.ndim]:
        raise ValueError(
            f"{name}: segment_ids of shape {ids.shape} must have the leading shape of data,"
            f" {data.shape}"
        )
    rest = data.shape[ids.ndim :]
    out = jnp.full((num_segments, *rest), _identity(name, data.dtype), data.dtype)
    flat_ids = ids.reshape(-1)
    rows = data.reshape(flat_ids.shape[0], *rest)
    options = dict(indices_are_sorted=is_sorted, unique_indices=unique, mode=mode,
                   wrap_negative_indices=False)  # fmt: skip
    if bucket_size is None:
        return _scatter(scatter, out, flat_ids, rows, options)
    # Buckets are combined apart and then together, for fewer rounding errors.
    buckets = ceil_div(flat_ids.shape[0], bucket_size)
    parts = [
        _scatter(scatter, out, flat_ids[i * bucket_size : (i + 1) * bucket_size],
                 rows[i * bucket_size : (i + 1) * bucket_size], options)
        for i in range(buckets)
    ]  # fmt: skip
    combine: Any = {"segment_sum": jnp.sum, "segment_prod": jnp.prod, "segment_max": jnp.max}.get(
        name, jnp.min
    )
    return combine(jnp.stack(parts), axis=0).astype(data.dtype) if parts else out


def _scatter(
    scatter: Callable[..., Array], out: Array, ids: Array, rows: Array, options: Any
) -> Array:
    # Negative numbers mean "no segment": they must stay out of bounds.
    return update_index(out, ids, rows, scatter, **options)


class _Segments(Protocol):
    def __call__(
        self, data: Any, segment_ids: Any, num_segments: int | None = None,
        indices_are_sorted: bool = False, unique_indices: bool = False,
        bucket_size: int | None = None, mode: Any = None, out_sharding: Any = None,
    ) -> Array: ...  # fmt: skip


def _combined(name: str, scatter: Callable[..., Array], text: str, result: str) -> _Segments:
    def call(
        data: Any, segment_ids: Any, num_segments: int | None = None,
        indices_are_sorted: bool = False, unique_indices: bool = False,
        bucket_size: int | None = None, mode: Any = None, out_sharding: Any = None,
    ) -> Array:  # fmt: skip
        return _segment(name, scatter, data, segment_ids, num_segments, indices_are_sorted,
                        unique_indices, bucket_size, mode)  # fmt: skip

    example = f"amdjax.ops.{name}(jnp.array([1, 2, 3]), jnp.array([0, 0, 1]))"
    return named(call, name, text, example, f"Array({result}, dtype=int32)")


segment_sum = _combined(
    "segment_sum", lax.scatter_add, "The sums of the rows of each segment.", "[3, 3]"
)
segment_prod = _combined(
    "segment_prod", lax.scatter_mul, "The products of the rows of each segment.", "[2, 3]"
)
segment_max = _combined(
    "segment_max", lax.scatter_max,
    "The largest elements of each segment, -inf where it is empty.", "[2, 3]",
)  # fmt: skip
segment_min = _combined(
    "segment_min", lax.scatter_min,
    "The smallest elements of each segment, inf where it is empty.", "[1, 3]",
)  # fmt: skip

_complete(globals(), _docs.SEGMENTS, _Phrases())
_public_surface(globals())
