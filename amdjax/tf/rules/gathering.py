"""Elements chosen, or set, by positions in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp

from ..nodes import Node
from ..registry import axis_of, host_array, is_host, namespace, rule, size, sizes
from .arithmetic import check_same_dtype


@rule("GatherV2", numbers=("axis",))
def gather_v2(node: Node, params: Any, indices: Any, axis: Any) -> Any:
    at = axis_of(node, "axis", size(node, "axis", axis), params.ndim)
    batch = node.integer("batch_dims", 0)
    batch = batch + indices.ndim if batch < 0 else batch
    if not 0 <= batch <= min(at, indices.ndim):
        raise node.error(f"batch_dims must be 0 to {min(at, indices.ndim)}, got {batch}")
    return _gathered(params, indices, at, batch)


@rule("Gather", "ResourceGather")
def gather(node: Node, params: Any, indices: Any) -> Any:
    if node.integer("batch_dims", 0):
        raise node.error("batch_dims other than 0 are not read")
    return _gathered(params, indices, axis_of(node, "axis", 0, params.ndim), 0)


def _gathered(params: Any, indices: Any, axis: int, batch: int) -> Any:
    if not batch:
        return namespace(params, indices).take(params, indices, axis=axis)
    if params.shape[:batch] != indices.shape[:batch]:
        raise ValueError(f"batches of shapes {params.shape} and {indices.shape} differ")
    params, indices = jnp.asarray(params), jnp.asarray(indices)
    lead = [params.shape[i] for i in range(batch)]
    moved = jnp.moveaxis(params, axis, batch)
    ranks = range(batch)
    where = [
        jnp.arange(n).reshape([-1 if j == i else 1 for j in range(indices.ndim)])
        for i, n in zip(ranks, lead)
    ]
    made = moved[(*where, indices)]
    # Axes between the batch and the gathered one stand behind the positions now.
    inner = list(range(indices.ndim, indices.ndim + axis - batch))
    order = [*range(batch), *inner, *range(batch, indices.ndim)]
    order += range(indices.ndim + len(inner), made.ndim)
    return made.transpose(order)


@rule("GatherNd", only_device=True)
def gather_nd(node: Node, params: Any, indices: Any) -> Any:
    batch = node.integer("batch_dims", 0)
    depth = _depth(node, params, indices)
    if not 0 <= batch < max(indices.ndim, 1) or depth + batch > params.ndim:
        raise node.error(f"indices {indices.shape} with batch_dims {batch} for {params.shape}")
    where = [
        jnp.arange(params.shape[i]).reshape([-1 if j == i else 1 for j in range(indices.ndim - 1)])
        for i in range(batch)
    ]
    chosen = [indices[..., i] for i in range(depth)]
    if not where and not chosen:
        return jnp.broadcast_to(params, (*indices.shape[:-1], *params.shape))
    return params[(*where, *chosen)]


def _depth(node: Node, x: Any, indices: Any) -> int:
    """How many axes each position names."""
    depth = indices.shape[-1] if indices.ndim else None
    if not isinstance(depth, int) or depth > x.ndim:
        raise node.error(f"indices of shape {indices.shape} do not fit shape {x.shape}")
    return depth


@rule("ScatterNd", numbers=("shape",), only_device=True)
def scatter_nd(node: Node, indices: Any, updates: Any, shape: Any) -> Any:
    whole = tuple(sizes(shape))
    if any(isinstance(n, int) and not 0 <= n < 2**40 for n in whole):
        raise node.error(f"shape must be a shape, got {list(whole)}")
    return _set(node, jnp.zeros(whole, updates.dtype), indices, updates, "add")


@rule("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", only_device=True)
def tensor_scatter(node: Node, tensor: Any, indices: Any, updates: Any) -> Any:
    kind = {"Update": "set", "Add": "add", "Sub": "subtract"}[node.op.removeprefix("TensorScatter")]
    return _set(node, tensor, indices, updates, kind)


@rule("TensorScatterMax", "TensorScatterMin", only_device=True)
def tensor_scatter_extreme(node: Node, tensor: Any, indices: Any, updates: Any) -> Any:
    return _set(node, tensor, indices, updates, node.op[-3:].lower())


def _set(node: Node, x: Any, indices: Any, updates: Any, kind: str) -> Any:
    check_same_dtype(node, x, updates)
    depth = _depth(node, x, indices)
    if not depth:
        raise node.error("indices must name one axis at least")
    where = tuple(indices[..., i] for i in range(depth))
    return getattr(x.at[where], kind)(updates)


@rule("UnsortedSegmentSum", numbers=("num_segments",), only_device=True)
def segment_sum(node: Node, data: Any, segment_ids: Any, num_segments: Any) -> Any:
    count = size(node, "num_segments", num_segments)
    if isinstance(count, int) and not 0 <= count < 2**31:
        raise node.error(f"num_segments must be a size, got {count}")
    if data.shape[: segment_ids.ndim] != segment_ids.shape:
        raise node.error(f"segment_ids {segment_ids.shape} do not fit shape {data.shape}")
    total = jnp.zeros((count, *data.shape[segment_ids.ndim :]), data.dtype)
    ids = jnp.where(segment_ids < 0, count, segment_ids)  # which are left out
    return total.at[ids].add(data, mode="drop")


@rule("Unique")
def unique(node: Node, x: Any) -> Any:
    """Values in the order in which they appear first."""
    if not is_host(x) or x.ndim != 1:
        raise node.error("input must be a vector that is known as the graph is traced")
    _, first, where = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.argsort(order)
    index = ranks[where].astype(node.dtype("out_idx", np.int32))
    return host_array(x[first[order]]), index
