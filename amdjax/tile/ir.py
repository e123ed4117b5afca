"""The tile IR: values, operations, blocks.

An operation is one class (`amdjax/tile/ops/`). It declares its operands and attributes as
descriptors, says what types its results have, verifies itself, and is printed and parsed by what it
declares. Operations with bodies hold them as blocks, whose arguments are what each round or arm
begins with and whose `yields` are what it ends with: a block's terminator is part of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, ClassVar, Protocol, overload

from amdjax.core.source_info import Origin
from amdjax.tile.attributes import Attribute, Found, Memories, Memory
from amdjax.tile.types import Buffer, TileType

__all__ = [
    "OPERATIONS", "Block", "Op", "Operand", "Operands", "TileError", "Trait", "Value",
    "expect", "expect_scalars", "highest_number", "lowest_number", "nested_ops",
]  # fmt: skip


class TileError(ValueError):
    """A tile program that breaks a rule of the IR, or text that is none."""


def expect(condition: bool, message: str, *parts: object) -> None:
    """Raise a `TileError` unless a condition holds; its message is formatted only then."""
    if not condition:
        raise TileError(message.format(*parts))


class Writer(Protocol):
    """What operators of values write operations with: `tile.Builder`."""

    def op(self, name: str, *operands: Value) -> Value: ...
    def like(self, x: Any, other: Value) -> Value: ...


class Value:
    """One SSA value: a tile. Operators write operations into the kernel being built."""

    __slots__ = ("builder", "dtype", "number", "shape", "type")

    def __init__(self, builder: Writer | None, number: int, type: TileType):
        self.builder, self.number, self.type = builder, number, type
        self.dtype, self.shape = type

    def __repr__(self) -> str:
        return f"%{self.number}"

    def _binary(name: str, swap: bool = False) -> Callable[[Value, Any], Value]:  # type: ignore[misc]
        def method(self: Value, other: Any) -> Value:
            k = self.builder
            assert k is not None, "the kernel is finished"
            other = k.like(other, self)
            return k.op(name, other, self) if swap else k.op(name, self, other)

        return method

    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", True)
    __floordiv__, __mod__ = _binary("div"), _binary("rem")
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", True)
    __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")
    __lshift__, __rshift__ = _binary("shl"), _binary("shr_logical")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")

    def __neg__(self) -> Value:
        assert self.builder is not None, "the kernel is finished"
        return self.builder.op("neg", self)

    def __invert__(self) -> Value:
        assert self.builder is not None, "the kernel is finished"
        return self.builder.op("not", self)


class Trait(Flag):
    """What holds of an operation wherever it stands."""

    NONE = 0
    #: Depends on its operands and attributes alone: equal ones are one, unused ones may go.
    PURE = auto()
    READS = auto()
    WRITES = auto()
    #: Acts on the elements of its operands at each place alone.
    ELEMENTWISE = auto()


class Operand:
    """The operand at a place."""

    def __init__(self, place: int):
        self._place = place

    @overload
    def __get__(self, op: None, owner: type) -> Operand: ...
    @overload
    def __get__(self, op: Op, owner: type) -> Value: ...
    def __get__(self, op: Op | None, owner: type) -> Operand | Value:
        return self if op is None else op.operands[self._place]


class Operands:
    """The operands from a place on."""

    def __init__(self, start: int):
        self._start = start

    @overload
    def __get__(self, op: None, owner: type) -> Operands: ...
    @overload
    def __get__(self, op: Op, owner: type) -> tuple[Value, ...]: ...
    def __get__(self, op: Op | None, owner: type) -> Operands | tuple[Value, ...]:
        return self if op is None else op.operands[self._start :]


#: Every operation by the name that it has in text.
OPERATIONS: dict[str, type[Op]] = {}


class Op:
    """An operation in a kernel; subclasses are the operations there are.

    Args:
      operands: what it takes.
      attrs: its attributes by name, as far as they are not their defaults.
      results: what it makes.
      blocks: bodies, of control flow and of combinations.
      origin: the user's operation that it was made from. It is for people: not printed, and no
        part of the program.
      source: the operation of the kernel as it was written that it stands for, for people too.
    """

    __slots__ = ("attrs", "blocks", "operands", "origin", "results", "source")

    name: ClassVar[str] = ""
    #: Of an element of the result, as schedules reckon; an addition costs 1.
    cost: ClassVar[float] = 1.0
    traits: ClassVar[Trait] = Trait.NONE
    #: Whether `PURE` is among the traits, which is asked of every operation.
    is_pure: ClassVar[bool] = False
    attributes: ClassVar[tuple[Attribute[Any], ...]] = ()

    def __init_subclass__(cls, name: str = "", traits: Trait | None = None) -> None:
        if traits is not None:
            cls.traits, cls.is_pure = traits, Trait.PURE in traits
        own = [x for x in vars(cls).values() if isinstance(x, Attribute)]
        cls.attributes = tuple(
            sorted([*cls.attributes, *own], key=lambda attribute: isinstance(attribute, Found))
        )
        if name:
            cls.name = name
            OPERATIONS[name] = cls

    def __init__(
        self,
        operands: tuple[Value, ...],
        attrs: dict[str, Any],
        results: tuple[Value, ...] = (),
        blocks: tuple[Block, ...] = (),
        origin: Origin | None = None,
        source: Op | None = None,
    ):
        self.operands, self.attrs, self.results = operands, attrs, results
        self.blocks, self.origin = blocks, origin
        self.source = self if source is None else source

    @property
    def result(self) -> Value:
        """What an operation with one result makes."""
        return self.results[0]

    def result_types(self) -> tuple[TileType, ...] | None:
        """Types of the results; None where the operation was written with types of its own."""
        return ()

    def check(self) -> None:
        """Raise a `TileError` for what is wrong besides types of results and scopes."""

    def with_(self, **changes: Any) -> Op:
        """The same operation with other `operands`, `attrs`, `results` or `blocks`."""
        get = changes.get
        return type(self)(
            get("operands", self.operands), get("attrs", self.attrs), get("results", self.results),
            get("blocks", self.blocks), get("origin", self.origin), get("source", self.source),
        )  # fmt: skip

    def buffers(self) -> Iterator[Buffer]:
        """The memory that its attributes name."""
        for attribute in self.attributes:
            if isinstance(attribute, Memory):
                yield self.attrs[attribute.name]
            elif isinstance(attribute, Memories):
                yield from self.attrs.get(attribute.name, ())

    def __repr__(self) -> str:
        return f"<{self.name} {', '.join(map(repr, self.operands))}>"


@dataclass(slots=True)
class Block:
    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    yields: tuple[Value, ...] = ()


def nested_ops(block: Block) -> Iterator[Op]:
    """All operations of a block, those of the blocks inside it behind the ones that hold them."""
    waiting = [iter(block.ops)]
    while waiting:
        for op in waiting[-1]:
            yield op
            if op.blocks:
                waiting += [iter(inner.ops) for inner in reversed(op.blocks)]
                break
        else:
            waiting.pop()


def lowest_number(block: Block) -> int:
    """The least number of a value that a block, or one inside it, makes; 0 if it makes none."""
    made = [v.number for v in block.args]
    made += [v.number for op in nested_ops(block) for v in op.results]
    return min(made, default=0)


def highest_number(block: Block) -> int:
    """The highest number of a value that a block, or one inside it, makes."""
    made = [v.number for v in block.args]
    for op in nested_ops(block):
        made += [v.number for v in op.results]
        made += [v.number for inner in op.blocks for v in inner.args]
    return max(made, default=0)


def expect_scalars(op: Op, values: Sequence[Value], dtype: str = "index") -> None:
    """Check that values are numbers of a dtype."""
    for v in values:
        expect(v.type == TileType(dtype), "{} takes numbers of {}, not {}", op.name, dtype, v.type)
