"""Shardings as users give them, and what may be asked of arrays that are on one device."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array, ConcreteArray, PlacedArray, asarray_concrete
from amdjax.core.backend import get_backend
from amdjax.core.mesh import AbstractMesh, Mesh, current_mesh
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
      ValueError, RuntimeError: there is no current mesh.
    """
    if isinstance(sharding, Format):
        sharding = sharding.sharding
    if isinstance(sharding, PartitionSpec):
        mesh = current_mesh()
        if mesh.empty:
            if what != "device_put":
                raise RuntimeError(
                    f"{what.split()[0]} requires a non-empty mesh in context if a PartitionSpec is "
                    f"passed: make one that with `jax.set_mesh`, or give NamedSharding(mesh, "
                    f"{sharding})."
                )
            raise ValueError(
                f"Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed to {what}, the "
                f"current mesh, or give NamedSharding(mesh, {sharding})."
            )
        return NamedSharding(mesh, sharding)
    if not isinstance(sharding, Sharding):
        raise TypeError(f"{what}: {sharding!r} of type {type(sharding).__name__} is no sharding")
    return sharding


def check_layout(sharding: Any, ndim: int, what: str) -> None:
    """Raise unless the layout that may come with a sharding is one that arrays of a rank have.

    Raises:
      ValueError: it is for arrays of another rank.
      NotImplementedError: it is not row-major.
    """
    order = getattr(getattr(sharding, "layout", None), "major_to_minor", None)
    if order is None:
        return
    if len(order) != ndim:
        raise ValueError(
            f"Length of major_to_minor and the rank of the value should match. {what} got "
            f"{sharding.layout} for a value of rank {ndim}"
        )
    if tuple(order) != tuple(range(ndim)):
        raise NotImplementedError(
            f"{what}: arrays are row-major, got {sharding.layout}; transpose the array instead"
        )


def as_sharding_of_type(sharding: Any, what: str) -> NamedSharding:
    """A sharding that types can have: of a mesh, and naming explicit axes of it only.

    Raises:
      TypeError: it is no such sharding.
      ValueError: it names other axes, or is a specification and there is no current mesh.
    """
    if isinstance(sharding, PartitionSpec):
        mesh = current_mesh()
        if mesh.empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Before "
                f"{what}(…, {sharding}), make a mesh the current one with set_mesh, or give "
                f"NamedSharding(mesh, {sharding})."
            )
        sharding = NamedSharding(mesh, sharding)
    if not isinstance(sharding, NamedSharding):
        raise TypeError(
            f"`out_sharding` argument of {what} only supports NamedSharding or PartitionSpec, got "
            f"{sharding!r} of type {type(sharding).__name__}."
        )
    explicit = sharding.mesh.explicit_axes
    for entry in sharding.spec.partitions:
        for axis in entry if isinstance(entry, tuple) else (entry,):
            if axis is not None and axis not in explicit:
                raise ValueError(
                    f"PartitionSpec passed to {what} cannot contain axis names that are of type "
                    f"Auto or Manual. Got PartitionSpec: {sharding.spec} with axis name: {axis} "
                    f"for a mesh of {sharding.mesh.axis_types}."
                )
    return sharding


def over_devices(sharding: Any, x: Any) -> Any:
    """A sharding over devices, which are those of the current mesh or of an array's if it has none.

    Raises:
      ValueError: neither mesh has the axes that the sharding is over.
    """
    abstract = getattr(sharding, "mesh", None)
    if not isinstance(abstract, AbstractMesh):
        return sharding
    here = getattr(getattr(x, "sharding", None), "mesh", None)
    for mesh in (current_mesh(), here):
        if isinstance(mesh, Mesh) and mesh.shape_tuple == abstract.shape_tuple:
            return sharding.update(mesh=mesh)
    raise ValueError(
        f"{sharding} is over no devices, and no mesh of such axes is the current one: make one "
        "that with set_mesh, or give a sharding over a Mesh"
    )


def sharding_like(x: Any, ndim: int) -> Any:
    """The sharding of an array made like `x`, of that rank; None where `x` leaves it open."""
    if not isinstance(x, PlacedArray) or not x.committed:
        return None
    sharding = x.sharding
    if isinstance(sharding, NamedSharding):
        return sharding.update(spec=sharding.spec.update(sharding.spec[:ndim]))
    return sharding


def is_sharding(x: Any) -> bool:
    """Whether `x` says how an array is divided."""
    return isinstance(x, (Sharding, PartitionSpec))


def constrain(x: Any, sharding: Any, what: str) -> Any:
    """`x`, with a check that it can be divided as `sharding` says; a concrete array is put there.

    Args:
      x: an array.
      sharding: a sharding or specification.
      what: the caller, for messages.
    """
    x = x if isinstance(x, Array) else asarray_concrete(x)
    check_layout(sharding, x.ndim, what)
    sharding = as_sharding(sharding, what)
    sharding.shard_shape(x.shape)
    if isinstance(x, ConcreteArray):
        return get_backend().device_put(x, over_devices(sharding, x))
    if not isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        one_device_of(sharding, what)
    return x
