"""Kernels compiled from LLVM IR, on both targets, against NumPy."""

import numpy as np
import pytest

from tests.support.emulation import IDS, LANES, TARGETS, compiled, elementwise, run

pytestmark = pytest.mark.parametrize("gfx", TARGETS)


def test_vector_add(gfx):
    a, b = np.random.default_rng(0).standard_normal((2, 640)).astype(np.float32)
    out = np.zeros_like(a)
    code = compiled(elementwise("  %r = fadd float %x0, %x1", "float float"), gfx)
    counters = run(code, 10, 64, out, a, b)
    np.testing.assert_array_equal(out, a + b)
    assert counters.by_class["vmem"] >= 30


SAXPY = (
    """
define amdgpu_kernel void @saxpy(ptr addrspace(1) %y, ptr addrspace(1) %x, float %a, i32 %n) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %o = mul i32 %g, 256
  %i = add i32 %o, %t
  %in = icmp ult i32 %i, %n
  br i1 %in, label %do, label %end
do:
  %j = zext i32 %i to i64
  %px = getelementptr float, ptr addrspace(1) %x, i64 %j
  %py = getelementptr float, ptr addrspace(1) %y, i64 %j
  %vx = load float, ptr addrspace(1) %px
  %vy = load float, ptr addrspace(1) %py
  %r = call float @llvm.fma.f32(float %vx, float %a, float %vy)
  store float %r, ptr addrspace(1) %py
  br label %end
end:
  ret void
}
declare float @llvm.fma.f32(float, float, float)
"""
    + IDS
)


