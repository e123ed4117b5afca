"""A value that is several results is written several times by the kernel that computes it."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core.config import disabled_passes

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def twice(x):
    y = jnp.exp(x) + 1
    return y, x.sum(0), y


def opcodes(off):
    with disabled_passes(off):
        text = amdjax.jit(twice).lower(X).compile().as_text("plan")
    return [line.split()[0] for line in text.splitlines() if not line.startswith("arena")]


def test_no_result_is_copied():
    assert "COPY" not in opcodes("")
    assert "COPY" in opcodes("repeat_results")


@pytest.mark.devices
def test_values():
    for found in (amdjax.jit(twice)(X), amdjax.jit(lambda x: (x, x))(X), amdjax.jit(twice)(X)):
        first, *_, last = found
        np.testing.assert_array_equal(first, last)
        assert first is not last and first.unsafe_buffer_pointer() != last.unsafe_buffer_pointer()
    y, total, _ = amdjax.jit(twice)(X)
    np.testing.assert_allclose(y, np.exp(X) + 1, rtol=5e-7)
    np.testing.assert_allclose(total, X.sum(0), rtol=1e-6, atol=1e-6)
