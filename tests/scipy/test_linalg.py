"""`scipy.linalg` against SciPy in both precisions, its derivatives and transformations."""

import numpy as np
import pytest
import scipy.linalg as sp

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jit, vmap
from amdjax.scipy import linalg
from amdjax.test_util import check_grads

RNG = np.random.default_rng(0)
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def matrix(n, m, dtype):
    x = RNG.normal(size=(n, m))
    return (x + 1j * RNG.normal(size=(n, m)) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def positive(n, dtype):
    a = matrix(n, n, dtype)
    return (a @ a.conj().T + n * np.eye(n)).astype(dtype)


def close(got, want, dtype, units=200):
    got, want = np.asarray(got), np.asarray(want)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(got, want, rtol=units * eps, atol=units * eps * np.abs(want).max())


pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky(dtype, lower):
    a = positive(5, dtype)
    one_triangle = np.tril(a) if lower else np.triu(a)
    factor = linalg.cholesky(one_triangle, lower=lower)
    assert factor.dtype == dtype
    close(factor, sp.cholesky(a, lower=lower), dtype)
    b = matrix(5, 2, dtype)
    solve = jit(lambda a, b: linalg.cho_solve(linalg.cho_factor(a, lower), b))
    close(solve(a, b), np.linalg.solve(a, b), dtype)
    close(linalg.solve(a, b, assume_a="pos", lower=lower), np.linalg.solve(a, b), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_factors_multiply_to_the_matrix(dtype, shape):
    a = matrix(*shape, dtype)
    p, l, u = linalg.lu(a)
    close(np.asarray(p).astype(dtype) @ l @ u, a, dtype)
    pl, u = linalg.lu(a, permute_l=True)
    close(np.asarray(pl) @ u, a, dtype)
    for mode in ("full", "economic"):
        q, r = linalg.qr(a, mode=mode)
        close(np.asarray(q) @ r, a, dtype)
        q, r, order = linalg.qr(a, mode=mode, pivoting=True)
        close(np.asarray(q) @ r, a[:, np.asarray(order)], dtype)
    u, s, vh = linalg.svd(a, full_matrices=False)
    close((np.asarray(u) * s) @ vh, a, dtype)
    side = "right" if shape[0] >= shape[1] else "left"
    for method in ("qdwh", "svd"):
        unitary, semidefinite = linalg.polar(a, side, method=method)
        product = unitary @ semidefinite if side == "right" else semidefinite @ unitary
        close(product, a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hessenberg_and_schur(dtype):
    a = matrix(5, 5, dtype)
    h, q = linalg.hessenberg(a, calc_q=True)
    assert not np.tril(np.asarray(h), -2).any()
    close(q @ h @ q.conj().T, a, dtype)
    for output in ("real", "complex"):
        t, z = linalg.schur(a, output)
        close(z @ t @ z.conj().T, a, dtype)
    t, z = linalg.rsf2csf(*linalg.schur(a))
    assert not np.tril(np.asarray(t), -1).any()
    close(z @ t @ z.conj().T, a, dtype)


@pytest.mark.parametrize("mode", ["left", "right"])
@pytest.mark.parametrize("pivoting", [False, True])
@pytest.mark.parametrize("conjugate", [False, True])
def test_products_with_q(mode, pivoting, conjugate):
    for shape in ((5, 3), (3, 5), (4, 4)):
        a = matrix(*shape, np.complex128)
        k = min(shape)
        c = matrix(k, 2, np.complex128) if mode == "left" else matrix(2, shape[0], np.complex128)
        got = linalg.qr_multiply(a, c, mode, pivoting, conjugate)
        want = sp.qr_multiply(a, c, mode, pivoting, conjugate)
        for g, w in zip(got, want, strict=True):
            close(g, w, np.float64)


@pytest.mark.parametrize("trans", [0, 1, 2, "N", "T", "C"])
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_systems(trans, lower):
    a, b = matrix(4, 4, np.complex128) + 4 * np.eye(4), matrix(4, 2, np.complex128)
    for rhs in (b, b[:, 0]):
        got = linalg.solve_triangular(a, rhs, trans=trans, lower=lower)
        close(got, sp.solve_triangular(a, rhs, trans=trans, lower=lower), np.float64)
    with pytest.raises(ValueError, match="trans"):
        linalg.solve_triangular(a, b, trans=3)


@pytest.mark.parametrize("trans", [0, 1, 2])
def test_lu_solve_over_batches(trans):
    a, b = RNG.normal(size=(3, 4, 4)), RNG.normal(size=(3, 4, 2))
    factors = linalg.lu_factor(a)
    got = linalg.lu_solve(factors, b, trans=trans)
    for i in range(3):
        close(got[i], sp.lu_solve(sp.lu_factor(a[i]), b[i], trans=trans), np.float64)
    close(vmap(lambda f, b: linalg.lu_solve(f, b, trans))(factors, b), got, np.float64)


def test_hermitian_eigenvalues():
    a = positive(4, np.complex128)
    w, v = linalg.eigh(a)
    close(a @ v, v * np.asarray(w), np.float64)
    close(linalg.eigh(a, lower=False, eigvals_only=True), w, np.float64)
    d, e = RNG.normal(size=6), RNG.normal(size=5)
    for off in (e + 1j * RNG.normal(size=5), e):
        w, v = linalg.eigh_tridiagonal(d.astype(off.dtype), off)
        matrix = np.diag(d) + np.diag(off, 1) + np.diag(off.conj(), -1)
        close(w, np.linalg.eigvalsh(matrix), np.float64)
        close(matrix @ v, v * np.asarray(w), np.float64)
    few = linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 3))
    close(few, w[1:4], np.float64)
    for arguments, error in (({"b": a}, "b=None"), ({"type": 2}, "type=1")):
        with pytest.raises(NotImplementedError, match=error):
            linalg.eigh(a, **arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e-3, 0.1, 0.5, 1.0, 4.0, 40.0])
