"""Random bits from a state, and from a state that is hidden."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray
from amdjax.core.integers import ceil_div
from amdjax.core.lowering import Decompose, Host
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    as_axes,
    dtype_of,
    jvp_from,
    move_axis,
    scalar,
    shape_of,
    zero_tangent,
)
from amdjax.lax.bitwise import bitwise_or, shift_left, shift_right_logical
from amdjax.lax.casting import convert_element_type
from amdjax.lax.comparison import lt
from amdjax.lax.counter_blocks import philox4x32, threefry2x32
from amdjax.lax.dynamic_slicing import dynamic_update_index_in_dim
from amdjax.lax.elementwise import add
from amdjax.lax.filling import full_like, iota
from amdjax.lax.joining import concatenate
from amdjax.lax.shape import expand_dims, reshape
from amdjax.lax.slicing import index_in_dim, slice_in_dim

__all__ = [
    "RandomAlgorithm", "rng_bit_generator", "rng_bit_generator_p", "rng_uniform", "rng_uniform_p",
]  # fmt: skip

Words = tuple[Any, Any]

UINT_DTYPES = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}


def counters(size: int) -> Words:
    """The high and low words of the numbers 0, 1, ... below `size`."""
    if size > 2**32:
        raise NotImplementedError(f"random arrays of more than 2**32 elements; got {size}.")
    low = iota(np.uint32, size)
    return full_like(low, 0), low


def join_words(high: Any, low: Any) -> Any:
    """uint64 from its high and low words."""
    high, low = (convert_element_type(x, np.uint64) for x in (high, low))
    return bitwise_or(shift_left(high, full_like(high, 32)), low)


class RandomAlgorithm(enum.IntEnum):
    """The algorithm of `rng_bit_generator`; the default is Philox."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


rng_bit_generator_p = Primitive("rng_bit_generator", multiple_results=True)


@rng_bit_generator_p.def_abstract_eval
def _rng_bit_generator_type(key, *, shape, dtype, **_):
    if (key.shape, key.dtype) not in (((4,), np.dtype(np.uint32)), ((2,), np.dtype(np.uint64))):
        raise TypeError(
            "rng_bit_generator key must be uint32 of shape (4,) or uint64 of shape (2,), "
            f"got {key.dtype} of shape {key.shape}."
        )
    return [key, ShapedArray(shape, dtype)]


@rng_bit_generator_p.def_jvp
def _rng_bit_generator_jvp(primals, tangents, **params):
    outs = rng_bit_generator_p.bind(*primals, **params)
    return outs, [zero_tangent(y) for y in outs]


@rng_bit_generator_p.def_batch
def _rng_bit_generator_batch(axis, args, dims, **params):
    # As in JAX the first state makes the bits of all.
    states = move_axis(args[0], dims[0], 0)
    first = index_in_dim(states, 0, 0, keepdims=False)
    params["shape"] = (axis.size, *params["shape"])
    state, bits = rng_bit_generator_p.bind(first, **params)
    return [dynamic_update_index_in_dim(states, state, np.int32(0), 0), bits], [0, 0]


def _generate_bits(key, *, shape, dtype, algorithm, **_):
    wide = dtype_of(key) == np.uint64
    words = _split_words(key) if wide else key
    key1, key2, low, high = (index_in_dim(words, k, 0, keepdims=False) for k in range(4))
    generate = _threefry_stream if algorithm == RandomAlgorithm.RNG_THREE_FRY else _philox_stream
    bits, blocks = generate((key1, key2), (low, high), shape, dtype == np.uint64)
    low, high = _advance((low, high), scalar(low, blocks))
    state = concatenate([reshape(w, (1,)) for w in (key1, key2, low, high)], 0)
    if wide:
        state = _join_pairs(state)
    return [state, convert_element_type(bits, dtype)]


def _philox_stream(key, counter, shape, wide) -> tuple[Any, int]:
    """Bits in the order in which blocks of four words yield them."""
    wanted = math.prod(shape) * (2 if wide else 1)
    blocks = ceil_div(wanted, 4)
    low, high = _advance(counter, iota(np.uint32, blocks))
    columns = philox4x32(key, (low, high, *key))
    bits = concatenate([expand_dims(c, (1,)) for c in columns], 1)
    bits = slice_in_dim(reshape(bits, (4 * blocks,)), 0, wanted)
    return reshape(_join_pairs(bits) if wide else bits, shape), blocks


