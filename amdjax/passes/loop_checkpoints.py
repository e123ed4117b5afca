"""Loops that stack less for their gradients: steps are computed again, in the loop that reads them.

Of all that a step makes, the loop then stacks what it carries, and perhaps what is costly; the loop
that reads computes the rest from these. Or steps are taken in chunks: what is carried is kept once
a chunk, and a chunk is run again, stacking what its part of the gradient reads, right before that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Var
from amdjax.core.primitive import Primitive
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.flatten import flatten_calls
from amdjax.passes.loop_residuals import LoopPair, loop_pairs, nbytes, uses_of
from amdjax.passes.recomputation import Cost

#: Parameters that hold the steps of loops.
_STEPS = {"scan": "jaxpr", "while": "body_jaxpr"}


class Checkpointed(NamedTuple):
    """A program with loops that stack less.

    Attributes:
      program: the program.
      nanoseconds: of what it computes again.
    """

    program: ClosedJaxpr
    nanoseconds: float


def checkpoint_loops(
    closed: ClosedJaxpr, cost: Cost, is_cheap: Callable[[JaxprEqn], bool]
) -> list[Checkpointed]:
    """Programs whose loops stack less.

    Those in which one pair of loops does, in each way, and those in which pairs do one after the
    other: first that which saves most bytes for the time that it takes.

    Args:
      closed: the program after other passes.
      cost: of equations, in nanoseconds; infinite for one that may not run again.
      is_cheap: whether an equation is computed again before others are.
    """
    return [
        Checkpointed(_with(closed, options), sum(o.nanoseconds for o in options))
        for options in _ways(closed, cost, is_cheap)[1:]
    ]


def _ways(
    closed: ClosedJaxpr, cost: Cost, is_cheap: Callable[[JaxprEqn], bool]
) -> list[list[_Option]]:
    """For each of the programs how its loops are computed; first all as they are."""
    choices = _choices(closed, cost, is_cheap)
    start = [options[0] for options in choices]
    ways = [[*start[:i], o, *start[i + 1 :]] for i, os in enumerate(choices) for o in os[1:]]
    now = start
    while True:
        better = [
            (i, new)
            for i, options in enumerate(choices)
            for new in options
            if new.bytes < now[i].bytes
        ]
        if not better:
            return [start, *ways]
        i, new = max(better, key=lambda found: _bytes_for_time(now[found[0]], found[1]))
        now = [*now[:i], new, *now[i + 1 :]]
        ways.append(now)


class _Option(NamedTuple):
    """A way to compute a pair of loops, or a loop in whose steps there are some.

    Attributes:
      bytes: that are stacked from the one to the other, and in a chunk.
      nanoseconds: of what is computed again.
      eqns: what stands for the equations at some places.
    """

    bytes: int
    nanoseconds: float
    eqns: dict[int, list[JaxprEqn]]


def _bytes_for_time(old: _Option, new: _Option) -> float:
    time = new.nanoseconds - old.nanoseconds
    return (old.bytes - new.bytes) / time if time > 0 else math.inf


def _with(closed: ClosedJaxpr, options: Sequence[_Option]) -> ClosedJaxpr:
    table = {place: eqns for o in options for place, eqns in o.eqns.items()}
    eqns = [new for i, e in enumerate(closed.eqns) for new in table.get(i, [e])]
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))


def _choices(
    closed: ClosedJaxpr, cost: Cost, is_cheap: Callable[[JaxprEqn], bool]
) -> list[list[_Option]]:
    """For each pair of loops, and loops with such in their steps, the ways; first as they are."""
    uses = uses_of(closed.eqns, closed.jaxpr.outvars)
    taken: set[int] = set()
    choices = []
    for j, i in loop_pairs(closed):
        if taken.isdisjoint((i, j)):
            pair = _Loops(closed.eqns[j], closed.eqns[i], uses, cost)
            options = pair.options(j, i, is_cheap)
            if len(options) > 1:
                choices.append(options)
                taken.update((i, j))
    for place, eqn in enumerate(closed.eqns):
        options = [] if place in taken else _inside(place, eqn, cost, is_cheap)
        choices += [options] if len(options) > 1 else []
    return choices


def _inside(
    place: int, eqn: JaxprEqn, cost: Cost, is_cheap: Callable[[JaxprEqn], bool]
) -> list[_Option]:
    """The ways to compute a loop in whose steps there are pairs of loops."""
    name = _STEPS.get(eqn.primitive.name)
    if name is None:
        return []
    step = eliminate_dead_code(flatten_calls(eqn.params[name]))
    rounds = eqn.params.get("length", 1)
    out = []
    for options in _ways(step, cost, is_cheap):
        new = eqn.replace(params={**eqn.params, name: _with(step, options)})
        time = rounds * sum(o.nanoseconds for o in options)
        out.append(_Option(sum(o.bytes for o in options), time, {place: [new]}))
    return [out[0]._replace(eqns={}), *(o for o in out if o.bytes < out[0].bytes)]


@dataclass(frozen=True)
class _Loops:
    """A loop that stacks, and one that reads.

    Args:
      writer, reader: the two loops.
      uses: how often values are read.
      cost: of equations.
    """

    writer: JaxprEqn
    reader: JaxprEqn
    uses: Any
    cost: Cost

    def options(self, j: int, i: int, is_cheap: Callable[[JaxprEqn], bool]) -> list[_Option]:
        """The ways to compute the loops, at places j and i; first as they are."""
        length = self.writer.params["length"]
        plain = self._pair(lambda eqn: False)
        plain.kept = plain.own
        step = plain.step
        out = [_Option(length * nbytes(plain.own), 0.0, {})]
        repeatable = lambda eqn: not math.isinf(self.cost(eqn))
        ways = [plain]
        if not step.jaxpr.constvars:
            for may in (lambda eqn: is_cheap(eqn) and repeatable(eqn), repeatable):
                ways.append(self._pair(may))
                ways[-1].kept = ways[-1].frontier()
        whole = sum(self.cost(e) for e in step.eqns)
        for pair in ways:
            again = length * sum(map(self.cost, pair.again()))
            loops = pair.writing(), pair.reading()
            stacked = nbytes(pair.kept)
            out.append(_Option(length * stacked, again, dict(zip((j, i), ([e] for e in loops)))))
            if math.isinf(whole):
                continue
            carried = _carried(loops[0])
            size = _chunk(length, carried, stacked)
            if size is not None:
                own = {pair.stacked[v] for v in pair.kept}
                bytes_now = length // size * carried + size * stacked
                eqns = dict(zip((j, i), _in_chunks(*loops, own, size)))
                out.append(_Option(bytes_now, again + length * whole, eqns))
        return [out[0], *(o for o in out if o.bytes < out[0].bytes)]

    def _pair(self, may: Callable[[JaxprEqn], bool]) -> LoopPair:
        alive = {*self.writer.invars, *self.writer.outvars}
        return LoopPair(
            self.writer, self.reader, alive, self.uses, lambda eqn: 0.0 if may(eqn) else math.inf
        )


def _moving(scan: JaxprEqn) -> list[int]:
    """Which carried values a step does not pass on as they are."""
    jaxpr, start = scan.params["jaxpr"].jaxpr, scan.params["num_consts"]
    return [
        i
        for i in range(scan.params["num_carry"])
        if jaxpr.outvars[i] is not jaxpr.invars[start + i]
    ]


def _carried(scan: JaxprEqn) -> int:
    start = scan.params["num_consts"]
    return nbytes(scan.params["jaxpr"].jaxpr.invars[start + i] for i in _moving(scan))


def _chunk(length: int, carried: int, stacked: int) -> int | None:
    """Steps of a chunk with which least is stacked, None where length has no divisor."""
    sizes = [k for k in range(2, length) if length % k == 0]
    return min(sizes, key=lambda k: length // k * carried + k * stacked, default=None)


def _in_chunks(
    writer: JaxprEqn, reader: JaxprEqn, own: Collection[Var], size: int
) -> tuple[list[JaxprEqn], list[JaxprEqn]]:
    """Two loops over chunks of steps, the second of which makes what it reads of the first.

    Args:
      writer, reader: the loops.
      own: what the writer stacks for the reader alone.
      size: steps of a chunk, which divide all.
    """
    consts, inits, xs = _parts(writer)
    carry, ys = writer.outvars[: len(inits)], writer.outvars[len(inits) :]
    head, moving = _Chunks(writer, size), _moving(writer)
    starts = {i: Var(_stacked(carry[i].aval, head.number)) for i in moving}

    state = head.carry(inits)
    kept = [i for i, y in enumerate(ys) if type(y) is not DropVar and y not in own]
    after, stacks = head.run(writer, [*head.consts(consts), *state, *head.rows(xs)], kept)
    # What no step changes is the same to chunks, too.
    after = [new if i in starts else old for i, (old, new) in enumerate(zip(state, after))]
    results = [(v, ys[i]) for v, i in zip(stacks, kept, strict=True)]
    results += [(state[i], y) for i, y in starts.items()]
    heads = head.loop(after, carry, results)

    tail = _Chunks(reader, size)
    first = [tail.row(starts[i]) if i in starts else x for i, x in enumerate(inits)]
    first = [x if i in starts else tail.consts([x])[0] for i, x in enumerate(first)]
    wanted = [i for i, y in enumerate(ys) if y in own]
    _, made = tail.run(writer, [*tail.consts(consts), *first, *tail.rows(xs)], wanted)
    table = {ys[i]: v for i, v in zip(wanted, made, strict=True)}
    consts, inits, xs = _parts(reader)
    rows = [table[x] if x in table else tail.rows([x])[0] for x in xs]
    carry, ys = reader.outvars[: len(inits)], reader.outvars[len(inits) :]
    kept = [i for i, y in enumerate(ys) if type(y) is not DropVar]
    after, stacks = tail.run(reader, [*tail.consts(consts), *tail.carry(inits), *rows], kept)
    results = [(v, ys[i]) for v, i in zip(stacks, kept, strict=True)]
    return heads, tail.loop(after, carry, results)


def _parts(scan: JaxprEqn) -> tuple[list[Any], list[Any], list[Any]]:
    """Constants, what is carried at first, and what steps read slices of."""
    consts, count = scan.params["num_consts"], scan.params["num_carry"]
    x = list(scan.invars)
    return x[:consts], x[consts : consts + count], x[consts + count :]


class _Chunks:
    """A loop over chunks of steps, as it is written.

    Args:
      like: the loop over the steps.
      size: steps of a chunk.
    """

    def __init__(self, like: JaxprEqn, size: int) -> None:
        self.like, self.size, self.number = like, size, like.params["length"] // size
        self.reshapes: list[JaxprEqn] = []
        self.eqns: list[JaxprEqn] = []
        self._consts: dict[Var, Var] = {}
        self._carry: list[tuple[Atom, Var]] = []
        self._xs: dict[Var, tuple[Var, Var]] = {}

    def consts(self, values: Sequence[Atom]) -> list[Atom]:
        """Values that all chunks read, as they are called in the loop."""
        return [
            self._consts.setdefault(x, Var(x.aval)) if isinstance(x, Var) else x for x in values
        ]

    def carry(self, inits: Sequence[Atom]) -> list[Var]:
        """What chunks carry, by what it is at first."""
        new = [Var(v.aval) for v in self.like.outvars[: len(inits)]]
        self._carry += zip(inits, new, strict=True)
        return new

    def rows(self, values: Sequence[Var]) -> list[Var]:
        """The part of a chunk of what has a row for each step."""
        return [self._rows(x) for x in values]

    def _rows(self, x: Var) -> Var:
        if x not in self._xs:
            part = x.aval.update(shape=(self.size, *x.aval.shape[1:]))
            rows = Var(_stacked(part, self.number))
            self.reshapes.append(_reshape(x, rows))
            self._xs[x] = rows, Var(part)
        return self._xs[x][1]

    def row(self, x: Var) -> Var:
        """That of a chunk."""
        self._xs[x] = x, Var(x.aval.update(shape=x.aval.shape[1:]))
        return self._xs[x][1]

    def run(
        self, scan: JaxprEqn, operands: Sequence[Atom], kept: Sequence[int]
    ) -> tuple[list[Var], list[Var]]:
        """Run the steps of a chunk; what they carry in the end, and some of what they stack."""
        closed, count = scan.params["jaxpr"], scan.params["num_carry"]
        outs = closed.jaxpr.outvars
        ys = [outs[count + i] for i in kept]
        step = closed.replace(jaxpr=closed.jaxpr.replace(outvars=[*outs[:count], *ys]))
        carry = [Var(v.aval) for v in outs[:count]]
        stacks = [Var(_stacked(v.aval, self.size)) for v in ys]
        params = {**scan.params, "jaxpr": step, "length": self.size}
        new = scan.replace(invars=[*operands], outvars=[*carry, *stacks], params=params)
        self.eqns.append(new)
        return carry, stacks

    def loop(
        self, after: Sequence[Atom], carry: Sequence[Var], results: Sequence[tuple[Var, Var]]
    ) -> list[JaxprEqn]:
        """The equations of the loop.

        Args:
          after: what a chunk carries in the end.
          carry: the loop's results.
          results: what chunks make, and its stack: a row for each step, or for each chunk.
        """
        stacks, behind = [], []
        for v, y in results:
            rows = y
            if v.aval.ndim == y.aval.ndim:
                rows = Var(_stacked(v.aval, self.number))
                behind.append(_reshape(rows, y))
            stacks.append(rows)
        xs = self._xs.values()
        inside = [*self._consts.values(), *(v for _, v in self._carry), *(v for _, v in xs)]
        jaxpr = Jaxpr([], inside, [*after, *(v for v, _ in results)], self.eqns)
        params = {
            **self.like.params, "jaxpr": ClosedJaxpr(jaxpr, []), "length": self.number,
            "num_consts": len(self._consts), "num_carry": len(self._carry), "unroll": 1,
        }  # fmt: skip
        invars = [*self._consts, *(x for x, _ in self._carry), *(x for x, _ in xs)]
        loop = self.like.replace(invars=invars, outvars=[*carry, *stacks], params=params)
        return [*self.reshapes, loop, *behind]


def _reshape(x: Var, y: Var) -> JaxprEqn:
    params = {"new_sizes": y.aval.shape, "dimensions": None, "sharding": None}
    return JaxprEqn(Primitive.by_name["reshape"], [x], [y], params)


def _stacked(aval: Any, length: int) -> ShapedArray:
    return ShapedArray((length, *aval.shape), aval.dtype, aval.weak_type)
