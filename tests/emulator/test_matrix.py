"""Every matrix instruction that targets list, against products in NumPy.

Operands are placed as the ISA guides say, independently of the target's own functions, which are
compared with that.
"""

import ml_dtypes
import numpy as np
import pytest

from amdjax import targets
from amdjax.emulator import EmulatorError
from amdjax.targets import MatrixInstruction
from tests.emulator.test_instructions import execute
from tests.support.emulation import IDS, LANES, TARGETS, compiled, run

INSTRUCTIONS = [(gfx, x) for gfx in TARGETS for x in targets.get(gfx).matrix]
FLOAT8 = {
    "fnuz": {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz},
    "ocp": {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2},
}
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "xf32": np.float32,
          "f64": np.float64, "i8": np.int8, "i4": np.int8, "i32": np.int32}  # fmt: skip


def kernel_text(x: MatrixInstruction, waves: int) -> str:
    ab, c = x.operand_type, x.accumulator_type
    kinds = {"a": ab, "b": ab, "c": c, "signed": "i1"}
    types = ", ".join(kinds.get(arg) or arg.split()[0] for arg in x.arguments)
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
  %r = call {c} @{x.intrinsic}({x.call_arguments("%va", "%vb", "%vc")})
  store {c} %r, ptr addrspace(1) %pd
  ret void
}}
declare {c} @{x.intrinsic}({types})
attributes #0 = {{ "amdgpu-flat-work-group-size"="{waves},{waves}" }}
{IDS}"""


def operand_lanes(matrix: np.ndarray, lanes: int, layout: str) -> np.ndarray:
    """[blocks, lines, k] as [lanes, elements]: line, then block, then groups of k."""
    blocks, lines, k = matrix.shape
    if layout == "wmma_rdna3":  # the upper lanes repeat the lower
        return np.concatenate([matrix[0], matrix[0]])
    groups = lanes // lines // blocks
    parts = matrix.reshape(blocks, lines, groups, k // groups)
    return np.ascontiguousarray(parts.transpose(2, 0, 1, 3)).reshape(lanes, -1)


def result_lanes(matrix: np.ndarray, lanes: int, layout: str) -> np.ndarray:
    """[blocks, m, n] as [lanes, registers]: bundles of rows go to lane groups, then registers."""
    blocks, _, n = matrix.shape
    if layout == "mfma_f64" and blocks > 1:  # lane = column + 4 block + 16 row
        return np.ascontiguousarray(matrix.transpose(1, 0, 2)).reshape(lanes, 1)
    together = {"mfma": 4, "mfma_f64": 1, "wmma_rdna3": 1, "wmma_rdna4": 8}[layout]
    bundles = matrix.reshape(-1, lanes // n, together, n)
    return np.ascontiguousarray(bundles.transpose(1, 3, 0, 2)).reshape(lanes, -1)


def in_memory(elements: np.ndarray, kind: str) -> np.ndarray:
    """A lane's elements side by side; two of four bits share a byte."""
    if kind != "i4":
        return elements
    nibbles = elements.view(np.uint8) & 15
    return np.ascontiguousarray(nibbles[:, ::2] | nibbles[:, 1::2] << 4)


@pytest.mark.parametrize(
    ("gfx", "x"), INSTRUCTIONS, ids=[f"{g}-{x.intrinsic[12:]}" for g, x in INSTRUCTIONS]
)
def test_product(gfx, x):
    kinds = x.operand.split("_") * 2
    rng, lanes = np.random.default_rng(8), LANES[gfx]
    dtypes = DTYPES | FLOAT8.get(targets.get(gfx).fp8, {})
    # Small integers: every format has them, and no sum is rounded.
    a = rng.integers(-8, 8, (x.blocks, x.m, x.k)).astype(dtypes[kinds[0]])
    b = rng.integers(-8, 8, (x.blocks, x.n, x.k)).astype(dtypes[kinds[1]])
    c = rng.integers(-8, 8, (x.blocks, x.m, x.n)).astype(dtypes[x.accumulator])
    operands = [in_memory(operand_lanes(m, lanes, x.layout), kinds[0]) for m in (a, b)]
    placed = result_lanes(c, lanes, x.layout)
    d = np.zeros_like(placed)
    counters = run(compiled(kernel_text(x, lanes), gfx), 1, lanes, d, *operands, placed)
    want = np.einsum("zmk,znk->zmn", a.astype(np.float64), b.astype(np.float64)) + c
    np.testing.assert_array_equal(d, result_lanes(want.astype(c.dtype), lanes, x.layout))
    assert counters.by_class["matrix"] == 1


