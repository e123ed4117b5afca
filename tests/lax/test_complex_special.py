"""Special values of complex functions: the tables of C99's Annex G (G.6), as data, and the range.

One rule is JAX's in place of Annex G's: an exponential, or a hyperbolic sine or cosine, of an
unknown angle is NaN in both parts, however large or small it is.

A row is `argument -> value`, each a real and an imaginary part; `~` leaves a sign open. Functions
are symmetric about the real axis, and the odd and even ones about the origin, so that the tables
hold arguments of the first quadrant, or the upper half-plane.
"""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from amdjax import enable_x64, numpy as jnp

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


def exact(name, z):
    with mp.workprec(2400):
        z = mp.mpc(complex(z))
        special = {
            "exp2": lambda v: mp.exp(v * mp.log(2)),
            "expm1": lambda v: mp.exp(v) - 1,
            "log1p": lambda v: mp.log(1 + v),
            "log2": lambda v: mp.log(v) / mp.log(2),
            "log10": lambda v: mp.log(v) / mp.log(10),
            "square": lambda v: v * v,
            "reciprocal": lambda v: 1 / v,
            "abs": lambda v: mp.mpc(abs(v)),
            "sign": lambda v: v / abs(v),
        }
        return special.get(name, getattr(mp, name, None))(z)


def spread(rng, dtype, count):
    """Parts of all magnitudes, alike and unlike."""
    info = np.finfo(dtype)
    low, high = math.log(float(info.tiny)) + 5, math.log(float(info.max)) - 5
    sizes = np.concatenate([rng.uniform(low, high, (count, 2)), rng.uniform(-3, 4, (2 * count, 2))])
    values = np.exp(sizes) * rng.choice([-1, 1], sizes.shape)
    return values[:, 0] + 1j * values[:, 1]


def near_overflow(name, rng, dtype, count):
    """Arguments whose exponential overflows while its product with a small sine need not."""
    top = math.log(float(np.finfo(dtype).max)) / (math.log(2) if name == "exp2" else 1)
    a = rng.uniform(0.8 * top, 1.5 * top, count)
    b = np.exp(rng.uniform(-0.6 * top, 0, count))
    return a + 1j * b


RANGED = [
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh",
    "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "square", "reciprocal",
    "abs", "sign",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", RANGED)
def test_range(name, dtype):
    """The error of a result, as a share of its magnitude, is a few ulp wherever it is finite."""
    rng = np.random.default_rng(0)
    zs = spread(rng, dtype, 60)
    if name in ("exp", "exp2", "expm1", "sinh", "cosh"):
        zs = np.concatenate([zs, near_overflow(name, rng, dtype, 40)])
    if name == "square":
        edge = np.sqrt(float(np.finfo(dtype).max)) * np.array([0.9, 1e3, 1e15])
        zs = np.concatenate([zs, edge + 1j * edge, edge - 1j * edge])
    if name in ("sin", "cos"):
        turned = near_overflow(name, rng, dtype, 40)
        zs = np.concatenate([zs, turned.imag + 1j * turned.real])
    if name in ("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "sin", "cos", "tan"):
        limit = 2e5 if dtype == np.complex64 else 1e9
        zs = zs[np.maximum(abs(zs.real), abs(zs.imag)) < limit]
    zs = zs.astype(dtype)
    with enable_x64(dtype == np.complex128):
        found = np.asarray(getattr(jnp, name)(zs))
    info = np.finfo(dtype)
    top, least = float(info.max), float(info.tiny)
    for z, w in zip(zs, found):
        wanted = exact(name, z)
        size = abs(wanted)
        for got, want in ((w.real, wanted.real), (w.imag, wanted.imag)):
            if abs(want) > 0.999 * top:
                assert abs(got) >= 0.99 * top, (z, w)
            else:
                error = abs(mp.mpf(float(got)) - want)
                assert error <= 8 * float(info.eps) * min(max(size, least), top), (z, w, wanted)


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
