"""What operations carry besides operands: static attributes, declared in their classes.

A declaration is a descriptor: `op.buffer` reads what `op.attrs` holds under that name. It knows how
the attribute is written in a kernel's text, and how it is read back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from amdjax.tile.schedule import MatrixTiling
from amdjax.tile.types import Buffer, Number

T = TypeVar("T")
Buffers = Mapping[str, Buffer]


class Attributed(Protocol):
    """What has attributes: an operation."""

    attrs: dict[str, Any]


class Attribute(Generic[T]):
    """An attribute written `name=value`; one that has its default value is not written."""

    #: Written without its name, at a fixed place.
    positional = False
    name = ""

    def __init__(self, *default: T):
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.rstrip("_")

    @overload
    def __get__(self, op: None, owner: type) -> Attribute[T]: ...
    @overload
    def __get__(self, op: Attributed, owner: type) -> T: ...
    def __get__(self, op: Attributed | None, owner: type) -> Attribute[T] | T:
        if op is None:
            return self
        attrs = op.attrs
        found: T = attrs.get(self.name, self._default[0]) if self._default else attrs[self.name]
        return found

    @property
    def required(self) -> bool:
        return not self._default

    def text(self, op: Attributed, buffers: Buffers) -> str:
        """How the attribute of an operation is written; empty if it is not."""
        x: Any = op.attrs.get(self.name, *self._default)
        if self._default and x == self._default[0]:
            return ""
        shown = self.show(x, buffers)
        return shown if self.positional else f"{self.name}={shown}"

    def show(self, x: T, buffers: Buffers) -> str:
        return str(x)

    def read(self, text: str, buffers: Buffers) -> T:
        """The value that is shown as `text`."""
        return cast(T, ast.literal_eval(text))


class Found(Attribute[T]):
    """What a pass found out of an operation, and no part of what it does."""

    def read(self, text: str, buffers: Buffers) -> T:
        return cast(T, text if isinstance(self._default[0], str) else ast.literal_eval(text))


class Word(Attribute[str]):
    """A name."""

    def read(self, text: str, buffers: Buffers) -> str:
        return text


class Flag(Attribute[bool]):
    """Whether something is so; by default not."""

    def __init__(self) -> None:
        super().__init__(False)


class Memory(Attribute[Buffer]):
    """A buffer by its name, and the dtype as whose elements it is seen, if it has another."""

    positional = True

    def show(self, x: Buffer, buffers: Buffers) -> str:
        return _shown(x, buffers)

    def read(self, text: str, buffers: Buffers) -> Buffer:
        return _seen(text, buffers)


class Memories(Attribute[tuple[Buffer, ...]]):
    """Some buffers by their names; by default none."""

    def __init__(self) -> None:
        super().__init__(())

    def show(self, x: tuple[Buffer, ...], buffers: Buffers) -> str:
        return "(" + ",".join(_shown(buffer, buffers) for buffer in x) + ")"

    def read(self, text: str, buffers: Buffers) -> tuple[Buffer, ...]:
        return tuple(_seen(name, buffers) for name in text[1:-1].split(",") if name)


class Constant(Attribute[Number]):
    """A number without a name."""

    positional = True

    def read(self, text: str, buffers: Buffers) -> Number:
        return Number(_number(text))


class Filling(Attribute[Any]):
    """What stands for elements whose mask is false, of operations that have a mask."""

    def __init__(self) -> None:
        super().__init__(0)

    def text(self, op: Attributed, buffers: Buffers) -> str:
        return f"{self.name}={op.attrs[self.name]}" if op.attrs.get("masked") else ""

    def read(self, text: str, buffers: Buffers) -> float | int | bool:
        return _number(text)


class Strides(Attribute[tuple[int | None, ...]]):
    """A stride for each axis; None is the next operand."""

    def show(self, x: tuple[int | None, ...], buffers: Buffers) -> str:
        return "(" + ",".join("?" if s is None else str(s) for s in x) + ")"

    def read(self, text: str, buffers: Buffers) -> tuple[int | None, ...]:
        return tuple(None if s == "?" else int(s) for s in text[1:-1].split(",") if s)


class Tiling(Attribute[MatrixTiling]):
    def read(self, text: str, buffers: Buffers) -> MatrixTiling:
        return MatrixTiling.parse(text)


class DotTiling(Attribute[MatrixTiling | None]):
    """How a matrix unit computes a product of tiles; by default none does."""

    def __init__(self) -> None:
        super().__init__(None)

    def read(self, text: str, buffers: Buffers) -> MatrixTiling | None:
        return MatrixTiling.parse(text)


#: A limit that is known when the kernel runs.
TOLD = -1


@dataclass(frozen=True, slots=True)
class Side:
    """An operand of `Contract` as it lies in memory.

    Args:
      buffer: where it is.
      axis: whether neighbors in memory are steps in `depth` or `lines` (rows of the left operand,
        columns of the right one).
      vector: how many, in aligned groups, lie side by side; a group lies inside or outside of all
        limits as a whole.
      run: elements from one step in depth to the next, if tiles of the product's depth are such
        runs; the place of a tile is then that of its first step.
      limits: extents of the coordinates that lines and depth move; zero is read outside. One of
        `TOLD` is an operand.
      shifts: by how much a step of a run or granule moves each of them.
      edge: the number of the coordinate that counts neighbors, where groups are not aligned and
        parts of them may be inside of its limit, which is as long as a group at least.
      granule: steps in depth, from multiples of that on, which are a run where tiles are none.
      stride: elements from one step of a granule to the next.
    """

    buffer: Buffer
    axis: str
    vector: int = 1
    run: int | None = None
    limits: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()
    edge: int | None = None
    granule: int = 1
    stride: int = 0


_SIDE = re.compile(
    r"\((?P<buffer>[^ ]+) (?P<axis>depth|lines)×(?P<vector>\d+)(?: run=(?P<run>-?\d+))?"
    r"(?: limits=(?P<limits>\([^)]*\)))?(?: shifts=(?P<shifts>\([^)]*\)))?"
    r"(?: edge=(?P<edge>\d+))?(?: granule=(?P<granule>\d+) stride=(?P<stride>-?\d+))?\)"
)


class Sides(Attribute[tuple[Side, Side]]):
    """Both operands of a product."""

    positional = True

    def show(self, x: tuple[Side, Side], buffers: Buffers) -> str:
        return " ".join(self._shown(side, buffers) for side in x)

    @staticmethod
    def _shown(x: Side, buffers: Buffers) -> str:
        run = "" if x.run is None else f" run={x.run}"
        limits = f" limits={x.limits}" if x.limits else ""
        limits += f" shifts={x.shifts}" if any(x.shifts) else ""
        limits += "" if x.edge is None else f" edge={x.edge}"
        limits += f" granule={x.granule} stride={x.stride}" if x.granule > 1 else ""
        return f"({_shown(x.buffer, buffers)} {x.axis}×{x.vector}{run}{limits})"

    def read(self, text: str, buffers: Buffers) -> tuple[Side, Side]:
        left, right = (self._side(m, buffers) for m in _SIDE.finditer(text))
        return left, right

    @staticmethod
    def _side(m: re.Match[str], buffers: Buffers) -> Side:
        limits = ast.literal_eval(m["limits"] or "()")
        run = None if m["run"] is None else int(m["run"])
        granule, stride = int(m["granule"] or 1), int(m["stride"] or 0)
        still = () if run is None and granule == 1 else (0,) * len(limits)
        shifts = ast.literal_eval(m["shifts"]) if m["shifts"] else still
        edge = None if m["edge"] is None else int(m["edge"])
        buffer, vector = _seen(m["buffer"], buffers), int(m["vector"])
        return Side(buffer, m["axis"], vector, run, limits, shifts, edge, granule, stride)


def _shown(buffer: Buffer, buffers: Buffers) -> str:
    declared = buffers.get(buffer.name, buffer)
    same = declared.dtype == buffer.dtype
    return buffer.name if same else f"{buffer.name}:{buffer.dtype}"


def _seen(text: str, buffers: Buffers) -> Buffer:
    name, _, dtype = text.partition(":")
    found = buffers[name]
    return Buffer(name, dtype or found.dtype, found.role, found.size)


def _number(text: str) -> float | int | bool:
    if text in ("inf", "-inf", "nan"):
        return float(text)
    return cast("float | int | bool", ast.literal_eval(text))
