"""`shard_map` where it once was; see `amdjax.shard_map`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax import mapping
from amdjax.core.errors import public_surface as _public_surface

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
    """
    return mapping.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


_public_surface(globals())
