"""`checkpoint`: recompute instead of store when differentiating in reverse."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core import dtypes, source_info
from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.config import config
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.effects import remat_allowed_effects
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    close_consts,
    jaxpr_as_fun,
    memoize_on_jaxpr,
    open_jaxpr,
)
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_leaves, tree_unflatten
from amdjax.core.sharding import space_of_kind
from amdjax.core.trace import eval_trace
from amdjax.transforms.calls import give_call_rules, spread_tangents
from amdjax.transforms.discharge import without_own_refs
from amdjax.transforms.flat import (
    FlatFunction,
    argnums_of_names,
    debug_info,
    join_args,
    positions_of,
    split_args,
)
from amdjax.transforms.linear import linearize_jaxpr
from amdjax.transforms.remat_policies import Offloadable, Policy, verdict
from amdjax.transforms.reverse import transpose_call
from amdjax.transforms.transfers import device_put_p, moved_type, transfer
from amdjax.transforms.zero import Zero, zeros_like_aval

remat_p = Primitive("remat2", multiple_results=True)
remat_p.lowering = Control("call")
give_call_rules(remat_p)


@remat_p.def_impl
def _evaluate(*args: Any, **params: Any) -> list[Any]:
    closed = params["jaxpr"]
    if _runs_in_python(closed):
        return jaxpr_as_fun(closed)(*args)
    return eval_trace.compute(remat_p, args, params)


@memoize_on_jaxpr
def _runs_in_python(closed: ClosedJaxpr) -> bool:
    """Whether an operation is none that is compiled, so that the program runs as it was written."""
    eqns = open_jaxpr(closed).eqns
    if any(e.primitive.lowering is None and e.primitive.impl is not None for e in eqns):
        return True
    return any(_runs_in_python(e.params["jaxpr"]) for e in eqns if e.primitive is remat_p)


@remat_p.def_linearize
def _linearize(nonzeros: Any, *primals: Any, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    where = "partial-eval of `checkpoint`/`remat`, where they would happen again"
    remat_allowed_effects.require(where, jaxpr.effects)
    split = _split(jaxpr, tuple(map(bool, nonzeros)), params["policy"])
    primal, consts = hoist_tracers(split.primal)
    outs = remat_p.bind(*consts, *primals, jaxpr=primal, **params)
    count = len(jaxpr.out_avals)
    residuals = [x for x, used in zip([*primals, *outs[count:]], split.used) if used]
    tangent, consts = hoist_tracers(split.tangent)
    residuals = [*consts, *residuals]

    def tangent_fn(residuals: Any, *tangents: Any) -> list[Any]:
        given = [t for t in tangents if type(t) is not Zero]
        again = {**params, "differentiated": True}
        found = remat_p.bind(*residuals, *given, jaxpr=tangent, **again)
        return spread_tangents(found, split.nonzeros_out, jaxpr.out_avals)

    return outs[:count], residuals, tangent_fn


@remat_p.def_transpose
def _transpose(cts: Any, *args: Any, jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    transposed, values, spread = transpose_call(jaxpr, cts, args)
    transposed, consts = hoist_tracers(transposed)
    return spread(remat_p.bind(*consts, *values, jaxpr=transposed, **params))


class _Split(NamedTuple):
    """A checkpointed program, linearized.

    Attributes:
      primal: `(*args) -> (*results, *kept values)`.
      tangent: `(*used of args and kept values, *tangents) -> (*tangents of results)`.
      used: which arguments and kept values `tangent` takes.
      nonzeros_out: which results have a tangent.
    """

    primal: ClosedJaxpr
    tangent: ClosedJaxpr
    used: list[bool]
    nonzeros_out: list[bool]


@memoize_on_jaxpr
def _split(closed: ClosedJaxpr, nonzeros: tuple[bool, ...], policy: Policy | None) -> _Split:
    # What is computed again would lack writes to references, which have no results.
    closed = without_own_refs(closed, True)
    lin = linearize_jaxpr(closed, nonzeros, forward=False)
    both = lin.primal if policy is None else _return_kept(lin.primal, policy)
    count = len(closed.out_avals)
    kept: list[Var] = [] if policy is None else _kept_variables(both.jaxpr, policy)
    recompute = _without(both.jaxpr, kept, both.jaxpr.outvars[count:])
    recompute, used = dce_jaxpr(recompute, [True] * len(recompute.outvars))
    # Kept values that nothing needs again are not kept.
    needed = [v for v, u in zip(kept, used[len(both.in_avals) :]) if u]
    primal = closed
    if needed:
        outvars = [*both.jaxpr.outvars[:count], *needed]
        copied = {v: x for x, v in _copies(both.jaxpr).items()}
        jaxpr = both.jaxpr.replace(outvars=outvars)
        jaxpr = _rounded(jaxpr, [copied.get(v, v) for v in needed])
        jaxpr, _ = dce_jaxpr(jaxpr, [True] * len(outvars), True)
        primal = close_consts(jaxpr, both.consts)
    used = [u for i, u in enumerate(used) if i < len(both.in_avals) or u]
    tangent = _recompute_then(close_consts(recompute, both.consts), lin.tangent)
    return _Split(primal, tangent, used, lin.nonzeros_out)


def _rounded(jaxpr: Jaxpr, kept: Sequence[Var]) -> Jaxpr:
    """The program that computes on with the values as they are kept, not with more precise ones.

    A kernel may hold a narrow value in a wider format; what is computed again starts narrow.
    """
    narrow = {v for v in kept if dtypes.issubdtype(v.aval.dtype, np.floating)}
    narrow = {v for v in narrow if v.aval.dtype.itemsize < 4}
    names: dict[Any, Var] = {}

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [names.get(x, x) if isinstance(x, Var) else x for x in atoms]

    eqns = []
    for eqn in jaxpr.eqns:
        eqns.append(eqn.replace(invars=renamed(eqn.invars)))
        for v in narrow.intersection(eqn.outvars):
            info = dtypes.finfo(v.aval.dtype)
            names[v] = Var(v.aval)
            bits = {"exponent_bits": info.nexp, "mantissa_bits": info.nmant}
            eqns.append(JaxprEqn(Primitive.by_name["reduce_precision"], [v], [names[v]], bits))
    return jaxpr.replace(eqns=eqns, outvars=renamed(jaxpr.outvars))


def _kept_variables(jaxpr: Jaxpr, policy: Policy) -> list[Var]:
    kept: dict[Var, None] = {}
    copies = _copies(jaxpr)
    for eqn in jaxpr.eqns:
        found = verdict(policy, eqn.primitive, [v.aval for v in eqn.invars], eqn.params)
        if found:
            kept.update((v if found is True else copies[v], None) for v in eqn.outvars)
            continue
        for body, pairs in _results_in_bodies(eqn):
            inside = set(_kept_variables(body, policy))
            kept.update((y, None) for y, v in pairs if isinstance(v, Var) and v in inside)
    return list(kept)


def _copies(jaxpr: Jaxpr) -> dict[Var, Var]:
    """The copies of values in another memory, by the values."""
    return {
        x: v
        for eqn in jaxpr.eqns if eqn.primitive is device_put_p
        for x, v in zip(eqn.invars, eqn.outvars)
        if isinstance(x, Var) and x.aval.memory_space is not v.aval.memory_space
    }  # fmt: skip


def _offloaded(jaxpr: Jaxpr, policy: Policy) -> Jaxpr:
    """The program that copies what the policy says to another memory."""
    eqns = []
    for eqn in jaxpr.eqns:
        eqns.append(eqn)
        found = verdict(policy, eqn.primitive, [v.aval for v in eqn.invars], eqn.params)
        if isinstance(found, Offloadable):
            for v in eqn.outvars:
                if v.aval.memory_space is not space_of_kind(found.src):
                    raise ValueError(
                        f"A result of {eqn.primitive.name} of type {v.aval} is to be offloaded "
                        f"from {found.src!r}, where it is not."
                    )
                eqns.append(transfer(v, Var(moved_type(v.aval, space_of_kind(found.dst)))))
    return jaxpr.replace(eqns=eqns) if len(eqns) > len(jaxpr.eqns) else jaxpr


# What a policy keeps of the steps of a scan is stacked over them. What it keeps of a branch is a
# result of the whole `cond`, zero where another branch was taken.


def _results_in_bodies(eqn: JaxprEqn) -> list[tuple[Jaxpr, list[tuple[Any, Any]]]]:
    """The bodies of a scan or `cond` with those results that are made in one go, each paired with
    what it is in the body.
    """
    if eqn.primitive.name == "scan":
        body, first = eqn.params["jaxpr"].jaxpr, eqn.params["num_carry"]
        return [(body, list(zip(eqn.outvars[first:], body.outvars[first:])))]
    if eqn.primitive.name == "cond":
        return [(b.jaxpr, list(zip(eqn.outvars, b.jaxpr.outvars))) for b in eqn.params["branches"]]
    return []


def _return_kept(closed: ClosedJaxpr, policy: Policy) -> ClosedJaxpr:
    """The program, calls inlined, with copies of what the policy offloads.

    Its scans and branches also return what the policy keeps inside them.
    """
    closed = inline_calls(closed)
    returning = {"scan": _scan_with_kept, "cond": _cond_with_kept}
    eqns = [
        returning[e.primitive.name](e, policy) if e.primitive.name in returning else e
        for e in closed.jaxpr.eqns
    ]
    return ClosedJaxpr(_offloaded(closed.jaxpr.replace(eqns=eqns), policy), closed.consts)


def _kept_inside(closed: ClosedJaxpr, policy: Policy, first: int = 0) -> tuple[ClosedJaxpr, int]:
    """A body that returns all that is kept of it, and how many results that adds."""
    body = _return_kept(closed, policy)
    returned = {v for v in body.jaxpr.outvars[first:] if isinstance(v, Var)}
    kept = [v for v in _kept_variables(body.jaxpr, policy) if v not in returned]
    jaxpr = body.jaxpr.replace(outvars=[*body.jaxpr.outvars, *kept], debug_info=None)
    return close_consts(jaxpr, body.consts), len(kept)


def _scan_with_kept(eqn: JaxprEqn, policy: Policy) -> JaxprEqn:
    body, count = _kept_inside(eqn.params["jaxpr"], policy, eqn.params["num_carry"])
    length = eqn.params["length"]
    kept = body.out_avals[len(body.out_avals) - count :]
    stacked = [Var(a.strong().update(shape=(length, *a.shape))) for a in kept]
    return eqn.replace(outvars=[*eqn.outvars, *stacked], params={**eqn.params, "jaxpr": body})


def _cond_with_kept(eqn: JaxprEqn, policy: Policy) -> JaxprEqn:
    branches, counts = zip(*(_kept_inside(b, policy) for b in eqn.params["branches"]))
    own = [b.out_avals[len(b.out_avals) - count :] for b, count in zip(branches, counts)]

    def fill(i: int) -> ClosedJaxpr:
        def fun(*operands: Any) -> list[Any]:
            outs = jaxpr_as_fun(branches[i])(*operands)
            count = len(outs) - counts[i]
            kept = [outs[count:] if k == i else map(zeros_like_aval, a) for k, a in enumerate(own)]
            return [*outs[:count], *itertools.chain(*kept)]

        return trace_to_jaxpr(fun, branches[i].in_avals)

    added = [Var(a.strong()) for avals in own for a in avals]
    filled = tuple(map(fill, range(len(branches))))
    return eqn.replace(outvars=[*eqn.outvars, *added], params={**eqn.params, "branches": filled})


def _given_known(eqn: JaxprEqn, known: Container[Any]) -> JaxprEqn:
    """A scan or `cond` whose bodies are given what is known of them instead of computing it."""
    ys = [y for y in eqn.outvars if y in known]
    bodies = [_body_given(body, pairs, ys) for body, pairs in _results_in_bodies(eqn)]
    if eqn.primitive.name == "cond":
        closed = eqn.params["branches"]
        made = tuple(close_consts(jaxpr, b.consts) for jaxpr, b in zip(bodies, closed))
        return eqn.replace(invars=[*eqn.invars, *ys], params={**eqn.params, "branches": made})
    ys = [y for y in ys if y in eqn.outvars[eqn.params["num_carry"] :]]
    step = close_consts(bodies[0], eqn.params["jaxpr"].consts)
    return eqn.replace(invars=[*eqn.invars, *ys], params={**eqn.params, "jaxpr": step})


def _body_given(body: Jaxpr, pairs: Sequence[tuple[Any, Any]], ys: Sequence[Var]) -> Jaxpr:
    """A body that takes, as last arguments, those of its results that are among `ys`."""
    given: list[Var] = []
    for y, v in pairs:
        if y in ys:
            computed = isinstance(v, Var) and v not in body.invars and v not in given
            given.append(v if computed else Var(v.aval))
    return _without(body, given, body.outvars)


def _without(jaxpr: Jaxpr, given: Sequence[Var], outvars: Sequence[Any]) -> Jaxpr:
    """The program that takes the variables `given` as further arguments.

    A value of which one is a copy in another memory is copied back where it was computed.
    """
    known = set(given)
    copies = {x: v for x, v in _copies(jaxpr).items() if v in known and x not in known}
    eqns: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        if known.issuperset(eqn.outvars) and eqn.outvars:
            continue
        if copies.keys() >= set(eqn.outvars) and eqn.outvars:
            eqns.extend(transfer(copies[v], v) for v in eqn.outvars)
            continue
        if _results_in_bodies(eqn) and not known.isdisjoint(eqn.outvars):
            eqn = _given_known(eqn, known)
        fresh = [Var(v.aval) if v in known else v for v in eqn.outvars]
        eqns.append(eqn.replace(outvars=fresh) if fresh != list(eqn.outvars) else eqn)
    return Jaxpr(jaxpr.constvars, [*jaxpr.invars, *given], outvars, eqns)


def _recompute_then(recompute: ClosedJaxpr, tangent: ClosedJaxpr) -> ClosedJaxpr:
    """One program: residuals are computed, then the tangent program applied."""
    count = len(recompute.in_avals)

    def fun(*args: Any) -> list[Any]:
        with source_info.scope("rematted_computation"):
            residuals = jaxpr_as_fun(recompute)(*args[:count])
        return jaxpr_as_fun(tangent)(*residuals, *args[count:])

    tangents = tangent.in_avals[len(recompute.out_avals) :]
    return trace_to_jaxpr(fun, [*recompute.in_avals, *tangents])


def inline_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with the bodies of `jit` and `closed_call` in place of the calls."""
    consts = list(closed.consts)
    constvars = list(closed.jaxpr.constvars)
    eqns: list[JaxprEqn] = []
    env: dict[Var, Any] = {}

    def read(v: Any) -> Any:
        return env.get(v, v) if isinstance(v, Var) else v

    def visit(jaxpr: Jaxpr) -> None:
        for eqn in jaxpr.eqns:
            invars = [read(v) for v in eqn.invars]
            if eqn.primitive.name not in ("jit", "closed_call"):
                outvars = [Var(v.aval) for v in eqn.outvars]
                env.update(zip(eqn.outvars, outvars))
                eqns.append(eqn.replace(invars=invars, outvars=outvars))
                continue
            callee = eqn.params["jaxpr" if eqn.primitive.name == "jit" else "call_jaxpr"]
            fresh = [Var(v.aval) for v in callee.jaxpr.constvars]
            constvars.extend(fresh)
            consts.extend(callee.consts)
            env.update(zip(callee.jaxpr.constvars, fresh))
            env.update(zip(callee.jaxpr.invars, invars))
            visit(callee.jaxpr)
            env.update(zip(eqn.outvars, [read(v) for v in callee.jaxpr.outvars]))

    visit(closed.jaxpr)
    outvars = [v if isinstance(v, Literal) else read(v) for v in closed.jaxpr.outvars]
    return ClosedJaxpr(Jaxpr(constvars, closed.jaxpr.invars, outvars, eqns), consts)


