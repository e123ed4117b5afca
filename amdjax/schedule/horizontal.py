"""Horizontal fusion: regions that are independent of each other, and ready at the same time, run
as one launch.

The leaves of a parameter tree are such regions. Each is planned and written by itself; what they
share is the launch, so that small ones do not take the time of one each, nor wait for each other.
A region goes up to the first one that it may run beside, never down, so that updates in place
still find their readers done.

On GPUs products that share an operand are such steps too, as queries, keys and values of attention:
they are one launch, whose programs find their operands, and the width of the other one, in a table.
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
from amdjax.targets import GpuTarget

#: Bytes of values for later steps that the regions of a launch may leave, beyond those of the
#: first: such a value is better read while it lies in a cache.
KEPT_BYTES = 1 << 18
#: Bytes of results of the products of a launch, which later steps read from the last cache. One
#: product of more has programs enough for a GPU.
PRODUCT_BYTES = 1 << 22
#: Operands larger than this are not read by two regions of a launch, so that one of them may take
#: over the memory.
SMALL_OPERAND = 64
NEWEST = 64  # launches that are looked at for a region
#: Programs for each compute unit of products of several widths in one launch. Being told their
#: sizes they need more instructions, which is less than what starting a launch takes while few run.
PROGRAMS_EACH = 2


def made_of(fusion: Fusion, constants: Collection[Var]) -> frozenset[Var]:
    """Constants, and what regions make of these alone."""
    known = set(constants)
    for step in fusion.steps if known else ():
        if isinstance(step, Region) or is_bitcast(step.eqn):
            reads = [v for v in step_reads(step) if not isinstance(v, Literal)]
            known.update(step_writes(step) if reads and known.issuperset(reads) else ())
    return frozenset(known)


def run_together(fusion: Fusion, constants: Collection[Var] = (), on_gpu: bool = False) -> Fusion:
    """The program with independent steps beside each other, each noted in `Fusion.launches`.

    What is made of `constants` alone runs by itself, as it need not run in each call. Products run
    together `on_gpu`.
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
        joins = 0 not in step.domain if isinstance(step, Region) else on_gpu and _is_product(step)
        kept = sum(v.aval.nbytes for v in step_writes(step) if v in kept_values)
        near = open_places[bisect_left(open_places, ready) :][-NEWEST:] if joins else []
        once = known.issuperset(step_writes(step))
        at = next((i for i in reversed(near) if places[i].takes(step, reads, kept, once)), None)
        if at is None:
            at = len(places)
            places.append(_Place(once))
            open_places += [at] if joins else []
        places[at].add(step, reads, kept)
        made_at.update((v, at) for v in step_writes(step))
    together = {s: tuple(p.steps) for p in places if len(p.steps) > 1 for s in p.steps}
    steps = [s for place in places for s in place.steps]
    return replace(fusion, steps=steps, launches=together)


class _Place:
    """Steps that run at the same time: in each call, or `once`."""

    def __init__(self, once: bool) -> None:
        self.once = once
        self.steps: list[Region | Single] = []
        self.large: set[Any] = set()
        self.kept = 0

    def takes(self, step: Region | Single, reads: set[Any], kept: int, once: bool) -> bool:
        """Whether a step may run beside those here."""
        if once is not self.once:
            return False
        first = self.steps[0]
        if isinstance(step, Single) or isinstance(first, Single):
            return _are_alike(first, step) and self._has_room(step)
        with choosing():
            few = self.kept + kept <= KEPT_BYTES
        return few and self.large.isdisjoint(_large(reads))

    def _has_room(self, step: Region | Single) -> bool:
        with choosing():
            made = sum(v.aval.nbytes for s in (*self.steps, step) for v in step_writes(s))
            return made <= PRODUCT_BYTES

    def add(self, step: Region | Single, reads: set[Any], kept: int) -> None:
        self.kept += kept if self.steps else 0
        self.steps.append(step)
        self.large |= _large(reads)


def _large(reads: set[Any]) -> set[Any]:
    with choosing():
        return {v for v in reads if size_of(v.aval.shape) > SMALL_OPERAND}


def _is_product(step: Single) -> bool:
    product = step.eqn.primitive.name == "dot_general" and step.sums is None
    return product and 0 not in step.eqn.outvars[0].aval.shape


def _are_alike(one: Region | Single, other: Region | Single) -> bool:
    """Whether these are products that share an operand, but for the width of the other one."""
    if not (isinstance(one, Single) and isinstance(other, Single)):
        return False
    a, b = one.eqn, other.eqn
    shares = any(x is y and isinstance(x, Var) for x, y in zip(a.invars, b.invars, strict=True))
    pairs = zip((*a.invars, *a.outvars), (*b.invars, *b.outvars), strict=True)
    return shares and a.params == b.params and all(_kind(x) == _kind(y) for x, y in pairs)


def _kind(atom: Any) -> tuple[int, Any]:
    return atom.aval.ndim, atom.aval.dtype


def are_few(programs: int, target: GpuTarget) -> bool:
    """Whether products of several widths are better one launch of so many programs."""
    return programs <= PROGRAMS_EACH * target.compute_units


def steps_text(steps: Sequence[Region | Single]) -> str:
    """What a launch of several steps is called."""
    regions = [s for s in steps if isinstance(s, Region)]
    maps = sum(r.axes is None for r in regions)
    products = len(steps) - len(regions)
    kinds = [(maps, "maps"), (len(regions) - maps, "rows"), (products, "products")]
    return " and ".join(f"{n} {name}" for n, name in kinds if n)
