"""Moves between lanes that RDNA4 added."""

import numpy as np
import pytest

from tests.support.emulation import compiled, elementwise, run

GFX = "gfx1201"


@pytest.mark.parametrize("name", ["permlane16.var", "permlanex16.var"])
def test_permute_by_lane(name):
    call = f"llvm.amdgcn.{name}"
    body = f"  %r = call i32 @{call}(i32 0, i32 %x0, i32 %x1, i1 false, i1 false)"
    declare = f"declare i32 @{call}(i32, i32, i32, i1, i1)"
    rng = np.random.default_rng(0)
    x, selector = rng.integers(0, 1 << 32, (2, 64), np.uint32)
    out = np.zeros(64, np.uint32)
    counters = run(compiled(elementwise(body, "i32 i32", "i32") + declare, GFX), 1, 64, out, x,
                   selector)  # fmt: skip
    rows = np.arange(64) & ~15 ^ (16 if "x16" in name else 0)
    np.testing.assert_array_equal(out, x[rows | selector & 15])
    assert counters.by_mnemonic[f"v_{name.replace('.', '_')}_b32"] == 2


@pytest.mark.parametrize("fi", [False, True])
def test_permute_from_lanes_that_are_off(fi):
    """Lanes below 16 read lanes above, which have left the branch."""
    call = f"llvm.amdgcn.ds.bpermute{'.fi.b32' if fi else ''}"
    text = f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %px = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %v = load volatile i32, ptr addrspace(1) %px
  %low = icmp ult i32 %t, 16
  br i1 %low, label %some, label %end
some:
  %s = add i32 %t, 16
  %a = shl i32 %s, 2
  %r = call i32 @{call}(i32 %a, i32 %v)
  %po = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %r, ptr addrspace(1) %po
  br label %end
end:
  ret void
}}
declare i32 @{call}(i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="32,32" }}
"""
    x, out = np.arange(100, 132, dtype=np.uint32), np.zeros(32, np.uint32)
    run(compiled(text, GFX), 1, 32, out, x)
    np.testing.assert_array_equal(out[:16], x[16:] if fi else 0)
