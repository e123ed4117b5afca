"""Kernels compiled from LLVM IR, on both targets, against NumPy."""

import numpy as np
import pytest
from emulation import TARGETS, compiled, elementwise, run

pytestmark = pytest.mark.parametrize("gfx", TARGETS)


def test_vector_add(gfx, rng=np.random.default_rng(0)):
    a, b = rng.standard_normal((2, 640)).astype(np.float32)
    out = np.zeros_like(a)
    code = compiled(elementwise("  %r = fadd float %x0, %x1", "float float"), gfx)
    counters = run(code, 10, 64, out, a, b)
    np.testing.assert_array_equal(out, a + b)
    assert counters.by_class["vmem"] >= 30
