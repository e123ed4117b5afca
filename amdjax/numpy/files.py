"""Arrays from bytes, text and files, and files from arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, DTypeLike, user_dtype
from amdjax.numpy.conversion import asarray

_ALIGNMENT = 64  # of memory that arrays share with others, in bytes


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    r"""The bytes of a buffer as a one-dimensional array.

    >>> jnp.frombuffer(b"\x01\x02", dtype=jnp.uint8)
    Array([1, 2], dtype=uint8)
    """
    return asarray(np.frombuffer(buffer, dtype=user_dtype(dtype, "frombuffer"), count=count,
                                 offset=offset))  # fmt: skip


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """Numbers written in a text, separated by `sep`.

    >>> jnp.fromstring("1 2 3", dtype=int, sep=" ")
    Array([1, 2, 3], dtype=int32)
    """
    return asarray(
        np.fromstring(string, dtype=user_dtype(dtype, "fromstring"), count=count, sep=sep)
    )


def fromiter(*args: Any, **kwargs: Any) -> Array:
    """Not provided: it would consume an iterator as a side effect.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError("jnp.fromiter() is not implemented: use jnp.asarray(list(iterator)).")


def fromfile(*args: Any, **kwargs: Any) -> Array:
    """Not provided: it would read a file as a side effect.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError("jnp.fromfile() is not implemented: use jnp.asarray(np.fromfile(…)).")


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """An array from a `.npy` file, or the arrays of an `.npz` file; pickled objects are refused.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(2)); file.seek(0)
    0
    >>> jnp.load(file)
    Array([0, 1], dtype=int32)
    """
    if args:
        raise TypeError("load: options of np.load are given by name")
    value = np.load(file, **{**kwargs, "allow_pickle": False})
    if not isinstance(value, np.ndarray):
        return value
    # NumPy writes bfloat16 as two bytes that mean nothing.
    return asarray(value.view(dtypes.bfloat16) if value.dtype == np.dtype("V2") else value)


def save(file: Any, arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Write an array to a `.npy` file.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(2)); file.seek(0)
    0
    >>> jnp.load(file)
    Array([0, 1], dtype=int32)
    """
    np.save(file, np.asarray(arr), allow_pickle=False)


def savez(file: Any, *args: ArrayLike, allow_pickle: bool = True, **kwds: ArrayLike) -> None:
    """Write arrays to an `.npz` file.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.savez(file, x=jnp.arange(2)); file.seek(0)
    0
    >>> jnp.load(file)["x"]
    array([0, 1], dtype=int32)
    """
    values: Any = {name: np.asarray(value) for name, value in kwds.items()}
    np.savez(file, *(np.asarray(value) for value in args), **values)
