"""jvp, vjp, linearize, grad, Jacobians: values against formulas, and errors."""

from typing import NamedTuple

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.test_util import check_grads
from tests.support.lax_checks import close, total

X = np.array([0.3, -0.7, 1.2], np.float32)


def f(x):
    return lax.mul(lax.sin(x), x)


def df(x):
    return np.cos(x) * x + np.sin(x)


def test_jvp():
    y, dy = amdjax.jvp(f, (X,), (np.ones_like(X),))
    close(y, np.sin(X) * X)
    close(dy, df(X))


def test_vjp():
    y, pull = amdjax.vjp(f, X)
    (ct,) = pull(2 * np.ones_like(X))
    close(y, np.sin(X) * X)
    close(ct, 2 * df(X))


def test_linearize_can_be_called_often():
    y, push = amdjax.linearize(f, X)
    close(y, np.sin(X) * X)
    for scale in (1, 2):
        close(push(np.full_like(X, scale)), scale * df(X))


def test_grad_and_value():
    close(amdjax.grad(lambda x: total(f(x)))(X), df(X))
    value, g = amdjax.value_and_grad(lambda x: total(f(x)))(X)
    close(value, np.sum(np.sin(X) * X))
    close(g, df(X))


def test_argnums_and_keywords():
    def g(x, y, *, scale):
        return lax.mul(lax.mul(x, y), scale)

    close(amdjax.grad(g)(2.0, 3.0, scale=2.0), 6.0)
    close(amdjax.grad(g, argnums=1)(2.0, 3.0, scale=2.0), 4.0)
    close(amdjax.grad(g, argnums=-1)(2.0, 3.0, scale=2.0), 4.0)
    gx, gy = amdjax.grad(g, argnums=(0, 1))(2.0, 3.0, scale=2.0)
    close((gx, gy), (6.0, 4.0))


def test_pytrees():
    class Params(NamedTuple):
        w: object
        b: object

    def loss(params, data):
        return total(lax.add(lax.mul(params.w, data["x"]), params.b[0]))

    g = amdjax.grad(loss)(Params(X, [X]), {"x": 2 * X})
    assert isinstance(g, Params)
    close(g.w, 2 * X)
    close(g.b[0], np.ones(3))


def test_has_aux():
    def g(x):
        return total(f(x)), {"y": lax.cos(x), "label": "text", "n": 3}

    grad, aux = amdjax.grad(g, has_aux=True)(X)
    close(grad, df(X))
    close(aux["y"], np.cos(X))
    assert (aux["label"], aux["n"]) == ("text", 3)
    (_, aux), _ = amdjax.value_and_grad(g, has_aux=True)(X)
    close(aux["y"], np.cos(X))
    _, _, aux = amdjax.jvp(lambda x: (f(x), lax.cos(x)), (X,), (X,), has_aux=True)
    close(aux, np.cos(X))
    _, _, aux = amdjax.vjp(lambda x: (f(x), lax.cos(x)), X, has_aux=True)
    close(aux, np.cos(X))
    _, _, aux = amdjax.linearize(lambda x: (f(x), lax.cos(x)), X, has_aux=True)
    close(aux, np.cos(X))


def test_results_that_do_not_depend_on_the_input():
    close(amdjax.grad(lambda x: np.float32(3))(X), np.zeros(3))
    _, dy = amdjax.jvp(lambda x: (x, np.float32(3)), (X,), (X,))
    close(dy[1], 0.0)
    _, push = amdjax.linearize(lambda x: (x, np.float32(3)), X)
    close(push(X)[1], 0.0)


def test_integers_have_float0_tangents():
    _, pull = amdjax.vjp(lambda x, n: lax.mul(x, lax.convert_element_type(n, np.float32)), 2.0, 3)
    gx, gn = pull(1.0)
    close(gx, 3.0)
    assert np.asarray(gn).dtype == amdjax.float0
    g = amdjax.grad(
        lambda n: lax.mul(lax.convert_element_type(n, np.float32), 2.0), allow_int=True
    )(3)
    assert g.dtype == amdjax.float0
    batch = amdjax.vmap(amdjax.grad(lambda x, n: lax.mul(x, x), (0, 1), allow_int=True))
    gx, gn = batch(X, np.arange(3))
    close(gx, 2 * X)
    assert (np.asarray(gn).dtype, gn.shape) == (amdjax.float0, (3,))
    zero = np.zeros((), amdjax.float0)
    close(amdjax.jvp(lambda n, x: lax.mul(x, x), (3, 2.0), (zero, 1.0))[1], 4.0)


def test_complex_derivatives():
    z = np.complex64(1 + 2j)
    g = amdjax.grad(lambda z: lax.mul(z, z), holomorphic=True)(z)
    close(g, 2 * z)
    g = amdjax.grad(lambda z: lax.add(lax.square(lax.real(z)), lax.square(lax.imag(z))))(z)
    close(g, 2 * np.conj(z))


