"""Programs whose intermediates stay within a limit: what goes meanwhile is found by planning."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

from amdjax.core.config import config
from amdjax.core.dims import Dim
from amdjax.core.errors import InconclusiveDimensionOperation, JaxRuntimeError
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Var, subjaxprs_of_value
from amdjax.core.lowering import Control, Host, Reduce, Shaped
from amdjax.kernels.shaped import estimate
from amdjax.passes import Note, is_on
from amdjax.passes.barriers import BARRIER
from amdjax.passes.flatten import flatten_calls
from amdjax.passes.liveness import Liveness
from amdjax.passes.loop_checkpoints import Checkpointed, checkpoint_loops
from amdjax.passes.offloading import offload_residuals
from amdjax.passes.recomputation import Candidate, candidates, with_less
from amdjax.schedule.equations import is_bitcast, is_inlinable, own_cost
from amdjax.schedule.fusion import fuse
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget

PLANS = 8  # that are made to find one within the limit
SHARES = (0.25, 0.5, 0.75, 1.0)  # of what may be in the host's memory
ROUNDS = 3  # in which all that may leaves: then most is in memory elsewhere
NANOSECONDS_AN_OPERATION = 0.1
NANOSECONDS_A_BYTE = 0.1
NANOSECONDS_A_COPIED_BYTE = 0.04  # between the memories of a host and a device, by PCIe 4.0


def keep_within(
    closed: ClosedJaxpr, limit: int, needed: Callable[[ClosedJaxpr], int], search: Search,
    note: Note = lambda name, before, after: None,
) -> ClosedJaxpr:  # fmt: skip
    """The program whose intermediates are within a limit and that computes least again for it.

    Args:
      closed: the program after all passes.
      limit: bytes that its intermediates may take.
      needed: how many a program takes, as planned.
      search: finds programs that need less.
      note: receives the name of what changed the program, and the program before and after that.

    Raises:
      JaxRuntimeError: no program that was found is within the limit; it tells the least peak.
      InconclusiveDimensionOperation: shapes are symbolic; each size is compiled by itself then.
    """
    if not search.ways:
        return closed
    if any(isinstance(n, Dim) for v in (*closed.in_avals, *closed.out_avals) for n in v.shape):
        raise InconclusiveDimensionOperation(
            f"memory_limit is {limit:,} bytes, but sizes are not known that tell what is needed."
        )
    first = least = needed(closed)
    if first <= limit:
        return closed
    found = search.candidates(closed)
    aim = float(limit)
    for _ in range(PLANS):
        # The cheapest that should do; where none should, the one that comes nearest.
        at = next((i for i, c in enumerate(found) if c.peak <= aim), len(found) - 1)
        if at < 0:
            break
        best, found = found[at], found[at + 1 :]
        bytes_now = needed(best.program)
        if bytes_now <= limit:
            for name, after in best.changes:
                note(name, closed, after)
                closed = after
            return closed
        least = min(least, bytes_now)
        aim = min(aim, best.peak) * limit / bytes_now
    raise JaxRuntimeError(
        f"RESOURCE_EXHAUSTED: memory_limit is {limit:,} bytes, but intermediates take {first:,}"
        + (f", and {least:,} at least where values are computed again." if least < first else ".")
    )


class Search:
    """Finds programs that compute values again, or have them in the host's memory meanwhile.

    Args:
      target: the machine.
      prepared: runs all passes on the body of a loop.
      unsummed: gives the program as it is without `sum_after_loops`, since loops stack what is
        summed after their last step.
    """

    def __init__(
        self, target: CpuTarget | GpuTarget, prepared: Callable[[ClosedJaxpr], ClosedJaxpr],
        unsummed: Callable[[], ClosedJaxpr],
    ) -> None:  # fmt: skip
        self.target, self.prepared, self.unsummed = target, prepared, unsummed
        ways = {
            "checkpoint_loops": is_on("checkpoint_loops"),
            "offload_residuals": is_on("offload_residuals")
            and config.offload_copy
            and isinstance(target, GpuTarget),
            "recompute_for_memory": is_on("recompute_for_memory"),
        }  # fmt: skip
        self.ways = {name for name, may in ways.items() if may}
        self.cost = functools.cache(lambda eqn: _nanoseconds(eqn, target))
        self._peaks: dict[ClosedJaxpr, int] = {}  # of bodies
        self._lives = functools.cache(self._liveness)

    def candidates(self, closed: ClosedJaxpr) -> list[Candidate]:
        """Programs that need less memory than all that cost less, cheapest first."""
        programs: list[Checkpointed] = []
        if "checkpoint_loops" in self.ways:
            programs += self._checkpointed(closed, 0.0)
            other = self.unsummed()
            if other is not closed:
                more = max(0.0, self._whole(other) - self._whole(closed))
                programs += [Checkpointed(other, more), *self._checkpointed(other, more)]
        start = self._candidate(closed, 0.0)
        others = [self._candidate(*p, (("checkpoint_loops", p.program),)) for p in programs]
        found = with_less(start, others)
        if "offload_residuals" in self.ways:
            away = [new for c in found for new in self._offloaded(c)]
            found = with_less(start, [*found[1:], *away])
        if "recompute_for_memory" in self.ways:
            found += [new for c in found for new in self._segmented(c)]
        return with_less(start, found[1:])[1:]

    def _checkpointed(self, closed: ClosedJaxpr, more: float) -> list[Checkpointed]:
        found = checkpoint_loops(closed, self.cost, lambda eqn: not _is_shaped(eqn))
        return [Checkpointed(p, more + nanoseconds) for p, nanoseconds in found]

    def _candidate(
        self, closed: ClosedJaxpr, nanoseconds: float,
        changes: tuple[tuple[str, ClosedJaxpr], ...] = (),
    ) -> Candidate:  # fmt: skip
        return Candidate(closed, nanoseconds, self._lives(closed)[0].peak()[1], changes)

    def _liveness(self, closed: ClosedJaxpr) -> tuple[Liveness, set[Var], set[Var]]:
        results = {v for v in closed.jaxpr.outvars if isinstance(v, Var)}
        held, passed = self._places(closed)
        return Liveness(closed.eqns, results, held, passed, self._inside), held, passed

    def _offloaded(self, c: Candidate) -> list[Candidate]:
        """Programs that have values of one in the host's memory until they are read."""
        return [new for share in SHARES for new in self._rounds(c, share)]

    def _rounds(self, c: Candidate, share: float) -> Iterator[Candidate]:
        """What leaves at the peak, and where most is in memory then."""
        for _ in range(ROUNDS if share == 1 else 1):
            program, moved = offload_residuals(c.program, *self._lives(c.program), share)
            if not moved:
                return
            more = 2 * moved * NANOSECONDS_A_COPIED_BYTE
            changes = (*c.changes, ("offload_residuals", program))
            c = self._candidate(program, c.nanoseconds + more, changes)
            yield c

    def _segmented(self, c: Candidate) -> list[Candidate]:
        """Programs that compute segments of one again."""
        _, held, passed = self._lives(c.program)
        cheap = lambda eqn: not _is_shaped(eqn)
        found = candidates(c.program, held, passed, self.cost, cheap, self._inside)
        return [
            new._replace(
                nanoseconds=new.nanoseconds + c.nanoseconds,
                changes=(*c.changes, ("recompute_for_memory", new.program)),
            )
            for new in found
        ]

    def _places(self, closed: ClosedJaxpr) -> tuple[set[Var], set[Var]]:
        """Values in memory of the program's own, and such that are no more than read."""
        names = {v for e in closed.eqns if _renames(e) for v in e.outvars}
        inlined = {v for e in closed.eqns if is_inlinable(e) for v in e.outvars}
        fusion = fuse(closed.jaxpr, self.target)
        results = set(closed.jaxpr.outvars)
        for e in reversed(closed.eqns):
            if is_bitcast(e) and e.outvars[0] in results:
                results.update(e.invars)
        return fusion.stored - names - results, inlined - fusion.stored | names

    def _whole(self, closed: ClosedJaxpr) -> float:
        """Nanoseconds of the equations of which that is known."""
        return sum(x for x in map(self.cost, closed.eqns) if not math.isinf(x))

    def _inside(self, eqn: JaxprEqn) -> int:
        """Bytes that a loop's steps, or a branch, need besides operands and results."""
        if not isinstance(eqn.primitive.lowering, Control):
            return 0
        bodies = [c for value in eqn.params.values() for c in subjaxprs_of_value(value)]
        most = max((self._peak(c) for c in bodies if isinstance(c, ClosedJaxpr)), default=0)
        # What a step carries is made beside what it was.
        return most + sum(v.aval.nbytes for v in eqn.outvars[: eqn.params.get("num_carry", 0)])

    def _peak(self, closed: ClosedJaxpr) -> int:
        if closed not in self._peaks:
            body = self.prepared(closed)
            held, passed = self._places(body)
            self._peaks[closed] = Liveness(body.eqns, (), held, passed, self._inside).peak()[1]
        return self._peaks[closed]


