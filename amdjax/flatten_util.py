"""Trees of arrays as one vector."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_unflatten
from amdjax.numpy._util import check_arraylike, convert

__all__ = [
    "ravel_pytree",
]


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """All leaves of a tree, flattened and joined, and the function that undoes this.

    Args:
      pytree: a tree of arrays and numbers.

    Returns:
      A vector of the promoted dtype, and a function from such vectors to trees; if all leaves have
      one dtype, from vectors of any dtype. The functions of equal structures are equal.

    Raises:
      TypeError: a leaf is no array and no number, or the function is given another dtype.
      ValueError: the function is given a vector of another length or dtype.

        >>> flat, unravel = amdjax.flatten_util.ravel_pytree({"a": jnp.zeros(2), "b": 1.0})
        >>> flat
        Array([0., 0., 1.], dtype=float32)
        >>> unravel(flat)["b"]
        Array(1., dtype=float32)
    """
    leaves, treedef = tree_flatten(pytree)
    if not leaves:
        return jnp.zeros((0,), jnp.float32), lambda flat: tree_unflatten(treedef, [])
    check_arraylike("ravel_pytree", *leaves)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    target, weak = promotion.lattice_result_type(*leaves)
    flat = jnp.concatenate([jnp.ravel(convert(x, target, weak)) for x in arrays])
    return flat, _Unravel(treedef, tuple((x.shape, x.dtype) for x in arrays), target)


@dataclasses.dataclass(frozen=True)
class _Unravel:
    """Makes trees of vectors; equal for trees of equal structure, so that it can be static.

    Args:
      treedef: the structure.
      kinds: shape and dtype of each leaf.
      target: the dtype that vectors have. If it is that of all leaves, vectors of any dtype are
        taken, and leaves get theirs.
    """

    treedef: PyTreeDef
    kinds: tuple[tuple[tuple[int, ...], Any], ...]
    target: Any

    def __call__(self, vector: Any) -> Any:
        sizes = [math.prod(shape) for shape, _ in self.kinds]
        if jnp.shape(vector) != (sum(sizes),):
            raise ValueError(
                f"unravel function given array of shape {jnp.shape(vector)}, but expected array of"
                f" shape {(sum(sizes),)}"
            )
        got = dtypes.dtype(vector)
        alike = all(dtype == self.target for _, dtype in self.kinds)
        if got != self.target and not alike:
            raise TypeError(
                f"unravel function given array of dtype {got}, but expected dtype {self.target}"
            )
        parts = jnp.split(vector, np.cumsum(sizes)[:-1].tolist())
        with warnings.catch_warnings():
            # Back from a complex vector to real leaves the imaginary parts are dropped knowingly.
            warnings.simplefilter("ignore")
            back = [
                part.reshape(shape).astype(got if alike else dtype)
                for part, (shape, dtype) in zip(parts, self.kinds)
            ]
        return tree_unflatten(self.treedef, back)


_public_surface(globals())
