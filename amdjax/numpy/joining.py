"""Arrays joined and split."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.dims import is_symbolic_dim, min_dim
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    as_array,
    as_arrays,
    canonical_axes,
    canonical_axis,
    concrete_int,
    convert,
    promote_dtypes,
    refuse_out,
    user_dtype,
)
from amdjax.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, ravel


def _sequence(name: str, arrays: Any) -> list[Any]:
    """The entries of a list, a tuple or an array."""
    if isinstance(arrays, (np.ndarray, Array)):
        return list(arrays)
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Sequence):
        raise TypeError(f"{name} requires a sequence of arrays, got {type(arrays)}")
    return list(arrays)


def concatenate(arrays: Any, axis: int | None = 0, dtype: DTypeLike = None) -> Array:
    """Arrays joined along an existing axis.

    Args:
      axis: the axis; None joins the flattened arrays.
      dtype: dtype of the result; None means the promoted one.

        >>> jnp.concatenate([jnp.arange(2), jnp.arange(3)])
        Array([0, 1, 0, 1, 2], dtype=int32)
    """
    scalar = isinstance(arrays, Array) and not arrays.ndim
    parts = [] if scalar else as_arrays("concatenate", *_sequence("concatenate", arrays))
    if not parts:
        raise ValueError("Need at least one array to concatenate.")
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    if parts[0].ndim == 0:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = canonical_axis(axis, parts[0].ndim)
    parts = _joined_dtype(parts, dtype)
    while len(parts) > 1:
        groups = (parts[i : i + _AT_ONCE] for i in range(0, len(parts), _AT_ONCE))
        parts = [lax.concatenate(group, axis) for group in groups]
    return parts[0]


_AT_ONCE = 16
"""Operands of one operation: the time that it takes to compile grows with their square."""


def _joined_dtype(parts: list[Array], dtype: DTypeLike) -> list[Array]:
    if dtype is not None:
        target = user_dtype(dtype, "concatenate")
        return [convert(x, target) for x in parts]
    return promote_dtypes(*parts) if len(parts) > 1 else parts


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Arrays joined along an axis; the array API's name for `concatenate`.

    >>> jnp.concat([jnp.arange(2), jnp.arange(2)])
    Array([0, 1, 0, 1], dtype=int32)
    """
    return concatenate(_sequence("concat", arrays), axis)


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: DTypeLike = None) -> Array:
    """Arrays of one shape joined along a new axis.

    >>> jnp.stack([jnp.arange(2), jnp.arange(2)], axis=1)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    refuse_out("stack", out)
    parts = as_arrays("stack", *_sequence("stack", arrays))
    if not parts:
        raise ValueError("Need at least one array to stack.")
    if builtins.any(x.shape != parts[0].shape for x in parts):
        raise ValueError(
            f"All input arrays must have the same shape, got {[x.shape for x in parts]}"
        )
    axis = canonical_axis(axis, parts[0].ndim + 1)
    return concatenate([lax.expand_dims(x, (axis,)) for x in parts], axis, dtype)


def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of `x` along `axis`.

    >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = as_array("unstack", x)
    if x.ndim == 0:
        raise ValueError(
            "Unstack requires arrays with rank > 0, however a scalar array was passed."
        )
    axis = canonical_axis(axis, x.ndim)
    return tuple(lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))


def vstack(tup: Any, dtype: DTypeLike = None) -> Array:
    """Arrays joined as rows.

    >>> jnp.vstack([jnp.arange(2), jnp.arange(2)])
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    return concatenate([atleast_2d(x) for x in _sequence("vstack", tup)], 0, dtype)


def hstack(tup: Any, dtype: DTypeLike = None) -> Array:
    """Arrays joined as columns; vectors end to end.

    >>> jnp.hstack([jnp.arange(2), jnp.arange(2)])
    Array([0, 1, 0, 1], dtype=int32)
    """
    parts = [atleast_1d(x) for x in _sequence("hstack", tup)]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype)


def dstack(tup: Any, dtype: DTypeLike = None) -> Array:
    """Arrays joined along the third axis.

    >>> jnp.dstack([jnp.arange(2), jnp.arange(2)]).shape
    (1, 2, 2)
    """
    return concatenate([atleast_3d(x) for x in _sequence("dstack", tup)], 2, dtype)


