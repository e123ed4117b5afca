"""Arrays of given shapes: filled, diagonal, counting up."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.config import config
from amdjax.core.constraints import sharding_like
from amdjax.core.dims import Dim, is_symbolic_dim, max_dim
from amdjax.core.errors import ConcretizationTypeError
from amdjax.core.trace import Tracer, is_concrete
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    Shape,
    as_array,
    broadcast_to,
    canonical_shape,
    concrete_int,
    convert,
    is_arraylike,
    is_kind,
    on_device,
    strong,
    user_dtype,
)


def full(
    shape: Shape, fill_value: ArrayLike, dtype: DTypeLike = None, *, device: Any = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """An array of one value.

    Args:
      shape: its shape.
      fill_value: the value, or an array that broadcasts to `shape`.
      dtype: None means that of `fill_value`.

        >>> jnp.full((2, 2), 7)
        Array([[7, 7],
               [7, 7]], dtype=int32, weak_type=True)
    """
    if device is not None:
        return on_device(device, full, shape, fill_value, dtype)
    dtype = None if dtype is None else user_dtype(dtype, "full")
    _refuse_complex("full", fill_value, dtype)
    if dtype is not None and type(fill_value) is int and is_kind(dtype, np.integer):
        return _uniform(canonical_shape(shape), fill_value, dtype, False, "full")
    if isinstance(dtype, np.dtype) and type(fill_value) is int:
        fill_value = float(fill_value)  # arrays of integers have been dealt with
    if type(fill_value) is int and -(2**63) <= fill_value < 2**64:
        # Integers beyond the default dtype wrap here, alone among all functions.
        fill_value = np.asarray(fill_value).astype(dtypes.default_int_dtype()).item()
    value = as_array("full", fill_value)
    weak = dtype is None and dtypes.is_weakly_typed(fill_value)
    shape = canonical_shape(shape)
    if isinstance(dtype, dtypes.ExtendedDType):
        return dtype.full(shape, value)
    return broadcast_to(convert(value, value.dtype if dtype is None else dtype, weak), shape)


def _refuse_complex(name: str, value: Any, dtype: Any) -> None:
    """A complex number is no element of a real array; complex arrays lose their imaginary part."""
    real = dtype is not None and not dtypes.issubdtype(dtype, np.complexfloating)
    if type(value) is complex and real:
        raise TypeError(f"{name}: fill_value {value} is complex, the dtype {dtype} is not")


def _filled(shape: Shape, value: Any, dtype: DTypeLike, name: str) -> Array:
    if isinstance(shape, (str, bytes)) or shape is None:
        raise TypeError(f"{name} shape must be an int or a sequence of ints, got {shape!r}.")
    if isinstance(shape, int) and isinstance(dtype, int):
        raise TypeError(
            f"{name}: {dtype} is no dtype. Did you accidentally write"
            f" `jax.numpy.{name}({shape}, {dtype})` when you meant"
            f" `jax.numpy.{name}(({shape}, {dtype}))`?"
        )
    dtype = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, name)
    return lax.full(canonical_shape(shape), value, dtype)


def zeros(
    shape: Shape, dtype: DTypeLike = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """An array of zeros.

    >>> jnp.zeros((2,), int)
    Array([0, 0], dtype=int32)
    """
    if device is not None:
        return on_device(device, zeros, shape, dtype)
    return _filled(shape, 0, dtype, "zeros")


def ones(
    shape: Shape, dtype: DTypeLike = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """An array of ones.

    >>> jnp.ones(2)
    Array([1., 1.], dtype=float32)
    """
    if device is not None:
        return on_device(device, ones, shape, dtype)
    return _filled(shape, 1, dtype, "ones")


def empty(
    shape: Shape, dtype: DTypeLike = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """An array of zeros: uninitialized memory is never handed out.

    >>> jnp.empty(2)
    Array([0., 0.], dtype=float32)
    """
    if device is not None:
        return on_device(device, empty, shape, dtype)
    return _filled(shape, 0, dtype, "empty")


def _like(
    a: Any, value: Any, dtype: DTypeLike, shape: Shape | None, name: str, device: Any = None
) -> Array:
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        a = as_array(name, a)
    if hasattr(value, "__jax_array__"):
        value = value.__jax_array__()
    weak = dtype is None and dtypes.is_weakly_typed(a)
    dtype = dtypes.dtype(a) if dtype is None else user_dtype(dtype, name)
    _refuse_complex(name, value, dtype)
    shape = tuple(a.shape) if shape is None else canonical_shape(shape)
    if device is None:
        device = sharding_like(a, len(shape))
    if device is not None:
        return on_device(device, _uniform, shape, value, dtype, weak, name)
    return _uniform(shape, value, dtype, weak, name)


def _uniform(shape: Any, value: Any, dtype: Any, weak: bool, name: str) -> Array:
    if np.ndim(value) == 0:
        return convert(lax.full(shape, value, dtype), dtype, weak)
    return broadcast_to(convert(as_array(name, value), dtype, weak), shape)


def zeros_like(
    a: Any, dtype: DTypeLike = None, shape: Shape | None = None, *, device: Any = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Zeros with the shape and dtype of `a`, or with those given.

    >>> jnp.zeros_like(jnp.arange(2))
    Array([0, 0], dtype=int32)
    """
    return _like(a, 0, dtype, shape, "zeros_like", device)


