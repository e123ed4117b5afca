"""The platform `hip`: which devices there are."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from amdjax import targets
from amdjax.runtime.devices import HIP_NAMES, requested_platforms
from amdjax.runtime.hip.device import HipDevice
from amdjax.runtime.hip.driver import Driver, HipError, HipUnavailable, driver, uses_emulator
from amdjax.runtime.hip.system import kernel_driver, obstacle
from amdjax.targets import GpuTarget

# The first with the device properties that hip-python asks for.
OLDEST_RUNTIME = 6_00_00000

_lock = threading.Lock()
_opened: dict[int, HipDevice] = {}


@dataclass(frozen=True)
class DeviceInfo:
    """What HIP says about a device.

    Args:
      ordinal: HIP's number.
      name: the model.
      arch: gfx name and features.
      compute_units: CUs.
      memory_bytes: of its own memory.
      target: what amdjax generates for it; None if it cannot.
      problem: why not.
    """

    ordinal: int
    name: str
    arch: str
    compute_units: int
    memory_bytes: int
    target: GpuTarget | None
    problem: str = ""


def version_text(version: int) -> str:
    """HIP's number for a version as people write it.

    >>> version_text(70243211)
    '7.2.43211'
    """
    return f"{version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"


def _properties(driver: Driver, ordinal: int) -> Any:
    """hip-python's `hipDeviceProp_t` of a device."""
    try:
        return driver.call("hipGetDeviceProperties", ordinal)
    except TypeError:  # up to 7.2 the caller brings the object
        found = driver.hip.hipDeviceProp_t()
        driver.call("hipGetDeviceProperties", found, ordinal)
        return found


def _string(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def describe(driver: Driver, ordinal: int) -> DeviceInfo:
    """What HIP says about a device, and whether amdjax can use it.

    Raises:
      HipError: HIP does not say.
    """
    found = _properties(driver, ordinal)
    arch, target, problem = _string(found.gcnArchName), None, ""
    try:
        target = targets.get(arch)
    except ValueError as error:
        problem = str(error)
    return DeviceInfo(
        ordinal, _string(found.name), arch, int(found.multiProcessorCount),
        int(found.totalGlobalMem), target, problem,
    )  # fmt: skip


def open_devices(driver: Driver, ordinals: Iterable[int]) -> tuple[list[HipDevice], list[str]]:
    """The devices that amdjax can use, and why it cannot use the others."""
    devices, problems = [], []
    for ordinal in ordinals:
        with _lock:
            try:
                if ordinal not in _opened:
                    info = describe(driver, ordinal)
                    if info.target is None:
                        problems.append(f"device {ordinal} ({info.name}): {info.problem}")
                        continue
                    _opened[ordinal] = HipDevice(driver, ordinal, info.target, info.name)
                devices.append(_opened[ordinal])
            except HipError as error:
                problems.append(f"device {ordinal}: {error}")
    return devices, problems


def hip_devices() -> list[HipDevice]:
    """AMD GPUs; see `amdjax.runtime.hip.hip_devices`."""
    wanted = {*requested_platforms()}
    if uses_emulator() and not wanted & HIP_NAMES:
        return []
    try:
        devices, problems = _open_hardware()
    except HipUnavailable as error:
        advice = "'python -m amdjax.doctor' tells more."
        if wanted and wanted <= HIP_NAMES:
            raise HipUnavailable(f"{error} {advice}") from error
        silence = "AMDJAX_PLATFORMS=cpu silences this."
        warnings.warn(f"amdjax runs without an AMD GPU: {error} {advice} {silence}", stacklevel=2)
        return []
    for problem in problems:
        warnings.warn(f"amdjax does not use {problem}", stacklevel=2)
    return devices


def _open_hardware() -> tuple[list[HipDevice], list[str]]:
    """The devices of AMD's library, and why others cannot be used.

    Raises:
      HipUnavailable: there are none.
    """
    found = driver()
    count = found.device_count()
    if not count:
        problem, advice = obstacle(kernel_driver())
        reason = f": {problem}. {advice}" if problem else f", by {found.library}."
        raise HipUnavailable(f"HIP sees no device{reason}")
    if found.runtime_version < OLDEST_RUNTIME:
        version = version_text(found.runtime_version)
        raise HipUnavailable(f"HIP {version} ({found.library}) is too old: 6.0 is needed.")
    devices, problems = open_devices(found, range(count))
    if not devices:
        raise HipUnavailable(f"no AMD GPU can be used: {'; '.join(problems)}")
    return devices, problems
