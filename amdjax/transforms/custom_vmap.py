"""`custom_vmap`: functions with batching rules of their own."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.dead_code import dce_rules
from amdjax.core.dtypes import float0
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_map, tree_unflatten
from amdjax.core.trace import eval_trace, find_current_trace
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData, batch_at, batched_aval
from amdjax.transforms.batching import batch_flat
from amdjax.transforms.calls import give_call_rules, spread_tangents
from amdjax.transforms.custom import rule_setter
from amdjax.transforms.flat import FlatFunction, fun_name, resolve_kwargs
from amdjax.transforms.forward import jvp_flat, jvp_jaxpr
from amdjax.transforms.reverse import backward_pass, transpose_jaxpr
from amdjax.transforms.zero import (
    UndefinedPrimal,
    Zero,
    as_result,
    instantiate_zeros,
    is_undefined_primal,
)

# A rule as the primitive has it: rule(axis, batched, values) -> (results, which are batched), where
# what is batched has its mapped axis first.
Rule = Callable[[AxisData, Sequence[bool], Sequence[Any]], tuple[list[Any], list[bool]]]

custom_vmap_call_p = Primitive("custom_vmap_call", multiple_results=True)
custom_vmap_call_p.lowering = Control("call", jaxpr_param="call")
give_call_rules(custom_vmap_call_p, "call")
del dce_rules[custom_vmap_call_p]  # the rule returns all results


@custom_vmap_call_p.def_batch
def _batch(axis: AxisData, args: Any, dims: Any, *, rule: Rule, **_: Any) -> Any:
    args = [x if d is None else ops.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    outs, batched = rule(axis, [d is not None for d in dims], args)
    return outs, [0 if b else None for b in batched]


# What is derived from the function has a rule derived from its rule, so that the derivative of a
# batch is that of what the batch computes.


def _call(closed: ClosedJaxpr, rule: Rule, args: Sequence[Any]) -> list[Any]:
    closed, consts = hoist_tracers(closed)
    return custom_vmap_call_p.bind(*consts, *args, call=closed, rule=_skip(rule, len(consts)))


def _skip(rule: Rule, count: int) -> Rule:
    """The rule of a program with `count` values from outside as leading arguments."""

    def skipping(axis: AxisData, batched: Sequence[bool], values: Sequence[Any]) -> Any:
        if any(batched[:count]):
            raise ValueError(
                "a custom_vmap function closes over a value that vmap maps over; pass it as an "
                "argument."
            )
        return rule(axis, batched[count:], values[count:])

    return skipping if count else rule


@custom_vmap_call_p.def_jvp
def _jvp(primals: Any, tangents: Any, *, call: ClosedJaxpr, rule: Rule) -> Any:
    nonzeros = [type(t) is not Zero for t in tangents]
    differentiable = [a.to_tangent().dtype != float0 for a in call.out_avals]
    jvped, nonzeros_out = jvp_jaxpr(call, nonzeros, differentiable)
    given = [t for t in tangents if type(t) is not Zero]
    outs = _call(
        jvped, functools.partial(_jvp_rule, rule, nonzeros, nonzeros_out), [*primals, *given]
    )
    count = len(call.out_avals)
    return outs[:count], spread_tangents(outs[count:], nonzeros_out, call.out_avals)


# Linearized by its jvp rule; a program of its own for residuals would have no rule.
custom_vmap_call_p.linearize = None


def _jvp_rule(
    rule: Rule, nonzeros: Sequence[bool], nonzeros_out: Sequence[bool], axis: AxisData,
    batched: Sequence[bool], values: Sequence[Any],
) -> tuple[list[Any], list[bool]]:  # fmt: skip
    """The rule of the jvp of a function: the jvp of its rule.

    Arguments of which only the primal or only the tangent is a batch are taken apart by `vmap` of
    the jvp of the rule. The rule is told of none then; where it is, or makes a batch by itself, it
    gets all of them as batches, since example and example belong together.
    """
    count = len(nonzeros)
    tangent_batched = _spread(nonzeros, batched[count:], [False] * count)
    if not any(p and t for p, t in zip(batched, tangent_batched)):
        outs, out_dims, told = _jvp_of_rule(
            rule, nonzeros, nonzeros_out, axis, [False] * count, values, batched
        )
        if not any(told):
            outs = [x if d is None else ops.moveaxis(x, d, 0) for x, d in zip(outs, out_dims)]
            return outs, [d is not None for d in out_dims]
    flags = [p or t for p, t in zip(batched, tangent_batched)]
    wanted = [*flags, *itertools.compress(flags, nonzeros)]
    values = [_match(axis, *x) for x in zip(values, batched, wanted)]
    none = [False] * len(values)
    outs, _, told = _jvp_of_rule(rule, nonzeros, nonzeros_out, axis, flags, values, none)
    return outs, told


def _jvp_of_rule(
    rule: Rule, nonzeros: Sequence[bool], nonzeros_out: Sequence[bool], axis: AxisData,
    flags: Sequence[bool], values: Sequence[Any], batched: Sequence[bool],
) -> tuple[list[Any], list[Any], list[bool]]:  # fmt: skip
    """What the jvp of the rule, given `flags`, makes of values of which some are `batched` besides.

    Returns:
      Results; where `vmap` has its axis in each; which of them are batches to the rule.
    """
    count = len(nonzeros)
    out_batched: list[bool] = []

    def fun(*primals: Any) -> list[Any]:
        outs, found = rule(axis, flags, primals)
        out_batched[:] = found
        return outs

    def jvp(*values: Any) -> list[Any]:
        primals = values[:count]
        tangents = _spread(nonzeros, values[count:], map(Zero.of, primals))
        outs, out_tangents = jvp_flat(fun, primals, tangents)
        kept = itertools.compress(out_tangents, nonzeros_out)
        return [*outs, *map(instantiate_zeros, kept)]

    dims = [0 if b else None for b in batched]
    outs, out_dims = batch_flat(jvp, AxisData(None, axis.size), values, dims)
    return outs, out_dims, [*out_batched, *itertools.compress(out_batched, nonzeros_out)]


def _spread(nonzeros: Sequence[bool], given: Sequence[Any], others: Iterable[Any]) -> list[Any]:
    """What is given for tangents that are not zero, with `others` in place of those that are."""
    rest = iter(given)
    return [next(rest) if nz else other for nz, other in zip(nonzeros, others)]


def _match(axis: AxisData, x: Any, batched: bool, wanted: bool) -> Any:
    return batch_at(axis, x, 0 if batched else None, 0 if wanted else None)


@custom_vmap_call_p.def_transpose
def _transpose(cts: Any, *args: Any, call: ClosedJaxpr, rule: Rule) -> list[Any]:
    linear = [is_undefined_primal(x) for x in args]
    nonzeros = [type(ct) is not Zero for ct in cts]
    transposed, _ = transpose_jaxpr(call, linear, nonzeros, instantiate=True)
    values = [x for x, lin in zip(args, linear) if not lin]
    values += [ct for ct, nz in zip(cts, nonzeros) if nz]
    found = iter(
        _call(transposed, functools.partial(_transpose_rule, rule, call, linear, nonzeros), values)
    )
    return [next(found) if lin else None for lin in linear]


def _transpose_rule(
    rule: Rule, call: ClosedJaxpr, linear: Sequence[bool], nonzeros: Sequence[bool], axis: AxisData,
    batched: Sequence[bool], values: Sequence[Any],
) -> tuple[list[Any], list[bool]]:  # fmt: skip
    """The rule of the transpose of a function: the transpose of its rule, all inputs batched."""
    rest = iter(zip(values, batched))
    known = [None if lin else next(rest) for lin in linear]
    flags = [True if x is None else x[1] for x in known]
    avals = [batched_aval(axis, a) for a, x in zip(call.in_avals, known) if x is None]
    out_batched: list[bool] = []

    def fun(*inputs: Any) -> list[Any]:
        given = iter(inputs)
        outs, found = rule(axis, flags, [next(given) if x is None else x[0] for x in known])
        out_batched.extend(found)
        return outs

    closed = trace_to_jaxpr(fun, avals)
    cts: list[Any] = []
    for aval, nonzero, wanted in zip(closed.out_avals, nonzeros, out_batched):
        if not nonzero:
            cts.append(Zero(aval.to_tangent()))
            continue
        ct, b = next(rest)
        # What is the same for all examples gets the sum of their cotangents.
        cts.append(ops.reduce_sum(ct, (0,)) if b and not wanted else _match(axis, ct, b, wanted))
    found = backward_pass(closed.jaxpr, closed.consts, [*map(UndefinedPrimal, avals)], cts)
    return [instantiate_zeros(ct) for ct in found], [True] * len(found)


class custom_vmap:
    """A function whose behavior under `vmap` is given by a rule.

    Args:
      fun: a function of pytrees of arrays, with positional arguments.

        >>> @amdjax.custom_batching.custom_vmap
        ... def f(x):
        ...     return x
        >>> @f.def_vmap
        ... def rule(axis_size, in_batched, x):
        ...     return amdjax.lax.neg(x), in_batched[0]
        >>> print(amdjax.vmap(f)(np.ones(2)))
        [-1. -1.]
    """

    def __init__(self, fun: Callable[..., Any]):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.rule: Callable[..., Any] | None = None

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule.

        Args:
          rule: `rule(axis_size, in_batched, *args) -> (out, out_batched)`; `in_batched` and
            `out_batched` are pytrees of bools like the arguments and the result, and what is
            batched has its mapped axis first.

        Returns:
          `rule`.
        """
        self.rule = rule
        return rule

    def __getattr__(self, name: str) -> Any:
        return rule_setter(self, name)

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = fun_name(self.fun)
        if self.rule is None:
            raise AttributeError(
                f"No batching rule defined for custom_vmap function {name} using def_vmap"
            )
        args = resolve_kwargs(self.fun, args, kwargs, "custom_vmap")
        if find_current_trace() is eval_trace:
            return self.fun(*tree_map(as_result, args))
        leaves, in_tree = tree_flatten((args, {}))
        flat = FlatFunction(self.fun, in_tree)
        closed = trace_to_jaxpr(flat, [get_aval(x) for x in leaves])
        closed, consts = hoist_tracers(closed)
        rule = _skip(functools.partial(self._apply, flat), len(consts))
        outs = custom_vmap_call_p.bind(*consts, *leaves, call=closed, rule=rule)
        return tree_unflatten(flat.out_tree, outs)

    def _apply(
        self, flat: FlatFunction, axis: AxisData, batched: Sequence[bool], values: Sequence[Any]
    ) -> tuple[list[Any], list[bool]]:
        assert self.rule is not None
        args, _ = tree_unflatten(flat.in_tree, map(as_result, values))
        in_batched, _ = tree_unflatten(flat.in_tree, batched)
        rule = fun_name(self.rule)
        pair = self.rule(axis.size, list(in_batched), *args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"the custom vmap rule {rule} of {flat.what} must return a pair "
                f"(out, out_batched), got {pair!r}"
            )
        outs, tree = tree_flatten(pair[0])
        flags, flags_tree = tree_flatten(pair[1])
        if flags_tree != tree:
            raise ValueError(
                "structure of output value and output batching specification returned by custom "
                f"vmap rule ({rule}) do not match.\nOutput values: {tree}\n"
                f"Batching spec: {flags_tree}"
            )
        if tree != flat.out_tree:
            raise ValueError(
                f"structure of output returned by custom vmap rule ({rule}) does not match that of "
                f"original custom-vmapped function.\nOriginal output: {flat.out_tree}\n"
                f"Rule output: {tree}"
            )
        return outs, [bool(b) for b in flags]
