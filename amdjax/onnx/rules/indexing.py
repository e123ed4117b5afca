"""Elements by their places: gathers and scatters."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import numpy as jnp, vmap

from ..errors import OnnxError
from ..registry import is_host, namespace, rule


def _within(indices: Any, size: Any) -> Any:
    """Indices of which negative ones count from the end; those that are known are checked."""
    xp = namespace(indices)
    if is_host(indices) and isinstance(size, int) and np.size(indices):
        low, high = np.min(indices), np.max(indices)
        if low < -size or high >= size:
            wrong = low if low < -size else high
            raise OnnxError(f"indices must be at least {-size} and below {size}, got {wrong}")
    return xp.where(indices < 0, indices + size, indices) if indices.dtype.kind == "i" else indices


@rule("Gather")
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return namespace(x, indices).take(x, _within(indices, x.shape[axis]), axis=axis)


@rule("GatherElements", since=11)
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """Of the other axes those elements that the indices have."""
    axis += x.ndim if axis < 0 else 0
    x = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))]
    return jnp.take_along_axis(x, _within(indices, x.shape[axis]), axis)


@rule("GatherND", since=11)
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    sizes = x.shape[batch_dims:]
    columns = [_within(indices[..., k], sizes[k]) for k in range(indices.shape[-1])]
    take = lambda x, at: x[tuple(at)]
    for _ in range(batch_dims):
        take = vmap(take)
    return take(jnp.asarray(x), [jnp.asarray(c) for c in columns])


_REDUCTIONS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


def _scatter(x: Any, index: Any, updates: Any, reduction: str) -> Any:
    if reduction not in _REDUCTIONS:
        raise OnnxError(f"reduction must be one of {', '.join(_REDUCTIONS)}, got {reduction!r}")
    return getattr(jnp.asarray(x).at[index], _REDUCTIONS[reduction])(updates)


@rule("Scatter", "ScatterElements")
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    axis += x.ndim if axis < 0 else 0
    index: list[Any] = list(jnp.indices(indices.shape, sparse=True)) if indices.ndim else []
    index[axis] = jnp.asarray(_within(indices, x.shape[axis]))
    return _scatter(x, tuple(index), updates, reduction)


@rule("ScatterND", since=11)
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    columns = (_within(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))
    return _scatter(x, tuple(map(jnp.asarray, columns)), updates, reduction)
