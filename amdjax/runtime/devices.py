"""Devices and the registry of platforms that have some."""

from __future__ import annotations

import importlib
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax.core.boundaries import api_boundary
from amdjax.core.config import config
from amdjax.core.errors import JaxRuntimeError, did_you_mean
from amdjax.core.sharding import KINDS


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """Where an array is, and whether operations on it must run there.

    A device has one of either kind, so that placements can be compared by identity.
    """

    device: Device
    committed: bool


class Device:
    """A place where arrays live and programs run.

    Attributes:
        platform: `cpu`, `hip`, ....
        id: number within the platform.
        device_kind: the model, as the maker calls it.
        process_index: the process that drives the device.
        committed: the placement of arrays that were put here.
        uncommitted: the placement of arrays that happen to be here.
    """

    platform = "abstract"

    def __init__(self, id: int, device_kind: str) -> None:
        self.id = id
        self.device_kind = device_kind
        self.process_index = 0
        self.committed = Placement(self, True)
        self.uncommitted = Placement(self, False)

    def __reduce__(self) -> Any:
        return _device_named, (self.platform, self.id)

    @property
    def local_hardware_id(self) -> int:
        """Number within this host."""
        return self.id

    def default_memory(self) -> Memory:
        """The memory that the device computes in, where arrays are unless they were put elsewhere.

        >>> amdjax.devices("cpu")[0].default_memory().kind
        'device'
        """
        return self.addressable_memories()[0]

    def addressable_memories(self) -> list[Memory]:
        """The kinds of memory that the device can copy from and to: its own and the host's."""
        return [Memory(kind, self) for kind in KINDS]

    def memory(self, kind: str) -> Memory:
        """The memory of a kind.

        Args:
          kind: "device" or "pinned_host".

        Raises:
          JaxRuntimeError: the device can address no memory of this kind.

            >>> amdjax.devices("cpu")[0].memory("pinned_host").kind
            'pinned_host'
        """
        memories = {memory.kind: memory for memory in self.addressable_memories()}
        if kind not in memories:
            raise JaxRuntimeError(
                f"INVALID_ARGUMENT: Could not find memory addressable by device {self.platform}. "
                f"Device {self.platform} can address the following memory kinds: "
                f"{', '.join(memories)}. Got memory kind: {kind}"
            )
        return memories[kind]

    @property
    def client(self) -> Backend:
        """The platform, with all its devices."""
        return Backend(self.platform)

    def memory_stats(self) -> dict[str, int] | None:
        """Bytes in use and available, where the platform knows them."""
        return None

    def synchronize(self) -> None:
        """Wait for all work issued before."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


@dataclass(frozen=True)
class Memory:
    """A kind of memory of a device."""

    kind: str
    device: Device

    @property
    def platform(self) -> str:
        """The platform of the device."""
        return self.device.platform

    @property
    def process_index(self) -> int:
        """The process that drives the device."""
        return self.device.process_index

    def addressable_by_devices(self) -> list[Device]:
        """The devices that can copy from and to it."""
        return [self.device]

    def __repr__(self) -> str:
        return f"Memory(kind={self.kind!r}, device={self.device!r})"


class Backend:
    """A platform and its devices.

    Args:
      platform: its name.
    """

    runtime_type = "amdjax"

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


def _device_named(platform: str, id: int) -> Device:
    """The device of this process that one was pickled as."""
    return next(d for d in devices(platform) if d.id == id)


class CpuDevice(Device):
    """This computer's processors, all cores together."""

    platform = "cpu"

    def memory_stats(self) -> dict[str, int]:
        """Bytes in use and cached by the buffer pool, and its limit."""
        # late: LLVM takes long to load
        from amdjax.runtime.memory import buffer_pool

        stats = buffer_pool().stats()
        return {
            "bytes_in_use": stats.in_use,
            "bytes_reserved": stats.mapped,
            "bytes_limit": stats.limit,
        }


