"""Address spaces, constants in the code object, wave-wide masks, packed arithmetic, ids."""

import numpy as np
import pytest

from tests.support.emulation import IDS, LANES, TARGETS, compiled, elementwise, run

pytestmark = pytest.mark.parametrize("gfx", TARGETS)

SCRATCH = (
    """
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x, i32 %n) #0 {
entry:
  %a = alloca [16 x i32], align 4, addrspace(5)
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  br label %fill
fill:
  %k = phi i32 [0, %entry], [%k1, %fill]
  %v = mul i32 %k, %t
  %pa = getelementptr i32, ptr addrspace(5) %a, i32 %k
  store volatile i32 %v, ptr addrspace(5) %pa
  %k1 = add i32 %k, 1
  %go = icmp ult i32 %k1, %n
  br i1 %go, label %fill, label %done
done:
  %j = zext i32 %t to i64
  %px = getelementptr i32, ptr addrspace(1) %x, i64 %j
  %i = load i32, ptr addrspace(1) %px
  %pi = getelementptr i32, ptr addrspace(5) %a, i32 %i
  %r = load volatile i32, ptr addrspace(5) %pi
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %j
  store i32 %r, ptr addrspace(1) %po
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""
    + IDS
)


def test_scratch(gfx):
    x = np.random.default_rng(0).integers(0, 16, 64).astype(np.uint32)
    out = np.zeros_like(x)
    code = compiled(SCRATCH, gfx)
    assert code.kernels["kernel"].private_segment >= 64
    run(code, 1, 64, out, x, np.uint32(16))
    np.testing.assert_array_equal(out, x * np.arange(64))


FLAT = (
    """
@tile = internal addrspace(3) global [64 x i32] poison, align 16
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(3) @tile, i32 %t
  store i32 5, ptr addrspace(3) %p
  %j = zext i32 %t to i64
  %px = getelementptr i32, ptr addrspace(1) %x, i64 %j
  %odd = and i32 %t, 1
  %is = icmp ne i32 %odd, 0
  %ga = addrspacecast ptr addrspace(3) %p to ptr
  %gb = addrspacecast ptr addrspace(1) %px to ptr
  %g = select i1 %is, ptr %ga, ptr %gb
  %v = load volatile i32, ptr %g
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %j
  store i32 %v, ptr addrspace(1) %po
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""
    + IDS
)


def test_flat_addresses(gfx):
    x = np.arange(64, dtype=np.uint32) + 100
    out = np.zeros_like(x)
    run(compiled(FLAT, gfx), 1, 64, out, x)
    np.testing.assert_array_equal(out, np.where(np.arange(64) % 2, 5, x))


def test_constant_table(gfx):
    values = ", ".join(f"i32 {i * i}" for i in range(64))
    body = """  %m = and i32 %x0, 63
  %z = zext i32 %m to i64
  %pt = getelementptr i32, ptr addrspace(4) @table, i64 %z
  %r = load i32, ptr addrspace(4) %pt"""
    table = f"@table = internal addrspace(4) constant [64 x i32] [{values}], align 4\n"
    x = np.random.default_rng(1).integers(0, 64, 64).astype(np.uint32)
    out = np.zeros_like(x)
    run(compiled(table + elementwise(body, "i32", "i32"), gfx), 1, 64, out, x)
    np.testing.assert_array_equal(out, x * x)


def test_ballot(gfx):
    lanes = LANES[gfx]
    body = f"""  %c = icmp ugt i32 %x0, 500
  %b = call i{lanes} @llvm.amdgcn.ballot.i{lanes}(i1 %c)
  %n = call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} %b)
  %r = {"trunc i64 %n to i32" if lanes == 64 else "add i32 %n, 0"}"""
    declare = f"""declare i{lanes} @llvm.amdgcn.ballot.i{lanes}(i1)
declare i{lanes} @llvm.ctpop.i{lanes}(i{lanes})"""
    x = np.random.default_rng(2).integers(0, 1000, 64).astype(np.uint32)
    out = np.zeros_like(x)
    run(compiled(elementwise(body, "i32", "i32") + declare, gfx), 1, 64, out, x)
    np.testing.assert_array_equal(out, np.repeat((x > 500).reshape(-1, lanes).sum(1), lanes))


@pytest.mark.parametrize("op", ["fadd", "fmul", "fma"])
@pytest.mark.parametrize("kind", ["half", "float"])
def test_packed_floats(gfx, kind, op):
    type = f"<2 x {kind}>"
    dtype = {"half": np.float16, "float": np.float32}[kind]
    suffix = {"half": "v2f16", "float": "v2f32"}[kind]
    if op == "fma":
        body = f"  %r = call {type} @llvm.fma.{suffix}({type} %x0, {type} %x1, {type} %x0)"
        declare = f"declare {type} @llvm.fma.{suffix}({type}, {type}, {type})"
        reference = lambda a, b: (a.astype(np.float64) * b + a).astype(dtype)
    else:
        body, declare = f"  %r = {op} {type} %x0, %x1", ""
        reference = {"fadd": np.add, "fmul": np.multiply}[op]
    a, b = np.random.default_rng(3).standard_normal((2, 64, 2)).astype(dtype)
    out = np.zeros_like(a)
    run(compiled(elementwise(body, f"{type} {type}", type) + declare, gfx), 1, 64, out, a, b)
    np.testing.assert_array_equal(out, reference(a, b))


GRID = (
    """
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) #0 {
  %tx = call i32 @llvm.amdgcn.workitem.id.x()
  %ty = call i32 @llvm.amdgcn.workitem.id.y()
  %tz = call i32 @llvm.amdgcn.workitem.id.z()
  %gx = call i32 @llvm.amdgcn.workgroup.id.x()
  %gy = call i32 @llvm.amdgcn.workgroup.id.y()
  %gz = call i32 @llvm.amdgcn.workgroup.id.z()
  %a0 = mul i32 %gz, 2
  %a1 = add i32 %a0, %gy
  %a2 = mul i32 %a1, 3
  %a3 = add i32 %a2, %gx
  %a4 = mul i32 %a3, 2
  %a5 = add i32 %a4, %tz
  %a6 = mul i32 %a5, 3
  %a7 = add i32 %a6, %ty
  %a8 = mul i32 %a7, 5
  %a9 = add i32 %a8, %tx
  %j = zext i32 %a9 to i64
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %j
  %o = atomicrmw add ptr addrspace(1) %po, i32 1 monotonic
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workitem.id.z()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
attributes #0 = { "amdgpu-flat-work-group-size"="1,64" }
"""
    + IDS
)


def test_every_work_item_runs_once(gfx):
    """Three-dimensional ids, and a wave that is not full."""
    out = np.zeros((4, 2, 3, 2, 3, 5), np.uint32)
    run(compiled(GRID, gfx), (3, 2, 4), (5, 3, 2), out)
    assert (out == 1).all()


def test_counters(gfx):
    x, out = np.zeros((2, 640), np.float32)
    code = compiled(elementwise("  %r = fadd float %x0, 1.0", "float"), gfx)
    counters = run(code, 10, 64, out, x)
    waves = 10 * 64 // LANES[gfx]
    assert counters.by_mnemonic["v_add_f32"] == waves
    assert counters.by_class["vmem"] == 2 * waves
    assert counters.instructions == sum(counters.by_class.values())
