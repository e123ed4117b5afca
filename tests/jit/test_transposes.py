"""Weights whose axes are turned once, by kernels that are told the sizes."""

import itertools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.kernels import clear_loaded
from amdjax.jit.plan import plan_program
from amdjax.jit.stored_plans import read_plan, written_plan
from amdjax.schedule import transposes
from amdjax.tile.kernel import Kernel
from tests.support.jit_helpers import on_machine


def turned(*weights):
    """A program whose results are weights in other orders of axes."""
    consts = [(jnp.asarray(w), order) for w, order in weights]
    return lambda x: [x, *(lax.transpose(c, order) for c, order in consts)]


def planned(f, *args):
    closed = amdjax.jit(f).trace(*args).jaxpr
    return closed, plan_program(closed, cpu_target())


def kernels(plan):
    return [w for i in plan.instructions for w in i.words if isinstance(w, Kernel)]


def drawn(shape, dtype="f4"):
    return (np.random.default_rng(len(shape)).standard_normal(shape) * 50).astype(dtype)


SHAPES = [(7, 9), (16, 32), (200, 3), (2, 70), (3, 3, 1, 40), (40, 1, 3, 3), (17, 2, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f4", "i1", "f8"])
def test_values(shape, dtype):
    w = drawn(shape, dtype)
    orders = [*itertools.permutations(range(w.ndim))][:: 1 if w.ndim < 4 else 7]
    with amdjax.enable_x64(True):
        got = amdjax.jit(turned(*((w, order) for order in orders)))(0.0)[1:]
    for x, order in zip(got, orders, strict=True):
        np.testing.assert_array_equal(np.asarray(x), w.transpose(order))


def test_few_sizes_are_planned_for(monkeypatch):
    """What is taken of sizes is what the kernel and its launch depend on."""
    written, original = [], transposes.lower_region
    monkeypatch.setattr(
        transposes, "lower_region", lambda *args: written.append(1) or original(*args)
    )
    shapes = [(16, 9), (64, 16), (24, 64), (72, 24), (120, 40), (240, 9), (480, 80), (960, 160)]
    planned(turned(*((drawn(s), (1, 0)) for s in shapes)), 0.0)
    assert 0 < len(written) <= 2


def test_one_kernel_serves_all_sizes():
    shapes = [(24, 1, 3, 3), (72, 1, 5, 5), (960, 1, 5, 5), (240, 20), (160, 96), (16, 33)]
    orders = [(2, 3, 1, 0) if len(s) == 4 else (1, 0) for s in shapes]
    _, plan = planned(turned(*zip(map(drawn, shapes), orders)), 0.0)
    made = kernels(plan)
    assert len(made) == len(shapes)
    assert len({str(k).partition("\n")[2] for k in made}) == 1
    assert len({id(k) for k in made}) < len(shapes)  # nor is it written for each


@pytest.mark.parametrize("dtype", ["f4", "i1"])
def test_weights_of_one_program_are_turned_as_if_alone(dtype):
    """By the same kernels, wherever sizes are told apart."""
    shapes = [(7, 9), (16, 32), (200, 3), (2, 70), (64, 64), (31, 1000), (1000, 31), (2, 2), (5, 4)]
    shapes += [(17, 2, 33), (4, 64, 8), (3, 5, 2), (30, 40, 50), (3, 3, 1, 40), (5, 5, 2, 24)]
    weights = [(drawn(shape, dtype), (*range(len(shape)),)[::-1]) for shape in shapes]
    _, plan = planned(turned(*weights), 0.0)
    alone = [kernels(planned(turned(w), 0.0)[1]) for w in weights]
    code = lambda k: str(k).partition("\n")[2]
    assert [code(k) for k in kernels(plan)] == [code(k) for (k,) in alone]
    got = amdjax.jit(turned(*weights))(0.0)[1:]
    for x, (w, order) in zip(got, weights, strict=True):
        np.testing.assert_array_equal(np.asarray(x), w.transpose(order))


def test_reshapes_around_it_cost_nothing():
    w = drawn((6, 5, 4, 3))
    c = jnp.asarray(w)
    f = lambda x: (x, lax.transpose(c.reshape(30, 1, 12), (2, 1, 0)).reshape(4, 3, 1, 30))
    _, plan = planned(f, 0.0)
    assert any(p.role == "size" for k in kernels(plan) for p in k.params)
    wanted = w.reshape(30, 12).T.reshape(4, 3, 1, 30)
    np.testing.assert_array_equal(np.asarray(amdjax.jit(f)(0.0)[1]), wanted)


MORE = {
    "scaled": (lambda c, x: c.T * x, lambda w: w.T * np.float32(3)),
    "reversed": (lambda c, x: lax.rev(c, (0,)).T, lambda w: w[::-1].T),
    "cut": (lambda c, x: c[:5].T, lambda w: w[:5].T),
    "turned twice": (lambda c, x: c.T[:, :4].T, lambda w: w[:4]),
    "repeated": (
        lambda c, x: jnp.broadcast_to(c[:1], c.shape).T,
        lambda w: np.broadcast_to(w[:1], w.shape).T,
    ),
    "narrowed": (lambda c, x: c.T.astype(np.float16), lambda w: w.T.astype(np.float16)),
}


@pytest.mark.parametrize("name", MORE)
def test_what_is_more_than_a_transposition(name):
    f, wanted = MORE[name]
    w = drawn((9, 21))
    got = amdjax.jit(lambda x: (f(jnp.asarray(w), x), x))(3.0)[0]
    np.testing.assert_array_equal(np.asarray(got), wanted(w))


def test_arguments_have_kernels_of_their_sizes():
    """What runs in each call knows its sizes."""
    _, plan = planned(lambda x: lax.transpose(x, (1, 0)), np.ones((40, 30), np.float32))
    assert not any(p.role == "size" for k in kernels(plan) for p in k.params)


def test_plans_are_kept_and_read():
    weights = [(drawn((12, 1, 3, 3)), (2, 3, 1, 0)), (drawn((33, 20)), (1, 0))]
    closed, plan = planned(turned(*weights), 0.0)
    data = written_plan(plan, closed.consts, {id(k): bytes(32) for k in kernels(plan)})
    assert data is not None
    read = read_plan(data, closed.consts).plan
    assert written_plan(
        read, closed.consts, {id(k): bytes(32) for k in kernels(read)}
    ) == data  # fmt: skip


def test_programs_of_symbolic_sizes():
    w = drawn((20, 1, 3, 3))
    c = jnp.asarray(w)
    f = amdjax.jit(lambda x: lax.transpose(c, (2, 3, 1, 0)).reshape(9, 20) @ x, symbolic="20, n")
    for n in (2, 5, 40):
        x = drawn((20, n))
        np.testing.assert_allclose(
            np.asarray(f(x)), w.reshape(20, 9).T @ x, rtol=1e-5, atol=1e-2
        )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_narrow_vectors(threads, monkeypatch):
    weights = [(drawn((70, 130)), (1, 0)), (drawn((5, 66, 7)), (2, 0, 1))]
    for bits in (128, 256):
        clear_loaded()
        on_machine(monkeypatch, vector_bits=bits, threads=threads)
        got = amdjax.jit(turned(*weights))(0.0)[1:]
        for x, (w, order) in zip(got, weights, strict=True):
            np.testing.assert_array_equal(np.asarray(x), w.transpose(order))


def test_sizes_that_are_symbolic_or_nothing():
    """Such arrays are turned like any other value."""
    c, none = jnp.asarray(drawn((5, 1)) / 50), jnp.zeros((0, 5))

    def f(x):
        # Of constants alone, and read twice: kept in memory.
        steps = lax.iota(np.float32, x.shape[0])
        wide = jnp.exp(lax.broadcast_in_dim(c, (5, x.shape[0]), (0, 1)) * steps * -0.1)
        return x, wide, lax.sort(wide.T, dimension=0), none.T

    run = amdjax.jit(f, symbolic="n")
    for n in (3, 50):
        got = run(np.ones(n, np.float32))
        wanted = np.exp(np.asarray(c) * np.arange(n, dtype=np.float32) * np.float32(-0.1))
        np.testing.assert_allclose(np.asarray(got[1]), wanted, rtol=1e-4)
        np.testing.assert_array_equal(np.asarray(got[2]), np.sort(np.asarray(got[1]).T, 0))
        assert got[3].shape == (5, 0)
