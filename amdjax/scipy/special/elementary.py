"""Special functions: `scipy.special`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.lax.incomplete_beta import log_beta
from amdjax.nn.functions import (
    log_softmax as _log_softmax,
    logsumexp as logsumexp,
    softmax as _softmax,
)
from amdjax.numpy._public import special_function
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    as_array,
    constant,
    is_kind,
    promote_args_inexact,
    select,
)
from amdjax.numpy.elementary import bessel_i0, bessel_i1
from amdjax.scipy.special._arguments import (
    complex_loggamma,
    reject_complex,
    single_or_double,
    strongly,
)
from amdjax.transforms import custom_jvp

__all__ = [
    "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "digamma", "entr", "erf", "erfc",
    "erfinv", "expit", "factorial", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "i0",
    "i0e", "i1", "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma", "logit", "logsumexp",
    "multigammaln", "ndtr", "ndtri", "poch", "polygamma", "rel_entr", "softmax", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip


gammaln = special_function(
    "gammaln",
    lax.lgamma,
    "The logarithm of the magnitude of the gamma function.",
    "3.0",
    "0.6931472",
)


def loggamma(x: ArrayLike) -> Array:
    """The logarithm of the gamma function, analytic but for a cut along the negative real axis.

    Args:
      x: complex, or real: NaN where it is not positive.

    Returns:
      Array of the shape and dtype of `x`. The error of complex results is absolute: a few units in
      the last place of the largest of 1 and the magnitude.

        >>> special.loggamma(jnp.array([1.0, -0.5]))
        Array([ 0., nan], dtype=float32)
    """
    (z,) = promote_args_inexact("loggamma", x)
    if is_kind(z.dtype, np.complexfloating):
        return complex_loggamma(*strongly([z]))
    return jnp.where(z <= 0, np.nan, lax.lgamma(z))


@composite
def gammasgn(x: ArrayLike) -> Array:
    """The sign of the gamma function; NaN at negative integers.

    >>> special.gammasgn(jnp.array([-0.5, 2.0]))
    Array([-1.,  1.], dtype=float32)
    """
    (x,) = strongly(promote_args_inexact("gammasgn", x))
    reject_complex("gammasgn", x)
    floor = lax.floor(x)
    one = constant(x, 1)
    odd = jnp.remainder(floor, 2) != 0
    negative = select(x == floor, constant(x, np.nan), select(odd, lax.neg(one), one))
    at_zero = select(jnp.signbit(x), lax.neg(one), one)
    sign = jnp.where(x == 0, at_zero, jnp.where(x < 0, negative, one))
    return jnp.where(jnp.isnan(x), np.nan, sign)


@composite
def gamma(x: ArrayLike) -> Array:
    """The gamma function.

    >>> jnp.round(special.gamma(jnp.array([1.0, 4.0])), 3)
    Array([1., 6.], dtype=float32)
    """
    (x,) = strongly(promote_args_inexact("gamma", x))
    if is_kind(x.dtype, np.complexfloating):
        return lax.exp(complex_loggamma(x))
    return gammasgn(x) * lax.exp(lax.lgamma(x))


@composite
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """The logarithm of the magnitude of the beta function.

    >>> special.betaln(1.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return log_beta(*jnp.broadcast_arrays(*promote_args_inexact("betaln", a, b)))


@composite
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """The beta function.

    >>> special.beta(1.0, 1.0)
    Array(1., dtype=float32)
    """
    a, b = promote_args_inexact("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * lax.exp(betaln(a, b))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function.

    >>> special.betainc(1.0, 1.0, 0.25)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return lax.betainc(*promote_args_inexact("betainc", a, b, x))


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """`n!`, by the gamma function.

    >>> jnp.round(special.factorial(jnp.array([0.0, 3.0])), 3)
    Array([1., 6.], dtype=float32)
    """
    if exact:
        raise NotImplementedError("factorial with exact=True")
    (n,) = promote_args_inexact("factorial", n)
    return jnp.where(n < 0, 0, lax.exp(lax.lgamma(n + 1)))


@composite(static_argnames="repetition")
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """The number of ways to choose `k` things of `N`.

    >>> jnp.round(special.comb(5.0, 2.0), 3)
    Array(10., dtype=float32, weak_type=True)
    """
    n, k = promote_args_inexact("comb", N, k)
    if repetition:
        n = jnp.where((n == 0) & (k == 0), 0, n + k - 1)
    return jnp.where((k < 0) | (k > n), 0, lax.exp(-betaln(n - k + 1, k + 1)) / (n + 1))


digamma = special_function(
    "digamma", lax.digamma, "The derivative of `gammaln`.", "1.0", "-0.5772157"
)


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The `n`-th derivative of `digamma`.

    >>> jnp.round(special.polygamma(1, jnp.array([1.0])), 3)
    Array([1.645], dtype=float32)
    """
    if not is_kind(as_array("polygamma", n).dtype, np.integer):
        raise ValueError(f"polygamma: the order n must be an integer, got {n!r}")
    n, x = promote_args_inexact("polygamma", n, x)
    reject_complex("polygamma", x)
    return lax.polygamma(n, x)


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """The Hurwitz zeta function.

    >>> jnp.round(special.zeta(jnp.array([2.0]), 1.0), 3)
    Array([1.645], dtype=float32)
    """
    return lax.zeta(*promote_args_inexact("zeta", x, 1.0 if q is None else q))


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function.

    >>> special.gammainc(1.0, 0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return lax.igamma(*promote_args_inexact("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function.

    >>> special.gammaincc(1.0, 0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return lax.igammac(*promote_args_inexact("gammaincc", a, x))


def multigammaln(a: ArrayLike, d: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension `d`.

    >>> special.multigammaln(jnp.array([1.0]), 1)
    Array([0.], dtype=float32)
    """
    (a,) = promote_args_inexact("multigammaln", a)
    d = int(d)
    (a,) = strongly([a])
    steps = [lax.lgamma(a - i / 2) for i in range(d)] or [a * 0]
    return sum(steps[1:], steps[0]) + d * (d - 1) / 4 * math.log(math.pi)


erf = special_function("erf", lax.erf, "The error function.", "1.0", "0.8427008")
erfc = special_function("erfc", lax.erfc, "`1 - erf(x)`, accurate for large `x`.", "0.0", "1.")
erfinv = special_function("erfinv", lax.erf_inv, "The inverse of `erf`.", "0.0", "0.")
expit = special_function("expit", lax.logistic, "`1 / (1 + exp(-x))`.", "0.0", "0.5")


@composite
def logit(x: ArrayLike) -> Array:
    """`log(x / (1 - x))`, the inverse of `expit`.

    >>> special.logit(jnp.array([0.5]))
    Array([0.], dtype=float32)
    """
    (x,) = promote_args_inexact("logit", x)
    return lax.log(x) - lax.log1p(constant(x, -1) * x)


@custom_jvp
def _xlogy(x: Array, y: Array) -> Array:
    used = (x != 0) | jnp.isnan(y)
    return select(used, x * lax.log(jnp.where(used, y, 1)), lax.full_like(x, 0))


_xlogy.defjvps(lambda g, ans, x, y: g * jnp.log(y), lambda g, ans, x, y: g * (x / y))


@composite
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * log(y)`, 0 where `x` is 0.

    >>> special.xlogy(jnp.array([0.0, 2.0]), jnp.array([0.0, 1.0]))
    Array([0., 0.], dtype=float32)
    """
    return _xlogy(*jnp.broadcast_arrays(*promote_args_inexact("xlogy", x, y)))


@custom_jvp
def _xlog1py(x: Array, y: Array) -> Array:
    used = (x != 0) | jnp.isnan(y)
    return select(used, x * lax.log1p(jnp.where(used, y, 0)), lax.full_like(x, 0))


_xlog1py.defjvps(lambda g, ans, x, y: g * jnp.log1p(y), lambda g, ans, x, y: g * (x / (1 + y)))


@composite
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """`x * log(1 + y)`, 0 where `x` is 0.

    >>> special.xlog1py(jnp.array([0.0]), jnp.array([-1.0]))
    Array([0.], dtype=float32)
    """
    return _xlog1py(*jnp.broadcast_arrays(*promote_args_inexact("xlog1py", x, y)))


@custom_jvp
def _xlogx(x: Array) -> Array:
    """`x log x`, whose derivative at zero is -inf and not NaN."""
    return xlogy(x, x)


_xlogx.defjvps(lambda g, ans, x: g * (jnp.log(x) + 1))


@composite
def entr(x: ArrayLike) -> Array:
    """`-x * log(x)`, 0 at 0, -inf below.

    >>> special.entr(jnp.array([0.0, 1.0]))
    Array([-0., -0.], dtype=float32)
    """
    (x,) = promote_args_inexact("entr", x)
    reject_complex("entr", x)
    return jnp.where(x < 0, -np.inf, -_xlogx(x))


@composite
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """`p * log(p / q)`.

    >>> special.rel_entr(1.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    p, q = promote_args_inexact("rel_entr", p, q)
    reject_complex("rel_entr", p)
    zero = constant(p, 0)
    both = (p > 0) & (q > 0)
    one = constant(p, 1)
    value = _xlogx(select(both, p, one)) - xlogy(select(both, p, one), select(both, q, one))
    nothing = (p == 0) & (q >= 0)
    return select(both, value, select(nothing, zero, constant(p, np.inf)))


@composite
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """`p * log(p / q) - p + q`.

    >>> special.kl_div(1.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    p, q = promote_args_inexact("kl_div", p, q)
    return rel_entr(p, q) - p + q


def ndtr(x: ArrayLike) -> Array:
    """The distribution function of the standard normal distribution.

    >>> special.ndtr(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    return _ndtr(single_or_double("ndtr", jnp.asarray(x)))


@composite
def _ndtr(x: Array) -> Array:
    half = constant(x, 0.5)
    scaled = x * constant(x, np.sqrt(0.5))
    size = lax.abs(scaled)
    # Each form keeps its digits in its own range.
    tail = select(scaled > 0, 2 - lax.erfc(size), lax.erfc(size))
    return half * select(size < constant(x, np.sqrt(0.5)), 1 + lax.erf(scaled), tail)


_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@custom_jvp
@composite
def _ndtri(p: Array) -> Array:
    upper = p > 0.5
    tail = jnp.where(upper, 1 - p, p)
    central = np.sqrt(2).item() * lax.erf_inv(2 * p - 1)
    # In the tails Newton's iteration on the logarithm of `ndtr`, from its asymptotic expansion.
    inside = (tail > 0) & (tail < 0.08)
    log_p = lax.log(select(inside, tail, lax.full_like(p, 0.05)))
    t = lax.sqrt(-2 * log_p)
    x = (lax.log(t) + _HALF_LOG_2PI) / t - t
    for _ in range(4):
        hazard = lax.exp(-0.5 * x * x - _HALF_LOG_2PI - log_p)
        x = x - (_log_ndtr(x) - log_p) / hazard
    value = select(inside, select(upper, -x, x), central)
    return jnp.where(p < 0, np.nan, value)  # where 2 p - 1 may round to -1


_ndtri.defjvps(lambda g, ans, p: g * lax.exp(0.5 * ans * ans + _HALF_LOG_2PI))


def ndtri(p: ArrayLike) -> Array:
    """The inverse of `ndtr`.

    >>> special.ndtri(jnp.array([0.5]))
    Array([0.], dtype=float32)
    """
    return _ndtri(single_or_double("ndtri", p))


@custom_jvp
def _log_ndtr(x: Array) -> Array:
    low = -30.0 if x.dtype == np.float64 else -10.0
    lower = lax.log(ndtr(jnp.clip(x, low, 0.0)))
    upper = lax.log1p(-ndtr(-jnp.maximum(x, 0.0)))
    value = jnp.where(x > 0, upper, jnp.where(x > low, lower, _log_tail(jnp.minimum(x, low))))
    return jnp.where(jnp.isnan(x), x, value)


def _log_tail(x: Array) -> Array:
    """The asymptotic series for very negative arguments."""
    square = x * x
    series: Any = 1.0
    for k in range(15, 0, -2):
        series = 1 - k / square * series
    return -square / 2 - lax.log(-x) - _HALF_LOG_2PI + jnp.log(series)


_log_ndtr.defjvps(lambda g, ans, x: g * jnp.exp(-(x * x) / 2 - _HALF_LOG_2PI - ans))


def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """The logarithm of `ndtr`, accurate far into the tail whatever the order.

    Raises:
      ValueError: if `series_order` is not in [0, 30].

        >>> special.log_ndtr(jnp.array([0.0]))
        Array([-0.6931472], dtype=float32)
    """
    if not isinstance(series_order, int):
        raise TypeError(f"log_ndtr: series_order must be a Python integer, got {series_order!r}.")
    if not 0 <= series_order <= 30:
        raise ValueError(f"log_ndtr: series_order must lie in [0, 30], got {series_order}.")
    return _log_ndtr(single_or_double("log_ndtr", x))


i0e = special_function("i0e", lax.bessel_i0e, "`exp(-|x|) * i0(x)`.", "0.0", "1.")
i1e = special_function("i1e", lax.bessel_i1e, "`exp(-|x|) * i1(x)`.", "0.0", "0.")
i0 = special_function(
    "i0",
    bessel_i0,
    "The modified Bessel function of the first kind of order zero.",
    "1.0",
    "1.2660658",
)
i1 = special_function(
    "i1", bessel_i1, "The modified Bessel function of the first kind of order one.", "0.0", "0."
)


def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """The rising factorial `gamma(z + m) / gamma(z)`.

    >>> jnp.round(special.poch(2.0, 3.0), 3)
    Array(24., dtype=float32)
    """
    z, m = promote_args_inexact("poch", z, m)
    reject_complex("poch", z)
    return jnp.where(m == 0, 1, gamma(z + m) / gamma(z))


def _boxcox(x: Array, power: Array, log: Any, value: Any) -> Array:
    none = power == 0
    safe = jnp.where(none, 1, power)
    return jnp.where(none, log, jnp.expm1(safe * value) / safe)


@composite
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """`(x**lmbda - 1) / lmbda`, `log(x)` where `lmbda` is 0.

    >>> special.boxcox(jnp.array([1.0]), 2.0)
    Array([0.], dtype=float32)
    """
    x, power = promote_args_inexact("boxcox", x, lmbda)
    return _boxcox(x, power, lax.log(x), lax.log(x))


@composite
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """`boxcox(1 + x, lmbda)`, accurate near zero.

    >>> special.boxcox1p(jnp.array([0.0]), 2.0)
    Array([0.], dtype=float32)
    """
    x, power = promote_args_inexact("boxcox1p", x, lmbda)
    return _boxcox(x, power, lax.log1p(x), lax.log1p(x))


def softmax(x: ArrayLike, /, *, axis: Axis = None) -> Array:
    """Exponentials divided by their sum, over all axes by default.

    >>> special.softmax(jnp.array([1.0, 1.0]))
    Array([0.5, 0.5], dtype=float32)
    """
    return _softmax(x, axis)


def log_softmax(x: ArrayLike, /, *, axis: Axis = None) -> Array:
    """The logarithm of `softmax`.

    >>> special.log_softmax(jnp.array([1.0, 1.0]))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """
    return _log_softmax(x, axis)
