"""Linked AMDGPU code objects: an image as the loader would map it, and the kernels in it."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from amdjax.emulator import state
from amdjax.emulator.debug.lines import line_table
from amdjax.emulator.debug.scopes import Chain, scope_table
from amdjax.emulator.errors import EmulatorError
from amdjax.emulator.isa import ISAS, Isa, machines

# Trap registers that hold ids of a workgroup (y and z share one).
_TTMP_IDS_YZ, _TTMP_ID_X = 115, 117
_EM_AMDGPU, _PT_LOAD, _SHT_DYNSYM, _STT_OBJECT, _STT_KERNEL = 224, 1, 11, 1, 10
_SHT_RELA, _R_AMDGPU_RELATIVE64 = 4, 13

# amd_kernel_descriptor_t, https://llvm.org/docs/AMDGPUUsage.html#kernel-descriptor
_DESCRIPTOR = struct.Struct("<IIIIq20xIIIHH4x")
# Bits of kernel_code_properties: user SGPRs in the order they are laid out, and their count.
_USER_SGPRS = (("private_segment_buffer", 0, 4), ("dispatch_ptr", 1, 2), ("queue_ptr", 2, 2),
               ("kernarg_segment_ptr", 3, 2), ("dispatch_id", 4, 2), ("flat_scratch_init", 5, 2),
               ("private_segment_size", 6, 1))  # fmt: skip


class Preload(NamedTuple):
    """Arguments that registers hold when a wave starts.

    Attributes:
        sgpr: the first register.
        first: dword of the kernarg segment that is in it.
        dwords: how many.
    """

    sgpr: int
    first: int
    dwords: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel's descriptor, read. Addresses are those of the mapped image."""

    name: str
    gfx: str
    isa: str
    code: bytes
    entry: int
    lanes: int
    vgprs: int
    group_segment: int
    private_segment: int
    kernarg_size: int
    user_sgprs: dict[str, int]
    scratch_offset_sgpr: int | None  # where the wave's offset in scratch memory is expected
    preload: Preload | None
    id_places: tuple[int, int, int]  # of the workgroup, as bytes of a wave's state
    workitem_ids: int
    float_mode: int
    has_several_caches: bool  # waves of a workgroup do not share one of the first level
    accumulators: int  # where AGPRs begin among the vector registers
    registers: int  # vector registers, AGPRs included
    start: int  # of the code in the image
    segment: slice  # of the image, in which the code and what it may call lie
    image: Any = field(repr=False, compare=False)
    debug: DebugInfo = field(repr=False, compare=False)
    first: int = 0  # where the kernel begins in `code`

    def with_callees(self) -> Kernel:
        """The same with all code of the segment."""
        begin = self.segment.start
        return replace(
            self, code=self.image[self.segment].tobytes(), entry=self.entry - self.start + begin,
            start=begin, first=self.start - begin,
        )  # fmt: skip

    def source_of(self, pc: int) -> str:
        """The line the instruction at `pc` of the code was made from; "" if unknown."""
        return _last(self.debug.lines, self.start + pc, "")

    def chain_of(self, pc: int) -> Chain:
        """The inlined functions that the instruction belongs to, the innermost first."""
        return _last(self.debug.scopes, self.start + pc, ())


T = TypeVar("T")


def _last(table: Sequence[tuple[int, T]], address: int, default: T) -> T:
    """What a sorted table says of the code from an address on."""
    index = bisect.bisect_right(table, address, key=lambda row: row[0]) - 1
    return table[index][1] if index >= 0 else default


