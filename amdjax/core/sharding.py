"""Shardings: which part of an array is on which device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from amdjax.core.mesh import AxisType, BaseMesh, Mesh, current_mesh, empty_abstract_mesh, interned

Shape = tuple[int, ...]
Index = tuple[slice, ...]


class _Unconstrained:
    """Stands for an axis whose layout is left to the compiler."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class MemorySpace(Enum):
    """A kind of memory, as seen from a device: its own, or the host's, which it can copy from.

    For a CPU both are the same memory; types tell them apart as on any other device.
    """

    Device = 1
    Host = 2
    Any = 3

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__

    @property
    def kind(self) -> str:
        """What shardings call it."""
        return "pinned_host" if self is Space.Host else "device"


Space = MemorySpace
DEVICE, HOST = Space.Device, Space.Host  # by names that take no look-up in a class

#: What shardings call the memories that each device can copy from and to.
KINDS = (Space.Device.kind, Space.Host.kind)


def space_of_kind(kind: str | None) -> Space:
    """The memory space of a memory kind.

    >>> space_of_kind("pinned_host")
    MemorySpace.Host
    """
    return Space.Host if kind == "pinned_host" else Space.Device


class ArrayCopySemantics(Enum):
    """Whether the result of a transfer may share memory with what was transferred."""

    REUSE_INPUT = 0
    ALWAYS_COPY = 1
    DONATE_INPUT = 2

    def __repr__(self) -> str:
        return f"ArrayCopySemantics.{self.name}"


def _checked_kind(kind: Any) -> str:
    """A kind of memory, that of the device if it is None."""
    if kind is None:
        return Space.Device.kind
    if kind not in KINDS:
        raise ValueError(
            f"Got invalid memory kind: {kind!r}. Devices can address the following memory kinds: "
            f"{', '.join(KINDS)}."
        )
    return str(kind)


def _canonical(entry: Any) -> Any:
    if isinstance(entry, (list, tuple)):
        if any(isinstance(axis, (list, tuple)) for axis in entry):
            raise ValueError(
                f"A tuple inside PartitionSpec cannot contain a nested tuple, got {entry!r}."
            )
        return None if not entry else entry[0] if len(entry) == 1 else tuple(entry)
    if getattr(entry, "shape", None):
        raise ValueError(f"PartitionSpec: an entry must name axes of a mesh, got {entry!r}")
    return None if isinstance(entry, dict) and not entry else entry


