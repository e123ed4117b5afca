"""Programs run part by part give what they give whole."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.jit.cpu import timing
from amdjax.jit.report import fusions

X = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)


def loops(x):
    y = jnp.sort(x, 0) @ x
    c, rows = lax.scan(lambda c, row: (jnp.tanh(c + row @ x), c), x[0], y)
    z = lax.while_loop(lambda z: z[0] < 3, lambda z: (z[0] + 1, z[1] @ x), (0, y))[1]
    w = lax.cond(c[0] > 0, lambda x: x @ x, lambda x: jnp.sort(x), z)
    return jnp.sort(rows) @ w, lax.fori_loop(0, 5, lambda i, v: (v @ x) / 4, w)


PROGRAMS = {
    "kernels": lambda x: nn.softmax(jnp.sort(x @ x) @ x),
    "loops": loops,
    "host": lambda x: jnp.linalg.eigh(x @ x.T)[0] + jnp.sort(x).sum(),
    "copies": lambda x: (x, x, jnp.concatenate([x, x @ x])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_compute_what_the_whole_computes(name, monkeypatch):
    f = PROGRAMS[name]
    compiled = amdjax.jit(f).lower(X).compile()
    want = amdjax.tree.leaves(compiled(X))
    program = compiled.executable
    allocate, seen = program._allocate, []
    monkeypatch.setattr(program, "_allocate", lambda: seen.extend(allocate()) or seen)
    found = timing.timed(program, [jnp.asarray(X)], 2)
    assert all(len(t.seconds) == 2 for t in found)
    assert sorted(n for t in found for n in t.launches) == sorted(
        k.name for k in program.plan.kernels()
    )
    if name != "copies":
        assert len(found) > 2
    steps = fusions(compiled.stages)[0].steps
    assert {s for t in found for s in t.steps} <= set(range(len(steps)))
    for buffer, y in zip(seen, want):
        got = np.frombuffer(_bytes(buffer), y.dtype).reshape(y.shape)
        np.testing.assert_array_equal(got, y)


def _bytes(buffer):
    import ctypes

    return ctypes.string_at(buffer.address, buffer.nbytes)


def test_parts_of_straight_programs_are_its_steps():
    compiled = amdjax.jit(PROGRAMS["kernels"]).lower(X).compile()
    found = timing.timed(compiled.executable, [jnp.asarray(X)], 1)
    assert [t.steps for t in found] == [(i,) for i in range(len(found))]
