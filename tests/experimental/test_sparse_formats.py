"""`COO`, `CSR`, `CSC`, `sparsify`, and parts of `BCOO` and `BCSR`, against dense arrays."""

import numpy as np
import pytest
import scipy.sparse

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.experimental import sparse

FORMATS = [sparse.COO, sparse.CSR, sparse.CSC]


def matrix(shape=(4, 5), seed=0, dtype=np.float32):
    found = np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)
    return found * (found > 0)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("shape", [(4, 5), (5, 3), (1, 4)])
def test_single_matrices(kind, shape):
    dense = matrix(shape)
    m = kind.fromdense(dense)
    assert (m.shape, m.dtype, m.nse) == (shape, np.float32, np.count_nonzero(dense))
    np.testing.assert_array_equal(m.todense(), dense)
    np.testing.assert_array_equal(m.T.todense(), dense.T)
    v, b = np.arange(shape[1], dtype=np.float32), matrix((shape[1], 3), 1)
    np.testing.assert_allclose(m @ v, dense @ v)
    np.testing.assert_allclose(m @ b, dense @ b)
    np.testing.assert_allclose(m.T @ dense, dense.T @ dense)
    jitted = amdjax.jit(lambda d: kind.fromdense(d, nse=30))(dense)
    assert jitted.nse == 30
    np.testing.assert_array_equal(sparse.todense(jitted), dense)
    with pytest.raises(TypeError, match="unhashable"):
        hash(m)


def test_parts_are_those_of_scipy():
    dense = matrix((6, 7))
    for kind, theirs in (
        (sparse.CSR, scipy.sparse.csr_matrix),
        (sparse.CSC, scipy.sparse.csc_matrix),
    ):
        m, s = kind.fromdense(dense), theirs(dense)
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(m, name), getattr(s, name))


@pytest.mark.parametrize("kind", FORMATS)
def test_single_matrices_under_transforms(kind):
    dense, v = matrix(), np.arange(5, dtype=np.float32)
    m = kind.fromdense(dense)
    leaves, tree = amdjax.tree.flatten(m)

    def total(data):
        return ((amdjax.tree.unflatten(tree, [data, *leaves[1:]]) @ v) ** 2).sum()

    slopes = amdjax.jit(amdjax.grad(total))(m.data)
    full = amdjax.grad(lambda d: ((d @ v) ** 2).sum())(jnp.asarray(dense))
    places = amdjax.tree.unflatten(tree, [slopes, *leaves[1:]]).todense()
    np.testing.assert_allclose(places, np.where(dense != 0, full, 0))
    both = amdjax.vmap(total)(jnp.stack([m.data, 2 * m.data]))
    np.testing.assert_allclose(both, [total(m.data), 4 * total(m.data)])


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bcoo", "bcsr"])
@pytest.mark.parametrize("n, m, k", [(3, None, 0), (3, 5, 1), (5, 3, -2), (2, 2, 4)])
def test_identities_and_empty_ones(kind, n, m, k):
    np.testing.assert_array_equal(
        sparse.eye(n, m, k, sparse_format=kind).todense(), np.eye(n, m, k)
    )
    empty = sparse.empty((n, 4), sparse_format=kind)
    assert empty.nse == 0 and not np.asarray(empty.todense()).any()


def test_products_check_their_operands():
    m = sparse.CSR.fromdense(matrix())
    with pytest.raises(TypeError, match="csr_matvec"):
        sparse.csr_matvec(m, jnp.ones(4))
    with pytest.raises(TypeError, match="one dtype"):
        sparse.csr_matmat(m, jnp.ones((5, 2), jnp.int32))
    with pytest.raises(NotImplementedError, match="two sparse"):
        m @ m


UNARY = [jnp.sin, lax.neg, jnp.sqrt, jnp.tanh, jnp.expm1, jnp.abs, jnp.sign, lambda x: x**3,
         lambda x: x.astype(jnp.int32), jnp.real]  # fmt: skip


@pytest.mark.parametrize("tracer", [False, True])
@pytest.mark.parametrize("kind", [sparse.BCOO, sparse.BCSR])
@pytest.mark.parametrize("f", UNARY)
def test_functions_that_keep_zeros(f, kind, tracer):
    dense = matrix()
    twice = sparse.BCOO.fromdense(dense) + sparse.BCOO.fromdense(dense)  # places come twice
    m = twice if kind is sparse.BCOO else sparse.BCSR.from_bcoo(twice)
    out = sparse.sparsify(f, use_tracer=tracer)(m)
    assert isinstance(out, kind)
    np.testing.assert_allclose(out.todense(), f(2 * jnp.asarray(dense)), rtol=1e-6)