def ones_like(
    a: Any, dtype: DTypeLike = None, shape: Shape | None = None, *, device: Any = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Ones with the shape and dtype of `a`, or with those given.

    >>> jnp.ones_like(jnp.arange(2))
    Array([1, 1], dtype=int32)
    """
    return _like(a, 1, dtype, shape, "ones_like", device)


def empty_like(
    prototype: Any, dtype: DTypeLike = None, shape: Shape | None = None, *, device: Any = None
) -> Array:
    """Zeros with the shape and dtype of `prototype`.

    >>> jnp.empty_like(jnp.arange(2))
    Array([0, 0], dtype=int32)
    """
    return _like(prototype, 0, dtype, shape, "empty_like", device)


def full_like(
    a: Any, fill_value: ArrayLike, dtype: DTypeLike = None, shape: Shape | None = None, *,
    device: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """One value with the shape and dtype of `a`.

    >>> jnp.full_like(jnp.arange(2), 5)
    Array([5, 5], dtype=int32)
    """
    return _like(a, fill_value, dtype, shape, "full_like", device)


def eye(
    N: int, M: int | None = None, k: ArrayLike = 0, dtype: DTypeLike = None, *, device: Any = None
) -> Array:
    """Ones on the `k`-th diagonal of an `N` × `M` matrix, zeros elsewhere.

    Raises:
      ValueError: `k` is no integer, or an extent is negative.

    >>> jnp.eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if device is not None:
        return on_device(device, eye, N, M, k, dtype)
    dtype = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, "eye")
    if isinstance(k, float) or getattr(k, "shape", ()) != ():
        raise ValueError(f"eye: k must be one integer, got {k}")
    rows = _extent(N, "N of eye")
    columns = rows if M is None else _extent(M, "M of eye")
    return _eye(rows, columns, _within(k, rows, columns), dtype)


def _within(k: Any, rows: int, columns: int) -> Any:
    """The number of a diagonal, as one just outside the matrix if it lies further out."""
    if isinstance(k, (int, np.integer, np.ndarray)):
        return builtins.max(builtins.min(operator.index(k), columns), -rows)
    if getattr(k, "dtype", None) == np.int64:
        return lax.clamp(np.int64(-rows), convert(k, k.dtype), np.int64(columns))
    return k


def _extent(n: Any, what: str, error: type[Exception] = ValueError) -> int:
    if isinstance(n, Tracer):
        canonical_shape(n)  # raises
    n = concrete_int(n, what)
    if n < 0:
        raise error(f"negative dimensions are not allowed, got {what} = {n}")
    return n


@composite(static_argnames=("rows", "columns", "dtype"))
def _eye(rows: int, columns: int, k: ArrayLike, dtype: Any) -> Array:
    return convert(lax.eq(*_row_and_column(rows, columns, k)), dtype)


def _row_and_column(rows: int, columns: int, k: ArrayLike) -> tuple[Array, Array]:
    """`row + k` and `column` of each entry of a matrix."""
    row = lax.broadcasted_iota(np.dtype("int32"), (rows, columns), 0)
    column = lax.broadcasted_iota(np.dtype("int32"), (rows, columns), 1)
    if not (isinstance(k, int) and k == 0):
        row = lax.add(row, convert(k, np.dtype("int32")))
    return row, column


