"""Sizes with two names that are equal in a call are equal: the function is traced apart."""

from __future__ import annotations

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

#: Functions of two vectors, which most take only if they are of one size.
FUNCTIONS = {
    "stack": lambda x, y: jnp.stack([x, y]),
    "lexsort": lambda x, y: jnp.lexsort((x, y)),
    "add": lambda x, y: x + y,
    "select_n": lambda x, y: lax.select_n(x > 0, x, y),
    "where": lambda x, y: jnp.where(x > 0, x, y),
    "dot": jnp.dot,
    "einsum": lambda x, y: jnp.einsum("i,i->", x, y),
    "einsum3": lambda x, y: jnp.einsum("i,i,i->i", x, y, x),
    "dot_general": lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ()))),
    "matmul": lambda x, y: x @ y,
    "interp": lambda x, y: jnp.interp(1.5, x, y),
    "sort": lambda x, y: lax.sort((x, y)),
    "scan": lambda x, y: lax.scan(lambda c, v: (c + v[0] * v[1], c), 0.0, (x, y)),
    "map": lambda x, y: lax.map(lambda v: v[0] * v[1], (x, y)),
    "vmap": lambda x, y: amdjax.vmap(lambda a, b: a * b)(x, y),
    "cond": lambda x, y: lax.cond(True, lambda: x, lambda: y),
    "average": lambda x, y: jnp.average(x, weights=y),
    "diagidx": lambda x, y: jnp.diag_indices_from(x[:, None] * y[None]),
    "fill": lambda x, y: jnp.fill_diagonal(
        x[:, None, None] * y[None, :, None] * x[None, None], 1.0, inplace=False
    ),
    "inv": lambda x, y: jnp.linalg.det(x[:, None] * y + 1),
    "reshape": lambda x, y: x.reshape(y.shape),
    "at": lambda x, y: x.at[:].set(y),
    "while": lambda x, y: lax.while_loop(lambda c: c.sum() < 0, lambda c: y, x),
    "fori": lambda x, y: lax.fori_loop(0, 2, lambda i, c: c + y, x),
    "vjp": lambda x, y: amdjax.vjp(jnp.sin, x)[1](y),
    "block": lambda x, y: jnp.block([[x], [y]]),
    "column_stack": lambda x, y: jnp.column_stack([x, y]),
}


def outcome(function, *args):
    try:
        return [np.asarray(x) for x in amdjax.tree.leaves(function(*args))]
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_vectors(name):
    many, single = amdjax.jit(FUNCTIONS[name], symbolic=("a", "b")), amdjax.jit(FUNCTIONS[name])
    for a, b in ((4, 4), (4, 5)):
        args = np.linspace(0.5, 2, a, dtype="float32"), np.linspace(1, 3, b, dtype="float32")
        got, want = outcome(many, *args), outcome(single, *args)
        assert (got is None) == (want is None)
        for x, y in zip(got or (), want or (), strict=True):
            assert x.shape == y.shape and x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
