"""Complex arithmetic as formulas over real and imaginary parts.

`COMPLEX_OPS[name](b, *values)` is the tile op `name` for complex elements; `b` is the element
builder. Branch cuts and signed zeros are those of C99 and NumPy. Formulas keep intermediate
results in range wherever the result is.

Sources: W. Kahan, "Branch cuts for complex elementary functions" (1987), for the inverse functions
and tanh; R. Smith, "Algorithm 116: complex division" (1962).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Builder = Any
Elem = Any


class Real:
    """A real element with operators, so that formulas read like formulas."""

    __slots__ = ("b", "el")

    def __init__(self, b: Builder, el: Elem):
        self.b, self.el = b, el

    def lift(self, x: Real | float) -> Real:
        return x if isinstance(x, Real) else Real(self.b, self.b.const(x, self.el.dtype))

    def _op(self, name: str, *others: Real | float) -> Real:
        return Real(self.b, self.b.op(name, self.el, *(self.lift(x).el for x in others)))

    def __add__(self, y: Real | float) -> Real:
        return self._op("add", y)

    def __sub__(self, y: Real | float) -> Real:
        return self._op("sub", y)

    def __mul__(self, y: Real | float) -> Real:
        return self._op("mul", y)

    def __truediv__(self, y: Real | float) -> Real:
        return self._op("div", y)

    def __radd__(self, x: float) -> Real:
        return self.lift(x) + self

    def __rsub__(self, x: float) -> Real:
        return self.lift(x) - self

    def __rmul__(self, x: float) -> Real:
        return self.lift(x) * self

    def __rtruediv__(self, x: float) -> Real:
        return self.lift(x) / self

    def __neg__(self) -> Real:
        return self._op("neg")

    def __abs__(self) -> Real:
        return self._op("abs")

    def __lt__(self, y: Real | float) -> Real:
        return self._op("lt", y)

    def __le__(self, y: Real | float) -> Real:
        return self._op("le", y)

    def __gt__(self, y: Real | float) -> Real:
        return self._op("gt", y)

    def __ge__(self, y: Real | float) -> Real:
        return self._op("ge", y)

    def __and__(self, y: Real) -> Real:
        return self._op("and", y)

    def __or__(self, y: Real) -> Real:
        return self._op("or", y)

    def equals(self, y: Real | float) -> Real:
        return self._op("eq", y)

    def copysign(self, y: Real) -> Real:
        return self._op("copysign", y)

    def fma(self, y: Real, z: Real) -> Real:
        return self._op("fma", y, z)

    def __getattr__(self, name: str) -> Callable[..., Real]:
        """Other tile ops: `x.exp()`, `y.atan2(x)`."""
        return lambda *others: self._op(name, *others)

    @property
    def is_infinite(self) -> Real:
        return abs(self).equals(math.inf)

    @property
    def limits(self) -> np.finfo:
        return np.finfo(np.float32 if self.el.dtype == "f32" else np.float64)


Pair = tuple[Real, Real]

# log 2 less its rounded value.
_LN2_REST = {"f32": -1.904654299957768e-09, "f64": 2.3190468138462996e-17}


def where(cond: Real, x: Real | float, y: Real | float) -> Real:
    """`x` where `cond` holds, else `y`; one of them is a `Real`."""
    like = x if isinstance(x, Real) else y
    assert isinstance(like, Real)
    return Real(cond.b, cond.b.select(cond.el, like.lift(x).el, like.lift(y).el))


def both(cond: Real, x: Pair, y: Pair) -> Pair:
    return where(cond, x[0], y[0]), where(cond, x[1], y[1])


def _complex(fn: Callable[..., Pair]) -> Callable[..., Elem]:
    """A formula on pairs of parts as an operation on complex elements."""

    def op(b: Builder, *values: Elem) -> Elem:
        pairs = [(Real(b, b.real(x)), Real(b, b.imag(x))) for x in values]
        re, im = fn(*pairs)
        return b.complex(re.el, im.el)

    return op


def _real(fn: Callable[..., Real]) -> Callable[..., Elem]:
    """A formula that has a real or boolean result."""

    def op(b: Builder, *values: Elem) -> Elem:
        return fn(*((Real(b, b.real(x)), Real(b, b.imag(x))) for x in values)).el

    return op


def times_i(z: Pair) -> Pair:
    return -z[1], z[0]


def over_i(z: Pair) -> Pair:
    return z[1], -z[0]


# Arithmetic


def add(x: Pair, y: Pair) -> Pair:
    return x[0] + y[0], x[1] + y[1]


def sub(x: Pair, y: Pair) -> Pair:
    return x[0] - y[0], x[1] - y[1]


def mul(x: Pair, y: Pair) -> Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def div(x: Pair, y: Pair) -> Pair:
    """Smith's division; by zero the parts are divided as real numbers."""
    (a, b), (c, d) = x, y
    real_larger = (abs(c) >= abs(d)) | d.ne(d)
    p, q = where(real_larger, c, d), where(real_larger, d, c)
    # One infinite part makes a number infinite, whatever the other is.
    q = where(p.is_infinite & q.ne(q), 1.0, q)
    u, v = where(real_larger, a, b), where(real_larger, b, a)
    zero = p.equals(0.0)
    r = where(zero, 0.0, q / p)
    # Infinite divisors: the ratio of two infinities is no number, its effect is that of 1.
    r = where(p.is_infinite & q.is_infinite, r.lift(1.0).copysign(p) * r.lift(1.0).copysign(q), r)
    scale = p + q * r
    imaginary = where(real_larger, b - a * r, b * r - a)
    return both(zero, (a / abs(c), b / abs(c)), ((u + v * r) / scale, imaginary / scale))