def test_exponential(dtype, size):
    a = matrix(5, 5, dtype)
    a = (a * (size / np.linalg.norm(a, 1))).astype(dtype)
    close(linalg.expm(a), sp.expm(a.astype(np.complex128)), dtype, 2000)
    triangle = np.triu(a)
    close(linalg.expm(triangle, upper_triangular=True), sp.expm(triangle), dtype, 2000)
    assert np.isnan(linalg.expm(a * 1e6, max_squarings=3)).all()


@pytest.mark.turns(3)
def test_derivative_of_the_exponential():
    a, e = RNG.normal(size=(2, 4, 4))
    for got, want in zip(linalg.expm_frechet(a, e), sp.expm_frechet(a, e), strict=True):
        close(got, want, np.float64)
    check_grads(linalg.expm, (a / 3,), 2, modes=["fwd", "rev"])


def test_square_root_and_other_functions():
    a = positive(5, np.float64)
    root = linalg.sqrtm(a)
    close(root @ root, a, np.float64)
    close(linalg.sqrtm(np.diag([-4.0, 9.0])), np.diag([2j, 3]), np.float64)
    value, error = linalg.funm(a, jnp.log, disp=False)
    close(value, sp.logm(a), np.float64, 20000)
    assert error < 1e-9
    spiral = np.array([[0.0, 2.0], [-2.0, 0.0]])
    close(linalg.funm(spiral, jnp.exp), sp.expm(spiral), np.float64)


@pytest.mark.parametrize("method", ["schur", "eigen"])
def test_sylvester(method):
    a, b, c = RNG.normal(size=(3, 3)), RNG.normal(size=(4, 4)), RNG.normal(size=(3, 4))
    got = linalg.solve_sylvester(a, b, c, method=method)
    assert got.dtype == np.float64
    close(got, sp.solve_sylvester(a, b, c), np.float64, 20000)
    assert np.isnan(linalg.solve_sylvester(a, -a, c[:, :3], method=method)).all()


SPECIAL = {
    "companion": ([1.0, -3.0, 2.0, 5.0],),
    "circulant": ([1.0, 2.0, 3.0],),
    "fiedler": ([1.0, 4.0, 12.0],),
    "fiedler_companion": ([1.0, -16.0, 86.0, -176.0, 105.0, 3.0, 4.0],),
    "leslie": ([0.1, 2.0, 1.0], [0.2, 0.8]),
    "toeplitz": ([1.0, 2.0, 3.0], [1.0, 5.0]),
    "hankel": ([1.0, 2.0, 3.0], [3.0, 5.0]),
    "hadamard": (8,), "hilbert": (6,), "invhilbert": (6,), "pascal": (7,), "invpascal": (6,),
    "helmert": (5,), "dft": (6,),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_matrices(name):
    args = [np.array(a) if isinstance(a, list) else a for a in SPECIAL[name]]
    got, want = getattr(linalg, name)(*args), getattr(sp, name)(*args)
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14)
    if isinstance(SPECIAL[name][0], list):
        batch = [np.stack([a, a + 1]) for a in args]
        mapped = vmap(getattr(linalg, name))(*batch)
        np.testing.assert_array_equal(getattr(linalg, name)(*batch), mapped)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_fiedler_companion_has_the_roots(n):
    coefficients = np.poly(np.arange(1.0, n + 1))
    roots = np.linalg.eigvals(np.asarray(linalg.fiedler_companion(coefficients)))
    np.testing.assert_allclose(np.sort(roots.real), np.arange(1.0, n + 1), rtol=1e-6)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_convolution_matrix(mode, n):
    a, v = RNG.normal(size=4), RNG.normal(size=n)
    np.testing.assert_allclose(linalg.convolution_matrix(a, n, mode) @ v, np.convolve(a, v, mode))


