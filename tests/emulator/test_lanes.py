"""Moves between lanes where some are off, patterns of swizzles, and floats exchanged in LDS."""

import numpy as np
import pytest

from tests.emulator.test_instructions import assemble, execute
from tests.support.emulation import compiled, run

# Of 32 lanes, for masks of 0 and 16, as the ISA documents list them.
FOURIER = {
    0xE000: [0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30,
             1, 17, 9, 25, 5, 21, 13, 29, 3, 19, 11, 27, 7, 23, 15, 31],
    0xE010: [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15],
    0xE01F: list(range(32)),
}  # fmt: skip
SWIZZLES = {
    **FOURIER,
    0xE010: FOURIER[0xE010] + [16 + i for i in FOURIER[0xE010]],
    0xC000 | 3 << 5: [(i + 3) % 32 for i in range(32)],
    0xC000 | 0x400 | 5 << 5: [(i - 5) % 32 for i in range(32)],
    0xC018 | 1 << 5: [i & 24 | (i + 1) % 8 for i in range(32)],
    0x801B: [i ^ 3 for i in range(32)],
    0x041F: [i ^ 1 for i in range(32)],
}


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("pattern", SWIZZLES, ids=hex)
def test_swizzle(gfx, pattern, tmp_path):
    wait = "s_wait_dscnt 0" if gfx == "gfx1201" else "s_waitcnt lgkmcnt(0)"
    x = np.arange(64, dtype=np.uint32) * 7
    got = execute(f"ds_swizzle_b32 v3, v1 offset:{pattern}\n {wait}", gfx, tmp_path, x, x, 64)
    lanes = SWIZZLES[pattern]
    np.testing.assert_array_equal(got, x[lanes + [32 + i for i in lanes]])


@pytest.mark.parametrize("gfx", ["gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("flags", ["", "op_sel:[1,0]", "op_sel:[0,1]"])
def test_permuted_from_lanes_that_are_off(gfx, flags, tmp_path):
    """The even lanes read the odd ones, which are off."""
    body = f"""s_mov_b32 s10, 0x67452301
    s_mov_b32 s11, 0xefcdab89
    s_mov_b32 exec_lo, 0x55555555
    v_permlane16_b32 v3, v1, s10, s11 {flags}
    s_mov_b32 exec_lo, -1"""
    x, even = np.arange(64, dtype=np.uint32), np.arange(64) % 2 == 0
    got = execute(body, gfx, tmp_path, x, x, 64)
    read = {"": 0x11223344, "op_sel:[1,0]": x ^ 1, "op_sel:[0,1]": 0}[flags]
    np.testing.assert_array_equal(got, np.where(even, read, 0x11223344))


@pytest.mark.parametrize("gfx", ["gfx1100", "gfx1201"])
def test_waves_of_32_have_no_other_half(gfx, tmp_path):
    x = np.arange(64, dtype=np.uint32)
    got = execute("v_permlane64_b32 v3, v1", gfx, tmp_path, x, x, 64)
    np.testing.assert_array_equal(got, 0x11223344)


PERMUTE = """
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y)
    #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %px = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %py = getelementptr i32, ptr addrspace(1) %y, i32 %t
  %po = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %v = load i32, ptr addrspace(1) %px
  %l = load i32, ptr addrspace(1) %py
  %a = shl i32 %l, 2
  %r = call i32 @llvm.amdgcn.ds.bpermute(i32 %a, i32 %v)
  store i32 %r, ptr addrspace(1) %po
  ret void
}
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "target-features"="+wavefrontsize64" }
"""


@pytest.mark.parametrize("gfx", ["gfx1030", "gfx1100", "gfx1201"])
def test_halves_of_waves_of_64(gfx):
    """They are permuted each by itself, but on RDNA4."""
    x = np.arange(100, 164, dtype=np.uint32)
    lanes = np.random.default_rng(2).permutation(64).astype(np.uint32)
    out = np.zeros(64, np.uint32)
    run(compiled(PERMUTE, gfx), 1, 64, out, x, lanes)
    halves = lanes % 32 | np.arange(64) & 32
    np.testing.assert_array_equal(out, x[lanes if gfx == "gfx1201" else halves])


EXCHANGES = {
    "gfx942": ("ds_write_b32", "ds_cmpst_f32 v0, v2, v4", "ds_read_b32"),
    "gfx1030": ("ds_write_b32", "ds_cmpst_f32 v0, v2, v4", "ds_read_b32"),
    "gfx1100": ("ds_store_b32", "ds_cmpstore_f32 v0, v4, v2", "ds_load_b32"),
}


@pytest.mark.parametrize("gfx", EXCHANGES)
def test_floats_exchanged_in_lds(gfx, tmp_path):
    """Zeros are equal whatever their signs, and no NaN is."""
    held = np.array([0.0, -0.0, 1.0, np.nan, 2.0], np.float32)
    wanted = np.array([-0.0, 0.0, 1.0, np.nan, 3.0], np.float32)
    a, b = (np.resize(x, 64).view(np.uint32) for x in (held, wanted))
    write, exchange, read = EXCHANGES[gfx]
    body = f"""v_mov_b32 v4, 7.0
    {write} v0, v1
    s_waitcnt lgkmcnt(0)
    {exchange}
    s_waitcnt lgkmcnt(0)
    {read} v3, v0
    s_waitcnt lgkmcnt(0)"""
    out = np.zeros(64, np.float32)
    run(assemble(body, gfx, tmp_path), 1, 64, out, a, b, shared_bytes=256)
    np.testing.assert_array_equal(out[:5], np.array([7, 7, 7, np.nan, 2], np.float32))
