"""Control flow in the plan: loops and branches as jumps around the instructions of their bodies.

A loop's carried values have two buffers each; the body reads one and writes the other, and their
addresses are exchanged at the end of an iteration. A carried value that the body passes on, or
updates in place, has one. What a `scan` reads and writes at each step is an address that advances
with the loop's counter, so nothing is sliced or stacked. On a CPU a carried value that is stacked,
too, before or after its step, is read and written where it is stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from amdjax.core.dims import DimSize, choosing, surely_equal
from amdjax.core.integers import round_up
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.source_info import Origin
from amdjax.jit.hoisting import Hoisted
from amdjax.jit.instructions import ALIGN, Label, Storage, View
from amdjax.jit.partitions import plan_partition
from amdjax.jit.persistent import Alternation, persist
from amdjax.jit.plan import CONTROL, Body, Planner
from amdjax.jit.updates import updates_in_place
from amdjax.passes import is_on
from amdjax.runtime import vm
from amdjax.schedule.gpu.partition import Resident
from amdjax.schedule.gpu.persistent import LaunchedRounds
from amdjax.targets import GpuTarget

SIDE_BY_SIDE = 16 << 20  # bytes of a carried value up to which its two buffers are one on a GPU


def lower_cond(body: Body, eqn: JaxprEqn) -> None:
    """`cond`: a jump table; each branch writes the results."""
    p = body.p
    branches = [p.prepare_body(b, eqn) for b in eqn.params["branches"]]
    operands = [p.view(body.env, x) for x in eqn.invars[1:]]
    results = [body.place(v) for v in eqn.outvars]
    index = p.view(body.env, eqn.invars[0])
    labels, end = [Label() for _ in branches], Label()
    start = p.time
    p.emit(vm.SWITCH, index, len(branches), *labels)
    for closed, label in zip(branches, labels, strict=True):
        p.label(label)
        env = dict(zip(closed.jaxpr.invars, operands, strict=True))
        p.bind_constants(closed, env)
        p.body(closed.jaxpr, env, results)
        p.emit(vm.JUMP, end)
    p.label(end)
    for v in [*operands, *results]:
        p.touch(v)
    # Results are written in one branch while others run their own temporaries.
    for s in {r.storage for r in results if r.storage.slot is None}:
        s.first = min(s.first, start)


class _Carry:
    """The carried values of a loop."""

    def __init__(
        self, body: Body, eqn: JaxprEqn, inits: Sequence[Any], jaxpr: Jaxpr, invars: Sequence[Var],
        outs: Sequence[Any],
        side_by_side: bool = False, rows: Mapping[Var, _Rows] | None = None,
    ):  # fmt: skip
        self.p = p = body.p
        rows = rows or {}
        # A value that is also read as a constant or a slice keeps its memory.
        name = body.first_name
        used = [name.get(x, x) if isinstance(x, Var) else x for x in eqn.invars]
        self.invars, self.outs = list(invars), list(outs)
        self.current: list[View] = []
        self.next: list[View] = []
        self.swaps: list[tuple[int, int]] = []
        #: Slots that point to what a step has made, and where that is.
        self.follows: list[tuple[int, View]] = []
        #: Of values in memory of what is stacked, where they are after the loop.
        self.among_rows: dict[Var, View] = {}
        #: What slots hold of values whose buffers lie side by side.
        self.alternating: dict[int, Alternation] = {}
        for init, invar, out in zip(inits, invars, outs, strict=True):
            nbytes, space = invar.aval.nbytes, invar.aval.memory_space
            source = p.view(body.env, init)
            if invar in rows:
                self._among(invar, rows[invar], source)
                continue
            if out is invar:  # passed on unchanged: two names for one value from here on
                body.owned.discard(id(source.storage))
                self.current.append(source)
                self.next.append(source)
                continue
            in_place = updates_in_place(p.fused(jaxpr), invar, out, outs)
            with choosing():
                beside = side_by_side and not in_place and 0 < nbytes <= SIDE_BY_SIDE
            half = round_up(nbytes, ALIGN)
            if (
                not beside
                and not isinstance(init, Literal)
                and body.overwritable(init)
                and used.count(name.get(init, init)) == 1
                and source.storage.slot is None
            ):
                first = source
            else:
                first = p.arena(half + nbytes if beside else nbytes, space)
                p.copy(first, source, nbytes)
            if in_place:
                self.current.append(first)
                self.next.append(first)
                continue
            second = View(first.storage, half) if beside else p.arena(nbytes, space)
            p.touch(second)
            slots = p.slot(), p.slot()
            p.emit(vm.ADDRESS, slots[0], first)
            p.emit(vm.ADDRESS, slots[1], second)
            # The slots hold either address, so both storages must outlive every use of them.
            pair = (first.storage, second.storage)
            self.current.append(View(_Pointer(slots[0], pair)))
            self.next.append(View(_Pointer(slots[1], pair)))
            self.swaps.append(slots)
            if beside:
                for phase, slot in enumerate(slots):
                    self.alternating[slot] = Alternation(first.storage, half, phase, nbytes)

    def _among(self, invar: Var, rows: _Rows, init: View) -> None:
        """Let a value lie where it is stacked."""
        p = self.p
        if rows.stack is None:
            slot = p.slot()
            p.emit(vm.ADDRESS, slot, init)
            current = last = View(_Pointer(slot, (init.storage, rows.next.storage)))
            self.follows.append((slot, rows.next))
        else:
            current, first, last = rows.stack
            p.copy(first, init, invar.aval.nbytes)
        self.current.append(current)
        self.next.append(rows.next)
        self.among_rows[invar] = last

    @property
    def unchanged(self) -> dict[Var, View]:
        """Values that are passed on as they are."""
        found = zip(self.invars, self.outs, self.current, strict=True)
        return {invar: view for invar, out, view in found if out is invar}

    def swap(self) -> None:
        for a, b in self.swaps:
            self.p.emit(vm.SWAP, a, b)
        for slot, made in self.follows:
            self.p.emit(vm.ADDRESS, slot, made)

    def swapped(self, times: int) -> None:
        """Let what lies side by side be where it is after so many exchanges."""
        odd = times % 2
        for slot, _ in () if surely_equal(odd, 0) else self.swaps:
            place = self.alternating[slot]
            self.p.emit(vm.ADDRESS, slot, View(place.storage, place.half * odd))


class _Stack(NamedTuple):
    """A stack of what a scan's carried value is before each step and after the last.

    Args:
      current: where a step reads it.
      first, last: where it is before and after the loop.
    """

    current: View
    first: View
    last: View


class _Rows(NamedTuple):
    """Where a scan's carried value lies among what is stacked of it.

    Args:
      next: where a step writes it.
      stack: where it is otherwise; None for where the step before wrote it.
    """

    next: View
    stack: _Stack | None = None


class _Pointer(Storage):
    """Memory reached through a slot that loops change; keeps what it may point to alive."""

    def __init__(self, slot: int, targets: tuple[Storage, ...]):
        super().__init__(0, slot, space=targets[0].space)
        self.targets = targets

    @property
    def last(self) -> int:
        return self._last

    @last.setter
    def last(self, time: int) -> None:
        self._last = time
        for s in getattr(self, "targets", ()):
            s.first, s.last = min(s.first, time), max(s.last, time)


def _split(items: Sequence[Any], *sizes: int) -> list[list[Any]]:
    out, at = [], 0
    for n in sizes:
        out.append(list(items[at : at + n]))
        at += n
    return [*out, list(items[at:])]


def lower_while(body: Body, eqn: JaxprEqn) -> None:
    """`while`: test, body, exchange, again."""
    p = body.p
    n_cond, n_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond_consts, body_consts, inits = _split(eqn.invars, n_cond, n_body)
    cond, step = (
        p.prepare_body(eqn.params["cond_jaxpr"], eqn),
        p.prepare_body(eqn.params["body_jaxpr"], eqn),
    )
    carried, on_gpu = step.jaxpr.invars[n_body:], isinstance(p.target, GpuTarget)
    outs = step.jaxpr.outvars
    carry = _Carry(body, eqn, inits, step.jaxpr, carried, outs, side_by_side=on_gpu)
    flag = p.arena(1)
    p.touch(flag)
    tested = [*(p.view(body.env, x) for x in cond_consts), *carry.current]

    def test(hoisted: Hoisted | None = None) -> None:
        env = dict(zip(cond.jaxpr.invars, tested, strict=True))
        p.bind_constants(cond, env)
        p.body(cond.jaxpr, env, [flag], hoisted=hoisted)

    fixed = dict(zip(step.jaxpr.invars, (p.view(body.env, x) for x in body_consts)))
    moving = dict(zip(carried, carry.current, strict=True))
    rounds = _Rounds(
        p, step, fixed, moving, carry.next, carry, vm.ZERO, _Test(test, flag, eqn.origin)
    )
    if not (on_gpu and rounds.persistent()):
        rounds.loop()
    _finish_carry(body, eqn.outvars, carry)


def _hoist(
    p: Planner, step: ClosedJaxpr, fixed: dict[Var, View], resident: Resident | None = None
) -> Hoisted:
    """Write what a loop's body computes of its constants alone."""
    env = dict(fixed)
    p.bind_constants(step, env)
    return p.hoist(step.jaxpr, env, env, resident)


