"""Derivatives of batched branches: what an example does not take does not reach its derivative.

The branches not taken have singular derivatives at the examples. One example by itself runs its
branch alone, which is what the batch is compared with.
"""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

X = np.array([0.0, 1e-4, 0.5, 2.0, 3.0], np.float32)


def sqrt_or_constant(x):
    return lax.cond(x < 1e-3, lambda _: 1e-3, lambda _: jnp.sqrt(x), ())


def three_ways(x):
    return lax.switch(jnp.int32(x > 1e-3), [lambda x: 3 * x, jnp.sqrt, jnp.log], x)


def nested(x):
    inner = lambda x: lax.cond(x > 2, lambda x: jnp.log(x - 2), lambda x: 1 / x, x)
    return lax.cond(x < 1e-3, lambda x: 2 * x, inner, x)


def several_operands(x):
    def away(x, y):
        return jnp.arctan2(x, y), jnp.sqrt(x * y)

    a, b = lax.cond(x > 1e-3, away, lambda x, y: (x, y * y), x, 2 * x)
    return a * b


def in_scan(x):
    return lax.scan(lambda c, _: (three_ways(c), sqrt_or_constant(c)), x, None, length=3)[0]


def in_scan_outputs(x):
    return lax.scan(lambda c, _: (c, sqrt_or_constant(c)), x, None, length=2)[1].sum()


def in_fori(x):
    return lax.fori_loop(0, 3, lambda i, c: three_ways(c), x)


def in_jit(x):
    return amdjax.jit(three_ways)(x)


def in_checkpoint(x):
    return amdjax.checkpoint(nested)(x)


FUNCTIONS = [
    sqrt_or_constant, three_ways, nested, several_operands, in_scan, in_scan_outputs, in_fori,
    in_jit, in_checkpoint,
]  # fmt: skip


def _second(f):
    return amdjax.grad(amdjax.grad(f))


# Each takes the function of one example, and gives what is to agree for the batch and for one.
TRANSFORMS = {
    "grad of vmap": (
        lambda f: amdjax.grad(lambda x: amdjax.vmap(f)(x).sum()), amdjax.grad,
    ),
    "vmap of grad": (lambda f: amdjax.vmap(amdjax.grad(f)), amdjax.grad),
    "vjp": (
        lambda f: lambda x: amdjax.vjp(amdjax.vmap(f), x)[1](jnp.ones_like(x))[0], amdjax.grad,
    ),
    "jvp": (
        lambda f: lambda x: amdjax.jvp(amdjax.vmap(f), (x,), (jnp.ones_like(x),))[1], amdjax.grad,
    ),
    "jacrev": (lambda f: lambda x: amdjax.jacrev(amdjax.vmap(f))(x), amdjax.grad),
    "jacfwd": (lambda f: lambda x: amdjax.jacfwd(amdjax.vmap(f))(x), amdjax.grad),
    "grad of jit": (
        lambda f: amdjax.grad(amdjax.jit(lambda x: amdjax.vmap(f)(x).sum())), amdjax.grad,
    ),
    "jit of grad": (
        lambda f: amdjax.jit(amdjax.grad(lambda x: amdjax.vmap(f)(x).sum())), amdjax.grad,
    ),
    "grad of vmap of vmap": (
        lambda f: lambda x: amdjax.grad(lambda x: amdjax.vmap(amdjax.vmap(f))(x).sum())(x[None])[0],
        amdjax.grad,
    ),
    "hessian": (
        lambda f: amdjax.hessian(lambda x: amdjax.vmap(f)(x).sum()), _second,
    ),
    "grad of vmap of grad": (
        lambda f: amdjax.grad(lambda x: amdjax.vmap(amdjax.grad(f))(x).sum()), _second,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_what_is_not_taken_does_not_reach_derivatives(f, name):
    batched, single = TRANSFORMS[name]
    wanted = np.array([single(f)(x) for x in X])
    assert np.isfinite(wanted).all()
    found = np.asarray(batched(f)(X))
    if found.ndim == 2:
        wanted = np.diag(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_nothing_is_left_of_it_in_compiled_programs():
    text = amdjax.jit(amdjax.vmap(three_ways)).lower(X).compile().as_text("simplified")
    assert text.count("select_n") == 1
    assert "stop_gradient" not in text
