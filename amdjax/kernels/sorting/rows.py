"""What all ways of sorting share: the rows of an array, and writing them in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.dims import surely_equal
from amdjax.kernels.loops import bits_dtype, split_position, view
from amdjax.kernels.shaped import ShapedContext, ShapedKernel
from amdjax.kernels.sorting.keys import Key
from amdjax.schedule.row_plan import counted
from amdjax.schedule.values import short_dtype
from amdjax.tile import Builder, Value, itemsize


@dataclass(frozen=True)
class Geometry:
    """Rows of an array: along an axis of length `n`, with `inner` elements between neighbors."""

    outer: int
    n: int
    inner: int

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> Geometry:
        return Geometry(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    def start(self, k: Builder, row: Value, n: int | None = None) -> Value:
        """Offset of the first element of a row, in an array whose axis has length `n`."""
        n = self.n if n is None else n
        if self.inner == 1:
            return row * n
        outer, inside = split_position(k, row, (self.outer, self.inner))
        return outer * (n * self.inner) + inside


@dataclass(frozen=True)
class SortProblem:
    """Rows to sort.

    Args:
      geometry: the rows.
      keys: operands that decide, the first one first.
      outputs: pairs of an operand and where it goes, sorted; None as operand stands for positions.
      taken: how many elements of each sorted row are wanted.
    """

    geometry: Geometry
    keys: tuple[tuple[Any, Key], ...]
    outputs: tuple[tuple[Any, Any], ...]
    taken: int

    def __str__(self) -> str:
        g = self.geometry
        out = f"{counted(g.rows, 'row')} of {g.n} by {' '.join(key.dtype for _, key in self.keys)}"
        return out + ("" if surely_equal(self.taken, g.n) else f", the first {self.taken}")

    @property
    def single(self) -> Key | None:
        """The key, if there is one only."""
        return self.keys[0][1] if len(self.keys) == 1 else None

    @property
    def needs_position(self) -> bool:
        """Whether records carry where they come from."""
        by_key = self.single is not None and self.single.reversible
        return not by_key or any(source is not self.keys[0][0] for source, _ in self.outputs)


#: Bits of float64 above those of 32-bit keys and 20-bit positions: numbers from 2**52 to 2**53.
PACKED_EXPONENT = 1075 << 52
PACKED_PLACE = 20


@dataclass(frozen=True)
class RecordLayout:
    """What is sorted: keys, and the position they came from where that is needed.

    Args:
      kinds: dtypes of a record's parts.
      positioned: whether the last part, or the lower bits of the only one, are the position.
      packed: whether key and position are one number of 64 bits.
      shift: bits of the position in such a number.
    """

    kinds: tuple[str, ...]
    positioned: bool
    packed: bool
    shift: int = 32

    @staticmethod
    def of(keys: Sequence[tuple[Any, Key]], positioned: bool) -> RecordLayout:
        """Of operands and their keys."""
        if positioned and len(keys) == 1 and keys[0][1].width <= 32:
            return RecordLayout(("u64",), True, True)
        kinds = [key.unsigned for _, key in keys]
        return RecordLayout((*kinds, "u32") if positioned else tuple(kinds), positioned, False)

    @property
    def as_floats(self) -> RecordLayout:
        """The same for positions below 2**20, with numbers of float64 that have the same order.

        Vector units before AVX-512 have instructions for extrema of those, not of integers.
        """
        return RecordLayout(("f64",), True, True, PACKED_PLACE) if self.packed else self

    @property
    def nbytes(self) -> int:
        return sum(map(itemsize, self.kinds))

    def join(self, k: Builder, parts: Sequence[Value], place: Value) -> list[Value]:
        """A record of keys (or their bits) and positions."""
        if self.packed:
            high = k.convert(parts[0], "u64") << k.const("u64", self.shift, place.shape)
            both = high | k.convert(place, "u64")
            if self.kinds == ("u64",):
                return [both]
            return [k.bitcast(both | k.const("u64", PACKED_EXPONENT, place.shape), "f64")]
        return [*parts, k.convert(place, "u32")] if self.positioned else list(parts)

    def part(self, k: Builder, record: Value, dtype: str) -> Value:
        """A key (or its bits), of a dtype, of the part of a record that holds it."""
        if not self.packed:
            return record
        bits = k.bitcast(record, "u64")
        return k.convert(k.convert(bits >> k.const("u64", self.shift, record.shape), "u32"), dtype)

    def place(self, k: Builder, record: Value) -> Value:
        """The position, of the part of a record that holds it."""
        if not self.packed:
            return record
        bits = k.bitcast(record, "u64") & k.const("u64", (1 << self.shift) - 1, record.shape)
        return k.convert(bits, "u32")


def precedes(k: Builder, a: Sequence[Value], b: Sequence[Value]) -> Value:
    """Lexicographic order of records."""
    less = a[-1] < b[-1]
    for x, y in zip(reversed(a[:-1]), reversed(b[:-1]), strict=True):
        less = (x < y) | (k.eq(x, y) & less)
    return less


class SortedRows:
    """Writes sorted rows: from keys where these are enough, else by gathering operands."""

    def __init__(self, ctx: ShapedContext, problem: SortProblem):
        self.ctx, self.geometry, self.keys = ctx, problem.geometry, problem.keys
        self.outputs, self.taken, self.single = problem.outputs, problem.taken, problem.single
        self.needs_position = problem.needs_position

    def decoding(self, source: Any, positioned: bool = False) -> Key | None:
        """The key that has all of an operand; with positions, those tell zeros apart."""
        key = self.single
        if key is None or not key.reversible or source is not self.keys[0][0]:
            return None
        return None if positioned and key.loses_zeros else key

    def gather(
        self, kernel: ShapedKernel, source: Any, target: Any, where: Value, start: Value,
        position: Value, count: int, stride: int, mask: Value | None,
    ) -> None:  # fmt: skip
        """Write the elements of one operand whose positions within the row are known."""
        k = kernel.k
        position = k.convert(position, "index")
        if source is None:
            dtype = short_dtype(target.aval.dtype)
            k.store(
                kernel.output(target),
                where,
                k.convert(position, dtype),
                [stride] if count else None,
                mask,
            )
            return
        dtype, parts = bits_dtype(short_dtype(source.aval.dtype))
        offsets = position * self.geometry.inner + start
        read, write = view(kernel.input(source), dtype), view(kernel.output(target), dtype)
        for j in range(parts):
            at = offsets if parts == 1 else offsets * parts + j
            to = where if parts == 1 else where * parts + j
            x = k.load_at(read, at, mask)
            k.store(write, to, x, [stride * parts] if count else None, mask)

    def scatter(
        self, kernel: ShapedKernel, source: Any, target: Any, to: Value, start: Value,
        position: Value, exists: Value,
    ) -> None:  # fmt: skip
        """Write elements to places `to` of their own; positions are indices within the row."""
        k = kernel.k
        if source is None:
            number = k.convert(position, short_dtype(target.aval.dtype))
            k.store_at(kernel.output(target), to, number, exists, unique=True)
            return
        dtype, parts = bits_dtype(short_dtype(source.aval.dtype))
        at = start + position * self.geometry.inner
        read, write = view(kernel.input(source), dtype), view(kernel.output(target), dtype)
        for j in range(parts):
            x = k.load_at(read, at * parts + j, exists)
            k.store_at(write, to * parts + j, x, exists, unique=True)
