"""Elementwise operations with NumPy and SciPy.

A rule is a function of the result's dtype, the operands and the parameters; floats come in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from amdjax.core.dtypes import finfo, iinfo, issubdtype

ELEMENTS: dict[str, Callable[..., Any]] = {}


def _is_integer(x: Any) -> bool:
    return x.dtype.kind in "iu" or issubdtype(x.dtype, np.integer)


def _plain(functions: dict[str, Callable[..., Any]]) -> None:
    for name, function in functions.items():
        ELEMENTS[name] = lambda dtype, *xs, _f=function, **params: _f(*xs)


def _element(name: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        ELEMENTS[name] = function
        return function

    return register


_plain({
    "abs": np.abs, "neg": np.negative, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor,
    "ceil": np.ceil, "square": lambda x: x * x, "real": np.real, "imag": np.imag,
    "conj": np.conj, "copy": lambda x: x, "stop_gradient": lambda x: x, "name": lambda x: x,
    "is_finite": np.isfinite, "one_minus_square": lambda x: 1 - x * x,
    "logistic": lambda x: special.expit(x) if x.dtype.kind == "f" else 1 / (1 + np.exp(-x)),
    "erf": special.erf, "erfc": special.erfc, "erf_inv": special.erfinv,
    "lgamma": special.gammaln, "digamma": special.digamma, "bessel_i0e": special.i0e,
    "bessel_i1e": special.i1e,
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply,
    "max": np.maximum, "min": np.minimum, "atan2": np.arctan2,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "complex": lambda x, y: x + 1j * y,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
})  # fmt: skip


@_element("sign")
def _sign(dtype: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return np.where(x == 0, 0, x / np.abs(x))
    return np.where(x == 0, x, np.sign(x))


@_element("div")
def _div(dtype: Any, x: Any, y: Any) -> Any:
    if not _is_integer(x):
        return x / y
    by = np.where(y == 0, np.ones_like(y), y)
    quotient = np.floor_divide(x, by)
    quotient = quotient + ((quotient < 0) & (quotient * by != x)).astype(x.dtype)
    return np.where(y == 0, np.array(-1).astype(x.dtype), quotient)


@_element("rem")
def _rem(dtype: Any, x: Any, y: Any) -> Any:
    if not _is_integer(x):
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, np.ones_like(y), y)))


@_element("pow")
def _pow(dtype: Any, x: Any, y: Any) -> Any:
    if _is_integer(x):
        return np.power(x, np.maximum(y, 0))
    return np.power(x, y.astype(x.dtype) if x.dtype.kind == "f" else y)


@_element("integer_pow")
def _integer_pow(dtype: Any, x: Any, *, y: int) -> Any:
    return 1 / np.power(x, -y) if y < 0 else np.power(x, y)


@_element("round")
def _round(dtype: Any, x: Any, *, rounding_method: Any) -> Any:
    if getattr(rounding_method, "name", "") == "TO_NEAREST_EVEN":
        return np.round(x)
    away = np.floor(np.abs(x) + 0.5)
    # Adding a half rounds up what lies just below one.
    away = np.where(np.abs(x) < 0.5, 0.0, np.where(np.abs(x) >= 2**52, np.abs(x), away))
    return np.copysign(away, x)


@_element("select_n")
def _select(dtype: Any, which: Any, *cases: Any) -> Any:
    index = which.astype(np.intp)
    if index.ndim == 0:
        return cases[int(index)]
    result = cases[0]
    for i, case in enumerate(cases[1:], 1):
        result = np.where(index == i, case, result)
    return result


@_element("convert_element_type")
def _convert(dtype: Any, x: Any, **params: Any) -> Any:
    if dtype == np.bool_:
        return x != 0
    if x.dtype.kind == "c" and not issubdtype(dtype, np.complexfloating):
        x = x.real
    if issubdtype(dtype, np.integer) and x.dtype.kind == "f":
        low, high = int(iinfo(dtype).min), int(iinfo(dtype).max)
        whole = np.trunc(np.where(np.isnan(x), 0, x))
        inside = np.clip(whole, low, float(high) if high < 2**53 else np.nextafter(high, 0))
        return np.where(whole >= high, np.array(high, dtype), inside.astype(dtype))
    return x


@_element("shift_left")
def _left(dtype: Any, x: Any, by: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    return np.where(_beyond(by, bits), 0, np.left_shift(x, np.where(_beyond(by, bits), 0, by)))


@_element("shift_right_arithmetic")
def _right(dtype: Any, x: Any, by: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    return np.right_shift(x, np.where(_beyond(by, bits), bits - 1, by).astype(x.dtype))


@_element("shift_right_logical")
def _right_logical(dtype: Any, x: Any, by: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    plain = x.view(f"u{x.dtype.itemsize}")
    shift = np.where(_beyond(by, bits), 0, by).astype(plain.dtype)
    return np.where(_beyond(by, bits), 0, np.right_shift(plain, shift)).astype(x.dtype)


def _beyond(by: Any, bits: int) -> Any:
    return (by < 0) | (by >= bits)


@_element("population_count")
def _population(dtype: Any, x: Any) -> Any:
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}"))


@_element("clz")
def _clz(dtype: Any, x: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    plain = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    return bits - sum(((plain >> np.uint64(i)) != 0).astype(np.int64) for i in range(bits))


@_element("nextafter")
def _nextafter(dtype: Any, x: Any, y: Any) -> Any:
    kind = np.float32 if finfo(dtype).bits == 32 else np.float64
    return np.nextafter(x.astype(kind), y.astype(kind))
