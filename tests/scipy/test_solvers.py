"""`scipy.optimize`, `scipy.sparse.linalg` and `scipy.spatial.transform` against SciPy."""

import numpy as np
import pytest
import scipy.optimize as sp
from scipy.spatial import transform as sp_transform

import amdjax.numpy as jnp
from amdjax import grad, jit, jvp, vmap
from amdjax.scipy.optimize import line_search as line_search_module, minimize
from amdjax.scipy.sparse.linalg import bicgstab, cg, gmres
from amdjax.scipy.spatial.transform import Rotation, Slerp
from amdjax.test_util import check_grads

RNG = np.random.default_rng(0)
LBFGS = "l-bfgs-experimental-do-not-rely-on-this"


pytestmark = pytest.mark.usefixtures("double_precision")


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def quartic(x):
    return jnp.sum(x**4) + jnp.sum((x - 1) ** 2) + jnp.prod(jnp.cos(x))


@pytest.mark.parametrize("method", ["BFGS", LBFGS])
@pytest.mark.parametrize(
    ("f", "x0"),
    [(rosenbrock, np.zeros(2)), (rosenbrock, np.full(6, -0.5)), (himmelblau, np.ones(2)),
     (himmelblau, np.array([92.0, 0.001])), (quartic, np.full(4, 3.0))],
)  # fmt: skip
def test_minima(method, f, x0):
    options = {"gtol": 1e-8} if method == "BFGS" else {"gtol": 1e-8, "ftol": 0.0}
    found = jit(lambda x: minimize(f, x, method=method, options=options))(x0)
    want = sp.minimize(lambda x: np.float64(f(x)), x0, jac=lambda x: np.asarray(grad(f)(x)))
    if method == "BFGS" or f is rosenbrock:  # the others have several minima
        np.testing.assert_allclose(found.x, want.x, atol=1e-5)
    assert abs(grad(f)(found.x)).max() < 1e-6
    np.testing.assert_allclose(found.fun, f(found.x))
    np.testing.assert_allclose(found.jac, grad(f)(found.x), atol=1e-12)
    assert found.success and found.status == 0 and found.nfev >= found.nit


def test_minima_of_a_batch_and_of_complex_numbers():
    starts = np.array([[0.0, 0.0], [2.0, 2.0], [-1.0, 1.0]])
    batch = vmap(lambda x: minimize(rosenbrock, x, method="BFGS").x)(starts)
    np.testing.assert_allclose(batch, np.ones((3, 2)), atol=1e-4)
    z0 = np.array([1.0, 2 - 3j, -5j])
    f = lambda z: jnp.sum(jnp.abs(z - z0) ** 2)
    np.testing.assert_allclose(minimize(f, np.zeros(3, complex), method=LBFGS).x, z0, atol=1e-6)


def test_searches_that_end_early():
    for method, status in (("BFGS", 1), (LBFGS, 1)):
        options = {"maxiter": 2 if method == "BFGS" else 1}
        found = minimize(rosenbrock, np.zeros(2), method=method, options=options)
        assert not found.success and found.status == status
    with pytest.raises(TypeError, match=r"args .* must be a tuple"):
        minimize(rosenbrock, np.zeros(2), args=3, method="BFGS")
    with pytest.raises(ValueError, match="not recognized"):
        minimize(rosenbrock, np.zeros(2), method="newton")


@pytest.mark.parametrize("slope", [-1.0, -100.0, -0.01])
def test_line_searches_meet_their_conditions(slope):
    search = line_search_module.line_search
    f = lambda x: jnp.sum(jnp.cos(3 * x) + 0.2 * x**2)
    x = RNG.normal(size=(50, 2))
    p = -np.asarray(vmap(grad(f))(x)) * abs(slope)
    found = vmap(lambda x, p: search(f, x, p))(x, p)
    start, slopes = vmap(f)(x), np.sum(np.asarray(vmap(grad(f))(x)) * p, 1)
    ends = x + np.asarray(found.a_k)[:, None] * p
    np.testing.assert_allclose(found.f_k, vmap(f)(ends))
    ok = ~np.asarray(found.failed)
    assert ok.mean() > 0.9
    assert (found.f_k <= start + 1e-4 * found.a_k * slopes)[ok].all()
    assert (abs(np.sum(np.asarray(found.g_k) * p, 1)) <= -0.9 * slopes)[ok].all()


