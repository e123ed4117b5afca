"""Calls are inlined and decomposed operations replaced, until only what can be lowered is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.config import config, disable_jit, enable_x64
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.lowering import Control, Decompose, Shaped
from amdjax.core.primitive import Primitive
from amdjax.core.ref import AbstractRef
from amdjax.core.source_info import SourceInfo, unknown, written_at
from amdjax.passes.barriers import BARRIER
from amdjax.transforms.discharge import discharged


def flatten_calls(
    closed: ClosedJaxpr, has_kernels: Callable[[JaxprEqn], bool] = lambda eqn: True
) -> ClosedJaxpr:
    """Inline `call` equations and expand `Decompose` rules, at every depth.

    So are families that have a definition by other operations, where they have no kernels.
    """
    flat = _Flattener(has_kernels)
    constvars = list(closed.jaxpr.constvars)
    env: dict[Var, Any] = {v: v for v in [*constvars, *closed.jaxpr.invars]}
    flat.inline(closed.jaxpr, env)
    outvars = [flat.read(env, v) for v in closed.jaxpr.outvars]
    jaxpr = Jaxpr(
        constvars + flat.constvars, closed.jaxpr.invars, outvars, flat.eqns, None,
        closed.jaxpr.debug_info,
    )  # fmt: skip
    return ClosedJaxpr(jaxpr, list(closed.consts) + flat.consts)


def discharge_refs(closed: ClosedJaxpr) -> ClosedJaxpr:
    """References become the values they hold, which loops carry and operations update in place.

    Those that the program makes; calls must be inlined.
    """
    own = any(type(v.aval) is AbstractRef for eqn in closed.eqns for v in eqn.outvars)
    return flatten_calls(discharged(closed)) if own else closed


class _Flattener:
    def __init__(self, has_kernels: Callable[[JaxprEqn], bool]) -> None:
        self.has_kernels = has_kernels
        self.eqns: list[JaxprEqn] = []
        self.constvars: list[Var] = []
        self.consts: list[Any] = []

    @staticmethod
    def read(env: dict[Var, Any], atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else env[atom]

    def inline(self, jaxpr: Jaxpr, env: dict[Var, Any], caller: SourceInfo = unknown) -> None:
        """Copy the equations of `jaxpr`, whose free variables `env` maps, into the result.

        Those of unknown line, as in the library's own programs, are the caller's.
        """
        for eqn in jaxpr.eqns:
            invars = [self.read(env, x) for x in eqn.invars]
            source = _within(caller, eqn.source)
            rule = eqn.primitive.lowering
            if isinstance(rule, Control) and rule.name == "call":
                if eqn.params.get("prevent_cse") and eqn.params.get("differentiated"):
                    invars = self._behind_barrier(invars)
                results = self._closed(eqn.params[rule.jaxpr_param], invars, source)
            elif (composed := self._composed(eqn)) is not None:
                results = self._closed(written_out(eqn, composed), invars, source)
            else:
                outvars = [Var(v.aval) for v in eqn.outvars]
                self.eqns.append(eqn.replace(invars=invars, outvars=outvars, source=source))
                results = list(outvars)
            env.update(zip(eqn.outvars, results, strict=True))

    def _composed(self, eqn: JaxprEqn) -> Callable[..., Any] | None:
        """The operation as a function of others, if it is to be replaced by them."""
        rule = eqn.primitive.lowering
        if isinstance(rule, Decompose):
            return None if eqn.primitive.name == BARRIER else rule.fn
        if isinstance(rule, Shaped) and rule.composed is not None and not self.has_kernels(eqn):
            return rule.composed
        return None

    def _behind_barrier(self, atoms: list[Any]) -> list[Any]:
        """New names for values, so that what is recomputed from them is not found to be known."""
        primitive = Primitive.by_name[BARRIER]
        known = [x for x in atoms if not isinstance(x, Literal)]
        fresh = [Var(x.aval) for x in known]
        self.eqns.append(JaxprEqn(primitive, known, fresh, {}))
        table = dict(zip(known, fresh, strict=True))
        return [x if isinstance(x, Literal) else table[x] for x in atoms]

    def _closed(self, inner: ClosedJaxpr | Jaxpr, args: list[Any], caller: SourceInfo) -> list[Any]:
        if isinstance(inner, Jaxpr):
            inner = ClosedJaxpr(inner, ())
        fresh = [Var(v.aval) for v in inner.jaxpr.constvars]
        self.constvars += fresh
        self.consts += inner.consts
        env: dict[Var, Any] = dict(zip(inner.jaxpr.constvars, fresh, strict=True))
        env.update(
            zip(inner.jaxpr.invars, args[len(args) - len(inner.jaxpr.invars) :], strict=True)
        )
        self.inline(inner.jaxpr, env, caller)
        return [self.read(env, v) for v in inner.jaxpr.outvars]


def _within(caller: SourceInfo, source: SourceInfo) -> SourceInfo:
    """The place of an operation of a called program: its own, in the scopes of the call."""
    if source.code is None:
        return caller._replace(scope=caller.scope + source.scope)
    return source._replace(scope=caller.scope + source.scope) if caller.scope else source


def written_out(eqn: JaxprEqn, composed: Callable[..., Any]) -> ClosedJaxpr:
    """The program that an equation stands for, of other operations."""

    def fn(*args: Any) -> list[Any]:
        out = composed(*args, **eqn.params)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    # Loops in the rule are to be compiled, whatever the flag.
    with disable_jit(False), written_at(eqn.source), enable_x64(eqn.is_wide or config.enable_x64):
        return trace_to_jaxpr(fn, [x.aval for x in eqn.invars])
