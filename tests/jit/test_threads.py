"""Many Python threads calling, tracing and compiling at once."""

import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jit, lax
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import Dim
from amdjax.core.instantiate import type_at
from amdjax.jit.dynamic import DynamicShapes
from amdjax.jit.symbolic import SaidShapes


def at_once(jobs):
    """The results of functions that all start together; raises what they raise."""
    barrier = threading.Barrier(len(jobs))

    def run(job):
        barrier.wait(30)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


X = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def test_one_function_from_many_threads():
    f = jit(lambda x: jnp.tanh(x @ x) * 2)
    want = np.asarray(f(X))

    def job():
        return all(np.array_equal(f(X), want) for _ in range(50))

    assert all(at_once([job] * 8))


def test_the_first_call_from_many_threads():
    f = jit(lambda x: jnp.exp(x) - jnp.cumsum(x, 0))
    results = at_once([lambda: np.asarray(f(X))] * 8)
    for r in results:
        np.testing.assert_array_equal(r, results[0])


def test_different_programs_compile_at_once():
    def job(i):
        def work():
            x = np.full(i + 2, 0.5, np.float32)
            return np.asarray(grad(jit(lambda x: (jnp.sin(x) * (i + 1)).sum()))(x))

        return work

    for i, r in enumerate(at_once([job(i) for i in range(8)])):
        np.testing.assert_allclose(r, np.cos(np.full(i + 2, 0.5)) * (i + 1), rtol=1e-5)


def test_traces_of_threads_do_not_mix():
    """A thread that is in the midst of tracing does not make others trace."""
    inside, go_on = threading.Event(), threading.Event()

    @jit
    def slow_to_trace(x):
        inside.set()
        assert go_on.wait(30)
        return x + 1

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(slow_to_trace, 1.0)
        assert inside.wait(30)
        value = jnp.sin(jnp.float32(0)) + 1
        assert float(value) == 1.0  # concrete
        go_on.set()
        assert result.result(30) == 2


def test_loops_and_parallel_kernels():
    big = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32)
    f = jit(lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sin(c) + c.sum(0) * 1e-3, x))
    want = np.asarray(f(big))
    results = at_once([lambda: np.asarray(f(big))] * 6)
    assert all(np.array_equal(r, want) for r in results)


def test_errors_stay_in_their_thread():
    f = jit(lambda x: x * 2)

    def fails():
        try:
            jit(lambda x: x + jnp.zeros(7))(X)
        except (TypeError, ValueError):
            return "failed"

    def works():
        return all(f(float(i)) == 2 * i for i in range(50))

    assert at_once([fails, works] * 4) == ["failed", True] * 4


def test_caches_may_be_cleared_while_others_call():
    f = jit(lambda x: x * 3 - 1)
    done = threading.Event()

    def clear():
        while not done.is_set():
            amdjax.clear_caches()

    def call():
        try:
            return all(f(float(i)) == 3 * i - 1 for i in range(200))
        finally:
            done.set()

    assert at_once([clear, call])[1]


def test_sizes_met_at_once_belong_to_their_shapes(monkeypatch):
    """Calls that make other axes symbolic at the same time each get variables of one trace."""

    class Slow(SaidShapes):
        def __init__(self, *args):
            time.sleep(0.002)  # others run meanwhile
            super().__init__(*args)

        def types(self, avals):
            time.sleep(0.002)
            return super().types(avals)

    monkeypatch.setattr("amdjax.jit.dynamic.SaidShapes", Slow)
    shapes = [(3, 4, 5), (3, 7, 5), (8, 7, 5), (8, 9, 6), (2, 9, 6), (2, 2, 2), (5, 6, 7)]
    dynamic, tree = DynamicShapes(), amdjax.tree.structure((0,))

    def job(shape):
        aval = ShapedArray(shape, np.dtype(np.float32))
        types = dynamic.of([aval], tree, None)
        if types is None:
            return True
        (symbolic,) = types.avals
        scopes = {n.scope for n in symbolic.shape if isinstance(n, Dim)}
        return type_at(symbolic, types.sizes) == aval and scopes == {types.scope}

    assert all(at_once([functools.partial(job, shape) for shape in shapes]))


def test_new_sizes_from_many_threads():
    """Symbolic functions meet sizes that are new, equal or 1 in several threads at once."""
    functions = [
        jit(lambda x, y: (jnp.tanh(x) @ y, x.sum(0)), symbolic=("b, t", "t, 3")),
        jit(lambda x, y: (jnp.tanh(x) @ y, x.sum(0)), dynamic="auto"),
    ]
    sizes = [(b, t) for b in (1, 2, 3, 17) for t in (1, 2, 3, 16)]

    def job(f, first):
        def work():
            for b, t in sizes[first:] + sizes[:first]:
                x = np.random.default_rng(b).standard_normal((b, t)).astype(np.float32)
                y = np.ones((t, 3), np.float32)
                product, total = f(x, y)
                np.testing.assert_allclose(product, np.tanh(x) @ y, rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(total, x.sum(0), rtol=1e-5, atol=1e-5)

        return work

    at_once([job(f, 5 * i) for f in functions for i in range(3)])


def test_flags_of_a_thread_are_its_own():
    def narrow():
        return jit(lambda x: x + 1)(np.float64(1)).dtype

    def wide():
        with amdjax.enable_x64(True):
            return jit(lambda x: x + 1)(np.float64(1)).dtype

    assert at_once([narrow, wide] * 4) == [np.float32, np.float64] * 4


def test_callbacks_from_several_threads():
    def job(i):
        def work():
            out = amdjax.ShapeDtypeStruct((), "int32")
            f = jit(lambda x: amdjax.pure_callback(lambda v: np.int32(v + i), out, x) * 2)
            return [int(f(np.int32(k))) for k in range(20)]

        return work

    for i, r in enumerate(at_once([job(i) for i in range(4)])):
        assert r == [2 * (k + i) for k in range(20)]