def carried(A):
    return lax.fori_loop(0, 3, lambda i, A: 2 * A, A)


STRUCTURE = [
    lambda x: x.T, lambda x: x[None], lambda x: x[1:3, ::2], lambda x: x[::-1], lambda x: x[:, 2],
    lambda x: x.sum(0), lambda x: x.sum(), lambda x: x.reshape(2, 10), lambda x: x / 2,
    lambda x: jnp.hstack([x, 2 * x]), lambda x: jnp.stack([x, x]), lambda x: x + x, lambda x: x - x,
    lambda x: x * x, lambda x: x * jnp.arange(5.0), lambda x: jnp.arange(4.0) @ x,
    lambda x: jnp.sin(jnp.pi * x).T @ jnp.ones(4), lambda x: x.T @ x,
    lambda x: lax.dynamic_slice(x, (jnp.int32(3), jnp.int32(1)), (2, 3)),
    lambda x: lax.cond(x.sum() > 0, lambda x: 2 * x, lambda x: x, x), carried,
    lambda x: amdjax.jit(lambda x: (x * 2, x * 3))(x)[1],
    lambda x: lax.fori_loop(0, 2, lambda i, v: (x.T @ x) @ v / 9, jnp.ones(5)),
    lambda x: lax.scan(lambda c, t: (c + t, t * (x @ jnp.ones(5)).sum()), 0.0, jnp.arange(3.0))[1],
    lambda x: x[jnp.array([2, 0])], lambda x: sparse.todense(x) + 1,
]  # fmt: skip


@pytest.mark.parametrize("tracer", [False, True])
@pytest.mark.parametrize("f", STRUCTURE)
def test_sparsified_functions_are_those_of_the_dense_array(f, tracer):
    dense = jnp.asarray(matrix())
    m = sparse.BCOO.fromdense(dense)
    g = sparse.sparsify(f, use_tracer=tracer)
    want = f(dense)
    np.testing.assert_allclose(sparse.todense(g(m)), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sparse.todense(amdjax.jit(g)(m)), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(g(dense), want, rtol=1e-6)

    def total(data):
        return (sparse.todense(g(sparse.BCOO((data, m.indices), shape=m.shape))) ** 2).sum()

    slopes = amdjax.grad(total)(m.data)
    full = amdjax.grad(lambda d: (f(d) ** 2).sum())(dense)
    np.testing.assert_allclose(slopes, full[tuple(m.indices.T)], rtol=1e-4, atol=1e-4)


def test_what_fills_in_zeros_is_refused():
    m = sparse.BCOO.fromdense(matrix())
    with pytest.raises(NotImplementedError, match=r"cos is not implemented because.*dense"):
        sparse.sparsify(jnp.cos)(m)
    with pytest.raises(NotImplementedError, match="Addition between a sparse array X"):
        sparse.sparsify(lambda x: x + 1)(m)
    with pytest.raises(NotImplementedError, match="non-positive exponent"):
        m**-1
    with pytest.raises(TypeError, match="same type structure"):
        sparse.sparsify(lambda x: lax.cond(True, lambda: x, lambda: sparse.todense(x)))(m)


def test_tracers_of_sparse_values():
    seen = []
    sparse.sparsify(lambda x: seen.append(x) or x, use_tracer=True)(jnp.ones(2))
    sparse.sparsify(lambda x: seen.append(x) or x)(jnp.ones(2))
    assert [isinstance(x, sparse.SparseTracer) for x in seen] == [True, False]


@pytest.mark.parametrize("n_batch, n_dense", [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 3)])
def test_parts_and_turns_of_batches(n_batch, n_dense):
    dense = jnp.asarray(matrix((3, 4, 5)))
    m = sparse.BCOO.fromdense(dense, n_batch=n_batch, n_dense=n_dense)
    same = np.testing.assert_array_equal
    same(sparse.bcoo_rev(m, [0, 2]).todense(), dense[::-1, :, ::-1])
    same(
        sparse.bcoo_dynamic_slice(m, [1, jnp.int32(2), 9], (2, 2, 3)).todense(), dense[1:3, 2:, 2:]
    )
    same(sparse.bcoo_squeeze(m[1:2, :, 2:3], dimensions=(0, 2)).todense(), dense[1, :, 2])
    wide = sparse.bcoo_broadcast_in_dim(m, shape=(2, 3, 4, 5), broadcast_dimensions=(1, 2, 3))
    same(wide.todense(), np.broadcast_to(dense, (2, 3, 4, 5)))
    assert wide.n_dense == n_dense
    if n_batch:
        f = lambda m: sparse.bcoo_rev(m, [m.ndim - 1])
        same(amdjax.vmap(f)(m).todense(), dense[..., ::-1])
    if n_batch == 2:
        out = amdjax.vmap(lambda m: m.sum(0), in_axes=1)(m)
        same(out.todense(), dense.sum(0))


