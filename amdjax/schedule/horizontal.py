"""Horizontal fusion: regions that are independent of each other, and ready at the same time, run
as one launch.

The leaves of a parameter tree are such regions. Each is planned and written by itself; what they
share is the launch, so that small ones do not take the time of one each, nor wait for each other.
A region goes up to the first one that it may run beside, never down, so that updates in place
still find their readers done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from amdjax.core.dims import choosing
from amdjax.core.jaxpr import Literal, Var
from amdjax.passes import is_on
from amdjax.schedule.equations import is_bitcast, size_of
from amdjax.schedule.fusion import Fusion, Region, Single, step_reads, step_writes

#: Bytes of values for later steps that the regions of a launch may leave, beyond those of the
#: first: such a value is better read while it lies in a cache.
KEPT_BYTES = 1 << 18
#: Operands larger than this are not read by two regions of a launch, so that one of them may take
#: over the memory.
SMALL_OPERAND = 64
NEWEST = 64  # launches that are looked at for a region


def made_of(fusion: Fusion, constants: Collection[Var]) -> frozenset[Var]:
    """Constants, and what regions make of these alone."""
    known = set(constants)
    for step in fusion.steps if known else ():
        if isinstance(step, Region) or is_bitcast(step.eqn):
            reads = [v for v in step_reads(step) if not isinstance(v, Literal)]
            known.update(step_writes(step) if reads and known.issuperset(reads) else ())
    return frozenset(known)


def run_together(fusion: Fusion, constants: Collection[Var] = ()) -> Fusion:
    """The program with independent regions beside each other, each noted in `Fusion.launches`.

    What is made of `constants` alone runs by itself, as it need not run in each call.
    """
    if not is_on("run_together"):
        return fusion
    known = made_of(fusion, constants)
    places: list[_Place] = []
    made_at: dict[Var, int] = {}
    kept_values = fusion.stored - {v for v in fusion.jaxpr.outvars if not isinstance(v, Literal)}
    open_places: list[int] = []
    for step in fusion.steps:
        reads = {v for v in step_reads(step) if not isinstance(v, Literal)}
        ready = max((made_at[v] + 1 for v in reads if v in made_at), default=0)
        joins = isinstance(step, Region) and 0 not in step.domain
        kept = sum(v.aval.nbytes for v in step_writes(step) if v in kept_values)
        near = open_places[bisect_left(open_places, ready) :][-NEWEST:] if joins else []
        once = known.issuperset(step_writes(step))
        at = next((i for i in reversed(near) if places[i].takes(reads, kept, once)), None)
        if at is None:
            at = len(places)
            places.append(_Place(once))
            open_places += [at] if joins else []
        places[at].add(step, reads, kept)
        made_at.update((v, at) for v in step_writes(step))
    together: dict[Region, tuple[Region, ...]] = {}
    for place in places:
        regions = tuple(s for s in place.steps if isinstance(s, Region))
        if len(regions) > 1:
            together.update((r, regions) for r in regions)
    steps = [s for place in places for s in place.steps]
    return replace(fusion, steps=steps, launches=together)


class _Place:
    """Steps that run at the same time: in each call, or `once`."""

    def __init__(self, once: bool) -> None:
        self.once = once
        self.steps: list[Region | Single] = []
        self.large: set[Any] = set()
        self.kept = 0

    def takes(self, reads: set[Any], kept: int, once: bool) -> bool:
        """Whether a step may run beside those here."""
        if once is not self.once:
            return False
        with choosing():
            few = self.kept + kept <= KEPT_BYTES
        return few and self.large.isdisjoint(_large(reads))

    def add(self, step: Region | Single, reads: set[Any], kept: int) -> None:
        self.kept += kept if self.steps else 0
        self.steps.append(step)
        self.large |= _large(reads)


def _large(reads: set[Any]) -> set[Any]:
    with choosing():
        return {v for v in reads if size_of(v.aval.shape) > SMALL_OPERAND}


def regions_text(regions: Sequence[Region]) -> str:
    """What a launch of several regions is called."""
    maps = sum(r.axes is None for r in regions)
    kinds = [(maps, "maps"), (len(regions) - maps, "rows")]
    return " and ".join(f"{n} {name}" for n, name in kinds if n)
