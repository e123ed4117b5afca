"""Loops whose number of steps is known only when they run: `while_loop`, and `fori_loop`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.config import config
from amdjax.core.dead_code import dce_jaxpr, dce_rules
from amdjax.core.dims import is_symbolic_dim, max_dim
from amdjax.core.effects import (
    Effects,
    control_flow_allowed_effects,
    has_side_effects,
    join_effects,
)
from amdjax.core.errors import TracerBoolConversionError
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, close_consts, jaxpr_as_fun, memoize_on_jaxpr
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_unflatten, treedef_is_leaf
from amdjax.core.trace import is_concrete
from amdjax.lax._rules import aval_of
from amdjax.lax.bitwise import bitwise_and
from amdjax.lax.casting import convert
from amdjax.lax.comparison import lt
from amdjax.lax.control_flow._common import (
    Body,
    Traced,
    argument_name,
    as_array,
    check_callable,
    check_carry,
    check_effects,
    checked_leaves,
    chosen,
    fixed_carry,
    fixpoint,
    immutable,
    leaf_structure,
    nonzero,
    promote_weak,
    same_type,
    select_rows,
    split_list,
    trace_body,
    with_binders,
    with_unused_binders,
)
from amdjax.lax.control_flow.scans import scan_body
from amdjax.lax.elementwise import add
from amdjax.lax.reductions import reduce_or
from amdjax.transforms.axes import AxisData, batch_at, batched_aval
from amdjax.transforms.batching import batch_jaxpr
from amdjax.transforms.calls import spread_tangents
from amdjax.transforms.forward import jvp_jaxpr
from amdjax.transforms.zero import instantiate_zeros

__all__ = ["fori_loop", "while_loop", "while_p"]

T = TypeVar("T")

while_p = Primitive("while", multiple_results=True)
while_p.lowering = Control("while")


@while_p.def_abstract_eval
def _while_type(
    *avals: Any,
    cond_jaxpr: ClosedJaxpr,
    body_jaxpr: ClosedJaxpr,
    cond_nconsts: int,
    body_nconsts: int,
) -> list[Any]:
    cond_consts, body_consts, carry = split_list(avals, cond_nconsts, body_nconsts)
    for name, jaxpr, given in (
        ("cond_jaxpr", cond_jaxpr, [*cond_consts, *carry]),
        ("body_jaxpr", body_jaxpr, [*body_consts, *carry]),
    ):
        taken = jaxpr.in_avals
        if len(taken) != len(given) or not all(map(same_type, taken, given)):
            raise TypeError(f"while: {name} takes {taken}, but gets {given}.")
    if not all(map(same_type, body_jaxpr.out_avals, carry)):
        raise TypeError(f"while: the carry is {carry}, but becomes {body_jaxpr.out_avals}.")
    return list(body_jaxpr.out_avals)


@while_p.def_effects
def _while_effects(*_: Any, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr, **__: Any) -> Effects:
    effects = join_effects(cond_jaxpr.effects, body_jaxpr.effects)
    return control_flow_allowed_effects.require("`while`", effects)


@while_p.def_jvp
def _while_jvp(
    primals: Any, tangents: Any, *, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr,
    cond_nconsts: int, body_nconsts: int,
) -> Any:  # fmt: skip
    cond_consts, body_consts, carry = split_list(primals, cond_nconsts, body_nconsts)
    _, const_tangents, carry_tangents = split_list(tangents, cond_nconsts, body_nconsts)
    const_nz = nonzero(const_tangents)
    start = tuple(nonzero(carry_tangents))
    body, carry_nz = _jvp_body(body_jaxpr, tuple(const_nz), start)
    body, enclosing = hoist_tracers(body)  # what custom rules close over
    given = [instantiate_zeros(t) for t in chosen(carry_tangents, carry_nz)]
    outs = while_p.bind(
        *cond_consts,
        *[*enclosing, *body_consts, *chosen(const_tangents, const_nz)],
        *[*carry, *given],
        cond_jaxpr=_ignoring(cond_jaxpr, tuple(get_aval(t) for t in given)),
        body_jaxpr=body,
        cond_nconsts=cond_nconsts,
        body_nconsts=len(enclosing) + body_nconsts + sum(const_nz),
    )
    count = len(carry)
    return outs[:count], spread_tangents(outs[count:], carry_nz, body_jaxpr.out_avals)


@memoize_on_jaxpr
def _jvp_body(
    body: ClosedJaxpr, const_nz: tuple[bool, ...], carry_nz: tuple[bool, ...]
) -> tuple[ClosedJaxpr, list[bool]]:
    """`(consts, their tangents, carry, its tangents) -> (carry, its tangents)`.

    A component of the carry has a tangent if it, or what it is computed from, ever gets one.
    """
    nonzeros = fixpoint(lambda nz: jvp_jaxpr(body, [*const_nz, *nz], nz)[1], carry_nz)
    jvped, _ = jvp_jaxpr(body, [*const_nz, *nonzeros], nonzeros)
    sizes = len(const_nz), len(nonzeros), sum(const_nz)
    consts, carry, const_dots, carry_dots = split_list(range(len(jvped.in_avals)), *sizes)
    return with_binders(jvped, [*consts, *const_dots, *carry, *carry_dots]), nonzeros


@memoize_on_jaxpr
def _ignoring(closed: ClosedJaxpr, avals: tuple[Any, ...]) -> ClosedJaxpr:
    return with_unused_binders(closed, avals) if avals else closed


@while_p.def_transpose
def _while_transpose(cts: Any, *args: Any, **params: Any) -> list[Any]:
    raise ValueError(
        "Reverse-mode differentiation does not work for lax.while_loop, nor for lax.fori_loop "
        "with bounds that are not known while tracing: it needs the values of all steps, whose "
        "number is unknown.\n"
        "  - With an upper bound of the number of steps use lax.scan, or lax.fori_loop with Python "
        "integers as bounds, and keep the carry in steps beyond the end.\n"
        "  - Forward mode works: amdjax.jvp, amdjax.jacfwd.\n"
        "  - A solver is better differentiated at its solution: lax.custom_root."
    )


@while_p.def_batch
def _while_batch(
    axis: AxisData, args: Any, dims: Any, *, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr,
    cond_nconsts: int, body_nconsts: int,
) -> Any:  # fmt: skip
    sizes = cond_nconsts, body_nconsts
    cond_bat, body_bat, start = split_list([d is not None for d in dims], *sizes)
    carry_bat = fixpoint(lambda b: batch_jaxpr(body_jaxpr, axis, [*body_bat, *b], b)[1], start)
    cond, (pred_batched,) = batch_jaxpr(cond_jaxpr, axis, [*cond_bat, *carry_bat])
    if pred_batched:
        carry_bat = [True] * len(carry_bat)
        cond, _ = batch_jaxpr(cond_jaxpr, axis, [*cond_bat, *carry_bat], True)
    body, _ = batch_jaxpr(body_jaxpr, axis, [*body_bat, *carry_bat], carry_bat)
    batched = [*cond_bat, *body_bat, *carry_bat]
    args = [batch_at(axis, x, d, 0 if b else None) for x, d, b in zip(args, dims, batched)]
    if not pred_batched:
        params = {"cond_nconsts": cond_nconsts, "body_nconsts": body_nconsts}
        outs = while_p.bind(*args, cond_jaxpr=cond, body_jaxpr=body, **params)
        return outs, [0 if b else None for b in carry_bat]
    check_effects("while_loop", body_jaxpr.effects)
    for effect in join_effects(cond_jaxpr.effects, body_jaxpr.effects):
        if effect.not_masked is not None:
            raise ValueError(effect.not_masked)
    cond_consts, body_consts, carry = split_list(args, *sizes)
    (pred,) = jaxpr_as_fun(cond)(*cond_consts, *carry)
    _, *outs = while_p.bind(
        *[*cond_consts, *body_consts],
        *[pred, *carry],
        cond_jaxpr=_any_goes_on(cond, tuple(batched_aval(axis, a) for a in body_jaxpr.out_avals)),
        body_jaxpr=_masked_body(body, cond, cond_nconsts, body_nconsts),
        cond_nconsts=0,
        body_nconsts=cond_nconsts + body_nconsts,
    )
    return outs, [0] * len(outs)


@memoize_on_jaxpr
def _any_goes_on(cond: ClosedJaxpr, carry_avals: tuple[Any, ...]) -> ClosedJaxpr:
    """`(pred, carry) -> whether any example has steps left`."""

    def fun(pred: Any, *_: Any) -> list[Any]:
        return [reduce_or(pred, (0,))]

    return trace_to_jaxpr(fun, [*cond.out_avals, *carry_avals])


@memoize_on_jaxpr
def _masked_body(
    body: ClosedJaxpr, cond: ClosedJaxpr, cond_nconsts: int, body_nconsts: int
) -> ClosedJaxpr:
    """A step of those examples that go on; the others keep their carry.

    Which ones do is part of the carry, so that the condition is evaluated once a step.
    """

    def fun(*args: Any) -> list[Any]:
        cond_consts, body_consts, (pred, *carry) = split_list(args, cond_nconsts, body_nconsts)
        stepped = jaxpr_as_fun(body)(*body_consts, *carry)
        new = [select_rows(pred, old, x) for old, x in zip(carry, stepped)]
        # One that ended has not changed; said so, each may run by itself (`element_loops.py`).
        (more,) = jaxpr_as_fun(cond)(*cond_consts, *new)
        return [bitwise_and(pred, more), *new]

    cond_avals, body_avals = cond.in_avals[:cond_nconsts], body.in_avals
    consts, carry = body_avals[:body_nconsts], body_avals[body_nconsts:]
    return trace_to_jaxpr(fun, [*cond_avals, *consts, *cond.out_avals, *carry])


def _while_dce(used: Sequence[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    if not any(used) and not has_side_effects(eqn.effects):
        return [False] * len(eqn.invars), None
    cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    cond_nconsts, body_nconsts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond_used = dce_jaxpr(cond.jaxpr, [True])[1]
    needed = [u or c for u, c in zip(used, cond_used[cond_nconsts:])]
    kept = fixpoint(lambda keep: dce_jaxpr(body.jaxpr, keep)[1][body_nconsts:], needed)
    new_cond, cond_ins = dce_jaxpr(cond.jaxpr, [True], [False] * cond_nconsts + kept)
    new_body, body_ins = dce_jaxpr(body.jaxpr, kept, [False] * body_nconsts + kept)
    used_ins = [*cond_ins[:cond_nconsts], *body_ins]
    if all(used_ins) and len(new_body.eqns) == len(body.eqns):
        return used_ins, eqn
    new_params: dict[str, Any] = {
        "cond_jaxpr": close_consts(new_cond, cond.consts),
        "body_jaxpr": close_consts(new_body, body.consts),
        "cond_nconsts": sum(cond_ins[:cond_nconsts]),
        "body_nconsts": sum(body_ins[:body_nconsts]),
    }
    new = eqn.replace(
        invars=chosen(eqn.invars, used_ins),
        outvars=chosen(eqn.outvars, kept),
        params=new_params,
        effects=_while_effects(**new_params),
    )
    return used_ins, new


dce_rules[while_p] = _while_dce


# The functions


@api_boundary
def while_loop(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init_val: T) -> T:
    """Repeat a step while a condition holds.

    The loop compiles to one native loop. It can be differentiated in forward mode; reverse mode
    needs a number of steps known while tracing, as `scan` and `fori_loop` have it. Under `vmap`
    the loop runs until no example goes on; the carry of those that are done stays as it is.

    Args:
      cond_fun: from the carry to a boolean scalar.
      body_fun: from the carry to a carry of the same structure, shapes and dtypes.

    Returns:
      The first carry for which `cond_fun` is false.

    Raises:
      TypeError: a function is not callable, `init_val` holds something else than arrays,
        `cond_fun` does not return a boolean scalar, or `body_fun` changes the carry's type.

        >>> int(lax.while_loop(lambda x: x < 50, lambda x: x * 2, 1))
        64
    """
    check_callable("while_loop", cond_fun=cond_fun, body_fun=body_fun)
    if config.disable_jit:
        try:
            val = immutable(init_val)
            while cond_fun(val):
                val = body_fun(val)
            return val
        except TracerBoolConversionError:
            pass  # whether to go on differs between examples, or is not known: it stays a loop
    body = Body("while_loop", body_fun, carry_name=argument_name(body_fun, 0, "init_val"))
    return _while_loop(Body("while_loop", cond_fun), body, init_val)


def _while_loop(cond: Body, body: Body, init_val: Any) -> Any:
    leaves, tree = checked_leaves(body.what, "init_val", init_val)
    traced = _trace_step(body, tree, leaves)
    if len(traced.jaxpr.out_avals) == len(leaves):
        promoted = [promote_weak(x, a) for x, a in zip(leaves, traced.jaxpr.out_avals)]
        if any(x is not y for x, y in zip(promoted, leaves)):
            leaves = promoted
            traced = _trace_step(body, tree, leaves)
    avals = [get_aval(x) for x in leaves]
    check_carry(body, (tree, traced.out_tree), (avals, traced.jaxpr.out_avals))
    traced_cond = _trace_step(cond, tree, leaves)
    _check_condition(cond, traced_cond)
    return tree_unflatten(traced.out_tree, _bind_while(traced_cond, traced, leaves))


def _trace_step(body: Body, tree: Any, leaves: Sequence[Any]) -> Traced:
    return trace_body(body, leaf_structure(tree), [get_aval(x) for x in leaves])


def _check_condition(cond: Body, traced: Traced) -> None:
    avals = traced.jaxpr.out_avals
    wanted = "while_loop: cond_fun must return a boolean scalar, but got"
    where = f"\ncond_fun is {cond}."
    if len(avals) != 1 or not treedef_is_leaf(traced.out_tree):
        raise TypeError(f"{wanted} pytree {traced.out_tree}.{where}")
    if not same_type(avals[0], ShapedArray((), np.bool_)):
        raise TypeError(f"{wanted} output type(s) {avals}.{where}")


def _bind_while(cond: Traced, body: Traced, init: Sequence[Any]) -> list[Any]:
    """Bind the loop; what every step passes on unchanged is a constant of its body."""
    cond_read = dce_jaxpr(cond.jaxpr.jaxpr, [True])[1][len(cond.consts) :]
    movable = tuple(not read for read in cond_read)
    body_jaxpr, fixed = fixed_carry(body.jaxpr, len(body.consts), movable)
    keep = [not f for f in fixed]
    outs = while_p.bind(
        *cond.consts,
        *[*chosen(init, fixed), *body.consts],
        *chosen(init, keep),
        cond_jaxpr=_without_binders(cond.jaxpr, len(cond.consts), tuple(fixed)),
        body_jaxpr=body_jaxpr,
        cond_nconsts=len(cond.consts),
        body_nconsts=len(body.consts) + sum(fixed),
    )
    rest = iter(outs)
    return [as_array(x) if f else next(rest) for x, f in zip(init, fixed)]


@memoize_on_jaxpr
def _without_binders(cond: ClosedJaxpr, nconsts: int, fixed: tuple[bool, ...]) -> ClosedJaxpr:
    """The condition without those components of the carry that became constants of the body."""
    if not any(fixed):
        return cond
    stay = [nconsts + i for i, f in enumerate(fixed) if not f]
    return with_binders(cond, [*range(nconsts), *stay])


@api_boundary
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, T], T], init_val: T, *,
    unroll: int | bool | None = None,
) -> T:  # fmt: skip
    """Repeat a step for each integer of a range.

    With bounds known while tracing it is a `scan`, differentiable in both modes; otherwise a
    `while_loop`.

    Args:
      lower: the first index, an integer scalar; a known float is cut to an integer.
      upper: the end of the range, not part of it; no steps are made if it is not above `lower`.
      body_fun: from an index and the carry to a carry of the same structure, shapes and dtypes.
      unroll: steps laid out one after another in an iteration of the compiled loop; True for all.
        Only for known bounds.

    Returns:
      The carry after the last step.

    Raises:
      TypeError: `body_fun` is not callable or changes the carry's type, or the bounds are not
        real numbers of one type.
      ValueError: `unroll` is given but the bounds are not known.

        >>> int(lax.fori_loop(0, 5, lambda i, total: total + i, 0))
        10
    """
    check_callable("fori_loop", body_fun=body_fun)
    dtype = _bound_dtype(lower, upper)
    if is_concrete(lower) and is_concrete(upper):
        first, last = (x if is_symbolic_dim(x) else int(x) for x in (lower, upper))
        length = max_dim(last - first, 0)
        if config.disable_jit and length == 0:
            return init_val
        init = first, init_val
        body = _for_body(body_fun, _scan_step)
        (_, result), _ = scan_body(body, init, None, length, unroll=1 if unroll is None else unroll)
        return result
    if unroll not in (None, False, 1):
        raise ValueError(
            "fori_loop: Can only use `unroll` if lower and upper are known while tracing, got "
            f"unroll={unroll!r}."
        )
    bounds = _bound(lower, dtype), _bound(upper, dtype)
    cond, body = Body("fori_loop", _below_upper), _for_body(body_fun, _while_step)
    return _while_loop(cond, body, (*bounds, init_val))[-1]


def _for_body(body_fun: Callable[..., Any], step: Callable[..., Any]) -> Body:
    call = functools.partial(step, body_fun)
    name = argument_name(body_fun, 1, "init_val")
    # The index is the first component of the traced carry, the user's carry is the last one.
    return Body("fori_loop", body_fun, call, name, 1, lambda args: (args[0][0], args[0][-1]))


def _below_upper(carry: Any) -> Any:
    i, upper, _ = carry
    return lt(i, upper)


def _scan_step(body_fun: Callable[..., Any], carry: Any, _: Any) -> Any:
    i, val = carry
    return (_next(i), body_fun(i, val)), None


def _while_step(body_fun: Callable[..., Any], carry: Any) -> Any:
    i, upper, val = carry
    return _next(i), upper, body_fun(i, val)


def _next(i: Any) -> Any:
    aval = get_aval(i)
    one = np.ones((), aval.dtype)[()]
    return add(i, one.item() if aval.weak_type else one)


def _bound_dtype(lower: Any, upper: Any) -> Any:
    """The dtype of the index, None to keep those of the bounds."""
    for name, bound in (("lower", lower), ("upper", upper)):
        aval = aval_of(bound)
        if aval.shape or not any(
            dtypes.issubdtype(aval.dtype, k) for k in (np.integer, np.floating, np.bool_)
        ):
            raise TypeError(f"fori_loop: {name} must be a real scalar, got {aval}.")
    a, b = aval_of(lower), aval_of(upper)
    if a.dtype == b.dtype:
        return None
    integers = all(dtypes.issubdtype(x.dtype, np.integer) for x in (a, b))
    if integers and a.weak_type != b.weak_type:
        return b.dtype if a.weak_type else a.dtype
    raise TypeError(
        "lower and upper arguments to fori_loop must have equal types, got"
        f" {a.dtype.name} and {b.dtype.name}"
    )


def _bound(bound: Any, dtype: Any) -> Any:
    return bound if dtype is None or aval_of(bound).dtype == dtype else convert(bound, dtype)
