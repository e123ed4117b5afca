"""Dead code: programs without the results, operations and arguments that nothing reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amdjax.core.effects import has_side_effects
from amdjax.core.jaxpr import Jaxpr, JaxprEqn, Literal, close_consts, memoize_on_jaxpr
from amdjax.core.primitive import Primitive

DceRule = Callable[[Sequence[bool], JaxprEqn], tuple[list[bool], JaxprEqn | None]]


dce_rules: dict[Primitive, DceRule] = {}
"""For primitives with sub-programs: `rule(used_outputs, eqn) -> (used_inputs, eqn or None)`."""


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """Remove outputs and the operations that only they need.

    Args:
      jaxpr: the program.
      used_outputs: which results to keep.
      instantiate: which arguments to keep though nothing reads them.

    Returns:
      The program with unused arguments removed, and which arguments it kept. Equations with side
      effects stay.

        >>> jaxpr = amdjax.make_jaxpr(lambda x, y: (x, y + 1))(1.0, 2.0).jaxpr
        >>> dce_jaxpr(jaxpr, [True, False])[1]
        [True, False]
    """
    if isinstance(instantiate, bool):
        instantiate = (instantiate,) * len(jaxpr.invars)
    return _dce_jaxpr(jaxpr, tuple(map(bool, used_outputs)), tuple(map(bool, instantiate)))


@memoize_on_jaxpr
def _dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: tuple[bool, ...], instantiate: tuple[bool, ...]
) -> tuple[Jaxpr, list[bool]]:
    outvars = [v for v, used in zip(jaxpr.outvars, used_outputs) if used]
    live = {v for v in outvars if type(v) is not Literal}
    eqns = []
    for eqn in reversed(jaxpr.eqns):
        used = [v in live for v in eqn.outvars]
        rule = dce_rules.get(eqn.primitive)
        if rule is not None:
            used_ins, new = rule(used, eqn)
        elif any(used) or has_side_effects(eqn.effects):
            used_ins, new = [True] * len(eqn.invars), eqn
        else:
            used_ins, new = [False] * len(eqn.invars), None
        if new is not None:
            eqns.append(new)
        live.update(v for v, u in zip(eqn.invars, used_ins) if u and type(v) is not Literal)
    used_inputs = [v in live or keep for v, keep in zip(jaxpr.invars, instantiate)]
    invars = [v for v, used in zip(jaxpr.invars, used_inputs) if used]
    debug = jaxpr.debug_info if all(used_inputs) else None
    new_jaxpr = Jaxpr(jaxpr.constvars, invars, outvars, eqns[::-1], None, debug)
    return new_jaxpr, used_inputs


def dce_closed_call(param: str) -> DceRule:
    """A dead-code rule for primitives that call the closed jaxpr in `params[param]`."""

    def rule(used: Sequence[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        if not any(used) and not has_side_effects(eqn.effects):
            return [False] * len(eqn.invars), None
        closed = eqn.params[param]
        jaxpr, used_ins = dce_jaxpr(closed.jaxpr, used)
        if all(used_ins) and all(used) and len(jaxpr.eqns) == len(closed.eqns):
            return used_ins, eqn
        params = {**eqn.params, param: close_consts(jaxpr, tuple(closed.consts))}
        if "donated_invars" in params:
            donated = params["donated_invars"]
            params["donated_invars"] = tuple(d for d, u in zip(donated, used_ins) if u)
        invars = [v for v, u in zip(eqn.invars, used_ins) if u]
        outvars = [v for v, u in zip(eqn.outvars, used) if u]
        return used_ins, eqn.replace(
            invars=invars, outvars=outvars, params=params, effects=jaxpr.effects
        )

    return rule
