"""Comparisons of two arrays, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.lowering import Pointwise
from amdjax.core.primitive import Primitive
from amdjax.lax._public import binary_function
from amdjax.lax._rules import ANY, FLAT, ORDERED, binary, boolean, comparison, value_dtype

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


eq = binary_function(eq_p, "Whether `x` equals `y`, element by element.", "2, 2", "True")
ne = binary_function(ne_p, "Whether `x` differs from `y`, element by element.", "2, 2", "False")
lt = binary_function(lt_p, "Whether `x` is less than `y`, element by element.", "1, 2", "True")
le = binary_function(le_p, "Whether `x` is at most `y`, element by element.", "2, 2", "True")
gt = binary_function(gt_p, "Whether `x` is greater than `y`, element by element.", "1, 2", "False")
ge = binary_function(ge_p, "Whether `x` is at least `y`, element by element.", "2, 2", "True")


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
