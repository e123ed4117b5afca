"""Nothing leaks: memory stays flat over many calls and many compiles."""

import gc
import os
import weakref

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax
from tests.support.jit_helpers import run_python

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
MIB = 1 << 20


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(call, times):
    """Bytes that `times` calls add after a tenth as many to warm up."""
    for _ in range(times // 10):
        call()
    before = resident()
    for _ in range(times):
        call()
    return resident() - before


X = jnp.ones((16, 16))
SMALL = {f"p{i}": jnp.ones(4) for i in range(8)}


@pytest.mark.parametrize("call,times", [
    (lambda: X + 1.0, 100_000),
    (lambda: DOUBLE(X), 100_000),
    (lambda: TREE(SMALL), 30_000),
    (lambda: DOUBLE(HOST), 30_000),
    (lambda: np.asarray(DOUBLE(X)), 30_000),
    (lambda: LOOP(X), 3_000),
    (lambda: FAIL(), 2_000),
], ids=["eager", "jit", "dict", "numpy input", "numpy output", "loop", "errors"])  # fmt: skip
def test_calls_keep_memory_flat(call, times):
    assert growth(call, times) < 4 * MIB


DOUBLE = jit(lambda x: x * 2 + 1)
TREE = jit(lambda t: {k: v + 1 for k, v in t.items()})
LOOP = jit(lambda x: lax.fori_loop(0, 5, lambda i, c: c @ c * 0.01, x))
HOST = np.ones((16, 16), np.float32)


def FAIL():
    with pytest.raises(ValueError):
        jit(lambda x: x + jnp.zeros(3))(X)


def test_large_results_are_reused():
    big = jnp.ones(1 << 20)
    f = jit(lambda x: x + 1)
    assert growth(lambda: f(big), 200) < 12 * MIB


def test_donation_in_a_training_loop_keeps_memory_flat():
    step = jit(lambda p, g: p - 0.1 * g, donate_argnums=0)
    state = [jnp.ones(1 << 18)]
    gradient = jnp.ones(1 << 18)

    def call():
        state[0] = step(state[0], gradient)

    assert growth(call, 1000) < 4 * MIB


@pytest.mark.turns(3)
@pytest.mark.slow
def test_compiles_are_given_back():
    """200 different programs in a process of its own, then `clear_caches`, twice over."""
    code = """
    import gc, os
    import amdjax, amdjax.numpy as jnp
    import numpy as np

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

    def compile_all(start):
        for i in range(100):
            x = np.zeros((start + i) % 7 + 2, np.float32)
            amdjax.jit(lambda x: jnp.tanh(x * i) + start)(x)
        amdjax.clear_caches()

    compile_all(0)
    before = resident()
    compile_all(1000)
    print(resident() - before)
    """
    assert int(run_python(code)) < 40


def test_jitted_functions_that_die_are_forgotten():
    from amdjax.jit import programs

    before = len(programs.all_programs)
    for _ in range(50):
        jit(lambda x: x)(1.0)
    gc.collect()
    assert len(programs.all_programs) <= before + 1
    amdjax.clear_caches()


@pytest.mark.parametrize(
    "make",
    [
        lambda c: lambda x: x + c,
        lambda c: lambda x: (x * c, x @ c),
        lambda c: lambda x: lax.cond(x[0] > 0, lambda: x @ c, lambda: x),
        lambda c: amdjax.grad(lambda x: jnp.sin(x @ c).sum()),
    ],
)
def test_constants_go_with_the_function_that_closes_over_them(make):
    """Without a garbage collection, which large arrays would have to wait for."""
    constant = jnp.ones((64, 64))
    watch = weakref.ref(constant)
    fun = make(constant)
    compiled = amdjax.jit(fun)
    gc.disable()
    try:
        compiled(jnp.zeros(64))
        del constant, fun, compiled
        assert watch() is None
    finally:
        gc.enable()


def test_compiling_a_reduction_leaves_no_garbage():
    f = amdjax.jit(lambda x: x.sum())
    gc.collect()
    gc.disable()
    try:
        f(jnp.zeros([]))
        assert gc.collect() == 0
    finally:
        gc.enable()
