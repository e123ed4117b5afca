"""Models as flat programs: operations in order, each with the node that it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import amdjax
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from amdjax.core.pytree import tree_leaves, tree_unflatten
from amdjax.driver.reading import Subject
from amdjax.passes.extended import store_extended
from amdjax.passes.flatten import discharge_refs, flatten_calls


@dataclass(frozen=True)
class Flat:
    """A model's program for inputs of known sizes, its calls written out.

    Args:
      closed: the program.
      leaves: its arguments: parameters and inputs.
      out_tree: structure of its results.
    """

    closed: ClosedJaxpr
    leaves: list[Any]
    out_tree: Any

    @property
    def eqns(self) -> list[JaxprEqn]:
        """Its operations."""
        return self.closed.eqns

    def outputs(self, results: Sequence[Any]) -> dict[str, Any]:
        """The results by name."""
        return tree_unflatten(self.out_tree, list(results))

    def prefix(self, count: int) -> ClosedJaxpr:
        """Its first operations; the results are what is read after them, and of the whole."""
        jaxpr = self.closed.jaxpr
        made = dict.fromkeys(v for e in jaxpr.eqns[:count] for v in e.outvars)
        read = {v for e in jaxpr.eqns[count:] for v in e.invars if not isinstance(v, Literal)}
        read.update(v for v in jaxpr.outvars if not isinstance(v, Literal))
        outvars = [v for v in made if v in read]
        part = Jaxpr(
            jaxpr.constvars, jaxpr.invars, outvars, jaxpr.eqns[:count], None, jaxpr.debug_info
        )
        return ClosedJaxpr(part, self.closed.consts)


def flat_program(subject: Subject, inputs: dict[str, Any]) -> Flat:
    """The program of a model for inputs.

    Args:
      subject: the model.
      inputs: arrays by name.
    """
    params = dict(subject.params)
    traced = amdjax.jit(subject.function).trace(params, **inputs)
    closed = store_extended(discharge_refs(flatten_calls(traced.jaxpr)))
    return Flat(closed, tree_leaves(((params,), inputs)), traced.out_tree)


def compiled_results(closed: ClosedJaxpr, leaves: Sequence[Any]) -> list[Any]:
    """What a compiled program gives."""
    return list(amdjax.jit(jaxpr_as_fun(closed))(*leaves))


def node_of(eqn: JaxprEqn) -> str:
    """The name of the node that an operation was made from; "" if there is none."""
    return str(eqn.source.name_stack)


def shown(eqn: JaxprEqn) -> str:
    """An operation in a line: its name and types."""
    results = ", ".join(v.aval.str_short() for v in eqn.outvars)
    operands = ", ".join(_type(x) for x in eqn.invars)
    return f"{eqn.primitive.name} of {operands or 'nothing'} -> {results}"


def _type(x: Var | Literal) -> str:
    return str(x.val) if isinstance(x, Literal) and not x.aval.shape else x.aval.str_short()
