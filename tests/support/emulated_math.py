"""Kernels of the library's own math functions, without the rest of the compiler."""

from math import erf

import numpy as np

from amdjax.codegen.llvm import F32, I32, I64, Module, Type, const
from amdjax.codegen.math import MATH

REFERENCES = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "tanh": np.tanh, "erf": np.vectorize(erf),
    "log1p": np.log1p, "cbrt": np.cbrt, "expm1": np.expm1,
}  # fmt: skip


def kernel_text(name: str, width: int) -> str:
    """`out[i] = name(x[i])` with `width` elements a work-item."""
    module = Module()
    pointer = Type("ptr addrspace(1)")
    f = module.function("kernel", [("out", pointer), ("x", pointer)])
    out, x = f.args
    item = f.call("llvm.amdgcn.workitem.id.x", I32)
    offset = f.mul(f.cast("zext", item, "i64"), const(I64, width))
    type = F32 if width == 1 else F32.with_lanes(width)
    value = f.load(type, f.gep(x, offset, F32), 4)
    f.store(MATH[name](f, value), f.gep(out, offset, F32), 4)
    f.ret()
    return str(module).replace("define void", "define amdgpu_kernel void")
