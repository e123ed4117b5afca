"""Operators along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dims.expression import max_dim, min_dim

from ..nodes import Node
from ..registry import axis_of, converted, namespace, rule, size, sizes

_ORDERED = {"Max": max_dim, "Min": min_dim}


def _axes(node: Node, x: Any, reduction_indices: np.ndarray) -> tuple[int, ...]:
    axes = tuple(axis_of(node, "axis", a, x.ndim) for a in sizes(reduction_indices))
    if len(set(axes)) != len(axes):
        raise node.error(f"axes must differ, got {list(axes)}")
    return axes


def _register(op: str, name: str, flag: str = "keep_dims") -> None:
    def reduce(node: Node, x: Any, axis: Any) -> Any:
        axes, keep = _axes(node, x, axis), node.flag(flag)
        xp = namespace(x)
        if x.dtype == object:
            if op in _ORDERED:
                return np.frompyfunc(_ORDERED[op], 2, 1).reduce(x, axis=axes, keepdims=keep)
            return getattr(np, name)(x, axis=axes, keepdims=keep)
        typed = {"dtype": x.dtype} if op in ("Sum", "Prod") else {}
        return getattr(xp, name)(x, axis=axes, keepdims=keep, **typed)

    rule(op, numbers=("axis",))(reduce)


for _op, _name in {
    "Sum": "sum", "Prod": "prod", "Max": "max", "Min": "min", "All": "all", "Any": "any",
}.items():  # fmt: skip
    _register(_op, _name)


@rule("Mean", numbers=("axis",))
def mean(node: Node, x: Any, axis: Any) -> Any:
    """Of integers, the quotient toward zero."""
    axes, keep, xp = _axes(node, x, axis), node.flag("keep_dims"), namespace(x)
    if x.dtype == object:
        raise node.error("the mean of symbolic sizes is not computed")
    if x.dtype.kind not in "iu":
        return xp.mean(x, axis=axes, keepdims=keep).astype(x.dtype)
    total = xp.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)
    count: Any = 1
    for i in axes:
        count = count * x.shape[i]
    if xp is np:
        return ((total - np.fmod(total, count)) // count).astype(x.dtype)
    return lax.div(total, jnp.broadcast_to(jnp.asarray(count, x.dtype), total.shape))


@rule("EuclideanNorm", numbers=("axis",), only_device=True)
def euclidean_norm(node: Node, x: Any, axis: Any) -> Any:
    axes = _axes(node, x, axis)
    return jnp.sqrt(jnp.sum(x * x, axis=axes, keepdims=node.flag("keep_dims")))


@rule("ArgMax", "ArgMin", numbers=("dimension",), only_device=True)
def arg_extreme(node: Node, x: Any, dimension: Any) -> Any:
    at = axis_of(node, "dimension", size(node, "dimension", dimension), x.ndim)
    function = jnp.argmax if node.op == "ArgMax" else jnp.argmin
    return converted(function(x, axis=at), node.dtype("output_type", np.int64))


@rule("Cumsum", "Cumprod", numbers=("axis",), only_device=True)
def cumulative(node: Node, x: Any, axis: Any) -> Any:
    at = axis_of(node, "axis", size(node, "axis", axis), x.ndim)
    function: Callable[..., Any] = lax.cumsum if node.op == "Cumsum" else lax.cumprod
    backward = node.flag("reverse")
    made = function(x, axis=at, reverse=backward)
    if not node.flag("exclusive"):
        return made
    first = 0 if node.op == "Cumsum" else 1
    pads = [(0, 0)] * x.ndim
    pads[at] = (0, 1) if backward else (1, 0)
    padded = jnp.pad(made, pads, constant_values=first)
    start = 1 if backward else 0
    return lax.slice_in_dim(padded, start, start + x.shape[at], axis=at)


@rule("TopKV2", numbers=("k",), only_device=True)
def top_k(node: Node, x: Any, k: Any) -> Any:
    return _top_k(node, x, size(node, "k", k))


@rule("TopK", only_device=True)
def top_k_of_attribute(node: Node, x: Any) -> Any:
    return _top_k(node, x, node.integer("k"))


def _top_k(node: Node, x: Any, k: Any) -> Any:
    if not x.ndim or not isinstance(k, int) or not 0 <= k <= x.shape[-1]:
        raise node.error(f"k = {k} does not fit shape {x.shape}")
    values, indices = lax.top_k(x, k)
    return values, converted(indices, node.dtype("index_type", np.int32))


@rule("InTopKV2", numbers=("k",), only_device=True)
def in_top_k(node: Node, predictions: Any, targets: Any, k: Any) -> Any:
    chosen = jnp.take_along_axis(predictions, targets[:, None], axis=1)
    return jnp.sum(predictions > chosen, axis=1) < size(node, "k", k)
