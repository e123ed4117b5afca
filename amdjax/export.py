"""Symbolic shapes: functions traced once for sizes that only the arguments of a call tell.

Under JAX's names. Programs are traced, checked, transformed and printed; see docs/shapes.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.dims import SymbolicScope, is_symbolic_dim, symbolic_shape
from amdjax.core.pytree import broadcast_prefix, tree_flatten
from amdjax.transforms.staging import ShapeDtypeStruct

__all__ = ["SymbolicScope", "is_symbolic_dim", "symbolic_args_specs", "symbolic_shape"]


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:  # fmt: skip
    """Descriptions of arguments of which some dimensions are symbolic.

    Args:
      args: a pytree of arrays or `ShapeDtypeStruct`s.
      shapes_specs: a pytree of texts as for `symbolic_shape`, or a prefix of one; None where
        shapes are fixed.
      constraints, scope: as for `symbolic_shape`; one scope serves all.

    Returns:
      A pytree of `ShapeDtypeStruct` as `args`.

    Raises:
      ValueError: as `symbolic_shape`; the trees do not match.

    Example:
      >>> x, w = np.zeros((2, 8), np.float32), np.zeros((8, 4), np.float32)
      >>> amdjax.export.symbolic_args_specs((x, w), ("b, _", None))[0]
      ShapeDtypeStruct(shape=(b, 8), dtype=float32)
    """
    if scope is not None and constraints:
        raise ValueError("symbolic_args_specs: give constraints to the scope when it is made")
    scope = SymbolicScope(constraints) if scope is None else scope
    leaves, tree = tree_flatten(args)
    specs = broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None)
    found = []
    for leaf, spec in zip(leaves, specs):
        aval = get_aval(leaf)
        text = "..." if spec is None else spec
        shape = symbolic_shape(text, scope=scope, like=aval.shape)
        found.append(ShapeDtypeStruct(shape, aval.dtype, weak_type=aval.weak_type))
    return tree.unflatten(found)
