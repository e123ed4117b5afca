"""Bits, uniform and normal numbers: what all other samplers stand on."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes
from amdjax.lax.rng import UINT_DTYPES
from amdjax.random._arguments import (
    Shape,
    as_shape,
    bits_of,
    float_dtype,
    inexact_dtype,
    int_dtype,
    parameter_shape,
    single_key,
)
from amdjax.random._compile import compiled, in_sums
from amdjax.random._keys import subkeys

__all__ = ["bits", "normal", "randint", "truncated_normal", "uniform"]


def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Uniform random bits.

    Args:
      dtype: an unsigned integer dtype; uint32 by default, uint64 under x64.

    Raises:
      ValueError: if the dtype is not an unsigned integer.

        >>> random.bits(random.key(0), (2,)).tolist()
        [4070199207, 4202968722]
    """
    typed = single_key("bits", key)
    if dtype is None:
        dtype = dtypes.default_uint_dtype()
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype)
    if not dtypes.issubdtype(dtype, np.unsignedinteger):
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {dtype}")
    return bits_of(typed, 8 * dtype.itemsize, as_shape("bits", shape))


def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Numbers uniform in `[minval, maxval)`.

    >>> print(random.uniform(random.key(0), (2,)).round(4))
    [0.9477 0.9786]
    """
    typed = single_key("uniform", key)
    dtype = float_dtype("uniform", dtype)
    return _uniform(typed, minval, maxval, shape=as_shape("uniform", shape), dtype=dtype)


def uniform_in(key: Any, minval: Any, maxval: Any, shape: Shape, dtype: Any) -> Any:
    """As `uniform`, within a program, from keys of any shape, which leads the result's."""
    whole = (*key.shape, *shape)
    low, high = (
        jnp.broadcast_to(lax.convert_element_type(v, dtype), whole) for v in (minval, maxval)
    )
    floats = _unit_floats(key, shape, dtype)
    # Rounding may reach below the least value, as it may reach `maxval`.
    return lax.max(low, floats * (high - low) + low)


_uniform = compiled(uniform_in)


def _unit_floats(key: Any, shape: Shape, dtype: Any) -> Any:
    """Uniform in [0, 1): random mantissas under the exponent of one, less one."""
    info = dtypes.finfo(dtype)
    width = info.bits
    if width not in UINT_DTYPES:
        raise TypeError(f"uniform makes floats of 8, 16, 32 or 64 bits, not {dtype}.")
    drawn = 8 if info.nmant < 8 else width
    word = UINT_DTYPES[width]
    raw = lax.convert_element_type(bits_of(key, drawn, shape), word)
    one = np.ones((), dtype)
    mantissas = lax.shift_right_logical(raw, np.asarray(drawn - info.nmant, word))
    floats = lax.bitcast_convert_type(lax.bitwise_or(mantissas, one.view(word)), dtype)
    return lax.sub(floats, one)


def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the standard normal distribution.

    Complex ones have independent parts of variance one half.

    Args:
      dtype: a float or complex dtype; float32 by default, float64 under x64.

    Raises:
      ValueError: if the dtype is neither float nor complex.

        >>> print(random.normal(random.key(0), (2,)).round(3))
        [1.623 2.025]
    """
    typed = single_key("normal", key)
    dtype = inexact_dtype("normal", dtype)
    return _normal(typed, shape=as_shape("normal", shape), dtype=dtype)


def normal_in(key: Any, shape: Shape, dtype: Any) -> Any:
    """As `normal`, within a program, from keys of any shape, which leads the result's."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        part = np.finfo(dtype).dtype
        real, imag = (normal_in(k, shape, part) for k in subkeys(key))
        return lax.complex(real, imag) / np.asarray(np.sqrt(2), dtype)
    return _normal_of(_for_normals(key, shape, dtype), dtype)


def _for_normals(key: Any, shape: Shape, dtype: Any) -> Any:
    # The open interval: erf_inv(-1) is infinite.
    low = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype), dtype=dtype)
    return uniform_in(key, low, np.asarray(1, dtype), shape, dtype)


def _normal_of(u: Any, dtype: Any) -> Any:
    root = lax.convert_element_type(np.asarray(np.sqrt(2), dtype), u.dtype)
    return lax.mul(root, lax.erf_inv(u))


def normals_to_sum(key: Any, shape: Shape, dtype: Any) -> Any:
    """As `normal_in`, of real numbers, for terms of a sum: `in_sums` before they are rounded."""
    return _normal_of(in_sums(_for_normals(key, shape, dtype)), dtype)


