"""Evenly spaced numbers, grids of coordinates and window functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.config import numpy_dtype_promotion
from amdjax.core.errors import ConcretizationTypeError
from amdjax.core.trace import is_concrete
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    as_array,
    as_arrays,
    broadcast_to,
    canonical_axis,
    canonical_shape,
    concrete_int,
    constant,
    convert,
    is_kind,
    on_device,
    promote_dtypes,
    promote_dtypes_inexact,
    scalar_of,
    select,
    user_dtype,
)
from amdjax.numpy.conversion import asarray
from amdjax.numpy.creation import arange
from amdjax.numpy.elementary import i0
from amdjax.numpy.joining import concatenate
from amdjax.numpy.vectorize import vectorize


def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: DTypeLike = None, axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """`num` evenly spaced numbers from `start` to `stop`.

    Args:
      num: how many.
      retstep: also return the spacing.
      dtype: None means that of the arguments, as a float.
      axis: where the new axis goes, if the arguments are arrays.

        >>> jnp.linspace(0.0, 1.0, 5)
        Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    if device is not None:
        return on_device(device, linspace, start, stop, num, endpoint, retstep, dtype, axis)
    num = concrete_int(num, "'num' argument of jnp.linspace")
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    start, stop = as_arrays("linspace", start, stop)
    dtype = None if dtype is None else user_dtype(dtype, "linspace")
    result, step = _linspace(start, stop, num, bool(endpoint), dtype, axis)
    return (result, step) if retstep else result


@composite(static_argnames=("num", "endpoint", "dtype", "axis"))
def _linspace(
    start: Array, stop: Array, num: int, endpoint: bool, dtype: Any, axis: int
) -> tuple[Array, Array]:
    natural = dtypes.to_inexact_dtype(promotion.result_type(start, stop))
    dtype = natural if dtype is None else dtype
    with numpy_dtype_promotion("standard"):  # a dtype that is asked for is no implicit promotion
        natural = promotion.promote_types(natural, dtypes.to_inexact_dtype(dtype))
    shape = lax.broadcast_shapes(start.shape, stop.shape)
    start, stop = (broadcast_to(convert(v, natural), shape) for v in (start, stop))
    intervals = num - 1 if endpoint else num
    nan = lambda: lax.full((), np.nan, natural)
    # Symbolic sizes are compared by ==: those for which it holds are traced apart.
    none = num == 0 or intervals == 0
    step = nan() if none else lax.div(lax.sub(stop, start), constant(start, intervals))
    if num == 0 or num == 1:
        result = lax.expand_dims(start, (0,)) if num else lax.full((0, *shape), 0, natural)
        if num and not endpoint:
            step = lax.sub(stop, start)
    else:
        # Both ends are weighted, so that neither cancellation nor the last step is lost.
        count = intervals if endpoint else num
        real = dtypes.finfo(natural).dtype
        weight = convert(lax.div(lax.iota(real, count), scalar_of(intervals, real)), natural)
        weight = lax.reshape(weight, (count,) + (1,) * len(shape))
        rest = lax.sub(constant(weight, 1), weight)
        first, last = lax.expand_dims(start, (0,)), lax.expand_dims(stop, (0,))
        result = lax.add(lax.mul(first, rest), lax.mul(last, weight))
        if endpoint:
            result = lax.concatenate([result, last], 0)
    if is_kind(dtype, np.integer) and not is_kind(natural, np.integer):
        result = lax.floor(result)
    axis = canonical_axis(axis, result.ndim)
    order = list(range(1, result.ndim))
    order.insert(axis, 0)
    return convert(lax.transpose(result, order) if axis else result, dtype), step


def logspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, base: ArrayLike = 10.0,
    dtype: DTypeLike = None, axis: int = 0,
) -> Array:  # fmt: skip
    """`num` numbers from `base**start` to `base**stop`, evenly spaced on a log scale.

    >>> jnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    dtype = None if dtype is None else user_dtype(dtype, "logspace")
    inner = None if dtype is None else dtypes.to_inexact_dtype(dtype)
    exponents = linspace(start, stop, num, endpoint, False, inner, axis)
    (base,) = promote_dtypes_inexact(as_array("logspace", base))
    base, exponents = promote_dtypes(base, exponents)
    result = lax.pow(broadcast_to(base, exponents.shape), exponents)
    return result if dtype is None else convert(result, dtype)


def geomspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True,
    dtype: DTypeLike = None, axis: int = 0,
) -> Array:  # fmt: skip
    """`num` numbers from `start` to `stop` in geometric progression.

    >>> jnp.geomspace(1, 100, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    a, b = promote_dtypes_inexact(*as_arrays("geomspace", start, stop))
    if dtype is not None:
        dtype = user_dtype(dtype, "geomspace")
        inner = promotion.promote_types(a.dtype, dtypes.to_inexact_dtype(dtype))
        a, b = convert(a, inner), convert(b, inner)
    a, b = (broadcast_to(v, lax.broadcast_shapes(a.shape, b.shape)) for v in (a, b))
    sign = lax.sign(a)
    turn = lax.conj(sign) if is_kind(a.dtype, np.complexfloating) else sign
    a, b = lax.mul(a, turn), lax.mul(b, turn)
    ten = constant(a, np.log(10))
    log10 = lambda v: lax.div(lax.log(v), ten)
    result = logspace(log10(a), log10(b), num, endpoint, 10.0, None, 0)
    if num > 0:
        parts = [lax.expand_dims(a, (0,)), lax.slice_in_dim(result, 1, None)]
        if endpoint and num > 1:
            parts = [parts[0], lax.slice_in_dim(result, 1, num - 1), lax.expand_dims(b, (0,))]
        result = lax.concatenate([convert(p, result.dtype) for p in parts], 0)
    result = lax.mul(result, broadcast_to(lax.expand_dims(sign, (0,)), result.shape))
    axis = canonical_axis(axis, result.ndim)
    order = list(range(1, result.ndim))
    order.insert(axis, 0)
    result = lax.transpose(result, order)
    return result if dtype is None else convert(result, dtype)


def indices(dimensions: Sequence[int], dtype: DTypeLike = None, sparse: bool = False) -> Any:
    """The index of each element of an array of shape `dimensions`, one array an axis.

    Args:
      dimensions: shape of the grid.
      dtype: None means the default integer.
      sparse: return a tuple of arrays that broadcast together instead of one full array.

        >>> jnp.indices((2, 2))[0]
        Array([[0, 0],
               [1, 1]], dtype=int32)
    """
    dtype = dtypes.default_int_dtype() if dtype is None else user_dtype(dtype, "indices")
    if not isinstance(dimensions, Iterable) or not np.ndim(dimensions):
        raise TypeError(f"indices: dimensions must be a sequence of integers, got {dimensions!r}")
    shape = canonical_shape(dimensions)
    grids = []
    for axis, n in enumerate(shape):
        if sparse:
            own = tuple(n if i == axis else 1 for i in range(len(shape)))
            grids.append(lax.broadcasted_iota(dtype, own, axis))
        else:
            grids.append(lax.broadcasted_iota(dtype, shape, axis))
    if sparse:
        return tuple(grids)
    if not grids:
        return lax.full((0, *shape), 0, dtype)
    return lax.concatenate([lax.expand_dims(g, (0,)) for g in grids], 0)


def meshgrid(
    *xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Array]:
    """Coordinate arrays of the grid spanned by vectors.

    Args:
      xi: vectors.
      copy: must be true; arrays are immutable.
      sparse: keep axes of one instead of repeating.
      indexing: "xy" swaps the first two axes, as plots want it; "ij" does not.

        >>> jnp.meshgrid(jnp.arange(2), jnp.arange(3))[0]
        Array([[0, 1],
               [0, 1],
               [0, 1]], dtype=int32)
    """
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    args = as_arrays("meshgrid", *xi)
    if any(x.ndim != 1 for x in args):
        raise ValueError("Arguments to jax.numpy.meshgrid must be 1D, got shapes "
                         f"{[x.shape for x in args]}")  # fmt: skip
    args = [lax.reshape(x, (x.size,)) for x in args]
    order = list(range(len(args)))
    if indexing == "xy" and len(args) > 1:
        order[:2] = [1, 0]
    shape = [0] * len(args)
    for x, axis in zip(args, order):
        shape[axis] = x.size
    results = []
    for x, axis in zip(args, order):
        own = [1] * len(args)
        own[axis] = x.size
        x = lax.reshape(x, own)
        results.append(x if sparse else broadcast_to(x, shape))
    return results


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: DTypeLike = float, **kwargs: Any
) -> Any:
    """An array whose element at `(i, j, …)` is `function(i, j, …)`.

    >>> jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int)
    Array([[0, 1],
           [1, 2]], dtype=int32)
    """
    shape = canonical_shape(shape)
    return vectorize(lambda *index: function(*index, **kwargs))(*indices(shape, dtype=dtype))