def checkpoint(
    fun: Callable[..., Any] | None = None, *, prevent_cse: bool = True,
    policy: Policy | None = None, static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | tuple[str, ...] = (), concrete: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Make a function recompute its intermediate results when it is differentiated in reverse.

    Args:
      prevent_cse: whether the compiler is kept from merging the recomputation with the first
        computation. It is not needed inside `scan`.
      policy: which intermediate results to keep after all, from `checkpoint_policies`; None keeps
        none.
      static_argnums: positions of arguments that are not traced.
      static_argnames: their names, wherever they are given.
      concrete: must be False.

    Returns:
      A function with the same results and derivatives that needs less memory and more time.

        >>> f = amdjax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
        >>> print(round(float(amdjax.grad(f)(1.0)), 4))
        0.36
    """
    if concrete:
        raise NotImplementedError(
            "concrete=True is not supported: use static_argnums for arguments that decide control "
            "flow."
        )
    flags = tree_leaves(prevent_cse) if isinstance(prevent_cse, (tuple, list)) else [prevent_cse]
    if not all(isinstance(flag, bool) for flag in flags):
        raise TypeError(
            f"checkpoint: prevent_cse must be a bool or tuple of bools, got {prevent_cse!r}"
        )
    if not isinstance(static_argnums, (int, np.integer, tuple, list, range)):
        raise TypeError(
            f"checkpoint: static_argnums must be an int or a tuple of ints, got {static_argnums!r}"
        )
    if fun is None:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    if not callable(fun):
        raise TypeError(f"checkpoint: fun must be callable, got {fun!r}")
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    numbers = (*positions_of(static_argnums), *argnums_of_names(fun, names))
    traced: dict[Any, tuple[ClosedJaxpr, PyTreeDef]] = {}

    @functools.wraps(fun)
    @api_boundary
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        positions = sorted({n % len(args) for n in numbers if -len(args) <= n < len(args)})
        static, dynamic = split_args(args, positions)
        static_kwargs = {name: kwargs[name] for name in names if name in kwargs}
        dynamic_kwargs = {k: v for k, v in kwargs.items() if k not in static_kwargs}

        def call(*values: Any, **kwargs: Any) -> Any:
            return fun(*join_args(positions, static, values), **static_kwargs, **kwargs)

        leaves, in_tree = tree_flatten((tuple(dynamic), dynamic_kwargs))
        avals = [get_aval(x) for x in leaves]
        fixed = *zip(positions, static), *sorted(static_kwargs.items())
        types = tuple(type(value) for _, value in fixed)  # 2 and 2.0 make different programs
        key = (in_tree, fixed, types, config.trace_key(), *avals)
        consts: list[Any] = []
        found = traced.get(key) if _is_hashable(fixed) else None
        if found is None:
            flat = FlatFunction(call, in_tree)
            info = debug_info("checkpoint / remat", fun, args, kwargs)
            closed, consts = hoist_tracers(trace_to_jaxpr(flat, avals, debug_info=info))
            found = closed, flat.out_tree
            if not consts and _is_hashable(fixed):  # else it is only good inside another trace
                traced[key] = found
        closed, out_tree = found
        outs = remat_p.bind(
            *consts, *leaves, jaxpr=closed, prevent_cse=prevent_cse, differentiated=False,
            policy=policy,
        )  # fmt: skip
        return tree_unflatten(out_tree, outs)

    return checkpointed


def _is_hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


remat = checkpoint
