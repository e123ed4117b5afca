"""`experimental.ode` against exact solutions and SciPy; its adjoint against differences."""

import numpy as np
import pytest
import scipy.integrate

import amdjax.numpy as jnp
from amdjax import grad, jit, vmap
from amdjax.experimental.ode import odeint
from amdjax.test_util import check_grads

TIMES = np.array([0.0, 0.3, 1.0, 2.5])


pytestmark = pytest.mark.usefixtures("double_precision")


def pendulum(y, t, m, g):
    return jnp.stack([y[1], -m * y[1] - g * jnp.sin(y[0])])


def test_against_scipy():
    y0 = np.array([np.pi - 0.1, 0.0])
    want = scipy.integrate.odeint(lambda y, t: np.asarray(pendulum(y, t, 0.25, 9.8)), y0, TIMES)
    np.testing.assert_allclose(odeint(pendulum, y0, TIMES, 0.25, 9.8), want, atol=1e-6)
    single = odeint(pendulum, y0.astype(np.float32), TIMES.astype(np.float32), 0.25, 9.8)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, want, atol=2e-3)


def test_adjoint():
    f = lambda y0, t, m, g: odeint(pendulum, y0, t, m, g, rtol=1e-10, atol=1e-10)
    args = (np.array([1.0, 0.5]), TIMES, 0.25, 2.0)
    check_grads(f, args, 1, modes=["rev"], rtol=1e-4, atol=1e-5)


def test_states_are_trees_and_closures_are_differentiated():
    def solve(rate):
        states = odeint(
            lambda y, t: {"a": -rate * y["a"], "b": y["a"]}, {"a": 1.0, "b": 0.0}, TIMES
        )
        return states["a"][-1] + states["b"][-1]

    exact = lambda r: np.exp(-2.5 * r) + (1 - np.exp(-2.5 * r)) / r
    np.testing.assert_allclose(solve(0.7), exact(0.7), rtol=1e-6)
    difference = (exact(0.7 + 1e-6) - exact(0.7 - 1e-6)) / 2e-6
    np.testing.assert_allclose(grad(solve)(0.7), difference, rtol=1e-5)


def test_batches_and_complex_states():
    rates = np.array([0.1, 1.0, 20.0])
    f = lambda r: odeint(lambda y, t: -r * y, 1.0, TIMES)
    np.testing.assert_allclose(jit(vmap(f))(rates), np.exp(-rates[:, None] * TIMES), atol=1e-6)
    turning = odeint(lambda y, t: 1j * y, jnp.array([1 + 0j]), TIMES)
    np.testing.assert_allclose(turning[:, 0], np.exp(1j * TIMES), atol=1e-6)


def test_limits():
    f = lambda y, t: -y
    assert np.all(odeint(f, 1.0, TIMES, hmax=0.01)[-1] < 0.0821)
    assert not np.isclose(odeint(f, 1.0, np.array([0.0, 100.0]), mxstep=2)[-1], 0, atol=1e-9)
    with pytest.raises(TypeError, match="arrays or scalars"):
        odeint(lambda y, t, x: -y, 1.0, TIMES, "x")
    with pytest.raises(TypeError, match="array of floats"):
        odeint(f, 1.0, np.arange(3))
