"""Forward mode: values paired with tangents."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.aval import get_aval, register_aval
from amdjax.core.config import config
from amdjax.core.context import context
from amdjax.core.jaxpr import ClosedJaxpr, jaxpr_as_fun, memoize_on_jaxpr
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.ref import MAKE_REFS
from amdjax.core.trace import FlatFun, Trace, Tracer, check_leaks, is_float0, set_trace
from amdjax.transforms.custom_calls import CustomJVPException, check_vjp_arguments, custom_lin
from amdjax.transforms.discharge import must_discharge, run_on_refs
from amdjax.transforms.zero import Zero, instantiate_zeros


class TangentTracer(Tracer):
    """A value and what is known of its tangent."""

    __slots__ = ("primal", "tangent")
    _trace: TangentTrace

    def __init__(self, trace: TangentTrace, primal: Any, tangent: Any):
        self._trace = trace
        self.primal = primal
        self.tangent = tangent

    @property
    def aval(self) -> Any:
        return get_aval(self.primal)

    def concrete_value(self) -> ConcreteArray | None:
        return known_value(self.primal)

    def _origin_msg(self) -> str:
        return self.primal._origin_msg() if isinstance(self.primal, Tracer) else ""


register_aval(TangentTracer, lambda x: get_aval(x.primal))


class JVPTracer(TangentTracer):
    """A value and its tangent.

    Args:
      trace: the trace it belongs to.
      primal: the value.
      tangent: its tangent.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"JVPTracer(primal={self.primal}, tangent={self.tangent})"


def known_value(x: Any) -> Any:
    """The concrete value of `x`, None if it is abstract."""
    return x.concrete_value() if isinstance(x, Tracer) else x


class TangentTrace(Trace):
    """What forward mode and linearization share: values are split into primal and tangent.

    Args:
      parent: the trace that computes primals.
      tag: identifies the differentiation. A function that is passed on to be traced elsewhere
        runs under another trace with the same tag, which knows the tracers of this one.
    """

    __slots__ = ("tag",)
    tracer: type[TangentTracer]

    def __init__(self, parent: Trace, tag: object):
        super().__init__(parent)
        self.tag = tag

    def split(self, x: Any) -> tuple[Any, Any]:
        """The primal and the tangent of a value."""
        if type(x) is self.tracer and x._trace.tag is self.tag:
            return x.primal, x.tangent
        return x, Zero.of(x)

    def outside(self, x: Any) -> Any:
        mine = type(x) is self.tracer and x._trace.tag is self.tag
        return x.primal if mine else x

    def split_all(self, args: Any) -> tuple[list[Any], list[Any]]:
        pairs = [self.split(x) for x in args]
        return [p for p, _ in pairs], [t for _, t in pairs]


