"""Code outside a kernel that it calls, and arguments that it finds in registers."""

import numpy as np
import pytest

from amdjax.emulator import CodeObject, MissingWait
from tests.support.emulation import IDS, LANES, TARGETS, compiled, run

# Upper half-words of the instructions that wait for memory, on one machine or another.
WAITS = 0xBF8C, 0xBF89, 0xBFC0, 0xBFC1, 0xBFC6, 0xBFC7, 0xBFC8, 0xBFC9
S_NOP = 0xBF800000
pytestmark = pytest.mark.parametrize("gfx", TARGETS)

CALLS = (
    """
define internal i32 @far(i32 %x, ptr addrspace(1) %p) noinline {
  %r = call i32 @near(ptr addrspace(1) %p)
  %s = add i32 %r, %x
  ret i32 %s
}
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = zext i32 %t to i64
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i
  %y = call i32 @far(i32 %t, ptr addrspace(1) %p)
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %y, ptr addrspace(1) %q
  ret void
}
define internal i32 @near(ptr addrspace(1) %p) noinline {
  %x = load volatile i32, ptr addrspace(1) %p
  %y = mul i32 %x, 3
  ret i32 %y
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""
    + IDS
)


def test_calls(gfx):
    x, out = np.arange(100, 164, dtype=np.int32), np.zeros(64, np.int32)
    counters = run(compiled(CALLS, gfx), 1, 64, out, x)
    np.testing.assert_array_equal(out, 3 * x + np.arange(64))
    assert counters.by_mnemonic["s_swappc_b64"] == 2 * 64 // LANES[gfx]


def test_missing_wait_in_a_function(gfx):
    code = compiled(CALLS, gfx)
    whole = code.kernels["kernel"].with_callees()
    words = np.frombuffer(whole.code, np.uint32).copy()
    elsewhere = np.isin(words >> 16, WAITS)
    elsewhere[whole.first // 4 :][: len(code.kernels["kernel"].code) // 4] = False
    words[elsewhere] = S_NOP
    broken = CodeObject(code._data.replace(whole.code, words.tobytes()))
    with pytest.raises(MissingWait, match=r"reads v\d+, whose load was not waited for"):
        run(broken, 1, 64, np.zeros(64, np.int32), np.zeros(64, np.int32))


PRELOADED = (
    """
define amdgpu_kernel void @kernel(ptr addrspace(1) inreg %out, ptr addrspace(1) inreg %in,
                                  i32 inreg %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 64
  %k = add i32 %b, %t
  %i = zext i32 %k to i64
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i
  %v = load i32, ptr addrspace(1) %p
  %y = add i32 %v, %n
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %y, ptr addrspace(1) %q
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""
    + IDS
)


def test_preloaded_arguments(gfx):
    """Machines that have them start behind the code that would load them."""
    x, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    code = compiled(PRELOADED, gfx)
    counters = run(code, 2, 64, out, x, np.int32(7))
    np.testing.assert_array_equal(out, x + 7)
    preloads = gfx in ("gfx90a", "gfx942", "gfx950")
    assert (code.kernels["kernel"].preload is not None) == preloads
    assert (counters.by_class["smem"] == 0) == preloads
