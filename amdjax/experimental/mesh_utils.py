"""Grids of devices for meshes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.mesh import grid_of
from amdjax.runtime.devices import devices as all_devices

__all__ = ["create_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, **options: Any
) -> np.ndarray:
    """Devices in an array of a shape.

    Args:
      mesh_shape: the shape; as many as there are devices.
      devices: the devices; all of the default backend if omitted.
      **options: accepted.

    Returns:
      A NumPy array of devices, of shape `mesh_shape`.

    Raises:
      ValueError: there are more or fewer devices.

        >>> create_device_mesh((1, 1)).shape
        (1, 1)
    """
    found = list(all_devices() if devices is None else devices)
    if math.prod(mesh_shape) != len(found):
        raise ValueError(
            f"Number of devices {len(found)} must equal the product of mesh_shape {mesh_shape}"
        )
    return grid_of(found, mesh_shape)


_public_surface(globals())
