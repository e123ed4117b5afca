"""Arithmetic by elements, comparisons, bits, products of matrices."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.scipy import special

from ..registry import alike, has_symbols, integer, is_host, namespace, rule

# Functions of one operand that are NumPy's

for _name, _function in {
    "Abs": "abs", "Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin", "Asinh": "arcsinh",
    "Atan": "arctan", "Atanh": "arctanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Exp": "exp", "Floor": "floor", "IsNaN": "isnan", "Log": "log",
    "Neg": "negative", "Not": "logical_not", "Round": "round", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}.items():  # fmt: skip

    def _unary(x: Any, *, consumed_inputs: Any = None, _function: str = _function) -> Any:
        return getattr(namespace(x), _function)(x)

    rule(_name)(_unary)


@rule("Reciprocal")
def reciprocal(x: Any, *, consumed_inputs: Any = None) -> Any:
    return jnp.reciprocal(x)


@rule("Erf")
def erf(x: Any) -> Any:
    return special.erf(x)


@rule("Identity")
def identity(x: Any) -> Any:
    return x


@rule("IsInf")
def isinf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    infinite = jnp.isinf(x)
    if not detect_negative:
        infinite &= ~jnp.signbit(x)
    if not detect_positive:
        infinite &= jnp.signbit(x)
    return infinite


# Of two and more


def _aligned(x: Any, y: Any, axis: int | None) -> Any:
    """`y` as an operand of version 6 and before, whose axes begin at an axis of `x`."""
    if axis is None or axis + y.ndim == x.ndim:
        return y
    axis += x.ndim if axis < 0 else 0
    return y.reshape(*y.shape, *[1] * (x.ndim - axis - y.ndim))


def _binary(function: Any, x: Any, y: Any) -> Any:
    x, y = alike(x, y)
    return getattr(namespace(x, y), function)(x, y) if isinstance(function, str) else function(x, y)


def quotient(x: Any, y: Any) -> Any:
    """`x / y`; of integers the part before the point, as in C."""
    xp = namespace(x, y)
    if x.dtype == object:
        return x // y
    if not np.issubdtype(x.dtype, np.integer):
        return xp.divide(x, y)
    if np.issubdtype(x.dtype, np.unsignedinteger):
        return xp.floor_divide(x, y)
    if xp is np:
        whole = np.abs(x) // np.where(y == 0, 1, np.abs(y))
        return (whole * np.sign(x) * np.sign(y)).astype(x.dtype)
    return lax.div(*jnp.broadcast_arrays(x, y))


_BINARY: dict[str, Any] = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": quotient, "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "Equal": "equal", "Greater": "greater",
    "Less": "less", "GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
}  # fmt: skip

for _name, _function in _BINARY.items():

    def _of_two(x: Any, y: Any, *, _function: Any = _function) -> Any:
        return _binary(_function, x, y)

    def _of_two_before(
        x: Any, y: Any, *, axis: int | None = None, broadcast: int = 0,
        consumed_inputs: Any = None, _function: Any = _function,
    ) -> Any:  # fmt: skip
        return _binary(_function, x, _aligned(x, y, axis))

    rule(_name)(_of_two_before)
    rule(_name, since=7)(_of_two)


@rule("Pow", since=7)
def power(x: Any, y: Any) -> Any:
    """In the dtype of the base, whatever that of the exponent is."""
    if np.issubdtype(y.dtype, np.integer) and np.issubdtype(x.dtype, np.integer):
        return jnp.power(x, y).astype(x.dtype)
    wide = jnp.promote_types(x.dtype, y.dtype)
    return jnp.power(x.astype(wide), y.astype(wide)).astype(x.dtype)


@rule("Pow")
def power_before(x: Any, y: Any, *, axis: int | None = None, broadcast: int = 0) -> Any:
    return power(x, _aligned(x, y, axis))


@rule("Mod", since=10)
def modulo(x: Any, y: Any, *, fmod: int = 0) -> Any:
    xp = namespace(x, y)
    return xp.fmod(x, y) if fmod else xp.mod(x, y)


for _name, _function in {"Max": "maximum", "Min": "minimum", "Sum": "add"}.items():

    def _of_several(*xs: Any, consumed_inputs: Any = None, _function: str = _function) -> Any:
        return functools.reduce(getattr(namespace(*xs), _function), alike(*xs))

    rule(_name)(_of_several)


@rule("Mean")
def mean(*xs: Any, consumed_inputs: Any = None) -> Any:
    return functools.reduce(jnp.add, xs) / np.asarray(len(xs), xs[0].dtype)


@rule("BitShift", since=11)
def bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    """By as many places as there are or more, nothing is left but the sign."""
    signed = np.issubdtype(x.dtype, np.signedinteger)
    right = lax.shift_right_arithmetic if signed else lax.shift_right_logical
    return {"LEFT": lax.shift_left, "RIGHT": right}[direction](*jnp.broadcast_arrays(x, y))


@rule("BitCast", since=26)
def bit_cast(x: Any, *, to: Any) -> Any:
    if np.bool_ in (x.dtype, to):
        return x.astype(to)
    return lax.bitcast_convert_type(x, to)


@rule("Where", since=9)
def where(condition: Any, x: Any, y: Any) -> Any:
    condition, x, y = alike(condition, x, y)
    return namespace(condition, x, y).where(condition, x, y)


@rule("Clip", since=11)
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """As `min(max(x, low), high)`: where `low > high`, all are `high`."""
    if low is not None:
        x = jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


@rule("Clip")
def clip_before(
    x: Any, *, min: float | None = None, max: float | None = None, consumed_inputs: Any = None
) -> Any:
    bounds = (None if b is None else np.asarray(b, x.dtype) for b in (min, max))
    return clip(x, *bounds)


@rule("CumSum", since=11)
def cumsum(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return _cumulative(jnp.cumsum, 0, x, integer(axis, "axis"), exclusive, reverse)


@rule("CumProd", since=26)
def cumprod(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return _cumulative(jnp.cumprod, 1, x, integer(axis, "axis"), exclusive, reverse)


def _cumulative(
    function: Any, neutral: int, x: Any, axis: int, exclusive: int, reverse: int
) -> Any:
    x = jnp.flip(x, axis) if reverse else jnp.asarray(x)
    if exclusive:
        first = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=axis), neutral)
        x = jnp.concatenate([first, lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)], axis)
    x = function(x, axis=axis, dtype=x.dtype)
    return jnp.flip(x, axis) if reverse else x


# Products


@rule("MatMul")
def matmul(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b)


@rule("Gemm")
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0, broadcast: int = 0,
) -> Any:  # fmt: skip
    y = jnp.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        y = y * np.asarray(alpha).astype(y.dtype)
    if c is None or beta == 0:
        return y
    return y + (c if beta == 1 else c * np.asarray(beta).astype(c.dtype))


@rule("Einsum", since=12)
def einsum(*xs: Any, equation: str) -> Any:
    return jnp.einsum(equation, *xs)


@rule("Det", since=11)
def det(x: Any) -> Any:
    return jnp.linalg.det(x)


# Conversions


@rule("Cast")
def cast(x: Any, *, to: Any, saturate: int = 1, round_mode: str = "up") -> Any:
    """The values in another dtype; floats of eight bits and less take the nearest they have."""
    to = np.dtype(to)
    if has_symbols(x):
        return x if to.kind in "iu" else cast(jnp.asarray(x.tolist()), to=to)
    if x.dtype == object or to.hasobject:
        return x if to == x.dtype else _of_text(x, to)
    if to == np.bool_:
        return x != np.zeros((), x.dtype)
    if to.name.startswith(("float8", "float4", "float6")):
        return _to_narrow(x, to, saturate, round_mode)
    return _astype(x, to)


def _astype(x: Any, to: np.dtype) -> Any:
    if to.name.lstrip("u") in ("int4", "int2") and x.dtype.kind not in "iu":
        x = _astype(x, np.dtype(np.int32))  # of which the lowest bits are kept
    if is_host(x):
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(to)
    return x.astype(to)


def _to_narrow(x: Any, to: np.dtype, saturate: int, round_mode: str) -> Any:
    if to == ml_dtypes.float8_e8m0fnu:
        return _to_power_of_two(x, to, saturate, round_mode)
    xp = namespace(x)
    if saturate or to == ml_dtypes.float4_e2m1fn:
        limit = np.asarray(ml_dtypes.finfo(to).max).astype(np.float32)
        x = _astype(x, np.dtype(np.float32))
        x = xp.where(xp.isnan(x), x, xp.clip(x, -limit, limit))
    return _astype(x, to)


def _to_power_of_two(x: Any, to: np.dtype, saturate: int, round_mode: str) -> Any:
    """E8M0 holds powers of two and NaN: the exponent, rounded up, down or to the nearest."""
    bits = lax.bitcast_convert_type(jnp.asarray(x).astype(np.float32), np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    exponent, rest = magnitude >> np.uint32(23), magnitude & np.uint32(0x7FFFFF)
    more = {
        "up": rest > 0,
        "down": jnp.zeros_like(rest, bool),
        "nearest": (rest > 0x400000) | ((rest == 0x400000) & ((exponent & 1) == 1)),
    }[round_mode]
    exponent = exponent + more.astype(np.uint32)
    exponent = jnp.where(exponent >= 255, np.uint32(254 if saturate else 255), exponent)
    exponent = jnp.where(magnitude > 0x7F800000, np.uint32(255), exponent)
    return lax.bitcast_convert_type(exponent.astype(np.uint8), to)


def _of_text(x: Any, to: Any) -> Any:
    """To and from strings, as NumPy reads and writes numbers."""
    host = np.asarray(x)
    if to.hasobject:
        return np.array([_written(v) for v in host.ravel()], object).reshape(host.shape)
    values = [np.dtype(to).type(float(v)) if np.dtype(to).kind not in "iu" else int(v)
              for v in host.ravel()]  # fmt: skip
    return (
        np.array(values, np.float64 if np.dtype(to).kind == "V" else None)
        .astype(to)
        .reshape(host.shape)
    )


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value.item() if isinstance(value, np.bool_) else value)


@rule("CastLike", since=15)
def cast_like(x: Any, target: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast(x, to=target.dtype, saturate=saturate, round_mode=round_mode)
