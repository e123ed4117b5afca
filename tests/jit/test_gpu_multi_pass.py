"""Rows beyond the registers of a GPU: what stays in LDS, sums in the pass that finds a maximum."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, nn
from amdjax.codegen.gpu.kernel import dynamic_lds
from amdjax.schedule.gpu.multi_pass import RESERVED
from amdjax.targets import get
from tests.support.gpu_cases import softmax_gradient
from tests.support.gpu_oracle import TINY, assert_same, kernels_for, run_schedules

NO_LDS = dataclasses.replace(TINY, lds_bytes=4 << 10, lds_per_cu=4 << 10)


def softmax(x):
    return nn.softmax(x)


def logsumexp(x):
    return nn.logsumexp(x, axis=-1)


def relative_to_maximum(x):
    m = x.max(-1, keepdims=True)
    return jnp.log(jnp.exp(x - m).sum(-1)) + m[:, 0]


def weighted(x):
    e = jnp.exp(0.5 * (x - x.max(-1, keepdims=True)))
    return (e * x).sum(-1) / e.sum(-1), (jnp.sin(x) * -e / 3).sum(-1)


def from_minimum(x):
    e = jnp.exp2(x.min(-1, keepdims=True) - x)
    return e / e.sum(-1, keepdims=True)


def entropy(x):
    p = nn.softmax(x)
    return -(p * nn.log_softmax(x)).sum(-1)


def standardized(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


ONLINE = {f.__name__: f for f in (softmax, logsumexp, relative_to_maximum, weighted, from_minimum)}
MULTI_PASS = {**ONLINE, "entropy": entropy, "standardized": standardized}


def rows(n, dtype=np.float32):
    return (np.random.default_rng(n).standard_normal((19, n)) * 4).astype(dtype)


def hostile(n):
    """Rows in which the maximum comes late or is not finite, or of which nothing is left."""
    x = rows(n)
    x[0] = -np.inf
    x[1, n // 3] = np.inf
    x[2, n - 1] = np.nan
    x[3, : n // 2] = -np.inf
    x[4] -= 1e3
    x[5, : n // 2], x[5, n // 2 :] = -np.inf, x[5, n // 2 :] - 500
    x[6] = np.linspace(-1e4, 1e4, n)
    x[7] = np.linspace(1e30, -1e30, n)
    x[8] = 0
    x[9, 1:] = -np.inf
    return x


@pytest.mark.parametrize("n", [777, 1500, 4000])
@pytest.mark.parametrize("target", [TINY, NO_LDS], ids=["lds", "no lds"])
@pytest.mark.parametrize("name", MULTI_PASS)
def test_long_rows(name, target, n):
    assert_same(MULTI_PASS[name], rows(n), target=target)
    assert_same(MULTI_PASS[name], rows(n, ml_dtypes.bfloat16), target=target, rtol=2e-2)


@pytest.mark.parametrize("name", ONLINE)
def test_sums_relative_to_an_extremum_that_is_not_finite(name):
    x = hostile(1501)
    got = amdjax.tree.leaves(run_schedules(ONLINE[name], x, target=NO_LDS))
    for g, w in zip(got, amdjax.tree.leaves(jit(ONLINE[name])(x)), strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), 1e-5, atol=1e-30)


def test_the_sum_is_as_exact_as_in_two_passes():
    x = np.sort(rows(6001))  # the maximum grows all the time
    wanted = np.log(np.exp(x.astype(np.float64)).sum(-1))
    got = run_schedules(logsumexp, x, target=NO_LDS)
    np.testing.assert_allclose(np.asarray(got), wanted, 3e-7)


@pytest.mark.parametrize("name", ONLINE)
def test_an_extremum_and_the_sums_relative_to_it_take_one_pass(name):
    x = jnp.zeros((64, 98_304))
    (kernel,) = kernels_for(ONLINE[name], x, target=get("gfx942"))
    passes = 1 if name in ("logsumexp", "relative_to_maximum", "weighted") else 2
    assert str(kernel).count("for %") == str(kernel).count("load x0") == passes
    assert not kernel.scratch


def test_other_sums_wait_for_the_extremum():
    x = jnp.zeros((64, 98_304))
    for f in (
        lambda x: jnp.exp(x + x.max(-1, keepdims=True)).sum(-1),  # grows with it
        lambda x: jnp.exp(x[:, ::-1] - x.max(-1, keepdims=True)).sum(-1),  # of other elements
        lambda x: jnp.exp(2 * x - x.max(-1, keepdims=True)).sum(-1),
        lambda x: jnp.sin(x - x.max(-1, keepdims=True)).sum(-1),
    ):
        (kernel,) = kernels_for(f, x, target=get("gfx942"))
        assert str(kernel).count("for %") == 2


@pytest.mark.parametrize("f", [softmax, standardized])
@pytest.mark.parametrize("dtype,columns", [(np.float32, 49_152), (ml_dtypes.bfloat16, 98_304)])
def test_a_row_in_lds_is_read_once(f, dtype, columns):
    (kernel,) = kernels_for(f, jnp.zeros((64, columns), dtype), target=get("sm_90"))
    assert str(kernel).count("load x0 ") == 1
    (buffer,) = kernel.scratch
    assert buffer.size == columns
    assert buffer.dtype == {2: "bf16", 4: "f32"}[jnp.dtype(dtype).itemsize]


def test_rows_of_two_arrays_share_the_block_of_lds_that_a_launch_asks_for():
    x = jnp.zeros((64, 20_001))
    (kernel,) = jit(softmax_gradient).lower(x, x).compile(target="sm_90").kernels
    asked = dynamic_lds(kernel.code)
    assert asked >= 2 * 4 * 20_001 > 48 << 10
    assert kernel.lds_bytes - asked < 4096


def test_part_of_a_row_stays_in_lds():
    x = jnp.zeros((64, 131_072), ml_dtypes.bfloat16)
    (kernel,) = kernels_for(softmax, x, target=get("sm_90"))
    (buffer,) = kernel.scratch
    assert buffer.size == 98_304
    text = str(kernel)
    assert text.count("load x0 ") == 3 and text.count("load x0.row") == 1
    assert " masked=True" not in text
    assert not kernels_for(softmax, x, target=get("gfx942"))[0].scratch  # too little of it


@pytest.mark.parametrize("f", [softmax, standardized, entropy])
@pytest.mark.parametrize("columns", [1536, 1600, 1601, 2000, 2047])
def test_parts_of_passes(f, columns):
    """Whole tiles, smaller ones at the ends; half of the row, or all of it, in LDS."""
    for size in (2 << 10, 3 << 10, 4 << 10, 9 << 10):
        target = dataclasses.replace(
            TINY, lds_bytes=RESERVED + size, lds_per_cu=RESERVED + size, vgpr_file=64
        )
        assert_same(f, rows(columns), target=target)


@pytest.mark.parametrize("name", ["gfx942", "gfx90a", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("f", [softmax, standardized])
def test_rows_stay_in_many_registers_where_threads_have_them(f, name):
    for dtype in (np.float32, ml_dtypes.bfloat16):
        x = jnp.zeros((64, 32_000), dtype)
        (kernel,) = jit(f).lower(x).compile(target=name).kernels
        assert kernel.workgroup == 1024 and kernel.scratch_bytes == 0
        (kernel,) = kernels_for(f, x, target=get(name))
        assert str(kernel).count("load x0 ") == 1 and not kernel.scratch
        # What is read once anyway needs no registers for it, beyond those of a tile.
        (kernel,) = kernels_for(logsumexp, jnp.zeros((64, 100_000), dtype), target=get(name))
        assert str(kernel).count("for %") == 1


@pytest.mark.parametrize("columns", [50257, 50258, 50260, 50264])
def test_rows_that_are_not_aligned_move_in_vectors(columns):
    for dtype, vector in ((np.float32, 4), (ml_dtypes.bfloat16, 8)):
        x = jnp.zeros((64, columns), dtype)
        for f in (softmax, logsumexp):
            (kernel,) = kernels_for(f, x, target=get("gfx942"))
            assert kernel.schedule.vector == vector


@pytest.mark.parametrize("name", MULTI_PASS)
@pytest.mark.parametrize("columns", [1501, 1502])
def test_tiles_that_begin_before_their_row(name, columns):
    for target in (TINY, NO_LDS):
        (kernel,) = kernels_for(MULTI_PASS[name], rows(columns), target=target)
        assert kernel.schedule.vector == 4 > columns % 4
        assert_same(MULTI_PASS[name], rows(columns), target=target)


def test_positions_in_rows_that_are_not_aligned():
    x = rows(1501)

    def f(x):
        place = jnp.arange(x.shape[1])
        e = jnp.exp(x - x.max(-1, keepdims=True))
        return (e * place).sum(-1) / e.sum(-1), e * (place == 1500)

    assert_same(f, x, target=NO_LDS)
