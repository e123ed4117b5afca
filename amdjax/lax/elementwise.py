"""Arithmetic, element by element.

The public functions do not promote: operands have one dtype (Python numbers count as int32,
float32 or complex64, or as the 64-bit types under x64) and one rank, scalars excepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import get_aval
from amdjax.lax._public import Binary, Unary, binary_function, unary_function
from amdjax.lax._rules import (
    ANY,
    FLAT,
    FLOAT,
    INT,
    LINEAR,
    NUMBER,
    binary,
    scalar,
    unary,
    value_dtype,
)
from amdjax.lax.casting import convert_element_type, convert_like
from amdjax.lax.comparison import eq, ne
from amdjax.lax.rounding import round
from amdjax.lax.selection import select
from amdjax.transforms.zero import Zero, instantiate_zeros
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "add", "add_p", "div", "div_p", "max", "max_p", "min", "min_p", "mul", "mul_p", "mulhi",
    "mulhi_p", "neg", "neg_p", "rem", "rem_p", "sub", "sub_p",
]  # fmt: skip

add_p = binary(
    "add",
    NUMBER,
    lambda g, z, x, y: g,
    lambda g, z, x, y: g,
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct),
)
sub_p = binary(
    "sub",
    NUMBER,
    lambda g, z, x, y: g,
    lambda g, z, x, y: neg(g),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: neg(ct)),
)
mul_p = binary(
    "mul",
    NUMBER,
    lambda g, z, x, y: mul(g, y),
    lambda g, z, x, y: mul(x, g),
    transpose=(lambda ct, x, y: mul(ct, y), lambda ct, x, y: mul(x, ct)),
)
div_p = binary(
    "div",
    NUMBER,
    lambda g, z, x, y: div(g, y),
    lambda g, z, x, y: neg(div(mul(g, z), y)),
    transpose=(lambda ct, x, y: div(ct, y), None),
)
neg_p = unary("neg", NUMBER, LINEAR, transpose=lambda ct, x: neg(ct))


neg: Unary = unary_function(
    neg_p, "Negation of each element; unsigned integers wrap around.", "3", "-3"
)
add = binary_function(add_p, "Sum of two arrays, element by element.", "1.5, 2.0", "3.5")
sub = binary_function(sub_p, "Difference of two arrays, element by element.", "1.5, 2.0", "-0.5")


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """Product of two arrays, element by element.

    Args:
      x: array of a numeric dtype.
      out_dtype: dtype to convert both operands to before multiplying.

        >>> int(mul(6, 7))
        42
    """
    if out_dtype is not None:
        x, y = convert_element_type(x, out_dtype), convert_element_type(y, out_dtype)
    return mul_p.bind(x, y)


div: Binary = binary_function(
    div_p,
    """Quotient of two arrays, element by element.

    Integers are divided toward zero; dividing an integer by zero gives -1 (all bits set).""",
    "-7, 2",
    "-3",
)


def _rem_right(g: Any, z: Any, x: Any, y: Any) -> Any:
    # x rem y == x - quotient * y, the quotient being constant; without remainder it is x / y.
    whole = instantiate_zeros(Zero(get_aval(z)))
    quotient = round(div(sub(x, select(ne(z, z), whole, z)), y))
    return neg(mul(g, quotient))


rem_p = binary("rem", INT | FLOAT, lambda g, z, x, y: g, _rem_right)


rem = binary_function(
    rem_p, "Remainder of the division toward zero, with the sign of `x`.", "-7, 2", "-1"
)


def multiply_high(b: Any, x: Any, y: Any) -> Any:
    """The upper half of the bits of products; for lowering rules."""
    dtype = value_dtype(x)
    bits = dtypes.itemsize_bits(dtype)
    sign = "int" if dtypes.issubdtype(dtype, np.signedinteger) else "uint"
    if bits < 64:
        wide = np.dtype(f"{sign}{2 * bits if bits >= 8 else 8}")
        product = b.mul(b.convert(x, wide), b.convert(y, wide))
        return b.convert(b.shr_arithmetic(product, b.const(bits, wide)), x.dtype)
    return _mulhi_64(b, x, y)


def _mulhi_64(b: Any, x: Any, y: Any) -> Any:
    """Schoolbook product of 32-bit halves; the high halves carry the sign."""
    shift, low_mask = b.const(32, x.dtype), b.const(0xFFFFFFFF, x.dtype)
    signed = dtypes.issubdtype(value_dtype(x), np.signedinteger)
    high = b.shr_arithmetic if signed else b.shr_logical
    x0, x1 = b.and_(x, low_mask), high(x, shift)
    y0, y1 = b.and_(y, low_mask), high(y, shift)
    middle = b.add(b.mul(x1, y0), b.shr_logical(b.mul(x0, y0), shift))
    carry = b.add(b.mul(x0, y1), b.and_(middle, low_mask))
    return b.add(b.mul(x1, y1), b.add(high(middle, shift), high(carry, shift)))


mulhi_p = binary("mulhi", INT, FLAT, FLAT, multiply_high)


mulhi = binary_function(
    mulhi_p, "The high half of the double-width product of two integers.", "1 << 30, 8", "2"
)


def _max(b: Any, x: Any, y: Any) -> Any:
    if value_dtype(x).kind == "b":
        return b.select(x, x, y)
    return _choose(b, y, x, x, y) if value_dtype(x).kind == "c" else b.max(x, y)


def _min(b: Any, x: Any, y: Any) -> Any:
    if value_dtype(x).kind == "b":
        return b.select(x, y, x)
    return _choose(b, x, y, x, y) if value_dtype(x).kind == "c" else b.min(x, y)


def _choose(b: Any, lesser: Any, greater: Any, x: Any, y: Any) -> Any:
    """`x` if it is no number or `lesser` precedes `greater`, else `y`."""
    return b.select(b.compare("ne", x, x), x, b.select(_precedes(b, lesser, greater), x, y))


def _precedes(b: Any, x: Any, y: Any) -> Any:
    """Lexicographic order of complex numbers; false if a part that decides is no number."""
    xr, yr = b.real(x), b.real(y)
    tied = b.compare("lt", b.imag(x), b.imag(y))
    return b.select(b.compare("eq", xr, yr), tied, b.compare("lt", xr, yr))


def _share(g: Any, z: Any, x: Any, y: Any) -> Any:
    """The part of tangent `g` of `x` that reaches `z`, the greater or lesser of `x` and `y`."""
    chosen, tied = convert_like(eq(x, z), z), convert_like(eq(y, z), z)
    return mul(g, mul(chosen, sub(scalar(z, 1), mul(scalar(z, 0.5), tied))))


max_p = binary("max", ANY, _share, lambda g, z, x, y: _share(g, z, y, x), _max)
min_p = binary("min", ANY, _share, lambda g, z, x, y: _share(g, z, y, x), _min)


max = binary_function(
    max_p,
    """The greater of two elements; NaN if either is.

    Complex numbers are ordered by real part, then imaginary part. Where the operands are equal
    each receives half of the gradient.""",
    "3, 5",
    "5",
)
min = binary_function(
    min_p,
    """The lesser of two elements; NaN if either is.

    Complex numbers are ordered by real part, then imaginary part. Where the operands are equal
    each receives half of the gradient.""",
    "3, 5",
    "3",
)
