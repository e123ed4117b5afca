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
    one = llvm.const(d.type, 1.0)

    def fast(r: Value) -> list[Value]:
        q = f.mul(x, f.splat(r, n))
        # One by one: packed operations do not negate what comes from others. The residual is taken
        # from the quotient, so that -0 stays -0.
        excess = [f.fma(f.extract(q, i), d, f.neg(f.extract(x, i))) for i in range(n)]
        return [f.fma(joined(f, excess), f.splat(f.neg(r), n), q)]

    def safe() -> list[Value]:
        return [f.fdiv(x, f.splat(d, n))]

    if g.isa.target.is_amdgpu:
        extreme = [f.not_(c) for c in (*_has_inverse(g, d), *_are_moderate(g, x))]
        # Waves go either way as a whole.
        moderate = f.not_(g.isa.any(f, *extreme))
        (q,) = g.when(moderate, lambda: fast(_inverse(g, d)), safe)
    else:
        r = f.fdiv(one, d)
        moderate = f.and_(f.and_(*_is_moderate(g, d)), f.and_(*_are_moderate(g, x)))
        (q,) = g.when(moderate, lambda: fast(r), safe)
    return q


def _is_moderate(g: GpuEmitter, d: Value) -> tuple[Value, Value]:
    """Both say that a number is positive and of moderate size."""
    low, high = (llvm.const(d.type, 2.0**e) for e in DIVISORS)
    return g.f.fcmp("oge", d, low), g.f.fcmp("ole", d, high)


def _inverse(g: GpuEmitter, d: Value) -> Value:
    """`1 / d` of what has one by `_has_inverse`, rounded correctly: an iteration of Newton's."""
    f, r = g.f, g.f.call(g.f.module.estimates["rcp"], d.type, d)
    return f.fma(f.fma(f.neg(d), r, llvm.const(d.type, 1.0)), r, r)


def _has_inverse(g: GpuEmitter, d: Value) -> tuple[Value, Value]:
    """Both say that a number is positive, of moderate size, and that an iteration inverts it.

    From an estimate that is off by an ulp or less it does, but where all bits of a divisor are ones
    (`tools/check_division.py` tries all).
    """
    f, (low, high) = g.f, DIVISORS
    bits = f.bitcast(d, I32)
    place = f.sub(bits, llvm.const(I32, (low + 127) << 23))
    ones = f.or_(bits, llvm.const(I32, 0xFF800000))
    between = f.icmp("ule", place, llvm.const(I32, (high - low) << 23))
    return between, f.icmp("ne", ones, llvm.const(I32, 0xFFFFFFFF))


def _are_moderate(g: GpuEmitter, x: Value) -> tuple[Value, Value]:
    """Both say that all elements are zero or of moderate size; NaN may pass."""
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
    fits = f.icmp("uge", least, smallest)
    return fits, f.fcmp("ole", most, llvm.const(most.type, 2.0**high))