def system(kind, n=12):
    a = RNG.normal(size=(n, n)) + 1j * RNG.normal(size=(n, n)) * (kind is complex)
    b = RNG.normal(size=n) + 1j * RNG.normal(size=n) * (kind is complex)
    return (a if kind is complex else a.real), (b if kind is complex else b.real)


SOLVERS = {
    "cg": cg, "bicgstab": bicgstab, "gmres": gmres,
    "incremental": lambda *args, **options: gmres(*args, solve_method="incremental", **options),
}  # fmt: skip


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("name", SOLVERS)
def test_iterative_solvers(name, kind):
    a, b = system(kind)
    a = a @ a.conj().T + np.eye(12) * 3 if name == "cg" else a + np.eye(12) * 8
    solve, want = SOLVERS[name], np.linalg.solve(a, b)
    for operator in (a, lambda x: a @ x):
        np.testing.assert_allclose(solve(operator, b, tol=1e-12)[0], want, rtol=1e-8)
    preconditioner = np.diag(1 / np.diag(a))
    np.testing.assert_allclose(
        solve(a, b, x0=np.ones_like(b), tol=1e-12, M=preconditioner)[0], want, rtol=1e-8
    )
    jitted = jit(lambda a, b: solve(a, b, tol=1e-12)[0])
    np.testing.assert_allclose(jitted(a, b), want, rtol=1e-8)
    batch = np.stack([b, 2 * b])
    np.testing.assert_allclose(vmap(jitted, (None, 0))(a, batch)[1], 2 * want, rtol=1e-8)
    if kind is float:
        symmetric = (lambda a: (a + a.T) / 2) if name == "cg" else (lambda a: a)
        f = lambda a, b: solve(symmetric(a), b, tol=1e-13)[0]
        check_grads(f, (a, b), 1, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SOLVERS)
def test_unknowns_are_trees(name):
    b = {"x": np.array([2.0, 4.0]), "y": np.array([[3.0]])}
    operator = lambda t: {"x": 2 * t["x"], "y": 3 * t["y"]}
    found = SOLVERS[name](operator, b)[0]
    np.testing.assert_allclose(found["x"], [1, 2], rtol=1e-6)
    np.testing.assert_allclose(found["y"], [[1]], rtol=1e-6)
    with pytest.raises(ValueError, match="matching tree structure"):
        SOLVERS[name](operator, b, x0=b["x"])
    with pytest.raises(ValueError, match="matching shapes"):
        SOLVERS[name](np.eye(2), np.ones(2), x0=np.ones(3))
    with pytest.raises(ValueError, match="square matrix"):
        SOLVERS[name](np.ones((2, 3)), np.ones(2))
    with pytest.raises(TypeError, match="function or ndarray"):
        SOLVERS[name](3.0, np.ones(2))


