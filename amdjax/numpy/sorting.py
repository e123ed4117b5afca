"""Sorting, searching and counting."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim, largest
from amdjax.core.trace import concrete_or_error
from amdjax.numpy import reductions
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    as_array,
    as_arrays,
    canonical_axis,
    concrete_int,
    convert,
    is_kind,
    promote_dtypes,
    select,
    strong,
    user_dtype,
)


def _flat_axis(a: Array, axis: int | None, name: str) -> tuple[Array, int]:
    if axis is None:
        return lax.reshape(a, (a.size,)), 0
    return a, canonical_axis(axis, a.ndim)


def _refuse(name: str, kind: Any, order: Any, stable: Any) -> None:
    if not isinstance(stable, (bool, np.bool_)):
        raise TypeError(f"'stable' argument to {name} must be True or False, got {stable!r}.")
    if kind is not None:
        raise TypeError(
            f"'kind' argument to {name} is not supported. Use stable=True or stable=False."
        )
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported.")


def sort(
    a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
    stable: bool = True, descending: bool = False,
) -> Array:  # fmt: skip
    """The elements in order along `axis`; NaN last.

    Args:
      axis: the axis; None sorts the flattened array.
      kind: not supported.
      order: not supported.
      stable: whether equal elements keep their order.
      descending: largest first.

        >>> jnp.sort(jnp.array([3, 1, 2]))
        Array([1, 2, 3], dtype=int32)
    """
    _refuse("sort", kind, order, stable)
    a, axis = _flat_axis(as_array("sort", a), axis, "sort")
    result = lax.sort(a, dimension=axis, is_stable=stable)
    return lax.rev(result, (axis,)) if descending else result


def argsort(
    a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
    stable: bool = True, descending: bool = False, dtype: DTypeLike = None,
) -> Array:  # fmt: skip
    """The indices that would sort `a` along `axis`.

    >>> jnp.argsort(jnp.array([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    _refuse("argsort", kind, order, stable)
    a, axis = _flat_axis(as_array("argsort", a), axis, "argsort")
    index = dtypes.default_int_dtype() if dtype is None else user_dtype(dtype, "argsort")
    return _argsort(a, axis, bool(stable), bool(descending), index)


@composite(static_argnames=("axis", "stable", "descending", "index"))
def _argsort(a: Array, axis: int, stable: bool, descending: bool, index: Any) -> Array:
    positions = lax.broadcasted_iota(index, a.shape, axis)
    if descending and stable:
        # Reversed before and after: equal elements keep their order.
        a, positions = lax.rev(a, (axis,)), lax.rev(positions, (axis,))
    _, result = lax.sort((a, positions), dimension=axis, is_stable=stable, num_keys=1)
    return lax.rev(result, (axis,)) if descending else result


def lexsort(keys: Any, axis: int = -1) -> Array:
    """The indices that sort by several keys, the last one first in importance.

    >>> jnp.lexsort((jnp.array([1, 0, 0]), jnp.array([0, 1, 0])))
    Array([2, 0, 1], dtype=int32)
    """
    columns = as_arrays("lexsort", *keys)
    if not columns:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if any(k.shape != columns[0].shape for k in columns):
        raise ValueError("all keys need to be the same shape")
    if columns[0].ndim == 0:
        return lax.full((), 0, dtypes.default_int_dtype())
    axis = canonical_axis(axis, columns[0].ndim)
    positions = lax.broadcasted_iota(dtypes.default_int_dtype(), columns[0].shape, axis)
    sorted_ = lax.sort((*columns[::-1], positions), dimension=axis, num_keys=len(columns))
    return sorted_[-1]


def sort_complex(a: ArrayLike) -> Array:
    """The elements in order along the last axis, as complex numbers.

    >>> jnp.sort_complex(jnp.array([2.0, 1.0]))
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """
    a = as_array("sort_complex", a)
    if a.ndim == 0:
        raise ValueError("sort_complex requires at least one axis")
    result = lax.sort(a, dimension=a.ndim - 1)
    return convert(result, dtypes.to_complex_dtype(a.dtype))


def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """`a` rearranged along `axis`: nothing before position `kth` is larger, nothing after smaller.

    >>> jnp.partition(jnp.array([3, 1, 2]), 1)[1]
    Array(2, dtype=int32)
    """
    a = as_array("partition", a)
    _check_kth(a, kth, axis, "partition")
    return sort(a, axis)


def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The indices that would `partition` the array.

    >>> jnp.argpartition(jnp.array([3, 1, 2]), 1)[1]
    Array(2, dtype=int32)
    """
    a = as_array("argpartition", a)
    _check_kth(a, kth, axis, "argpartition")
    return argsort(a, axis, dtype=np.int32)


def _check_kth(a: Array, kth: int, axis: int, name: str) -> None:
    if is_kind(a.dtype, np.complexfloating):
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.")
    n = a.shape[canonical_axis(axis, a.ndim)]
    kth = concrete_int(kth, f"kth of {name}")
    if not -n <= kth < n:
        raise ValueError(f"kth {kth} is out of bounds for an axis of size {n}")


def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *,
    method: str = "scan",
) -> Array:  # fmt: skip
    """Where elements would be put into a sorted vector to keep it sorted.

    Args:
      a: sorted vector.
      v: values to place.
      side: before ("left") or after ("right") equal elements.
      sorter: indices that sort `a`, if it is not sorted.
      method: "scan" (binary search), "scan_unrolled", "sort" or "compare_all".

        >>> jnp.searchsorted(jnp.array([1, 3, 5]), jnp.array([3, 4]))
        Array([1, 2], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ValueError(
            f"{side!r} is an invalid value for keyword 'side'. Expected one of ['left', 'right']."
        )
    if method not in ("scan", "scan_unrolled", "sort", "compare_all"):
        raise ValueError(
            f"{method!r} is an invalid value for keyword 'method'. Expected one of ['sort', 'scan',"
            " 'scan_unrolled', 'compare_all']."
        )
    a, v = as_arrays("searchsorted", a, v)
    if a.ndim != 1:
        raise ValueError("a should be 1-dimensional")
    a, v = promote_dtypes(a, v)
    if sorter is not None:
        a = a[as_array("searchsorted", sorter)]
    if not a.size:
        return lax.full(v.shape, 0, np.dtype("int32"))
    return _search(a, v, side, method)


@composite(static_argnames=("side", "method"))
def _search(a: Array, v: Array, side: str, method: str) -> Array:
    # A symbolic size that does not fit is an error of the call.
    index = np.dtype("int32" if is_symbolic_dim(a.size) or a.size < 1 << 31 else "int64")
    if method == "compare_all":
        before = _precedes if side == "left" else (lambda x, y: lax.bitwise_not(_precedes(y, x)))
        column = lax.expand_dims(v, (v.ndim,))
        row = lax.reshape(a, (1,) * v.ndim + (a.size,))
        shape = (*v.shape, a.size)
        wide = [lax.broadcast_in_dim(column, shape, tuple(range(len(shape)))),
                lax.broadcast_in_dim(row, shape, tuple(range(len(shape))))]  # fmt: skip
        return reductions.sum(before(wide[1], wide[0]), -1, dtype=index)
    if method == "sort":
        return _search_by_sorting(a, v, side, index)
    low = lax.full(v.shape, 0, index)
    high = lax.full(v.shape, a.size, index)
    steps = max(1, largest(a.size).bit_length())

    def step(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = lax.shift_right_arithmetic(lax.add(low, high), index.type(1))
        # Once the interval is empty, middle may be a.size: nothing moves then.
        probe = a.at[middle].get(mode="clip")
        right = _precedes(probe, v) if side == "left" else lax.bitwise_not(_precedes(v, probe))
        right = lax.bitwise_and(right, lax.lt(low, high))
        return (
            lax.select(right, lax.add(middle, index.type(1)), low),
            lax.select(right, high, middle),
        )

    if method == "scan_unrolled":
        bounds = (low, high)
        for i in range(steps):
            bounds = step(i, bounds)
        return bounds[0]
    return lax.fori_loop(0, steps, step, (low, high))[0]


def _precedes(x: Array, y: Array) -> Array:
    """The order of `sort`: NaN after everything else."""
    if is_kind(x.dtype, np.complexfloating):
        same = lax.eq(lax.real(x), lax.real(y))
        return select(
            same, _precedes(lax.imag(x), lax.imag(y)), _precedes(lax.real(x), lax.real(y))
        )
    if not is_kind(x.dtype, np.floating):
        return lax.lt(x, y)
    x_nan, y_nan = lax.ne(x, x), lax.ne(y, y)
    return lax.bitwise_or(lax.lt(x, y), lax.bitwise_and(lax.bitwise_not(x_nan), y_nan))


def _search_by_sorting(a: Array, v: Array, side: str, index: Any) -> Array:
    """Sort both together; a value's place is its rank less the values before it."""
    flat = lax.reshape(v, (v.size,))
    both = [flat, a] if side == "left" else [a, flat]
    values = lax.concatenate(both, 0)
    is_query = lax.concatenate([lax.full(p.shape, p is flat, np.dtype(bool)) for p in both], 0)
    origin = lax.concatenate([lax.iota(index, p.size) for p in both], 0)
    _, queries, origin = lax.sort((values, convert(is_query, index), origin), num_keys=1)
    seen = lax.cumsum(lax.sub(index.type(1), queries), 0)
    slots = lax.select(lax.eq(queries, index.type(1)), origin, lax.full_like(origin, flat.size))
    result = lax.full((flat.size,), 0, index).at[slots].set(seen, mode="drop")
    return lax.reshape(result, v.shape)


def digitize(
    x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None
) -> Array:
    """The number of the bin each element falls into.

    >>> jnp.digitize(jnp.array([0.5, 2.5]), jnp.array([0.0, 1.0, 2.0]))
    Array([1, 3], dtype=int32)
    """
    x, edges = as_arrays("digitize", x, bins)
    if edges.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got {bins=}")
    if not edges.size:
        return lax.full(x.shape, 0, np.dtype("int32"))
    method = "scan" if method is None else method
    side = "right" if not right else "left"
    rising = searchsorted(edges, x, side, method=method)
    falling = lax.sub(
        strong(rising, edges.size),
        searchsorted(lax.rev(edges, (0,)), x, side, method=method),
    )
    first, last = (lax.index_in_dim(edges, i, keepdims=False) for i in (0, edges.size - 1))
    return select(lax.ge(last, first), rising, falling)


def bincount(
    x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *,
    length: int | None = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """How often each non-negative integer occurs.

    Args:
      x: integers.
      weights: added up instead of counted.
      minlength: least extent of the result.
      length: extent of the result, needed under `jit`; larger integers are dropped.

        >>> jnp.bincount(jnp.array([0, 2, 2]))
        Array([1, 0, 2], dtype=int32)
    """
    x = as_array("bincount", x)
    if x.dtype == bool:
        x = convert(x, np.dtype("int32"))
    if not is_kind(x.dtype, np.integer):
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype}")
    if x.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    if length is None:
        values = concrete_or_error(
            None,
            x,
            "The error occurred because of argument 'x' of jnp.bincount. To avoid it, pass a static"
            " `length`.",
        )
        length = max(
            concrete_int(minlength, "minlength of bincount"),
            int(values.max(initial=0)) + 1 if values.size else 0,
        )
    weights = (
        lax.full((), 1, dtypes.default_int_dtype()) if weights is None
        else as_array("bincount", weights)
    )  # fmt: skip
    if weights.ndim and weights.shape != x.shape:
        raise ValueError("shape of weights must match shape of x.")
    length = length if is_symbolic_dim(length) else int(length)
    index = lax.max(x, np.zeros((), x.dtype))
    return lax.full((length,), 0, weights.dtype).at[index].add(weights, mode="drop")
