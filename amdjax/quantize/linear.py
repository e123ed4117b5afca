"""QuantizeLinear and DequantizeLinear as ONNX has them (opset 25)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, as_array

__all__ = ["dequantize_linear", "quantize_linear"]

_OUTPUTS = (
    "int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
)  # fmt: skip


def _placed(what: str, argument: str, x: Array, shape: Any, axis: int, block_size: int) -> Array:
    """Scales or zero points, one for each element of an array or to be broadcast to it."""
    if x.ndim == 0 or (x.ndim == 1 and x.shape[0] == 1 and not block_size):
        return x.reshape(())
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"{what}: axis {axis} is out of range for {len(shape)} axes.")
    axis %= len(shape)
    if not block_size:
        if x.ndim != 1 or x.shape[0] != shape[axis]:
            raise ValueError(
                f"{what}: {argument} must be of rank 0 or have shape ({shape[axis]},), one for "
                f"each element of axis {axis}, got {x.shape}."
            )
        return lax.broadcast_in_dim(x, shape, (axis,))
    blocks = -(-shape[axis] // block_size)
    wanted = (*shape[:axis], blocks, *shape[axis + 1 :])
    if x.shape != wanted:
        raise ValueError(
            f"{what}: {argument} must have shape {wanted}, one for each block of {block_size} "
            f"along axis {axis}, got {x.shape}."
        )
    return lax.slice_in_dim(jnp.repeat(x, block_size, axis), 0, shape[axis], axis=axis)


def _check_block(what: str, block_size: Any) -> int:
    size = operator.index(block_size)
    if size < 0:
        raise ValueError(f"{what}: block_size must not be negative, got {size}.")
    return size


def quantize_linear(
    x: ArrayLike, y_scale: ArrayLike, y_zero_point: ArrayLike | None = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: Any = None, precision: Any = None, saturate: bool = True,
) -> Array:  # fmt: skip
    """Numbers by their scales in few bits: `saturate(round(x / y_scale) + y_zero_point)`.

    Halves are rounded to even.

    Args:
      x: array of floats or of int32.
      y_scale: the scale, one for each element of `axis`, or one for each block along it.
      y_zero_point: what zero becomes, of `y_scale`'s shape and the result's dtype; 0 by default.
      axis: of the scales.
      block_size: how many neighbors along `axis` share a scale; 0 if the scales are of `axis`.
      output_dtype: of the result; uint8 by default.
      precision: in which dtype to divide; by default that of the scale.
      saturate: whether float8 beyond the largest are that; else infinite or NaN.

    Returns:
      Array of `x`'s shape.

    Raises:
      TypeError: a dtype that is not among the results'.
      ValueError: shapes do not fit, or `output_dtype` is not that of the zero point.

        >>> quantize_linear(jnp.array([0.0, 1.5, 2.5, -700.0]), 1.0, np.int8(1))
        Array([   1,    3,    3, -128], dtype=int8)
    """
    what = "quantize_linear"
    x, scale = as_array(what, x), as_array(what, y_scale)
    zero = None if y_zero_point is None else as_array(what, y_zero_point)
    dtype = _output_dtype(what, zero, output_dtype)
    size = _check_block(what, block_size)
    wide = np.dtype(scale.dtype if precision is None else precision)
    if not dtypes.issubdtype(wide, np.floating) or wide.itemsize == 1:  # powers of two
        wide = np.dtype(np.float32)
    own = _placed(what, "y_scale", scale.astype(wide), x.shape, axis, size)
    ratio = x.astype(wide) / own
    if dtypes.issubdtype(dtype, np.floating):
        return _to_float(ratio, dtype, saturate)
    rounded = jnp.round(
        ratio.astype(np.promote_types(wide, np.float32) if wide != dtypes.bfloat16 else np.float32)
    )
    if zero is not None:
        moved = _placed(what, "y_zero_point", zero, x.shape, axis, size)
        rounded = rounded + moved.astype(rounded.dtype)
    info = dtypes.iinfo(dtype)
    return jnp.clip(rounded, float(info.min), float(info.max)).astype(dtype)


def _output_dtype(what: str, zero: Array | None, output_dtype: Any) -> np.dtype:
    dtype = zero.dtype if zero is not None else (output_dtype or np.uint8)
    found = dtypes.canonicalize_dtype(dtype)
    if output_dtype is not None and dtypes.canonicalize_dtype(output_dtype) != found:
        raise ValueError(
            f"{what}: output_dtype must be that of y_zero_point, {found}, got {output_dtype}."
        )
    if np.dtype(found).name not in _OUTPUTS:
        raise TypeError(f"{what}: output_dtype must be one of {', '.join(_OUTPUTS)}, got {found}.")
    return np.dtype(found)


def _to_float(ratio: Array, dtype: np.dtype, saturate: bool) -> Array:
    highest = float(dtypes.finfo(dtype).max)
    if saturate or dtype.name == "float4_e2m1fn":
        clipped = jnp.clip(ratio, -highest, highest)
        return jnp.where(jnp.isnan(ratio), ratio, clipped).astype(dtype)
    return ratio.astype(dtype)


def dequantize_linear(
    x: ArrayLike, x_scale: ArrayLike, x_zero_point: ArrayLike | None = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: Any = None,
) -> Array:  # fmt: skip
    """What numbers in few bits stand for: `(x - x_zero_point) * x_scale`.

    Args:
      x: array of integers, float8 or float4.
      x_scale: the scale, one for each element of `axis`, or one for each block along it.
      x_zero_point: which number is zero, of `x_scale`'s shape; 0 by default.
      axis: of the scales.
      block_size: how many neighbors along `axis` share a scale; 0 if the scales are of `axis`.
      output_dtype: of the result; by default that of the scale.

    Returns:
      Array of `x`'s shape.

    Raises:
      ValueError: shapes do not fit.

        >>> dequantize_linear(np.array([0, 3], np.uint8), np.float32(0.5), np.uint8(1))
        Array([-0.5,  1. ], dtype=float32)
    """
    what = "dequantize_linear"
    x, scale = as_array(what, x), as_array(what, x_scale)
    size = _check_block(what, block_size)
    dtype = np.dtype(scale.dtype if output_dtype is None else output_dtype)
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    own = _placed(what, "x_scale", scale.astype(wide), x.shape, axis, size)
    if x_zero_point is None:
        return (x.astype(wide) * own).astype(dtype)
    zero = as_array(what, x_zero_point)
    if dtypes.issubdtype(x.dtype, np.integer):
        # Differences of integers are exact; int32 has its zero point, which is 0, and no room.
        exact = np.dtype(np.int32)
        moved = _placed(what, "x_zero_point", zero.astype(exact), x.shape, axis, size)
        return ((x.astype(exact) - moved).astype(wide) * own).astype(dtype)
    moved = _placed(what, "x_zero_point", zero.astype(wide), x.shape, axis, size)
    return ((x.astype(wide) - moved) * own).astype(dtype)
