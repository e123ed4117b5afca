"""`experimental.jet` against repeated forward-mode derivatives."""

import math

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, jvp, lax, vmap
from amdjax.experimental.jet import jet, jet_rules

RNG = np.random.default_rng(0)
ORDER = 4


pytestmark = pytest.mark.usefixtures("double_precision")


def expected(f, primals, series):
    """Derivatives in the curve's parameter, one `jvp` inside the other."""

    def along(t):
        terms = lambda s: sum(c * t ** (k + 1) / math.factorial(k + 1) for k, c in enumerate(s))
        return f(*[x + terms(s) for x, s in zip(primals, series, strict=True)])

    found, derivative = [], along
    for _ in range(len(series[0])):
        derivative = (lambda g: lambda t: jvp(g, (t,), (1.0,))[1])(derivative)
        found.append(derivative(0.0))
    return f(*primals), found


def agree(f, *primals, rtol=1e-9):
    series = [[RNG.normal(size=np.shape(x)) for _ in range(ORDER)] for x in primals]
    value, terms = jit(lambda p, s: jet(f, p, s))(primals, series)
    want, want_terms = expected(f, primals, series)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    for got, exact in zip(terms, want_terms, strict=True):
        np.testing.assert_allclose(got, exact, rtol=rtol, atol=rtol)


ANYWHERE = (
    "neg", "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "atan",
    "erf", "erfc", "logistic", "square", "cbrt", "abs", "sign", "floor",
)  # fmt: skip
POSITIVE = ["log", "log1p", "sqrt", "rsqrt", "lgamma", "digamma", "bessel_i0e"]
INSIDE = ["asin", "acos", "atanh", "erf_inv"]


@pytest.mark.parametrize("name", [*ANYWHERE, *POSITIVE, *INSIDE, "acosh"])
def test_functions(name):
    x = RNG.uniform(0.2, 0.8, size=5)
    x = np.concatenate([x, -x]) if name in (*ANYWHERE, *INSIDE) else x + (name == "acosh")
    agree(getattr(lax, name), x, rtol=1e-7)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "atan2", "max", "min", "rem"])
def test_functions_of_two(name):
    agree(getattr(lax, name), RNG.uniform(1, 2, size=6), RNG.uniform(0.3, 0.9, size=6), rtol=1e-7)


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 5])
def test_integer_powers(n):
    agree(lambda x: lax.integer_pow(x, n), RNG.normal(size=4))
    if n > 0:
        agree(lambda x: lax.integer_pow(x, n), np.zeros(3))


A, B = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2))
OF_ARRAYS = {
    "matmul": (jnp.matmul, A, B),
    "reductions": (lambda a: jnp.max(a, 1) + jnp.min(a) + jnp.prod(a), A),
    "cumulative": (lambda a: jnp.cumsum(a, 0) * jnp.cumprod(a, 0) + lax.cummax(a), A),
    "gather": (lambda a: a[1:, ::-1].T.reshape(-1)[jnp.array([0, 3, 1])], A),
    "scatter": (lambda a: a.at[jnp.array([0, 2])].add(a[:2]) * a.at[0].set(1.0), A),
    "choices": (lambda a: jnp.where(a > 0, a, a**2) + jnp.clip(a, -0.5, 0.5), A),
    "concatenate": (lambda a, b: jnp.concatenate([a, b.T * 2]), A, B[:, :2]),
    "transform": (lambda a: jnp.fft.rfft(a).real, A),
    "conv": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), A[None, None], B[None, None, :2]),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_arrays(name):
    f, *arrays = OF_ARRAYS[name]
    agree(f, *map(jnp.asarray, arrays))


PROGRAMS = {
    "jit": (jit(lambda x: jnp.sin(x) * x), RNG.normal(size=3), 1e-9),
    "loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + i, x), RNG.normal(size=3), 1e-9,
    ),
    "cond": (lambda x: lax.cond(True, jnp.sin, jnp.cos, x), RNG.normal(size=3), 1e-9),
    "inverse": (
        lambda x: jnp.linalg.inv(x) @ x[0], RNG.normal(size=(3, 3)) + 3 * np.eye(3), 1e-6,
    ),
    "layers": (
        lambda x: amdjax.nn.gelu(x) + amdjax.nn.softmax(x), RNG.normal(size=3), 1e-9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_inside(name):
    f, x, rtol = PROGRAMS[name]
    agree(f, x, rtol=rtol)


def test_trees_coefficients_and_batches():
    f = lambda x: {"s": jnp.sin(x), "one": jnp.ones(2)}
    value, terms = jet(f, (0.5,), ([1.0, 0.0, 0.0],))
    np.testing.assert_allclose(terms["s"], [np.cos(0.5), -np.sin(0.5), -np.cos(0.5)])
    assert not np.any(terms["one"]) and value["s"] == np.sin(0.5)
    _, scaled = jet(jnp.exp, (0.0,), ([1.0, 0.0, 0.0],), factorial_scaled=False)
    np.testing.assert_allclose(scaled, [1, 1 / 2, 1 / 6])
    xs = RNG.normal(size=4)
    third = vmap(lambda x: jet(jnp.sin, (x,), ([1.0, 0.0, 0.0],))[1][2])(xs)
    np.testing.assert_allclose(third, -np.cos(xs))
    slope = amdjax.grad(lambda x: jet(jnp.sin, (x,), ([1.0, 0.0],))[1][1])(0.3)
    np.testing.assert_allclose(slope, -np.cos(0.3))


def test_rules_may_be_given_and_bad_arguments():
    assert jet_rules[lax.sin_p]([1.0], [[1.0]])[1] == [np.cos(1.0)]
    with pytest.raises(ValueError, match="inconsistent lengths"):
        jet(lax.add, (1.0, 2.0), ([1.0], [1.0, 2.0]))
    with pytest.raises(ValueError, match="position 0 is not an array"):
        jet(lambda x: x[0], ([1.0],), ([1.0],))
    with pytest.raises(ValueError, match="term 0 for argument 0"):
        jet(lambda x: x, (1.0,), ([[1.0]],))
