"""Unsigned integers in the order of other numbers.

Sorting compares bits. A key has the bits of an element rearranged so that unsigned order is the
order wanted: negative numbers before positive ones, and NaN after all of them, whatever its sign.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdjax.kernels.loops import view
from amdjax.schedule.values import part_dtype
from amdjax.tile import Buffer, Builder, Value, itemsize
from amdjax.tile.types import NARROW_INTS

_EXPONENTS = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}


@dataclass(frozen=True)
class Key:
    """How elements of a real dtype (or one part of complex ones) become keys.

    Args:
      dtype: the dtype of the operand.
      part: 0 for the real, 1 for the imaginary part.
      equal_zeros: whether both zeros get one key; otherwise -0 precedes +0.
      descending: whether greater elements get lesser keys.
    """

    dtype: str
    part: int = 0
    equal_zeros: bool = True
    descending: bool = False

    @property
    def element(self) -> str:
        return part_dtype(self.dtype)

    @property
    def is_float(self) -> bool:
        return self.element.startswith(("f", "bf"))

    @property
    def is_narrow(self) -> bool:
        """Whether this is a float of 8 bits or less; its keys are those of bfloat16."""
        return self.is_float and self.element not in _EXPONENTS

    @property
    def width(self) -> int:
        return 16 if self.is_narrow else 8 * itemsize(self.element)

    @property
    def unsigned(self) -> str:
        return f"u{self.width}"

    @property
    def reversible(self) -> bool:
        """Whether an element can be made from its key again, but for the sign of zero and NaN."""
        return not self.is_narrow and self.element == self.dtype

    # Loading

    def load(
        self, k: Builder, buffer: Buffer, offset: Value, count: int = 0, stride: int = 1,
        mask: Value | None = None,
    ) -> Value:  # fmt: skip
        """The bits of elements, not yet keys."""
        parts = 2 if self.element != self.dtype else 1
        at = offset if parts == 1 else offset * 2 + self.part
        memory = view(buffer, self.element if self.is_narrow else self.unsigned)
        x = k.load(memory, at, (count,) if count else (), [stride * parts] if count else None, mask)
        return self._widened(k, x)

    def load_at(
        self, k: Builder, buffer: Buffer, offsets: Value, mask: Value | None = None
    ) -> Value:
        """The bits of elements at offsets of their own."""
        parts = 2 if self.element != self.dtype else 1
        if parts == 2:
            offsets = offsets * 2 + self.part
        x = k.load_at(
            view(buffer, self.element if self.is_narrow else self.unsigned), offsets, mask
        )
        return self._widened(k, x)

    def _widened(self, k: Builder, x: Value) -> Value:
        if self._unused:  # bits above those of an int4 or int2 mean nothing
            return x << self._const(k, x, self._unused)
        return k.bitcast(k.convert(k.convert(x, "f32"), "bf16"), "u16") if self.is_narrow else x

    @property
    def is_padded(self) -> bool:
        """Whether elements have fewer bits than the byte they live in."""
        return bool(self._unused)

    @property
    def _unused(self) -> int:
        bits = NARROW_INTS.get(self.element)
        return 8 - bits if bits else 0

    # Keys

    def encode(self, k: Builder, bits: Value) -> Value:
        """Keys of elements given as bits."""
        key = self._ascending(k, bits)
        return ~key if self.descending else key

    def _ascending(self, k: Builder, bits: Value) -> Value:
        sign = 1 << (self.width - 1)
        top = self._const(k, bits, sign)
        if not self.is_float:
            return bits ^ top if self.element[0] == "i" else bits
        magnitude = bits & self._const(k, bits, sign - 1)
        # With one key for both zeros -0 counts as positive: its bits are `top` already.
        negative = k.op("gt" if self.equal_zeros else "ge", bits, top)
        key = k.select(negative, ~bits, bits | top)
        nan = magnitude > self._const(k, bits, self._infinity)
        return k.select(nan, self._const(k, bits, 2 * sign - 1), key)

    @property
    def _infinity(self) -> int:
        dtype = "bf16" if self.is_narrow else self.element
        bits = _EXPONENTS[dtype]
        return ((1 << bits) - 1) << (self.width - 1 - bits)

    def _const(self, k: Builder, like: Value, x: int) -> Value:
        return k.const(self.unsigned, x, like.shape)

    def negative_zero(self, k: Builder, bits: Value) -> Value:
        """Which elements are -0."""
        return k.eq(bits, self._const(k, bits, 1 << (self.width - 1)))

    @property
    def loses_zeros(self) -> bool:
        """Whether the sign of zero cannot be told from the key."""
        return self.is_float and self.equal_zeros

    def zero_key(self) -> int:
        return 1 << (self.width - 1)

    def decode(self, k: Builder, key: Value) -> Value:
        """The bits of the element with a key."""
        if self.descending:
            key = ~key
        top = self._const(k, key, 1 << (self.width - 1))
        if not self.is_float:
            bits = key ^ top if self.element[0] == "i" else key
            return bits >> self._const(k, key, self._unused) if self._unused else bits
        return k.select(key >= top, key ^ top, ~key)
