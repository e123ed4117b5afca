"""float32 in the formats of matrix units: with fewer bits, or as a sum of parts with fewer bits.

Rounding is one addition to the bits, half a unit of the last place kept; ties go away from zero.
"""

from __future__ import annotations

import numpy as np

from amdjax.codegen.llvm import BF16, F32, I32, Function, Value, const

#: Bits of float32 that a format has not.
_DROPPED = {"bf16": 16, "xf32": 13}


def rounded_to_xf32(f: Function, x: Value) -> Value:
    """To ten bits of mantissa.

    No unit's manual says how it rounds; what has no more bits passes any. What would become
    infinite is cut off instead, so that a finite number stays finite; NaN are taken as quiet.
    """
    most = const(x.type, _greatest("xf32"))
    half = const(x.type.with_elem("i32"), 1 << _DROPPED["xf32"] - 1)
    below = f.fcmp("olt", f.unary_intrinsic("fabs", x), most)
    bits = f.bitcast(x, half.type)
    rounded = f.add(bits, f.select(below, half, const(half.type, 0)))
    return _cut(f, rounded, "xf32")


def float_parts(f: Function, x: Value, format: str, count: int) -> list[Value]:
    """Numbers of a format whose sum is `x`, the largest first; of two, but for its last bits.

    All but the last are rounded, and finite: infinities and NaN stay in the remainder, of which the
    last part is cut off.
    """
    most = _greatest(format)
    half = const(x.type.with_elem("i32"), 1 << _DROPPED[format] - 1)
    parts = []
    for _ in range(count - 1):
        within = f.intrinsic("minnum", x.type, x, const(x.type, most))
        within = f.intrinsic("maxnum", x.type, within, const(x.type, -most))
        part = _cut(f, f.add(f.bitcast(within, half.type), half), format)
        parts.append(part)
        x = f.sub(x, part)
    parts.append(_cut(f, f.bitcast(x, half.type), format))
    return parts if format == "xf32" else [_upper_half(f, part) for part in parts]


def _greatest(format: str) -> float:
    """The greatest finite number of a format."""
    bits = np.finfo(np.float32).max.view(np.uint32) >> _DROPPED[format] << _DROPPED[format]
    return float(bits.view(np.float32))


def _cut(f: Function, bits: Value, format: str) -> Value:
    """Without the bits that a format has not, as float32."""
    mask = const(bits.type, -1 << _DROPPED[format])
    return f.bitcast(f.and_(bits, mask), bits.type.with_elem(F32.elem))


def _upper_half(f: Function, x: Value) -> Value:
    """A float32 whose lower half is zero, as bfloat16."""
    halves = f.lshr(f.bitcast(x, x.type.with_elem(I32.elem)), const(x.type.with_elem("i32"), 16))
    return f.bitcast(f.cast("trunc", halves, "i16"), x.type.with_elem(BF16.elem))
