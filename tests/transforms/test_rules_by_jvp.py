"""Custom rules that push a program forward, so that loops and calls mix primals and tangents."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import custom_jvp, grad, jit, jvp, lax, linearize, vmap


def counted(x):
    """A loop that carries numbers without a tangent beside those with one."""

    def step(carry, row):
        i, y = carry
        return (i + 1, jnp.sin(y) * row + i), (y.min(), jnp.cos(row))

    (_, y), (lows, rows) = lax.scan(step, (0, x), x * x)
    return y * lows + jnp.expm1(rows)


def results_without_tangents(x):
    """A loop whose results by known numbers alone meet its tangents."""
    lows, twice = lax.scan(lambda c, row: (c, (c.min(), 2 * row)), x, x, reverse=True)[1]
    return jnp.expm1(lows) * twice


PROGRAMS = {
    "scan": counted,
    "scan of known numbers": results_without_tangents,
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * (i + 1.0), x),
    "cond": lambda x: lax.cond(x.sum() > 0, lambda y: y * y.max(), jnp.exp, x),
    "jit": jit(lambda x: jnp.exp(jnp.sin(x)) * x.max()),
    "checkpoint": amdjax.checkpoint(lambda x: jnp.exp(jnp.sin(x)) * x.max()),
    "vmap": lambda x: vmap(lambda y: lax.fori_loop(0, 2, lambda i, z: z * jnp.sin(y), y))(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_are_those_of_the_program(name):
    f = PROGRAMS[name]
    h = custom_jvp(f)
    h.defjvp(lambda primals, tangents: jvp(f, primals, tangents))
    x = np.linspace(-0.4, 1.0, 4).astype(np.float32)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    loss = lambda k: lambda y: (k(jnp.sin(y)) * jnp.arange(1.0, 5)).sum()
    close(grad(loss(h))(x), grad(loss(f))(x))
    close(jit(grad(loss(h)))(x), grad(loss(f))(x))
    close(linearize(h, x)[1](x), jvp(f, (x,), (x,))[1])
    close(amdjax.jacrev(h)(x), amdjax.jacfwd(f)(x))
    close(vmap(grad(loss(h)))(np.stack([x, -x])), vmap(grad(loss(f)))(np.stack([x, -x])))
    close(grad(lambda y: grad(loss(h))(y).sum())(x), grad(lambda y: grad(loss(f))(y).sum())(x))
