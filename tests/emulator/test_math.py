"""The library's own math functions as machine code of both targets, against the CPU's result."""

import numpy as np
import pytest
from emulation import LAYOUT, TARGETS, CodeObject, link, relocatable, run

from amdjax.codegen.llvm import F32, I32, I64, Module, Type, const
from amdjax.codegen.math import MATH

REFERENCES = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "tanh": np.tanh, "erf": None, "log1p": np.log1p,
    "cbrt": np.cbrt, "expm1": np.expm1,
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


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("name", REFERENCES)
def test_math(gfx, width, name):
    assert LAYOUT
    x = np.linspace(0.01, 8, 64 * width).astype(np.float32)
    out = np.zeros_like(x)
    run(CodeObject(link(relocatable(kernel_text(name, width), gfx))), 1, 64, out, x)
    if name == "erf":
        from math import erf

        want = np.array([erf(v) for v in x.tolist()])
    else:
        want = REFERENCES[name](x.astype(np.float64))
    np.testing.assert_array_less(np.abs(out - want), 2.5 * np.spacing(np.abs(out)))
