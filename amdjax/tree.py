"""Functions on pytrees, under short names: ``amdjax.tree.map(f, tree)``."""

import dataclasses
from typing import Any

import amdjax.tree_util  # noqa: F401  # completes docstrings
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.pytree import (
    tree_all as all,
    tree_broadcast as broadcast,
    tree_flatten as flatten,
    tree_flatten_with_path as flatten_with_path,
    tree_leaves as leaves,
    tree_leaves_with_path as leaves_with_path,
    tree_map as map,
    tree_map_with_path as map_with_path,
    tree_reduce as reduce,
    tree_reduce_associative as reduce_associative,
    tree_structure as structure,
    tree_transpose as transpose,
    tree_unflatten as unflatten,
)

__all__ = [
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map",
    "map_with_path", "reduce", "reduce_associative", "static", "structure", "transpose",
    "unflatten",
]  # fmt: skip


def static(**kwargs: Any) -> Any:
    """A dataclass field which belongs to the structure instead of holding children.

    Args:
      kwargs: as for `dataclasses.field`.

    Returns:
      A field.

        >>> from amdjax.tree_util import register_dataclass
        >>> @register_dataclass
        ... @dataclasses.dataclass
        ... class Layer:
        ...     weight: float
        ...     name: str = static(default="dense")
        >>> leaves(Layer(1.0))
        [1.0]
    """
    metadata = {"static": True, **(kwargs.pop("metadata", None) or {})}
    return dataclasses.field(metadata=metadata, **kwargs)


_public_surface(globals())
