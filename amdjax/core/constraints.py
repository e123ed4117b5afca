"""Shardings as users give them, and what may be asked of arrays that are on one device."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array, ConcreteArray, asarray_concrete, get_backend
from amdjax.core.mesh import AbstractMesh, current_mesh
from amdjax.core.pytree import tree_broadcast, tree_leaves, tree_map
from amdjax.core.sharding import Format, NamedSharding, PartitionSpec, Sharding


def one_device_of(devices: Any, what: str) -> Any:
    """The only device of a sharding or a sequence.

    Raises:
      NotImplementedError: there are several.
    """
    found = tuple(devices.device_set if isinstance(devices, Sharding) else devices)
    if len(found) != 1:
        raise NotImplementedError(
            f"{what}: {devices} spans {len(found)} devices; an array is on one device for now"
        )
    return found[0]


def as_sharding(sharding: Any, what: str) -> Sharding:
    """A sharding, which may be given as a specification alone where there is a current mesh.

    Raises:
      TypeError: it is neither.
      ValueError: there is no current mesh.
    """
    if isinstance(sharding, Format):
        sharding = sharding.sharding
    if isinstance(sharding, PartitionSpec):
        mesh = current_mesh()
        if mesh.empty:
            raise ValueError(
                f"{what}: a PartitionSpec alone needs a current mesh. Make one with set_mesh, or "
                f"give NamedSharding(mesh, {sharding})."
            )
        return NamedSharding(mesh, sharding)
    if not isinstance(sharding, Sharding):
        raise TypeError(f"{what}: {sharding!r} of type {type(sharding).__name__} is no sharding")
    return sharding


def is_sharding(x: Any) -> bool:
    """Whether `x` says how an array is divided."""
    return isinstance(x, (Sharding, PartitionSpec))


def constrain(x: Any, shardings: Any, what: str) -> Any:
    """`x`, with a check that it can be divided as `shardings` say; concrete arrays are put there.

    Args:
      x: a pytree of arrays.
      shardings: a sharding, or a pytree of them that is a prefix of `x`.
      what: the caller, for messages.

    Raises:
      ValueError: a sharding is None.
    """
    if any(s is None for s in tree_leaves(shardings, is_leaf=lambda s: s is None)):
        raise ValueError(
            f"{what}: shardings is None, or has a None; give a Sharding or PartitionSpec"
        )

    def one(leaf: Any, sharding: Any) -> Any:
        sharding = as_sharding(sharding, what)
        leaf = leaf if isinstance(leaf, Array) else asarray_concrete(leaf)
        sharding.shard_shape(leaf.shape)
        if isinstance(leaf, ConcreteArray):
            return get_backend().device_put(leaf, sharding)
        if not isinstance(getattr(sharding, "mesh", None), AbstractMesh):
            one_device_of(sharding, what)
        return leaf

    return tree_map(one, x, tree_broadcast(shardings, x, is_leaf=is_sharding))
