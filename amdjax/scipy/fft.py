"""Cosine transforms: `scipy.fft`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.core.docs import complete as _complete
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    canonical_axes,
    canonical_axis,
    is_kind,
    promote_dtypes_inexact,
)
from amdjax.scipy import _docs

__all__ = ["dct", "dctn", "idct", "idctn"]


def _prepared(name: str, x: ArrayLike, type: int, norm: str | None) -> Array:
    x = as_array(name, x)
    if type != 2:
        raise NotImplementedError(f"{name}: only DCT type 2 is implemented, got type={type}.")
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f"jax.scipy.fft.{name}: norm={norm!r} is not implemented")
    return promote_dtypes_inexact(x)[0]


def _on_parts(transform: Callable[[Array], Array], x: Array) -> Array:
    """A real linear transform of a real or complex array."""
    if is_kind(x.dtype, np.complexfloating):
        return lax.complex(transform(lax.real(x)), transform(lax.imag(x)))
    return transform(x)


def _fitted(x: Array, n: int | None, axis: int) -> Array:
    """Cut or padded with zeros to `n` entries."""
    if n is None:
        return x
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (0, operator.index(n) - x.shape[axis], 0)
    return lax.pad(x, np.zeros((), x.dtype), config)


def _folded(n: int) -> np.ndarray:
    """Entries of even position rising, then those of odd position falling."""
    return np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)[::-1]])


def _along(values: np.ndarray, x: Array, axis: int, dtype: Any) -> Array:
    """Factors of the entries along one axis, rounded once."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return jnp.broadcast_to(values.astype(dtype).reshape(shape), x.shape)


def _orthogonal(n: int) -> np.ndarray:
    """The factor of each frequency that makes the transform orthogonal."""
    return np.sqrt(np.where(np.arange(n) == 0, 0.25, 0.5) / max(n, 1))


def _turns(x: Array, axis: int, sign: int) -> Array:
    """Rotations by a quarter of each frequency's wave length."""
    n = x.shape[axis]
    turns = np.exp(sign * 0.5j * np.pi * np.arange(n) / max(n, 1))
    return _along(turns, x, axis, dtypes.to_complex_dtype(x.dtype))


def _dct(x: Array, axis: int, norm: str | None) -> Array:
    n = operator.index(x.shape[axis])
    spectrum = jnp.fft.fft(jnp.take(x, _folded(n), axis=axis), axis=axis)
    out = lax.real(spectrum * _turns(x, axis, -1))
    factors = 2 * _orthogonal(n) if norm == "ortho" else np.full(n, 2.0)
    return out * _along(factors, x, axis, x.dtype)


def _idct(x: Array, axis: int, norm: str | None) -> Array:
    n = operator.index(x.shape[axis])
    # The transform is undone by its transpose where it is orthogonal, so a plain one is made so.
    factors = 2 * n * _orthogonal(n) ** (1 if norm == "ortho" else 2)
    scaled = x * _along(factors, x, axis, x.dtype)
    turns = _turns(x, axis, 1)
    folded = jnp.fft.ifft(scaled.astype(turns.dtype) * turns, axis=axis)
    return jnp.take(lax.real(folded), np.argsort(_folded(n)), axis=axis)


@composite(static_argnames=("type", "n", "axis", "norm"))
def dct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The discrete cosine transform of type 2.

    Args:
      n: cut or pad the axis with zeros to this length first.
      axis: along which.
      norm: None or "backward" for plain sums, "ortho" for an orthogonal transform.

        >>> amdjax.scipy.fft.dct(jnp.ones(4))[0]
        Array(8., dtype=float32)
    """
    x = _prepared("dct", x, type, norm)
    axis = canonical_axis(axis, x.ndim)
    return _on_parts(lambda x: _dct(x, axis, norm), _fitted(x, n, axis))


@composite(static_argnames=("type", "n", "axis", "norm"))
def idct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The inverse of `dct`.

    Args:
      n: cut or pad the axis with zeros to this length first.
      axis: along which.
      norm: None, "backward" or "ortho", as it was for `dct`.

        >>> amdjax.scipy.fft.idct(jnp.array([8.0, 0.0, 0.0, 0.0]))
        Array([1., 1., 1., 1.], dtype=float32)
    """
    x = _prepared("idct", x, type, norm)
    axis = canonical_axis(axis, x.ndim)
    return _on_parts(lambda x: _idct(x, axis, norm), _fitted(x, n, axis))


def _along_axes(
    name: str, one: Any, x: ArrayLike, type: int, s: Any, axes: Any, norm: str | None
) -> Array:
    x = _prepared(name, x, type, norm)
    if s is not None:
        s = [operator.index(n) for n in (s if np.ndim(s) else [s])]
        if len(s) > x.ndim:
            raise ValueError(f"s must have at most x.ndim ({x.ndim}) elements, got {len(s)}")
    if axes is None:
        axes = range(x.ndim - len(s), x.ndim) if s is not None else range(x.ndim)
    axes = canonical_axes(tuple(axes) if np.ndim(axes) else axes, x.ndim)
    for axis, n in zip(axes, s or [], strict=False):
        x = _fitted(x, n, axis)

    def transform(x: Array) -> Array:
        for axis in axes:
            x = one(x, axis, norm)
        return x

    return _on_parts(transform, x)


@composite(static_argnames=("type", "s", "axes", "norm"))
def _dctn(x: ArrayLike, type: int, s: Any, axes: Any, norm: str | None) -> Array:
    return _along_axes("dctn", _dct, x, type, s, axes, norm)


@composite(static_argnames=("type", "s", "axes", "norm"))
def _idctn(x: ArrayLike, type: int, s: Any, axes: Any, norm: str | None) -> Array:
    return _along_axes("idctn", _idct, x, type, s, axes, norm)


def _hashable(sizes: Sequence[int] | int | None) -> Any:
    return tuple(sizes) if np.ndim(sizes) else sizes  # type: ignore[arg-type]


def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The discrete cosine transform of type 2 along several axes.

    Args:
      s: lengths to which the axes are cut or padded with zeros first.
      axes: along which; all, or the last `len(s)`, by default.
      norm: None, "backward" or "ortho".

        >>> amdjax.scipy.fft.dctn(jnp.ones((2, 2)))[0, 0]
        Array(16., dtype=float32)
    """
    return _dctn(x, type, _hashable(s), _hashable(axes), norm)


def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn`.

    Args:
      s: lengths to which the axes are cut or padded with zeros first.
      axes: along which; all, or the last `len(s)`, by default.
      norm: None, "backward" or "ortho", as it was for `dctn`.

        >>> amdjax.scipy.fft.idctn(jnp.array([[16.0, 0.0], [0.0, 0.0]]))
        Array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    return _idctn(x, type, _hashable(s), _hashable(axes), norm)


_complete(globals(), _docs.FFT, _docs.FFT_PHRASES)
_public_surface(globals())
