"""Compiled programs that work on references: their contents go in and come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.jaxpr_trace import hoist_tracers
from amdjax.core.ref import AbstractRef, refuse_aliases
from amdjax.transforms.discharge import discharged

Run = Callable[[Sequence[Any]], list[Any]]


def compile_on_refs(
    compile_program: Callable[[ClosedJaxpr, Sequence[bool]], Run],
    closed: ClosedJaxpr,
    donated: Sequence[bool],
    refs: Sequence[Any] = (),
) -> Run:
    """Compile a program that may work on references; see `without_refs`."""
    pure, donated, runner = without_refs(closed, donated, refs)
    return runner(compile_program(pure, donated))


def works_on_refs(closed: ClosedJaxpr) -> bool:
    """Whether a program has references among its arguments or constants."""
    avals = (*closed.in_avals, *closed.const_avals)
    return any(type(a) is AbstractRef for a in avals)


def without_refs(
    closed: ClosedJaxpr, donated: Sequence[bool], refs: Sequence[Any] = ()
) -> tuple[ClosedJaxpr, tuple[bool, ...], Callable[[Run], Run]]:
    """A program on what references hold, and how to run it on references.

    Args:
      closed: the program.
      donated: which of its arguments, but for `refs`, it may overwrite.
      refs: its leading arguments, which are references known now.

    Returns:
      The program without references, which arguments it may overwrite, and a function from a way
      to run it to one that takes the other arguments of `closed` and writes references.

    Raises:
      ValueError: when run, if a reference is passed twice or closed over as well.
    """
    if not works_on_refs(closed):
        return closed, tuple(donated), lambda run: run
    hoisted, consts = hoist_tracers(closed)
    refs = [*consts, *refs]
    pure = discharged(hoisted)
    results = len(closed.out_avals)
    is_ref = [type(a) is AbstractRef for a in hoisted.in_avals]
    invars, finals = pure.jaxpr.invars, pure.jaxpr.outvars[results:]
    held = [v for v, r in zip(invars, is_ref) if r]
    written = [final is not v for final, v in zip(finals, held)]
    outvars = [*pure.jaxpr.outvars[:results], *(v for v, w in zip(finals, written) if w)]
    pure = ClosedJaxpr(pure.jaxpr.replace(outvars=outvars), pure.consts)
    overwritten = iter(written)
    flags = tuple(
        next(overwritten) if r else d for r, d in zip(is_ref, [*[False] * len(refs), *donated])
    )

    info = closed.jaxpr.debug_info
    names = (info and info.arg_names) or ()

    def runner(run: Run) -> Run:
        def call(args: Sequence[Any]) -> list[Any]:
            refuse_aliases("jit", names[len(names) - len(args) :], args, refs)
            args = [*refs, *args]
            given = [x for x, r in zip(args, is_ref) if r]
            outs = run([x.value if r else x for x, r in zip(args, is_ref)])
            targets = [ref for ref, w in zip(given, written) if w]
            for ref, value in zip(targets, outs[results:], strict=True):
                ref.value = value
            return outs[:results]

        return call

    return pure, flags, runner