class _Grid:
    """Base of `mgrid` and `ogrid`: slices are ranges, an imaginary step is a number of points."""

    sparse = False

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range_of(key, type(self).__name__.strip("_"))
        if not key:
            return [] if self.sparse else lax.full((0,), 0, dtypes.default_int_dtype())
        ranges = [_range_of(k, type(self).__name__.strip("_")) for k in key]
        with numpy_dtype_promotion("standard"):  # of one grid: no promotion of arguments
            axes = promote_dtypes(*ranges)
        grid = meshgrid(*axes, indexing="ij", sparse=self.sparse)
        if self.sparse:
            return grid
        return lax.concatenate([lax.expand_dims(g, (0,)) for g in grid], 0)

    def __repr__(self) -> str:
        return f"<jax.numpy.{type(self).__name__.strip('_')}>"


class _mgrid(_Grid):
    """Dense grids of coordinates.

    >>> jnp.mgrid[0:2, 0:2][1]
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """


class _ogrid(_Grid):
    """Open grids of coordinates, which broadcast together.

    >>> jnp.ogrid[0:2, 0:3][0]
    Array([[0],
           [1]], dtype=int32)
    """

    sparse = True


mgrid, ogrid = _mgrid(), _ogrid()


def _range_of(key: slice, name: str) -> Array:
    start = 0 if key.start is None else key.start
    step = 1 if key.step is None else key.step
    for part, value in (("start", start), ("stop", key.stop), ("step", step)):
        if not is_concrete(value):
            raise ConcretizationTypeError(value, f"It is the slice {part} of jnp.{name}.")
    if isinstance(step, complex) or is_kind(dtypes.dtype(step), np.complexfloating):
        return linspace(start, key.stop, int(abs(step)))
    return arange(start, key.stop, step)


class _Concatenator:
    """Base of `r_` and `c_`: slices and arrays joined along an axis."""

    axis, ndmin, trans1d = 0, 1, -1

    def __getitem__(self, key: Any) -> Array:
        parts = key if isinstance(key, tuple) else (key,)
        axis, ndmin, trans1d = self.axis, self.ndmin, self.trans1d
        as_matrix = None
        if isinstance(parts[0], str):
            directive, parts = parts[0], parts[1:]
            if directive in ("r", "c"):
                as_matrix = directive
            else:
                try:
                    numbers = [int(v) for v in directive.split(",")]
                except ValueError:
                    raise ValueError(
                        f"could not understand directive {directive!r}: it is 'r', 'c' or up to"
                        " three integers with commas between them"
                    ) from None
                axis, ndmin, trans1d = (*numbers, *(axis, ndmin, trans1d)[len(numbers) :])
        arrays = [self._part(part, ndmin, trans1d) for part in parts]
        if as_matrix is not None:
            arrays = [lax.reshape(x, (1, x.size)) if x.ndim < 2 else x for x in arrays]
            result = concatenate(arrays, axis=-1)
            return (
                lax.transpose(result, (1, 0))
                if as_matrix == "c" and result.shape[0] == 1
                else result
            )
        return concatenate(arrays, axis=axis)

    def _part(self, part: Any, ndmin: int, trans1d: int) -> Array:
        name = f"{type(self).__name__.strip('_')}_"
        x = _range_of(part, name) if isinstance(part, slice) else asarray(part)
        missing = ndmin - x.ndim
        if missing <= 0:
            return x
        before = trans1d if trans1d >= 0 else trans1d + missing + 1
        before = max(min(before, missing), 0)
        return lax.reshape(x, (1,) * before + x.shape + (1,) * (missing - before))

    def __repr__(self) -> str:
        return f"<jax.numpy.{type(self).__name__.strip('_')}_>"


