"""All passes on a program, in order."""

from __future__ import annotations

from amdjax.core.check import check_jaxpr
from amdjax.core.config import config
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn
from amdjax.passes.switches import is_on
from amdjax.passes.table import PASSES, Facts, Note


def prepare(
    closed: ClosedJaxpr,
    facts: Facts = Facts(),  # noqa: B008  (it never changes)
    note: Note = lambda name, before, after: None,
) -> ClosedJaxpr:
    """Run all passes on a program; its loop bodies get them when they are lowered.

    Args:
      closed: the program.
      facts: what passes may ask of where it will run.
      note: receives the name of each pass that ran, the program before it and the program after.

    Returns:
      The program, of operations that can be lowered.

    Raises:
      ValueError: the option `disabled_passes` names what is no pass, or one that is needed.

    Example:
      >>> program = amdjax.make_jaxpr(lambda x: (x + 0.0) * 2)(1.0)
      >>> prepare(program)
      { lambda ; a:f32[]. let b:f32[] = mul a 2.0:f32[] in (b,) }
    """
    is_on("")  # raises for names that are none, whichever passes run
    for p in PASSES:
        if p.runs(facts):
            assert p.run is not None
            before, closed = closed, p.run(closed, facts)
            if config.check:
                check_jaxpr(closed.jaxpr)
            note(p.name, before, closed)
    return closed


def prepare_body(closed: ClosedJaxpr, eqn: JaxprEqn, facts: Facts, note: Note) -> ClosedJaxpr:
    """Run all passes on a loop body or branch of `eqn`.

    Equations of unknown line, as in the library's own programs, are of the line of `eqn`.
    """
    eqns = closed.eqns
    if any(e.source.code is None for e in eqns):
        placed = [e.replace(source=eqn.source) if e.source.code is None else e for e in eqns]
        closed = closed.replace(jaxpr=closed.jaxpr.replace(eqns=placed))
    return prepare(closed, facts, note)
