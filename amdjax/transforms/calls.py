"""Primitives that call a program: `jit` and `named_call`, and the rules such primitives share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.dead_code import dce_closed_call, dce_rules
from amdjax.core.effects import Effects
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.jaxpr_trace import hoist_tracers
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.transforms.axes import AxisData
from amdjax.transforms.batching import batch_jaxpr_axes
from amdjax.transforms.forward import jvp_jaxpr
from amdjax.transforms.linear import linearize_jaxpr
from amdjax.transforms.reverse import transpose_call
from amdjax.transforms.zero import Zero

Adjust = Callable[[dict[str, Any], int], dict[str, Any]]


def give_call_rules(
    primitive: Primitive, param: str = "jaxpr", adjust: Adjust | None = None
) -> None:
    """Give a primitive that only calls the `ClosedJaxpr` in `params[param]` all its rules.

    Every transform yields the same primitive calling the transformed program.

    Args:
      primitive: takes the program's arguments and returns its results, a list.
      param: the parameter that holds the program.
      adjust: `adjust(params, operands) -> params` for parameters that speak of operands.
    """

    def call(jaxpr: ClosedJaxpr, params: dict[str, Any], args: Sequence[Any]) -> list[Any]:
        # A custom rule may have brought values of enclosing traces into the program.
        jaxpr, consts = hoist_tracers(jaxpr)
        args = [*consts, *args]
        params = {**params, param: jaxpr}
        if adjust is not None:
            params = adjust(params, len(args))
        return primitive.bind(*args, **params)

    @primitive.def_abstract_eval
    def abstract_eval(*avals: Any, **params: Any) -> list[Any]:
        return params[param].out_avals

    @primitive.def_effects
    def effects(*avals: Any, **params: Any) -> Effects:
        return params[param].effects

    @primitive.def_jvp
    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        closed = params[param]
        nonzeros = [type(t) is not Zero for t in tangents]
        jvped, nonzeros_out = jvp_jaxpr(closed, nonzeros)
        given = [t for t in tangents if type(t) is not Zero]
        outs = call(jvped, params, [*primals, *given])
        count = len(closed.out_avals)
        return outs[:count], spread_tangents(outs[count:], nonzeros_out, closed.out_avals)

    @primitive.def_linearize
    def linearize(nonzeros: Any, *primals: Any, **params: Any) -> Any:
        closed = params[param]
        lin = linearize_jaxpr(closed, nonzeros)
        outs = call(lin.primal, params, primals)
        residuals = lin.residuals(primals, outs)

        def tangent_fn(residuals: Any, *tangents: Any) -> list[Any]:
            given = [t for t in tangents if type(t) is not Zero]
            found = call(lin.tangent, params, [*residuals, *given]) if lin.tangent.out_avals else []
            return spread_tangents(found, lin.nonzeros_out, closed.out_avals)

        return outs[: len(closed.out_avals)], residuals, tangent_fn

    @primitive.def_transpose
    def transpose(cts: Any, *args: Any, **params: Any) -> list[Any]:
        transposed, values, spread = transpose_call(params[param], cts, args)
        return spread(call(transposed, params, values))

    @primitive.def_batch
    def batch(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
        batched, out_dims = batch_jaxpr_axes(params[param], axis, dims)
        return call(batched, params, args), out_dims

    dce_rules[primitive] = dce_closed_call(param)


def spread_tangents(
    found: Sequence[Any], nonzeros: Sequence[bool], avals: Sequence[Any]
) -> list[Any]:
    """Tangents of all results, given those that are not zero."""
    rest = iter(found)
    return [next(rest) if nz else Zero(a.to_tangent()) for nz, a in zip(nonzeros, avals)]


jit_p = Primitive("jit", multiple_results=True)
jit_p.lowering = Control("call")


def _not_donated(params: dict[str, Any], operands: int) -> dict[str, Any]:
    # What is donated by the user's call is not what the transformed call may overwrite.
    return {**params, "donated_invars": (False,) * operands}


give_call_rules(jit_p, adjust=_not_donated)


def bind_jit(
    closed: ClosedJaxpr, args: Sequence[Any], *, name: str = "fn",
    donated_invars: tuple[bool, ...] | None = None, keep_unused: bool = False,
) -> list[Any]:  # fmt: skip
    """Call a program through the `jit` primitive.

    Args:
      closed: the program; its consts must not be tracers (see `core.jaxpr_trace.hoist_tracers`).
      args: its arguments.
      name: what it is called in printed programs.
      donated_invars: which arguments it may overwrite.
      keep_unused: whether arguments it does not read are kept.
    """
    if donated_invars is None:
        donated_invars = (False,) * len(args)
    return jit_p.bind(
        *args,
        jaxpr=closed,
        name=name,
        donated_invars=donated_invars,
        inline=False,  # a call that is inlined is none
        keep_unused=keep_unused,
    )


closed_call_p = Primitive("closed_call", multiple_results=True)
closed_call_p.lowering = Control("call", jaxpr_param="call_jaxpr")
give_call_rules(closed_call_p, "call_jaxpr")