class _r(_Concatenator):
    """Join slices and arrays along the first axis.

    >>> jnp.r_[0:3, 10, jnp.array([7, 8])]
    Array([ 0,  1,  2, 10,  7,  8], dtype=int32)
    """


class _c(_Concatenator):
    """Join slices and arrays as columns.

    >>> jnp.c_[jnp.array([1, 2]), jnp.array([3, 4])]
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """

    axis, ndmin, trans1d = -1, 2, 0


r_, c_ = _r(), _c()


class _IndexExpression:
    """Turns indexing syntax into the index itself."""

    def __init__(self, always_tuple: bool):
        self._always_tuple = always_tuple

    def __getitem__(self, key: Any) -> Any:
        return (key,) if self._always_tuple and not isinstance(key, tuple) else key


s_, index_exp = _IndexExpression(False), _IndexExpression(True)


def _window(M: int, name: str) -> tuple[int, Array]:
    M = int(M) if isinstance(M, float) else concrete_int(M, f"M of {name}")
    if M < 0:
        raise TypeError(f"M of {name} must not be negative, got {M}")
    return M, lax.iota(dtypes.default_float_dtype(), M)


def _cosine_window(M: int, name: str, *weights: float) -> Array:
    M, n = _window(M, name)
    if M <= 1:
        return lax.full((M,), 1, n.dtype)
    total = lax.full_like(n, weights[0])
    for k, weight in enumerate(weights[1:], 1):
        phase = lax.mul(n, constant(n, 2 * np.pi * k / (M - 1)))
        total = lax.add(total, lax.mul(constant(n, weight), lax.cos(phase)))
    return total


def hamming(M: int) -> Array:
    """The Hamming window of `M` points.

    >>> jnp.round(jnp.hamming(3), 3)
    Array([0.08, 1.  , 0.08], dtype=float32)
    """
    return _cosine_window(M, "hamming", 0.54, -0.46)


def hanning(M: int) -> Array:
    """The Hann window of `M` points.

    >>> jnp.hanning(3)
    Array([0., 1., 0.], dtype=float32)
    """
    return _cosine_window(M, "hanning", 0.5, -0.5)


def blackman(M: int) -> Array:
    """The Blackman window of `M` points.

    >>> jnp.blackman(5).shape
    (5,)
    """
    return _cosine_window(M, "blackman", 0.42, -0.5, 0.08)


def bartlett(M: int) -> Array:
    """The triangular window of `M` points.

    >>> jnp.bartlett(3)
    Array([0., 1., 0.], dtype=float32)
    """
    M, n = _window(M, "bartlett")
    if M <= 1:
        return lax.full((M,), 1, n.dtype)
    one = constant(n, 1)
    return lax.sub(one, lax.abs(lax.sub(lax.mul(n, constant(n, 2 / (M - 1))), one)))


def kaiser(M: int, beta: ArrayLike) -> Array:
    """The Kaiser window of `M` points.

    >>> jnp.kaiser(3, 0.0)
    Array([1., 1., 1.], dtype=float32)
    """
    M, n = _window(M, "kaiser")
    if M <= 1:
        return lax.full((M,), 1, n.dtype)
    beta = convert(beta, n.dtype)
    centered = lax.div(lax.sub(n, constant(n, (M - 1) / 2)), constant(n, (M - 1) / 2))
    inside = lax.sub(constant(n, 1), lax.square(centered))
    inside = select(lax.lt(inside, constant(n, 0)), constant(n, 0), inside)
    return lax.div(i0(lax.mul(beta, lax.sqrt(inside))), i0(beta))
