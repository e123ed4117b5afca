"""Fused programs that Hypothesis makes, on every device, against NumPy."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.jit.test_schedule_property import check
from tests.support.random_programs import draw_program

pytestmark = pytest.mark.devices
DTYPES = (np.float32, np.int32, np.uint8, np.float16, ml_dtypes.bfloat16, np.complex64)


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.sampled_from(DTYPES))
def test_programs(choices, dtype):
    check(draw_program(choices, dtype), dtype)