def neg(x: Pair) -> Pair:
    return -x[0], -x[1]


def square(x: Pair) -> Pair:
    a, b = x
    product, gap, total = a * b, a - b, a + b
    # The sum of equal parts may overflow, and what vanishes is no negative zero.
    real = where(gap.equals(0.0), 0.0, where(total.equals(0.0), 0.0, gap * total))
    return real, product + product


def equal(x: Pair, y: Pair) -> Real:
    return x[0].equals(y[0]) & x[1].equals(y[1])


def differ(x: Pair, y: Pair) -> Real:
    return x[0]._op("ne", y[0]) | x[1]._op("ne", y[1])


def is_finite(x: Pair) -> Real:
    return x[0].is_finite() & x[1].is_finite()


# Magnitude and square root


def _larger_first(x: Pair) -> tuple[Real, Real, Real]:
    """The magnitudes of the parts, the larger first, and their ratio, at most 1."""
    a, b = abs(x[0]), abs(x[1])
    large, small = a.max(b), a.min(b)
    infinite = a.is_infinite | b.is_infinite  # infinite even if the other part is NaN
    large = where(infinite, math.inf, large)
    ratio = where(infinite | large.equals(0.0), 0.0, small / large)
    return large, small, ratio


def absolute(x: Pair) -> Real:
    large, _, ratio = _larger_first(x)
    return large * (ratio * ratio + 1.0).sqrt()


def sign(x: Pair) -> Pair:
    radius = absolute(x)
    return both(radius.equals(0.0), x, (x[0] / radius, x[1] / radius))


