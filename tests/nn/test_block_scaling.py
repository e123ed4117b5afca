"""Products of operands rounded in blocks: exact where nothing is lost, near otherwise."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn

NUMBERS = (((2,), (1,)), ((0,), (0,)))


def product(mode, **options):
    configs = [nn.get_scaled_dot_general_config(mode, **options)] * 3
    return lambda a, b: nn.scaled_dot_general(a, b, NUMBERS, configs=configs)


@pytest.mark.parametrize("mode, digits", [("mxfp8", 16), ("nvfp4", 4)])
def test_values_of_few_bits_are_exact(mode, digits):
    rng = np.random.default_rng(0)
    a = rng.integers(-digits + 1, digits, (2, 3, 64)).astype(np.float32)
    b = rng.integers(-digits + 1, digits, (2, 64, 5)).astype(np.float32)
    largest = {"mxfp8": 1.0, "nvfp4": 6.0}[mode]  # so that scales are exact too
    a[..., ::16], b[:, ::16] = largest, largest
    got = amdjax.jit(product(mode))(a, b)
    np.testing.assert_array_equal(got, np.einsum("bmk,bkn->bmn", a, b))


# Half a unit in the last place of an element, and of a scale where that is no power of two.
UNIT = {"mxfp8": 2.0**-4, "nvfp4": 2.0**-2 + 2.0**-4}


@pytest.mark.parametrize("mode", UNIT)
def test_rounding_is_relative_to_blocks(mode):
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 1, (2, 32, 64)), rng.uniform(0.5, 1, (2, 64, 32))
    a *= rng.choice([-1, 1], a.shape)
    a *= np.repeat(2.0 ** rng.integers(-6, 6, (2, 32, 2)), 32, -1)
    a, b = a.astype(np.float32), b.astype(np.float32)
    error = np.abs(product(mode)(a, b) - a @ b)
    assert (error <= (2 * UNIT[mode] + UNIT[mode] ** 2) * (np.abs(a) @ b)).all()


@pytest.mark.parametrize("mode", UNIT)
def test_gradients_are_those_of_products_of_rounded_arrays(mode):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 32, 64)), rng.standard_normal((2, 64, 32))
    a, b = a.astype(np.float32), b.astype(np.float32)
    slopes = amdjax.jit(amdjax.grad(lambda a, b: (product(mode)(a, b) ** 2).sum(), (0, 1)))(a, b)
    exact = amdjax.grad(lambda a, b: ((a @ b) ** 2).sum(), (0, 1))(jnp.asarray(a), jnp.asarray(b))
    for got, want in zip(slopes, exact, strict=True):
        # Four roundings, whose errors are independent and uniform.
        assert np.linalg.norm(got - want) < 2 * UNIT[mode] / np.sqrt(3) * np.linalg.norm(want)


def test_settings():
    halved = product("nvfp4", global_scale=jnp.array([0.5], jnp.float32))
    ones = np.full((1, 2, 16), 3.0, np.float32), np.full((1, 16, 2), 3.0, np.float32)
    np.testing.assert_allclose(halved(*ones), 144)
    np.testing.assert_array_equal(nn.scaled_dot_general(*ones, NUMBERS), np.full((1, 2, 2), 144))
    with pytest.raises(ValueError, match="no multiple of the 32 of a block"):
        product("mxfp8")(*ones)
    with pytest.raises(ValueError, match="Unsupported mode"):
        nn.get_scaled_dot_general_config("int8")
