"""Arithmetic, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array, ConcreteArray
from amdjax.core.composite import composite
from amdjax.numpy import cumulative, logic, reductions
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    broadcast_arrays,
    broadcast_to,
    check_arraylike,
    constant,
    convert,
    is_kind,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes,
    promote_ranks,
    select,
)
from amdjax.numpy.ufunc_api import ufunc_of


@ufunc_of(name="add", identity=0, reduce=reductions.sum, accumulate=cumulative.cumsum)
def add(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`x + y`; of booleans, the logical or.

    >>> jnp.add(jnp.arange(3), 10)
    Array([10, 11, 12], dtype=int32)
    """
    x, y = promote_args("add", x, y)
    return lax.bitwise_or(x, y) if x.dtype == bool else lax.add(x, y)


@ufunc_of(name="multiply", identity=1, reduce=reductions.prod, accumulate=cumulative.cumprod)
def multiply(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`x * y`; of booleans, the logical and.

    >>> jnp.multiply(jnp.arange(3), 10)
    Array([ 0, 10, 20], dtype=int32)
    """
    x, y = promote_args("multiply", x, y)
    return lax.bitwise_and(x, y) if x.dtype == bool else lax.mul(x, y)


@ufunc_of(name="subtract")
def subtract(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`x - y`.

    >>> jnp.subtract(jnp.arange(3), 1)
    Array([-1,  0,  1], dtype=int32)
    """
    return lax.sub(*promote_args("subtract", x, y))


@ufunc_of(nin=1, name="negative")
def negative(x: ArrayLike, /) -> Array:
    """`-x`.

    >>> jnp.negative(jnp.arange(3))
    Array([ 0, -1, -2], dtype=int32)
    """
    return lax.neg(as_array("negative", x))


def positive(x: ArrayLike, /) -> Array:
    """`x` itself.

    >>> jnp.positive(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    return as_array("positive", x)


def true_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 / x2` as a float, integers too.

    >>> jnp.true_divide(jnp.arange(3), 2)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return lax.div(*promote_args_inexact("true_divide", x1, x2))


divide = true_divide


@composite
def _floor_divide(x: Array, y: Array) -> Array:
    dtype = x.dtype
    if is_kind(dtype, np.unsignedinteger):
        return lax.div(x, y)
    if is_kind(dtype, np.integer):
        quotient = lax.div(x, y)
        inexact = lax.ne(lax.rem(x, y), constant(x, 0))
        opposite = lax.ne(lax.sign(x), lax.sign(y))
        # Division truncates; where signs differ, the floor lies one below.
        below = lax.sub(quotient, lax.full_like(x, 1))
        return select(lax.bitwise_and(opposite, inexact), below, quotient)
    if is_kind(dtype, np.complexfloating):
        raise TypeError("floor_divide does not support complex-valued inputs")
    rest = lax.rem(x, y)
    quotient = lax.div(select(lax.eq(y, constant(y, 0)), x, lax.sub(x, rest)), y)
    opposite = lax.bitwise_and(lax.ne(rest, constant(x, 0)), lax.ne(lax.sign(y), lax.sign(rest)))
    # x - rem(x, y) is a multiple of y up to rounding, so the nearest integer is meant.
    return lax.round(select(opposite, lax.sub(quotient, lax.full_like(x, 1)), quotient))


def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The largest integer not above `x1 / x2`.

    >>> jnp.floor_divide(jnp.array([-7, 7]), 2)
    Array([-4,  3], dtype=int32)
    """
    return _floor_divide(*promote_args_numeric("floor_divide", x1, x2))


@composite
def _fmod(x: Array, y: Array) -> Array:
    rest = lax.rem(x, y)
    if is_kind(x.dtype, np.integer):
        # The remainder of a division by zero is zero, as in NumPy.
        rest = select(lax.eq(y, constant(y, 0)), lax.full_like(x, 0), rest)
    return rest


@composite
def _remainder(x: Array, y: Array) -> Array:
    zero = constant(x, 0)
    rest = _fmod(x, y)
    if is_kind(x.dtype, np.unsignedinteger):
        return rest
    opposite = lax.ne(lax.lt(rest, zero), lax.lt(y, zero))
    moved = lax.bitwise_and(opposite, lax.ne(rest, zero))
    return select(moved, lax.add(rest, y), rest)


def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 - x2 * floor(x1 / x2)`, which has the sign of `x2`.

    >>> jnp.remainder(jnp.array([-7, 7]), 3)
    Array([2, 1], dtype=int32)
    """
    x, y = promote_args_numeric("remainder", x1, x2)
    if is_kind(x.dtype, np.complexfloating):
        raise TypeError("remainder does not support complex-valued inputs")
    return _remainder(x, y)


mod = remainder


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The remainder of division toward zero, which has the sign of `x1`.

    >>> jnp.fmod(jnp.array([-7, 7]), 3)
    Array([-1,  1], dtype=int32)
    """
    return _fmod(*promote_args_numeric("fmod", x1, x2))


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """`(floor_divide(x1, x2), remainder(x1, x2))`.

    >>> jnp.divmod(jnp.array([-7, 7]), 3)
    (Array([-3,  2], dtype=int32), Array([2, 1], dtype=int32))
    """
    x, y = promote_args_numeric("divmod", x1, x2)
    return floor_divide(x, y), remainder(x, y)


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1` to the power `x2`.

    Args:
      x2: exponent; a Python integer leads to repeated multiplication.

    Raises:
      TypeError: an integer base meets a negative Python integer exponent.

        >>> jnp.power(jnp.array([1.0, 2.0, 3.0]), 2)
        Array([1., 4., 9.], dtype=float32)
    """
    check_arraylike("power", x1, x2)
    exponent = _static_exponent(x2)
    if exponent is not None:
        x = as_array("power", x1)
        if x.dtype == bool:
            x = convert(x, dtypes.default_int_dtype())
        if exponent < 0 and is_kind(x.dtype, np.integer):
            raise TypeError("Integers to negative integer powers are not allowed.")
        return lax.integer_pow(x, exponent)
    return _power(as_array("power", x1), as_array("power", x2))


def _static_exponent(y: Any) -> int | None:
    """The exponent as a Python int where it is known and certainly small."""
    if isinstance(y, (int, np.integer)):
        return int(y)
    if isinstance(y, ConcreteArray) and not y.ndim and is_kind(y.dtype, np.integer):
        return int(y)
    return None


@composite
def _power(x: Array, y: Array) -> Array:
    if (
        is_kind(x.dtype, np.inexact)
        and is_kind(y.dtype, np.integer)
        and not is_kind(y.dtype, np.bool_)
    ):
        # An integer exponent keeps negative bases real.
        dtype, weak = promotion.lattice_result_type(x, y)
        if is_kind(dtype, np.inexact):
            x, y = promote_ranks("power", convert(x, dtype, weak), y)
            return lax.pow(x, y)
    x, y = promote_ranks("power", *promote_dtypes(x, y))
    if is_kind(x.dtype, np.integer):
        return _integer_power(x, y)
    if x.dtype == bool:
        return _integer_power(*(convert(v, dtypes.default_int_dtype()) for v in (x, y)))
    return lax.pow(x, y)


def _integer_power(x: Array, y: Array) -> Array:
    """Square and multiply over the bits of the exponent."""
    x, y = broadcast_arrays(x, y)
    one, zero = constant(x, 1), constant(x, 0)
    # Zero to a negative power is zero, as is what overflows; anything to the zeroth is one.
    result = select(lax.bitwise_and(lax.eq(x, zero), lax.ne(y, zero)), zero, one)
    result = broadcast_to(result, x.shape)
    bits = dtypes.iinfo(x.dtype).bits
    for _ in range(8 if bits == 8 else 6):  # as in JAX: larger powers of wider integers overflow
        odd = lax.ne(lax.bitwise_and(y, one), zero)
        result = select(odd, lax.mul(result, x), result)
        x = lax.mul(x, x)
        y = lax.shift_right_logical(y, one)
    return convert(result, result.dtype)


def pow(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1` to the power `x2`; the array API's name for `power`.

    >>> jnp.pow(2.0, 0.5)
    Array(1.4142135, dtype=float32, weak_type=True)
    """
    return power(x1, x2)


def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`x` to the power `y`, computed with floats.

    >>> jnp.float_power(2, 3)
    Array(8., dtype=float32, weak_type=True)
    """
    return lax.pow(*promote_args_inexact("float_power", x, y))


def square(x: ArrayLike, /) -> Array:
    """`x * x`.

    >>> jnp.square(jnp.arange(4))
    Array([0, 1, 4, 9], dtype=int32)
    """
    x = as_array("square", x)
    return lax.square(convert(x, dtypes.default_int_dtype()) if x.dtype == bool else x)


def reciprocal(x: ArrayLike, /) -> Array:
    """`1 / x` as a float.

    >>> jnp.reciprocal(jnp.array([1.0, 4.0]))
    Array([1.  , 0.25], dtype=float32)
    """
    (x,) = promote_args_inexact("reciprocal", x)
    return lax.integer_pow(x, -1)


def absolute(x: ArrayLike, /) -> Array:
    """The magnitude of each element.

    >>> jnp.absolute(jnp.array([-2, 3]))
    Array([2, 3], dtype=int32)
    """
    x = as_array("absolute", x)
    return x if x.dtype == bool or is_kind(x.dtype, np.unsignedinteger) else lax.abs(x)


abs = absolute


def fabs(x: ArrayLike, /) -> Array:
    """The magnitude of each element, as a float.

    >>> jnp.fabs(jnp.array([-2, 3]))
    Array([2., 3.], dtype=float32)
    """
    (x,) = promote_args_inexact("fabs", x)
    if is_kind(x.dtype, np.complexfloating):
        raise TypeError("ufunc 'fabs' does not support complex dtypes")
    return lax.abs(x)


def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1; `x / |x|` for complex numbers.

    >>> jnp.sign(jnp.array([-2, 0, 3]))
    Array([-1,  0,  1], dtype=int32)
    """
    return lax.sign(as_array("sign", x))


@ufunc_of(name="maximum", reduce=reductions.max, accumulate=None)
def maximum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The larger of two elements; NaN if either is.

    >>> jnp.maximum(jnp.arange(4), 2)
    Array([2, 2, 2, 3], dtype=int32)
    """
    return lax.max(*promote_args("maximum", x, y))


@ufunc_of(name="minimum", reduce=reductions.min, accumulate=None)
def minimum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The smaller of two elements; NaN if either is.

    >>> jnp.minimum(jnp.arange(4), 2)
    Array([0, 1, 2, 2], dtype=int32)
    """
    return lax.min(*promote_args("minimum", x, y))


def _without_dtype(fn: Any) -> Any:
    """A reduction without a `dtype` parameter, given one."""

    def reduce(a: ArrayLike, dtype: Any = None, **options: Any) -> Array:
        return fn(a if dtype is None else convert(as_array("reduce", a), dtype), **options)

    return reduce


maximum._reduce = _without_dtype(reductions.max)
minimum._reduce = _without_dtype(reductions.min)


@composite
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The larger of two elements; the other one where one is NaN.

    >>> jnp.fmax(jnp.array([1.0, jnp.nan]), 2.0)
    Array([2., 2.], dtype=float32)
    """
    x, y = promote_args("fmax", x1, x2)
    return select(lax.bitwise_or(logic.greater(x, y), lax.ne(y, y)), x, y)


@composite
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The smaller of two elements; the other one where one is NaN.

    >>> jnp.fmin(jnp.array([1.0, jnp.nan]), 2.0)
    Array([1., 2.], dtype=float32)
    """
    x, y = promote_args("fmin", x1, x2)
    return select(lax.bitwise_or(logic.less(x, y), lax.ne(y, y)), x, y)


@composite
def clip(
    arr: ArrayLike | None = None, /, min: ArrayLike | None = None, max: ArrayLike | None = None, *,
    a: ArrayLike | None = None, a_min: ArrayLike | None = None, a_max: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Each element moved into the interval from `min` to `max`.

    Args:
      min: lower bound; None means none.
      max: upper bound; it wins where the bounds are crossed.
      a: older name of `arr`.
      a_min: older name of `min`.
      a_max: older name of `max`.

        >>> jnp.clip(jnp.arange(5), 1, 3)
        Array([1, 1, 2, 3, 3], dtype=int32)
    """
    arr = a if arr is None else arr
    if arr is None:
        raise ValueError("At most one of 'arr' and 'a' may be left out: clip needs an array.")
    lower = a_min if min is None else min
    upper = a_max if max is None else max
    arr = as_array("clip", arr)
    if any(
        bound is not None and is_kind(dtypes.dtype(bound), np.complexfloating)
        for bound in (arr, lower, upper)
    ):
        raise ValueError(
            "Clip received a complex value either through the input or the bounds. Complex values"
            " have no ordering and cannot be clipped."
        )
    if lower is not None:
        arr = lax.max(*reversed(promote_args("clip", arr, lower)))
    if upper is not None:
        arr = lax.min(*reversed(promote_args("clip", arr, upper)))
    return arr


@composite
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """0 where `x1` is negative, 1 where it is positive, `x2` where it is zero.

    >>> jnp.heaviside(jnp.array([-1.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    x, y = promote_args_inexact("heaviside", x1, x2)
    zero, one = constant(x, 0), constant(x, 1)
    step = select(lax.gt(x, zero), one, select(lax.eq(x, zero), y, zero))
    return select(lax.ne(x, x), x, step)


@composite
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The greatest common divisor of two integers, by Euclid's algorithm.

    >>> jnp.gcd(jnp.array([12, 18]), 8)
    Array([4, 2], dtype=int32)
    """
    x, y = promote_args("gcd", x1, x2)
    if not is_kind(x.dtype, np.integer):
        raise ValueError("Arguments to jax.numpy.gcd must be integers.")
    x, y = broadcast_arrays(absolute(x), absolute(y))
    zero = constant(x, 0)

    def unfinished(pair: tuple[Array, Array]) -> Array:
        return reductions.any(lax.ne(pair[1], zero))

    def step(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        x, y = pair
        done = lax.eq(y, zero)
        rest = select(done, zero, lax.rem(x, select(done, constant(y, 1), y)))
        return select(done, x, y), rest

    return lax.while_loop(unfinished, step, (x, y))[0]


@composite
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The least common multiple of two integers.

    >>> jnp.lcm(jnp.array([4, 6]), 10)
    Array([20, 30], dtype=int32)
    """
    x, y = promote_args("lcm", x1, x2)
    if not is_kind(x.dtype, np.integer):
        raise ValueError("Arguments to jax.numpy.lcm must be integers.")
    x, y = absolute(x), absolute(y)
    divisor = gcd(x, y)
    none = lax.eq(divisor, constant(x, 0))
    return select(
        none, constant(x, 0), lax.mul(x, lax.div(y, select(none, constant(x, 1), divisor)))
    )
