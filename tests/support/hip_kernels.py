"""Small kernels for the tests of the HIP runtime, as `GpuKernel`s would be."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from amdjax import targets
from amdjax.codegen.elf.linker import link
from amdjax.codegen.gpu.amdgpu_object import compile_object, kernel_attributes

WORKGROUP = 64

# y[i] = x[i] * s + y[i] for i < n; of a grid of workgroups of 64.
SAXPY = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @saxpy(ptr addrspace(1) %x, ptr addrspace(1) %y, i64 %n, float %s) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 64
  %i32 = add i32 %b, %t
  %i = zext i32 %i32 to i64
  %in = icmp ult i64 %i, %n
  br i1 %in, label %body, label %end
body:
  %px = getelementptr float, ptr addrspace(1) %x, i64 %i
  %py = getelementptr float, ptr addrspace(1) %y, i64 %i
  %vx = load float, ptr addrspace(1) %px
  %vy = load float, ptr addrspace(1) %py
  %m = fmul float %vx, %s
  %r = fadd float %m, %vy
  store float %r, ptr addrspace(1) %py
  br label %end
end:
  ret void
}
@table = addrspace(1) constant [4 x i32] [i32 2, i32 3, i32 5, i32 7]
define amdgpu_kernel void @lookup(ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %k = and i32 %t, 3
  %p = getelementptr i32, ptr addrspace(1) @table, i32 %k
  %v = load i32, ptr addrspace(1) %p
  %q = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %q
  ret void
}
attributes #0 = { ATTRIBUTES }
"""


@dataclass(frozen=True)
class RawKernel:
    """What a device needs to know of a kernel."""

    name: str
    target: Any
    code: bytes
    format: str = "elf"
    workgroup: int = WORKGROUP
    cooperative: bool = False


@cache
def code_object(target: str, text: str = SAXPY) -> bytes:
    """The linked code object of a module; ATTRIBUTES stands for the kernels' attributes."""
    text = text.replace("ATTRIBUTES", kernel_attributes(WORKGROUP))
    return link(compile_object(text, target))


def raw_kernel(target: str, name: str = "saxpy") -> RawKernel:
    return RawKernel(name, targets.get(target), code_object(target))


def saxpy_arguments(x: int, y: int, n: int, s: float) -> bytes:
    return struct.pack("<QQqf", x, y, n, s)
