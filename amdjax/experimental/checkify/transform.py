"""`checkify`: a program is run operation by operation, an error carried along."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import source_info
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun, memoize_on_jaxpr
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.experimental.checkify import operations
from amdjax.experimental.checkify.checks import check_p
from amdjax.experimental.checkify.error import (
    DivisionByZeroError,
    Error,
    ErrorCategory,
    ErrorEffect,
    FailedCheckError,
    NaNError,
    OOBError,
    from_leaves,
    init_error,
    leaf_types,
)
from amdjax.lax.control_flow.branches import cond_p
from amdjax.lax.control_flow.scans import scan_p
from amdjax.lax.control_flow.while_loops import while_p
from amdjax.numpy._util import stop_gradient
from amdjax.transforms.calls import closed_call_p, jit_p
from amdjax.transforms.custom_calls import custom_jvp_call_p, custom_vjp_call_p
from amdjax.transforms.remat import remat_p

user_checks = frozenset({FailedCheckError})
nan_checks = frozenset({NaNError})
index_checks = frozenset({OOBError})
div_checks = frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks

Enabled = frozenset[ErrorCategory]
Rule = Callable[[Error, Enabled, JaxprEqn, list[Any]], tuple[Error, list[Any]]]

_rules: dict[Primitive, Rule] = {}


def _rule(primitive: Primitive) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        _rules[primitive] = rule
        return rule

    return add


def _run(
    jaxpr: Jaxpr, consts: Sequence[Any], error: Error, enabled: Enabled, args: Sequence[Any]
) -> tuple[Error, list[Any]]:
    """Run a program under the current trace with its checks."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    read = lambda x: x.val if type(x) is Literal else env[x]
    outer = source_info.position()
    try:
        for eqn in jaxpr.eqns:
            source_info.replay(eqn.source, outer)
            values = [read(x) for x in eqn.invars]
            rule = _rules.get(eqn.primitive, _run_plain)
            error, outs = rule(error, enabled, eqn, values)
            env.update(zip(eqn.outvars, outs, strict=True))
    finally:
        source_info.restore(outer)
    return error, [read(x) for x in jaxpr.outvars]


def _bind(eqn: JaxprEqn, values: Sequence[Any], **changed: Any) -> list[Any]:
    outs = eqn.primitive.bind(*values, **{**eqn.params, **changed})
    return list(outs) if eqn.primitive.multiple_results else [outs]


def _run_plain(
    error: Error, enabled: Enabled, eqn: JaxprEqn, values: list[Any]
) -> tuple[Error, list[Any]]:
    outs = _bind(eqn, values)
    for kind, failed, message, arrays in operations.checks(eqn, values, outs, enabled):
        error = error.added(failed, kind, message, arrays)
    return error, outs


class _Checked:
    """A program that takes and returns the leaves of an error before its own values.

    Attributes:
      program: `(*first, *error, *rest) -> (*error, *results)`.
      effects: what the error that it returns may be.
      metadata: what its checks say.
    """

    def __init__(self, program: ClosedJaxpr, effects: tuple[ErrorEffect, ...], metadata: Any):
        self.program, self.effects, self.metadata = program, effects, metadata

    def split(self, outs: Sequence[Any], before: Error) -> tuple[Error, list[Any]]:
        """The error and the results among what the program returned."""
        count = _count(self.effects)
        metadata = {**before._metadata, **self.metadata}
        return from_leaves(self.effects, outs[:count], metadata), list(outs[count:])


def _count(effects: Iterable[ErrorEffect]) -> int:
    return sum(len(leaf_types(e)) for e in effects)


