"""Arguments that fit what is said of inputs."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.export.values import Value, bound

WIDE = (np.int64, np.uint64, np.float64, np.complex128)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("is_wide", (False, True))
def test_arrays_made_without_64_bits_fit(dtype, is_wide):
    """Ones of `jnp` are of 32 bits; the model computes in its own type where there is one."""
    x = jnp.asarray(np.arange(3, dtype=dtype))
    with amdjax.enable_x64(is_wide):
        (given,) = bound([Value("x", np.dtype(dtype), ("n",))], (x,), {}, whose="it").values()
    assert given.dtype == (dtype if is_wide else x.dtype)
    np.testing.assert_array_equal(given, np.arange(3))


@pytest.mark.parametrize("dtype", (np.int16, np.float32, np.uint32, np.bool_))
def test_others_do_not(dtype):
    with pytest.raises(ValueError, match=r"input x: int64\[n\] must be int64, got"):
        bound([Value("x", np.dtype(np.int64), ("n",))], (np.zeros(3, dtype),), {}, whose="it")
