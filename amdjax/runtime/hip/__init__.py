"""AMD GPUs through hip-python; emulated ones come by the same way (`emulator/hip/`).

`driver` binds hip-python to a HIP library: AMD's, or the emulator's of the same name. `device` is
what compiled programs run on, `platform` finds them, `system` looks at the machine. hip-python is
imported when a device is first asked for.
"""

from __future__ import annotations

import os
from typing import Any

from amdjax.runtime.devices import HIP_NAMES, requested_platforms

__all__ = ["hip_devices"]

# What the kernel's driver offers to programs: on Linux itself, and in Windows' subsystem for it.
_KERNEL_INTERFACES = ("/dev/kfd", "/dev/dxg")


def hip_devices() -> list[Any]:
    """AMD GPUs, as `amdjax.devices("hip")` lists them; none where there is no hardware.

    Where there is, but it cannot be used, a warning says why.

    Raises:
      HipUnavailable: no device can be used, and `AMDJAX_PLATFORMS` wants nothing else.
    """
    # Most machines have none; they should not pay for finding out.
    if HIP_NAMES.isdisjoint(requested_platforms()) and not any(
        map(os.path.exists, _KERNEL_INTERFACES)
    ):
        return []
    # late: loads with the first device
    from amdjax.runtime.hip import platform

    return platform.hip_devices()
