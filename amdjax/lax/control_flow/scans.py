"""Loops with a known number of steps: `scan`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from amdjax.core.aval import get_aval, is_valid_value
from amdjax.core.boundaries import api_boundary
from amdjax.core.config import config
from amdjax.core.dead_code import dce_jaxpr, dce_rules
from amdjax.core.dims import Dim, as_size, is_symbolic_dim
from amdjax.core.effects import Effects, control_flow_allowed_effects, has_side_effects
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, close_consts, eval_jaxpr, memoize_on_jaxpr
from amdjax.core.jaxpr_trace import hoist_tracers
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import (
    keystr,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
    treedef_children,
)
from amdjax.core.ref import AbstractRef
from amdjax.core.trace import concrete_or_error
from amdjax.lax._rules import as_ints
from amdjax.lax.control_flow._common import (
    Body,
    Traced,
    argument_name,
    as_array,
    check_callable,
    check_carry,
    check_refs,
    checked_leaves,
    chosen,
    fixed_carry,
    fixpoint,
    forwarded,
    immutable,
    leaf_structure,
    nonzero,
    promote_weak,
    refuse_param,
    same_type,
    split_list,
    trace_body,
    with_outputs,
)
from amdjax.lax.control_flow._scan_bodies import (
    jvp_body,
    linear_carry,
    linearize_body,
    split_known,
    transpose_body,
)
from amdjax.lax.joining import stack
from amdjax.lax.slicing import index_in_dim
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.batching import batch_jaxpr
from amdjax.transforms.calls import spread_tangents
from amdjax.transforms.reverse import given_types
from amdjax.transforms.zero import instantiate_zeros, is_undefined_primal, zeros_like_aval

__all__ = ["scan", "scan_p"]

Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")

scan_p = Primitive("scan", multiple_results=True)
scan_p.lowering = Control("scan")

# The operands are `num_consts` constants, the same in every step; `num_carry` initial values; and
# the xs, whose slices along axis 0 the steps get. The results are the carry and the stacked ys.


@scan_p.def_abstract_eval
def _scan_type(
    *avals: Any, jaxpr: ClosedJaxpr, length: int, num_consts: int, num_carry: int, reverse: bool,
    **_: Any,
) -> list[Any]:  # fmt: skip
    if type(reverse) is not bool:
        refuse_param("scan", "reverse", reverse, "bool")
    for name, count in (("num_consts", num_consts), ("num_carry", num_carry), ("length", length)):
        if not isinstance(count, (int, Dim)) or count < 0:
            refuse_param("scan", name, count, "non-negative int")
    consts, carry, xs = split_list(avals, num_consts, num_carry)
    for x in xs:
        if not x.shape or x.shape[0] != length:
            raise TypeError(f"scan: xs must have {length} rows, got {x}.")
    given = [*consts, *carry, *map(_row, xs)]
    if len(given) != len(jaxpr.in_avals) or not all(map(same_type, given, jaxpr.in_avals)):
        raise TypeError(f"scan: the body takes {jaxpr.in_avals}, but gets {given}.")
    if not all(map(same_type, carry, jaxpr.out_avals)):
        becomes = jaxpr.out_avals[:num_carry]
        raise TypeError(f"scan: the carry is {carry}, but becomes {becomes}.")
    return _scan_outs(jaxpr, num_carry, length)


@scan_p.def_effects
def _scan_effects(*_: Any, jaxpr: ClosedJaxpr, **__: Any) -> Effects:
    return control_flow_allowed_effects.require("`scan`", jaxpr.effects)


# Forward mode


@scan_p.def_jvp
def _scan_jvp(
    primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int,
    **params: Any,
) -> Any:  # fmt: skip
    nonzeros = tuple(nonzero(tangents))
    jvped, carry_nz, ys_nz = jvp_body(jaxpr, num_consts, num_carry, nonzeros)
    jvped, enclosing = hoist_tracers(jvped)  # what custom rules close over
    consts, carry, xs = split_list(primals, num_consts, num_carry)
    const_dots, carry_dots, x_dots = split_list(tangents, num_consts, num_carry)
    const_dots, x_dots = (chosen(dots, nonzero(dots)) for dots in (const_dots, x_dots))
    outs = scan_p.bind(
        *[*enclosing, *consts, *const_dots],
        *[*carry, *map(instantiate_zeros, chosen(carry_dots, carry_nz))],
        *[*xs, *x_dots],
        jaxpr=jvped,
        num_consts=len(enclosing) + num_consts + len(const_dots),
        num_carry=num_carry + sum(carry_nz),
        **params,
    )
    sizes = num_carry, sum(carry_nz), len(ys_nz)
    carry_out, carry_dots, ys, y_dots = split_list(outs, *sizes)
    avals = _scan_outs(jaxpr, num_carry, params["length"])
    outs = [*carry_out, *ys]
    return outs, spread_tangents([*carry_dots, *y_dots], [*carry_nz, *ys_nz], avals)


def _scan_outs(jaxpr: ClosedJaxpr, num_carry: int, length: int) -> list[Any]:
    """The types of a scan's results."""
    avals: list[Any] = jaxpr.out_avals
    carry, ys = split_list(avals, num_carry)
    return [*carry, *(y.update(shape=(length, *y.shape)) for y in ys)]