def sqrt(x: Pair) -> Pair:
    """The root in the right half-plane, of parts scaled by powers of four to keep them in range."""
    large = abs(x[0]).max(abs(x[1]))
    info = x[0].limits
    huge, tiny = large > float(info.max) / 8, large < float(info.tiny) * 2.0**info.nmant
    up = 2.0 ** (2 * info.nmant)
    scale = where(huge, x[0].lift(0.0625), where(tiny, x[0].lift(up), x[0].lift(1.0)))
    back = where(huge, x[0].lift(4.0), where(tiny, x[0].lift(2.0**-info.nmant), x[0].lift(1.0)))
    a, b = x[0] * scale, x[1] * scale
    root = ((abs(a) + absolute((a, b))) * 0.5).sqrt()
    origin = root.equals(0.0)
    other = where(origin, 0.0, abs(b) / (root * 2.0))
    right = x[0] >= 0.0
    re, im = where(right, root, other) * back, where(right, other, root) * back
    infinite = x[1].is_infinite
    re, im = where(infinite, math.inf, re), where(infinite, math.inf, im)
    no_number = differ(x, x) & (x[0].is_infinite | x[1].is_finite())
    re = where(no_number & (x[0] < 0.0), x[1], re)
    left = x[0].equals(-math.inf)
    return re, where(no_number, where(left, -x[0], x[0] + x[1]), im).copysign(x[1])


def rsqrt(x: Pair) -> Pair:
    return div((x[0].lift(1.0), x[0].lift(0.0)), sqrt(x))


# Exponentials and logarithms


# Magnitudes that overflow are products of up to three factors, all of them in range, which are
# multiplied with what belongs to the angle one after the other.
Scaled = tuple[Real, Real, Real]


def _scaled(a: Real, exp: Callable[[Real], Real], base: float) -> Scaled:
    """`exp(a)`, in base `base`, without overflow where a product with the least sine has none."""
    top = math.log(float(a.limits.max)) / math.log(base)
    start, step = math.floor(0.9 * top), math.floor(0.6 * top)
    once, twice = a > start, a > start + step
    shift = where(twice, a.lift(2.0 * step), where(once, a.lift(1.0 * step), a.lift(0.0)))
    factor = a.lift(math.exp(step) if base == math.e else base**step)
    return exp(a - shift), where(once, factor, 1.0), where(twice, factor, 1.0)


def _times(x: Real, scaled: Scaled) -> Real:
    for factor in scaled:
        x = x * factor
    return x


def _sine(b: Real) -> Real:
    """The sine, with the sign of zero."""
    return where(b.equals(0.0), b, b.sin())


def _unknown(b: Real) -> Real:
    """Whether an angle is infinite or no number."""
    return (b - b).ne(0.0)


def _polar(scaled: Scaled, b: Real, cos: Real, sin: Real) -> Pair:
    """`exp(a) (cos + i sin)`: of an unknown angle NaN in both parts, whatever `a` is."""
    return _times(cos, scaled), where(b.equals(0.0), b, _times(sin, scaled))


def exp(x: Pair) -> Pair:
    a, b = x
    return _polar(_scaled(a, lambda v: v.exp(), math.e), b, b.cos(), b.sin())


def exp2(x: Pair) -> Pair:
    a, b = x
    high = b * math.log(2.0)
    # What the angle lost in the multiplication; huge ones lose all of it.
    ln2 = b.lift(math.log(2.0))
    lost = b * _LN2_REST[str(b.el.dtype)] + b.fma(ln2, -high)
    lost = where(abs(lost) < 1.0, lost, 0.0)
    cos, sin = mul((high.cos(), high.sin()), (lost.cos(), lost.sin()))
    return _polar(_scaled(a, lambda v: v.exp2(), 2.0), b, cos, sin)


def expm1(x: Pair) -> Pair:
    a, b = x
    half = (b * 0.5).sin()
    re, im = exp(x)
    small = abs(a) < 2.0
    return where(small, a.expm1() * b.cos() - 2.0 * half * half, re - 1.0), im


def log_absolute(x: Pair) -> Real:
    """`log |x|`, accurate near 1 and without overflow."""
    large, small, ratio = _larger_first(x)
    apart = large.log() + (ratio * ratio).log1p() * 0.5
    # Near the unit circle |x|^2 - 1 is summed with the rounding errors of the squares.
    p, q = large * large, small * small
    rest = large.fma(large, -p) + small.fma(small, -q)
    near = (((p - 1.0) + q) + rest).log1p() * 0.5
    return where((large > 0.7) & (large < 1.4), near, apart)