@memoize_on_jaxpr
def _checked(
    closed: ClosedJaxpr, enabled: Enabled, effects: tuple[ErrorEffect, ...], first: int
) -> _Checked:
    """The program with its checks, of an error that may be of some effects.

    Args:
      closed: the program.
      enabled: which checks are made.
      effects: what the error may be before.
      first: how many operands come before the error.
    """
    found: list[tuple[tuple[ErrorEffect, ...], Any]] = []
    count = _count(effects)

    def run(*args: Any) -> list[Any]:
        before = from_leaves(effects, args[first : first + count], {})
        own = [*args[:first], *args[first + count :]]
        error, outs = _run(closed.jaxpr, closed.consts, before, enabled, own)
        found.append((error.effects, error._metadata))
        return [*error.leaves(error.effects), *outs]

    types = [t for e in effects for t in leaf_types(e)]
    avals = [*closed.in_avals[:first], *types, *closed.in_avals[first:]]
    program = trace_to_jaxpr(run, avals)
    return _Checked(program, *found[0])


def _checked_loop(
    programs: Sequence[ClosedJaxpr], enabled: Enabled, effects: tuple[ErrorEffect, ...],
    firsts: Sequence[int],
) -> list[_Checked]:  # fmt: skip
    """Programs whose errors are all of the same effects, before and after."""
    while True:
        done = [_checked(p, enabled, effects, n) for p, n in zip(programs, firsts, strict=True)]
        union = tuple(sorted({*effects, *(e for c in done for e in c.effects)}))
        if union == effects:
            return done
        effects = union


def _call(param: str) -> Rule:
    """For primitives that only call a program."""

    def rule(error: Error, enabled: Enabled, eqn: JaxprEqn, values: list[Any]) -> Any:
        effects = error.effects
        checked = _checked(eqn.params[param], enabled, effects, 0)
        program, enclosing = hoist_tracers(checked.program)
        leaves = error.leaves(effects)
        changed: dict[str, Any] = {param: program}
        extra = len(enclosing) + len(leaves)
        if "donated_invars" in eqn.params:
            changed["donated_invars"] = (False,) * (extra + len(values))
        outs = _bind(eqn, [*enclosing, *leaves, *values], **changed)
        return checked.split(outs, error)

    return rule


_rules[jit_p] = _call("jaxpr")
_rules[closed_call_p] = _call("jaxpr")
_rules[remat_p] = _call("jaxpr")


@_rule(check_p)
def _check(error: Error, enabled: Enabled, eqn: JaxprEqn, values: list[Any]) -> Any:
    made = tree_unflatten(eqn.params["err_tree"], values)
    for e in made.effects:
        if e.error_type in enabled:
            error = error.merged(e, made._pred[e], made._code[e], made._payload[e], made._metadata)
    return error, []


@_rule(cond_p)
def _cond(error: Error, enabled: Enabled, eqn: JaxprEqn, values: list[Any]) -> Any:
    branches = eqn.params["branches"]
    index, *operands = values
    checked = _checked_loop(branches, enabled, error.effects, [0] * len(branches))
    hoisted = [hoist_tracers(c.program) for c in checked]
    if any(consts for _, consts in hoisted):
        raise NotImplementedError("checkify of a cond whose branches close over traced values")
    leaves = error.leaves(checked[0].effects)
    programs = tuple(program for program, _ in hoisted)
    outs = _bind(eqn, [index, *leaves, *operands], branches=programs)
    metadata = {k: v for c in checked for k, v in c.metadata.items()}
    return _Checked(programs[0], checked[0].effects, metadata).split(outs, error)


@_rule(scan_p)
def _scan(error: Error, enabled: Enabled, eqn: JaxprEqn, values: list[Any]) -> Any:
    count = eqn.params["num_consts"]
    (checked,) = _checked_loop([eqn.params["jaxpr"]], enabled, error.effects, [count])
    leaves = error.leaves(checked.effects)
    program, enclosing = hoist_tracers(checked.program)
    outs = _bind(
        eqn,
        [*enclosing, *values[:count], *leaves, *values[count:]],
        jaxpr=program,
        num_consts=len(enclosing) + count,
        num_carry=len(leaves) + eqn.params["num_carry"],
    )
    return checked.split(outs, error)


