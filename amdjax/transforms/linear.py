"""Linearization: primals are computed, what happens to tangents is recorded as a linear program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from amdjax.core import source_info
from amdjax.core.aval import get_aval
from amdjax.core.config import config
from amdjax.core.context import context
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.dtypes import float0
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    Var,
    close_consts,
    jaxpr_as_fun,
    memoize_on_jaxpr,
)
from amdjax.core.jaxpr_trace import JaxprTrace, JaxprTracer, trace_to_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.ref import MAKE_REFS, is_ref
from amdjax.core.trace import FlatFun, Trace, Tracer, check_leaks, is_float0, set_trace
from amdjax.transforms.custom_calls import check_vjp_arguments, custom_lin
from amdjax.transforms.discharge import must_discharge, run_on_refs
from amdjax.transforms.forward import TangentTrace, TangentTracer, jvp_rule, run_custom_jvp, settled
from amdjax.transforms.zero import Zero, copy_p, instantiate_zeros


class LinearizeTracer(TangentTracer):
    """A value and the variable that stands for its tangent."""

    __slots__ = ()

    def __repr__(self) -> str:
        tangent = get_aval(self.primal).to_tangent().str_short()
        return f"GradTracer(primal={self.primal}, typeof(tangent)={tangent})"


class TangentCell:
    """The tangent of what a reference holds, while a linear program is recorded.

    The program gets no references: operations on them read and replace what the cell holds.

    Args:
      value: a variable of the linear program, or `Zero`.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def write(self, indices: Any, arrays: Any, t: Any, add: bool, write: Any) -> None:
        """Replace, or add to, what `indices` speak of; `write` says how for a whole array."""
        if type(t) is Zero and type(self.value) is Zero:
            return
        if not indices and (not add or type(self.value) is Zero):
            self.value = Zero(self.value.aval) if type(t) is Zero else t
            return
        value, t = instantiate_zeros(self.value), instantiate_zeros(t)
        self.value = write(value, indices, arrays, t, add)