def log(x: Pair) -> Pair:
    return log_absolute(x), x[1].atan2(x[0])


def log1p(x: Pair) -> Pair:
    a, b = x
    p, q = a * a, b * b
    rest = a.fma(a, -p) + b.fma(b, -q)
    near = (((a + a) + q) + (p + rest)).log1p() * 0.5
    small = abs(a).max(abs(b)) < 0.5
    shifted = a + 1.0
    return where(small, near, log_absolute((shifted, b))), b.atan2(shifted)


def _log_base(base: float) -> Callable[[Pair], Pair]:
    def op(x: Pair) -> Pair:
        re, im = log(x)
        return re * (1.0 / math.log(base)), im * (1.0 / math.log(base))

    return op


def power(x: Pair, y: Pair) -> Pair:
    """`exp(y log x)`; real powers of 0 and infinity as of real numbers, others of them NaN."""
    (a, b), (c, d) = x, y
    zero, one = a.lift(0.0), a.lift(1.0)
    real, positive = d.equals(0.0), c > 0.0
    at_origin = (where(real & positive, 0.0, zero.lift(math.nan)),) * 2
    endless = a.equals(math.inf) & b.equals(0.0) & real & (positive | (c < 0.0))
    result = both(absolute(x).equals(0.0), at_origin, exp(mul(y, log(x))))
    result = both(endless, (where(positive, a, zero), zero), result)
    unity = (real & c.equals(0.0)) | (a.equals(1.0) & b.equals(0.0))
    return both(unity, (one, zero), result)


def logistic(x: Pair) -> Pair:
    """`1 / (1 + exp(-x))` with the exponential that does not overflow."""
    right = x[0] >= 0.0
    e = exp(both(right, neg(x), x))
    one = (x[0].lift(1.0), x[0].lift(0.0))
    return div(both(right, one, e), add(one, e))


# Hyperbolic and trigonometric


def _scaled_cosh_sinh(a: Real) -> tuple[Scaled, Scaled]:
    """The magnitudes of cosh and sinh as products of factors in range."""
    size = abs(a)
    first, second, third = _scaled(size, lambda v: v.exp(), math.e)
    large = second > 1.0
    half = first * 0.5
    cosh, sinh = where(large, half, a.cosh()), where(large, half.copysign(a), a.sinh())
    return (cosh, second, third), (sinh, second, third)


def sinh(x: Pair) -> Pair:
    a, b = x
    cosh_a, sinh_a = _scaled_cosh_sinh(a)
    return _times(b.cos(), sinh_a), where(b.equals(0.0), b, _times(_sine(b), cosh_a))


def cosh(x: Pair) -> Pair:
    a, b = x
    cosh_a, sinh_a = _scaled_cosh_sinh(a)
    one = a.lift(1.0)
    product = one.copysign(a) * one.copysign(b) * 0.0
    return _times(b.cos(), cosh_a), where(b.equals(0.0), product, _times(_sine(b), sinh_a))


def tanh(x: Pair) -> Pair:
    """Kahan's formula; far from the imaginary axis the limit and how it is approached."""
    a, b = x
    t, s = b.tan(), where(abs(a) > 30.0, 0.0, a).sinh()
    beta = t * t + 1.0
    scale = beta * s * s + 1.0
    near = beta * (s * s + 1.0).sqrt() * s / scale, t / scale
    wave = b.sin() * b.cos() * 4.0 * (abs(a) * -2.0).exp()
    unknown = _unknown(b)
    limit = a.lift(1.0).copysign(a)
    far = (
        where(unknown & a.is_finite(), math.nan, limit),
        where(a.is_infinite, a.lift(0.0).copysign(where(unknown, b, wave)), wave),
    )
    re, im = both(abs(a) > 0.55 * a.limits.nmant, far, near)
    return re, where(b.equals(0.0), b, im)


def sin(x: Pair) -> Pair:
    return over_i(sinh(times_i(x)))


def cos(x: Pair) -> Pair:
    return cosh(times_i(x))


