"""Kinds of equations, and what one element of their results costs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from amdjax.core.jaxpr import JaxprEqn, Literal
from amdjax.core.lowering import Element, Pointwise
from amdjax.tile.ops.elementwise import ELEMENTWISE

RECOMPUTE_LIMIT = 6  # cost above which a value with several readers is worth keeping


def is_inlinable(eqn: JaxprEqn) -> bool:
    """Whether an element of the result can be computed wherever it is needed."""
    return isinstance(eqn.primitive.lowering, (Pointwise, Element)) and not eqn.effects


def is_bitcast(eqn: JaxprEqn) -> bool:
    """Whether the result has the operand's elements in the operand's order."""
    rule = eqn.primitive.lowering
    if not isinstance(rule, Element) or not rule.keeps_order or isinstance(eqn.invars[0], Literal):
        return False
    return size_of(eqn.invars[0].aval.shape) == size_of(eqn.outvars[0].aval.shape)


def size_of(shape: Iterable[int]) -> int:
    return math.prod(shape)


def own_cost(eqn: JaxprEqn) -> float:
    """Of an element, without its operands; an addition costs 1."""
    rule = eqn.primitive.lowering
    if isinstance(rule, Pointwise):
        if rule.cost is not None:
            return rule.cost
        op = ELEMENTWISE.get(rule.op) if isinstance(rule.op, str) else None
        return op.cost if op is not None else 1.0
    if not isinstance(rule, Element):
        return 0.5
    return rule.cost(eqn.params) if callable(rule.cost) else rule.cost


def cost_again(eqn: JaxprEqn) -> float:
    """Of an element that is computed once more; infinite where that is not worth it."""
    apart = is_inlinable(eqn) and not reads_many(eqn)
    return own_cost(eqn) if apart and own_cost(eqn) <= RECOMPUTE_LIMIT else math.inf


def reads_many(eqn: JaxprEqn) -> bool:
    """Whether one result element needs many operand elements."""
    rule = eqn.primitive.lowering
    return isinstance(rule, Element) and rule.reads_many
