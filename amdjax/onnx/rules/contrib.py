"""Operators of com.microsoft, as optimizers of models write them; attention has its own file."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.nn.normalization as normalization
from amdjax import nn, numpy as jnp

from ..registry import rule
from .activations import hard_sigmoid
from .convolutions import conv
from .pooling import average_pool, global_average_pool
from .quantization import (
    dequantize,
    dynamic_quantize,
    integer_matmul,
    quantize,
)

contrib = functools.partial(rule, domain="com.microsoft")

contrib("QuantizeLinear")(quantize)
contrib("DequantizeLinear")(dequantize)

# Activations


@contrib("Gelu")
def gelu(x: Any) -> Any:
    """By the error function."""
    return nn.gelu(x, approximate=False)


@contrib("BiasGelu")
def bias_gelu(x: Any, bias: Any) -> Any:
    """`gelu(x + bias)`."""
    return nn.gelu(x + bias, approximate=False)


@contrib("FastGelu")
def fast_gelu(x: Any, bias: Any = None) -> Any:
    """The approximation by tanh, of `x + bias`."""
    return nn.gelu(x if bias is None else x + bias, approximate=True)


@contrib("QuickGelu")
def quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    """`x * sigmoid(alpha * x)`."""
    return x * nn.sigmoid(np.asarray(alpha, x.dtype) * x)


@contrib("BiasSplitGelu")
def bias_split_gelu(x: Any, bias: Any) -> Any:
    """The first half of `x + bias`, times the gelu of the second."""
    first, second = jnp.split(x + bias, 2, -1)
    return first * nn.gelu(second, approximate=False)


@contrib("BiasAdd")
def bias_add(x: Any, bias: Any, skip: Any) -> Any:
    """`x + bias + skip`."""
    return x + bias + skip


# Norms


@contrib("SkipLayerNormalization")
def skip_layer_norm(
    x: Any, skip: Any, scale: Any, shift: Any = None, bias: Any = None, *, node: Any,
    epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """Layer norm of `x + skip + bias`; also its mean, inverse standard deviation, and the sum."""
    x, skip = _skipped(x, skip, bias)
    if node.outputs == 1:
        return normalization.add_layer_norm(x, skip, scale, shift, epsilon=epsilon)
    y, statistics = normalization.add_layer_norm(
        x, skip, scale, shift, epsilon=epsilon, return_statistics=True
    )
    return y, *(s[..., None].astype(np.float32) for s in statistics), x + skip


@contrib("SkipSimplifiedLayerNormalization")
def skip_rms_norm(
    x: Any, skip: Any, scale: Any, bias: Any = None, *, node: Any, epsilon: float = 1e-12
) -> Any:
    """RMS norm of `x + skip + bias`; the sum is the fourth output."""
    x, skip = _skipped(x, skip, bias)
    total = x + skip
    y, inverse = normalization.rms_norm(total, scale, epsilon=epsilon, return_statistics=True)
    inverse = inverse[..., None].astype(np.float32)
    return (y, jnp.zeros_like(inverse), inverse, total)[: node.outputs]


def _skipped(x: Any, skip: Any, bias: Any) -> tuple[Any, Any]:
    return x if bias is None else x + bias, jnp.broadcast_to(skip, x.shape)


@rule("SimplifiedLayerNormalization")
@contrib("SimplifiedLayerNormalization")
def simplified_layer_norm(
    x: Any, scale: Any, *, node: Any, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """RMS norm over all axes from one on; also the inverse root of the mean square."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, inverse = normalization.rms_norm(
        x, scale, axis=axes, epsilon=epsilon, return_statistics=True
    )
    if node.outputs == 1:
        return y
    return y, inverse.reshape(*inverse.shape, *[1] * len(axes)).astype(np.float32)