def _axes(entry: Any) -> tuple[Any, ...]:
    """The names of mesh axes in one entry of a specification."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


class PartitionSpec:
    """Along which axes of a mesh each axis of an array is divided; equal ones are one object.

    Args:
      *partitions: for each axis of the array None, the name of a mesh axis or a tuple of names.
      unreduced: mesh axes along which partial sums have not been added yet.
      reduced: mesh axes along which they have.

    Raises:
      ValueError: a mesh axis is named both ways.

        >>> PartitionSpec("x", None)
        P('x', None)
        >>> PartitionSpec("x") is PartitionSpec(("x",))
        True
    """

    __slots__ = ("__weakref__", "_partitions", "reduced", "unreduced")

    _partitions: tuple[Any, ...]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]
    UNCONSTRAINED: ClassVar[Any] = UNCONSTRAINED

    def __new__(cls, *partitions: Any, unreduced: Any = (), reduced: Any = ()) -> PartitionSpec:
        for name, axes in (("unreduced", unreduced), ("reduced", reduced)):
            if axes and not isinstance(axes, (set, frozenset)):
                raise TypeError(f"PartitionSpec: {name} must be a set, got {axes!r}")
        entries = tuple(map(_canonical, partitions))
        groups = [{a for e in entries for a in _axes(e)}, set(unreduced), set(reduced)]
        if sum(map(len, groups)) != len(set().union(*groups)):
            raise ValueError(
                "PartitionSpec: partitions cannot overlap with unreduced or reduced axes, nor "
                f"these with each other. Got {entries}, unreduced={set(unreduced)} and "
                f"reduced={set(reduced)}"
            )
        return _partition_spec(entries, frozenset(unreduced), frozenset(reduced))

    def __init_subclass__(cls) -> None:
        raise TypeError("Subclassing `jax.P` is prohibited: it is PartitionSpec and nothing else.")

    def __reduce__(self) -> Any:
        return _remade, (self._partitions, self.unreduced, self.reduced)

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries."""
        return self._partitions

    def __getitem__(self, i: Any) -> Any:
        return self._partitions[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, tuple):
            self._refuse_unreduced("__add__")
            other = PartitionSpec(*other)
        if not isinstance(other, PartitionSpec):
            return NotImplemented
        return PartitionSpec(
            *self._partitions, *other._partitions,
            unreduced=self.unreduced | other.unreduced, reduced=self.reduced | other.reduced,
        )  # fmt: skip

    def __radd__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, tuple):
            return NotImplemented
        self._refuse_unreduced("__radd__")
        return PartitionSpec(*other) + self

    def _refuse_unreduced(self, method: str) -> None:
        if self.unreduced:
            raise TypeError(
                f"unreduced in `{method}` of PartitionSpec: {self} and a tuple, which has none, "
                "cannot be joined; join two PartitionSpecs."
            )

    def index(self, value: Any) -> int:
        """The first axis with this entry."""
        return self._partitions.index(_canonical(value))

    def count(self, value: Any) -> int:
        """How many axes have this entry."""
        return self._partitions.count(_canonical(value))

    def update(
        self, partitions: Any = None, unreduced: Any = None, reduced: Any = None
    ) -> PartitionSpec:
        """The same specification with some of its parts changed."""
        return PartitionSpec(
            *(self._partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def __repr__(self) -> str:
        parts = [repr(self._partitions)[1:-1]] if self._partitions else []
        parts += [f"unreduced={set(self.unreduced)!r}"] * bool(self.unreduced)
        parts += [f"reduced={set(self.reduced)!r}"] * bool(self.reduced)
        return f"P({', '.join(part.rstrip(',') if len(parts) > 1 else part for part in parts)})"


@interned
def _partition_spec(entries: Any, unreduced: Any, reduced: Any) -> PartitionSpec:
    spec = object.__new__(PartitionSpec)
    spec._partitions, spec.unreduced, spec.reduced = entries, unreduced, reduced
    return spec


def _remade(partitions: Any, unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)


class Shard:
    """One device's part of an array.

    Args:
      device: the device.
      index: the slices of the whole array that the part is.
      replica_id: number of the device among those that have the same part.
      data: the part.
    """

    __slots__ = ("data", "device", "index", "replica_id")

    def __init__(self, device: Any, index: Index, replica_id: int, data: Any):
        self.device, self.index, self.replica_id, self.data = device, index, replica_id, data

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={self.data})"
        )


class IndivisibleError(ValueError):
    """An axis of an array cannot be divided into as many parts as a sharding says."""


class Sharding:
    """Which part of an array is on which device."""

    @property
    def device_set(self) -> set[Any]:
        """The devices."""
        return set(self._devices())

    def _devices(self) -> tuple[Any, ...]:
        raise NotImplementedError(type(self).__name__)

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        return self._devices()

    _addressable_device_assignment = _device_assignment

    def _tiles(self, ndim: int) -> list[int]:
        """Into how many parts each axis of an array is divided."""
        return [1] * ndim

    @property
    def memory_kind(self) -> str:
        """The kind of memory: "device", or "pinned_host"."""
        return Space.Device.kind

    @property
    def num_devices(self) -> int:
        """How many devices there are."""
        return len(self._devices())

    @property
    def addressable_devices(self) -> set[Any]:
        """The devices that this process drives: all."""
        return self.device_set

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process drives any of the devices."""
        return True

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process drives all devices."""
        return True

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all of the array."""
        raise NotImplementedError(type(self).__name__)

    def shard_shape(self, global_shape: Any) -> Shape:
        """The shape of one device's part.

        Args:
          global_shape: the array's.

        Raises:
          IndivisibleError: an axis cannot be divided evenly.
        """
        self.check_compatible_aval(global_shape)
        tiles = self._tiles(len(global_shape))
        for axis, (extent, parts) in enumerate(zip(global_shape, tiles)):
            if extent % parts:
                raise IndivisibleError(
                    f"Sharding {self} implies that array axis {axis} is partitioned {parts} times, "
                    f"but the dimension size is {extent} (full shape: {tuple(global_shape)}, "
                    f"per-dimension tiling factors: {tiles} should evenly divide the shape): "
                    f"{parts} does not evenly divide the dimension size"
                )
        return tuple(extent // parts for extent, parts in zip(global_shape, tiles))

    def check_compatible_aval(self, aval_shape: Any) -> None:
        """Raise a ValueError unless arrays of this shape can be divided so."""

    def devices_indices_map(self, global_shape: Any) -> Mapping[Any, Index]:
        """For each device the slices of the array that it has."""
        self.shard_shape(global_shape)
        return {device: (slice(None),) * len(global_shape) for device in self._devices()}

    def addressable_devices_indices_map(self, global_shape: Any) -> Mapping[Any, Index]:
        """For each device that this process drives the slices of the array that it has."""
        return self.devices_indices_map(global_shape)

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether arrays of rank `ndim` lie in the same way under another sharding."""
        if self._devices() != other._devices() or self.memory_kind != other.memory_kind:
            return False
        mine, its = self._tiles(ndim), other._tiles(ndim)
        return mine == its and (max(mine, default=1) == 1 or self._order() == other._order())

    def _order(self) -> Any:
        """What decides, besides the number of tiles, which device has which one."""
        return None

    def with_memory_kind(self, kind: str) -> Sharding:
        """The same sharding in another kind of memory."""
        raise NotImplementedError(type(self).__name__)


