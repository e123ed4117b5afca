"""Traced transfers and constraints, windows, stages' descriptions, transposes that are given."""

import functools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import stages
from amdjax.custom_derivatives import linear_call
from amdjax.sharding import NamedSharding


def test_device_put_in_programs():
    device = amdjax.devices()[0]
    put = lambda x: amdjax.device_put(x, device)
    assert "device_put[" in str(amdjax.make_jaxpr(put)(1.0))
    assert amdjax.jit(amdjax.grad(lambda x: put(x * 3)))(1.0) == 3
    assert amdjax.vmap(put)(jnp.ones(3)).committed
    tangent = amdjax.jvp(put, (1.0,), (2.0,))[1]
    assert tangent == 2
    key = amdjax.random.key(3)
    again = amdjax.jit(put)(key)
    np.testing.assert_array_equal(amdjax.random.key_data(again), amdjax.random.key_data(key))


def test_copies_that_must_not_alias():
    device = amdjax.devices()[0]
    for x in (jnp.ones(3), amdjax.device_put(jnp.ones(3), device)):
        for to in (None, device):
            y = amdjax.device_put(x, to, may_alias=False)
            assert y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
            assert y.committed == amdjax.device_put(x, to).committed
            np.testing.assert_array_equal(x, y)
    with pytest.raises(ValueError, match="may_alias and donate cannot be True"):
        amdjax.device_put(x, may_alias=True, donate=True)


def test_constraints_in_programs():
    rows = NamedSharding(amdjax.sharding.Mesh(amdjax.devices()[:1], "i"), amdjax.P("i"))
    f = lambda x: amdjax.lax.with_sharding_constraint(2 * x, rows)
    assert "sharding_constraint[" in str(amdjax.make_jaxpr(f)(jnp.ones(3)))
    slope = amdjax.jit(amdjax.grad(lambda x: f(x).sum()))(jnp.ones(3))
    np.testing.assert_array_equal(slope, 2)
    np.testing.assert_array_equal(amdjax.vmap(f)(jnp.ones((2, 3))), 2)


def test_kinds_of_memory():
    x = jnp.ones(3)
    for space in (amdjax.memory.Space.Device, amdjax.memory.Space.Host):
        assert amdjax.device_put(x, space).device == x.device
    assert amdjax.copy_to_host_async({"a": x, "b": 3})["a"] is x


def test_windows():
    x = np.arange(10)
    ours = jnp.asarray(x)
    at = amdjax.jit(lambda x, i: x[amdjax.ds(i, 3)])
    np.testing.assert_array_equal(at(ours, 4), x[4:7])
    np.testing.assert_array_equal(at(ours, -3), x[-3:])
    np.testing.assert_array_equal(at(ours, 8), x[7:])  # as all dynamic slices
    np.testing.assert_array_equal(ours[amdjax.ds(1, 3, 2)], x[1:7:2])
    np.testing.assert_array_equal(ours[amdjax.ds(4)], x[:4])
    np.testing.assert_array_equal(ours[amdjax.ds(None)], x)
    slope = amdjax.grad(lambda x, i: (x[amdjax.ds(i, 2)] ** 2).sum())(ours.astype(float), 3)
    np.testing.assert_array_equal(slope, np.where((x == 3) | (x == 4), 2 * x, 0))
    rows = amdjax.vmap(lambda i: ours[amdjax.ds(i, 2)])(jnp.arange(3))
    np.testing.assert_array_equal(rows, [[0, 1], [1, 2], [2, 3]])
    with pytest.raises(TypeError, match="concrete values of integer type"):
        amdjax.jit(lambda x, n: x[amdjax.ds(0, n)])(ours, 3)
    with pytest.raises(ValueError, match="stride"):
        amdjax.ds(0, 2, -1)
    with pytest.raises(ValueError, match="Non-static stride"):
        amdjax.ds(0, 2, ours[0])


def test_windows_of_references():
    @amdjax.jit
    def f(i):
        ref = amdjax.new_ref(jnp.arange(10.0))
        ref[amdjax.ds(i, 3)] = jnp.ones(3)
        ref[amdjax.ds(1, 2, 2)] = jnp.full(2, 7.0)
        return ref[amdjax.ds(i + 1, 2)], ref[...]

    part, whole = f(5)
    np.testing.assert_array_equal(part, [1, 1])
    np.testing.assert_array_equal(whole, [0, 7, 2, 7, 4, 1, 1, 1, 8, 9])


def test_compiled_programs_describe_their_signature():
    f = amdjax.jit(lambda x, *, y: {"z": x + y})
    x = jnp.ones((2, 3))
    compiled = f.lower(x, y=x).compile()
    (args, kwargs) = compiled.input_shardings
    assert args == (x.sharding,) and kwargs == {"y": x.sharding}
    assert compiled.output_shardings == {"z": x.sharding}
    assert compiled.output_formats["z"].layout.major_to_minor == (0, 1)
    assert compiled.input_formats[0][0].sharding == x.sharding
    info = compiled.args_info[0][0]
    assert (info.shape, info.dtype, info.donated) == ((2, 3), np.float32, False)
    assert isinstance(info, stages.ArgInfo) and isinstance(f, stages.Wrapped)
    there = f.lower(x, y=x).compile("gfx942")
    with pytest.raises(ValueError, match="not there"):
        there.input_shardings


def transposed(f, example):
    return lambda y: amdjax.linear_transpose(f, example)(y)[0]


def test_linear_call():
    def third(x, denominator):
        return x + linear_call(lambda r, x: x / r, lambda r, t: t / r, denominator, x)

    assert third(9.0, 3.0) == 12
    assert transposed(functools.partial(third, denominator=3.0), 1.0)(18.0) == 24
    np.testing.assert_allclose(amdjax.vmap(third)(jnp.ones(3), jnp.array([1.0, 2, 4])),
                               [2, 1.5, 1.25])  # fmt: skip
    slopes = amdjax.jit(amdjax.vmap(amdjax.grad(third), (0, None)))(jnp.ones(2), 2.0)
    np.testing.assert_allclose(slopes, 1.5)
    with pytest.raises(NotImplementedError, match="residual_args"):
        amdjax.grad(third, argnums=1)(9.0, 3.0)


def test_linear_call_uses_the_transpose_it_was_given():
    f = lambda x: linear_call(lambda _, x: x, lambda _, t: 7.0, (), x)
    once = transposed(f, 1.0)
    twice = transposed(once, 1.0)
    assert (f(1.0), once(1.0), twice(1.0), transposed(twice, 1.0)(1.0)) == (1, 7, 1, 7)


def test_linear_call_closes_over_traced_values():
    @amdjax.jit
    def f(x, scale):
        fun, back = lambda _, x: x * scale, lambda _, t: t * (scale + 1)
        return amdjax.grad(lambda x: linear_call(fun, back, (), x))(x)

    assert f(1.0, 3.0) == 4
    with pytest.raises(TypeError, match="fun_transpose"):
        linear_call(lambda _, x: x, lambda _, t: (t, t), (), 1.0)
