"""Spectra of signals from overlapping segments: Welch's method and short-time transforms."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    canonical_axis,
    check_arraylike,
    is_kind,
    promote_dtypes_inexact,
)
from amdjax.scipy.signal.detrending import detrend as _detrend


def _whole(value: Any, what: str, otherwise: int) -> int:
    """A size that a program must know, or `otherwise` if it is None."""
    if value is None:
        return otherwise
    try:
        return operator.index(value)
    except TypeError:
        return int(value)


def _window(window: Any, length: int) -> np.ndarray | Array:
    if not isinstance(window, (str, tuple)):
        return jnp.asarray(window)
    if window == "hann":
        return np.sin(np.pi * np.arange(length) / length) ** 2 if length > 1 else np.ones(1)
    # late: SciPy takes long to load
    from scipy.signal import get_window

    return get_window(window, length)


def _window_of_segments(
    window: Any, nperseg: int | None, length: int, dtype: Any
) -> tuple[Array, int]:
    """The window and the number of samples in a segment."""
    if isinstance(window, (str, tuple)):
        nperseg = length if nperseg is None else nperseg
        if nperseg > length:
            warnings.warn(
                f"nperseg={nperseg} is greater than input_length={length}, using nperseg={length}",
                stacklevel=4,
            )
            nperseg = length
        return jnp.asarray(_window(window, nperseg), dtype), nperseg
    values = jnp.asarray(window, dtype)
    nperseg = values.size if nperseg is None else nperseg
    if values.ndim != 1:
        raise ValueError(f"window must be 1-D, got shape {values.shape}")
    if length < values.size:
        raise ValueError(f"window is longer than input signal: {values.size} > {length}")
    if nperseg != values.size:
        raise ValueError(
            "value specified for nperseg is different from length of window:"
            f" {nperseg} != {values.size}"
        )
    return values, nperseg


def _padded(mode: str) -> Callable[[Array, int], Array]:
    def extend(x: Array, n: int) -> Array:
        return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(n, n)], mode=mode)

    return extend


def _odd(x: Array, n: int) -> Array:
    """Extended by its own turned about both ends."""
    if n < 1:
        return x
    if n > x.shape[-1] - 1:
        raise ValueError(
            f"The extension length n ({n}) is too big. It must not exceed x.shape[axis]-1, which"
            f" is {x.shape[-1] - 1}."
        )
    before = 2 * x[..., :1] - jnp.flip(x[..., 1 : n + 1], -1)
    after = 2 * x[..., -1:] - jnp.flip(x[..., -n - 1 : -1], -1)
    return jnp.concatenate([before, x, after], axis=-1)


_BOUNDARIES: dict[str | None, Callable[[Array, int], Array]] = {
    "even": _padded("reflect"), "odd": _odd, "constant": _padded("edge"),
    "zeros": _padded("constant"), None: lambda x, n: x,
}  # fmt: skip


def _segments(x: Array, nperseg: int, step: int) -> Array:
    """Windows of the last axis, of shape `(..., segments, nperseg)`."""
    starts = np.arange(0, x.shape[-1] - nperseg + 1, step)
    return jnp.take(x, starts[:, None] + np.arange(nperseg), axis=-1)


def _detrender(kind: Any, axis: int) -> Callable[[Array], Array]:
    if isinstance(kind, str):
        return functools.partial(_detrend, type=kind, axis=-1)
    if callable(kind):
        if axis == -1:
            return kind
        return lambda d: jnp.moveaxis(kind(jnp.moveaxis(d, axis, -1)), -1, axis)
    if kind:
        raise ValueError(f"Unsupported detrend type: {kind}")
    return lambda d: d


def _with_zeros(x: Array, count: int) -> Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count)])


def _spectral(
    x: Any, y: Any, fs: Any, window: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Any,
    return_onesided: bool, scaling: str, axis: int, mode: str, boundary: str | None, padded: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Frequencies, times and transforms ("stft") or their products ("psd") of all segments."""
    if boundary not in _BOUNDARIES:
        raise ValueError(
            f"Unknown boundary option '{boundary}', must be one of: {list(_BOUNDARIES)}"
        )
    arrays = [x] if y is None else [x, y]
    check_arraylike("spectral_helper", *arrays)
    axis = canonical_axis(operator.index(axis), np.ndim(x))
    arrays = promote_dtypes_inexact(*arrays)
    _check_pair(arrays, axis)
    x = arrays[0]
    result_dtype = dtypes.to_complex_dtype(x.dtype)
    real = dtypes.finfo(result_dtype).dtype
    if nperseg is not None:
        nperseg = _whole(nperseg, "nperseg", 0)
        if nperseg < 1:
            raise ValueError(f"nperseg must be a positive integer, got {nperseg}")
    win, nperseg = _window_of_segments(window, nperseg, x.shape[axis], x.dtype)
    noverlap = _whole(noverlap, "noverlap", nperseg // 2)
    nfft = _whole(nfft, "nfft", nperseg)
    if any(a.size == 0 for a in arrays):
        return _empty(arrays, axis, real, result_dtype)
    if nfft < nperseg:
        raise ValueError(f"nfft must be greater than or equal to nperseg, got {nfft} < {nperseg}.")
    if noverlap >= nperseg:
        raise ValueError(f"noverlap must be less than nperseg, got {noverlap} >= {nperseg}.")
    step = nperseg - noverlap
    arrays = [jnp.moveaxis(a, axis, -1) for a in arrays]
    length = max(a.shape[-1] for a in arrays)
    arrays = [_with_zeros(a, length - a.shape[-1]) for a in arrays]
    arrays = [_BOUNDARIES[boundary](a, nperseg // 2) for a in arrays]
    if padded:
        missing = (-(arrays[0].shape[-1] - nperseg) % step) % nperseg
        arrays = [_with_zeros(a, missing) for a in arrays]
    length = arrays[0].shape[-1]

    if return_onesided and any(is_kind(a.dtype, np.complexfloating) for a in arrays):
        return_onesided = False
        warnings.warn("Input data is complex, switching to return_onesided=False", stacklevel=3)
    transform = jnp.fft.rfft if return_onesided else jnp.fft.fft
    frequencies = (jnp.fft.rfftfreq if return_onesided else jnp.fft.fftfreq)(
        nfft, 1 / fs, dtype=real
    )
    without_trend = _detrender(detrend, axis)
    spectra = []
    for a in arrays:
        pieces = without_trend(_segments(a, nperseg, step))
        pieces = pieces * jnp.broadcast_to(win, pieces.shape).astype(pieces.dtype)
        spectra.append(transform(pieces, n=nfft))
    result = spectra[0]
    if mode == "psd":
        result = lax.conj(spectra[0]) * spectra[-1]
    result = result * _scale(scaling, mode, win, fs).astype(result.dtype)
    if return_onesided and mode == "psd":
        # All frequencies but zero and the last of an even number stand for their negative too.
        result = result.at[..., 1 : None if nfft % 2 else -1].multiply(2)
    times = jnp.arange(nperseg / 2, length - nperseg / 2 + 1, step, dtype=real) / fs
    if boundary is not None:
        times = times - nperseg / 2 / fs
    result = result.astype(result_dtype)
    if y is None and mode == "psd":
        result = lax.real(result)
    # Segments come last, frequencies where the samples were.
    return frequencies, times, jnp.moveaxis(result, -1, axis)


def _check_pair(arrays: list[Array], axis: int) -> None:
    if len({a.ndim for a in arrays}) > 1:
        x, y = arrays
        raise ValueError(f"two-arguments must have the same rank ({x.ndim} vs {y.ndim}).")
    others = [a.shape[:axis] + a.shape[axis + 1 :] for a in arrays]
    try:
        lax.broadcast_shapes(*others)
    except ValueError as error:
        raise ValueError(
            "x and y cannot be broadcast together, got shapes"
            f" {' and '.join(str(a.shape) for a in arrays)}."
        ) from error


def _empty(arrays: list[Array], axis: int, real: Any, result: Any) -> tuple[Array, Array, Array]:
    shape = list(lax.broadcast_shapes(*[a.shape[:axis] + a.shape[axis + 1 :] for a in arrays]))
    shape.insert(axis, min(a.shape[axis] for a in arrays))
    return jnp.zeros(shape, real), jnp.zeros(shape, real), jnp.zeros(shape, result)


def _scale(scaling: str, mode: str, win: Array, fs: Any) -> Array:
    if scaling == "density":
        scale = 1.0 / (fs * (win * win).sum())
    elif scaling == "spectrum":
        scale = 1.0 / win.sum() ** 2
    else:
        raise ValueError(f"Unknown scaling: {scaling!r}; it must be 'density' or 'spectrum'")
    return jnp.sqrt(scale) if mode == "stft" else scale


def stft(
    x: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int = 256,
    noverlap: int | None = None, nfft: int | None = None, detrend: Any = False,
    return_onesided: bool = True, boundary: str | None = "zeros", padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The Fourier transforms of overlapping segments of a signal.

    Args:
      x: the signals.
      boundary: how the signal goes on beyond its ends: "even", "odd", "constant", "zeros" or None.
      padded: add zeros at the end, so that the segments hold the whole signal.

    Returns:
      Frequencies, times of the segments' centers, and transforms; the frequencies take the place of
      `axis` and the segments are the last axis.

        >>> f, t, z = amdjax.scipy.signal.stft(jnp.ones(16), nperseg=8)
        >>> z.shape
        (5, 5)
    """
    return _spectral(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, "spectrum", axis,
        "stft", boundary, padded,
    )  # fmt: skip


def csd(
    x: ArrayLike, y: ArrayLike | None, fs: ArrayLike = 1.0, window: Any = "hann",
    nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
    detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Array, Array]:  # fmt: skip
    """The cross spectral density of two signals, by Welch's method.

    Args:
      y: signals of the same rank; None takes `x`.
      nperseg: samples in a segment; the whole signal by default.

        >>> f, p = amdjax.scipy.signal.csd(jnp.ones(16), jnp.ones(16), nperseg=8)
        >>> p.shape, p.dtype
        ((5,), dtype('complex64'))
    """
    frequencies, _, density = _spectral(
        x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, "psd",
        None, False,
    )  # fmt: skip
    if density.ndim < 2 or density.size == 0:
        return frequencies, density
    segments = density.shape[-1]
    if segments == 1:
        return frequencies, density[..., 0]
    if average == "mean":
        return frequencies, density.mean(axis=-1)
    if average != "median":
        raise ValueError(f'average must be "median" or "mean", got {average}')
    # The median of squares of normal numbers is less than their mean. A number of no dtype.
    even = np.arange(2.0, segments, 2)
    bias = 1 + float(np.sum(1 / (even + 1) - 1 / even))
    if is_kind(density.dtype, np.complexfloating):
        parts = [jnp.median(part(density), axis=-1) for part in (lax.real, lax.imag)]
        return frequencies, lax.complex(*parts) / bias
    return frequencies, jnp.median(density, axis=-1) / bias


def welch(
    x: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None,
    noverlap: int | None = None, nfft: int | None = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
) -> tuple[Array, Array]:  # fmt: skip
    """The power spectral density of a signal, by Welch's method.

    Args:
      nperseg: samples in a segment; the whole signal by default.

    Source: Welch, "The use of fast Fourier transform for the estimation of power spectra", 1967.

        >>> f, p = amdjax.scipy.signal.welch(jnp.ones(16), nperseg=8)
        >>> p.shape
        (5,)
    """
    frequencies, density = csd(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis,
        average,
    )  # fmt: skip
    return frequencies, lax.real(density) if is_kind(density.dtype, np.complexfloating) else density


def _overlap_add(frames: Array, step: int) -> Array:
    """The sum of segments, of shape `(..., segments, n)`, each `step` after the one before."""
    segments, n = frames.shape[-2:]
    length = step * (segments - 1) + n
    places = np.arange(segments)[:, None] * step + np.arange(n)
    total = jnp.zeros((*frames.shape[:-2], length), frames.dtype)
    return total.at[..., places].add(frames)


def istft(
    Zxx: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None,
    noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True,
    boundary: bool = True, time_axis: int = -1, freq_axis: int = -2,
) -> tuple[Array, Array]:  # fmt: skip
    """The signal that has the short-time Fourier transform `Zxx`.

    Args:
      Zxx: transforms, as `stft` returns them.
      window: the name of a window, or its values, as for `stft`.
      nfft: length of the transforms.
      input_onesided: whether negative frequencies were left out.
      boundary: whether the signal was extended, so that half a segment is cut off at its ends.
      time_axis: the axis of segments.
      freq_axis: the axis of frequencies.

    Returns:
      Times, and the signal.

    Raises:
      ValueError: a size is not allowed; the message says which.

        >>> _, _, z = amdjax.scipy.signal.stft(jnp.ones(16), nperseg=8)
        >>> jnp.round(amdjax.scipy.signal.istft(z, nperseg=8)[1][:3], 3)
        Array([1., 1., 1.], dtype=float32)
    """
    z = as_array("istft", Zxx)
    if z.ndim < 2:
        raise ValueError(f"Input stft must be at least 2d, got shape {z.shape}!")
    freq_axis, time_axis = canonical_axis(freq_axis, z.ndim), canonical_axis(time_axis, z.ndim)
    if freq_axis == time_axis:
        raise ValueError("Must specify differing time and frequency axes!")
    z = z.astype(dtypes.to_complex_dtype(z.dtype))
    bins = z.shape[freq_axis]
    usual = 2 * (bins - 1) if input_onesided else bins
    nperseg = _whole(nperseg or usual, "nperseg", 0)
    if nperseg < 1:
        raise ValueError(f"nperseg must be a positive integer, got {nperseg}")
    odd = input_onesided and nperseg == usual + 1
    nfft = _whole(nfft, "nfft", usual + odd)
    if nfft < nperseg:
        raise ValueError(f"FFT length ({nfft}) must be longer than nperseg ({nperseg}).")
    noverlap = _whole(noverlap or nperseg // 2, "noverlap", 0)
    if noverlap >= nperseg:
        raise ValueError(f"noverlap must be less than nperseg, got {noverlap} >= {nperseg}.")
    step = nperseg - noverlap

    frames = jnp.moveaxis(z, (time_axis, freq_axis), (-2, -1))
    frames = (jnp.fft.irfft if input_onesided else jnp.fft.ifft)(frames, n=nfft)[..., :nperseg]
    win = jnp.asarray(_window(window, nperseg), frames.dtype)
    if win.ndim != 1:
        raise ValueError(f"window must be 1-D, got shape {win.shape}")
    if win.shape[0] != nperseg:
        raise ValueError(f"window must have length of {nperseg}, got {win.shape[0]}")
    windows = jnp.broadcast_to(win, frames.shape[-2:])
    signal = _overlap_add(frames * jnp.broadcast_to(win * win.sum(), frames.shape), step)
    norm = _overlap_add(windows * windows, step)
    if boundary:
        half = nperseg // 2
        signal, norm = signal[..., half:-half], norm[half:-half]
    norm = jnp.where(lax.abs(norm) > 1e-10, norm, 1)
    signal = signal / jnp.broadcast_to(norm, signal.shape)
    if signal.ndim > 1 and time_axis != z.ndim - 1:
        signal = jnp.moveaxis(signal, -1, time_axis - (freq_axis < time_axis))
    # SciPy counts the first axis, whichever the samples lie along.
    times = jnp.arange(signal.shape[0], dtype=dtypes.finfo(signal.dtype).dtype) / fs
    return times, signal
