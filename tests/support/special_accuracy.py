"""Errors of the special functions over whole ranges, against mpmath.

Arguments have every exponent and sign, lie on and next to integers and half-integers (poles, zeros,
changes of method), and include subnormal numbers, infinities and NaN. Errors are in units in the
last place of the result; of functions whose zeros are not at simple places (`ABSOLUTE`), of the
larger of the result and 1.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import mpmath as mp
import numpy as np

from amdjax import enable_x64
from amdjax.scipy import special

DTYPES = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype("f4"), np.dtype("f8"))


class Case(NamedTuple):
    """How a function is measured: its reference, where, and the bounds in ulp of wide dtypes."""

    exact: Callable
    ranges: tuple  # of each argument: the exponents of its magnitudes, in powers of two
    single: float
    double: float
    signed: bool = False
    absolute: bool = False
    whole: tuple = ()  # positions of arguments that are whole numbers
    narrow: bool = True  # whether 16-bit dtypes are accepted


def _log_gamma(x):
    return mp.re(mp.loggamma(x)) if x > 0 or x != mp.floor(x) else mp.inf


def _gammainc(a, x):
    return mp.gammainc(a, 0, x, regularized=True)


def _gammaincc(a, x):
    return mp.gammainc(a, x, mp.inf, regularized=True)


def _zeta(s, q):
    """Euler and Maclaurin's formula; mpmath's own loses digits where `s` and `q` are large."""
    a = q + 30
    total = mp.fsum((q + k) ** -s for k in range(30)) + a ** (1 - s) / (s - 1) + a**-s / 2
    factor = s * a ** (-s - 1)
    for j in range(1, 25):
        total += factor * mp.bernoulli(2 * j) / mp.factorial(2 * j)
        factor *= (s + 2 * j - 1) * (s + 2 * j) / a**2
    return total


def _beta_log(a, b):
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def _xlogy(x, y):
    return mp.mpf(0) if x == 0 else x * mp.log(y)


def _spence(x):
    return mp.re(mp.polylog(2, 1 - x))


def _dawson(x):
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def _erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


def _scaled_bessel(order):
    return lambda x: mp.besseli(order, x) * mp.exp(-abs(x))


def _log_ndtr(x):
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2) if x < 0 else mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)


def _ndtri(p):
    return mp.sqrt(2) * mp.erfinv(2 * p - 1)


CASES = {
    "gammaln": Case(_log_gamma, ((-60, 60),), 4, 4, signed=True, absolute=True),
    "digamma": Case(mp.digamma, ((-40, 60),), 4, 4, absolute=True),
    "erf": Case(mp.erf, ((-60, 3),), 2, 2, signed=True),
    "erfc": Case(mp.erfc, ((-60, 3),), 2, 2, signed=True),
    "erfinv": Case(mp.erfinv, ((-60, 0),), 2, 2, signed=True),
    "ndtr": Case(mp.ncdf, ((-60, 3.5),), 40, 40, signed=True, narrow=False),
    # Far on the right the error of x / sqrt(2) counts x² times.
    "log_ndtr": Case(_log_ndtr, ((-10, 7),), 60, 1000, signed=True, narrow=False),
    "ndtri": Case(_ndtri, ((-120, -0.01),), 8, 8, absolute=True, narrow=False),
    "i0e": Case(_scaled_bessel(0), ((-60, 20),), 2, 3, signed=True),
    "i1e": Case(_scaled_bessel(1), ((-60, 20),), 2, 3, signed=True),
    "i0": Case(lambda x: mp.besseli(0, x), ((-60, 6.4),), 8, 8, signed=True),
    "i1": Case(lambda x: mp.besseli(1, x), ((-60, 6.4),), 8, 8, signed=True),
    "expi": Case(mp.ei, ((-60, 6.4),), 20, 20, signed=True, absolute=True),
    "exp1": Case(mp.e1, ((-60, 6.4),), 20, 20),
    "spence": Case(_spence, ((-60, 60),), 8, 8, absolute=True, narrow=False),
    "dawsn": Case(_dawson, ((-60, 6),), 30, 40, signed=True),
    "erfcx": Case(_erfcx, ((-60, 20),), 30, 30),
    "betaln": Case(_beta_log, ((-40, 40),) * 2, 4, 4, absolute=True),
    "gammainc": Case(_gammainc, ((-10, 12),) * 2, 60, 200),
    "gammaincc": Case(_gammaincc, ((-10, 12),) * 2, 60, 400),
    "zeta": Case(_zeta, ((0.1, 6), (-10, 10)), 20, 20),
    "polygamma": Case(mp.psi, ((0, 4), (-10, 10)), 60, 60, whole=(0,)),
    "xlogy": Case(_xlogy, ((-60, 60),) * 2, 3, 3),
    "xlog1py": Case(lambda x, y: _xlogy(x, 1 + y), ((-60, 60),) * 2, 3, 3),
    "expn": Case(mp.expint, ((0, 5), (-40, 6.2)), 60, 60, whole=(0,)),
}


def sample(case, dtype, count, seed=0):
    """Arguments of a function."""
    info = ml_dtypes.finfo(dtype)
    low_end, high_end = math.log2(float(info.smallest_subnormal)), math.log2(float(info.max))
    rng = np.random.default_rng(seed)
    columns = []
    for position, (low, high) in enumerate(case.ranges):
        low, high = max(low, low_end), min(high, high_end - 1)
        x = np.exp2(rng.uniform(low, high, count))
        near = rng.random(count) < 0.4  # next to multiples of a half
        steps = rng.integers(-2, 3, count) * float(info.eps) * (rng.random(count) < 0.7)
        halves = np.clip(np.round(2 * x) / 2, 0.5, None) * (1 + steps)
        x = np.where(near & (halves <= 2.0**high), halves, x)
        if position in case.whole:
            x = np.floor(x)
        if case.signed:
            x = x * rng.choice([-1, 1], count)
        columns.append(x.astype(dtype))
    return columns


def errors(name, dtype, count, seed=0):
    """The errors in ulp of a function of random arguments, and these."""
    case = CASES[name]
    xs = sample(case, dtype, count, seed)
    with enable_x64(dtype == np.float64):
        args = [x.astype(np.int32) if k in case.whole else x for k, x in enumerate(xs)]
        found = np.asarray(getattr(special, name)(*args))
    assert found.dtype == dtype
    info = ml_dtypes.finfo(dtype)
    result = np.zeros(count)
    for i, y in enumerate(found.astype(np.float64)):
        with mp.workprec(300):
            want = case.exact(*(mp.mpf(float(x[i])) for x in xs))
            if abs(want) >= float(info.max) or not np.isfinite(y):
                same = abs(want) >= 0.999 * float(info.max) and abs(y) >= 0.99 * float(info.max)
                result[i] = 0 if same else np.inf
                continue
            size = max(abs(want), mp.mpf(float(info.tiny)), mp.mpf(1 if case.absolute else 0))
            ulp = mp.mpf(2) ** (mp.frexp(size)[1] - 1) * float(info.eps)
            result[i] = float(abs(mp.mpf(float(y)) - want) / ulp)
    return result, xs


def bound(name, dtype):
    """The largest error allowed."""
    case = CASES[name]
    if dtype.itemsize == 2:
        return 1.5  # computed in float32
    return case.single if dtype == np.float32 else case.double


def report(count=300):
    """A table of the largest errors, by function and dtype."""
    yield "| function | bfloat16 | float16 | float32 | float64 | worst argument of float32 |"
    yield "|---|---|---|---|---|---|"
    for name, case in CASES.items():
        cells, where = [], ""
        for dtype in DTYPES:
            if dtype.itemsize == 2 and not case.narrow:
                cells.append("")
                continue
            found, xs = errors(name, dtype, count)
            worst = int(found.argmax())
            cells.append(f"{found[worst]:.2f}")
            if dtype == np.float32:
                where = ", ".join(f"{float(x[worst]):.6g}" for x in xs)
        yield f"| `{name}` | {' | '.join(cells)} | {where} |"
