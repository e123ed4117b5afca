"""Discrete Fourier transforms over the last axes of an array."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Host
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    LINEAR,
    as_axes,
    dtype_of,
    is_complex,
    jvp_from,
    move_axis,
    scalar,
    shape_of,
)
from amdjax.lax.casting import convert_element_type
from amdjax.lax.complexes import conj
from amdjax.lax.elementwise import div, mul
from amdjax.lax.shape import broadcast_in_dim

__all__ = ["FftType", "fft", "fft_p"]


class FftType(enum.IntEnum):
    """The kind of a transform: complex or real, forward or inverse."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def _kind(fft_type: FftType | str) -> FftType:
    if isinstance(fft_type, FftType):
        return fft_type
    try:
        return FftType[fft_type.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(repr(kind.name.lower()) for kind in FftType)
        raise ValueError(f"unknown fft_type {fft_type!r}; choose one of {names}.") from None


fft_p = Primitive("fft")


@fft_p.def_abstract_eval
def _fft_type(x, *, fft_type, fft_lengths):
    rank, what = len(fft_lengths), f"{fft_type.name} input"
    if rank > len(x.shape):
        raise ValueError(
            f"{what} shape {x.shape} must have at least as many input dimensions as fft_lengths "
            f"{fft_lengths}."
        )
    if x.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        real = fft_type is FftType.RFFT
        kinds = "float32 or float64" if real else "in single or double precision"
        raise ValueError(f"{what} must be {kinds}, got {x.dtype}.")
    batch, transformed = x.shape[: len(x.shape) - rank], x.shape[len(x.shape) - rank :]
    halved = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1)
    wanted = halved if fft_type is FftType.IRFFT else fft_lengths
    if transformed != wanted:
        lengths = f"fft_lengths {fft_lengths}"
        if fft_type is FftType.IRFFT:
            lengths = f"all except the last fft_length, got fft_lengths={fft_lengths}"
        raise ValueError(
            f"{what} shape {x.shape} minor dimensions must be equal to {lengths}: they must be "
            f"{wanted}."
        )
    if fft_type is FftType.RFFT:
        return ShapedArray(batch + halved, dtypes.to_complex_dtype(x.dtype))
    if fft_type is FftType.IRFFT:
        return ShapedArray(batch + fft_lengths, np.finfo(x.dtype).dtype)
    return ShapedArray(x.shape, x.dtype)


fft_p.jvp = jvp_from(fft_p, (LINEAR,))


@fft_p.def_transpose
def _fft_transpose(ct, operand, *, fft_type, fft_lengths):
    if fft_type in (FftType.FFT, FftType.IFFT):
        # The matrix of a transform is symmetric.
        return [fft(ct, fft_type, fft_lengths)]
    size = math.prod(fft_lengths)
    if fft_type is FftType.RFFT:
        # irfft doubles the entries that stand for their conjugates too.
        halved = div(conj(ct), _multiplicity(ct, fft_lengths[-1]))
        out = fft(halved, FftType.IRFFT, fft_lengths)
        return [mul(out, scalar(out, size))]
    spectrum = conj(fft(ct, FftType.RFFT, fft_lengths))
    doubled = mul(spectrum, _multiplicity(spectrum, fft_lengths[-1]))
    return [mul(doubled, scalar(doubled, 1 / size))]


def _multiplicity(spectrum: Any, length: int) -> Any:
    """How many entries of the whole spectrum each entry of a half spectrum stands for."""
    shape = shape_of(spectrum)
    counts = np.full(shape[-1], 2)
    counts[0] = 1
    if length % 2 == 0:
        counts[-1] = 1
    return broadcast_in_dim(counts.astype(dtype_of(spectrum)), shape, (len(shape) - 1,))


@fft_p.def_batch
def _fft_batch(axis, args, dims, **params):
    return fft_p.bind(move_axis(args[0], dims[0], 0), **params), 0


def _compute(x, *, fft_type, fft_lengths):
    """SciPy's pocketfft: any length, vectorized, precision of the operand."""
    # late: SciPy takes long to load
    import scipy.fft

    run = getattr(scipy.fft, fft_type.name.lower() + "n")
    workers = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    parallel = workers if x.size >= _PARALLEL else 1
    return [run(x, s=fft_lengths, axes=axes, workers=parallel)]


_PARALLEL = 1 << 15
fft_p.lowering = Host(_compute)


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """The discrete Fourier transform of `x` over its last `len(fft_lengths)` axes.

    Inverse transforms divide by the product of the lengths.

    Args:
      x: an array. "rfft" takes a real one; the others convert to complex. The last axis of an
        "irfft" has size `fft_lengths[-1] // 2 + 1`.
      fft_type: "fft", "ifft", "rfft", "irfft" or an `FftType`.
      fft_lengths: the sizes of the transformed axes of the signal.

    Returns:
      A complex array; a real one for "irfft". The last axis of an "rfft" has size
      `fft_lengths[-1] // 2 + 1`.

    Raises:
      ValueError: if the kind is unknown or the lengths do not fit the shape.

        >>> y = lax.fft(np.array([1.0, 0.0, -1.0, 0.0], np.float32), "rfft", (4,))
        >>> np.asarray(y).real.tolist()
        [0.0, 2.0, 0.0]
    """
    dtype = dtype_of(x)
    kind = _kind(fft_type)
    lengths = as_axes(fft_lengths, "fft fft_lengths")
    if kind is not FftType.RFFT:
        x = convert_element_type(x, dtypes.to_complex_dtype(dtype))
    elif is_complex(x):
        raise ValueError(f"fft of type RFFT takes real numbers, got dtype {dtype}.")
    else:
        x = convert_element_type(x, dtypes.to_inexact_dtype(dtype))
    return fft_p.bind(x, fft_type=kind, fft_lengths=lengths) if lengths else x
