"""Layouts: how an array's elements follow each other in memory; and formats, with their shardings.

Arrays lie in row-major order here; other layouts are refused.
"""

from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.constraints import check_layout
from amdjax.core.pytree import tree_flatten
from amdjax.core.pytree_errors import flatten_axes
from amdjax.core.sharding import Format as Format, Layout as Layout

__all__ = ["Format", "Layout", "with_layout_constraint"]


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """Arrays with a check that they lie in memory as layouts say.

    Args:
      x: a pytree of arrays.
      layouts: a `Layout`, or a pytree of them that is a prefix of `x`.

    Returns:
      `x`.

    Raises:
      ValueError: something is no layout, or one of arrays of another rank.
      NotImplementedError: a layout is not row-major.

        >>> with_layout_constraint(jnp.ones((1, 2)), Layout(major_to_minor=(0, 1)))
        Array([[1., 1.]], dtype=float32)
    """
    leaves, tree = tree_flatten(x)
    for leaf, layout in zip(leaves, flatten_axes("with_layout_constraint layouts", tree, layouts)):
        if not isinstance(layout, Layout):
            raise ValueError(
                "layouts passed to `with_layout_constraint` must be of type `Layout`. Got "
                f"{layout!r} of type {type(layout).__name__}"
            )
        check_layout(Format(layout), get_aval(leaf).ndim, "with_layout_constraint")
    return x


_public_surface(globals())