def _finish_carry(body: Body, outvars: Sequence[Var], carry: _Carry) -> None:
    for v, invar, view in zip(outvars, carry.invars, carry.current, strict=True):
        body.p.touch(view)
        wanted = body.wanted.get(v)
        if invar in carry.among_rows:
            # What is stacked may be overwritten once it is not needed any more.
            view = carry.among_rows[invar]
            wanted = body.place(v) if v in body.last_use else None
        if wanted is not None:
            body.env[v] = wanted
            body.p.copy(wanted, view, v.aval.nbytes)
        else:
            body.env[v] = view


def lower_scan(body: Body, eqn: JaxprEqn) -> None:
    """`scan`: a counted loop whose slices and results are addresses that advance."""
    p, params = body.p, eqn.params
    length, reverse = params["length"], params["reverse"]
    consts, inits, xs = _split(eqn.invars, params["num_consts"], params["num_carry"])
    step: ClosedJaxpr = p.prepare_body(params["jaxpr"], eqn)
    const_vars, carry_vars, x_vars = _split(step.jaxpr.invars, len(consts), len(inits))
    carry_outs, y_vars = _split(step.jaxpr.outvars, len(inits))
    carry_results, y_results = _split(eqn.outvars, len(inits))
    on_gpu = isinstance(p.target, GpuTarget)
    counter = p.slot()
    fixed = dict(zip(const_vars, (p.view(body.env, x) for x in consts), strict=True))

    def slice_of(view: View, aval: Any) -> View:
        nbytes = aval.nbytes
        if view.counter != vm.ZERO:  # a slice of a slice: fix the outer address first
            view = _fixed(p, view)
        first = view.offset + (nbytes * (length - 1) if reverse else 0)
        return View(view.storage, first, counter, -nbytes if reverse else nbytes)

    rows: dict[Var, _Rows] = {}
    views: dict[int, View] = {}
    if length and not on_gpu:
        stacked = _Stacked(body, step, slice_of, length, reverse)
        rows, views = stacked.find(carry_vars, carry_outs, y_vars, y_results)
    ys = [body.place(v) for v in y_results]
    for y in ys:
        p.touch(y)
    carry = _Carry(body, eqn, inits, step.jaxpr, carry_vars, carry_outs, on_gpu, rows)
    p.emit(vm.SET, counter, 0)
    if length:
        moving = dict(zip(carry_vars, carry.current, strict=True))
        for x, v in zip(xs, x_vars, strict=True):
            moving[v] = slice_of(p.view(body.env, x), v.aval)
        y_views = [
            views[i] if i in views else slice_of(y, v.aval)
            for i, (y, v) in enumerate(zip(ys, y_vars, strict=True))
        ]
        rounds = _Rounds(p, step, fixed, moving, [*carry.next, *y_views], carry, counter, length)
        if not (on_gpu and rounds.persistent()):
            rounds.loop()
        for y in ys:
            p.touch(y)
    _finish_carry(body, carry_results, carry)


