"""What programs compute of their constants alone is done once, when they are loaded."""

import threading
import time

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.config import State, constants_limit, disabled_passes
from amdjax.jit.constants import computed_once
from amdjax.jit.cpu.program import compile_for_cpu, compile_sized_for_cpu, cpu_target
from amdjax.jit.instructions import Kept
from amdjax.jit.plan import plan_program
from amdjax.runtime import vm
from amdjax.targets.cpu import CpuTarget
from amdjax.tile.parse import parse_kernel


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


#: What is packed depends on the machine.
AVX2 = CpuTarget(256, 2, 32 << 10, 512 << 10, 16 << 20)
WEIGHTS = {"a": normal(256, 512), "b": normal(512, 256, seed=1)}


def network(weights, x):
    return jnp.tanh(x @ weights["a"]) @ weights["b"]


def closed_over(f, weights, *args):
    """`f` of weights that are constants of its program."""
    held = amdjax.tree.map(jnp.asarray, weights)
    return amdjax.make_jaxpr(lambda *rest: f(held, *rest))(*args)


def launched(plan):
    return [k.name for k in plan.kernels()]


def test_packing_of_weights_is_left_out():
    closed = closed_over(network, WEIGHTS, jnp.zeros((128, 256)))
    rest, first = computed_once(plan_program(closed, AVX2))
    assert "pack" in launched(first) and "pack" not in launched(rest)
    assert computed_once(rest)[1] is None


def marked(plan):
    """The kernels of a plan that are compiled quickly."""
    return {k.name for k in plan.kernels() if k.runs_once}


def test_kernels_that_run_once_are_compiled_quickly():
    closed = closed_over(network, WEIGHTS, jnp.zeros((128, 256)))
    rest, first = computed_once(plan_program(closed, AVX2))
    assert marked(first) == set(launched(first)) and not marked(rest)
    assert all(
        parse_kernel(str(k)).runs_once == k.runs_once for k in (*first.kernels(), *rest.kernels())
    )


def test_kernels_that_run_in_every_call_too_are_not():
    """One of two weights that are packed alike is beyond the limit, and packed in every call."""
    weights = {"a": normal(512, 512), "b": normal(512, 512, seed=1)}
    f = lambda w, x: jnp.tanh(jnp.tanh(x @ w["a"]) @ w["b"]) @ w["a"]
    closed = closed_over(f, weights, jnp.zeros((128, 512)))
    with constants_limit(3 << 19):
        rest, first = computed_once(plan_program(closed, AVX2))
    assert launched(first) == ["pack"] and "pack" in launched(rest)
    assert not marked(first) and not marked(rest)


@pytest.mark.parametrize("effort", [0.0, -1.0])
def test_little_effort(effort):
    """Kernels are compiled quickly but those of products; results are the same."""
    x, w = normal(128, 256), normal(256, 512, seed=1)
    f = lambda x, w: jnp.sort(jnp.tanh(x @ w) * 3, 1)
    run = amdjax.jit(f, compiler_options={"exec_time_optimization_effort": effort})
    with State("exec_time_optimization_effort")(effort):
        plan = compile_for_cpu(amdjax.make_jaxpr(f)(x, w)).plan
    quick = {k.name for k in plan.kernels() if not k.has_micro_kernel}
    assert quick and marked(plan) == (quick if effort < 0 else set())
    np.testing.assert_array_equal(run(x, w), amdjax.jit(f)(x, w))


def test_results_are_those_of_arguments():
    held = amdjax.tree.map(jnp.asarray, WEIGHTS)
    run = amdjax.jit(lambda x: network(held, x), dynamic="auto")
    with_arguments = amdjax.jit(network)
    for n in (128, 77, 3, 1, 128):
        x = normal(n, 256, seed=n)
        want = np.asarray(with_arguments(WEIGHTS, x), np.float64)
        assert np.abs(run(x) - want).max() <= 64 * np.finfo(np.float32).eps * np.abs(want).max()


def test_constants_stay_as_they_are_and_results_are_new():
    """A result that follows from constants is written in every call, and is the caller's."""
    c = jnp.asarray(normal(4096))
    before = np.array(c)

    def f(x):
        table = jnp.cumsum(jnp.sort(c))
        return jnp.cumsum(c), x + table[::-1]

    run = amdjax.jit(f)
    first = run(jnp.zeros(4096))
    kept = [np.array(y) for y in first]
    change = amdjax.jit(lambda y: y * 0, donate_argnums=0)
    change(first[0])
    for _ in range(2):
        for got, want in zip(run(jnp.zeros(4096)), kept):
            np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(c, before)


