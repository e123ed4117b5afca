import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, strategies as st

from amdjax import lax
from amdjax.core.config import enable_x64
from amdjax.lax import linalg
from tests.support.lax_checks import check_batching, check_derivatives

DTYPES = [np.float32, np.complex64]
sizes = st.integers(0, 6)
batches = st.lists(st.integers(0, 3), max_size=2).map(tuple)


def matrix(shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def adjoint(x):
    return np.swapaxes(np.asarray(x), -1, -2).conj()


def positive(shape, dtype=np.float64, seed=0):
    x = matrix(shape, dtype, seed)
    return (x @ adjoint(x) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def hermitian(shape, dtype=np.float64, seed=0):
    x = matrix(shape, dtype, seed)
    return (x + adjoint(x)) / 2


def close(found, wanted, tol=2e-4):
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=tol, atol=tol)


@given(batches, sizes, st.sampled_from(DTYPES))
def test_cholesky(batch, n, dtype):
    x = positive((*batch, n, n), dtype)
    found = linalg.cholesky(x)
    close(found, np.linalg.cholesky(x))
    assert found.dtype == dtype
    close(linalg.cholesky(np.tril(x), symmetrize_input=False), np.linalg.cholesky(x))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_the_hermitian_part_of_integers_is_of_floats(dtype):
    x = np.array([[100, 1], [1, 100]]).astype(dtype)  # sums in int8 would wrap
    factor, (_, values) = linalg.cholesky(x), linalg.eigh(x)
    assert factor.dtype == values.dtype == np.float32
    if dtype != "bool":
        close(factor, np.linalg.cholesky(x.astype(np.float32)))
    close(values, np.linalg.eigvalsh(x.astype(np.float32)))


def test_cholesky_of_an_indefinite_matrix_is_nan():
    x = np.stack([np.eye(3), -np.eye(3), 2 * np.eye(3)]).astype(np.float32)
    found = np.asarray(linalg.cholesky(x))
    assert np.isnan(found[1][np.tril_indices(3)]).all() and not np.triu(found[1], 1).any()
    close(found[[0, 2]], np.linalg.cholesky(x[[0, 2]]))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_cholesky_rules(dtype):
    fun = lambda x: linalg.cholesky(x)
    check_derivatives(fun, positive((2, 3, 3), dtype))
    check_batching(fun, positive((3, 3), np.float32), rtol=1e-4, atol=1e-4)


def test_half_precision_is_computed_in_single():
    import ml_dtypes

    x = positive((3, 3), np.float32)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        found = linalg.cholesky(x.astype(dtype))
        assert found.dtype == dtype
        close(np.asarray(found).astype(np.float32), np.linalg.cholesky(x), 0.05)


@given(sizes)
def test_cholesky_update(n):
    r = np.linalg.cholesky(positive((n, n))).T.astype(np.float32)
    w = matrix((n,), np.float32, 1)
    found = np.asarray(linalg.cholesky_update(r, w))
    close(found.T @ found, r.T @ r + np.outer(w, w), 1e-3)
    close(found, np.triu(found))


@given(batches, sizes, sizes, st.sampled_from(DTYPES))
def test_lu(batch, m, n, dtype):
    x = matrix((*batch, m, n), dtype)
    factors, pivots, order = (np.asarray(y) for y in linalg.lu(x))
    k = min(m, n)
    lower = np.tril(factors[..., :k], -1) + np.eye(m, k)
    upper = np.triu(factors[..., :k, :])
    close(lower @ upper, np.take_along_axis(x, order[..., None], -2))
    assert np.abs(lower).max(initial=0) <= 1.0001 * np.sqrt(2)
    np.testing.assert_array_equal(linalg.lu_pivots_to_permutation(pivots, m), order)
    assert pivots.shape == (*batch, k)
    assert pivots.dtype == order.dtype == np.int32


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_lu_rules(shape, dtype):
    fun = lambda x: linalg.lu(x)[0]
    check_derivatives(fun, matrix(shape, dtype))
    check_batching(lambda x: linalg.lu(x), matrix(shape[-2:], np.float32), rtol=1e-4, atol=1e-4)


@given(batches, st.integers(1, 5), st.integers(1, 3), st.sampled_from(DTYPES))
def test_lu_solve(batch, n, k, dtype):
    x = matrix((*batch, n, n), dtype) + 3 * np.eye(n, dtype=dtype)
    b = matrix((*batch, n, k), dtype, 1)
    factors, _, order = linalg.lu(x)
    for trans, a in enumerate((x, np.swapaxes(x, -1, -2), adjoint(x))):
        found = np.asarray(linalg.lu_solve(factors, order, b, trans))
        close(a @ found, b, 2e-3)
        vector = np.asarray(linalg.lu_solve(factors, order, b[..., 0], trans))
        close(vector, found[..., 0])


@given(batches, sizes, sizes, st.booleans(), st.booleans(), st.sampled_from(DTYPES))
def test_qr(batch, m, n, full, pivoting, dtype):
    x = matrix((*batch, m, n), dtype)
    q, r, *order = (np.asarray(y) for y in linalg.qr(x, full_matrices=full, pivoting=pivoting))
    k = m if full else min(m, n)
    assert q.shape == (*batch, m, k)
    assert r.shape == (*batch, k, n)
    close(adjoint(q) @ q, np.broadcast_to(np.eye(k), (*batch, k, k)))
    close(np.tril(r, -1), np.zeros_like(r))
    if pivoting:
        x = np.take_along_axis(x, order[0][..., None, :], -1)
        size = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
        assert (np.diff(size, axis=-1) <= 1e-4).all()
    close(q @ r, x)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3)])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_qr_rules(shape, full, dtype):
    fun = lambda x: linalg.qr(x, full_matrices=full)
    check_derivatives(fun, matrix(shape, dtype), order=1 if shape == (4, 2) and full else 2)
    check_derivatives(lambda x: linalg.qr(x, full_matrices=False, pivoting=True), matrix(shape))
    check_batching(fun, matrix(shape[-2:], np.float32), rtol=1e-4, atol=1e-4)


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from(DTYPES))
def test_householder(m, n, dtype):
    m, n = max(m, n), min(m, n)
    x = matrix((2, m, n), dtype)
    h, taus = linalg.geqrf(x)
    q = np.asarray(linalg.householder_product(h, taus))
    close(q @ np.triu(np.asarray(h)[..., :n, :]), x)
    c = matrix((2, m, 3), dtype, 1)
    full = np.asarray(linalg.ormqr(h, taus, np.broadcast_to(np.eye(m, dtype=dtype), (2, m, m))))
    close(full[..., :n], q)
    close(linalg.ormqr(h, taus, c), full @ c)
    close(linalg.ormqr(h, taus, c, transpose=True), adjoint(full) @ c)
    flat = np.swapaxes(c, -1, -2).copy()
    close(linalg.ormqr(h, taus, flat, left=False), flat @ full)