class SplitTrace(Trace):
    """Sends operations on tangents to the linear program, all others to the parent.

    A jvp rule that runs under it becomes a linearization.
    """

    __slots__ = ("linear",)

    def __init__(self, parent: Trace, linear: JaxprTrace):
        super().__init__(parent)
        self.linear = linear

    def is_tangent(self, x: Any) -> bool:
        return type(x) is JaxprTracer and x._trace is self.linear

    def target(self, args: Any) -> Trace:
        return self.linear if any(map(self.is_tangent, args)) else self.parent

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        with set_trace(self.target(args)) as target:
            if target is self.linear and primitive.linearize is not None:
                return self._process_program(primitive, primitive.linearize, args, params)
            return target.process_primitive(primitive, args, params)

    def _process_program(
        self,
        primitive: Primitive,
        linearize: Callable[..., Any],
        args: Sequence[Any],
        params: dict[str, Any],
    ) -> Any:
        """A loop, branch or call, of whose results some may depend on no tangent.

        The others are linear in tangents, so that the derivative anywhere is the program itself.
        """
        linear = list(map(self.is_tangent, args))
        tangents = [x if t else Zero(get_aval(x).to_tangent()) for x, t in zip(args, linear)]
        with set_trace(self.parent):
            primals = [
                instantiate_zeros(Zero(get_aval(x))) if t else x for x, t in zip(args, linear)
            ]
            outs, residuals, tangent_fn = linearize(linear, *primals, **params)
        with set_trace(self.linear):
            out_tangents = tangent_fn(residuals, *tangents)
        if not primitive.multiple_results:
            return outs if type(out_tangents) is Zero else out_tangents
        return [p if type(t) is Zero else t for p, t in zip(outs, out_tangents)]

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        with set_trace(self.target(args)):
            return primitive.bind_functions(fun, jvp, args, params)

    def process_custom_vjp_call(
        self, primitive: Any, fun: FlatFun, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        with set_trace(self.target(args)):
            return primitive.bind_functions(fun, fwd, bwd, args, params)


class LinearizeTrace(TangentTrace):
    """Computes primals in its parent and records tangent operations.

    Args:
      parent: the trace that computes primals.
      tag: identifies the differentiation, as in `JVPTrace`.
      linear: the program that tangent operations are recorded into.
    """

    __slots__ = ("linear", "splitter")
    tracer = LinearizeTracer

    def __init__(self, parent: Trace, tag: object, linear: JaxprTrace):
        super().__init__(parent, tag)
        self.linear = linear
        self.splitter = SplitTrace(parent, linear)

    def pair(self, primal: Any, tangent: Any) -> Any:
        """A tracer, or `primal` itself if nothing depends on the inputs."""
        if type(tangent) is Zero or is_float0(tangent):
            return primal
        if not self.splitter.is_tangent(tangent) and type(tangent) is not TangentCell:
            tangent = self.constant(tangent)
        return LinearizeTracer(self, primal, tangent)

    def constant(self, tangent: Any) -> Any:
        """A tangent that depends on no input, as a variable of the linear program."""
        atom = self.linear.atom(tangent)
        if isinstance(atom, Literal):
            return self.linear.process_primitive(copy_p, [tangent], {})
        return JaxprTracer(self.linear, atom, self.linear_source())

    def linear_source(self) -> Any:
        return source_info.current()

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        if must_discharge(primitive, args, params):
            return run_on_refs(primitive, args, params, True)
        primals, tangents = self.split_all(args)
        nonzeros = [type(t) is not Zero for t in tangents]
        if not any(nonzeros) and primitive.name not in MAKE_REFS:
            with set_trace(self.parent):
                return self.parent.process_primitive(primitive, primals, params)
        if primitive.linearize is not None:
            with set_trace(self.parent):
                out, residuals, tangent_fn = primitive.linearize(nonzeros, *primals, **params)
            with set_trace(self.linear):
                tangent = tangent_fn(residuals, *tangents)
        else:
            out, tangent = self._by_jvp_rule(primitive, primals, tangents, params)
        if primitive.multiple_results:
            return [self.pair(p, t) for p, t in zip(out, tangent)]
        return self.pair(out, tangent)

    def _by_jvp_rule(
        self, primitive: Primitive, primals: list[Any], tangents: list[Any], params: dict[str, Any]
    ) -> tuple[Any, Any]:
        with set_trace(self.splitter):
            out, tangent = jvp_rule(primitive)(primals, tangents, **params)
        outs = out if primitive.multiple_results else (out,)
        if any(map(self.splitter.is_tangent, outs)):
            # The rule is one operation on primals and tangents; the primals are wanted now.
            with set_trace(self.parent):
                out = self.parent.process_primitive(primitive, primals, params)
        return out, tangent

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        primals, tangents = self.split_all(args)
        if all(type(t) is Zero for t in tangents):
            with set_trace(self.parent):
                return primitive.bind_functions(fun, jvp, primals, params)
        with set_trace(self.splitter):
            outs, out_tangents = run_custom_jvp(jvp, primals, tangents, params)
        if any(map(self.splitter.is_tangent, outs)):
            with set_trace(self.parent):
                outs = primitive.bind_functions(fun, jvp, primals, params)
        return [self.pair(p, t) for p, t in zip(outs, out_tangents)]

    def process_custom_vjp_call(
        self, primitive: Any, fun: FlatFun, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        primals, tangents = self.split_all(args)
        # Rules speak of what a reference holds before the call; its tangent stays, as in JAX.
        tangents = [t.value if type(t) is TangentCell else t for t in tangents]
        nonzeros = [type(t) is not Zero for t in tangents]
        with set_trace(self.parent):
            if not any(nonzeros):
                return primitive.bind_functions(fun, fwd, bwd, primals, params)
            check_vjp_arguments(nonzeros, params)
            residuals, outs = fwd(nonzeros, *primals)
        with set_trace(self.linear):
            out_tangents = custom_lin(residuals, tangents, outs, bwd, params)
        return [self.pair(p, t) for p, t in zip(outs, out_tangents)]


def has_tangent(x: Any) -> bool:
    """Whether a value has tangents in reverse mode that are more than trivial."""
    return not is_ref(x) and get_aval(x).to_tangent().dtype != float0


def linearize_flat(
    fun: FlatFun,
    primals: Sequence[Any],
    nonzeros: Sequence[bool] | None = None,
    *,
    keep_arrays: bool = False,
) -> tuple[list[Any], list[bool], ClosedJaxpr]:
    """Results of a function and the linear program that maps tangents to tangents.

    Args:
      fun: takes flat arguments, returns a list.
      primals: the point.
      nonzeros: with respect to which arguments; by default those that have tangents.
      keep_arrays: whether arrays are residuals though they are scalars, which may be written into
        the program.

    Returns:
      The results; which of them have a tangent that is not zero; the linear program from tangents
      of the arguments marked in `nonzeros` to tangents of those results. Its consts are the
      residuals: values of the enclosing trace.
    """
    if nonzeros is None:
        nonzeros = [has_tangent(p) for p in primals]
    linear = JaxprTrace(context.trace, scopes_outside=source_info.depth())
    linear.keep_arrays = keep_arrays
    trace = LinearizeTrace(context.trace, object(), linear)
    args = [
        LinearizeTracer(trace, settled(p), linear.new_arg(get_aval(p).to_tangent())) if nz else p
        for p, nz in zip(primals, nonzeros)
    ]
    with set_trace(trace):
        outs = fun(*args)
    out_primals, out_tangents = trace.split_all(outs)
    trace.alive = False
    nonzeros_out = [type(t) is not Zero for t in out_tangents]
    closed = linear.finish([t for t in out_tangents if type(t) is not Zero])
    if config.check_tracer_leaks:
        watch = weakref.ref(trace)
        del args, outs, trace
        check_leaks(watch)
    return out_primals, nonzeros_out, prune(closed)


def prune(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without dead operations and without constants that nothing reads."""
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
    used = {v for e in jaxpr.eqns for v in e.invars if isinstance(v, Var)}
    used.update(v for v in jaxpr.outvars if isinstance(v, Var))
    keep = [v in used for v in jaxpr.constvars]
    if all(keep):
        return ClosedJaxpr(jaxpr, closed.consts)
    constvars = [v for v, k in zip(jaxpr.constvars, keep) if k]
    consts = [c for c, k in zip(closed.consts, keep) if k]
    return ClosedJaxpr(jaxpr.replace(constvars=constvars), consts)


class Linearized(NamedTuple):
    """A program split into its primal and its tangent part.

    Attributes:
      primal: `(*args) -> (*results, *residuals)`; only residuals that are neither an argument nor
        a result are returned anew.
      tangent: `(*residuals, *tangents of nonzeros) -> (*tangents of nonzeros_out)`.
      nonzeros_out: which results have a tangent.
      sources: for each residual ("in", i), an argument, ("out", i), a result, or ("res", i), the
        i-th further result of `primal`.
    """

    primal: ClosedJaxpr
    tangent: ClosedJaxpr
    nonzeros_out: list[bool]
    sources: list[tuple[str, int]]

    def residuals(self, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """The residuals, given the arguments of `primal` and all that it returned."""
        count = len(self.nonzeros_out)
        where = {"in": args, "out": outs, "res": outs[count:]}
        return [where[kind][i] for kind, i in self.sources]


def linearize_jaxpr(
    closed: ClosedJaxpr,
    nonzeros: Sequence[bool],
    *,
    instantiate: bool | Sequence[bool] = False,
    forward: bool = True,
) -> Linearized:
    """Split a program into one that also returns residuals and a linear one that takes them.

    Args:
      closed: the program.
      nonzeros: for which arguments there is a tangent.
      instantiate: for which results to return a tangent though it is zero.
      forward: whether residuals that are arguments or results are left out of what `primal`
        returns; if False every residual is returned, in order.
    """
    if isinstance(instantiate, bool):
        instantiate = (instantiate,) * len(closed.out_avals)
    key = tuple(map(bool, nonzeros)), tuple(map(bool, instantiate)), forward
    return _linearize_jaxpr(closed, *key)


@memoize_on_jaxpr
def _linearize_jaxpr(
    closed: ClosedJaxpr, nonzeros: tuple[bool, ...], instantiate: tuple[bool, ...], forward: bool
) -> Linearized:
    results: dict[str, Any] = {}

    def fun(*args: Any) -> list[Any]:
        outs, nonzeros_out, linear = linearize_flat(jaxpr_as_fun(closed), args, nonzeros)
        linear, nonzeros_out = _instantiate_outputs(linear, outs, nonzeros_out, instantiate)
        tangent, residuals = _take_residuals(linear)
        sources, fresh = _locate(args, outs, residuals, forward)
        results.update(tangent=tangent, nonzeros_out=nonzeros_out, sources=sources)
        return [*outs, *fresh]

    primal = trace_to_jaxpr(fun, closed.in_avals)
    return Linearized(primal=primal, **results)


def _instantiate_outputs(
    linear: ClosedJaxpr, outs: list[Any], nonzeros_out: list[bool], instantiate: Sequence[bool]
) -> tuple[ClosedJaxpr, list[bool]]:
    """`linear` with zeros for those results in `instantiate` that have no tangent."""
    wanted = [
        nz or (inst and has_tangent(o)) for nz, inst, o in zip(nonzeros_out, instantiate, outs)
    ]
    if wanted == nonzeros_out:
        return linear, nonzeros_out

    def fun(*tangents: Any) -> list[Any]:
        found = iter(jaxpr_as_fun(linear)(*tangents))
        full = [next(found) if nz else Zero.of(o) for nz, o in zip(nonzeros_out, outs)]
        return [instantiate_zeros(t) for t, w in zip(full, wanted) if w]

    return trace_to_jaxpr(fun, linear.in_avals), wanted


def _take_residuals(linear: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """The linear program with traced constants as leading arguments, each once.

    Constants known now stay constants of the program.
    """
    jaxpr = linear.jaxpr
    first: dict[Any, Var] = {}
    same: dict[Var, Var] = {}
    residuals, kept, kept_vars = [], [], []
    for var, const in zip(jaxpr.constvars, linear.consts):
        if not isinstance(const, Tracer):
            kept.append(const)
            kept_vars.append(var)
            continue
        identity = identity_of(const)
        if identity in first:
            same[var] = first[identity]
        else:
            first[identity] = var
            residuals.append(const)
    jaxpr = rename(jaxpr, same) if same else jaxpr
    invars = [*first.values(), *jaxpr.invars]
    jaxpr = Jaxpr(kept_vars, invars, jaxpr.outvars, jaxpr.eqns, jaxpr.effects)
    return close_consts(jaxpr, kept), residuals


def identity_of(x: Any) -> Any:
    """What two tracers of the same value have in common."""
    return x.variable if isinstance(x, JaxprTracer) else id(x)


def rename(jaxpr: Jaxpr, names: dict[Var, Var]) -> Jaxpr:
    """`jaxpr` with variables replaced where they are read."""

    def read(v: Any) -> Any:
        return names.get(v, v) if isinstance(v, Var) else v

    eqns = [e.replace(invars=[read(v) for v in e.invars]) for e in jaxpr.eqns]
    return jaxpr.replace(eqns=eqns, outvars=[read(v) for v in jaxpr.outvars])


def _locate(
    args: Sequence[Any], outs: Sequence[Any], residuals: Sequence[Any], forward: bool
) -> tuple[list[tuple[str, int]], list[Any]]:
    """Where each residual is found, and those that must be returned in addition."""
    known: dict[Any, tuple[str, int]] = {}
    if forward:
        known.update((identity_of(x), ("out", i)) for i, x in reversed([*enumerate(outs)]))
        known.update((identity_of(x), ("in", i)) for i, x in enumerate(args))
    sources: list[tuple[str, int]] = []
    fresh: list[Any] = []
    for r in residuals:
        place = known.get(identity_of(r))
        if place is None:
            place = ("res", len(fresh))
            fresh.append(r)
        sources.append(place)
    return sources, fresh
