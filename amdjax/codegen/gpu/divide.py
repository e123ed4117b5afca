"""Quotients of several elements by one number, exactly as by division, for less.

With `r = 1 / d`, rounded once, `q = x r` is within two units in the last place of `x / d`, and
`q - r (q d - x)`, of which fused operations round the residual and the sum only, is `x / d` rounded
correctly, unless something overflows or loses bits to underflow (P. Markstein, "Computation of
elementary functions on the IBM RISC System/6000 processor", 1990; N. Brisebarre, J.-M. Muller and
S. K. Raina, "Accelerating correctly rounded floating-point division when the divisor is known in
advance", 2004). A divisor of moderate size and elements that are zero or of moderate size exclude
that; others are divided by the machine's own means.

Why it is right for float: a quotient and the midpoint of two neighbors differ by `c u² / d` or
more, for an integer `c`, where `u = 2**-24` and `1 <= d < 2`, and what is rounded last is off by
less than `6 u² / d`. So only quotients with `|c| < 6` can go wrong; `tools/check_division.py` tries
them all.
"""

from __future__ import annotations

from amdjax.codegen import llvm
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.registers import joined
from amdjax.codegen.llvm import I32, Value

__all__ = ["FEWEST", "divided"]

#: Elements from which a reciprocal and the questions asked of divisor and elements pay.
FEWEST = 4
#: Exponents of divisors. Quotients of elements are normal then.
DIVISORS = (-20, 22)
#: Exponents of elements. The residual is a multiple of `2**-47` of the power of two below `x`.
ELEMENTS = (-102, 106)


def divided(g: GpuEmitter, x: Value, d: Value) -> Value:
    """The elements of a vector of float, each divided by the same number.

    Args:
      g: writes the kernel.
      x: the elements that a thread holds.
      d: what all of them are divided by.
    """
    f, n = g.f, x.type.lanes
    r = f.fdiv(llvm.const(d.type, 1.0), d)

    def fast() -> list[Value]:
        q = f.mul(x, f.splat(r, n))
        # One by one: packed operations do not negate what comes from others. The residual is taken
        # from the quotient, so that -0 stays -0.
        excess = [f.fma(f.extract(q, i), d, f.neg(f.extract(x, i))) for i in range(n)]
        return [f.fma(joined(f, excess), f.splat(f.neg(r), n), q)]

    moderate = f.and_(_is_between(g, d, *DIVISORS), _are_moderate(g, x))
    (q,) = g.when(moderate, fast, lambda: [f.fdiv(x, f.splat(d, n))])
    return q


def _is_between(g: GpuEmitter, d: Value, low: int, high: int) -> Value:
    """Whether a number is positive, and so large."""
    f = g.f
    above = f.fcmp("oge", d, llvm.const(d.type, 2.0**low))
    return f.and_(above, f.fcmp("ole", d, llvm.const(d.type, 2.0**high)))


def _are_moderate(g: GpuEmitter, x: Value) -> Value:
    """Whether all elements are zero or of moderate size; NaN may pass."""
    f, (low, high) = g.f, ELEMENTS
    bits, one = f.bitcast(x, x.type.with_elem("i32")), llvm.const(I32, 1)
    sizes = f.intrinsic("fabs", x.type, x)
    least: Value | None = None
    most: Value | None = None
    for i in range(x.type.lanes):
        # Without its sign, and less one: zero becomes the largest.
        place = f.sub(f.shl(f.extract(bits, i), one), one)
        least = place if least is None else f.intrinsic("umin", I32, least, place)
        size = f.extract(sizes, i)
        most = size if most is None else f.intrinsic("maxnum", size.type, most, size)
    assert least is not None and most is not None
    smallest = llvm.const(I32, ((low + 127) << 24) - 1)
    return f.and_(
        f.icmp("uge", least, smallest), f.fcmp("ole", most, llvm.const(most.type, 2.0**high))
    )
