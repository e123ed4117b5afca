"""LLVM IR text to AMDGPU objects and assembly.

`compile_object` makes a relocatable object; `amdjax.codegen.elf.linker.link` makes it loadable.

What LLVM's AMDGPU code generation cannot do (an intrinsic of another target, too much LDS) ends the
process: llvmlite leaves LLVM's handlers of such errors in place. LDS is therefore checked here
first, and kernels are compiled in helper processes.
"""

from __future__ import annotations

import re
from functools import cache

from amdjax.codegen.compile_worker import MAX_LEVEL, CompileError, Compiler, Machine
from amdjax.codegen.debug_info import MODULE_FLAGS as DEBUG_FLAGS
from amdjax.codegen.elf.code_object import KernelArgument, KernelInfo, kernel_info
from amdjax.core.integers import ceil_div
from amdjax.targets import GpuTarget, get

__all__ = [
    "ATOMIC_METADATA", "KERNEL_CONVENTION", "CompileError", "KernelArgument", "KernelInfo",
    "assembly", "check_lds", "compile_object", "completed", "kernel_attributes", "kernel_info",
    "module_footer",
]  # fmt: skip

KERNEL_CONVENTION = "amdgpu_kernel"
CODE_OBJECT_VERSION = 500

#: Behind an `atomicrmw` on floats, lets LLVM use the instruction the target has. It promises that
#: the memory is the device's own: the instructions do nothing on fine-grained or remote memory.
ATOMIC_METADATA = (
    ", !amdgpu.no.fine.grained.memory !{}, !amdgpu.no.remote.memory !{}"
    ", !amdgpu.ignore.denormal.mode !{}"
)

# Values that the hardware or the runtime could hand to a kernel. Unless a kernel disclaims them,
# LLVM reserves registers and 256 bytes of hidden arguments, because a call might need them.
_UNUSED_INPUTS = (
    "dispatch-ptr",
    "queue-ptr",
    "dispatch-id",
    "implicitarg-ptr",
    "heap-ptr",
    "hostcall-ptr",
    "multigrid-sync-arg",
    "default-queue",
    "completion-action",
    "lds-kernel-id",
    "flat-scratch-init",
)
_COORDINATES = ("x", "y", "z")


def kernel_attributes(
    workgroup: int | tuple[int, int],
    *,
    waves_per_simd: int | tuple[int, int] | None = None,
    grid_rank: int = 3,
    workgroup_rank: int = 3,
    flush_denormals: bool = False,
) -> str:
    """Attributes for a function of the convention `amdgpu_kernel`.

    Args:
      workgroup: threads of a workgroup, or the least and the most.
      waves_per_simd: occupancy to aim at, or its range: what registers are allotted by.
      grid_rank: axes of the grid that the kernel reads (`workgroup.id.x`, ...).
      workgroup_rank: axes of the workgroup that the kernel reads (`workitem.id.x`, ...).
      flush_denormals: f32 arithmetic takes denormals for zero.

    The kernel must not use hidden arguments: dispatch or queue pointers, `printf`, block counts.
    """
    low, high = (workgroup, workgroup) if isinstance(workgroup, int) else workgroup
    unused = [*_UNUSED_INPUTS, *(f"cluster-id-{axis}" for axis in _COORDINATES)]
    unused += [f"workgroup-id-{axis}" for axis in _COORDINATES[max(grid_rank, 1) :]]
    unused += [f"workitem-id-{axis}" for axis in _COORDINATES[max(workgroup_rank, 1) :]]
    pairs = {
        "amdgpu-flat-work-group-size": f"{low},{high}",
        "uniform-work-group-size": "true",
        "denormal-fp-math-f32": "preserve-sign,preserve-sign" if flush_denormals else "ieee,ieee",
        "no-trapping-math": "true",
    }
    if waves_per_simd is not None:
        least, most = (
            (waves_per_simd, waves_per_simd) if isinstance(waves_per_simd, int) else waves_per_simd
        )
        pairs["amdgpu-waves-per-eu"] = f"{least},{most}"
    text = [f'"{key}"="{value}"' for key, value in pairs.items()]
    return " ".join(["nounwind", *(f'"amdgpu-no-{name}"' for name in unused), *text])


