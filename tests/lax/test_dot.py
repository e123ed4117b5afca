from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import jit, lax, numpy as jnp
from amdjax.transforms.staging import make_jaxpr
from tests.support.lax_checks import check_batching, check_derivatives


def reference(lhs, rhs, numbers):
    (contract, batch) = numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left = [next(letters) for _ in range(lhs.ndim)]
    right = [next(letters) for _ in range(rhs.ndim)]
    for pair in (contract, batch):
        for i, j in zip(*pair):
            right[j] = left[i]
    used = [left[d] for d in (*contract[0], *batch[0])]
    out = [left[d] for d in batch[0]]
    out += [c for c in left if c not in used] + [c for c in right if c not in used]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", lhs, rhs)


@st.composite
def products(draw):
    """Shapes and dimension numbers with every kind of axis in any order."""
    sizes = {kind: draw(st.lists(st.integers(1, 4), max_size=2)) for kind in "bcfg"}
    left = [("b", k) for k in range(len(sizes["b"]))] + [("c", k) for k in range(len(sizes["c"]))]
    right = left + [("g", k) for k in range(len(sizes["g"]))]
    left = left + [("f", k) for k in range(len(sizes["f"]))]
    left, right = draw(st.permutations(left)), draw(st.permutations(right))
    shape = lambda axes: tuple(sizes[kind][k] for kind, k in axes)
    pair = lambda kind: tuple(
        tuple(axes.index((kind, k)) for k in range(len(sizes[kind]))) for axes in (left, right)
    )
    return shape(left), shape(right), (pair("c"), pair("b"))


@given(products(), st.integers(0, 99))
def test_values(case, seed):
    left, right, numbers = case
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal(left), rng.standard_normal(right)
    found = lax.dot_general(x.astype(np.float32), y.astype(np.float32), numbers)
    np.testing.assert_allclose(found, reference(x, y, numbers), rtol=1e-4, atol=1e-5)


CASES = {
    "matrices": ((2, 3), (3, 4), (((1,), (0,)), ((), ()))),
    "transposed": ((3, 2), (4, 3), (((0,), (1,)), ((), ()))),
    "vectors": ((3,), (3,), (((0,), (0,)), ((), ()))),
    "outer": ((2,), (3,), (((), ()), ((), ()))),
    "batched": ((3, 2, 4), (3, 4, 5), (((2,), (1,)), ((0,), (0,)))),
    "mixed": ((3, 2, 4, 5), (5, 7, 2, 3), (((3, 1), (0, 2)), ((0,), (3,)))),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_rules(case):
    left, right, numbers = CASES[case]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(left), rng.standard_normal(right)
    fun = lambda p, q: lax.dot_general(p, q, numbers)
    check_derivatives(fun, x, y)
    check_batching(fun, x.astype(np.float32), y.astype(np.float32), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bfloat16"])
def test_dtypes(dtype):
    x = lax.convert_element_type(np.array([[1, 2, 3], [4, 5, 6]]), dtype)
    numbers = (((1,), (1,)), ((), ()))
    assert str(lax.dot_general(x, x, numbers).dtype) == dtype
    wide = "int32" if dtype.startswith("int") else "float32"
    found = lax.dot_general(x, x, numbers, preferred_element_type=wide)
    assert str(found.dtype) == wide
    assert found.tolist() == [[14, 32], [32, 77]]


def test_products_of_booleans_say_whether_any_pair_is_true():
    rng = np.random.default_rng(0)
    x, y = rng.random((300, 5)) < 0.3, rng.random((5, 7)) < 0.3
    found = lax.dot(x, y)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, x @ y)
    # A count of 256 must not wrap around to false.
    assert lax.dot(np.ones(256, bool), np.ones(256, bool)) == np.True_
    image, kernel = x[None, None, :6], y[None, None, :2, :2]
    numbers = lax.conv_general_dilated(image.astype("f"), kernel.astype("f"), (1, 1), "SAME")
    found = lax.conv_general_dilated(image, kernel, (1, 1), "SAME")
    np.testing.assert_array_equal(found, np.asarray(numbers) > 0)


def test_operands_of_different_dtypes():
    x, y = np.ones((2, 3), np.float32), np.ones((3, 2), np.int8)
    found = lax.dot_general(x, y, (((1,), (0,)), ((), ())))
    assert found.dtype == np.float32 and found.tolist() == [[3, 3], [3, 3]]


def test_gradient_keeps_the_dtype_of_the_operand():
    from amdjax.transforms.differentiate import vjp

    x = lax.convert_element_type(np.ones((2, 3)), "bfloat16")
    fun = lambda v: lax.dot_general(v, v, (((1,), (1,)), ((), ())), None, np.float32)
    (g,) = vjp(fun, x)[1](np.ones((2, 2), np.float32))
    assert str(g.dtype) == "bfloat16"
    assert lax.convert_element_type(g, np.float32).tolist() == [[4, 4, 4]] * 2


def test_short_forms():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    np.testing.assert_allclose(lax.dot(x, y), x @ y)
    np.testing.assert_allclose(lax.dot(x, y[:, 0]), x @ y[:, 0])
    np.testing.assert_allclose(lax.batch_matmul(x[None], y[None]), (x @ y)[None])
    empty = lax.dot(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32))
    assert empty.tolist() == [[0.0] * 3] * 2


