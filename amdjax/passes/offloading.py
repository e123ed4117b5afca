"""Arguments that stay in the host's memory, of which a GPU has copies while it uses them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from amdjax.core.config import config
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from amdjax.core.sharding import Space
from amdjax.transforms.transfers import transfer

__all__ = ["SMALL", "offload_copy"]

SMALL = 1 << 12  # bytes of arguments up to which a copy costs more than the memory


def offload_copy(closed: ClosedJaxpr, kept: Collection[int] = ()) -> ClosedJaxpr:
    """Under the option `offload_copy`, a program that takes its arguments from the host's memory.

    It copies them to the device as they are used. Twice the largest is there at a time: what was
    read longest ago goes, and is copied again where it is read again. Of what a loop takes step by
    step, it copies a step's part.

    Args:
      closed: the program, calls inlined.
      kept: arguments that stay on the device, as those do whose memory results take over.
    """
    if not config.offload_copy:
        return closed
    hosted = [
        v for i, v in enumerate(closed.jaxpr.invars)
        if i not in kept and v.aval.memory_space is Space.Device and _is_large(v)
    ]  # fmt: skip
    if not hosted:
        return closed
    return closed.replace(jaxpr=_Offloading(closed.jaxpr, hosted).jaxpr())


class _Offloading:
    """A program of which arguments are in the host's memory.

    Attributes:
      sources: what arguments are called in the host's memory.
      copies: on the device, what was read last at the end.
    """

    def __init__(self, jaxpr: Jaxpr, hosted: list[Var]):
        self.program = jaxpr
        self.sources = {v: Var(v.aval.update(memory_space=Space.Host)) for v in hosted}
        self.copies: OrderedDict[Var, Var] = OrderedDict()
        self.room = 2 * max(map(_nbytes, hosted))
        self.eqns: list[JaxprEqn] = []

    def jaxpr(self) -> Jaxpr:
        for eqn in self.program.eqns:
            rows = _rows(eqn)
            body = [i for i in rows if eqn.invars[i] in self.sources]
            if body:
                eqn = self._step_by_step(eqn, body)
            now = {x for i, x in enumerate(eqn.invars) if isinstance(x, Var) and i not in body}
            invars = [self._copied(x, now) if x in now else x for x in eqn.invars]
            self.eqns.append(eqn.replace(invars=invars))
        # Results that are arguments are copied behind everything.
        outvars = [self._copied(x, ()) for x in self.program.outvars]
        invars = [self.sources.get(v, v) for v in self.program.invars]
        return self.program.replace(invars=invars, eqns=self.eqns, outvars=outvars)

    def _copied(self, x: Any, now: Collection[Any]) -> Any:
        """An operand on the device; the others that are read `now` stay there."""
        if not isinstance(x, Var) or x not in self.sources:
            return x
        if x not in self.copies:
            self.copies[x] = Var(x.aval)
            self.eqns.append(transfer(self.sources[x], self.copies[x]))
        self.copies.move_to_end(x)
        for old in [v for v in self.copies if v not in now and v is not x]:
            if sum(map(_nbytes, self.copies)) > self.room:
                del self.copies[old]
        return self.copies[x]

    def _step_by_step(self, eqn: JaxprEqn, rows: list[int]) -> JaxprEqn:
        """A scan that copies parts of its rows as it takes them."""
        closed: ClosedJaxpr = eqn.params["jaxpr"]
        invars = list(closed.jaxpr.invars)
        copies: list[JaxprEqn] = []
        for i in rows:
            row = invars[i]
            invars[i] = Var(row.aval.update(memory_space=Space.Host))
            copies.append(transfer(invars[i], row))
        step = closed.jaxpr.replace(invars=invars, eqns=[*copies, *closed.jaxpr.eqns])
        operands: list[Any] = list(eqn.invars)
        for i in rows:
            operands[i] = self.sources[operands[i]]
        params = {**eqn.params, "jaxpr": closed.replace(jaxpr=step)}
        return eqn.replace(invars=operands, params=params)


def _rows(eqn: JaxprEqn) -> range:
    """Which operands a scan takes step by step."""
    if eqn.primitive.name != "scan":
        return range(0)
    first = eqn.params["num_consts"] + eqn.params["num_carry"]
    return range(first, len(eqn.invars))


def _is_large(v: Var) -> bool:
    """Whether an argument, of known size, is worth a copy."""
    return not isinstance(v.aval.nbytes, Dim) and v.aval.nbytes > SMALL


def _nbytes(v: Var) -> int:
    return v.aval.nbytes