@pytest.mark.parametrize("n", [1, 63, 256, 1000])
def test_saxpy_with_tail_guard(gfx, n):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    want = (x.astype(np.float64) * np.float32(1.5) + y).astype(np.float32)
    run(compiled(SAXPY, gfx), -(-n // 256), 256, y, x, np.float32(1.5), np.uint32(n))
    np.testing.assert_array_equal(y, want)


REDUCE = (
    """
@tile = internal addrspace(3) global [256 x float] poison, align 16
define amdgpu_kernel void @total(ptr addrspace(1) %out, ptr addrspace(1) %x) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %o = mul i32 %g, 256
  %i = add i32 %o, %t
  %j = zext i32 %i to i64
  %px = getelementptr float, ptr addrspace(1) %x, i64 %j
  %v = load float, ptr addrspace(1) %px
  %mine = getelementptr float, ptr addrspace(3) @tile, i32 %t
  store float %v, ptr addrspace(3) %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br label %loop
loop:
  %d = phi i32 [128, %entry], [%half, %next]
  %active = icmp ult i32 %t, %d
  br i1 %active, label %add, label %next
add:
  %other = add i32 %t, %d
  %po = getelementptr float, ptr addrspace(3) @tile, i32 %other
  %vo = load float, ptr addrspace(3) %po
  %vm = load float, ptr addrspace(3) %mine
  %s = fadd float %vo, %vm
  store float %s, ptr addrspace(3) %mine
  br label %next
next:
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %half = lshr i32 %d, 1
  %more = icmp ne i32 %half, 0
  br i1 %more, label %loop, label %done
done:
  %first = icmp eq i32 %t, 0
  br i1 %first, label %write, label %end
write:
  %r = load float, ptr addrspace(3) @tile
  %gz = zext i32 %g to i64
  %po2 = getelementptr float, ptr addrspace(1) %out, i64 %gz
  store float %r, ptr addrspace(1) %po2
  br label %end
end:
  ret void
}
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }
"""
    + IDS
)


def test_tree_reduction_in_lds(gfx):
    x = np.random.default_rng(2).integers(-50, 50, (7, 256)).astype(np.float32)
    out = np.zeros(7, np.float32)
    counters = run(compiled(REDUCE, gfx), 7, 256, out, x)
    np.testing.assert_array_equal(out, x.sum(1))
    assert counters.by_mnemonic["s_barrier"] + counters.by_mnemonic["s_barrier_wait"] > 0


UINT = "i32 i32 i32"
INTEGER = {
    "add": ("  %r = add i32 %x0, %x1", lambda a, b, c: a + b),
    "mul": ("  %r = mul i32 %x0, %x1", lambda a, b, c: a * b),
    "mulhi": (
        """  %l = zext i32 %x0 to i64
  %m = zext i32 %x1 to i64
  %n = mul i64 %l, %m
  %h = lshr i64 %n, 32
  %r = trunc i64 %h to i32""",
        lambda a, b, c: (a.astype(np.uint64) * b >> 32).astype(np.uint32),
    ),
    "smulhi": (
        """  %l = sext i32 %x0 to i64
  %m = sext i32 %x1 to i64
  %n = mul i64 %l, %m
  %h = lshr i64 %n, 32
  %r = trunc i64 %h to i32""",
        lambda a, b, c: (a.view(np.int32).astype(np.int64) * b.view(np.int32) >> 32).astype(
            np.uint32
        ),
    ),
    "shl": ("  %s = and i32 %x1, 31\n  %r = shl i32 %x0, %s", lambda a, b, c: a << (b & 31)),
    "ashr": (
        "  %s = and i32 %x1, 31\n  %r = ashr i32 %x0, %s",
        lambda a, b, c: (a.view(np.int32) >> (b & 31).view(np.int32)).view(np.uint32),
    ),
    "clz": (
        "  %r = call i32 @llvm.ctlz.i32(i32 %x0, i1 false)",
        lambda a, b, c: np.array([32 - int(x).bit_length() for x in a], np.uint32),
    ),
    "ctz": (
        "  %r = call i32 @llvm.cttz.i32(i32 %x0, i1 false)",
        lambda a, b, c: np.array(
            [32 if x == 0 else (int(x) & -int(x)).bit_length() - 1 for x in a], np.uint32
        ),
    ),
    "popcount": (
        "  %r = call i32 @llvm.ctpop.i32(i32 %x0)",
        lambda a, b, c: np.bitwise_count(a).astype(np.uint32),
    ),
    "reverse": (
        "  %r = call i32 @llvm.bitreverse.i32(i32 %x0)",
        lambda a, b, c: np.array([int(f"{x:032b}"[::-1], 2) for x in a], np.uint32),
    ),
    "bswap": ("  %r = call i32 @llvm.bswap.i32(i32 %x0)", lambda a, b, c: a.byteswap()),
    "bfe": (
        "  %r = call i32 @llvm.amdgcn.ubfe.i32(i32 %x0, i32 5, i32 9)",
        lambda a, b, c: a >> 5 & 511,
    ),
    "sbfe": (
        "  %r = call i32 @llvm.amdgcn.sbfe.i32(i32 %x0, i32 5, i32 9)",
        lambda a, b, c: (a.view(np.int32) << 18 >> 23).view(np.uint32),
    ),
    "funnel": (
        "  %r = call i32 @llvm.fshr.i32(i32 %x0, i32 %x1, i32 %x2)",
        lambda a, b, c: ((a.astype(np.uint64) << 32 | b) >> (c & 31)).astype(np.uint32),
    ),
    "udiv": ("  %s = or i32 %x1, 1\n  %r = udiv i32 %x0, %s", lambda a, b, c: a // (b | 1)),
    "srem": (
        "  %s = or i32 %x1, 1\n  %r = srem i32 %x0, %s",
        lambda a, b, c: np.fmod(a.view(np.int32), (b | 1).view(np.int32)).view(np.uint32),
    ),
    "max3": (
        """  %m = call i32 @llvm.smax.i32(i32 %x0, i32 %x1)
  %r = call i32 @llvm.smax.i32(i32 %m, i32 %x2)""",
        lambda a, b, c: np.maximum(
            np.maximum(a.view(np.int32), b.view(np.int32)), c.view(np.int32)
        ).view(np.uint32),
    ),
    "saturate": (
        "  %r = call i32 @llvm.uadd.sat.i32(i32 %x0, i32 %x1)",
        lambda a, b, c: np.minimum(a.astype(np.uint64) + b, 2**32 - 1).astype(np.uint32),
    ),
    "bytes": (
        """  %p = and i32 %x0, 255
  %q1 = lshr i32 %x1, 8
  %q2 = and i32 %q1, 65280
  %o1 = or i32 %p, %q2
  %h = shl i32 %x2, 16
  %r = or i32 %o1, %h""",
        lambda a, b, c: a & 255 | b >> 8 & 0xFF00 | c << 16,
    ),
    "u16": (
        """  %p = trunc i32 %x0 to i16
  %q1 = trunc i32 %x1 to i16
  %m = mul i16 %p, %q1
  %n = lshr i16 %m, 3
  %s = sext i16 %n to i32
  %r = xor i32 %s, %x2""",
        lambda a, b, c: (
            ((a * b & 0xFFFF) >> 3).astype(np.uint16).astype(np.int16).astype(np.uint32) ^ c
        ),
    ),
}
DECLARE = """
declare i32 @llvm.ctlz.i32(i32, i1)
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.bitreverse.i32(i32)
declare i32 @llvm.bswap.i32(i32)
declare i32 @llvm.amdgcn.ubfe.i32(i32, i32, i32)
declare i32 @llvm.amdgcn.sbfe.i32(i32, i32, i32)
declare i32 @llvm.fshr.i32(i32, i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.uadd.sat.i32(i32, i32)
"""


@pytest.mark.parametrize("name", INTEGER)
def test_integers(gfx, name):
    body, reference = INTEGER[name]
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, 2**32, (3, 128), np.uint32)
    a[:4], b[:4] = (0, 1, 2**31, 2**32 - 1), (2**32 - 1, 2**31, 1, 0)
    out = np.zeros(128, np.uint32)
    run(compiled(elementwise(body, UINT, "i32") + DECLARE, gfx), 2, 64, out, a, b, c)
    np.testing.assert_array_equal(out, reference(a, b, c))


WIDE = {
    "add": ("  %r = add i64 %x0, %x1", lambda a, b: a + b),
    "mul": ("  %r = mul i64 %x0, %x1", lambda a, b: a * b),
    "shl": ("  %s = and i64 %x1, 63\n  %r = shl i64 %x0, %s", lambda a, b: a << (b & 63)),
    "udiv": ("  %s = or i64 %x1, 1\n  %r = udiv i64 %x0, %s", lambda a, b: a // (b | 1)),
    "min": ("  %c = icmp ult i64 %x0, %x1\n  %r = select i1 %c, i64 %x0, i64 %x1", np.minimum),
}


@pytest.mark.parametrize("name", WIDE)
def test_64_bit_integers(gfx, name):
    body, reference = WIDE[name]
    a, b = np.random.default_rng(4).integers(0, 2**64, (2, 64), np.uint64)
    b[::3] >>= 40
    out = np.zeros(64, np.uint64)
    run(compiled(elementwise(body, "i64 i64", "i64"), gfx), 1, 64, out, a, b)
    np.testing.assert_array_equal(out, reference(a, b))


FLOATS = {
    "add": ("  %r = fadd T %x0, %x1", lambda a, b: a + b),
    "sub": ("  %r = fsub T %x0, %x1", lambda a, b: a - b),
    "mul": ("  %r = fmul T %x0, %x1", lambda a, b: a * b),
    "div": ("  %r = fdiv T %x0, %x1", lambda a, b: a / b),
    "sqrt": ("  %m = call T @llvm.fabs.S(T %x0)\n  %r = call T @llvm.sqrt.S(T %m)",
             lambda a, b: np.sqrt(np.abs(a))),
    "max": ("  %r = call T @llvm.maxnum.S(T %x0, T %x1)", np.fmax),
    "floor": ("  %r = call T @llvm.floor.S(T %x0)", lambda a, b: np.floor(a)),
    "even": ("  %r = call T @llvm.roundeven.S(T %x0)", lambda a, b: np.rint(a)),
    "int": ("  %i32 = fptosi T %x0 to i32\n  %r = sitofp i32 %i32 to T", lambda a, b: np.trunc(a)),
    "select": ("  %c = fcmp olt T %x0, %x1\n  %n = fneg T %x1\n"
               "  %r = select i1 %c, T %x0, T %n", lambda a, b: np.where(a < b, a, -b)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", FLOATS)
def test_floats(gfx, name, dtype):
    body, reference = FLOATS[name]
    llvm_type, suffix = {2: ("half", "f16"), 4: ("float", "f32"), 8: ("double", "f64")}[
        np.dtype(dtype).itemsize
    ]
    declared = "".join(
        f"declare T @llvm.{op}.S({args})\n"
        for op, args in (("fabs", "T"), ("sqrt", "T"), ("maxnum", "T, T"), ("floor", "T"),
                         ("roundeven", "T"))
    )  # fmt: skip
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((2, 256)) * 20).astype(dtype)
    if name in ("add", "sub", "mul", "div"):
        scale = {2: 8, 4: 100, 8: 900}[np.dtype(dtype).itemsize]
        a = np.ldexp(a, rng.integers(-scale, scale, 256)).astype(dtype)
    out = np.zeros_like(a)
    text = elementwise(body, f"{llvm_type} {llvm_type}", llvm_type) + declared
    text = text.replace(" T ", f" {llvm_type} ").replace("(T ", f"({llvm_type} ")
    for old, new in ((".S(", f".{suffix}("), ("(T)", f"({llvm_type})"), ("(T,", f"({llvm_type},"),
                     (" T)", f" {llvm_type})"), (" T\n", f" {llvm_type}\n")):  # fmt: skip
        text = text.replace(old, new)
    run(compiled(text, gfx), 4, 64, out, a, b)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, reference(a, b))


LOOP = (
    """
define amdgpu_kernel void @collatz(ptr addrspace(1) %out, ptr addrspace(1) %x) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %j = zext i32 %t to i64
  %px = getelementptr i32, ptr addrspace(1) %x, i64 %j
  %v = load i32, ptr addrspace(1) %px
  br label %test
test:
  %n = phi i32 [%v, %entry], [%next, %body]
  %k = phi i32 [0, %entry], [%k1, %body]
  %go = icmp ugt i32 %n, 1
  br i1 %go, label %body, label %done
body:
  %odd = and i32 %n, 1
  %isodd = icmp ne i32 %odd, 0
  %m3 = mul i32 %n, 3
  %up = add i32 %m3, 1
  %down = lshr i32 %n, 1
  %next = select i1 %isodd, i32 %up, i32 %down
  %k1 = add i32 %k, 1
  br label %test
done:
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %j
  store i32 %k, ptr addrspace(1) %po
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="128,128" }
"""
    + IDS
)


def test_divergent_loop(gfx):
    def steps(n):
        k = 0
        while n > 1:
            n, k = (3 * n + 1 if n & 1 else n // 2), k + 1
        return k

    x = np.arange(1, 129, dtype=np.uint32)
    out = np.zeros_like(x)
    run(compiled(LOOP, gfx), 1, 128, out, x)
    np.testing.assert_array_equal(out, [steps(int(n)) for n in x])


ATOMICS = (
    """
define amdgpu_kernel void @histogram(ptr addrspace(1) %bins, ptr addrspace(1) %x,
                                     ptr addrspace(1) %sum, ptr addrspace(1) %order) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %j = zext i32 %t to i64
  %px = getelementptr i32, ptr addrspace(1) %x, i64 %j
  %v = load i32, ptr addrspace(1) %px
  %z = zext i32 %v to i64
  %pb = getelementptr i32, ptr addrspace(1) %bins, i64 %z
  %old = atomicrmw add ptr addrspace(1) %pb, i32 1 syncscope("agent") monotonic
  %po = getelementptr i32, ptr addrspace(1) %order, i64 %j
  store i32 %old, ptr addrspace(1) %po
  %f = uitofp i32 %v to float
  %u = atomicrmw fadd ptr addrspace(1) %sum, float %f syncscope("agent") monotonic
  %pm = getelementptr i32, ptr addrspace(1) %sum, i64 1
  %m = atomicrmw umax ptr addrspace(1) %pm, i32 %v syncscope("agent") monotonic
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="128,128" "amdgpu-unsafe-fp-atomics"="true" }
"""
    + IDS
)


def test_atomics(gfx):
    x = np.random.default_rng(6).integers(0, 10, 128).astype(np.uint32)
    bins, order, total = np.zeros(10, np.uint32), np.zeros(128, np.uint32), np.zeros(2, np.float32)
    run(compiled(ATOMICS, gfx), 1, 128, bins, x, total, order)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=10))
    assert total[0] == x.sum() and total.view(np.uint32)[1] == x.max()
    for value in range(10):
        assert sorted(order[x == value]) == list(range(np.count_nonzero(x == value)))


SHUFFLES = {
    "bpermute": (
        """  %s = mul i32 %x1, 4
  %r = call i32 @llvm.amdgcn.ds.bpermute(i32 %s, i32 %x0)""",
        lambda a, b, w: a[b % w],
    ),
    "quad": (
        "  %r = call i32 @llvm.amdgcn.mov.dpp.i32(i32 %x0, i32 177, i32 15, i32 15, i1 true)",
        lambda a, b, w: a[np.arange(w) ^ 1],
    ),
    "row_shr": (
        "  %r = call i32 "
        "@llvm.amdgcn.update.dpp.i32(i32 7, i32 %x0, i32 273, i32 15, i32 15, i1 0)",
        lambda a, b, w: np.where(np.arange(w) % 16, np.roll(a, 1), 7),
    ),
    "swizzle": (
        "  %r = call i32 @llvm.amdgcn.ds.swizzle(i32 %x0, i32 16415)",
        lambda a, b, w: a[np.arange(w) ^ 16],
    ),
    "first": (
        "  %r = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %x0)",
        lambda a, b, w: np.full(w, a[0]),
    ),
    "lane5": (
        "  %r = call i32 @llvm.amdgcn.readlane.i32(i32 %x0, i32 5)",
        lambda a, b, w: np.full(w, a[5]),
    ),
    "number": (
        """  %lo = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %r = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %lo)""",
        lambda a, b, w: np.arange(w),
    ),
}
DECLARE_SHUFFLES = """
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.mov.dpp.i32(i32, i32, i32, i32, i1)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
declare i32 @llvm.amdgcn.ds.swizzle(i32, i32)
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)
"""


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles(gfx, name):
    body, reference = SHUFFLES[name]
    wave = LANES[gfx]
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 1000, 64).astype(np.uint32), rng.integers(0, 64, 64).astype(np.uint32)
    out = np.zeros_like(a)
    run(compiled(elementwise(body, "i32 i32", "i32") + DECLARE_SHUFFLES, gfx), 1, 64, out, a, b)
    for w in range(0, 64, wave):
        part = slice(w, w + wave)
        np.testing.assert_array_equal(out[part], reference(a[part], b[part], wave))