def _renames(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == BARRIER or is_bitcast(eqn)


def _is_shaped(eqn: JaxprEqn) -> bool:
    return isinstance(eqn.primitive.lowering, Shaped)


def _nanoseconds(eqn: JaxprEqn, target: CpuTarget | GpuTarget) -> float:
    """How long an equation takes once more; infinite for one that may run only once."""
    if eqn.primitive.name == "scan" and not eqn.effects:
        step = flatten_calls(eqn.params["jaxpr"])
        return float(eqn.params["length"] * sum(_nanoseconds(e, target) for e in step.eqns))
    if eqn.effects or isinstance(eqn.primitive.lowering, Control | Host):
        return math.inf
    if _is_shaped(eqn) and not is_bitcast(eqn):
        return float(estimate(eqn, target))
    if not (is_inlinable(eqn) or isinstance(eqn.primitive.lowering, Reduce) or is_bitcast(eqn)):
        return 0.0 if eqn.primitive.name == BARRIER else math.inf
    elements = max((x.aval.size for x in (*eqn.invars, *eqn.outvars)), default=0)
    moved = sum(v.aval.nbytes for v in eqn.outvars)
    return elements * own_cost(eqn) * NANOSECONDS_AN_OPERATION + moved * NANOSECONDS_A_BYTE
