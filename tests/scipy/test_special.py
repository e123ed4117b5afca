"""Special functions against SciPy in both precisions, their derivatives against differences."""

import math

import numpy as np
import pytest
import scipy.special as sp

import amdjax
import amdjax.numpy as jnp
from amdjax import enable_x64, errors, grad, jit, vmap
from amdjax.scipy import special
from amdjax.test_util import check_grads

RNG = np.random.default_rng(0)
REAL = np.concatenate([RNG.uniform(-8, 8, 200), RNG.uniform(-1, 1, 100), [0.0, 1e-5, 30.0, -3.0]])
POSITIVE = np.concatenate([np.abs(REAL) + 1e-3, [2.0, 4.0, 41.0, 85.0]])
COMPLEX = RNG.normal(size=200) * 4 + 1j * np.abs(RNG.normal(size=200)) * 4

# name: (arguments, relative error allowed in units of the last place)
CASES = {
    "wofz": ((COMPLEX,), 64),
    "erfcx": ((REAL,), 32),
    "dawsn": ((REAL,), 16),
    "fresnel": ((REAL,), 32),
    "owens_t": ((REAL / 3, REAL[::-1]), 300),
    "exp1": ((POSITIVE,), 16),
    "expi": ((np.concatenate([POSITIVE, -POSITIVE]),), 128),
    "spence": ((POSITIVE,), 32),
}


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_against_scipy(name, x64):
    args, units = CASES[name]
    real, complex_ = (np.float64, np.complex128) if x64 else (np.float32, np.complex64)
    args = [a.astype(complex_ if np.iscomplexobj(a) else real) for a in args]
    expected = getattr(sp, name)(*[a.astype(np.result_type(a, np.float64)) for a in args])
    with enable_x64(x64):
        found = getattr(special, name)(*args)
    tolerance = units * np.finfo(real).eps
    tiny = float(np.finfo(real).tiny)  # what lies below may be flushed to zero
    for got, want in zip(np.atleast_2d(found), np.atleast_2d(expected), strict=True):
        assert got.dtype == args[0].dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tiny)


def test_sine_and_cosine_integrals():
    with enable_x64(True):
        si, ci = special.sici(REAL)
    expected = sp.sici(REAL)
    np.testing.assert_allclose(si, expected[0], rtol=1e-14)
    np.testing.assert_allclose(ci, expected[1], rtol=1e-11, atol=1e-15)  # it has zeros


@pytest.mark.parametrize("n", [0, 1, 2, 5, 20, 60])
def test_exponential_integrals_of_higher_order(n):
    with enable_x64(True):
        np.testing.assert_allclose(special.expn(n, POSITIVE), sp.expn(n, POSITIVE), rtol=1e-14)
        assert special.expn(n, 0.0) == (math.inf if n < 2 else 1 / (n - 1))
    assert np.isnan(special.expn(-1, 1.0)) and np.isnan(special.expn(n, -1.0))


def test_bernoulli_numbers():
    with enable_x64(True):
        np.testing.assert_allclose(special.bernoulli(60), sp.bernoulli(60), rtol=1e-8)
        assert special.bernoulli(4).tolist() == [1.0, -0.5, 1 / 6, 0.0, -1 / 30]
        assert special.bernoulli(300)[-3:].tolist() == [math.inf, 0.0, -math.inf]


@pytest.mark.parametrize("value", [0.0, math.inf, -math.inf, math.nan])
def test_special_values(value):
    for name in ("erfcx", "dawsn", "exp1", "expi"):
        np.testing.assert_equal(
            float(getattr(special, name)(value)), float(getattr(sp, name)(value)), name
        )
    for name in ("fresnel", "sici"):
        found = [float(v) for v in getattr(special, name)(value)]
        np.testing.assert_allclose(found, getattr(sp, name)(value), rtol=1e-6, err_msg=name)
    assert special.spence(0.0) == pytest.approx(math.pi**2 / 6)


