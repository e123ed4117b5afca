"""Symbolic shapes: functions traced once for sizes that only the arguments of a call tell.

Under JAX's names. Programs are traced, checked, transformed and printed; see docs/shapes.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.dims import DimSize, SymbolicScope, is_symbolic_dim, symbolic_dimension
from amdjax.core.dims.parse import split_shape
from amdjax.core.pytree import broadcast_prefix, tree_flatten
from amdjax.transforms.staging import ShapeDtypeStruct

__all__ = ["SymbolicScope", "is_symbolic_dim", "symbolic_args_specs", "symbolic_shape"]


def symbolic_shape(
    shape_spec: str, *, constraints: Sequence[str] = (), scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """A shape with symbolic dimensions, read from text.

    Args:
      shape_spec: dimensions separated by commas: integers, variables, `2*b + 1`, `floordiv(t, 16)`,
        `mod(t, 4)`, `max(a, b)`, `min(a, b)`. `_` takes the size from `like`, `...` as the last one
        all that are left of it.
      constraints: what holds of the variables, as "t <= 512", "mod(t, 8) == 0", "a >= 2*b".
      scope: that of other shapes whose variables these are; constraints are its own then.
      like: sizes for `_` and `...`; None where the size must be given.

    Returns:
      A tuple of integers and symbolic dimensions.

    Raises:
      ValueError: the text is no shape, `like` has no size where one is needed, no sizes satisfy the
        constraints, or both `scope` and `constraints` are given.

    Example:
      >>> b, t, n = amdjax.export.symbolic_shape("b, t, 512", constraints=["t <= 1024"])
      >>> b * t + 1, n, t <= 2000
      (b*t + 1, 512, True)
    """
    if scope is not None and constraints:
        raise ValueError("symbolic_shape: give constraints to the scope when it is made, not here")
    if not isinstance(shape_spec, str):
        raise ValueError(f"symbolic_shape: shape_spec must be a string, got {shape_spec!r}")
    scope = SymbolicScope(constraints) if scope is None else scope
    parts = split_shape(shape_spec)
    known = None if like is None else list(like)
    if parts and parts[-1] == "...":
        left = [] if known is None else known[len(parts) - 1 :]
        parts = [*parts[:-1], *["_"] * len(left)]
        if known is None:
            raise ValueError(f"symbolic_shape: '...' in {shape_spec!r} needs like=")
    if known is not None and len(parts) != len(known):
        raise ValueError(
            f"symbolic_shape: {shape_spec!r} has {len(parts)} dimensions, like={tuple(known)} has "
            f"{len(known)}"
        )
    return tuple(_dimension(part, i, known, scope, shape_spec) for i, part in enumerate(parts))


def _dimension(
    part: str, at: int, known: list[int | None] | None, scope: SymbolicScope, spec: str
) -> DimSize:
    if part == "...":
        raise ValueError(f"symbolic_shape: '...' must be the last dimension, got {spec!r}")
    if part != "_":
        return symbolic_dimension(part, scope)
    size = None if known is None else known[at]
    if size is None:
        raise ValueError(f"symbolic_shape: '_' as dimension {at} of {spec!r} needs like=")
    return size


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
