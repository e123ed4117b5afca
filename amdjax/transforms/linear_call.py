"""`linear_call`: a linear function whose transpose is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.jaxpr import ClosedJaxpr, jaxpr_as_fun
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.batching import batch_jaxpr
from amdjax.transforms.flat import debug_info, flatten_result, fun_name
from amdjax.transforms.zero import Zero, instantiate_zeros, is_undefined_primal

linear_call_p = Primitive("linear_call", multiple_results=True)


def _call(*args: Any, callee: ClosedJaxpr, num_res: int, **_: Any) -> list[Any]:
    return jaxpr_as_fun(callee)(*args)


linear_call_p.lowering = Decompose(_call)
linear_call_p.def_abstract_eval(lambda *avals, callee, **_: callee.out_avals)
linear_call_p.def_effects(lambda *avals, callee, **_: callee.effects)


@linear_call_p.def_jvp
def _linear_call_jvp(primals: Any, tangents: Any, *, num_res: int, **params: Any) -> Any:
    if any(type(t) is not Zero for t in tangents[:num_res]):
        raise NotImplementedError(
            "linear_call is linear in linear_args only; its residual_args cannot be differentiated"
        )
    params["num_res"] = num_res
    outs = linear_call_p.bind(*primals, **params)
    linear = tangents[num_res:]
    if all(type(t) is Zero for t in linear):
        return outs, [Zero.of(y) for y in outs]
    return outs, linear_call_p.bind(*primals[:num_res], *map(instantiate_zeros, linear), **params)


@linear_call_p.def_transpose
def _linear_call_transpose(
    cts: Any, *args: Any, callee: ClosedJaxpr, transpose: ClosedJaxpr, num_res: int
) -> list[Any]:
    residuals, linear = args[:num_res], args[num_res:]
    if any(map(is_undefined_primal, residuals)):
        raise NotImplementedError("linear_call is linear in linear_args only")
    found = linear_call_p.bind(
        *residuals, *map(instantiate_zeros, cts), callee=transpose, transpose=callee,
        num_res=num_res,
    )  # fmt: skip
    wanted = [ct if is_undefined_primal(x) else None for ct, x in zip(found, linear, strict=True)]
    return [None] * num_res + wanted


@linear_call_p.def_batch
def _linear_call_batch(
    axis: AxisData, args: Any, dims: Any, *, callee: ClosedJaxpr, transpose: ClosedJaxpr,
    num_res: int,
) -> Any:  # fmt: skip
    # Residuals may be the same for all; what is linear is a batch on both sides.
    mapped = [d is not None for d in dims[:num_res]]
    batched = [
        batch_jaxpr(j, axis, [*mapped, *[True] * (len(j.in_avals) - num_res)], True)[0]
        for j in (callee, transpose)
    ]
    places = [0 if m else None for m in mapped] + [0] * (len(args) - num_res)
    moved = [batch_at(axis, x, d, place) for x, d, place in zip(args, dims, places, strict=True)]
    outs = linear_call_p.bind(*moved, callee=batched[0], transpose=batched[1], num_res=num_res)
    return outs, [0] * len(outs)


def linear_call(
    fun: Callable[[Any, Any], Any],
    fun_transpose: Callable[[Any, Any], Any],
    residual_args: Any,
    linear_args: Any,
) -> Any:
    """Call a linear function whose transpose is given by another function.

    Each is the transpose of the other, so that transposing twice gives `fun` again.

    Args:
      fun: `fun(residual_args, linear_args)`, linear in its second argument.
      fun_transpose: `fun_transpose(residual_args, out)`, linear in its second argument, a pytree
        like the result of `fun`; it returns one like `linear_args`.
      residual_args: a pytree of arrays in which neither need be linear.
      linear_args: a pytree of arrays.

    Returns:
      What `fun` returns.

    Raises:
      TypeError: `fun_transpose` returns another structure, or other types, than `linear_args`.

        >>> from amdjax.custom_derivatives import linear_call
        >>> f = lambda x: linear_call(lambda r, x: x / r, lambda r, t: t / r, 3.0, x)
        >>> print(amdjax.linear_transpose(f, 1.0)(18.0)[0])
        6.0
    """
    residuals, res_tree = tree_flatten(residual_args)
    linear, lin_tree = tree_flatten(linear_args)
    trees: list[Any] = []

    def program(f: Any, what: str, second: Any, avals: Sequence[Any]) -> tuple[Any, list[Any]]:
        def flat(*xs: Any) -> list[Any]:
            args = tree_unflatten(res_tree, xs[:count]), tree_unflatten(second, xs[count:])
            outs, tree = flatten_result(f(*args), fun_name(f))
            trees.append(tree)
            return outs

        closed = trace_to_jaxpr(flat, avals, debug_info=debug_info(what, f))
        return hoist_tracers(closed)

    count = len(residuals)
    res_avals, lin_avals = [get_aval(x) for x in residuals], [get_aval(x) for x in linear]
    callee, consts = program(fun, "linear_call fun", lin_tree, [*res_avals, *lin_avals])
    (out_tree,) = trees
    backward, back_consts = program(
        fun_transpose, "linear_call fun_transpose", out_tree, [*res_avals, *callee.out_avals]
    )
    _check_transpose(fun_transpose, trees[1], backward.out_avals, lin_tree, lin_avals)
    n, m = len(consts), len(back_consts)
    # Both take the values that either closes over.
    callee, backward = (
        _with_more(callee, n, m, [get_aval(c) for c in back_consts], first=True),
        _with_more(backward, m, n, [get_aval(c) for c in consts], first=False),
    )
    outs = linear_call_p.bind(
        *consts, *back_consts, *residuals, *linear, callee=callee, transpose=backward,
        num_res=n + m + count,
    )  # fmt: skip
    return tree_unflatten(out_tree, outs)


def _with_more(
    closed: ClosedJaxpr, own: int, others: int, avals: Sequence[Any], *, first: bool
) -> ClosedJaxpr:
    """The program with further arguments that it does not read, behind or before its own consts."""
    if not others:
        return closed
    at = own if first else 0
    fun = jaxpr_as_fun(closed)
    all_avals = [*closed.in_avals[:at], *avals, *closed.in_avals[at:]]
    return trace_to_jaxpr(lambda *xs: fun(*xs[:at], *xs[at + others :]), all_avals)


def _check_transpose(f: Any, tree: Any, avals: Any, lin_tree: Any, lin_avals: Any) -> None:
    if tree != lin_tree:
        raise TypeError(
            f"linear_call: fun_transpose {fun_name(f)} must return a pytree like linear_args, "
            f"{lin_tree}, got {tree}"
        )
    for got, want in zip(avals, lin_avals, strict=True):
        if got.shape != want.shape or got.dtype != want.dtype:
            raise TypeError(
                f"linear_call: fun_transpose {fun_name(f)} must return types like linear_args, "
                f"{want.str_short()}, got {got.str_short()}"
            )
