"""The generators that are registered: how a seed becomes a key, and a key other keys and bits.

All functions take and return the data of single keys. Source: Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC 2011; how seeds and counters fill the blocks is JAX's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.config import config
from amdjax.core.integers import ceil_div
from amdjax.lax._rules import scalar, shape_of
from amdjax.lax.counter_blocks import philox2x32, philox4x32, threefry2x32, threefry4x32
from amdjax.lax.rng import UINT_DTYPES, counters, join_words
from amdjax.random._prng import PRNGImpl, register_prng
from amdjax.transforms.vmap import vmap

Shape = Sequence[int]
Block = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
_ZERO = np.uint32(0)


def _words(key: Any) -> list[Any]:
    """The words of a key."""
    return [lax.index_in_dim(key, k, 0, keepdims=False) for k in range(shape_of(key)[0])]


def _keys_of(words: Sequence[Any]) -> Any:
    """Arrays of words, as keys along a new last axis."""
    axis = len(shape_of(words[0]))
    return lax.concatenate([lax.expand_dims(w, (axis,)) for w in words], axis)


def seed_words(seed: Any) -> tuple[Any, Any]:
    """The high and low word of an integer scalar."""
    low = lax.convert_element_type(seed, np.uint32)
    # Of 32 bits or fewer nothing is left, not even the sign.
    high = lax.shift_right_logical(seed, scalar(seed, 32))
    return lax.convert_element_type(high, np.uint32), low


def _from_words(words: Sequence[Any], bit_width: int) -> Any:
    """Unsigned integers from blocks of random words, one for each block."""
    if bit_width == 64:
        # Of four words the first and third are one half.
        return join_words(*(functools.reduce(lax.bitwise_xor, words[k::2]) for k in (0, 1)))
    bits = functools.reduce(lax.bitwise_xor, words)
    return bits if bit_width == 32 else lax.convert_element_type(bits, UINT_DTYPES[bit_width])


# Threefry-2x32


def _threefry_seed(seed: Any) -> Any:
    return _keys_of(seed_words(seed))


def _threefry_split(key: Any, shape: Shape) -> Any:
    if not config.threefry_partitionable:
        return lax.reshape(_threefry_stream(key, 2 * math.prod(shape)), (*shape, 2))
    keys = _keys_of(threefry2x32(_words(key), counters(math.prod(shape))))
    return lax.reshape(keys, (*shape, 2))


def _threefry_fold_in(key: Any, number: Any) -> Any:
    return _keys_of(threefry2x32(_words(key), seed_words(number)))


def _threefry_bits(key: Any, bit_width: int, shape: Shape) -> Any:
    """Bits of which each depends on its position alone, so that parts can be made apart."""
    if not config.threefry_partitionable:
        return _threefry_sequential_bits(key, bit_width, shape)
    words = threefry2x32(_words(key), counters(math.prod(shape)))
    return lax.reshape(_from_words(words, bit_width), shape)


def _threefry_stream(key: Any, size: int) -> Any:
    """The first `size` words when one counter runs through."""
    return threefry_2x32(_words(key), lax.iota(np.uint32, size))


def threefry_2x32(key: Sequence[Any], counts: Any) -> Any:
    """A word of random bits for each counter, the first half of which are paired with the second.

    Args:
      key: the two words of a key, uint32 scalars.
      counts: uint32 array.

    Returns:
      A uint32 array of the shape of `counts`.

    Raises:
      TypeError: if an operand is not uint32.

        >>> key = np.zeros(2, np.uint32)
        >>> threefry_2x32(key, np.arange(2, dtype=np.uint32)).shape
        (2,)
    """
    shape = shape_of(counts)
    size = math.prod(shape)
    flat = lax.pad(lax.reshape(counts, (size,)), _ZERO, [(0, size % 2, 0)])
    half = ceil_div(size, 2)
    words = threefry2x32(key, [lax.slice_in_dim(flat, k * half, (k + 1) * half) for k in (0, 1)])
    return lax.reshape(lax.slice_in_dim(lax.concatenate(words, 0), 0, size), shape)


def _threefry_sequential_bits(key: Any, bit_width: int, shape: Shape) -> Any:
    """Bits as they were before each element had its own counter."""
    size, dtype = math.prod(shape), UINT_DTYPES[bit_width]
    words = _threefry_stream(key, ceil_div(size * bit_width, 32))
    if bit_width == 64:
        words = join_words(*(lax.slice_in_dim(words, k * size, (k + 1) * size) for k in (0, 1)))
    elif bit_width < 32:
        share = 32 // bit_width
        shifts = np.arange(share, dtype=np.uint32) * np.uint32(bit_width)
        spread = (*words.shape, share)
        shifted = lax.shift_right_logical(
            lax.broadcast_in_dim(words, spread, (0,)), lax.broadcast_in_dim(shifts, spread, (1,))
        )
        flat = lax.reshape(lax.convert_element_type(shifted, dtype), (math.prod(spread),))
        words = lax.slice_in_dim(flat, 0, size)
    return lax.reshape(words, shape)


register_prng(
    PRNGImpl(
        name="threefry2x32",
        tag="fry",
        key_shape=(2,),
        seed=_threefry_seed,
        split=_threefry_split,
        random_bits=_threefry_bits,
        fold_in=_threefry_fold_in,
    )
)


# Generators by block functions: a block of words from the words of a key and a counter


def _block_generator(
    name: str, tag: str, size: int, block: Block, width: int, seed: Callable[[Any], Any]
) -> PRNGImpl:
    """A generator of keys of `size` words whose block function takes counters of `width` words.

    Numbers of bits are counted in the first two words of the counter, new keys in the last two,
    numbers folded in in the last.
    """
    unused = (_ZERO,) * (width - 2)

    def split(key: Any, shape: Shape) -> Any:
        words = block(_words(key), (*unused, *counters(math.prod(shape))))
        return lax.reshape(_keys_of(words[:size]), (*shape, size))

    def fold_in(key: Any, number: Any) -> Any:
        number = lax.convert_element_type(number, np.uint32)
        return _keys_of(block(_words(key), (*unused, _ZERO, number))[:size])

    def random_bits(key: Any, bit_width: int, shape: Shape) -> Any:
        words = block(_words(key), (*counters(math.prod(shape)), *unused))
        if bit_width == 64 and name.startswith("philox"):
            words = words[:2]
        return lax.reshape(_from_words(words, bit_width), shape)

    return PRNGImpl((size,), seed, split, random_bits, fold_in, name, tag)


def _threefry4x32_seed(seed: Any) -> Any:
    return _keys_of(threefry4x32((*seed_words(seed), _ZERO, _ZERO), (_ZERO,) * 4))


def _philox2x32_seed(seed: Any) -> Any:
    return _keys_of(philox2x32((_ZERO,), seed_words(seed))[:1])


def _philox4x32_seed(seed: Any) -> Any:
    return _keys_of(philox4x32((_ZERO, _ZERO), (*seed_words(seed), _ZERO, _ZERO))[:2])


for _impl in (
    _block_generator("threefry4x32", "fry4", 4, threefry4x32, 4, _threefry4x32_seed),
    _block_generator("philox2x32", "phx2", 1, philox2x32, 2, _philox2x32_seed),
    _block_generator("philox4x32", "phx4", 2, philox4x32, 4, _philox4x32_seed),
):
    register_prng(_impl)


# What XLA's generator makes, of which the keys are two of Threefry's


def _rbg_seed(seed: Any) -> Any:
    half = _threefry_seed(seed)
    return lax.concatenate([half, half], 0)


def _rbg_split(key: Any, shape: Shape) -> Any:
    halves = lax.reshape(key, (2, 2))
    axis = len(shape)
    keys = vmap(lambda half: _threefry_split(half, shape), out_axes=axis)(halves)
    return lax.reshape(keys, (*shape, 4))


def _rbg_fold_in(key: Any, number: Any) -> Any:
    halves = lax.reshape(key, (2, 2))
    return lax.reshape(vmap(lambda half: _threefry_fold_in(half, number))(halves), (4,))


def _rbg_bits(key: Any, bit_width: int, shape: Shape) -> Any:
    return lax.rng_bit_generator(key, shape, UINT_DTYPES[bit_width])[1]


def _unsafe_split(key: Any, shape: Shape) -> Any:
    words = _rbg_bits(key, 32, (10 * math.prod(shape), 4))
    return lax.reshape(lax.slice_in_dim(words, 0, None, 10), (*shape, 4))


def _unsafe_fold_in(key: Any, number: Any) -> Any:
    words = _rbg_bits(_rbg_seed(number), 32, (10, 4))
    return lax.bitwise_xor(key, lax.index_in_dim(words, 9, 0, keepdims=False))


register_prng(PRNGImpl((4,), _rbg_seed, _rbg_split, _rbg_bits, _rbg_fold_in, name="rbg", tag="rbg"))
register_prng(
    PRNGImpl(
        (4,), _rbg_seed, _unsafe_split, _rbg_bits, _unsafe_fold_in, name="unsafe_rbg", tag="urbg"
    )
)
