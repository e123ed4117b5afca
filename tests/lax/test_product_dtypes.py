"""Products and convolutions of every pair of dtypes, with sums in every other."""

import numpy as np
import pytest

import amdjax
from amdjax import enable_x64, lax, numpy as jnp

# Imaginary parts are dropped where a real result is asked for.
pytestmark = [
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
    pytest.mark.cpu_only("dtypes are made common before a product is lowered"),
]

DTYPES = ["bool", "int8", "bfloat16", "float32", "float64", "complex64", "complex128"]
NUMBERS = [[1, 2, 0], [3, 1, 2], [0, 1, 1], [2, 0, 1]]  # whose sums no dtype rounds


def dot(x, y, preferred):
    return lax.dot_general(x, y.T, (((1,), (0,)), ((), ())), preferred_element_type=preferred)


def conv(x, y, preferred):
    image = x.reshape(1, 4, 3).swapaxes(1, 2)
    kernel = y.reshape(4, 3, 1)
    out = lax.conv_general_dilated(image, kernel, (1,), "VALID", preferred_element_type=preferred)
    return out[0].T


def numbers(dtype):
    """An array, in `dtype`, and what it holds."""
    x = np.array(NUMBERS)
    if dtype.startswith("complex"):
        x = x + 1j * x[::-1]
    held = x != 0 if dtype == "bool" else x
    return jnp.asarray(held, dtype), held.astype(np.complex128)


@pytest.mark.parametrize("preferred", [None, *DTYPES])
@pytest.mark.parametrize("left", DTYPES)
def test_products_of_all_dtypes(left, preferred):
    for right in DTYPES:
        for product in (dot, conv) if left == right else (dot,):
            with enable_x64(True):
                check(product, left, right, preferred)


def check(product, left, right, preferred):
    (x, wanted_x), (y, wanted_y) = numbers(left), numbers(right)
    if preferred == "bool" and (left, right) != ("bool", "bool"):
        with pytest.raises(TypeError, match="products of booleans"):
            product(x, y, preferred)
        return
    wanted = wanted_x @ wanted_y.T
    found = product(x, y, preferred)
    assert preferred in (None, found.dtype.name)
    expected = wanted if found.dtype.kind == "c" else wanted.real
    np.testing.assert_array_equal(found, expected.astype(found.dtype), right)


@pytest.mark.parametrize("preferred", [None, "float64", "complex64", "complex128"])
@pytest.mark.parametrize("right", ["float32", "complex64"])
@pytest.mark.parametrize("left", ["float32", "float64", "complex64"])
def test_slopes_of_products_of_two_dtypes(left, right, preferred):
    with enable_x64(True):
        (x, _), (y, _) = numbers(left), numbers(right)
        slopes = amdjax.grad(lambda x, y: jnp.real(dot(x, y, preferred)).sum(), (0, 1))(x, y)
        assert [g.dtype.name for g in slopes] == [left, right]
        for g, other in zip(slopes, (y, x), strict=True):
            wanted = np.broadcast_to(np.asarray(other).sum(0), (4, 3))
            wanted = wanted if g.dtype.kind == "c" else wanted.real
            np.testing.assert_array_equal(g, wanted.astype(g.dtype))
