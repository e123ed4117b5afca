"""Linked AMDGPU code objects: an image as the loader would map it, and the kernels in it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from amdjax.runtime.emulator.errors import EmulatorError

# Machine of e_flags, low byte (llvm/BinaryFormat/ELF.h): name and instruction set.
_MACHINES = {0x4C: ("gfx942", "cdna3"), 0x41: ("gfx1100", "rdna3"), 0x46: ("gfx1101", "rdna3"),
             0x47: ("gfx1102", "rdna3"), 0x44: ("gfx1103", "rdna3")}  # fmt: skip
_EM_AMDGPU, _PT_LOAD, _SHT_DYNSYM, _STT_OBJECT, _STT_KERNEL = 224, 1, 11, 1, 10

# amd_kernel_descriptor_t, https://llvm.org/docs/AMDGPUUsage.html#kernel-descriptor
_DESCRIPTOR = struct.Struct("<IIIIq20xIIIHH4x")
# Bits of kernel_code_properties: user SGPRs in the order they are laid out, and their count.
_USER_SGPRS = (("private_segment_buffer", 0, 4), ("dispatch_ptr", 1, 2), ("queue_ptr", 2, 2),
               ("kernarg_segment_ptr", 3, 2), ("dispatch_id", 4, 2), ("flat_scratch_init", 5, 2),
               ("private_segment_size", 6, 1))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel's descriptor, read. Addresses are those of the mapped image."""

    name: str
    isa: str
    code: bytes
    entry: int
    lanes: int
    vgprs: int
    group_segment: int
    private_segment: int
    kernarg_size: int
    user_sgprs: dict[str, int]
    user_sgpr_count: int
    kernarg_preload: int
    workgroup_ids: tuple[bool, bool, bool]
    workitem_ids: int
    float_mode: int
    ieee: bool
    dx10_clamp: bool
    private_enabled: bool
    accumulators: int
    image: Any = field(repr=False, compare=False, default=None)


class CodeObject:
    """A linked code object (ET_DYN), mapped into this process' memory.

    Args:
        data: the file's bytes.

    Raises:
        EmulatorError: not such a file, or for a machine that is not emulated.
    """

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF" or struct.unpack_from("<H", data, 18)[0] != _EM_AMDGPU:
            raise EmulatorError("not an AMDGPU code object")
        if struct.unpack_from("<H", data, 16)[0] != 3:
            raise EmulatorError("the code object is not linked (its type is not ET_DYN)")
        flags = struct.unpack_from("<I", data, 48)[0]
        machine = _MACHINES.get(flags & 0xFF)
        if machine is None:
            raise EmulatorError(f"no emulation of machine 0x{flags & 0xFF:x} of the ELF flags")
        self.gfx, self.isa = machine
        self._data = data
        self.image = self._map()
        self.kernels: dict[str, Kernel] = {}
        symbols = self._symbols()
        for name, (value, _) in symbols.items():
            if name.endswith(".kd"):
                self.kernels[name[:-3]] = self._kernel(name[:-3], value, symbols)

    def _headers(self, at: int, size_at: int, fmt: str) -> list[Any]:
        (offset,) = struct.unpack_from("<Q", self._data, at)
        size, count = struct.unpack_from("<HH", self._data, size_at)
        return [struct.unpack_from(fmt, self._data, offset + i * size) for i in range(count)]

    def _map(self) -> Any:
        import numpy as np

        loads = [h for h in self._headers(32, 54, "<IIQQQQQQ") if h[0] == _PT_LOAD]
        end = max(h[3] + h[6] for h in loads)
        # The page the image begins on is chosen here as a loader would.
        backing = np.zeros(end + 4096, np.uint8)
        skip = -backing.ctypes.data % 4096
        image = backing[skip : skip + end]
        for _, _, offset, address, _, file_size, _, _ in loads:
            image[address : address + file_size] = np.frombuffer(
                self._data, np.uint8, file_size, offset
            )
        return image

    @property
    def base(self) -> int:
        """The address the image is mapped at."""
        return self.image.ctypes.data

    def _symbols(self) -> dict[str, tuple[int, int]]:
        """Address and size of the dynamic symbols that have a name."""
        sections = self._headers(40, 58, "<IIQQQQIIQQ")
        found = {}
        for section in sections:
            if section[1] != _SHT_DYNSYM:
                continue
            strings = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, shndx, value, size = struct.unpack_from("<IBBHQQ", self._data, at)
                end = self._data.index(b"\0", strings + name)
                text = self._data[strings + name : end].decode()
                if text and shndx:
                    found[text] = (value, size)
        return found

    def _kernel(self, name: str, at: int, symbols: dict[str, tuple[int, int]]) -> Kernel:
        group, private, kernarg, _, entry, rsrc3, rsrc1, rsrc2, properties, preload = (
            _DESCRIPTOR.unpack_from(self.image, at)
        )
        user, index = {}, 0
        for key, bit, count in _USER_SGPRS:
            if properties >> bit & 1:
                user[key] = index
                index += count
        wave32 = bool(properties >> 10 & 1)
        granule = 8 if self.isa == "cdna3" or wave32 else 4
        size = symbols[name][1] if name in symbols else 0
        start = at + entry
        code = self.image[start : start + size if size else None].tobytes()
        return Kernel(
            name=name, isa=self.isa, code=code, entry=self.base + start,
            lanes=32 if wave32 else 64, vgprs=((rsrc1 & 63) + 1) * granule,
            group_segment=group, private_segment=private, kernarg_size=kernarg,
            user_sgprs=user, user_sgpr_count=rsrc2 >> 1 & 31, kernarg_preload=preload,
            workgroup_ids=(bool(rsrc2 >> 7 & 1), bool(rsrc2 >> 8 & 1), bool(rsrc2 >> 9 & 1)),
            workitem_ids=rsrc2 >> 11 & 3, float_mode=rsrc1 >> 12 & 0xFF,
            ieee=bool(rsrc1 >> 23 & 1), dx10_clamp=bool(rsrc1 >> 21 & 1),
            private_enabled=bool(rsrc2 & 1), accumulators=((rsrc3 & 63) + 1) * 4, image=self.image,
        )  # fmt: skip
