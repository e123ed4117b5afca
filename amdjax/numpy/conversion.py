"""Arrays made from other values: numbers, sequences, buffers, arrays of other libraries."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dlpack, dtypes, promotion
from amdjax.core.array import Array, borrowed, from_numpy
from amdjax.core.backend import get_backend
from amdjax.core.pytree import tree_leaves
from amdjax.core.tracebacks import warn
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    as_array,
    convert,
    is_arraylike,
    is_kind,
    on_device,
    user_dtype,
)

_ALIGNMENT = 64  # of memory that arrays share with others, in bytes


def array(
    object: Any, dtype: DTypeLike = None, *args: Any, copy: bool = True, order: str | None = "K",
    ndmin: int = 0, device: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """An array of the values of `object`.

    Args:
      object: a number, an array, anything with `__array__`, or nested sequences of these; entries
        may be traced.
      dtype: dtype of the result; None means that of the promoted entries.
      args: nothing; the others are keywords.
      copy: whether the result has memory of its own where `object` is an array.
      order: only "K" and "C" have a meaning here.
      ndmin: leading axes of one are added up to this rank.

    Returns:
      The array. 64-bit values become 32-bit ones unless x64 is enabled.

    Raises:
      TypeError: an entry is no number (None, a string).
      ValueError: nested sequences have unequal lengths.

        >>> jnp.array([[1, 2], [3, 4]])
        Array([[1, 2],
               [3, 4]], dtype=int32)
    """
    if len(args) > 3:
        raise TypeError(f"array() takes at most 5 positional arguments, got {2 + len(args)}")
    if args:
        defaults = {"copy": (copy, True), "order": (order, "K"), "ndmin": (ndmin, 0)}
        for name, (value, default) in [*defaults.items()][: len(args)]:
            if value is not default:
                raise TypeError(f"array() got multiple values for argument {name!r}: {value!r}")
        warn(
            "Passing the copy, order, and ndmin arguments to jnp.array by position is deprecated.",
            DeprecationWarning,
        )
        given: tuple[Any, ...] = (copy, order, ndmin)
        copy, order, ndmin = args + given[len(args) :]
    if order is not None and order not in ("K", "C"):
        raise NotImplementedError("Only implemented for order='K'")
    dtype = None if dtype is None else user_dtype(dtype, "array")
    if hasattr(object, "__jax_array__"):
        object = object.__jax_array__()
    if copy and isinstance(object, np.ma.MaskedArray):
        object = object.data  # as `numpy.array` does
    weak = dtype is None and dtypes.is_weakly_typed(object)
    if isinstance(object, Array):
        result = convert(object, object.dtype if dtype is None else dtype, weak)
        if copy and result is object:
            result = lax.copy_p.bind(object)
    elif is_arraylike(object):
        target = dtypes.dtype(object) if dtype is None else dtype
        if dtype is not None and type(object) is int:
            object = np.asarray(object, dtype)  # refuses what other operations wrap
        result = convert(object, target, weak)
    elif isinstance(object, (list, tuple)):
        result = _from_sequence(object, dtype)
    else:
        result = _from_protocol(object, dtype)
    if result.ndim < ndmin:
        result = lax.reshape(result, (1,) * (ndmin - result.ndim) + result.shape)
    return result if device is None else get_backend().device_put(result, device)


def _from_sequence(values: Any, dtype: Any) -> Array:
    """Nested lists: through NumPy where all entries are known, stacked from parts otherwise."""
    leaves = tree_leaves(values, is_leaf=lambda v: v is None or hasattr(v, "__jax_array__"))
    for leaf in leaves:
        if leaf is None:
            raise ValueError("None is not a valid value for jnp.array")
        if isinstance(leaf, (str, bytes)) or not (is_arraylike(leaf) or _has_protocol(leaf)):
            raise TypeError(f"Value '{leaf!r}' with dtype object is not a valid JAX array type.")
    if dtype is None:
        dtype = promotion.result_type(*leaves) if leaves else dtypes.default_float_dtype()
    if not builtins.any(
        isinstance(leaf, Array) or hasattr(leaf, "__jax_array__") for leaf in leaves
    ):
        value = np.array(values)
        if value.dtype == builtins.object:
            value = np.array(values, dtype)
        return _from_values(value, dtype)
    parts = [array(v, dtype) for v in values]
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"jnp.array: entries of unequal shapes {sorted(shapes)} cannot be stacked")
    return lax.concatenate([lax.expand_dims(part, (0,)) for part in parts], 0)


def _from_values(value: np.ndarray, dtype: Any) -> Array:
    if value.dtype.kind in "iu" and np.dtype(dtype).kind in "iu" and value.size:
        info = dtypes.iinfo(dtype)
        outside = [v for v in (value.min(), value.max()) if not info.min <= v <= info.max]
        if outside:
            raise OverflowError(
                f"Python integer {outside[0]} out of bounds for {np.dtype(dtype).name}"
            )
    return from_numpy(np.ascontiguousarray(value.astype(dtype)).reshape(value.shape))


def _has_protocol(x: Any) -> bool:
    return hasattr(x, "__array__") or hasattr(x, "__array_interface__") or _is_buffer(x)


def _is_buffer(x: Any) -> bool:
    try:
        memoryview(x)
    except TypeError:
        return False
    return True


def _from_protocol(x: Any, dtype: Any) -> Array:
    if x is None:
        raise ValueError("None is not a valid value for jnp.array")
    if isinstance(x, range):
        return _from_sequence(list(x), dtype)
    if isinstance(x, str) and (dtype is not None or x in dtypes.scalar_types):
        return from_numpy(np.array(x).astype(x if dtype is None else dtype))
    if isinstance(x, (str, bytes)):
        raise TypeError(
            f"Value '{x!r}' with dtype {np.array(x).dtype} is not a valid JAX array type."
        )
    if not _has_protocol(x):
        raise TypeError(f"Unexpected input type for array: {type(x)}")
    value = np.asarray(x if not _is_buffer(x) else memoryview(x))
    if not dtypes.issubdtype(value.dtype, np.number) and value.dtype != bool:
        raise TypeError(f"Value '{x!r}' with dtype {value.dtype} is not a valid JAX array type.")
    return convert(value, dtypes.canonicalize_dtype(value.dtype) if dtype is None else dtype)


def asarray(
    a: Any, dtype: DTypeLike = None, order: str | None = None, *, copy: bool | None = None,
    device: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """`a` as an array; arrays of the right dtype are returned as they are.

    >>> jnp.asarray([1.0, 2.0])
    Array([1., 2.], dtype=float32)
    """
    order = "K" if order is None else order
    return array(a, dtype, copy=bool(copy), order=order, device=device)


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """A copy of `a`.

    >>> jnp.copy(jnp.arange(2))
    Array([0, 1], dtype=int32)
    """
    a = as_array("copy", a)
    return lax.copy_p.bind(a)


def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = False, device: Any = None) -> Array:
    """`x` with another dtype.

    Args:
      x: array; of complex numbers the real part is kept.
      dtype: what to convert to; None means the default float.
      copy: ignored; arrays are immutable.

        >>> jnp.astype(jnp.array([1.7, -1.7]), int)
        Array([ 1, -1], dtype=int32)
    """
    x = as_array("astype", x)
    given = x
    dtype = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, "astype")
    if dtype == np.bool_:
        return lax.ne(x, np.zeros((), x.dtype)) if x.dtype != bool else x
    if is_kind(x.dtype, np.complexfloating) and not is_kind(dtype, np.complexfloating):
        warn(
            "Casting from complex to real dtypes will soon raise a ValueError. Take the real or"
            " the imaginary part first.",
            DeprecationWarning,
        )
    result = convert(x, dtype)
    if copy and result is given:
        result = lax.copy_p.bind(given)
    return result if device is None else get_backend().device_put(result, device)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array from any object that implements DLPack.

    Args:
      x: the object; its memory must be the host's.
      copy: False shares the memory of `x`, which must not be changed then.

    Raises:
      ValueError: memory is to be shared and cannot be.

    >>> jnp.from_dlpack(np.ones(2, np.float32))
    Array([1., 1.], dtype=float32)
    """
    if device is not None:
        return on_device(device, from_dlpack, x, copy=copy)
    view = dlpack.view_of(x)
    dtype = dtypes.canonicalize_dtype(view.dtype)
    if copy is not False:
        return convert(view, dtype)
    aligned = view.ctypes.data % _ALIGNMENT == 0 and view.flags.c_contiguous
    if dtype != view.dtype or not aligned:
        raise ValueError(
            f"Specified copy=False for an array of dtype {view.dtype} at address"
            f" {view.ctypes.data:#x}, which requires a copy: memory is shared where it is"
            f" contiguous, aligned to {_ALIGNMENT} bytes and of the dtype of the result."
        )
    return borrowed(view)
