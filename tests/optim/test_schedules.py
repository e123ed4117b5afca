import math

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import optim

CASES = {
    "constant": (optim.constant_schedule(0.3), lambda t: 0.3),
    "linear": (
        optim.linear_schedule(1.0, 0.2, 8, 2),
        lambda t: 1 - 0.8 * min(max(t - 2, 0), 8) / 8,
    ),
    "polynomial": (
        optim.polynomial_schedule(1.0, 0.2, 3, 8),
        lambda t: 0.8 * (1 - min(t, 8) / 8) ** 3 + 0.2,
    ),
    "cosine": (
        optim.cosine_decay_schedule(2.0, 10, alpha=0.1),
        lambda t: 2 * (0.9 * 0.5 * (1 + math.cos(math.pi * min(t, 10) / 10)) + 0.1),
    ),
    "exponential": (
        optim.exponential_decay(1.0, 5, 0.5, end_value=0.3),
        lambda t: max(0.5 ** (t / 5), 0.3),
    ),
    "staircase": (optim.exponential_decay(1.0, 5, 0.5, staircase=True), lambda t: 0.5 ** (t // 5)),
    "piecewise": (
        optim.piecewise_constant_schedule(1.0, {3: 0.1, 6: 0.5}),
        lambda t: (0.1 if t >= 3 else 1) * (0.5 if t >= 6 else 1),
    ),
    "warmup": (optim.warmup_constant_schedule(0.0, 2.0, 4), lambda t: 2 * min(t, 4) / 4),
    "warmup cosine": (
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 4, 14, end_value=0.1),
        lambda t: (
            t / 4 if t < 4 else 0.9 * 0.5 * (1 + math.cos(math.pi * min(t - 4, 10) / 10)) + 0.1
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    schedule, reference = CASES[name]
    counts = range(16)
    expected = [reference(t) for t in counts]
    np.testing.assert_allclose([schedule(t) for t in counts], expected, rtol=1e-6, atol=1e-7)
    compiled = amdjax.jit(lambda t: jnp.asarray(schedule(t)))
    np.testing.assert_allclose([compiled(t) for t in counts], expected, rtol=1e-6, atol=1e-7)
