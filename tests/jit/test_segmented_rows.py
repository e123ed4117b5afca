"""Reductions over short innermost runs of many rows: lanes hold several rows at once."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from tests.support.jit_helpers import on_machine, results_and_schedule, small_integers

REDUCTIONS = {
    "sum": (lambda x: x.sum((1, 3)), lambda x: x.sum((1, 3))),
    "max": (lambda x: x.max((1, 3)), lambda x: x.max((1, 3))),
    "argmax": (
        lambda x: jnp.argmax(x.swapaxes(1, 2).reshape(*x.shape[::2], -1), -1),
        lambda x: np.argmax(x.swapaxes(1, 2).reshape(*x.shape[::2], -1), -1),
    ),
    "sums of two": (
        lambda x: (x.sum((1, 3)), (x * x).sum((1, 3))),
        lambda x: (x.sum((1, 3)), (x * x).sum((1, 3))),
    ),
    "centered": (
        lambda x: x - x.max((1, 3), keepdims=True), lambda x: x - x.max((1, 3), keepdims=True)
    ),
    "sum of what is centered": (
        lambda x: jnp.abs(x - x.max((1, 3), keepdims=True)).sum((1, 3)),
        lambda x: np.abs(x - x.max((1, 3), keepdims=True)).sum((1, 3)),
    ),
    "weighted": (
        lambda x: (x * jnp.arange(x.shape[3]) * jnp.arange(x.shape[2])[:, None]).sum((1, 3)),
        lambda x: (x * np.arange(x.shape[3]) * np.arange(x.shape[2])[:, None]).sum((1, 3)),
    ),
    "turned": (lambda x: x.mT.sum((1, 3)), lambda x: x.swapaxes(2, 3).sum((1, 3))),
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(2, 20, 8, 8), (1, 600, 3, 4), (3, 17, 5, 2), (2, 16, 6, 3)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_against_numpy(name, shape, threads, monkeypatch):
    on_machine(monkeypatch, threads=threads)
    operation, definition = REDUCTIONS[name]
    x = small_integers(shape)
    results, plan = results_and_schedule(operation, x)
    want = definition(x)
    amdjax.tree.map(np.testing.assert_array_equal, results, want)
    short = shape[3] in (2, 4, 8)
    assert ("in segments of" in plan) == (short and name not in ("argmax", "weighted", "turned"))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8, np.float16, np.complex64, bool])
def test_dtypes(dtype):
    x = small_integers((2, 20, 8, 4), dtype)
    total, plan = results_and_schedule(lambda x: (jnp.sum(x, (1, 3)), jnp.max(x.real, (1, 3))), x)
    assert "in segments of 4" in plan
    np.testing.assert_array_equal(total[0], x.sum((1, 3)))
    np.testing.assert_array_equal(total[1], x.real.max((1, 3)))


def test_what_is_no_number_stays_in_its_row():
    x = small_integers((2, 40, 8, 8))
    x[1, 3, 5, 2] = np.nan
    (sums, maxima), _ = results_and_schedule(lambda x: (x.sum((1, 3)), x.max((1, 3))), x)
    for found in (sums, maxima):
        want = np.zeros((2, 8), bool)
        want[1, 5] = True
        np.testing.assert_array_equal(np.isnan(found), want)


def test_a_long_sum_is_split(monkeypatch):
    on_machine(monkeypatch, threads=3)
    x = small_integers((1, 30_000, 4, 8))
    total, plan = results_and_schedule(lambda x: x.sum((1, 3)), x)
    assert "in segments of 8" in plan and "split" in plan
    np.testing.assert_array_equal(total, x.sum((1, 3)))


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 3), st.integers(16, 40), st.integers(1, 9), st.sampled_from([2, 4, 8]),
    st.booleans(),
)  # fmt: skip
def test_norms_of_groups_and_their_gradients(images, pixels, groups, features, biased):
    """Against the same in float64, where rows are computed one by one."""

    def norm(x, scale):
        grouped = x.reshape(images, pixels, groups, features)
        mean = grouped.mean((1, 3), keepdims=True)
        variance = jnp.square(grouped - mean).mean((1, 3), keepdims=True)
        y = ((grouped - mean) * lax.rsqrt(variance + 1e-3)).reshape(x.shape) * scale
        return y + mean.sum() if biased else y

    rng = np.random.default_rng(pixels)
    x, ct = (rng.standard_normal((images, pixels, groups * features)) for _ in range(2))
    scale = rng.standard_normal(groups * features)
    found = amdjax.jit(lambda x, s, ct: amdjax.vjp(norm, x, s)[1](ct))(
        *(v.astype(np.float32) for v in (x, scale, ct))
    )
    grouped = x.reshape(images, pixels, groups, features)
    centered = grouped - grouped.mean((1, 3), keepdims=True)
    inverse = 1 / np.sqrt((centered**2).mean((1, 3), keepdims=True) + 1e-3)
    normal = centered * inverse
    g = (ct * scale).reshape(grouped.shape)
    inner = (g * normal).mean((1, 3), keepdims=True)
    want = (g - g.mean((1, 3), keepdims=True) - normal * inner) * inverse
    if biased:
        want = want + ct.sum() / (pixels * features)
    np.testing.assert_allclose(found[0], want.reshape(x.shape), rtol=1e-3, atol=1e-4)
    slope = (ct * normal.reshape(x.shape)).sum((0, 1))
    np.testing.assert_allclose(found[1], slope, rtol=1e-3, atol=1e-3)
