"""16-bit values that several kernels compute compare as what memory holds of them."""

import operator

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit

pytestmark = pytest.mark.devices
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((64, 33)), RNG.standard_normal(33)


def rounded(x, dtype):
    return np.asarray(x, np.float32).astype(dtype).astype(np.float32)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_with_what_another_kernel_stored(device, name, dtype):
    """By element and by row: the largest of a row is one of the row."""

    compare = getattr(operator, name)

    def f(x, y):
        z = x + y
        largest = z.max(1)
        return jnp.sort(largest), compare(z, largest[:, None]), compare(z, jnp.sort(largest)[-1])

    x, y = (jnp.asarray(a, dtype) for a in (X, Y))
    z = rounded(rounded(X, dtype) + rounded(Y, dtype), dtype)
    _, by_row, by_all = jit(f)(x, y)
    np.testing.assert_array_equal(by_row, compare(z, z.max(1, keepdims=True)))
    np.testing.assert_array_equal(by_all, compare(z, z.max()))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_gradients_of_extrema(device, dtype):
    """Of which some go to every row, beside sums that make them parts of other kernels."""

    def loss(x, y, w):
        z = jnp.einsum("nid,njd->nij", x, x) + y
        centered = z - z.mean((1, 2), keepdims=True)
        return (z.max(2) * 256).sum() + ((centered @ w).astype(jnp.float32) ** 2).sum()

    x, y, w = (jnp.asarray(RNG.standard_normal(s), dtype) for s in ((13, 3, 1), (3, 3), (13, 3, 1)))
    gradient = amdjax.grad(loss)
    np.testing.assert_allclose(
        *(np.asarray(g(x, y, w), np.float32) for g in (jit(gradient), gradient)), rtol=0.05, atol=8
    )
