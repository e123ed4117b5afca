"""Loops of symbolic lengths: costly elements are written once, with masks for all tiles.

Rows that one tile holds need no loops.
"""

from __future__ import annotations

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, tile


def _steps(x):
    return lax.scan(lambda c, row: (0.9 * c + jnp.exp(row),) * 2, jnp.zeros(x.shape[1]), x)[1]


CASES = {
    "costly rows": (lambda x: nn.softmax(x, -1), 1),
    "loops": (_steps, 1),
    "elements": (lambda x: jnp.exp(x[:, 1:]) + x[:, :-1], 2),
    "elements apart": (lambda x: jnp.exp(x.T[::2]).sum(0), None),
}


def _written(monkeypatch):
    """The kernels that are written from now on."""
    kernels, finish = [], tile.Builder.finish

    def noting(k, *args, **options):
        kernels.append(finish(k, *args, **options))
        return kernels[-1]

    monkeypatch.setattr(tile.Builder, "finish", noting)
    return kernels


@pytest.mark.parametrize("name", CASES)
def test_a_costly_element_is_written_once(name, monkeypatch):
    f, times = CASES[name]
    kernels = _written(monkeypatch)
    symbolic = amdjax.jit(f, symbolic="b, t", constraints=["b >= 2", "t >= 3"])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 300), dtype=np.float32)
    symbolic(x)
    found = sum(op.name == "exp" for k in kernels for op in tile.nested_ops(k.body))
    assert times is None or found == times
    for b, t in (2, 3), (3, 7), (4, 8), (5, 9), (2, 31), (3, 32), (4, 33), (2, 300), (33, 17):
        x = rng.standard_normal((b, t), dtype=np.float32)
        one, other = symbolic(x), amdjax.jit(f)(x)
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=f"{b}x{t}")


#: Functions, and an operation that the loop over an axis does.
ONE_TILE = {
    "elements": (lambda x: jnp.exp(x[:, 1:]) + x[:, :-1], "exp"),
    "sums": (lambda x: x.sum(1), "load"),
    "running sums": (lambda x: jnp.cumsum(x, 1), "cumulative"),
}


@pytest.mark.parametrize("name", ONE_TILE)
def test_what_one_tile_holds_is_written_once(name, monkeypatch):
    """It is right for other sizes, which get a variant of their own if there are few."""
    f, operation = ONE_TILE[name]
    kernels = _written(monkeypatch)
    few, many = (amdjax.jit(f, symbolic="b, t", constraints=["t >= 3"]) for _ in range(2))
    few(np.ones((3, 7), np.float32))
    names = [op.name for k in kernels for op in tile.nested_ops(k.body)]
    assert names.count(operation) == 1
    many(np.ones((3, 300), np.float32))
    names = [op.name for k in kernels for op in tile.nested_ops(k.body)]
    assert names.count(operation) > 2
    monkeypatch.setattr("amdjax.jit.variants.MOST_CHOSEN", 1)
    rng = np.random.default_rng(0)
    for b, t in (2, 3), (4, 8), (5, 9), (2, 33), (2, 300), (33, 17), (3, 7):
        x = rng.standard_normal((b, t), dtype=np.float32)
        np.testing.assert_allclose(few(x), amdjax.jit(f)(x), 1e-6, 1e-6, err_msg=f"{b}x{t}")
    (variants,) = few._programs.variants.values()
    assert len(variants.known) == 1


def _scaled(x):
    """Passes that wait for each other, of which the last reads what all others do."""
    y = x - x.max(1, keepdims=True)
    return y * 2 / jnp.exp(y).sum(1, keepdims=True)


#: Rows of several passes, and the same in NumPy.
PASSES = {
    "softmax": (
        lambda x: nn.softmax(x, 1),
        lambda x: (e := np.exp(x - x.max(1, keepdims=True))) / e.sum(1, keepdims=True),
    ),
    "scaled": (
        _scaled,
        lambda x: (y := x - x.max(1, keepdims=True)) * 2 / np.exp(y).sum(1, keepdims=True),
    ),
    "gradient": (
        amdjax.grad(lambda x: nn.softmax(x, 1)[:, 0].sum()),
        lambda x: (p := PASSES["softmax"][1](x))[:, :1] * ((np.arange(x.shape[1]) == 0) - p),
    ),
}


@pytest.mark.parametrize("options", [{}, {"symbolic": "b, t"}])
@pytest.mark.parametrize("name", PASSES)
def test_a_row_in_one_tile_is_read_once(name, options, monkeypatch):
    """Passes share what is computed of it."""
    f, expected = PASSES[name]
    kernels = _written(monkeypatch)
    x = np.random.default_rng(0).standard_normal((3, 20), dtype=np.float32)
    np.testing.assert_allclose(amdjax.jit(f, **options)(x), expected(x), 2e-6, 1e-6)
    names = [op.name for k in kernels for op in tile.nested_ops(k.body)]
    assert names.count("load") == 1 and "for" not in names


@pytest.mark.parametrize("first", [3, 20, 300])
@pytest.mark.parametrize("name", PASSES)
def test_longer_rows_have_loops(name, first, monkeypatch):
    monkeypatch.setattr("amdjax.jit.variants.MOST_CHOSEN", 1)
    f, expected = PASSES[name]
    symbolic = amdjax.jit(f, symbolic="b, t")
    for t in (first, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 300):
        x = 9 * np.random.default_rng(t).standard_normal((2, t), dtype=np.float32)
        np.testing.assert_allclose(symbolic(x), expected(x), 2e-6, 1e-6, err_msg=f"{t}")
    (variants,) = symbolic._programs.variants.values()
    assert first < 300 or len(variants.known) == 1
