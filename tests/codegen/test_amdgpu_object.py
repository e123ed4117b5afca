import re

import pytest

from amdjax.codegen.gpu.amdgpu_object import (
    CompileError,
    assembly,
    compile_object,
    kernel_attributes,
    kernel_info,
)
from tests.support.emulation import TARGETS

SCALE = """
define amdgpu_kernel void @scale(ptr addrspace(1) %p, float %x, i16 %s, double %d) ATTRIBUTES {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr float, ptr addrspace(1) %p, i32 %t
  %v = load float, ptr addrspace(1) %q
  %r = fmul float %v, %x
  store float %r, ptr addrspace(1) %q
  ret void
}
"""


def scale(**attributes):
    return SCALE.replace("ATTRIBUTES", kernel_attributes(**attributes))


def test_kernel_info():
    info = kernel_info(compile_object(scale(workgroup=256), "gfx942"))["scale"]
    assert [(a.name, a.offset, a.size, a.kind) for a in info.arguments] == [
        ("p", 0, 8, "global_buffer"),
        ("x", 8, 4, "by_value"),
        ("s", 12, 2, "by_value"),
        ("d", 16, 8, "by_value"),
    ]
    assert (info.kernarg_size, info.kernarg_alignment) == (24, 8)
    assert info.max_workgroup == 256 and info.wave_size == 64 and info.lds == 0
    assert 0 < info.vgprs < 8 and 0 < info.sgprs < 20 and info.agprs == 0
    assert not info.uses_scratch


def test_without_attributes_hidden_arguments_stay():
    text = SCALE.replace("ATTRIBUTES", "")
    info = kernel_info(compile_object(text, "gfx1100", opt=0))["scale"]
    assert any(a.is_hidden for a in info.arguments) and info.kernarg_size > 24


def registers(vgpr, agpr):
    return (
        f'define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="64,64" {{\n'
        f' call void asm sideeffect "", "~{{v{vgpr - 1}}},~{{a{agpr - 1}}}"()\n ret void\n}}\n'
    )


@pytest.mark.parametrize("name", ["gfx908", "gfx90a", "gfx942"])
def test_agprs(name):
    info = kernel_info(compile_object(registers(40, 16), name))["k"]
    assert (info.vgprs, info.agprs) == (40, 16)


def test_spills_and_scratch():
    array = (
        "define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %i, i32 %j) {\n"
        " %a = alloca [100 x i32], addrspace(5)\n"
        " %q = getelementptr i32, ptr addrspace(5) %a, i32 %i\n"
        " store volatile i32 1, ptr addrspace(5) %q\n"
        " %r = getelementptr i32, ptr addrspace(5) %a, i32 %j\n"
        " %v = load volatile i32, ptr addrspace(5) %r\n"
        " store i32 %v, ptr addrspace(1) %p\n ret void\n}\n"
    )
    for name in ("gfx942", "gfx1100"):
        info = kernel_info(compile_object(array, name))["k"]
        assert info.scratch >= 400 and info.uses_scratch
        assert info.descriptor.private_segment_size == info.scratch


def test_attributes():
    text = assembly(scale(workgroup=(64, 512), waves_per_simd=(2, 4)), "gfx942")
    assert ".max_flat_workgroup_size: 512" in text and ".uniform_work_group_size: 1" in text
    assert ".amdhsa_float_denorm_mode_32 3" in text
    flushed = assembly(scale(workgroup=64, flush_denormals=True), "gfx942")
    assert ".amdhsa_float_denorm_mode_32 0" in flushed
    narrow = assembly(scale(workgroup=64, grid_rank=1, workgroup_rank=1), "gfx1100", opt=0)
    assert ".amdhsa_system_sgpr_workgroup_id_y 0" in narrow
    assert ".amdhsa_system_vgpr_workitem_id 0" in narrow


def test_texts():
    text = assembly(scale(workgroup=64), "gfx942")
    assert "v_mul_f32" in text and re.search(r"; Occupancy: \d+", text)
    assert "; Occupancy" not in assembly(scale(workgroup=64), "gfx942", verbose=False)
    assert "v_mul_f32" in assembly(scale(workgroup=64), "gfx942")
    assert ".amdhsa_code_object_version 5" in text


ROUNDED = """
define N @k(F %x, F %y) {
  %p = fmul F %x, %y
  VALUE
  %r = fptrunc F %v to N
  ret N %r
}
"""
VECTOR = ROUNDED.replace("F", "<3 x float>").replace("N", "<3 x half>")
SCALAR = ROUNDED.replace("F", "float").replace("N", "half")
VALUES = {
    "product": "%v = fadd float %p, -0.0",
    "negated": "%v = fneg float %p",
    "quotient": "%v = fdiv arcp afn float %p, %y",
}


@pytest.mark.parametrize("gfx", TARGETS)
def test_products_are_rounded_to_half_by_an_instruction_of_its_own(gfx):
    """One that does both adds a zero to products, whose sign is lost; sums have one that does."""
    texts = [SCALAR.replace("VALUE", x) for x in VALUES.values()]
    texts.append(VECTOR.replace("VALUE", "%v = fneg <3 x float> %p"))
    for text in texts:
        found = assembly(text, gfx)
        assert "v_cvt_" in found and "fma_mix" not in found
    contracted = "%v = call float @llvm.fma.f32(float %p, float %x, float %y)"
    assert "fma_mixlo" in assembly(SCALAR.replace("VALUE", contracted), gfx)


def test_ptx():
    kernel = SCALE.replace("amdgpu_kernel", "ptx_kernel").replace("ATTRIBUTES", "")
    kernel = kernel.replace("llvm.amdgcn.workitem.id.x", "llvm.nvvm.read.ptx.sreg.tid.x")
    text = assembly(kernel, "sm_90")
    assert ".target sm_90" in text and ".visible .entry scale(" in text


def test_equal_texts_give_equal_objects():
    assert compile_object(scale(workgroup=64), "gfx1201") == compile_object(
        scale(workgroup=64), "gfx1201"
    )


def test_errors_show_the_line():
    broken = scale(workgroup=64).replace("fmul float %v", "fmul double %v")
    with pytest.raises(CompileError, match=r"> +6  +%r = fmul double %v, %x"):
        compile_object(broken, "gfx942")


def lds_kernel(size):
    return (
        f"@l = internal addrspace(3) global [{size} x <4 x float>] poison, align 16\n"
        "define amdgpu_kernel void @k(i32 %i) {\n"
        " %p = getelementptr i8, ptr addrspace(3) @l, i32 %i\n"
        " store volatile i8 0, ptr addrspace(3) %p\n ret void\n}\n"
    )


def test_too_much_lds():
    message = r"kernel k needs 65552 bytes of LDS; gfx942 has 65536"
    with pytest.raises(CompileError, match=message):
        compile_object(lds_kernel(4097), "gfx942")
    info = kernel_info(compile_object(lds_kernel(4096), "gfx942"))["k"]
    assert info.lds == 65536
    assert kernel_info(compile_object(lds_kernel(10000), "gfx950"))["k"].lds == 160000
