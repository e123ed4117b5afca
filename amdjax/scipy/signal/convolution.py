"""Convolutions and correlations, of any number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import (
    ArrayLike,
    canonical_axes,
    check_arraylike,
    is_kind,
    promote_dtypes_inexact,
)

_MODES = ("full", "same", "valid")


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"mode must be one of ['full', 'same', 'valid'], got {mode!r}")


def _at_least(a: Array, b: Array) -> bool:
    return all(n >= m for n, m in zip(a.shape, b.shape, strict=True))


@composite(static_argnames=("mode", "axes"))
def _fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str, axes: Any) -> Array:
    check_arraylike("fftconvolve", in1, in2)
    a, b = promote_dtypes_inexact(in1, in2)
    if a.ndim != b.ndim:
        raise ValueError(
            f"in1 and in2 should have the same dimensionality, got shapes {a.shape} and {b.shape}"
        )
    _check_mode(mode)
    axes = canonical_axes(axes, a.ndim)
    mapped = [i for i in range(a.ndim) if i not in axes]
    if any(a.shape[i] != b.shape[i] for i in mapped):
        raise ValueError(
            f"mapped axes must have same shape; got in1.shape={a.shape!r} in2.shape={b.shape!r}"
            f" axes={axes!r}"
        )
    small, large = ([x.shape[i] for i in axes] for x in (b, a))
    if mode == "valid" and not all(n >= m for n, m in zip(large, small, strict=True)):
        if not all(n <= m for n, m in zip(large, small, strict=True)):
            raise ValueError(
                "For 'valid' mode, One input must be at least as large as the other in every"
                f" dimension, got shapes {a.shape} and {b.shape}."
            )
        a, b, small, large = b, a, large, small
    lengths = [n + m - 1 for n, m in zip(large, small, strict=True)]
    if is_kind(a.dtype, np.complexfloating):
        forward, backward = jnp.fft.fftn, jnp.fft.ifftn
    else:
        forward, backward = jnp.fft.rfftn, jnp.fft.irfftn
    if any(n != 1 and m != 1 for n, m in zip(large, small, strict=True)):
        spectrum = forward(a, lengths, axes) * forward(b, lengths, axes)
        product = backward(spectrum, lengths, axes)
    else:
        product = a * b
    kept = {
        "full": lengths, "same": large,
        "valid": [n - m + 1 for n, m in zip(large, small, strict=True)],
    }[mode]  # fmt: skip
    for axis, have, want in zip(axes, lengths, kept, strict=True):
        start = (have - want) // 2
        product = lax.slice_in_dim(product, start, start + want, axis=axis)
    return product


def fftconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Sequence[int] | None = None
) -> Array:
    """The convolution of two arrays, by Fourier transforms.

    Args:
      axes: along which; all by default. The others must agree and are batches.

    Raises:
      ValueError: `mode` is unknown or the shapes do not fit.

        >>> jnp.round(amdjax.scipy.signal.fftconvolve(jnp.array([1.0, 2.0]), jnp.array([3.0, 1.0])))
        Array([3., 7., 2.], dtype=float32)
    """
    hashable: Any = axes if axes is None or np.ndim(axes) == 0 else tuple(axes)
    return _fftconvolve(in1, in2, mode, hashable)


def _direct(in1: ArrayLike, in2: ArrayLike, mode: str, precision: Any) -> Array:
    _check_mode(mode)
    check_arraylike("convolve", in1, in2)
    a, b = promote_dtypes_inexact(in1, in2)
    if a.ndim != b.ndim:
        raise ValueError(
            "in1 and in2 must have the same number of dimensions, got shapes"
            f" {a.shape} and {b.shape}"
        )
    if a.size == 0 or b.size == 0:
        raise ValueError(
            f"zero-size arrays not supported in convolutions, got shapes {a.shape} and {b.shape}."
        )
    if not (_at_least(a, b) or _at_least(b, a)):
        raise ValueError(
            "One input must be smaller than the other in every dimension, got shapes"
            f" {a.shape} and {b.shape}."
        )
    second = b.shape
    if not _at_least(a, b) or a.shape == b.shape:
        a, b = b, a
    padding = {
        "full": [(n - 1, n - 1) for n in b.shape],
        "valid": [(0, 0) for _ in b.shape],
        # The center of the full convolution, as long as the first argument.
        "same": [
            (n - 1 - (m - 1) // 2, n - m + (m - 1) // 2)
            for n, m in zip(b.shape, second, strict=True)
        ],
    }[mode]
    result = lax.conv_general_dilated(
        a[None, None], jnp.flip(b)[None, None], (1,) * a.ndim, padding, precision=precision
    )
    return result[0, 0]


@composite(static_argnames=("mode", "method", "precision"))
def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: Any = None
) -> Array:
    """The convolution of two arrays.

    >>> amdjax.scipy.signal.convolve(jnp.array([1.0, 2.0]), jnp.array([3.0, 1.0]))
    Array([3., 7., 2.], dtype=float32)
    """
    if method == "fft":
        return fftconvolve(in1, in2, mode=mode)
    if method not in ("auto", "direct"):
        raise ValueError(f"Got method={method!r}; expected 'auto', 'fft', or 'direct'.")
    return _direct(in1, in2, mode, precision)


@composite(static_argnames=("mode", "method", "precision"))
def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: Any = None
) -> Array:
    """The cross-correlation of two arrays: the convolution with the second, turned and conjugated.

    >>> amdjax.scipy.signal.correlate(jnp.array([1.0, 2.0]), jnp.array([3.0, 1.0]))
    Array([1., 5., 6.], dtype=float32)
    """
    return convolve(in1, jnp.flip(jnp.conj(in2)), mode, method, precision)


def _check_plane(name: str, in1: ArrayLike, in2: ArrayLike, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(
            f"{name}() only supports boundary='fill', fillvalue=0, got {boundary!r}, {fillvalue}"
        )
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ValueError(
            f"{name}() only supports 2-dimensional inputs, got shapes"
            f" {np.shape(in1)} and {np.shape(in2)}."
        )


@composite(static_argnames=("mode", "boundary", "fillvalue", "precision"))
def convolve2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill",
    fillvalue: float = 0, precision: Any = None,
) -> Array:  # fmt: skip
    """The convolution of two matrices.

    Args:
      in1: a matrix.
      in2: a matrix.

        >>> amdjax.scipy.signal.convolve2d(jnp.ones((2, 2)), jnp.ones((2, 1)))
        Array([[1., 1.],
               [2., 2.],
               [1., 1.]], dtype=float32)
    """
    _check_plane("convolve2d", in1, in2, boundary, fillvalue)
    return _direct(in1, in2, mode, precision)


@composite(static_argnames=("mode", "boundary", "fillvalue", "precision"))
def correlate2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill",
    fillvalue: float = 0, precision: Any = None,
) -> Array:  # fmt: skip
    """The cross-correlation of two matrices.

    Args:
      in1: a matrix.
      in2: a matrix.

        >>> amdjax.scipy.signal.correlate2d(jnp.ones((2, 2)), jnp.ones((2, 1)))
        Array([[1., 1.],
               [2., 2.],
               [1., 1.]], dtype=float32)
    """
    _check_plane("correlate2d", in1, in2, boundary, fillvalue)
    a, b = jnp.asarray(in1), jnp.asarray(in2)
    if mode == "same":
        # The center is that of the first argument turned, which differs for even sizes.
        return jnp.flip(_direct(jnp.flip(a), jnp.conj(b), mode, precision))
    result = _direct(a, jnp.flip(jnp.conj(b)), mode, precision)
    # As SciPy, which exchanges the arguments then.
    swapped = mode == "valid" and a.shape != b.shape and _at_least(b, a)
    return jnp.conj(result) if swapped else result
