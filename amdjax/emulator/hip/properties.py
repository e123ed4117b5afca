"""What emulated devices say about themselves: `hipDeviceProp_tR0600` and device attributes.

The structure and the numbers of attributes are those of ROCm 6 and later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from amdjax.emulator.hip.abi import HipFailure, Status

if TYPE_CHECKING:
    from amdjax.emulator.hip.runtime import EmulatedDevice

_C: dict[str, Any] = {
    "c": ctypes.c_char,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "p": ctypes.c_void_p,
}

# Type and count of the fields in their order. Names are the header's.
_LAYOUT = """
c256 name; c16 uuid; c8 luid; u luidDeviceNodeMask; z totalGlobalMem; z sharedMemPerBlock;
i regsPerBlock; i warpSize; z memPitch; i maxThreadsPerBlock; i3 maxThreadsDim; i3 maxGridSize;
i clockRate; z totalConstMem; i major; i minor; z textureAlignment; z texturePitchAlignment;
i deviceOverlap; i multiProcessorCount; i kernelExecTimeoutEnabled; i integrated;
i canMapHostMemory; i computeMode; i maxTexture1D; i maxTexture1DMipmap; i maxTexture1DLinear;
i2 maxTexture2D; i2 maxTexture2DMipmap; i3 maxTexture2DLinear; i2 maxTexture2DGather;
i3 maxTexture3D; i3 maxTexture3DAlt; i maxTextureCubemap; i2 maxTexture1DLayered;
i3 maxTexture2DLayered; i2 maxTextureCubemapLayered; i maxSurface1D; i2 maxSurface2D;
i3 maxSurface3D; i2 maxSurface1DLayered; i3 maxSurface2DLayered; i maxSurfaceCubemap;
i2 maxSurfaceCubemapLayered; z surfaceAlignment; i concurrentKernels; i ECCEnabled; i pciBusID;
i pciDeviceID; i pciDomainID; i tccDriver; i asyncEngineCount; i unifiedAddressing;
i memoryClockRate; i memoryBusWidth; i l2CacheSize; i persistingL2CacheMaxSize;
i maxThreadsPerMultiProcessor; i streamPrioritiesSupported; i globalL1CacheSupported;
i localL1CacheSupported; z sharedMemPerMultiprocessor; i regsPerMultiprocessor; i managedMemory;
i isMultiGpuBoard; i multiGpuBoardGroupID; i hostNativeAtomicSupported;
i singleToDoublePrecisionPerfRatio; i pageableMemoryAccess; i concurrentManagedAccess;
i computePreemptionSupported; i canUseHostPointerForRegisteredMem; i cooperativeLaunch;
i cooperativeMultiDeviceLaunch; z sharedMemPerBlockOptin;
i pageableMemoryAccessUsesHostPageTables; i directManagedMemAccessFromHost;
i maxBlocksPerMultiProcessor; i accessPolicyMaxWindowSize; z reservedSharedMemPerBlock;
i hostRegisterSupported; i sparseHipArraySupported; i hostRegisterReadOnlySupported;
i timelineSemaphoreInteropSupported; i memoryPoolsSupported; i gpuDirectRDMASupported;
u gpuDirectRDMAFlushWritesOptions; i gpuDirectRDMAWritesOrdering; u memoryPoolSupportedHandleTypes;
i deferredMappingHipArraySupported; i ipcEventSupported; i clusterLaunch;
i unifiedFunctionPointers; i63 reserved; i32 hipReserved; c256 gcnArchName;
z maxSharedMemoryPerMultiProcessor; i clockInstructionRate; u arch; p hdpMemFlushCntl;
p hdpRegFlushCntl; i cooperativeMultiDeviceUnmatchedFunc;
i cooperativeMultiDeviceUnmatchedGridDim; i cooperativeMultiDeviceUnmatchedBlockDim;
i cooperativeMultiDeviceUnmatchedSharedMem; i isLargeBar; i asicRevision
"""
# hipDeviceArch_t is 17 bits: all but surface functions (14) and dynamic parallelism (16).
_ARCH = 0xBFFF


def _fields() -> Iterator[tuple[str, Any]]:
    for entry in _LAYOUT.replace("\n", " ").split(";"):
        kind, name = entry.split()
        base = _C[kind[0]]
        yield name, base * int(kind[1:]) if kind[1:] else base


class DeviceProperties(ctypes.Structure):
    """`hipDeviceProp_tR0600`."""

    _fields_ = list(_fields())


def properties(device: EmulatedDevice) -> DeviceProperties:
    """The properties of a device."""
    target = device.target
    chip = target.device
    threads = target.max_waves * target.simds * target.wave_size
    # gfx942 is version 9.4, stepping 2; gfx1100 is 11.0, stepping 0.
    digits = target.name.removeprefix("gfx")
    return DeviceProperties(
        name=f"{chip.name} (emulated)".encode(),
        uuid=f"EMU-{device.index:012}".encode(),
        totalGlobalMem=device.memory_bytes,
        sharedMemPerBlock=target.lds_bytes,
        sharedMemPerBlockOptin=target.lds_bytes,
        sharedMemPerMultiprocessor=target.lds_per_cu,
        maxSharedMemoryPerMultiProcessor=target.lds_per_cu,
        regsPerBlock=target.vgprs * target.wave_size,
        regsPerMultiprocessor=target.vgpr_file * target.wave_size * target.simds,
        warpSize=target.wave_size,
        memPitch=0x7FFFFFFF,
        maxThreadsPerBlock=1024,
        maxThreadsDim=(1024, 1024, 1024),
        maxGridSize=(0x7FFFFFFF, 65536, 65536),
        clockRate=chip.clock * 1000,
        clockInstructionRate=100_000,
        totalConstMem=0x7FFFFFFF,
        major=int(digits[:-2]),
        minor=int(digits[-2], 16),
        textureAlignment=256,
        texturePitchAlignment=256,
        multiProcessorCount=chip.compute_units,
        integrated=int(chip.memory == 0),
        canMapHostMemory=1,
        concurrentKernels=1,
        cooperativeLaunch=1,
        pciBusID=device.index + 1,
        asyncEngineCount=1,
        unifiedAddressing=1,
        # Such that two transfers a clock give the bandwidth.
        memoryClockRate=1_000_000,
        memoryBusWidth=chip.bandwidth * 4,
        l2CacheSize=4 << 20,
        maxThreadsPerMultiProcessor=threads,
        maxBlocksPerMultiProcessor=target.max_workgroups,
        singleToDoublePrecisionPerfRatio=max(target.vector_rate // max(target.f64_rate, 1), 1),
        canUseHostPointerForRegisteredMem=1,
        hostRegisterSupported=1,
        memoryPoolsSupported=1,
        gcnArchName=target.name.encode(),
        arch=_ARCH,
        isLargeBar=1,
    )


# Attributes by number, as the field that holds them or an element of it.
_ATTRIBUTES = {
    0: "ECCEnabled", 2: "asyncEngineCount", 3: "canMapHostMemory",
    4: "canUseHostPointerForRegisteredMem", 5: "clockRate", 6: "computeMode",
    8: "concurrentKernels", 9: "concurrentManagedAccess", 10: "cooperativeLaunch",
    15: "hostNativeAtomicSupported", 16: "integrated", 17: "isMultiGpuBoard", 19: "l2CacheSize",
    23: "major", 24: "managedMemory", 25: "maxBlocksPerMultiProcessor", 26: "maxThreadsDim 0",
    27: "maxThreadsDim 1", 28: "maxThreadsDim 2", 29: "maxGridSize 0", 30: "maxGridSize 1",
    31: "maxGridSize 2", 56: "maxThreadsPerBlock", 57: "maxThreadsPerMultiProcessor",
    58: "memPitch", 59: "memoryBusWidth", 60: "memoryClockRate", 61: "minor",
    63: "multiProcessorCount", 65: "pageableMemoryAccess", 67: "pciBusID", 68: "pciDeviceID",
    69: "pciDomainID", 71: "regsPerBlock", 72: "regsPerMultiprocessor",
    73: "reservedSharedMemPerBlock", 74: "sharedMemPerBlock", 75: "sharedMemPerBlockOptin",
    76: "sharedMemPerMultiprocessor", 77: "singleToDoublePrecisionPerfRatio",
    78: "streamPrioritiesSupported", 81: "textureAlignment", 83: "totalConstMem",
    84: "totalGlobalMem", 85: "unifiedAddressing", 87: "warpSize", 88: "memoryPoolsSupported",
    90: "hostRegisterSupported", 10000: "clockInstructionRate",
    10002: "maxSharedMemoryPerMultiProcessor", 10011: "isLargeBar", 10012: "asicRevision",
    10015: "multiProcessorCount", 10017: "clockInstructionRate",
}  # fmt: skip


def attribute(device: EmulatedDevice, number: int) -> int:
    """The value of a `hipDeviceAttribute_t`, at most the largest `int`.

    Raises:
      HipFailure: there is no such attribute here.
    """
    field, _, index = _ATTRIBUTES.get(number, "").partition(" ")
    if not field:
        raise HipFailure(Status.InvalidValue, f"device attribute {number}")
    value = getattr(properties(device), field)
    return min(int(value[int(index)] if index else value), 0x7FFFFFFF)
