"""Generators: how a seed becomes a key, and a key other keys and bits.

All functions take and return key data, uint32 arrays of which the last axis makes one key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import asarray_concrete
from amdjax.core.config import config
from amdjax.lax._rules import dtype_of, shape_of
from amdjax.lax.rng import UINT_DTYPES, key_word, threefry2x32, threefry_bits, threefry_words

Shape = Sequence[int]


class Generator(NamedTuple):
    """A random bit generator.

    Attributes:
      name: the name by which `amdjax.random.key` finds it.
      tag: the name its keys' dtype shows.
      key_size: how many uint32 words make a key.
      seed: `seed(words) -> key` from the high and low word of a seed, as one array.
      split: `split(keys, shape) -> keys`, as many new keys for each as `shape` holds.
      fold_in: `fold_in(key, number) -> key`.
      bits: `bits(keys, bit_width, shape)`, unsigned integers.
    """

    name: str
    tag: str
    key_size: int
    seed: Callable[[Any], Any]
    split: Callable[[Any, Shape], Any]
    fold_in: Callable[[Any, Any], Any]
    bits: Callable[[Any, int, Shape], Any]

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.tag


def seed_words(seed: Any) -> Any:
    """The high and low word of a seed, as uint32 of shape `(2,)`."""
    if isinstance(seed, int):
        number = int(np.int64(seed)) + config.random_seed_offset
        high = number >> 32 if config.enable_x64 else 0
        words = np.array([high & 0xFFFFFFFF, number & 0xFFFFFFFF], np.uint32)
        return asarray_concrete(words)
    if not dtypes.issubdtype(dtype_of(seed), np.integer):
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")
    if config.random_seed_offset:
        seed = lax.add(seed, np.asarray(config.random_seed_offset, dtype_of(seed)))
    low = lax.convert_element_type(seed, np.uint32)
    if dtype_of(seed).itemsize == 8:
        upper = lax.shift_right_logical(seed, np.asarray(32, dtype_of(seed)))
        high = lax.convert_element_type(upper, np.uint32)
    else:
        high = np.uint32(0)
    return lax.concatenate([lax.reshape(w, (1,)) for w in (high, low)], 0)


def _as_keys(words: Sequence[Any]) -> Any:
    """Arrays of words, as keys along a new last axis."""
    axis = len(shape_of(words[0]))
    return lax.concatenate([lax.expand_dims(w, (axis,)) for w in words], axis)


def _threefry_split(keys: Any, shape: Shape) -> Any:
    size = math.prod(shape)
    batch = keys.shape[:-1]
    if not config.threefry_partitionable:
        words = _threefry_stream(keys, 2 * size)
        return lax.reshape(words, (*batch, *shape, 2))
    return lax.reshape(_as_keys(threefry_words(keys, size)), (*batch, *shape, 2))


def _threefry_fold_in(key: Any, number: Any) -> Any:
    zero = lax.full_like(number, 0)
    return _as_keys(threefry2x32((key_word(key, 0), key_word(key, 1)), (zero, number)))


def _threefry_bits(keys: Any, bit_width: int, shape: Shape) -> Any:
    if config.threefry_partitionable:
        return threefry_bits(keys, bit_width, shape)
    return _threefry_sequential_bits(keys, bit_width, shape)


def _threefry_stream(keys: Any, size: int) -> Any:
    """The first `size` words when one counter runs through, its halves paired."""
    from amdjax.transforms.vmap import vmap

    if len(keys.shape) > 1:
        return vmap(lambda key: _threefry_stream(key, size))(keys)
    half = -(-size // 2)
    counts = lax.iota(np.uint32, 2 * half)
    if size % 2:
        last = lax.eq(counts, np.uint32(size))
        counts = lax.select(last, lax.full_like(counts, 0), counts)
    pair = tuple(lax.slice_in_dim(counts, k * half, (k + 1) * half) for k in (0, 1))
    words = threefry2x32((key_word(keys, 0), key_word(keys, 1)), pair)
    return lax.slice_in_dim(lax.concatenate(words, 0), 0, size)


def _threefry_sequential_bits(keys: Any, bit_width: int, shape: Shape) -> Any:
    """Bits as they were before each element had its own counter."""
    size, batch = math.prod(shape), keys.shape[:-1]
    dtype = UINT_DTYPES[bit_width]
    words = _threefry_stream(keys, -(-size * bit_width // 32))
    axis = len(batch)
    if bit_width == 64:
        parts = [lax.slice_in_dim(words, k * size, (k + 1) * size, axis=axis) for k in (0, 1)]
        high, low = (lax.convert_element_type(p, dtype) for p in parts)
        words = lax.bitwise_or(lax.shift_left(high, np.asarray(32, dtype)), low)
    elif bit_width < 32:
        share = 32 // bit_width
        shifts = np.arange(share, dtype=np.uint32) * np.uint32(bit_width)
        spread = (*words.shape, share)
        shifted = lax.shift_right_logical(
            lax.broadcast_in_dim(words, spread, tuple(range(axis + 1))),
            lax.broadcast_in_dim(shifts, spread, (axis + 1,)),
        )
        flat = lax.reshape(
            lax.convert_element_type(shifted, dtype), (*batch, -(-size // share) * share)
        )
        words = lax.slice_in_dim(flat, 0, size, axis=axis)
    return lax.reshape(words, (*batch, *shape))


threefry = Generator(
    name="threefry2x32",
    tag="fry",
    key_size=2,
    seed=lambda words: words,
    split=_threefry_split,
    fold_in=_threefry_fold_in,
    bits=_threefry_bits,
)


def _both_halves(key: Any, fun: Callable[[Any], Any]) -> Any:
    """`fun` of the two Threefry keys of which another generator's key consists."""
    axis = len(key.shape) - 1
    halves = [fun(lax.slice_in_dim(key, k, k + 2, axis=axis)) for k in (0, 2)]
    return lax.concatenate(halves, len(halves[0].shape) - 1)


def _rbg_bits(keys: Any, bit_width: int, shape: Shape) -> Any:
    from amdjax.transforms.vmap import vmap

    if len(keys.shape) > 1:
        return vmap(lambda key: _rbg_bits(key, bit_width, shape))(keys)
    return lax.rng_bit_generator(keys, shape, UINT_DTYPES[bit_width])[1]


rbg = Generator(
    name="rbg",
    tag="rbg",
    key_size=4,
    seed=lambda words: lax.concatenate([words, words], 0),
    split=lambda keys, shape: _both_halves(keys, lambda half: _threefry_split(half, shape)),
    fold_in=lambda key, number: _both_halves(key, lambda half: _threefry_fold_in(half, number)),
    bits=_rbg_bits,
)


def _unsafe_split(keys: Any, shape: Shape) -> Any:
    size = math.prod(shape)
    found = _rbg_bits(keys, 32, (10 * size, 4))
    found = lax.slice_in_dim(found, 0, 10 * size, 10, axis=len(keys.shape) - 1)
    return lax.reshape(found, (*keys.shape[:-1], *shape, 4))


def _unsafe_fold_in(key: Any, number: Any) -> Any:
    seeded = rbg.seed(seed_words(number))
    found = lax.index_in_dim(_rbg_bits(seeded, 32, (10, 4)), 9, 0, keepdims=False)
    return lax.bitwise_xor(key, found)


unsafe_rbg = rbg._replace(
    name="unsafe_rbg", tag="urbg", split=_unsafe_split, fold_in=_unsafe_fold_in
)

GENERATORS = {g.name: g for g in (threefry, rbg, unsafe_rbg)}
