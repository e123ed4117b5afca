"""`shard_map` where it once was; see `amdjax.shard_map`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax import mapping
from amdjax.core.boundaries import public_surface as _public_surface

__all__ = ["shard_map"]


def shard_map(
    f: Callable[..., Any], mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True
) -> Any:
    """Run a function on each device's part of its arguments.

    Args:
      f: a function of parts.
      mesh: the devices.
      in_specs: how arguments are divided.
      out_specs: how parts of results are joined.
      check_rep: accepted.

    Returns:
      A function of whole arrays.

        >>> mesh = amdjax.make_mesh((1,), ("x",))
        >>> double = shard_map(lambda x: 2 * x, mesh, amdjax.P("x"), amdjax.P("x"))
        >>> double(jnp.arange(3))
        Array([0, 2, 4], dtype=int32)
    """
    return mapping.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


_public_surface(globals())
