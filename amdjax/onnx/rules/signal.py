"""Signals: Fourier transforms, filter banks."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core.dtypes import canonicalize_dtype

from ..reading import dtype_of
from ..registry import integer, rule


@rule("DFT", since=20)
def dft(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    return _dft(x, length, -2 if axis is None else integer(axis, "axis"), inverse, onesided)


@rule("DFT", since=17)
def dft_before(
    x: Any, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Any:
    return _dft(x, length, axis, inverse, onesided)


def _dft(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    """Of real or complex numbers, which are a last axis of one or two."""
    count = None if length is None else integer(length, "dft_length")
    axis %= x.ndim
    is_complex = x.shape[-1] == 2
    # Of a signal in float64, where there is: sums of many terms that cancel are to be zero.
    wide = np.dtype(np.float64 if not inverse else np.float32)
    parts = x.astype(canonicalize_dtype(np.promote_types(x.dtype, wide)))
    values = lax.complex(parts[..., 0], parts[..., 1]) if is_complex else parts[..., 0]
    if inverse and onesided:
        made = jnp.fft.irfft(values, count, axis)[..., None]
        return made.astype(x.dtype)
    if onesided and not is_complex:
        y = jnp.fft.rfft(values, count, axis)
    else:
        y = (jnp.fft.ifft if inverse else jnp.fft.fft)(values, count, axis)
        if onesided:
            y = lax.slice_in_dim(y, 0, y.shape[axis] // 2 + 1, axis=axis)
    return jnp.stack([y.real, y.imag], -1).astype(x.dtype)


@rule("STFT", since=17)
def stft(
    signal: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1
) -> Any:
    hop = integer(step, "frame_step")
    size = window.shape[0] if length is None else integer(length, "frame_length")
    frames = (signal.shape[1] - size) // hop + 1
    places = np.arange(frames)[:, None] * hop + np.arange(size)
    parts = signal if signal.ndim == 3 else signal[..., None]
    framed = jnp.asarray(parts)[:, places]  # (batch, frames, size, 1 or 2)
    if window is not None:
        pad = (size - window.shape[0]) // 2
        weights = jnp.pad(window, (pad, size - window.shape[0] - pad))
        framed = framed * weights[:, None].astype(framed.dtype)
    return _dft(framed, None, 2, 0, onesided)


@rule("MelWeightMatrix", since=17)
def mel_weight_matrix(
    bins: Any,
    dft_length: Any,
    sample_rate: Any,
    lower: Any,
    upper: Any,
    *,
    output_datatype: int = 1,
) -> Any:
    """Triangles over frequencies, equally far apart on the mel scale."""
    count, length = integer(bins, "num_mel_bins"), integer(dft_length, "dft_length")
    rate = integer(sample_rate, "sample_rate")
    low, high = (float(np.asarray(v).reshape(())) for v in (lower, upper))
    mel = lambda hertz: 2595 * np.log10(1 + hertz / 700)
    edges = np.arange(count + 2) * ((mel(high) - mel(low)) / (count + 2)) + mel(low)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    places = ((length + 1) * hertz // rate).astype(int)
    table = np.zeros((length // 2 + 1, count))
    for i in range(count):
        first, middle, last = places[i : i + 3]
        if middle == first:
            table[middle, i] = 1
        else:
            table[first : middle + 1, i] = np.arange(middle - first + 1) / (middle - first)
        if last > middle:
            table[middle:last, i] = (last - np.arange(middle, last)) / (last - middle)
    return table.astype(dtype_of(output_datatype))
