"""Fit the polynomials of `amdjax.codegen.math` and print `coefficients.py`.

    python tools/fit_polynomials.py [NAME ...] > amdjax/codegen/math/coefficients.py

Every polynomial is the minimax fit of a function under a weight, found by Lawson's iteration in
100-digit arithmetic. Coefficients are rounded to the working precision one after another, lowest
order first; the remaining ones are fitted again after each rounding and absorb its error.
The achieved maximum weighted error is printed beside each polynomial as a power of two.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 100
Real = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """`sum(c[k] * x**powers[k])` approximates `f` on `interval` with error weighted by `weight`."""

    name: str
    elem: str
    f: Real
    interval: tuple[float, float]
    degree: int
    weight: Real = lambda x: mp.mpf(1)


def round_to(x: mp.mpf, elem: str) -> mp.mpf:
    """The nearest float or double."""
    if elem == "double":
        return mp.mpf(float(x))
    with mp.workprec(24):
        return +x


def least_squares(columns: list, values: np.ndarray, weights: np.ndarray) -> list:
    """Weighted least squares by the normal equations, which 100 digits can afford."""
    scaled = [c * weights for c in columns]
    gram = mp.matrix([[mp.fsum(a * b) for b in scaled] for a in scaled])
    right = mp.matrix([mp.fsum(a * values * weights) for a in scaled])
    return list(mp.lu_solve(gram, right))


def evaluate(coefficients: list, columns: list) -> np.ndarray:
    """The values of the polynomial at the sample points."""
    return sum(c * column for c, column in zip(coefficients, columns))


def solve(fit: Fit) -> tuple[list[float], float]:
    """Coefficients, and the base-2 logarithm of the largest weighted error."""
    low, high = (mp.mpf(x) for x in fit.interval)
    count = 12 * (fit.degree + 2)
    points = [
        (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (i + 0.5) / count)
        for i in range(count)
    ]
    weights = np.array([fit.weight(x) for x in points], dtype=object)
    values = np.array([fit.f(x) for x in points], dtype=object)
    columns = [np.array([x**k for x in points], dtype=object) for k in range(fit.degree + 1)]
    # Lawson: weights grow where the error is large, and the fit tends to the minimax one.
    lawson = np.array([mp.mpf(1)] * count, dtype=object)
    for _ in range(12):
        coefficients = least_squares(columns, values, weights * lawson)
        error = abs((values - evaluate(coefficients, columns)) * weights)
        lawson = lawson * np.array([mp.sqrt(e / max(error) + mp.mpf("1e-6")) for e in error])
    chosen: list = []
    rest = values
    for k in range(fit.degree + 1):
        coefficients = least_squares(columns[k:], rest, weights * lawson)
        chosen.append(round_to(coefficients[0], fit.elem))
        rest = rest - chosen[-1] * columns[k]
    return [float(c) for c in chosen], float(mp.log(max(abs(rest * weights)), 2))


def divided(f: Real, powers: dict[int, float], by: int) -> Real:
    """`(f(x) - sum(c * x**k)) / x**by`: what remains after the leading terms."""
    return lambda x: (f(x) - sum(mp.mpf(c) * x**k for k, c in powers.items())) / x**by


def odd_rest(f: Real, leading: float = 1.0) -> Real:
    """`P(z)` such that the odd function `f(x) = leading * x + x * z * P(z)`, `z = x * x`."""

    def rest(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return (f(x) / x - leading) / z

    return rest


def relative_to(f: Real, factor: Real) -> Real:
    """The weight of an error in `P` where `f` is computed as `... + factor * P`."""
    return lambda x: factor(x) / abs(f(x))


def of_root(f: Real) -> Real:
    """`f` as a function of the square of its argument."""
    return lambda z: f(mp.sqrt(z))


LN2 = mp.log(2)
HALF_LN2 = float(LN2 / 2) * 1.0001
QUARTER_PI = float(mp.pi / 4) * 1.0001
ROOT_RANGE = float(3 - 2 * mp.sqrt(2)) * 1.0001  # (m - 1) / (m + 1) for m in [sqrt(1/2), sqrt(2)]
DIGAMMA_ROOT = mp.findroot(mp.digamma, 1.46)
NEAR = 1 / 16  # up to here narrow results are polynomials, see codegen/math/narrow.py


def atanh_log(s: mp.mpf) -> mp.mpf:
    """The logarithm of a mantissa by `s = (m - 1) / (m + 1)`."""
    return mp.log((1 + s) / (1 - s))


def extended_log(z: mp.mpf) -> mp.mpf:
    """What remains of `atanh_log` after two terms."""
    s = mp.sqrt(z)
    return (atanh_log(s) / s - 2 - mp.mpf(2) / 3 * z) / z**2


def minus_log2_erfc(x: mp.mpf) -> mp.mpf:
    """The exponent of the complementary error function."""
    return -mp.log(mp.erfc(x), 2)


def scaled_erfc(shift: float, slope: float = 2.0) -> Real:
    """`(1 + slope x) exp(x**2) erfc(x)` in the variable `t = (x - shift) / (x + shift)`."""

    def h(t: mp.mpf) -> mp.mpf:
        x = shift * (1 + t) / (1 - t)
        return (1 + slope * x) * mp.exp(x * x) * mp.erfc(x)

    return h


def quotient_erfc(t: mp.mpf) -> mp.mpf:
    """`exp(x**2) erfc(x) / t` in the variable `t = 1 / (1 + x / 2)`."""
    x = 2 / t - 2
    return mp.exp(x * x) * mp.erfc(x) / t


def erf_inv_central(w: mp.mpf) -> mp.mpf:
    """`erf_inv(x) / x - 1` as a function of `w = -log(1 - x**2)`."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x - 1


