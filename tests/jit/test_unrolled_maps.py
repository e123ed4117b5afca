"""Regions whose innermost loop is short: its steps are written one after the other."""

import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.plan import plan_program
from tests.support.jit_helpers import on_machine

ROWS = 37, 53  # no multiple of any number of lanes


def arrays(count, dtype, shape=ROWS):
    rng = np.random.default_rng(1)
    return [rng.integers(0, 2 if dtype is bool else 100, shape).astype(dtype) for _ in range(count)]


def schedule_and_result(f, *args, **options):
    compiled = amdjax.jit(f, **options).lower(*args).compile()
    return compiled.as_text("schedule"), np.asarray(compiled(*args))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 12, 13])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16, np.complex64, bool])
def test_stacked(n, dtype):
    xs = arrays(n, dtype)
    schedule, y = schedule_and_result(lambda *xs: jnp.stack(xs, -1), *map(jnp.asarray, xs))
    assert ("unrolled" in schedule) == (n < 13)
    np.testing.assert_array_equal(y, np.stack(xs, -1))


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.int8, bool])
def test_steps_are_stored_as_vectors(monkeypatch, bits, n, dtype):
    """Elements of all steps in turns, in whole vectors and at the edge, on any machine."""
    on_machine(monkeypatch, vector_bits=bits)
    (x,) = arrays(1, dtype, (n, *ROWS))
    f = lambda x: jnp.pad(jnp.moveaxis(x, 0, -1), ((0, 0), (2, 3), (0, 0)))
    with amdjax.enable_x64(True):
        compiled = amdjax.jit(f).lower(x).compile()
        y = np.asarray(compiled(x))
    assert "unrolled" in compiled.as_text("schedule") and "shuffle" in compiled.as_text("tiles")
    assert "store_at" not in compiled.as_text("tiles")
    np.testing.assert_array_equal(y, np.pad(np.moveaxis(x, 0, -1), ((0, 0), (2, 3), (0, 0))))


def test_steps_that_read_the_same_are_lanes():
    """Nothing would be saved: what each element compares is one vector for the steps as well."""
    i = np.random.default_rng(1).integers(0, 12, ROWS)
    schedule, y = schedule_and_result(lambda i: amdjax.nn.one_hot(i, 12), jnp.asarray(i))
    assert "unrolled" not in schedule
    np.testing.assert_array_equal(y, i[..., None] == np.arange(12))


@pytest.mark.parametrize(("dtype", "registers"), [(np.float32, 1), (np.uint8, 4)])
def test_lanes_of_steps_are_few(dtype, registers):
    (x,) = arrays(1, np.float32, (3, 224, 224))
    f = lambda x: jnp.moveaxis(x + 1, 0, -1).astype(dtype)
    schedule, y = schedule_and_result(f, jnp.asarray(x))
    lanes = max(4, registers * cpu_target().vector_bits // 32)
    assert f"{lanes} lanes" in schedule and "unrolled" in schedule
    np.testing.assert_array_equal(y, np.moveaxis(x + 1, 0, -1).astype(dtype))


@pytest.mark.parametrize("front", [0, 1, 2])
def test_guards_of_merged_loops_hold(front):
    """The loops around are one, whose numbers exceed the extents that guards ask about."""
    x, y = arrays(2, np.float32)
    pads = lambda front: ((0, 0), (0, 0), (front, 2 - front))

    def f(x, y):
        return jnp.pad(x[..., None], pads(front)) + 2 * jnp.pad(y[..., None], pads(0))

    schedule, z = schedule_and_result(f, jnp.asarray(x), jnp.asarray(y))
    assert "i2 unrolled" in schedule
    np.testing.assert_array_equal(
        z, np.pad(x[..., None], pads(front)) + 2 * np.pad(y[..., None], pads(0))
    )


def test_steps_read_in_any_order():
    (x,) = arrays(1, np.float32, (*ROWS, 3))
    schedule, y = schedule_and_result(lambda x: x[..., ::-1] * x[..., :1], jnp.asarray(x))
    assert "unrolled" in schedule
    np.testing.assert_array_equal(y, x[..., ::-1] * x[..., :1])


def test_places_that_data_names():
    (x,) = arrays(1, np.float32, (*ROWS, 3))
    rng = np.random.default_rng(2)
    i, j = rng.integers(0, ROWS[0], 700), rng.integers(0, ROWS[1], 700)
    weights = rng.standard_normal(700, dtype=np.float32)
    f = lambda x, i, j, w: x.at[i, j].get(mode="promise_in_bounds") * w[:, None]
    schedule, y = schedule_and_result(f, *map(jnp.asarray, (x, i, j, weights)))
    assert "unrolled" in schedule
    np.testing.assert_array_equal(y, x[i, j] * weights[:, None])


def test_a_result_over_its_operand():
    (x,) = arrays(1, np.float32, (*ROWS, 3))
    (w,) = arrays(1, np.float32)
    args = jnp.asarray(x), jnp.asarray(w)
    schedule, y = schedule_and_result(lambda x, w: x * w[..., None] + x, *args, donate_argnums=0)
    assert "unrolled" in schedule
    np.testing.assert_array_equal(y, x * w[..., None] + x)


def test_a_loop_of_two_axes_stays_one():
    (x,) = arrays(1, np.float32)
    f = lambda x: jnp.broadcast_to(x[..., None, None], (*ROWS, 2, 2)) + 1
    schedule, y = schedule_and_result(f, jnp.asarray(x))
    assert "unrolled" not in schedule
    np.testing.assert_array_equal(y, np.broadcast_to(x[..., None, None], (*ROWS, 2, 2)) + 1)


@pytest.mark.parametrize("shape", [(16, 33), (15, 17), (32, 48), (40, 7), (1, 3, 31, 18)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, bool])
def test_squares_at_the_edge_are_written_row_by_row(shape, dtype):
    (x,) = arrays(1, dtype, shape)
    f = lambda x: x.T[:1] == x.T
    kernels = plan_program(amdjax.make_jaxpr(f)(x), cpu_target()).kernels()
    assert not any(re.search(r"bool\[\d+,\d+\] = and", str(k)) for k in kernels)
    np.testing.assert_array_equal(np.asarray(amdjax.jit(f)(x)), f(x))
