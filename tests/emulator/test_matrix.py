"""MFMA and WMMA against matrix products, with operands placed as the ISA guides say."""

import numpy as np
import pytest
from emulation import IDS, compiled, run

# intrinsic, m, n, k, blocks, A/B vector, NumPy dtype of A/B, C vector, NumPy dtype of C
MFMA = {
    "32x32x8f16": (32, 32, 8, 1, "<4 x half>", np.float16, "<16 x float>", np.float32),
    "16x16x16f16": (16, 16, 16, 1, "<4 x half>", np.float16, "<4 x float>", np.float32),
    "32x32x4f16": (32, 32, 4, 2, "<4 x half>", np.float16, "<32 x float>", np.float32),
    "16x16x4f16": (16, 16, 4, 4, "<4 x half>", np.float16, "<16 x float>", np.float32),
    "4x4x4f16": (4, 4, 4, 16, "<4 x half>", np.float16, "<4 x float>", np.float32),
    "16x16x4f32": (16, 16, 4, 1, "float", np.float32, "<4 x float>", np.float32),
    "32x32x2f32": (32, 32, 2, 1, "float", np.float32, "<16 x float>", np.float32),
    "16x16x4f64": (16, 16, 4, 1, "double", np.float64, "<4 x double>", np.float64),
    "16x16x32.i8": (16, 16, 32, 1, "i64", np.int8, "<4 x i32>", np.int32),
    "32x32x16.i8": (32, 32, 16, 1, "i64", np.int8, "<16 x i32>", np.int32),
}


