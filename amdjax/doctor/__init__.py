"""Looks for AMD GPUs, tells what keeps them from being used, and tries them out.

    python -m amdjax.doctor

The folder is also the function: `amdjax.doctor()` does the same from Python.
"""

from __future__ import annotations

import inspect
import io
import os
import platform
import sys
from importlib import metadata
from types import ModuleType
from typing import Any, TextIO

from amdjax.core.boundaries import api_boundary
from amdjax.core.config import config
from amdjax.core.errors import did_you_mean
from amdjax.core.flags import FLAGS
from amdjax.doctor.report import Report
from amdjax.runtime.devices import HIP_NAMES, default_backend, devices, requested_platforms

__all__ = ["doctor", "print_environment_info"]

_VARIABLES = (
    "AMDJAX_",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_ENABLE_SDMA",
    "ROCM_PATH",
    "LD_LIBRARY_PATH",
)
# Besides the settings of `core.config`.
_OTHERS = {"AMDJAX_EMULATE_MEMORY", "AMDJAX_HIP_LIBRARY", "AMDJAX_SPIN_US"}


def doctor(*, self_test: bool = True, file: TextIO | None = None) -> bool:
    """Report on AMD GPUs, or on emulated ones where `AMDJAX_EMULATE` is set.

    Args:
      self_test: also run some programs on every device, in processes of their own, and compare
        the results with the CPU's.
      file: where the report goes; standard output by default.

    Returns:
      Whether a device can be used and nothing is wrong.

    Raises:
      TypeError: `file` cannot be written to.

        >>> amdjax.doctor(self_test=False)  # doctest: +SKIP
        True
    """
    if file is not None and not hasattr(file, "write"):
        raise TypeError(f"doctor: file must be an open text file, got {file!r}")
    report = Report(sys.stdout if file is None else file)
    report.write("amdjax doctor")
    report.section("Versions")
    _versions(report)
    _environment(report)
    wanted = _platforms(report)
    # What AMDJAX_PLATFORMS says counts before AMDJAX_EMULATE.
    emulated = "emulated" in wanted or (bool(config.emulate) and not wanted & HIP_NAMES)
    if not emulated:
        _system(report)
    found = _devices(report, emulated)
    if self_test:
        for device in found:
            _try_out(report, device)
    if found and wanted:
        _check_choice(report, found[0].platform)
    names = ", ".join(f"{d.platform}:{d.id} ({d.target.name})" for d in found)
    return report.conclude(f"All well: amdjax can use {names}.")


def print_environment_info(return_string: bool = False) -> str | None:
    """Print what others need to know of this installation: versions, settings, devices.

    Args:
      return_string: whether to return the text instead.

        >>> print("NumPy" in amdjax.print_environment_info(return_string=True))
        True
    """
    text = io.StringIO()
    report = Report(text)
    report.section("Versions")
    _versions(report)
    _environment(report)
    report.section("Devices")
    for device in devices():
        report.row(str(device), device.device_kind)
    if return_string:
        return text.getvalue()
    print(text.getvalue(), end="")
    return None


def _platforms(report: Report) -> set[str]:
    """The words of `AMDJAX_PLATFORMS`."""
    try:
        return {*requested_platforms()}
    except RuntimeError as error:
        what, _, advice = str(error).partition(". ")
        report.problem(what, advice)
        return set()


def _check_choice(report: Report, platform: str) -> None:
    """Tell where programs run, if not on the platform that was looked at."""
    if (chosen := default_backend()) != platform:
        report.problem(
            f"programs run on {chosen} and not on {platform}, since AMDJAX_PLATFORMS is "
            f"{config.platforms!r}",
            f"Unset it, or let {platform} come first in it.",
        )


def _versions(report: Report) -> None:
    # late: LLVM takes long to load
    import llvmlite.binding as llvm

    # late: its answer must come where a part does not load
    import amdjax
    from amdjax.runtime.hip.driver import hip_python_version

    report.row("amdjax", amdjax.__version__)
    report.row("Python", f"{platform.python_version()}, {platform.platform()}")
    report.row("NumPy", metadata.version("numpy"))
    version = ".".join(map(str, llvm.llvm_version_info))
    report.row("llvmlite", f"{metadata.version('llvmlite')}, LLVM {version}")
    report.row("hip-python", hip_python_version() or "not installed")


def _environment(report: Report) -> None:
    found = {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)}
    if found:
        report.section("Environment")
        for name, value in found.items():
            report.write(f"  {name}={value}")
        for name in found:
            _check_name(report, name)


