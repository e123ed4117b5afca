"""Reductions: sums, products, extrema, means and variances."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array, ConcreteArray
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    DTypeLike,
    as_array,
    as_arrays,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    convert,
    is_kind,
    promote_args,
    refuse_out,
    select,
    user_dtype,
)


def _keep(result: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The reduced axes put back with size one."""
    kept = [1 if i in axes else n for i, n in enumerate(shape)]
    return lax.expand_dims(result, axes) if len(kept) else result


def _sum_dtype(dtype: np.dtype, promote_integers: bool) -> np.dtype:
    """The dtype a sum has by default: integers at least of the default width."""
    if dtype.kind in "fc":
        return dtype
    if not promote_integers:
        return np.dtype("int32") if dtype == np.bool_ else dtype
    if dtype == np.bool_:
        return dtypes.default_int_dtype()
    if is_kind(dtype, np.unsignedinteger):
        wide = dtypes.default_uint_dtype()
    elif is_kind(dtype, np.integer):
        wide = dtypes.default_int_dtype()
    else:
        return dtype
    return wide if dtypes.iinfo(dtype).bits < dtypes.iinfo(wide).bits else dtype


@functools.cache
def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which values of `dtype` are accumulated: at least 32 bits."""
    small = is_kind(dtype, np.floating) and dtypes.finfo(dtype).bits < 32
    return np.dtype("float32") if small else dtype


def _reduce(
    name: str, fn: Callable[..., Array], combine: Callable[[Any, Any], Array], a: ArrayLike,
    identity: Any, *, axis: Axis, dtype: DTypeLike = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None, widen: bool = False,
    promote_integers: bool = False,
) -> Array:  # fmt: skip
    """The common frame of the reductions; `identity(dtype)` is None where there is none."""
    refuse_out(name, out)
    a = as_array(name, a)
    axes = canonical_axes(axis, a.ndim)
    result = dtypes.canonicalize_dtype(a.dtype) if dtype is None else user_dtype(dtype, name)
    if widen and dtype is None:
        result = _sum_dtype(result, promote_integers)
    compute = _wide(result) if widen and dtype is None else result
    if widen and result == np.bool_:  # truth is counted, and any count is true
        a, compute = convert(a, result), dtypes.default_int_dtype()
    a = convert(a, compute)
    if where is not None:
        mask = _as_bool(name, where)
        if identity is None and initial is None:
            raise ValueError(
                f"reduction operation {name} does not have an identity, so to use a"
                " where mask one has to specify 'initial'"
            )
        neutral: Any = np.asarray(identity(compute), compute) if identity else None
        neutral = convert(as_array(name, initial), compute) if neutral is None else neutral
        a = select(mask, a, neutral)
    elif identity is None and initial is None and 0 in (a.shape[i] for i in axes):
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    value = fn(a, axes)
    if initial is not None:
        start = as_array(name, initial)
        if start.shape:
            raise ValueError(
                f"{name}: initial value must be a scalar. Got array of shape {start.shape}"
            )
        value = combine(convert(start, compute), value)
    value = convert(value, result)
    return _keep(value, a.shape, axes) if keepdims else value


def _as_bool(name: str, mask: ArrayLike) -> Array:
    mask = as_array(name, mask)
    if mask.dtype != bool:
        raise ValueError(
            f"jnp.{name}: where must be None or a boolean array, got dtype {mask.dtype}"
        )
    return mask


def sum(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:  # fmt: skip
    """The sum of the elements along `axis`.

    Args:
      dtype: dtype of the result; integers narrower than the default are widened without it.
      initial: added to the sum.

    Returns:
      An array without the axes `axis`. 16-bit floats are accumulated in 32 bits.

        >>> jnp.sum(jnp.array([[1, 2], [3, 4]]), axis=0)
        Array([4, 6], dtype=int32)
    """
    return _reduce(
        "sum", lax.reduce_sum, lax.add, a, lambda dtype: 0, axis=axis, dtype=dtype, out=out,
        keepdims=keepdims, initial=initial, where=where, widen=True,
        promote_integers=promote_integers,
    )  # fmt: skip


def prod(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:  # fmt: skip
    """The product of the elements along `axis`; arguments as for `sum`.

    >>> jnp.prod(jnp.array([1, 2, 3, 4]))
    Array(24, dtype=int32)
    """
    return _reduce(
        "prod", lax.reduce_prod, lax.mul, a, lambda dtype: 1, axis=axis, dtype=dtype, out=out,
        keepdims=keepdims, initial=initial, where=where, widen=True,
        promote_integers=promote_integers,
    )  # fmt: skip


def max(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The largest element along `axis`; NaN if there is one.

    Args:
      initial: the least the result can be; needed with `where`.
      where: mask of the elements to consider.

    Raises:
      ValueError: there is no element and no `initial`.

        >>> jnp.max(jnp.array([[1, 5], [3, 4]]), axis=1)
        Array([5, 4], dtype=int32)
    """
    return _reduce("max", lax.reduce_max, lax.max, a, None, axis=axis, out=out,
                   keepdims=keepdims, initial=initial, where=where)  # fmt: skip


