"""`debug_nans` and `debug_infs` say which operation made the value, and where."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import debug_infs, debug_nans, grad, jit, lax, vmap


def make_nan(x):
    return jnp.log(x) * 0


@pytest.fixture
def nans():
    with debug_nans(True):
        yield


def message(call):
    with pytest.raises(FloatingPointError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("call,name", [
    (lambda: jit(make_nan)(-1.0), "log"),
    (lambda: jit(lambda x: jit(make_nan)(x) + 1)(-1.0), "log"),
    (lambda: jit(vmap(make_nan))(jnp.array([1.0, -1.0])), "log"),
    (lambda: jnp.sqrt(jnp.float32(-1)), "sqrt"),
    (lambda: jnp.zeros(3) / jnp.zeros(3), "div"),
    (lambda: jit(lambda x: lax.scan(lambda c, _: (jnp.log(c), None), x, None, length=3)[0])(0.5),
     "log"),
    (lambda: jit(lambda x: lax.cond(x > 0, jnp.log, jnp.sqrt, x))(-1.0), "sqrt"),
    (lambda: lax.fori_loop(0, 5, lambda i, x: jnp.sqrt(x - i), 1.0), "sqrt"),
    (lambda: jit(lambda x: lax.while_loop(lambda x: x < 3, lambda x: x / 0 * 0, x))(0.0), "div"),
    (lambda: lax.scan(lambda c, x: (c, x / x), 0.0, jnp.arange(3.0), reverse=True), "div"),
    (lambda: jit(lambda x: lax.fori_loop(
        0, 2, lambda i, x: lax.cond(i > 0, jnp.log, jnp.negative, x), x))(2.0), "log"),
    (lambda: jit(lambda x: (x - x).astype("bfloat16") / (x - x).astype("bfloat16"))(1.0), "div"),
    (lambda: jit(lambda z: z / 0)(1j), "div"),
])  # fmt: skip
def test_names_the_operation(nans, call, name):
    assert f"invalid value (nan) encountered in {name}" in message(call)


def test_names_the_line_of_the_user(nans):
    assert f"{__file__}:" in message(lambda: jit(make_nan)(-1.0))
    assert "(make_nan)" in message(lambda: jit(make_nan)(-1.0))


def test_names_the_line_in_a_loop(nans):
    def loop(x):
        return lax.fori_loop(0, 4, lambda i, x: make_nan(x - i), x)

    assert "(make_nan)" in message(lambda: loop(1.5))
    assert "(make_nan)" in message(lambda: jit(loop)(1.5))
    assert "(make_nan)" in message(lambda: jit(vmap(loop))(jnp.array([1.5, 2.5])))


def test_finds_nans_of_gradients(nans):
    with pytest.raises(FloatingPointError, match="nan"):
        jit(grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)))(0.0)
    _, pull_back = amdjax.vjp(jit(lambda x: jnp.sqrt(x * x)), 0.0)
    with pytest.raises(FloatingPointError, match=r"nan.* in (div|mul)"):
        pull_back(jnp.float32(1))


def test_nans_that_do_not_reach_a_result_are_allowed(nans):
    f = jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))
    assert f(-1.0) == 0


def test_integers_and_valid_values_pass(nans):
    assert jit(lambda x: x * 2)(3) == 6
    assert jit(jnp.log)(1.0) == 0


def test_inputs_and_literals_are_told_from_operations(nans):
    for call in (lambda: jit(lambda x: x * 3)(jnp.nan), lambda: jit(lambda x: (jnp.nan, x))(1.0)):
        assert "did not make it" in message(call)
    assert "encountered in log" in message(
        lambda: jit(lambda x, y: x * y + make_nan(-y))(jnp.nan, 1.0)
    )


def test_donated_arguments_and_references_are_left_whole():
    x, ref = jnp.zeros(3), amdjax.new_ref(jnp.zeros(3))
    divide = jit(lambda x: x / x, donate_argnums=0)

    @jit
    def write(x):
        ref[...] = ref[...] * 0 / x

    with debug_nans(True):
        assert "encountered in div" in message(lambda: divide(x))
        assert "encountered in div" in message(lambda: write(jnp.zeros(3)))
        np.testing.assert_array_equal(x, [0, 0, 0])
        np.testing.assert_array_equal(ref[...], [0, 0, 0])
        write(jnp.ones(3))
        divide(y := jnp.ones(3))
        assert y.is_deleted()


def test_keys_are_not_numbers(nans):
    jit(lambda key: amdjax.random.split(key))(amdjax.random.key(0))


def test_mapped_functions_say_so(nans):
    assert "Invalid value (nan) encountered in sharded computation. It arose in div" in message(
        lambda: amdjax.pmap(lambda x: 0.0 / x)(jnp.zeros(1))
    )


def test_infinities():
    with debug_infs(True):
        assert "(inf) encountered in div" in message(lambda: jit(lambda x: 1 / x)(0.0))
        assert "(inf) encountered in exp" in message(lambda: jnp.exp(jnp.float32(1000)))
    assert np.isinf(jit(lambda x: 1 / x)(0.0))


def test_off_again_afterwards(nans):
    with debug_nans(False):
        assert np.isnan(jit(make_nan)(-1.0))
        assert np.isnan(jnp.log(jnp.float32(-1)))


def test_the_flag_for_the_whole_process():
    amdjax.config.update("jax_debug_nans", True)
    try:
        assert "log" in message(lambda: jit(make_nan)(-1.0))
    finally:
        amdjax.config.update("jax_debug_nans", False)
