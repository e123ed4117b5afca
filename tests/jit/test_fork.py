"""A child made by fork computes, and the parent goes on."""

import os
import signal
import sys

import numpy as np
import pytest

import amdjax.numpy as jnp
from amdjax import grad, jit

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
X = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)


def in_child(job):
    """Whether `job()` is true in a forked process."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        ok = False
        try:
            ok = bool(job())
        finally:
            sys.stderr.flush()
            os._exit(0 if ok else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_known_programs_run_in_the_child():
    f = jit(lambda x: jnp.tanh(x @ x).sum(0))
    want = np.asarray(f(X))
    assert in_child(lambda: np.array_equal(f(X), want))
    assert np.array_equal(f(X), want)


def test_the_child_compiles():
    jnp.ones(3) + 1
    assert in_child(lambda: grad(jit(lambda x: jnp.sin(x) * x))(0.0) == 0)
    assert in_child(lambda: np.allclose(jnp.linspace(0, 1, 7)[3], 0.5))


def test_a_child_of_a_child():
    f = jit(lambda x: x * 2)
    f(X)
    assert in_child(lambda: in_child(lambda: np.array_equal(f(X), X * 2)))


def test_arrays_of_the_parent_are_readable_and_stay():
    x = jnp.array(X)
    assert in_child(lambda: float(x.sum()) == float(jnp.array(X).sum()))
    np.testing.assert_array_equal(x, X)
