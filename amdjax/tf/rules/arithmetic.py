"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dims.expression import max_dim, min_dim
from amdjax.core.dtypes import canonicalize_dtype
from amdjax.scipy import special

from ..nodes import Node
from ..registry import converted, is_host, namespace, rule

#: Operators that are functions of NumPy and of `amdjax.numpy` of the same name.
_UNARY = {
    "Abs": "abs", "Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin", "Asinh": "arcsinh",
    "Atan": "arctan", "Atanh": "arctanh", "Ceil": "ceil", "Conj": "conj", "Cos": "cos",
    "Cosh": "cosh", "Exp": "exp", "Expm1": "expm1", "Floor": "floor", "Imag": "imag",
    "Invert": "invert", "IsFinite": "isfinite", "IsInf": "isinf", "IsNan": "isnan", "Log": "log",
    "Log1p": "log1p", "LogicalNot": "logical_not", "Neg": "negative", "Real": "real",
    "Rint": "rint", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt",
    "Square": "square", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_BINARY = {
    "Add": "add", "AddV2": "add", "Atan2": "arctan2", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Equal": "equal",
    "FloorDiv": "floor_divide", "FloorMod": "mod", "Greater": "greater",
    "GreaterEqual": "greater_equal", "LeftShift": "left_shift", "Less": "less",
    "LessEqual": "less_equal", "LogicalAnd": "logical_and", "LogicalOr": "logical_or",
    "Mul": "multiply", "NotEqual": "not_equal", "Pow": "power", "RightShift": "right_shift",
    "Sub": "subtract",
}  # fmt: skip
_DIVISIONS = ("FloorDiv", "FloorMod", "Div", "TruncateDiv", "Mod", "TruncateMod")
_SPECIAL = {
    "Digamma": special.digamma, "Erf": special.erf, "Erfc": special.erfc,
    "Erfinv": special.erfinv, "Lgamma": special.gammaln, "Ndtri": special.ndtri,
}  # fmt: skip


def _register_unary(op: str, name: str) -> None:
    rule(op)(lambda node, x: getattr(namespace(x), name)(x))


def _register_binary(op: str, name: str) -> None:
    def binary(node: Node, x: Any, y: Any) -> Any:
        check_same_dtype(node, x, y)
        if op in _DIVISIONS:
            _check_divisor(node, x, y)
        return _as_operand(x, y, getattr(namespace(x, y), name)(x, y))

    rule(op)(binary)


def _register_special(op: str, function: Callable[[Any], Any]) -> None:
    rule(op, only_device=True)(lambda node, x: function(x))


for _op, _name in _UNARY.items():
    _register_unary(_op, _name)
for _op, _name in _BINARY.items():
    _register_binary(_op, _name)
for _op, _function in _SPECIAL.items():
    _register_special(_op, _function)


def check_same_dtype(node: Node, *values: Any) -> None:
    """Refuse operands of different dtypes, which TensorFlow does not convert.

    Integers with a sign may differ in width: symbolic sizes have none.
    """
    found = {v.dtype for v in values if v.dtype != object}
    if len(found) > 1 and {dtype.kind for dtype in found} != {"i"}:
        raise node.error(f"inputs must have one dtype, got {' and '.join(sorted(map(str, found)))}")


def _check_divisor(node: Node, x: Any, y: Any) -> None:
    if is_host(y) and y.dtype.kind in "iu" and np.any(y == 0) and is_host(x):
        raise node.error("division of an integer by zero")


def _as_operand(x: Any, y: Any, result: Any) -> Any:
    """Comparisons of symbolic sizes are truth values; other results stay what they are."""
    if is_host(result) and result.dtype == object:
        flat = list(result.flat)
        if flat and all(isinstance(v, (bool, np.bool_)) for v in flat):
            return result.astype(bool)
    return result


@rule("AddN")
def add_n(node: Node, *inputs: Any) -> Any:
    if not inputs:
        raise node.error("takes one input at least")
    check_same_dtype(node, *inputs)
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    return total


@rule("RealDiv", "Xdivy")
def real_div(node: Node, x: Any, y: Any) -> Any:
    check_same_dtype(node, x, y)
    if x.dtype == object or y.dtype == object or x.dtype.kind in "biu":
        raise node.error("inputs must be floating-point")
    quotient = namespace(x, y).divide(x, y)
    return _where_not(x == 0, quotient) if node.op == "Xdivy" else quotient


@rule("DivNoNan")
def div_no_nan(node: Node, x: Any, y: Any) -> Any:
    check_same_dtype(node, x, y)
    xp = namespace(x, y)
    return _where_not(y == 0, xp.divide(x, xp.where(y == 0, xp.ones_like(y), y)))


@rule("MulNoNan")
def mul_no_nan(node: Node, x: Any, y: Any) -> Any:
    check_same_dtype(node, x, y)
    return _where_not(y == 0, x * y)


@rule("Xlogy", "Xlog1py")
def xlogy(node: Node, x: Any, y: Any) -> Any:
    check_same_dtype(node, x, y)
    xp = namespace(x, y)
    safe = xp.where(x == 0, xp.ones_like(y), y)
    return _where_not(x == 0, x * (xp.log(safe) if node.op == "Xlogy" else xp.log1p(safe)))


def _where_not(condition: Any, value: Any) -> Any:
    """Values, and zeros where a condition holds."""
    xp = namespace(condition, value)
    return xp.where(condition, xp.zeros_like(value), value)


@rule("Div", "TruncateDiv")
def truncated_div(node: Node, x: Any, y: Any) -> Any:
    if x.dtype.kind == "f" or (x.dtype != object and x.dtype.kind not in "iu"):
        return namespace(x, y).divide(x, y)
    return _by_truncation(node, x, y)[0]


@rule("Mod", "TruncateMod")
def truncated_mod(node: Node, x: Any, y: Any) -> Any:
    return _by_truncation(node, x, y)[1]


def _by_truncation(node: Node, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient toward zero, and remainder."""
    check_same_dtype(node, x, y)
    _check_divisor(node, x, y)
    if namespace(x, y) is jnp:
        x, y = jnp.broadcast_arrays(x, y)
        quotient = lax.div(x, y)
        return jnp.trunc(quotient) if x.dtype.kind == "f" else quotient, lax.rem(x, y)
    if x.dtype == object or y.dtype == object:  # sizes, which are not negative
        return x // y, x % y
    rest = np.fmod(x, y)
    quotient = np.trunc(x / y) if x.dtype.kind == "f" else (x - rest) // y
    return quotient.astype(x.dtype), rest


@rule("Maximum")
def maximum(node: Node, x: Any, y: Any) -> Any:
    return _extreme(node, x, y, "maximum", max_dim)


@rule("Minimum")
def minimum(node: Node, x: Any, y: Any) -> Any:
    return _extreme(node, x, y, "minimum", min_dim)


def _extreme(node: Node, x: Any, y: Any, name: str, of_sizes: Callable[..., Any]) -> Any:
    check_same_dtype(node, x, y)
    if x.dtype == object or y.dtype == object:
        return np.frompyfunc(of_sizes, 2, 1)(x, y)
    return getattr(namespace(x, y), name)(x, y)


@rule("SquaredDifference")
def squared_difference(node: Node, x: Any, y: Any) -> Any:
    check_same_dtype(node, x, y)
    return (x - y) * (x - y)


@rule("ClipByValue")
def clip_by_value(node: Node, x: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    check_same_dtype(node, x, clip_value_min, clip_value_max)
    xp = namespace(x)
    return xp.minimum(xp.maximum(x, clip_value_min), clip_value_max)


@rule("Reciprocal", "Inv")
def reciprocal(node: Node, x: Any) -> Any:
    return namespace(x).divide(namespace(x).ones_like(x), x)


@rule("Rsqrt", only_device=True)
def rsqrt(node: Node, x: Any) -> Any:
    return lax.rsqrt(x)


@rule("Round")
def round_half_to_even(node: Node, x: Any) -> Any:
    return x if x.dtype.kind in "iuO" else namespace(x).rint(x)


@rule("Cast")
def cast(node: Node, x: Any) -> Any:
    dtype = node.dtype("DstT")
    if x.dtype != object:
        with np.errstate(invalid="ignore"):
            return converted(x, dtype)
    if dtype.kind in "iu":
        return x
    if dtype.kind == "b":
        return np.frompyfunc(bool, 1, 1)(x).astype(bool)
    numbers = [converted(jnp.asarray(n), dtype) for n in x.flat]
    return jnp.stack(numbers).reshape(x.shape)


@rule("Bitcast", only_device=True)
def bitcast(node: Node, x: Any) -> Any:
    dtype = node.dtype("type")
    if (
        canonicalize_dtype(dtype) != dtype
        or canonicalize_dtype(node.dtype("T", x.dtype)) != x.dtype
    ):
        raise node.error("bits of 64-bit types need jax_enable_x64")
    return lax.bitcast_convert_type(x, dtype)


@rule("ApproximateEqual", only_device=True)
def approximate_equal(node: Node, x: Any, y: Any) -> Any:
    return jnp.abs(x - y) < node.real("tolerance", 1e-5)
