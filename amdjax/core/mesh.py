"""Meshes: devices in a grid whose axes have names."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from amdjax.core.config import config
from amdjax.core.context import Context, context


class AxisType(enum.Enum):
    """Who decides how arrays are laid out along an axis of a mesh."""

    Auto = enum.auto()
    """The compiler does."""
    Explicit = enum.auto()
    """The type of each array says it."""
    Manual = enum.auto()
    """The program does, which is written for one device."""

    def __repr__(self) -> str:
        return self.name


T = TypeVar("T")


def interned(make: Callable[..., T]) -> Callable[..., T]:
    """A constructor that returns the same object for equal arguments, while that object lives."""
    made: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
    lock = threading.Lock()

    @functools.wraps(make)
    def get(*key: Any) -> T:
        with lock:
            found = made.get(key)
            if found is None:
                found = made[key] = make(*key)
            return found

    return get


def _checked_types(names: tuple[Any, ...], types: Any, owner: str) -> tuple[AxisType, ...]:
    if types is None:
        return (AxisType.Auto,) * len(names)
    types = types if isinstance(types, tuple) else (types,)
    if not all(isinstance(t, AxisType) for t in types):
        raise TypeError(
            f"axis_types passed to {owner} must be of type AxisType. Got {types} of type "
            f"{tuple(type(t) for t in types)}"
        )
    if len(types) != len(names):
        raise ValueError(
            "Number of axis names should match the number of axis_types. Got "
            f"axis_names={names} and axis_types={types}"
        )
    return types


class BaseMesh:
    """What meshes with and without devices have in common.

    Attributes:
      axis_names: the names of the axes.
      axis_sizes: how many devices there are along each.
      axis_types: an `AxisType` for each.
      size: the number of devices.
    """

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    size: int

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """Pairs of name and size."""
        return tuple(zip(self.axis_names, self.axis_sizes))

    @property
    def shape(self) -> collections.OrderedDict[Any, int]:
        """The size of each axis by name."""
        return collections.OrderedDict(self.shape_tuple)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        raise NotImplementedError(type(self).__name__)

    @property
    def empty(self) -> bool:
        """Whether this stands for no mesh."""
        return self.size == 0

    def _of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types) if t is kind)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        """The names of the axes of type `Auto`."""
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        """The names of the axes of type `Explicit`."""
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        """The names of the axes of type `Manual`."""
        return self._of_type(AxisType.Manual)

    def _all_of_type(self, kind: AxisType) -> bool:
        return bool(self.axis_types) and all(t is kind for t in self.axis_types)

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether there are axes, all of type `Auto`."""
        return self._all_of_type(AxisType.Auto)

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether there are axes, all of type `Explicit`."""
        return self._all_of_type(AxisType.Explicit)

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether there are axes, all of type `Manual`."""
        return self._all_of_type(AxisType.Manual)


