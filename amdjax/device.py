"""Moving values to devices and back, and asking what devices there are."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray, asarray_concrete, get_backend
from amdjax.core.aval import is_extended, is_valid_value
from amdjax.core.errors import public_surface as _public_surface
from amdjax.core.pytree import keystr, tree_map, tree_map_with_path
from amdjax.core.trace import Tracer

__all__ = ["device_get", "device_put"]


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """Put a pytree of arrays on a device.

    An array that was put on a device is committed to it: operations on it run there, and so do
    those on their results. Without `device` values go to the default device, but are moved to
    wherever an operation needs them; arrays stay where they are. Traced values are returned as
    they are: a program runs where its arguments are.

    Args:
      x: a pytree of arrays, NumPy arrays or scalars.
      device: one of `amdjax.devices()`, of any platform; the default device if omitted.
      src: accepted.
      donate: accepted; memory is shared where it can be.
      may_alias: accepted.

    Returns:
      A pytree of arrays like `x`.

    Raises:
      TypeError: a leaf is not an array, or `device` is not a device.
      MemoryError: the device has no memory left.

    Example:
      >>> import amdjax, numpy as np
      >>> amdjax.device_put({"a": np.zeros(2, np.float32)})
      {'a': Array([0., 0.], dtype=float32)}
    """
    backend = get_backend()

    def put(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, Tracer):
            return backend.device_put(leaf, device)
        if not is_valid_value(leaf) and not hasattr(leaf, "__jax_array__"):
            raise TypeError(
                f"device_put: x{keystr(path)} of type {type(leaf).__name__} is not an array"
            )
        return backend.device_put(asarray_concrete(leaf), device)

    return tree_map_with_path(put, x)


def device_get(x: Any) -> Any:
    """A pytree of arrays as NumPy arrays.

    Args:
      x: a pytree; leaves that are not arrays, and keys, pass through.

    Returns:
      A pytree of NumPy arrays like `x`, which may share memory with it and then cannot be written.

    Example:
      >>> import amdjax, amdjax.numpy as jnp
      >>> amdjax.device_get(jnp.arange(3))
      array([0, 1, 2], dtype=int32)
    """

    def get(leaf: Any) -> Any:
        if not isinstance(leaf, (ConcreteArray, Tracer)) or is_extended(leaf.aval):
            return leaf
        return np.asarray(leaf)

    return tree_map(get, x)


_public_surface(globals())