def test_jacobians_agree():
    def g(x):
        return lax.mul(f(x), total(x))

    forward, reverse = amdjax.jacfwd(g)(X), amdjax.jacrev(g)(X)
    expected = np.diag(df(X) * X.sum()) + (np.sin(X) * X)[:, None]
    close(forward, expected)
    close(reverse, expected)
    close(amdjax.jacobian(g)(X), expected)


def test_jacobians_of_pytrees():
    def g(p):
        return {"s": lax.mul(p["a"], p["b"]), "t": p["a"]}

    point = {"a": X, "b": np.float32(2)}
    for jac in (amdjax.jacfwd(g)(point), amdjax.jacrev(g)(point)):
        close(jac["s"]["a"], 2 * np.eye(3))
        close(jac["s"]["b"], X)
        close(jac["t"]["a"], np.eye(3))
        close(jac["t"]["b"], np.zeros(3))
    jac = amdjax.jacfwd(lambda x, y: lax.mul(x, y), argnums=(0, 1))(X, 2 * X)
    close(jac[0], np.diag(2 * X))
    _, aux = amdjax.jacrev(lambda x: (x, 7), has_aux=True)(X)
    assert aux == 7
    _, aux = amdjax.jacfwd(lambda x: (x, 7), has_aux=True)(X)
    assert aux == 7


def test_hessian():
    def g(x):
        return lax.mul(total(f(x)), total(x))

    d2 = np.diag((2 * np.cos(X) - X * np.sin(X)) * X.sum())
    close(amdjax.hessian(g)(X), d2 + df(X)[:, None] + df(X)[None, :], 1e-4)


def test_linear_transpose():
    def g(x):
        return lax.mul(x, np.float32(3)), total(x)

    (ct,) = amdjax.linear_transpose(g, amdjax.ShapeDtypeStruct((3,), np.float32))(
        (X, np.float32(1))
    )
    close(ct, 3 * X + 1)


def test_linear_transposes_leave_compiled_functions():
    scaled = amdjax.jit(lambda a: amdjax.linear_transpose(lambda x: a * x, X))(2 * X)
    (ct,) = amdjax.jit(lambda f, x: f(x))(scaled, X)
    close(ct, 2 * X * X)


def test_linear_transpose_of_integers():
    matrix = np.arange(12).reshape(3, 4)
    (ct,) = amdjax.linear_transpose(lambda x: (lax.dot(matrix, x), -x[:2]), np.arange(4))(
        (np.array([1, -2, 5]), np.array([7, 8]))
    )
    assert ct.dtype == np.int32
    np.testing.assert_array_equal(ct, matrix.T @ [1, -2, 5] - [7, 8, 0, 0])


def test_pull_backs_are_pytrees():
    leaves = amdjax.tree_util.tree_leaves(amdjax.vjp(f, X)[1])
    assert len(leaves) > 0
    pull = amdjax.jit(lambda x: amdjax.vjp(f, x)[1])(X)
    close(pull(np.ones_like(X))[0], df(X))


def test_check_grads_agrees_with_itself():
    with amdjax.enable_x64(True):
        check_grads(f, (np.array([0.3, -0.7]),), order=3)

    @amdjax.custom_jvp
    def wrong(x):
        return lax.sin(x)

    wrong.defjvp(lambda p, t: (wrong(*p), t[0]))
    with pytest.raises(AssertionError, match="fwd jvp: tangent"):
        check_grads(wrong, (X,), order=1)
    with pytest.raises(ValueError, match="modes"):
        check_grads(f, (X,), order=1, modes=("sideways",))


