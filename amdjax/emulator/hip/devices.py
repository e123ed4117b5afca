"""Functions about devices, versions and errors of the emulated HIP runtime."""

from __future__ import annotations

import ctypes

from amdjax.emulator.hip.abi import HipFailure, Status, export, poke, poke_text
from amdjax.emulator.hip.properties import attribute, properties
from amdjax.emulator.hip.runtime import Runtime

# The version whose interface is presented: major * 10^7 + minor * 10^5 + patch.
VERSION = 7_02_00000


@export("hipInit", "u")
def init(rt: Runtime, flags: int) -> None:
    if flags:
        raise HipFailure(Status.InvalidValue)
    rt.device_of(0)


@export("hipDriverGetVersion", "p")
@export("hipRuntimeGetVersion", "p")
def get_version(rt: Runtime, out: int) -> None:
    poke(out, VERSION, "i")


@export("hipGetDeviceCount", "p")
def get_device_count(rt: Runtime, out: int) -> None:
    poke(out, len(rt.devices), "i")
    rt.device_of(0)


@export("hipGetDevice", "p")
def get_device(rt: Runtime, out: int) -> None:
    poke(out, rt.device.index, "i")


@export("hipSetDevice", "i")
def set_device(rt: Runtime, index: int) -> None:
    rt.set_device(index)


@export("hipDeviceGet", "pi")
def device_get(rt: Runtime, out: int, index: int) -> None:
    poke(out, rt.device_of(index).index, "i")


@export("hipDeviceGetName", "pii")
def device_get_name(rt: Runtime, out: int, size: int, index: int) -> None:
    poke_text(out, size, properties(rt.device_of(index)).name.decode())


@export("hipDeviceComputeCapability", "ppi")
def compute_capability(rt: Runtime, major: int, minor: int, index: int) -> None:
    found = properties(rt.device_of(index))
    poke(major, found.major, "i")
    poke(minor, found.minor, "i")


@export("hipDeviceGetPCIBusId", "pii")
def pci_bus_id(rt: Runtime, out: int, size: int, index: int) -> None:
    poke_text(out, size, f"0000:{properties(rt.device_of(index)).pciBusID:02x}:00.0")


@export("hipDeviceTotalMem", "pi")
def total_memory(rt: Runtime, out: int, index: int) -> None:
    poke(out, rt.device_of(index).memory_bytes)


@export("hipGetDevicePropertiesR0600", "pi")
def get_properties(rt: Runtime, out: int, index: int) -> None:
    found = properties(rt.device_of(index))
    if not out:
        raise HipFailure(Status.InvalidValue)
    ctypes.memmove(out, ctypes.addressof(found), ctypes.sizeof(found))


@export("hipDeviceGetAttribute", "pii")
def get_attribute(rt: Runtime, out: int, number: int, index: int) -> None:
    poke(out, attribute(rt.device_of(index), number), "i")


@export("hipDeviceSynchronize")
def device_synchronize(rt: Runtime) -> None:
    rt.device.synchronize()


@export("hipDeviceReset")
def device_reset(rt: Runtime) -> None:
    device = rt.device
    device.synchronize()
    for allocation in rt.allocations:
        if allocation.device is device:
            rt.release(allocation)


@export("hipDeviceCanAccessPeer", "pii")
def can_access_peer(rt: Runtime, out: int, index: int, peer: int) -> None:
    poke(out, int(rt.device_of(index) is not rt.device_of(peer)), "i")


@export("hipDeviceEnablePeerAccess", "iu")
def enable_peer_access(rt: Runtime, index: int, flags: int) -> None:
    device, peer = rt.device, rt.device_of(index)
    if flags or peer is device:
        raise HipFailure(Status.InvalidValue if flags else Status.InvalidDevice)
    if peer in device.peers:
        raise HipFailure(Status.PeerAccessAlreadyEnabled)
    rt.enable_peer(device, peer)


@export("hipDeviceDisablePeerAccess", "i")
def disable_peer_access(rt: Runtime, index: int) -> None:
    device, peer = rt.device, rt.device_of(index)
    if peer not in device.peers:
        raise HipFailure(Status.PeerAccessNotEnabled)
    rt.disable_peer(device, peer)


@export("hipGetLastError")
def get_last_error(rt: Runtime) -> int:
    return rt.last_error(clear=True)


@export("hipPeekAtLastError")
def peek_at_last_error(rt: Runtime) -> int:
    return rt.last_error(clear=False)


@export("hipGetErrorName", "i", returns="p")
def get_error_name(rt: Runtime, code: int) -> int:
    known = code in Status._value2member_map_
    return rt.string(Status(code).symbol if known else Status.Unknown.symbol)


@export("hipGetErrorString", "i", returns="p")
def get_error_string(rt: Runtime, code: int) -> int:
    return rt.describe(code)


@export("hipDrvGetErrorName", "ip")
def drv_get_error_name(rt: Runtime, code: int, out: int) -> None:
    poke(out, get_error_name(rt, code))


@export("hipDrvGetErrorString", "ip")
def drv_get_error_string(rt: Runtime, code: int, out: int) -> None:
    poke(out, get_error_string(rt, code))
