"""`experimental.sparse` against the same operations on dense arrays."""

import itertools

import numpy as np
import pytest
import scipy.sparse

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jit, lax, vmap
from amdjax.experimental import sparse
from amdjax.experimental.sparse import BCOO, BCSR
from amdjax.test_util import check_grads
from tests.support.turns import in_turn

RNG = np.random.default_rng(0)
LAYOUTS = [(b, d) for b in range(3) for d in range(3) if b + d <= 3]


pytestmark = pytest.mark.usefixtures("double_precision")


def thin(*shape):
    """An array of which most elements are zero."""
    return RNG.normal(size=shape) * (RNG.uniform(size=shape) < 0.3)


def close(got, want):
    got = got.todense() if isinstance(got, (BCOO, BCSR)) else got
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("n_batch", "n_dense"), LAYOUTS)
def test_forms(n_batch, n_dense):
    x = thin(3, 4, 5)
    m = BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    assert (m.n_batch, m.n_dense, m.n_sparse) == (n_batch, n_dense, 3 - n_batch - n_dense)
    assert m.indices.dtype == np.int32 and m.shape == x.shape and m.dtype == x.dtype
    close(m, x)
    close(jit(lambda m: m.todense())(m), x)
    close(
        jit(lambda x: BCOO.fromdense(x, nse=m.nse, n_batch=n_batch, n_dense=n_dense).todense())(x),
        x,
    )
    roomy = BCOO.fromdense(x, nse=m.nse + 4, n_batch=n_batch, n_dense=n_dense)
    close(roomy, x)
    close(sparse.bcoo_extract(roomy, 2 * x), 2 * x)
    if m.n_sparse:
        close(roomy.sum_duplicates(nse=m.nse), x)
        close(roomy.sort_indices(), x)
    for axis in (0, 1, 2, (0, 2), None):
        close(roomy.sum(axis), x.sum(axis))
    close(m.T, x.T)
    close(m.transpose((1, 0, 2)), x.transpose(1, 0, 2))
    # Layouts change by single steps: every other one is reached through its neighbors.
    for b, d in LAYOUTS[(n_batch + n_dense) % 2 :: 2]:
        close(m.update_layout(n_batch=b, n_dense=d, on_inefficient=None), x)
    for index in (1, (slice(None), 2), (slice(1, 3), slice(0, 4, 2)), (..., -1), (2, 3, 4)):
        close(roomy[index], x[index])


def test_batches_are_mapped():
    x = thin(2, 3)
    close(vmap(lambda m: m.todense() * 2)(BCOO.fromdense(x, n_batch=1)), 2 * x)


def test_entries_at_one_place_add_up():
    indices = jnp.array([[1, 0], [0, 2], [1, 0], [2, 3], [0, 1]])  # the fourth is none
    m = BCOO((jnp.arange(1.0, 6.0), indices), shape=(2, 3))
    want = np.array([[0, 5, 2], [4, 0, 0.0]])
    close(m, want)
    once = m.sum_duplicates()
    assert once.nse == 3 and once.unique_indices
    np.testing.assert_array_equal(once.indices, [[0, 1], [0, 2], [1, 0]])
    close(once, want)
    close(abs(m - m), 0 * want)
    close(jit(lambda m: m.sum_duplicates(nse=4))(m), want)
    with pytest.raises(ValueError, match="nse"):
        jit(lambda m: m.sum_duplicates())(m)


@pytest.mark.parametrize(("n_batch", "n_dense"), LAYOUTS)
def test_elementwise(n_batch, n_dense):
    x, y = thin(3, 4, 5), thin(3, 4, 5)
    m, n = (BCOO.fromdense(v, n_batch=n_batch, n_dense=n_dense) for v in (x, y))
    close(m * 3 - n / 2, x * 3 - y / 2)
    close(-m + n * n, -x + y * y)
    close(m * n, x * y)
    for v in (y, y[:, :1], y[0], y[:, :, :1], np.float64(2)):
        close(m * v, x * v)
    close(m + y, x + y)
    close(sum([m, n]), x + y)
    assert m.astype(np.float32).dtype == np.float32


PRODUCTS = [
    ((3, 4), (4,), ((1,), (0,)), ((), ())), ((3, 4), (4, 5), ((1,), (0,)), ((), ())),
    ((3, 4), (3, 5), ((0,), (0,)), ((), ())), ((3, 4), (4, 3), ((0, 1), (1, 0)), ((), ())),
    ((2, 3, 4), (2, 4, 5), ((2,), (1,)), ((0,), (0,))), ((3, 4), (5,), ((), ()), ((), ())),
    ((2, 3, 4), (4, 2, 3), ((2,), (0,)), ((0, 1), (1, 2))),
    ((2, 3, 4), (3, 5), ((1,), (0,)), ((), ())),
]  # fmt: skip


