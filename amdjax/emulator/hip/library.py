"""The emulator as `libamdhip64.so`: what opens that library in this process gets this one.

    hip-python → libamdhip64.so → functions of the modules here → `machine.launch`

Functions of the library that are not emulated return `hipErrorNotSupported`. What a kernel did
wrong is in the text that `hipGetErrorString` returns for the error: kernel, instruction, lane.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Sequence
from functools import partial

from amdjax import targets
from amdjax.emulator.hip import (  # noqa: F401  the modules export what they define
    devices,
    graphs,
    memory,
    modules,
    streams,
)
from amdjax.emulator.hip.abi import EXPORTS, Export, HipFailure, Status
from amdjax.emulator.hip.jump_library import JumpLibrary
from amdjax.emulator.hip.runtime import EmulatedDevice, Runtime
from amdjax.emulator.isa import check_emulated
from amdjax.runtime.environment import memory_bytes
from amdjax.targets import GpuTarget

SONAME = "libamdhip64.so"
_DEFAULT = "gfx942"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class EmulatedHip:
    """The library with its state.

    Args:
      device_bytes: memory of each device.
      functions: further names to export; they return `hipErrorNotSupported`.
    """

    def __init__(self, device_bytes: int, functions: Iterable[str] = ()) -> None:
        self.runtime = Runtime()
        self._memory = device_bytes
        exports = dict(EXPORTS)
        for name in functions:
            exports.setdefault(name, Export(name, "", partial(_not_supported, name)))
        callbacks = {e.name: e.prototype()(self.runtime.entry(e)) for e in exports.values()}
        self.library = JumpLibrary(SONAME, callbacks)

    @property
    def path(self) -> str:
        """Where the library's file is."""
        return self.library.path

    def interruption(self) -> BaseException | None:
        """What interrupted a kernel, such as Ctrl-C, once."""
        return self.runtime.interruption()

    def devices(self, names: Sequence[str]) -> list[int]:
        """Numbers of devices of these targets, which are added where there are too few.

        Args:
          names: targets; one that is named twice gets two devices.
        """
        free = dict(enumerate(self.runtime.devices))
        return [self._device(free, targets.get(name)) for name in names]

    def _device(self, free: dict[int, EmulatedDevice], target: GpuTarget) -> int:
        for index, device in free.items():
            if device.target is target:
                del free[index]
                return index
        return self.runtime.add_device(target, self._memory)


def _not_supported(name: str, rt: Runtime) -> None:
    raise HipFailure(Status.NotSupported, f"{name} is not emulated")


def device_names(text: str | None) -> list[str]:
    """The targets that `AMDJAX_EMULATE` names; gfx942 where it names none.

    Args:
      text: the flag's value.

    Raises:
      ValueError: an unknown target, or one without emulation.

        >>> device_names("gfx942x2, gfx1100")
        ['gfx942', 'gfx942', 'gfx1100']
    """
    names: list[str] = []
    for word in (w.strip() for w in (text or _DEFAULT).split(",")):
        found = re.fullmatch(r"(gfx\w+?)(?:x([1-9]\d?))?", word)
        name, count = found.groups() if found else (word, None)
        if word:
            names += [_emulated_name(name, text)] * int(count or 1)
    if not names:
        raise ValueError(f"AMDJAX_EMULATE={text!r} names no target, such as gfx942")
    return names


def _emulated_name(name: str, text: str | None) -> str:
    try:
        name = targets.get(name).name
        check_emulated(name)
    except ValueError as error:
        raise ValueError(f"AMDJAX_EMULATE={text!r}: {error}") from None
    return name


def device_memory(text: str | None) -> int:
    """Bytes of memory of a device: half the host's, or what `AMDJAX_EMULATE_MEMORY` says.

    Args:
      text: the variable's value.

    Raises:
      ValueError: not a number of bytes, which may end in K, M or G.

        >>> device_memory("64M")
        67108864
    """
    if not text:
        return memory_bytes() // 2
    found = re.fullmatch(r"(\d+)\s*([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(f"AMDJAX_EMULATE_MEMORY={text!r} is no number of bytes, such as 512M")
    return int(found[1]) * _UNITS[found[2].lower()]


_lock = threading.Lock()
_instance: EmulatedHip | None = None


def emulated_hip(functions: Iterable[str] = ()) -> EmulatedHip:
    """The library of this process, made when first asked for.

    Args:
      functions: names that must be exported, whether emulated or not.
    """
    global _instance
    with _lock:
        if _instance is None:
            bytes_each = device_memory(os.environ.get("AMDJAX_EMULATE_MEMORY"))
            _instance = EmulatedHip(bytes_each, functions)
        return _instance