class DebugInfo:
    """What a code object says of where its instructions come from; read when asked for.

    Args:
        sections: those of debug information, by name.
    """

    def __init__(self, sections: Mapping[str, bytes]) -> None:
        self.sections = sections

    @cached_property
    def lines(self) -> list[tuple[int, str]]:
        """See `line_table`."""
        return line_table(self.sections)

    @cached_property
    def scopes(self) -> list[tuple[int, Chain]]:
        """See `scope_table`."""
        return scope_table(self.sections)


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
        target = machines().get(flags & 0xFF)
        if target is None:
            raise EmulatorError(f"no emulation of machine 0x{flags & 0xFF:x} of the ELF flags")
        self.gfx, self.isa = target.name, target.isa
        self._data = data
        self.image = self._map()
        self._relocate()
        self.kernels: dict[str, Kernel] = {}
        symbols = self._symbols()
        self.debug = DebugInfo(self._debug_sections())
        for name, (value, _) in symbols.items():
            if name.endswith(".kd"):
                self.kernels[name[:-3]] = self._kernel(name[:-3], value, symbols)

    def _headers(self, at: int, size_at: int, fmt: str) -> list[Any]:
        (offset,) = struct.unpack_from("<Q", self._data, at)
        size, count = struct.unpack_from("<HH", self._data, size_at)
        return [struct.unpack_from(fmt, self._data, offset + i * size) for i in range(count)]

    def _map(self) -> Any:
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

    def _segment_of(self, address: int) -> slice:
        for kind, _, _, start, _, size, _, _ in self._headers(32, 54, "<IIQQQQQQ"):
            if kind == _PT_LOAD and start <= address < start + size:
                return slice(start, start + size)
        raise EmulatorError(f"no code at 0x{address:x} of the image")

    def _debug_sections(self) -> dict[str, bytes]:
        """Contents by name of the sections that say where code comes from."""
        if b".debug_line" not in self._data:
            return {}
        sections = self._headers(40, 58, "<IIQQQQIIQQ")
        (names_index,) = struct.unpack_from("<H", self._data, 62)
        names = sections[names_index][4]
        found = {}
        for section in sections:
            start = names + section[0]
            name = self._data[start : self._data.index(b"\0", start)].decode()
            if name.startswith(".debug_"):
                found[name] = self._data[section[4] : section[4] + section[5]]
        return found

    def _relocate(self) -> None:
        """Make addresses that are stored in the image point into it."""
        for section in self._headers(40, 58, "<IIQQQQIIQQ"):
            if section[1] != _SHT_RELA:
                continue
            for at in range(section[4], section[4] + section[5], 24):
                where, info, addend = struct.unpack_from("<QQq", self._data, at)
                if info & 0xFFFFFFFF != _R_AMDGPU_RELATIVE64:
                    raise EmulatorError(f"relocation {info & 0xFFFFFFFF} in a linked code object")
                struct.pack_into("<Q", self.image, where, self.base + addend)

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
        isa = ISAS[self.isa]
        granule = 8 if wave32 or isa.accumulators == "unified" else 4
        vgprs = ((rsrc1 & 63) + 1) * granule
        accumulators = ((rsrc3 & 63) + 1) * 4 if isa.accumulators == "unified" else vgprs
        size = symbols[name][1] if name in symbols else 0
        start = at + entry
        code = self.image[start : start + size if size else None].tobytes()
        return Kernel(
            name=name, gfx=self.gfx, isa=self.isa, code=code, entry=self.base + start,
            lanes=32 if wave32 else 64, vgprs=vgprs,
            group_segment=group, private_segment=private, kernarg_size=kernarg,
            user_sgprs=user, scratch_offset_sgpr=_scratch_offset(isa, rsrc2),
            preload=Preload(index, preload >> 7, preload & 127) if preload & 127 else None,
            id_places=_id_places(isa, rsrc2), workitem_ids=rsrc2 >> 11 & 3,
            float_mode=rsrc1 >> 12 & 0xFF, accumulators=accumulators,
            has_several_caches=_has_several_caches(isa, rsrc1, rsrc3),
            registers=2 * vgprs if isa.accumulators == "separate" else max(vgprs, accumulators),
            start=start, segment=self._segment_of(start), image=self.image, debug=self.debug,
        )  # fmt: skip


def _has_several_caches(isa: Isa, rsrc1: int, rsrc3: int) -> bool:
    """In the mode of RDNA for two units together, and in CDNA's for workgroups that are split."""
    if isa.generation >= 10:
        return bool(rsrc1 >> 29 & 1)
    return isa.accumulators == "unified" and bool(rsrc3 >> 16 & 1)


def _scratch_offset(isa: Isa, rsrc2: int) -> int | None:
    """The scalar register behind those of user and workgroup, where it is asked for."""
    if not rsrc2 & 1 or isa.ids_in_trap_registers:
        return None
    return (rsrc2 >> 1 & 31) + (rsrc2 >> 7 & 15).bit_count()


def _id_places(isa: Isa, rsrc2: int) -> tuple[int, int, int]:
    """Where the ids of a workgroup in x, y, z go: behind the user SGPRs, or to trap registers."""
    if isa.ids_in_trap_registers:
        # z is the upper half of y's register.
        yz = state.SGPRS + 4 * _TTMP_IDS_YZ
        return state.SGPRS + 4 * _TTMP_ID_X, yz, yz + 2
    places, sgpr = [], rsrc2 >> 1 & 31
    for enabled in (rsrc2 >> bit & 1 for bit in (7, 8, 9)):
        # An id that is not asked for goes to the unused part of the header.
        places.append(state.SGPRS + 4 * sgpr if enabled else state.SINK)
        sgpr += enabled
    x, y, z = places
    return x, y, z
