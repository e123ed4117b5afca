"""Special values of complex functions: the tables of C99's Annex G (G.6), as data, and the range.

One rule is JAX's in place of Annex G's: an exponential, or a hyperbolic sine or cosine, of an
unknown angle is NaN in both parts, however large or small it is.

A row is `argument -> value`, each a real and an imaginary part; `~` leaves a sign open. Functions
are symmetric about the real axis, and the odd and even ones about the origin, so that the tables
hold arguments of the first quadrant, or the upper half-plane.
"""

import itertools
import math

import numpy as np
import pytest

from amdjax import enable_x64, numpy as jnp
from tests.support.complex_accuracy import CASES, DTYPES, errors

# Beside a finite row stands one for an infinite or unknown part; `y` is 1, whose cosine and sine
# are positive.
TABLES = {
    "acos": """
        0 0 -> pi/2 -0;      0 nan -> pi/2 nan;   1 inf -> pi/2 -inf;  2 nan -> nan nan
        -inf 1 -> pi -inf;   inf 1 -> 0 -inf;     -inf inf -> 3pi/4 -inf
        inf inf -> pi/4 -inf;  inf nan -> nan ~inf;  -inf nan -> nan ~inf
        nan 1 -> nan nan;    nan inf -> nan -inf; nan nan -> nan nan""",
    "acosh": """
        0 0 -> 0 pi/2;       1 inf -> inf pi/2;   2 nan -> nan nan;    -inf 1 -> inf pi
        inf 1 -> inf 0;      -inf inf -> inf 3pi/4;  inf inf -> inf pi/4
        inf nan -> inf nan;  -inf nan -> inf nan; nan 1 -> nan nan;    nan inf -> inf nan
        nan nan -> nan nan""",
    "asinh": """
        0 0 -> 0 0;          1 inf -> inf pi/2;   1 nan -> nan nan;    inf 1 -> inf 0
        inf inf -> inf pi/4; inf nan -> inf nan;  nan 0 -> nan 0;      nan 1 -> nan nan
        nan inf -> ~inf nan; nan nan -> nan nan""",
    "atanh": """
        0 0 -> 0 0;          0 nan -> 0 nan;      1 0 -> inf 0;        1 inf -> 0 pi/2
        1 nan -> nan nan;    inf 1 -> 0 pi/2;     inf inf -> 0 pi/2;   inf nan -> 0 nan
        nan 1 -> nan nan;    nan inf -> ~0 pi/2;  nan nan -> nan nan""",
    "cosh": """
        0 0 -> 1 0;          0 inf -> nan nan;    0 nan -> nan nan;    1 inf -> nan nan
        1 nan -> nan nan;    inf 0 -> inf 0;      inf 1 -> inf inf;    inf inf -> nan nan
        inf nan -> nan nan;  nan 0 -> nan ~0;     nan 1 -> nan nan;    nan nan -> nan nan
        nan inf -> nan nan""",
    "sinh": """
        0 0 -> 0 0;          0 inf -> nan nan;    0 nan -> nan nan;    1 inf -> nan nan
        1 nan -> nan nan;    inf 0 -> inf 0;      inf 1 -> inf inf;    inf inf -> nan nan
        inf nan -> nan nan;  nan 0 -> nan 0;      nan 1 -> nan nan;    nan nan -> nan nan
        nan inf -> nan nan""",
    "tanh": """
        0 0 -> 0 0;          1 inf -> nan nan;    1 nan -> nan nan;    inf 1 -> 1 0
        0 inf -> nan nan;    0 nan -> nan nan;    20 inf -> nan nan;   20 nan -> nan nan
        inf inf -> 1 ~0;     inf nan -> 1 ~0;     nan 0 -> nan 0;      nan 1 -> nan nan
        nan nan -> nan nan;  nan inf -> nan nan""",
    "exp": """
        0 0 -> 1 0;          -0 0 -> 1 0;         1 inf -> nan nan;    1 nan -> nan nan
        inf 0 -> inf 0;      -inf 1 -> 0 0;       inf 1 -> inf inf;    -inf inf -> nan nan
        inf inf -> nan nan;  -inf nan -> nan nan; inf nan -> nan nan;  nan 0 -> nan 0
        nan 1 -> nan nan;    nan nan -> nan nan;  -200 inf -> nan nan; -1e30 inf -> nan nan
        nan inf -> nan nan""",
    "exp2": """
        0 0 -> 1 0;          1 inf -> nan nan;    1 nan -> nan nan;    inf 0 -> inf 0
        -inf 1 -> 0 0;       inf 1 -> inf inf;    inf nan -> nan nan;  nan 0 -> nan 0
        nan 1 -> nan nan;    nan nan -> nan nan;  -inf inf -> nan nan; inf inf -> nan nan""",
    "expm1": """
        0 0 -> 0 0;          1 inf -> nan nan;    1 nan -> nan nan;    inf 0 -> inf 0
        -inf 1 -> -1 0;      inf 1 -> inf inf;    -inf inf -> nan nan; inf inf -> nan nan
        -inf nan -> nan nan; inf nan -> nan nan;  nan 0 -> nan 0;      nan 1 -> nan nan
        nan nan -> nan nan""",
    "log": """
        -0 0 -> -inf pi;     0 0 -> -inf 0;       1 inf -> inf pi/2;   1 nan -> nan nan
        -inf 1 -> inf pi;    inf 1 -> inf 0;      -inf inf -> inf 3pi/4;  inf inf -> inf pi/4
        inf nan -> inf nan;  -inf nan -> inf nan; nan 1 -> nan nan;    nan inf -> inf nan
        nan nan -> nan nan""",
    "log1p": """
        -1 0 -> -inf 0;      1 inf -> inf pi/2;   1 nan -> nan nan;    -inf 1 -> inf pi
        inf 1 -> inf 0;      -inf inf -> inf 3pi/4;  inf inf -> inf pi/4;  inf nan -> inf nan
        nan 1 -> nan nan;    nan inf -> inf nan;  nan nan -> nan nan""",
    "sqrt": """
        0 0 -> 0 0;          -0 0 -> 0 0;         1 inf -> inf inf;    nan inf -> inf inf
        inf inf -> inf inf;  1 nan -> nan nan;    -inf 1 -> 0 inf;     inf 1 -> inf 0
        -inf nan -> nan ~inf;  inf nan -> inf nan;  nan 1 -> nan nan;  nan nan -> nan nan""",
}
ODD = ("asinh", "atanh", "sinh", "tanh")
NUMBERS = {"pi": math.pi, "pi/2": math.pi / 2, "pi/4": math.pi / 4, "3pi/4": 3 * math.pi / 4}


