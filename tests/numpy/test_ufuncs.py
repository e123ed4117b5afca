import functools
import math

import numpy as np
import pytest
from hypothesis import given

import amdjax
import amdjax.numpy as jnp
from tests.support.strategies import arrays, close, pairs

UNARY = """exp exp2 expm1 sin cos tanh arctan arcsinh sinh cosh floor ceil trunc rint square
absolute sign negative isnan isfinite isinf signbit logical_not cbrt deg2rad rad2deg reciprocal
isposinf isneginf positive"""
POSITIVE = "log log2 log10 log1p sqrt"
BINARY = """add subtract multiply maximum minimum equal not_equal less less_equal greater
greater_equal logical_and logical_or logical_xor fmax fmin"""
INTEGER = "bitwise_and bitwise_or bitwise_xor gcd lcm"


@pytest.mark.parametrize("name", UNARY.split())
@given(x=arrays(dtypes=["float32"], special=True))
def test_unary_functions_agree_with_numpy(name, x):
    # Huge arguments of sin and cos need more digits of π than they have themselves.
    x = np.where(np.abs(x) == np.float32(1e30), np.float32(1), x) if name in ("sin", "cos") else x
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    close(getattr(jnp, name)(x), expected, rtol=1e-4)


@pytest.mark.parametrize("name", POSITIVE.split())
@given(x=arrays(dtypes=["float32"]))
def test_functions_of_positive_numbers_agree_with_numpy(name, x):
    x = np.abs(x) + np.float32(0.01)
    close(getattr(jnp, name)(x), getattr(np, name)(x))


@pytest.mark.parametrize("name", BINARY.split())
@given(xy=pairs(dtypes=["float32", "int32"], special=True))
def test_binary_functions_agree_with_numpy(name, xy):
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*xy)
    close(getattr(jnp, name)(*xy), expected)


@pytest.mark.parametrize("name", INTEGER.split())
@given(xy=pairs(dtypes=["int32"]))
def test_integer_functions_agree_with_numpy(name, xy):
    close(getattr(jnp, name)(*xy), getattr(np, name)(*xy))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "true_divide"])
@given(xy=pairs(dtypes=["int32", "float32"]))
def test_division_agrees_with_numpy(name, xy):
    x, y = xy
    y = np.where(np.abs(y) < 0.25, np.ones((), y.dtype), y)
    close(getattr(jnp, name)(x, y), getattr(np, name)(x, y), rtol=1e-4, atol=1e-4)