def min(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The smallest element along `axis`; arguments as for `max`.

    >>> jnp.min(jnp.array([[1, 5], [3, 4]]), axis=1)
    Array([1, 3], dtype=int32)
    """
    return _reduce("min", lax.reduce_min, lax.min, a, None, axis=axis, out=out,
                   keepdims=keepdims, initial=initial, where=where)  # fmt: skip


amax = max
amin = min


def all(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, *,
    where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Whether every element along `axis` is nonzero.

    >>> jnp.all(jnp.array([[True, False], [True, True]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    return _reduce("all", lax.reduce_and, lax.bitwise_and, a, lambda dtype: True, axis=axis,
                   dtype=bool, out=out, keepdims=keepdims, where=where)  # fmt: skip


def any(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, *,
    where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Whether some element along `axis` is nonzero.

    >>> jnp.any(jnp.array([[True, False], [False, False]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    return _reduce("any", lax.reduce_or, lax.bitwise_or, a, lambda dtype: False, axis=axis,
                   dtype=bool, out=out, keepdims=keepdims, where=where)  # fmt: skip


def reduce_bits(
    name: str, a: ArrayLike, axis: Axis, dtype: DTypeLike, keepdims: bool, initial: Any, where: Any
) -> Array:
    """Reduction by a bitwise operator, for the methods of its ufunc."""
    fn, combine, identity = {
        "bitwise_and": (lax.reduce_and, lax.bitwise_and, lambda dtype: np.array(-1).astype(dtype)),
        "bitwise_or": (lax.reduce_or, lax.bitwise_or, lambda dtype: 0),
        "bitwise_xor": (lax.reduce_xor, lax.bitwise_xor, lambda dtype: 0),
    }[name]
    return _reduce(name, fn, combine, a, identity, axis=axis, dtype=dtype, keepdims=keepdims,
                   initial=initial, where=where)  # fmt: skip


def count_nonzero(a: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """How many elements along `axis` are not zero.

    >>> jnp.count_nonzero(jnp.array([0, 3, 0, 4]))
    Array(2, dtype=int32)
    """
    a = as_array("count_nonzero", a)
    return sum(lax.ne(a, np.zeros((), a.dtype)), axis=axis, keepdims=keepdims,
               dtype=dtypes.default_int_dtype())  # fmt: skip


def ptp(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    """The distance from the smallest to the largest element along `axis`.

    >>> jnp.ptp(jnp.array([3, 1, 7]))
    Array(6, dtype=int32)
    """
    refuse_out("ptp", out)
    return lax.sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def _count(shape: tuple[int, ...], axes: tuple[int, ...], where: Array | None, keepdims: bool,
           dtype: np.dtype) -> Any:  # fmt: skip
    """How many elements a mean runs over: a number, or an array where a mask decides."""
    if where is None:
        count = math.prod(shape[i] for i in axes)
        return convert(count, dtype) if is_symbolic_dim(count) else np.asarray(count, dtype)
    return sum(broadcast_to(where, shape), axes, dtype=dtype, keepdims=keepdims)


@composite(static_argnames=("axis", "dtype", "keepdims"))
def _mean(a: Array, axis: Axis, dtype: DTypeLike, keepdims: bool, where: Array | None) -> Array:
    wanted = dtypes.to_inexact_dtype(a.dtype) if dtype is None else dtype
    result = dtypes.canonicalize_dtype(wanted)
    compute = _wide(result) if dtype is None else result
    axes = canonical_axes(axis, a.ndim)
    total = sum(a, axes, dtype=compute, keepdims=keepdims, where=where)
    real = dtypes.finfo(compute).dtype if is_kind(compute, np.complexfloating) else compute
    count = _count(a.shape, axes, where, keepdims, real)
    return convert(lax.div(total, convert(count, compute)), result)


def mean(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The arithmetic mean of the elements along `axis`.

    Args:
      a: array; integers and booleans are averaged as floats.
      dtype: dtype of the result.

        >>> jnp.mean(jnp.array([[1, 2], [3, 4]]), axis=1)
        Array([1.5, 3.5], dtype=float32)
    """
    refuse_out("mean", out)
    dtype = None if dtype is None else user_dtype(dtype, "mean")
    mask = None if where is None else _as_bool("mean", where)
    return _mean(as_array("mean", a), _static(axis), dtype, keepdims, mask)


def _static(axis: Axis) -> Axis:
    """An axis argument that can be hashed."""
    if isinstance(axis, ConcreteArray) and not axis.ndim:
        return operator.index(axis)
    return tuple(axis) if isinstance(axis, list) else axis


def average(
    a: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """The mean weighted by `weights`.

    Args:
      weights: of the shape of `a`, or of its extent along `axis`; None means equal weights.
      returned: also return the sum of the weights.

        >>> jnp.average(jnp.array([1.0, 3.0]), weights=jnp.array([3.0, 1.0]))
        Array(1.5, dtype=float32)
    """
    if weights is None:
        a = as_array("average", a)
        result = mean(a, axis, keepdims=keepdims)
        size = math.prod(a.shape[i] for i in canonical_axes(axis, a.ndim))
        total: Any = lax.full_like(result, size)
    else:
        a, weights = (
            promote_args("average", a, weights)
            if np.shape(a) == np.shape(weights)
            else (as_array("average", a), as_array("average", weights))
        )
        dtype, _ = promotion.lattice_result_type(a, weights)
        dtype = dtypes.to_inexact_dtype(dtype)
        axes = canonical_axes(axis, a.ndim)
        if a.shape != weights.shape:
            if axis is None:
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            if weights.shape != tuple(a.shape[i] for i in axes):
                raise ValueError("Shape of weights must be consistent with shape of a along axis.")
            order = np.argsort(axes).tolist()
            weights = lax.broadcast_in_dim(
                lax.transpose(weights, order), a.shape, tuple(sorted(axes))
            )
        a, weights = convert(a, dtype), convert(weights, dtype)
        total = sum(weights, axis, keepdims=keepdims)
        result = lax.div(sum(lax.mul(a, weights), axis, keepdims=keepdims), total)
    if returned:
        return result, broadcast_to(total, result.shape)
    return result


@composite(static_argnames=("axis", "dtype", "ddof", "keepdims"))
def _var(
    a: Array, axis: Axis, dtype: DTypeLike, ddof: float, keepdims: bool, where: Array | None,
    mean: Array | None,
) -> Array:  # fmt: skip
    result = dtypes.to_inexact_dtype(a.dtype) if dtype is None else dtype
    if is_kind(a.dtype, np.complexfloating) and not is_kind(result, np.complexfloating):
        compute = _wide(dtypes.to_complex_dtype(result))
    else:
        compute = _wide(result)
    axes = canonical_axes(axis, a.ndim)
    a = convert(a, compute)
    if mean is None:
        mean = _mean(a, axes, compute, True, where)
    centered = lax.sub(a, broadcast_to(convert(mean, compute), a.shape))
    if is_kind(compute, np.complexfloating):
        squares = lax.add(lax.square(lax.real(centered)), lax.square(lax.imag(centered)))
        compute = squares.dtype
        result = dtypes.finfo(result).dtype if dtype is None else result
    else:
        squares = lax.square(centered)
    total = sum(squares, axes, keepdims=keepdims, where=where)
    count = _count(a.shape, axes, where, keepdims, compute)
    if isinstance(count, np.ndarray):
        free = float(count) - ddof
        value = lax.div(total, np.asarray(free if free > 0 else np.nan, compute))
    else:
        left = lax.sub(count, np.asarray(ddof, compute))
        value = select(lax.gt(left, np.zeros((), compute)), lax.div(total, left),
                       np.asarray(np.nan, compute))  # fmt: skip
    return convert(value, result)


def var(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:  # fmt: skip
    """The variance of the elements along `axis`.

    Args:
      a: array; integers and booleans count as floats.
      dtype: dtype of the result.
      ddof: the sum of squares is divided by `n - ddof`.
      mean: the mean along `axis`, with the axes kept, if it is known already.

    Raises:
      ValueError: `ddof` and `correction` are both given.

        >>> jnp.var(jnp.array([1.0, 2.0, 3.0, 4.0]))
        Array(1.25, dtype=float32)
    """
    return _checked_var("var", a, axis, dtype, out, ddof, keepdims, where, mean, correction)


def _checked_var(
    name: str, a: ArrayLike, axis: Axis, dtype: DTypeLike, out: None, ddof: float, keepdims: bool,
    where: ArrayLike | None, mean: ArrayLike | None, correction: float | None,
) -> Array:  # fmt: skip
    """`var` for a function of the given name."""
    refuse_out(name, out)
    if correction is not None:
        if ddof:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    a, _ = as_arrays(name, a, ddof)
    if dtype is not None:
        dtype = user_dtype(dtype, name)
        if is_kind(a.dtype, np.complexfloating) and not is_kind(dtype, np.complexfloating):
            raise ValueError(
                f"jax.numpy.{name} does not yet support real dtype parameters for complex"
            )
    mask = None if where is None else _as_bool(name, where)
    mean = None if mean is None else as_array(name, mean)
    return _var(a, _static(axis), dtype, float(ddof), keepdims, mask, mean)


def std(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:  # fmt: skip
    """The standard deviation along `axis`, the square root of `var`; arguments as there.

    >>> jnp.std(jnp.array([1.0, 1.0, 3.0, 3.0]))
    Array(1., dtype=float32)
    """
    if dtype is not None and not is_kind(user_dtype(dtype, "std"), np.inexact):
        raise ValueError(f"dtype argument to jnp.std must be inexact; got {dtype}")
    return lax.sqrt(
        _checked_var("std", a, axis, dtype, out, ddof, keepdims, where, mean, correction)
    )


def _arg_reduce(
    name: str, fn: Callable[..., Array], a: ArrayLike, axis: int | None, out: None, keepdims: Any
) -> Array:
    refuse_out(name, out)
    a = as_array(name, a)
    shape = a.shape
    if axis is None:
        flat = lax.reshape(a, (a.size,))
        where = 0
    else:
        flat, where = a, canonical_axis(axis, a.ndim)
    if flat.shape[where] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    result = fn(flat, where, dtypes.default_int_dtype())
    if not keepdims:
        return result
    return (
        lax.reshape(result, (1,) * len(shape))
        if axis is None
        else lax.expand_dims(result, (where,))
    )


def argmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """The index of the first largest element along `axis`, or in the flattened array.

    >>> jnp.argmax(jnp.array([[1, 9], [8, 3]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    return _arg_reduce("argmax", lax.argmax, a, axis, out, keepdims)


def argmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """The index of the first smallest element along `axis`, or in the flattened array.

    >>> jnp.argmin(jnp.array([[1, 9], [8, 3]]), axis=1)
    Array([0, 1], dtype=int32)
    """
    return _arg_reduce("argmin", lax.argmin, a, axis, out, keepdims)
