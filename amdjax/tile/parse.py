"""Text of kernels, as `str(kernel)` writes it, back to the IR."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from amdjax.tile.ir import OPERATIONS, Block, Op, TileError, Value, expect
from amdjax.tile.kernel import Kernel
from amdjax.tile.schedule import Schedule
from amdjax.tile.types import Buffer, TileType

_HEAD = re.compile(r"kernel (?P<name>.*?)\((?P<params>[^)]*)\)(?P<settings>[^{]*)\{")
_GRID = re.compile(r"ceil\((?P<size>\w+)/(?P<unit>\d+)\)")
_SCRATCH = re.compile(r"  (?P<name>[\w.]+): scratch (?P<dtype>\w+)\[(?P<size>\d+)\]")
_VALUE = re.compile(r"%(?P<number>\d+)(?:: (?P<dtype>\w+)(?:\[(?P<shape>[\d,]*)\])?)?")
_OPERATION = re.compile(
    r"(?:(?P<results>%\d+: .*?) = )?(?P<name>\w+)(?P<attrs>(?: (?!%|\(%|\{)"
    r"(?:\w+=\([^()]*\)|\((?:[^()]|\([^()]*\))*\)|[^ ()]+(?:\([^()]*\))?))*)"
    r"(?: (?P<operands>%\d+(?:, %\d+)*))?(?P<rest>.*)"
)
_PAIR = r"\((?:[^()]|\([^()]*\))*\)"
_ATTRIBUTE = re.compile(rf"(\w+)=(\([^()]*\)|\S+)|{_PAIR} {_PAIR}|\S+")
_OPENING = re.compile(r" ?(?:\((?P<args>%[^{]*)\) )?\{|")


def parse_kernel(text: str) -> Kernel:
    """The kernel that prints as `text`.

    Args:
      text: what `str(kernel)` gives; estimates of time are not in it.

    Returns:
      The kernel, not yet verified.

    Raises:
      TileError: the text is none of a kernel; the message names the line.
    """
    return _Parser(text.splitlines()).kernel()


class _Parser:
    def __init__(self, lines: Sequence[str]):
        self.lines, self.at = lines, 0
        self.buffers: dict[str, Buffer] = {}
        self.values: dict[int, Value] = {}

    def kernel(self) -> Kernel:
        m = _HEAD.fullmatch(self._next())
        self._expect(m is not None, "a kernel begins with its parameters")
        assert m is not None
        params = [self._declared(x) for x in m["params"].split(", ") if x]
        settings = dict(x.split("=", 1) for x in m["settings"].split())
        grid, unit = self._grid(settings.pop("grid"))
        align, batch = (int(settings.pop(x, n)) for x, n in (("align", "16"), ("batch", "1")))
        once = settings.pop("once", "") == "1"
        schedule = Schedule(**{name: int(x) for name, x in settings.items()})
        scratch = []
        while (found := _SCRATCH.fullmatch(self._line())) is not None:
            self._next()
            buffer = Buffer(found["name"], found["dtype"], "scratch", int(found["size"]))
            scratch.append(buffer)
            self.buffers[buffer.name] = buffer
        body = self._block([])
        self._expect(self._next() == "}", "a kernel ends with a brace")
        return Kernel(
            m["name"], params, scratch, body, grid, unit, 0.0, schedule, align, batch,
            runs_once=once,
        )  # fmt: skip

    def _grid(self, text: str) -> tuple[int | str, int]:
        m = _GRID.fullmatch(text)
        return (int(text), 1) if m is None else (m["size"], int(m["unit"]))

    def _declared(self, text: str) -> Buffer:
        name, _, kind = text.partition(": ")
        role, _, dtype = kind.partition(" ")
        self._expect(bool(name and role and dtype), f"{text!r} is no parameter")
        self.buffers[name] = Buffer(name, dtype, role)
        return self.buffers[name]

    # Lines

    def _line(self) -> str:
        self._expect(self.at < len(self.lines), "the text ends within a kernel")
        return self.lines[self.at]

    def _next(self) -> str:
        line = self._line()
        self.at += 1
        return line

    def _expect(self, condition: bool, message: str) -> None:
        expect(condition, "line {}: {}", self.at, message)

    # Values

    def _made(self, text: str) -> list[Value]:
        """Values that begin to be, with their types."""
        made = []
        for m in _VALUE.finditer(text):
            self._expect(m["dtype"] is not None, f"{m[0]} has no type")
            shape = tuple(int(n) for n in (m["shape"] or "").split(",") if n)
            number = int(m["number"])
            self._expect(number not in self.values, f"%{number} is there already")
            v = self.values[number] = Value(None, number, TileType(m["dtype"], shape))
            made.append(v)
        return made

    def _used(self, text: str) -> tuple[Value, ...]:
        numbers = [int(x.strip().removeprefix("%")) for x in text.split(",") if x.strip()]
        for n in numbers:
            self._expect(n in self.values, f"%{n} is not there")
        return tuple(self.values[n] for n in numbers)

    # Operations

    def _block(self, args: list[Value]) -> Block:
        block = Block(args)
        while not (line := self._line().lstrip()).startswith("}"):
            self._next()
            if line.startswith("yield "):
                block.yields = self._used(line.removeprefix("yield "))
            else:
                block.ops.append(self._operation(line))
        return block

    def _operation(self, line: str) -> Op:
        m = _OPERATION.fullmatch(line)
        self._expect(m is not None and m["name"] in OPERATIONS, f"{line!r} is no operation")
        assert m is not None
        kind = OPERATIONS[m["name"]]
        operands = self._used(m["operands"] or "")
        attrs = self._attributes(kind, m["attrs"])
        blocks = self._blocks(m["rest"])
        results = tuple(self._made(m["results"] or ""))
        return kind(operands, attrs, results, blocks)

    def _blocks(self, opening: str) -> tuple[Block, ...]:
        blocks = []
        while (m := _OPENING.fullmatch(opening)) is not None and opening:
            blocks.append(self._block(self._made(m["args"] or "")))
            opening = self._next().lstrip().removeprefix("}")
        self._expect(not opening, f"{opening!r} stands behind an operation")
        return tuple(blocks)

    def _attributes(self, kind: type[Op], text: str) -> dict[str, Any]:
        named = {a.name: a for a in kind.attributes if not a.positional}
        places = [a for a in kind.attributes if a.positional]
        attrs: dict[str, Any] = {}
        for m in _ATTRIBUTE.finditer(text):
            try:
                if m[1] in named:
                    attrs[m[1]] = named[m[1]].read(m[2], self.buffers)
                elif places:
                    attribute = places.pop(0)
                    attrs[attribute.name] = attribute.read(m[0], self.buffers)
                else:
                    raise TileError(f"{kind.name} has no attribute {m[0]!r}")
            except (ValueError, KeyError, SyntaxError) as e:
                raise TileError(f"line {self.at}: {m[0]!r} of {kind.name}: {e}") from e
        missing = [a.name for a in kind.attributes if a.required and a.name not in attrs]
        self._expect(not missing, f"{kind.name} lacks {', '.join(missing)}")
        return attrs