@pytest.mark.parametrize(
    ("n_dense", "n_batch", "case"), in_turn(itertools.product((0, 1), (0, 1), PRODUCTS), 2), ids=str
)
def test_products(n_dense, n_batch, case):
    left, right, *numbers = case
    x, y = thin(*left), RNG.normal(size=right)
    numbers = tuple(numbers)
    want = lax.dot_general(x, y, numbers)
    m = BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense, nse=x.size)
    product = lambda m, y: sparse.bcoo_dot_general(m, y, dimension_numbers=numbers)
    close(product(m, y), want)
    close(jit(product)(m, y), want)
    swapped = tuple(axes[::-1] for axes in numbers)
    flipped = sparse.bcoo_dot_general(y, m, dimension_numbers=swapped)
    close(flipped, lax.dot_general(y, x, swapped))
    if n_batch == n_dense:
        check_grads(lambda d, y: product(BCOO((d, m.indices), shape=m.shape), y), (m.data, y), 1)
    n = BCOO.fromdense(thin(*right))
    close(
        sparse.bcoo_dot_general(m, n, dimension_numbers=numbers),
        lax.dot_general(x, n.todense(), numbers),
    )


def test_matmul_operators():
    x, y, v = thin(3, 4), RNG.normal(size=(4, 2)), RNG.normal(size=4)
    for kind in (BCOO, BCSR):
        m = kind.fromdense(x)
        close(m @ y, x @ y)
        close(m @ v, x @ v)
        close(y.T @ m.T, y.T @ x.T)
        close(v @ m.T, v @ x.T)
        close(m.T @ x, x.T @ x)
        close(m @ m.T, x @ x.T)
        assert grad(lambda m: (m @ y).sum(), allow_int=True)(m).data.shape == m.data.shape
    batch = thin(2, 3, 4)
    rows = BCOO.fromdense(batch, n_batch=1, nse=12)
    close(rows @ RNG.normal(size=(2, 4, 5)) * 0, np.zeros((2, 3, 5)))
    close(vmap(lambda m, v: m @ v, (0, None))(rows, v), batch @ v)


def test_sampled_products():
    a, b = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 5))
    places = jnp.array([[0, 1], [3, 4], [2, 2], [4, 0]])
    numbers = (((1,), (0,)), ((), ()))
    got = sparse.bcoo_dot_general_sampled(a, b, places, dimension_numbers=numbers)
    close(got, [*[(a @ b)[i, j] for i, j in places[:3].tolist()], 0])


def test_rows():
    x = thin(3, 5)
    m = BCSR.fromdense(x, nse=12)
    close(m, x)
    close(m.to_bcoo(), x)
    close(BCSR.from_bcoo(BCOO.fromdense(x)), x)
    close(m * 2 - m, x)
    close(sparse.bcsr_extract(m.indices, m.indptr, x), m.data)
    close(BCSR.fromdense(np.stack([x, x * 2]), n_batch=1), np.stack([x, x * 2]))
    close(jit(lambda m, v: m @ v)(m, x[0]), x @ x[0])
    for kind in (BCOO, BCSR):
        close(kind.from_scipy_sparse(scipy.sparse.csr_matrix(x)), x)


def test_shapes():
    x, y = thin(3, 4), thin(2, 4)
    m, n = BCOO.fromdense(x, nse=12), BCOO.fromdense(y)
    close(sparse.bcoo_concatenate([m, n], dimension=0), np.concatenate([x, y]))
    close(sparse.bcoo_concatenate([m, m], dimension=1), np.concatenate([x, x], 1))
    rows = [BCOO.fromdense(v, n_batch=1, nse=4) for v in (x, y)]
    close(sparse.bcoo_concatenate(rows, dimension=0), np.concatenate([x, y]))
    close(m.reshape(2, 6), x.reshape(2, 6))
    close(m.reshape(-1), x.reshape(-1))
    close(
        sparse.bcoo_broadcast_in_dim(m, shape=(2, 3, 4), broadcast_dimensions=(1, 2)),
        np.stack([x, x]),
    )
    column = BCOO.fromdense(x[:, :1])
    spread = sparse.bcoo_broadcast_in_dim(column, shape=(3, 4), broadcast_dimensions=(0, 1))
    close(spread, np.broadcast_to(x[:, :1], (3, 4)))


def test_constructors():
    for form in ("bcoo", "bcsr"):
        close(sparse.eye(3, 5, k=1, sparse_format=form), np.eye(3, 5, 1))
        close(sparse.empty((2, 3), nse=2, sparse_format=form), np.zeros((2, 3)))
    m = sparse.random_bcoo(amdjax.random.key(0), (20, 30), nse=0.1, sorted_indices=True)
    assert m.nse == 60 and m.sum_duplicates().nse == 60
    assert sparse.random_bcoo(
        amdjax.random.key(0), (2, 3, 4, 5), nse=3, n_batch=1, n_dense=1
    ).shape == (2, 3, 4, 5)
    close(sparse.todense(sparse.eye(2)), np.eye(2))


