"""Random bits: the Threefry-2x32 block function and what is built on it alone."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Decompose, Host, Pointwise
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    as_ints,
    batch_elementwise,
    broadcast_together,
    check_same_dtype,
    dtype_of,
    move_axis,
    scalar,
    shape_of,
    zero_tangent,
)

__all__ = [
    "RandomAlgorithm",
    "rng_bit_generator",
    "rng_bit_generator_p",
    "rng_uniform",
    "rng_uniform_p",
    "threefry2x32_p",
]

Words = tuple[Any, Any]

UINT_DTYPES = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry2x32(key: Words, count: Words) -> list[Any]:
    """Two words of random bits for each pair of counter words.

    Args:
      key: the two uint32 words of a key, scalars or arrays.
      count: the two uint32 words of the counter.

    Returns:
      Two uint32 arrays of the operands' common shape.

    Raises:
      TypeError: if an operand is not uint32 or the shapes do not fit.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; 20 rounds.

    Example:
      >>> import numpy as np
      >>> zero = np.uint32(0)
      >>> [hex(int(word)) for word in threefry2x32((zero, zero), (zero, zero))]
      ['0x6b200159', '0x99ba4efe']
    """
    return threefry2x32_p.bind(*key, *count)


threefry2x32_p = Primitive("threefry2x32", multiple_results=True)


@threefry2x32_p.def_abstract_eval
def _threefry_type(*operands):
    if any(x.dtype != np.uint32 for x in operands):
        found = ", ".join(str(x.dtype) for x in operands)
        raise TypeError(f"threefry2x32 takes two key and two count words of uint32, got {found}.")
    shape = broadcast_together("threefry2x32", [x.shape for x in operands])
    return [ShapedArray(shape, np.uint32)] * 2


@threefry2x32_p.def_jvp
def _threefry_jvp(primals, tangents):
    outs = threefry2x32_p.bind(*primals)
    return outs, [zero_tangent(y) for y in outs]


threefry2x32_p.def_batch(batch_elementwise(threefry2x32_p))


def _threefry_rounds(b, key1, key2, count1, count2):
    word = lambda value: b.const(value, np.uint32)
    keys = (key1, key2, b.xor(b.xor(key1, key2), word(_PARITY)))
    x0, x1 = b.add(count1, key1), b.add(count2, key2)
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = b.add(x0, x1)
            high, low = b.shl(x1, word(rotation)), b.shr_logical(x1, word(32 - rotation))
            x1 = b.xor(x0, getattr(b, "or")(high, low))
        x0 = b.add(x0, keys[(block + 1) % 3])
        x1 = b.add(b.add(x1, keys[(block + 2) % 3]), word(block + 1))
    return [x0, x1]


threefry2x32_p.lowering = Pointwise(_threefry_rounds)


def counters(size: int) -> Words:
    """The high and low words of the numbers 0, 1, ... below `size`."""
    if size > 2**32:
        raise NotImplementedError(f"random arrays of more than 2**32 elements; got {size}.")
    low = lax.iota(np.uint32, size)
    return lax.full_like(low, 0), low


def threefry_words(key: Any, size: int) -> list[Any]:
    """Two uint32 words for each of the numbers below `size`, from keys of shape `(*batch, 2)`.

    Returns:
      Two arrays of shape `(*batch, size)`.
    """
    batch = shape_of(key)[:-1]
    shape = (*batch, size)
    rank = len(batch)
    high, low = counters(size)
    if not batch:
        return threefry2x32((key_word(key, 0), key_word(key, 1)), (high, low))
    w0, w1 = (lax.broadcast_in_dim(key_word(key, k), shape, tuple(range(rank))) for k in (0, 1))
    c0, c1 = (lax.broadcast_in_dim(c, shape, (rank,)) for c in (high, low))
    return threefry2x32((w0, w1), (c0, c1))


def key_word(key: Any, k: int) -> Any:
    """Word `k` of each key."""
    return lax.index_in_dim(key, k, len(shape_of(key)) - 1, keepdims=False)


def threefry_bits(key: Any, bit_width: int, shape: Sequence[int]) -> Any:
    """Unsigned integers of `bit_width` bits from keys, uint32 of shape `(*batch, 2)`.

    Each element's bits depend on its position alone, so that parts can be made apart.

    Returns:
      An array of shape `(*batch, *shape)`.
    """
    high, low = threefry_words(key, math.prod(shape))
    if bit_width == 64:
        bits = _join_words(high, low)
    else:
        bits = lax.bitwise_xor(high, low)
        if bit_width < 32:
            bits = lax.convert_element_type(bits, UINT_DTYPES[bit_width])
    return lax.reshape(bits, (*shape_of(key)[:-1], *shape))


def _join_words(high: Any, low: Any) -> Any:
    high, low = (lax.convert_element_type(x, np.uint64) for x in (high, low))
    return lax.bitwise_or(lax.shift_left(high, scalar(high, 32)), low)


class RandomAlgorithm(enum.IntEnum):
    """The algorithm of `rng_bit_generator`; the default is Philox."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Any, Any]:
    """Random bits from a state, and the state after.

    Args:
      key: the state, uint32 of shape `(4,)` or uint64 of shape `(2,)`: a key, then a counter.
      shape: the shape of the bits.
      dtype: their dtype: uint8, uint16, uint32 or uint64.
      algorithm: Philox-4x32 or Threefry-2x32.
      out_sharding: accepted for JAX's sake; must be `None`.

    Returns:
      The new state, and bits of shape `shape`.

    Raises:
      TypeError: if the dtype is not one of those, or the state has another form.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    Example:
      >>> from amdjax import lax
      >>> import numpy as np
      >>> state, bits = lax.rng_bit_generator(np.arange(4, dtype=np.uint32), (3,))
      >>> state.tolist(), bits.shape
      ([0, 1, 3, 3], (3,))
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "rng_bit_generator")
    if dtype not in UINT_DTYPES.values():
        raise TypeError(f"rng_bit_generator dtype must be an unsigned integer, got {dtype}.")
    state, bits = rng_bit_generator_p.bind(
        key,
        shape=as_ints(shape, "rng_bit_generator shape"),
        dtype=dtype,
        algorithm=RandomAlgorithm(algorithm),
        out_sharding=out_sharding,
    )
    return state, bits


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
    # One state after the other: the shape of a state is part of the primitive's type.
    keys = move_axis(args[0], dims[0], 0)
    states, bits = lax.map(lambda key: tuple(rng_bit_generator_p.bind(key, **params)), keys)
    return [states, bits], [0, 0]


def _generate_bits(key, *, shape, dtype, algorithm, **_):
    wide = dtype_of(key) == np.uint64
    words = _split_words(key) if wide else key
    key1, key2, low, high = (lax.index_in_dim(words, k, 0, keepdims=False) for k in range(4))
    generate = _threefry_stream if algorithm == RandomAlgorithm.RNG_THREE_FRY else _philox_stream
    bits, blocks = generate((key1, key2), (low, high), shape, dtype == np.uint64)
    low, high = _advance((low, high), scalar(low, blocks))
    state = lax.concatenate([lax.reshape(w, (1,)) for w in (key1, key2, low, high)], 0)
    if wide:
        state = _join_pairs(state)
    return [state, lax.convert_element_type(bits, dtype)]


def _philox_stream(key, counter, shape, wide) -> tuple[Any, int]:
    """Bits in the order in which blocks of four words yield them."""
    wanted = math.prod(shape) * (2 if wide else 1)
    blocks = -(-wanted // 4)
    low, high = _advance(counter, lax.iota(np.uint32, blocks))
    columns = _philox4x32(key, (low, high, *key))
    bits = lax.concatenate([lax.expand_dims(c, (1,)) for c in columns], 1)
    bits = lax.slice_in_dim(lax.reshape(bits, (4 * blocks,)), 0, wanted)
    return lax.reshape(_join_pairs(bits) if wide else bits, shape), blocks


def _threefry_stream(key, counter, shape, wide) -> tuple[Any, int]:
    """Bits of which the two words of a block lie side by side along one axis, as in XLA."""
    if wide:
        size = math.prod(shape)
        low, high = threefry2x32(key, _advance(counter, lax.iota(np.uint32, size)))
        return lax.reshape(_join_words(high, low), shape), size
    whole = shape or (1,)
    # Along the first even axis, else the longest.
    even = [d for d, n in enumerate(whole) if n % 2 == 0]
    axis = even[0] if even else int(np.argmax(whole))
    half = tuple(-(-n // 2) if d == axis else n for d, n in enumerate(whole))
    blocks = math.prod(half)
    pair = threefry2x32(key, _advance(counter, lax.iota(np.uint32, blocks)))
    parts = [lax.expand_dims(lax.reshape(w, half), (axis + 1,)) for w in pair]
    doubled = tuple(2 * n if d == axis else n for d, n in enumerate(half))
    bits = lax.reshape(lax.concatenate(parts, axis + 1), doubled)
    bits = lax.slice_in_dim(bits, 0, whole[axis], axis=axis)
    return lax.reshape(bits, shape), blocks


def _join_pairs(words: Any) -> Any:
    """uint32 words, low before high, as uint64."""
    pairs = lax.reshape(words, (shape_of(words)[0] // 2, 2))
    return _join_words(*(lax.index_in_dim(pairs, k, 1, keepdims=False) for k in (1, 0)))


rng_bit_generator_p.lowering = Decompose(_generate_bits)


def _split_words(x: Any) -> Any:
    """uint64 as uint32 words, low before high."""
    low = lax.convert_element_type(x, np.uint32)
    high = lax.convert_element_type(lax.shift_right_logical(x, scalar(x, 32)), np.uint32)
    pairs = lax.concatenate([lax.expand_dims(w, (1,)) for w in (low, high)], 1)
    return lax.reshape(pairs, (2 * shape_of(x)[0],))


def _advance(counter: Words, steps: Any) -> Words:
    """A counter of two words, some steps on."""
    low, high = counter
    total = lax.add(low, steps)
    carry = lax.convert_element_type(lax.lt(total, steps), np.uint32)
    return total, lax.add(high, carry)


def _philox4x32(key: Words, counter: tuple[Any, ...]) -> tuple[Any, ...]:
    shape = shape_of(counter[0])
    c0, c1, c2, c3 = (lax.broadcast(c, shape) if not shape_of(c) else c for c in counter)
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply_wide(0xD2511F53, c0)
        high1, low1 = _multiply_wide(0xCD9E8D57, c2)
        c0, c2 = (
            lax.bitwise_xor(lax.bitwise_xor(high1, c1), k0),
            lax.bitwise_xor(lax.bitwise_xor(high0, c3), k1),
        )
        c1, c3 = low1, low0
        k0, k1 = lax.add(k0, scalar(k0, 0x9E3779B9)), lax.add(k1, scalar(k1, 0xBB67AE85))
    return c0, c1, c2, c3


def _multiply_wide(factor: int, x: Any) -> Words:
    """The two words of a 64-bit product, by halves: there is no uint64 without x64."""
    half = lambda v: lax.shift_right_logical(v, scalar(v, 16))
    mask = lambda v: lax.bitwise_and(v, scalar(v, 0xFFFF))
    times = lambda v, number: lax.mul(v, scalar(v, number))
    x_low, x_high = mask(x), half(x)
    low_low = times(x_low, factor & 0xFFFF)
    middle = lax.add(times(x_high, factor & 0xFFFF), half(low_low))
    cross = lax.add(times(x_low, factor >> 16), mask(middle))
    high = lax.add(lax.add(times(x_high, factor >> 16), half(middle)), half(cross))
    return high, times(x, factor)


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Any:
    """Numbers between `a` and `b` from a generator with hidden state; each call differs.

    Args:
      a: the least value, a scalar.
      b: the bound above, a scalar of the same dtype.
      shape: the shape of the result.

    Returns:
      An array of the scalars' dtype.

    Raises:
      TypeError: if the dtypes differ or an argument is no scalar.

    Example:
      >>> from amdjax import lax
      >>> import numpy as np
      >>> x = lax.rng_uniform(np.float32(2), np.float32(3), (4,))
      >>> bool((np.asarray(x) >= 2).all())
      True
    """
    return rng_uniform_p.bind(a, b, shape=as_ints(shape, "rng_uniform shape"))


rng_uniform_p = Primitive("rng_uniform")


@rng_uniform_p.def_abstract_eval
def _rng_uniform_type(a, b, *, shape):
    check_same_dtype("rng_uniform", a, b)
    if a.shape or b.shape:
        raise TypeError(f"rng_uniform bounds must be scalars, got shapes {a.shape} and {b.shape}.")
    return ShapedArray(shape, a.dtype, a.weak_type and b.weak_type)


@rng_uniform_p.def_jvp
def _rng_uniform_jvp(primals, tangents, *, shape):
    out = rng_uniform_p.bind(*primals, shape=shape)
    return out, zero_tangent(out)


def _host_uniform(a, b, *, shape):
    generator = _hidden_generator()
    if np.issubdtype(a.dtype, np.integer):
        return [generator.integers(a, b, shape, dtype=a.dtype)]
    return [(a + (b - a) * generator.random(shape)).astype(a.dtype)]


@functools.cache
def _hidden_generator() -> np.random.Generator:
    return np.random.default_rng()


rng_uniform_p.lowering = Host(_host_uniform)
