"""The standard Gumbel distribution, from which categories are drawn too."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes
from amdjax.core.config import config
from amdjax.random._arguments import Shape, bits_of, float_arguments
from amdjax.random._compile import compiled
from amdjax.random.basic import uniform_in


def gumbel(
    key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Numbers of the standard Gumbel distribution.

    Args:
      mode: "low", "high" or "highest": how many bits make a sample, and so how far into its tails
        the distribution reaches; "low" unless the flag `high_dynamic_range_gumbel` is set.

    Raises:
      ValueError: if the dtype is not a float or the mode is another word.

        >>> print(random.gumbel(random.key(0), (2,)).round(2))
        [2.92 3.83]
    """
    typed, shape, dtype = float_arguments("gumbel", key, shape, dtype)
    return _gumbel(typed, shape=shape, dtype=dtype, mode=gumbel_mode(mode))


def gumbel_mode(mode: str | None) -> str:
    """The mode meant, by default the configured one."""
    if mode is None:
        return "high" if config.high_dynamic_range_gumbel else "low"
    if mode not in ("low", "high", "highest"):
        raise ValueError(f"gumbel mode must be 'low', 'high' or 'highest', got {mode!r}.")
    return mode


def gumbel_in(key: Any, shape: Shape, dtype: Any, mode: str) -> Any:
    """As `gumbel`, within a program."""
    info = dtypes.finfo(dtype)
    if mode == "low":
        return -lax.log(-lax.log(uniform_in(key, info.tiny, 1.0, shape, dtype)))
    if mode == "highest" and dtype == np.float32:
        return _gumbel_of_64_bits(key, shape)
    high, low = _unstacked(uniform_in(key, 0.0, 1.0, (2, *shape), dtype))
    fine = np.asarray(2.0**-info.nmant, dtype) * low
    x = jnp.where(high >= 0.5, high, high + fine + np.asarray(info.tiny, dtype))
    return -lax.log(-lax.log1p(-x))


_gumbel = compiled(gumbel_in)


def _unstacked(x: Any) -> list[Any]:
    return [lax.index_in_dim(x, k, 0, keepdims=False) for k in (0, 1)]


def _gumbel_of_64_bits(key: Any, shape: Shape) -> Any:
    """Each sample from a 64-bit number in two words, taken from whichever end is nearer."""
    high, low = _unstacked(bits_of(key, 32, (2, *shape)))
    lower_half = high < np.uint32(1 << 31)
    neg_low = lax.bitwise_not(low)
    neg_high = lax.bitwise_not(high) + lax.convert_element_type(
        neg_low == np.uint32(0xFFFFFFFF), np.uint32
    )
    neg_low = neg_low + np.uint32(1)
    x = _fraction(jnp.where(lower_half, high, neg_high), jnp.where(lower_half, low, neg_low))
    return jnp.where(lower_half, -lax.log(-lax.log1p(-x)), -lax.log(-lax.log(x)))


def _fraction(high: Any, low: Any) -> Any:
    """A 64-bit number over 2**64, as float32 of full precision, truncated."""
    info = np.finfo(np.float32)
    word = lambda value: np.asarray(value, np.uint32)
    high_zeros, low_zeros = lax.clz(high), lax.clz(low)
    empty = high_zeros == word(32)
    # Bits that follow the leading one move up to the top of the word.
    below = jnp.where(
        empty, lax.shift_left(low, low_zeros), lax.shift_right_logical(low, word(32) - high_zeros)
    )
    mantissa = lax.bitwise_or(lax.shift_left(high, high_zeros), below)
    mantissa = lax.shift_right_logical(mantissa, word(32 - info.nmant - 1))
    mantissa = lax.bitwise_and(mantissa, word((1 << info.nmant) - 1))
    zeros = jnp.where(empty, word(32) + low_zeros, high_zeros)
    exponent = lax.shift_left(word(-info.minexp) - zeros, word(info.nmant))
    exponent = lax.bitwise_and(exponent, word((1 << 30) - (1 << (info.nmant - 1))))
    return lax.bitcast_convert_type(lax.bitwise_or(exponent, mantissa), np.float32)
