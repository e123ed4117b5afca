"""Kinds of equations, and what one element of their results costs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from amdjax.core.jaxpr import JaxprEqn, Literal
from amdjax.core.lowering import Element, Pointwise

#: Operations of several instructions.
EXPENSIVE = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv",
    "lgamma", "digamma", "logistic", "pow", "cbrt", "rem", "div", "sqrt", "rsqrt", "nextafter",
))  # fmt: skip


#: Block functions of random generators: dozens of operations a word.
BLOCKS = frozenset(("threefry2x32", "threefry4x32", "philox2x32", "philox4x32"))


def is_inlinable(eqn: JaxprEqn) -> bool:
    """Whether an element of the result can be computed wherever it is needed."""
    return isinstance(eqn.primitive.lowering, (Pointwise, Element)) and not eqn.effects


def is_bitcast(eqn: JaxprEqn) -> bool:
    """Whether the result has the operand's elements in the operand's order."""
    if eqn.primitive.name in ("reshape", "squeeze", "expand_dims"):
        return not isinstance(eqn.invars[0], Literal)
    if eqn.primitive.name == "broadcast_in_dim" and not isinstance(eqn.invars[0], Literal):
        return size_of(eqn.invars[0].aval.shape) == size_of(eqn.outvars[0].aval.shape)
    return False


def size_of(shape: Iterable[int]) -> int:
    return int(np.prod(tuple(shape), dtype=np.int64))


def own_cost(eqn: JaxprEqn) -> float:
    """Of an element, without its operands; an addition costs 1."""
    rule = eqn.primitive.lowering
    if isinstance(rule, Pointwise):
        name = rule.op if isinstance(rule.op, str) else eqn.primitive.name
        return 8.0 if name in EXPENSIVE else 60.0 if name in BLOCKS else 1.0
    if reads_many(eqn):
        return 4.0 * min(64, _window_size(eqn))
    return 2.0 if eqn.primitive.name in ("gather", "concatenate", "pad") else 0.5


def _window_size(eqn: JaxprEqn) -> int:
    return size_of(eqn.params.get("window_dimensions", (4,)))


def reads_many(eqn: JaxprEqn) -> bool:
    """Whether one result element needs many operand elements."""
    return "window_dimensions" in eqn.params
