"""Comparisons, logical and bitwise functions, tests of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy import reductions
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    constant,
    convert,
    is_kind,
    promote_args,
    promote_ranks,
    refuse_out,
    select,
    strong,
)
from amdjax.numpy.conversion import asarray
from amdjax.numpy.ufunc_api import ufunc_of


def equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether elements are equal.

    >>> jnp.equal(jnp.arange(3), 1)
    Array([False,  True, False], dtype=bool)
    """
    return lax.eq(*promote_args("equal", x, y))


def not_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether elements differ.

    >>> jnp.not_equal(jnp.arange(3), 1)
    Array([ True, False,  True], dtype=bool)
    """
    return lax.ne(*promote_args("not_equal", x, y))


def _ordered(name: str, lax_fn: Callable[..., Array], x: ArrayLike, y: ArrayLike) -> Array:
    """Compare; complex numbers by real part, then by imaginary part."""
    x, y = promote_args(name, x, y)
    if not is_kind(x.dtype, np.complexfloating):
        return lax_fn(x, y)
    same = lax.eq(lax.real(x), lax.real(y))
    return select(same, lax_fn(lax.imag(x), lax.imag(y)), lax_fn(lax.real(x), lax.real(y)))


def greater(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether `x > y`.

    >>> jnp.greater(jnp.arange(3), 1)
    Array([False, False,  True], dtype=bool)
    """
    return _ordered("greater", lax.gt, x, y)


def greater_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether `x >= y`.

    >>> jnp.greater_equal(jnp.arange(3), 1)
    Array([False,  True,  True], dtype=bool)
    """
    return _ordered("greater_equal", lax.ge, x, y)


def less(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether `x < y`.

    >>> jnp.less(jnp.arange(3), 1)
    Array([ True, False, False], dtype=bool)
    """
    return _ordered("less", lax.lt, x, y)


def less_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether `x <= y`.

    >>> jnp.less_equal(jnp.arange(3), 1)
    Array([ True,  True, False], dtype=bool)
    """
    return _ordered("less_equal", lax.le, x, y)


def _truths(name: str, *args: ArrayLike) -> list[Array]:
    """The arguments as booleans: whether each element is nonzero."""
    arrays = as_arrays(name, *args)
    arrays = [x if x.dtype == bool else lax.ne(x, constant(x, 0)) for x in arrays]
    return promote_ranks(name, *arrays)


def _reduce_truths(fn: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(a: ArrayLike, *, dtype: Any = None, initial: Any = None, **options: Any) -> Array:
        result = fn(a, **options)
        if initial is not None:
            combine = lax.bitwise_and if fn is reductions.all else lax.bitwise_or
            result = combine(result, convert(initial, bool))
        return result

    return reduce


@ufunc_of(name="logical_and", identity=True, reduce=_reduce_truths(reductions.all))
def logical_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether both elements are nonzero.

    >>> jnp.logical_and(jnp.arange(3), 1)
    Array([False,  True,  True], dtype=bool)
    """
    return lax.bitwise_and(*_truths("logical_and", x, y))


@ufunc_of(name="logical_or", identity=False, reduce=_reduce_truths(reductions.any))
def logical_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether at least one element is nonzero.

    >>> jnp.logical_or(jnp.arange(3), 0)
    Array([False,  True,  True], dtype=bool)
    """
    return lax.bitwise_or(*_truths("logical_or", x, y))


@ufunc_of(name="logical_xor", identity=False)
def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Whether exactly one element is nonzero.

    >>> jnp.logical_xor(jnp.arange(3), 1)
    Array([ True, False, False], dtype=bool)
    """
    return lax.bitwise_xor(*_truths("logical_xor", x, y))


def logical_not(x: ArrayLike, /) -> Array:
    """Whether the element is zero.

    >>> jnp.logical_not(jnp.arange(3))
    Array([ True, False, False], dtype=bool)
    """
    return lax.bitwise_not(*_truths("logical_not", x))


def _reduce_bits(name: str) -> Callable[..., Array]:
    def reduce(
        a: ArrayLike, *, axis: Any, dtype: Any = None, keepdims: bool = False,
        initial: Any = None, where: Any = None,
    ) -> Array:  # fmt: skip
        return reductions.reduce_bits(name, a, axis, dtype, keepdims, initial, where)

    return reduce


@ufunc_of(name="bitwise_and", identity=-1, reduce=_reduce_bits("bitwise_and"))
def bitwise_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The bits set in both integers.

    >>> jnp.bitwise_and(6, 3)
    Array(2, dtype=int32, weak_type=True)
    """
    return lax.bitwise_and(*promote_args("bitwise_and", x, y))


@ufunc_of(name="bitwise_or", identity=0, reduce=_reduce_bits("bitwise_or"))
def bitwise_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The bits set in either integer.

    >>> jnp.bitwise_or(6, 3)
    Array(7, dtype=int32, weak_type=True)
    """
    return lax.bitwise_or(*promote_args("bitwise_or", x, y))


