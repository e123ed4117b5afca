"""The platform `emulated`: GPUs of the emulator, behind the very calls that reach AMD's."""

from __future__ import annotations

from amdjax.core.config import config
from amdjax.emulator.hip.library import device_names, emulated_hip
from amdjax.runtime.hip.device import HipDevice
from amdjax.runtime.hip.driver import Driver, HipUnavailable, driver
from amdjax.runtime.hip.platform import open_devices


def emulated_driver() -> Driver:
    """The driver of this process, which talks to the emulator.

    Raises:
      HipUnavailable: hip-python is missing, or the process uses AMD's library.
    """
    return driver(emulated_hip)


def emulated_devices() -> list[HipDevice]:
    """Emulated GPUs, those that `AMDJAX_EMULATE` names or one gfx942.

    Raises:
      RuntimeError: `AMDJAX_EMULATE` names an unknown target.
      HipUnavailable: hip-python is missing, or the process uses AMD's library.
    """
    try:
        names = device_names(config.emulate)
    except ValueError as e:  # of the setting, not of the operation that asks for devices first
        raise RuntimeError(str(e)) from None
    found = emulated_driver()
    devices, problems = open_devices(found, emulated_hip().devices(names))
    if problems:
        raise HipUnavailable("; ".join(problems))
    return devices