class SingleDeviceSharding(Sharding):
    """All of an array is on one device.

    Args:
      device: the device.
      memory_kind: the kind of memory.

        >>> SingleDeviceSharding(amdjax.devices("cpu")[0]).shard_shape((2, 3))
        (2, 3)
    """

    def __init__(self, device: Any, *, memory_kind: str | None = None):
        self._device, self._memory_kind = device, _checked_kind(memory_kind)

    def _devices(self) -> tuple[Any, ...]:
        return (self._device,)

    @property
    def memory_kind(self) -> str:
        return self._memory_kind

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        return SingleDeviceSharding(self._device, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return self._device == other._device and self._memory_kind == other._memory_kind

    def __hash__(self) -> int:
        return hash((self._device, self._memory_kind))

    def __repr__(self) -> str:
        # What is no device has no memory.
        kind = f", memory_kind={self._memory_kind}" if hasattr(self._device, "platform") else ""
        return f"SingleDeviceSharding(device={self._device!r}{kind})"


class NamedSharding(Sharding):
    """An array divided along the axes of a mesh.

    Args:
      mesh: the mesh.
      spec: how each axis of the array is divided.
      memory_kind: the kind of memory.

    Raises:
      ValueError: `spec` names an axis that the mesh does not have, or one twice.
    """

    def __init__(self, mesh: Any, spec: Any, *, memory_kind: str | None = None):
        if not isinstance(mesh, BaseMesh):
            raise TypeError(f"NamedSharding: mesh must be a Mesh, got {mesh!r}")
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"NamedSharding: spec must be a PartitionSpec, got {spec!r}")
        self.mesh, self.spec, self._memory_kind = mesh, spec, _checked_kind(memory_kind)
        named = [a for entry in spec.partitions for a in _axes(entry)]
        for what, axes in (
            ("Resource axis:", named), ("Unreduced axes", spec.unreduced),
            ("Reduced axes", spec.reduced),
        ):  # fmt: skip
            if None in axes:
                raise ValueError(f"{what.split()[0].lower()} cannot contain None, got {spec}.")
            if unknown := sorted(str(a) for a in axes if a not in mesh.axis_names):
                raise ValueError(
                    f"{what} {', '.join(unknown)} of {spec} is not found in mesh: "
                    f"{mesh.axis_names}."
                )
        types = dict(zip(mesh.axis_names, mesh.axis_types))
        if any(types[axis] is not AxisType.Explicit for axis in spec.unreduced):
            raise ValueError(
                f"Unreduced axes can only refer to mesh axes of type Explicit, got {spec} for a "
                f"mesh of {types}."
            )
        if len(set(named)) != len(named):
            raise ValueError(f"NamedSharding: {spec} names an axis of the mesh twice")

    def _devices(self) -> tuple[Any, ...]:
        if not isinstance(self.mesh, Mesh):
            raise ValueError("a NamedSharding over an AbstractMesh has no devices")
        return self.mesh.flat_devices

    def _tiles(self, ndim: int) -> list[int]:
        sizes = self.mesh.shape
        tiles = [math.prod(sizes[a] for a in _axes(entry)) for entry in self.spec.partitions]
        return tiles + [1] * (ndim - len(tiles))

    def _order(self) -> Any:
        return self.mesh, self.spec

    def check_compatible_aval(self, aval_shape: Any) -> None:
        if len(aval_shape) < len(self.spec):
            scalars = " For scalars the PartitionSpec should be P()" if not aval_shape else ""
            raise ValueError(
                f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but "
                f"was applied to a value of rank {len(aval_shape)}.{scalars}"
            )

    def devices_indices_map(self, global_shape: Any) -> Mapping[Any, Index]:
        part = self.shard_shape(global_shape)
        names, sizes = self.mesh.axis_names, self.mesh.axis_sizes
        entries = [*self.spec.partitions, *[None] * (len(global_shape) - len(self.spec))]
        found = {}
        for number, device in enumerate(self._devices()):
            place = dict(zip(names, _unravel(number, sizes)))
            index = []
            for entry, whole, extent in zip(entries, global_shape, part):
                tile = 0
                for axis in _axes(entry):
                    tile = tile * self.mesh.shape[axis] + place[axis]
                whole_axis = whole == extent
                index.append(
                    slice(None) if whole_axis else slice(tile * extent, (tile + 1) * extent)
                )
            found[device] = tuple(index)
        return found

    @property
    def memory_kind(self) -> str:
        return self._memory_kind

    @property
    def is_fully_replicated(self) -> bool:
        return all(parts == 1 for parts in self._tiles(len(self.spec)))

    @property
    def is_fully_addressable(self) -> bool:
        return bool(self._devices())

    @property
    def num_devices(self) -> int:
        return self.mesh.size

    def with_memory_kind(self, kind: str) -> NamedSharding:
        return self.update(memory_kind=kind)

    def update(self, **changes: Any) -> NamedSharding:
        """The same sharding with some of `mesh`, `spec` and `memory_kind` changed."""
        spec = changes.get("spec", self.spec)
        return NamedSharding(
            changes.get("mesh", self.mesh),
            spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec),
            memory_kind=changes.get("memory_kind", self._memory_kind),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedSharding):
            return NotImplemented
        mine = self.mesh, self.spec, self._memory_kind
        return mine == (other.mesh, other.spec, other._memory_kind)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec, self._memory_kind))

    def __repr__(self) -> str:
        mesh = str(self.mesh) if isinstance(self.mesh, Mesh) else repr(self.mesh)
        return f"NamedSharding(mesh={mesh}, spec={self.spec}, memory_kind={self._memory_kind})"


