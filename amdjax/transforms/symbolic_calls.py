"""Calls of programs of symbolic shapes at given sizes: transformed once, for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from amdjax.core.aval import get_aval
from amdjax.core.backend import get_backend
from amdjax.core.context import is_recording
from amdjax.core.dead_code import dce_closed_call, dce_rules
from amdjax.core.dims import SymbolicScope, symbolic_dimension
from amdjax.core.effects import Effects
from amdjax.core.instantiate import instantiate, type_at
from amdjax.core.jaxpr import ClosedJaxpr, memoize_on_jaxpr, subjaxprs_of_value
from amdjax.core.jaxpr_trace import hoist_tracers
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.transforms.axes import AxisData
from amdjax.transforms.batching import batch_jaxpr_axes
from amdjax.transforms.calls import bind_jit, jit_p, spread_tangents
from amdjax.transforms.forward import jvp_jaxpr
from amdjax.transforms.linear import linearize_jaxpr
from amdjax.transforms.reverse import transpose_jaxpr
from amdjax.transforms.zero import Zero, is_undefined_primal

Again = Callable[[], ClosedJaxpr]

__all__ = ["Sizes", "bind_at_sizes", "has_functions", "symbolic_call_p"]


class Sizes(NamedTuple):
    """The sizes of dimension variables.

    Attributes:
      scope: what is known of the variables.
      pairs: names and sizes.
    """

    scope: SymbolicScope
    pairs: tuple[tuple[str, int], ...]

    def types(self, avals: Sequence[Any]) -> list[Any]:
        """What symbolic types are at these sizes."""
        return [type_at(a, dict(self.pairs)) for a in avals]

    def with_axis(self, size: int) -> tuple[Sizes, Any]:
        """These sizes and that of one axis more, and its dimension."""
        known = dict(self.pairs)
        name = next(n for i in range(len(known) + 1) if (n := f"batch_{i}") not in known)
        dim = symbolic_dimension(name, self.scope)
        return Sizes(self.scope, (*self.pairs, (name, size))), dim


class _SymbolicCall(Primitive):
    """Calls a program of symbolic shapes at given sizes of its dimension variables.

    Wherever operations are computed, the program is compiled as any of symbolic shapes. Rules
    transform the symbolic program, which keeps what it is transformed to, so that all sizes share
    it. Where that program is none for these sizes, and where a program is being recorded, the call
    is a `jit` equation of the program that it is for the sizes.
    """

    __slots__ = ()

    def bind(self, *args: Any, **params: Any) -> Any:
        if is_recording():
            closed, values = _hoisted(params["jaxpr"], args)
            alone = _alone(closed, params["sizes"], params["again"])
            return bind_jit(alone, values, name=params["name"])
        return super().bind(*args, **params)


symbolic_call_p = _SymbolicCall("symbolic_call", multiple_results=True)
symbolic_call_p.lowering = Control("call")
dce_rules[symbolic_call_p] = dce_closed_call("jaxpr")


def bind_at_sizes(
    closed: ClosedJaxpr, args: Sequence[Any], sizes: Sizes, name: str, again: Again | None = None
) -> list[Any]:
    """Call a program of symbolic shapes with arguments of given sizes.

    Args:
      closed: the program.
      args: its arguments.
      sizes: those of its dimension variables, for which it is right.
      name: what it is called in printed programs.
      again: traces it for these sizes alone.
    """
    return symbolic_call_p.bind(*args, jaxpr=closed, sizes=sizes, name=name, again=again)


def _hoisted(closed: ClosedJaxpr, args: Sequence[Any]) -> tuple[ClosedJaxpr, Sequence[Any]]:
    """The program without values of enclosing traces, which a custom rule may have brought in."""
    closed, consts = hoist_tracers(closed)
    return closed, [*consts, *args]


@memoize_on_jaxpr
def _program_at(closed: ClosedJaxpr, sizes: Sizes) -> ClosedJaxpr:
    return instantiate(closed, dict(sizes.pairs))


@memoize_on_jaxpr
def has_functions(closed: ClosedJaxpr) -> bool:
    """Whether functions are parameters in a program, as those with derivatives of their own have.

    They may remember symbolic types, so that they are none for a program of given sizes.
    """
    bodies = [x for eqn in closed.eqns for v in eqn.params.values() for x in subjaxprs_of_value(v)]
    return any(callable(v) for eqn in closed.eqns for v in eqn.params.values()) or any(
        has_functions(
            b if isinstance(b, ClosedJaxpr) else ClosedJaxpr(b, [None] * len(b.constvars))
        )
        for b in bodies
    )


def _alone(closed: ClosedJaxpr, sizes: Sizes, again: Again | None) -> ClosedJaxpr:
    """The program that is for the sizes."""
    traced = again() if again is not None and has_functions(closed) else None
    types = lambda avals: [(a.shape, a.dtype) for a in avals]
    if traced is not None and types(traced.out_avals) == types(sizes.types(closed.out_avals)):
        return traced
    return _program_at(closed, sizes)


def _symbolically(
    transform: Callable[..., Any], closed: ClosedJaxpr, sizes: Sizes, *how: Any
) -> Any:
    """What a transform makes of a symbolic program; None if that is none for these sizes.

    What the transform, too, took for unequal may be equal, and what depends on the sizes is an
    error; it then has to be made of the program that is for the sizes.
    """
    made = _made(closed, transform, *how)
    return None if made == () or sizes.scope.is_apart(dict(sizes.pairs)) else made


@memoize_on_jaxpr
def _made(closed: ClosedJaxpr, transform: Callable[..., Any], *how: Any) -> Any:
    """What a transform makes of a program, () if that is an error."""
    try:
        return transform(closed, *how)
    except Exception:  # errors of all sizes come again
        return ()


def _as_jit(closed: ClosedJaxpr, sizes: Sizes, name: str, again: Again | None) -> dict[str, Any]:
    """The parameters of a `jit` equation of the program that is for the sizes."""
    donated = (False,) * len(closed.in_avals)
    return {"jaxpr": _alone(closed, sizes, again), "name": name, "donated_invars": donated,
            "inline": False, "keep_unused": False}  # fmt: skip


@symbolic_call_p.def_impl
def _compute(*args: Any, jaxpr: ClosedJaxpr, sizes: Sizes, name: str, again: Any) -> list[Any]:
    closed, values = _hoisted(jaxpr, args)
    return get_backend().evaluate_at(closed, values, sizes, name)


@symbolic_call_p.def_abstract_eval
def _types(*avals: Any, jaxpr: ClosedJaxpr, sizes: Sizes, name: str, again: Any) -> list[Any]:
    return sizes.types(jaxpr.out_avals)


@symbolic_call_p.def_effects
def _effects(*avals: Any, jaxpr: ClosedJaxpr, sizes: Sizes, name: str, again: Any) -> Effects:
    return jaxpr.effects


@symbolic_call_p.def_jvp
def _jvp(
    primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, sizes: Sizes, name: str, again: Any
) -> Any:
    nonzeros = tuple(type(t) is not Zero for t in tangents)
    made = _symbolically(jvp_jaxpr, jaxpr, sizes, nonzeros)
    if made is None:
        return jit_p.jvp(primals, tangents, **_as_jit(jaxpr, sizes, name, again))  # type: ignore[misc]
    jvped, nonzeros_out = made
    given = [t for t in tangents if type(t) is not Zero]
    alone = again and (lambda: jvp_jaxpr(again(), nonzeros)[0])
    outs = bind_at_sizes(jvped, [*primals, *given], sizes, name, alone)
    count = len(jaxpr.out_avals)
    types = sizes.types(jaxpr.out_avals)
    return outs[:count], spread_tangents(outs[count:], nonzeros_out, types)


@symbolic_call_p.def_linearize
def _linearize(
    nonzeros: Any, *primals: Any, jaxpr: ClosedJaxpr, sizes: Sizes, name: str, again: Any
) -> Any:
    lin = _symbolically(linearize_jaxpr, jaxpr, sizes, tuple(nonzeros))
    if lin is None:
        params = _as_jit(jaxpr, sizes, name, again)
        return jit_p.linearize(nonzeros, *primals, **params)  # type: ignore[misc]
    outs = bind_at_sizes(lin.primal, primals, sizes, name)
    types = sizes.types(jaxpr.out_avals)

    def tangent_fn(residuals: Any, *tangents: Any) -> list[Any]:
        given = [t for t in tangents if type(t) is not Zero]
        found = []
        if lin.tangent.out_avals:
            # Recorded as it is: the linear program of a derivative that is being computed.
            closed, args = _hoisted(lin.tangent, [*residuals, *given])
            params = {"jaxpr": closed, "sizes": sizes, "name": name, "again": None}
            found = Primitive.bind(symbolic_call_p, *args, **params)
        return spread_tangents(found, lin.nonzeros_out, types)

    return outs[: len(types)], lin.residuals(primals, outs), tangent_fn


@symbolic_call_p.def_transpose
def _transpose(
    cts: Any, *args: Any, jaxpr: ClosedJaxpr, sizes: Sizes, name: str, again: Any
) -> list[Any]:
    linear = tuple(is_undefined_primal(x) for x in args)
    given = [ct for ct in cts if type(ct) is not Zero]
    # A cotangent may be strongly typed though the result is not.
    kinds = tuple(
        False
        if type(ct) is Zero
        else a.to_tangent().update(weak_type=get_aval(ct).weak_type, dtype=get_aval(ct).dtype)
        for ct, a in zip(cts, jaxpr.out_avals)
    )
    made = _symbolically(transpose_jaxpr, jaxpr, sizes, linear, kinds)
    if made is None:
        return jit_p.transpose(cts, *args, **_as_jit(jaxpr, sizes, name, again))  # type: ignore[misc]
    transposed, kept = made
    values = [x for x, lin in zip(args, linear) if not lin]
    found, keep = iter(bind_at_sizes(transposed, [*values, *given], sizes, name)), iter(kept)
    return [next(found) if lin and next(keep) else None for lin in linear]


@symbolic_call_p.def_batch
def _batch(
    axis: AxisData, args: Any, dims: Any, *, jaxpr: ClosedJaxpr, sizes: Sizes, name: str, again: Any
) -> Any:
    more, dim = sizes.with_axis(axis.size)
    symbolic = axis._replace(size=dim)
    made = None
    if axis.name is None:  # the size of an axis that has a name may be asked for by it
        made = _symbolically(batch_jaxpr_axes, jaxpr, more, symbolic, tuple(dims))
    if made is None:
        return jit_p.batch(axis, args, dims, **_as_jit(jaxpr, sizes, name, again))  # type: ignore[misc]
    batched, out_dims = made
    alone = again and (lambda: batch_jaxpr_axes(again(), axis, tuple(dims))[0])
    return bind_at_sizes(batched, args, more, name, alone), out_dims
