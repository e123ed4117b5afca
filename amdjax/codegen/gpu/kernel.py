"""Kernels as a device loads them: a linked code object or PTX, and what they take of the machine.

`kernel_ir` (`codegen.gpu`), `compile_ir` and `GpuKernel.of` are the steps, so that text can be
compiled elsewhere or come from a cache; `compile_kernel` does them at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from amdjax.codegen.elf.code_object import KernelInfo, kernel_info
from amdjax.codegen.elf.linker import link
from amdjax.codegen.gpu.amdgpu_object import assembly, compile_object
from amdjax.codegen.gpu.writer import kernel_ir
from amdjax.core.integers import round_up
from amdjax.targets import GpuTarget, get, occupancy
from amdjax.tile import Kernel

Format = Literal["elf", "ptx"]
STATIC_LDS = 48 << 10  # bytes of shared memory that the variables of a PTX module may have


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel for one target.

    Args:
      name: of the function in the code.
      target: what it runs on.
      code: a linked code object, or PTX text.
      format: which of them.
      workgroup: threads of a workgroup.
      kernarg: name and role of each parameter: 8 bytes each, in this order.
      vgprs, agprs, sgprs: registers of a wave; 0 where the driver decides (PTX).
      lds_bytes: LDS of a workgroup.
      scratch_bytes: memory of a thread for want of vector registers. What LLVM reserves besides
        scalar ones that it keeps in lanes of vector registers, no instruction uses.
      occupancy: waves that a SIMD holds.
      vgpr_spills, sgpr_spills: registers kept elsewhere for want of room: in scratch memory, vector
        registers also in matrix registers, scalar ones in lanes of vector registers.
      llvm: the text it was compiled from.
      tile: the tile program as text.
      cooperative: its workgroups wait for each other, so that all have to be resident at once.
    """

    name: str
    target: GpuTarget
    code: bytes
    format: Format
    workgroup: int
    kernarg: tuple[tuple[str, str], ...]
    vgprs: int
    sgprs: int
    agprs: int
    lds_bytes: int
    scratch_bytes: int
    occupancy: int
    vgpr_spills: int
    sgpr_spills: int
    llvm: str
    tile: str
    cooperative: bool = False

    @property
    def dynamic_lds(self) -> int:
        """Bytes of `lds_bytes` that a launch has to ask for."""
        return dynamic_lds(self.code) if self.format == "ptx" else 0

    @classmethod
    def of(
        cls, kernel: Kernel, target: GpuTarget, code: bytes, llvm: str, name: str = "kernel"
    ) -> GpuKernel:
        """The kernel whose text `llvm` was compiled to `code`."""
        if not target.is_amdgpu:
            code = _with_dynamic_lds(code.decode()).encode()
        workgroup = kernel.schedule.workgroup or target.wave_size
        use = _amd_use(code, name) if target.is_amdgpu else _ptx_use(code)
        waves = occupancy(target, *use.registers, lds=use.lds, workgroup=workgroup).waves
        in_lanes = use.spills[1] and not use.spills[0]
        vgprs, agprs, sgprs = use.registers
        return cls(
            name=name,
            target=target,
            code=code,
            format="elf" if target.is_amdgpu else "ptx",
            workgroup=workgroup,
            kernarg=_kernarg(kernel),
            vgprs=vgprs,
            sgprs=sgprs,
            agprs=agprs,
            lds_bytes=use.lds,
            scratch_bytes=0 if in_lanes else use.scratch,
            occupancy=waves,
            vgpr_spills=use.spills[0],
            sgpr_spills=use.spills[1],
            llvm=llvm,
            tile=str(kernel),
            cooperative=kernel.cooperative,
        )


