"""Every atomic operation that LLVM has, on global memory and LDS, of one wave and of many."""

import ml_dtypes
import numpy as np
import pytest

from tests.support.emulation import IDS, TARGETS, compiled, run

# Each work-item combines its value into one of four places and keeps what was there.
TEXT = (
    """
@tile = internal addrspace(3) global [4 x {type}] poison, align 16
define amdgpu_kernel void @kernel(
    ptr addrspace(1) %out, ptr addrspace(1) %in, ptr addrspace(1) %acc) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = zext i32 %t to i64
  %p = getelementptr {type}, ptr addrspace(1) %in, i64 %i
  %x = load {type}, ptr addrspace(1) %p
  %k = and i32 %t, 3
  %k64 = zext i32 %k to i64
  %g = getelementptr {type}, ptr addrspace(1) %acc, i64 %k64
{body}
  %q = getelementptr {type}, ptr addrspace(1) %out, i64 %i
  store {type} %old, ptr addrspace(1) %q
  ret void
}}
declare void @llvm.amdgcn.s.barrier()
attributes #0 = {{ "amdgpu-flat-work-group-size"="128,128" }}
"""
    + IDS
)
GLOBAL = """
  %old = atomicrmw {op} ptr addrspace(1) %g, {type} %x syncscope("agent") monotonic, {hint}"""
LOCAL = """
  %l = getelementptr {type}, ptr addrspace(3) @tile, i32 %k
  %first = icmp ult i32 %t, 4
  br i1 %first, label %set, label %begin
set:
  %v = load {type}, ptr addrspace(1) %g
  store {type} %v, ptr addrspace(3) %l
  br label %begin
begin:
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %old = atomicrmw {op} ptr addrspace(3) %l, {type} %x syncscope("workgroup") monotonic, {hint}
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  br i1 %first, label %get, label %end
get:
  %w = load {type}, ptr addrspace(3) %l
  store {type} %w, ptr addrspace(1) %g
  br label %end
end:"""
HINT = "!amdgpu.no.fine.grained.memory !{}, !amdgpu.ignore.denormal.mode !{}"

INTEGER = {
    "add": lambda a, x: a + x, "sub": lambda a, x: a - x, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum, "min": np.minimum,
    "umax": np.maximum, "umin": np.minimum, "xchg": lambda a, x: x,
    "uinc_wrap": lambda a, x: np.where(a >= x, a * 0, a + 1),
    "udec_wrap": lambda a, x: np.where((a == 0) | (a > x), x, a - 1),
}  # fmt: skip
FLOAT = {"fadd": lambda a, x: a + x, "fmax": np.fmax, "fmin": np.fmin,
         "fsub": lambda a, x: a - x}  # fmt: skip
CASES = [(op, bits, INTEGER[op]) for op in INTEGER for bits in ("i32", "i64")]
CASES += [(op, kind, FLOAT[op]) for op in FLOAT for kind in ("float", "double")]
CASES += [("fadd", "<2 x half>", FLOAT["fadd"]), ("fadd", "<2 x bfloat>", FLOAT["fadd"])]
DTYPES = {"float": np.float32, "double": np.float64, "<2 x half>": np.float16,
          "<2 x bfloat>": ml_dtypes.bfloat16}  # fmt: skip


def operands(op, kind):
    """Values whose combination does not depend on the order, floats being small integers."""
    rng = np.random.default_rng(0)
    dtype = DTYPES.get(kind)
    if dtype is None:
        signed = "" if op in ("max", "min") else "u"
        dtype = np.dtype(f"{signed}int{kind[1:]}").type
        if "wrap" in op:
            return np.full(128, 5, dtype), np.array([0, 3, 5, 9], dtype)
        info = np.iinfo(dtype)
        make = lambda n: rng.integers(info.min, info.max, n, dtype, endpoint=True)
        return make(128), make(4)
    pairs = 2 if "x" in kind else 1
    return (rng.integers(-2, 3, 128 * pairs).astype(dtype), np.zeros(4 * pairs, dtype))


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("body", [GLOBAL, LOCAL], ids=["global", "lds"])
@pytest.mark.parametrize(("op", "kind", "combine"), CASES, ids=[f"{o}-{k}" for o, k, _ in CASES])
def test_atomic(gfx, body, op, kind, combine):
    given, places = operands(op, kind)
    out, acc = np.zeros_like(given), places.copy()
    text = TEXT.format(type=kind, body=body.format(op=op, type=kind, hint=HINT))
    run(compiled(text, gfx), 1, 128, out, given, acc)
    x = given.reshape(32, 4, -1)
    if op == "xchg":
        # Somebody's value stays; all others and the first one were handed on.
        seen = np.concatenate([out.reshape(32, 4), acc[None]])
        want = np.concatenate([given.reshape(32, 4), places[None]])
        np.testing.assert_array_equal(np.sort(seen, 0), np.sort(want, 0))
        return
    total = places.reshape(4, -1)
    with np.errstate(over="ignore"):
        for row in x:
            total = combine(total, row)
    np.testing.assert_array_equal(acc, total.ravel().astype(acc.dtype))
    # The first in each place found what was there before.
    before = out.reshape(32, 4, -1)
    assert all((before[:, i] == places.reshape(4, -1)[i]).all(-1).any() for i in range(4))


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("body", [GLOBAL, LOCAL], ids=["global", "lds"])
def test_compare_and_exchange(gfx, kind, body):
    lines = [line for line in body.splitlines() if "atomicrmw" not in line]
    where = "3) %l" if body == LOCAL else "1) %g"
    swap = f"""  %n = add {kind} %x, 1000
  %both = cmpxchg ptr addrspace({where}, {kind} %x, {kind} %n syncscope("agent") monotonic monotonic
  %old = extractvalue {{{kind}, i1}} %both, 0"""
    at = next((i for i, x in enumerate(lines) if "acquire" in x), len(lines) - 1) + 1
    lines.insert(at, swap)
    dtype = np.dtype(f"int{kind[1:]}").type
    given = np.arange(128, dtype=dtype)
    acc = np.array([8, 500, 126, 3], dtype)  # 500 is of no bin
    out = np.zeros_like(given)
    run(
        compiled(TEXT.format(type=kind, body="\n".join(lines).replace("{type}", kind)), gfx),
        1,
        128,
        out,
        given,
        acc,
    )
    np.testing.assert_array_equal(acc, [1008, 500, 1126, 1003])
    # Each found the old value or, after its swap, the new one.
    assert set(out.tolist()) <= {8, 1008, 500, 126, 1126, 3, 1003}
    assert out[8] == 8 and out[126] == 126 and out[3] == 3
