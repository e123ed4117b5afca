"""Errors of complex functions and of their slopes over whole ranges, against mpmath.

An error is the distance from the exact value, a part at a time, as a share of the magnitude of the
value, in units of its dtype's precision: what a program can hope for where one part is much smaller
than the other.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import mpmath as mp
import numpy as np

import amdjax
from amdjax import enable_x64, numpy as jnp

DTYPES = (np.dtype(np.complex64), np.dtype(np.complex128))


def _over_roots(scale: complex, turn: complex = 1) -> Callable:
    """`scale / (sqrt(1 - t z) sqrt(1 + t z))`, on the sheet of the functions of C99."""
    return lambda z: scale / (mp.sqrt(1 - turn * z) * mp.sqrt(1 + turn * z))


class Case(NamedTuple):
    """A function, its slope (None: it is not analytic), and where arguments have to be small."""

    exact: Callable
    slope: Callable | None
    periodic: bool = False
    overflows: complex = 0  # the direction in which it grows like an exponential


CASES = {
    "exp": Case(mp.exp, mp.exp, True, 1),
    "exp2": Case(lambda z: mp.mpf(2) ** z, lambda z: mp.ln2 * mp.mpf(2) ** z, True, 1),
    "expm1": Case(lambda z: mp.exp(z) - 1, mp.exp, True, 1),
    "log": Case(mp.log, lambda z: 1 / z),
    "log1p": Case(lambda z: mp.log(1 + z), lambda z: 1 / (1 + z)),
    "log2": Case(lambda z: mp.log(z) / mp.ln2, lambda z: 1 / (z * mp.ln2)),
    "log10": Case(lambda z: mp.log(z) / mp.ln10, lambda z: 1 / (z * mp.ln10)),
    "sqrt": Case(mp.sqrt, lambda z: 1 / (2 * mp.sqrt(z))),
    "sin": Case(mp.sin, mp.cos, True, 1j),
    "cos": Case(mp.cos, lambda z: -mp.sin(z), True, 1j),
    "tan": Case(mp.tan, lambda z: mp.cos(z) ** -2, True),
    "sinh": Case(mp.sinh, mp.cosh, True, 1),
    "cosh": Case(mp.cosh, mp.sinh, True, 1),
    "tanh": Case(mp.tanh, lambda z: mp.cosh(z) ** -2, True),
    "asin": Case(mp.asin, _over_roots(1)),
    "acos": Case(mp.acos, _over_roots(-1)),
    "atan": Case(mp.atan, lambda z: 1 / (1 + z * z)),
    "asinh": Case(mp.asinh, _over_roots(1, mp.j)),
    "acosh": Case(mp.acosh, lambda z: 1 / (mp.sqrt(z - 1) * mp.sqrt(z + 1))),
    "atanh": Case(mp.atanh, lambda z: 1 / (1 - z * z)),
    "square": Case(lambda z: z * z, lambda z: 2 * z),
    "reciprocal": Case(lambda z: 1 / z, lambda z: -1 / (z * z)),
    "abs": Case(lambda z: mp.mpc(abs(z)), None),
    "sign": Case(lambda z: z / abs(z), None),
}


def _spread(rng, dtype, count):
    """Parts of all magnitudes, alike and unlike."""
    info = np.finfo(dtype)
    low, high = math.log(float(info.tiny)) + 5, math.log(float(info.max)) - 5
    sizes = np.concatenate([rng.uniform(low, high, (count, 2)), rng.uniform(-3, 4, (2 * count, 2))])
    values = np.exp(sizes) * rng.choice([-1, 1], sizes.shape)
    return values[:, 0] + 1j * values[:, 1]


def _near_overflow(name, rng, dtype, count):
    """Arguments whose exponential overflows while its product with a small sine need not."""
    top = math.log(float(np.finfo(dtype).max)) / (math.log(2) if name == "exp2" else 1)
    a, b = rng.uniform(0.8 * top, 1.5 * top, count), np.exp(rng.uniform(-0.6 * top, 0, count))
    return a + 1j * b if CASES[name].overflows == 1 else b + 1j * a


def arguments(name: str, dtype: np.dtype, count: int = 60) -> np.ndarray:
    """Random arguments of a function, where its value is known to the precision of the dtype."""
    rng = np.random.default_rng(0)
    zs = _spread(rng, dtype, count)
    if CASES[name].overflows:
        zs = np.concatenate([zs, _near_overflow(name, rng, dtype, 2 * count // 3)])
    if name == "square":
        edge = np.sqrt(float(np.finfo(dtype).max)) * np.array([0.9, 1e3, 1e15])
        zs = np.concatenate([zs, edge + 1j * edge, edge - 1j * edge])
    if CASES[name].periodic:
        limit = 2e5 if dtype == np.complex64 else 1e9
        zs = zs[np.maximum(abs(zs.real), abs(zs.imag)) < limit]
    return zs.astype(dtype)


def _error(found: complex, wanted: mp.mpc, dtype: np.dtype) -> float:
    info = np.finfo(dtype)
    top, least, size = float(info.max), float(info.tiny), abs(wanted)
    worst = 0.0
    for got, want in ((found.real, wanted.real), (found.imag, wanted.imag)):
        if abs(want) > 0.999 * top:
            worst = max(worst, 0.0 if abs(got) >= 0.99 * top else math.inf)
        elif not math.isfinite(got):
            worst = math.inf
        else:
            error = abs(mp.mpf(float(got)) - want) / min(max(size, least), top)
            worst = max(worst, float(error) / float(info.eps))
    return worst


def errors(name: str, dtype: np.dtype, slope: bool = False, count: int = 60) -> dict:
    """The error of a function, or of its slope, at each of its arguments."""
    case = CASES[name]
    fun, exact = getattr(jnp, name), case.exact
    if slope:
        assert case.slope is not None
        fun, exact = amdjax.vmap(amdjax.grad(fun, holomorphic=True)), case.slope
    zs = arguments(name, dtype, count)
    with enable_x64(dtype == np.complex128):
        found = np.asarray(fun(zs))
    # Where its slope is beyond the range, or subnormal, a product by the chain rule is no number.
    low, high = (float(getattr(np.finfo(dtype), name)) for name in ("tiny", "max"))
    found_errors = {}
    with mp.workprec(2400):
        for z, w in zip(zs, found, strict=True):
            wanted = mp.mpc(exact(mp.mpc(complex(z))))
            if not slope or low < abs(wanted) < high / 4:
                found_errors[complex(z)] = _error(w, wanted, dtype)
    return found_errors


def report(count: int = 200):
    """Lines of a table: the largest errors of functions and slopes."""
    yield "| function | complex64 | complex128 | slope, complex64 | slope, complex128 |"
    yield "|---|---|---|---|---|"
    for name, case in CASES.items():
        cells = [f"`{name}`"]
        for slope in (False, True):
            for dtype in DTYPES:
                known = not slope or case.slope is not None
                worst = max(errors(name, dtype, slope, count).values()) if known else math.nan
                cells.append(f"{worst:.3g}" if known else "_")
        yield "| " + " | ".join(cells) + " |"
