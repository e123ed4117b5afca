"""Comparisons of two arrays, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.lowering import Pointwise
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import ANY, FLAT, ORDERED, binary, boolean, comparison, value_dtype
from amdjax.typing import ArrayLike

__all__ = [
    "eq", "eq_p", "eq_to_p", "ge", "ge_p", "gt", "gt_p", "le", "le_p", "le_to_p", "lt", "lt_p",
    "lt_to_p", "ne", "ne_p",
]  # fmt: skip

eq_p = comparison("eq", ANY | {dtypes.extended})
ne_p = comparison("ne", ANY | {dtypes.extended})
lt_p = comparison("lt", ORDERED)
le_p = comparison("le", ORDERED)
gt_p = comparison("gt", ORDERED)
ge_p = comparison("ge", ORDERED)


def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether `x` equals `y`, element by element.

    Example:
      >>> bool(eq(2, 2))
      True
    """
    return eq_p.bind(x, y)


def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether `x` differs from `y`, element by element.

    Example:
      >>> bool(ne(2, 2))
      False
    """
    return ne_p.bind(x, y)


def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether `x` is less than `y`, element by element.

    Example:
      >>> bool(lt(1, 2))
      True
    """
    return lt_p.bind(x, y)


def le(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether `x` is at most `y`, element by element.

    Example:
      >>> bool(le(2, 2))
      True
    """
    return le_p.bind(x, y)


def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether `x` is greater than `y`, element by element.

    Example:
      >>> bool(gt(1, 2))
      False
    """
    return gt_p.bind(x, y)


def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether `x` is at least `y`, element by element.

    Example:
      >>> bool(ge(2, 2))
      True
    """
    return ge_p.bind(x, y)


def _total_order(op: str) -> Pointwise:
    """IEEE 754's total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""

    def key(b: Any, x: Any) -> Any:
        dtype = value_dtype(x)
        if not dtypes.issubdtype(dtype, np.floating):
            return x
        integer = np.dtype(f"int{dtypes.itemsize_bits(dtype)}")
        bits = b.bitcast(x, integer)
        flip = b.shr_logical(b.shr_arithmetic(bits, b.const(63, integer)), b.const(1, integer))
        return b.xor(bits, flip)

    return Pointwise(lambda b, x, y: b.compare(op, key(b, x), key(b, y)))


def _total_comparison(name: str, op: str) -> Primitive:
    return binary(name, ORDERED, FLAT, FLAT, _total_order(op), out=boolean)


eq_to_p = _total_comparison("eq_to", "eq")
lt_to_p = _total_comparison("lt_to", "lt")
le_to_p = _total_comparison("le_to", "le")