def test_gmres_restarts_and_exhausts_the_space():
    a, b = system(float, 30)
    a = a + 12 * np.eye(30)
    for restart in (3, 10, 30):
        x, info = gmres(a, b, restart=restart, tol=1e-10, maxiter=200)
        np.testing.assert_allclose(a @ x, b, atol=1e-8)
        assert info == 0
    projection = np.diag([1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(gmres(projection, np.array([1.0, 2, 3, 0]))[0], [1, 2, 3, 0])
    assert not np.any(gmres(np.eye(3), np.zeros(3))[0])
    with pytest.raises(ValueError, match="solve_method"):
        gmres(a, b, solve_method="none")


def test_solutions_do_not_depend_on_the_guess_for_derivatives():
    a, b = system(float)
    a = a @ a.T + np.eye(12)
    f = lambda x0: cg(a, b, x0=x0)[0]
    assert not np.any(jvp(f, (np.ones(12),), (np.ones(12),))[1])


QUATERNIONS = RNG.normal(size=(9, 4))


def both(quat=QUATERNIONS):
    return Rotation.from_quat(quat), sp_transform.Rotation.from_quat(quat)


def test_forms_of_rotations():
    ours, theirs = both()
    for name in ("as_matrix", "as_mrp", "as_rotvec", "as_quat", "magnitude"):
        np.testing.assert_allclose(getattr(ours, name)(), getattr(theirs, name)(), atol=1e-12)
        np.testing.assert_allclose(getattr(ours[3], name)(), getattr(theirs[3], name)(), atol=1e-12)
    np.testing.assert_allclose(ours.as_rotvec(degrees=True), theirs.as_rotvec(degrees=True))
    for options in ({"canonical": True}, {"scalar_first": True}):
        np.testing.assert_allclose(ours.as_quat(**options), theirs.as_quat(**options))
    for name in ("matrix", "mrp", "rotvec"):
        value = getattr(theirs, f"as_{name}")()
        back = getattr(Rotation, f"from_{name}")(value).as_matrix()
        np.testing.assert_allclose(back, theirs.as_matrix(), atol=1e-12)
    np.testing.assert_allclose(Rotation.identity().as_matrix(), np.eye(3))
    np.testing.assert_allclose(Rotation.from_rotvec(np.zeros(3)).as_rotvec(), np.zeros(3))


@pytest.mark.parametrize("seq", ["xyz", "ZYX", "zxz", "XYX", "yzy", "YXZ"])
def test_euler_angles(seq):
    angles = RNG.uniform(-1.4, 1.4, size=(7, 3))
    for degrees in (False, True):
        ours = Rotation.from_euler(seq, angles, degrees)
        theirs = sp_transform.Rotation.from_euler(seq, angles, degrees)
        np.testing.assert_allclose(ours.as_matrix(), theirs.as_matrix(), atol=1e-12)
        np.testing.assert_allclose(
            ours.as_euler(seq, degrees), theirs.as_euler(seq, degrees), atol=1e-10
        )


def test_rotations_work_together():
    ours, theirs = both()
    v, w = RNG.normal(size=(9, 3)), RNG.uniform(size=9)
    np.testing.assert_allclose(ours.apply(v), theirs.apply(v))
    np.testing.assert_allclose(ours.apply(v[0], inverse=True), theirs.apply(v[0], inverse=True))
    np.testing.assert_allclose((ours * ours[0]).as_matrix(), (theirs * theirs[0]).as_matrix())
    np.testing.assert_allclose(ours.inv().as_matrix(), theirs.inv().as_matrix())
    np.testing.assert_allclose(ours.mean(w).as_matrix(), theirs.mean(w).as_matrix(), atol=1e-9)
    joined = Rotation.concatenate([ours, ours[:2]])
    assert len(joined) == 11 and not joined.single and joined[0].single
    mapped = vmap(lambda r, v: r.apply(v))(ours, v)
    np.testing.assert_allclose(jit(lambda r: r.apply(v))(ours), mapped)
    check_grads(lambda q, v: Rotation.from_quat(q).apply(v), (QUATERNIONS, v), 1)
    assert np.isfinite(grad(lambda v: Rotation.from_rotvec(v).as_matrix().sum())(np.zeros(3))).all()


def test_between_rotations():
    ours, theirs = both()
    times = np.arange(9.0)
    at = np.linspace(0, 8, 30)
    want = sp_transform.Slerp(times, theirs)(at).as_matrix()
    np.testing.assert_allclose(Slerp.init(times, ours)(at).as_matrix(), want, atol=1e-10)
    np.testing.assert_allclose(Slerp.init(times, ours)(at[7]).as_matrix(), want[7], atol=1e-10)


def test_rotations_refuse():
    ours, _ = both()
    for call, error in (
        (lambda: Rotation.from_euler("xx", np.ones(2)), "consecutive axes"),
        (lambda: Rotation.from_euler("xY", np.ones(2)), "Expected axes"),
        (lambda: Rotation.from_euler("xyzx", np.ones(4)), "axis specification"),
        (lambda: ours.as_euler("xy"), "3 axes"),
        (lambda: ours.mean(np.ones(2)), "number of rotations"),
        (lambda: Slerp.init(np.ones(2), ours), "timestamps"),
        (lambda: Slerp.init(np.ones(1), ours[0]), "at least 2"),
    ):
        with pytest.raises(ValueError, match=error):
            call()
    for call in (lambda: ours[0][0], lambda: len(ours[0]), lambda: Slerp.init(np.ones(1), None)):
        with pytest.raises(TypeError):
            call()
