"""Every kind of program as machine code of a GPU, emulated where there is none."""

import numpy as np
import pytest
from gpu_cases import CASES

import amdjax

pytestmark = pytest.mark.devices


@pytest.mark.parametrize("name", CASES)
def test_case(device, name):
    f, *args = CASES[name]
    found = amdjax.tree.leaves(amdjax.jit(f)(*args))
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        wanted = amdjax.tree.leaves(amdjax.jit(f)(*args))
    rtol = 2e-2 if any(x.dtype.itemsize == 2 for x in args) else 2e-4
    for x, y in zip(found, wanted, strict=True):
        assert x.aval is y.aval and (device is None or x.device is device)
        x, y = np.asarray(x), np.asarray(y)
        if y.dtype.kind in "iub":
            np.testing.assert_array_equal(x, y)
            continue
        wide = np.complex128 if y.dtype.kind == "c" else np.float64
        scale = max(1.0, float(np.nanmax(np.abs(y.astype(wide)), initial=0.0)))
        np.testing.assert_allclose(x.astype(wide), y.astype(wide), rtol, atol=rtol * scale)
