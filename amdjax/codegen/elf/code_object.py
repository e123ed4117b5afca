"""What a code object says about its kernels: the metadata note and the kernel descriptors.

Source: "User Guide for AMDGPU Backend" (LLVM), code object V5 metadata and kernel descriptor.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from amdjax.codegen.elf import format as elf, msgpack
from amdjax.codegen.elf.format import ElfError, ElfFile

DESCRIPTOR_SIZE = 64
_DESCRIPTOR = struct.Struct("<IIII q 20x III H H 4x")


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """An entry of the kernarg segment.

    Args:
      name: the parameter's, empty for what the runtime fills in.
      offset: bytes from the segment's start.
      size: bytes.
      kind: `global_buffer`, `by_value`, `dynamic_shared_pointer`, `hidden_block_count_x`, ...
    """

    name: str
    offset: int
    size: int
    kind: str

    @property
    def is_hidden(self) -> bool:
        """The runtime fills it in, not the caller."""
        return self.kind.startswith("hidden_")


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """The 64 bytes that a dispatch packet points to.

    Args:
      group_segment_size: LDS in bytes.
      private_segment_size: scratch of a lane in bytes.
      kernarg_size: bytes of the kernarg segment.
      entry_offset: from the descriptor to the first instruction.
      rsrc3, rsrc1, rsrc2: registers that the command processor sets up; their fields differ by
        target.
      properties: which values the wave finds in its first scalar registers.
      kernarg_preload: length (7 bits) and offset (9 bits) of arguments loaded into registers.
    """

    group_segment_size: int
    private_segment_size: int
    kernarg_size: int
    entry_offset: int
    rsrc3: int
    rsrc1: int
    rsrc2: int
    properties: int
    kernarg_preload: int

    @classmethod
    def unpack(cls, data: bytes) -> KernelDescriptor:
        if len(data) != DESCRIPTOR_SIZE:
            raise ElfError(f"a kernel descriptor has {DESCRIPTOR_SIZE} bytes, not {len(data)}")
        group, private, kernarg, _, *rest = _DESCRIPTOR.unpack(data)
        return cls(group, private, kernarg, *rest)


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One kernel of a code object.

    Args:
      name: of the function.
      symbol: of the descriptor, by which the runtime finds the kernel.
      arguments: entries of the kernarg segment, hidden ones included.
      kernarg_size: bytes of the kernarg segment.
      kernarg_alignment: its alignment.
      vgprs: vector registers of a wave, without `agprs`.
      agprs: matrix registers of a wave.
      sgprs: scalar registers of a wave.
      lds: bytes of LDS known at compile time.
      scratch: bytes of scratch memory of a lane.
      dynamic_stack: calls make the scratch size unknown at compile time.
      vgpr_spills: vector registers kept in memory for want of registers.
      sgpr_spills: scalar registers kept elsewhere.
      wave_size: lanes of a wave.
      max_workgroup: threads of a workgroup at most.
      descriptor: the kernel descriptor.
    """

    name: str
    symbol: str
    arguments: tuple[KernelArgument, ...]
    kernarg_size: int
    kernarg_alignment: int
    vgprs: int
    agprs: int
    sgprs: int
    lds: int
    scratch: int
    dynamic_stack: bool
    vgpr_spills: int
    sgpr_spills: int
    wave_size: int
    max_workgroup: int
    descriptor: KernelDescriptor

    @property
    def uses_scratch(self) -> bool:
        """Registers were spilled, or arrays did not fit them."""
        return bool(self.scratch or self.dynamic_stack or self.vgpr_spills)


def metadata(code_object: bytes | ElfFile) -> dict[str, Any]:
    """The metadata note as LLVM documents it: `amdhsa.kernels`, `amdhsa.target`, ...

    Raises:
      ElfError: there is none.
    """
    file = _file(code_object)
    for owner, kind, content in file.notes():
        if (owner, kind) == ("AMDGPU", elf.NT_AMDGPU_METADATA):
            return msgpack.unpack(content)
    raise ElfError(f"{file.name}: no AMDGPU metadata note")


def target_id(code_object: bytes | ElfFile) -> str:
    """The target and its settings, for example `gfx942` or `gfx90a:sramecc+:xnack-`."""
    return metadata(code_object)["amdhsa.target"].rpartition("--")[2]


def kernel_info(code_object: bytes | ElfFile) -> dict[str, KernelInfo]:
    """The kernels of a relocatable or linked object, by name, in the order of the metadata."""
    file = _file(code_object)
    symbols = {s.name: s for s in file.symbols() or file.symbols(elf.SHT_DYNSYM)}
    found = {}
    for entry in metadata(file).get("amdhsa.kernels", ()):
        symbol = symbols.get(entry[".symbol"])
        if symbol is None:
            raise ElfError(f"{file.name}: metadata names {entry['.symbol']}, which is not there")
        descriptor = KernelDescriptor.unpack(file.section_bytes(symbol))
        found[entry[".name"]] = _kernel(entry, descriptor)
    return found


def _file(code_object: bytes | ElfFile) -> ElfFile:
    return code_object if isinstance(code_object, ElfFile) else ElfFile(code_object, "code object")


def _kernel(entry: dict[str, Any], descriptor: KernelDescriptor) -> KernelInfo:
    agprs = entry.get(".agpr_count", 0)
    return KernelInfo(
        name=entry[".name"],
        symbol=entry[".symbol"],
        arguments=tuple(
            KernelArgument(a.get(".name", ""), a[".offset"], a[".size"], a[".value_kind"])
            for a in entry.get(".args", ())
        ),
        kernarg_size=entry[".kernarg_segment_size"],
        kernarg_alignment=entry[".kernarg_segment_align"],
        vgprs=_vector_registers(entry[".vgpr_count"], agprs, descriptor),
        agprs=agprs,
        sgprs=entry[".sgpr_count"],
        lds=entry[".group_segment_fixed_size"],
        scratch=entry[".private_segment_fixed_size"],
        dynamic_stack=entry.get(".uses_dynamic_stack", False),
        vgpr_spills=entry.get(".vgpr_spill_count", 0),
        sgpr_spills=entry.get(".sgpr_spill_count", 0),
        wave_size=entry[".wavefront_size"],
        max_workgroup=entry[".max_flat_workgroup_size"],
        descriptor=descriptor,
    )


def _vector_registers(total: int, agprs: int, descriptor: KernelDescriptor) -> int:
    """Without the matrix registers, which the metadata counts along where one file holds both.

    There, ACCUM_OFFSET of rsrc3 says where they begin, in steps of 4.
    """
    if not agprs:
        return total
    accum_offset = ((descriptor.rsrc3 & 0x3F) + 1) * 4
    return accum_offset if total == accum_offset + agprs else total
