"""What `vjp` returns as an object: residuals that can be read, taken out and put back."""

import numpy as np
import pytest

import amdjax
from amdjax import numpy as jnp
from amdjax.transforms.pullback import NotNeeded


def layer(x, w):
    return jnp.sin(x @ w)


def test_arguments_that_are_read_are_among_the_residuals():
    x, w = jnp.ones((2, 3)), jnp.ones((3, 4))
    _, f_vjp = amdjax.vjp(layer, x, w)
    assert f_vjp.args_res[0] is x and f_vjp.args_res[1] is w
    (cos,) = f_vjp.opaque_residuals
    np.testing.assert_array_equal(cos, jnp.cos(x @ w))
    assert len(amdjax.tree.leaves(f_vjp)) == 3
    assert f_vjp.in_tree == amdjax.tree.structure((0, 0))


def test_arguments_that_are_not_read_are_not_kept():
    _, f_vjp = amdjax.vjp(lambda d: d["a"] * d["b"].sum(), {"a": jnp.ones(2), "b": jnp.ones(3)})
    (arg,) = f_vjp.args_res
    assert isinstance(arg["b"], NotNeeded)
    assert arg["a"].shape == (2,)
    assert amdjax.tree.leaves(arg["b"]) == []


@pytest.mark.parametrize("scalar", [False, True])
def test_residuals_are_put_back(scalar):
    x, w = (jnp.float32(2), jnp.float32(3)) if scalar else (jnp.arange(3.0), jnp.ones(3))
    _, f_vjp = amdjax.vjp(lambda x, w: x * w, x, w)
    f_vjp.args_res = [None, None]
    f_vjp.args_res[1] = w + 1
    f_vjp.args_res[0] = x + 2
    dx, dw = f_vjp(jnp.ones_like(x))
    np.testing.assert_array_equal(dx, w + 1)
    np.testing.assert_array_equal(dw, x + 2)


def test_residuals_taken_out_are_missed():
    _, f_vjp = amdjax.vjp(lambda d: d["a"] * d["b"], {"a": 2 * jnp.ones(2), "b": jnp.ones(2)})
    f_vjp.args_res = [None]
    with pytest.raises(ValueError, match=r"args_res\[0\], which must have the structure"):
        f_vjp(jnp.ones(2))


def test_passes_through_jit_without_its_arguments():
    @amdjax.jit
    def forward(x, w):
        y, f_vjp = amdjax.vjp(layer, x, w)
        f_vjp.args_res[1] = None
        return y, f_vjp

    @amdjax.jit
    def backward(f_vjp, w, ct):
        f_vjp.args_res[1] = w
        return f_vjp(ct)

    x, w = jnp.arange(6.0).reshape(2, 3), jnp.ones((3, 4))
    y, f_vjp = forward(x, w)
    expected = amdjax.vjp(layer, x, w)[1](y)
    for got, want in zip(backward(f_vjp, w, y), expected):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("argnums", [1, (0, 1), (1,)])
@pytest.mark.parametrize("jitted", [True, False])
def test_forward_and_backward(argnums, jitted):
    x, w = jnp.arange(6.0).reshape(2, 3), jnp.ones((3, 4))
    fwd, bwd = amdjax.fwd_and_bwd(layer, argnums, jitted=jitted)
    y, residuals = fwd(x, w)
    np.testing.assert_allclose(y, layer(x, w), rtol=1e-6)
    want = amdjax.grad(lambda x, w: (layer(x, w) * y).sum(), argnums)(x, w)
    for got, expected in zip(amdjax.tree.leaves(bwd(residuals, y)), amdjax.tree.leaves(want)):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_backward_pass_is_compiled_once():
    fwd, bwd = amdjax.fwd_and_bwd(layer, (0, 1))
    x, w = jnp.ones((2, 3)), jnp.ones((3, 4))
    bwd(fwd(x, w)[1], jnp.ones((2, 4)))
    with amdjax.no_tracing():
        y, residuals = fwd(2 * x, w)
        bwd(residuals, y)


def test_auxiliary_output_comes_third():
    fwd, bwd = amdjax.fwd_and_bwd(lambda x: (x * x, {"n": x + 1}), 0, has_aux=True)
    y, residuals, aux = fwd(3.0)
    assert (float(y), float(aux["n"]), float(bwd(residuals, 1.0))) == (9.0, 4.0, 6.0)


def test_the_linear_program_of_linearize_is_its_first_argument():
    _, f_jvp = amdjax.linearize(lambda x: jnp.sin(x) * 2, jnp.ones(3))
    assert [e.primitive.name for e in f_jvp.func.args[0].eqns] == ["mul", "mul"]


@pytest.mark.parametrize("ct", [np.int32(1), np.zeros((), amdjax.dtypes.float0), 1.0])
def test_cotangents_of_integers_have_no_effect(ct):
    _, f_vjp = amdjax.vjp(lambda x: (2 * x, jnp.int32(3)), 1.0)
    assert float(f_vjp((1.0, ct))[0]) == 2
    with pytest.raises(ValueError, match="got shape"):
        f_vjp((1.0, np.zeros(2, np.int32)))
