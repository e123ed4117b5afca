"""Quantization: to and from narrow types by scale and zero point; integer products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes
from amdjax.quantize import dequantize_linear, quantize_linear
from amdjax.quantize.products import convolution_sums, signed, without_zero_points

from ..reading import dtype_of
from ..registry import is_host, rule
from ._windows import windows
from .arithmetic import cast
from .convolutions import by_channel, layouts


def _is_integer(dtype: Any) -> bool:
    return bool(dtypes.issubdtype(dtype, np.integer))


def _limits(dtype: Any) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype) if np.dtype(dtype).itemsize == 1 else np.iinfo(dtype)
    return int(info.min), int(info.max)


def quantized(y: Any, zero: Any, dtype: Any, saturate: int = 1) -> Any:
    """Values that were divided by their scale, in a narrow dtype."""
    if not _is_integer(dtype):
        return cast(y if zero is None else y + zero.astype(y.dtype), to=dtype, saturate=saturate)
    y = jnp.round(y)
    if zero is not None:
        y = y + zero.astype(y.dtype)
    return jnp.clip(y, *_limits(dtype)).astype(dtype)


@rule("QuantizeLinear")
def quantize(
    x: Any, scale: Any, zero: Any = None, *, axis: int = 1, saturate: int = 1, block_size: int = 0,
    output_dtype: Any = None, precision: int = 0,
) -> Any:  # fmt: skip
    """`round(x / scale) + zero`, in the dtype of the zero point."""
    if precision:
        at = np.dtype(dtype_of(precision))
        x = x.astype(at)
    else:
        at = jnp.promote_types(scale.dtype if scale.dtype.itemsize > 1 else np.float32, np.float16)
        at = jnp.promote_types(at, x.dtype) if dtypes.issubdtype(x.dtype, np.floating) else at
    return quantize_linear(
        x, _one(scale), None if zero is None else _one(zero), axis=axis, block_size=block_size,
        output_dtype=output_dtype if zero is None else None, precision=at, saturate=bool(saturate),
    )  # fmt: skip


def _one(values: Any) -> Any:
    """Scales or zero points, of which one alone is a number whatever its shape."""
    return values.reshape(()) if values.size == 1 else values


@rule("DequantizeLinear")
def dequantize(
    x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: Any = None,
) -> Any:  # fmt: skip
    """`(x - zero) * scale`."""
    return dequantize_linear(
        x, _one(scale), None if zero is None else _one(zero), axis=axis, block_size=block_size,
        output_dtype=output_dtype,
    )  # fmt: skip


@rule("DynamicQuantizeLinear", since=11)
def dynamic_quantize(x: Any) -> Any:
    """The values in uint8, with a scale and a zero point of their range, which contains 0."""
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = jnp.where(high == low, jnp.ones_like(low), high - low) / np.asarray(255, x.dtype)
    zero = jnp.round(jnp.clip(-low / scale, 0, 255)).astype(np.uint8)
    return quantized(x / scale, zero, np.dtype(np.uint8)), scale, zero


# Products of integers of 8 bits, as machines have instructions for.


def _nothing(zero: Any) -> bool:
    """Whether a zero point is known to be 0."""
    return zero is None or (is_host(zero) and not np.any(zero))


def integer_matmul(a: Any, a_zero: Any, b: Any, b_zero: Any) -> Any:
    """The product of matrices of 8-bit integers in int32, without their zero points."""
    sums = jnp.matmul(a, b, preferred_element_type=np.int32)
    of_b = lambda: _sums(b, -2)[..., 0] if b.ndim == 1 else _sums(b, -2)
    return without_zero_points(
        sums, a.shape[-1], (_column(a_zero), lambda: _sums(a, -1)), (_row(b_zero), of_b)
    )


def _sums(x: Any, axis: int) -> Any:
    return jnp.sum(x, axis if x.ndim > 1 else 0, dtype=np.int32, keepdims=True)


def _column(zero: Any) -> Any:
    """Zero points of the first operand: one, or one for each row; None if they are 0."""
    zero = _row(zero)
    return zero[..., None] if zero is not None and zero.ndim == 1 else zero


def _row(zero: Any) -> Any:
    """Zero points of the second operand: one, or one for each column; None if they are 0."""
    if _nothing(zero):
        return None
    zero = zero.astype(np.int32)
    return zero.reshape(()) if zero.size == 1 else zero


@rule("MatMulInteger", since=10)
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """A product of 8-bit integers, summed in int32."""
    return integer_matmul(a, a_zero, b, b_zero)


@rule("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    """A product of quantized matrices, quantized."""
    if _is_integer(a.dtype):
        product = integer_matmul(a, a_zero, b, b_zero)
    else:
        product = jnp.matmul(a, b, preferred_element_type=np.float32)
    scale = _scale(a_scale, -1) * _scale(b_scale, -2) / _scale(y_scale, -1)
    return quantized(product.astype(np.float32) * scale, y_zero, y_zero.dtype)


def _scale(scale: Any, axis: int) -> Any:
    """Scales in float32: one, or a vector beside a matrix, of which `axis` is the other axis."""
    scale = scale.astype(np.float32)
    if scale.size == 1:
        return scale.reshape(())
    return jnp.expand_dims(scale, axis) if scale.ndim == 1 else scale


def integer_conv(x: Any, x_zero: Any, w: Any, w_zero: Any, group: int, **form: Any) -> Any:
    """A convolution of 8-bit integers in int32, without their zero points."""
    rank = x.ndim - 2
    made = windows(
        x.shape[2:], form.get("kernel_shape") or w.shape[2:], form.get("strides"),
        form.get("dilations"), form.get("pads"), form.get("auto_pad", "NOTSET"),
    )  # fmt: skip
    x_zero, w_zero = (None if _nothing(zero) else zero for zero in (x_zero, w_zero))
    if x.dtype != w.dtype:
        (x, x_zero), (w, w_zero) = signed(jnp.asarray(x), x_zero), signed(jnp.asarray(w), w_zero)
    if w_zero is not None and w_zero.size > 1:
        w_zero = w_zero.reshape(-1, *[1] * (w.ndim - 1))
    params = {
        "window_strides": tuple(made.strides), "padding": tuple(made.pads),
        "lhs_dilation": (1,) * rank, "rhs_dilation": tuple(made.dilations),
        "dimension_numbers": lax.conv_dimension_numbers(x.shape, w.shape, layouts(rank)),
        "feature_group_count": group, "batch_group_count": 1, "precision": None,
        "out_sharding": None,
    }  # fmt: skip
    return convolution_sums(params, jnp.asarray(x), x_zero, jnp.asarray(w), w_zero)


@rule("ConvInteger", since=10)
def conv_integer(
    x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, *, group: int = 1,
    auto_pad: str = "NOTSET", dilations: Any = None, kernel_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    """A convolution of 8-bit integers, summed in int32."""
    return integer_conv(
        x, x_zero, w, w_zero, group, auto_pad=auto_pad, dilations=dilations,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip


@rule("QLinearConv", since=10)
def qlinear_conv(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any,
    b: Any = None, *, group: int = 1, auto_pad: str = "NOTSET", dilations: Any = None,
    kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    """A convolution of quantized data, quantized; the bias has the scale of the products."""
    y = integer_conv(
        x, x_zero, w, w_zero, group, auto_pad=auto_pad, dilations=dilations,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    rank = x.ndim - 2
    if b is not None:
        y = y + by_channel(b, rank)
    scale = x_scale.reshape(()) * w_scale / y_scale.reshape(())
    scale = scale.reshape(()) if scale.size == 1 else by_channel(scale, rank)
    return quantized(
        y.astype(np.float32) * scale, y_zero, x.dtype if y_zero is None else y_zero.dtype
    )