@given(batches, sizes, st.sampled_from(DTYPES), st.booleans())
def test_eigh(batch, n, dtype, lower):
    x = hermitian((*batch, n, n), dtype)
    v, w = (np.asarray(y) for y in linalg.eigh(x))
    close(w, np.linalg.eigvalsh(x))
    close(x @ v, v * w[..., None, :])
    half = np.tril(x) if lower else np.triu(x)
    close(linalg.eigh(half, lower=lower, symmetrize_input=False)[1], w)
    if n > 2:
        close(linalg.eigh(x, subset_by_index=(1, 3))[1], w[..., 1:3])


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_eigh_rules(dtype):
    x = hermitian((2, 3, 3), dtype)
    check_derivatives(lambda x: linalg.eigh(x)[1], x)

    # Eigenvectors are determined up to a phase, which need not be smooth.
    if dtype == np.float64:
        check_derivatives(lambda x: lax.mul(linalg.eigh(x)[0], linalg.eigh(x)[0]), x)
    else:
        fun = lambda x: lax.real(lax.mul(*(f(linalg.eigh(x)[0]) for f in (lax.conj, lambda v: v))))
        check_derivatives(fun, x, order=1)
    check_batching(lambda x: linalg.eigh(x)[1], x[0].astype(np.complex64), rtol=1e-4, atol=1e-4)


