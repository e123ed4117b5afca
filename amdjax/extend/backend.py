"""The platforms there are, under the names that libraries ask for."""

from __future__ import annotations

from amdjax.jit.api import clear_caches
from amdjax.runtime.devices import (
    Backend,
    default_backend,
    default_device as get_default_device,
    devices,
    platforms,
)

__all__ = ["Backend", "backends", "clear_backends", "get_backend", "get_default_device"]


def get_backend(platform: str | None = None) -> Backend:
    """A platform that has devices.

    Args:
      platform: its name; the default one if omitted.

    Returns:
      The platform.

    Raises:
      RuntimeError: there is no such platform, or it has no devices here.

        >>> get_backend("cpu").device_count()
        1
    """
    name = default_backend() if platform is None else devices(platform)[0].platform
    return Backend(name)


def backends() -> dict[str, Backend]:
    """All platforms that have devices.

    Returns:
      The platforms by name.

        >>> "cpu" in backends()
        True
    """
    return {name: Backend(name) for name in platforms()}


def clear_backends() -> None:
    """Forget all compiled programs.

    >>> clear_backends()
    """
    clear_caches()
