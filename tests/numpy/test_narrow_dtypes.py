"""Arrays of all floats of few bits, and of integers, beside those of ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

import amdjax.numpy as jnp

NAMES = [n for n in dir(ml_dtypes) if n.startswith(("float", "bfloat", "int", "uint"))]
DTYPES = {
    n: np.dtype(getattr(ml_dtypes, n))
    for n in NAMES
    if hasattr(jnp, n) and n not in ("int1", "uint1")  # these are kept, not computed with
}


def test_all_are_known():
    assert len(DTYPES) >= 14


@pytest.mark.parametrize("name", DTYPES)
def test_arrays(name):
    dtype = DTYPES[name]
    numbers = np.float32([0.5, 1, 1, 2, 0.25, 1]) if "float" in name else np.float32([0, 1, 1, 0])
    x = numbers.astype(dtype)
    array = jnp.asarray(x)
    assert array.dtype == dtype
    bits = lambda a: np.asarray(a).astype(dtype).view(np.uint8).tolist()
    assert bits(array) == bits(x)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(array.astype(np.float32), wide)
    assert bits(jnp.asarray(wide).astype(dtype)) == bits(x)
    with np.errstate(over="ignore"):
        assert bits(array * array) == bits((wide * wide).astype(dtype))
    assert float(array[1]) == wide[1]
    assert bits(jnp.ones(3, dtype)) == bits(np.ones(3, dtype))
    assert str(wide[1])[0] in repr(array)