def erf_inv_tail(s: mp.mpf) -> mp.mpf:
    """`erf_inv_central` by the root of its argument."""
    return erf_inv_central(s * s)


def stirling_rest(z: mp.mpf) -> mp.mpf:
    """`x * (lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2)` at `z = 1 / x**2`."""
    x = 1 / mp.sqrt(z)
    return x * (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


def digamma_rest(z: mp.mpf) -> mp.mpf:
    """`x**2 * (log x - 1 / (2 x) - digamma(x))` at `z = 1 / x**2`."""
    x = 1 / mp.sqrt(z)
    return x * x * (mp.log(x) - 1 / (2 * x) - mp.digamma(x))


def digamma_over_distance(center: float) -> Real:
    """`digamma(x) / (x - root)` at `u = x - center`."""
    return lambda u: mp.digamma(center + u) / (center + u - DIGAMMA_ROOT)


def bessel_tail(order: int) -> Real:
    """`sqrt(x) exp(-x) I_order(x)` at `t = 1 / x`."""
    return lambda t: mp.exp(-1 / t) * mp.besseli(order, 1 / t) / mp.sqrt(t)


def bessel_slope(order: int) -> Real:
    """The logarithmic derivative of a Bessel function in `x**2 / 4`."""

    def slope(z: mp.mpf) -> mp.mpf:
        x = 2 * mp.sqrt(z)
        return mp.besseli(order + 1, x) / mp.besseli(order, x) / mp.sqrt(z)

    return slope


def centered(f: Real, center: float) -> Real:
    """`f` around another origin."""
    return lambda u: f(center + u)


def both(
    name: str, f: Real, interval: tuple[float, float], degrees: tuple[int, int], *args, **kw
) -> list:
    """The same fit for float and double, with their degrees."""
    return [
        Fit(name, elem, f, interval, degree, *args, **kw)
        for elem, degree in zip(("float", "double"), degrees)
    ]


def odd(name: str, f: Real, high: float, degrees: tuple[int, int], leading: float = 1.0) -> list:
    """`x + x * z * P(z)` for an odd function on `[-high, high]`."""

    def weight(z: mp.mpf) -> mp.mpf:
        return z * mp.sqrt(z) / abs(f(mp.sqrt(z)))

    return both(name, odd_rest(f, leading), (0, high * high), degrees, weight)


FITS: list[Fit] = [
    # exp(r) = 1 + r + r**2 P(r), accurate relative to expm1 too
    *both(
        "EXP",
        divided(mp.exp, {0: 1, 1: 1}, 2),
        (-HALF_LN2, HALF_LN2),
        (4, 10),
        lambda r: r * r / abs(mp.expm1(r)),
    ),
    # exp2(r) = 1 + r P(r)
    *both("EXP2", divided(lambda r: mp.mpf(2) ** r, {0: 1}, 1), (-0.5, 0.5), (5, 11), abs),
    # the same to 2**-23, where the result is subtracted from one
    Fit("EXP2_SHORT", "float", divided(lambda r: mp.mpf(2) ** r, {0: 1}, 1), (-0.5, 0.5), 4, abs),
    # log1p(f) = f - f**2 / 2 + f**3 P(f)
    Fit(
        "LOG",
        "float",
        divided(mp.log1p, {1: 1, 2: -0.5}, 3),
        (-1 / 3, 1 / 3),
        7,
        lambda f: abs(f**3 / mp.log1p(f)),
    ),
    # log((1 + s) / (1 - s)) = 2 s + s z P(z)
    odd("LOG", atanh_log, ROOT_RANGE, (3, 6), 2.0)[1],
    # log((1 + s) / (1 - s)) = 2 s + 2/3 s z + s z**2 P(z), for the extended precision of pow
    *both("LOG_EXTENDED", extended_log, (0, ROOT_RANGE**2), (2, 7), lambda z: z * z / 2),
    *odd("SIN", mp.sin, QUARTER_PI, (2, 5)),
    # cos(r) = 1 - z / 2 + z**2 P(z)
    *both(
        "COS",
        divided(of_root(mp.cos), {0: 1, 1: -0.5}, 2),
        (0, QUARTER_PI**2),
        (2, 5),
        lambda z: z * z,
    ),
    *odd("TAN", mp.tan, QUARTER_PI, (6, 13)),
    *odd("ASIN", mp.asin, 0.5, (4, 11)),
    *odd("ATAN", mp.atan, 1.0, (8, 19)),
    *odd("SINH", mp.sinh, 1.0, (3, 6)),
    odd("TANH", mp.tanh, 0.6, (4, 9))[0],
    # 1 - tanh(x) = e P(e), e = exp(-2 x), for x beyond 0.6
    Fit("TANH_TAIL", "float", lambda e: 2 / (1 + e), (0, 0.302), 6, lambda e: e),
    odd("ASINH", mp.asinh, 0.5, (4, 9))[0],
    odd("ATANH", mp.atanh, 0.5, (6, 9))[0],
    # erf(x) = x + x P(z)
    *both(
        "ERF",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
        (0, 1),
        (6, 12),
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)),
    ),
    # erf(x) = 1 - 2**-P(x) for x in [1, 4]
    Fit("ERF_TAIL", "float", minus_log2_erfc, (1, 3.95), 6, mp.erfc),
    # What it is more than 1
    Fit(
        "ERFC",
        "float",
        lambda t: scaled_erfc(2.5, 1.75)(t) - 1,
        (-1, 0.603),
        9,
        lambda t: 1 / scaled_erfc(2.5, 1.75)(t),
    ),
    Fit("ERFC", "double", scaled_erfc(4.0), (-1, 0.75), 23),
    *both("LGAMMA2", lambda t: mp.loggamma(2 + t) / (t + t * t), (-0.75, 0.5), (11, 22)),
    *both("STIRLING", stirling_rest, (0, 1 / 64), (2, 7)),
    Fit("DIGAMMA", "float", digamma_over_distance(1.75), (-0.75, 0.75), 12),
    Fit("DIGAMMA", "double", digamma_over_distance(1.5), (-0.5, 0.5), 23),
    Fit("DIGAMMA_TAIL", "float", digamma_rest, (1e-6, 0.16), 5),
    Fit("DIGAMMA_TAIL", "double", digamma_rest, (0, 1 / 64), 7),
    *both(
        "I0",
        lambda z: (mp.besseli(0, 2 * mp.sqrt(z)) - 1) / z,
        (0, 16),
        (9, 18),
        lambda z: z / mp.besseli(0, 2 * mp.sqrt(z)),
    ),
    # d log(I0) / dz and d log(I1 / x) / dz, roughly
    Fit("I0_SLOPE", "float", bessel_slope(0), (0, 16), 3),
    Fit("I1_SLOPE", "float", bessel_slope(1), (0, 16), 3),
    *both("I0_TAIL", bessel_tail(0), (0, 1 / 8), (7, 21)),
    *both(
        "I1",
        lambda z: (mp.besseli(1, 2 * mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        (0, 16),
        (9, 18),
        lambda z: z * mp.sqrt(z) / mp.besseli(1, 2 * mp.sqrt(z)),
    ),
    *both("I1_TAIL", bessel_tail(1), (0, 1 / 8), (7, 21)),
    Fit("ERF_INV", "float", centered(erf_inv_central, 2.5), (-2.5, 2.5), 11),
    Fit("ERF_INV_TAIL", "float", centered(erf_inv_tail, 3.0), (5**0.5 - 3, 1.1), 11),
    Fit("ERF_INV", "double", centered(erf_inv_central, 3.125), (-3.125, 3.125), 24),
    Fit("ERF_INV_TAIL", "double", centered(erf_inv_tail, 3.25), (-0.75, 0.75), 20),
    Fit("ERF_INV_FAR_TAIL", "double", centered(erf_inv_tail, 5.0), (-1, 1.1), 19),
    # For results of 16 bits: f(x) = x + x**2 P(x) for expm1 and log1p
    Fit("EXPM1_NARROW", "float", divided(mp.expm1, {1: 1}, 2), (-NEAR, NEAR), 1, abs),
    Fit("LOG1P_NARROW", "float", divided(mp.log1p, {1: 1}, 2), (-NEAR, NEAR), 2, abs),
    odd("TAN_NARROW", mp.tan, QUARTER_PI, (3, 3))[0],
    odd("ATAN_NARROW", mp.atan, 1.0, (4, 4))[0],
    Fit("SINH_NARROW", "float", odd_rest(mp.sinh), (0, NEAR**2), 0, lambda z: z),
    Fit("TANH_NARROW", "float", odd_rest(mp.tanh), (0, NEAR**2), 0, lambda z: z),
    # erf(x) = x P(x**2), beyond NEAR 1 - 2**(-x P(x))
    Fit("ERF_NARROW", "float", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z), (0, NEAR**2), 1),
    Fit(
        "ERF_NARROW_TAIL",
        "float",
        lambda x: minus_log2_erfc(x) / x,
        (NEAR, 3.95),
        4,
        lambda x: LN2 * x * mp.erfc(x) / mp.erf(x),
    ),
    Fit("ERFC_NARROW", "float", quotient_erfc, (1 / 6, 1), 6, lambda t: 1 / quotient_erfc(t)),
]


