"""Transposition: linear programs run backwards, from cotangents of results to those of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core import source_info
from amdjax.core.aval import get_aval
from amdjax.core.config import config, enable_x64
from amdjax.core.dtypes import NARROWED
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, memoize_on_jaxpr
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.transforms.zero import (
    UndefinedPrimal,
    Zero,
    add_tangents,
    instantiate_zeros,
    is_undefined_primal,
)


def backward_pass(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    args: Sequence[Any],
    cts: Sequence[Any],
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """Cotangents of the linear inputs of a program.

    Args:
      jaxpr: linear in the arguments that are unknown; operations on known values are evaluated.
      consts: values of its constvars.
      args: a value for each known argument, `UndefinedPrimal` for each linear one.
      cts: cotangents of the results; `Zero` is allowed.
      wanted: of which arguments; by default of all. What only others need is not computed.

    Returns:
      For each argument its cotangent, which may be `Zero`; None for the known ones.
    """
    backward = _Backward(jaxpr, consts, args)
    if wanted is not None:
        backward.ignored.update(v for v, w in zip(jaxpr.invars, wanted) if not w)
    if config.enable_x64 or not _has_wide_values(jaxpr):
        return backward.run(cts)
    with enable_x64(True):  # traced under such a setting, which its constants need again
        return backward.run(cts)


@memoize_on_jaxpr
def _has_wide_values(jaxpr: Jaxpr) -> bool:
    """Whether a result is of a dtype that there is with 64-bit types only."""
    outvars = (v for eqn in jaxpr.eqns for v in eqn.outvars)
    return any(getattr(v.aval, "dtype", None) in NARROWED for v in outvars)


class _Backward:
    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]):
        self.jaxpr = jaxpr
        self.args = args
        self.known: dict[Var, Any] = dict(zip(jaxpr.constvars, consts))
        self.known.update((v, x) for v, x in zip(jaxpr.invars, args) if not is_undefined_primal(x))
        self.cts: dict[Var, Any] = {}
        self.ignored: set[Var] = set()  # linear ones of which no cotangent is wanted
        self.outer = source_info.position()

    def run(self, cts: Sequence[Any]) -> list[Any]:
        try:
            linear = [
                eqn for eqn in self.jaxpr.eqns if not (self.evaluate(eqn) or self.ignore(eqn))
            ]
            for v, ct in zip(self.jaxpr.outvars, cts):
                self.accumulate(v, ct)
            for eqn in reversed(linear):
                self.transpose(eqn)
        finally:
            source_info.restore(self.outer)
        return [
            self.cts.get(v, Zero(v.aval.to_tangent())) if is_undefined_primal(x) else None
            for v, x in zip(self.jaxpr.invars, self.args)
        ]

    def read(self, v: Any) -> Any:
        if type(v) is Literal:
            return v.val
        return self.known[v] if v in self.known else UndefinedPrimal(v.aval)

    def evaluate(self, eqn: JaxprEqn) -> bool:
        """Run an operation whose inputs are all known; False if one is not."""
        known = self.known
        if not all(type(v) is Literal or v in known for v in eqn.invars):
            return False
        source_info.replay(eqn.source, self.outer)
        out = eqn.primitive.bind(*map(self.read, eqn.invars), **eqn.params)
        known.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else (out,)))
        return True

    def ignore(self, eqn: JaxprEqn) -> bool:
        """Whether an operation leads to nothing but ignored inputs."""
        if not self.ignored:
            return False
        linear = [v for v in eqn.invars if type(v) is not Literal and v not in self.known]
        if not self.ignored.issuperset(linear):
            return False
        self.ignored.update(eqn.outvars)
        return True

    def accumulate(self, v: Any, ct: Any) -> None:
        if ct is None or ct is Zero or type(ct) is Zero or type(v) is Literal or v in self.known:
            return
        if v in self.ignored:
            return
        if config.check and not config.disable_bwd_checks:
            _check_cotangent(v, ct)
        old = self.cts.get(v)
        self.cts[v] = ct if old is None else add_tangents(old, ct)

    def transpose(self, eqn: JaxprEqn) -> None:
        cts = [self.cts.pop(v, None) for v in eqn.outvars]
        if all(ct is None for ct in cts):
            return
        cts = [Zero(v.aval.to_tangent()) if ct is None else ct for v, ct in zip(eqn.outvars, cts)]
        rule = eqn.primitive.transpose
        if rule is None:
            raise NotImplementedError(
                f"Transpose rule (for reverse-mode differentiation) for "
                f"'{eqn.primitive.name}' not implemented"
            )
        source_info.replay(eqn.source, self.outer)
        ct = cts if eqn.primitive.multiple_results else cts[0]
        for v, out in zip(eqn.invars, rule(ct, *map(self.read, eqn.invars), **eqn.params)):
            self.accumulate(v, out)


def _check_cotangent(v: Any, ct: Any) -> None:
    aval, expected = get_aval(ct), v.aval.to_tangent()
    if aval.shape != expected.shape:  # the dtype is a custom rule's own affair
        raise TypeError(f"a cotangent for {expected} has type {aval}")


def transpose_jaxpr(
    closed: ClosedJaxpr,
    linear: Sequence[bool],
    nonzero_cts: Sequence[Any] | None = None,
    *,
    instantiate: bool | Sequence[bool] = False,
) -> tuple[ClosedJaxpr, list[bool]]:
    """The transpose of a program that is linear in some of its arguments.

    Args:
      closed: the program.
      linear: which arguments it is linear in.
      nonzero_cts: for which results a cotangent is given; by default all. A type in place of True
        says of what type it is, if not of that of the result's tangent.
      instantiate: for which linear arguments to return a cotangent though it is zero.

    Returns:
      A program `(*known arguments, *given cotangents) -> (*cotangents of linear arguments)`, and
      for each linear argument whether its cotangent is among the results.
    """
    if nonzero_cts is None:
        nonzero_cts = (True,) * len(closed.out_avals)
    if isinstance(instantiate, bool):
        instantiate = (instantiate,) * sum(linear)
    return _transpose_jaxpr(
        closed, tuple(map(bool, linear)), tuple(nonzero_cts), tuple(instantiate)
    )


@memoize_on_jaxpr
def _transpose_jaxpr(
    closed: ClosedJaxpr,
    linear: tuple[bool, ...],
    nonzero_cts: tuple[Any, ...],
    instantiate: tuple[bool, ...],
) -> tuple[ClosedJaxpr, list[bool]]:
    kept: list[bool] = []

    def fun(*args: Any) -> list[Any]:
        given = iter(args)
        primals = [
            UndefinedPrimal(a) if lin else next(given) for a, lin in zip(closed.in_avals, linear)
        ]
        cts = [
            Zero(a.to_tangent()) if nz is False else next(given)
            for a, nz in zip(closed.out_avals, nonzero_cts)
        ]
        found = backward_pass(closed.jaxpr, closed.consts, primals, cts)
        wanted = [ct for ct, lin in zip(found, linear) if lin]
        kept.extend(type(ct) is not Zero or inst for ct, inst in zip(wanted, instantiate))
        return [instantiate_zeros(ct) for ct, keep in zip(wanted, kept) if keep]

    known = [a for a, lin in zip(closed.in_avals, linear) if not lin]
    cts = [
        a.to_tangent() if nz is True else nz
        for a, nz in zip(closed.out_avals, nonzero_cts)
        if nz is not False
    ]
    return trace_to_jaxpr(fun, [*known, *cts]), kept


def given_types(cts: Sequence[Any]) -> tuple[Any, ...]:
    """The types of cotangents as `transpose_jaxpr` takes them, False for those that are `Zero`.

    A cotangent may be strongly typed though the result is not; then those of the arguments are.
    """
    return tuple(False if type(ct) is Zero else get_aval(ct) for ct in cts)


def transpose_call(
    closed: ClosedJaxpr, cts: Sequence[Any], args: Sequence[Any]
) -> tuple[ClosedJaxpr, list[Any], Any]:
    """What the transpose rule of a primitive that calls a program needs.

    Args:
      closed: the program it calls.
      cts: cotangents of the results.
      args: operands, `UndefinedPrimal` for the linear ones.

    Returns:
      The transposed program; its arguments; and a function from its results to the cotangents of
      all operands.
    """
    linear = [is_undefined_primal(x) for x in args]
    nonzero = given_types(cts)
    transposed, kept = transpose_jaxpr(closed, linear, nonzero)
    values = [x for x, lin in zip(args, linear) if not lin]
    values += [ct for ct in cts if type(ct) is not Zero]

    def spread(outs: Sequence[Any]) -> list[Any]:
        found, keep = iter(outs), iter(kept)
        return [next(found) if lin and next(keep) else None for lin in linear]

    return transposed, values, spread
