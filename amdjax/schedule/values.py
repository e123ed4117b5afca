"""Elements as values of tiles: dtypes they are computed in, parts, lanes they are spread over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax import tile
from amdjax.core import dtypes
from amdjax.core.jaxpr import Literal, Var
from amdjax.schedule.index import LoopVar
from amdjax.tile.types import NARROW_INTS

#: The dtype in which values of a dtype are computed, where it differs.
COMPUTE = {"f16": "f32", "bf16": "f32", **{n: f"{n[0]}8" for n in NARROW_INTS}}


def compute_dtype(dtype: str) -> str:
    if dtype.startswith(("f8_", "f6_", "f4_")):
        return "f32"
    return COMPUTE.get(dtype, dtype)


def part_dtype(dtype: str) -> str:
    """The dtype of the parts of a complex dtype; other dtypes are their own part."""
    return {"c64": "f32", "c128": "f64"}.get(dtype, dtype)


def short_dtype(dtype: Any) -> str:
    return dtypes.short_dtype_name(dtype)


class El:
    """The value of an element: its logical dtype, and one tile value (two if complex)."""

    __slots__ = ("dtype", "parts")

    def __init__(self, dtype: str, *parts: tile.Value):
        self.dtype, self.parts = dtype, parts

    @property
    def value(self) -> tile.Value:
        return self.parts[0]

    @property
    def is_complex(self) -> bool:
        return len(self.parts) == 2


@dataclass(frozen=True)
class Operand:
    """What an element rule sees of an operand."""

    atom: Var | Literal

    @property
    def aval(self) -> Any:
        return self.atom.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.atom.aval.shape

    @property
    def ndim(self) -> int:
        return len(self.atom.aval.shape)

    @property
    def dtype(self) -> Any:
        return self.atom.aval.dtype


@dataclass
class Lanes:
    """A loop variable spread over an axis of the tile: lane `i` stands for `base + i`."""

    var: LoopVar
    count: int
    axis: int
    base: tile.Value
    mask: tile.Value | None = None  # lanes inside the loop's extent, where some are not


def flat_parts(els: Iterable[El]) -> list[tile.Value]:
    """The tile values of elements, for control flow to carry; `regroup` undoes it."""
    return [p for x in els for p in x.parts]


def regroup(like: Sequence[El], flat: Iterable[tile.Value]) -> list[El]:
    """Tile values as elements of the dtypes, and so many parts, as those of `like`.

    Of an iterator it takes as many as it needs.
    """
    it = iter(flat)
    return [El(a.dtype, *(next(it) for _ in a.parts)) for a in like]