@dataclass(frozen=True)
class _Platform:
    """A row of the registry. Without `find` being called, nothing of a platform is loaded."""

    name: str
    find: Callable[[], list[Any]]
    priority: int
    aliases: tuple[str, ...]
    on_request: bool
    hint: str


_registry: dict[str, _Platform] = {}
_found: dict[str, list[Any]] = {}
_lock = threading.RLock()


def register_platform(
    name: str, find: Callable[[], list[Any]], *, priority: int = 0, aliases: tuple[str, ...] = (),
    on_request: bool = False, hint: str = "",
) -> None:  # fmt: skip
    """Announce a platform.

    Args:
        name: what `Device.platform` of its devices says.
        find: returns its devices, none if the hardware is missing; called once, when first asked.
        priority: the default backend is the highest one that has devices.
        aliases: other names users may ask for, such as `gpu`.
        on_request: whether it never is the default unless a user names it.
        hint: what to do where there are no devices, a sentence.
    """
    with _lock:
        _registry[name] = _Platform(name, find, priority, aliases, on_request, hint)
        _found.pop(name, None)


def platforms() -> list[str]:
    """Names of the platforms that have devices here, the default first."""
    return [name for name in _preferred() if _devices_of(name)]


@api_boundary
def devices(backend: str | None = None) -> list[Any]:
    """All devices of a backend.

    Args:
        backend: a platform's name or alias; None for the default backend.

    Raises:
        RuntimeError: there is no such backend, or it has no device here.

        >>> devices("cpu")
        [CpuDevice(id=0)]
    """
    if backend is None:
        backend = default_backend()
    for name in _preferred(everything=True):
        row = _registry[name]
        if _is_meant(row, backend) and (found := _devices_of(name)):
            return list(found)
    error = RuntimeError if isinstance(backend, str) else TypeError
    raise error(
        f"Unknown backend {backend} requested, but no devices of it are present."
        f"{_meant(backend)} {_known()}; with devices: {', '.join(platforms())}."
        f"{_hints([backend])}"
    )


def _names() -> list[str]:
    """What platforms are called."""
    return sorted({name for row in _registry.values() for name in (row.name, *row.aliases)})


def _known() -> str:
    return f"Platforms known: {', '.join(_names())}"


def _meant(word: Any) -> str:
    """A sentence about what a word may mean that is no platform's name."""
    if not isinstance(word, str) or word in _names():
        return ""
    if word.startswith("gfx"):
        return f" AMDJAX_EMULATE={word} emulates such a GPU."
    return did_you_mean(word.lower(), _names())


def _hints(names: list[str]) -> str:
    """What to do about platforms that have no devices, as the end of a message."""
    rows = (row for row in _registry.values() if {row.name, *row.aliases} & {*names})
    return "".join(f" {row.hint}" for row in rows if row.hint)


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Any]:
    """Devices that a process drives; there is one process, number 0."""
    wanted = process_index if process_index is not None else host_id
    if not isinstance(wanted, (int, float, np.integer, np.floating, types.NoneType)):
        raise TypeError(f"local_devices: process_index must be an integer, got {wanted!r}")
    if wanted is not None and wanted != 0:
        raise ValueError(f"Unknown process_index {wanted}: there is only process 0.")
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """Number of devices of a backend."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """Number of devices of a backend that this process drives."""
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The number of this process among those computing together."""
    return 0


