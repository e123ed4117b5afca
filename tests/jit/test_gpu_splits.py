"""Reductions split among programs: the last program of a row combines them, in the same launch."""

import threading

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.emulator.device import emulated_device
from amdjax.schedule.gpu import row_plan
from amdjax.targets import get
from tests.support.gpu_cases import ROWS, normal
from tests.support.gpu_oracle import assert_same, compile_schedules, kernels_for

ALL = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
rng = np.random.default_rng(11)
N = 50_001  # odd, and so long that every target cuts it


def integers(dtype, *shape):
    return rng.integers(0, 100, shape).astype(dtype)


#: Functions of one array, whose reductions are cut on TINY and on real targets.
CASES = {
    "sum": (lambda x: x.sum(), normal(N)),
    "rows": (lambda x: x.sum(1), normal(3, N)),
    "columns": (lambda x: x.sum(0), normal(9000, 5)),
    "many_columns": (lambda x: x.max(0), normal(700, 130)),
    "inner_axis": (lambda x: x.sum(1), normal(3, 9001, 7)),
    "bytes": (lambda x: x.sum(), integers(np.int8, N)),
    "least_byte": (lambda x: x.min(), integers(np.int8, N) - np.int8(50)),
    "byte_rows": (lambda x: x.max(1), integers(np.uint8, 2, N)),
    "words": (lambda x: x.max(), integers(np.uint16, N)),
    "all": (lambda x: (x < 100).all(), integers(np.int32, N)),
    "half": (lambda x: x.sum(), normal(N, dtype="float16")),
    "bfloat16": (lambda x: x.max(), normal(N, dtype="bfloat16")),
    "argmax": (lambda x: x.argmax(), normal(N)),
    "argmin_rows": (lambda x: x.argmin(1), integers(np.int32, 2, N)),
    "complex": (lambda x: (x * (1 + 2j)).sum(), normal(N)),
    "several": (lambda x: (x.sum(), x.max(), (x * x).sum(), x.argmax()), normal(N)),
    "moments": (lambda x: ((m := x.mean()), (x * x).mean() - m * m), normal(N)),
    "behind": (lambda x: jnp.sqrt(jnp.abs(x.sum(1))) + 1, normal(3, N)),
    "and_elements": (lambda x: (x.sum(), x * 2), normal(N)),
}  # fmt: skip


def assert_close(found, wanted):
    for x, y in zip(amdjax.tree.leaves(found), amdjax.tree.leaves(wanted), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        if y.dtype.kind in "iub":
            np.testing.assert_array_equal(x, y)
            continue
        narrow = y.dtype.itemsize == 2
        x, y = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (x, y))
        np.testing.assert_allclose(x, y, 1e-2 if narrow else 1e-4, atol=1e-2)


def bits(x):
    return [np.asarray(v).tobytes() for v in amdjax.tree.leaves(x)]


@pytest.mark.parametrize("name", CASES)
def test_schedules_on_the_cpu(name):
    """One launch, which leaves its counters as the next one needs them."""
    f, x = CASES[name]
    assert len(kernels_for(f, x)) == 1
    run = compile_schedules(f, x)
    first = run(x)
    assert_close(first, amdjax.jit(f)(x))
    other = x[::-1].copy()
    assert_close(run(other), amdjax.jit(f)(other))
    assert bits(run(x)) == bits(first)


@pytest.mark.devices
@pytest.mark.parametrize("name", CASES)
def test_machine_code(name, device):
    f, x = CASES[name]
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        wanted = [amdjax.jit(lambda x: f(x))(v) for v in (x, x[::-1].copy())]
    run = amdjax.jit(lambda x: f(x))
    first = run(x)
    assert_close(first, wanted[0])
    assert_close(run(x[::-1].copy()), wanted[1])
    assert bits(run(x)) == bits(first)


@pytest.mark.parametrize("name", ["several", "columns", "half"])
@pytest.mark.parametrize("target", ALL)
def test_machine_code_of_all_targets(name, target):
    f, x = CASES[name]
    wanted = amdjax.jit(lambda x: f(x))(x)
    with amdjax.default_device(emulated_device(target)):
        run = amdjax.jit(lambda x: f(x))
        first = run(x)
        assert_close(first, wanted)
        assert bits(run(x)) == bits(first)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_one_launch_on_real_targets(name, target):
    f, x = CASES[name]
    kernels = kernels_for(f, x, target=get(target))
    assert len(kernels) == 1
    if name not in ("columns", "many_columns"):
        assert " arrive " in str(kernels[0])


@pytest.mark.parametrize("name", ROWS)
def test_reductions_cut_as_finely_as_can_be(name, monkeypatch):
    monkeypatch.setattr(row_plan, "CUT", 16)
    monkeypatch.setattr(row_plan, "SHARE", 1)
    f, *args = ROWS[name]
    assert_same(f, *args, rtol=2e-2 if any(x.dtype.itemsize == 2 for x in args) else 2e-4)


def test_the_loop_of_most_steps_is_cut():
    """A tile has the whole of the longer loop."""
    x = normal(256, 8, 1024)
    (kernel,) = kernels_for(lambda x: x.sum((0, 2)), x, target=get("gfx942"))
    assert kernel.grid % 8 == 0 and kernel.grid >= 64
    run = compile_schedules(lambda x: x.sum((0, 2)), x)
    np.testing.assert_allclose(run(x), x.sum((0, 2)), rtol=1e-3, atol=1e-2)


def test_what_is_much_for_one_program_takes_a_second_launch(monkeypatch):
    x = normal(4096, 16)
    (kernel,) = kernels_for(lambda x: x.sum(0), x)
    assert " arrive " in str(kernel)
    monkeypatch.setattr(row_plan, "COMBINED", 32)
    first, second = kernels_for(lambda x: x.sum(0), x)
    assert " arrive " not in str(first) and second.name.startswith("combine_")
    run = compile_schedules(lambda x: x.sum(0), x)
    np.testing.assert_allclose(run(x), x.sum(0), rtol=1e-3, atol=1e-3)


@pytest.mark.devices
def test_in_loops_and_from_several_threads(device):
    """The same counters serve every round, every call and every thread."""
    x = normal(4, N)

    def step(total, row):
        return total + row.sum() * 0.5, (row.max(), row.argmin())

    run = amdjax.jit(lambda x: lax.scan(step, jnp.float32(0), x))
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        wanted = amdjax.jit(lambda x: lax.scan(step, jnp.float32(0), x))(x)
    found = [None] * 8

    def work(i):
        with amdjax.default_device(device or amdjax.devices("cpu")[0]):
            found[i] = [run(x) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(found))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for results in found:
        for result in results:
            assert_close(result, wanted)
            assert bits(result) == bits(found[0][0])