def _threefry_stream(key, counter, shape, wide) -> tuple[Any, int]:
    """Bits of which the two words of a block lie side by side along one axis, as in XLA."""
    if wide:
        size = math.prod(shape)
        low, high = threefry2x32(key, _advance(counter, iota(np.uint32, size)))
        return reshape(join_words(high, low), shape), size
    whole = shape or (1,)
    # Along the first even axis, else the longest.
    even = [d for d, n in enumerate(whole) if n % 2 == 0]
    axis = even[0] if even else int(np.argmax(whole))
    half = tuple(ceil_div(n, 2) if d == axis else n for d, n in enumerate(whole))
    blocks = math.prod(half)
    pair = threefry2x32(key, _advance(counter, iota(np.uint32, blocks)))
    parts = [expand_dims(reshape(w, half), (axis + 1,)) for w in pair]
    doubled = tuple(2 * n if d == axis else n for d, n in enumerate(half))
    bits = reshape(concatenate(parts, axis + 1), doubled)
    bits = slice_in_dim(bits, 0, whole[axis], axis=axis)
    return reshape(bits, shape), blocks


def _join_pairs(words: Any) -> Any:
    """uint32 words, low before high, as uint64."""
    pairs = reshape(words, (shape_of(words)[0] // 2, 2))
    return join_words(*(index_in_dim(pairs, k, 1, keepdims=False) for k in (1, 0)))


rng_bit_generator_p.lowering = Decompose(_generate_bits)


def _split_words(x: Any) -> Any:
    """uint64 as uint32 words, low before high."""
    low = convert_element_type(x, np.uint32)
    high = convert_element_type(shift_right_logical(x, scalar(x, 32)), np.uint32)
    pairs = concatenate([expand_dims(w, (1,)) for w in (low, high)], 1)
    return reshape(pairs, (2 * shape_of(x)[0],))


def _advance(counter: Words, steps: Any) -> Words:
    """A counter of two words, some steps on."""
    low, high = counter
    total = add(low, steps)
    carry = convert_element_type(lt(total, steps), np.uint32)
    return total, add(high, carry)


def rng_bit_generator(
    key: Any, shape: Sequence[int], dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT, *, out_sharding: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Random bits from a state, and the state after.

    Args:
      key: the state, uint32 of shape `(4,)` or uint64 of shape `(2,)`: a key, then a counter.
      shape: the shape of the bits.
      dtype: their dtype: uint8, uint16, uint32 or uint64.
      algorithm: Philox-4x32 or Threefry-2x32.

    Returns:
      The new state, and bits of shape `shape`.

    Raises:
      TypeError: if the dtype is not one of those, or the state has another form.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

        >>> state, bits = lax.rng_bit_generator(np.arange(4, dtype=np.uint32), (3,))
        >>> state.tolist(), bits.shape
        ([0, 1, 3, 3], (3,))
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "rng_bit_generator")
    if dtype not in UINT_DTYPES.values():
        raise TypeError(f"rng_bit_generator dtype must be an unsigned integer, got {dtype}.")
    state, bits = rng_bit_generator_p.bind(
        key,
        shape=as_axes(shape, "rng_bit_generator shape"),
        dtype=dtype,
        algorithm=RandomAlgorithm(algorithm),
        out_sharding=out_sharding,
    )
    return state, bits


rng_uniform_p = Primitive("rng_uniform")


@rng_uniform_p.def_abstract_eval
def _rng_uniform_type(a, b, *, shape):
    if a.dtype != b.dtype:
        raise ValueError(f"rng_uniform bounds must have one dtype, got {a.dtype} and {b.dtype}.")
    if a.shape or b.shape:
        raise ValueError(f"rng_uniform bounds must be scalars, got shapes {a.shape} and {b.shape}.")
    return ShapedArray(shape, a.dtype, a.weak_type and b.weak_type)


rng_uniform_p.jvp = jvp_from(rng_uniform_p, ())


def _host_uniform(a, b, *, shape):
    generator = _hidden_generator()
    if np.issubdtype(a.dtype, np.integer):
        return [generator.integers(a, b, shape, dtype=a.dtype)]
    return [(a + (b - a) * generator.random(shape)).astype(a.dtype)]


@functools.cache
def _hidden_generator() -> np.random.Generator:
    return np.random.default_rng()


rng_uniform_p.lowering = Host(_host_uniform)


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Any:
    """Numbers between `a` and `b` from a generator with hidden state; each call differs.

    Args:
      a: the least value, a scalar.
      b: the bound above, a scalar of the same dtype.

    Returns:
      An array of the scalars' dtype.

    Raises:
      ValueError: if the dtypes differ or an argument is no scalar.

        >>> x = lax.rng_uniform(np.float32(2), np.float32(3), (4,))
        >>> bool((np.asarray(x) >= 2).all())
        True
    """
    return rng_uniform_p.bind(a, b, shape=as_axes(shape, "rng_uniform shape"))