@dataclass(frozen=True)
class _Stacked:
    """Finds which carried values of a scan may lie where they are stacked.

    Args:
      body: what the scan is in.
      step: the scan's body.
      slice_of: the view of a step's part of what is stacked.
      length, reverse: of the scan.
    """

    body: Body
    step: ClosedJaxpr
    slice_of: Callable[[View, Any], View]
    length: DimSize
    reverse: bool

    def find(
        self, invars: Sequence[Var], outs: Sequence[Any], ys: Sequence[Any], results: Sequence[Var]
    ) -> tuple[dict[Var, _Rows], dict[int, View]]:
        """Where carried values are, by variable, and the parts of results that are so decided."""
        fusion = self.body.p.fused(self.step.jaxpr)
        rows: dict[Var, _Rows] = {}
        views: dict[int, View] = {}
        for invar, out in zip(invars, outs, strict=True):
            before, after = (
                next((i for i, y in enumerate(ys) if y is v and i not in views), None)
                for v in (invar, out)
            )
            if isinstance(out, Literal) or out in self.step.jaxpr.invars:
                continue
            if list(outs).count(out) > 1 or updates_in_place(fusion, invar, out, outs):
                continue
            if before is not None and self._is_free(results[before]):
                if after is not None and not self._is_free(results[after]):
                    after = None
                made, stack = self._with_one_more(invar, results, before, after)
                rows[invar] = _Rows(made, stack)
                views[before] = stack.current
                if after is not None:
                    views[after] = made
            elif after is not None:
                views[after] = self.slice_of(self.body.place(results[after]), invar.aval)
                rows[invar] = _Rows(views[after])
        return rows, views

    def _is_free(self, result: Var) -> bool:
        """Whether a result may lie anywhere."""
        return result not in self.body.env and result not in self.body.wanted

    def _with_one_more(
        self, invar: Var, results: Sequence[Var], before: int, after: int | None
    ) -> tuple[View, _Stack]:
        """Where steps write a value, and the stack that this is in; results are all but one row."""
        body, nbytes = self.body, invar.aval.nbytes
        whole = body.p.arena(nbytes * (self.length + 1))
        low, high = whole, View(whole.storage, nbytes)
        end = View(whole.storage, nbytes * self.length)
        this, following = (high, low) if self.reverse else (low, high)
        body.env[results[before]] = this
        if after is None:
            body.owned.add(id(whole.storage))
        else:
            body.env[results[after]] = following
        first, last = (end, low) if self.reverse else (low, end)
        current, made = self.slice_of(this, invar.aval), self.slice_of(following, invar.aval)
        return made, _Stack(current, first, last)


