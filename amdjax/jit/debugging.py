"""Finding where a NaN or infinity first appears."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.aval import get_aval
from amdjax.core.config import config, debug_infs, debug_nans
from amdjax.core.dtypes import ExtendedDType
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.jit.arrays import Runner


def watched_values(closed: ClosedJaxpr, run: Runner, donated: Sequence[bool]) -> Runner:
    """How to run a compiled program so that what the flags forbid raises where it first appears.

    Args:
      closed: the program.
      run: how to run it compiled.
      donated: which of its arguments that may overwrite. Where it raises they are left whole, so
        that the search can read them.
    """

    def checked(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        with debug_nans(False), debug_infs(False):
            given = [x.copy() if d else x for x, d in zip_longest(args, donated)]
        outs = run(given)
        if any(_invalid(x, config.debug_nans, config.debug_infs) for x in outs):
            _find_invalid(closed, args)
        for x, used in zip(args, given):
            if used.buffer is None:
                x.buffer = None
        return outs

    return checked


def _invalid(x: Any, nans: bool, infs: bool) -> str | None:
    if isinstance(get_aval(x).dtype, ExtendedDType):
        return None
    values = np.asarray(x)
    if values.dtype.kind not in "fcV" or (values.dtype.kind == "V" and values.dtype.itemsize > 2):
        return None
    values = values if values.dtype.kind in "fc" else values.astype(np.float32)
    if nans and np.isnan(values).any():
        return "nan"
    if infs and np.isinf(values).any():
        return "inf"
    return None


def check_results(
    primitive: Primitive,
    params: Mapping[str, Any],
    args: Sequence[ConcreteArray],
    outs: Sequence[ConcreteArray],
) -> None:
    """Raise if an operation that ran by itself made what the flags forbid."""
    forbidden = config.debug_nans, config.debug_infs
    for x in outs:
        kind = _invalid(x, *forbidden)
        if kind is not None:
            with debug_nans(False), debug_infs(False):
                _look_inside(primitive, params, args, forbidden)
            raise FloatingPointError(f"invalid value ({kind}) encountered in {primitive.name}")


def _find_invalid(closed: ClosedJaxpr, args: Sequence[Any]) -> None:
    """Run a program operation by operation and raise at the first invalid result."""
    forbidden = config.debug_nans, config.debug_infs
    with debug_nans(False), debug_infs(False):
        _find(closed, args, forbidden)
    raise FloatingPointError(
        "invalid value encountered in the result of a jitted function; the de-optimized function "
        "did not make it out of valid ones: it is in an input or a literal, or comes from how the "
        "compiled program rounds"
    )


def _find(closed: ClosedJaxpr, args: Sequence[Any], forbidden: tuple[bool, bool]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else env[atom]

    for eqn in closed.jaxpr.eqns:
        values = [read(x) for x in eqn.invars]
        rule = eqn.primitive.lowering
        if isinstance(rule, Control) and rule.name == "call":
            outs = _find_in_call(rule, eqn.params, values, forbidden)
        else:
            out = eqn.primitive.bind(*values, **eqn.params)
            outs = out if eqn.primitive.multiple_results else [out]
        kinds = filter(None, (_invalid(x, *forbidden) for x in outs))
        # What has such a value among its operands may well pass it on.
        if not any(_invalid(x, *forbidden) for x in values):
            for kind in kinds:
                _look_inside(eqn.primitive, eqn.params, values, forbidden)
                raise FloatingPointError(
                    f"invalid value ({kind}) encountered in {eqn.primitive.name}, "
                    f"computed at {eqn.source}"
                )
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in closed.jaxpr.outvars]


def _find_in_call(
    rule: Control, params: Mapping[str, Any], args: Sequence[Any], forbidden: tuple[bool, bool]
) -> list[Any]:
    inner = params[rule.jaxpr_param]
    inner = ClosedJaxpr(inner, ()) if isinstance(inner, Jaxpr) else inner
    return _find(inner, args[len(args) - len(inner.jaxpr.invars) :], forbidden)


def _look_inside(
    primitive: Primitive,
    params: Mapping[str, Any],
    args: Sequence[Any],
    forbidden: tuple[bool, bool],
) -> None:
    """Raise for the operation in a call, loop or branch that made what is forbidden.

    Steps run as they are compiled, and only the first that goes wrong operation by operation.
    Returns if none is found: a step may round differently when it runs alone.
    """
    rule = primitive.lowering
    if not isinstance(rule, Control):
        return
    if rule.name == "call":
        _find_in_call(rule, params, args, forbidden)
        return
    run = _compiled()
    for body, inputs in _STEPS.get(rule.name, lambda *_: iter(()))(params, args, run):
        outs = run(body, inputs)
        if any(_invalid(x, *forbidden) for x in outs):
            _find(body, inputs, forbidden)
            return


_Run = Callable[[ClosedJaxpr, Sequence[Any]], list[Any]]
_Steps = Iterator[tuple[ClosedJaxpr, list[Any]]]


def _compiled() -> _Run:
    """What runs programs, each compiled once."""
    # late: jit stands above
    from amdjax.jit.api import jit

    programs: dict[int, Any] = {}

    def run(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        if id(closed) not in programs:
            programs[id(closed)] = jit(jaxpr_as_fun(closed))
        return programs[id(closed)](*args)

    return run


def _cond_steps(params: Mapping[str, Any], args: Sequence[Any], run: _Run) -> _Steps:
    branches = params["branches"]
    yield branches[min(max(int(args[0]), 0), len(branches) - 1)], list(args[1:])


def _while_steps(params: Mapping[str, Any], args: Sequence[Any], run: _Run) -> _Steps:
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, consts = list(args[:n_cond]), list(args[n_cond : n_cond + n_body])
    carry = list(args[n_cond + n_body :])
    # A loop over a batch goes on while any element does; the others keep their carry by a select.
    while np.any(np.asarray(run(params["cond_jaxpr"], [*cond_consts, *carry])[0])):
        yield params["body_jaxpr"], [*consts, *carry]
        carry = run(params["body_jaxpr"], [*consts, *carry])


def _scan_steps(params: Mapping[str, Any], args: Sequence[Any], run: _Run) -> _Steps:
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    consts, carry = list(args[:n_consts]), list(args[n_consts : n_consts + n_carry])
    columns = [np.asarray(x) for x in args[n_consts + n_carry :]]
    steps = range(params["length"])
    for i in reversed(steps) if params["reverse"] else steps:
        inputs = [*consts, *carry, *(asarray_concrete(x[i]) for x in columns)]
        yield params["jaxpr"], inputs
        carry = run(params["jaxpr"], inputs)[:n_carry]


#: The steps of what `Control` lays out, one after the other: each is a program and its arguments.
_STEPS: dict[str, Callable[[Mapping[str, Any], Sequence[Any], _Run], _Steps]] = {
    "cond": _cond_steps,
    "while": _while_steps,
    "scan": _scan_steps,
}
