"""Steps that differ in nothing but the variables they read and write are lowered once.

The blocks of a network repeat. Lowering a step writes a tile program, which takes longer than
anything else the compiler does in Python, so the launches of a step are remembered by what it
computes: its equations with variables numbered in the order in which they are met. The next such
step gets the same kernels with its own variables as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from amdjax.core.dims import divisor
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.kernels.shaped import ShapedContext
from amdjax.schedule.calls import Call, Copy
from amdjax.schedule.domain import region_producers
from amdjax.schedule.fusion import Fusion, Region, Single
from amdjax.schedule.gpu.partition import Resident

Calls = Sequence[Call | Copy]
Producers = Callable[[Var], JaxprEqn | None]


class Repeats:
    """The launches of the steps that a program had so far.

    Args:
      by_line: whether kernels say which line of the user they are made from, so that steps written
        on different lines are different.
    """

    def __init__(self, by_line: bool) -> None:
        self.by_line = by_line
        self._known: dict[Any, tuple[Calls, dict[Var, int]]] = {}

    def region(
        self,
        region: Region,
        fusion: Fusion,
        resident: Resident | None,
        lower: Callable[[], Calls],
    ) -> Calls:
        """The launches of a region, from `lower` if it has no equal."""
        roots = [r for part in region.parts for r in part.roots]
        own = {v: r.eqn for r in roots for v in r.vars}

        def producer(v: Var) -> JaxprEqn | None:
            return own.get(v) or (fusion.producers.get(v) if v not in fusion.roots else None)

        step = _Step(producer, self.by_line)
        for r in roots:
            step.code.append((r.domain, r.axes, r.level, r.row, r.cost))
            step.code += [(step.number(v), v in fusion.stored) for v in r.vars]
        sizes = fusion.launch_sizes(region)
        step.code.append((region.domain, region.axes, sum(sizes), divisor(*sizes), resident))
        return self._calls(step, lower)

    def single(self, single: Single, ctx: ShapedContext, lower: Callable[[], Calls]) -> Calls:
        """The launches of a shaped kernel and what is fused behind it."""
        epilogue, computed, sums = ctx.epilogue, ctx.computed, ctx.sums
        producers = {**epilogue.producers} if epilogue else {}
        producers |= computed.producers if computed else {}
        roots = sums.region.roots if sums else []
        producers |= region_producers(sums.region, sums.fusion) if sums else {}
        producers |= {v: r.eqn for r in roots for v in r.vars}
        step = _Step(producers.get, self.by_line)
        step.equation(single.eqn)
        step.code.append((ctx.resident, *(x in ctx.fixed for x in single.eqn.invars)))
        step.code += [tuple(x.aval for x in e.invars) for e in ctx.neighbors]
        # A product whose results nothing reads writes nothing, unlike one that nothing is behind.
        step.code.append(None if epilogue is None else len(epilogue.stored))
        for v in epilogue.stored if epilogue else ():
            step.code.append(step.number(v))
        for r in roots:
            step.code.append((r.domain, r.axes, r.level, r.row))
            step.code += [(step.number(v), sums and v in sums.fusion.stored) for v in r.vars]
        return self._calls(step, lower)

    def _calls(self, step: _Step, lower: Callable[[], Calls]) -> Calls:
        key = tuple(step.code)
        try:
            found = self._known.get(key)
        except TypeError:  # a parameter that cannot be hashed
            return lower()
        if found is not None:
            calls, numbers = found
            by_number = list(step.numbers)
            return [_renamed(c, lambda v: by_number[numbers[v]]) for c in calls]
        calls = lower()
        if all(v in step.numbers for c in calls for v in _variables(c)):
            self._known[key] = calls, step.numbers
        return calls


class _Step:
    """Describes what a step computes, variables by number.

    Args:
      producer: the equation that is computed inside the step to make a variable, if any.
      by_line: as for `Repeats`.
    """

    def __init__(self, producer: Producers, by_line: bool):
        self.producer, self.by_line = producer, by_line
        self.numbers: dict[Var, int] = {}
        self.code: list[Any] = []

    def number(self, atom: Any) -> Any:
        """What stands for an atom in the description."""
        if isinstance(atom, Literal):
            value = np.asarray(atom.val, dtype=atom.aval.dtype)
            return value.tobytes(), atom.aval
        found = self.numbers.get(atom)
        if found is None:
            eqn = self.producer(atom)
            if eqn is not None:
                self.equation(eqn)
            else:
                self._name(atom)
            found = self.numbers[atom]
        return found

    def equation(self, eqn: JaxprEqn) -> None:
        """Describe an equation that the step computes."""
        operands = [self.number(x) for x in eqn.invars]
        self.code.append((eqn.primitive, *operands))
        self.code += [(k, _exact(eqn.params[k])) for k in eqn.params]
        if self.by_line:
            self.code.append((eqn.source.file, eqn.source.line))
        for v in eqn.outvars:
            self._name(v)

    def _name(self, var: Var) -> None:
        self.numbers[var] = len(self.numbers)
        self.code.append((type(var), var.aval))


def _exact(x: Any) -> Any:
    """A parameter as a key that tells 1, 1.0 and True apart, and the zeros."""
    if isinstance(x, (tuple, list)):
        return type(x), *map(_exact, x)
    return type(x), repr(x) if isinstance(x, (float, complex)) else x


def _variables(call: Call | Copy) -> Iterable[Var]:
    atoms = [call.source, call.result] if isinstance(call, Copy) else call.args
    return (a for a in atoms if isinstance(a, Var))


def _renamed(call: Call | Copy, rename: Callable[[Var], Var]) -> Call | Copy:
    """The same launch on other variables."""

    def name(x: Any) -> Any:
        return rename(x) if isinstance(x, Var) else x

    if isinstance(call, Copy):
        return Copy(name(call.source), name(call.result))
    return replace(call, args=[name(x) for x in call.args])


__all__ = ["Repeats"]