def part(text):
    """A number, and whether its sign is open."""
    negative, text = text.startswith("-"), text.lstrip("-")
    value = NUMBERS.get(text.lstrip("~")) or float(text.lstrip("~"))
    return (-value if negative else value), text.startswith("~")


def rows(name):
    for row in TABLES[name].replace("\n", ";").split(";"):
        if row.strip():
            argument, value = row.split("->")
            (a, _), (b, _) = map(part, argument.split())
            yield (a, b), tuple(map(part, value.split()))


def cases(name):
    """The rows and their reflections."""
    for (a, b), (re, im) in rows(name):
        flips = [(1, 1), (1, -1)]
        if name in ODD or name == "cosh":
            flips += [(-1, 1), (-1, -1)]
        for p, q in flips:
            sign_re = p if name in ODD else 1
            sign_im = p * q if name == "cosh" else q
            yield (p * a, q * b), ((sign_re * re[0], re[1]), (sign_im * im[0], im[1]))


def matches(found, wanted, eps):
    value, open_sign = wanted
    if math.isnan(value) or math.isnan(found):
        return math.isnan(value) and math.isnan(found)
    if open_sign:
        return abs(found) == abs(value)
    if math.copysign(1, found) != math.copysign(1, value):
        return False
    return found == value or abs(found - value) <= 4 * eps * abs(value)


def complex_of(a, b, dtype):
    z = np.zeros((), dtype)
    z.real, z.imag = a, b
    return z


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", TABLES)
def test_tables(name, dtype):
    arguments, wanted = zip(*cases(name))
    with enable_x64(dtype == np.complex128):
        zs = np.array([complex_of(a, b, dtype) for a, b in arguments])
        found = np.asarray(getattr(jnp, name)(zs))
    eps = np.finfo(dtype).eps
    wrong = [
        (z, w)
        for z, w, (re, im) in zip(zs, found, wanted)
        if not (matches(float(w.real), re, eps) and matches(float(w.imag), im, eps))
    ]
    assert not wrong


# sin, cos, tan, asin and atan are those of the imaginary axis: f(z) = -i g(i z), cos z = cosh(i z).
TURNED = {"sin": "sinh", "tan": "tanh", "asin": "asinh", "atan": "atanh", "cos": "cosh"}
PARTS = [0.0, -0.0, 0.5, -2.0, 30.0, 1e30, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", TURNED)
def test_functions_of_the_turned_plane(name, dtype):
    with enable_x64(dtype == np.complex128):
        zs = np.array([complex_of(a, b, dtype) for a, b in itertools.product(PARTS, repeat=2)])
        turned = np.array([complex_of(-z.imag, z.real, dtype) for z in zs])
        found = np.asarray(getattr(jnp, name)(zs))
        other = np.asarray(getattr(jnp, TURNED[name])(turned))
    if name != "cos":
        other = np.array([complex_of(w.imag, -w.real, dtype) for w in other])
    np.testing.assert_array_equal(found, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_range(name, dtype):
    """The error of a result, as a share of its magnitude, is a few ulp wherever it is finite."""
    found = errors(name, dtype)
    assert max(found.values()) <= 8, max(found, key=found.get)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.slope])
def test_slopes(name, dtype):
    """Slopes are as exact, also where the value itself is next to a constant or very large."""
    found = errors(name, dtype, slope=True, count=30)
    assert max(found.values()) <= 8, max(found, key=found.get)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_powers_of_imaginary_numbers_lie_on_the_circle(name, dtype):
    with enable_x64(dtype == np.complex128):
        zs = 1j * np.logspace(-2, math.log10(float(np.finfo(dtype).max)) - 1, 60).astype(dtype)
        sizes = np.abs(np.asarray(getattr(jnp, name)(zs)))
    np.testing.assert_allclose(sizes, 1, rtol=8 * float(np.finfo(dtype).eps))


POWERS = """
    0 0  0 0 -> 1 0;       0 0  2 0 -> 0 0;      0 0  -1 0 -> nan nan;  0 0  1 1 -> nan nan
    inf 0  2 0 -> inf 0;   inf 0  -2 0 -> 0 0;   inf 0  1 1 -> nan nan;  inf 0  0 0 -> 1 0
    1 0  inf nan -> 1 0;   inf 1  -2 0 -> nan nan;  nan 1  0 0 -> 1 0;  2 0  inf nan -> nan nan"""


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_special_powers(dtype):
    """Real powers of 0 and infinity are those of real numbers, powers of 1 always 1."""
    with enable_x64(dtype == np.complex128):
        for row in POWERS.replace("\n", ";").split(";"):
            if row.strip():
                a, b, c, d, _, re, im = row.replace("->", " -> ").split()
                found = complex(jnp.power(complex_of(a, b, dtype), complex_of(c, d, dtype)))
                np.testing.assert_equal([found.real, found.imag], [float(re), float(im)], row)
