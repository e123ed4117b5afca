"""The C interface of the HIP runtime: error codes, and how functions are exported to C.

Source: "HIP Runtime API Reference", hip_runtime_api.h; the values are part of its binary interface.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Status(IntEnum):
    """`hipError_t`, as far as functions here return it."""

    Success = 0
    InvalidValue = 1
    OutOfMemory = 2
    InvalidConfiguration = 9
    InvalidMemcpyDirection = 21
    NoDevice = 100
    InvalidDevice = 101
    InvalidImage = 200
    NoBinaryForGpu = 209
    FileNotFound = 301
    InvalidHandle = 400
    NotFound = 500
    NotReady = 600
    IllegalAddress = 700
    PeerAccessAlreadyEnabled = 704
    PeerAccessNotEnabled = 705
    HostMemoryAlreadyRegistered = 712
    HostMemoryNotRegistered = 713
    LaunchFailure = 719
    CooperativeLaunchTooLarge = 720
    NotSupported = 801
    StreamCaptureUnsupported = 900
    StreamCaptureInvalidated = 901
    StreamCaptureUnmatched = 903
    StreamCaptureUnjoined = 904
    StreamCaptureImplicit = 906
    CapturedEvent = 907
    GraphExecUpdateFailure = 910
    Unknown = 999

    @property
    def symbol(self) -> str:
        """The enumerator's name in C."""
        return "hipSuccess" if self is Status.Success else f"hipError{self.name}"


DESCRIPTIONS = {
    Status.Success: "no error",
    Status.InvalidValue: "invalid argument",
    Status.OutOfMemory: "out of memory",
    Status.InvalidConfiguration: "invalid configuration argument",
    Status.InvalidMemcpyDirection: "invalid copy direction for memcpy",
    Status.NoDevice: "no ROCm-capable device is detected",
    Status.InvalidDevice: "invalid device ordinal",
    Status.InvalidImage: "device kernel image is invalid",
    Status.NoBinaryForGpu: "no kernel image is available for execution on the device",
    Status.FileNotFound: "file not found",
    Status.InvalidHandle: "invalid resource handle",
    Status.NotFound: "named symbol not found",
    Status.NotReady: "device not ready",
    Status.IllegalAddress: "an illegal memory access was encountered",
    Status.PeerAccessAlreadyEnabled: "peer access is already enabled",
    Status.PeerAccessNotEnabled: "peer access has not been enabled",
    Status.HostMemoryAlreadyRegistered: "part or all of the requested memory range is registered",
    Status.HostMemoryNotRegistered: "pointer does not correspond to a registered memory region",
    Status.LaunchFailure: "unspecified launch failure",
    Status.CooperativeLaunchTooLarge: "too many blocks in cooperative launch",
    Status.NotSupported: "operation not supported",
    Status.StreamCaptureUnsupported: "operation not permitted when stream is capturing",
    Status.StreamCaptureInvalidated: "operation failed due to a previous error during capture",
    Status.StreamCaptureUnmatched: "capture was not initiated in this stream",
    Status.StreamCaptureUnjoined: "capturing stream has unjoined work",
    Status.StreamCaptureImplicit: "the legacy stream would have to wait for a capturing one",
    Status.CapturedEvent: "operation not permitted on an event last recorded in a capturing stream",
    Status.GraphExecUpdateFailure: "the graph update was not performed",
    Status.Unknown: "unknown error",
}


class HipFailure(Exception):
    """Makes an exported function return an error code.

    Args:
      status: the code.
      detail: what happened, for `hipGetErrorString`.
    """

    def __init__(self, status: Status, detail: str = "") -> None:
        super().__init__(f"{status.symbol}: {detail or DESCRIPTIONS[status]}")
        self.status, self.detail = status, detail


@dataclass(frozen=True)
class Export:
    """A function of the library.

    Args:
      name: exported name.
      parameters: a letter each: `p` pointer or handle, `z` size_t, `i` int, `u` unsigned int,
        `b` unsigned char, `h` unsigned short, `Z` unsigned long long.
      function: what runs; takes the runtime and the arguments, pointers as integers.
      returns: `i` for an error code, else `p`.
    """

    name: str
    parameters: str
    function: Callable[..., Any]
    returns: str = "i"

    def prototype(self) -> Any:
        """The ctypes function type."""
        return ctypes.CFUNCTYPE(_TYPES[self.returns], *(_TYPES[x] for x in self.parameters))


# Pointers are taken as integers: ctypes would make NULL a None.
_TYPES: dict[str, Any] = {
    "p": ctypes.c_size_t,
    "z": ctypes.c_size_t,
    "Z": ctypes.c_uint64,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "h": ctypes.c_ushort,
    "b": ctypes.c_ubyte,
}

EXPORTS: dict[str, Export] = {}


def export(name: str, parameters: str = "", returns: str = "i") -> Callable[[F], F]:
    """Make a function part of the library; it returns None for success or raises `HipFailure`."""

    def register(function: F) -> F:
        EXPORTS[name] = Export(name, parameters, function, returns)
        return function

    return register


def poke(address: int, value: int | float, format: str = "Q") -> None:
    """Store through an output pointer.

    Raises:
      HipFailure: it is NULL.
    """
    if not address:
        raise HipFailure(Status.InvalidValue, "an output pointer is NULL")
    data = struct.pack(format, value)
    ctypes.memmove(address, data, len(data))


def poke_text(address: int, size: int, text: str) -> None:
    """Store a string in a buffer of `size` bytes, cut short if it must be."""
    if not address or size <= 0:
        raise HipFailure(Status.InvalidValue)
    data = text.encode()[: size - 1] + b"\0"
    ctypes.memmove(address, data, len(data))


def text_at(address: int) -> str:
    """The zero-terminated string at an address."""
    if not address:
        raise HipFailure(Status.InvalidValue, "a string is NULL")
    return ctypes.string_at(address).decode(errors="replace")