class Mesh(BaseMesh, contextlib.ContextDecorator):
    """Devices in a grid whose axes have names; equal meshes are one object.

    Args:
      devices: an array of devices, or nested sequences of them.
      axis_names: a name for each axis of `devices`, or the only one.
      axis_types: an `AxisType` for each; `Auto` if omitted.

    Raises:
      ValueError: names and axes differ in number, a name is None or is given twice, or a device
        appears twice.

        >>> Mesh(amdjax.devices("cpu"), "x")
        Mesh(axis_sizes=(1,), axis_names=('x',), axis_types=(Auto,))
    """

    devices: np.ndarray

    def __new__(cls, devices: Any, axis_names: Any, axis_types: Any = None) -> Mesh:
        devices = devices if isinstance(devices, np.ndarray) else np.array(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if any(name is None for name in names):
            raise ValueError(f"Mesh axis names cannot be None. Got: {names}")
        if devices.ndim != len(names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of "
                "its second argument (`axis_names`), but got devices.ndim == "
                f"{devices.ndim} and len(axis_names) == {len(names)}."
            )
        if len(set(names)) != len(names):
            raise ValueError(f"Mesh axis names must differ from each other. Got: {names}")
        flat = tuple(devices.flat)
        if len(set(flat)) != len(flat):
            raise ValueError(f"Mesh: a device appears twice among {flat}")
        return _mesh(flat, devices.shape, names, _checked_types(names, axis_types, "Mesh"))

    def __reduce__(self) -> Any:
        return Mesh, (self.devices, self.axis_names, self.axis_types)

    def __enter__(self) -> Mesh:
        _outer().append(config.mesh)
        config.set_mesh(self)
        return self

    def __exit__(self, *exc: object) -> None:
        config.set_mesh(_outer().pop())

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """The same mesh with some of its properties changed."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    @property
    def axis_sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.devices.shape

    @property
    def flat_devices(self) -> tuple[Any, ...]:
        """The devices in order."""
        return () if self.empty else tuple(self.devices.flat)

    @property
    def device_ids(self) -> np.ndarray:
        """The numbers of the devices, in an array of the mesh's shape."""
        return np.array([d.id for d in self.flat_devices], int).reshape(self.devices.shape)

    @property
    def local_devices(self) -> list[Any]:
        """The devices that this process drives: all."""
        return list(self.flat_devices)

    @property
    def local_mesh(self) -> Mesh:
        """The part of the mesh that this process drives: all of it."""
        return self

    @property
    def is_multi_process(self) -> bool:
        """Whether several processes drive the devices."""
        return False

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        if not self.axis_names:
            return empty_abstract_mesh
        first = self.devices.flat[0]
        device = AbstractDevice(first.device_kind, None, first.platform)
        return AbstractMesh(
            self.axis_sizes, self.axis_names, self.axis_types, abstract_device=device
        )

    def __str__(self) -> str:
        if self.empty:
            return "Mesh()"
        sizes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        return f"Mesh({sizes}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        if self.empty:
            return "Mesh(axis_sizes=(), axis_names=())"
        return (
            f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names!r}, "
            f"axis_types={self.axis_types})"
        )


@interned
def _mesh(flat: Any, shape: Any, names: Any, types: Any) -> Mesh:
    mesh = object.__new__(Mesh)
    mesh.devices = np.empty(shape, object)
    mesh.devices.reshape(-1)[:] = flat
    mesh.devices.flags.writeable = False
    mesh.axis_names, mesh.axis_types = names, types
    mesh.size = 0 if flat == (None,) else math.prod(shape)
    return mesh


class AbstractDevice(NamedTuple):
    """The kind of device that a mesh without devices is meant for.

    Args:
      device_kind: the name of the kind.
      num_cores: how many cores a device has, if known.
      platform: the name of the platform.
    """

    device_kind: str
    num_cores: int | None
    platform: str


class AbstractMesh(BaseMesh):
    """A mesh of which only names and sizes of its axes are known; equal ones are one object.

    Args:
      axis_sizes: how many devices there are along each axis.
      axis_names: the names of the axes.
      axis_types: an `AxisType` for each; `Auto` if omitted.
      abstract_device: the kind of the devices.
    """

    abstract_device: AbstractDevice | None

    def __new__(
        cls, axis_sizes: Any, axis_names: Any, axis_types: Any = None, *,
        abstract_device: Any = None,
    ) -> AbstractMesh:  # fmt: skip
        try:
            sizes, names = tuple(axis_sizes), tuple(axis_names)
        except TypeError:
            raise TypeError(
                "AbstractMesh: axis_sizes and axis_names must be sequences, got "
                f"{axis_sizes!r} and {axis_names!r}"
            ) from None
        if len(sizes) != len(names):
            raise ValueError(f"AbstractMesh: {len(sizes)} sizes for {len(names)} axis names")
        types = _checked_types(names, axis_types, "AbstractMesh")
        return _abstract_mesh(sizes, names, types, abstract_device)

    def __reduce__(self) -> Any:
        make = functools.partial(AbstractMesh, abstract_device=self.abstract_device)
        return make, (self.axis_sizes, self.axis_names, self.axis_types)

    def update(self, **changes: Any) -> AbstractMesh:
        """The same mesh with some of its properties changed."""
        fields = ("axis_sizes", "axis_names", "axis_types", "abstract_device")
        return AbstractMesh(**{f: changes.get(f, getattr(self, f)) for f in fields})

    def update_axis_types(self, name_to_type: dict[Any, AxisType]) -> AbstractMesh:
        """The same mesh with some axes of another type."""
        types = (name_to_type.get(n, t) for n, t in zip(self.axis_names, self.axis_types))
        return self.update(axis_types=tuple(types))

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh itself."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name in ("devices", "device_ids", "is_multi_process", "local_devices", "local_mesh"):
            raise ValueError(f"AbstractMesh does not implement {name}")
        raise AttributeError(f"'AbstractMesh' object has no attribute {name!r}")

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple) or "()"
        device = "" if self.abstract_device is None else f", {str(self.abstract_device)[15:-1]}"
        return f"AbstractMesh({sizes}, axis_types={self.axis_types}{device})"


