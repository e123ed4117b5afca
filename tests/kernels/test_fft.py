import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import amdjax
from amdjax import lax

CASES = [((8,), 1), ((7,), 1), ((3, 5, 6), 2), ((4, 4, 4), 3), ((2, 97), 1), ((1000,), 1),
         ((2, 3, 4, 5), 3), ((0, 8), 1), ((1,), 1), ((70, 1024), 1)]  # fmt: skip


def signal(rng, shape, dtype):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def close(actual, expected, dtype, lengths):
    """Errors are a few roundings of the whole signal's size."""
    expected = np.asarray(expected)
    size = np.max(np.abs(expected), initial=0.0)
    atol = 4 * np.finfo(dtype).eps * math.log2(math.prod(lengths) + 1) * size
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=0, atol=atol)


def check(shape, rank, dtype):
    rng = np.random.default_rng(0)
    axes, lengths = tuple(range(-rank, 0)), shape[len(shape) - rank :]
    x = signal(rng, shape, dtype)
    real = np.finfo(dtype).dtype
    if not x.size:
        for kind in ("FFT", "IFFT"):
            assert lax.fft(x, kind, lengths).shape == shape
        return
    close(lax.fft(x, "FFT", lengths), np.fft.fftn(x, axes=axes), dtype, lengths)
    close(lax.fft(x, "IFFT", lengths), np.fft.ifftn(x, axes=axes), dtype, lengths)
    half = lax.fft(x.real, "RFFT", lengths)
    close(half, np.fft.rfftn(x.real, axes=axes), dtype, lengths)
    back = lax.fft(half, "IRFFT", lengths)
    close(back, x.real, dtype, lengths)
    assert half.dtype == dtype and back.dtype == real


@pytest.mark.parametrize("shape, rank", CASES)
def test_against_numpy(shape, rank):
    check(shape, rank, np.complex64)
    with amdjax.enable_x64(True):
        check(shape, rank, np.complex128)


@given(st.integers(1, 300))
def test_any_length(n):
    check((2, n), 1, np.complex64)
