"""Every tile op compiles for every target, within the registers there are."""

import pytest

from amdjax import targets
from amdjax.codegen.elf.code_object import kernel_info
from amdjax.codegen.gpu import kernel as gpu_kernel
from amdjax.codegen.gpu.amdgpu_object import assembly
from tests.support import gpu_zoo
from tests.support.turns import in_turn

TARGETS = (
    "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250",
    "sm_80", "sm_90",
)  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("layout", [(0, 1), (256, 4)], ids=["wave", "workgroup"])
def test_every_op(name, layout):
    """A fifth of the kernels for each target; the next one takes others, the next commit too."""
    turn = TARGETS.index(name)
    for kernel in in_turn(gpu_zoo.KERNELS, 5, turn):
        compiled = gpu_kernel.compile_kernel(
            gpu_zoo.build(kernel, *layout), targets.get(name), index_bits=32 << turn % 2
        )
        assert compiled.scratch_bytes == 0, kernel
        assert compiled.occupancy > 0 and compiled.lds_bytes <= targets.get(name).lds_bytes


def test_what_a_kernel_says():
    target = targets.get("gfx942")
    kernel = gpu_kernel.compile_kernel(gpu_zoo.build("moves_f32", 256, 4), target)
    (info,) = kernel_info(kernel.code).values()
    assert (kernel.name, kernel.format, kernel.workgroup) == ("kernel", "elf", 256)
    assert kernel.kernarg == (("x", "in"), ("y", "out"), ("n", "size"))
    assert [a.size for a in info.arguments] == [8, 8, 8]  # and none that is hidden
    assert kernel.vgprs == info.vgprs > 0 and kernel.lds_bytes == info.lds > 0
    assert "workgroup=256 vector=4" in kernel.tile and "amdgpu_kernel" in kernel.llvm


def test_ptx_says_what_it_declares():
    kernel = gpu_kernel.compile_kernel(gpu_zoo.build("moves_f32", 256, 4), targets.get("sm_90"))
    text = kernel.code.decode()
    assert kernel.format == "ptx" and ".visible .entry kernel" in text
    assert kernel.lds_bytes > 0 and ".target sm_90" in text


@pytest.mark.parametrize("name,wide", [
    ("gfx942", "global_load_dwordx4"), ("gfx1100", "global_load_b128"), ("sm_90", "ld.global.v"),
])  # fmt: skip
@pytest.mark.parametrize("dtype,vector", [("f32", 4), ("f16", 8), ("f64", 2)])
def test_threads_move_sixteen_bytes_at_once(name, wide, dtype, vector):
    target = targets.get(name)
    kernel = gpu_kernel.compile_kernel(gpu_zoo.build(f"elementwise_{dtype}", 256, vector), target)
    text = assembly(kernel.llvm, target)
    assert text.count(wide) == 2048 // (256 * vector)
