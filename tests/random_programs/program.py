"""Programs as data: typed steps over numbered values, with programs inside programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Type:
    """Shape and dtype of a value."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Step:
    """An operation of `operations.OPERATIONS`, the numbers of its operands, what it makes."""

    op: str
    operands: tuple[int, ...]
    params: dict[str, Any]
    types: tuple[Type, ...]


@dataclass(frozen=True)
class Program:
    """Values are numbered: first the inputs, then the results of each step in turn."""

    inputs: tuple[Type, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def types(self) -> list[Type]:
        return [*self.inputs, *(t for step in self.steps for t in step.types)]

    @property
    def output_types(self) -> tuple[Type, ...]:
        types = self.types
        return tuple(types[i] for i in self.outputs)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def operations(self) -> int:
        """The number of steps, those of inner programs included."""
        return sum(1 + sum(p.operations() for p in inner_programs(s)) for s in self.steps)

    def names(self) -> set[str]:
        """The operations it uses, also in inner programs; kinds of calls by what calls."""
        inner = (p.names() for s in self.steps for p in inner_programs(s))
        return {s.params.get("how", s.op) for s in self.steps}.union(*inner)

    def dtypes(self) -> set[str]:
        """The dtypes of its values, also in inner programs."""
        inner = (p.dtypes() for s in self.steps for p in inner_programs(s))
        return {t.dtype for t in self.types}.union(*inner)


def inner_programs(step: Step) -> list[Program]:
    """The programs that a step's parameters hold."""
    found = []
    for value in step.params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Program):
                found.append(item)
    return found


def _lines(program: Program, indent: str = "") -> list[str]:
    types, n = program.types, len(program.inputs)
    lines = [indent + "{ " + " ".join(f"v{i}:{t}" for i, t in enumerate(program.inputs))]
    for step in program.steps:
        names = " ".join(f"v{n + i}:{t}" for i, t in enumerate(step.types))
        n += len(step.types)
        plain = {k: v for k, v in step.params.items() if not _holds_program(v)}
        given = " ".join(f"{k}={v}" for k, v in plain.items())
        args = " ".join(f"v{i}" for i in step.operands)
        lines.append(f"{indent}  {names} = {step.op}[{given}] {args}")
        for inner in inner_programs(step):
            lines += _lines(inner, indent + "    ")
    assert n == len(types)
    return [*lines, indent + "  return " + " ".join(f"v{i}" for i in program.outputs) + " }"]


def _holds_program(value: Any) -> bool:
    return any(isinstance(v, Program) for v in (value if isinstance(value, tuple) else (value,)))


def run(program: Program, library: Any, inputs: Sequence[Any]) -> list[Any]:
    """The program's results, computed by `library`."""
    from .operations import OPERATIONS

    values = list(inputs)
    for step in program.steps:
        operands = [values[i] for i in step.operands]
        made = OPERATIONS[step.op].run(library, *operands, **step.params)
        made = made if isinstance(made, (tuple, list)) else (made,)
        values += [library.finish(x, t) for x, t in zip(made, step.types, strict=True)]
    return [values[i] for i in program.outputs]


def without_dead_steps(program: Program) -> Program:
    """The program with only the steps that its outputs need."""
    live, n = set(program.outputs), len(program.types)
    kept: list[tuple[int, Step]] = []
    for step in reversed(program.steps):
        n -= len(step.types)
        if live & set(range(n, n + len(step.types))):
            live |= set(step.operands)
            kept.append((n, step))
    return _renumbered(program, kept[::-1], program.outputs)


def _renumbered(program: Program, kept: list[tuple[int, Step]], outputs: Sequence[int]) -> Program:
    number = {i: i for i in range(len(program.inputs))}
    steps, n = [], len(program.inputs)
    for first, step in kept:
        steps.append(replace(step, operands=tuple(number[i] for i in step.operands)))
        for i in range(len(step.types)):
            number[first + i] = n + i
        n += len(step.types)
    return Program(program.inputs, tuple(steps), tuple(number[i] for i in outputs))


def smaller(program: Program) -> list[Program]:
    """Programs to try in place of one that fails: fewer outputs, earlier ends, bypassed steps."""
    tries = []
    if len(program.outputs) > 1:
        tries += [replace(program, outputs=(i,)) for i in program.outputs]
    n = len(program.inputs)
    types = program.types
    for k, step in enumerate(program.steps):
        earlier = n
        n += len(step.types)
        if n < len(types):
            tries.append(Program(program.inputs, program.steps[: k + 1], (n - 1,)))
        for i, t in enumerate(step.types):  # a value of the same type in place of the result
            same = [j for j in range(earlier) if types[j] == t]
            if same:
                tries.append(_replaced(program, earlier + i, same[0]))
        tries += [_with_params(program, k, params) for params in _smaller_params(step)]
    cut = [without_dead_steps(p) for p in tries]
    size = program.operations(), len(program.outputs)
    return sorted(
        (p for p in cut if (p.operations(), len(p.outputs)) < size), key=Program.operations
    )


def _replaced(program: Program, old: int, new: int) -> Program:
    steps = tuple(
        replace(s, operands=tuple(new if i == old else i for i in s.operands))
        for s in program.steps
    )
    return Program(program.inputs, steps, tuple(new if i == old else i for i in program.outputs))


def _with_params(program: Program, k: int, params: dict[str, Any]) -> Program:
    steps = list(program.steps)
    steps[k] = replace(steps[k], params=params)
    return replace(program, steps=tuple(steps))


def _smaller_params(step: Step) -> list[dict[str, Any]]:
    """Parameters whose inner programs are smaller but return the same types."""
    found = []
    for key, value in step.params.items():
        if not _holds_program(value):
            continue
        items = value if isinstance(value, tuple) else (value,)
        for i, item in enumerate(items):
            if not isinstance(item, Program):
                continue
            for less in smaller(item):
                if less.output_types == item.output_types:
                    new = (*items[:i], less, *items[i + 1 :])
                    found.append({**step.params, key: new if isinstance(value, tuple) else less})
    return found
