"""`custom_vmap`: functions with batching rules of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.errors import api_boundary
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from amdjax.core.trace import hoist_tracers, trace_to_jaxpr
from amdjax.transforms import ops
from amdjax.transforms.batching import AxisData
from amdjax.transforms.calls import closed_call_p, give_call_rules
from amdjax.transforms.flat import FlatFunction, fun_name, resolve_kwargs

custom_vmap_call_p = Primitive("custom_vmap_call", multiple_results=True)
custom_vmap_call_p.lowering = Control("call", jaxpr_param="call")
give_call_rules(custom_vmap_call_p, "call")


# Derivatives are those of the function; the rule says nothing of tangents, so they are batched
# as any other program.


@custom_vmap_call_p.def_jvp
def _jvp(primals: Any, tangents: Any, *, call: ClosedJaxpr, **params: Any) -> Any:
    outs = custom_vmap_call_p.bind(*primals, call=call, **params)
    assert closed_call_p.jvp is not None
    _, out_tangents = closed_call_p.jvp(primals, tangents, call_jaxpr=call)
    return outs, out_tangents


@custom_vmap_call_p.def_linearize
def _linearize(nonzeros: Any, *primals: Any, call: ClosedJaxpr, **params: Any) -> Any:
    assert closed_call_p.linearize is not None
    _, residuals, tangent_fn = closed_call_p.linearize(nonzeros, *primals, call_jaxpr=call)
    return custom_vmap_call_p.bind(*primals, call=call, **params), residuals, tangent_fn


@custom_vmap_call_p.def_batch
def _batch(axis: AxisData, args: Any, dims: Any, *, rule: Any, **_: Any) -> Any:
    args = [x if d is None else ops.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    outs, batched = rule(axis.size, [d is not None for d in dims], args)
    return outs, [0 if b else None for b in batched]


class custom_vmap:
    """A function whose behaviour under `vmap` is given by a rule.

    Args:
      fun: a function of pytrees of arrays, with positional arguments.

    Example:
      >>> import amdjax, numpy as np
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
        """
        self.rule = rule
        return rule

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = fun_name(self.fun)
        if self.rule is None:
            raise AttributeError(f"custom_vmap function {name} has no rule: set it with def_vmap")
        args = resolve_kwargs(self.fun, args, kwargs)
        leaves, in_tree = tree_flatten((args, {}))
        flat = FlatFunction(self.fun, in_tree)
        closed = trace_to_jaxpr(flat, [get_aval(x) for x in leaves])
        closed, consts = hoist_tracers(closed)
        count = len(consts)

        def rule(size: int, batched: list[bool], values: list[Any]) -> Any:
            if any(batched[:count]):
                raise ValueError(
                    f"custom_vmap function {name} closes over a value that vmap maps over; pass "
                    "it as an argument."
                )
            return self._apply(flat, size, batched[count:], values[count:])

        outs = custom_vmap_call_p.bind(*consts, *leaves, call=closed, rule=rule)
        return tree_unflatten(flat.out_tree, outs)

    def _apply(
        self, flat: FlatFunction, size: int, batched: list[bool], values: list[Any]
    ) -> tuple[list[Any], list[bool]]:
        assert self.rule is not None
        args, _ = tree_unflatten(flat.in_tree, values)
        in_batched, _ = tree_unflatten(flat.in_tree, batched)
        pair = self.rule(size, list(in_batched), *args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"the vmap rule of {flat.what} must return a pair (out, out_batched), got {pair!r}"
            )
        outs, tree = tree_flatten(pair[0])
        if tree != flat.out_tree:
            raise ValueError(
                f"structure of output value and of the vmap rule's differ for {flat.what}: "
                f"{flat.out_tree} and {tree}"
            )
        flags = tree_leaves(pair[1])
        if len(flags) != len(outs):
            flags = tree_leaves(tree_map(lambda b, o: tree_map(lambda _: b, o), pair[1], pair[0]))
        return outs, [bool(b) for b in flags]