def test_kinds_and_scales_of_special_matrices():
    for kind in ("symmetric", "lower", "upper"):
        np.testing.assert_array_equal(linalg.pascal(5, kind), sp.pascal(5, kind))
        np.testing.assert_array_equal(linalg.invpascal(5, kind), sp.invpascal(5, kind))
    np.testing.assert_allclose(linalg.helmert(4, full=True), sp.helmert(4, full=True))
    for scale in ("sqrtn", "n"):
        np.testing.assert_allclose(linalg.dft(5, scale), sp.dft(5, scale), atol=1e-15)
    blocks = [np.ones((1, 2)), 3.0, np.zeros((0, 1)), np.array([4.0, 5.0])]
    np.testing.assert_array_equal(linalg.block_diag(*blocks), sp.block_diag(*blocks))
    assert linalg.block_diag().shape == (1, 0)
    assert linalg.toeplitz(np.array([1, 2], np.int8)).dtype == np.int8


def test_bad_arguments():
    a = np.eye(2)
    for call, error in (
        (lambda: linalg.schur(a, "none"), "output"),
        (lambda: linalg.solve(a, a, assume_a="odd"), "assume_a"),
        (lambda: linalg.qr(a, mode="raw"), "mode"),
        (lambda: linalg.polar(a, "top"), "side"),
        (lambda: linalg.expm(np.ones((2, 3))), "square"),
        (lambda: linalg.hadamard(6), "power of 2"),
        (lambda: linalg.pascal(3, "none"), "kind"),
        (lambda: linalg.leslie(np.ones(3), np.ones(3)), "lengths"),
        (lambda: linalg.solve_sylvester(a, a, np.ones((3, 2))), "Sylvester"),
    ):
        with pytest.raises(ValueError, match=error):
            call()


@pytest.mark.parametrize(
    "f",
    [
        lambda a: linalg.cholesky(a @ a.T + jnp.eye(3)),
        lambda a: linalg.solve(a @ a.T + jnp.eye(3), a, assume_a="pos"),
        lambda a: linalg.cho_solve(linalg.cho_factor(a @ a.T + jnp.eye(3)), a),
        lambda a: linalg.lu_solve(linalg.lu_factor(a), a[0]),
        lambda a: linalg.solve_triangular(a, a.T),
        lambda a: linalg.eigh(a + a.T)[0],
        lambda a: linalg.toeplitz(a[0], a[1])[1:, 1:] @ linalg.companion(linalg.hankel(a[2])[0]),
        lambda a: linalg.det(linalg.block_diag(a, linalg.inv(a) + jnp.eye(3))),
    ],
)
def test_gradients(f):
    a = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
    check_grads(f, (a,), 2, modes=["fwd", "rev"], rtol=1e-4, atol=1e-4)
    batch = np.stack([a, a + 0.1])
    close(vmap(f)(batch)[1], f(batch[1]), np.float64)
    assert grad(lambda a: jnp.sum(f(a)))(a.astype(np.float32)).dtype == np.float32


def test_a_batch_of_vectors_warns():
    a, b = np.stack([np.eye(3)] * 2), np.ones((2, 3))
    with pytest.warns(FutureWarning, match="batched 1D"):
        assert amdjax.scipy.linalg.solve_triangular(a, b).shape == (2, 3)


@pytest.mark.parametrize("shape", [(60_000, 2), (2, 60_000)])
def test_slope_of_pinv_forms_no_square_of_the_longer_extent(shape):
    x, t = RNG.normal(size=(2, *shape))
    _, slope = amdjax.jvp(jnp.linalg.pinv, (x,), (t,))
    step = 1e-6
    expected = (np.linalg.pinv(x + step * t) - np.linalg.pinv(x - step * t)) / (2 * step)
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-9)


def test_only_one_name_of_a_tolerance_is_given():
    a = np.ones((2, 2))
    with pytest.raises(ValueError, match="only one of rtol and rcond"):
        jnp.linalg.pinv(a, rtol=1e-2, rcond=1e-2)
    with pytest.raises(ValueError, match="only one of tol or rtol"):
        jnp.linalg.matrix_rank(a, rtol=1e-2, tol=1e-2)


ONCE = {
    "inv": lambda a: jnp.linalg.inv(a),
    "solve": lambda a: jnp.linalg.solve(a, a[0]),
    "tensorsolve": lambda a: jnp.linalg.tensorsolve(a, a[0]),
    "lstsq": lambda a: jnp.linalg.lstsq(a, a[0]),
    "pinv": lambda a: jnp.linalg.pinv(a),
    "scipy solve": lambda a: linalg.solve(a, a[0]),
    "expm": lambda a: linalg.expm(a),
    "expm_frechet": lambda a: linalg.expm_frechet(a, a),
    "sqrtm": lambda a: linalg.sqrtm(a),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_ran_once_is_not_compiled_again(name, monkeypatch):
    """Functions with programs inside, of solvers or branches, must not make new ones each time."""
    from amdjax.jit.cpu import program

    a = jnp.asarray(positive(3, np.float32))
    ONCE[name](a)
    compiled = []
    plan = program.plan_program
    monkeypatch.setattr(
        program, "plan_program", lambda *args, **kw: compiled.append(1) or plan(*args, **kw)
    )
    ONCE[name](a)
    assert not compiled
    jit(lambda x: x + 3.25)(a)
    assert compiled  # it is where programs are compiled
