"""AMD GPUs through hip-python, and emulated ones by the same way.

`driver` binds hip-python to a HIP library: AMD's, or the emulator's of the same name. `device` is
what compiled programs run on, `platform` finds them. hip-python is imported when a device is first
asked for.
"""

from __future__ import annotations

from typing import Any

__all__ = ["emulated_devices", "hip_devices"]


def hip_devices() -> list[Any]:
    """AMD GPUs; see `platform.hip_devices`."""
    from amdjax.runtime.hip import platform

    return platform.hip_devices()


def emulated_devices() -> list[Any]:
    """Emulated GPUs; see `platform.emulated_devices`."""
    from amdjax.runtime.hip import platform

    return platform.emulated_devices()
