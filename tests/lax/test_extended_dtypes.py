"""Dtypes that users make: conversions to and from what is stored, and derivatives."""

import dataclasses

import numpy as np
import pytest

import amdjax
from amdjax import lax, numpy as jnp
from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray


class Rules:
    allow_conversion = True

    @staticmethod
    def physical_element_aval(dtype):
        return ShapedArray(dtype.shape, np.dtype(dtype.numbers))

    @staticmethod
    def tangent_dtype(dtype):
        return dtype

    @staticmethod
    def zero(dtype):
        return lax.convert_element_type(jnp.full(dtype.shape, -jnp.inf, dtype.numbers), dtype)

    @staticmethod
    def add(dtype, x, y):
        x, y = (lax.convert_element_type(v, dtype.numbers) for v in (x, y))
        return lax.convert_element_type(lax.max(x, y), dtype)


class Kind(dtypes.extended):
    pass


@dataclasses.dataclass(frozen=True)
class Scale(dtypes.ExtendedDType):
    shape: tuple = ()
    numbers: str = "float32"
    name: str = "scale"
    type: type = Kind
    _rules: type = Rules

    def __str__(self):
        return self.name


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("prefix", [(), (2,), (3, 4)])
@pytest.mark.parametrize("suffix", [(), (2,), (3, 4)])
def test_there_and_back(prefix, suffix, jit):
    dtype = Scale(suffix, "int32")
    wrap = amdjax.jit(lambda x: lax.convert_element_type(x, dtype)) if jit else dtype_of(dtype)
    x = np.arange(np.prod(prefix + suffix), dtype=np.int32).reshape(prefix + suffix)
    y = wrap(x)
    assert y.shape == prefix and y.dtype == dtype
    np.testing.assert_array_equal(lax.convert_element_type(y, np.int32), x)
    both = amdjax.vmap(lambda v: lax.convert_element_type(wrap(v), np.int32), 0, 0)
    np.testing.assert_array_equal(both(np.stack([x, x + 1])), np.stack([x, x + 1]))


def dtype_of(dtype):
    return lambda x: lax.convert_element_type(x, dtype)


def test_only_what_it_is_stored_as():
    dtype, x = Scale((3,), "int32"), jnp.zeros((5, 3), np.int32)
    y = lax.convert_element_type(x, dtype)
    with pytest.raises(ValueError, match="cannot directly convert between extended dtypes"):
        lax.convert_element_type(y, Scale((3,), "int32", "other"))
    for value in (x.astype("float32"), x[:, :2], x[:, 0], x[0, 0]):
        with pytest.raises(ValueError, match="can only convert"):
            lax.convert_element_type(value, dtype)
    with pytest.raises(ValueError, match="can only convert"):
        lax.convert_element_type(y, np.float32)
    closed = Scale(name="closed", _rules=type("Closed", (Rules,), {"allow_conversion": False}))
    with pytest.raises(ValueError, match="Cannot convert_element_type from float32 to closed"):
        lax.convert_element_type(jnp.zeros(3), closed)


def test_cotangents_add_by_the_rule_of_their_dtype():
    """The largest scale that any step asks for comes back, also out of a loop."""

    @amdjax.custom_vjp
    def step(carry, scale):
        return carry

    def backward(scale, ct):
        wanted = lax.convert_element_type(scale, np.float32) + ct.max()
        return 2 * ct, lax.convert_element_type(wanted, Scale())

    step.defvjp(lambda carry, scale: (carry, scale), backward)

    def looped(x, scale):
        scale = lax.convert_element_type(scale, Scale())
        return lax.scan(lambda c, _: (step(c, scale), None), x, None, length=3)[0]

    def unrolled(x, scale):
        scale = lax.convert_element_type(scale, Scale())
        return step(step(step(x, scale), scale), scale)

    for fun in (looped, unrolled):
        g, scale = amdjax.jit(amdjax.grad(fun, (0, 1)))(np.float32(3), np.float32(1))
        assert (float(g), float(scale)) == (8.0, 5.0)
