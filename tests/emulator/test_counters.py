"""What launches count, against kernels whose traffic is known."""

import math

import numpy as np
import pytest

from amdjax.emulator import Counters, recording, table
from amdjax.emulator.debug.counters import sampling
from tests.support.emulation import IDS, LANES, compiled, elementwise, run

TARGETS = ("gfx942", "gfx1100")
pytestmark = pytest.mark.parametrize("gfx", TARGETS)
COPY = elementwise("  %r = fadd float %x0, 1.0", "float")

# Each work-item reads in[(i * stride) % 4096] from memory, or from LDS.
STRIDED = (
    """
@tile = internal addrspace(3) global [4096 x i32] undef, align 16
define amdgpu_kernel void @strided(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %stride) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %m = mul i32 %t, %stride
  %o = and i32 %m, 4095
  %o64 = zext i32 %o to i64
  %pi = getelementptr i32, ptr addrspace(1) %in, i64 %o64
  %x = load i32, ptr addrspace(1) %pi
  %pl = getelementptr i32, ptr addrspace(3) @tile, i32 %o
  store volatile i32 %x, ptr addrspace(3) %pl
  %y = load volatile i32, ptr addrspace(3) %pl
  %i = zext i32 %t to i64
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %y, ptr addrspace(1) %po
  ret void
}
"""
    + IDS
)


_RESOURCE = "@llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1)"
_BUFFER = "@llvm.amdgcn.raw.ptr.buffer"
BUFFERS = f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x, i64 %n) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %o = mul i32 %t, 4
  %rx = call ptr addrspace(8) {_RESOURCE} %x, i16 0, i64 %n, i32 0)
  %ro = call ptr addrspace(8) {_RESOURCE} %out, i16 0, i64 256, i32 0)
  %v = call i32 {_BUFFER}.load.i32(ptr addrspace(8) %rx, i32 %o, i32 0, i32 0)
  call void {_BUFFER}.store.i32(i32 %v, ptr addrspace(8) %ro, i32 %o, i32 0, i32 0)
  ret void
}}
{IDS}"""
COUNTED = (
    """
define amdgpu_kernel void @counted(ptr addrspace(1) %out) {
  %o = atomicrmw add ptr addrspace(1) %out, i32 1 syncscope("agent") monotonic
  ret void
}
"""
    + IDS
)


def test_traffic_of_buffers(gfx):
    """Bytes beyond a buffer's size do not move."""
    a, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    counters = run(compiled(BUFFERS, gfx), 1, 64, out, a, np.uint64(160), profile=True)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 40, a, 0))
    assert counters.bytes_read == 160 and counters.bytes_written == 256
    waves = 64 // LANES[gfx]
    assert counters.accesses == 2 * waves and counters.ideal_64 == 3 + 4
    none = run(compiled(BUFFERS, gfx), 1, 64, out, a, np.uint64(0), profile=True)
    assert none.bytes_read == 0 and none.accesses == waves and (out == 0).all()


def test_a_sample(gfx):
    """Of a launch that is long: its counts are for all, and what is left out is not written."""
    a, out = np.arange(64_000, dtype=np.float32), np.zeros(64_000, np.float32)
    whole = run(compiled(COPY, gfx), 1000, 64, np.zeros_like(a), a, profile=True)
    with sampling(100):
        sampled = run(compiled(COPY, gfx), 1000, 64, out, a, profile=True)
    assert not whole.sampled and sampled.sampled and 1 < sampled.executed < 100
    written = np.flatnonzero(out)
    np.testing.assert_array_equal(out[written], a[written] + 1)
    assert written.size == 64 * sampled.executed and np.ptp(written) > 32_000
    assert (sampled.workgroups, sampled.waves) == (whole.workgroups, whole.waves)
    assert sampled.by_mnemonic == whole.by_mnemonic and sampled.accesses == whole.accesses
    assert sampled.bytes_read == whole.bytes_read and sampled.ideal_64 == whole.ideal_64
    with sampling(10**6):
        assert not run(compiled(COPY, gfx), 1000, 64, out, a).sampled
    np.testing.assert_array_equal(out, a + 1)


def test_workgroups_that_count_on_each_other_are_not_sampled(gfx):
    out = np.zeros(1, np.int32)
    with sampling(100):
        counters = run(compiled(COUNTED, gfx), 1000, 64, out)
    assert not counters.sampled and out == 64_000


def strided(gfx, stride, lanes=64):
    given, out = np.arange(4096, dtype=np.int32), np.zeros(64, np.int32)
    counters = run(compiled(STRIDED, gfx), 1, lanes, out, given, np.int32(stride), profile=True)
    np.testing.assert_array_equal(out[:lanes], np.arange(lanes) * stride % 4096)
    return counters