# Constants as sums of floats of decreasing size.
SPLITS = {
    "LN2": (LN2, 2),
    "LOG2_E": (1 / LN2, 2),
    "LOG10_E": (1 / mp.log(10), 2),
    "LOG10_2": (mp.log10(2), 2),
    "HALF_PI": (mp.pi / 2, 2),
    "TWO_THIRDS": (mp.mpf(2) / 3, 2),
    "HALF_LOG_2PI": (mp.log(2 * mp.pi) / 2, 2),
    "LOG_PI": (mp.log(mp.pi), 2),
    "DIGAMMA_ROOT": (DIGAMMA_ROOT, 3),
}
TWO_OVER_PI_BITS = 1280


def split(x: mp.mpf, parts: int, elem: str) -> list[float]:
    """Floats of decreasing size whose sum is `x`."""
    out = []
    for _ in range(parts):
        out.append(float(round_to(x, elem)))
        x -= out[-1]
    return out


def split_downward(x: mp.mpf, parts: int, elem: str) -> list[float]:
    """All parts positive, which keeps the sign of zero in a reduction."""
    out = []
    for _ in range(parts):
        digits = (24 if elem == "float" else 53) - mp.frexp(x)[1]
        out.append(float(mp.floor(mp.ldexp(x, digits)) * mp.mpf(2) ** -digits))
        x -= out[-1]
    return out