@given(batches, sizes, st.sampled_from(DTYPES))
def test_eig(batch, n, dtype):
    x = matrix((*batch, n, n), dtype)
    w, left, right = (np.asarray(y) for y in linalg.eig(x))
    close(x @ right, right * w[..., None, :], 1e-3)
    close(adjoint(left) @ x, w[..., None] * adjoint(left), 1e-3)
    for v in (left, right):
        close(np.linalg.norm(v, axis=-2), np.ones((*batch, n)))
    assert len(linalg.eig(x, compute_left_eigenvectors=False)) == 2
    (alone,) = linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    close(np.sort(np.asarray(alone).real), np.sort(w.real), 1e-3)


def test_eig_rules():
    x = matrix((3, 3), np.complex128, 3)
    alone = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}
    check_derivatives(lambda x: linalg.eig(x, **alone), x)
    fun = lambda x: linalg.eig(x, enable_eigvec_derivs=True)
    # Normed eigenvectors are no holomorphic functions: forward mode alone speaks of them.
    check_derivatives(fun, x, order=1, reverse=False)
    check_batching(fun, x.astype(np.complex64), rtol=1e-3, atol=1e-3)
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs=True"):
        check_derivatives(lambda x: linalg.eig(x), x)


@given(batches, sizes, st.sampled_from(DTYPES))
def test_schur(batch, n, dtype):
    x = matrix((*batch, n, n), dtype)
    t, q = (np.asarray(y) for y in linalg.schur(x))
    close(q @ t @ adjoint(q), x, 1e-3)
    close(np.tril(t, -2 if dtype == np.float32 else -1), np.zeros_like(t))
    (alone,) = linalg.schur(x, compute_schur_vectors=False)
    close(alone, t)


@given(batches, st.integers(1, 6), st.sampled_from(DTYPES))
def test_hessenberg(batch, n, dtype):
    x = matrix((*batch, n, n), dtype)
    compact, taus = (np.asarray(y) for y in linalg.hessenberg(x))
    assert taus.shape == (*batch, n - 1)
    for k in np.ndindex(*batch):
        form = np.triu(compact[k], -1)
        close(np.trace(form), np.trace(x[k]), 1e-3)
        close(np.linalg.norm(form), np.linalg.norm(x[k]), 1e-3)
        if n > 2:
            close(form, scipy.linalg.hessenberg(x[k]), 1e-3)


@given(batches, st.integers(1, 6), st.sampled_from(DTYPES), st.booleans())
def test_tridiagonal(batch, n, dtype, lower):
    x = hermitian((*batch, n, n), dtype)
    _, d, e, taus = (np.asarray(y) for y in linalg.tridiagonal(x, lower=lower))
    assert taus.shape == e.shape == (*batch, n - 1)
    for k in np.ndindex(*batch):
        found = np.diag(d[k]) + np.diag(e[k], 1) + np.diag(e[k], -1)
        close(np.linalg.eigvalsh(found), np.linalg.eigvalsh(x[k]), 1e-3)


@given(batches, sizes, sizes, st.booleans(), st.sampled_from(DTYPES))
def test_svd(batch, m, n, full, dtype):
    x = matrix((*batch, m, n), dtype)
    u, s, vh = (np.asarray(y) for y in linalg.svd(x, full_matrices=full))
    k = min(m, n)
    close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)
    for basis in (u, adjoint(vh)):
        close(
            adjoint(basis) @ basis,
            np.broadcast_to(np.eye(basis.shape[-1]), basis.shape[:-2] + 2 * basis.shape[-1:]),
        )
    close(linalg.svd(x, compute_uv=False), s)
    close(linalg.svd(x, compute_uv=False, algorithm=linalg.SvdAlgorithm.QR), s)
    if k > 1:
        close(linalg.svd(x, full_matrices=False, subset_by_index=(0, 1))[1], s[..., :1])


