"""Reductions of what lies beyond the caches: read as it lies, and asked for ahead."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from tests.support.jit_helpers import on_machine, results_and_schedule, small_integers

IN_ORDER = [((12, 40, 64), (0, 2)), ((5, 9, 6, 70), (0, 2, 3)), ((6, 3, 5, 96), (0, 3))]
OTHERS = [((30, 1000), 1), ((90, 33), 0), ((31, 2049), 0), ((3, 17, 1000), 1), ((4000,), 0)]


@pytest.fixture
def beyond(monkeypatch):
    """Everything lies beyond the caches, and what is longer than pieces of rows is long."""
    monkeypatch.setattr("amdjax.schedule.writer.STREAM_FROM", 0)
    monkeypatch.setattr("amdjax.schedule.row_plan.FAR", 0)
    monkeypatch.setattr("amdjax.schedule.row_plan.LONG_RUN", 2000)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape,axis", IN_ORDER + OTHERS, ids=str)
def test_reductions_from_beyond_the_caches_are_numpys(shape, axis, threads, monkeypatch, beyond):
    on_machine(monkeypatch, threads=threads)
    x = small_integers(shape)

    def several(np):
        return lambda x: (x.sum(axis), np.square(x).sum(axis) * 2 + 1, x.max(axis))

    found, text = results_and_schedule(several(jnp), x)
    assert ("in the order of memory" in text) == ((shape, axis) in IN_ORDER)
    for a, b in zip(found, several(np)(x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.int8, np.float64, np.bool_])
def test_pieces_of_rows_of_dtypes_in_order(dtype, beyond):
    x = small_integers((7, 5, 81)).astype(dtype)
    (some, y), text = results_and_schedule(lambda x: (jnp.any(x, (0, 2)), jnp.max(x, (0, 2))), x)
    assert "in the order of memory" in text
    np.testing.assert_array_equal(some, x.any((0, 2)))
    np.testing.assert_array_equal(y, x.max((0, 2)))


def test_passes_that_wait_for_each_other_take_rows_one_by_one(beyond):
    x = small_integers((7, 5, 81))
    found, text = results_and_schedule(lambda x: jnp.var(x, (0, 2)), x)
    assert "in the order of memory" not in text
    np.testing.assert_allclose(found, x.var((0, 2)), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(7, 13), (2, 5, 11), (1, 40), (300, 9)])
def test_rows_of_far_tables_are_asked_for_before_they_are_read(shape, threads, monkeypatch, beyond):
    """Also by the last of another bag, and where a mask leaves some out."""
    on_machine(monkeypatch, threads=threads)
    table, rng = small_integers((90, 300)), np.random.default_rng(0)
    places, kept = rng.integers(0, 90, shape), rng.integers(0, 2, shape).astype(bool)

    def sums(table, places, kept):
        rows = nn.embedding(table, places)
        return rows.sum(-2), jnp.where(kept[..., None], rows, 0).max(-2)

    compiled = amdjax.jit(sums).lower(table, places, kept).compile()
    assert compiled.as_text("tiles").count("prefetch x") > 1
    total, greatest = compiled(table, places, kept)
    rows = table[places]
    np.testing.assert_array_equal(total, rows.sum(-2))
    np.testing.assert_array_equal(greatest, np.where(kept[..., None], rows, 0).max(-2))
