"""Arrays made from nothing: constants, counters, uninitialized memory."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.constraints import sharding_like
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.lowering import Element
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import NUMBER, Shape, as_axes, as_ints, aval_of, check_dtype, shape_of
from amdjax.lax.casting import convert
from amdjax.lax.shape import broadcast, check_sizes
from amdjax.transforms.transfers import laid_out
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "broadcasted_iota", "empty", "empty_p", "full", "full_like", "iota", "iota_p", "shape_as_value",
]  # fmt: skip


def _as_number(value: Any, dtype: Any) -> Any:
    """A NumPy scalar of `dtype`; floating-point numbers beyond an integer's range are clamped."""
    real = not dtypes.issubdtype(dtype, np.complexfloating) and dtype != np.bool_
    if isinstance(value, builtins.complex) and not isinstance(value, np.generic) and real:
        raise TypeError(f"full: fill_value must be real to fill an array of {dtype}, got {value}.")
    value = np.asarray(value)
    if dtypes.issubdtype(dtype, np.integer) and dtypes.issubdtype(value.dtype, np.floating):
        limits = dtypes.iinfo(dtype)
        whole = 0 if np.isnan(value) else np.trunc(value.astype(np.float64))
        return np.asarray(min(max(whole, limits.min), limits.max)).astype(dtype)[()]
    return value.astype(dtype)[()]


def _check_scalar(name: str, value: Any) -> None:
    if type(value) is not int and shape_of(value):  # integers may lie beyond the default dtype
        raise TypeError(f"{name}: fill_value must be a scalar, got shape {shape_of(value)}.")


def _filled(shape: Shape, value: Any, dtype: Any, weak_type: bool) -> Any:
    if dtype == dtypes.float0:
        return np.zeros(shape, dtype)
    if isinstance(dtype, dtypes.ExtendedDType):
        return dtype.full(shape, value)
    if is_symbolic_dim(value):
        value = value.__jax_array__()
    if not isinstance(value, Array):
        # A number becomes a literal of the right type, not an operation that converts it.
        value = _as_number(value, dtype)
        if weak_type:
            value = value.item()
        if aval_of(value).dtype != dtype:
            value = convert(value, dtype, weak_type)
    else:
        value = convert(value, dtype, weak_type)
    return broadcast(value, shape)


def full(
    shape: int | Sequence[int],
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    sharding: Any = None,
) -> Array:
    """An array of one value.

    Args:
      shape: the shape of the result, or the size of its only axis.
      dtype: dtype of the result; that of the value where omitted.

    Returns:
      Array of the given shape.

    Raises:
      TypeError: if the value is not a scalar or a size is negative.

        >>> full((2,), 1.5).tolist()
        [1.5, 1.5]
    """
    _check_scalar("full", fill_value)
    sizes = as_ints(shape, "full shape")
    if dtype is None:
        aval = aval_of(fill_value)
        dtype, weak_type = aval.dtype, aval.weak_type
    else:
        dtype, weak_type = dtypes.check_and_canonicalize_user_dtype(dtype, "full"), False
    return laid_out("full", _filled(sizes, fill_value, dtype, weak_type), sharding)


def full_like(
    x: Any,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    sharding: Any = None,
) -> Array:
    """An array of one value with the shape and dtype of another.

    Args:
      x: array, scalar or anything with `shape` and `dtype`.
      dtype: dtype of the result; that of `x` where omitted.
      shape: shape of the result; that of `x` where omitted.

    Returns:
      The filled array.

    Raises:
      TypeError: if the value is not a scalar.

        >>> full_like(np.zeros(2, np.float32), 3).tolist()
        [3.0, 3.0]
    """
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        x = aval_of(x)
    _check_scalar("full_like", fill_value)
    shape = tuple(x.shape) if shape is None else as_ints(shape, "full_like shape")
    if sharding is None:
        sharding = sharding_like(x, len(shape))
    weak_type = dtype is None and bool(getattr(x, "weak_type", False))
    dtype = dtypes.check_and_canonicalize_user_dtype(x.dtype if dtype is None else dtype)
    return laid_out("full_like", _filled(shape, fill_value, dtype, weak_type), sharding)


