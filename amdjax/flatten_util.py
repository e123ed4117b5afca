"""Trees of arrays as one vector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.core.pytree import tree_flatten, tree_unflatten

__all__ = [
    "ravel_pytree",
]


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """All leaves of a tree, flattened and joined, and the function that undoes this.

    Args:
      pytree: a tree of arrays and numbers.

    Returns:
      A vector of the promoted dtype, and a function from such vectors to trees.

    Raises:
      TypeError: a leaf is no array and no number, or the function is given another dtype.
      ValueError: the function is given a vector of another length or dtype.

    Example:
      >>> flat, unravel = amdjax.flatten_util.ravel_pytree({"a": jnp.zeros(2), "b": 1.0})
      >>> flat
      Array([0., 0., 1.], dtype=float32)
      >>> unravel(flat)["b"]
      Array(1., dtype=float32)
    """
    leaves, treedef = tree_flatten(pytree)
    if not leaves:
        return jnp.zeros((0,)), lambda flat: tree_unflatten(treedef, [])
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    target = promotion.result_type(*leaves)
    flat = jnp.concatenate([jnp.ravel(x).astype(target) for x in arrays])
    cuts = np.cumsum([x.size for x in arrays])[:-1].tolist()
    kinds = [(x.shape, x.dtype) for x in arrays]

    def unravel(vector: Any) -> Any:
        if jnp.shape(vector) != flat.shape:
            raise ValueError(
                f"unravel function given array of shape {jnp.shape(vector)}, but expected array of"
                f" shape {flat.shape}"
            )
        if dtypes.dtype(vector) != target:
            raise TypeError(
                f"unravel function given array of dtype {dtypes.dtype(vector)}, but expected dtype"
                f" {target}"
            )
        parts = jnp.split(vector, cuts)
        with warnings.catch_warnings():
            # Back from a complex vector to real leaves the imaginary parts are dropped knowingly.
            warnings.simplefilter("ignore")
            back = [p.reshape(shape).astype(dtype) for p, (shape, dtype) in zip(parts, kinds)]
        return tree_unflatten(treedef, back)

    return flat, unravel


_public_surface(globals())