def print_table(name: str, values: Callable[[str], list[float]]) -> None:
    """A dictionary of constants by element type."""
    print(f"\n{name} = {{")
    for elem in ("float", "double"):
        numbers = ", ".join(literal(x, elem) for x in values(elem))
        print(f'    "{elem}": ({numbers}),')
    print("}")


def print_constants() -> None:
    """What is not a polynomial."""
    print_table("HALF_PI_DOWN", lambda elem: split_downward(mp.pi / 2, 3, elem))
    for name, (x, parts) in SPLITS.items():
        print_table(name, lambda elem, x=x, parts=parts: split(x, parts, elem))
    with mp.workdps(500):
        bits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** TWO_OVER_PI_BITS))
    print(f"\n# The first {TWO_OVER_PI_BITS} bits of 2 / pi after the binary point.")
    print(f"TWO_OVER_PI_BITS = {TWO_OVER_PI_BITS}\nTWO_OVER_PI = int(")
    digits = f"{bits:0{TWO_OVER_PI_BITS // 4}x}"
    for i in range(0, len(digits), 64):
        print(f'    "{digits[i : i + 64]}"' + "," * (i + 64 >= len(digits)))
    print("    16,\n)")


def literal(x: float, elem: str) -> str:
    """Enough digits to get the number back."""
    return f"{x:.9g}" if elem == "float" else repr(x)


def main(names: list[str]) -> None:
    """Fit what is named, or all, and print the module."""
    fits = [fit for fit in FITS if not names or fit.name in names]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(solve_index, [FITS.index(fit) for fit in fits]))
    print('"""Minimax coefficients, lowest order first; written by `tools/fit_polynomials.py`."""')
    print("\n# fmt: off")
    for name in dict.fromkeys(fit.name for fit in fits):
        print(f"\n{name} = {{")
        for fit, (coefficients, error) in zip(fits, results):
            if fit.name == name:
                print(f'    "{fit.elem}": (  # error 2**{error:.1f}')
                numbers = ", ".join(literal(c, fit.elem) for c in coefficients) + ","
                print(textwrap.indent(textwrap.fill(numbers, 92, break_on_hyphens=False), " " * 8))
                print("    ),")
        print("}")
    if not names:
        print_constants()


def solve_index(i: int) -> tuple[list[float], float]:
    """For worker processes, which cannot receive functions."""
    return solve(FITS[i])


if __name__ == "__main__":
    main(sys.argv[1:])