ERRORS = {
    "vector output": (lambda: amdjax.grad(f)(X), TypeError, r"shape: \(3,\)"),
    "tuple output": (lambda: amdjax.grad(lambda x: (x, x))(1.0), TypeError, "scalar-output"),
    "int input": (lambda: amdjax.grad(lambda x: x)(1), TypeError, "int32.*allow_int"),
    "bool input": (lambda: amdjax.grad(lambda x: x)(True), TypeError, "bool"),
    "int output": (
        lambda: amdjax.grad(lambda x: lax.convert_element_type(x, np.int32))(1.0),
        TypeError,
        "real-valued outputs",
    ),
    "complex output": (
        lambda: amdjax.grad(lambda x: lax.complex(x, x))(1.0),
        TypeError,
        "holomorphic=True",
    ),
    "holomorphic with reals": (
        lambda: amdjax.grad(lambda x: x, holomorphic=True)(1.0),
        TypeError,
        "complex dtype",
    ),
    "not callable": (lambda: amdjax.grad(3), TypeError, "callable"),
    "argnums type": (lambda: amdjax.grad(f, argnums="x"), TypeError, "argnums"),
    "argnums range": (lambda: amdjax.grad(f, argnums=1)(1.0), TypeError, "at least 2 positional"),
    "string argument": (lambda: amdjax.grad(lambda x: 1.0)("a"), TypeError, "'a'"),
    "aux missing": (lambda: amdjax.grad(lambda x: x, has_aux=True)(1.0), TypeError, "two-element"),
    "jvp not tuples": (lambda: amdjax.jvp(f, X, X), TypeError, "tuples or lists"),
    "jvp structure": (lambda: amdjax.jvp(f, (X,), (X, X)), TypeError, "tree structure"),
    "jvp shape": (lambda: amdjax.jvp(f, (X,), (X[:2],)), ValueError, r"\(3,\) and \(2,\)"),
    "jvp dtype": (lambda: amdjax.jvp(f, (X,), (X.astype("i4"),)), TypeError, "float32"),
    "jvp of int": (lambda: amdjax.jvp(lambda n: n, (1,), (1,)), TypeError, "float0"),
    "vjp structure": (lambda: amdjax.vjp(f, X)[1]((X, X)), ValueError, "structure"),
    "vjp shape": (lambda: amdjax.vjp(f, X)[1](X[:2]), ValueError, "shape"),
    "vjp dtype": (lambda: amdjax.vjp(f, X)[1](X.astype("i4")), ValueError, "dtype"),
    "linearize shape": (lambda: amdjax.linearize(f, X)[1](X[:2]), ValueError, "inconsistent"),
    "transpose int": (lambda: amdjax.linear_transpose(lambda x: 2.0 * x, 1), TypeError, "int32"),
    "transpose non-linear": (
        lambda: amdjax.linear_transpose(lax.sin, 1.0)(1.0),
        NotImplementedError,
        "sin",
    ),
    "jacfwd int": (lambda: amdjax.jacfwd(lambda x: x)(1), TypeError, "real-valued inputs"),
    "jacrev complex": (
        lambda: amdjax.jacrev(lambda x: lax.complex(x, x))(1.0),
        TypeError,
        "jacrev",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_is_wrong(case):
    call, error, message = ERRORS[case]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("x", [0.5, np.float64(0.5)])
@pytest.mark.parametrize(
    "transform", [amdjax.grad, lambda f: lambda x: amdjax.jvp(f, (x,), (1.0,))[1]]
)
def test_arguments_keep_their_dtype_where_settings_change(transform, x):
    def f(x):
        with amdjax.enable_x64(True):
            return amdjax.numpy.sin(x)

    found = transform(f)(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.cos(0.5), rtol=1e-6)


def test_wide_parts_of_narrow_functions_differentiate_repeatedly():
    def power(x):
        with amdjax.enable_x64(True):
            return jnp.asarray(x, "float64") ** 3.0 * jnp.sin(x.astype("float64"))

    with amdjax.enable_x64(False):
        x = jnp.asarray(1.5, "float32")
        slopes = amdjax.grad(power), amdjax.grad(amdjax.grad(power))
        found = [slope(x) for slope in slopes]
        assert [y.dtype for y in found] == [np.float32] * 2
        v = 1.5
        first = 3 * v**2 * np.sin(v) + v**3 * np.cos(v)
        second = 6 * v * np.sin(v) + 6 * v**2 * np.cos(v) - v**3 * np.sin(v)
        np.testing.assert_allclose(found, [first, second], 1e-6)


def test_tangents_of_integers_pass():
    zero = np.zeros((2,), amdjax.dtypes.float0)
    f = lambda x, i: (x * i).sum()
    i = np.arange(2)
    _, tangent = amdjax.jvp(f, (np.ones(2, np.float32), i), (np.ones(2, np.float32), zero))
    assert float(tangent) == 1


def test_numbers_of_arguments_may_be_numpys():
    f, one = lambda x, y: x * y**2, np.int64(1)
    assert amdjax.grad(f, argnums=one)(2.0, 3.0) == 12.0
    assert amdjax.value_and_grad(f, argnums=one)(2.0, 3.0) == (18.0, 12.0)
    for jacobian in (amdjax.jacfwd, amdjax.jacrev):
        assert jacobian(f, argnums=one)(2.0, 3.0) == 12.0
    fwd, bwd = amdjax.fwd_and_bwd(f, one)
    assert bwd(fwd(2.0, 3.0)[1], 1.0) == 12.0
    scaled = amdjax.custom_jvp(lambda n, x: n * x, nondiff_argnums=one - 1)
    scaled.defjvp(lambda n, p, t: (n * p[0], n * t[0]))
    assert amdjax.grad(scaled, 1)(2, 3.0) == 2.0
    assert amdjax.checkpoint(f, static_argnums=one)(2.0, 3.0) == 18.0
    assert len(amdjax.make_jaxpr(f, static_argnums=one)(2.0, 3.0).in_avals) == 1
    assert amdjax.hessian(f, argnums=one)(2.0, 3.0) == 4.0