def test_loops_and_branches():
    w = jnp.asarray(normal(64, 64)) / 16

    def f(x, many):
        x, _ = lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=5)
        return lax.cond(many, lambda x: x @ w.T, lambda x: x + jnp.sort(w, 0), x)

    x = normal(64, 64, seed=3)
    run, with_arguments = amdjax.jit(f), amdjax.jit(lambda w, x, many: f(x, many))
    for many in (True, False, True):
        np.testing.assert_allclose(run(x, many), with_arguments(w, x, many), rtol=0, atol=1e-5)


def test_what_grows_is_computed_in_every_call():
    """An array that is much larger than the constants it is made of is not kept."""
    c = jnp.asarray(normal(64))
    closed = closed_over(
        lambda c, x: x @ jnp.sort(jnp.outer(c, jnp.ones(4096)), 1), c, normal(8, 64)
    )
    _, first = computed_once(plan_program(closed, cpu_target()))
    assert first is None or not any("sort" in name for name in launched(first))


@pytest.mark.parametrize("off", [(), ("compute_constants_once",)])
def test_switch(off):
    weights = {"a": normal(1024, 1024), "b": normal(1024, 1024, seed=1)}  # packed on all machines
    with disabled_passes(off):
        closed = closed_over(network, weights, jnp.zeros((128, 1024)))
        plan = compile_for_cpu(closed).plan
    assert any(isinstance(x, Kept) for x in plan.constants) != bool(off)


def test_a_limit_of_what_is_kept():
    held, x = [jnp.asarray(normal(4096, seed=k)) for k in (1, 2)], normal(4096)
    f = lambda x: jnp.cumsum(held[0]) * x + jnp.cumsum(held[1])
    lowered, sizes = amdjax.jit(f).lower(x), {}
    expected = np.asarray(lowered.compile()(x))
    for limit in (None, 1 << 20, 20_000, 0):
        compiled = lowered.compile(compiler_options={"constants_limit": limit})
        np.testing.assert_array_equal(compiled(x), expected)
        with constants_limit(limit):
            plan = compile_for_cpu(amdjax.make_jaxpr(f)(x)).plan
        sizes[limit] = sum(c.nbytes for c in plan.constants if isinstance(c, Kept))
    assert sizes[0] == 0 < sizes[20_000] <= 20_000 < sizes[1 << 20] == sizes[None]


def test_threads():
    held = amdjax.tree.map(jnp.asarray, WEIGHTS)
    run = amdjax.jit(lambda x: network(held, x))
    x, found = jnp.asarray(normal(64, 256)), []
    workers = [threading.Thread(target=lambda: found.append(np.asarray(run(x)))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    for y in found:
        np.testing.assert_array_equal(y, found[0])


def test_threads_wait_for_what_is_computed_once(monkeypatch):
    """Nobody reads memory that another thread still writes."""
    closed = closed_over(lambda c, x: x + jnp.cumsum(c), normal(4096), jnp.zeros(4096))
    loaded, native, running = compile_sized_for_cpu(closed), vm.run_program(), []

    def slow(call):
        running.append("begin")
        time.sleep(0.05)
        native(call)
        running.append("end")

    monkeypatch.setattr(vm, "run_program", lambda: slow)

    def prepare():
        loaded.prepare()
        running.append("ready")

    workers = [threading.Thread(target=prepare) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert running == ["begin", "end", "ready", "ready", "ready"]


def test_what_is_made_of_constants_runs_apart():
    """Not in one launch with what depends on arguments, which would be done in every call."""
    table, values = normal(64, 64), jnp.zeros((64, 64))
    f = lambda c, x: lax.sort(x * 2) + lax.sort(jnp.tanh(c))
    _, first = computed_once(plan_program(closed_over(f, table, values), AVX2))
    assert len(launched(first)) == 2, "the map and the sort"
    with disabled_passes("compute_constants_once"):
        whole = plan_program(closed_over(f, table, values), AVX2)
    assert vm.CALLS in [i.opcode for i in whole.instructions]
    got = amdjax.jit(lambda x: f(jnp.asarray(table), x))(values)
    np.testing.assert_allclose(got, np.sort(np.tanh(table)), rtol=1e-6)


@pytest.mark.parametrize("shape", [(64, 64, 3, 3), (64, 64, 1, 1)])
def test_kernels_of_convolutions_are_packed_once(shape):
    """As they lie, or with features last: no launch of a call reads them alone."""
    x, w = jnp.zeros((1, 64, 14, 14)), normal(*shape)
    closed = closed_over(lambda w, x: nn.relu(lax.conv(x, w, (1, 1), "SAME")), w, x)
    plan = plan_program(closed, AVX2)
    rest, _ = computed_once(plan)
    assert computed_once(rest)[1] is None and "pack" not in launched(rest)