# Linearization


@scan_p.def_linearize
def _scan_linearize(
    nonzeros: Any, *primals: Any, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int, **params: Any
) -> Any:
    lin = linearize_body(jaxpr, num_consts, num_carry, tuple(nonzeros))
    consts, carry, xs = split_list(primals, num_consts, num_carry)
    hoisted = eval_jaxpr(lin.hoisted.jaxpr, lin.hoisted.consts, *consts)
    primal, enclosing = hoist_tracers(lin.primal)  # what custom rules close over
    outs = scan_p.bind(
        *[*enclosing, *consts, *hoisted], *[*carry, *xs], jaxpr=primal,
        num_consts=len(enclosing) + num_consts + len(hoisted), num_carry=num_carry, **params,
    )  # fmt: skip
    where = {"const": consts, "hoisted": hoisted, "x": xs, "y": outs[num_carry:]}
    residuals = [where[kind][i] for kind, i in (*lin.fixed, *lin.stacked)]
    avals = _scan_outs(jaxpr, num_carry, params["length"])

    def tangent_fn(residuals: Any, *tangents: Any) -> list[Any]:
        fixed, stacked = split_list(residuals, len(lin.fixed))
        const_dots, carry_dots, x_dots = split_list(tangents, num_consts, num_carry)
        const_dots = [*fixed, *chosen(const_dots, nonzero(const_dots))]
        carry_dots = [*map(instantiate_zeros, chosen(carry_dots, lin.carry_nz))]
        found = []
        if any(lin.nonzeros_out):
            found = scan_p.bind(
                *[*const_dots, *carry_dots], *[*stacked, *chosen(x_dots, nonzero(x_dots))],
                jaxpr=lin.tangent, num_consts=len(const_dots), num_carry=len(carry_dots), **params,
            )  # fmt: skip
        return spread_tangents(found, lin.nonzeros_out, avals)

    return outs[: len(avals)], residuals, tangent_fn


# Transposition


@scan_p.def_transpose
def _scan_transpose(
    cts: Any, *args: Any, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int, reverse: bool,
    **params: Any,
) -> list[Any]:  # fmt: skip
    linear = [is_undefined_primal(x) for x in args]
    carry_linear = linear_carry(jaxpr, num_consts, num_carry, tuple(linear))
    consts, carry, xs = split_list(args, num_consts, num_carry)
    if not all(carry_linear):
        loop = {**params, "reverse": reverse}
        jaxpr, known = _run_known(jaxpr, consts, carry, xs, tuple(carry_linear), loop)
        xs = [*xs, *known]
        cts = [*chosen(cts[:num_carry], carry_linear), *cts[num_carry:]]
    known_consts, known_xs = (
        [v for v in values if not is_undefined_primal(v)] for values in (consts, xs)
    )
    operands_linear = tuple(is_undefined_primal(x) for x in (*consts, *xs))
    carry_cts, y_cts = split_list(cts, sum(carry_linear))
    types = given_types(carry_cts), tuple(nonzero(y_cts))
    tr = transpose_body(jaxpr, num_consts, operands_linear, *types)
    sums = [zeros_like_aval(a) for a in tr.sum_avals]
    init = [*sums, *map(instantiate_zeros, chosen(carry_cts, tr.carry_nz))]
    step, enclosing = hoist_tracers(tr.jaxpr)
    outs = scan_p.bind(
        *[*enclosing, *known_consts, *init], *[*known_xs, *chosen(y_cts, nonzero(y_cts))],
        jaxpr=step, num_consts=len(enclosing) + len(known_consts), num_carry=len(init),
        reverse=not reverse, **params,
    )  # fmt: skip
    const_cts, carry_cts, x_cts = split_list(outs, len(sums), sum(tr.carry_nz))
    in_carry = iter(_spread(carry_cts, tr.carry_nz))
    carry_cts = [next(in_carry) if lin else None for lin in carry_linear]
    found = [*_spread(const_cts, tr.consts_kept), *carry_cts, *_spread(x_cts, tr.xs_kept)]
    return [ct if lin else None for ct, lin in zip(found, linear)]