def _unravel(number: int, sizes: Any) -> list[int]:
    place = []
    for size in reversed(sizes):
        number, at = divmod(number, size)
        place.append(at)
    return place[::-1]


def explicit_entries(sharding: NamedSharding, ndim: int) -> tuple[Any, ...]:
    """For each axis of an array the explicit axes of the mesh that divide it, None for none."""
    explicit = sharding.mesh.explicit_axes
    kept = [_canonical([a for a in _axes(e) if a in explicit]) for e in sharding.spec.partitions]
    return (*kept, *[None] * (ndim - len(kept)))


def sharding_of_type(ndim: int) -> NamedSharding:
    """The sharding in the type of an array that no explicit axis divides."""
    mesh = current_mesh().abstract_mesh
    return NamedSharding(
        mesh if mesh.explicit_axes else empty_abstract_mesh, PartitionSpec(*[None] * ndim)
    )


@dataclass(frozen=True)
class Layout:
    """The order of the axes in memory.

    Args:
      major_to_minor: the axes, the slowest first.
      tiling: sizes of tiles, outermost first.
      sub_byte_element_size_in_bits: of elements smaller than a byte.
    """

    AUTO: ClassVar[Any]

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0


class _AutomaticLayout:
    """Stands for the layout that the compiler chooses."""

    def __repr__(self) -> str:
        return "AUTO"


Layout.AUTO = _AutomaticLayout()


@dataclass(frozen=True)
class Format:
    """A layout and a sharding.

    Args:
      layout: the layout; None for whichever the device prefers.
      sharding: the sharding.

        >>> amdjax.numpy.ones((2, 3)).format.layout
        Layout(major_to_minor=(0, 1), tiling=None, sub_byte_element_size_in_bits=0)
    """

    layout: Any = None
    sharding: Any = None


def space_of(place: Any) -> Space | None:
    """The memory space that a place names, as `device_put` takes it; None for that of a value.

    Args:
      place: a space, a sharding, a format, a device, or None.
    """
    if isinstance(place, Format):
        place = place.sharding
    if isinstance(place, Space):
        return None if place is Space.Any else place
    if isinstance(place, Sharding):
        return space_of_kind(place.memory_kind)
    if place is None or isinstance(place, PartitionSpec):
        return None
    # A device; in a program that was parsed the text of one, or of a sharding.
    return Space.Host if f"memory_kind={Space.Host.kind}" in repr(place) else Space.Device
