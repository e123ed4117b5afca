"""Values that are computed again where they are read late, so that less is in memory at once.

A training step keeps what its gradient reads from the forward pass until the backward pass comes
by. Here the equations up to where most is in memory are cut into segments, and what is read of a
segment after that is computed again from what the segment was given, right before it is first
read: what `checkpoint` does for a function, for any stretch of a program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Var
from amdjax.passes.barriers import BARRIER, barrier
from amdjax.passes.liveness import Liveness

#: Nanoseconds that an equation takes once more; infinite for one that may not run again.
Cost = Callable[[JaxprEqn], float]

PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
MANY = (8, 24)  # segments of cheap values, with or without which others are computed again
SHARES = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)


class Candidate(NamedTuple):
    """A program that computes values again.

    Attributes:
      program: the program.
      nanoseconds: of what it computes again.
      peak: bytes in memory at once, by estimate.
      changes: the passes that made it, and what each gave.
    """

    program: ClosedJaxpr
    nanoseconds: float
    peak: int
    changes: tuple[tuple[str, ClosedJaxpr], ...] = ()


def candidates(
    closed: ClosedJaxpr, held: Collection[Var], passed: Collection[Var], cost: Cost,
    is_cheap: Callable[[JaxprEqn], bool], inside: Callable[[JaxprEqn], int] = lambda eqn: 0,
) -> list[Candidate]:  # fmt: skip
    """Programs that compute values again, each in another number of segments.

    Args:
      closed: the program after other passes.
      held, passed, inside: what is in memory, as in `Liveness`.
      cost: of equations.
      is_cheap: whether an equation is computed again before others are.

    Returns:
      The programs that need less memory than this one and less than all that cost less, cheapest
      first.
    """
    if not closed.eqns:
        return []
    start = _Program(list(closed.eqns), closed, set(held), set(passed), inside)
    cheap = lambda eqn: cost(eqn) if is_cheap(eqn) else math.inf
    found = [start]
    bases = [start]
    for parts in PARTS:
        again = start.with_segments(parts, 1.0, cheap)
        found.append(again)
        bases += [again] if parts in MANY else []
    for base in bases:
        found += [base.with_segments(n, share, cost) for n in PARTS for share in SHARES]
    best = with_less(start, found)[1:]
    return [Candidate(p.closed_now(), p.nanoseconds, p.peak) for p in best]


def with_less(first: Any, found: Iterable[Any]) -> list[Any]:
    """A program, and of others those that need less memory than all that cost less."""
    best: list[Any] = [first]
    for p in sorted(found, key=lambda p: (p.nanoseconds, p.peak)):
        if p.peak < best[-1].peak:
            best.append(p)
    return best


@dataclass
class _Segment:
    """What is computed again of a stretch of the program.

    Attributes:
      at: the equation before which it is computed again.
      wanted: the values that are read from there on.
      chain: places of the equations that make them.
      inputs: what these read that they do not make.
    """

    at: int
    wanted: list[Var]
    chain: list[int]
    inputs: list[Var]


@dataclass
class _Program:
    eqns: list[JaxprEqn]
    closed: ClosedJaxpr
    held: set[Var]
    passed: set[Var]
    inside: Callable[[JaxprEqn], int]
    nanoseconds: float = 0.0
    lives: Liveness = field(init=False)

    def __post_init__(self) -> None:
        jaxpr = self.closed.jaxpr
        self.results = {v for v in jaxpr.outvars if isinstance(v, Var)}
        self.lives = Liveness(self.eqns, self.results, self.held, self.passed, self.inside)
        self.top, self.peak = self.lives.peak()

    def closed_now(self) -> ClosedJaxpr:
        return self.closed.replace(jaxpr=self.closed.jaxpr.replace(eqns=self.eqns))

    def with_segments(self, parts: int, share: float, cost: Cost) -> _Program:
        """The program with a share of what is held over the peak computed again, in parts."""
        late = self._late_reads()
        edges = self._edges(late, parts, share)
        segments: list[_Segment] = []
        kept: set[Var] = set()  # what later segments are computed from
        for start, end in zip(edges[-2::-1], edges[:0:-1], strict=True):
            segment = self._segment(start, end, late, kept, cost)
            if segment is not None:
                kept.update(segment.inputs)
                segments.append(segment)
        return self._with(segments, cost)

    def _late_reads(self) -> dict[Var, int]:
        """Where what is made up to the peak is first read after it."""
        late: dict[Var, int] = {}
        for i in range(self.top + 1, len(self.eqns)):
            for x in self.eqns[i].invars:
                if isinstance(x, Var) and self.lives.made.get(x, len(self.eqns)) <= self.top:
                    late.setdefault(x, i)
        return late

    def _edges(self, late: dict[Var, int], parts: int, share: float) -> list[int]:
        """Where segments begin and end: about equal in what is held of each, and narrow there."""
        before = Liveness(self.eqns[: self.top + 1], (), self.held, self.passed).sizes
        over = [0] * (self.top + 2)
        for v in late:
            if v in self.held and v not in self.results:
                over[self.lives.made[v] + 1] += v.aval.nbytes
        for i in range(1, len(over)):
            over[i] += over[i - 1]
        whole = share * over[-1] / parts
        edges = [0]
        for k in range(1, parts + 1):
            aim = k * whole
            near = [
                i for i in range(edges[-1] + 1, self.top + 2) if abs(over[i] - aim) <= whole / 2
            ]
            if near:
                edges.append(min(near, key=lambda i: abs(over[i] - aim) + before[i - 1]))
        return edges

    def _segment(
        self, start: int, end: int, late: dict[Var, int], kept: Collection[Var], cost: Cost
    ) -> _Segment | None:
        """What is computed again of equations from `start` on, before `end`; None for nothing."""
        wanted = [
            v
            for i in range(start, end)
            for v in self.eqns[i].outvars
            if v in late and v not in kept and v not in self.results and v.aval.shape
            and not math.isinf(cost(self.eqns[i]))
        ]  # fmt: skip
        if not any(v in self.held for v in wanted):
            return None
        at = min(late[v] for v in wanted)
        chain: set[int] = set()
        inputs: dict[Var, None] = {}
        todo = list(wanted)
        while todo:
            v = todo.pop()
            i = self.lives.made.get(v)
            inside = i is not None and (start <= i < end or v in self.passed)
            if i is None or not inside or v in kept or math.isinf(cost(self.eqns[i])):
                inputs[v] = None
            elif i not in chain:
                chain.add(i)
                todo += [x for x in self.eqns[i].invars if isinstance(x, Var)]
        return _Segment(at, wanted, sorted(chain), list(inputs))

    def _with(self, segments: Sequence[_Segment], cost: Cost) -> _Program:
        """The program that computes segments again."""
        copies: dict[int, list[JaxprEqn]] = {}
        renamed: list[tuple[int, dict[Var, Var]]] = []
        held, passed, nanoseconds = set(self.held), set(self.passed), self.nanoseconds
        for s in segments:
            eqns, names = self._copied(s)
            copies.setdefault(s.at, []).extend(eqns)
            renamed.append((s.at, {v: names[v] for v in s.wanted}))
            held.update(names[v] for v in names if v in self.held)
            passed.update(names[v] for v in names if v in self.passed)
            held.update(v for v in s.inputs if v in self.lives.made)
            passed.difference_update(s.inputs)
            nanoseconds += sum(cost(self.eqns[i]) for i in s.chain)
        out: list[JaxprEqn] = []
        now: dict[Var, Var] = {}
        for i, eqn in enumerate(self.eqns):
            for at, table in renamed:
                if at == i:
                    now.update(table)
            out += copies.get(i, ())
            invars = [now.get(x, x) if isinstance(x, Var) else x for x in eqn.invars]
            out.append(eqn.replace(invars=invars))
        passed.update(v for e in out if e.primitive.name == BARRIER for v in e.outvars)
        return replace(self, eqns=out, held=held, passed=passed, nanoseconds=nanoseconds)

    def _copied(self, s: _Segment) -> tuple[list[JaxprEqn], dict[Var, Var]]:
        """A segment's equations once more, behind a barrier, and the names of what they make."""
        arrays = [v for v in s.inputs if v.aval.shape]  # numbers are at hand
        newest = range(s.at - 1, self.top, -1)
        before = (v for i in newest for v in self.eqns[i].outvars if v in self.held)
        wall, inputs = barrier(arrays, [v for v in before if v.aval.shape][:1])
        table = dict(zip(arrays, inputs, strict=True))
        names: dict[Var, Var] = {}
        eqns = [wall]
        for i in s.chain:
            eqn = self.eqns[i]
            invars = [
                table.get(x, names.get(x, x)) if isinstance(x, Var) else x for x in eqn.invars
            ]
            names.update((v, Var(v.aval)) for v in eqn.outvars)
            eqns.append(eqn.replace(invars=invars, outvars=[names[v] for v in eqn.outvars]))
        return eqns, names
