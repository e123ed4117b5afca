"""Arguments and residuals that stay in the host's memory, of which a GPU has copies to use."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from amdjax.core.config import config
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from amdjax.core.sharding import Space
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.liveness import Liveness
from amdjax.transforms.transfers import device_put_p, transfer

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
    return closed.replace(jaxpr=_Offloading(closed.jaxpr, dict.fromkeys(hosted, -1)).jaxpr())


def offload_residuals(
    closed: ClosedJaxpr, lives: Liveness, held: Collection[Var], passed: Collection[Var],
    share: float,
) -> tuple[ClosedJaxpr, int]:  # fmt: skip
    """A program that has some of what is in memory at its peak in the host's, until it is read.

    What a scan stacks and another takes goes and comes step by step. Those values go first that
    come back last, as there is most time for them.

    Args:
      closed: the program after other passes.
      lives: where its values are made and read.
      held, passed: those that have memory, and that are no more than read, as in `Liveness`.
      share: of the bytes that may go, how many do.

    Returns:
      The program, and how many bytes go and come back.
    """
    leaving = _leaving(closed, lives, held, passed)
    room = share * sum(map(_nbytes, leaving))
    chosen: dict[Var, int] = {}
    for v in sorted(leaving, key=lambda v: lives.last[v], reverse=True):
        if room > 0:
            chosen[v] = leaving[v]
            room -= _nbytes(v)
    if not chosen:
        return closed, 0
    away = closed.replace(jaxpr=_Offloading(closed.jaxpr, chosen, passed).jaxpr())
    return eliminate_dead_code(away), sum(map(_nbytes, chosen))


def _leaving(
    closed: ClosedJaxpr, lives: Liveness, held: Collection[Var], passed: Collection[Var]
) -> dict[Var, int]:
    """Large values over the peak that nothing there needs, and the last readers before it."""
    top, _ = lives.peak()
    results = set(closed.jaxpr.outvars)
    roots = _roots(closed.jaxpr, held, passed)
    readers: dict[Var, list[int]] = defaultdict(list)
    for i, eqn in enumerate(closed.eqns):
        rows = _rows(eqn)
        for n, x in enumerate(eqn.invars):
            for v in roots.get(x, ()) if isinstance(x, Var) else ():
                if i != top or n not in rows or x is not v:
                    readers[v].append(i)
    found = {}
    for v in held:
        made = lives.made.get(v, top)
        is_there = made < top or (made == top and v in _stacked(closed.eqns[top]))
        over = is_there and lives.last[v] >= top and top not in readers[v]
        if over and v not in results and _is_large(v) and v.aval.memory_space is Space.Device:
            found[v] = max((i for i in readers[v] if i < top), default=made)
    return found


def _roots(
    jaxpr: Jaxpr, held: Collection[Var], passed: Collection[Var]
) -> dict[Var, frozenset[Var]]:
    """Of what has memory, what a reader of a value reads."""
    roots = {v: frozenset((v,)) for v in held}
    for eqn in jaxpr.eqns:
        if any(v in passed for v in eqn.outvars):
            read = [roots.get(x, frozenset()) for x in eqn.invars if isinstance(x, Var)]
            for v in eqn.outvars:
                roots[v] = roots.get(v, frozenset()).union(*read)
    return roots


class _Offloading:
    """A program of which values are in the host's memory.

    Args:
      jaxpr: the program.
      leaving: values, and behind which equation they leave the device; arguments behind -1.
      passed: values that are computed where they are read.

    Attributes:
      sources: what values are called in the host's memory that have left.
      copies: on the device, what was read last at the end; they have `copied_bytes`.
      copied: what values are copies of that is in the host's memory.
      gone: for values that are computed where they are read, of which values that had left.
    """

    def __init__(self, jaxpr: Jaxpr, leaving: Mapping[Var, int], passed: Collection[Var] = ()):
        self.program, self.leaving = jaxpr, leaving
        self.sources: dict[Var, Var] = {}
        self.copies: OrderedDict[Var, Var] = OrderedDict()
        self.copied_bytes = 0
        self.room = 2 * max(map(_nbytes, leaving))
        self.roots = _roots(jaxpr, leaving, passed) if passed else {}
        self.made = {v: e for e in jaxpr.eqns for v in e.outvars if v in passed and v in self.roots}
        self.gone: dict[Var, frozenset[Var]] = {}
        self.copied: dict[Var, Any] = {
            e.outvars[0]: e.invars[0] for e in jaxpr.eqns if _is_fetch(e)
        }
        self.eqns: list[JaxprEqn] = []

    def jaxpr(self) -> Jaxpr:
        after: dict[int, list[Var]] = defaultdict(list)
        for v, i in self.leaving.items():
            after[i].append(v)
        self.sources.update((v, _in_host(v)) for v in after[-1])
        for i, eqn in enumerate(self.program.eqns):
            rows = [n for n in _rows(eqn) if eqn.invars[n] in self.sources]
            if rows:
                eqn = self._step_by_step(eqn, rows)
            now = {x for n, x in enumerate(eqn.invars) if isinstance(x, Var) and n not in rows}
            made: dict[Var, Var] = {}
            invars = [self._operand(x, now, made) if x in now else x for x in eqn.invars]
            eqn = eqn.replace(invars=invars)
            stacked = [v for v in after[i] if v in _stacked(eqn)]
            self.sources.update((v, self.copied.get(v) or _in_host(v)) for v in after[i])
            self.eqns.append(self._stacking(eqn, stacked) if stacked else eqn)
            leaving = [v for v in after[i] if v not in self.copied and v not in stacked]
            self.eqns += [transfer(v, self.sources[v]) for v in leaving]
            for v in eqn.outvars:
                if v in self.made:
                    self.gone[v] = self.roots[v] & self.sources.keys()
        # Results that are arguments are copied behind everything.
        outvars = [self._operand(x, (), {}) for x in self.program.outvars]
        invars = [self.sources.get(v, v) for v in self.program.invars]
        return self.program.replace(invars=invars, eqns=self.eqns, outvars=outvars)

    def _operand(self, x: Any, now: Collection[Any], made: dict[Var, Var]) -> Any:
        """An operand on the device, of an equation that reads those of `now`.

        What is computed where it is read, of a value that has left, is computed of its copy;
        `made` has what was for this equation.
        """
        todo = [x] if isinstance(x, Var) else []
        while todo:
            v = todo[-1]
            eqn = self.made.get(v)
            if v in made or eqn is None or self._is_current(v):
                todo.pop()
            elif missing := [i for i in eqn.invars if isinstance(i, Var) and i in self.made
                             and i not in made and not self._is_current(i)]:  # fmt: skip
                todo += missing
            else:
                invars = [made.get(i) or self._copied(i, now) if isinstance(i, Var) else i
                          for i in eqn.invars]  # fmt: skip
                made.update((o, Var(o.aval)) for o in eqn.outvars)
                self.eqns.append(eqn.replace(invars=invars, outvars=[made[o] for o in eqn.outvars]))
        return made[x] if isinstance(x, Var) and x in made else self._copied(x, now)

    def _is_current(self, v: Var) -> bool:
        """Whether what has left since a value was computed where it is read is not read by it."""
        return self.roots[v] & self.sources.keys() <= self.gone.get(v, frozenset())

    def _copied(self, x: Any, now: Collection[Any]) -> Any:
        """An operand on the device; the others that are read `now` stay there."""
        if not isinstance(x, Var) or x not in self.sources:
            return x
        if x not in self.copies:
            self.copies[x] = Var(x.aval)
            self.copied_bytes += _nbytes(x)
            self.eqns.append(transfer(self.sources[x], self.copies[x]))
        self.copies.move_to_end(x)
        if self.copied_bytes > self.room:
            for old in [v for v in self.copies if v not in now and v is not x]:
                if self.copied_bytes > self.room:
                    self.copied_bytes -= _nbytes(old)
                    del self.copies[old]
        return self.copies[x]

    def _stacking(self, eqn: JaxprEqn, stacked: list[Var]) -> JaxprEqn:
        """A scan that puts there, step by step, what it stacks."""
        closed: ClosedJaxpr = eqn.params["jaxpr"]
        places = [i for i, v in enumerate(eqn.outvars) if v in stacked]
        outvars, results = list(closed.jaxpr.outvars), list(eqn.outvars)
        copies: list[JaxprEqn] = []
        for i in places:
            row = outvars[i]
            assert isinstance(row, Var)  # as `_stacked` has it
            results[i], outvars[i] = self.sources[eqn.outvars[i]], (there := _in_host(row))
            copies.append(transfer(row, there))
        step = closed.jaxpr.replace(eqns=[*closed.jaxpr.eqns, *copies], outvars=outvars)
        params = {**eqn.params, "jaxpr": closed.replace(jaxpr=step)}
        return eqn.replace(outvars=results, params=params)

    def _step_by_step(self, eqn: JaxprEqn, rows: list[int]) -> JaxprEqn:
        """A scan that copies parts of its rows as it takes them."""
        closed: ClosedJaxpr = eqn.params["jaxpr"]
        invars = list(closed.jaxpr.invars)
        copies: list[JaxprEqn] = []
        for i in rows:
            row, invars[i] = invars[i], _in_host(invars[i])
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


def _stacked(eqn: JaxprEqn) -> list[Var]:
    """What a scan computes step by step and stacks."""
    if eqn.primitive.name != "scan":
        return []
    first = eqn.params["num_carry"]
    made = zip(eqn.outvars[first:], eqn.params["jaxpr"].jaxpr.outvars[first:], strict=True)
    return [v for v, row in made if isinstance(row, Var)]


def _is_fetch(eqn: JaxprEqn) -> bool:
    """Whether an equation copies a value from the host's memory to the device."""
    if eqn.primitive is not device_put_p or len(eqn.invars) != 1:
        return False
    spaces = [v.aval.memory_space for v in (eqn.invars[0], eqn.outvars[0])]
    return spaces == [Space.Host, Space.Device]


def _in_host(v: Var) -> Var:
    return Var(v.aval.update(memory_space=Space.Host))


def _is_large(v: Var) -> bool:
    """Whether a value, of known size, is worth a copy."""
    return not isinstance(v.aval.nbytes, Dim) and v.aval.nbytes > SMALL


def _nbytes(v: Var) -> int:
    return v.aval.nbytes
