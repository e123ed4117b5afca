"""Faults that hardware hides until it does not: each planted, and found where it is."""

import numpy as np
import pytest

from amdjax.emulator import (
    Checks,
    CodeObject,
    DataRace,
    DivergentBarrier,
    Memory,
    MemoryFault,
    MissingWait,
    UninitializedRead,
    launch,
)
from tests.support.emulation import IDS, LANES, TARGETS, compiled, elementwise, pack, run

pytestmark = pytest.mark.parametrize("gfx", TARGETS)
COPY = elementwise("  %r = fadd float %x0, 1.0", "float")

# Waves of a workgroup exchange values through LDS; %BEFORE and %AFTER stand around the barrier.
EXCHANGE = (
    """
@tile = internal addrspace(3) global [256 x i32] poison, align 16
define amdgpu_kernel void @exchange(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %shift) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %j = zext i32 %t to i64
  %pi = getelementptr i32, ptr addrspace(1) %in, i64 %j
  %v = load i32, ptr addrspace(1) %pi
  %mine = getelementptr i32, ptr addrspace(3) @tile, i32 %t
  %sum = add i32 %t, %shift
  %o = and i32 %sum, 255
  %other = getelementptr i32, ptr addrspace(3) @tile, i32 %o
{body}
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %j
  store i32 %r, ptr addrspace(1) %po
  ret void
}}
declare void @llvm.amdgcn.s.barrier()
attributes #0 = {{ "amdgpu-flat-work-group-size"="256,256" }}
"""
    + IDS
)
BARRIER = """
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
"""
STORE = "  store i32 %v, ptr addrspace(3) %mine"
LOAD = "  %r = load volatile i32, ptr addrspace(3) %other"
ATOMIC = """
  %r = atomicrmw add ptr addrspace(3) %other, i32 1 syncscope("workgroup") monotonic"""


def exchange(*parts):
    return EXCHANGE.format(body="\n".join(parts))


def call(text, gfx, shift, **options):
    given, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    run(compiled(text, gfx), 1, 256, out, given, np.int32(shift), **options)
    return out


def without(code: CodeObject, kinds: tuple[int, ...], where: range | None = None) -> CodeObject:
    """The code object with some SOPP instructions made s_nop, by their upper half-word."""
    (kernel,) = code.kernels.values()
    words = np.frombuffer(kernel.code, np.uint32).copy()
    for i, word in enumerate(words.tolist()):
        if word >> 16 in kinds and (where is None or i in where):
            words[i] = 0xBF800000
    return CodeObject(code._data.replace(kernel.code, words.tobytes()))


def waits(gfx: str) -> tuple[int, ...]:
    """Upper half-words of the instructions that wait for memory."""
    if gfx.startswith("gfx12"):
        return (0xBFC0, 0xBFC1, 0xBFC6, 0xBFC7, 0xBFC8, 0xBFC9)
    return (0xBF89,) if gfx.startswith("gfx11") else (0xBF8C,)


# Memory that was not written


def fresh(nbytes):
    """An allocation without contents, and its memory."""
    memory, array = Memory(), np.zeros(nbytes, np.uint8)
    memory.register(array.ctypes.data, nbytes, array, initialized=False)
    return memory, array


def test_read_of_memory_that_was_not_written(gfx):
    memory, a = fresh(256)
    out = np.zeros(64, np.float32)
    memory.add(out)
    kernel = compiled(COPY, gfx).kernels["kernel"]
    with pytest.raises(UninitializedRead, match="not written") as caught:
        launch(kernel, 1, 64, pack(out, a), memory)
    assert caught.value.address == a.ctypes.data and caught.value.lane == 0
    memory.written(a.ctypes.data, 100)
    with pytest.raises(UninitializedRead) as caught:
        launch(kernel, 1, 64, pack(out, a), memory)
    assert caught.value.address == a.ctypes.data + 100
    assert caught.value.lane == 25 and caught.value.wave == 0
    memory.written(a.ctypes.data, 256)
    launch(kernel, 1, 64, pack(out, a), memory)
    np.testing.assert_array_equal(out, 1)


