"""How the steps of a loop's body share what they make among programs that stay resident."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

import amdjax.kernels  # noqa: F401  (registers the families, also after Ctrl-C in an import)
from amdjax.core.dims import size_hint
from amdjax.core.jaxpr import Literal, Var
from amdjax.jit.schedule import epilogue, is_shaped
from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.products.gpu.resident import (
    ResidentPlan,
    as_resident,
    can_part,
    cheapest_resident,
    is_worth_it,
    resident_clocks,
)
from amdjax.kernels.shaped import ShapedContext
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Fusion, Region, Single, step_reads, step_writes
from amdjax.schedule.gpu.partition import Partition, Resident, group_width
from amdjax.schedule.gpu.parts import part_foreign_reads, plan_part
from amdjax.targets import GpuTarget


def plan_partition(
    fusion: Fusion,
    target: GpuTarget,
    fixed: Collection[Var],
    carried: Iterable[tuple[Var, Var | Literal]],
) -> Partition | None:
    """The partition in which a product makes what elementwise steps of its programs read.

    Args:
      fusion: of the loop's body.
      target: the GPU.
      fixed: variables that the loop does not change.
      carried: arguments of the body, and what they are in the next round.

    Returns:
      That of the largest product; None where no product has one, or where the grid barrier that it
      saves is cheaper than the product becomes.
    """
    regions = [
        s for s in fusion.steps if isinstance(s, Region) and s.axes is None and 0 not in s.domain
    ]
    products = [s for s in fusion.steps if isinstance(s, Single) and _multiplies(s)]
    if not regions or not products:
        return None
    domains = [Domain(r, fusion) for r in regions]
    found: list[tuple[int, Partition]] = []
    for step in products:
        ctx = ShapedContext(step.eqn, target, epilogue(step, fusion), fixed, Resident())
        problem = as_resident(dot_contraction(ctx))
        usual = None if problem is None else _usual(target, problem.at_hand)
        if problem is None or usual is None:
            continue
        made = {v for v in step_writes(step) if v in fusion.stored}
        made |= {v for v, out in carried if out in made}
        width = group_width(problem.columns, made, domains)
        best = _cheapest(target, problem, usual, width)
        if best and any(_reads(r, fusion, target, best, made) for r in regions):
            found.append((size_hint(problem.rows) * problem.columns * problem.depth, best))
    return max(found, key=lambda f: f[0], default=(0, None))[1]


def _multiplies(step: Single) -> bool:
    return step.eqn.primitive.name == "dot_general" and is_shaped(step.eqn)


def _usual(target: GpuTarget, problem: Contraction) -> ResidentPlan | None:
    """The plan of a product whose programs have whatever columns are best."""
    found = cheapest_resident(target, problem, problem.columns)
    return found if found is not None and is_worth_it(target, found) else None


def _cheapest(
    target: GpuTarget, problem: Contraction, usual: ResidentPlan, width: int
) -> Partition | None:
    """The partition of a product in groups of columns, if it costs less than a grid barrier."""
    if not can_part(problem, problem.rows, width):
        return None
    found = cheapest_resident(target, problem, width)
    if found is None:
        return None
    barrier = target.costs.grid_barrier(math.prod(usual.grid))
    clocks = resident_clocks(target, found.of(problem.at_hand))
    return found.partition if clocks <= resident_clocks(target, usual) + barrier else None


def _reads(
    region: Region, fusion: Fusion, target: GpuTarget, partition: Partition, made: Collection[Var]
) -> bool:
    """Whether a region in parts reads what a product made, and of that its own only."""
    if plan_part(region, fusion, target, partition) is None:
        return False
    read = {v for r in region.roots for v, _ in r.reads if not isinstance(v, Literal)}
    return bool(read.intersection(made) - part_foreign_reads(region, fusion, partition))


def merge_parts(fusion: Fusion, target: GpuTarget, partition: Partition) -> Fusion:
    """The steps with neighbors as one that read of each other their programs' own parts alone.

    What one of them makes for the other then stays in registers.

    Args:
      fusion: of the loop's body.
      target: the GPU.
      partition: of what the loop's programs make.
    """
    steps: list[Region | Single] = []
    merged: set[Var] = set()
    for step in fusion.steps:
        before = steps[-1] if steps else None
        if isinstance(before, Region) and isinstance(step, Region):
            parts = [plan_part(r, fusion, target, partition) for r in (before, step)]
            foreign = part_foreign_reads(step, fusion, partition) if all(parts) else set()
            if all(parts) and not foreign.intersection(step_writes(before)):
                steps[-1] = replace(before, roots=[*before.roots, *step.roots])
                merged.update(step_writes(before))
                continue
        steps.append(step)
    if not merged:
        return fusion
    kept = {v for step in steps for v in step_reads(step) if isinstance(v, Var)}
    kept.update(v for v in fusion.jaxpr.outvars if isinstance(v, Var))
    stored = {v for v in fusion.stored if v in kept or v not in merged}
    return replace(fusion, steps=steps, stored=stored, launches={})
