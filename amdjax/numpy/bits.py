"""Bits packed into bytes and back."""

from __future__ import annotations

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.dims import surely_equal
from amdjax.numpy import reductions
from amdjax.numpy._util import ArrayLike, as_array, broadcast_to, canonical_axis, convert, is_kind
from amdjax.numpy.manipulation import moveaxis


def _weights(bitorder: str) -> np.ndarray:
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")
    shifts = np.arange(8, dtype=np.uint8)
    return shifts if bitorder == "little" else shifts[::-1].copy()


def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight truth values along `axis` as the bits of a byte.

    >>> jnp.packbits(jnp.array([1, 0, 0, 0, 0, 0, 0, 1]))
    Array([129], dtype=uint8)
    """
    a = as_array("packbits", a)
    if not is_kind(a.dtype, np.integer) and a.dtype != bool:
        raise TypeError("Expected an input array of integer or boolean data type")
    shifts = _weights(bitorder)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    bits = moveaxis(lax.ne(a, np.zeros((), a.dtype)), axis, -1)
    n = bits.shape[-1]
    missing = -n % 8
    if not surely_equal(missing, 0):
        bits = lax.pad(bits, np.zeros((), bool), [(0, 0, 0)] * (a.ndim - 1) + [(0, missing, 0)])
    groups = lax.reshape(
        convert(bits, np.dtype("uint8")), (*bits.shape[:-1], (n + missing) // 8, 8)
    )
    placed = lax.shift_left(groups, broadcast_to(shifts, groups.shape))
    return moveaxis(reductions.sum(placed, -1, dtype=np.uint8), -1, axis)


def unpackbits(
    a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """The bits of bytes along `axis`.

    >>> jnp.unpackbits(jnp.array([129], dtype=jnp.uint8))
    Array([1, 0, 0, 0, 0, 0, 0, 1], dtype=uint8)
    """
    a = as_array("unpackbits", a)
    if a.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    shifts = _weights(bitorder)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    rows = moveaxis(a, axis, -1)
    wide = (*rows.shape, 8)
    bits = lax.bitwise_and(
        lax.shift_right_logical(
            lax.broadcast_in_dim(rows, wide, tuple(range(rows.ndim))), broadcast_to(shifts, wide)
        ),
        np.uint8(1),
    )
    bits = lax.reshape(bits, (*rows.shape[:-1], rows.shape[-1] * 8))
    n = bits.shape[-1]
    if count is not None:
        count = count if count >= 0 else n + count
        if count > n:
            bits = lax.pad(bits, np.uint8(0), [(0, 0, 0)] * (a.ndim - 1) + [(0, count - n, 0)])
        bits = lax.slice_in_dim(bits, 0, count, axis=bits.ndim - 1)
    return moveaxis(bits, -1, axis)
