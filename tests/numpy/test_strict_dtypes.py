"""What dtypes decide: promotion that is not asked for, exponents, products and copies."""

import copy
import inspect
import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal as assert_equal

import amdjax as jax
import amdjax.numpy as jnp
from amdjax import enable_x64
from amdjax.scipy import stats

INDEX_DTYPES = ["int8", "uint8", "int16", "uint32", "int32", "int64", "uint64"]


@pytest.mark.parametrize("x64", [False, True])
def test_indices_of_any_types_meet_under_strict_promotion(x64):
    """Which integers say a position is nothing that dtypes would have to agree on."""
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    with enable_x64(x64), jax.numpy_dtype_promotion("strict"):
        for left, right in itertools.product(INDEX_DTYPES if x64 else INDEX_DTYPES[:5], repeat=2):
            i, j = jnp.array([0, 2], left), jnp.array([3, 1], right)
            assert_equal(jnp.asarray(x)[i, j], x[[0, 2], [3, 1]])
            assert_equal(jnp.asarray(x)[i, ..., 1], x[[0, 2], 1])
            assert_equal(jnp.asarray(x).at[i, j].set(9.0), _with(x, ([0, 2], [3, 1]), 9))
            assert_equal(jnp.asarray(x)[True, i], x[True, [0, 2]])
            along = jnp.put_along_axis(jnp.asarray(x), i[None, :], 9.0, 1, inplace=False)
            assert_equal(along[:1], _with(x, (0, [0, 2]), 9)[:1])
            assert_equal(jnp.take_along_axis(jnp.asarray(x), j[None, :], 1), x[:, [3, 1]])
        assert jnp.mgrid[1:6:8j, 2:4].dtype == (np.float64 if x64 else np.float32)
        counts, _ = jnp.histogram(jnp.int8([1, 2, 2]), 2, weights=jnp.int8([1, 1, 3]))
        assert_equal(counts, np.float32([1, 4]))


def _with(x, at, value):
    y = x.copy()
    y[at] = value
    return y


DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64"]


@pytest.mark.parametrize("left", DTYPES)
def test_products_of_two_dtypes(left):
    """No operand is converted first, and nothing is summed in a narrower type."""
    r = np.random.default_rng(0)
    for right in DTYPES:
        x = r.integers(0, 90, (3, 4)).astype(jnp.dtype(left))
        y = r.integers(0, 3, (4, 5)).astype(jnp.dtype(right))
        common = jnp.promote_types(left, right)
        kinds = {jnp.issubdtype(d, jnp.complexfloating) for d in (left, right)}
        exact = x.astype(np.complex128) @ y.astype(np.complex128)
        exact = exact if True in kinds else exact.real
        right_one = (exact != 0) if jnp.issubdtype(common, jnp.bool_) else exact.astype(common)
        for product in (jnp.matmul(x, y), jnp.einsum("ij,jk->ik", x, y), jnp.tensordot(x, y, 1)):
            assert product.dtype == common
            wide = jnp.int32 if jnp.issubdtype(common, jnp.integer) else common
            assert_equal(np.asarray(product).astype(wide), right_one.astype(wide))
        if len(kinds) == 1 and {left, right} != {"bool"}:
            names = [e.primitive.name for e in jax.make_jaxpr(jnp.dot)(x, y).eqns]
            assert "convert_element_type" not in names[: names.index("dot_general")]


def test_a_copy_has_memory_of_its_own():
    x = jnp.ones(10)
    for made in (jnp.array(x), jnp.copy(x), x.copy(), copy.copy(x), jax.jit(jnp.array)(x)):
        assert made.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert x.astype(x.dtype, copy=True).unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert jnp.asarray(x) is x
    (gradient,) = jax.vjp(jnp.array, x)[1](x)
    assert gradient is not x  # nor is a cotangent its argument


def test_known_exponents_keep_the_type_of_the_base():
    """A number that is known is no operand: JAX multiplies repeatedly, in the base's type."""
    weak = jnp.full((2,), 3)
    for y in (2, np.int8(2), jnp.int8(2), jnp.asarray(2), True):
        for x in (jnp.int8([1, 2]), jnp.float16([1, 2]), weak):
            assert (x**y).dtype == x.dtype and (x**y).weak_type == x.weak_type
        (eqn,) = jax.make_jaxpr(lambda v, y=y: v**y)(weak).eqns
        assert eqn.primitive.name == "integer_pow"
    assert not jax.jit(jnp.power)(weak, weak).weak_type
    assert_equal(jax.jit(jnp.power)(jnp.uint8([3]), jnp.uint8([255])), np.uint8([171]))
    with pytest.raises(TypeError, match="negative integer powers"):
        jnp.arange(2) ** jnp.int32(-1)


def test_distributions_take_one_dtype_under_strict_promotion():
    names = [n for n in dir(stats) if hasattr(getattr(stats, n), "__all__")]
    assert len(names) > 20
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        for name in names:
            module = getattr(stats, name)
            for function in module.__all__:
                fn = getattr(module, function)
                given = [jnp.full(2, 0.5, "float32")] * len(inspect.signature(fn).parameters)
                if name in ("dirichlet", "multinomial", "multivariate_normal"):
                    continue  # of vectors and matrices
                wide = name == "norm" and function in ("ppf", "isf")  # as in JAX
                found = jax.eval_shape(fn, *given).dtype
                assert found == ("float64" if wide else "float32"), (name, function)