def _spread(found: Sequence[Any], kept: Sequence[bool]) -> list[Any]:
    rest = iter(found)
    return [next(rest) if keep else None for keep in kept]


def _run_known(
    closed: ClosedJaxpr, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any],
    carry_linear: tuple[bool, ...], params: dict[str, Any],
) -> tuple[ClosedJaxpr, list[Any]]:  # fmt: skip
    """Compute the known components of the carry, such as a counter, for all steps beforehand.

    Returns:
      The body with them as further xs, and their stacked values.
    """
    loop, reads, body = split_known(closed, len(consts), carry_linear)
    known = [not lin for lin in carry_linear]
    used_consts, _, used_xs = split_list(reads, len(consts), len(carry))
    consts, carry = chosen(consts, used_consts), chosen(carry, known)
    outs = scan_p.bind(
        *[*consts, *carry, *chosen(xs, used_xs)],
        jaxpr=loop,
        num_consts=len(consts),
        num_carry=len(carry),
        **params,
    )
    return body, outs[len(carry) :]


# Batches and dead code


@scan_p.def_batch
def _scan_batch(
    axis: AxisData, args: Any, dims: Any, *, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int,
    **params: Any,
) -> Any:  # fmt: skip
    consts, start, xs = split_list([d is not None for d in dims], num_consts, num_carry)
    no_ys = [False] * (len(jaxpr.out_avals) - num_carry)

    def batch_with(carry: list[bool]) -> tuple[ClosedJaxpr, list[bool]]:
        return batch_jaxpr(jaxpr, axis, [*consts, *carry, *xs], [*carry, *no_ys])

    carry = fixpoint(lambda b: batch_with(b)[1][:num_carry], start)
    batched, out_batched = batch_with(carry)
    # In a step the mapped axis comes first; in xs and ys it follows the axis of the steps.
    places = [0] * (num_consts + num_carry) + [1] * len(xs)
    moved = [
        batch_at(axis, x, d, place if b else None)
        for x, d, place, b in zip(args, dims, places, [*consts, *carry, *xs])
    ]
    outs = scan_p.bind(*moved, jaxpr=batched, num_consts=num_consts, num_carry=num_carry, **params)
    places = [0] * num_carry + [1] * len(no_ys)
    return outs, [place if b else None for place, b in zip(places, out_batched)]


