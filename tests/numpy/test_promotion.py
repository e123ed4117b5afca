import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax


@pytest.mark.parametrize(
    "x, y, dtype, weak",
    [
        (jnp.int8(1), 2, "int8", False),
        (jnp.float16(1), 2.0, "float16", False),
        (jnp.bfloat16(1), 1, "bfloat16", False),
        (jnp.int32(1), 2.0, "float32", True),
        (1, 2, "int32", True),
        (1, 2.5, "float32", True),
        (jnp.bfloat16(1), jnp.float16(1), "float32", False),
        (jnp.uint8(1), jnp.int8(1), "int16", False),
        (jnp.bool_(True), 1, "int32", True),
        (jnp.float32(1), 1j, "complex64", False),
        (np.float64(1), 1, "float32", False),
    ],
)
def test_operators_promote_as_jax_does(x, y, dtype, weak):
    for result in (jnp.add(x, y), jnp.add(y, x)):
        assert result.dtype == jnp.dtype(dtype)
        assert result.weak_type is weak


def test_operators_and_functions_agree():
    x = jnp.arange(3, dtype=jnp.int8)
    assert (x + 1).dtype == (1 + x).dtype == jnp.add(x, 1).dtype == np.int8
    assert (x / 2).dtype == np.float32
    assert (x + jnp.float16(1)).dtype == np.float16


def test_booleans_add_as_or_and_multiply_as_and():
    x = jnp.array([True, False])
    assert (x + True).tolist() == [True, True]
    assert (x * False).tolist() == [False, False]
    with pytest.raises(TypeError):
        x - x


def test_sums_of_small_integers_widen():
    x = jnp.full((300,), 100, jnp.int8)
    assert x.sum().dtype == np.int32 and int(x.sum()) == 30000
    assert jnp.sum(x, promote_integers=False).dtype == np.int8
    assert jnp.sum(jnp.ones(3, bool)).dtype == np.int32
    assert jnp.ones(3, jnp.float16).sum().dtype == np.float16


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("number", [300, -1, -129, 2**31 - 1])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32"])
@pytest.mark.parametrize("name", ["add", "greater", "maximum", "floor_divide", "bitwise_and"])
def test_scalars_beyond_a_narrow_dtype_wrap(name, dtype, number, jit):
    x = jnp.arange(1, 4).astype(dtype)
    fun = lambda v: getattr(jnp, name)(v, number)
    wrapped = getattr(np, name)(np.asarray(x), np.asarray(number).astype(dtype))
    np.testing.assert_array_equal((amdjax.jit(fun) if jit else fun)(x), wrapped)


def test_operators_and_clip_wrap_scalars():
    x = jnp.arange(3, dtype="uint8")
    assert (x + -1).tolist() == [255, 0, 1] and (x > -1).tolist() == [False] * 3
    assert jnp.clip(x, -5, 11).tolist() == [11, 11, 11]
    assert jnp.where(x > 1, x, 300).tolist() == [44, 44, 2]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_scalars_beyond_the_default_integer_are_refused(dtype):
    x = jnp.ones(2, dtype)
    for call in (lambda: x + 2**40, lambda: x >= 2**31, lambda: jnp.maximum(x, -(2**40))):
        with pytest.raises(OverflowError):
            call()
    with pytest.raises(OverflowError):
        jnp.array([300], jnp.uint8)
    with pytest.raises(OverflowError):
        jnp.asarray(-1, jnp.uint8)


def test_strict_promotion():
    with amdjax.numpy_dtype_promotion("strict"):
        assert jnp.linspace(0, 3, 4, dtype="float16").dtype == "float16"  # asked for
        assert (jnp.ones(2) + 1.0).dtype == np.float32
        with pytest.raises(Exception, match="promotion"):
            jnp.ones(2) + jnp.ones(2, int)


def test_rank_promotion_can_be_refused():
    with amdjax.numpy_rank_promotion("raise"):
        jnp.ones((2, 3)) + 1.0
        with pytest.raises(ValueError, match="rank_promotion"):
            jnp.ones((2, 3)) + jnp.ones(3)


def test_unknown_operands_are_left_to_python():
    x = jnp.ones(2)
    with pytest.raises(TypeError, match="unsupported operand"):
        x + [1, 2]
    with pytest.raises(TypeError, match="unsupported operand"):
        None * x
    assert (x == None) is False  # noqa: E711

    class Reflecting:
        def __radd__(self, other):
            return "mine"

    assert x + Reflecting() == "mine"


def test_numpy_on_the_left_gives_our_arrays():
    x = jnp.arange(3.0)
    for result in (np.ones(3, np.float32) + x, np.float32(2) * x, np.arange(3) - x):
        assert isinstance(result, jnp.ndarray)


def test_scalar_constants_keep_their_sign_of_zero():
    x = jnp.ones(2)
    assert np.signbit(np.asarray(x * -0.0)).all()
    assert not np.signbit(np.asarray(x * 0.0)).any()


def test_scalar_types_make_arrays():
    assert jnp.float32(1.5).dtype == np.float32
    assert jnp.float32 == np.float32 and jnp.dtype(jnp.int8) == np.int8
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)
    assert jnp.zeros(2, jnp.bfloat16).dtype == jnp.bfloat16


def test_weak_arrays_made_without_64_bits_widen_with_python_numbers():
    with amdjax.enable_x64(False):
        whole, real = jnp.asarray(1), jnp.asarray(1.5)
    with amdjax.enable_x64(True):
        assert (whole + 2).dtype == (2 + whole).dtype == np.int64
        assert (real * 2.0).dtype == np.float64 and (real * 2).dtype == np.float32
        assert (whole + whole).dtype == np.int32


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("promotion", ["standard", "strict"])
def test_two_weak_operands(dtype, promotion, x64):
    """Operators promote as functions do: strictly, weak operands make the default dtype."""
    with amdjax.enable_x64(x64), amdjax.numpy_dtype_promotion(promotion):
        weak = dict(new_dtype=np.dtype(dtype), weak_type=True, sharding=None)
        x = lax.convert_element_type_p.bind(np.zeros(2, dtype), **weak)
        kind = {"i": int, "u": int, "f": float, "V": float, "c": complex}[np.dtype(dtype).kind]
        wanted = jnp.asarray(kind(0)).dtype if promotion == "strict" else x.dtype
        results = [x + x, x * x, jnp.add(x, x), jnp.maximum(x, x), jnp.where(True, x, x)]
        results += [amdjax.jit(lambda a: a - a)(x), x + kind(1) if promotion == "strict" else x + x]
        for y in results:
            assert (y.dtype, y.weak_type) == (wanted, True)
