"""Which thread of a workgroup holds which elements of a tile.

A layout says, for each register of a thread, where its element lies along each axis. Layouts are
functions of shape, workgroup and vector width (`RowMajor`), or those of a matrix unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amdjax.codegen import llvm
from amdjax.codegen.llvm import Function, Value

__all__ = ["Layout", "Place", "RowMajor", "Threads"]


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
        self._write = write
        self._known: dict[tuple[str, str, int], Value] = {}

    def apply(self, op: str, x: Value, n: int) -> Value:
        """An LLVM instruction on `x` and a constant."""
        if (op in ("add", "shl", "lshr", "xor") and not n) or (op == "mul" and n == 1):
            return x
        key = (op, x.ref, n)
        if key not in self._known:
            text = f"{op} {x}, {llvm.const(x.type, n).ref}"
            self._known[key] = self._write(lambda: self.f.op(text, x.type))
        return self._known[key]

    def widened(self, x: Value) -> Value:
        """A number that is not negative, in 64 bits."""
        key = ("zext", x.ref, 64)
        if key not in self._known:
            self._known[key] = self._write(lambda: self.f.cast("zext", x, "i64"))
        return self._known[key]

    def total(self, terms: Sequence[Value]) -> Value:
        """The sum of such integers."""
        result = terms[0]
        for term in terms[1:]:
            key = ("sum " + term.ref, result.ref, 0)
            if key not in self._known:
                self._known[key] = self._write(lambda a=result, b=term: self.f.add(a, b))  # type: ignore[misc]
            result = self._known[key]
        return result

    def compare(self, predicate: str, x: Value, n: int) -> Value:
        key = (predicate, x.ref, n)
        if key not in self._known:
            bound = llvm.const(x.type, n)
            self._known[key] = self._write(lambda: self.f.icmp(predicate, x, bound))
        return self._known[key]


@dataclass(frozen=True)
class Layout(ABC):
    """How a tile of `shape` is spread over `threads`.

    Args:
      registers: elements that a thread holds.
      width: registers `i * width .. (i + 1) * width` are neighbours along `near_axis`.
    """

    shape: tuple[int, ...]
    threads: int
    registers: int = field(init=False)
    width: int = field(init=False)

    @property
    def near_axis(self) -> int:
        """The axis along which the registers of a group are neighbours."""
        return len(self.shape) - 1

    @abstractmethod
    def places(self, threads: Threads) -> Sequence[tuple[Place, ...]]:
        """For each register its element's place along each axis."""

    @abstractmethod
    def thread_bits(self, axis: int) -> int | None:
        """The bits of the thread's number that the place along an axis depends on.

        Each bit moves one axis at most; None where that is not so.
        """

    def last_thread(self, register: int) -> int:
        """The highest thread whose register holds an element, -1 for none."""
        return self.threads - 1

    @property
    def copies(self) -> int:
        """The bits of the thread's number that no place depends on: such threads hold the same."""
        used = 0
        for axis in range(len(self.shape)):
            bits = self.thread_bits(axis)
            if bits is None:
                return 0
            used |= bits
        return (self.threads - 1) & ~used

    @property
    def whole(self) -> bool:
        """Every register of every thread holds an element."""
        last = self.threads - 1
        return all(self.last_thread(r) == last for r in range(self.registers))


def _is_power(n: int) -> bool:
    return n > 0 and not n & (n - 1)


@dataclass(frozen=True)
class RowMajor(Layout):
    """Element `e = (c * threads + t) * width + j` is register `c * width + j` of thread `t`.

    Where there are fewer elements than threads, and their number is a power of two, threads repeat
    them.

    Args:
      vector: neighbours that a thread holds side by side where there are enough elements.
    """

    vector: int = 1

    def __post_init__(self) -> None:
        rows, columns = self._matrix
        width = min(self.vector, max(self.size // self.threads, 1))
        while width & (width - 1) or (rows > 1 and columns % width):
            width = (width & (width - 1)) or width // 2
        object.__setattr__(self, "width", width)
        chunks = -(-self.size // (self.threads * width))
        object.__setattr__(self, "registers", chunks * width)

    @property
    def size(self) -> int:
        rows, columns = self._matrix
        return rows * columns

    @property
    def _matrix(self) -> tuple[int, int]:
        """Rows and columns; a tile with one axis longer than one is a row."""
        rows, columns = (1, 1, *self.shape)[-2:]
        return (1, rows) if columns == 1 else (rows, columns)

    @property
    def near_axis(self) -> int:
        return len(self.shape) - (2 if self.shape[-1] == 1 and len(self.shape) == 2 else 1)

    @property
    def _repeats(self) -> bool:
        return self.size < self.threads and _is_power(self.size)

    def _linear(self, register: int) -> int:
        chunk, j = divmod(register, self.width)
        return chunk * self.threads * self.width + j

    def places(self, threads: Threads) -> Sequence[tuple[Place, ...]]:
        steps = [self._linear(r) for r in range(self.registers)]
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
        return tuple(place if a == self.near_axis else Place(None, 0) for a in axes)

    def _split(
        self, threads: Threads, start: Value, steps: Sequence[int]
    ) -> list[tuple[Place, ...]]:
        """Rows of a power of two: the bits of the element's number."""
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

    def thread_bits(self, axis: int) -> int | None:
        rows, columns = self._matrix
        every = (min(self.threads, self.size) if self._repeats else self.threads) - 1
        if rows == 1:
            return every if axis == self.near_axis else 0
        if not _is_power(columns):
            return None
        low = min(columns // self.width - 1, every)
        return low if axis == len(self.shape) - 1 else every & ~low

    def last_thread(self, register: int) -> int:
        if self._repeats:
            return self.threads - 1
        return min((self.size - 1 - self._linear(register)) // self.width, self.threads - 1)
