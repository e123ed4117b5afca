"""The platforms there are, under the names that libraries ask for."""

from __future__ import annotations

from typing import Any

from amdjax.jit.api import clear_caches
from amdjax.runtime.devices import (
    default_backend,
    default_device as get_default_device,
    device_count,
    devices,
    local_device_count,
    local_devices,
    platforms,
    process_index,
)

__all__ = ["backends", "clear_backends", "get_backend", "get_default_device"]


class Backend:
    """A platform and its devices.

    Args:
      platform: its name.
    """

    def __init__(self, platform: str):
        self.platform = platform

    @property
    def platform_version(self) -> str:
        """What compiles for the platform."""
        return "amdjax"

    def devices(self) -> list[Any]:
        """Its devices."""
        return devices(self.platform)

    def local_devices(self) -> list[Any]:
        """Its devices that this process drives."""
        return local_devices(backend=self.platform)

    def device_count(self) -> int:
        """How many devices it has."""
        return device_count(self.platform)

    def local_device_count(self) -> int:
        """How many of its devices this process drives."""
        return local_device_count(self.platform)

    def process_index(self) -> int:
        """The number of this process."""
        return process_index()

    def __repr__(self) -> str:
        return f"Backend({self.platform!r})"


def get_backend(platform: str | None = None) -> Backend:
    """A platform that has devices.

    Args:
      platform: its name; the default one if omitted.

    Raises:
      RuntimeError: there is no such platform, or it has no devices here.

    Example:
      >>> get_backend("cpu").device_count()
      1
    """
    name = default_backend() if platform is None else devices(platform)[0].platform
    return Backend(name)


def backends() -> dict[str, Backend]:
    """All platforms that have devices."""
    return {name: Backend(name) for name in platforms()}


def clear_backends() -> None:
    """Forget all compiled programs."""
    clear_caches()
