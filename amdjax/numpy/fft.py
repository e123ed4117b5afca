"""Discrete Fourier transforms: `numpy.fft`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.lax._rules import as_axes
from amdjax.numpy import _docs
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    DTypeLike,
    as_array,
    canonical_axes,
    concrete_int,
    constant,
    convert,
    is_kind,
    on_device,
    scalar_of,
    user_dtype,
)
from amdjax.numpy.manipulation import moveaxis, roll

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


def _scale(x: Array, lengths: Sequence[int], norm: str | None, inverse: bool) -> Array:
    """What `norm` asks for beyond lax, whose inverse divides by the number of points."""
    n = math.prod(lengths)
    if norm in (None, "backward"):
        return x
    if norm == "ortho":
        factor = math.sqrt(n) if inverse else 1 / math.sqrt(n)
    elif norm == "forward":
        factor = n if inverse else 1 / n
    else:
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')
    return lax.mul(x, constant(x, factor))


def _fit(x: Array, lengths: Sequence[int]) -> Array:
    """Cut the last axes or pad them with zeros."""
    lead = x.ndim - len(lengths)
    config = [(0, 0, 0)] * lead
    for i, n in enumerate(lengths):
        have = x.shape[lead + i]
        if have > n:
            x = lax.slice_in_dim(x, 0, n, axis=lead + i)
        config.append((0, max(n - have, 0), 0))
    if any(after for _, after, _ in config):
        x = lax.pad(x, np.zeros((), x.dtype), config)
    return x


def _transform(name: str, kind: str, a: ArrayLike, s: Any, axes: Any, norm: str | None) -> Array:
    """The frame of all transforms: axes moved last, lengths fitted, transformed, moved back."""
    x = as_array(name, a)
    if axes is None:
        count = x.ndim if s is None else len(s)
        axes = tuple(range(x.ndim - count, x.ndim))
    s = None if s is None else as_axes(s, f"s of {name}")
    axes = as_axes(axes, f"axes of {name}")
    if s is not None and len(s) != len(axes):
        raise ValueError(
            f"Shape {s} and axes {axes} have different lengths in jax.numpy.fft.{name}."
        )
    if len({axis % max(x.ndim, 1) for axis in axes}) < len(axes):
        raise ValueError(
            f"jax.numpy.fft.{name} does not support repeated axes. Got axes {list(axes)}."
        )
    axes = canonical_axes(axes, x.ndim)
    real_in, real_out = kind == "RFFT", kind == "IRFFT"
    if real_in and is_kind(x.dtype, np.complexfloating):
        raise ValueError(f"only real-valued inputs supported for jax.numpy.fft.{name}")
    target = dtypes.to_inexact_dtype(x.dtype)
    x = convert(x, target if real_in else dtypes.to_complex_dtype(x.dtype))
    if not axes:
        return x
    moved = moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim)))
    lengths = [moved.shape[moved.ndim - len(axes) + i] for i in range(len(axes))]
    if s is not None:
        lengths = [concrete_int(k, f"length of {name}") for k in s]
    elif real_out:
        lengths[-1] = max(0, 2 * (lengths[-1] - 1))
    if s is None and 0 in lengths:
        shape = [*moved.shape[: moved.ndim - len(axes)], *lengths]
        dtype = dtypes.to_complex_dtype(x.dtype)
        empty = lax.full(tuple(shape), 0, dtypes.finfo(dtype).dtype if real_out else dtype)
        return moveaxis(empty, tuple(range(x.ndim - len(axes), x.ndim)), axes)
    if any(n < 1 for n in lengths):
        raise ValueError(f"Invalid number of FFT data points ({lengths}) specified in {name}.")
    spectrum = [*lengths[:-1], lengths[-1] // 2 + 1] if real_out else lengths
    result = _many(_fit(moved, spectrum), kind, lengths)
    result = _scale(result, lengths, norm, kind in ("IFFT", "IRFFT"))
    return moveaxis(result, tuple(range(x.ndim - len(axes), x.ndim)), axes)


def _many(x: Array, kind: str, lengths: Sequence[int]) -> Array:
    """Transform up to three axes at once, as lax does; more are done in turns."""
    if len(lengths) <= 3:
        return lax.fft(x, lax.FftType[kind], tuple(lengths))
    inner = {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)
    first = x.ndim - len(lengths)
    last = x.ndim - 1

    def along_first(x: Array) -> Array:
        axes = tuple(range(first, first + len(lengths) - 3))
        moved = moveaxis(x, axes, tuple(range(last - len(axes) + 1, last + 1)))
        return moveaxis(
            _many(moved, inner, lengths[:-3]), tuple(range(last - len(axes) + 1, last + 1)), axes
        )

    if kind == "IRFFT":
        return lax.fft(along_first(x), lax.FftType[kind], tuple(lengths[-3:]))
    return along_first(lax.fft(x, lax.FftType[kind], tuple(lengths[-3:])))


def _one(name: str, kind: str, a: ArrayLike, n: int | None, axis: int, norm: str | None) -> Array:
    if isinstance(axis, (list, tuple)):
        raise ValueError(
            f"jax.numpy.fft.{name} does not support multiple axes. Please use"
            f" jax.numpy.fft.{name}n. Got axis = {axis}."
        )
    if axis is None:
        raise ValueError(f"jax.numpy.fft.{name} needs an axis, got None")
    return _transform(name, kind, a, None if n is None else (n,), (axis,), norm)


def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete Fourier transform along `axis`.

    Args:
      n: number of points; the axis is cut or padded with zeros.
      axis: the axis.
      norm: "backward" divides the inverse by n, "forward" this transform, "ortho" both by √n.

        >>> jnp.fft.fft(jnp.array([1.0, 0.0]))
        Array([1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _one("fft", "FFT", a, n, axis, norm)


def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft`.

    >>> jnp.fft.ifft(jnp.array([1.0, 1.0]))
    Array([1.+0.j, 0.+0.j], dtype=complex64)
    """
    return _one("ifft", "IFFT", a, n, axis, norm)