DERIVED = {
    "erfcx": (special.erfcx, ([-1.5, 0.3, 4.0],)),
    "dawsn": (special.dawsn, ([-1.5, 0.3, 4.0],)),
    "fresnel": (special.fresnel, ([-1.5, 0.3, 2.2],)),
    "exp1": (special.exp1, ([0.3, 1.5, 4.0],)),
    "expn": (lambda x: special.expn(3, x), ([0.3, 1.5, 4.0],)),
    "expi": (special.expi, ([-1.5, 0.3, 4.0],)),
    "sici": (special.sici, ([0.3, 1.5, 6.0],)),
    "spence": (special.spence, ([0.3, 1.4, 6.0],)),
    "owens_t": (special.owens_t, ([0.3, -1.4, 0.2], [0.5, 2.0, -1.5])),
    "wofz": (special.wofz, ([0.3 + 1j, -1.4 - 0.2j],)),
    "bessel_jn": (lambda z: special.bessel_jn(z, v=3), ([0.0, -1.4, 20.0],)),
    "sph_harm_y": (
        lambda theta, phi: special.sph_harm_y(np.arange(4), 1, theta, phi),
        ([0.1, 0.4, 1.2, 3.0], [0.3, -2.0, 1.0, 0.0]),
    ),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derivatives(name):
    fn, args = DERIVED[name]
    with enable_x64(True):
        check_grads(fn, tuple(jnp.array(a) for a in args), order=2, atol=1e-5, rtol=1e-5)


AT_ZERO = {
    "i0": (1, 0, 1 / 2, 0),
    "i1": (0, 1 / 2, 0),
    "erf": (0, 2 / math.sqrt(math.pi), 0),
    "erfc": (1, -2 / math.sqrt(math.pi), 0),
    "expit": (1 / 2, 1 / 4, 0, -1 / 8),
    "ndtr": (1 / 2, 1 / math.sqrt(2 * math.pi), 0),
    "erfinv": (0, math.sqrt(math.pi) / 2, 0),
    "dawsn": (0, 1, 0, -4),
    "erfcx": (1, -2 / math.sqrt(math.pi), 2),
    "loggamma": (0, -np.euler_gamma, math.pi**2 / 6),
    "spence": (0, -1, 1 / 2, -2 / 3),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_derivatives_at_points_where_a_formula_changes(name):
    """The coefficients of a series tell the derivatives where |x|, a division or a select could."""
    fn, at = getattr(special, name), 1.0 if name in ("loggamma", "spence") else 0.0
    with enable_x64(True):
        for order, expected in enumerate(AT_ZERO[name]):
            assert float(fn(at)) == pytest.approx(expected, abs=1e-12), order
            fn = grad(fn)


def test_transforms_and_narrow_dtypes():
    x = jnp.array([0.5, 1.5])
    np.testing.assert_allclose(vmap(jit(grad(special.dawsn)))(x), 1 - 2 * x * special.dawsn(x))
    assert special.expi(x.astype("bfloat16")).dtype == "bfloat16"
    with pytest.raises(ValueError, match="expi"):
        special.expi(1j)
    with pytest.raises(ValueError, match="bernoulli"):
        special.bernoulli(-1)
    assert amdjax.make_jaxpr(special.spence)(0.5)


@pytest.mark.parametrize("v", [0, 1, 6, 70])
@pytest.mark.parametrize("x64", [True, False])
def test_bessel_functions_of_integer_order(v, x64):
    z = np.concatenate([np.linspace(-50, 50, 301), [0.0, 1e-38, 1e-9, 2.404825557695773]])
    z = z.astype(np.float64 if x64 else np.float32)
    with enable_x64(x64):
        found = special.bessel_jn(z, v=v)
    assert (found.shape, found.dtype) == ((v + 1, *z.shape), z.dtype)
    expected = np.stack([sp.jv(k, z.astype(np.float64)) for k in range(v + 1)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 if x64 else 1e-6)


def test_bounds_of_bessel_functions():
    assert np.isnan(special.bessel_jn(np.array([51.0, -51.0]), v=2)).all()
    with enable_x64(True):
        found = special.bessel_jn(51.0, v=2, n_iter=60)
        np.testing.assert_allclose(found, sp.jv([0, 1, 2], 51.0), rtol=1e-12)
    with pytest.raises(ValueError, match="v must not be negative, got -1"):
        special.bessel_jn(1.0, v=-1)
    with pytest.raises(TypeError):
        special.bessel_jn(1.0, v=1.5)
    with pytest.raises(ValueError, match="bessel_jn must be real-valued"):
        special.bessel_jn(1j, v=1)


@pytest.mark.parametrize("x64", [True, False])
def test_spherical_harmonics(x64):
    n, m = np.array([(n, m) for n in range(25) for m in range(-n - 1, n + 2)]).T
    theta, phi = RNG.uniform(0, np.pi, n.size), RNG.uniform(-np.pi, np.pi, n.size)
    real = np.float64 if x64 else np.float32
    theta, phi = theta.astype(real), phi.astype(real)
    with enable_x64(x64):
        found = special.sph_harm_y(n, m, theta, phi)
    expected = sp.sph_harm_y(n, m, theta.astype(np.float64), phi.astype(np.float64))
    expected = np.where(np.abs(m) <= n, expected, 0)
    assert found.dtype == (np.complex128 if x64 else np.complex64)
    # The last places of `m * phi` are lost.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 if x64 else 2e-5)


def test_spherical_harmonics_at_the_poles_and_in_programs():
    n, m = np.arange(4)[:, None], np.arange(-3, 4)
    for theta in (0.0, np.pi):
        expected = np.where(np.abs(m) <= n, sp.sph_harm_y(n, m, theta, 0.3), 0)
        np.testing.assert_allclose(special.sph_harm_y(n, m, theta, 0.3), expected, atol=1e-6)
    with pytest.raises(errors.TracerArrayConversionError):
        jit(special.sph_harm_y)(2, 1, 0.4, 0.3)
    found = jit(lambda n: special.sph_harm_y(n, 1, 0.4, 0.3, n_max=4))(jnp.array([2, 9]))
    np.testing.assert_allclose(found, sp.sph_harm_y([2, 4], 1, 0.4, 0.3), rtol=1e-5)
    with pytest.raises(TypeError, match="sph_harm_y: n must be an integer"):
        special.sph_harm_y(1.5, 1, 0.4, 0.3)
    with pytest.raises(NotImplementedError, match="diff_n"):
        special.sph_harm_y(2, 1, 0.4, 0.3, diff_n=1)


@pytest.mark.parametrize("x64", [True, False])
def test_hypergeometric_functions(x64):
    kind = np.float64 if x64 else np.float32
    rtol = 2e-12 if x64 else 3e-5
    draw = lambda low, high: RNG.uniform(low, high, 60).astype(kind)
    wide = lambda *args: [np.asarray(v, np.float64) for v in args]
    with enable_x64(x64):
        args = draw(0.5, 30), draw(0.5, 30), draw(0, 60)
        np.testing.assert_allclose(special.hyp1f1(*args), sp.hyp1f1(*wide(*args)), rtol=rtol)
        args = draw(0.5, 10), draw(10, 30), draw(-90, 0)
        np.testing.assert_allclose(special.hyp1f1(*args), sp.hyp1f1(*wide(*args)), rtol=rtol)
        args = draw(0.1, 3), draw(0.1, 3), draw(0.1, 3), draw(-4, 0.999)
        np.testing.assert_allclose(special.hyp2f1(*args), sp.hyp2f1(*wide(*args)), rtol=rtol)
        ends = np.array(
            [[0, 1, 1, 1], [1, 1, 0, 1], [1, 1, -1, 1], [5, 1, 3, 0.5], [5, 1, 3, 1],
             [0.45, 0.7, 0.45, 1.5], [2, 1, 5, 1], [4, 3, 7, 0.95], [-2, 3, 5, 7]], kind
        ).T  # fmt: skip
        np.testing.assert_allclose(special.hyp2f1(*ends), sp.hyp2f1(*wide(*ends)), rtol=rtol)


def test_combinations():
    n, k = np.array([0, 0, 5, 3, 5, 5.0]), np.array([0, 4, 2, 3, 0, -1.0])
    for repetition in (False, True):
        found = special.comb(n, k, repetition=repetition)
        np.testing.assert_allclose(
            found, [sp.comb(*v, repetition=repetition) for v in zip(n, k)], 1e-6
        )


def test_complex_gamma_functions():
    z = np.array(
        [0.5 + 1j, -2.5 + 0.1j, -2.5 - 0.1j, 30 - 20j, -30.3 + 9j, 1e-6 + 1e-7j, -80.5 + 1e-3j]
    )
    with enable_x64(True):
        np.testing.assert_allclose(special.loggamma(z), sp.loggamma(z), rtol=1e-13)
        np.testing.assert_allclose(special.gamma(z), sp.gamma(z), rtol=1e-11)
        poles = np.asarray(special.gamma(np.array([0j, -1, -2])))
    assert np.isnan(poles.real).all() and np.isnan(poles.imag).all()
    assert float(grad(special.gamma)(50.0)) == np.inf


def test_normal_tails():
    x = np.array([-38.0, -30.5, -20.0, -10.0, -1.0, -1e-3, 0.0, 1.0, 6.0, 30.0])
    p = np.array([1e-300, 1e-30, 1e-5, 0.0799, 0.0801, 0.5, 0.9, 0.93, 1 - 1e-12])
    with enable_x64(True):
        np.testing.assert_allclose(special.log_ndtr(x), sp.log_ndtr(x), rtol=1e-13)
        np.testing.assert_allclose(special.ndtri(p), sp.ndtri(p), rtol=2e-14)
        for fn in (special.ndtr, special.ndtri, special.log_ndtr, special.betaln):
            args = (np.float32(0.25),) * (2 if fn is special.betaln else 1)
            assert fn(*args).dtype == np.float32
        slopes = vmap(grad(special.ndtri))(p[1:-1])
        np.testing.assert_allclose(
            slopes, np.sqrt(2 * np.pi) * np.exp(sp.ndtri(p[1:-1]) ** 2 / 2), 1e-10
        )