def tan(x: Pair) -> Pair:
    return over_i(tanh(times_i(x)))


def _far(x: Pair) -> tuple[Real, Real]:
    """Whether |x| is so large that 1 does not count beside its square, and log |2 x|."""
    large, _, _ = _larger_first(x)
    return large > 2.0 / float(x[0].limits.eps) ** 0.75, log_absolute(x) + math.log(2.0)


def _roots(x: Pair) -> tuple[Pair, Pair]:
    """The square roots of `1 - x` and `1 + x`; the sign of a zero imaginary part is kept."""
    return sqrt((1.0 - x[0], -x[1])), sqrt((1.0 + x[0], x[1]))


def _conj_product(x: Pair, y: Pair) -> Pair:
    """`conj(x) * y`."""
    return x[0] * y[0] + x[1] * y[1], x[0] * y[1] - x[1] * y[0]


def asin(x: Pair) -> Pair:
    minus, plus = _roots(x)
    near = x[0].atan2(mul(minus, plus)[0]), _conj_product(minus, plus)[1].asinh()
    far, size = _far(x)
    re, im = both(far, (x[0].atan2(abs(x[1])), size.copysign(x[1])), near)
    return where(x[0].equals(0.0), x[0], re), im.copysign(x[1])


def acos(x: Pair) -> Pair:
    minus, plus = _roots(x)
    near = minus[0].atan2(plus[0]) * 2.0, _conj_product(plus, minus)[1].asinh()
    far, size = _far(x)
    re, im = both(far, (abs(x[1]).atan2(x[0]), -size.copysign(x[1])), near)
    quarter = x[0].equals(0.0) & x[1].ne(x[1])
    return where(quarter, math.pi / 2, re), im.copysign(-x[1])


def acosh(x: Pair) -> Pair:
    minus, plus = sqrt((x[0] - 1.0, x[1])), sqrt((x[0] + 1.0, x[1]))
    near = _conj_product(minus, plus)[0].asinh(), minus[1].atan2(plus[0]) * 2.0
    far, size = _far(x)
    return both(far, (size, x[1].atan2(x[0])), near)


def asinh(x: Pair) -> Pair:
    return over_i(asin(times_i(x)))


def atanh(x: Pair) -> Pair:
    a, b = abs(x[0]), x[1]
    gap = 1.0 - a
    # Next to the pole at 1 the squares would underflow.
    pole = abs(gap).max(abs(b)) < 2.0**-30
    away = (4.0 * a / where(pole, 1.0, gap * gap + b * b)).log1p() * 0.25
    near = (
        where(pole, (math.log(2.0) - log_absolute((gap, b))) * 0.5, away),
        (b + b).atan2(gap * (1.0 + a) - b * b) * 0.5,
    )
    large, _, ratio = _larger_first(x)
    # 1/x for large x: its real part, and a quarter turn.
    real = a / large / large / (ratio * ratio + 1.0)
    far = where(large.is_infinite, 0.0, real), b.lift(math.pi / 2).copysign(b)
    re, im = both(large > 2.0 / float(a.limits.eps), far, near)
    re, im = where(a.equals(0.0), a, re), where(b.ne(b), b, im)
    return re.copysign(x[0]), im.copysign(b)


def atan(x: Pair) -> Pair:
    return over_i(atanh(times_i(x)))


COMPLEX_OPS: dict[str, Callable[..., Any]] = {
    **{fn.__name__: _complex(fn) for fn in (
        add, sub, mul, div, neg, sign, square, sqrt, rsqrt, exp, exp2, expm1, log,
        log1p, logistic, sinh, cosh, tanh, sin, cos, tan, asin, acos, atan, asinh, acosh, atanh,
    )},
    "pow": _complex(power), "log2": _complex(_log_base(2.0)), "log10": _complex(_log_base(10.0)),
    "abs": _real(absolute), "eq": _real(equal), "ne": _real(differ), "is_finite": _real(is_finite),
}  # fmt: skip
