"""Results of symbolic sizes that are written past the caches where they are large."""

from __future__ import annotations

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, tile
from amdjax.kernels.products.cpu.direct import DIRECT
from amdjax.kernels.products.cpu.dispatch import PRODUCTS
from amdjax.kernels.products.cpu.packed import PACKED

PRODUCT = ["b, t, 32", "32, 64"]
CASES = {
    "map": (["b, t, 64"], lambda x: nn.relu(x) * 2),
    "lookup": (["b, t, 32"], lambda x: x[jnp.arange(x.shape[0]) // 2] * 2),
    "rows": (["b, t, 64"], lambda x: x - x.max(-1, keepdims=True)),
    "direct product": (PRODUCT, lambda x, y: x @ y),
    "packed product": (PRODUCT, lambda x, y: x @ y),
    "direct product of any columns": (["b, t, 32", "b, 32, t"], lambda x, y: x @ y),
    "packed product of any columns": (["b, t, 32", "b, 32, t"], lambda x, y: x @ y),
    "packed product with an epilogue": (PRODUCT, lambda x, y: nn.relu(x @ y)),
}


#: The first size, and how its stores are written.
FIRST = [((7, 80), {True, False}), ((3, 17), {False})]


@pytest.mark.parametrize("first,written", FIRST)
@pytest.mark.parametrize("name", CASES)
def test_small_and_large_results(name, first, written, monkeypatch):
    """One program writes both that is compiled for a large one."""
    monkeypatch.setattr(PRODUCTS, "solvers", [PACKED if "packed" in name else DIRECT])
    monkeypatch.setattr("amdjax.schedule.streaming.STREAM_FROM", 100_000)
    specs, f = CASES[name]
    scope = amdjax.export.SymbolicScope(["b >= 2", "t >= 14"])
    shapes = [amdjax.export.symbolic_shape(spec, scope=scope) for spec in specs]
    structs = [amdjax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    compiled, ways, store = amdjax.jit(f).lower(*structs).compile(), set(), tile.Builder.store

    def noting(k, buffer, offset, value, strides=None, mask=None, streaming=False):
        ways.add(streaming)
        store(k, buffer, offset, value, strides, mask, streaming)

    monkeypatch.setattr(tile.Builder, "store", noting)
    rng = np.random.default_rng(0)
    for b, t in first, (3, 17), (2, 14), (7, 80), (3, 300), (3, 256), (2, 48):
        # Sums of such numbers are exact.
        sizes = {"b": b, "t": t}
        numbers = [[n if isinstance(n, int) else n.evaluate(sizes) for n in s] for s in shapes]
        xs = [rng.integers(-4, 5, shape).astype("float32") for shape in numbers]
        np.testing.assert_array_equal(compiled(*xs), f(*map(jnp.asarray, xs)), err_msg=f"{b}x{t}")
        if (b, t) == first:
            assert ways >= written and (True in ways) == (True in written)
            monkeypatch.setattr(tile.Builder, "store", store)