def test_sparse_values_in_while_loops():
    dense = matrix()
    f = lambda A: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 2 * c[1]), (0, A))
    count, out = sparse.sparsify(f)(sparse.BCOO.fromdense(dense))
    assert count == 3
    np.testing.assert_array_equal(out.todense(), 8 * dense)


def test_convolutions():
    x, k = matrix((10,)), np.array([1.0, -2.0, 0.5], np.float32)
    for mode in ("full", "same", "valid"):
        f = lambda x: jnp.convolve(x, k, mode)
        out = sparse.sparsify(f)(sparse.BCOO.fromdense(x))
        np.testing.assert_allclose(out.todense(), np.convolve(x, k, mode), atol=1e-6)
    with pytest.raises(NotImplementedError, match="strides"):
        sparse.bcoo_conv_general_dilated(
            sparse.BCOO.fromdense(x[None, None]), k[None, None], window_strides=[2], padding="SAME"
        )


def test_primitives_on_parts():
    dense = jnp.asarray(matrix())
    m = sparse.BCOO.fromdense(dense)
    info = sparse.util.SparseInfo(m.shape)
    back = lambda data: sparse.bcoo_todense_p.bind(data, m.indices, spinfo=info)
    np.testing.assert_array_equal(back(m.data), dense)
    (linear,) = amdjax.linear_transpose(back, m.data)(dense)
    np.testing.assert_array_equal(linear, m.data)
    assert "bcoo_todense" in str(amdjax.make_jaxpr(back)(m.data))
    np.testing.assert_array_equal(amdjax.vmap(back)(jnp.stack([m.data] * 2))[1], dense)
    data = sparse.bcoo_extract_p.bind(m.indices, dense, assume_unique=True)
    np.testing.assert_array_equal(data, m.data)
    assert int(sparse.util.count_stored_elements(dense)) == m.nse


def test_solutions_of_sparse_systems():
    rng = np.random.default_rng(0)
    dense = np.diag(rng.uniform(2, 3, 6)) + np.triu(matrix((6, 6)), 1) * 0.3
    dense, b = dense.astype(np.float32), rng.standard_normal(6).astype(np.float32)
    m = sparse.BCSR.fromdense(dense)
    solve = lambda data, b: sparse.linalg.spsolve(data, m.indices, m.indptr, b)
    np.testing.assert_allclose(solve(m.data, b), np.linalg.solve(dense, b), rtol=1e-5)
    slopes = amdjax.jit(amdjax.grad(lambda d, b: (solve(d, b) ** 2).sum(), (0, 1)))(m.data, b)
    full = amdjax.grad(lambda A, b: (jnp.linalg.solve(A, b) ** 2).sum(), (0, 1))(dense, b)
    np.testing.assert_allclose(slopes[0], full[0][dense != 0], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(slopes[1], full[1], rtol=1e-3, atol=1e-5)
    with pytest.raises(TypeError, match="square matrix"):
        solve(m.data, b[:3])


def test_largest_eigenvalues():
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    values = np.linspace(1, 10, 40) ** 2
    A = (basis * values) @ basis.T
    X = jnp.asarray(rng.standard_normal((40, 4)), jnp.float32)
    theta, U, steps = sparse.linalg.lobpcg_standard(jnp.asarray(A, jnp.float32), X, m=300)
    np.testing.assert_allclose(theta, values[::-1][:4], rtol=1e-5)
    np.testing.assert_allclose(
        np.abs(basis[:, ::-1][:, :4].T @ np.asarray(U)), np.eye(4), atol=1e-2
    )
    assert 0 < int(steps) < 300
    m = sparse.BCOO.fromdense(jnp.asarray(A, jnp.float32))
    again = sparse.linalg.lobpcg_standard(lambda S: m @ S, X, m=300)[0]
    np.testing.assert_allclose(again, theta, rtol=1e-5)
    with pytest.raises(ValueError, match="search dim"):
        sparse.linalg.lobpcg_standard(jnp.eye(4), jnp.ones((4, 2)))


def test_vectors_are_stacked_with_matrices():
    parts = [matrix((1, 4)), matrix((4,), 1), matrix((3, 4), 2)]
    found = sparse.sparsify(jnp.vstack)([sparse.BCOO.fromdense(x) for x in parts])
    np.testing.assert_array_equal(found.todense(), np.vstack(parts))
