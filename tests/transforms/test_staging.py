"""What is traced, what is known while tracing, and shapes without values."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp


def test_shapes_that_a_function_returns_itself_are_kept():
    struct = amdjax.ShapeDtypeStruct((2,), "int8")
    out = amdjax.eval_shape(lambda x: {"a": struct, "b": x}, np.ones(3, np.float32))
    assert out == {"a": struct, "b": amdjax.ShapeDtypeStruct((3,), "float32")}
    with pytest.raises(TypeError, match="ShapeDtypeStruct"):
        amdjax.jit(lambda x: struct)(1.0)


def test_compile_time_evaluation_leaves_traced_values_alone():
    def f(x):
        with amdjax.ensure_compile_time_eval():
            known = jnp.arange(3.0).sum()
            assert float(known) == 3.0
            product = x * known + amdjax.nn.relu(known)
            chosen = jnp.where(x > 0, product, amdjax.jit(lambda v: 2 * v)(x))
            slope = amdjax.grad(lambda v: (v * x).sum())(known)
            assert not isinstance(amdjax.vmap(jnp.sin)(jnp.arange(2.0)), amdjax.core.Tracer)
        return chosen + slope

    assert f(2.0) == amdjax.jit(f)(2.0) == 11.0
    assert amdjax.grad(f)(2.0) == 4.0
    np.testing.assert_array_equal(amdjax.vmap(f)(jnp.array([-1.0, 2.0])), [-3.0, 11.0])


def test_a_custom_rule_does_not_stand_in_the_way_of_transposition():
    @amdjax.custom_jvp
    def twice(x):
        return 2 * x

    twice.defjvp(lambda primals, tangents: (twice(*primals), 2 * tangents[0]))
    for scale in (1.0, 3.0):
        f = lambda x: twice(x) * scale + x
        assert amdjax.linear_transpose(f, 1.0)(5.0)[0] == 5.0 * (2 * scale + 1)
        transposed = amdjax.jit(lambda ct, f=f: amdjax.linear_transpose(f, 1.0)(ct)[0])
        assert transposed(5.0) == 5.0 * (2 * scale + 1)
