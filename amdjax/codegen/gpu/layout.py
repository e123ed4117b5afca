"""Which thread of a workgroup holds which elements of a tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from amdjax.codegen import llvm
from amdjax.codegen.llvm import Function, Value
from amdjax.core.integers import ceil_div, floor_power_of_two


@dataclass(frozen=True, slots=True)
class Place:
    """A position along an axis: `base + step`; no base is zero."""

    base: Value | None
    step: int


class Threads:
    """Integers that depend on the thread alone, each computed once at the head of a kernel.

    Args:
      write: runs a function whose instructions go to the head of the kernel.
    """

    def __init__(self, f: Function, number: Value, write: Callable[[Callable[[], Value]], Value]):
        self.f, self.number = f, number
        self.at_head = write
        self._known: dict[tuple[str, str, int], Value] = {}
        self._products: dict[str, tuple[Value, int]] = {}

    def apply(self, op: str, x: Value, n: int) -> Value:
        """An LLVM instruction on `x` and a constant."""
        if (op in ("add", "shl", "lshr", "xor") and not n) or (op == "mul" and n == 1):
            return x
        factor, by = self._products.get(x.ref, (x, 1))
        if op == "lshr" and by == 1 << n:  # equal numbers are one value
            return factor
        key = (op, x.ref, n)
        if key not in self._known:
            text = f"{op} {x}, {llvm.const(x.type, n).ref}"
            found = self._known[key] = self.at_head(lambda: self.f.op(text, x.type))
            if op == "mul":
                self._products[found.ref] = x, n
        return self._known[key]

    def widened(self, x: Value) -> Value:
        """A number that is not negative, in 64 bits."""
        key = ("zext", x.ref, 64)
        if key not in self._known:
            self._known[key] = self.at_head(lambda: self.f.cast("zext", x, "i64"))
        return self._known[key]

    def total(self, terms: Sequence[Value]) -> Value:
        """The sum of such integers."""
        result = terms[0]
        for term in terms[1:]:
            key = ("sum " + term.ref, result.ref, 0)
            if key not in self._known:
                self._known[key] = self.at_head(lambda a=result, b=term: self.f.add(a, b))  # type: ignore[misc]
            result = self._known[key]
        return result

    def compare(self, predicate: str, x: Value, n: int) -> Value:
        key = (predicate, x.ref, n)
        if key not in self._known:
            bound = llvm.const(x.type, n)
            self._known[key] = self.at_head(lambda: self.f.icmp(predicate, x, bound))
        return self._known[key]


def _is_power(n: int) -> bool:
    return n > 0 and not n & (n - 1)


@dataclass(frozen=True)
class Layout:
    """How a tile of `shape` is spread over a workgroup, row by row.

    Element `e = (c * threads + t) * width + j` is register `c * width + j` of thread `t`. Where
    there are fewer elements than threads, and their number is a power of two, threads repeat them.

    Args:
      shape: of the tile, of rank 1 or 2.
      threads: of the workgroup, a power of two.
      vector: neighbors that a thread holds side by side where there are enough elements.
    """

    shape: tuple[int, ...]
    threads: int
    vector: int = 1

    @cached_property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @cached_property
    def _matrix(self) -> tuple[int, int]:
        """Rows and columns; a tile with one axis longer than one is a row."""
        rows, columns = (1, *self.shape)[-2:]
        return (1, rows) if columns == 1 else (rows, columns)

    @cached_property
    def minor_axis(self) -> int:
        """The axis along which the registers of a group of `width` are neighbors."""
        return len(self.shape) - (2 if self.shape[-1] == 1 and len(self.shape) == 2 else 1)

    @cached_property
    def width(self) -> int:
        """Neighbors that a thread holds side by side."""
        rows, columns = self._matrix
        width = min(self.vector, floor_power_of_two(self.size // self.threads))
        while rows > 1 and columns % width:
            width //= 2
        return width

    @cached_property
    def registers(self) -> int:
        """Elements that a thread holds."""
        return ceil_div(self.size, self.threads * self.width) * self.width

    @cached_property
    def _repeats(self) -> bool:
        return self.size < self.threads and _is_power(self.size)

    def first_element(self, register: int) -> int:
        """The element that thread 0 holds in a register."""
        chunk, j = divmod(register, self.width)
        return chunk * self.threads * self.width + j

    def holder(self, element: int) -> tuple[int, int]:
        """Register and least thread of an element."""
        group, j = divmod(element, self.width)
        chunk, thread = divmod(group, self.threads)
        return chunk * self.width + j, thread

    @cached_property
    def period(self) -> int:
        """Threads after which elements repeat: fewer than there are where they do."""
        return self.size if self._repeats else self.threads

    def owner(self, threads: Threads) -> Value | None:
        """Whether the thread is the first that holds its elements; None if it is the only one."""
        if self.period == self.threads:
            return None
        return threads.compare("ult", threads.number, self.period)

    def last_thread(self, register: int) -> int:
        """The highest thread whose register holds an element; negative for none."""
        if self._repeats:
            return self.threads - 1
        last = (self.size - 1 - self.first_element(register)) // self.width
        return min(last, self.threads - 1)

    def thread_bits(self, axis: int) -> int | None:
        """The bits of the thread's number that the place along an axis depends on.

        Each bit moves one axis at most; None where that is not so.
        """
        rows, columns = self._matrix
        every = self.period - 1
        if rows == 1:
            return every if axis == self.minor_axis else 0
        if not _is_power(columns):
            return None
        low = min(columns // self.width - 1, every)
        return low if axis == len(self.shape) - 1 else every & ~low

    def places(self, threads: Threads) -> list[tuple[Place, ...]]:
        """For each register its element's place along each axis."""
        steps = [self.first_element(r) for r in range(self.registers)]
        rows, columns = self._matrix
        if self.size == 1:
            return [tuple(Place(None, 0) for _ in self.shape)]
        if self._repeats:
            start = threads.apply("and", threads.number, self.size - 1)
        else:
            start = threads.apply("mul", threads.number, self.width)
        if rows == 1:
            return [self._on_axis(Place(start, s)) for s in steps]
        if _is_power(columns):
            return self._split(threads, start, steps)
        return [self._divided(threads, start, s) for s in steps]

    def _on_axis(self, place: Place) -> tuple[Place, ...]:
        axes = range(len(self.shape))
        return tuple(place if a == self.minor_axis else Place(None, 0) for a in axes)

    def _split(
        self, threads: Threads, start: Value, steps: Sequence[int]
    ) -> list[tuple[Place, ...]]:
        """Rows of a power of two: row and column are bits of the element's number."""
        columns = self._matrix[1]
        span = self.size if self._repeats else self.threads * self.width
        shift = columns.bit_length() - 1
        row = threads.apply("lshr", start, shift) if span > columns else None
        column = threads.apply("and", start, columns - 1) if span > columns else start
        return [(Place(row, s >> shift), Place(column, s & (columns - 1))) for s in steps]

    def _divided(self, threads: Threads, start: Value, step: int) -> tuple[Place, ...]:
        first = step // self.width * self.width
        element = threads.apply("add", start, first)
        columns = self._matrix[1]
        row = threads.apply("udiv", element, columns)
        column = threads.apply("urem", element, columns)
        return Place(row, 0), Place(column, step - first)