def column_stack(tup: Any) -> Array:
    """Vectors as the columns of a matrix.

    >>> jnp.column_stack([jnp.arange(2), jnp.arange(2)])
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    parts = as_arrays("column_stack", *_sequence("column_stack", tup))
    return concatenate([lax.reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in parts], 1)


def block(arrays: Any) -> Array:
    """A matrix assembled from nested lists of blocks.

    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 1))]])
    Array([[1., 0.]], dtype=float32)
    """
    depth = _depth(arrays)
    rank = builtins.max(depth, *(x.ndim for x in _blocks(arrays)))
    return _assemble(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise ValueError("jax.numpy.block does not allow tuples, got a tuple")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ValueError("jax.numpy.block does not allow empty list arguments")
    depths = {_depth(x) for x in arrays}
    if len(depths) > 1:
        raise ValueError("List depths are mismatched in jax.numpy.block")
    return 1 + depths.pop()


def _blocks(arrays: Any) -> list[Array]:
    if isinstance(arrays, list):
        return [x for part in arrays for x in _blocks(part)]
    return [as_array("block", arrays)]


def _assemble(arrays: Any, depth: int, rank: int) -> Array:
    if depth == 0:
        x = as_array("block", arrays)
        return lax.reshape(x, (1,) * (rank - x.ndim) + x.shape)
    return concatenate([_assemble(x, depth - 1, rank) for x in arrays], axis=-depth)


def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """`arr` followed by `values`.

    >>> jnp.append(jnp.arange(2), jnp.array([9]))
    Array([0, 1, 9], dtype=int32)
    """
    return concatenate([arr, values], axis)


def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """`ary` cut along `axis`.

    Args:
      indices_or_sections: a number of equal parts, or the indices to cut at.

    Raises:
      ValueError: the axis cannot be cut into equal parts.

        >>> jnp.split(jnp.arange(4), 2)
        [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis, equal=True)


def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """`ary` cut along `axis` into parts that may differ by one.

    >>> jnp.array_split(jnp.arange(3), 2)
    [Array([0, 1], dtype=int32), Array([2], dtype=int32)]
    """
    return _split("array_split", ary, indices_or_sections, axis, equal=False)


def _split(name: str, ary: ArrayLike, where: Any, axis: int, equal: bool) -> list[Array]:
    a = as_array(name, ary)
    axis = canonical_axis(axis, a.ndim)
    length: Any = a.shape[axis]
    if not isinstance(where, (list, tuple)) and np.ndim(where) == 0:
        parts = int(where)
        if parts <= 0:
            raise ValueError("number sections must be larger than 0.")
        small, extra = builtins.divmod(length, parts)
        if equal and is_symbolic_dim(extra):
            raise InconclusiveDimensionOperation(
                f"array split does not result in an equal division but where '{extra}' is 0: add "
                f"the constraint '{extra} == 0'.{extra.scope.described()}"
            )
        if equal and extra:
            raise ValueError(f"array split does not result in an equal division: rest is {extra}")
        cuts = [i * small + min_dim(i, extra) for i in range(parts + 1)]
    else:
        cut = lambda i: concrete_int(i, f"an index to {name}")
        inner = [cut(i) for i in (where if isinstance(where, (list, tuple)) else np.asarray(where))]
        cuts = [0, *inner, length]
        sizes = [hi - lo for lo, hi in itertools.pairwise(cuts)]
        if builtins.any(size < 0 for size in sizes):
            raise ValueError(f"Sizes passed to split must be nonnegative, got {sizes}")
    return [lax.slice_in_dim(a, lo, hi, axis=axis) for lo, hi in itertools.pairwise(cuts)]


def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`ary` cut along its second axis, a vector along its only one.

    >>> [x.shape for x in jnp.hsplit(jnp.ones((2, 4)), 2)]
    [(2, 2), (2, 2)]
    """
    a = as_array("hsplit", ary)
    return _split("hsplit", a, indices_or_sections, 0 if a.ndim == 1 else 1, equal=True)


def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`ary` cut along its first axis.

    >>> [x.shape for x in jnp.vsplit(jnp.ones((4, 2)), 2)]
    [(2, 2), (2, 2)]
    """
    return _split("vsplit", ary, indices_or_sections, 0, equal=True)


def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`ary` cut along its third axis.

    >>> [x.shape for x in jnp.dsplit(jnp.ones((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _split("dsplit", ary, indices_or_sections, 2, equal=True)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: Any = None) -> Array:
    """A concrete array without leading and trailing zeros.

    >>> jnp.trim_zeros(jnp.array([0, 1, 2, 0]))
    Array([1, 2], dtype=int32)
    """
    a = as_array("trim_zeros", filt)
    if not a.ndim:
        return a
    nonzero = np.nonzero(np.asarray(a))
    chosen = canonical_axes(axis, a.ndim)
    box = []
    for i, n in enumerate(a.shape):
        # Without any nonzero element all of a chosen axis is both a leading and a trailing part.
        hit = nonzero[i] if i in chosen else np.arange(n)
        first, end = (int(hit.min()), int(hit.max()) + 1) if hit.size else (n, 0)
        lo = first if "f" in trim.lower() else 0
        hi = builtins.max(end if "b" in trim.lower() else n, lo if hit.size else 0)
        box.append((builtins.min(lo, hi), hi))
    return lax.slice(a, [lo for lo, _ in box], [hi for _, hi in box])
