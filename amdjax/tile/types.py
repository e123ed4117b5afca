"""Types of the tile IR: dtypes, shapes of tiles, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from amdjax.core.dtypes import dtype_from_short_name

#: Bytes that caches of CPUs move at once.
CACHE_LINE = 64

FLOATS = ("f16", "bf16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64", "index")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = frozenset((*SIGNED, *UNSIGNED))
#: Bits of integers of less than a byte: they live in one, whose upper bits mean nothing.
NARROW_INTS = {f"{sign}{bits}": bits for bits in (1, 2, 4) for sign in "iu"}


def itemsize(dtype: str) -> int:
    """Bytes in memory of an element of a short dtype (`f32`, `bool`, `c64`, …) or of an index."""
    if dtype == "index":
        return 8
    return 1 if dtype == "bool" else dtype_from_short_name(dtype).itemsize


class TileType(NamedTuple):
    """Element dtype (a short name such as `f32`, or `index`) and block shape."""

    dtype: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.shape else self.dtype


#: Of places in memory, trip counts and coordinates.
INDEX = TileType("index")
BOOL = TileType("bool")


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a kernel sees: a parameter, or scratch private to one program of the grid.

    An operation may see a buffer as elements of another dtype than it was declared with.

    Args:
      role: `in`, `out`, `inout`, `scratch`, or `size` for a runtime integer.
      size: number of elements, for scratch only.
    """

    name: str
    dtype: str
    role: str
    size: int = 0


class Number:
    """A constant, compared by bits, so that tables tell -0.0 from 0.0 and find NaN again."""

    __slots__ = ("x",)

    def __init__(self, x: float | int | bool):
        self.x = x

    @classmethod
    def of(cls, dtype: str, x: float | int | bool) -> Number:
        """A constant as the Python type that stands for a dtype."""
        if dtype == "index":
            return cls(int(x))
        return cls(float(x) if dtype in FLOATS else bool(x) if dtype == "bool" else int(x))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and repr(self.x) == repr(other.x)

    def __hash__(self) -> int:
        return hash(repr(self.x))

    def __repr__(self) -> str:
        return repr(self.x)
