"""Loops of symbolic lengths: costly elements are written once, with masks for all tiles."""

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


@pytest.mark.parametrize("name", CASES)
def test_a_costly_element_is_written_once(name, monkeypatch):
    f, times = CASES[name]
    kernels, finish = [], tile.Builder.finish

    def noting(k, *args, **options):
        kernels.append(finish(k, *args, **options))
        return kernels[-1]

    monkeypatch.setattr(tile.Builder, "finish", noting)
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