@ufunc_of(name="bitwise_xor", identity=0, reduce=_reduce_bits("bitwise_xor"))
def bitwise_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The bits set in exactly one integer.

    >>> jnp.bitwise_xor(6, 3)
    Array(5, dtype=int32, weak_type=True)
    """
    return lax.bitwise_xor(*promote_args("bitwise_xor", x, y))


def bitwise_not(x: ArrayLike, /) -> Array:
    """Every bit flipped; of booleans, the negation.

    >>> jnp.bitwise_not(5)
    Array(-6, dtype=int32, weak_type=True)
    """
    return lax.bitwise_not(*promote_args("bitwise_not", x))


bitwise_invert = invert = bitwise_not


def bitwise_count(x: ArrayLike, /) -> Array:
    """How many bits of `|x|` are set, as uint8.

    >>> jnp.bitwise_count(7)
    Array(3, dtype=uint8)
    """
    (x,) = promote_args("bitwise_count", x)
    if x.dtype == bool:
        return convert(x, np.dtype("uint8"))
    if not is_kind(x.dtype, np.integer):
        raise TypeError(f"bitwise_count requires integers, got {x.dtype}")
    magnitude = lax.abs(x) if is_kind(x.dtype, np.signedinteger) else x
    return convert(lax.population_count(magnitude), np.dtype("uint8"))


def _shift(name: str, x: ArrayLike, y: ArrayLike) -> list[Array]:
    x, y = promote_args(name, x, y)
    if x.dtype == bool:
        x, y = (convert(v, dtypes.default_int_dtype()) for v in (x, y))
    return [x, y]


def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`x` with its bits moved left by `y`.

    >>> jnp.left_shift(1, 4)
    Array(16, dtype=int32, weak_type=True)
    """
    return lax.shift_left(*_shift("left_shift", x, y))


def bitwise_left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`x` with its bits moved left by `y`; the array API's name for `left_shift`.

    >>> jnp.bitwise_left_shift(1, 4)
    Array(16, dtype=int32, weak_type=True)
    """
    return left_shift(x, y)


def right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1` with its bits moved right by `x2`, the sign kept.

    >>> jnp.right_shift(-16, 2)
    Array(-4, dtype=int32, weak_type=True)
    """
    x, y = _shift("right_shift", x1, x2)
    unsigned = is_kind(x.dtype, np.unsignedinteger)
    return (lax.shift_right_logical if unsigned else lax.shift_right_arithmetic)(x, y)


bitwise_right_shift = right_shift


def isnan(x: ArrayLike, /) -> Array:
    """Whether the element is NaN.

    >>> jnp.isnan(jnp.array([1.0, jnp.nan]))
    Array([False,  True], dtype=bool)
    """
    x = as_array("isnan", x)
    return lax.ne(x, x)


def isfinite(x: ArrayLike, /) -> Array:
    """Whether the element is neither infinite nor NaN.

    >>> jnp.isfinite(jnp.array([1.0, jnp.inf, jnp.nan]))
    Array([ True, False, False], dtype=bool)
    """
    x = as_array("isfinite", x)
    if is_kind(x.dtype, np.floating):
        return lax.is_finite(x)
    if is_kind(x.dtype, np.complexfloating):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.full_like(x, True, dtype=np.dtype(bool))


def isinf(x: ArrayLike, /) -> Array:
    """Whether the element is infinite.

    >>> jnp.isinf(jnp.array([1.0, -jnp.inf]))
    Array([False,  True], dtype=bool)
    """
    x = as_array("isinf", x)
    infinite = lambda v: lax.eq(lax.abs(v), strong(v, np.inf))
    if is_kind(x.dtype, np.floating):
        return infinite(x)
    if is_kind(x.dtype, np.complexfloating):
        return lax.bitwise_or(infinite(lax.real(x)), infinite(lax.imag(x)))
    return lax.full_like(x, False, dtype=np.dtype(bool))


def _is_infinity(name: str, x: ArrayLike, out: None, value: float) -> Array:
    refuse_out(name, out)
    x = as_array(name, x)
    if is_kind(x.dtype, np.floating):
        return lax.eq(x, strong(x, value))
    if is_kind(x.dtype, np.complexfloating):
        raise ValueError(f"{name} is not well defined for complex types")
    return lax.full_like(x, False, dtype=np.dtype(bool))


def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether the element is +inf.

    >>> jnp.isposinf(jnp.array([jnp.inf, -jnp.inf]))
    Array([ True, False], dtype=bool)
    """
    return _is_infinity("isposinf", x, out, np.inf)


def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether the element is -inf.

    >>> jnp.isneginf(jnp.array([jnp.inf, -jnp.inf]))
    Array([False,  True], dtype=bool)
    """
    return _is_infinity("isneginf", x, out, -np.inf)