@contrib("GroupNorm")
def group_norm(
    x: Any, scale: Any, shift: Any, *, groups: int, activation: int = 0, channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Any:  # fmt: skip
    """Group norm, with channels last, and SiLU after it."""
    axis = -1 if channels_last else 1
    y = normalization.group_norm(x, scale, shift, groups=groups, axis=axis, epsilon=epsilon).astype(
        x.dtype
    )
    return nn.silu(y) if activation else y


@contrib("SkipGroupNorm")
def skip_group_norm(
    x: Any, scale: Any, shift: Any, skip: Any, bias: Any = None, *, groups: int,
    activation: int = 0, channels_last: int = 1, epsilon: float = 1e-5,
) -> Any:  # fmt: skip
    """Group norm of `x + skip + bias`, and that sum."""
    shape = [1] * x.ndim
    axis = -1 if channels_last else 1
    shape[axis] = x.shape[axis]
    skip = skip.reshape(*skip.shape[:1], *shape[1:]) if skip.ndim == 2 else skip
    total = x + skip + (0 if bias is None else bias.reshape(shape))
    y = group_norm(
        total, scale, shift, groups=groups, activation=activation, channels_last=channels_last,
        epsilon=epsilon,
    )  # fmt: skip
    return y, total


# Products and convolutions


@contrib("FusedMatMul", "TransposeMatMul")
def fused_matmul(
    a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0,
) -> Any:  # fmt: skip
    """`alpha * a @ b`; operands may be transposed, or have their first axis before the last."""
    a, b = _turned(a, transA, transBatchA), _turned(b, transB, transBatchB)
    y = jnp.matmul(a, b)
    return y if alpha == 1 else y * np.asarray(alpha, y.dtype)


def _turned(x: Any, transposed: int, batch_moved: int) -> Any:
    if batch_moved:
        x = jnp.moveaxis(x, 0, -2)
    return jnp.swapaxes(x, -1, -2) if transposed and x.ndim > 1 else x


#: What a fused convolution does at its end, by name; the numbers are its parameters.
_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "Relu": nn.relu,
    "Tanh": jnp.tanh,
    "Sigmoid": nn.sigmoid,
    "LeakyRelu": lambda x, alpha=0.01: nn.leaky_relu(x, alpha),
    "Clip": lambda x, low=-np.inf, high=np.inf: jnp.clip(x, low, high),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: hard_sigmoid(x, alpha=alpha, beta=beta),
}


@contrib("FusedConv")
def fused_conv(
    x: Any, w: Any, b: Any = None, z: Any = None, *, node: Any, activation: str = "",
    activation_params: Any = (), **form: Any,
) -> Any:  # fmt: skip
    """A convolution, with something added, and an activation."""
    y = conv(x, w, b, **form)
    y = y if z is None else y + z
    if not activation:
        return y
    if activation not in _ACTIVATIONS:
        raise node.error(f"activation must be of {list(_ACTIVATIONS)}, got {activation!r}")
    return _ACTIVATIONS[activation](y, *np.ravel(activation_params).tolist())


@contrib("NhwcConv")
def nhwc_conv(x: Any, w: Any, b: Any = None, **form: Any) -> Any:
    """A convolution whose data and kernel have their channels last."""
    first = lambda a: jnp.moveaxis(a, -1, 1)
    return jnp.moveaxis(conv(first(x), first(w), b, **form), 1, -1)


