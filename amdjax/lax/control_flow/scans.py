"""Loops with a known number of steps: `scan`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.config import config
from amdjax.core.effects import Effects, has_side_effects
from amdjax.core.errors import api_boundary
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    close_consts,
    dce_jaxpr,
    dce_rules,
    eval_jaxpr,
    jaxpr_as_fun,
    memoize_on_jaxpr,
)
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import (
    keystr,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
    treedef_children,
)
from amdjax.core.trace import concrete_or_error, trace_to_jaxpr
from amdjax.lax.control_flow._common import (
    Body,
    Traced,
    argument_name,
    as_array,
    check_callable,
    check_carry,
    checked_leaves,
    chosen,
    fixed_carry,
    fixpoint,
    forwarded,
    leaf_structure,
    nonzero,
    promote_weak,
    same_type,
    split_list,
    trace_body,
    with_binders,
    with_outputs,
)
from amdjax.lax.joining import stack
from amdjax.lax.slicing import index_in_dim
from amdjax.transforms.batching import AxisData, batch_at, batch_jaxpr
from amdjax.transforms.calls import spread_tangents
from amdjax.transforms.forward import jvp_jaxpr
from amdjax.transforms.linear import linearize_jaxpr
from amdjax.transforms.reverse import transpose_jaxpr
from amdjax.transforms.zero import (
    add_tangents,
    instantiate_zeros,
    is_undefined_primal,
    zeros_like_aval,
)

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
    *avals: Any, jaxpr: ClosedJaxpr, length: int, num_consts: int, num_carry: int, **_: Any
) -> list[Any]:
    consts, carry, xs = split_list(avals, num_consts, num_carry)
    for x in xs:
        if not x.shape or x.shape[0] != length:
            raise TypeError(f"scan: xs must have {length} rows, got {x}.")
    given = [*consts, *carry, *(ShapedArray(x.shape[1:], x.dtype, x.weak_type) for x in xs)]
    if len(given) != len(jaxpr.in_avals) or not all(map(same_type, given, jaxpr.in_avals)):
        raise TypeError(f"scan: the body takes {jaxpr.in_avals}, but gets {given}.")
    carry_out, ys = split_list(jaxpr.out_avals, num_carry)
    if not all(map(same_type, carry, carry_out)):
        raise TypeError(f"scan: the carry is {carry}, but becomes {carry_out}.")
    return [*carry_out, *(ShapedArray((length, *y.shape), y.dtype, y.weak_type) for y in ys)]


@scan_p.def_effects
def _scan_effects(*_: Any, jaxpr: ClosedJaxpr, **__: Any) -> Effects:
    return jaxpr.effects


# Forward mode


@scan_p.def_jvp
def _scan_jvp(
    primals: Any,
    tangents: Any,
    *,
    jaxpr: ClosedJaxpr,
    num_consts: int,
    num_carry: int,
    **params: Any,
) -> Any:
    nonzeros = tuple(nonzero(tangents))
    jvped, carry_nz, ys_nz = _jvp_body(jaxpr, num_consts, num_carry, nonzeros)
    consts, carry, xs = split_list(primals, num_consts, num_carry)
    const_dots, carry_dots, x_dots = split_list(tangents, num_consts, num_carry)
    const_dots, x_dots = (chosen(dots, nonzero(dots)) for dots in (const_dots, x_dots))
    outs = scan_p.bind(
        *[*consts, *const_dots],
        *[*carry, *map(instantiate_zeros, chosen(carry_dots, carry_nz))],
        *[*xs, *x_dots],
        jaxpr=jvped,
        num_consts=num_consts + len(const_dots),
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
    carry, ys = split_list(jaxpr.out_avals, num_carry)
    return [*carry, *(ShapedArray((length, *y.shape), y.dtype, y.weak_type) for y in ys)]


@memoize_on_jaxpr
def _jvp_body(
    jaxpr: ClosedJaxpr, num_consts: int, num_carry: int, nonzeros: tuple[bool, ...]
) -> tuple[ClosedJaxpr, list[bool], list[bool]]:
    """The body on values and tangents, and which components of carry and ys have one.

    Constants, carry, xs and ys are each followed by their tangents.
    """
    consts_nz, start, xs_nz = split_list(nonzeros, num_consts, num_carry)
    no_ys = [False] * (len(jaxpr.out_avals) - num_carry)

    def jvp_with(carry_nz: list[bool]) -> tuple[ClosedJaxpr, list[bool]]:
        return jvp_jaxpr(jaxpr, [*consts_nz, *carry_nz, *xs_nz], [*carry_nz, *no_ys])

    carry_nz = fixpoint(lambda nz: jvp_with(nz)[1][:num_carry], start)
    jvped, out_nz = jvp_with(carry_nz)
    ins = split_list(
        *(range(len(jvped.in_avals)), num_consts, num_carry, len(xs_nz)),
        *(sum(consts_nz), sum(carry_nz)),
    )
    consts, carry, xs, const_dots, carry_dots, x_dots = ins
    order = [*consts, *const_dots, *carry, *carry_dots, *xs, *x_dots]
    sizes = num_carry, len(no_ys), sum(carry_nz)
    carry, ys, carry_dots, y_dots = split_list(range(len(jvped.out_avals)), *sizes)
    outputs = [*carry, *carry_dots, *ys, *y_dots]
    return with_outputs(with_binders(jvped, order), outputs), carry_nz, out_nz[num_carry:]


# Linearisation


@scan_p.def_linearize
def _scan_linearize(
    nonzeros: Any,
    *primals: Any,
    jaxpr: ClosedJaxpr,
    num_consts: int,
    num_carry: int,
    **params: Any,
) -> Any:
    lin = _linearize_body(jaxpr, num_consts, num_carry, tuple(nonzeros))
    consts, carry, xs = split_list(primals, num_consts, num_carry)
    hoisted = eval_jaxpr(lin.hoisted.jaxpr, lin.hoisted.consts, *consts)
    outs = scan_p.bind(
        *[*consts, *hoisted],
        *[*carry, *xs],
        jaxpr=lin.primal,
        num_consts=num_consts + len(hoisted),
        num_carry=num_carry,
        **params,
    )
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
                *[*const_dots, *carry_dots],
                *[*stacked, *chosen(x_dots, nonzero(x_dots))],
                jaxpr=lin.tangent,
                num_consts=len(const_dots),
                num_carry=len(carry_dots),
                **params,
            )
        return spread_tangents(found, lin.nonzeros_out, avals)

    return outs[: len(avals)], residuals, tangent_fn


class _LinearizedScan(NamedTuple):
    """A scan's body split into its primal and its tangent part.

    Attributes:
      hoisted: `(*consts) -> (*values)`, what the tangent part needs that no step changes.
      primal: the body, whose constants are followed by those values, and whose ys are followed by
        what the tangent part needs of every step.
      tangent: takes fixed residuals and tangents of constants, tangents of the carry, stacked
        residuals and tangents of xs.
      carry_nz: which components of the carry have a tangent.
      nonzeros_out: which results have one.
      fixed: where each residual that is the same for all steps is found: ("const", i) or
        ("hoisted", i).
      stacked: where the others are found: ("x", i) or ("y", i).
    """

    hoisted: ClosedJaxpr
    primal: ClosedJaxpr
    tangent: ClosedJaxpr
    carry_nz: list[bool]
    nonzeros_out: list[bool]
    fixed: list[tuple[str, int]]
    stacked: list[tuple[str, int]]


@memoize_on_jaxpr
def _linearize_body(
    closed: ClosedJaxpr, num_consts: int, num_carry: int, nonzeros: tuple[bool, ...]
) -> _LinearizedScan:
    consts_nz, start, xs_nz = split_list(nonzeros, num_consts, num_carry)
    count = len(closed.out_avals)

    def linearize_with(carry_nz: list[bool]) -> Any:
        instantiate = [*carry_nz, *[False] * (count - num_carry)]
        nonzeros = [*consts_nz, *carry_nz, *xs_nz]
        return linearize_jaxpr(closed, nonzeros, instantiate=instantiate)

    carry_nz = fixpoint(lambda nz: linearize_with(nz).nonzeros_out[:num_carry], start)
    lin = linearize_with(carry_nz)
    body = lin.primal.jaxpr
    of_kind = {"in": body.invars, "out": body.outvars, "res": body.outvars[count:]}
    residuals = [of_kind[kind][i] for kind, i in lin.sources]
    hoisted, body = _hoist(body.replace(outvars=body.outvars[:count]), num_consts, residuals)

    consts, rest = split_list(body.invars, num_consts)
    values, rest = split_list(rest, len(hoisted.outvars))
    place = {v: ("const", i) for i, v in enumerate(consts)}
    place |= {v: ("hoisted", i) for i, v in enumerate(values)}
    fixed = [v in place for v in residuals]
    place |= {v: ("x", i) for i, v in enumerate(rest[num_carry:])}
    ys = body.outvars[num_carry:]
    for v in [*ys, *residuals]:
        if type(v) is not Literal and v not in place:
            if v not in ys:
                ys.append(v)
            place[v] = ("y", ys.index(v))
    body = body.replace(outvars=[*body.outvars[:num_carry], *ys])

    sizes = len(residuals), sum(consts_nz), sum(carry_nz)
    binders, const_dots, carry_dots, x_dots = split_list(range(len(lin.tangent.in_avals)), *sizes)
    same, changing = chosen(binders, fixed), chosen(binders, [not f for f in fixed])
    return _LinearizedScan(
        hoisted=close_consts(hoisted, lin.primal.consts),
        primal=close_consts(body, lin.primal.consts),
        tangent=with_binders(lin.tangent, [*same, *const_dots, *carry_dots, *changing, *x_dots]),
        carry_nz=carry_nz,
        nonzeros_out=lin.nonzeros_out,
        fixed=[place[residuals[i]] for i in same],
        stacked=[place[residuals[i]] for i in changing],
    )


def _hoist(body: Jaxpr, num_consts: int, wanted: Sequence[Var]) -> tuple[Jaxpr, Jaxpr]:
    """Move what computes those `wanted` values that only depend on constants out of a loop.

    Returns:
      A program from the constants to the values that the loop needs, and the loop's body, which
      takes these values after its constants.
    """
    consts = body.invars[:num_consts]
    fixed = {*body.constvars, *consts}
    for eqn in body.eqns:
        if not eqn.effects and all(type(v) is Literal or v in fixed for v in eqn.invars):
            fixed.update(eqn.outvars)
    needed = {v for v in wanted if v in fixed}
    moved = []
    for eqn in reversed(body.eqns):
        if any(v in needed for v in eqn.outvars):
            moved.append(eqn)
            needed.update(v for v in eqn.invars if type(v) is not Literal)
    moved.reverse()
    gone = {id(eqn) for eqn in moved}
    stay = [eqn for eqn in body.eqns if id(eqn) not in gone]
    read = {v for eqn in stay for v in eqn.invars if type(v) is not Literal}
    read.update(v for v in (*body.outvars, *wanted) if type(v) is not Literal)
    values = [v for eqn in moved for v in eqn.outvars if v in read]
    before = Jaxpr(body.constvars, consts, values, moved)
    # The programs share variables, which is fine as long as none is bound twice in one of them.
    invars = [*consts, *values, *body.invars[num_consts:]]
    return before, Jaxpr(body.constvars, invars, body.outvars, stay)


# Transposition


@scan_p.def_transpose
def _scan_transpose(
    cts: Any,
    *args: Any,
    jaxpr: ClosedJaxpr,
    num_consts: int,
    num_carry: int,
    reverse: bool,
    **params: Any,
) -> list[Any]:
    sizes = num_consts, num_carry
    linear = [is_undefined_primal(x) for x in args]
    carry_linear = _linear_carry(jaxpr, num_consts, num_carry, tuple(linear))
    consts, carry, xs = split_list(args, *sizes)
    if not all(carry_linear):
        loop = {**params, "reverse": reverse}
        jaxpr, known = _run_known(jaxpr, consts, carry, xs, tuple(carry_linear), loop)
        xs = [*xs, *known]
        cts = [*chosen(cts[:num_carry], carry_linear), *cts[num_carry:]]
    is_known = [not is_undefined_primal(x) for x in (*consts, *xs)]
    known_consts, known_xs = (
        [v for v in values if not is_undefined_primal(v)] for values in (consts, xs)
    )
    carry_cts, y_cts = split_list(cts, sum(carry_linear))
    tr = _transpose_body(
        jaxpr, num_consts, tuple(not k for k in is_known), tuple(nonzero(carry_cts)),
        tuple(nonzero(y_cts)),
    )  # fmt: skip
    sums = [zeros_like_aval(a) for a in tr.sum_avals]
    init = [*sums, *map(instantiate_zeros, chosen(carry_cts, tr.carry_nz))]
    outs = scan_p.bind(
        *[*known_consts, *init],
        *[*known_xs, *chosen(y_cts, nonzero(y_cts))],
        jaxpr=tr.jaxpr,
        num_consts=len(known_consts),
        num_carry=len(init),
        reverse=not reverse,
        **params,
    )
    const_cts, carry_cts, x_cts = split_list(outs, len(sums), sum(tr.carry_nz))
    in_carry = iter(_spread(carry_cts, tr.carry_nz))
    carry_cts = [next(in_carry) if lin else None for lin in carry_linear]
    found = [*_spread(const_cts, tr.consts_kept), *carry_cts, *_spread(x_cts, tr.xs_kept)]
    return [ct if lin else None for ct, lin in zip(found, linear)]


def _spread(found: Sequence[Any], kept: Sequence[bool]) -> list[Any]:
    rest = iter(found)
    return [next(rest) if keep else None for keep in kept]


class _TransposedBody(NamedTuple):
    """The step of a transposed scan.

    Attributes:
      jaxpr: takes known constants; sums of cotangents of constants, cotangents of the carry; known
        xs, cotangents of ys. Returns sums and carry; cotangents of xs.
      sum_avals: the types of the sums.
      consts_kept: which constants get a cotangent.
      carry_nz: which components of the carry have a cotangent that is not always zero.
      xs_kept: which xs get a cotangent.
    """

    jaxpr: ClosedJaxpr
    sum_avals: list[Any]
    consts_kept: list[bool]
    carry_nz: list[bool]
    xs_kept: list[bool]


@memoize_on_jaxpr
def _transpose_body(
    closed: ClosedJaxpr,
    num_consts: int,
    linear: tuple[bool, ...],
    carry_start: tuple[bool, ...],
    ys_nz: tuple[bool, ...],
) -> _TransposedBody:
    """Transpose a body that is linear in its carry and in the constants and xs of `linear`."""
    consts_linear, xs_linear = split_list(linear, num_consts)
    num_carry = len(carry_start)
    all_linear = [*consts_linear, *[True] * num_carry, *xs_linear]

    def transpose_with(carry_nz: list[bool]) -> tuple[ClosedJaxpr, list[list[bool]]]:
        instantiate = [False] * sum(consts_linear) + carry_nz + [False] * sum(xs_linear)
        transposed, kept = transpose_jaxpr(
            closed, all_linear, [*carry_nz, *ys_nz], instantiate=instantiate
        )
        return transposed, split_list(kept, sum(consts_linear), num_carry)

    carry_nz = fixpoint(lambda nz: transpose_with(nz)[1][1], carry_start)
    transposed, (consts_kept, _, xs_kept) = transpose_with(carry_nz)
    const_avals, carry_avals, x_avals = split_list(closed.in_avals, num_consts, num_carry)
    sum_avals = [a.to_tangent() for a in chosen(chosen(const_avals, consts_linear), consts_kept)]
    known_consts = [a for a, lin in zip(const_avals, consts_linear) if not lin]
    known_xs = [a for a, lin in zip(x_avals, xs_linear) if not lin]
    carry_cts = [a.to_tangent() for a in chosen(carry_avals, carry_nz)]
    y_cts = [a.to_tangent() for a in chosen(closed.out_avals[num_carry:], ys_nz)]

    def step(*args: Any) -> list[Any]:
        sizes = len(known_consts), len(sum_avals), len(carry_cts), len(known_xs)
        consts, sums, carry, xs, ys = split_list(args, *sizes)
        outs = jaxpr_as_fun(transposed)(*consts, *xs, *carry, *ys)
        terms, rest = split_list(outs, len(sums))
        return [*(add_tangents(s, t) for s, t in zip(sums, terms)), *rest]

    avals = [*known_consts, *sum_avals, *carry_cts, *known_xs, *y_cts]
    return _TransposedBody(
        jaxpr=trace_to_jaxpr(step, avals),
        sum_avals=sum_avals,
        consts_kept=_at_linear(consts_linear, consts_kept),
        carry_nz=carry_nz,
        xs_kept=_at_linear(xs_linear, xs_kept),
    )


def _at_linear(linear: Sequence[bool], kept: Sequence[bool]) -> list[bool]:
    """A mask over the linear values as a mask over all."""
    rest = iter(kept)
    return [lin and next(rest) for lin in linear]


@memoize_on_jaxpr
def _linear_carry(
    closed: ClosedJaxpr, num_consts: int, num_carry: int, linear: tuple[bool, ...]
) -> list[bool]:
    """Which components of the carry depend on a linear operand."""
    consts, start, xs = split_list(linear, num_consts, num_carry)
    if all(start):
        return start
    outputs = range(len(closed.out_avals))
    reads = [dce_jaxpr(closed.jaxpr, [i == k for i in outputs])[1] for k in range(num_carry)]

    def depends(carry: list[bool]) -> list[bool]:
        marked = [*consts, *carry, *xs]
        return [any(r and m for r, m in zip(read, marked)) for read in reads]

    return fixpoint(depends, start)


def _run_known(
    closed: ClosedJaxpr,
    consts: Sequence[Any],
    carry: Sequence[Any],
    xs: Sequence[Any],
    carry_linear: tuple[bool, ...],
    params: dict[str, Any],
) -> tuple[ClosedJaxpr, list[Any]]:
    """Compute the known components of the carry, such as a counter, for all steps beforehand.

    Returns:
      The body with them as further xs, and their stacked values.
    """
    loop, reads, body = _split_known(closed, len(consts), carry_linear)
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


@memoize_on_jaxpr
def _split_known(
    closed: ClosedJaxpr, num_consts: int, carry_linear: tuple[bool, ...]
) -> tuple[ClosedJaxpr, list[bool], ClosedJaxpr]:
    jaxpr, count = closed.jaxpr, len(carry_linear)
    known = [i for i, lin in enumerate(carry_linear) if not lin]
    values = [jaxpr.invars[num_consts + i] for i in known]
    own = jaxpr.replace(outvars=[*(jaxpr.outvars[i] for i in known), *values])
    instantiate = [v in values for v in jaxpr.invars]
    loop, reads = dce_jaxpr(own, [True] * len(own.outvars), instantiate)
    moved = [num_consts + i for i in known]
    order = [*(i for i in range(len(jaxpr.invars)) if i not in moved), *moved]
    kept = [i for i in range(len(jaxpr.outvars)) if i >= count or carry_linear[i]]
    body = with_outputs(with_binders(closed, order), kept)
    return close_consts(loop, closed.consts), reads, body


# Batches and dead code


@scan_p.def_batch
def _scan_batch(
    axis: AxisData,
    args: Any,
    dims: Any,
    *,
    jaxpr: ClosedJaxpr,
    num_consts: int,
    num_carry: int,
    **params: Any,
) -> Any:
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
    f: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carry, Y]:
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

    Example:
      >>> import numpy as np
      >>> from amdjax import lax
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
            f"scan: the body {Body('scan', f)} must return a pair (carry, y), got "
            f"{type(out).__name__}{size}."
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
    row_avals = [_row(get_aval(x)) for x in rows]
    in_tree = leaf_structure(init_tree, xs_tree)
    traced, leaves = _trace_scan(body, in_tree, leaves, row_avals)
    carry_tree, ys_tree = treedef_children(traced.out_tree)
    num_carry = carry_tree.num_leaves
    avals = [get_aval(x) for x in leaves]
    check_carry(body, (init_tree, carry_tree), (avals, traced.jaxpr.out_avals[:num_carry]))
    carry, ys = _bind_scan(traced, leaves, rows, length, bool(reverse), unroll)
    return tree_unflatten(carry_tree, carry), tree_unflatten(ys_tree, ys)


def _row(aval: Any) -> ShapedArray:
    return ShapedArray(aval.shape[1:], aval.dtype, aval.weak_type)


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
        *[*consts, *carry, *xs],
        jaxpr=jaxpr,
        length=length,
        reverse=reverse,
        num_consts=len(consts),
        num_carry=len(carry),
        unroll=unroll,
    )
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
    shapes = [get_aval(x).shape for x in rows]  # type: ignore[attr-defined]
    names = [f"xs{keystr(path)}" for path, _ in tree_flatten_with_path(xs)[0]]
    for name, shape in zip(names, shapes):
        if not shape:
            raise ValueError(f"{what}: {name} is a scalar, it has no axis to go along.")
    if length is not None:
        length = concrete_or_error(
            int,
            length,
            f"The number of steps of lax.{what} must be known while tracing. For a number of "
            "steps that is known only at run time use lax.while_loop or lax.fori_loop.",
        )
    sizes = {shape[0] for shape in shapes}
    if length is None and not sizes:
        raise ValueError(f"{what}: without arrays in xs, `length` must be given.")
    if length is None and len(sizes) == 1:
        return sizes.pop()
    if length is not None and sizes <= {length}:
        if length < 0:
            raise ValueError(f"{what}: length must not be negative, got {length}.")
        return length
    found = ", ".join(f"{name} has {shape[0]}" for name, shape in zip(names, shapes))
    wanted = "must have axes 0 of one size" if length is None else f"must have length={length} rows"
    raise ValueError(f"{what}: the arrays of xs {wanted}, but {found}.")


def _check_unroll(what: str, unroll: Any, length: int) -> int:
    unroll = concrete_or_error(
        None, unroll, f"The argument `unroll` of lax.{what} must be an int or a bool."
    )
    if unroll.dtype == bool:
        unroll = 0 if unroll else 1
    unroll = int(unroll)
    if unroll < 0:
        raise ValueError(f"{what}: unroll must be a bool or a non-negative int, got {unroll}.")
    return unroll or max(length, 1)


def _scan_in_python(body: Body, carry: Any, xs: Any, length: int, reverse: bool) -> Any:
    """The loop as plain Python, for `disable_jit`."""
    if length == 0:
        raise ValueError(
            f"{body.what}: a loop without steps cannot run under disable_jit, as nothing tells "
            "the type of its ys."
        )
    step = body.call or body.fun
    ys = []
    order = range(length)[::-1] if reverse else range(length)
    for i in order:
        carry, y = step(carry, tree_map(lambda x: index_in_dim(x, i, keepdims=False), xs))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, tree_map(lambda *rows: stack(rows), *ys)
