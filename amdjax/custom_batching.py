"""Functions with batching rules of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax import lax
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.transforms.custom_vmap import custom_vmap
from amdjax.tree_util import tree_flatten, tree_map, tree_unflatten

__all__ = ["custom_vmap", "sequential_vmap"]


def sequential_vmap(fun: Callable[..., Any]) -> custom_vmap:
    """A function that `vmap` applies to one element after another.

    Args:
      fun: a function of pytrees of arrays, with positional arguments.

    Returns:
      A `custom_vmap` function with such a rule.

        >>> @amdjax.custom_batching.sequential_vmap
        ... def double(x):
        ...     return 2 * x
        >>> amdjax.vmap(double)(jnp.arange(3))
        Array([0, 2, 4], dtype=int32)
    """
    custom = custom_vmap(fun)

    @custom.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *args: Any) -> Any:
        leaves, tree = tree_flatten(args)
        batched = tree_flatten(tuple(in_batched))[0]

        def one(xs: list[Any]) -> Any:
            mapped = iter(xs)
            values = [next(mapped) if b else x for x, b in zip(leaves, batched)]
            return custom(*tree_unflatten(tree, values))

        out = lax.map(one, [x for x, b in zip(leaves, batched) if b])
        return out, tree_map(lambda _: True, out)

    return custom


_public_surface(globals())
