"""Sparse operations give the values and dtypes of dense ones, and keep the dtype of indices.

Every operation meets small integers, whose sums would be widened, indices of either width beside
defaults of 64 bits, entries at one place, and entries that are none.
"""

import numpy as np
import pytest

import amdjax.numpy as jnp
from amdjax import enable_x64, jit, lax
from amdjax.core.config import numpy_dtype_promotion
from amdjax.experimental import sparse
from tests.support.turns import in_turn

SHAPE = (2, 3, 4)
FORMS = [(np.int32, 0, 0), (np.int64, 0, 0), (np.int32, 1, 1), (np.int64, 0, 3)]
"""Dtypes of indices, and how many axes are batches and dense."""
WHOLE = {"n_batch": 0, "n_dense": 0, "on_inefficient": None}
TURNED = {"dimension_numbers": (((1,), (0,)), ((), ()))}
BATCHED = {"dimension_numbers": (((1, 2), (1, 2)), ((0,), (0,)))}


def entries(dtype, index_dtype, n_batch=0, n_dense=0, shape=SHAPE):
    """Entries at random places, of which the first two are the same; the last is none."""
    rng = np.random.default_rng(3)
    middle = shape[n_batch : len(shape) - n_dense]
    indices = rng.integers(0, middle, (*shape[:n_batch], 5, len(middle)))
    indices[..., 1, :], indices[..., -1, :] = indices[..., 0, :], middle
    data = rng.integers(1, 5, (*indices.shape[:-1], *shape[len(shape) - n_dense :]))
    return sparse.BCOO((data.astype(dtype), indices.astype(index_dtype)), shape=shape)


def pair(f):
    """One function of both, which have the same methods."""
    return f, f


