"""Machine words that are made once and filled in are those of a plan in which numbers are put."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import ShapeDtypeStruct, lax
from amdjax.core.dims import SizedScope, scope_of
from amdjax.core.instantiate import instantiate
from amdjax.jit.cpu.code import Code
from amdjax.jit.cpu.kernels import SYMBOL
from amdjax.jit.cpu.program import compile_sized_for_cpu


def chain(x, w):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return x.T, x.sum(0), jnp.cumsum(x, 0)


def many_small(x, w):
    return [x.sum() + i for i in range(3)] + [x.max(0)[:4], (x @ w).sum(1)[:2]]


def loop(x, w):
    return lax.scan(lambda c, row: (jnp.tanh(c @ w + row), c.sum()), jnp.zeros(16), x)


def called(x, w):
    out = ShapeDtypeStruct((x.shape[0], 16), jnp.float32)
    return amdjax.pure_callback(lambda a: np.asarray(a) * 2, out, jnp.sin(x)) @ w


def branches(x, w):
    return lax.cond(x[0, 0] > 0, lambda a: a @ w, lambda a: jnp.sort(a, 0) * 2, x)


@pytest.mark.parametrize("function", [chain, many_small, loop, called, branches])
def test_words_at_sizes(function):
    shapes = ShapeDtypeStruct(("n", 16), jnp.float32), ShapeDtypeStruct((16, 16), jnp.float32)
    closed = amdjax.jit(function).trace(*shapes).jaxpr
    scope = SizedScope({"n": 48}, scope_of(closed.in_avals))
    loaded = compile_sized_for_cpu(instantiate(closed, scope.variables()))
    addresses = {number: library[SYMBOL] for number, library in loaded.libraries.items()}
    code, hosts = loaded.code, [object() for _ in loaded.plan.hosts]
    served = [n for n in (2, 5, 48, 100, 801) if all(g.holds({"n": n}) for g in scope.required)]
    assert len(served) > 1
    for n in served:
        sizes = {"n": n}
        alone = Code(loaded.plan.at(sizes), addresses, instantiate(closed, sizes).out_avals)
        values, known = code.values(sizes), alone.values({})
        assert code.results(sizes, values) == alone.results({}, known) == alone.out_avals
        (total, offsets), (expected_total, expected) = code.arena(values), alone.arena(known)
        assert total == expected_total and list(offsets) == list(expected)
        fixed = {
            loaded.plan.outputs: (loaded.plan.outputs, 64),
            loaded.plan.constants_at: (1, 4096),
        }
        words = code.words(sizes, values, offsets, fixed, hosts)
        assert words == alone.words({}, known, expected, fixed, hosts)