@pytest.mark.parametrize(
    ("gfx", "x"),
    [(g, x) for g, x in INSTRUCTIONS if x.blocks == 1],
    ids=[f"{g}-{x.intrinsic[12:]}" for g, x in INSTRUCTIONS if x.blocks == 1],
)
def test_positions_that_the_target_gives(gfx, x):
    lanes = LANES[gfx]
    a = np.arange(x.m * x.k).reshape(1, x.m, x.k)
    held = operand_lanes(a, lanes, x.layout)
    places = [[x.operand_position(lane, e) for e in range(held.shape[1])] for lane in range(lanes)]
    np.testing.assert_array_equal(held, [[a[0, i, k] for i, k in row] for row in places])
    c = np.arange(x.m * x.n).reshape(1, x.m, x.n)
    held = result_lanes(c, lanes, x.layout)
    assert held.shape[1] == x.accumulator_elements
    places = [
        [x.accumulator_position(lane, e) for e in range(held.shape[1])] for lane in range(lanes)
    ]
    np.testing.assert_array_equal(held, [[c[0, i, j] for i, j in row] for row in places])


# Sums of 16 bits: on RDNA3 one half of each register takes part, on RDNA4 two share it.
HALVES = [("gfx1100", 16, "f16"), ("gfx1100", 16, "bf16"), ("gfx1201", 8, "f16"),
          ("gfx1201", 8, "bf16")]  # fmt: skip


@pytest.mark.parametrize(("gfx", "held", "kind"), HALVES)
def test_sums_of_16_bits(gfx, held, kind):
    element, suffix = {"f16": ("half", "f16"), "bf16": ("i16", "i16")}[kind]
    type = f"<{held} x {element}>"
    layout = "wmma_rdna3" if gfx == "gfx1100" else "wmma_rdna4"
    x = MatrixInstruction(
        f"llvm.amdgcn.wmma.{kind}.16x16x16.{kind}.v{held}{suffix}.v{held}{suffix}", 16, 16, 16,
        kind, kind, type, type, held, held, ("a", "b", "c", "i1 false"), layout,
    )  # fmt: skip
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-4, 5, (1, 16, 16)).astype(DTYPES[kind]) for _ in range(2))
    c = rng.integers(-8, 8, (1, 16, 16)).astype(DTYPES[kind])
    placed = result_lanes(c, 32, layout)
    if gfx == "gfx1100":
        placed = np.repeat(placed, 2, axis=1)
        placed[:, 1::2] = 0
    d = np.zeros_like(placed)
    run(
        compiled(kernel_text(x, 32), gfx),
        1,
        32,
        d,
        *(operand_lanes(m, 32, layout) for m in (a, b)),
        placed,
    )
    got = d[:, ::2] if gfx == "gfx1100" else d
    want = np.einsum("zmk,znk->zmn", a.astype(np.float64), b.astype(np.float64)) + c
    np.testing.assert_array_equal(got, result_lanes(want.astype(c.dtype), 32, layout))


def test_xf32_keeps_ten_bits_of_mantissa():
    x = next(x for x in targets.get("gfx942").matrix if x.operand == "xf32" and x.m == 16)
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 1, 16, x.k)).astype(np.float32)
    d = np.zeros((64, 4), np.float32)
    operands = [operand_lanes(m, 64, x.layout) for m in (a, b)]
    run(compiled(kernel_text(x, 64), "gfx942"), 1, 64, d, *operands, np.zeros_like(d))
    product = lambda p, q: np.einsum("zmk,znk->zmn", p.astype(np.float64), q.astype(np.float64))
    short = [(m.view(np.uint32) + 0xFFF + (m.view(np.uint32) >> 13 & 1) & 0xFFFFE000).view("f4")
             for m in (a, b)]  # fmt: skip
    want = result_lanes(product(*short), 64, x.layout)
    np.testing.assert_allclose(d, want, rtol=1e-5, atol=1e-6)
    assert abs(d - result_lanes(product(a, b), 64, x.layout)).max() > 1e-4


@pytest.mark.parametrize(
    ("gfx", "text"),
    [
        ("gfx942", "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[2:3], v[4:5], a[0:3] cbsz:1 abid:1"),
        ("gfx942", "v_mfma_f32_32x32x8_f16 v[0:15], v[2:3], v[4:5], v[0:15] blgp:1"),
        ("gfx1100", "v_wmma_i32_16x16x16_iu8 v[0:7], v[0:3], v[4:7], v[8:15] clamp"),
        ("gfx1201", "v_wmma_i32_16x16x16_iu8 v[0:7], v[0:1], v[4:5], v[8:15] clamp"),
        ("gfx1100", "v_wmma_f32_16x16x16_f16 v[0:7], v[0:7], v[0:7], v[8:15] neg_lo:[1,0,0]"),
    ],
)
def test_modifiers_that_are_not_emulated(gfx, text, tmp_path):
    x = np.zeros(64, np.uint32)
    with pytest.raises(EmulatorError, match=f"{text.split()[0]} at .* with"):
        execute(text, gfx, tmp_path, x, x, 64)
