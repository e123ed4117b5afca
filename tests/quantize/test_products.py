"""Sums of integers without their zero points, next to those of differences in 32 bits."""

import numpy as np
import pytest

from amdjax import lax, numpy as jnp
from amdjax.quantize.products import convolution_sums

LAYOUTS = [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("HNCW", "IOWH", "CWNH")]


@pytest.mark.parametrize("zeros", ["", "x", "w", "xw"])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_convolutions(layout, groups, zeros):
    rng = np.random.default_rng(groups)
    whole = lambda *shape: rng.integers(-128, 128, shape).astype(np.int8)
    sizes = {"N": 2, "C": 6, "H": 8, "W": 7, "O": 12, "I": 6 // groups}
    kernel = {**sizes, "H": 3, "W": 2}
    x, w = whole(*(sizes[c] for c in layout[0])), whole(*(kernel[c] for c in layout[1]))
    p = whole() if "x" in zeros else None
    q = whole(*(12 if c == "O" else 1 for c in layout[1])) if "w" in zeros else None
    params = {
        "window_strides": (2, 1), "padding": ((1, 2), (0, 1)), "lhs_dilation": (1, 2),
        "rhs_dilation": (1, 2), "feature_group_count": groups,
        "dimension_numbers": lax.conv_dimension_numbers(x.shape, w.shape, layout),
    }  # fmt: skip
    whole_params = {**params, "batch_group_count": 1, "precision": None, "out_sharding": None}
    found = convolution_sums(
        whole_params, *(v if v is None else jnp.asarray(v) for v in (x, p, w, q))
    )
    left, right = (
        v.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))
        for v, zero in ((x, p), (w, q))
    )
    wanted = lax.conv_general_dilated(left, right, **params)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)
