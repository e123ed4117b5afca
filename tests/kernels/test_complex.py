import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import amdjax
from amdjax import lax

UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda z: 1 / np.sqrt(z), "square": np.square, "sign": np.sign,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "logistic": lambda z: np.where(z.real > 0, 1 / (1 + np.exp(-z)), np.exp(z) / (1 + np.exp(z))),
}  # fmt: skip
#: Errors in units of rounding of the result's magnitude.
LIMIT = {"exp2": 400.0}  # the angle is a product with log 2, rounded
EPS = float(np.finfo(np.float32).eps)


def points(seed=0):
    """Points of all magnitudes, near the atom circle, near zero, and on the axes."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(3000) + 1j * rng.standard_normal(3000)
    z[:600] *= 10.0 ** rng.uniform(-35, 35, 600)
    z[600:900] = np.exp(1j * rng.uniform(0, 7, 300)) * (1 + 1e-3 * rng.standard_normal(300))
    z[900:1200] *= 1e-4
    z[1200:1500] *= 50
    z[1500:1600].imag = 0
    z[1600:1700].real = 0
    return z.astype(np.complex64)


def error(actual, exact):
    """Error relative to the magnitude, in units of rounding; 0 where float32 cannot hold it."""
    with np.errstate(all="ignore"):
        held = np.isfinite(exact) & (abs(exact) < 1e38) & (abs(exact) > 1e-36)
        relative = abs(np.asarray(actual) - exact) / abs(exact) / EPS
    return np.max(np.where(held, relative, 0.0))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_in_single_precision(name):
    z = points()
    wide = z.astype(np.complex128)
    exact = UNARY[name](wide)
    if name == "log1p":  # NumPy's own is not accurate near zero
        near = abs(wide) < 1e-4
        exact = np.where(near, wide - wide * wide / 2 + wide**3 / 3, exact)
    assert error(getattr(lax, name)(z), exact) < LIMIT.get(name, 4.0)


def test_magnitude():
    z = points()
    assert error(lax.abs(z), abs(z.astype(np.complex128))) < 2


@pytest.mark.parametrize("name, fn", [("mul", np.multiply), ("div", np.divide)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_products_and_quotients(name, fn):
    x, y = points(1), points(2)[::-1].copy()
    wide = [v.astype(np.complex128) for v in (x, y)]
    sizes = abs(wide[0]) * abs(wide[1]) if name == "mul" else abs(wide[0]) / abs(wide[1])
    inside = (sizes < 1e37) & (sizes > 1e-30)
    assert error(getattr(lax, name)(x, y)[inside], fn(*wide)[inside]) < 4


def test_powers():
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(500) + 1j * rng.standard_normal(500) for _ in range(2))
    x, y = x.astype(np.complex64), y.astype(np.complex64)
    assert error(lax.pow(x, y), x.astype(np.complex128) ** y.astype(np.complex128)) < 60
    for n in (-3, 0, 1, 2, 5):
        assert error(lax.integer_pow(x, n), x.astype(np.complex128) ** n) < 12
    zero, one = np.zeros(1, np.complex64), np.ones(1, np.complex64)
    assert lax.pow(zero, zero).tolist() == [1] and lax.pow(zero, one).tolist() == [0]


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf]
#: NumPy's libm and C99's annex G leave these open or disagree about them; those of an angle have
#: JAX's values where it is unknown, which tests/lax/test_complex_special.py has tables of.
OPEN = {
    "rsqrt",
    "logistic",
    "sign",
    "exp2",
    "expm1",
    "exp",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tan",
    "tanh",
}


@pytest.mark.parametrize("name", sorted(UNARY.keys() - OPEN))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_branch_cuts_and_infinities(name):
    """Values, and signs of zeros, on the axes and at infinity."""
    z = np.array([complex(x, y) for x in SPECIAL for y in SPECIAL], np.complex64)
    actual = np.asarray(getattr(lax, name)(z))
    wanted = UNARY[name](z.astype(np.complex128)).astype(np.complex64)
    unspecified = np.isnan(wanted)  # the sign of the other part is then open
    for a, w in ((actual.real, wanted.real), (actual.imag, wanted.imag)):
        np.testing.assert_allclose(abs(a), abs(w), rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(np.signbit(a)[~unspecified], np.signbit(w)[~unspecified])


def test_infinities_reach_the_magnitude():
    z = np.array(
        [complex(np.inf, np.nan), complex(np.nan, -np.inf), complex(np.nan, 1)], np.complex64
    )
    np.testing.assert_array_equal(lax.abs(z), [np.inf, np.inf, np.nan])


def test_division_by_zero_and_infinity():
    x = np.array([1 + 1j, -1 + 0j, 0, 1], np.complex64)
    y = np.array([0, 0, 0, complex(np.inf, np.inf)], np.complex64)
    got = np.asarray(lax.div(x, y))
    assert np.isinf(got[0].real) and np.isinf(got[0].imag) and got[1].real == -np.inf
    assert np.isnan(got[2].real) and abs(got[3]) == 0


@given(st.complex_numbers(max_magnitude=1e15), st.complex_numbers(max_magnitude=1e15))
def test_double_precision(x, y):
    with amdjax.enable_x64(True):
        a, b = np.array([x]), np.array([y])
        assert lax.mul(a, b).dtype == np.complex128
        np.testing.assert_allclose(
            lax.mul(a, b)[0], x * y, rtol=1e-13, atol=1e-300 + abs(x * y) * 1e-15
        )
        np.testing.assert_allclose(lax.abs(a)[0], math.hypot(x.real, x.imag), rtol=1e-15)
        np.testing.assert_allclose(
            lax.sqrt(a)[0], np.sqrt(a)[0], rtol=1e-14, atol=abs(x) ** 0.5 * 1e-15
        )
        if x != 0:
            np.testing.assert_allclose(
                np.exp(np.asarray(lax.log(a))[0]), x, rtol=1e-12, atol=abs(x) * 1e-14
            )


def test_comparisons():
    x = np.array([1 + 2j, 1 + 2j, complex(np.nan, 1)], np.complex64)
    y = np.array([1 + 2j, 1 - 2j, complex(np.nan, 1)], np.complex64)
    assert lax.eq(x, y).tolist() == [True, False, False]
    assert lax.ne(x, y).tolist() == [False, True, True]


@pytest.mark.parametrize("shapes", [((), ()), ((1,), (1,)), ((3,), (3,)), ((1, 1), (1, 1))])
def test_smallest_complex_products(shapes):
    rng = np.random.default_rng(0)
    x, y = (np.complex64(rng.normal(size=s) + 1j * rng.normal(size=s)) for s in shapes)
    depth = 1 if x.ndim else 0
    numbers = (((x.ndim - 1,) * depth, (0,) * depth), ((), ()))
    got = lax.dot_general(x, y, numbers)
    np.testing.assert_allclose(got, np.tensordot(x, y, axes=depth), rtol=1e-6)
