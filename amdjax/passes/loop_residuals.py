"""What one `scan` stacks for another to read, computed in the other where that costs less.

The gradient of a loop reads what the loop stacked at each step. Some of that follows from the rest
by a few operations on elements: `s * (1 - s)`, the slope of a logistic function, from `s`. The loop
that reads it then computes it, and it is neither written nor read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

from amdjax.core.jaxpr import Atom, ClosedJaxpr, DropVar, JaxprEqn, Literal, Var
from amdjax.passes.flatten import flatten_calls

#: Additions to an element that take less time than a byte of it takes to be written and read.
ADDITIONS = 1.0

Cost = Callable[[JaxprEqn], float]


def recompute_in_loops(closed: ClosedJaxpr, cost: Cost) -> ClosedJaxpr:
    """Let loops compute cheaply what they would read of other loops.

    Args:
      closed: the program.
      cost: of computing an element that an equation makes again, in additions; infinite where that
        cannot be or is not worth it.
    """
    eqns, jaxpr = list(closed.eqns), closed.jaxpr
    for j, i in loop_pairs(closed):
        later = {x for e in eqns[i + 1 :] for x in e.invars if isinstance(x, Var)}
        alive = later.union(jaxpr.invars, jaxpr.constvars, jaxpr.outvars)
        pair = LoopPair(eqns[j], eqns[i], alive, uses_of(eqns, jaxpr.outvars), cost)
        if pair.choose():
            eqns[j], eqns[i] = pair.writing(), pair.reading()
    return closed.replace(jaxpr=jaxpr.replace(eqns=eqns))


def loop_pairs(closed: ClosedJaxpr) -> list[tuple[int, int]]:
    """Places of loops without effects, the second of which reads what the first stacks."""
    eqns = closed.eqns
    loops = [i for i, e in enumerate(eqns) if e.primitive.name == "scan" and not e.effects]
    return [
        (j, i)
        for place, i in enumerate(loops)
        for j in loops[:place]
        if not {*_xs(eqns[i])}.isdisjoint(eqns[j].outvars)
    ]


def uses_of(eqns: Iterable[JaxprEqn], results: Iterable[Atom]) -> Counter[Var]:
    """How often values are read."""
    uses = Counter(x for e in eqns for x in e.invars if isinstance(x, Var))
    uses.update(x for x in results if isinstance(x, Var))
    return uses


def _xs(scan: JaxprEqn) -> list[Var]:
    first = scan.params["num_consts"] + scan.params["num_carry"]
    return [x for x in scan.invars[first:] if isinstance(x, Var)]


class LoopPair:
    """A loop that stacks, and one that reads.

    Args:
      writer, reader: the two loops.
      alive: values that are in memory while the reader runs, or may be.
      uses: how often values are read.
      cost: of an element, in additions.
    """

    def __init__(
        self, writer: JaxprEqn, reader: JaxprEqn, alive: Collection[Any], uses: Counter[Var],
        cost: Cost,
    ):  # fmt: skip
        self.writer, self.reader, self.cost = writer, reader, cost
        self.step = flatten_calls(writer.params["jaxpr"])
        consts, count = writer.params["num_consts"], writer.params["num_carry"]
        inner, xs = self.step.jaxpr.invars, Counter(_xs(reader))
        #: The places of the equations that make values; carried values are made before all.
        self.order = {v: i for i, e in enumerate(self.step.eqns) for v in e.outvars}
        self.order.update(dict.fromkeys(inner[consts : consts + count], -1))
        self.consts = {*inner[:consts]}
        near = {*alive, *reader.invars[: reader.params["num_consts"]], *xs}
        #: Values of the writer's step that the reader has anyway, and where they are.
        self.present: dict[Var, Atom] = {
            v: x
            for i, (v, x) in enumerate(zip(inner, writer.invars, strict=True))
            if not consts <= i < consts + count and (isinstance(x, Literal) or x in near)
        }
        #: Values of the writer's step that it stacks.
        self.stacked: dict[Var, Var] = {}
        own: set[Var] = set()
        outs = self.step.jaxpr.outvars[count:]
        for v, y in zip(outs, writer.outvars[count:], strict=True):
            if not isinstance(v, Var) or type(y) is DropVar:
                continue
            if uses[y] == xs[y] == 1 and v not in self.stacked:
                own.add(v)
            elif y in near:
                self.present.setdefault(v, y)
            self.stacked.setdefault(v, y)
        #: Those that it stacks for the reader alone.
        self.own = own - self.present.keys()

    def choose(self) -> bool:
        """Find what to stack for the reader; whether that is other than before."""
        self.kept = self._without_cheap(self.own)
        while (fewer := self._with_another()) is not None:
            self.kept = fewer
        return self.kept != self.own

    def _without_cheap(self, kept: set[Var]) -> set[Var]:
        """Those of some values that do not follow cheaply from the others."""
        for v in sorted(kept & self.order.keys(), key=self.order.__getitem__, reverse=True):
            steps = self._steps(v, kept - {v})
            additions = sum(self.cost(e) * e.outvars[0].aval.size for e in steps)
            if steps and additions <= ADDITIONS * v.aval.nbytes:
                kept = kept - {v}
        return kept

    def _with_another(self) -> set[Var] | None:
        """Fewer bytes to stack by one value more, from which others follow; None without."""
        follow: Counter[Var] = Counter()
        for v in self.kept:
            above = self._above(v) - self.kept - self.present.keys() - {v}
            made = (x for x in above if self.order.get(x, -1) >= 0)
            follow.update(dict.fromkeys(made, v.aval.nbytes))
        for v in sorted(follow, key=self.order.__getitem__):
            if follow[v] > v.aval.nbytes:
                fewer = self._without_cheap(self.kept | {v})
                if v in fewer and nbytes(fewer) < nbytes(self.kept):
                    return fewer
        return None

    def _maker(self, v: Atom) -> JaxprEqn | None:
        """The equation that makes a value, if it is cheap."""
        at = self.order.get(v, -1) if isinstance(v, Var) else -1
        eqn = self.step.eqns[at] if at >= 0 else None
        costly = eqn is None or self.cost(eqn) > ADDITIONS * v.aval.dtype.itemsize
        return None if costly else eqn

    def _above(self, v: Var) -> set[Var]:
        """What a value is made of by cheap equations."""
        found, todo = {v}, [v]
        while todo:
            eqn = self._maker(todo.pop())
            operands = () if eqn is None else eqn.invars
            new = {x for x in operands if isinstance(x, Var)} - found
            found |= new
            todo += new
        return found

    def frontier(self) -> set[Var]:
        """Values of a step from which all that the reader alone reads follows cheaply."""
        kept: set[Var] = set()
        todo: list[Atom] = list(self.own)
        seen: set[Var] = set()
        while todo:
            v = todo.pop()
            if isinstance(v, Literal) or v in seen or v in self.present:
                continue
            seen.add(v)
            eqn = self._maker(v)
            if eqn is None:
                kept.add(v)
            else:
                todo += eqn.invars
        return kept

    def _steps(self, v: Var, kept: set[Var]) -> list[JaxprEqn]:
        """The equations that make a value from those kept; none where it cannot be made so."""
        steps: dict[int, JaxprEqn] = {}
        todo: list[Atom] = [v]
        while todo:
            x = todo.pop()
            if isinstance(x, Literal) or x in kept or x in self.present:
                continue
            eqn = self._maker(x)
            if eqn is None:
                return []
            if id(eqn) not in steps:
                steps[id(eqn)] = eqn
                todo += eqn.invars
        return list(steps.values())

    def again(self) -> list[JaxprEqn]:
        """The equations that the reader computes again, in order."""
        steps = {id(e): e for v in self.own - self.kept for e in self._steps(v, self.kept)}
        return [e for e in self.step.eqns if id(e) in steps]

    def writing(self) -> JaxprEqn:
        """The loop that stacks what is kept."""
        eqn, jaxpr, count = self.writer, self.step.jaxpr, self.writer.params["num_carry"]
        gone = {self.stacked[v] for v in self.own - self.kept}
        outs = [
            (v, y)
            for i, (v, y) in enumerate(zip(jaxpr.outvars, eqn.outvars, strict=True))
            if i < count or y not in gone
        ]
        for v in sorted(self.kept - self.stacked.keys(), key=self.order.__getitem__):
            shape = (eqn.params["length"], *v.aval.shape)
            self.stacked[v] = Var(v.aval.update(shape=shape))
            outs.append((v, self.stacked[v]))
        step = self.step.replace(jaxpr=jaxpr.replace(outvars=[v for v, _ in outs]))
        return eqn.replace(outvars=[y for _, y in outs], params={**eqn.params, "jaxpr": step})

    def reading(self) -> JaxprEqn:
        """The loop that reads what is kept, and computes the rest."""
        eqn, params = self.reader, self.reader.params
        closed, count = params["jaxpr"], params["num_consts"]
        first, jaxpr = count + params["num_carry"], closed.jaxpr
        pairs = list(zip(eqn.invars, jaxpr.invars, strict=True))
        consts, carry, rows = pairs[:count], pairs[count:first], pairs[first:]
        computed = {self.stacked[v]: v for v in self.own - self.kept}
        here: dict[Var, Any] = {computed[y]: inner for y, inner in rows if y in computed}
        rows = [(y, inner) for y, inner in rows if y not in computed]

        def place(v: Atom) -> Atom:
            if isinstance(v, Literal) or v in here:
                return v if isinstance(v, Literal) else here[v]
            outer = self.present[v] if v in self.present else self.stacked[v]
            known = consts if v in self.consts else rows
            found = outer if isinstance(outer, Literal) else dict(known).get(outer)
            if found is None:
                found = Var(v.aval)
                known.append((outer, found))
            here[v] = found
            return found

        made = []
        for e in self.again():
            operands = [place(x) for x in e.invars]
            outvars = [here.setdefault(v, Var(v.aval)) for v in e.outvars]
            made.append(e.replace(invars=operands, outvars=outvars))
        pairs = [*consts, *carry, *rows]
        step = jaxpr.replace(invars=[v for _, v in pairs], eqns=[*made, *jaxpr.eqns])
        return eqn.replace(
            invars=[x for x, _ in pairs],
            params={**params, "jaxpr": closed.replace(jaxpr=step), "num_consts": len(consts)},
        )


def nbytes(values: Iterable[Var]) -> int:
    """Bytes of all."""
    return sum(v.aval.nbytes for v in values)
