"""Planted faults are found, and the error says where."""

import numpy as np
import pytest

from amdjax.emulator import (
    CodeObject,
    EmulatorError,
    KernelFault,
    Memory,
    MemoryFault,
    UnknownInstruction,
    launch,
    machine,
)
from tests.emulator.test_instructions import execute
from tests.support.emulation import IDS, LANES, TARGETS, compiled, elementwise, pack, run

pytestmark = pytest.mark.parametrize("gfx", TARGETS)
COPY = elementwise("  %r = fadd float %x0, 1.0", "float")
SHORT = elementwise("  %r = add i32 %x0, 1", "i32", "i32")
LDS = (
    """
@tile = internal addrspace(3) global [64 x float] poison, align 16
define amdgpu_kernel void @beyond(ptr addrspace(1) %out, i32 %shift) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = add i32 %t, %shift
  %p = getelementptr float, ptr addrspace(3) @tile, i32 %i
  store volatile float 1.0, ptr addrspace(3) %p
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""
    + IDS
)


def test_out_of_bounds_load(gfx):
    # The neighboring memory exists, it only is not the kernel's.
    a, out = np.zeros(64, np.float32)[:60], np.zeros(64, np.float32)
    with pytest.raises(MemoryFault, match="outside every allocation") as caught:
        run(compiled(COPY, gfx), 1, 64, out, a)
    fault = caught.value
    assert fault.kernel == "kernel" and fault.instruction.startswith("global_load")
    assert fault.lane == 60 % LANES[gfx]
    assert fault.address == a.ctypes.data + 240


def test_out_of_bounds_store(gfx):
    a, out = np.zeros(64, np.float32), np.zeros(64, np.float32)[:32]
    with pytest.raises(MemoryFault) as caught:
        run(compiled(COPY, gfx), 1, 64, out, a)
    assert caught.value.instruction.startswith("global_store")


def test_use_after_release(gfx):
    a, out, memory = np.zeros(64, np.float32), np.zeros(64, np.float32), Memory()
    kernel = compiled(COPY, gfx).kernels["kernel"]
    memory.add(out)
    address = memory.add(a)
    launch(kernel, 1, 64, pack(out, a), memory)
    memory.release(address)
    with pytest.raises(MemoryFault, match="after its release"):
        launch(kernel, 1, 64, pack(out, a), memory)


def test_misaligned(gfx):
    backing, out = np.zeros(65 * 4, np.uint8), np.zeros(64, np.uint32)
    a = backing[2:-2].view(np.uint32)
    with pytest.raises(MemoryFault, match="misaligned"):
        run(compiled(SHORT, gfx), 1, 64, out, a)
    run(compiled(SHORT, gfx), 1, 64, out, a, sanitize=False)
    assert (out == 1).all()


def test_lds_out_of_bounds(gfx):
    out = np.zeros(64, np.float32)
    run(compiled(LDS, gfx), 1, 64, out, np.int32(0))
    with pytest.raises(MemoryFault, match="LDS") as caught:
        run(compiled(LDS, gfx), 1, 64, out, np.int32(1))
    assert caught.value.instruction.startswith("ds_") and caught.value.address == 256


def test_null_pointer(gfx):
    kernel = compiled(COPY, gfx).kernels["kernel"]
    out = np.zeros(64, np.float32)
    memory = Memory()
    memory.add(out)
    with pytest.raises(MemoryFault):
        launch(kernel, 1, 64, pack(out, np.uint64(0)), memory)


def test_unknown_instruction(gfx):
    good = compiled(COPY, gfx)
    kernel = good.kernels["kernel"]
    data = good._data
    at = data.index(kernel.code[:16])
    # SOPP with an opcode that does not exist.
    broken = CodeObject(data[:at] + (0xBFFF0000).to_bytes(4, "little") + data[at + 4 :])
    out, a = np.zeros((2, 64), np.float32)
    with pytest.raises(UnknownInstruction, match=r"kernel kernel: .*0xbfff0000.*SOPP opcode 127"):
        run(broken, 1, 64, out, a)


def test_clamp_that_is_not_emulated(gfx, tmp_path):
    """An error where it is reached, and only there."""
    if gfx == "gfx950":
        pytest.skip("the assembler does not know it")
    text = "v_mad_u32_u24 v3, v1, v2, v1 clamp"
    x = np.zeros(64, np.uint32)
    with pytest.raises(UnknownInstruction, match="kernel kernel: no semantics for v_mad_u32_u24 "
                       r"with clamp at \+0x\w+ \(0xd\w+\)"):  # fmt: skip
        execute(text, gfx, tmp_path, x, x, 64)
    execute(f"s_branch over\n {text}\n over:", gfx, tmp_path, x, x, 64)


def test_loads_to_lds_in_the_old_way(gfx, tmp_path):
    """A bit of an ordinary load says so on these; what is not emulated is not taken for a load."""
    if gfx not in ("gfx908", "gfx90a", "gfx1030"):
        pytest.skip("has instructions of its own for that, or none")
    x = np.zeros(64, np.uint32)
    with pytest.raises(UnknownInstruction, match="global_load_dword with lds"):
        execute("global_load_dword v[2:3], off lds", gfx, tmp_path, x, x, 64)


def test_file_that_is_none(gfx):
    with pytest.raises(EmulatorError, match="not an AMDGPU"):
        CodeObject(b"\x7fELF" + bytes(100))


ENDLESS = (
    """
define amdgpu_kernel void @endless(ptr addrspace(1) %flag) {
  br label %wait
wait:
  %x = load volatile i32, ptr addrspace(1) %flag
  %done = icmp ne i32 %x, 0
  br i1 %done, label %end, label %wait
end:
  ret void
}
"""
    + IDS
)


def test_a_wave_that_does_not_end(gfx, monkeypatch):
    monkeypatch.setattr(machine, "_LONGEST", 10_000)
    run(compiled(ENDLESS, gfx), 1, 64, np.ones(1, np.int32))
    with pytest.raises(KernelFault, match="does not end: it ran 10,000 instructions"):
        run(compiled(ENDLESS, gfx), 1, 64, np.zeros(1, np.int32))
