"""Values that are made, and those whose number depends on values."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import nn, numpy as jnp, random

from ..errors import OnnxError
from ..registry import ints, namespace, rule, static


@rule("Constant")
def constant(
    *, value: Any = None, sparse_value: Any = None, value_float: Any = None,
    value_floats: Any = None, value_int: Any = None, value_ints: Any = None,
    value_string: Any = None, value_strings: Any = None,
) -> Any:  # fmt: skip
    given = {
        np.float32: (value_float, value_floats),
        np.int64: (value_int, value_ints),
        np.object_: (value_string, value_strings),
    }
    for array in (value, sparse_value):
        if array is not None:
            return array
    for dtype, values in given.items():
        for v in values:
            if v is not None:
                return np.asarray(v, dtype)
    raise OnnxError("it has no value")


@rule("ConstantOfShape", since=9)
def constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    value = np.zeros(1, np.float32) if value is None else value
    return jnp.full(tuple(ints(shape, "shape")), value.reshape(()), value.dtype)


@rule("Range", since=11)
def range_(start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (static(v, n).reshape(()) for v, n in
                         ((start, "start"), (limit, "limit"), (delta, "delta")))  # fmt: skip
    if object in (first.dtype, last.dtype, step.dtype):
        return jnp.arange(first.item(), last.item(), step.item(), dtype=np.int64)
    count = int(np.maximum(np.ceil((last - first) / step), 0))
    return first + np.arange(count).astype(first.dtype) * step


@rule("EyeLike", since=9)
def eye_like(x: Any, *, dtype: Any = None, k: int = 0) -> Any:
    return jnp.eye(x.shape[0], x.shape[1], k=k, dtype=x.dtype if dtype is None else dtype)


@rule("OneHot", since=9)
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    (count,) = ints(depth, "depth")
    places = jnp.asarray(indices)
    places = jnp.where(places < 0, places + count, places)
    axis += places.ndim + 1 if axis < 0 else 0
    chosen = nn.one_hot(places.astype(np.int32), count, dtype=bool, axis=axis)
    return jnp.where(chosen, values[1], values[0])


@rule("NonZero", since=9)
def nonzero(x: Any) -> Any:
    return np.stack(np.nonzero(static(x, "x"))).astype(np.int64)


@rule("Compress", since=9)
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    kept = np.nonzero(static(condition, "condition"))[0]
    xp = namespace(x)
    return xp.take(x.ravel() if axis is None else x, kept, axis=0 if axis is None else axis)


@rule("Unique", since=11)
def unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    values, first, inverse, counts = np.unique(
        static(x, "x"), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return (values, *(v.astype(np.int64) for v in (first, inverse, counts)))


@rule("Dropout")
def dropout(
    x: Any, ratio: Any = None, training: Any = None, *, seed: int = 0, is_test: int = 1,
    consumed_inputs: Any = None, node: Any, **attributes: Any,
) -> Any:  # fmt: skip
    """As it is where nothing is trained; else elements are dropped by the seed."""
    if training is None or not bool(static(training, "training_mode")):
        mask = jnp.ones(x.shape, bool if node.version >= 10 else x.dtype)
        return x, mask
    rate = 0.5 if ratio is None else float(static(ratio, "ratio"))
    kept = random.bernoulli(random.key(seed), 1 - rate, x.shape)
    scaled = x * np.asarray(1 / (1 - rate)).astype(x.dtype)
    return jnp.where(kept, scaled, np.zeros((), x.dtype)), kept
