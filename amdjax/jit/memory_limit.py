"""Programs whose intermediates stay within a limit: what is computed again is found by planning."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from amdjax.core.dims import Dim
from amdjax.core.errors import InconclusiveDimensionOperation, JaxRuntimeError
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn
from amdjax.core.lowering import Control, Host, Reduce, Shaped
from amdjax.kernels.shaped import estimate
from amdjax.passes import is_on
from amdjax.passes.barriers import BARRIER
from amdjax.passes.recomputation import candidates
from amdjax.schedule.equations import is_bitcast, is_inlinable, own_cost
from amdjax.schedule.fusion import fuse
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget

__all__ = ["keep_within"]

PLANS = 8  # that are made to find one within the limit
NANOSECONDS_AN_OPERATION = 0.1
NANOSECONDS_A_BYTE = 0.1


def keep_within(
    closed: ClosedJaxpr, limit: int | None, needed: Callable[[ClosedJaxpr], int],
    target: CpuTarget | GpuTarget,
) -> ClosedJaxpr:  # fmt: skip
    """The program whose intermediates are within a limit and that computes least again for it.

    Args:
      closed: the program after all passes.
      limit: bytes that its intermediates may take; None for any number.
      needed: how many a program takes, as planned.
      target: the machine.

    Raises:
      JaxRuntimeError: no program that was found is within the limit; it tells the least peak.
      InconclusiveDimensionOperation: shapes are symbolic; each size is compiled by itself then.
    """
    if limit is None or not is_on("recompute_for_memory"):
        return closed
    if any(isinstance(n, Dim) for v in (*closed.in_avals, *closed.out_avals) for n in v.shape):
        raise InconclusiveDimensionOperation(
            f"memory_limit is {limit:,} bytes, but sizes are not known that tell what is needed."
        )
    first = least = needed(closed)
    if first <= limit:
        return closed
    names = {v for e in closed.eqns if _renames(e) for v in e.outvars}
    inlined = {v for e in closed.eqns if is_inlinable(e) for v in e.outvars}
    fusion = fuse(closed.jaxpr, on_gpu=isinstance(target, GpuTarget))
    held, passed = fusion.stored - names, inlined - fusion.stored | names
    cost = functools.cache(lambda eqn: _nanoseconds(eqn, target))
    found = candidates(closed, held, passed, cost, lambda eqn: not _is_shaped(eqn))
    aim = float(limit)
    for _ in range(PLANS):
        # The cheapest that should do; where none should, the one that comes nearest.
        at = next((i for i, c in enumerate(found) if c.peak <= aim), len(found) - 1)
        if at < 0:
            break
        best, found = found[at], found[at + 1 :]
        bytes_now = needed(best.program)
        if bytes_now <= limit:
            return best.program
        least = min(least, bytes_now)
        aim = min(aim, best.peak) * limit / bytes_now
    raise JaxRuntimeError(
        f"RESOURCE_EXHAUSTED: memory_limit is {limit:,} bytes, but intermediates take {first:,}"
        + (f", and {least:,} at least where values are computed again." if least < first else ".")
    )


def _renames(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == BARRIER or is_bitcast(eqn)


def _is_shaped(eqn: JaxprEqn) -> bool:
    return isinstance(eqn.primitive.lowering, Shaped)


def _nanoseconds(eqn: JaxprEqn, target: CpuTarget | GpuTarget) -> float:
    """How long an equation takes once more; infinite for one that may run only once."""
    if eqn.effects or isinstance(eqn.primitive.lowering, Control | Host):
        return math.inf
    if _is_shaped(eqn) and not is_bitcast(eqn):
        return float(estimate(eqn, target))
    if not (is_inlinable(eqn) or isinstance(eqn.primitive.lowering, Reduce) or is_bitcast(eqn)):
        return 0.0 if eqn.primitive.name == BARRIER else math.inf
    elements = max((x.aval.size for x in (*eqn.invars, *eqn.outvars)), default=0)
    moved = sum(v.aval.nbytes for v in eqn.outvars)
    return elements * own_cost(eqn) * NANOSECONDS_AN_OPERATION + moved * NANOSECONDS_A_BYTE
