"""Kernels, and their text, which `amdjax.tile.parse` reads back."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from amdjax.core.dims import Dim
from amdjax.core.source_info import Origin
from amdjax.tile.ir import Block, Op, nested_ops
from amdjax.tile.schedule import Schedule
from amdjax.tile.types import Buffer, TileType

#: Tiles that a loop carries from which on it is a micro-kernel.
MANY_CARRIED = 8


@dataclass(slots=True)
class Kernel:
    """A finished tile program.

    Args:
      grid: number of programs; an int, or the name of a `size` parameter it is computed from as
        `ceil(size / grid_unit)`.
      cost: estimated nanoseconds of one core for one program, to decide about threads.
      schedule: how it is spread over a GPU.
      align: bytes of which the addresses of all parameters are multiples.
      batch: on how many lists of arguments a launch runs it; on GPUs alone. A launch passes for
        each its first program in the grid, then the arguments. A program counts from there.
      sizes: symbolic dimensions that the last parameters are, one each.
      runs_once: whether it is launched so rarely that compiling it quickly is worth more than its
        speed; on CPUs alone.
      own: in a loop whose programs stay resident, the parameters of which a program touches only
        what no program of another number does, in any kernel of the loop that lists them and has
        the same `parts`.
      parts: equals that of kernels in which programs of a number have the same parts.
    """

    name: str
    params: list[Buffer]
    scratch: list[Buffer]
    body: Block
    grid: int | str
    grid_unit: int = 1
    cost: float = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    align: int = 16
    batch: int = 1
    own: frozenset[str] = frozenset()
    parts: object = None
    sizes: tuple[Dim, ...] = ()
    runs_once: bool = False
    _has_micro_kernel: bool | None = field(default=None, init=False, repr=False, compare=False)
    _kinds: Set[type[Op]] | None = field(default=None, init=False, repr=False, compare=False)

    def __str__(self) -> str:
        return listing(self)[0]

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """Parameters and scratch as they are declared, by name."""
        return {b.name: b for b in (*self.params, *self.scratch)}

    @property
    def given(self) -> list[Buffer]:
        """The parameters that are no symbolic dimensions."""
        return self.params[: len(self.params) - len(self.sizes)]

    def has(self, *kinds: type[Op]) -> bool:
        """Whether an operation of one of some classes is in it, which is known when asked again."""
        if self._kinds is None:
            self._kinds = {type(op) for op in nested_ops(self.body)}
        return any(issubclass(kind, kinds) for kind in self._kinds)

    @property
    def has_micro_kernel(self) -> bool:
        """Whether a loop is that of a product in registers."""
        if self._has_micro_kernel is None:  # asked for often
            self._has_micro_kernel = any(is_micro_kernel(op) for op in nested_ops(self.body))
        return self._has_micro_kernel

    @property
    def cooperative(self) -> bool:
        """Whether its programs wait for each other, so that all have to be resident at once."""
        return any(op.name == "grid_barrier" for op in nested_ops(self.body))


def is_micro_kernel(op: Op) -> bool:
    """Whether an operation is a loop of a product: many sums in registers, and factors spread."""
    if op.name != "for" or sum(bool(v.shape) for v in op.results) < MANY_CARRIED:
        return False
    return any(x.name == "broadcast" for block in op.blocks for x in block.ops)


def listing(kernel: Kernel) -> tuple[str, dict[int, int]]:
    """The kernel as text, and the line of each op, from 1, by the `id` of the op."""
    printer = _Printer(kernel)
    return "\n".join([*printer.lines, "}"]), printer.places


def origins(kernel: Kernel, lines: Mapping[int, int]) -> dict[int, Origin]:
    """What the lines of a kernel's text were made from, as far as that is known.

    Args:
      kernel: the program.
      lines: of its ops, from `listing`.
    """
    found = {lines[id(op)]: op.origin for op in nested_ops(kernel.body)}
    return {line: origin for line, origin in found.items() if origin is not None}


class _Names(dict[int, str]):
    """What values are called, by their numbers: in the order in which they are met."""

    def __missing__(self, number: int) -> str:
        name = self[number] = f"%{len(self)}"
        return name


class _Texts(dict[TileType, str]):
    """Types as text."""

    def __missing__(self, type: TileType) -> str:
        text = self[type] = str(type)
        return text


class _Printer:
    def __init__(self, kernel: Kernel):
        self.names = _Names()
        self.types = _Texts()
        self.places: dict[int, int] = {}
        self.buffers = kernel.buffers
        self.lines = [f"{_head(kernel)} {{"]
        self.lines += [f"  {s.name}: scratch {s.dtype}[{s.size}]" for s in kernel.scratch]
        self.block(kernel.body, "  ")

    def listed(self, block: Block) -> str:
        """The arguments of a block."""
        return ", ".join([f"{self.names[a.number]}: {self.types[a.type]}" for a in block.args])

    def block(self, b: Block, indent: str) -> None:
        for op in b.ops:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        lines, names = self.lines, self.names
        self.places[id(op)] = len(lines) + 1
        head = op.name
        if op.attrs:
            for attribute in op.attributes:
                # Those that are not there have their defaults, which are not written.
                if attribute.name in op.attrs and (text := attribute.text(op, self.buffers)):
                    head = f"{head} {text}"
        if op.operands:
            head = f"{head} {', '.join([names[v.number] for v in op.operands])}"
        if op.results:
            types = self.types
            made = ", ".join([f"{names[v.number]}: {types[v.type]}" for v in op.results])
            head = f"{made} = {head}"
        for i, inner in enumerate(op.blocks):
            args = self.listed(inner)
            given = f" ({args}) {{" if args else " {"
            lines.append(indent + head + given if i == 0 else f"{indent} }}{given}")
            self.block(inner, indent + "  ")
            if inner.yields:
                yields = ", ".join([names[v.number] for v in inner.yields])
                lines.append(f"{indent}  yield {yields}")
        lines.append(indent + ("}" if op.blocks else head))


def _head(kernel: Kernel) -> str:
    params = ", ".join(f"{p.name}: {p.role} {p.dtype}" for p in kernel.params)
    grid = (
        kernel.grid
        if not isinstance(kernel.grid, str)
        else f"ceil({kernel.grid}/{kernel.grid_unit})"
    )
    align = f"align={kernel.align}" if kernel.align != 16 else ""
    batch = f"batch={kernel.batch}" if kernel.batch > 1 else ""
    once = "once=1" if kernel.runs_once else ""
    shown = (f"grid={grid}", str(kernel.schedule), align, batch, once)
    return " ".join([f"kernel {kernel.name}({params})", *(x for x in shown if x)])
