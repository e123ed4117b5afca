"""Equal steps share their kernels; steps that differ in anything do not."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.plan import plan_program


def kernels(fn, *args):
    plan = plan_program(amdjax.make_jaxpr(fn)(*args), cpu_target())
    return len({id(k) for k in plan.kernels()}), len(plan.kernels())


def block(x, w, b):
    y = jnp.tanh(x @ w + b)
    mean = y.mean(1, keepdims=True)
    return (y - mean) / jnp.sqrt(((y - mean) ** 2).mean(1, keepdims=True) + 1e-5)


X, W, B = np.ones((24, 24), np.float32), np.ones((24, 24), np.float32), np.ones(24, np.float32)


def test_repeated_blocks_are_lowered_once():
    def network(x, *weights):
        for w in weights:
            x = block(x, w, B)
        return x

    one, _ = kernels(network, X, W)
    many, launches = kernels(network, X, *[W] * 6)
    assert many <= one + 2  # the last block's result is the program's, the first reads its input
    assert launches > 2 * many


PAIRS = {
    "constants": lambda x, y: (jnp.sort(x * 2.0), jnp.sort(y * 3.0)),
    "zeros": lambda x, y: (jnp.sort(x / 0.0), jnp.sort(y / -0.0)),
    "operations": lambda x, y: (jnp.sort(jnp.sin(x)), jnp.sort(jnp.cos(y))),
    "operand order": lambda x, y: (jnp.sort(x - y), jnp.sort(y - x)),
    "axes": lambda x, y: (jnp.cumsum(x.sum(0)), jnp.cumsum(y.sum(1))),
    "same operand twice": lambda x, y: (jnp.sort(x * x), jnp.sort(x * y)),
    "parameters": lambda x, y: (jnp.sort(x, axis=0), jnp.sort(y, axis=1)),
    "exponents": lambda x, y: (jnp.sort(x**2), jnp.sort(y**3)),
    "epilogues": lambda x, y: (jnp.sort(x @ y + 1.0), jnp.sort(x @ y + 2.0)),
    "reductions": lambda x, y: (x - x.max(1, keepdims=True), y - y.min(1, keepdims=True)),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=list(PAIRS))
def test_steps_that_differ_stay_apart(pair):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(20, 20)).astype(np.float32) for _ in range(2))
    with amdjax.disable_jit():
        wanted = pair(jnp.asarray(x), jnp.asarray(y))
    for found, expected in zip(amdjax.jit(pair)(x, y), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