def test_what_a_kernel_wrote_may_be_read(gfx):
    memory, a = fresh(256)
    given = np.ones(64, np.float32)
    memory.add(given)
    kernel = compiled(COPY, gfx).kernels["kernel"]
    assert not memory.is_written(a.ctypes.data, 256)
    launch(kernel, 1, 64, pack(a, given), memory)
    assert memory.is_written(a.ctypes.data, 256)
    launch(kernel, 1, 64, pack(given, a), memory)
    np.testing.assert_array_equal(given, 3)


def test_copies_take_along_what_is_not_written(gfx):
    memory, a = fresh(64)
    b = np.zeros(64, np.uint8)
    memory.register(b.ctypes.data, 64, b, initialized=False)
    memory.written(a.ctypes.data + 8, 4)
    memory.copied(b.ctypes.data, a.ctypes.data, 64)
    assert memory.is_written(b.ctypes.data + 8, 4)
    assert not memory.is_written(b.ctypes.data + 12, 1)


def test_unwritten_is_no_matter_if_not_asked(gfx):
    memory, a = fresh(256)
    out = np.zeros(64, np.float32)
    memory.add(out)
    kernel = compiled(COPY, gfx).kernels["kernel"]
    launch(kernel, 1, 64, pack(out, a), memory, sanitize=Checks.ALL & ~Checks.UNWRITTEN)
    launch(kernel, 1, 64, pack(out, a), memory, sanitize=False)


def test_read_of_lds_that_was_not_written(gfx):
    half = "  %lower = icmp ult i32 %t, 200\n  br i1 %lower, label %do, label %rest\ndo:\n"
    text = exchange(half + STORE + "\n  br label %rest\nrest:", BARRIER, LOAD)
    with pytest.raises(UninitializedRead, match="LDS") as caught:
        call(text, gfx, 0)
    fault = caught.value
    assert fault.instruction.startswith("ds_") and fault.address == 800
    assert fault.wave * LANES[gfx] + fault.lane == 200


# Races


def test_exchange_with_a_barrier(gfx):
    out = call(exchange(STORE, BARRIER, LOAD), gfx, 64)
    np.testing.assert_array_equal(out, (np.arange(256) + 64) % 256)


def test_write_then_read_of_another_wave(gfx):
    text = exchange(STORE, LOAD)
    with pytest.raises(DataRace, match="race in LDS with wave 0") as caught:
        # Every wave reads what the one before wrote.
        call(text, gfx, -LANES[gfx], sanitize=Checks.RACES)
    fault = caught.value
    assert fault.wave == 1 and fault.lane == 0 and fault.address == 0
    assert fault.workgroup == (0, 0, 0) and fault.kernel == "exchange"
    out = call(text, gfx, 0)
    np.testing.assert_array_equal(out, np.arange(256))
    call(text, gfx, -LANES[gfx], sanitize=Checks.NONE)


def test_read_then_write_of_another_wave(gfx):
    text = exchange(STORE, BARRIER, LOAD, "  store volatile i32 %r, ptr addrspace(3) %mine")
    call(text, gfx, 0)
    with pytest.raises(DataRace, match="race in LDS with wave 0") as caught:
        call(text, gfx, LANES[gfx])
    assert caught.value.wave == 1 and caught.value.instruction.startswith(("ds_write", "ds_store"))


def test_writes_of_two_waves(gfx):
    text = exchange("  store volatile i32 %v, ptr addrspace(3) @tile", "  %r = add i32 %v, 0")
    with pytest.raises(DataRace, match="with wave 0") as caught:
        call(text, gfx, 0)
    assert caught.value.wave == 1


