"""Python beside the devices of other hosts. There are none, so that it is Python here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.errors import public_surface as _public_surface
from amdjax.runtime.devices import devices as all_devices

__all__ = ["colocated_cpu_devices", "colocated_python"]


def colocated_cpu_devices(devices: Sequence[Any]) -> tuple[Any, ...]:
    """For each device the CPU beside it.

    Args:
      devices: the devices.

    Example:
      >>> import amdjax
      >>> colocated_cpu_devices(amdjax.devices("cpu"))
      (CpuDevice(id=0),)
    """
    return tuple(all_devices("cpu")) * len(devices)


def colocated_python(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs beside the devices of its arguments.

    Args:
      fun: a function of arrays.

    Returns:
      `fun`: the devices are this host's.
    """
    return fun


_public_surface(globals())