def test_precision():
    assert lax.Precision("float32") is lax.Precision.HIGHEST
    assert lax.Precision(None) is lax.Precision.DEFAULT
    x = np.ones((2, 2), np.float32)
    for precision in ("highest", ("high", "default"), lax.Precision.HIGH, "F32_F32_F32"):
        assert lax.dot(x, x, precision=precision).tolist() == [[2, 2], [2, 2]]
    program = make_jaxpr(lambda v: lax.dot(v, v, precision="highest"))(x)
    assert "precision=(Precision.HIGHEST, Precision.HIGHEST)" in str(program)
    with pytest.raises(ValueError, match="precision must be"):
        lax.dot(x, x, precision="exact")


#: How far products of operands in a format may be from those of float32, relative to them.
FORMATS = {"tensorfloat32": 2.0**-10, "BF16_BF16_F32": 2.0**-7, "BF16_BF16_F32_X3": 3 * 2.0**-16,
           "BF16_BF16_F32_X6": 0, "TF32_TF32_F32_X3": 3 * 2.0**-22}  # fmt: skip


@pytest.mark.devices
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("precision", FORMATS)
def test_errors_of_precisions(precision, turned):
    """Rows that are whole for wide accesses, and others, more of them than a tile has."""
    rng = np.random.default_rng(0)
    for m, k, n in ((80, 96, 72), (131, 45, 67)):
        x = rng.uniform(1, 2, (k, m) if turned[0] else (m, k)).astype(np.float32)
        y = rng.uniform(1, 2, (n, k) if turned[1] else (k, n)).astype(np.float32)
        numbers = (((1 - turned[0],), (turned[1],)), ((), ()))
        got = jit(partial(lax.dot_general, dimension_numbers=numbers, precision=precision))(x, y)
        want = reference(x.astype(np.float64), y.astype(np.float64), numbers)
        np.testing.assert_allclose(got, want, rtol=FORMATS[precision] + k * 2.0**-23)


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((((1,), (0,)), ((), ())), r"contracting dimensions.*\(3,\) and \(2,\)"),
        ((((1,), (1,)), ((0,), ())), "equal numbers of batch"),
        ((((1,), (3,)), ((), ())), "axes of rhs"),
        ((((1,), (1,)), ((1,), (1,))), "distinct"),
    ],
)
def test_errors(numbers, message):
    with pytest.raises(TypeError, match=message):
        lax.dot_general(X, X, numbers)


def test_errors_of_short_forms():
    with pytest.raises(ValueError, match=r"dot without.*\(2, 3\)"):
        lax.dot(X, X)
    with pytest.raises(ValueError, match="equal rank"):
        lax.batch_matmul(X, X[None])
    with pytest.raises(ValueError, match="rank 2"):
        lax.batch_matmul(X[0], X[0])


def test_scaled_product():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4, 6)), rng.standard_normal((2, 6, 3))
    s, t = rng.uniform(0.5, 2, (2, 4, 2)), rng.uniform(0.5, 2, (2, 3, 1))
    found = lax.scaled_dot(
        *(v.astype(np.float32) for v in (x, y)),
        lhs_scale=s.astype(np.float32),
        rhs_scale=t.astype(np.float32),
        preferred_element_type=np.float32,
    )
    wanted = (x * np.repeat(s, 3, 2)) @ (y * np.repeat(np.repeat(t, 2, 1), 3, 2))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert str(lax.scaled_dot(np.ones((2, 2)), np.ones((2, 2))).dtype) == "bfloat16"


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "bfloat16", "int8"])
def test_products_of_complex_and_real_operands(dtype):
    z = (np.arange(6) + 1j * np.arange(6)[::-1]).reshape(2, 3).astype(np.complex64)
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_allclose(lax.dot(z, jnp.asarray(x, dtype)), z @ x, rtol=1e-6)
    np.testing.assert_allclose(lax.dot(jnp.asarray(x.T, dtype), z.T), x.T @ z.T, rtol=1e-6)
