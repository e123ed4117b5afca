"""hip-python and the HIP library behind it, with errors as exceptions.

hip-python opens the library at its first call and keeps it, so a process talks either to AMD's or
to the emulator's. Versions 6.4 to 7.2 (package `hip`) and 10.0 (`rocm.bindings`) are supported.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from amdjax.runtime.gpu import DeviceError, refuse_after_fork

_SONAMES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")


class HipUnavailable(RuntimeError):
    """HIP cannot be used here; the message says why and what to do."""


class HipError(DeviceError):
    """A HIP function failed; `status` is the name of its error code."""


class Emulator(Protocol):
    """A HIP library that lies in this process."""

    @property
    def path(self) -> str:
        """Where hip-python can open it."""

    def interruption(self) -> BaseException | None:
        """What interrupted a kernel, such as Ctrl-C; told once."""


#: Opens an emulator, which must export the functions of these names.
OpenEmulator = Callable[[Sequence[str]], Emulator]


def hip_python_version() -> str | None:
    """The version of hip-python that is installed."""
    for name in ("rocm-bindings-hip", "hip-python"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def load_hip_python() -> Any:
    """hip-python's module of HIP functions.

    Raises:
      HipUnavailable: it is not installed, or does not load.
    """
    # The older package brings along bindings of a dozen libraries; it comes second.
    problem: ImportError | None = None
    for package in ("rocm.bindings", "hip"):
        try:
            return importlib.import_module(f"{package}.hip")
        except ModuleNotFoundError as error:
            if not package.startswith(error.name or "?"):
                problem = error
        except ImportError as error:
            problem = error
    if problem is not None:
        raise HipUnavailable(
            f"hip-python does not load: {problem}. Install it anew with all it needs, by "
            "'pip install --force-reinstall hip-python'."
        ) from problem
    raise HipUnavailable(
        "hip-python is not installed. It comes with amdjax on Linux x86-64; install it with "
        "'pip install hip-python'."
    )


def find_library() -> str:
    """Path or name of AMD's HIP library, which is loaded thereby.

    Looked for in `AMDJAX_HIP_LIBRARY`; among what is loaded, perhaps by another framework; in the
    folders `ROCM_PATH/lib` and `/opt/rocm/lib`; in ROCm's Python packages; where the system's
    loader looks.

    Raises:
      HipUnavailable: there is none, or it does not load.
    """
    chosen = os.environ.get("AMDJAX_HIP_LIBRARY")
    candidates = [chosen] if chosen else list(_candidates())
    problems = []
    for name in candidates:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            # A name that was tried and is nowhere says nothing; a file that does not load does.
            if chosen or not str(error).startswith(f"{name}: cannot open"):
                problems.append(str(error) if name in str(error) else f"{name}: {error}")
        else:
            if hasattr(library, "hipGetDeviceCount"):
                return name
            problems.append(f"{name} has no functions of HIP")
    reason = "; ".join(problems) or f"{_SONAMES[0]} is in none of the usual places"
    raise HipUnavailable(
        f"the HIP runtime library does not load ({reason}). Install it from AMD's repository "
        "(package 'amdrocm-runtime', 'hip-runtime-amd' before ROCm 7.13), or set "
        "AMDJAX_HIP_LIBRARY to the file."
    )


def _loaded_libraries() -> Iterator[str]:
    """HIP libraries that are in this process already; two of them would fight for the devices."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    paths = (line.split(maxsplit=5)[5] for line in lines if "libamdhip64.so" in line)
    yield from (path for path in dict.fromkeys(paths) if os.path.exists(path))


def _candidates() -> Iterator[str]:
    yield from _loaded_libraries()
    folders = [os.path.join(os.environ.get("ROCM_PATH", "/opt/rocm"), "lib"), "/opt/rocm/lib"]
    for folder in dict.fromkeys(folders):
        for name in _SONAMES:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                yield path
    try:
        sdk = importlib.import_module("rocm_sdk")
        yield from (str(path) for path in sdk.find_libraries("amdhip64"))
    except Exception:  # not installed, or of a version that has no such function
        pass
    yield from _SONAMES


@contextmanager
def _redirected(hip: Any, path: str) -> Iterator[None]:
    """Within, hip-python opens `path` when its first function is called."""
    package = hip.__name__.rpartition(".")[0]
    if package == "rocm.bindings":
        paths: Any = importlib.import_module("rocm.bindings.util.paths")
        original = paths.get_library_path

        def get_library_path(name: str, *args: Any, **kwargs: Any) -> bytes:
            return path.encode() if name == "amdhip64" else original(name, *args, **kwargs)

        paths.get_library_path = get_library_path
        try:
            yield
        finally:
            paths.get_library_path = original
    else:
        functions: Any = importlib.import_module(f"{package}.chip")
        functions.DLL = path.encode()
        yield


