"""Programs of the public functions print, parse back to the same print, and check."""

from __future__ import annotations

import enum
import inspect

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, random
from amdjax.core.check import check_jaxpr
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.parse import parse_jaxpr
from amdjax.core.primitive import Primitive

X = jnp.linspace(0.1, 0.9, 12).reshape(3, 4)
KEY = random.PRNGKey(0)

LOOPS = {
    "scan": lambda x: lax.scan(lambda c, s: (jnp.sin(c * s), c), x.sum(), x[0])[0],
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x.sum()),
    "while": lambda x: lax.while_loop(lambda c: c < 2, lambda c: c + 1, x.sum()),
    "cond": lambda x: lax.cond(x.sum() > 0, jnp.sum, jnp.max, x),
    "map": lambda x: lax.map(jnp.exp, x).sum(),
}
TRANSFORMS = {
    "plain": lambda f: f,
    "jit": amdjax.jit,
    "vmap": lambda f: amdjax.vmap(lambda x: f(x[None])),
    "jvp": lambda f: lambda x: amdjax.jvp(f, (x,), (x,)),
    "checkpoint": amdjax.checkpoint,
    "grad": amdjax.grad,
}


def functions():
    for module in (jnp, nn):
        for name in sorted(dir(module)):
            fun = getattr(module, name)
            if not name.startswith("_") and callable(fun) and not inspect.isclass(fun):
                yield f"{module.__name__}.{name}", fun


def round_trip(closed):
    check_jaxpr(closed.jaxpr)
    text = str(closed)
    parsed = parse_jaxpr(text)
    assert str(parsed) == text
    same_params(closed.jaxpr, parsed.jaxpr)


def same_params(jaxpr, parsed):
    """Parameters come back as what they were, but for functions."""
    for eqn, again in zip(jaxpr.eqns, parsed.eqns, strict=True):
        for name, value in eqn.params.items():
            same_param(value, again.params.get(name), (eqn.primitive, name))


def same_param(value, found, where):
    if isinstance(found, ClosedJaxpr):
        same_params(value.jaxpr, found.jaxpr)
    elif isinstance(found, tuple):
        for item, again in zip(value, found, strict=True):
            same_param(item, again, where)
    elif isinstance(value, str | int | float | np.dtype | enum.Enum | Primitive):
        assert "<" in str(value) or found == value, (where, value, found)


def test_public_functions():
    """Whatever can be traced with one or two matrices; the count says that most can."""
    count = 0
    for name, fun in functions():
        for args in ((X,), (X, X)):
            try:
                closed = amdjax.make_jaxpr(fun)(*args)
            except Exception:
                continue
            try:
                round_trip(closed)
            except Exception as error:
                raise AssertionError(f"{name} of {len(args)} arrays") from error
            count += 1
    assert count > 250


def test_the_operation_of_a_pool():
    grad = amdjax.grad(lambda x: nn.max_pool(x[None, ..., None], (2, 2)).sum())
    round_trip(amdjax.make_jaxpr(grad)(X))


@pytest.mark.parametrize("name", [n for n in random.__all__ if hasattr(random, n)])
def test_samplers(name):
    fun = getattr(random, name)
    try:
        closed = amdjax.make_jaxpr(lambda key: fun(key, shape=(3,)))(KEY)
    except TypeError:
        pytest.skip("takes other arguments")
    round_trip(closed)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("loop", LOOPS)
def test_loops(loop, transform):
    if (loop, transform) == ("while", "grad"):
        pytest.skip("has no reverse mode")
    round_trip(amdjax.make_jaxpr(TRANSFORMS[transform](LOOPS[loop]))(X))