def _scan_dce(used: Sequence[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    if not any(used) and not has_side_effects(eqn.effects):
        return [False] * len(eqn.invars), None
    closed, num_consts = eqn.params["jaxpr"], eqn.params["num_consts"]
    num_carry = eqn.params["num_carry"]
    carry, ys = split_list(used, num_carry)

    def reads(kept: list[bool]) -> list[bool]:
        return dce_jaxpr(closed.jaxpr, [*kept, *ys])[1][num_consts : num_consts + num_carry]

    kept = fixpoint(reads, carry)
    used_outs = [*kept, *ys]
    instantiate = [False] * len(closed.in_avals)
    instantiate[num_consts : num_consts + num_carry] = kept
    body, used_ins = dce_jaxpr(closed.jaxpr, used_outs, instantiate)
    if all(used_ins) and all(used_outs) and len(body.eqns) == len(closed.eqns):
        return used_ins, eqn
    params = {
        **eqn.params,
        "jaxpr": close_consts(body, closed.consts),
        "num_consts": sum(used_ins[:num_consts]),
        "num_carry": sum(kept),
    }
    new = eqn.replace(
        invars=chosen(eqn.invars, used_ins),
        outvars=chosen(eqn.outvars, used_outs),
        params=params,
        effects=body.effects,
    )
    return used_ins, new


dce_rules[scan_p] = _scan_dce


# The functions


@api_boundary
def scan(
    f: Callable[[Carry, X], tuple[Carry, Y]], init: Carry, xs: X | None = None,
    length: int | None = None, reverse: bool = False, unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carry, Y]:  # fmt: skip
    """Repeat a step for each row of arrays, carrying state along and stacking what it returns.

    The loop compiles to one native loop. It can be differentiated in both modes.

    Args:
      f: the step, `(carry, x) -> (carry, y)`; `x` holds a row of each array of `xs`, and the
        carry keeps its structure, shapes and dtypes.
      init: the first carry, a pytree of arrays.
      xs: a pytree of arrays with axis 0 of equal size; None to only count.
      length: the number of steps; needed only if `xs` holds no arrays.
      reverse: whether to go from the last row to the first; ys stay in the order of xs.
      unroll: steps laid out one after another in an iteration of the compiled loop; True or 0
        for all.

    Returns:
      The last carry, and the ys stacked along a new axis 0.

    Raises:
      TypeError: `f` is not callable or does not return a pair, it changes the carry's type, or
        `init` or `xs` hold something else than arrays.
      ValueError: the sizes of axis 0 differ among each other or from `length`, or there is
        nothing that tells the number of steps; `unroll` is negative.

        >>> total, sums = lax.scan(lambda c, x: (c + x, c + x), 0.0, np.arange(4.0))
        >>> float(total), sums.tolist()
        (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    del _split_transpose  # a hint to JAX's scheduler
    check_callable("scan", f=f)
    body = Body("scan", f, functools.partial(_pair, f), argument_name(f, 0, "carry"))
    return scan_body(body, init, xs, length, reverse, unroll)


def _pair(f: Callable[..., Any], carry: Any, x: Any) -> Any:
    out = f(carry, x)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        size = f" of length {len(out)}" if isinstance(out, (tuple, list)) else ""
        raise TypeError(
            "scan body output must be a pair, got "
            f"{get_aval(out) if is_valid_value(out) else type(out).__name__}{size}."
            f" The body {Body('scan', f)} must return (carry, y)."
        )
    return tuple(out)


def scan_body(
    body: Body, init: Any, xs: Any, length: Any, reverse: bool = False, unroll: int | bool = 1
) -> Any:
    """As `scan`, for operations made of it, whose names errors shall mention."""
    leaves, init_tree = checked_leaves(body.what, "init", init)
    rows, xs_tree = checked_leaves(body.what, "xs", xs)
    length = scan_length(body.what, xs, rows, length)
    unroll = _check_unroll(body.what, unroll, length)
    if config.disable_jit:
        return _scan_in_python(body, init, xs, length, reverse)
    check_refs(body, (init, xs), [*leaves, *rows])
    row_avals = [_row(get_aval(x)) for x in rows]
    in_tree = leaf_structure(init_tree, xs_tree)
    traced, leaves = _trace_scan(body, in_tree, leaves, row_avals)
    check_refs(body, (init, xs), [*leaves, *rows], traced.consts)
    carry_tree, ys_tree = treedef_children(traced.out_tree)
    num_carry = carry_tree.num_leaves
    avals = [get_aval(x) for x in leaves]
    check_carry(body, (init_tree, carry_tree), (avals, traced.jaxpr.out_avals[:num_carry]))
    carry, ys = _bind_scan(traced, leaves, rows, length, bool(reverse), unroll)
    return tree_unflatten(carry_tree, carry), tree_unflatten(ys_tree, ys)


def _row(aval: Any) -> Any:
    if type(aval) is AbstractRef:
        return aval.of(_row(aval.inner_aval))
    return aval.update(shape=aval.shape[1:])


def _trace_scan(
    body: Body, in_tree: Any, leaves: list[Any], row_avals: list[Any]
) -> tuple[Traced, list[Any]]:
    """The step as a program, and the initial values in the types that its results ask for."""
    traced = trace_body(body, in_tree, [*(get_aval(x) for x in leaves), *row_avals])
    carry_tree, _ = treedef_children(traced.out_tree)
    if carry_tree.num_leaves != len(leaves):
        return traced, leaves
    promoted = [promote_weak(x, a) for x, a in zip(leaves, traced.jaxpr.out_avals)]
    if all(x is y for x, y in zip(promoted, leaves)):
        return traced, leaves
    avals = [*(get_aval(x) for x in promoted), *row_avals]
    return trace_body(body, in_tree, avals), promoted


def _bind_scan(
    traced: Traced, init: list[Any], xs: list[Any], length: int, reverse: bool, unroll: int
) -> tuple[list[Any], list[Any]]:
    """Bind the loop, without the carry that never changes and the ys that are rows of xs."""
    jaxpr, fixed = fixed_carry(traced.jaxpr, len(traced.consts), (True,) * len(init))
    consts = [*chosen(init, fixed), *traced.consts]
    carry = chosen(init, [not f for f in fixed])
    jaxpr, passed = _without_passed(jaxpr, len(consts), len(carry))
    outs = scan_p.bind(
        *[*consts, *carry, *xs], jaxpr=jaxpr, length=length, reverse=reverse,
        num_consts=len(consts), num_carry=len(carry), unroll=unroll,
    )  # fmt: skip
    last, computed = split_list(outs, len(carry))
    carry_rest, ys_rest = iter(last), iter(computed)
    carry_out = [as_array(x) if f else next(carry_rest) for x, f in zip(init, fixed)]
    return carry_out, [next(ys_rest) if i is None else as_array(xs[i]) for i in passed]


@memoize_on_jaxpr
def _without_passed(
    closed: ClosedJaxpr, num_consts: int, num_carry: int
) -> tuple[ClosedJaxpr, list[int | None]]:
    """The body without ys that are rows of xs, and for each y the number of such xs."""
    first = num_consts + num_carry
    sources = forwarded(closed.jaxpr)[num_carry:]
    passed = [None if s is None or s < first else s - first for s in sources]
    computed = [num_carry + i for i, s in enumerate(passed) if s is None]
    return with_outputs(closed, [*range(num_carry), *computed]), passed


def scan_length(what: str, xs: Any, rows: Sequence[Any], length: Any) -> int:
    """The number of steps, from the arrays' axis 0 or given."""
    shapes = [get_aval(x).shape for x in rows]
    names = [f"xs{keystr(path)}" for path, _ in tree_flatten_with_path(xs)[0]]
    for name, shape in zip(names, shapes):
        if not shape:
            raise ValueError(
                f"{what} got value with no leading axis to scan over: {name} is a scalar."
            )
    if length is not None:
        length = concrete_or_error(
            as_size if is_symbolic_dim(length) else int,
            length,
            f"The `length` argument to `{what}` expects a concrete `int` value. For a number of "
            "steps that is known only at run time use lax.while_loop or lax.fori_loop.",
        )
    sizes: list[Any] = []  # no set, in which symbolic sizes would not be compared
    for size, *_ in shapes:
        if all(size != other for other in sizes):
            sizes.append(size)
    if length is None and not sizes:
        raise ValueError(f"{what}: without arrays in xs, `length` must be given.")
    if length is None and len(sizes) == 1:
        return sizes.pop()
    if length is not None and all(size == length for size in sizes):
        if length < 0:
            raise ValueError(f"{what}: length must not be negative, got {length}.")
        return length
    if length is not None and len(sizes) == 1:
        raise ValueError(
            f"{what} got `length` argument of {length} which disagrees with leading axis sizes "
            f"{[shape[0] for shape in shapes]}."
        )
    found = ", ".join(f"{name} has {shape[0]}" for name, shape in zip(names, shapes))
    wanted = "must have axes 0 of one size" if length is None else f"must have length={length} rows"
    raise ValueError(f"{what}: the arrays of xs {wanted}, but {found}.")


def _check_unroll(what: str, unroll: Any, length: int) -> int:
    unroll = concrete_or_error(
        None, unroll, f"The `unroll` argument to `{what}` expects a concrete `int` or `bool` value."
    )
    if unroll.dtype == bool:
        unroll = 0 if unroll else 1
    (unroll,) = as_ints((unroll,), f"{what}: `unroll`")
    if unroll < 0:
        raise ValueError(f"{what}: `unroll` must be a bool or a non-negative int, got {unroll}.")
    return unroll or max(length, 1)


def _scan_in_python(body: Body, carry: Any, xs: Any, length: int, reverse: bool) -> Any:
    """The loop as plain Python, for `disable_jit`."""
    if length == 0:
        raise ValueError(
            f"{body.what}: a loop without steps cannot run under disable_jit, as nothing tells "
            "the type of its ys."
        )
    step = body.call or body.fun
    carry, xs = immutable((carry, xs))
    ys = []
    order = range(length)[::-1] if reverse else range(length)
    for i in order:
        carry, y = step(carry, tree_map(lambda x: index_in_dim(x, i, keepdims=False), xs))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, tree_map(lambda *rows: stack(rows), *ys)
