"""Raw buffers: what lies beyond their size reads as zero and is not written."""

import numpy as np
import pytest

from tests.support.emulation import IDS, TARGETS, compiled, run

pytestmark = pytest.mark.parametrize("gfx", TARGETS)


def copy_text(type: str, suffix: str, extra: str) -> str:
    """`out[i] = x[i]` through resources of n bytes, `extra` bytes further."""
    rsrc = "call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1"
    load, store = (f"llvm.amdgcn.raw.ptr.buffer.{x}.{suffix}" for x in ("load", "store"))
    size = {"i8": 1, "i32": 4, "<4 x i32>": 16}[type]
    return f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x, i64 %n, i32 %s) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %o = mul i32 %t, {size}
  %rx = {rsrc}(ptr addrspace(1) %x, i16 0, i64 %n, i32 0)
  %ro = {rsrc}(ptr addrspace(1) %out, i16 0, i64 %n, i32 0)
  %v = call {type} @{load}(ptr addrspace(8) %rx, i32 %o, i32 {extra}, i32 0)
  call void @{store}({type} %v, ptr addrspace(8) %ro, i32 %o, i32 0, i32 0)
  ret void
}}
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)
declare {type} @{load}(ptr addrspace(8), i32, i32, i32)
declare void @{store}({type}, ptr addrspace(8), i32, i32, i32)
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" }}
{IDS}"""


@pytest.mark.parametrize(("type", "suffix"), [("i8", "i8"), ("i32", "i32"), ("<4 x i32>", "v4i32")])
@pytest.mark.parametrize("shift", [0, 4])
def test_copy(gfx, type, suffix, shift):
    dtype, lanes = {"i8": (np.uint8, 1), "i32": (np.uint32, 1)}.get(type, (np.uint32, 4))
    x = np.random.default_rng(0).integers(1, 255, (65, lanes)).astype(dtype)
    out = np.zeros_like(x)
    inside = 40
    size = np.uint64(inside * x[0].nbytes)
    code = compiled(copy_text(type, suffix, "%s"), gfx)
    run(code, 1, 64, out, x, size, np.uint32(shift))
    moved = np.roll(x.ravel(), -shift // x.itemsize).reshape(x.shape)
    np.testing.assert_array_equal(out[:inside], moved[:inside])
    assert (out[inside:] == 0).all()


def test_reading_beyond_gives_zero(gfx):
    text = copy_text("i32", "i32", "0").replace("%out, i16 0, i64 %n", "%out, i16 0, i64 256")
    x, out = np.full(64, 7, np.uint32), np.full(64, 9, np.uint32)
    run(compiled(text, gfx), 1, 64, out, x, np.uint64(100), np.uint32(0))
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 25, 7, 0))


def test_any_element_may_be_the_first(gfx):
    """As systems set the machine up; global memory is expected to be aligned all the same."""
    x, out = np.arange(129, dtype=np.uint16), np.zeros(64, np.uint32)
    text = copy_text("i32", "i32", "0")
    run(compiled(text, gfx), 1, 64, out, x[1:], np.uint64(256), np.uint32(0))
    np.testing.assert_array_equal(out.view(np.uint16), x[1:])
