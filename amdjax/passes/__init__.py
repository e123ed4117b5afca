"""Passes over jaxprs before kernels are decided: each takes a `ClosedJaxpr` and returns one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.check import check_jaxpr
from amdjax.core.config import config
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn
from amdjax.passes.attention import recognize_attention
from amdjax.passes.cleanup import eliminate_common_subexpressions, eliminate_dead_code
from amdjax.passes.extended import store_extended
from amdjax.passes.flatten import discharge_refs, flatten_calls, remove_barriers
from amdjax.passes.loop_residuals import recompute_in_loops as recompute_in_loops
from amdjax.passes.loop_slices import slice_products_in_loops as slice_products_in_loops
from amdjax.passes.loop_sums import sum_after_loops
from amdjax.passes.narrow_operands import read_narrow_operands as read_narrow_operands
from amdjax.passes.results import repeat_results as repeat_results
from amdjax.passes.rules import simplify
from amdjax.passes.scatters import join_scatters

#: In order; each runs on the whole program and on every loop body and branch. What is written twice
#: is shared before rules look at it, since some only fit what has one reader, and once more after,
#: since rules make different expressions equal.
PASSES: tuple[Callable[..., ClosedJaxpr], ...] = (
    flatten_calls,
    discharge_refs,
    store_extended,
    eliminate_common_subexpressions,
    sum_after_loops,
    simplify,
    eliminate_dead_code,
    eliminate_common_subexpressions,
    recognize_attention,
    join_scatters,
    remove_barriers,
)

#: Those that are also given whether the machine has kernels for an equation.
_ASK_FOR_KERNELS = (flatten_calls, recognize_attention)

Observer = Callable[[str, Any], None]


def prepare(
    closed: ClosedJaxpr,
    observe: Observer = lambda stage, x: None,
    has_kernels: Callable[[JaxprEqn], bool] = lambda eqn: True,
) -> ClosedJaxpr:
    """Run all passes on a program; its loop bodies get them when they are lowered.

    Args:
      closed: the program.
      observe: receives the name of each pass and what it made.
      has_kernels: whether the machine has kernels for an equation that could be composed.
    """
    for run in PASSES:
        closed = run(closed, has_kernels) if run in _ASK_FOR_KERNELS else run(closed)
        if config.check:
            check_jaxpr(closed.jaxpr)
        observe(run.__name__, closed)
    return closed


def prepare_body(
    closed: ClosedJaxpr,
    eqn: JaxprEqn,
    observe: Observer,
    has_kernels: Callable[[JaxprEqn], bool],
) -> ClosedJaxpr:
    """Run all passes on a loop body or branch of `eqn`.

    Equations of unknown line, as in the library's own programs, are of the line of `eqn`.
    """
    eqns = closed.eqns
    if any(e.source.code is None for e in eqns):
        placed = [e.replace(source=eqn.source) if e.source.code is None else e for e in eqns]
        closed = closed.replace(jaxpr=closed.jaxpr.replace(eqns=placed))
    return prepare(closed, observe, has_kernels)
