"""Sums of neighboring rows: in scratch where rows are many, in tiles of several rows of lanes."""

import math
import re

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from tests.support.jit_helpers import on_machine, results_and_schedule, small_integers

SHAPES = [
    ((1031, 300), 0), ((4, 1000, 257), 1), ((2, 9, 333, 97), (1, 2)), ((40, 7001), 0),
    ((9, 30011), 0), ((33, 12, 1001), (0, 1)), ((3, 1024, 256), 1),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape,axis", SHAPES, ids=str)
def test_sums_in_scratch_are_numpys(shape, axis, threads, monkeypatch):
    on_machine(monkeypatch, threads=threads, l1_bytes=1 << 14)
    x = small_integers(shape)

    def several(np):
        squares = lambda x: np.square(x).sum(axis) * 2 + 1
        return lambda x: (x.sum(axis), squares(x), x.max(axis), (2 * x).min(axis))

    found, text = results_and_schedule(several(jnp), x)
    assert "in scratch" in text
    for a, b in zip(found, several(np)(x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.float64, ml_dtypes.bfloat16])
def test_sums_in_scratch_of_dtypes(dtype):
    is_unsigned = np.dtype(dtype).kind == "u"
    x = small_integers((2100, 515), seed=int(is_unsigned))
    x = abs(x) if is_unsigned else x
    x = x.astype(dtype)
    found, text = results_and_schedule(lambda x: jnp.max(x, 0), x)
    assert "in scratch" in text
    np.testing.assert_array_equal(found, x.max(0))
    (total, kept), text = results_and_schedule(lambda x: (jnp.sum(x, 0), jnp.abs(x).sum(0)), x)
    assert "in scratch" in text
    accurate = np.float32 if dtype is ml_dtypes.bfloat16 else x.sum(0).dtype
    np.testing.assert_array_equal(total, x.astype(accurate).sum(0).astype(total.dtype))
    np.testing.assert_array_equal(kept, np.abs(x.astype(accurate)).sum(0).astype(kept.dtype))


def test_what_is_no_number_stays_in_registers():
    x = small_integers((1031, 300))
    (some, place), text = results_and_schedule(lambda x: (jnp.any(x > 2, 0), jnp.argmax(x, 0)), x)
    assert "in scratch" not in text
    np.testing.assert_array_equal(some, (x > 2).any(0))
    np.testing.assert_array_equal(place, x.argmax(0))


def test_values_that_are_stored_along_with_sums():
    x = small_integers((2050, 131))
    (y, total), _ = results_and_schedule(lambda x: (y := jnp.exp2(x) + 1, y.sum(0)), x)
    want = np.exp2(x) + 1
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(total, want.sum(0))


def test_rows_of_a_table():
    table, places = small_integers((9000, 77)), np.random.default_rng(1).integers(0, 9000, (37, 19))
    found, _ = results_and_schedule(lambda t, i: nn.embedding(t, i).sum(1), table, places)
    np.testing.assert_array_equal(found, table[places].sum(1))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "shape", [(2, 500, 8, 8), (3, 700, 6, 16), (1, 900, 12, 8), (2, 300, 5, 8), (2, 300, 4, 7)]
)
def test_groups_of_neighboring_rows(shape, threads, monkeypatch):
    x, means = small_integers(shape), small_integers((shape[0], shape[2]), seed=1)

    def centered(np):
        around = lambda x, m: x - m[:, None, :, None]
        return lambda x, m: (around(x, m).sum((0, 1)), np.square(around(x, m)).max(1))

    on_machine(monkeypatch, threads=threads)
    found, _ = results_and_schedule(centered(jnp), x, means)
    for a, b in zip(found, centered(np)(x, means), strict=True):
        np.testing.assert_array_equal(a, b)
    # As many neighbors as fill four registers, if so many divide the rows.
    for bits in (128, 256, 512):
        on_machine(monkeypatch, vector_bits=bits)
        text = amdjax.jit(centered(jnp)).lower(x, means).as_text("schedule")
        together = re.findall(r", 8 lanes over rows i\d(?:, (\d) of i\d)?, ", text)
        if shape[3] == 8:
            most = math.gcd(bits // 64, shape[2])
            assert together and set(together) == {str(most) if most > 1 else ""}


def test_gradient_of_group_norm():
    rng = np.random.default_rng(0)
    for n, h, w, c, groups in [(8, 28, 20, 64, 8), (2, 7, 5, 24, 3), (3, 9, 4, 32, 4)]:
        x, ct = rng.standard_normal((2, n, h, w, c)).astype(np.float32)
        scale, bias = rng.standard_normal((2, c)).astype(np.float32)

        def norm(x, scale, bias, groups=groups):
            grouped = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
            mean = grouped.mean((1, 3), keepdims=True)
            variance = jnp.square(grouped - mean).mean((1, 3), keepdims=True)
            y = (grouped - mean) * lax.rsqrt(variance + 1e-5)
            return y.reshape(x.shape) * scale + bias

        found = amdjax.jit(lambda *xs, ct: amdjax.vjp(norm, *xs)[1](ct))(x, scale, bias, ct=ct)
        grouped, ct = (v.astype(np.float64).reshape(n, -1, groups, c // groups) for v in (x, ct))
        centered = grouped - grouped.mean((1, 3), keepdims=True)
        inverse = 1 / np.sqrt((centered**2).mean((1, 3), keepdims=True) + 1e-5)
        normal = centered * inverse
        slope = ct * scale.reshape(groups, -1)
        mean = lambda v: v.mean((1, 3), keepdims=True)
        wanted = inverse * (slope - mean(slope) - normal * mean(slope * normal))
        sums = [(ct * normal).sum((0, 1)).ravel(), ct.sum((0, 1)).ravel()]
        for a, b in zip(found, [wanted.reshape(x.shape), *sums], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize("shape", [(1, 37), (37, 1), (1, 1), (1, 1, 5), (5, 1, 1), (1, 6, 1)])
def test_reductions_where_axes_have_one_element(shape):
    x = small_integers(shape)
    for axis in range(len(shape)):
        for name in ("sum", "max", "argmax", "cumsum", "var"):
            got = amdjax.jit(lambda x: getattr(jnp, name)(x, axis))(x)
            np.testing.assert_allclose(got, getattr(np, name)(x, axis), rtol=1e-6, atol=1e-6)