def test_gradients_have_the_places_of_their_arrays():
    x, v = thin(3, 4), RNG.normal(size=4)
    for kind in (BCOO, BCSR):
        m = kind.fromdense(x)
        f = lambda m, v: jnp.sin(m @ v).sum()
        value, slope = sparse.value_and_grad(f)(m, v)
        dense = grad(lambda x, v: jnp.sin(x @ v).sum())(x, v)
        close(slope, np.where(x != 0, dense, 0))
        close(value, f(m, v))
        both = sparse.grad(f, argnums=(0, 1))(m, v)
        close(both[1], grad(lambda v: jnp.sin(x @ v).sum())(v))
        slopes = amdjax.jacfwd(lambda x: x @ v)(x) * (x != 0)
        for jacobian in (sparse.jacfwd, sparse.jacrev):
            of_both = jacobian(lambda m, v: m @ v, argnums=(0, 1))(m, v)
            assert type(of_both[0]) is kind and of_both[0].n_batch == 1
            close(of_both[0], slopes)
            close(of_both[1], x)


def test_iterative_solvers_take_them():
    a = thin(8, 8)
    a = a @ a.T + 4 * np.eye(8)
    m, b = BCOO.fromdense(a), RNG.normal(size=8)
    close(amdjax.scipy.sparse.linalg.cg(m, b, tol=1e-14)[0], np.linalg.solve(a, b))


def test_refusals():
    m = BCOO.fromdense(thin(3, 4))
    with pytest.raises(ValueError, match="Invalid data"):
        BCOO((jnp.ones(3), jnp.zeros((2, 2), int)), shape=(3, 4))
    with pytest.raises(TypeError, match="integers"):
        BCOO((jnp.ones(2), jnp.zeros((2, 2))), shape=(3, 4))
    with pytest.raises(sparse.SparseEfficiencyError):
        m.update_layout(n_batch=1)
    with pytest.warns(sparse.SparseEfficiencyWarning):
        m.update_layout(n_batch=1, on_inefficient="warn")
    with pytest.raises(ValueError, match="nse"):
        jit(BCOO.fromdense)(jnp.ones(3))
    with pytest.raises(TypeError, match="contracting"):
        m @ jnp.ones(3)
    with pytest.raises(IndexError):
        m[5]
    with pytest.raises(ValueError, match="not recognized"):
        sparse.eye(3, sparse_format="ell")


@pytest.mark.parametrize("n_batch, n_dense", [(1, 0), (2, 0), (1, 1), (3, 0)])
def test_joined_along_a_batch_axis_entries_stay_as_many(n_batch, n_dense):
    """So that each place has one entry still, which is what `bcoo_extract` goes by."""
    rng = np.random.default_rng(0)
    xs = [np.where(rng.random((n, 3, 4)) < 0.4, rng.random((n, 3, 4)), 0) for n in (2, 1)]
    whole = np.concatenate(xs).astype(np.float32)
    parts = [sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense) for x in xs]
    joined = sparse.bcoo_concatenate(parts, dimension=0)
    assert joined.nse == max(p.nse for p in parts)
    np.testing.assert_allclose(joined.todense(), whole, rtol=1e-6)
    if joined.unique_indices:
        found = sparse.bcoo_extract(joined, whole)
        np.testing.assert_allclose(found.todense(), whole, rtol=1e-6)


def test_identities_have_no_more_entries_than_rows_need():
    for n_batch, n_dense in ((0, 0), (1, 0), (0, 1), (2, 0)):
        eye = sparse.eye(3, 5, 1, n_batch=n_batch, n_dense=n_dense)
        np.testing.assert_array_equal(eye.todense(), np.eye(3, 5, 1))
        assert eye.nse == (1 if n_batch else 3)


def test_sorting_leaves_shared_indices_shared():
    rng = np.random.default_rng(0)
    indices = jnp.asarray(rng.integers(0, 4, (1, 3, 6, 2)), np.int32)
    data = jnp.asarray(rng.random((2, 1, 6, 3)), np.float32)
    mat = sparse.BCOO((data, indices), shape=(2, 3, 4, 4, 3))
    found = mat.sort_indices()
    assert found.indices.shape == indices.shape and found.data.shape == (2, 3, 6, 3)
    np.testing.assert_allclose(found.todense(), mat.todense(), rtol=1e-6)
    flat = np.asarray(found.indices[0] @ np.array([4, 1]))
    assert (np.diff(flat) >= 0).all() and found.indices_sorted
    assert sparse.BCOO.fromdense(np.ones(3), n_batch=1).sort_indices().indices_sorted


def test_random_bcoo_draws_what_jax_draws():
    m = sparse.random_bcoo(amdjax.random.key(1), (2, 4, 5), nse=2, n_batch=1, dtype=np.float32)
    assert m.indices.tolist() == [[[2, 1], [0, 3]], [[2, 4], [2, 3]]]
    np.testing.assert_array_equal(
        m.data,
        np.array(
            [[0.7026152610778809, 0.2348346710205078], [0.8178645372390747, 0.17094111442565918]],
            np.float32,
        ),
    )
    assert not m.unique_indices
    with pytest.raises(ValueError, match="nse"):
        sparse.random_bcoo(amdjax.random.key(1), (2, 2), nse=4)