iota_p = Primitive("iota")


@iota_p.def_abstract_eval
def _iota_type(*, dtype: np.dtype, shape: Shape, dimension: int, sharding: Any) -> ShapedArray:
    check_dtype("iota", dtype, NUMBER)
    check_sizes("iota shape", shape)
    if not 0 <= dimension < len(shape):
        raise ValueError(
            f"iota dimension must be between 0 and len(shape), got dimension={dimension} for "
            f"shape={shape}"
        )
    return ShapedArray(shape, dtype)


iota_p.lowering = Element(
    lambda b, index, *, dtype, dimension, **_: b.index_value(index[dimension], dtype)
)


def iota(dtype: DTypeLike, size: int) -> Array:
    """The numbers 0 … size-1.

    Args:
      size: how many.

    Returns:
      Array of shape `(size,)`.

    Raises:
      TypeError: for a boolean dtype or a negative size.

        >>> iota(np.int32, 3).tolist()
        [0, 1, 2]
    """
    return broadcasted_iota(dtype, as_ints(size, "iota size"), 0)


def broadcasted_iota(
    dtype: DTypeLike, shape: Sequence[int], dimension: int, *, out_sharding: Any = None
) -> Array:
    """Each element's position along one axis.

    Args:
      dimension: the axis along which to count.

    Returns:
      Array of the given shape and dtype.

    Raises:
      TypeError: for a boolean dtype or a negative size.
      ValueError: if there is no such axis.

        >>> broadcasted_iota(np.int32, (2, 2), 1).tolist()
        [[0, 1], [0, 1]]
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "iota")
    shape = as_ints(shape, "iota shape")
    (dimension,) = as_ints(dimension, "iota dimension")
    return iota_p.bind(dtype=dtype, shape=shape, dimension=dimension, sharding=out_sharding)


empty_p = Primitive("empty")


@empty_p.def_abstract_eval
def _empty_type(*, shape: Shape, dtype: np.dtype, out_sharding: Any) -> ShapedArray:
    check_sizes("empty shape", shape)
    return ShapedArray(shape, dtype)


# Storing zeros costs no more than a fresh page does, and runs stay reproducible.
empty_p.lowering = Element(lambda b, index, *, dtype, **_: b.const(0, dtype))


def empty(shape: int | Sequence[int], dtype: DTypeLike, *, out_sharding: Any = None) -> Array:
    """An array whose contents are unspecified.

    Args:
      shape: the shape of the result, or the size of its only axis.
      dtype: any dtype.

    Returns:
      Array of the given shape and dtype.

    Raises:
      TypeError: if a size is negative.

        >>> empty((2, 3), np.float32).shape
        (2, 3)
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "empty")
    shape = as_ints(shape, "empty shape")
    if isinstance(dtype, dtypes.ExtendedDType):
        return dtype.full(shape, 0)
    return empty_p.bind(shape=shape, dtype=dtype, out_sharding=out_sharding)


def shape_as_value(shape: Sequence[int]) -> Array | np.ndarray:
    """A shape as an integer array, of NumPy's where it has sizes.

    Args:
      shape: a sequence of integers.

    Returns:
      Array of shape `(len(shape),)`.

    Raises:
      TypeError: if a size is not an integer.

        >>> shape_as_value((2, 3)).tolist()
        [2, 3]
    """
    sizes = np.asarray(as_axes(shape, "shape"), np.int64)
    if not sizes.size:
        return full((0,), 0, np.int32)
    narrow = (sizes < 2**31).all()
    return sizes.astype(np.int32 if narrow else dtypes.canonicalize_dtype(np.int64))
