"""Programs that transforms make, as text.

`golden_jaxprs.txt` holds them, to be read by people. After a change that is meant, run this file
as a program to write it anew, and read the difference.
"""

import pathlib

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.check import check_jaxpr
from amdjax.core.parse import parse_jaxpr

GOLDEN = pathlib.Path(__file__).with_name("golden_jaxprs.txt")

S = np.float32(0.5)
V = np.arange(3, dtype=np.float32)
M = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.ones((3, 4), np.float32)


def loss(w, x):
    return jnp.sum(jnp.tanh(x @ w) ** 2)


@amdjax.custom_jvp
def square(x):
    return x * x


@square.defjvp
def _square_jvp(primals, tangents):
    return square(*primals), 2 * primals[0] * tangents[0]


@amdjax.custom_vjp
def clipped(x):
    return x * x


clipped.defvjp(lambda x: (clipped(x), x), lambda x, ct: (jnp.clip(2 * x * ct, -1, 1),))


def chain(c, ys):
    return lax.scan(lambda c, y: (jnp.sin(c) * y, c), c, ys)[0]


def count(n):
    return lax.while_loop(lambda i: i < n, lambda i: i + 1, 0)


def choose(p, x):
    return lax.cond(p, jnp.sin, jnp.cos, x)


def softmax(x):
    e = jnp.exp(x - lax.stop_gradient(jnp.max(x)))
    return e / jnp.sum(e)


# What is traced, and the arguments.
PROGRAMS = {
    "jvp": (lambda x, t: amdjax.jvp(lambda x: jnp.exp(x) * x, (x,), (t,)), V, V),
    "linearize": (lambda x, t: amdjax.linearize(jnp.sin, x)[1](t), S, S),
    "grad": (amdjax.grad(lambda x: jnp.sum(jnp.sin(x) * x)), V),
    "grad of grad": (amdjax.grad(amdjax.grad(jnp.sin)), S),
    "value_and_grad of a layer": (amdjax.value_and_grad(loss), W, M),
    "vjp of softmax": (lambda x, ct: amdjax.vjp(softmax, x)[1](ct), V, V),
    "hessian": (amdjax.hessian(lambda x: jnp.sum(x * x)), V),
    "vmap of a product": (amdjax.vmap(lambda x, w: x @ w, (0, None)), M, W),
    "vmap of grad": (amdjax.vmap(amdjax.grad(lambda x: jnp.sum(x * x))), M),
    "vmap with a sum over the axis": (
        amdjax.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i"),
        V,
    ),
    "jit": (amdjax.jit(lambda x: jnp.cos(x) * 2), S),
    "grad of jit": (amdjax.grad(amdjax.jit(lambda x: jnp.cos(x) * 2)), S),
    "vmap of jit": (amdjax.vmap(amdjax.jit(lambda x, y: x - y), (0, None)), V, S),
    "scan": (chain, S, V),
    "grad of scan": (amdjax.grad(chain), S, V),
    "vmap of scan": (amdjax.vmap(chain, (0, None)), V, V),
    "vmap of while": (amdjax.vmap(count), np.arange(3, dtype=np.int32)),
    "grad of cond": (amdjax.grad(choose, 1), np.True_, S),
    "vmap of cond": (amdjax.vmap(choose), np.array([True, False, True]), V),
    "grad of checkpoint": (amdjax.grad(amdjax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))), S),
    "custom_jvp": (square, S),
    "grad of custom_jvp": (amdjax.grad(square), S),
    "grad of custom_vjp": (amdjax.grad(clipped), S),
}


def traced(name):
    function, *arguments = PROGRAMS[name]
    return amdjax.make_jaxpr(function)(*arguments)


def recorded():
    sections = GOLDEN.read_text().split("# ")[1:]
    return {name: text.strip() for name, _, text in (s.partition("\n") for s in sections)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_as_recorded(name):
    assert str(traced(name)) == recorded()[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_programs_are_well_formed(name):
    closed = traced(name)
    check_jaxpr(closed)
    if "custom" not in name:  # rules are functions, which have no text
        assert str(parse_jaxpr(recorded()[name])) == str(closed)


def test_nothing_else_is_recorded():
    assert list(recorded()) == list(PROGRAMS)


if __name__ == "__main__":
    GOLDEN.write_text("\n\n".join(f"# {name}\n{traced(name)}" for name in PROGRAMS) + "\n")