class Driver:
    """The HIP library of this process.

    Args:
      hip: hip-python's module.
      library: path or name of the library.
      emulated: the emulator, if the library is its.

    Raises:
      HipUnavailable: it cannot be used; the message says why.
    """

    def __init__(self, hip: Any, library: str, emulated: Emulator | None = None) -> None:
        self.hip, self.library, self._emulated = hip, library, emulated
        self.is_emulated = emulated is not None
        self._success = hip.hipError_t.hipSuccess
        try:
            with _redirected(hip, library):
                self.runtime_version = self._version("hipRuntimeGetVersion")
        except RuntimeError as error:
            raise HipUnavailable(f"hip-python cannot open {library}: {error}") from error
        self.driver_version = self._version("hipDriverGetVersion")
        if not self.is_emulated:  # the emulator is in the child as well
            refuse_after_fork(self, "call")

    def _version(self, function: str) -> int:
        """`major * 10^7 + minor * 10^5 + patch`; 0 where the library does not say."""
        try:
            return int(self.call(function))
        except HipError:
            return 0

    def device_count(self) -> int:
        """How many devices the library sees.

        Raises:
          HipUnavailable: it does not work here.
        """
        try:
            return int(self.call("hipGetDeviceCount"))
        except HipError as error:
            if error.status in ("hipErrorNoDevice", "hipErrorInvalidDevice"):
                return 0
            raise HipUnavailable(str(error)) from error

    def call(self, name: str, *args: Any) -> Any:
        """Call a HIP function; returns what it puts out: nothing, a value, or a tuple.

        Raises:
          HipError: it failed, or the library has no such function.
        """
        try:
            status, *results = getattr(self.hip, name)(*args)
        except RuntimeError as error:
            if "dlsym" not in str(error):
                raise
            text = f"{name} is not in {self.library}, which is too old"
            raise HipError(text, "hipErrorNotSupported") from error
        if status != self._success:
            raise self.error(name, status)
        return results[0] if len(results) == 1 else tuple(results) or None

    def error(self, function: str, status: Any) -> HipError:
        """The exception for a status that a function returned.

        Raises:
          BaseException: what interrupted the emulator, such as Ctrl-C.
        """
        if self._emulated and (interruption := self._emulated.interruption()):
            raise interruption
        name = getattr(status, "name", str(status))
        text = _text(self.hip.hipGetErrorString(status)[1])
        # The failed call also left its code behind, which the next launch must not see.
        self.hip.hipGetLastError()
        return HipError(f"{function}: {text} ({name})", name)


def _text(value: Any) -> str:
    """What hip-python returns for a C string: bytes, str or an object with a buffer."""
    if isinstance(value, str):
        return value
    data = value if isinstance(value, bytes) else bytes(value)
    return data.partition(b"\0")[0].decode(errors="replace")


_lock = threading.RLock()
_bound: Driver | None = None


def driver(emulator: OpenEmulator | None = None) -> Driver:
    """The driver of this process.

    Args:
      emulator: opens the emulator's library; AMD's is wanted where it is left out.

    Raises:
      HipUnavailable: there is none, or the process uses the other one already.
    """
    global _bound
    with _lock:
        if _bound is None:
            _bound = _hardware() if emulator is None else _emulated(emulator)
        if _bound.is_emulated != (emulator is not None):
            used, wanted = ("the emulator", "AMD's library") if _bound.is_emulated else (
                "AMD's library", "the emulator")  # fmt: skip
            raise HipUnavailable(
                f"this process uses {used}; {wanted} needs a process of its own, with "
                f"AMDJAX_PLATFORMS={'hip' if _bound.is_emulated else 'emulated'}"
            )
        return _bound


def uses_emulator() -> bool:
    """Whether this process has opened the emulator's library."""
    return _bound is not None and _bound.is_emulated


def _hardware() -> Driver:
    return Driver(load_hip_python(), find_library())


def _emulated(emulator: OpenEmulator) -> Driver:
    hip = load_hip_python()
    opened = emulator(_function_names(hip))
    return Driver(hip, opened.path, opened)


def _function_names(hip: Any) -> Sequence[str]:
    """What hip-python may look up in the library."""
    return [n for n in dir(hip) if n.startswith("hip") and callable(getattr(hip, n))
            and not isinstance(getattr(hip, n), type)]  # fmt: skip