def process_count(backend: str | None = None) -> int:
    """How many processes compute together."""
    return 1


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes that compute together."""
    return [0]


host_count, host_id, host_ids = process_count, process_index, process_indices


def default_backend() -> str:
    """The platform of the default device.

    >>> default_backend() in platforms()
    True
    """
    chosen = config.default_device
    if isinstance(chosen, Device):
        return chosen.platform
    name = next((name for name in _preferred() if _devices_of(name)), None)
    if name is None:
        raise RuntimeError(
            f"None of the platforms in AMDJAX_PLATFORMS={config.platforms!r} has devices here. "
            f"{_known()}.{_hints(requested_platforms())}"
        )
    return name


def default_device() -> Any:
    """Where new arrays go: `config.default_device`, else the default backend's first device.

    Returns:
      A `Device`, or what the setting holds.

        >>> default_device().platform
        'cpu'
    """
    chosen = config.default_device
    if isinstance(chosen, Device):
        return chosen
    return devices(chosen)[0]


def _preferred(everything: bool = False) -> list[str]:
    """Platforms in order of preference; those not asked for only with `everything`."""
    names = sorted(_registry, key=lambda name: -_registry[name].priority)
    if wanted := requested_platforms():
        chosen = [n for word in wanted for n in names if _is_meant(_registry[n], word)]
    else:
        chosen = [n for n in names if n == _asked() or not _registry[n].on_request]
        chosen.sort(key=lambda n: n != _asked())
    return chosen + [name for name in names if everything and name not in chosen]


def _asked() -> str | None:
    """The platform that AMDJAX_EMULATE asks for."""
    return "emulated" if config.emulate else None


def _is_meant(row: _Platform, word: Any) -> bool:
    """Whether a user's word names a platform; `gpu` means an emulated one only if asked for."""
    alias = word in row.aliases and (not row.on_request or row.name == _asked())
    return alias or word == row.name


#: What AMDJAX_PLATFORMS may call AMD's hardware.
HIP_NAMES = frozenset({"hip", "rocm"})


def requested_platforms() -> list[str]:
    """The words of AMDJAX_PLATFORMS.

    Raises:
        RuntimeError: one is no platform's name.
    """
    words = [word.strip() for word in (config.platforms or "").split(",") if word.strip()]
    for word in words:
        if word not in _names():
            raise RuntimeError(
                f"AMDJAX_PLATFORMS={config.platforms!r}: there is no platform {word!r}."
                f"{_meant(word)} {_known()}."
            )
    return words


def _devices_of(name: str) -> list[Any]:
    found = _found.get(name)
    if found is None:
        with _lock:
            found = _found[name] = list(_registry[name].find())
    return found


def effects_barrier() -> None:
    """Wait until everything that programs do besides computing has happened.

    Callbacks and prints run in their program's turn; the programs that devices were given may
    still be running.

    Raises:
      RuntimeError: work on a device has failed.

        >>> amdjax.jit(lambda x: amdjax.debug.print("x = {}", x))(1)
        x = 1
        >>> amdjax.effects_barrier()
    """
    for devices_found in list(_found.values()):
        for device in devices_found:
            device.synchronize()


def _found_by(module: str, function: str) -> Callable[[], list[Any]]:
    """A function of a module that is imported when its platform is first asked for."""
    return lambda: getattr(importlib.import_module(module), function)()


register_platform("cpu", lambda: [CpuDevice(0, "cpu")])
register_platform(
    "hip",
    _found_by("amdjax.runtime.hip", "hip_devices"),
    priority=10,
    aliases=("rocm", "gpu"),
    hint="`python -m amdjax.doctor` looks for AMD GPUs and tells what is missing; "
    "AMDJAX_EMULATE=gfx942 emulates one.",
)
register_platform(
    "cuda",
    _found_by("amdjax.runtime.cuda", "find_devices"),
    priority=-10,
    aliases=("gpu",),
    hint="CUDA takes an NVIDIA GPU, its driver, and `pip install 'amdjax[cuda]'`.",
)
register_platform(
    "emulated",
    _found_by("amdjax.emulator.hip.platform", "emulated_devices"),
    priority=20,
    aliases=("gpu",),
    on_request=True,
    hint="The emulator takes hip-python, which has wheels for Linux on x86-64.",
)


def _forget_emulated(targets: Any) -> None:
    _found.pop("emulated", None)


config.on_update("emulate", _forget_emulated)