class JVPTrace(TangentTrace):
    """Applies jvp rules in its parent.

    Args:
      parent: the trace that computes primals.
      tag: identifies the differentiation.
    """

    __slots__ = ()
    tracer = JVPTracer

    def pair(self, primal: Any, tangent: Any) -> Any:
        """A tracer, or `primal` itself if nothing depends on the inputs."""
        if type(tangent) is Zero or is_float0(tangent):
            return primal
        return JVPTracer(self, primal, tangent)

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        if must_discharge(primitive, args, params):
            return run_on_refs(primitive, args, params, True)
        primals, tangents = self.split_all(args)
        with set_trace(self.parent):
            if all(type(t) is Zero for t in tangents) and primitive.name not in MAKE_REFS:
                return self.parent.process_primitive(primitive, primals, params)
            out, tangent = jvp_rule(primitive)(primals, tangents, **params)
        if primitive.multiple_results:
            return [self.pair(p, t) for p, t in zip(out, tangent)]
        return self.pair(out, tangent)

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        primals, tangents = self.split_all(args)
        with set_trace(self.parent):
            if all(type(t) is Zero for t in tangents):
                return primitive.bind_functions(fun, jvp, primals, params)
            outs, out_tangents = run_custom_jvp(jvp, primals, tangents, params)
        return [self.pair(p, t) for p, t in zip(outs, out_tangents)]

    def process_custom_vjp_call(
        self, primitive: Any, fun: FlatFun, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        primals, tangents = self.split_all(args)
        with set_trace(self.parent):
            nonzeros = [type(t) is not Zero for t in tangents]
            if not any(nonzeros):
                return primitive.bind_functions(fun, fwd, bwd, primals, params)
            check_vjp_arguments(nonzeros, params)
            residuals, outs = fwd(nonzeros, *primals)
            out_tangents = custom_lin(residuals, tangents, outs, bwd, params)
        return [self.pair(p, t) for p, t in zip(outs, out_tangents)]


def jvp_rule(primitive: Primitive) -> Callable[..., tuple[Any, Any]]:
    """The derivative of a primitive, which must have one."""
    if primitive.jvp is None:
        raise NotImplementedError(f"Differentiation rule for '{primitive.name}' not implemented")
    return primitive.jvp


def run_custom_jvp(
    jvp: FlatFun, primals: list[Any], tangents: list[Any], params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Apply a user's forward rule; symbolic zeros reach it only if it asked for them."""
    if any(type(t) is not Zero for t in tangents[: params.get("num_consts", 0)]):
        raise CustomJVPException
    if not params["symbolic_zeros"]:
        tangents = [instantiate_zeros(t) for t in tangents]
    outs = jvp(*primals, *tangents)
    n = len(outs) // 2
    return outs[:n], outs[n:]


_NUMBERS = frozenset((bool, int, float, complex))


def settled(x: Any) -> Any:
    """`x` as an array if its dtype depends on settings, which the function may change."""
    if type(x) in _NUMBERS:
        return asarray_concrete(x)
    wide = isinstance(x, (np.ndarray, np.generic)) and not is_float0(x)
    return asarray_concrete(x) if wide and x.dtype != get_aval(x).dtype else x


def jvp_flat(
    fun: FlatFun, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Values and tangents of a function of flat arguments.

    Args:
      fun: returns a list.
      primals: the point.
      tangents: the direction; `Zero` is allowed.

    Returns:
      Results and their tangents, which may be `Zero`.
    """
    trace = JVPTrace(context.trace, object())
    args = [trace.pair(settled(p), settled(t)) for p, t in zip(primals, tangents)]
    with set_trace(trace):
        outs = fun(*args)
    result = trace.split_all(outs)
    trace.alive = False
    if config.check_tracer_leaks:
        watch = weakref.ref(trace)
        del args, outs, trace
        check_leaks(watch)
    return result


def jvp_jaxpr(
    closed: ClosedJaxpr, nonzeros: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[ClosedJaxpr, list[bool]]:
    """The program that computes values and tangents.

    Args:
      closed: the program.
      nonzeros: for which arguments there is a tangent.
      instantiate: for which results to return a tangent though it is zero.

    Returns:
      A program `(*primals, *tangents of nonzeros) -> (*results, *tangents)`, with a tangent for
      each result marked in the second value.
    """
    if isinstance(instantiate, bool):
        instantiate = (instantiate,) * len(closed.out_avals)
    return _jvp_jaxpr(closed, tuple(map(bool, nonzeros)), tuple(map(bool, instantiate)))


@memoize_on_jaxpr
def _jvp_jaxpr(
    closed: ClosedJaxpr, nonzeros: tuple[bool, ...], instantiate: tuple[bool, ...]
) -> tuple[ClosedJaxpr, list[bool]]:
    count = len(nonzeros)
    nonzeros_out: list[bool] = []

    def fun(*args: Any) -> list[Any]:
        given = iter(args[count:])
        tangents = [
            next(given) if nz else Zero(a.to_tangent()) for nz, a in zip(nonzeros, closed.in_avals)
        ]
        outs, out_tangents = jvp_flat(jaxpr_as_fun(closed), args[:count], tangents)
        keep = [type(t) is not Zero or inst for t, inst in zip(out_tangents, instantiate)]
        nonzeros_out.extend(keep)
        return [*outs, *(instantiate_zeros(t) for t, k in zip(out_tangents, keep) if k)]

    tangent_avals = [a.to_tangent() for a, nz in zip(closed.in_avals, nonzeros) if nz]
    return trace_to_jaxpr(fun, [*closed.in_avals, *tangent_avals]), nonzeros_out
