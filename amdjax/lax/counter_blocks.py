"""Block functions of counter-based generators: random words from the words of a key and a counter.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Pointwise
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import batch_elementwise, broadcast_together, zero_tangent
from amdjax.lax.elementwise import multiply_high

__all__ = ["philox2x32_p", "philox4x32_p", "threefry2x32_p", "threefry4x32_p"]

Words = Sequence[Any]
_PARITY = 0x1BD11BDA


def _block_primitive(name: str, key_words: int, words: int, rounds: Callable[..., Any]) -> Any:
    """A primitive of `key_words` words of a key and `words` words of a counter.

    `rounds(b, key, counter)` works on lists of words.
    """
    primitive = Primitive(name, multiple_results=True)

    @primitive.def_abstract_eval
    def block_type(*operands: Any) -> list[ShapedArray]:
        if any(x.dtype != np.uint32 for x in operands) or len(operands) != key_words + words:
            found = ", ".join(str(x.dtype) for x in operands)
            raise TypeError(
                f"{name} takes {key_words} key and {words} counter words of uint32, got {found}."
            )
        shape = broadcast_together(name, [x.shape for x in operands])
        return [ShapedArray(shape, np.uint32)] * words

    @primitive.def_jvp
    def block_jvp(primals: Words, tangents: Words) -> Any:
        outs = primitive.bind(*primals)
        return outs, [zero_tangent(y) for y in outs]

    primitive.def_batch(batch_elementwise(primitive))
    primitive.lowering = Pointwise(
        lambda b, *operands: rounds(b, list(operands[:key_words]), list(operands[key_words:])),
        cost=60.0,  # dozens of operations a word
    )
    return primitive


def _word(b: Any, value: int) -> Any:
    return b.const(value, np.uint32)


def _turned(b: Any, x: Any, bits: int) -> Any:
    """`x` rotated to the left."""
    high, low = b.shl(x, _word(b, bits)), b.shr_logical(x, _word(b, 32 - bits))
    return getattr(b, "or")(high, low)


def _mix(b: Any, x: list[Any], i: int, j: int, rotation: int) -> None:
    x[i] = b.add(x[i], x[j])
    x[j] = b.xor(x[i], _turned(b, x[j], rotation))


def _threefry_rounds(b: Any, key: list[Any], x: list[Any], mixes: Any) -> list[Any]:
    """Twenty rounds; `mixes` holds the pairs of words mixed in each of eight, with rotations."""
    keys = [*key, functools.reduce(b.xor, [*key, _word(b, _PARITY)])]
    n = len(x)
    x = [b.add(word, k) for word, k in zip(x, keys)]
    for step in range(20):
        for i, j, rotation in mixes[step % 8]:
            _mix(b, x, i, j, rotation)
        if step % 4 == 3:
            turn = step // 4 + 1
            x = [b.add(word, keys[(turn + k) % (n + 1)]) for k, word in enumerate(x)]
            x[-1] = b.add(x[-1], _word(b, turn))
    return x


_MIXES_2 = tuple(((0, 1, rotation),) for rotation in (13, 15, 26, 6, 17, 29, 16, 24))
_ROTATIONS_4 = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_MIXES_4 = tuple(
    ((0, 3, r), (2, 1, s)) if step % 2 else ((0, 1, r), (2, 3, s))
    for step, (r, s) in enumerate(_ROTATIONS_4)
)

threefry2x32_p = _block_primitive(
    "threefry2x32", 2, 2, lambda b, key, x: _threefry_rounds(b, key, x, _MIXES_2)
)
threefry4x32_p = _block_primitive(
    "threefry4x32", 4, 4, lambda b, key, x: _threefry_rounds(b, key, x, _MIXES_4)
)

_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def _product(b: Any, factor: int, x: Any) -> tuple[Any, Any]:
    """The high and the low word of a product of 64 bits."""
    return multiply_high(b, x, _word(b, factor)), b.mul(x, _word(b, factor))


def _philox_rounds(b: Any, key: list[Any], x: list[Any], one_round: Callable[..., Any]) -> Any:
    """Ten rounds, the key being stepped between them."""
    for step in range(10):
        if step:
            key = [b.add(k, _word(b, s)) for k, s in zip(key, _KEY_STEPS)]
        x = one_round(b, key, x)
    return x


def _philox2_round(b: Any, key: list[Any], x: list[Any]) -> list[Any]:
    high, low = _product(b, 0xD256D193, x[0])
    return [b.xor(b.xor(high, x[1]), key[0]), low]


def _philox4_round(b: Any, key: list[Any], x: list[Any]) -> list[Any]:
    high0, low0 = _product(b, 0xD2511F53, x[0])
    high1, low1 = _product(b, 0xCD9E8D57, x[2])
    return [*(b.xor(b.xor(high1, x[1]), key[0]), low1), *(b.xor(b.xor(high0, x[3]), key[1]), low0)]


philox2x32_p = _block_primitive(
    "philox2x32", 1, 2, lambda b, key, x: _philox_rounds(b, key, x, _philox2_round)
)
philox4x32_p = _block_primitive(
    "philox4x32", 2, 4, lambda b, key, x: _philox_rounds(b, key, x, _philox4_round)
)


def threefry2x32(key: Words, counter: Words) -> list[Any]:
    """Two words of random bits for each pair of counter words.

    Args:
      key: the two uint32 words of a key, scalars or arrays.
      counter: the two uint32 words of the counter.

    Returns:
      Two uint32 arrays of the operands' common shape.

    Raises:
      TypeError: if an operand is not uint32 or the shapes do not fit.

        >>> zero = np.uint32(0)
        >>> [hex(int(word)) for word in threefry2x32((zero, zero), (zero, zero))]
        ['0x6b200159', '0x99ba4efe']
    """
    return threefry2x32_p.bind(*key, *counter)


def threefry4x32(key: Words, counter: Words) -> list[Any]:
    """As `threefry2x32`, of four key and four counter words."""
    return threefry4x32_p.bind(*key, *counter)


def philox2x32(key: Words, counter: Words) -> list[Any]:
    """Two words of random bits from one key and two counter words."""
    return philox2x32_p.bind(*key, *counter)


def philox4x32(key: Words, counter: Words) -> list[Any]:
    """Four words of random bits from two key and four counter words."""
    return philox4x32_p.bind(*key, *counter)
