"""Collectives over mapped axes, and `stop_gradient`; they are transforms' own, offered here."""

from __future__ import annotations

from typing import Any

from amdjax.core.aval import is_valid_value
from amdjax.core.pytree import tree_map
from amdjax.transforms.collectives import (
    axis_index,
    axis_index_p,
    axis_size,
    pmax,
    pmax_p,
    pmean,
    pmin,
    pmin_p,
    ppermute,
    ppermute_p,
    pshuffle,
    psum,
    psum_p,
    pvary,
)
from amdjax.transforms.exchanges import (
    all_gather,
    all_gather_p,
    all_to_all,
    all_to_all_p,
    pbroadcast,
    psum_scatter,
    pswapaxes,
)
from amdjax.transforms.zero import stop_gradient_p

__all__ = [
    "all_gather", "all_gather_p", "all_to_all", "all_to_all_p", "axis_index", "axis_index_p",
    "axis_size", "pbroadcast", "pmax", "pmax_p", "pmean", "pmin", "pmin_p", "ppermute",
    "ppermute_p", "pshuffle", "psum", "psum_p", "psum_scatter", "pswapaxes", "pvary",
    "stop_gradient", "stop_gradient_p",
]  # fmt: skip


def stop_gradient(x: Any) -> Any:
    """The same value, of which derivatives do not know.

    Args:
      x: an array or pytree of arrays.

    Returns:
      A pytree like `x`.

    Raises:
      TypeError: if a leaf is no array.

        >>> print(amdjax.grad(lambda x: x * amdjax.lax.stop_gradient(x))(3.0))
        3.0
    """

    def stop(leaf: Any) -> Any:
        if not is_valid_value(leaf):
            raise TypeError(
                f"stop_gradient: argument {leaf!r} of type {type(leaf)} is not a valid JAX type"
            )
        return leaf if isinstance(leaf, bool) else stop_gradient_p.bind(leaf)

    return tree_map(stop, x)