def test_atomics_do_not_race_with_each_other(gfx):
    call(exchange(STORE, BARRIER, ATOMIC), gfx, 64)
    text = exchange(STORE, BARRIER, ATOMIC, "  %x = load volatile i32, ptr addrspace(3) %mine")
    with pytest.raises(DataRace, match=r"with wave \d+ \(atomic\)|with several"):
        call(text, gfx, LANES[gfx] // 2)


# Races in global memory

PASS_ON = (
    """
define amdgpu_kernel void @pass_on(ptr addrspace(1) %out, ptr addrspace(1) %mid, i32 %shift) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %g, 256
  %i = add i32 %base, %t
  %j = zext i32 %i to i64
  %sum = add i32 %t, %shift
  %m = and i32 %sum, 255
  %k = add i32 %base, %m
  %o = zext i32 %k to i64
  %mine = getelementptr i32, ptr addrspace(1) %mid, i64 %j
  %other = getelementptr i32, ptr addrspace(1) %mid, i64 %o
{body}
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %j
  store i32 %r, ptr addrspace(1) %po
  ret void
}}
declare void @llvm.amdgcn.s.barrier()
attributes #0 = {{ "amdgpu-flat-work-group-size"="256,256" }}
"""
    + IDS
)
WRITE = "  store volatile i32 %i, ptr addrspace(1) %mine"
READ = "  %r = load volatile i32, ptr addrspace(1) %other"


def pass_on(gfx, shift, *body, groups=2, **options):
    out, memory = np.zeros(256 * groups, np.int32), Memory()
    mid = np.zeros(256 * groups, np.int32)
    memory.add(out)
    memory.register(mid.ctypes.data, mid.nbytes, mid, initialized=False)
    memory.written(mid.ctypes.data, mid.nbytes)
    (kernel,) = compiled(PASS_ON.format(body="\n".join(body)), gfx).kernels.values()
    arguments = pack(out, mid, np.int32(shift))
    launch(kernel, groups, 256, arguments, memory, **options)
    launch(kernel, groups, 256, arguments, memory, **options)
    return out


def test_values_pass_through_memory_behind_a_barrier(gfx):
    out = pass_on(gfx, 64, WRITE, BARRIER, READ)
    np.testing.assert_array_equal(out, np.arange(512) & ~255 | (np.arange(512) + 64) % 256)
    pass_on(gfx, 0, WRITE, READ)  # within a wave there is nothing to race with


def test_read_of_what_another_wave_just_wrote(gfx):
    with pytest.raises(DataRace, match="race in global memory with wave 0") as caught:
        pass_on(gfx, -LANES[gfx], WRITE, READ)
    assert caught.value.wave == 1 and caught.value.lane == 0
    pass_on(gfx, -LANES[gfx], WRITE, READ, sanitize=Checks.ALL & ~Checks.RACES)


WAITS_FOR_STORES = {"gfx1030": 0xBBFD, "gfx1100": 0xBC7C, "gfx1201": 0xBFC1}


def test_stores_not_waited_for_at_a_barrier(gfx):
    """On RDNA the waves of a workgroup may have two caches: a barrier alone shows nothing."""
    code = compiled(PASS_ON.format(body="\n".join([WRITE, BARRIER, READ])), gfx)
    out, mid, memory = np.zeros(512, np.int32), np.zeros(512, np.int32), Memory()
    memory.add(out)
    memory.register(mid.ctypes.data, mid.nbytes, mid, initialized=False)
    memory.written(mid.ctypes.data, mid.nbytes)
    arguments = pack(out, mid, np.int32(-LANES[gfx]))
    if gfx not in WAITS_FOR_STORES:
        # Those share one; the wait is that for loads.
        (kernel,) = without(code, waits(gfx)).kernels.values()
        launch(kernel, 2, 256, arguments, memory, sanitize=Checks.RACES)
        return
    (kernel,) = without(code, (WAITS_FOR_STORES[gfx],)).kernels.values()
    with pytest.raises(DataRace, match="race in global memory with wave 7") as caught:
        launch(kernel, 2, 256, arguments, memory)
    assert caught.value.wave == 0 and caught.value.instruction.startswith("global_load")
    launch(kernel, 2, 256, arguments, memory, sanitize=Checks.ALL & ~Checks.WAITS)
    (kernel,) = code.kernels.values()
    launch(kernel, 2, 256, arguments, memory)


def test_write_over_what_another_wave_reads(gfx):
    # Each wave reads from the next, the last from itself. Forwards readers come first and all seems
    # well; the second workgroup goes backwards.
    body = """
  %end = icmp ult i32 %sum, 256
  %n = select i1 %end, i32 %sum, i32 255
  %q = add i32 %base, %n
  %q64 = zext i32 %q to i64
  %next = getelementptr i32, ptr addrspace(1) %mid, i64 %q64
  %r = load volatile i32, ptr addrspace(1) %next
  store volatile i32 %r, ptr addrspace(1) %mine"""
    pass_on(gfx, LANES[gfx], body, groups=1)
    with pytest.raises(DataRace, match="race in global memory with wave") as caught:
        pass_on(gfx, LANES[gfx], body)
    last = 256 // LANES[gfx] - 1
    assert caught.value.workgroup == (1, 0, 0) and caught.value.wave == last - 1


def test_two_waves_write_one_place(gfx):
    same = "  store volatile i32 %i, ptr addrspace(1) %mid\n  %r = add i32 %i, 0"
    with pytest.raises(DataRace, match="with wave 0") as caught:
        pass_on(gfx, 0, same)
    assert caught.value.instruction.startswith("global_store")
    add = '  %r = atomicrmw add ptr addrspace(1) %mid, i32 1 syncscope("agent") monotonic'
    pass_on(gfx, 0, add)


def test_a_fault_leaves_no_trace_in_the_shadow(gfx):
    memory, mid = fresh(1024)
    memory.written(mid.ctypes.data, 1024)
    (kernel,) = compiled(PASS_ON.format(body=WRITE + "\n" + READ), gfx).kernels.values()
    out = np.zeros(256, np.int32)
    memory.add(out)
    arguments = [pack(out, mid, np.int32(s)) for s in (-LANES[gfx], 0)]
    with pytest.raises(DataRace):
        launch(kernel, 1, 256, arguments[0], memory)
    launch(kernel, 1, 256, arguments[1], memory)


# Waits


@pytest.mark.parametrize("text", [COPY, exchange(STORE, BARRIER, LOAD)])
def test_missing_wait(gfx, text):
    code = compiled(text, gfx)
    broken = without(code, waits(gfx))
    (kernel,) = broken.kernels.values()
    given, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    with pytest.raises(
        MissingWait, match=r"reads [sv]\d+, whose load was not waited for"
    ) as caught:
        run(broken, 1, 256 if kernel.name == "exchange" else 64, out, given, np.int32(0))
    assert caught.value.place.kernel == kernel.name and caught.value.pc > 0
    without_waits = Checks.ALL & ~Checks.WAITS
    run(broken, 1, 256, out, given, np.int32(0), sanitize=without_waits)


def test_store_to_lds_not_waited_for_at_a_barrier(gfx):
    # No fence, hence no wait but where LLVM places one before any barrier (CDNA1).
    text = exchange(STORE, "  call void @llvm.amdgcn.s.barrier()", LOAD)
    given, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    code = compiled(text, gfx)
    if gfx == "gfx908":
        words = np.frombuffer(next(iter(code.kernels.values())).code, np.uint32)
        before = int(np.flatnonzero(words == 0xBF8A0000)[0]) - 1
        assert words[before] >> 16 == 0xBF8C
        code = without(code, waits(gfx), range(before, before + 1))
    with pytest.raises(MissingWait, match="barrier is reached with stores to LDS"):
        run(code, 1, 256, out, given, np.int32(0))


def test_loops_and_branches_have_no_false_alarm(gfx):
    text = (
        """
define amdgpu_kernel void @steps(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %j = zext i32 %t to i64
  %first = getelementptr i32, ptr addrspace(1) %in, i64 %j
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i1, %next]
  %sum = phi i32 [0, %entry], [%s, %next]
  %p = phi ptr addrspace(1) [%first, %entry], [%p1, %next]
  %v = load i32, ptr addrspace(1) %p
  %odd = and i32 %v, 1
  %is = icmp ne i32 %odd, 0
  br i1 %is, label %more, label %next
more:
  %q = getelementptr i32, ptr addrspace(1) %p, i64 64
  %w = load i32, ptr addrspace(1) %q
  br label %next
next:
  %x = phi i32 [%v, %loop], [%w, %more]
  %s = add i32 %sum, %x
  %p1 = getelementptr i32, ptr addrspace(1) %p, i64 64
  %i1 = add i32 %i, 1
  %again = icmp ult i32 %i1, %n
  br i1 %again, label %loop, label %done
done:
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %j
  store i32 %s, ptr addrspace(1) %po
  ret void
}
"""
        + IDS
    )
    x = np.random.default_rng(0).integers(0, 99, (6, 64)).astype(np.int32)
    out = np.zeros(64, np.int32)
    run(compiled(text, gfx), 1, 64, out, x, np.int32(5))
    np.testing.assert_array_equal(out, np.where(x[:5] & 1, x[1:], x[:5]).sum(0))


# Barriers

WAVES = (
    """
define amdgpu_kernel void @waves(ptr addrspace(1) %out, i32 %limit) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %w = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %t)
  %low = icmp ult i32 %w, %limit
  br i1 %low, label %some, label %others
some:
  call void @llvm.amdgcn.s.barrier()
  store volatile i32 1, ptr addrspace(1) %out
  ret void
others:
{others}
  store volatile i32 2, ptr addrspace(1) %out
  ret void
}}
declare void @llvm.amdgcn.s.barrier()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
attributes #0 = {{ "amdgpu-flat-work-group-size"="256,256" }}
"""
    + IDS
)


def test_waves_at_different_barriers(gfx):
    barrier = "  call void @llvm.amdgcn.s.barrier()"
    text = WAVES.format(
        others=f"{barrier}\n  store volatile i32 3, ptr addrspace(1) %out\n{barrier}"
    )
    out = np.zeros(1, np.int32)
    for same in (0, 256):
        run(compiled(text, gfx), 1, 256, out, np.int32(same))
    with pytest.raises(DivergentBarrier, match="another that has ended") as caught:
        run(compiled(text, gfx), 2, 256, out, np.int32(128))
    assert caught.value.instruction.split()[0] in ("s_barrier", "s_barrier_wait")
    assert caught.value.wave >= 128 // LANES[gfx] and caught.value.lane == -1
    run(compiled(text, gfx), 2, 256, out, np.int32(128), sanitize=False)


def test_waves_at_different_barriers_equally_often(gfx):
    """As in kernels whose waves take turns at memory and at the matrix unit."""
    text = WAVES.format(others="  call void @llvm.amdgcn.s.barrier()")
    run(compiled(text, gfx), 2, 256, np.zeros(1, np.int32), np.int32(128))


def test_waves_that_ended_do_not_hold_up_a_barrier(gfx):
    out = np.zeros(1, np.int32)
    run(compiled(WAVES.format(others=""), gfx), 1, 256, out, np.int32(128))


# Reports


def test_report_names_the_place(gfx):
    a, out = np.zeros(320, np.float32)[:300], np.zeros(320, np.float32)
    with pytest.raises(MemoryFault) as caught:
        run(compiled(COPY, gfx), (5, 2), 64, out, a)
    fault = caught.value
    assert fault.workgroup == (4, 0, 0) and fault.wave * LANES[gfx] + fault.lane == 300 - 256
    text = str(fault)
    for part in (
        "kernel kernel", "global_load_", f"+0x{fault.pc:x}", f"0x{fault.address:x}",
        f"workgroup {fault.workgroup}", f"wave {fault.wave}", f"lane {fault.lane}",
    ):  # fmt: skip
        assert part in text
    # Mnemonic, destination, address.
    assert fault.instruction.split(maxsplit=1)[1].startswith("v")
