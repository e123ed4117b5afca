"""The library's own math functions as machine code of both targets, against NumPy's result."""

import numpy as np
import pytest

from tests.support.emulated_math import REFERENCES, kernel_text
from tests.support.emulation import TARGETS, CodeObject, link, relocatable, run


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("name", REFERENCES)
def test_math(gfx, width, name):
    x = np.linspace(0.01, 8, 64 * width).astype(np.float32)
    out = np.zeros_like(x)
    run(CodeObject(link(relocatable(kernel_text(name, width), gfx))), 1, 64, out, x)
    want = REFERENCES[name](x.astype(np.float64))
    np.testing.assert_array_less(np.abs(out - want), 2.5 * np.spacing(np.abs(out)))
