"""Reductions, extremes and their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.scipy import special

from ..registry import integer, ints, namespace, rule


def _l2(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.sqrt(jnp.sum(x * x, axis, keepdims=keepdims))


def _log_sum_exp(x: Any, axis: Any, keepdims: bool) -> Any:
    return special.logsumexp(x, axis, keepdims=keepdims)


def _extreme(name: str, bound: str) -> Any:
    """`max` or `min`; of nothing the end of the dtype's range."""

    def reduce(x: Any, axis: Any, keepdims: bool) -> Any:
        xp = namespace(x)
        if x.dtype == np.bool_:
            return getattr(xp, "any" if name == "max" else "all")(x, axis, keepdims=keepdims)
        of = jnp.iinfo if np.issubdtype(x.dtype, np.integer) else jnp.finfo
        initial = (
            getattr(of(x.dtype), bound)
            if of is jnp.iinfo
            else {"min": -np.inf, "max": np.inf}[bound]
        )
        return getattr(xp, name)(x, axis, keepdims=keepdims, initial=np.asarray(initial, x.dtype))

    return reduce


_REDUCTIONS = {
    "ReduceSum": lambda x, axis, keepdims: namespace(x).sum(
        x, axis, keepdims=keepdims, dtype=x.dtype
    ),
    "ReduceProd": lambda x, axis, keepdims: namespace(x).prod(
        x, axis, keepdims=keepdims, dtype=x.dtype
    ),
    "ReduceMean": lambda x, axis, keepdims: jnp.mean(x, axis, keepdims=keepdims).astype(x.dtype),
    "ReduceMax": _extreme("max", "min"),
    "ReduceMin": _extreme("min", "max"),
    "ReduceL1": lambda x, axis, keepdims: jnp.sum(abs(x), axis, keepdims=keepdims, dtype=x.dtype),
    "ReduceL2": _l2,
    "ReduceLogSum": lambda x, axis, keepdims: jnp.log(jnp.sum(x, axis, keepdims=keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axis, keepdims: jnp.sum(
        x * x, axis, keepdims=keepdims, dtype=x.dtype
    ),
}

for _name, _reduction in _REDUCTIONS.items():

    def _by_attribute(
        x: Any, *, axes: Any = None, keepdims: int = 1, _reduction: Any = _reduction
    ) -> Any:
        axis = None if axes is None else tuple(axes)
        return _reduction(x, axis, bool(keepdims)).astype(x.dtype)

    def _by_operand(
        x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0,
        _reduction: Any = _reduction,
    ) -> Any:  # fmt: skip
        axis = () if axes is None else tuple(ints(axes, "axes"))
        if not axis and not noop_with_empty_axes:
            axis = tuple(range(x.ndim))
        return _reduction(x, axis, bool(keepdims)).astype(x.dtype)

    rule(_name)(_by_attribute)
    rule(_name, since=13 if _name == "ReduceSum" else 18)(_by_operand)

for _name, _place in {"ArgMax": jnp.argmax, "ArgMin": jnp.argmin}.items():

    def _place_of(
        x: Any,
        *,
        axis: int = 0,
        keepdims: int = 1,
        select_last_index: int = 0,
        _place: Any = _place,
    ) -> Any:
        """The first place, or the last, counted from the end."""
        found = _place(jnp.flip(x, axis) if select_last_index else x, axis, keepdims=bool(keepdims))
        if select_last_index:
            found = x.shape[axis] - 1 - found
        return found.astype(np.int64)

    rule(_name)(_place_of)


@rule("TopK", since=10)
def top_k(x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    count = integer(k, "k")
    if not largest and not np.issubdtype(x.dtype, np.integer):
        values, indices = _top(-x, count, axis)
        return -values, indices
    if not largest:  # in which an integer's order is turned around
        values, indices = _top(~x, count, axis)
        return ~values, indices
    return _top(x, count, axis)


def _top(x: Any, count: Any, axis: int) -> tuple[Any, Any]:
    values, indices = lax.top_k(jnp.moveaxis(x, axis, -1), count)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis).astype(np.int64)


@rule("TopK")
def top_k_before(x: Any, *, k: int, axis: int = -1) -> Any:
    return _top(x, k, axis)