OPERATIONS = {
    "itself": pair(lambda x, d: x),
    "sum": pair(lambda x, d: x.sum()),
    "sum of batches": pair(lambda x, d: x.sum(0)),
    "sum of others": pair(lambda x, d: x.sum((1, 2))),
    "times itself": pair(lambda x, d: x * x),
    "times dense": pair(lambda x, d: x * d),
    "times number": pair(lambda x, d: x * 3),
    "over dense": pair(lambda x, d: x / (d + d.dtype.type(1))),
    "plus": pair(lambda x, d: x + x),
    "power": pair(lambda x, d: x**2),
    "negative": pair(lambda x, d: -x),
    "magnitude": pair(lambda x, d: abs(x)),
    "converted": pair(lambda x, d: x.astype(np.float32)),
    "matrix": pair(lambda x, d: x @ d[0].T),
    "matrices": pair(lambda x, d: x @ jnp.swapaxes(d, 1, 2)),
    "from the left": pair(lambda x, d: d[0, :, :3].T @ x),
    "turned": pair(lambda x, d: x.T),
    "index": pair(lambda x, d: x[1, :, 2]),
    "indices": pair(lambda x, d: x[:, np.array([2, 0])]),
    "slice": pair(lambda x, d: x[:, 1:, ::2]),
    "windows": (
        lambda x, d: sparse.bcoo_slice(
            x, start_indices=np.array([0, 1, 0]), limit_indices=np.array(x.shape),
            strides=np.array([1, 1, 2]),
        ),
        lambda x, d: x[:, 1:, ::2],
    ),
    "new axis": pair(lambda x, d: x[:, None]),
    "reversed": (lambda x, d: sparse.bcoo_rev(x, (0, 1, 2)), lambda x, d: lax.rev(x, (0, 1, 2))),
    "flat": (
        lambda x, d: x.update_layout(**WHOLE).reshape(24), lambda x, d: x.reshape(24)
    ),
    "other form": (
        lambda x, d: x.update_layout(n_batch=1, n_dense=1, on_inefficient=None), lambda x, d: x
    ),
    "joined": (
        lambda x, d: sparse.bcoo_concatenate([x, x], dimension=1),
        lambda x, d: jnp.concatenate([x, x], 1),
    ),
    "window": (
        lambda x, d: sparse.bcoo_dynamic_slice(x, (1, 1, 0), (1, 2, 3)),
        lambda x, d: lax.dynamic_slice(x, (1, 1, 0), (1, 2, 3)),
    ),
    "one entry each": (lambda x, d: x.sum_duplicates(nse=x.nse), lambda x, d: x),
    "sorted": (lambda x, d: x.sort_indices(), lambda x, d: x),
    "contracted": (
        lambda x, d: sparse.bcoo_dot_general(x, d, **BATCHED),
        lambda x, d: lax.dot_general(x, d, **BATCHED),
    ),
    "of both": (
        lambda x, d: sparse.bcoo_dot_general(x[0], x[1].T, **TURNED),
        lambda x, d: lax.dot_general(x[0], x[1].T, **TURNED),
    ),
    "rows": (lambda x, d: sparse.BCSR.from_bcoo(x[0].update_layout(**WHOLE)), lambda x, d: x[0]),
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_values_and_dtypes(operation):
    of_sparse, of_dense = OPERATIONS[operation]
    with enable_x64(True), numpy_dtype_promotion("strict"):
        for index_dtype, *layout in in_turn(FORMS, 2, operation):
            x = entries(np.uint8, index_dtype, *layout)
            dense, other = np.asarray(x.todense()), jnp.asarray(whole(x) % 3)
            np.testing.assert_array_equal(dense, whole(x), strict=True)
            found, want = of_sparse(x, other), of_dense(jnp.asarray(dense), other)
            if isinstance(found, sparse.JAXSparse):
                assert found.indices.dtype == index_dtype, layout
            found = np.asarray(sparse.todense(found))
            np.testing.assert_allclose(found, np.asarray(want), rtol=1e-6, strict=True)


def test_entries_at_one_place_are_added_before_they_are_rounded_or_widened():
    """As a dense array has it: in the dtype of the data."""
    with enable_x64(True):
        for first, second, dtype in ((1e8, 1.0, np.float64), (0.5, 0.5, np.int32)):
            data = np.array([first, second], np.float32)
            x = sparse.BCOO((data, np.zeros((2, 1), int)), shape=(1,))
            want = np.asarray(np.float32(first) + np.float32(second), dtype)
            rows = sparse.BCSR((data, np.zeros(2, int), np.array([0, 2])), shape=(1, 1))
            for found in (x.astype(dtype), rows.astype(dtype)):
                np.testing.assert_array_equal(np.ravel(found.todense()), want)
            factor = np.ones(1, np.float64)
            want = np.float64(np.float32(first) + np.float32(second))
            for found in (x * factor, factor * x, x / factor, x * sparse.BCOO.fromdense(factor)):
                np.testing.assert_array_equal(found.todense(), [want])
            want = np.float64(first) + np.float64(second)  # products are added in their own dtype
            np.testing.assert_array_equal([x @ factor, factor @ x], [want, want])


@pytest.mark.parametrize("kind", [sparse.COO, sparse.CSR, sparse.CSC, sparse.BCSR])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_matrices(kind, index_dtype):
    with enable_x64(True), numpy_dtype_promotion("strict"):
        dense = whole(entries(np.uint8, index_dtype, shape=(3, 4)))
        x = kind.fromdense(jnp.asarray(dense), index_dtype=index_dtype)
        assert {part.dtype for part in x._bufs[1:]} == {np.dtype(index_dtype)}
        vector, columns = dense[0] % 3, dense.T % 2
        for found, want in (
            (x.todense(), dense),
            (x.T.todense(), dense.T),
            (x @ jnp.asarray(vector), dense @ vector),
            (x @ jnp.asarray(columns), dense @ columns),
            (jit(lambda x: kind.fromdense(x, nse=7).todense())(dense), dense),
        ):
            np.testing.assert_array_equal(found, want, strict=True)


def whole(x):
    """What a `BCOO` stands for, by NumPy."""
    out = np.zeros(x.shape, x.dtype)
    data, indices = np.asarray(x.data), np.asarray(x.indices)
    for batch in np.ndindex(indices.shape[:-2]):
        for value, place in zip(data[batch], indices[batch], strict=True):
            if (place < x.shape[x.n_batch : x.n_batch + x.n_sparse]).all():
                out[(*batch, *place)] += value
    return out