def _kernarg(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """Names and roles of what a launch passes, those of batch one behind the other."""
    own = [(p.name, p.role) for p in kernel.params]
    if kernel.batch == 1:
        return tuple(own)
    listed = [("first", "size"), *own]
    return tuple((f"{name}.{i}", role) for i in range(kernel.batch) for name, role in listed)


@dataclass(frozen=True, slots=True)
class _Use:
    registers: tuple[int, int, int]  # vector, matrix, scalar
    lds: int
    scratch: int
    spills: tuple[int, int] = (0, 0)  # vector, scalar


def _amd_use(code: bytes, name: str) -> _Use:
    info: KernelInfo = kernel_info(code)[name]
    registers, spills = (info.vgprs, info.agprs, info.sgprs), (info.vgpr_spills, info.sgpr_spills)
    return _Use(registers, info.lds, info.scratch, spills)


def _ptx_use(code: bytes) -> _Use:
    """What the text declares; the driver's compiler deals out registers."""
    text = code.decode()
    shared = [str(dynamic_lds(code)), *(size for _, size in _SHARED.findall(text))]
    local = re.findall(r"\.local [^\n]*?\.b8 [\w$.]+\[(\d+)\]", text)
    return _Use((0, 0, 0), sum(map(int, shared)), sum(map(int, local)))


_SHARED = re.compile(r"\.shared \.align \d+ \.b8 ([\w$.]+)\[(\d+)\]")
_BEFORE_CODE = ".address_size 64\n"
_DYNAMIC = re.compile(rb"^// dynamic shared memory: (\d+)", re.MULTILINE)


def dynamic_lds(ptx: bytes) -> int:
    """Bytes of shared memory that a launch of PTX from `compile_ir` has to ask for."""
    found = _DYNAMIC.search(ptx)
    return int(found[1]) if found else 0


def _with_dynamic_lds(ptx: str) -> str:
    """Variables may take up 48 KiB of shared memory; beyond that the largest get theirs at launch.

    There is one such block for a kernel, in which they lie one behind the other.
    """
    sizes = {name: int(size) for name, size in _SHARED.findall(ptx)}
    places: dict[str, int] = {}
    total = 0
    while sum(sizes.values()) > STATIC_LDS:
        name = max(sizes, key=lambda name: sizes[name])
        places[name], total = total, total + round_up(sizes.pop(name), 16)
    if not places:
        return ptx
    block = next(iter(places))
    for name, place in places.items():
        own = rf"(?<![\w$.]){re.escape(name)}"
        ptx = re.sub(rf"^[^\n]*\.shared [^\n]*\.b8 {own}\[\d+\];\n", "", ptx, flags=re.MULTILINE)
        if place:
            moved = lambda m, place=place: f"{block}+{place + int(m[1] or 0)}"
            ptx = re.sub(rf"{own}(?![\w$.])(?:\+(\d+))?", moved, ptx)
    head = f"// dynamic shared memory: {total}\n"
    external = f".extern .shared .align 16 .b8 {block}[];\n"
    return head + ptx.replace(_BEFORE_CODE, _BEFORE_CODE + external, 1)


def compile_ir(text: str, target: GpuTarget | str) -> bytes:
    """LLVM IR text to a linked code object, or to PTX text.

    Raises:
      CompileError: LLVM rejects the text. What its code generation cannot do ends the process.
    """
    target = get(target) if isinstance(target, str) else target
    if target.is_amdgpu:
        return link(compile_object(text, target))
    return assembly(text, target, verbose=False).encode()


def compile_kernel(
    kernel: Kernel, target: GpuTarget, *, index_bits: int | None = None
) -> GpuKernel:
    """A tile program as a kernel for a target, compiled in this process.

    Args:
      kernel: the program.
      target: the GPU.
      index_bits: 32 where every buffer is smaller than 2 GiB, or 64; the kernel's own by default.

    Raises:
      ValueError: the target cannot run workgroups of that size.
      CompileError: LLVM rejects the text.
    """
    text = kernel_ir(kernel, target, index_bits=index_bits)
    return GpuKernel.of(kernel, target, compile_ir(text, target), text)