def _check_name(report: Report, name: str) -> None:
    """Tell of a variable that is not read."""
    known = {flag.env for flag in FLAGS.values() if flag.effect} | _OTHERS
    if not name.startswith("AMDJAX_") or name.startswith("AMDJAX_TEST_") or name in known:
        return
    meant = did_you_mean(name, known).lstrip() or "It has no effect."
    report.problem(f"there is no setting {name}", meant)


def _system(report: Report) -> None:
    """Hardware, kernel driver, permissions."""
    # late: its answer must come where a part does not load
    from amdjax.runtime.hip.system import kernel_driver, obstacle

    found = kernel_driver()
    report.section("System")
    report.row("AMD cards", ", ".join(found.cards) or "none on the PCI bus")
    module = found.version or "the kernel's own"
    report.row("amdgpu driver", module if found.is_loaded else "not loaded")
    if found.gfx:
        report.row("offers", ", ".join(found.gfx))
    for node in found.nodes:
        access = "open to you" if node.is_open else "closed to you"
        report.row(node.path, f"group {node.group}, {access}")
    problem, advice = obstacle(found)
    if problem:
        report.problem(problem, advice)


def _devices(report: Report, emulated: bool) -> list[Any]:
    """The devices that can be used; the report says what is wrong with others."""
    # late: its answer must come where a part does not load
    from amdjax.emulator.hip.platform import emulated_driver
    from amdjax.runtime.hip.driver import HipError, HipUnavailable, driver
    from amdjax.runtime.hip.platform import OLDEST_RUNTIME, describe, open_devices, version_text

    report.section("HIP")
    try:
        found = emulated_driver() if emulated else driver()
        ordinals = _ordinals(emulated, found)
    except (HipUnavailable, ValueError) as error:
        what, _, advice = str(error).partition(". ")
        report.problem(what, advice)
        return []
    report.row("library", "the emulator" if emulated else found.library)
    report.row("runtime", version_text(found.runtime_version))
    report.row("driver", version_text(found.driver_version))
    if found.runtime_version < OLDEST_RUNTIME:
        report.problem(
            "this HIP runtime is too old: 6.0 is needed",
            "Install package 'amdrocm-runtime' from AMD's repository.",
        )
    if not ordinals:
        report.row("devices", "none")
        if not report.problems:
            hidden = "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES may hide it."
            report.problem("HIP sees no device", hidden)
    if not ordinals or found.runtime_version < OLDEST_RUNTIME:
        return []
    report.section("Devices")
    for ordinal in ordinals:
        try:
            info = describe(found, ordinal)
        except HipError as error:
            report.problem(f"device {ordinal}: {error}")
            continue
        memory = info.memory_bytes / 2**30
        text = f"{info.name}, {info.arch}, {info.compute_units} CUs, {memory:.1f} GiB"
        report.row(f"{ordinal}", text)
        if info.target is None:
            report.problem(f"device {ordinal} is not supported: {info.problem}")
    devices, _ = open_devices(found, ordinals)
    return devices


def _ordinals(emulated: bool, driver: Any) -> list[int]:
    """HIP's numbers of the devices to look at."""
    if not emulated:
        return list(range(driver.device_count()))
    # late: its answer must come where a part does not load
    from amdjax.emulator.hip.library import device_names, emulated_hip

    return emulated_hip().devices(device_names(config.emulate))


def _try_out(report: Report, device: Any) -> None:
    """Run the checks on a device."""
    # late: its answer must come where a part does not load
    from amdjax.doctor.checks import CHECKS, COPY, outcomes

    names = [*(check.name for check in CHECKS), COPY]
    report.section(f"Self-test on {device.platform}:{device.id} ({device.target.name})")
    failed = []
    for outcome in outcomes(device.platform, device.id, names):
        report.row(outcome.name, outcome.text, width=24)
        if not outcome.passed:
            failed.append(outcome.name)
    if failed:
        report.problem(
            f"{device.platform}:{device.id} failed {len(failed)} of {len(names)} checks: "
            f"{', '.join(failed)}",
            "Please report this with the whole output. AMDJAX_PLATFORMS=cpu works meanwhile.",
        )


class _CallableModule(ModuleType):
    """A module that is called like the function of its name."""

    @api_boundary
    def __call__(self, *args: Any, **options: Any) -> bool:
        return doctor(*args, **options)


_module = sys.modules[__name__]
_module.__class__ = _CallableModule
_module.__signature__ = inspect.signature(doctor)  # type: ignore[attr-defined]
