"""What differentiation makes of the body of a scan: programs from programs.

Masks such as `nonzeros` speak of a scan's operands in order: constants, carry, xs. Whether a
component of the carry has a tangent, or depends on a linear operand, is a fixpoint: once it does
in a step, it does in the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    Var,
    close_consts,
    jaxpr_as_fun,
    memoize_on_jaxpr,
)
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.lax.control_flow._common import chosen, fixpoint, split_list, with_binders, with_outputs
from amdjax.transforms.forward import jvp_jaxpr
from amdjax.transforms.linear import linearize_jaxpr
from amdjax.transforms.reverse import transpose_jaxpr
from amdjax.transforms.zero import add_tangents


@memoize_on_jaxpr
def jvp_body(
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


class LinearizedScan(NamedTuple):
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
def linearize_body(
    closed: ClosedJaxpr, num_consts: int, num_carry: int, nonzeros: tuple[bool, ...]
) -> LinearizedScan:
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
    return LinearizedScan(
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
            needed.update(v for v in eqn.invars if isinstance(v, Var))
    moved.reverse()
    gone = {id(eqn) for eqn in moved}
    stay = [eqn for eqn in body.eqns if id(eqn) not in gone]
    read = {v for eqn in stay for v in eqn.invars if type(v) is not Literal}
    read.update(v for v in (*body.outvars, *wanted) if isinstance(v, Var))
    values = [v for eqn in moved for v in eqn.outvars if v in read]
    before = Jaxpr(body.constvars, consts, values, moved)
    # The programs share variables, which is fine as long as none is bound twice in one of them.
    invars = [*consts, *values, *body.invars[num_consts:]]
    return before, Jaxpr(body.constvars, invars, body.outvars, stay)


class TransposedBody(NamedTuple):
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
def transpose_body(
    closed: ClosedJaxpr,
    num_consts: int,
    linear: tuple[bool, ...],
    carry_types: tuple[Any, ...],
    ys_nz: tuple[bool, ...],
) -> TransposedBody:
    """Transpose a body that is linear in its carry and in the constants and xs of `linear`.

    `carry_types` are those of its cotangents, False for those that are zero.
    """
    consts_linear, xs_linear = split_list(linear, num_consts)
    num_carry = len(carry_types)
    carry_avals = closed.in_avals[num_consts : num_consts + num_carry]
    all_linear = [*consts_linear, *[True] * num_carry, *xs_linear]

    def types_with(carry_nz: list[bool]) -> list[Any]:
        return [
            a.to_tangent() if nz and t is False else t
            for a, t, nz in zip(carry_avals, carry_types, carry_nz)
        ]

    def transpose_with(carry_nz: list[bool]) -> tuple[ClosedJaxpr, list[list[bool]]]:
        instantiate = [False] * sum(consts_linear) + carry_nz + [False] * sum(xs_linear)
        transposed, kept = transpose_jaxpr(
            closed, all_linear, [*types_with(carry_nz), *ys_nz], instantiate=instantiate
        )
        return transposed, split_list(kept, sum(consts_linear), num_carry)

    start = [t is not False for t in carry_types]
    carry_nz = fixpoint(lambda nz: transpose_with(nz)[1][1], start)
    transposed, (consts_kept, _, xs_kept) = transpose_with(carry_nz)
    const_avals, _, x_avals = split_list(closed.in_avals, num_consts, num_carry)
    sum_avals = [a.to_tangent() for a in chosen(chosen(const_avals, consts_linear), consts_kept)]
    known_consts = [a for a, lin in zip(const_avals, consts_linear) if not lin]
    known_xs = [a for a, lin in zip(x_avals, xs_linear) if not lin]
    carry_cts = [t for t in types_with(carry_nz) if t is not False]
    y_cts = [a.to_tangent() for a in chosen(closed.out_avals[num_carry:], ys_nz)]

    def step(*args: Any) -> list[Any]:
        sizes = len(known_consts), len(sum_avals), len(carry_cts), len(known_xs)
        consts, sums, carry, xs, ys = split_list(args, *sizes)
        outs = jaxpr_as_fun(transposed)(*consts, *xs, *carry, *ys)
        terms, rest = split_list(outs, len(sums))
        return [*(add_tangents(s, t) for s, t in zip(sums, terms)), *rest]

    avals = [*known_consts, *sum_avals, *carry_cts, *known_xs, *y_cts]
    return TransposedBody(
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
def linear_carry(
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


@memoize_on_jaxpr
def split_known(
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
