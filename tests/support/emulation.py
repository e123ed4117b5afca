"""Compile and assemble small kernels for the emulator's tests."""

from __future__ import annotations

import re
import struct
import subprocess
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from amdjax import targets
from amdjax.emulator import CodeObject, Counters, Memory, launch
from tests.support.llvm_tools import tool

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
# What LLVM 19, whose assembler and disassembler the tests use, knows of them.
ASSEMBLED = tuple(gfx for gfx in TARGETS if gfx != "gfx950")
LANES = {gfx: targets.get(gfx).wave_size for gfx in TARGETS}
LAYOUT = (
    "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32"
    "-p8:128:128:128:48-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256"
    "-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
)

IDS = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
"""


def relocatable(text: str, gfx: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "amdgcn-amd-amdhsa"
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=gfx, opt=3, reloc="pic", codemodel="default"
    )
    head = f'target triple = "{triple}"\ntarget datalayout = "{LAYOUT}"\n'
    flag = '!llvm.module.flags = !{!99}\n!99 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'
    module = llvm.parse_assembly(head + text + flag)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def link(data: bytes) -> bytes:
    try:
        from amdjax.codegen.elf.linker import link as ours
    except ImportError:
        return link_with_lld(data)
    return ours(data)


def link_with_lld(data: bytes) -> bytes:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.o"), Path(folder, "out.so")
        source.write_bytes(data)
        subprocess.run([tool("ld.lld"), "-shared", source, "-o", target], check=True)
        return target.read_bytes()


@cache
def compiled(text: str, gfx: str) -> CodeObject:
    return CodeObject(link(relocatable(text, gfx)))


def pack(*values) -> bytes:
    """Kernel arguments, each aligned to its size: arrays as addresses, scalars as they are."""
    out = b""
    for value in values:
        if isinstance(value, np.ndarray):
            data = struct.pack("<Q", value.ctypes.data)
        else:
            data = np.asarray(value).tobytes()
        out += b"\0" * (-len(out) % len(data)) + data
    return out


def run(code: CodeObject, grid, workgroup, *values, name: str = "", **options) -> Counters:
    """Launch a kernel whose arguments are arrays and NumPy scalars."""
    kernel = code.kernels[name] if name else next(iter(code.kernels.values()))
    memory = Memory()
    with memory.holding(*(v for v in values if isinstance(v, np.ndarray))):
        return launch(kernel, grid, workgroup, pack(*values), memory, **options)


def elementwise(body: str, types: str, result: str = "float") -> str:
    """A kernel `out[i] = body(a[i], b[i], …)`; body defines %r from %x0, %x1, …"""
    kinds = re.findall(r"<[^>]*>|\S+", types)
    args = ", ".join(f"ptr addrspace(1) %p{i}" for i in range(len(kinds)))
    loads = "\n".join(
        f"  %a{i} = getelementptr {t}, ptr addrspace(1) %p{i}, i64 %i\n"
        f"  %x{i} = load {t}, ptr addrspace(1) %a{i}"
        for i, t in enumerate(kinds)
    )
    return f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, {args}) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %o = mul i32 %g, 64
  %j = add i32 %o, %t
  %i = zext i32 %j to i64
{loads}
{body}
  %q = getelementptr {result}, ptr addrspace(1) %out, i64 %i
  store {result} %r, ptr addrspace(1) %q
  ret void
}}
{IDS}
attributes #0 = {{ "amdgpu-flat-work-group-size"="1,1024" }}
"""
