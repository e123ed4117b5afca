"""Moving values to devices and back, and asking what devices there are."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from amdjax.core import transfers
from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.aval import is_extended, is_valid_value
from amdjax.core.backend import get_backend
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.pytree import (
    keystr,
    tree_broadcast,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_map_with_path,
    tree_structure,
    tree_unflatten,
    treedef_is_leaf,
)
from amdjax.core.pytree_errors import flatten_axes
from amdjax.core.trace import Tracer
from amdjax.transforms.transfers import put_traced

__all__ = [
    "copy_to_host_async", "device_get", "device_put", "make_array_from_callback",
    "make_array_from_process_local_data", "make_array_from_single_device_arrays",
]  # fmt: skip


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """Put a pytree of arrays on a device.

    An array that was put on a device is committed to it: operations on it run there, and so do
    those on their results. Without `device` values go to the default device, but are moved to
    wherever an operation needs them; arrays stay where they are. A program runs where its
    arguments are: of traced values only the memory space changes, which is part of their types.

    Args:
      x: a pytree of arrays, NumPy arrays or scalars.
      device: one of `amdjax.devices()`, of any platform, or a sharding of one device, whose
        `memory_kind` may be "pinned_host"; or `memory.Space.Device` or `memory.Space.Host`, the
        memory that the array's device computes in or that of the host, from which the device can
        copy; or a pytree of them that is a prefix of `x`; the default device if omitted.
      src: accepted.
      donate: accepted; memory is shared where it can be.
      may_alias: whether the result may be `x` itself or share its memory, as it does by default
        where it can; False for a copy.

    Returns:
      A pytree of arrays like `x`.

    Raises:
      TypeError: a leaf is not an array.
      ValueError: `device` is not a device, a sharding does not fit a leaf's shape, or both
        `may_alias` and `donate` are true.
      NotImplementedError: a sharding spans several devices.
      MemoryError: the device has no memory left.

        >>> amdjax.device_put({"a": np.zeros(2, np.float32)})
        {'a': Array([0., 0.], dtype=float32)}
    """
    if may_alias is True and donate is True:
        raise ValueError("device_put: may_alias and donate cannot be True at the same time.")
    backend = get_backend()

    def put(path: Any, leaf: Any, device: Any) -> Any:
        if isinstance(leaf, Tracer):
            return put_traced(backend.device_put(leaf, device), device, src)
        if not is_valid_value(leaf) and not hasattr(leaf, "__jax_array__"):
            raise TypeError(
                f"device_put: x{keystr(path)} of type {type(leaf).__name__} is not an array"
            )
        with transfers.explicit():
            if not isinstance(leaf, ConcreteArray):
                transfers.check("host_to_device", f"device_put of {type(leaf).__name__}")
            found = backend.device_put(asarray_concrete(leaf), device)
            apart = may_alias is False and isinstance(leaf, ConcreteArray)
            return copy.copy(found) if apart else found

    if device is None or treedef_is_leaf(tree_structure(device)):
        return tree_map_with_path(lambda path, leaf: put(path, leaf, device), x)
    leaves, tree = tree_flatten_with_path(x)
    devices = flatten_axes("device_put device", tree, device)
    return tree_unflatten(tree, [put(*leaf, d) for leaf, d in zip(leaves, devices)])


def copy_to_host_async(x: Any) -> Any:
    """Begin to copy arrays to the host, where `numpy.asarray` will want them.

    Args:
      x: a pytree; leaves without a method `copy_to_host_async` are left alone.

    Returns:
      `x`.

        >>> copy_to_host_async([jnp.ones(2), "text"])
        [Array([1., 1.], dtype=float32), 'text']
    """
    for leaf in tree_leaves(x):
        begin = getattr(leaf, "copy_to_host_async", None)
        if begin is not None:
            begin()
    return x


def device_get(x: Any) -> Any:
    """A pytree of arrays as NumPy arrays.

    Args:
      x: a pytree; leaves that are not arrays, and keys, pass through.

    Returns:
      A pytree of NumPy arrays like `x`, which may share memory with it and then cannot be written.

        >>> amdjax.device_get(jnp.arange(3))
        array([0, 1, 2], dtype=int32)
    """

    def get(leaf: Any) -> Any:
        if not isinstance(leaf, (ConcreteArray, Tracer)) or is_extended(leaf.aval):
            return leaf
        return np.asarray(leaf)

    with transfers.explicit():
        return tree_map(get, x)


def make_array_from_callback(
    shape: Any, sharding: Any, data_callback: Any, *, dtype: Any = None
) -> Any:
    """An array whose parts a function gives.

    Args:
      shape: the array's.
      sharding: how it is divided; of one device.
      data_callback: `data_callback(index)`, the part at a tuple of slices, an array.
      dtype: the dtype that the parts must have, if given.

    Raises:
      ValueError: a part has another shape or dtype.

        >>> from amdjax.sharding import SingleDeviceSharding
        >>> whole = np.arange(4.0, dtype=np.float32)
        >>> here = SingleDeviceSharding(amdjax.devices()[0])
        >>> make_array_from_callback((4,), here, lambda index: whole[index])
        Array([0., 1., 2., 3.], dtype=float32)
    """
    ((_, index),) = sharding.devices_indices_map(shape).items()
    part = asarray_concrete(data_callback(index))
    if part.shape != tuple(shape):
        raise ValueError(
            f"make_array_from_callback: the part at {index} must have shape {tuple(shape)}, "
            f"data_callback returned {part.shape}"
        )
    if dtype is not None and part.dtype != np.dtype(dtype):
        raise ValueError(
            f"make_array_from_callback: data_callback returned dtype {part.dtype}, not {dtype}"
        )
    return device_put(part, sharding)


def make_array_from_single_device_arrays(
    shape: Any, sharding: Any, arrays: Any, *, dtype: Any = None
) -> Any:
    """An array of its parts.

    Args:
      shape: the array's.
      sharding: how it is divided; of one device.
      arrays: the parts, one for each device.
      dtype: the dtype that the parts must have, if given.

    Raises:
      TypeError: `arrays` is no list of arrays.
      ValueError: there is not one part, or it is traced or of another shape or dtype.
    """
    what = "jax.make_array_from_single_device_arrays"
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{what} `arrays` argument must be a list or tuple, got {type(arrays)}.")
    if any(isinstance(x, Tracer) for x in arrays):
        raise ValueError(f"{what} requires a list of concrete arrays, got {arrays}.")
    if dtype is not None and any(x.dtype != np.dtype(dtype) for x in arrays):
        raise ValueError(
            f"If `dtype` is provided to `{what}`, it must match the dtype of the addressable "
            f"shards. Got {np.dtype(dtype)} for {[x.dtype for x in arrays]}."
        )
    if len(arrays) != 1 or arrays[0].shape != tuple(shape):
        raise ValueError(
            f"make_array_from_single_device_arrays: expected one array of shape {tuple(shape)}, "
            f"got shapes {[x.shape for x in arrays]}"
        )
    return device_put(arrays[0], sharding)


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any:
    """An array of the data that each process has; there is one process.

    Args:
      sharding: how the array is divided; a pytree of shardings for one of data.
      local_data: a pytree of arrays.
      global_shape: the array's, or a pytree of shapes; that of the data if omitted.

    Raises:
      ValueError: `global_shape` is another than that of the data, or does not fit its structure.
    """

    def one(data: Any, sharding: Any, shape: Any) -> Any:
        if shape is not None and np.shape(data) != tuple(shape):
            raise ValueError(
                f"make_array_from_process_local_data: global_shape is {shape}, but the only "
                f"process has an array of shape {np.shape(data)}"
            )
        return device_put(data, sharding)

    is_shape = lambda x: x is None or (isinstance(x, tuple) and all(isinstance(n, int) for n in x))
    shapes = tree_broadcast(global_shape, local_data, is_leaf=is_shape)
    leaves, tree = tree_flatten(local_data)
    given = zip(leaves, tree.flatten_up_to(tree_broadcast(sharding, local_data)),
                tree.flatten_up_to(shapes))  # fmt: skip
    return tree_unflatten(tree, [one(*x) for x in given])


_public_surface(globals())