def test_remainder_has_the_sign_of_the_divisor():
    x, y = np.array([-7, 7, -7, 7]), np.array([3, 3, -3, -3])
    assert np.asarray(jnp.remainder(x, y)).tolist() == (x % y).tolist()
    assert np.asarray(jnp.floor_divide(x, y)).tolist() == (x // y).tolist()


@pytest.mark.parametrize("exponent", [-2, 0, 1, 2, 5, 0.5])
def test_power(exponent):
    x = np.array([0.5, 1.0, 2.0, 3.0], np.float32)
    close(jnp.power(x, exponent), np.power(x, exponent))


def test_integer_power_by_an_array():
    x, y = np.array([2, -3, 0, 5]), np.array([10, 3, 0, 1])
    close(jnp.power(x, y), x**y)


def test_integers_refuse_negative_static_powers():
    with pytest.raises(TypeError, match="negative integer powers"):
        jnp.arange(3) ** -1


def test_logaddexp_of_infinities_and_its_gradient():
    inf = float("inf")
    assert float(jnp.logaddexp(-inf, -inf)) == -inf
    assert float(jnp.logaddexp(inf, inf)) == inf
    assert float(amdjax.grad(jnp.logaddexp)(2.0, 2.0)) == 0.5
    assert float(amdjax.grad(jnp.logaddexp)(-inf, 0.0)) == 0.0


def test_sinc_has_derivatives_of_all_orders_at_zero():
    first, second = amdjax.grad(jnp.sinc), amdjax.grad(amdjax.grad(jnp.sinc))
    assert float(first(0.0)) == 0.0
    assert float(second(0.0)) == pytest.approx(-(np.pi**2) / 3, rel=1e-4)


def test_frexp_and_ldexp_undo_each_other():
    x = np.array([0.0, 1.0, -10.0, 3e-40, 1e30, np.inf], np.float32)
    mantissa, exponent = jnp.frexp(x)
    expected = np.frexp(x)
    close(exponent[:3], expected[1][:3])
    close(jnp.ldexp(mantissa, exponent)[1:], x[1:])


@pytest.mark.parametrize("name", ["add", "maximum", "multiply", "logical_and", "bitwise_or"])
def test_ufunc_methods(name):
    x = np.arange(1, 13).reshape(3, 4)
    ours, theirs = getattr(jnp, name), getattr(np, name)
    close(ours.reduce(x, axis=1), theirs.reduce(x, axis=1))
    close(ours.accumulate(x, axis=1), theirs.accumulate(x, axis=1))
    close(ours.outer(x[0], x[1]), theirs.outer(x[0], x[1]))
    close(ours.reduceat(x, np.array([0, 2])), theirs.reduceat(x, [0, 2]))


def test_ufunc_at_adds_repeated_indices():
    result = jnp.add.at(jnp.zeros(3), jnp.array([0, 0, 2]), 1.0, inplace=False)
    assert result.tolist() == [2.0, 0.0, 1.0]
    with pytest.raises(NotImplementedError, match="inplace=False"):
        jnp.add.at(jnp.zeros(3), 0, 1.0)


@pytest.mark.parametrize(
    ("name", "a", "b", "want"),
    [
        ("add", [5, 6], [1.7, -1.2], [5, 6]),
        ("add", [True, False], True, [True, False]),
        ("subtract", [5, 6], [1.7, -1.2], [4, 6]),
        ("subtract", [5, 6], 1.7, [1, 6]),
        ("multiply", [5, 6], [1.7, -1.2], [-10, 6]),
        ("multiply", [True, True], [True, False], [False, True]),
        ("maximum", [5, 6], 7.5, [7.5, 6.0]),
        ("minimum", [5, 6], [1.5, -1.25], [-1.25, 6.0]),
        ("maximum", [True, False], [2, 0], [2, 0]),
        ("maximum", [0, 1], 1j, [1j, 1]),
        ("logical_xor", [5, 6], [True, False], [False, True]),
        ("bitwise_or", [5, 6], [2, 8], [15, 6]),
        ("halved difference", [5, 6], 2, [-0.25, 6.0]),
        ("less", [0, 1], 2, [False, True]),
        ("half", [3, 4], None, [1.5, 4.0]),
    ],
)
def test_ufunc_at_of_two_dtypes(name, a, b, want):
    """Sums, differences and products keep the first dtype; others give what the function gives."""
    made = {"halved difference": lambda x, y: (x - y) / 2, "less": lambda x, y: x < y}
    if name == "half":
        f, operands, index = jnp.frompyfunc(lambda x: x / 2, 1, 1), (), jnp.array([0])
    else:
        f = jnp.frompyfunc(made[name], 2, 1) if name in made else getattr(jnp, name)
        operands, index = (np.asarray(b) if isinstance(b, list) else b,), jnp.array([0, 0])
    got = f.at(jnp.array(a), index, *operands, inplace=False)
    assert got.dtype == jnp.array(want).dtype
    close(got, np.array(want))


@pytest.mark.parametrize("shape", [(4, 3), (2, 1, 3), (3,), ()])
def test_reductions_that_depend_on_order_take_all_axes(shape):
    x = np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)
    for f in (jnp.subtract, jnp.frompyfunc(lambda x, y: x - y, 2, 1)):
        close(f.reduce(x, axis=None), functools.reduce(np.subtract, x.ravel()))
        close(f.reduce(x, axis=None, initial=1), 1 - x.sum())
        close(f.reduce(x, axis=None, initial=1, where=x > 2), 1 - x[x > 2].sum())
        if len(shape) > 1:
            with pytest.raises(NotImplementedError, match="not reorderable"):
                f.reduce(x, axis=(0, 1))
    with pytest.raises(ValueError, match="zero-size"):
        jnp.subtract.reduce(x[..., None][..., :0], axis=None)


def test_vectorize_with_a_signature():
    matvec = jnp.vectorize(lambda a, v: a @ v, signature="(m,n),(n)->(m)")
    a, v = np.ones((5, 1, 2, 3), np.float32), np.ones((4, 3), np.float32)
    assert matvec(a, v).shape == (5, 4, 2)
    with pytest.raises(ValueError, match="inconsistent size"):
        matvec(a, np.ones(2))


@pytest.mark.parametrize("bad", [[1, 2], None, "text", (1,)])
def test_errors_name_function_type_and_position(bad):
    with pytest.raises(TypeError, match=r"add requires ndarray or scalar arguments.*position 1"):
        jnp.add(1.0, bad)
    with pytest.raises(TypeError, match="sin requires ndarray or scalar arguments"):
        jnp.sin(bad)