def test_copy(gfx):
    a, out = np.zeros((2, 640), np.float32)
    counters = run(compiled(COPY, gfx), 10, 64, out, a, profile=True)
    waves = 640 // LANES[gfx]
    assert (counters.kernel, counters.launches) == ("kernel", 1)
    assert (counters.workgroups, counters.waves) == (10, waves)
    assert counters.by_class["vmem"] == 2 * waves == counters.accesses
    assert (counters.bytes_read, counters.bytes_written) == (2560, 2560)
    assert counters.vector_flops == 640 and counters.matrix_flops == 0
    # NumPy aligns to 16 bytes at least, so a wave may touch one line more than it fills.
    ideal = 2 * 2560 // 64
    assert counters.ideal_64 == ideal <= counters.lines_64 <= ideal + 2 * waves
    assert counters.occupancy.waves > 0


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 32, 33])
def test_coalescing_and_bank_conflicts(gfx, stride):
    counters = strided(gfx, stride)
    lanes = LANES[gfx]
    waves = 64 // lanes
    read = min(lanes, lanes * 4 * stride // 64) * waves  # lines of 64 bytes
    written = 4
    assert read + written <= counters.lines_64 <= read + written + 2 * waves
    assert counters.lds_accesses == 2 * waves and counters.lds_bytes == 512
    # Thirty-two lanes at a time: as many of them share a bank as the stride says, if it is even.
    shared = math.gcd(stride, 32)
    assert counters.bank_ideal == 4 and counters.bank_cycles == 4 * shared
    assert counters.bank_conflicts == 4 * (shared - 1)
    assert counters.occupancy is not None


def test_lanes_that_are_off_move_nothing(gfx):
    counters = strided(gfx, 1, lanes=20)
    assert counters.bytes_read == counters.bytes_written == 80 == counters.lds_bytes // 2


def test_reads_of_one_word_have_no_conflict(gfx):
    counters = strided(gfx, 0, lanes=32)
    assert counters.bank_conflicts == 0 and counters.lines_64 <= 1 + 3
    assert counters.ideal_64 <= counters.lines_64 and counters.coalescing <= 1


def test_traffic_is_counted_only_if_asked(gfx):
    a, out = np.zeros((2, 64), np.float32)
    counters = run(compiled(COPY, gfx), 1, 64, out, a)
    assert not counters.profiled and counters.bytes_read == 0
    assert "global read" not in str(counters)


def test_recording_and_merging(gfx):
    a, out = np.zeros((2, 64), np.float32)
    with recording() as launches:
        run(compiled(COPY, gfx), 1, 64, out, a)
        run(compiled(COPY, gfx), 1, 64, out, a)
        strided_one = strided(gfx, 1)
    run(compiled(COPY, gfx), 1, 64, out, a)
    assert len(launches) == 3 and all(c.profiled for c in launches)
    both = launches[0].merge(launches[1])
    assert both.launches == 2 and both.bytes_read == 512 and both.kernel == "kernel"
    assert both.by_mnemonic == launches[0].by_mnemonic + launches[1].by_mnemonic
    assert both.occupancy == launches[0].occupancy
    lines = table(launches).splitlines()
    assert [line.split()[0] for line in lines] == ["kernel", "kernel", "strided", "total"]
    assert lines[1].split()[1] == "2"
    everything = both.merge(strided_one)
    assert everything.kernel == "kernel, strided" and everything.occupancy is None
    assert "strided" in str(everything) and f"{everything.bytes_read:,} B" in str(everything)


def test_matrix_work(gfx):
    shape, result = ("16x16x16.f16", 4) if gfx == "gfx942" else ("16x16x16.f16", 8)
    half, a_lanes = ("<4 x half>", 4) if gfx == "gfx942" else ("<16 x half>", 16)
    name = f"llvm.amdgcn.mfma.f32.{shape.replace('.f16', 'f16')}" if gfx == "gfx942" else (
        f"llvm.amdgcn.wmma.f32.{shape}.v8f32.v16f16")  # fmt: skip
    flags = ", i32 0, i32 0, i32 0" if gfx == "gfx942" else ""
    body = f"""  %c0 = insertelement <{result} x float> zeroinitializer, float 0.0, i32 0
  %d = call <{result} x float> @{name}({half} %x0, {half} %x0, <{result} x float> %c0{flags})
  %r = extractelement <{result} x float> %d, i32 0"""
    arguments = f"{half}, {half}, <{result} x float>" + (", i32, i32, i32" if flags else "")
    text = elementwise(body, half) + f"declare <{result} x float> @{name}({arguments})"
    a, out = np.ones((64, a_lanes), np.float16), np.zeros(64, np.float32)
    counters = run(compiled(text, gfx), 1, LANES[gfx], out, a)
    assert counters.by_class["matrix"] == 1 and counters.matrix_flops == 2 * 16**3
    assert counters.matrix_share == 1.0


def test_barriers(gfx):
    text = """
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @waiting() #0 {
  call void @llvm.amdgcn.s.barrier()
  call void @llvm.amdgcn.s.barrier()
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }
"""
    # RDNA4 has two instructions for each.
    for target in (gfx, "gfx1201"):
        counters = run(compiled(text, target), 3, 256)
        assert counters.barriers == 2 * counters.waves == 6 * 256 // LANES[target]


def test_nothing_merged(gfx):
    assert Counters().merge(Counters(kernel=gfx)).kernel == gfx
