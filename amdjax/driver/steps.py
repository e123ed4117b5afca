"""Which nodes of a model the steps of its compiled program compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.driver.programs import node_of
from amdjax.schedule.fusion import Fusion, Region, Single


class Layer(NamedTuple):
    """What a step computes.

    Args:
      nodes: names of nodes, in order.
      operations: names of operations that it computes, those read by others left out.
    """

    nodes: tuple[str, ...]
    operations: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its nodes in a line."""
        return ", ".join(self.nodes)


def layers(fusion: Fusion) -> list[Layer]:
    """What each step of a program computes."""
    order = {id(e): n for n, e in enumerate(fusion.jaxpr.eqns)}
    found = []
    for step in fusion.steps:
        eqns = sorted(_computed(step, fusion), key=lambda e: order.get(id(e), 0))
        nodes = dict.fromkeys(n for e in eqns if (n := node_of(e)))
        roots = dict.fromkeys(e.primitive.name for e in _roots(step))
        found.append(Layer(tuple(nodes), tuple(roots)))
    return found


def merged(found: Iterable[Layer]) -> Layer:
    """Several steps as one."""
    nodes, operations = zip(*found) if found else ((), ())
    flat = lambda groups: tuple(dict.fromkeys(x for g in groups for x in g))
    return Layer(flat(nodes), flat(operations))


def _roots(step: Region | Single) -> Iterator[JaxprEqn]:
    if isinstance(step, Single):
        yield step.eqn
        for region in (step.epilogue, step.sums):
            yield from _roots(region) if region is not None else ()
    else:
        yield from (root.eqn for region in step.parts for root in region.roots)


def _computed(step: Region | Single, fusion: Fusion) -> list[JaxprEqn]:
    """The operations of a step, with those that it computes where it reads them."""
    found: dict[int, JaxprEqn] = {}
    waiting: list[Any] = list(_roots(step))
    while waiting:
        eqn = waiting.pop()
        if id(eqn) in found:
            continue
        found[id(eqn)] = eqn
        for x in eqn.invars:
            producer = fusion.producers.get(x) if isinstance(x, Var) else None
            if producer is not None and x not in fusion.stored and x not in fusion.roots:
                waiting.append(producer)
    return list(found.values())