class _Test(NamedTuple):
    """Whether there is another round.

    Args:
      write: writes the test; given what is hoisted, as a part of a round.
      flag: where the answer is.
      origin: of the loop.
    """

    write: Callable[[Hoisted | None], None]
    flag: View
    origin: Origin


@dataclass
class _Rounds:
    """The rounds of a loop.

    Args:
      step: the body.
      fixed, moving: where its arguments are that the loop does not change, and the others.
      destinations: of its results.
      counter: the slot that counts rounds, if they are counted.
      length: how many there are, or what asks for another one.
    """

    p: Planner
    step: ClosedJaxpr
    fixed: dict[Var, View]
    moving: dict[Var, View]
    destinations: Sequence[View]
    carry: _Carry
    counter: int
    length: int | _Test

    def loop(self) -> None:
        """Write a round, and that it is repeated."""
        p, again, done = self.p, Label(), Label()
        hoisted = self._hoisted(None)
        start = p.time
        p.label(again)
        if isinstance(self.length, _Test):
            self.length.write(None)
            p.emit(vm.UNLESS, self.length.flag, done)
        self._round(hoisted)
        if isinstance(self.length, _Test):
            p.emit(vm.JUMP, again)
        else:
            p.emit(vm.ADD, self.counter, 1)
            p.emit(vm.REPEAT, self.counter, self.length, again)
        p.label(done)
        p.loop_scope(start)

    def persistent(self) -> bool:
        """Write all rounds as one launch, if they can be and that pays; whether it is so."""
        p, length = self.p, self.length
        if not self.several or not is_on("persistent_loops"):
            return False
        resident = self._resident()
        with p.undecided() as take_back:
            write = self._counted if not isinstance(length, _Test) else self._tested
            launched = write(resident)
            if launched is not None:
                take_back()
        if launched is not None:
            p.observe("schedule", launched)
        return launched is None

    def _counted(self, resident: Resident) -> LaunchedRounds | None:
        """Write a number of rounds as one launch; why not, if it cannot be."""
        p, carry = self.p, self.carry
        assert not isinstance(self.length, _Test)
        hoisted = self._hoisted(resident)
        start = p.time
        self._round(hoisted)
        launched = persist(p, start, self.counter, self.length, carry.alternating)
        if launched is None:
            carry.swapped(self.length)
        return launched

    def _tested(self, resident: Resident) -> LaunchedRounds | None:
        """Write rounds with their tests as a launch, which is repeated while there are more."""
        p, test, again, done = self.p, self.length, Label(), Label()
        assert isinstance(test, _Test)
        test.write(None)
        p.emit(vm.UNLESS, test.flag, done)
        hoisted = self._hoisted(resident)
        start = p.time
        p.label(again)
        self._round(hoisted)
        test.write(Hoisted(resident=resident))
        alternating = self.carry.alternating
        launched = persist(p, start, self.counter, None, alternating, test.flag, test.origin)
        p.emit(vm.UNLESS, test.flag, done)
        p.emit(vm.JUMP, again)
        p.label(done)
        p.loop_scope(start)
        return launched

    @property
    def several(self) -> bool:
        """Whether there is more than one; what is made for several is right for one."""
        if isinstance(self.length, _Test):
            return True
        with choosing():
            return self.length >= 2

    def _resident(self) -> Resident:
        """How the steps of a round share what they make among programs that stay resident."""
        p, carry = self.p, self.carry
        assert isinstance(p.target, GpuTarget)
        fixed = self.fixed.keys() | carry.unchanged.keys()
        carried = list(zip(carry.invars, carry.outs, strict=True))
        return Resident(plan_partition(p.fused(self.step.jaxpr), p.target, fixed, carried))

    def _hoisted(self, resident: Resident | None) -> Hoisted | None:
        if not self.several:
            return None
        return _hoist(self.p, self.step, self.fixed | self.carry.unchanged, resident)

    def _round(self, hoisted: Hoisted | None) -> None:
        env = self.fixed | self.moving
        self.p.bind_constants(self.step, env)
        self.p.body(self.step.jaxpr, env, self.destinations, hoisted=hoisted)
        self.carry.swap()


def _fixed(p: Any, view: View) -> View:
    """A view's present address in a slot of its own."""
    slot = p.slot()
    p.emit(vm.ADDRESS, slot, view)
    pointer = _Pointer(slot, (view.storage,))
    pointer.align = view.align
    return View(pointer)


CONTROL.update({"cond": lower_cond, "while": lower_while, "scan": lower_scan})