def test_svd_of_nan_is_nan():
    x = np.full((2, 3, 3), 1.0, np.float32)
    x[1, 0, 0] = np.nan
    found = np.asarray(linalg.svd(x, compute_uv=False))
    assert np.isnan(found[1]).all()
    close(found[0], [3, 0, 0])


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3)])
def test_svd_rules(shape):
    x = matrix(shape)
    check_derivatives(lambda x: linalg.svd(x, full_matrices=False), x)
    check_derivatives(lambda x: linalg.svd(x, compute_uv=False), x)
    z = matrix(shape, np.complex128)
    # Its vectors' phases aside, the decomposition of a complex matrix is smooth.
    magnitude = lambda v: lax.real(lax.mul(v, lax.conj(v)))
    fun = lambda z: [magnitude(v) for v in linalg.svd(z, full_matrices=False)[::2]]
    check_derivatives(fun, z, order=1)
    check_batching(lambda x: linalg.svd(x), matrix(shape[-2:], np.float32), rtol=1e-3, atol=1e-3)


def test_qdwh():
    x = matrix((4, 3), np.float32)
    u, h, _, converged = linalg.qdwh(x)
    wanted_u, wanted_h = scipy.linalg.polar(x)
    close(u, wanted_u)
    close(h, wanted_h)
    assert bool(converged)


FLAGS = st.fixed_dictionaries(
    {
        name: st.booleans()
        for name in ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    }
)


def operator_of(a, flags):
    a = np.tril(a) if flags["lower"] else np.triu(a)
    if flags["unit_diagonal"]:
        a = a - a * np.eye(a.shape[-1]) + np.eye(a.shape[-1])
    a = np.swapaxes(a, -1, -2) if flags["transpose_a"] else a
    return a.conj() if flags["conjugate_a"] else a


@given(batches, st.integers(1, 5), st.integers(1, 4), FLAGS, st.sampled_from(DTYPES))
def test_triangular_solve(batch, n, k, flags, dtype):
    a = matrix((*batch, n, n), dtype) + 3 * np.eye(n, dtype=dtype)
    b = matrix((*batch, n, k) if flags["left_side"] else (*batch, k, n), dtype, 1)
    found = np.asarray(linalg.triangular_solve(a, b, **flags))
    op = operator_of(a, flags)
    close(op @ found if flags["left_side"] else found @ op, b, 5e-3)
    vector = b[..., 0] if flags["left_side"] else b[..., 0, :]
    alone = np.asarray(linalg.triangular_solve(a, vector, **flags))
    close(alone, found[..., 0] if flags["left_side"] else found[..., 0, :], 5e-3)


@given(FLAGS, st.sampled_from([np.float64, np.complex128]), st.sampled_from([(3, 2), (2, 3)]))
def test_triangular_solve_rules(flags, dtype, sizes):
    n, k = sizes
    a = matrix((2, n, n), dtype) + 3 * np.eye(n, dtype=dtype)
    b = matrix((2, n, k) if flags["left_side"] else (2, k, n), dtype, 1)
    fun = lambda a, b: linalg.triangular_solve(a, b, **flags)
    # Conjugation is not holomorphic in `a`.
    if flags["conjugate_a"] and dtype == np.complex128:
        check_derivatives(lambda b: linalg.triangular_solve(a, b, **flags), b)
    else:
        check_derivatives(fun, a, b)
    check_batching(fun, a[0].astype(np.complex64), b[0].astype(np.complex64), rtol=1e-3, atol=1e-3)


@given(batches, st.integers(1, 6), st.integers(1, 3), st.sampled_from(DTYPES), st.booleans())
def test_tridiagonal_solve(batch, m, k, dtype, perturb):
    dl, d, du = (matrix((*batch, m), dtype, seed) for seed in range(3))
    d = d + 4
    b = matrix((*batch, m, k), dtype, 4)
    found = np.asarray(linalg.tridiagonal_solve(dl, d, du, b, perturb_singular=perturb))
    for i in np.ndindex(*batch):
        a = np.diag(d[i]) + np.diag(dl[i][1:], -1) + np.diag(du[i][:-1], 1)
        close(a @ found[i], b[i], 1e-3)


