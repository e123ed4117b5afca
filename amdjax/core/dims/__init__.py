"""Symbolic dimensions: sizes of axes that only the arguments of a run tell.

polynomial.py  the normal form          operations.py  floordiv, mod, max, min in normal form
scope.py       constraints and bounds   linear.py      what inequalities imply
parse.py       from text                expression.py  the values that users compute with
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
from amdjax.core.dims.scope import SymbolicScope

__all__ = [
    "Dim", "DimSize", "SymbolicScope", "as_size", "is_symbolic_dim", "largest", "max_dim",
    "min_dim", "symbolic_dimension",
]  # fmt: skip
