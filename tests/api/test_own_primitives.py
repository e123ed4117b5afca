"""Primitives that users and libraries define, through the doors that JAX has for them."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core import ShapedArray
from amdjax.extend.core import Primitive
from amdjax.interpreters import ad, batching, mlir, xla


def fused_p(name="multiply_add", lowering=True):
    """`x * y + z` with all rules, computed by NumPy outside of programs."""
    p = Primitive(name)
    p.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))
    p.def_abstract_eval(lambda x, y, z: ShapedArray(x.shape, x.dtype))

    def jvp(values, tangents):
        x, y, z = values
        tx, ty, tz = (jnp.zeros_like(x) if type(t) is ad.Zero else t for t in tangents)
        return p.bind(x, y, z), p.bind(tx, y, p.bind(x, ty, tz))

    def transpose(ct, x, y, z):
        if not ad.is_undefined_primal(x):
            return None, ct * x, ct
        return ct * y, None, ct

    def batch(args, dims):
        assert len({d for d in dims if d is not None}) == 1
        return p.bind(*args), next(d for d in dims if d is not None)

    ad.primitive_jvps[p] = jvp
    ad.primitive_transposes[p] = transpose
    batching.primitive_batchers[p] = batch
    if lowering:
        lower = mlir.lower_fun(lambda x, y, z: x * y + z, multiple_results=False)
        mlir.register_lowering(p, lower)
    return p


def test_all_transforms_of_an_own_primitive():
    p = fused_p()

    def square_add(a, b):
        return p.bind(a, a, b)

    assert square_add(2.0, 10.0) == 14.0
    assert amdjax.jit(square_add)(2.0, 10.0) == 14.0
    assert amdjax.jit(square_add, static_argnums=1)(2.0, 10.0) == 14.0
    assert amdjax.jvp(square_add, (2.0, 10.0), (1.0, 1.0)) == (14.0, 5.0)
    assert amdjax.grad(square_add)(2.0, 10.0) == 4.0
    assert amdjax.jit(amdjax.grad(square_add, argnums=1))(2.0, 10.0) == 1.0
    xs = jnp.array([2.0, 3.0])
    ys = jnp.array([10.0, 20.0])
    np.testing.assert_array_equal(amdjax.vmap(square_add)(xs, ys), [14.0, 29.0])
    np.testing.assert_array_equal(amdjax.jit(amdjax.vmap(square_add))(xs, ys), [14.0, 29.0])
    jaxpr = amdjax.make_jaxpr(square_add)(2.0, 10.0)
    assert [e.primitive for e in jaxpr.eqns] == [p] and "multiply_add" in str(jaxpr)


def test_what_is_missing_is_named():
    p = Primitive("bare")
    with pytest.raises(NotImplementedError, match="bare"):
        p.bind(1.0)
    p.def_impl(lambda x: x)
    assert p.bind(1.0) == 1.0
    with pytest.raises(NotImplementedError, match="bare"):
        amdjax.jit(p.bind)(1.0)
    p.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match="rule for primitive 'bare' not found"):
        amdjax.jit(p.bind)(1.0)
    with pytest.raises(NotImplementedError, match="Differentiation rule for 'bare'"):
        amdjax.jvp(p.bind, (1.0,), (1.0,))
    with pytest.raises(NotImplementedError, match="Batching rule for 'bare'"):
        amdjax.vmap(p.bind)(jnp.ones(2))
    ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), p.bind(*tangents))
    with pytest.raises(NotImplementedError, match=r"Transpose rule .* 'bare'"):
        amdjax.grad(p.bind)(1.0)


def test_a_lowering_written_in_mlir_says_what_to_do():
    p = fused_p("by_hand", lowering=False)
    mlir.register_lowering(p, lambda ctx, x, y, z: [x], platform="cpu")
    assert p.bind(1.0, 2.0, 3.0) == 5.0
    with pytest.raises(NotImplementedError, match=r"'by_hand' is lowered .* MLIR"):
        amdjax.jit(p.bind)(1.0, 2.0, 3.0)
    mlir.register_lowering(p, mlir.lower_fun(lambda x, y, z: x * y + z, multiple_results=False))
    assert amdjax.jit(p.bind)(1.0, 2.0, 3.0) == 5.0


def test_several_results_and_parameters():
    p = Primitive("sum_and_scaled")
    p.multiple_results = True
    p.def_abstract_eval(lambda x, *, factor: [ShapedArray((), x.dtype), x])
    lower = mlir.lower_fun(lambda x, *, factor: (x.sum(), x * factor), multiple_results=True)
    mlir.register_lowering(p, lower)
    p.def_impl(lambda *args, **params: xla.apply_primitive(p, *args, **params))
    for call in (p.bind, amdjax.jit(p.bind, static_argnames="factor")):
        total, scaled = call(jnp.arange(3.0), factor=2.0)
        assert total == 3.0
        np.testing.assert_array_equal(scaled, [0.0, 2.0, 4.0])


def test_effects_of_an_own_primitive():
    from amdjax.core.effects import io_effect

    p = Primitive("noisy")
    p.def_effectful_abstract_eval(lambda x: (x, {io_effect}))
    assert amdjax.make_jaxpr(p.bind)(1.0).effects == {io_effect}


def test_helpers_for_families_of_rules():
    def made(name, fun):
        p = Primitive(name)
        p.def_abstract_eval(lambda *avals, **params: ShapedArray(avals[0].shape, avals[0].dtype))
        mlir.register_lowering(p, mlir.lower_fun(fun, multiple_results=False))
        return p

    scale_p = made("scale_by_three", lambda x: 3 * x)
    ad.deflinear(scale_p, lambda ct: [scale_p.bind(ct)])
    batching.defvectorized(scale_p)
    assert amdjax.grad(scale_p.bind)(1.0) == 3.0
    assert amdjax.linear_transpose(scale_p.bind, 1.0)(2.0) == (6.0,)
    np.testing.assert_array_equal(amdjax.vmap(scale_p.bind)(jnp.arange(2.0)), [0.0, 3.0])

    product_p = made("product", lambda x, y: x * y)
    ad.defbilinear(product_p, lambda ct, x, y: ct * y, lambda ct, x, y: ct * x)
    batching.defbroadcasting(product_p)
    assert amdjax.grad(product_p.bind, (0, 1))(2.0, 5.0) == (5.0, 2.0)
    both = amdjax.vmap(product_p.bind, in_axes=(0, None))(jnp.arange(3.0), 2.0)
    np.testing.assert_array_equal(both, [0.0, 2.0, 4.0])

    root_p = made("root", lambda x: jnp.sqrt(x))
    ad.defjvp2(root_p, lambda t, out, x: t / (2 * out))
    assert amdjax.grad(root_p.bind)(4.0) == 0.25

    total_p = Primitive("total")
    total_p.def_abstract_eval(
        lambda x, *, axes: ShapedArray(np.delete(x.shape, axes).tolist(), x.dtype)
    )
    lower = mlir.lower_fun(lambda x, *, axes: x.sum(axes), multiple_results=False)
    mlir.register_lowering(total_p, lower)
    batching.defreducer(total_p)
    x = jnp.arange(24.0).reshape(2, 3, 4)
    for axis in range(3):
        got = amdjax.vmap(lambda v: total_p.bind(v, axes=(0,)), in_axes=axis)(x)
        expected = amdjax.vmap(lambda v: v.sum(0), in_axes=axis)(x)
        np.testing.assert_array_equal(got, expected)


def test_batching_rules_that_know_the_axis():
    p = Primitive("count")
    p.def_abstract_eval(lambda x: ShapedArray(x.shape, x.dtype))
    seen = []

    def rule(size, name, _, args, dims):
        seen.append((size, name))
        return args[0], dims[0]

    batching.axis_primitive_batchers[p] = rule
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x, multiple_results=False))
    amdjax.vmap(p.bind, axis_name="i")(jnp.ones(3))
    assert seen == [(3, "i")]
    batching.fancy_primitive_batchers[p] = lambda axis, args, dims: (args[0] * axis.size, dims[0])
    np.testing.assert_array_equal(amdjax.vmap(p.bind)(jnp.ones(3)), [3.0, 3.0, 3.0])


def test_tables_of_rules_are_views_of_the_primitives():
    sin_p = amdjax.lax.sin_p
    assert ad.primitive_jvps[sin_p] is sin_p.jvp
    assert sin_p in ad.primitive_jvps and sin_p not in ad.primitive_transposes
    assert sin_p in set(batching.primitive_batchers)
    out, dim = batching.primitive_batchers[sin_p]((jnp.zeros((2, 3)),), (1,))
    assert dim == 1 and out.shape == (2, 3)
    with pytest.raises(KeyError):
        ad.primitive_transposes[sin_p]


def test_a_primitive_of_the_same_name_leaves_ours_alone():
    Primitive("sin")
    assert Primitive.by_name["sin"] is amdjax.lax.sin_p


@pytest.mark.parametrize("several", [False, True])
def test_types_of_results_are_as_many_as_announced(several):
    p = Primitive("announced", multiple_results=several)
    p.def_abstract_eval(lambda x: x if several else [x])
    with pytest.raises(ValueError, match=r"announced.abstract_eval\(\) method should return"):
        amdjax.make_jaxpr(lambda x: p.bind(x))(1.0)