def _unpacked(x: Any, bits: int, high_first: bool = False) -> Any:
    """The numbers of so many bits that bytes hold on the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    shifts = shifts[::-1].copy() if high_first else shifts
    parts = (x[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*x.shape[:-1], x.shape[-1] * len(shifts))


@contrib("MatMulNBits")
def matmul_n_bits(
    a: Any, b: Any, scales: Any, zeros: Any = None, groups: Any = None, bias: Any = None, *,
    node: Any, K: int, N: int, bits: int = 4, block_size: int, accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Any:  # fmt: skip
    """A product with weights of few bits, in blocks along K with a scale each."""
    if bits not in (1, 2, 4, 8) or weight_prepacked:
        raise node.error(f"bits must be 2, 4 or 8, not prepacked; got {bits}")
    if 0 in b.shape:
        y = jnp.zeros((*a.shape[:-1], N), a.dtype)
        return y if bias is None else y + bias
    blocks = -(-K // block_size)
    b, scales = b.reshape(N, blocks, -1), scales.reshape(N, blocks)
    if zeros is None:
        zeros = jnp.full((N, blocks), 1 << (bits - 1), a.dtype)
    elif zeros.dtype == np.uint8:
        zeros = _unpacked(zeros.reshape(N, -1), bits)[:, :blocks].astype(a.dtype)
    else:
        zeros = zeros.reshape(N, blocks)
    rows = math.prod(a.shape[:-1])
    if groups is None and isinstance(rows, int) and rows <= _FEW_ROWS:
        y = _few_rows(a, b, scales, zeros, bits)
    elif groups is None:
        w = (_unpacked(b, bits).astype(a.dtype) - zeros[..., None]) * scales[..., None]
        y = jnp.matmul(a, w.reshape(N, -1)[:, :K].T)
    else:  # columns that were quantized in another order say which block is theirs
        w, block = _unpacked(b, bits).reshape(N, -1)[:, :K].astype(a.dtype), groups.reshape(-1)[:K]
        y = jnp.matmul(a, ((w - zeros[:, block]) * scales[:, block]).T)
    return y if bias is None else y + bias


#: With so few rows a product reads its weights once, and does not store what they stand for.
_FEW_ROWS = 4


def _few_rows(a: Any, b: Any, scales: Any, zeros: Any, bits: int) -> Any:
    """A product with weights of few bits `(N, blocks, bytes)` as one sum over its elements."""
    per, wide = 8 // bits, jnp.promote_types(a.dtype, np.float32)
    n, blocks, size = b.shape
    rows = a.reshape(-1, a.shape[-1]).astype(wide)
    rows = jnp.pad(rows, [(0, 0), (0, blocks * size * per - rows.shape[1])])
    rows = rows.reshape(-1, 1, blocks, size * per)
    total: Any = 0
    for i in range(per):  # the numbers that lie at one place in their bytes
        part = (b >> np.uint8(i * bits)) & np.uint8((1 << bits) - 1)
        part = part.astype(wide) - zeros.astype(wide)[..., None]
        total = total + rows[..., i::per] * part
    y = jnp.sum(total * scales.astype(wide)[..., None], (-2, -1))
    return y.reshape(*a.shape[:-1], n).astype(a.dtype)


#: Values of four bits; NF4 has quantiles of the normal distribution (Dettmers et al., 2023).
_FP4 = np.array([0, 0.0625 / 12, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12], np.float32)
_NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
     -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
     0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1.0],
    np.float32,
)  # fmt: skip
_BNB4 = {0: np.concatenate([_FP4, -_FP4]), 1: _NF4}


@contrib("MatMulBnb4")
def matmul_bnb4(
    a: Any, b: Any, largest: Any, *, K: int, N: int, block_size: int, quant_type: int,
    training_mode: int = 0, transB: int = 1,
) -> Any:  # fmt: skip
    """A product with weights that are one of 16 values, times the largest of their block."""
    places = _unpacked(b.reshape(-1), 4, high_first=True)[: N * K]
    values = jnp.asarray(_BNB4[quant_type])[places.astype(np.int32)]
    factors = jnp.repeat(largest.reshape(-1).astype(np.float32), block_size)[: N * K]
    w = (values * factors).reshape(N, K).astype(a.dtype)
    return jnp.matmul(a, w.T if transB else w)


@contrib("MatMulIntegerToFloat")
def matmul_integer_to_float(
    a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None,
    bias: Any = None,
) -> Any:  # fmt: skip
    """A product of 8-bit integers, scaled."""
    y = integer_matmul(a, a_zero, b, b_zero).astype(a_scale.dtype) * (a_scale * b_scale)
    return y if bias is None else y + bias


@contrib("QGemm")
def qgemm(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c: Any = None,
    scale: Any = None, zero: Any = None, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    """A product of quantized matrices and a bias, whose step is that of the products."""
    a, b = a.T if transA else a, b.T if transB else b
    sums = integer_matmul(a, a_zero, b, b_zero)
    y = (sums if c is None else sums + c).astype(a_scale.dtype)
    y = y * (a_scale.reshape(()) * b_scale * np.asarray(alpha, a_scale.dtype))
    return y if scale is None else _quantized(y, scale, zero, a)


@contrib("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None
) -> Any:
    """A product whose first operand is quantized by its own range."""
    narrow, scale, zero = dynamic_quantize(a)
    return matmul_integer_to_float(narrow, b, scale, b_scale, zero, b_zero, bias)


# Operators on quantized values, which are computed as numbers.


def _quantized(x: Any, scale: Any, zero: Any, like: Any) -> Any:
    return quantize(x, scale, zero, output_dtype=None if zero is not None else like.dtype)


@contrib("QLinearAdd")
def qlinear_add(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any,
    zero: Any = None,
) -> Any:  # fmt: skip
    """A sum."""
    y = dequantize(a, a_scale, a_zero) + dequantize(b, b_scale, b_zero)
    return _quantized(y, scale, zero, a)


@contrib("QLinearMul")
def qlinear_mul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any,
    zero: Any = None,
) -> Any:  # fmt: skip
    """A product of elements."""
    y = dequantize(a, a_scale, a_zero) * dequantize(b, b_scale, b_zero)
    return _quantized(y, scale, zero, a)


@contrib("QLinearSigmoid")
def qlinear_sigmoid(x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None) -> Any:
    """A sigmoid."""
    return _quantized(nn.sigmoid(dequantize(x, x_scale, x_zero)), scale, zero, x)


@contrib("QLinearLeakyRelu")
def qlinear_leaky_relu(
    x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None, *, alpha: float = 0.01
) -> Any:
    """A leaky ReLU."""
    return _quantized(nn.leaky_relu(dequantize(x, x_scale, x_zero), alpha), scale, zero, x)


@contrib("QLinearSoftmax")
def qlinear_softmax(
    x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None, *, axis: int = -1,
    opset: int = 13,
) -> Any:  # fmt: skip
    """A softmax; before opset 13 over all axes from one on."""
    y = dequantize(x, x_scale, x_zero)
    axes = axis if opset >= 13 else tuple(range(axis % x.ndim, x.ndim))
    return _quantized(nn.softmax(y, axes), scale, zero, x)


@contrib("QLinearConcat")
def qlinear_concat(scale: Any, zero: Any, *parts: Any, axis: int) -> Any:
    """Arrays joined along an axis, each with a scale and a zero point of its own."""
    numbers = [dequantize(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return _quantized(jnp.concatenate(numbers, axis), scale, zero, parts[0])


@contrib("QLinearAveragePool")
def qlinear_average_pool(
    x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None, *, channels_last: int = 0,
    **form: Any,
) -> Any:  # fmt: skip
    """Means of windows."""
    pool = functools.partial(average_pool, **form)
    return _pooled(pool, x, x_scale, x_zero, scale, zero, channels_last)


@contrib("QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None, *, channels_last: int = 0
) -> Any:
    """Means over all of space."""
    return _pooled(global_average_pool, x, x_scale, x_zero, scale, zero, channels_last)


def _pooled(
    pool: Callable[[Any], Any], x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any, last: int
) -> Any:
    y = dequantize(x, x_scale, x_zero)
    y = jnp.moveaxis(pool(jnp.moveaxis(y, -1, 1)), 1, -1) if last else pool(y)
    return _quantized(y, scale, zero, x)