_normal = compiled(normal_in)


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Numbers of the standard normal distribution, given that they lie between two bounds.

    Args:
      lower: the bound below.
      upper: the bound above.
      shape: the shape of the result; that of the bounds by default.

    Returns:
      An array of that shape and dtype, strictly between the bounds.

    Raises:
      ValueError: if the dtype is not a float or the bounds do not fit the shape.

        >>> x = random.truncated_normal(random.key(0), 1.0, 2.0, (3,))
        >>> bool((x > 1).all()), bool((x < 2).all())
        (True, True)
    """
    typed = single_key("truncated_normal", key)
    dtype = float_dtype("truncated_normal", dtype)
    shape = parameter_shape("truncated_normal", shape, lower, upper)
    return _truncated_normal(typed, lower, upper, shape=shape, dtype=dtype)


@compiled
def _truncated_normal(key: Any, lower: Any, upper: Any, *, shape: Shape, dtype: Any) -> Any:
    sqrt2 = np.asarray(np.sqrt(2), dtype)
    lower, upper = (lax.convert_element_type(v, dtype) for v in (lower, upper))
    u = uniform_in(key, lax.erf(lower / sqrt2), lax.erf(upper / sqrt2), shape, dtype)
    inside = [
        lax.nextafter(lax.stop_gradient(bound), lax.full_like(bound, way))
        for bound, way in ((lower, np.inf), (upper, -np.inf))
    ]
    return jnp.clip(sqrt2 * lax.erf_inv(u), *inside)


def randint(
    key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Integers uniform in `[minval, maxval)`; `minval` where the range is empty.

    Args:
      dtype: an integer dtype; int32 by default, int64 under x64.

    Raises:
      TypeError: if the dtype is not an integer.

        >>> random.randint(random.key(0), (4,), 0, 10).tolist()
        [9, 0, 2, 3]
    """
    typed = single_key("randint", key)
    dtype = dtypes.check_and_canonicalize_user_dtype(int if dtype is None else dtype)
    if not dtypes.issubdtype(dtype, np.integer):
        raise TypeError(f"randint only accepts integer dtypes, got {dtype}")
    shape = parameter_shape("randint", shape, minval, maxval)
    return _randint(typed, minval, maxval, shape=shape, dtype=int_dtype("randint", dtype))


def randint_in(key: Any, minval: Any, maxval: Any, shape: Shape, dtype: Any) -> Any:
    """As `randint`, within a program."""
    info = dtypes.iinfo(dtype)
    if info.bits < 32:
        # Narrow integers are drawn as int32, which also holds one past their greatest.
        low = _as_int32(minval, int(info.min), int(info.max))
        high = _as_int32(maxval, int(info.min), int(info.max) + 1)
        drawn = randint_in(key, low, high, shape, np.dtype(np.int32))
        return lax.convert_element_type(drawn, dtype)
    low, high = (_as_integer(v) for v in (minval, maxval))
    # The greatest integer can be drawn only if `maxval`, of a wider dtype, lies beyond it.
    beyond = high > _clipped(jnp.asarray(info.max, dtype), high.dtype)
    low, high = (jnp.broadcast_to(_clipped(v, dtype), shape) for v in (low, high))
    beyond = jnp.broadcast_to(beyond, shape)
    word = UINT_DTYPES[info.bits]
    some = high > low
    span = lax.convert_element_type(high - low, word)
    one = lax.full_like(span, 1)
    span = lax.select(some, span, one)
    span = lax.select(beyond & some, span + one, span)
    # Twice as many bits as needed, so that the remainder is all but unbiased:
    # (higher * 2**bits + lower) % span, with 2**bits % span as the square of 2**(bits / 2).
    higher, lower = (bits_of(k, info.bits, shape) for k in subkeys(key))
    root = lax.rem(lax.full_like(span, 2 ** (info.bits // 2)), span)
    multiplier = lax.rem(lax.mul(root, root), span)
    offset = lax.add(lax.mul(lax.rem(higher, span), multiplier), lax.rem(lower, span))
    offset = lax.rem(offset, span)
    return lax.add(low, lax.convert_element_type(offset, dtype))


_randint = compiled(randint_in)


def _as_int32(value: Any, low: int, high: int) -> Any:
    return jnp.clip(jnp.asarray(value).astype(np.int32), low, high)


def _as_integer(value: Any) -> Any:
    value = jnp.asarray(value)
    integral = dtypes.issubdtype(value.dtype, np.integer)
    return value if integral else value.astype(dtypes.default_int_dtype())


def _clipped(value: Any, dtype: Any) -> Any:
    """Integers of another dtype; the nearest where it cannot hold them."""
    wide, narrow = dtypes.iinfo(value.dtype), dtypes.iinfo(dtype)
    low, high = max(int(wide.min), int(narrow.min)), min(int(wide.max), int(narrow.max))
    bounds = (np.asarray(v, value.dtype) for v in (low, high))
    return lax.convert_element_type(jnp.clip(value, *bounds), dtype)