def mfma_text(name: str) -> str:
    ab, _, c, dtype = MFMA[name][4:]
    out = {"f": "f64" if dtype == np.float64 else "f32", "i": "i32"}[np.dtype(dtype).kind]
    call = f"llvm.amdgcn.mfma.{out}.{name}"
    return f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %d, ptr addrspace(1) %a, ptr addrspace(1) %b,
                                  ptr addrspace(1) %c) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {ab}, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr {ab}, ptr addrspace(1) %b, i32 %t
  %pc = getelementptr {c}, ptr addrspace(1) %c, i32 %t
  %pd = getelementptr {c}, ptr addrspace(1) %d, i32 %t
  %va = load {ab}, ptr addrspace(1) %pa
  %vb = load {ab}, ptr addrspace(1) %pb
  %vc = load {c}, ptr addrspace(1) %pc
  %r = call {c} @{call}({ab} %va, {ab} %vb, {c} %vc, i32 0, i32 0, i32 0)
  store {c} %r, ptr addrspace(1) %pd
  ret void
}}
declare {c} @{call}({ab}, {ab}, {c}, i32, i32, i32)
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" }}
{IDS}"""


def lanes_of(matrix: np.ndarray, blocks: int) -> np.ndarray:
    """[blocks, lines, k] spread over 64 lanes: line, then block, then groups of k."""
    _, lines, k = matrix.shape
    groups = 64 // lines // blocks
    parts = matrix.reshape(blocks, lines, groups, k // groups)
    return np.ascontiguousarray(parts.transpose(2, 0, 1, 3)).reshape(64, -1)


def result_lanes(matrix: np.ndarray, together: int) -> np.ndarray:
    """[blocks, m, n] as [64, registers]: bundles of rows go to lane groups, then registers."""
    n = matrix.shape[2]
    groups = 64 // n
    bundles = matrix.reshape(-1, groups, together, n)
    return np.ascontiguousarray(bundles.transpose(1, 3, 0, 2)).reshape(64, -1)


@pytest.mark.parametrize("name", MFMA)
def test_mfma(name):
    m, n, k, blocks, _, ab_type, _, c_type = MFMA[name]
    rng = np.random.default_rng(8)
    a = rng.integers(-8, 8, (blocks, m, k)).astype(ab_type)
    b = rng.integers(-8, 8, (blocks, n, k)).astype(ab_type)
    c = rng.integers(-8, 8, (blocks, m, n)).astype(c_type)
    together = 1 if c_type == np.float64 else 4
    placed = result_lanes(c, together)
    d = np.zeros_like(placed)
    code = compiled(mfma_text(name), "gfx942")
    counters = run(code, 1, 64, d, lanes_of(a, blocks), lanes_of(b, blocks), placed)
    want = np.einsum("zmk,znk->zmn", a.astype(np.float64), b.astype(np.float64)) + c
    np.testing.assert_array_equal(d, result_lanes(want.astype(c_type), together))
    assert counters.by_class["matrix"] == 1


WMMA = {
    "f32.16x16x16.f16": ("<16 x half>", np.float16, "<8 x float>", np.float32, ""),
    "f32.16x16x16.bf16": ("<16 x i16>", "bfloat16", "<8 x float>", np.float32, ""),
    "f16.16x16x16.f16": ("<16 x half>", np.float16, "<16 x half>", np.float16, ", i1 false"),
    "i32.16x16x16.iu8": ("<4 x i32>", np.int8, "<8 x i32>", np.int32, ", i1 false"),
}


def wmma_text(name: str) -> str:
    ab, _, c, _, extra = WMMA[name]
    overload = {"<8 x float>": "v8f32", "<16 x half>": "v16f16", "<8 x i32>": "v8i32"}
    call = f"llvm.amdgcn.wmma.{name}.{overload[c]}."
    call += {"<16 x half>": "v16f16", "<16 x i16>": "v16i16", "<4 x i32>": "v4i32"}[ab]
    sign = "i1 true, " if "iu8" in name else ""
    kind = "i1, " if sign else ""
    return f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %d, ptr addrspace(1) %a, ptr addrspace(1) %b,
                                  ptr addrspace(1) %c) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {ab}, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr {ab}, ptr addrspace(1) %b, i32 %t
  %pc = getelementptr {c}, ptr addrspace(1) %c, i32 %t
  %pd = getelementptr {c}, ptr addrspace(1) %d, i32 %t
  %va = load {ab}, ptr addrspace(1) %pa
  %vb = load {ab}, ptr addrspace(1) %pb
  %vc = load {c}, ptr addrspace(1) %pc
  %r = call {c} @{call}({sign}{ab} %va, {sign}{ab} %vb, {c} %vc{extra})
  store {c} %r, ptr addrspace(1) %pd
  ret void
}}
declare {c} @{call}({kind}{ab}, {kind}{ab}, {c}{", i1" if extra else ""})
attributes #0 = {{ "amdgpu-flat-work-group-size"="32,32" }}
{IDS}"""


@pytest.mark.parametrize("name", WMMA)
def test_wmma(name):
    import ml_dtypes

    _, ab_type, _, c_type, _ = WMMA[name]
    ab_type = ml_dtypes.bfloat16 if ab_type == "bfloat16" else ab_type
    rng = np.random.default_rng(9)
    a, b = rng.integers(-8, 8, (2, 16, 16))
    c = rng.integers(-8, 8, (16, 16))
    twice = [np.concatenate([x, x]).astype(ab_type).view(np.uint8) for x in (a, b)]
    # Lane = column + 16 (row % 2), register = row // 2.
    lanes = lambda x: np.ascontiguousarray(x.reshape(8, 2, 16).transpose(1, 2, 0)).reshape(32, 8)
    placed = lanes(c).astype(c_type)
    if c_type == np.float16:
        # One half of each register takes part.
        placed = np.repeat(placed, 2, axis=1)
        placed[:, 1::2] = 0
    d = np.zeros_like(placed)
    run(compiled(wmma_text(name), "gfx1100"), 1, 32, d, *twice, placed)
    got = d[:, ::2] if c_type == np.float16 else d
    np.testing.assert_array_equal(got, lanes(a @ b.T + c).astype(c_type))