@interned
def _abstract_mesh(sizes: Any, names: Any, types: Any, device: Any) -> AbstractMesh:
    mesh = object.__new__(AbstractMesh)
    mesh.axis_sizes, mesh.axis_names, mesh.axis_types = sizes, names, types
    mesh.abstract_device = device
    mesh.size = math.prod(sizes) if sizes else 0
    return mesh


empty_abstract_mesh = AbstractMesh((), ())
empty_mesh = Mesh(np.empty((), object), ())
_entered = threading.local()


def _outer() -> list[Any]:
    """What was the current mesh before each one that this thread has entered."""
    return _entered.__dict__.setdefault("meshes", [])


def current_mesh() -> Any:
    """The mesh that was made the current one; an empty one if there is none."""
    return empty_mesh if config.mesh is None else config.mesh


def get_abstract_mesh() -> AbstractMesh:
    """The mesh in whose context the program is, without its devices.

    >>> get_abstract_mesh().empty
    True
    """
    return current_mesh().abstract_mesh


class set_mesh:
    """Make a mesh the current one: from now on, or inside a `with` statement.

    Functions that take shardings then take a `PartitionSpec` alone.

    Args:
      mesh: the mesh; None for none.

    Raises:
      ValueError: `mesh` is not one, has `Manual` axes, or a function is being traced.
    """

    def __init__(self, mesh: Mesh | None):
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(f"set_mesh: expected mesh of type Mesh. Got {type(mesh)}")
        if context.trace is not Context.base:
            raise ValueError("`set_mesh` can only be used outside of `jax.jit`.")
        if mesh is not None and mesh.manual_axes:
            raise ValueError(
                f"mesh {mesh} contains manual axes which is not allowed when using set_mesh; "
                "shard_map makes axes manual."
            )
        self._outer = config.mesh
        config.set_mesh(mesh)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        config.set_mesh(self._outer)


class use_abstract_mesh:
    """Context manager: a mesh without devices is the current one.

    Args:
      mesh: the mesh.
    """

    def __init__(self, mesh: AbstractMesh):
        if not isinstance(mesh, AbstractMesh):
            raise ValueError(f"use_abstract_mesh: expected an AbstractMesh. Got {type(mesh)}")
        self.mesh = mesh

    def __enter__(self) -> None:
        self._outer = config.mesh
        config.set_mesh(self.mesh)

    def __exit__(self, *exc: object) -> None:
        config.set_mesh(self._outer)


def get_mesh() -> Mesh:
    """The mesh that `set_mesh` made the current one; an empty one if there is none.

    Raises:
      ValueError: a function is being traced, or the current mesh has no devices.

        >>> get_mesh().empty
        True
    """
    if context.trace is not Context.base:
        raise ValueError("`get_mesh` can only be used outside of `jax.jit`; see get_abstract_mesh.")
    return config.mesh if isinstance(config.mesh, Mesh) else empty_mesh


def grid_of(devices: Sequence[Any], sizes: Sequence[int]) -> np.ndarray:
    """The first devices as an array of a shape."""
    grid = np.empty(math.prod(sizes), object)
    grid[:] = list(devices)[: grid.size]
    return grid.reshape(sizes)
