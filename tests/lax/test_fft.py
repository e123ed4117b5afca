import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import lax
from tests.support.lax_checks import check_batching, check_derivatives

REFERENCE = {
    "fft": lambda x, axes, lengths: np.fft.fftn(x, axes=axes),
    "ifft": lambda x, axes, lengths: np.fft.ifftn(x, axes=axes),
    "rfft": lambda x, axes, lengths: np.fft.rfftn(x, axes=axes),
    "irfft": lambda x, axes, lengths: np.fft.irfftn(x, s=lengths, axes=axes),
}


@st.composite
def signals(draw, largest=9):
    kind = draw(st.sampled_from(sorted(REFERENCE)))
    lengths = tuple(draw(st.lists(st.integers(1, largest), min_size=1, max_size=3)))
    batch = tuple(draw(st.lists(st.integers(0, 3), max_size=1)))
    shape = batch + lengths
    if kind == "irfft":
        shape = (*shape[:-1], lengths[-1] // 2 + 1)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal(shape)
    if kind != "rfft":
        x = x + 1j * rng.standard_normal(shape)
    return kind, x, lengths


@given(signals(largest=40))
def test_value(signal):
    kind, x, lengths = signal
    x = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
    found = lax.fft(x, kind, lengths)
    axes = tuple(range(-len(lengths), 0))
    wanted = REFERENCE[kind](x.astype(np.result_type(x, np.float64)), axes, lengths)
    scale = max(1, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * scale)
    assert found.dtype == (np.float32 if kind == "irfft" else np.complex64)


@pytest.mark.parametrize("n", [1, 2, 64, 97, 128, 360, 1009, 1024])
def test_lengths(n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    found = lax.fft(x, lax.FftType.RFFT, (n,))
    scale = np.abs(np.fft.rfft(x)).max()
    np.testing.assert_allclose(found, np.fft.rfft(x.astype(np.float64)), atol=2e-6 * scale)
    back = lax.fft(np.asarray(found), lax.FftType.IRFFT, (n,))
    np.testing.assert_allclose(back, x, atol=1e-5)


@given(signals(largest=5))
def test_rules(signal):
    kind, x, lengths = signal
    fun = lambda x: lax.fft(x, kind, lengths)
    check_derivatives(fun, x, order=1)
    x = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
    check_batching(fun, x, rtol=1e-4, atol=1e-4)


def test_conversions():
    x = np.arange(4, dtype=np.int32)
    np.testing.assert_allclose(lax.fft(x, "fft", (4,)), np.fft.fft(x), atol=1e-6)
    np.testing.assert_allclose(lax.fft(x, "rfft", (4,)), np.fft.rfft(x), atol=1e-6)
    assert lax.fft(x, "fft", ()).dtype == np.complex64


@pytest.mark.parametrize(
    "x, kind, lengths, message",
    [
        (np.zeros(4, np.complex64), "rfft", (4,), "real numbers"),
        (np.zeros(4, np.float32), "rfft", (3,), "minor dimensions must be equal"),
        (np.zeros(4, np.complex64), "irfft", (4,), "minor dimensions must be equal"),
        (np.zeros(4, np.complex64), "fft", (1, 4), "fft_lengths"),
        (np.zeros(4, np.complex64), "dft", (4,), "unknown fft_type"),
    ],
)
def test_bad_arguments_are_named(x, kind, lengths, message):
    with pytest.raises(ValueError, match=message):
        lax.fft(x, kind, lengths)
