"""Random programs of symbolic shapes, compiled for many sizes, against those of single sizes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.core.dims import Dim, SymbolicScope
from amdjax.export import symbolic_shape
from amdjax.jit.variants import Variants
from tests.support.turns import in_turn

PROGRAMS = 160
SIZES = {"b": [1, 2, 3, 5, 16, 17, 33, 64], "t": [1, 2, 4, 7, 8, 16, 31, 64, 100, 129, 300]}


def normalized(x, axis):
    mean, var = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1)


def every_third(x, axis):
    first = jnp.arange(x.shape[0]).reshape((-1,) + (1,) * (x.ndim - 1))
    return jnp.where(first % 3 == 0, x, -x)


#: Of an array with axes and one of the axes.
OPERATIONS = [
    lambda x, axis: jnp.exp(-jnp.abs(x)),
    lambda x, axis: x.T,
    lambda x, axis: x.reshape(-1),
    lambda x, axis: x.reshape(x.shape[0], -1, 1) * 2,
    lambda x, axis: x.sum(axis),
    lambda x, axis: x.max(axis, keepdims=True),
    lambda x, axis: nn.softmax(x, axis),
    lambda x, axis: jnp.concatenate([x, x * 0.5], axis),
    lambda x, axis: jnp.pad(x, [(1, 2)] * x.ndim),
    lambda x, axis: jnp.flip(x, axis),
    lambda x, axis: x[..., :1] + x,
    lambda x, axis: jnp.cumsum(x, axis) * 0.1,
    lambda x, axis: x * jnp.arange(x.shape[-1]) / x.shape[-1],
    lambda x, axis: jnp.broadcast_to(x[None], (3, *x.shape)),
    lambda x, axis: jnp.stack([x, x + 1], 1).reshape(x.shape[0] * 2, *x.shape[1:]),
    lambda x, axis: jnp.take(x, jnp.arange(x.shape[0]) // 2, axis=0),
    lambda x, axis: jnp.repeat(x, 2, axis),
    lambda x, axis: x.at[:1].add(1.0),
    normalized,
    every_third,
]


def program(seed):
    """A function of two matrices that share an axis."""
    draw = random.Random(seed)
    choices = [(draw.choice(OPERATIONS), draw.random(), draw.random()) for _ in range(6)]

    def f(x, y):
        made = [x, y]
        for operation, which, axis in choices:
            a = made[int(which * len(made))]
            a = operation(a, int(axis * a.ndim)) if a.ndim else jnp.sin(a)
            made += [a] if a.ndim <= 4 else []
        return made[-1], jnp.tanh(made[len(made) // 2]).sum()

    return f


@pytest.mark.parametrize("seed", in_turn(range(PROGRAMS), 10))
def test_random_programs_of_symbolic_shapes(seed, monkeypatch):
    # One variant for all sizes of which it is right, however much better another would be.
    monkeypatch.setattr("amdjax.jit.variants.MOST_CHOSEN", 1)
    scope, f, rng = SymbolicScope(), program(seed), np.random.default_rng(seed)
    if seed % 2:
        value = f
        f = amdjax.grad(lambda x, y: sum(jnp.sum(jnp.sin(out)) for out in value(x, y)), (0, 1))
    shapes = [symbolic_shape(text, scope=scope) for text in ("b, t", "t, 8")]
    with amdjax.enable_x64(True):  # sums in another order would hide much in single precision
        traced = amdjax.make_jaxpr(f)(*[amdjax.ShapeDtypeStruct(s, "float64") for s in shapes])
        variants = Variants(traced, (False, False), (), None)
        for _ in range(5):
            sizes = {name: int(rng.choice(all_sizes)) for name, all_sizes in SIZES.items()}
            numbers = [[n.evaluate(sizes) if isinstance(n, Dim) else n for n in s] for s in shapes]
            xs = [jnp.asarray(rng.standard_normal(shape)) for shape in numbers]
            for got, want in zip(variants.runner(sizes)(xs), amdjax.jit(f)(*xs), strict=True):
                assert got.aval == want.aval
                scale = max(1.0, float(np.abs(want).max(initial=0)))
                np.testing.assert_allclose(got, want, atol=1e-10 * scale, err_msg=str(sizes))
    assert variants.reason is None