def identity(n: int, dtype: DTypeLike = None) -> Array:
    """The `n` × `n` identity matrix.

    >>> jnp.identity(2, int)
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike = None) -> Array:
    """Ones at and below the `k`-th diagonal, zeros above.

    >>> jnp.tri(2, 3)
    Array([[1., 0., 0.],
           [1., 1., 0.]], dtype=float32)

    Raises:
      OverflowError: for `k` beyond int32, unless x64 is enabled.
    """
    dtype = np.dtype("float32") if dtype is None else user_dtype(dtype, "tri")
    rows = _extent(N, "N of tri", TypeError)
    columns = rows if M is None else _extent(M, "M of tri", TypeError)
    k = concrete_int(k, "k of tri") if is_concrete(k) else k
    if isinstance(k, int) and not config.enable_x64 and not -(2**31) <= k < 2**31:
        raise OverflowError(f"k of tri: Python int {k} too large to convert to int32")
    return lower_mask(rows, columns, _within(k, rows, columns), dtype)


@composite(static_argnames=("rows", "columns", "dtype"))
def lower_mask(rows: int, columns: int, k: ArrayLike, dtype: Any) -> Array:
    """Which entries of a matrix lie at or below its `k`-th diagonal."""
    return convert(lax.ge(*_row_and_column(rows, columns, k)), dtype)


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: DTypeLike = None, *, device: Any = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Numbers from `start` (or 0) up to but without `stop`, at distance `step`.

    Args:
      start: the first number; with `start` alone, the end.
      stop: the end, not included.
      step: the distance between numbers.
      dtype: None means that of the arguments.

    Raises:
      TypeError: an argument is traced: the length of an array must be known.

        >>> jnp.arange(2, 8, 3)
        Array([2, 5], dtype=int32)
    """
    if device is not None:
        return on_device(device, arange, start, stop, step, dtype)
    given = {"start": start, "stop": stop, "step": step}
    if stop is None:
        given = {"stop": start, "step": step}
    given = {name: v for name, v in given.items() if v is not None}
    if start is None:
        raise TypeError("jax.numpy.arange: start must be given, got None")
    for name, value in given.items():
        if not is_arraylike(value):
            raise TypeError(f"jax.numpy.arange: {name} must be a number, got {value!r}")
        if np.ndim(value):
            raise ValueError(
                f"jax.numpy.arange: {name} must be a scalar, got shape {np.shape(value)}"
            )
    natural = promotion.result_type(*given.values())
    if dtypes.issubdtype(natural, np.complexfloating):
        raise ValueError(
            "Passing complex start/stop/step to jnp.arange is no longer supported, got"
            f" {', '.join(f'{name}={v}' for name, v in given.items())}"
        )
    kind = natural if dtype is None else user_dtype(dtype, "arange")
    values = {name: _concrete(v, f"jnp.arange argument {name!r}") for name, v in given.items()}
    first, last = values.get("start", 0), values["stop"]
    stride = values.get("step", 1)
    if dtypes.issubdtype(kind, np.bool_):
        raise TypeError("arange makes numbers, it does not accept dtype bool")
    if stride == 0:
        raise ZeroDivisionError("arange: step must not be zero")
    return _progression(_steps(first, last, stride), first, stride, kind)


def _concrete(x: Any, what: str) -> Any:
    """A Python number; arrays that are being traced cannot be one."""
    if not is_concrete(x):
        raise ConcretizationTypeError(
            x, f"It arose in the {what}, which decides the shape of the result."
        )
    if isinstance(x, (bool, int, float, complex, Dim)):
        return x
    try:
        return operator.index(x)
    except TypeError:
        return np.asarray(x).item()


def _steps(first: Any, last: Any, stride: Any) -> int:
    """The number of elements of a range."""
    if builtins.all(isinstance(v, int) for v in (first, last, stride)):
        return len(range(first, last, stride))
    if builtins.any(map(is_symbolic_dim, (first, last, stride))):
        whole = [
            int(v) if isinstance(v, float) and v.is_integer() else v for v in (first, last, stride)
        ]
        wrong = next((v for v in whole if not isinstance(v, (int, Dim))), None)
        if wrong is not None:
            raise ValueError(
                f"arange: beside a symbolic dimension bounds and step must be whole numbers, got "
                f"{wrong}: scale and shift the result of arange(n) instead"
            )
        first, last, stride = whole
        return max_dim(-((first - last) // stride), 0)
    return builtins.max(0, math.ceil((last - first) / stride))


def _progression(length: int, first: Any, stride: Any, dtype: Any) -> Array:
    if first == 0 and stride == 1:
        return lax.iota(dtype, length)
    narrow = dtypes.issubdtype(dtype, np.floating) and dtypes.itemsize_bits(dtype) < 32
    wide = np.dtype(np.float32) if narrow else dtype
    values = lax.iota(wide, length)
    if stride != 1:
        values = lax.mul(values, strong(values, stride))
    values = lax.add(values, strong(values, first)) if first != 0 else values
    return lax.convert_element_type(values, dtype)
