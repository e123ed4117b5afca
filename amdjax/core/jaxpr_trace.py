"""Recording programs: the trace that makes equations, and functions traced to programs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes, source_info
from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.aval import AbstractValue, ShapedArray, abstract_types, get_aval, register_aval
from amdjax.core.check import check_jaxpr
from amdjax.core.config import config
from amdjax.core.context import context
from amdjax.core.dim_values import dim_as_value
from amdjax.core.dims import Dim
from amdjax.core.effects import Effects, join_effects, no_effects
from amdjax.core.errors import UnexpectedTracerError, leaked_tracer_message
from amdjax.core.jaxpr import (
    Atom,
    ClosedJaxpr,
    DebugInfo,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    hoist_consts,
    with_leading,
)
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.recursion import Room
from amdjax.core.ref import AbstractRef, Ref, refuse_refs
from amdjax.core.sharding import HOST
from amdjax.core.source_info import SourceInfo
from amdjax.core.trace import FlatFun, Trace, Tracer, check_leaks, is_float0

_SCALARS = frozenset((bool, int, float, complex))
#: Of the frames between two functions of the user that are traced one in the other, those of ours.
FRAMES_OF_A_TRACE = 7


class JaxprTracer(Tracer):
    """A variable of the program being recorded.

    Args:
      trace: the trace that records.
      var: the variable.
      source: the line that made it.
    """

    __slots__ = ("aval", "source", "variable")

    def __init__(self, trace: JaxprTrace, var: Var, source: SourceInfo):
        self._trace = trace
        self.aval = var.aval
        self.variable = var
        self.source = source

    def _origin_msg(self) -> str:
        return self._trace.origin(self)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"JitTracer({self.aval})"


register_aval(JaxprTracer, lambda x: x.aval)
dtypes.register_array_type(JaxprTracer)


class JaxprTrace(Trace):
    """Records operations as a jaxpr.

    Values that are not its own tracers become constants: scalars are written into the program,
    everything else, tracers of other traces included, becomes a constvar.

    Args:
      parent: the trace that was current before.
      debug_info: for error messages.
      scopes_outside: how many of the enclosing scopes are not the program's own.

    Attributes:
      keep_arrays: whether arrays become constvars even if they are scalars.
    """

    __slots__ = (
        "constants", "constvars", "debug_info", "eqns", "invars", "keep_arrays", "scopes_outside",
    )  # fmt: skip
    records = True

    def __init__(
        self, parent: Trace | None, debug_info: DebugInfo | None = None, scopes_outside: int = 0
    ):
        super().__init__(parent)
        self.debug_info = debug_info
        self.scopes_outside = scopes_outside
        self.keep_arrays = False
        self.invars: list[Var] = []
        self.eqns: list[JaxprEqn] = []
        self.constvars: dict[int, Var] = {}
        self.constants: list[Any] = []

    def new_arg(self, aval: AbstractValue) -> JaxprTracer:
        """A tracer for a further argument of the program."""
        var = Var(aval)
        self.invars.append(var)
        return JaxprTracer(self, var, source_info.unknown)

    def atom(self, x: Any) -> Atom:
        """`x` as it appears in the program."""
        if type(x) is JaxprTracer and x._trace is self:
            return x.variable
        if isinstance(x, Tracer):
            if not x._trace.alive:
                raise UnexpectedTracerError(leaked_tracer_message(x))
        elif type(x) is Dim:
            return dim_as_value(x).variable
        elif not (self.keep_arrays and isinstance(x, ConcreteArray)):
            literal = as_literal(x)
            if literal is not None:
                return literal
        var = self.constvars.get(id(x))
        return var if var is not None else self._new_const(x)

    def _new_const(self, x: Any) -> Var:
        kept = isinstance(x, (Tracer, ConcreteArray)) or type(x) is Ref or is_float0(x)
        kept = kept or type(x) in abstract_types
        value = x if kept else asarray_concrete(x)
        var = Var(get_aval(value))
        self.constvars[id(x)] = var
        # `x` itself is kept too, lest another object get its id.
        self.constants.append((var, value, x))
        return var

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        atoms = [
            x.variable if type(x) is JaxprTracer and x._trace is self else self.atom(x)
            for x in args
        ]
        avals = [a.aval for a in atoms]
        if AbstractRef in map(type, avals) and type(primitive.lowering) is not Control:
            refuse_refs(primitive, avals)
        rule = primitive.abstract_eval
        if rule is None:
            raise NotImplementedError(f"Abstract evaluation for '{primitive.name}' not implemented")
        out = rule(*avals, **params)
        if HOST in [a.memory_space for a in avals]:  # asked here, since most are not
            out = primitive.placed(avals, out)
        if isinstance(out, (tuple, list)) is not primitive.multiple_results:
            wanted = "of types" if primitive.multiple_results else "for several results only"
            raise ValueError(
                f"{primitive.name}.abstract_eval() method should return a tuple or list {wanted}, "
                f"as multiple_results={primitive.multiple_results} says, got {out!r}."
            )
        effects = primitive.effects(*avals, **params) if primitive.effects else no_effects
        outs = self.record(
            primitive, atoms, out if primitive.multiple_results else (out,), params, effects
        )
        return outs if primitive.multiple_results else outs[0]

    def record(
        self, primitive: Primitive, atoms: list[Atom], out_avals: Any, params: dict[str, Any],
        effects: Effects = no_effects,
    ) -> list[Any]:  # fmt: skip
        """Append an equation; returns tracers of its results."""
        source = source_info.current()
        if self.scopes_outside:
            source = source._replace(scope=source.scope[self.scopes_outside :])
        outvars = [Var(a) for a in out_avals]
        self.eqns.append(JaxprEqn(primitive, atoms, outvars, params, effects, source))
        return [JaxprTracer(self, v, source) for v in outvars]

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        return primitive.record(self, fun, jvp, args, params)

    def process_custom_vjp_call(
        self, primitive: Any, fun: FlatFun, fwd: Callable[..., Any], bwd: Callable[..., Any],
        args: Any, params: dict[str, Any],
    ) -> list[Any]:  # fmt: skip
        return primitive.record(self, fun, fwd, bwd, args, params)

    def finish(self, outs: Sequence[Any]) -> ClosedJaxpr:
        """The program recorded so far, with results `outs`; ends the trace."""
        outvars = [self.atom(x) for x in outs]
        if AbstractRef in [type(v.aval) for v in outvars]:
            raise ValueError(self._returned_ref(outs, outvars))
        self.alive = False
        constvars = [c[0] for c in self.constants]
        effects = join_effects(*(e.effects for e in self.eqns if e.effects))
        jaxpr = Jaxpr(constvars, self.invars, outvars, self.eqns, effects, self.debug_info)
        return ClosedJaxpr(jaxpr, [c[1] for c in self.constants])

    def _returned_ref(self, outs: Sequence[Any], outvars: Sequence[Any]) -> str:
        info = self.debug_info or DebugInfo()
        i, var = next((i, v) for i, v in enumerate(outvars) if type(v.aval) is AbstractRef)
        names = info.arg_names or ()
        if var in self.invars and len(names) == len(self.invars):
            whence = f"was passed in as the argument {names[self.invars.index(var)]}"
        else:
            whence = f"was created on line {getattr(outs[i], 'source', 'unknown')}"
        return (
            f"function {info.name} traced for {info.kind} returned a mutable array reference of "
            f"type {var.aval}. References cannot be returned; return what they hold, ref[...].\n\n"
            f"Result {i} {whence}."
        )

    def origin(self, tracer: JaxprTracer) -> str:
        """Where a tracer came from, for error messages."""
        info = self.debug_info or DebugInfo()
        where = f" at {info.location}" if info.location else ""
        lines = [f"This happened while tracing the function {info.name}{where} for {info.kind}."]
        depends = self._arguments_behind(tracer.variable)
        if depends:
            names = ", ".join(depends[:5]) + (", …" if len(depends) > 5 else "")
            plural = "s" if len(depends) > 1 else ""
            lines.append(f"The value depends on the argument{plural} {names}.")
        if tracer.source.code is not None:
            lines.append(f"It was created on line {tracer.source}.")
        return "\n".join(lines)

    def _arguments_behind(self, var: Var) -> list[str]:
        behind = {var}
        for eqn in reversed(self.eqns):
            if any(v in behind for v in eqn.outvars):
                behind.update(v for v in eqn.invars if isinstance(v, Var))
        names = (self.debug_info and self.debug_info.arg_names) or ()
        if len(names) != len(self.invars):
            return []
        return [name for name, v in zip(names, self.invars) if v in behind]


def as_literal(x: Any) -> Literal | None:
    """`x` as a literal if it is a known scalar, else None."""
    if type(x) in _SCALARS:
        return Literal(x, get_aval(x))
    if isinstance(x, (ConcreteArray, np.ndarray, np.generic)) and x.shape == ():
        aval = get_aval(x)
        if not isinstance(aval, ShapedArray) or isinstance(aval.dtype, dtypes.ExtendedDType):
            return None
        if aval.dtype == dtypes.float0:
            return None
        value = np.asarray(x, dtype=aval.dtype)
        return Literal(value.item() if aval.weak_type else value[()], aval)
    return None


def trace_to_jaxpr(
    fun: FlatFun, in_avals: Sequence[AbstractValue], *, debug_info: DebugInfo | None = None
) -> ClosedJaxpr:
    """Record what `fun` does with arguments of the given types.

    Args:
      fun: takes flat arguments, returns a list.
      in_avals: the types.
      debug_info: for error messages.

    Returns:
      The program. Its consts may hold tracers of enclosing traces: primitives with sub-programs
      pass them as arguments (`hoist_tracers`).
    """
    trace = JaxprTrace(context.trace, debug_info)
    outer, context.trace = context.trace, trace
    place = source_info.enter_program()
    try:
        with Room(FRAMES_OF_A_TRACE):
            outs = fun(*[trace.new_arg(a) for a in in_avals])
            closed = trace.finish(outs)
    finally:
        source_info.restore(place)
        context.trace = outer
        trace.alive = False
    if config.check:
        _check_program(closed)
    if config.check_tracer_leaks:
        outs = None  # type: ignore[assignment]
        watch = weakref.ref(trace)
        del trace
        check_leaks(watch)
    return closed


def _check_program(closed: ClosedJaxpr) -> None:
    check_jaxpr(closed)


def hoist_tracers(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """The program with constants that are tracers or references as leading arguments, and those.

    For programs that become parameters, which must not mention enclosing traces.
    """
    traced = [isinstance(c, Tracer) or type(c) is Ref for c in closed.consts]
    if not any(traced):
        return closed, []
    if all(traced):
        return hoist_consts(closed)
    jaxpr = closed.jaxpr
    first = [v for v, t in zip(jaxpr.constvars, traced) if t]
    kept = [v for v, t in zip(jaxpr.constvars, traced) if not t]
    info = with_leading(jaxpr.debug_info, len(first))
    new = jaxpr.replace(constvars=kept, invars=[*first, *jaxpr.invars], debug_info=info)
    consts = [c for c, t in zip(closed.consts, traced) if not t]
    return ClosedJaxpr(new, consts), [c for c, t in zip(closed.consts, traced) if t]
