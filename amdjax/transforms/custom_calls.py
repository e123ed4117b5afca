"""Calls of functions with derivatives of their own: the primitives, and their rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.context import context
from amdjax.core.dead_code import dce_jaxpr, dce_rules
from amdjax.core.dtypes import float0
from amdjax.core.effects import custom_derivatives_allowed_effects, has_side_effects
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, close_consts, jaxpr_as_fun
from amdjax.core.jaxpr_trace import JaxprTrace, hoist_tracers, trace_to_jaxpr
from amdjax.core.lowering import Control, Decompose
from amdjax.core.primitive import Primitive
from amdjax.core.trace import FlatFun
from amdjax.transforms.reverse import transpose_call
from amdjax.transforms.zero import Zero, instantiate_zeros


class CustomJVPException(Exception):
    """A function with a custom forward rule was differentiated by a value it closes over."""

    def __init__(self) -> None:
        super().__init__(
            "A custom_jvp function is differentiated with respect to a value that it closes over. "
            "Its rule only covers arguments: pass the value as one."
        )


class CustomVJPException(Exception):
    """A function with a custom reverse rule was differentiated by a value it closes over."""

    def __init__(self) -> None:
        super().__init__(
            "A custom_vjp function is differentiated with respect to a value that it closes over. "
            "Its rules only cover arguments: pass the value as one, or use closure_convert."
        )


class _CustomCall(Primitive):
    """Shared by both primitives: they carry a program, and functions for its derivative."""

    __slots__ = ()

    def __init__(self, name: str):
        super().__init__(name, multiple_results=True)
        self.lowering = Control("call", jaxpr_param="call_jaxpr")
        self.abstract_eval = lambda *avals, call_jaxpr, **_: call_jaxpr.out_avals
        self.effects = lambda *avals, call_jaxpr, **_: custom_derivatives_allowed_effects.require(
            f"`{name.removesuffix('_call')}`", call_jaxpr.effects
        )

    def _record(
        self, trace: JaxprTrace, fun: FlatFun, args: Any, params: dict[str, Any], rules: Any
    ) -> list[Any]:
        """Record a call; tracers that `fun` closes over become leading operands."""
        closed, consts = hoist_tracers(trace_to_jaxpr(fun, [get_aval(x) for x in args]))
        count = len(consts)
        functions = {name: _ignore_consts(name, f, count) for name, f in rules.items()}
        params = {**params, **functions, "call_jaxpr": closed}
        params["num_consts"] = params.get("num_consts", 0) + count
        return trace.process_primitive(self, [*consts, *args], params)


def _ignore_consts(rule: str, fun: Any, count: int) -> Any:
    """A derivative function for a call that has `count` further leading operands."""
    if count == 0:
        return fun
    if rule == "bwd":
        return lambda residuals, cts: [None] * count + fun(residuals, cts)
    if rule == "fwd_jaxpr_thunk":
        return lambda nonzeros, *args: fun(nonzeros[count:], *args[count:])

    def jvp(*args: Any) -> list[Any]:
        half = len(args) // 2
        return fun(*args[count:half], *args[half + count :])

    return jvp


class CustomJVPCall(_CustomCall):
    """Parameters: `call_jaxpr`, `jvp_jaxpr_fun(*primals, *tangents)`, `num_consts`, `name`,
    `symbolic_zeros`.
    """

    __slots__ = ()

    def bind_functions(
        self, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        """Call `fun` under the current trace; see `Trace.process_custom_jvp_call`."""
        return context.trace.process_custom_jvp_call(self, fun, jvp, args, params)

    def bind(self, *args: Any, **params: Any) -> Any:
        trace = context.trace
        if type(trace) is JaxprTrace:
            return trace.process_primitive(self, args, params)
        rest = {k: params[k] for k in ("name", "num_consts", "symbolic_zeros")}
        fun = jaxpr_as_fun(params["call_jaxpr"])
        return self.bind_functions(fun, params["jvp_jaxpr_fun"], list(args), rest)

    def record(
        self, trace: JaxprTrace, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        return self._record(trace, fun, args, params, {"jvp_jaxpr_fun": jvp})


class CustomVJPCall(_CustomCall):
    """Parameters: `call_jaxpr`, `fwd_jaxpr_thunk(nonzeros, *args)`, `bwd(residuals, cts)`,
    `num_consts`, `name`, `symbolic_zeros`.
    """

    __slots__ = ()

    def bind_functions(
        self, fun: FlatFun, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        """Call `fun` under the current trace; see `Trace.process_custom_vjp_call`."""
        return context.trace.process_custom_vjp_call(self, fun, fwd, bwd, args, params)

    def bind(self, *args: Any, **params: Any) -> Any:
        trace = context.trace
        if type(trace) is JaxprTrace:
            return trace.process_primitive(self, args, params)
        rest = {k: params[k] for k in ("name", "num_consts", "symbolic_zeros")}
        fun = jaxpr_as_fun(params["call_jaxpr"])
        fwd, bwd = params["fwd_jaxpr_thunk"], params["bwd"]
        return self.bind_functions(fun, fwd, bwd, list(args), rest)

    def record(
        self, trace: JaxprTrace, fun: FlatFun, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        return self._record(trace, fun, args, params, {"fwd_jaxpr_thunk": fwd, "bwd": bwd})


custom_jvp_call_p = CustomJVPCall("custom_jvp_call")
custom_vjp_call_p = CustomVJPCall("custom_vjp_call")


def _dce(used: Sequence[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """A call without the results that nothing reads; rules get all operands."""
    operands = [True] * len(eqn.invars)
    if all(used):
        return operands, eqn
    if not any(used) and not has_side_effects(eqn.effects):
        return [not u for u in operands], None
    closed = eqn.params["call_jaxpr"]
    jaxpr, _ = dce_jaxpr(closed.jaxpr, used, True)
    params = {
        name: _KEPT[name](value, used, closed.out_avals) if name in _KEPT else value
        for name, value in eqn.params.items()
    }
    params["call_jaxpr"] = close_consts(jaxpr, tuple(closed.consts))
    outvars = [v for v, u in zip(eqn.outvars, used) if u]
    return operands, eqn.replace(outvars=outvars, params=params, effects=jaxpr.effects)


def _keep_jvp(jvp: FlatFun, used: Sequence[bool], out_avals: Any) -> FlatFun:
    return lambda *args: list(itertools.compress(jvp(*args), [*used, *used]))


def _keep_fwd(fwd: Any, used: Sequence[bool], out_avals: Any) -> Any:
    def kept(nonzeros: Sequence[bool], *args: Any) -> tuple[list[Any], list[Any]]:
        residuals, outs = fwd(nonzeros, *args)
        return residuals, list(itertools.compress(outs, used))

    return kept


def _keep_bwd(bwd: Any, used: Sequence[bool], out_avals: Any) -> Any:
    def kept(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        given = iter(cts)
        return bwd(
            residuals, [next(given) if u else Zero(a.to_tangent()) for u, a in zip(used, out_avals)]
        )

    return kept


_KEPT = {"jvp_jaxpr_fun": _keep_jvp, "fwd_jaxpr_thunk": _keep_fwd, "bwd": _keep_bwd}
dce_rules[custom_jvp_call_p] = dce_rules[custom_vjp_call_p] = _dce


@custom_jvp_call_p.def_transpose
def _custom_jvp_call_transpose(
    cts: Any, *args: Any, call_jaxpr: ClosedJaxpr, **_: Any
) -> list[Any]:
    # A linear function is its own derivative, so that a rule for that adds nothing.
    transposed, values, spread = transpose_call(call_jaxpr, cts, args)
    return spread(jaxpr_as_fun(transposed)(*values))


# The linear map of a custom reverse rule: known only through its transpose.

custom_lin_p = Primitive("custom_lin", multiple_results=True)


@custom_lin_p.def_abstract_eval
def _custom_lin_abstract(*avals: Any, out_avals: Any, **_: Any) -> list[Any]:
    return list(out_avals)


def _cannot_run_forward(*args: Any, **_: Any) -> Any:
    raise TypeError(
        "can't apply forward-mode autodiff (jvp) to a custom_vjp function. "
        "Its rules only define reverse mode. Use custom_jvp for functions that need both."
    )


custom_lin_p.lowering = Decompose(_cannot_run_forward)
custom_lin_p.def_jvp(lambda primals, tangents, **params: _cannot_run_forward())
custom_lin_p.def_batch(lambda axis, args, dims, **params: _cannot_run_forward())


@custom_lin_p.def_transpose
def _custom_lin_transpose(
    cts: Any, *args: Any, num_res: int, bwd: Any, nonzeros: Any, symbolic_zeros: bool, **_: Any
) -> list[Any]:
    if not symbolic_zeros:
        cts = [instantiate_zeros(ct) for ct in cts]
    found = bwd(list(args[:num_res]), cts)
    return [None] * num_res + [ct for ct, nz in zip(found, nonzeros) if nz]


def check_vjp_arguments(nonzeros: Sequence[bool], params: dict[str, Any]) -> None:
    """Raise if a value that the function closes over is differentiated."""
    if any(nonzeros[: params.get("num_consts", 0)]):
        raise CustomVJPException


def custom_lin(
    residuals: Any, tangents: Any, outs: Any, bwd: Any, params: dict[str, Any]
) -> list[Any]:
    """Tangents of the results of a function with a custom reverse rule."""
    nonzeros = tuple(type(t) is not Zero for t in tangents)
    out_avals = tuple(get_aval(x).to_tangent() for x in outs)
    found = custom_lin_p.bind(
        *residuals, *(t for t in tangents if type(t) is not Zero), num_res=len(residuals), bwd=bwd,
        nonzeros=nonzeros, out_avals=out_avals, symbolic_zeros=params["symbolic_zeros"],
    )  # fmt: skip
    return [Zero(a) if a.dtype == float0 else t for t, a in zip(found, out_avals)]
