"""Recompute instead of store."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from amdjax import checkpoint_policies
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.jaxpr import Jaxpr
from amdjax.transforms.linear import linearize_jaxpr
from amdjax.transforms.remat import checkpoint, inline_calls, remat, remat_p
from amdjax.transforms.remat_policies import checkpoint_name, name_p
from amdjax.transforms.staging import trace_function

__all__ = [
    "checkpoint", "checkpoint_name", "checkpoint_policies", "print_saved_residuals", "remat",
    "saved_residuals",
]  # fmt: skip


def saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[Any, str]]:
    """What reverse mode keeps of a function between its forward and its backward pass.

    Args:
      fun: a function of pytrees of arrays.
      *args: its arguments; only shapes and dtypes matter.
      **kwargs: its keyword arguments.

    Returns:
      Pairs of an abstract value and a description of where it comes from: constants, arguments,
      then what is computed.

        >>> from amdjax.ad_checkpoint import saved_residuals
        >>> [text for _, text in saved_residuals(lambda x: amdjax.lax.mul(x, x), 1.0)]
        ['from the argument x']
    """
    closed, _ = trace_function("saved_residuals", fun, args, kwargs)
    info = closed.jaxpr.debug_info
    names = (info and info.arg_names) or ()
    closed = inline_calls(closed)
    nonzeros = [a.to_tangent() is a for a in closed.in_avals]
    lin = linearize_jaxpr(closed, nonzeros)
    arguments, computed = [], []
    made_at = {v: i for i, eqn in enumerate(lin.primal.eqns) for v in eqn.outvars}
    for kind, i in lin.sources:
        if kind == "in":
            name = names[i] if i < len(names) else f"number {i}"
            arguments.append((i, (closed.in_avals[i], f"from the argument {name}")))
            continue
        var: Any = lin.primal.jaxpr.outvars[i + (len(closed.out_avals) if kind == "res" else 0)]
        computed.append((made_at.get(var, -1), (var.aval, _origin(lin.primal.jaxpr, var))))
    constants = [(v.aval, "from a constant") for v in lin.tangent.jaxpr.constvars]
    ordered = (sorted(found, key=operator.itemgetter(0)) for found in (arguments, computed))
    return [*constants, *(found for _, found in itertools.chain(*ordered))]


def _origin(jaxpr: Jaxpr, var: Any) -> str:
    """What makes a variable of a program."""
    for eqn in jaxpr.eqns:
        if var not in eqn.outvars:
            continue
        if eqn.primitive is remat_p:
            body = eqn.params["jaxpr"].jaxpr
            return _origin(body, body.outvars[eqn.outvars.index(var)])
        if eqn.primitive is name_p:
            return f"named '{eqn.params['name']}' from {eqn.source}"
        return f"output of {eqn.primitive.name} from {eqn.source}"
    return "an argument"


def print_saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what `saved_residuals` finds.

    Args:
      fun: a function of pytrees of arrays.
      *args: its arguments.
      **kwargs: its keyword arguments.

        >>> from amdjax.ad_checkpoint import print_saved_residuals
        >>> print_saved_residuals(lambda x: amdjax.lax.mul(x, x), 1.0)
        f32[] from the argument x
    """
    for aval, description in saved_residuals(fun, *args, **kwargs):
        print(f"{aval.str_short()} {description}")


_public_surface(globals())
