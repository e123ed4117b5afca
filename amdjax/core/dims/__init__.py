"""Symbolic dimensions: sizes of axes that only the arguments of a run tell.

polynomial.py  the normal form          operations.py  floordiv, mod, max, min in normal form
scope.py       constraints and bounds   linear.py      what inequalities imply
parse.py       from text                expression.py  the values that users compute with
sized.py       sizes at hand: decisions, and the guards of what they are right for
shapes.py      shapes from text, and what sizes of arrays tell of variables
intervals.py   bounds                           asking.py      who asks: for messages
departures.py  sizes that are traced apart
"""

from amdjax.core.dims.expression import (
    Dim,
    DimSize,
    as_size,
    is_symbolic_dim,
    largest,
    max_dim,
    min_dim,
    symbolic_dimension,
)
from amdjax.core.dims.polynomial import compiled
from amdjax.core.dims.scope import SymbolicScope
from amdjax.core.dims.shapes import (
    ShapeEquations,
    Unsolvable,
    holds_or_is_assumed,
    scope_of,
    shape_variables,
    solve,
    symbolic_shape,
    variables_of,
)
from amdjax.core.dims.sized import (
    Choice,
    Estimate,
    Guard,
    SizedScope,
    at_sizes,
    bound,
    capped,
    cheapest,
    choosing,
    covering,
    divisor,
    estimated,
    fits,
    fits_at_hand,
    in_units,
    is_multiple,
    is_multiple_at_hand,
    is_natural,
    like_at_hand,
    no_less,
    same_shape,
    size_hint,
    surely_equal,
    text_at_hand,
)

__all__ = [
    "Choice", "Dim", "DimSize", "Estimate", "Guard", "ShapeEquations", "SizedScope",
    "SymbolicScope", "Unsolvable", "as_size", "at_sizes", "bound", "capped", "cheapest", "choosing",
    "compiled", "covering", "divisor", "estimated", "fits", "fits_at_hand", "holds_or_is_assumed",
    "in_units", "is_multiple", "is_multiple_at_hand", "is_natural", "is_symbolic_dim", "largest",
    "like_at_hand", "max_dim", "min_dim", "no_less", "same_shape", "scope_of", "shape_variables",
    "size_hint", "solve", "surely_equal", "symbolic_dimension", "symbolic_shape", "text_at_hand",
    "variables_of",
]  # fmt: skip