def module_footer() -> str:
    """Module flags; `compile_object` adds them where the text has none."""
    flags = f'!{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT_VERSION}}}', *DEBUG_FLAGS
    nodes = {f"!{9000 + i}": text for i, text in enumerate(flags)}
    lines = [f"!llvm.module.flags = !{{{', '.join(nodes)}}}"]
    lines += [f"{number} = {text}" for number, text in nodes.items()]
    return "\n".join(lines) + "\n"


def compile_object(ir_text: str, target: GpuTarget | str, opt: int = MAX_LEVEL) -> bytes:
    """Compile a module to a relocatable object.

    Args:
      ir_text: LLVM IR; triple, data layout and module flags may be left out.
      target: a target or its name.
      opt: a level of `Compiler`; programs are compiled at the highest.

    Raises:
      CompileError: LLVM rejects the text; the message shows where.
    """
    compiler, text = _prepared(ir_text, target)
    return compiler.object_code(text, opt)


def assembly(
    ir_text: str, target: GpuTarget | str, opt: int = MAX_LEVEL, *, verbose: bool = True
) -> str:
    """What `compile_object` encodes; verbose text has comments with registers and occupancy."""
    compiler, text = _prepared(ir_text, target)
    return compiler.assembly(text, opt, verbose=verbose)


def _prepared(ir_text: str, target: GpuTarget | str) -> tuple[Compiler, str]:
    """What compiles for a target, and a whole module."""
    target = get(target) if isinstance(target, str) else target
    check_lds(ir_text, target)
    return _compiler(machine_of(target)), completed(ir_text, target)


def machine_of(target: GpuTarget) -> Machine:
    """A target as LLVM is told of it."""
    return Machine(target.triple, target.llvm_cpu, target.features)


_compiler = cache(Compiler)

_ELEMENT_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
_LDS = re.compile(
    r"^(@[\w.$-]+) = .*?addrspace\(3\) global ([^,\n]+?) (?:poison|undef)", re.MULTILINE
)
_KERNEL = re.compile(
    r"^define [^\n]*amdgpu_kernel [^\n]*?@([\w.$-]+)(.*?)^\}", re.MULTILINE | re.DOTALL
)


def check_lds(text: str, target: GpuTarget) -> None:
    """Raise `CompileError` for a kernel that names more LDS than there is."""
    sizes = {name: _type_bytes(kind) for name, kind in _LDS.findall(text)}
    if sum(sizes.values()) <= target.lds_bytes:
        return
    for name, body in _KERNEL.findall(text):
        used = sum(sizes.get(x, 0) for x in set(re.findall(r"@[\w.$-]+", body)))
        if used > target.lds_bytes:
            raise CompileError(
                f"kernel {name} needs {used} bytes of LDS; {target.name} has {target.lds_bytes}"
            )


def _type_bytes(kind: str) -> int:
    """Bytes of a scalar, vector or array type."""
    kind = kind.strip()
    if kind[0] in "[<":
        count, _, element = kind[1:-1].partition(" x ")
        return int(count) * _type_bytes(element)
    return _ELEMENT_BYTES.get(kind) or ceil_div(int(kind[1:]), 8) if kind[0] != "{" else 0


_HAS_TRIPLE = re.compile(r"^target triple", re.MULTILINE)
_HAS_LAYOUT = re.compile(r"^target datalayout", re.MULTILINE)
_HAS_FLAGS = re.compile(r"^!llvm\.module\.flags", re.MULTILINE)


def completed(text: str, target: GpuTarget) -> str:
    """The text with what it may leave out; added behind, so that line numbers stay."""
    tail = "" if text.endswith("\n") else "\n"
    if not _HAS_FLAGS.search(text) and target.is_amdgpu:
        tail += module_footer()
    head = ""
    if not _HAS_LAYOUT.search(text):
        head += f'target datalayout = "{target.data_layout}" '
    if not _HAS_TRIPLE.search(text):
        head += f'target triple = "{target.triple}" '
    return head + text + tail