def test_perturbed_tridiagonal_solve_pivots_and_stays_finite():
    rng = np.random.default_rng(0)
    for _ in range(20):
        dl, d, du = (rng.standard_normal(6) for _ in range(3))
        b = rng.standard_normal((6, 2))
        with enable_x64(True):
            found = linalg.tridiagonal_solve(dl, d, du, b, perturb_singular=True)
            np.testing.assert_allclose(
                found, linalg.tridiagonal_solve(dl, d, du, b), rtol=1e-6, atol=1e-6
            )
    zero, one = np.zeros(3, np.float32), np.ones((3, 1), np.float32)
    assert np.isfinite(
        np.asarray(linalg.tridiagonal_solve(zero, zero, zero, one, perturb_singular=True))
    ).all()
    assert np.isnan(np.asarray(linalg.tridiagonal_solve(zero, zero, zero, one))).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_tridiagonal_solve_rules(dtype):
    dl, d, du = (matrix((2, 4), dtype, seed) for seed in range(3))
    b = matrix((2, 4, 2), dtype, 4)
    fun = lambda *args: linalg.tridiagonal_solve(*args)
    check_derivatives(fun, dl, d + 4, du, b)
    args = [x[0].astype(np.complex64) for x in (dl, d + 4, du, b)]
    check_batching(fun, *args, rtol=1e-3, atol=1e-3, axes=(0,))


@given(batches, sizes, sizes, st.booleans())
def test_symmetric_product(batch, m, n, symmetrize):
    a, c = matrix((*batch, m, n), np.float32), hermitian((*batch, m, m), np.float32)
    found = linalg.symmetric_product(a, c, alpha=0.5, beta=2.0, symmetrize_output=symmetrize)
    close(found, 0.5 * a @ adjoint(a) + 2 * c)


def test_symmetric_product_rules():
    a, c = matrix((2, 3, 4)), hermitian((2, 3, 3))
    fun = lambda a, c: linalg.symmetric_product(a, c, alpha=0.5, beta=2.0)
    check_derivatives(fun, a, c)
    check_batching(fun, a[0].astype(np.float32), c[0].astype(np.float32), rtol=1e-4, atol=1e-4)


X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize("name", ["cholesky", "lu", "qr", "svd", "eigh", "eig", "schur"])
def test_vectors_are_no_matrices(name):
    with pytest.raises((TypeError, ValueError), match="dimension"):
        getattr(linalg, name)(
            X[0], **({"symmetrize_input": False} if name in ("cholesky", "eigh") else {})
        )


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: linalg.cholesky(X, symmetrize_input=False), ValueError, "square"),
        (lambda: linalg.eig(X), ValueError, "square"),
        (lambda: linalg.schur(X), ValueError, "square"),
        (lambda: linalg.hessenberg(X), ValueError, "square"),
        (lambda: linalg.lu(X.astype(np.int32)), TypeError, "int32"),
        (lambda: linalg.triangular_solve(X[:, :2], X), ValueError, "incompatible shapes"),
        (lambda: linalg.triangular_solve(X[None, :, :2], X), TypeError, "batch dimensions"),
        (lambda: linalg.tridiagonal_solve(X, X, X, X), (TypeError, ValueError), "batch|diagonal"),
        (lambda: linalg.lu_pivots_to_permutation(np.zeros(3, np.int32), 2), ValueError, "size=2"),
        (lambda: linalg.svd(X, subset_by_index=(0, 1)), ValueError, "full_matrices"),
        (lambda: linalg.qdwh(X), ValueError, "rows"),
        (lambda: linalg.householder_product(X, X[0]), ValueError, "m >= n"),
        (lambda: linalg.schur(X[:, :2], sort_eig_vals=True), NotImplementedError, "sort"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
