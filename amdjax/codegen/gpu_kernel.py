"""Kernels as a device loads them: a linked code object or PTX, and what they take of the machine.

`kernel_ir` (`codegen.gpu`), `compile_ir` and `GpuKernel.of` are the steps, so that text can be
compiled elsewhere or come from a cache; `compile_kernel` does them at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from amdjax.codegen.amdgpu_object import assembly, compile_object
from amdjax.codegen.gpu import kernel_ir
from amdjax.codegen.tile import Kernel
from amdjax.runtime.code_object import KernelInfo, kernel_info
from amdjax.runtime.elf import link
from amdjax.targets import GpuTarget, get, occupancy

__all__ = ["GpuKernel", "compile_ir", "compile_kernel"]

Format = Literal["elf", "ptx"]


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
      scratch_bytes: memory of a thread for want of registers.
      occupancy: waves that a SIMD holds.
      llvm: the text it was compiled from.
      tile: the tile program as text.
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
    llvm: str
    tile: str

    @classmethod
    def of(
        cls, kernel: Kernel, target: GpuTarget, code: bytes, llvm: str, name: str = "kernel"
    ) -> GpuKernel:
        """The kernel whose text `llvm` was compiled to `code`."""
        workgroup = kernel.workgroup or target.wave_size
        use = _amd_use(code, name) if target.is_amdgpu else _ptx_use(code)
        waves = occupancy(target, *use.registers, lds=use.lds, workgroup=workgroup).waves
        vgprs, agprs, sgprs = use.registers
        return cls(
            name=name,
            target=target,
            code=code,
            format="elf" if target.is_amdgpu else "ptx",
            workgroup=workgroup,
            kernarg=tuple((p.name, p.role) for p in kernel.params),
            vgprs=vgprs,
            sgprs=sgprs,
            agprs=agprs,
            lds_bytes=use.lds,
            scratch_bytes=use.scratch,
            occupancy=waves,
            llvm=llvm,
            tile=str(kernel),
        )


@dataclass(frozen=True, slots=True)
class _Use:
    registers: tuple[int, int, int]  # vector, matrix, scalar
    lds: int
    scratch: int


def _amd_use(code: bytes, name: str) -> _Use:
    info: KernelInfo = kernel_info(code)[name]
    return _Use((info.vgprs, info.agprs, info.sgprs), info.lds, info.scratch)


def _ptx_use(code: bytes) -> _Use:
    """What the text declares; the driver's compiler deals out registers."""
    text = code.decode()
    shared = re.findall(r"\.shared [^\n]*?\.b8 [\w$.]+\[(\d+)\]", text)
    local = re.findall(r"\.local [^\n]*?\.b8 [\w$.]+\[(\d+)\]", text)
    return _Use((0, 0, 0), sum(map(int, shared)), sum(map(int, local)))


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
