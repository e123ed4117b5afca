"""Choosing between programs: `cond`, `switch`, `platform_dependent`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.config import config
from amdjax.core.dead_code import dce_jaxpr, dce_rules
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.effects import (
    Effects,
    IOEffect,
    OrderedIOEffect,
    control_flow_allowed_effects,
    has_side_effects,
    join_effects,
)
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    Var,
    close_consts,
    jaxpr_as_fun,
    memoize_on_jaxpr,
)
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import keystr, tree_flatten_with_path, tree_unflatten, treedef_children
from amdjax.core.trace import Tracer, full_lower, is_concrete
from amdjax.lax._rules import aval_of
from amdjax.lax.casting import convert
from amdjax.lax.comparison import eq, ne
from amdjax.lax.control_flow._common import (
    Body,
    Traced,
    as_array,
    check_callable,
    check_effects,
    check_refs,
    checked_leaves,
    chosen,
    differences_text,
    forwarded,
    immutable,
    join_consts,
    leaf_structure,
    nonzero,
    refuse_param,
    same_type,
    select_rows,
    structure_differences,
    trace_body,
    type_difference,
    type_name,
    with_outputs,
)
from amdjax.lax.selection import clamp
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.batching import batch_jaxpr_axes
from amdjax.transforms.calls import spread_tangents
from amdjax.transforms.forward import jvp_jaxpr
from amdjax.transforms.linear import has_tangent, linearize_jaxpr
from amdjax.transforms.reverse import given_types, transpose_jaxpr
from amdjax.transforms.zero import is_undefined_primal, stop_gradient_p, zeros_like_aval

__all__ = ["cond", "cond_p", "switch"]

T = TypeVar("T")
Branches = tuple[ClosedJaxpr, ...]

cond_p = Primitive("cond", multiple_results=True)
cond_p.lowering = Control("cond")


@cond_p.def_abstract_eval
def _cond_type(index: Any, *operands: Any, branches: Branches, **_: Any) -> list[Any]:
    if type(branches) is not tuple or not all(isinstance(b, ClosedJaxpr) for b in branches):
        refuse_param("cond", "branches", branches, "tuple of ClosedJaxpr")
    if index.shape != () or index.dtype != np.int32:
        raise TypeError(f"cond: the index must be an int32 scalar, got {index}.")
    for branch in branches:
        if len(branch.in_avals) != len(operands) or not all(
            map(same_type, branch.in_avals, operands)
        ):
            raise TypeError(
                f"cond: a branch takes {branch.in_avals}, but the operands are {list(operands)}."
            )
    return branches[0].out_avals  # which differ between branches in weakness at most


@cond_p.def_effects
def _cond_effects(*_: Any, branches: Branches, **__: Any) -> Effects:
    effects = join_effects(*(b.effects for b in branches))
    return control_flow_allowed_effects.require("`cond`", effects)


@cond_p.def_jvp
def _cond_jvp(primals: Any, tangents: Any, *, branches: Branches, **params: Any) -> Any:
    index, *operands = primals
    nonzeros = nonzero(tangents[1:])
    jvps, nonzeros_out = _jvp_branches(branches[0], branches, tuple(nonzeros))
    jvps, enclosing = _hoist_tracers(jvps)
    given = chosen(tangents[1:], nonzeros)
    outs = cond_p.bind(index, *enclosing, *operands, *given, branches=jvps, **params)
    avals = branches[0].out_avals
    return outs[: len(avals)], spread_tangents(outs[len(avals) :], nonzeros_out, avals)


def _hoist_tracers(branches: Branches) -> tuple[Branches, list[Any]]:
    """The branches with what custom rules close over as leading operands, and those."""
    programs, consts = zip(*map(hoist_tracers, branches))
    if not any(consts):
        return branches, []
    joined, enclosing = join_consts(programs, consts)
    return tuple(joined), enclosing


@memoize_on_jaxpr
def _jvp_branches(
    _: ClosedJaxpr, branches: Branches, nonzeros: tuple[bool, ...]
) -> tuple[Branches, list[bool]]:
    nonzeros_out = _any_of(jvp_jaxpr(b, nonzeros)[1] for b in branches)
    return tuple(jvp_jaxpr(b, nonzeros, nonzeros_out)[0] for b in branches), nonzeros_out


def _any_of(masks: Any) -> list[bool]:
    return [any(column) for column in zip(*masks)]


@cond_p.def_linearize
def _cond_linearize(
    nonzeros: Any, index: Any, *operands: Any, branches: Branches, **params: Any
) -> Any:
    lin = _linearize_branches(branches[0], branches, tuple(nonzeros[1:]))
    avals = branches[0].out_avals
    primal, enclosing = _hoist_tracers(lin.primal)
    outs = cond_p.bind(index, *enclosing, *operands, branches=primal, **params)
    where = {"in": operands, "out": outs, "slot": outs[len(avals) :]}
    residuals = [index, *(where[kind][i] for kind, i in lin.sources)]

    def tangent_fn(residuals: Any, *tangents: Any) -> list[Any]:
        given = chosen(tangents, nonzero(tangents))
        found = []
        if any(lin.nonzeros_out):
            found = cond_p.bind(*residuals, *given, branches=lin.tangent, **params)
        return spread_tangents(found, lin.nonzeros_out, avals)

    return outs[: len(avals)], residuals, tangent_fn


class _LinearizedBranches(NamedTuple):
    """Branches split into primal and tangent parts.

    Attributes:
      primal: `(*operands) -> (*results, *slots)`. A slot holds a residual of a branch; branches
        share slots of one type, and fill those they have no use for with zeros.
      tangent: `(*residuals, *tangents) -> (*tangents of nonzeros_out)`, one signature for all.
      nonzeros_out: which results have a tangent.
      sources: where each residual is found: ("in", i), ("out", i) or ("slot", i).
    """

    primal: Branches
    tangent: Branches
    nonzeros_out: list[bool]
    sources: list[tuple[str, int]]


@memoize_on_jaxpr
def _linearize_branches(
    _: ClosedJaxpr, branches: Branches, nonzeros: tuple[bool, ...]
) -> _LinearizedBranches:
    nonzeros_out = _any_of(linearize_jaxpr(b, nonzeros).nonzeros_out for b in branches)
    lins = [linearize_jaxpr(b, nonzeros, instantiate=nonzeros_out) for b in branches]
    count = len(nonzeros_out)
    slots: dict[Any, int] = {}
    slot_avals: list[Any] = []
    types: dict[tuple[str, int], Any] = {}
    named: list[list[tuple[str, int]]] = []
    for lin in lins:
        avals: list[Any] = lin.primal.out_avals[count:]
        fresh = [a.strong() for a in avals]
        mine = []
        for i, aval in enumerate(fresh):
            key = aval, fresh[:i].count(aval)
            if key not in slots:
                slots[key] = len(slots)
                slot_avals.append(aval)
            mine.append(slots[key])
        named.append([("slot", mine[i]) if kind == "res" else (kind, i) for kind, i in lin.sources])
        types.update(zip(named[-1], lin.tangent.in_avals))
    sources = list(types)
    primal = []
    tangent = []
    for lin, names in zip(lins, named):
        own = [i for kind, i in lin.sources if kind == "res"]
        filled = dict(zip([i for kind, i in names if kind == "slot"], own))
        primal.append(_fill_slots(lin.primal, count, filled, slot_avals))
        tangent.append(_widen(lin.tangent, names, [(s, types[s]) for s in sources]))
    return _LinearizedBranches(tuple(primal), tuple(tangent), nonzeros_out, sources)


def _fill_slots(
    primal: ClosedJaxpr, count: int, filled: dict[int, int], slot_avals: Sequence[Any]
) -> ClosedJaxpr:
    """A primal branch that returns a value for every slot; `filled` maps slots to residuals."""

    def fun(*operands: Any) -> list[Any]:
        outs = jaxpr_as_fun(primal)(*operands)
        return outs[:count] + [
            outs[count + filled[i]] if i in filled else zeros_like_aval(aval)
            for i, aval in enumerate(slot_avals)
        ]

    return trace_to_jaxpr(fun, primal.in_avals)


def _widen(
    tangent: ClosedJaxpr, names: Sequence[Any], sources: Sequence[tuple[Any, Any]]
) -> ClosedJaxpr:
    """A tangent branch that takes the residuals of all branches."""
    jaxpr = tangent.jaxpr
    own = dict(zip(names, jaxpr.invars))
    binders = [own.get(source) or Var(aval) for source, aval in sources]
    invars = [*binders, *jaxpr.invars[len(names) :]]
    return close_consts(jaxpr.replace(invars=invars), tangent.consts)


@cond_p.def_transpose
def _cond_transpose(
    cts: Any, index: Any, *operands: Any, branches: Branches, **params: Any
) -> list[Any]:
    linear = [is_undefined_primal(x) for x in operands]
    known = [x for x in operands if not is_undefined_primal(x)]
    nonzeros = given_types(cts)
    transposed, kept = _transpose_branches(branches[0], branches, tuple(linear), nonzeros)
    outs: list[Any] = []
    if any(kept):
        transposed, enclosing = _hoist_tracers(transposed)
        given = [*enclosing, *known, *chosen(cts, nonzero(cts))]
        outs = cond_p.bind(index, *given, branches=transposed, **params)
    found, keep = iter(outs), iter(kept)
    return [None, *(next(found) if lin and next(keep) else None for lin in linear)]


@memoize_on_jaxpr
def _transpose_branches(
    _: ClosedJaxpr, branches: Branches, linear: tuple[bool, ...], nonzeros: tuple[Any, ...]
) -> tuple[Branches, list[bool]]:
    kept = _any_of(transpose_jaxpr(b, linear, nonzeros)[1] for b in branches)
    transposed = [transpose_jaxpr(b, linear, nonzeros, instantiate=kept)[0] for b in branches]
    return tuple(transposed), kept


@cond_p.def_batch
def _cond_batch(axis: AxisData, args: Any, dims: Any, *, branches: Branches, **params: Any) -> Any:
    (index, *operands), (index_dim, *operand_dims) = args, dims
    if index_dim is not None:
        effects = _cond_effects(branches=branches)
        if any(isinstance(e, (IOEffect, OrderedIOEffect)) for e in effects):
            raise NotImplementedError(
                "IO effect not supported in vmap-of-cond. All branches would call Python, for each "
                "example."
            )
        check_effects("cond", effects)
        return _select_branches(axis, index, operands, operand_dims, branches), 0
    batched, out_batched = _batch_branches(branches[0], branches, axis, tuple(operand_dims))
    outs = cond_p.bind(index, *operands, branches=batched, **params)
    return outs, [0 if b else None for b in out_batched]


@memoize_on_jaxpr
def _batch_branches(
    _: ClosedJaxpr, branches: Branches, axis: AxisData, dims: tuple[Any, ...]
) -> tuple[Branches, list[bool]]:
    out = [[d is not None for d in batch_jaxpr_axes(b, axis, dims)[1]] for b in branches]
    batched = _any_of(out)
    return tuple(batch_jaxpr_axes(b, axis, dims, batched)[0] for b in branches), batched


def _select_branches(
    axis: AxisData, index: Any, operands: Any, dims: Any, branches: Branches
) -> list[Any]:
    """Run all branches on the whole batch and take each example's result from its own branch.

    A branch that an example does not take may have no derivative there, and zero times infinity is
    not zero. So it gets that example's operands without their tangents.
    """
    guarded = [isinstance(x, Tracer) and has_tangent(x) for x in operands]
    fronts = [batch_at(axis, x, d, 0) if g else x for x, d, g in zip(operands, dims, guarded)]
    dims = [0 if g else d for d, g in zip(dims, guarded)]
    cases = []
    for i, branch in enumerate(branches):
        taken = eq(index, np.int32(i)) if any(guarded) else None
        given = [
            select_rows(taken, stop_gradient_p.bind(x), x) if g else x
            for x, g in zip(fronts, guarded)
        ]
        batched, out_dims = batch_jaxpr_axes(branch, axis, dims)
        outs = jaxpr_as_fun(batched)(*given)
        cases.append([batch_at(axis, x, d, 0) for x, d in zip(outs, out_dims)])
    # A comparison selects between two more cheaply than an index does.
    which = ne(index, np.int32(0)) if len(branches) == 2 else index
    return [select_rows(which, *xs) for xs in zip(*cases)]


def _cond_dce(used: Sequence[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    if not any(used) and not has_side_effects(eqn.effects):
        return [False] * len(eqn.invars), None
    branches: Branches = eqn.params["branches"]
    used_ops = _any_of(dce_jaxpr(b.jaxpr, used)[1] for b in branches)
    used_ins = [True, *used_ops]
    pruned = tuple(close_consts(dce_jaxpr(b.jaxpr, used, used_ops)[0], b.consts) for b in branches)
    unchanged = all(used) and all(used_ins)
    if unchanged and all(len(a.eqns) == len(b.eqns) for a, b in zip(pruned, branches)):
        return used_ins, eqn
    new = eqn.replace(
        invars=chosen(eqn.invars, used_ins),
        outvars=chosen(eqn.outvars, used),
        params={**eqn.params, "branches": pruned},
        effects=_cond_effects(branches=pruned),
    )
    return used_ins, new


dce_rules[cond_p] = _cond_dce


# The functions


@api_boundary
def cond(
    pred: Any,
    true_fun: Callable[..., T],
    false_fun: Callable[..., T],
    *operands: Any,
    **operand: Any,
) -> T:
    """Apply one of two functions, chosen by a value.

    Both functions are traced; only the chosen one runs. Under `vmap` over `pred` both run, and
    each example's result is selected.

    Args:
      pred: a boolean scalar; a number counts as true unless it is zero.
      true_fun: applied to the operands if `pred` is true.
      false_fun: applied otherwise; its results have the structure, shapes and dtypes of those of
        `true_fun`.
      *operands: pytrees of arrays, arguments of both functions.
      operand: by keyword, the only operand.

    Raises:
      TypeError: `pred` is not a scalar of a boolean or numeric type, a function is not callable,
        an operand is not an array, or the functions' results differ in structure or type.

        >>> float(lax.cond(True, lambda x: x + 1, lambda x: x * 10, 2.0))
        3.0
    """
    if not callable(true_fun) and callable(false_fun) and len(operands) == 2:
        return _old_cond(pred, true_fun, false_fun, *operands)
    check_callable("cond", true_fun=true_fun, false_fun=false_fun)
    operands = _with_keyword("cond", operands, operand)
    pred = _check_predicate(pred)
    if config.disable_jit and is_concrete(pred):
        return (true_fun if pred else false_fun)(*immutable(operands))
    index = np.int32(bool(pred)) if _is_known(pred) else convert(pred, np.int32)
    names = ["false_fun", "true_fun"]
    return choose("cond", index, [false_fun, true_fun], operands, names)


def _old_cond(pred: Any, x_true: Any, f_true: Any, x_false: Any, f_false: Any) -> Any:
    """The form with an operand for each function, which JAX still accepts."""
    check_callable("cond", true_fun=f_true, false_fun=f_false)
    return cond(pred, lambda x, _: f_true(x), lambda _, x: f_false(x), x_true, x_false)


def _with_keyword(what: str, operands: tuple[Any, ...], keyword: dict[str, Any]) -> tuple[Any, ...]:
    if not keyword:
        return operands
    if list(keyword) != ["operand"]:
        name = next(k for k in keyword if k != "operand")
        raise TypeError(f"{what}() got an unexpected keyword argument '{name}'")
    if operands:
        raise TypeError(f"{what}: pass operands by position or one by `operand=`, not both.")
    return (keyword["operand"],)


def _is_known(x: Any) -> bool:
    """Whether a value is known and no tracer, so that it can be written into the program."""
    return not isinstance(x, Tracer)


def _check_predicate(pred: Any) -> Any:
    if pred is None:
        raise TypeError("cond predicate is None, but must be a boolean scalar.")
    try:
        aval = aval_of(pred)
    except TypeError:
        wanted = "type must be either boolean or number" if callable(pred) else "must be a scalar"
        raise TypeError(f"cond: Pred {wanted}, got {pred} of type {type(pred)}.") from None
    if aval.shape:
        raise TypeError(
            f"cond: pred must be a scalar, got an array of shape {aval.shape}. To choose element "
            "by element use amdjax.numpy.where."
        )
    if aval.dtype == np.bool_:
        return pred
    if not any(dtypes.issubdtype(aval.dtype, kind) for kind in (np.integer, np.floating)):
        raise TypeError(f"cond: pred must be of a boolean or real numeric type, got {aval.dtype}.")
    return ne(pred, np.zeros((), aval.dtype)[()])


@api_boundary
def switch(index: Any, branches: Sequence[Callable[..., T]], *operands: Any, **operand: Any) -> T:
    """Apply one of several functions, chosen by an index.

    All functions are traced; only the chosen one runs. Under `vmap` over `index` all run, and each
    example's result is selected.

    Args:
      index: an integer scalar, clamped to the number of branches.
      branches: functions of the operands, whose results agree in structure, shapes and dtypes.
      *operands: pytrees of arrays, arguments of all functions.
      operand: by keyword, the only operand.

    Raises:
      TypeError: `index` is not an integer scalar, a branch is not callable, an operand is not an
        array, or the branches' results differ in structure or type.
      ValueError: there are no branches.

        >>> float(lax.switch(7, [lambda x: x, lambda x: -x, lambda x: x * x], 3.0))
        9.0
    """
    branches = tuple(branches)
    check_callable("switch", **{f"branches[{i}]": b for i, b in enumerate(branches)})
    operands = _with_keyword("switch", operands, operand)
    _check_index(index)
    if not branches:
        raise ValueError("switch: branches is empty; there must be at least one function.")
    if len(branches) == 1:
        return branches[0](*operands)
    last = len(branches) - 1
    if _is_known(index) and not is_symbolic_dim(index):
        index = np.int32(min(max(int(index), 0), last))
    else:
        index = clamp(np.int32(0), convert(index, np.int32), np.int32(last))
    names = [f"branches[{i}]" for i in range(len(branches))]
    return choose("switch", index, branches, operands, names)


def _check_index(index: Any) -> None:
    try:
        aval = aval_of(index)
    except TypeError:
        raise TypeError(
            f"switch: index must be an integer scalar, got {index!r} of type {type(index)}."
        ) from None
    if aval.shape:
        raise TypeError(f"switch: index must be a scalar, got an array of shape {aval.shape}.")
    if not dtypes.issubdtype(aval.dtype, np.integer):
        raise TypeError(f"switch: index must be of an integer type, got {aval.dtype}.")


def choose(
    what: str, index: Any, functions: Sequence[Callable[..., Any]], operands: Sequence[Any],
    names: Sequence[str], **params: Any,
) -> Any:  # fmt: skip
    """What the function of a number returns; `what` and `names` say in errors which they are."""
    if config.disable_jit and is_concrete(index):
        return functions[int(full_lower(index))](*immutable(operands))
    leaves, tree = checked_leaves(what, "operands", tuple(operands))
    in_tree = leaf_structure(*treedef_children(tree))
    avals = [get_aval(x) for x in leaves]
    bodies = [Body(what, f) for f in functions]
    check_refs(bodies[0], operands, leaves)
    traced = [trace_body(body, in_tree, avals) for body in bodies]
    for body, t in zip(bodies, traced):
        check_refs(body, operands, leaves, t.consts)
    for other, body, name in zip(traced[1:], bodies[1:], names[1:]):
        both = (names[0], name), (bodies[0], body), (traced[0], other)
        if what == "cond":  # the branch that is written first is the last one
            _check_results(what, both[0][::-1], both[1][::-1], both[2][::-1])
        else:
            _check_results(what, *both)
    programs, consts = join_consts([t.jaxpr for t in traced], [t.consts for t in traced])
    inputs = [*consts, *leaves]
    passed = _passed_through(programs)
    computed = [i for i, source in enumerate(passed) if source is None]
    branches = tuple(with_outputs(p, computed) for p in programs)
    outs = iter(cond_p.bind(index, *inputs, branches=branches, **params))
    results = [next(outs) if i is None else as_array(inputs[i]) for i in passed]
    return tree_unflatten(traced[0].out_tree, results)


def _passed_through(programs: Sequence[ClosedJaxpr]) -> list[int | None]:
    """For each result the argument that every branch returns there."""
    columns = zip(*(forwarded(p.jaxpr) for p in programs))
    return [column[0] if len(set(column)) == 1 else None for column in columns]


def _check_results(
    what: str, names: tuple[str, str], bodies: tuple[Body, Body], traced: tuple[Traced, Traced]
) -> None:
    """Raise a TypeError unless two branches return the same structure and types."""
    (a, b), (x, y) = names, traced
    who = "".join(f"\n  {name} is {body}" for name, body in zip(names, bodies))
    if x.out_tree != y.out_tree:
        lines = [
            f"{a} output{_at(path)} is {p} but {b} output{_at(path)} is {q}, {why}"
            for path, p, q, why in structure_differences(x.out_tree, y.out_tree)
        ] or [f"{a} output is {x.out_tree} but {b} output is {y.out_tree}"]
        raise TypeError(
            f"{what} branch outputs must have the same pytree structure, but they differ:\n\n"
            + differences_text(lines)
            + who
        )
    avals, others = x.jaxpr.out_avals, y.jaxpr.out_avals
    if all(map(same_type, avals, others)):
        return
    paths = [path for path, _ in tree_flatten_with_path(tree_unflatten(x.out_tree, avals))[0]]
    lines = [
        f"the output of {a}{_at(path)} has type {type_name(p)} but the corresponding output of {b} "
        f"has type {type_name(q)}, {type_difference(p, q)}"
        for path, p, q in zip(paths, avals, others)
        if not same_type(p, q)
    ]
    raise TypeError(
        f"{what} branches must have equal output types but they differ:\n\n"
        + differences_text(lines)
        + who
    )


def _at(path: Any) -> str:
    return f" at path {keystr(path)}" if path else ""
