"""Shardings: which part of an array is on which device.

The types are those that several devices need; arrays lie on one device. A sharding of one device
may be used everywhere, one of several is an error where it would have to be obeyed.

>>> import amdjax
>>> from amdjax.sharding import Mesh, NamedSharding, PartitionSpec as P
>>> mesh = Mesh(amdjax.devices()[:1], "data")
>>> x = amdjax.device_put(amdjax.numpy.arange(4.0), NamedSharding(mesh, P("data")))
>>> x.sharding.spec, x.addressable_shards[0].index
(P('data',), (slice(None, None, None),))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amdjax import _docs
from amdjax.core.boundaries import obeys_out_sharding, public_surface as _public_surface
from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.core.mesh import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    Mesh,
    current_mesh,
    get_abstract_mesh,
    get_mesh,
    grid_of,
    set_mesh,
    use_abstract_mesh,
)
from amdjax.core.pytree import tree_leaves
from amdjax.core.sharding import (
    IndivisibleError,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from amdjax.transforms.transfers import resharded

__all__ = [
    "AbstractDevice", "AbstractMesh", "AxisType", "IndivisibleError", "Mesh", "NamedSharding",
    "PartitionSpec", "Sharding", "SingleDeviceSharding", "auto_axes", "explicit_axes",
    "get_abstract_mesh", "get_mesh", "make_mesh", "make_single_device_sharding", "reshard",
    "set_mesh", "use_abstract_mesh",
]  # fmt: skip


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[Any],
    axis_types: Any = None,
    *,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """A mesh of the first devices.

    Args:
      axis_shapes: how many devices there shall be along each axis.
      axis_names: the names of the axes.
      axis_types: an `AxisType` for each; `Explicit` if omitted.
      devices: the devices to choose from; those of the default backend if omitted.

    Raises:
      TypeError: `axis_shapes` is no sequence.
      ValueError: there are too few devices, or a size is no integer.

        >>> make_mesh((1, 1), ("x", "y")).shape_tuple
        (('x', 1), ('y', 1))
    """
    if devices is None:
        # late: devices load LLVM
        from amdjax.runtime.devices import devices as all_devices

        devices = all_devices()
    if not isinstance(axis_shapes, Iterable):
        raise TypeError(f"make_mesh: axis_shapes must be a sequence of ints, got {axis_shapes!r}")
    try:
        sizes = tuple(s.__index__() for s in axis_shapes)
    except (AttributeError, TypeError):
        raise ValueError(
            f"`axis_shapes` passed to `make_mesh` should be a sequence of ints. Got {axis_shapes}"
        ) from None
    count = 1
    for size in sizes:
        count *= size
    if count > len(devices):
        raise ValueError(
            f"Number of devices {len(devices)} must be >= the product of mesh_shape {sizes}"
        )
    if axis_types is None:
        axis_types = (AxisType.Explicit,) * len(sizes)
    return Mesh(grid_of(devices, sizes), axis_names, axis_types)


def make_single_device_sharding(
    device: Any, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """The sharding of arrays that are on one device.

    Args:
      device: the device.
      memory_kind: the kind of memory.

        >>> make_single_device_sharding(amdjax.devices("cpu")[0]).num_devices
        1
    """
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def reshard(xs: Any, out_shardings: Any) -> Any:
    """Arrays laid out in another way.

    Args:
      xs: a pytree of arrays.
      out_shardings: a sharding or `PartitionSpec`, or a prefix of `xs` of them.

    Raises:
      NotImplementedError: a sharding spans several devices.

        >>> with amdjax.set_mesh(make_mesh((1,), ("x",))):
        ...     reshard(jnp.arange(2), PartitionSpec("x"))
        Array([0, 1], dtype=int32)
    """
    return resharded("reshard", xs, out_shardings)


@obeys_out_sharding
def auto_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Any = None, out_sharding: Any = None
) -> Any:
    """A function inside which the compiler lays arrays out along axes of the mesh.

    Args:
      f: the function; without it, a decorator is returned.
      axes: the axes; all if omitted.
      out_sharding: how the results are laid out; may also be given when calling.

        >>> auto_axes(jnp.sin)(0.0)
        Array(0., dtype=float32, weak_type=True)
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        shardings = kwargs.pop("out_sharding", out_sharding)
        told = (getattr(s, "mesh", None) for s in tree_leaves(shardings))
        mesh = next((m for m in told if m is not None), None) or current_mesh()
        if not set(mesh.explicit_axes).intersection(mesh.axis_names if axes is None else axes):
            return f(*args, **kwargs)
        args = resharded("auto_axes", args, NamedSharding(mesh, PartitionSpec()))
        return resharded("auto_axes", f(*args, **kwargs), shardings)

    return run


def explicit_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Any = None, in_sharding: Any = None
) -> Any:
    """A function inside which types say how arrays are laid out along axes of the mesh.

    Args:
      f: the function; without it, a decorator is returned.
      axes: the axes; all if omitted.
      in_sharding: how the arguments are laid out; may also be given when calling.

        >>> explicit_axes(jnp.sin)(0.0)
        Array(0., dtype=float32, weak_type=True)
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        shardings = kwargs.pop("in_sharding", in_sharding)
        if shardings is not None and tree_leaves(args):
            args = resharded("explicit_axes", args, shardings)
        return f(*args, **kwargs)

    return run


_complete(globals(), _docs.SHARDING, _Phrases())
_public_surface(globals())
