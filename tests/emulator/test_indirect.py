"""Registers chosen at run time, jumps through registers, loads that go straight to LDS."""

import numpy as np
import pytest

from amdjax.emulator import KernelFault, MissingWait
from tests.emulator.test_instructions import execute
from tests.support.emulation import IDS, compiled, elementwise, run

GCN, RDNA = ("gfx908", "gfx90a", "gfx942"), ("gfx1030", "gfx1100", "gfx1201")
TWO = np.arange(256, dtype=np.uint32), np.arange(256, dtype=np.uint32) + 1000


def m0(gfx, value):
    return f"s_mov_b32 m0, {value}\n"


@pytest.mark.parametrize("gfx", RDNA)
def test_moves_relative_to_m0(gfx, tmp_path):
    a, b = TWO
    table = "v_mov_b32 v4, v1\n v_mov_b32 v5, v2\n v_mov_b32 v6, 77\n"
    for index, want in enumerate((a, b, np.full_like(a, 77))):
        body = table + m0(gfx, index) + "v_movrels_b32 v3, v4"
        np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), want)
    body = table + m0(gfx, 2) + "v_movreld_b32 v4, v2\n v_mov_b32 v3, v6"
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), b)
    body = table + m0(gfx, 1) + "v_movrelsd_b32 v5, v4\n v_mov_b32 v3, v6"
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), b)
    body = table + m0(gfx, 0x20001) + "v_movrelsd_2_b32 v4, v4\n v_mov_b32 v3, v6"
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), b)


@pytest.mark.parametrize("gfx", GCN)
@pytest.mark.parametrize("index", range(3))
def test_index_mode(gfx, index, tmp_path):
    a, b = TWO
    table = f"v_mov_b32 v4, v1\n v_mov_b32 v5, v2\n v_mov_b32 v6, 77\n s_mov_b32 s10, {index}\n"
    source = (
        table
        + """
  s_set_gpr_idx_on s10, gpr_idx(SRC0)
  v_mov_b32 v3, v4
  s_set_gpr_idx_off
  v_add_u32 v3, v3, v4"""
    )
    want = (a, b, np.full_like(a, 77))[index] + a
    np.testing.assert_array_equal(execute(source, gfx, tmp_path, a, b), want)
    target = (
        table
        + """
  s_set_gpr_idx_on s10, gpr_idx(DST)
  v_mov_b32 v4, 5
  s_set_gpr_idx_off
  v_mov_b32 v3, v5"""
    )
    want = np.full_like(a, 5) if index == 1 else b
    np.testing.assert_array_equal(execute(target, gfx, tmp_path, a, b), want)


@pytest.mark.parametrize("gfx", GCN + RDNA)
def test_scalar_moves_relative_to_m0(gfx, tmp_path):
    body = f"""
  s_mov_b32 s12, 3
  s_mov_b32 s13, 4
  {m0(gfx, 1)}
  s_movrels_b32 s14, s12
  s_movreld_b32 s12, 9
  s_mul_i32 s14, s14, s13
  v_mov_b32 v3, s14"""
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, *TWO), 36)


TABLE = elementwise(
    """
  %k = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %x0)
  %v0 = insertelement <16 x i32> zeroinitializer, i32 %x1, i32 3
  %v1 = insertelement <16 x i32> %v0, i32 %x0, i32 5
  %v2 = insertelement <16 x i32> %v1, i32 1234, i32 %k
  %m = xor i32 %k, 1
  %e = extractelement <16 x i32> %v2, i32 %m
  %s = extractelement <16 x i32> %v2, i32 %k
  %r = sub i32 %e, %s""",
    "i32 i32", "i32",
) + "declare i32 @llvm.amdgcn.readfirstlane.i32(i32)"  # fmt: skip


@pytest.mark.parametrize("gfx", GCN + RDNA)
def test_dynamic_elements_of_a_vector(gfx):
    for index in (2, 4, 9):
        a, b = np.full(64, index, np.int32), np.arange(64, dtype=np.int32)
        out = np.zeros(64, np.int32)
        run(compiled(TABLE, gfx), 1, 64, out, a, b)
        want = {2: b, 4: a}.get(index, 0) - np.int32(1234)
        np.testing.assert_array_equal(out, want)


CALL = """
  s_getpc_b64 s[10:11]
.Lhere:
  s_add_u32 s10, s10, .Lfunction-.Lhere
  s_addc_u32 s11, s11, 0
  s_swappc_b64 s[12:13], s[10:11]
  v_add_nc_u32 v3, v3, v2
  s_branch .Lafter
.Lfunction:
  v_lshlrev_b32 v3, 1, v1
  s_setpc_b64 s[12:13]
.Lafter:"""


@pytest.mark.parametrize("gfx", GCN + RDNA)
def test_call_and_return(gfx, tmp_path):
    a, b = TWO
    text = CALL if gfx in RDNA else CALL.replace("_nc_u32", "_u32")
    np.testing.assert_array_equal(execute(text, gfx, tmp_path, a, b), 2 * a + b)


@pytest.mark.parametrize("gfx", GCN + RDNA)
def test_jump_out_of_the_kernel(gfx, tmp_path):
    body = "s_mov_b64 s[10:11], 64\n s_setpc_b64 s[10:11]"
    with pytest.raises(KernelFault, match="jump to an address outside") as caught:
        execute(body, gfx, tmp_path, *TWO)
    assert caught.value.instruction == "s_setpc_b64 s[10:11]"


@pytest.mark.parametrize("gfx", GCN + RDNA)
def test_mode_register(gfx, tmp_path):
    body = "s_getreg_b32 s10, hwreg(HW_REG_MODE, 4, 4)\n v_mov_b32 v3, s10"
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, *TWO), 15)


DIRECT = (
    """
@tile = internal addrspace(3) global [128 x i32] poison, align 16
define amdgpu_kernel void @direct(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %back = sub i32 63, %t
  %j = zext i32 %back to i64
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %j
  %half = getelementptr i32, ptr addrspace(3) @tile, i32 64
  call void @llvm.amdgcn.global.load.lds(
    ptr addrspace(1) %p, ptr addrspace(3) %half, i32 4, i32 0, i32 0)
{wait}
  %mine = getelementptr i32, ptr addrspace(3) %half, i32 %t
  %v = load volatile i32, ptr addrspace(3) %mine
  %i = zext i32 %t to i64
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %v, ptr addrspace(1) %q
  ret void
}}
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32, i32, i32)
declare void @llvm.amdgcn.s.barrier()
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,128" }}
"""
    + IDS
)


def test_load_to_lds():
    given, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    code = compiled(DIRECT.format(wait=""), "gfx942")
    counters = run(code, 1, 64, out, given)
    assert any(name.startswith("global_load_lds") for name in counters.by_mnemonic)
    np.testing.assert_array_equal(out, given[::-1])


def test_load_to_lds_not_waited_for_at_a_barrier():
    given, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    barrier = "  call void @llvm.amdgcn.s.barrier()"
    fenced = '  fence syncscope("workgroup") release\n' + barrier
    run(compiled(DIRECT.format(wait=fenced), "gfx942"), 1, 64, out, given)
    with pytest.raises(MissingWait, match="stores to LDS"):
        run(compiled(DIRECT.format(wait=barrier), "gfx942"), 1, 64, out, given)