def iscomplex(x: ArrayLike) -> Array:
    """Whether the imaginary part is not zero.

    >>> jnp.iscomplex(jnp.array([1.0, 1j]))
    Array([False,  True], dtype=bool)
    """
    x = as_array("iscomplex", x)
    if not is_kind(x.dtype, np.complexfloating):
        no = lax.full_like(x, False, dtype=np.dtype(bool))
        return convert(no, no.dtype, x.weak_type and not x.ndim)
    return lax.ne(lax.imag(x), constant(lax.imag(x), 0))


def isreal(x: ArrayLike) -> Array:
    """Whether the imaginary part is zero.

    >>> jnp.isreal(jnp.array([1.0, 1j]))
    Array([ True, False], dtype=bool)
    """
    return lax.bitwise_not(iscomplex(x))


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype of `x` is complex.

    >>> jnp.iscomplexobj(jnp.array([1.0]))
    False
    """
    if x is None:
        return False
    x = x.__jax_array__() if hasattr(x, "__jax_array__") else x
    try:
        return bool(is_kind(dtypes.dtype(x), np.complexfloating))
    except TypeError:
        if isinstance(x, (list, tuple)):  # which may hold traced values
            return any(map(iscomplexobj, x))
        if isinstance(x, (str, bytes)):
            return False
        raise


def isrealobj(x: Any) -> bool:
    """Whether the dtype of `x` is not complex.

    >>> jnp.isrealobj(jnp.array([1.0]))
    True
    """
    return not iscomplexobj(x)


@composite(static_argnames="equal_nan")
def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-05,
    atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """Whether `|a - b| <= atol + rtol * |b|`, elementwise.

    >>> jnp.isclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.1]))
    Array([ True, False], dtype=bool)
    """
    x, y = promote_args("isclose", a, b)
    if isinstance(x.dtype, dtypes.ExtendedDType):
        return lax.eq(x, y)
    if not is_kind(x.dtype, np.inexact):
        wide = dtypes.to_inexact_dtype(x.dtype)
        x, y = convert(x, wide), convert(y, wide)
    magnitude = lax.abs(y)
    rtol, atol = (convert(v, magnitude.dtype) for v in (rtol, atol))
    near = lax.le(lax.abs(lax.sub(x, y)), lax.add(atol, lax.mul(rtol, magnitude)))
    # Infinities are close to themselves only.
    finite = lax.bitwise_and(isfinite(x), isfinite(y))
    result = lax.bitwise_or(lax.bitwise_and(near, finite), lax.eq(x, y))
    if equal_nan:
        result = lax.bitwise_or(result, lax.bitwise_and(lax.ne(x, x), lax.ne(y, y)))
    return result


@composite(static_argnames="equal_nan")
def allclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-05,
    atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """Whether all elements are close in the sense of `isclose`.

    >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.0 + 1e-9]))
    Array(True, dtype=bool)
    """
    return reductions.all(isclose(a, b, rtol, atol, equal_nan))


@composite
def _all_equal(a: Array, b: Array) -> Array:
    return reductions.all(equal(a, b))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Whether two arrays have the same shape and elements.

    >>> jnp.array_equal(jnp.arange(3), jnp.array([0, 1, 2]))
    Array(True, dtype=bool)
    """
    a, b = asarray(a1), asarray(a2)
    if a.shape != b.shape:
        return convert(False, np.dtype(bool))
    if not equal_nan:
        return _all_equal(a, b)
    both = lax.bitwise_and(isnan(a), isnan(b))
    return reductions.all(lax.bitwise_or(equal(a, b), both))


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether two arrays broadcast together and are equal then.

    >>> jnp.array_equiv(jnp.ones(3), 1.0)
    Array(True, dtype=bool)
    """
    a, b = asarray(a1), asarray(a2)
    try:
        lax.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return convert(False, np.dtype(bool))
    return reductions.all(equal(a, b))


def signbit(x: ArrayLike, /) -> Array:
    """Whether the sign bit is set; true of -0.0.

    >>> jnp.signbit(jnp.array([-0.0, 0.0, -3.0]))
    Array([ True, False,  True], dtype=bool)
    """
    x = as_array("signbit", x)
    if is_kind(x.dtype, np.integer):
        return lax.lt(x, strong(x, 0))
    if x.dtype == bool:
        return lax.full_like(x, False)
    if not is_kind(x.dtype, np.floating):
        raise ValueError(f"jax.numpy.signbit is not well defined for {x.dtype}")
    bits = dtypes.finfo(x.dtype).bits
    word = lax.bitcast_convert_type(x, np.dtype(f"int{bits}"))
    return lax.lt(word, constant(word, 0))
