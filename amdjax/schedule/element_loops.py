"""Loops and branches that each element runs by itself are part of a kernel.

Where the values of a loop are single numbers and arrays of one shape, and no element looks at
another, the loop need not go through memory at each step: it is an element rule like others, whose
code is a loop over values in registers. It joins its neighbors in one kernel; a loop over single
numbers alone is the case of an array without axes. `scan` may read and write an element of a longer
array at each step. A `while` that goes on while any element does, and leaves others as they are,
ends for each tile by itself. All else is cut into kernels with jumps around them (`control.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.core.dead_code import dce_rules
from amdjax.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Var, memoize_on_jaxpr
from amdjax.core.lowering import Control, Pointwise
from amdjax.passes import is_on, prepare
from amdjax.schedule.element import CONTROL, ElementBuilder
from amdjax.schedule.equations import is_inlinable, own_cost
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.values import El, flat_parts, regroup

Shape = tuple[int, ...]

KINDS = ("cond", "while", "scan")
STEP_LIMIT = 400  # equations; a longer body is cut into kernels as usual
ARRAYS_LIMIT = 16  # arrays read and written; an element of each takes a register
USUAL_TRIPS = 16  # of a loop that decides itself when to end


@dataclass(frozen=True)
class ElementLoop:
    """Control flow that each element runs by itself.

    Attributes:
      eqn: the equation.
      shape: of the arrays; () if there are only single numbers.
      programs: its sub-programs, ready to be written: branches, condition and body, or body.
      flag: of a `while` that has no condition but whether any element goes on, the number of the
        carried value that says so of each.
      size: what they cost if each runs once for one element.
      cost: what all steps cost.
    """

    eqn: JaxprEqn
    shape: Shape
    programs: tuple[ClosedJaxpr, ...]
    size: float
    cost: float
    flag: int | None = None

    @property
    def kind(self) -> str:
        return self.eqn.primitive.lowering.name  # type: ignore[union-attr]

    @property
    def finals(self) -> Sequence[Var]:
        """Results known when the loop ends."""
        count = self.eqn.params["num_carry"] if self.kind == "scan" else len(self.eqn.outvars)
        return self.eqn.outvars[:count]

    @property
    def stacked(self) -> Sequence[Var]:
        """Results of which each step makes one element."""
        return self.eqn.outvars[len(self.finals) :]


def element_loop(eqn: JaxprEqn) -> ElementLoop | None:
    """What an equation is if each element runs it by itself, else None."""
    rule = eqn.primitive.lowering
    if not isinstance(rule, Control) or rule.name not in KINDS or eqn.effects:
        return None
    if not is_on("run_loops_by_element"):
        return None
    flag = _flag_of_elements(eqn) if rule.name == "while" else None
    used = _sub_programs(eqn) if flag is None else [eqn.params["body_jaxpr"]]
    programs = [_element_program(c) for c in used]
    found = [p for p in programs if p is not None]
    shapes = {p.shape for p in found} - {()}
    if len(found) < len(programs) or len(shapes) > 1:
        return None
    if shapes and sum(bool(x.aval.shape) for x in (*eqn.invars, *eqn.outvars)) > ARRAYS_LIMIT:
        return None
    trips = {"cond": 1, "while": USUAL_TRIPS}.get(rule.name) or eqn.params["length"]
    size, cost = sum(p.size for p in found), trips * sum(p.cost for p in found)
    shape = next(iter(shapes), ())
    return ElementLoop(eqn, shape, tuple(p.closed for p in found), size, cost, flag)


def element_loops(jaxpr: Jaxpr) -> dict[JaxprEqn, ElementLoop]:
    """Such equations of a program.

    Each program of a kernel over arrays computes the loop's numbers again, so that none of them
    could store one; see `separate_numbers`.
    """
    loops = {e: loop for e in jaxpr.eqns if (loop := element_loop(e)) is not None}
    if not loops:
        return loops
    read = _read(jaxpr)
    return {e: x for e, x in loops.items() if not (x.shape and any(_numbers(x, read)))}


def _read(jaxpr: Jaxpr) -> set[Any]:
    """What anybody reads."""
    return {v for e in jaxpr.eqns for v in e.invars if isinstance(v, Var)} | {
        v for v in jaxpr.outvars if isinstance(v, Var)
    }


def _numbers(loop: ElementLoop, read: set[Any]) -> list[bool]:
    """Which results are numbers, at the end or one a step, that are read."""
    ranks = [0] * len(loop.finals) + [1] * len(loop.stacked)
    return [v in read and v.aval.ndim == n for v, n in zip(loop.eqn.outvars, ranks, strict=True)]


@dataclass(frozen=True)
class _ElementProgram:
    """A program whose values are numbers, and arrays of one shape computed element by element."""

    closed: ClosedJaxpr
    shape: Shape
    size: float
    cost: float


def _sub_programs(eqn: JaxprEqn) -> Sequence[ClosedJaxpr]:
    params = eqn.params
    if "branches" in params:
        return params["branches"]
    if "body_jaxpr" in params:
        return params["cond_jaxpr"], params["body_jaxpr"]
    return (params["jaxpr"],)


def _flag_of_elements(eqn: JaxprEqn) -> int | None:
    """The carried value that says of each element of a `while` whether it goes on, if one does.

    The loop goes on while any element does. Of those that do not, no carried value changes, and
    none begins again, so that an element need not know of others.
    """
    cond, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
    if len(cond.eqns) != 1 or cond.eqns[0].primitive.name != "reduce_or":
        return None
    (test,), carried = cond.eqns, cond.invars[eqn.params["cond_nconsts"] :]
    (source,) = test.invars
    if source not in carried or cond.outvars != test.outvars or source.aval.dtype != bool:
        return None
    if len(test.params["axes"]) != source.aval.ndim:
        return None
    number = carried.index(source)
    olds, made = (
        body.invars[eqn.params["body_nconsts"] :],
        {v: e for e in body.eqns for v in e.outvars},
    )
    flag = olds[number]

    def stays(old: Var, new: Any) -> bool:
        """Whether a value is what it was where the flag is not set."""
        if new is old:
            return True
        maker = made.get(new) if isinstance(new, Var) else None
        if maker is None or old.aval.shape != flag.aval.shape:
            return False
        if old is flag:
            return maker.primitive.name == "and" and flag in maker.invars
        chosen = maker.primitive.name == "select_n" and maker.invars[:2] == [flag, old]
        return chosen and len(maker.invars) == 3

    return number if all(map(stays, olds, body.outvars)) else None


def _element_program(closed: ClosedJaxpr) -> _ElementProgram | None:
    return _examined(closed)[0]


@memoize_on_jaxpr
def _examined(closed: ClosedJaxpr) -> tuple[_ElementProgram | None]:
    """What a sub-program is, in a tuple, since None is not remembered."""
    jaxpr = closed.jaxpr
    if len(jaxpr.eqns) > STEP_LIMIT or len(_shapes([*jaxpr.invars, *jaxpr.outvars])) > 1:
        return (None,)  # seen without the passes
    closed = prepare(closed)
    jaxpr = closed.jaxpr
    shapes = _shapes([*jaxpr.invars, *jaxpr.outvars])
    size = cost = 0.0
    if len(jaxpr.eqns) > STEP_LIMIT or _shapes(jaxpr.constvars):
        return (None,)
    for eqn in jaxpr.eqns:
        inner = element_loop(eqn)
        if inner is not None and not _has_slices(inner):
            size, cost = size + inner.size, cost + inner.cost
        elif is_inlinable(eqn) and _is_elementwise(eqn):
            size, cost = size + own_cost(eqn), cost + own_cost(eqn)
        else:
            return (None,)
        shapes |= _shapes(eqn.outvars)
    if len(shapes) > 1:
        return (None,)
    return (_ElementProgram(closed, next(iter(shapes), ()), size, cost),)


def _shapes(atoms: Sequence[Any]) -> set[Shape]:
    """Of the atoms that are not single numbers."""
    return {tuple(x.aval.shape) for x in atoms} - {()}


def _has_slices(loop: ElementLoop) -> bool:
    """Whether a `scan` reads or writes elements of longer arrays."""
    if loop.kind != "scan":
        return False
    params = loop.eqn.params
    return bool(loop.stacked) or len(loop.eqn.invars) > params["num_consts"] + params["num_carry"]


def _is_elementwise(eqn: JaxprEqn) -> bool:
    """Whether an element of the result needs the same element of the operands, or numbers."""
    return isinstance(eqn.primitive.lowering, Pointwise) or not _shapes(eqn.invars)


def separate_numbers(jaxpr: Jaxpr) -> Jaxpr:
    """A pass: numbers that loops over arrays count with, and that are read, get their own loops.

    They do not depend on the arrays.
    """
    loops = {e: x for e in jaxpr.eqns if (x := element_loop(e)) is not None and x.shape}
    if not loops:
        return jaxpr
    read = _read(jaxpr)
    eqns: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        numbers = _numbers(loops[eqn], read) if eqn in loops else []
        arrays = [v in read and not n for v, n in zip(eqn.outvars, numbers)]
        parts = [numbers, arrays] if any(numbers) and any(arrays) else []
        eqns += [_only(eqn, part) for part in parts] or [eqn]
    return jaxpr.replace(eqns=eqns)


def _only(eqn: JaxprEqn, wanted: Sequence[bool]) -> JaxprEqn:
    """The equation without what only other results need."""
    _, new = dce_rules[eqn.primitive](wanted, eqn)
    assert new is not None
    kept = {v for v, w in zip(eqn.outvars, wanted, strict=True) if w}
    return new.replace(outvars=[v if v in kept else DropVar(v.aval) for v in new.outvars])


def write_loop(b: ElementBuilder, eqn: JaxprEqn, index: tuple[Index, ...]) -> list[El | None]:
    """The results of such an equation for one element; None for those its steps have stored."""
    loop = element_loop(eqn)
    assert loop is not None
    return LoopWriter(b, index).write(loop)


CONTROL.update(dict.fromkeys(KINDS, write_loop))


class LoopWriter:
    """Writes such control flow for one element.

    Args:
      b: the builder of the kernel.
      index: of the element.
    """

    def __init__(self, b: ElementBuilder, index: tuple[Index, ...]):
        self.b, self.k, self.index = b, b.k, index

    def write(self, loop: ElementLoop) -> list[El | None]:
        """The results for one element; None for those that the steps have stored."""
        return {"cond": self._cond, "while": self._while, "scan": self._scan}[loop.kind](loop)

    def _read(self, atom: Any) -> El:
        return self.b.value(atom, self.index if atom.aval.shape else ())

    def _program(self, closed: ClosedJaxpr, args: Sequence[El]) -> list[El]:
        """The results of a sub-program, written at the current place."""
        jaxpr = closed.jaxpr
        bound: dict[Var, El | None] = dict(zip(jaxpr.invars, args, strict=True))
        for v, c in zip(jaxpr.constvars, closed.consts, strict=True):
            bound[v] = self.b.const(np.asarray(c)[()], v.aval.dtype)
        with self.b.binding(bound):
            for eqn in jaxpr.eqns:
                bound.update(zip(eqn.outvars, self.b.results(eqn, self.index), strict=True))
            return [self._spread(self._read(v), v) for v in jaxpr.outvars]

    def _spread(self, x: El, atom: Any) -> El:
        """An element of an array in every lane, as what is carried has to be."""
        return self.b.in_every_lane(x) if atom.aval.shape else x

    def _starts(self, atoms: Sequence[Any]) -> list[El]:
        return [self._spread(self._read(x), x) for x in atoms]

    def _cond(self, loop: ElementLoop) -> list[El | None]:
        eqn, programs = loop.eqn, loop.programs
        index = self.b.convert(self._read(eqn.invars[0]), "i32")
        args = [self._read(x) for x in eqn.invars[1:]]

        def branch(i: int) -> list[tile.Value]:
            write = lambda: flat_parts(self.b.nested(self._program)(programs[i], args))
            if i == len(programs) - 1:
                return write()
            here = index.value <= self.k.const("i32", i)
            return list(self.k.if_(here, write, lambda: branch(i + 1)))

        like = [self.b.const(0, v.aval.dtype) for v in eqn.outvars]
        return [*regroup(like, branch(0))]

    def _while(self, loop: ElementLoop) -> list[El | None]:
        params, (*conds, body) = loop.eqn.params, loop.programs
        n, m = params["cond_nconsts"], params["body_nconsts"]
        consts = [self._read(x) for x in loop.eqn.invars[: n + m]]
        starts = self._starts(loop.eqn.invars[n + m :])

        def test(*flat: tile.Value) -> tile.Value:
            if loop.flag is not None:
                return self._any(regroup(starts, flat)[loop.flag].value)
            (keep,) = self._program(conds[0], [*consts[:n], *regroup(starts, flat)])
            return keep.value

        def step(*flat: tile.Value) -> list[tile.Value]:
            return flat_parts(self._program(body, [*consts[n:], *regroup(starts, flat)]))

        test, step = self.b.nested(test), self.b.nested(step)
        ends = self.k.while_(test, step, flat_parts(starts), users=True)
        return [*regroup(starts, ends)]

    def _any(self, flags: tile.Value) -> tile.Value:
        """Whether any of the elements that there are goes on."""
        k = self.k
        for lanes in self.b.lanes:
            if lanes.mask is not None:
                flags = flags & k.broadcast(lanes.mask, flags.shape)
        while flags.shape:
            flags = k.reduce("or", flags, 0)
        return flags

    def _scan(self, loop: ElementLoop) -> list[El | None]:
        params, (body,) = loop.eqn.params, loop.programs
        n, m, length = params["num_consts"], params["num_carry"], params["length"]
        consts = [self._read(x) for x in loop.eqn.invars[:n]]
        starts, slices = self._starts(loop.eqn.invars[n : n + m]), loop.eqn.invars[n + m :]
        counter = LoopVar("t", max(length, 2))  # a variable of one value would fold away

        def step(i: tile.Value, *flat: tile.Value) -> list[tile.Value]:
            self.b.scalars[counter] = i
            t = Index.of(counter)
            t = t * -1 + (length - 1) if params["reverse"] else t
            place = lambda x: (t, *self.index) if len(x.aval.shape) > 1 else (t,)
            read = [self.b.value(x, place(x)) for x in slices]
            outs = self._program(body, [*consts, *regroup(starts, flat), *read])
            for y, value in zip(loop.stacked, outs[m:], strict=True):
                self.b.put(y, place(y), value)
            return flat_parts(outs[:m])

        ends = self.k.for_(0, length, 1, self.b.nested(step), flat_parts(starts), users=True)
        return [*regroup(starts, ends), *(None for _ in loop.stacked)]
