"""Sorting, selecting, gathering and scattering."""

from __future__ import annotations

import numpy as np

from .workload import array_function, normal

MILLION = normal(2**20, quick=(2**14,))
ROWS = normal(1024, 1024, quick=(128, 128))


def _table_and_ids(rng: np.random.Generator, quick: bool) -> tuple:
    rows, features, ids = (1000, 64, 512) if quick else (50_000, 256, 16_384)
    table = rng.standard_normal((rows, features), dtype=np.float32)
    return table, rng.integers(0, rows, ids, dtype=np.int32)


def _values_and_bins(rng: np.random.Generator, quick: bool) -> tuple:
    size = 2**14 if quick else 2**20
    return rng.random(size, dtype=np.float32), rng.integers(0, 1000, size, dtype=np.int32)


def _embed(l, table, ids):
    return table[ids]


def _embed_torch(t, table, ids):
    return t.nn.functional.embedding(ids, table)


def _histogram(l, values, bins):
    return l.np.zeros(1000, l.np.float32).at[bins].add(values)


def _histogram_torch(t, values, bins):
    return values.new_zeros(1000).index_add(0, bins, values)


WORKLOADS = [
    array_function("sort, 1M", MILLION, lambda l, x: l.np.sort(x), lambda t, x: t.sort(x)[0]),
    array_function(
        "argsort, 1M",
        MILLION,
        lambda l, x: l.np.argsort(x),
        lambda t, x: t.argsort(x, stable=True),
        # Equal numbers may trade places where the sort is not stable in the same way.
        tolerance=1.0,
    ),
    array_function(
        "sort rows, 1024²", ROWS, lambda l, x: l.np.sort(x, axis=1), lambda t, x: t.sort(x, 1)[0]
    ),
    array_function(
        "top 8 of rows, 1024²",
        ROWS,
        lambda l, x: l.lax.top_k(x, 8)[0],
        lambda t, x: t.topk(x, 8)[0],
    ),
    array_function("embedding, 16k of 50k×256", _table_and_ids, _embed, _embed_torch),
    array_function(
        "embedding gradient, 16k of 50k×256",
        _table_and_ids,
        _embed,
        _embed_torch,
        argnums=(0,),
    ),
    array_function(
        "scatter add, 1M into 1000", _values_and_bins, _histogram, _histogram_torch, tolerance=1e-4
    ),
]