def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The non-negative frequencies of the transform of real numbers.

    >>> jnp.fft.rfft(jnp.array([1.0, 0.0]))
    Array([1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _one("rfft", "RFFT", a, n, axis, norm)


def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `rfft`.

    >>> jnp.fft.irfft(jnp.array([1.0, 1.0]))
    Array([1., 0.], dtype=float32)
    """
    return _one("irfft", "IRFFT", a, n, axis, norm)


def _flipped(norm: str | None) -> str:
    swap = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
    if norm not in swap:
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')
    return swap[norm]


def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform of a signal given by the non-negative part of its symmetric spectrum.

    >>> jnp.fft.hfft(jnp.array([1.0, 1.0]))
    Array([2., 0.], dtype=float32)
    """
    x = as_array("hfft", a)
    x = lax.conj(x) if is_kind(x.dtype, np.complexfloating) else x
    return _one("hfft", "IRFFT", x, n, axis, _flipped(norm))


def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `hfft`.

    >>> jnp.fft.ihfft(jnp.array([2.0, 0.0]))
    Array([1.-0.j, 1.-0.j], dtype=complex64)
    """
    return lax.conj(_one("ihfft", "RFFT", a, n, axis, _flipped(norm)))


def fftn(a: ArrayLike, s: Any = None, axes: Any = None, norm: str | None = None) -> Array:
    """The transform along several axes, by default all.

    >>> jnp.fft.fftn(jnp.ones((2, 2)))[0, 0]
    Array(4.+0.j, dtype=complex64)
    """
    return _transform("fftn", "FFT", a, s, axes, norm)


def ifftn(a: ArrayLike, s: Any = None, axes: Any = None, norm: str | None = None) -> Array:
    """The inverse of `fftn`.

    >>> jnp.fft.ifftn(jnp.ones((2, 2)))[0, 0]
    Array(1.+0.j, dtype=complex64)
    """
    return _transform("ifftn", "IFFT", a, s, axes, norm)


def rfftn(a: ArrayLike, s: Any = None, axes: Any = None, norm: str | None = None) -> Array:
    """The transform of real numbers along several axes, the last one halved.

    >>> jnp.fft.rfftn(jnp.ones((2, 2))).shape
    (2, 2)
    """
    return _transform("rfftn", "RFFT", a, s, axes, norm)


def irfftn(a: ArrayLike, s: Any = None, axes: Any = None, norm: str | None = None) -> Array:
    """The inverse of `rfftn`.

    >>> jnp.fft.irfftn(jnp.ones((2, 2))).shape
    (2, 2)
    """
    return _transform("irfftn", "IRFFT", a, s, axes, norm)


def _plane(name: str, kind: str, a: ArrayLike, s: Any, axes: Any, norm: str | None) -> Array:
    if len(axes) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes!r}.")
    return _transform(name, kind, a, s, axes, norm)


def fft2(a: ArrayLike, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Array:
    """The transform along two axes.

    >>> jnp.fft.fft2(jnp.ones((2, 2)))[0, 0]
    Array(4.+0.j, dtype=complex64)
    """
    return _plane("fft2", "FFT", a, s, axes, norm)


def ifft2(a: ArrayLike, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Array:
    """The inverse of `fft2`.

    >>> jnp.fft.ifft2(jnp.ones((2, 2)))[0, 0]
    Array(1.+0.j, dtype=complex64)
    """
    return _plane("ifft2", "IFFT", a, s, axes, norm)


def rfft2(a: ArrayLike, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Array:
    """The transform of real numbers along two axes.

    >>> jnp.fft.rfft2(jnp.ones((2, 2))).shape
    (2, 2)
    """
    return _plane("rfft2", "RFFT", a, s, axes, norm)


def irfft2(a: ArrayLike, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Array:
    """The inverse of `rfft2`.

    >>> jnp.fft.irfft2(jnp.ones((2, 2))).shape
    (2, 2)
    """
    return _plane("irfft2", "IRFFT", a, s, axes, norm)


def _frequencies(name: str, n: int, d: Any, dtype: DTypeLike) -> tuple[int, Any]:
    if isinstance(n, (list, tuple)) or np.ndim(n):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = {n}.")
    if isinstance(d, (list, tuple)) or np.ndim(d):
        raise ValueError(
            f"The d argument of jax.numpy.fft.{name} only takes a single value. Got d = {d}."
        )
    kind = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, name)
    return concrete_int(n, f"n of {name}"), kind


def fftfreq(n: int, d: Any = 1.0, *, dtype: DTypeLike = None, device: Any = None) -> Array:
    """The frequencies of `fft` of `n` points at distance `d`.

    >>> jnp.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    if device is not None:
        return on_device(device, lambda: fftfreq(n, d, dtype=dtype))
    n, kind = _frequencies("fftfreq", n, d, dtype)
    k = lax.iota(np.dtype("int32"), n)
    half = scalar_of((n - 1) // 2, k.dtype)
    k = lax.select(lax.gt(k, lax.full_like(k, half)), lax.sub(k, scalar_of(n, k.dtype)), k)
    return lax.div(convert(k, kind), convert(d * n, kind))


def rfftfreq(n: int, d: Any = 1.0, *, dtype: DTypeLike = None, device: Any = None) -> Array:
    """The frequencies of `rfft` of `n` points at distance `d`.

    >>> jnp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    if device is not None:
        return on_device(device, lambda: rfftfreq(n, d, dtype=dtype))
    n, kind = _frequencies("rfftfreq", n, d, dtype)
    return lax.div(lax.iota(kind, n // 2 + 1), convert(d * n, kind))


def fftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """The spectrum with frequency zero in the middle.

    >>> jnp.fft.fftshift(jnp.arange(4))
    Array([2, 3, 0, 1], dtype=int32)
    """
    x = as_array("fftshift", x)
    over = canonical_axes(axes, x.ndim)
    return roll(x, [x.shape[i] // 2 for i in over], over)


def ifftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """The inverse of `fftshift`.

    >>> jnp.fft.ifftshift(jnp.arange(4))
    Array([2, 3, 0, 1], dtype=int32)
    """
    x = as_array("ifftshift", x)
    over = canonical_axes(axes, x.ndim)
    return roll(x, [-(x.shape[i] // 2) for i in over], over)


_complete(globals(), _docs.FFT, _docs.PHRASES)
_public_surface(globals())