@_rule(while_p)
def _while(error: Error, enabled: Enabled, eqn: JaxprEqn, values: list[Any]) -> Any:
    params = eqn.params
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    cond_n, body_n = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = values[:cond_n], values[cond_n : cond_n + body_n]
    carry = values[cond_n + body_n :]
    # The condition is checked before the loop, and after each step in place of before the next.
    error, _ = _run(cond.jaxpr, cond.consts, error, enabled, [*cond_consts, *carry])
    step = _step(body, cond, cond_n, body_n)
    (checked,) = _checked_loop([step], enabled, error.effects, [cond_n + body_n])
    leaves = error.leaves(checked.effects)
    program, enclosing = hoist_tracers(checked.program)
    outs = _bind(
        eqn,
        [*cond_consts, *enclosing, *cond_consts, *body_consts, *leaves, *carry],
        cond_jaxpr=_ignoring(cond, cond_n, len(leaves), checked.effects),
        body_jaxpr=program,
        body_nconsts=len(enclosing) + cond_n + body_n,
    )
    return checked.split(outs, error)


@memoize_on_jaxpr
def _step(body: ClosedJaxpr, cond: ClosedJaxpr, cond_n: int, body_n: int) -> ClosedJaxpr:
    """`(*cond_consts, *body_consts, *carry) -> carry`, after which the condition is computed."""
    run, test = jaxpr_as_fun(body), jaxpr_as_fun(cond)

    def step(*args: Any) -> list[Any]:
        cond_consts, rest = args[:cond_n], args[cond_n:]
        carry = run(*rest)
        test(*cond_consts, *carry)
        return carry

    avals = [*cond.in_avals[:cond_n], *body.in_avals]
    return trace_to_jaxpr(step, avals)


@memoize_on_jaxpr
def _ignoring(
    cond: ClosedJaxpr, cond_n: int, count: int, effects: tuple[ErrorEffect, ...]
) -> ClosedJaxpr:
    """The condition of a loop that carries an error too, without its checks."""

    def test(*args: Any) -> list[Any]:
        own = [*args[:cond_n], *args[cond_n + count :]]
        return _run(cond.jaxpr, cond.consts, init_error, frozenset(), own)[1]

    types = [t for e in effects for t in leaf_types(e)]
    return trace_to_jaxpr(test, [*cond.in_avals[:cond_n], *types, *cond.in_avals[cond_n:]])


def _custom(error: Error, enabled: Enabled, eqn: JaxprEqn, values: list[Any]) -> Any:
    """Calls with derivatives of their own keep these: the checks are made on a copy.

    Where the program itself has checks it is run in place of the call.
    """
    closed = eqn.params["call_jaxpr"]
    if any(isinstance(e, ErrorEffect) for e in closed.effects):
        return _run(closed.jaxpr, closed.consts, error, enabled, values)
    fixed = [stop_gradient(x) for x in values]
    error, _ = _run(closed.jaxpr, closed.consts, error, enabled, fixed)
    return error, _bind(eqn, values)


_rules[custom_jvp_call_p] = _custom
_rules[custom_vjp_call_p] = _custom


def checkify(
    f: Callable[..., Any], errors: Iterable[ErrorCategory] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """Make the checks of a function values.

    Args:
      f: a traceable function.
      errors: which checks are made: `user_checks`, `nan_checks`, `div_checks`, `index_checks`, and
        their unions `float_checks`, `automatic_checks` and `all_checks`.

    Returns:
      A function with the same arguments that returns an `Error` and the result. It may be
      transformed and compiled; checks that are added to operations are those of `f` as it was
      transformed before.

    Raises:
      TypeError: `f` is no function.

        >>> from amdjax.experimental import checkify
        >>> error, _ = checkify.checkify(lambda x: 1 / x, errors=checkify.div_checks)(jnp.zeros(()))
        >>> error.get().startswith("division by zero")
        True
    """
    if not callable(f):
        raise TypeError(f"checkify takes a function, got {f!r}")
    enabled = frozenset(errors)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        trees: list[Any] = []

        def run() -> list[Any]:
            leaves, tree = tree_flatten(f(*args, **kwargs))
            trees.append(tree)
            return leaves

        closed = trace_to_jaxpr(run, [])
        error, outs = _run(closed.jaxpr, closed.consts, init_error, enabled, [])
        return error, tree_unflatten(trees[-1], [_as_array(x) for x in outs])

    return checked


def _as_array(x: Any) -> Any:
    return jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x
