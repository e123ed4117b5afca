"""What several processes do together; there is one, which is always agreed with itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.pytree import tree_broadcast, tree_map
from amdjax.device import device_get, device_put
from amdjax.sharding import NamedSharding

__all__ = [
    "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
    "host_local_array_to_global_array", "process_allgather", "sync_global_devices",
]  # fmt: skip


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The arrays of the first process, as NumPy arrays.

    Args:
      in_tree: a pytree of arrays.
      is_source: accepted.

    Returns:
      A pytree of NumPy arrays.

        >>> broadcast_one_to_all([jnp.ones(1)])
        [array([1.], dtype=float32)]
    """
    return tree_map(np.asarray, in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes, as NumPy arrays.

    Args:
      in_tree: a pytree of arrays.
      tiled: whether arrays are joined along their first axis, not stacked along a new one.

    Returns:
      A pytree of NumPy arrays, with an axis of processes in front unless `tiled`.

        >>> process_allgather(np.arange(2)).shape, process_allgather(np.arange(2), tiled=True).shape
        ((1, 2), (2,))
    """
    return tree_map(lambda x: np.asarray(x) if tiled else np.asarray(x)[None], device_get(in_tree))


def sync_global_devices(name: str) -> None:
    """Wait for all processes.

    Args:
      name: of the place where they meet.

        >>> sync_global_devices("start")
    """


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise unless all processes have the same arrays.

    Args:
      in_tree: a pytree of arrays.
      fail_message: what the error says.

        >>> assert_equal(jnp.ones(1))
    """


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """Arrays of this process as parts of arrays over a mesh.

    Args:
      local_inputs: a pytree of arrays.
      global_mesh: the mesh.
      pspecs: how they are divided, a prefix of specifications.

    Returns:
      A pytree of arrays.

        >>> mesh = amdjax.make_mesh((1,), ("x",))
        >>> host_local_array_to_global_array(jnp.ones(2), mesh, amdjax.P("x")).shape
        (2,)
    """
    specs = tree_broadcast(pspecs, local_inputs)
    return tree_map(
        lambda x, spec: device_put(x, NamedSharding(global_mesh, spec)), local_inputs, specs
    )


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """The parts that this process has of arrays over a mesh: all of them.

    Args:
      global_inputs: a pytree of arrays.
      global_mesh: accepted.
      pspecs: accepted.

    Returns:
      `global_inputs`.

        >>> mesh = amdjax.make_mesh((1,), ("x",))
        >>> global_array_to_host_local_array(jnp.ones(2), mesh, amdjax.P("x")).shape
        (2,)
    """
    return global_inputs


_public_surface(globals())
