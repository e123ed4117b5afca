"""Packed integer dot products and 8-bit floats."""

import ml_dtypes
import numpy as np
import pytest

from amdjax import targets
from tests.emulator.test_instructions import execute
from tests.support.emulation import TARGETS, compiled, elementwise, run

DOT_TYPES = {"f16": "<2 x half>", "bf16": "<2 x bfloat>", "i16": "<2 x i16>", "i8": "i32",
             "i4": "i32"}  # fmt: skip
DOTS = [(gfx, dot) for gfx in TARGETS for dot in targets.get(gfx).dots]


def dot_operands(dot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elements of a and b, [64, width], and c."""
    rng = np.random.default_rng(0)
    if dot.signed is None and dot.operand in ("f16", "bf16"):
        return *rng.integers(-64, 64, (2, 64, dot.width)), rng.integers(-100, 100, 64)
    bits = int(dot.operand[1:])
    low = -(1 << bits - 1) if dot.signed is not False else 0
    return *rng.integers(low, low + (1 << bits), (2, 64, dot.width)), rng.integers(-99, 99, 64)


def dot_words(dot, x: np.ndarray) -> np.ndarray:
    """A lane's elements in one register."""
    if dot.operand in ("f16", "bf16"):
        return x.astype({"f16": np.float16, "bf16": ml_dtypes.bfloat16}[dot.operand])
    bits = int(dot.operand[1:])
    fields = (x & (1 << bits) - 1).astype(np.uint64) << (bits * np.arange(dot.width, dtype="u8"))
    return fields.sum(1).astype(np.uint32)


@pytest.mark.parametrize(("gfx", "dot"), DOTS, ids=[f"{g}-{d.intrinsic[12:]}" for g, d in DOTS])
def test_dot(gfx, dot):
    type, result = DOT_TYPES[dot.operand], {"f32": "float", "i32": "i32"}[dot.result]
    sign = "i1 true, " if "sudot" in dot.intrinsic else ""
    body = (f"  %r = call {result} @{dot.intrinsic}({sign}{type} %x0, {sign}{type} %x1, "
            f"{result} %x2, i1 false)")  # fmt: skip
    kind = "i1, " if sign else ""
    declare = f"declare {result} @{dot.intrinsic}({kind}{type}, {kind}{type}, {result}, i1)"
    a, b, c = dot_operands(dot)
    dtype = np.float32 if dot.result == "f32" else np.int32
    out = np.zeros(64, dtype)
    code = compiled(elementwise(body, f"{type} {type} {result}", result) + declare, gfx)
    counters = run(code, 1, 64, out, dot_words(dot, a), dot_words(dot, b), c.astype(dtype))
    want = (a * b).sum(1) + c
    np.testing.assert_array_equal(out, want.astype(dtype))
    assert any(name.startswith("v_dot") for name in counters.by_mnemonic)


@pytest.mark.parametrize("second", ["fp8", "bf8"])
@pytest.mark.parametrize("first", ["fp8", "bf8"])
def test_dot_of_float8(first, second):
    name = f"llvm.amdgcn.dot4.f32.{first}.{second}"
    body = f"  %r = call float @{name}(i32 %x0, i32 %x1, float %x2)"
    declare = f"declare float @{name}(i32, i32, float)"
    a, b = np.random.default_rng(0).integers(-8, 8, (2, 64, 4))
    c, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    words = [x.astype(FLAVORS["ocp"][n]) for x, n in ((a, first), (b, second))]
    code = compiled(elementwise(body, "i32 i32 float") + declare, "gfx1201")
    run(code, 1, 64, out, *words, c)
    np.testing.assert_array_equal(out, (a * b).sum(1) + c)


FLAVORS = {
    "fnuz": {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz},
    "ocp": {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2},
}
FLOAT8 = [(gfx, name, dtype) for gfx in TARGETS
          for name, dtype in FLAVORS.get(targets.get(gfx).fp8, {}).items()]  # fmt: skip
FLOAT8_IDS = [f"{gfx}-{name}" for gfx, name, _ in FLOAT8]


@pytest.mark.parametrize(("gfx", "name", "dtype"), FLOAT8, ids=FLOAT8_IDS)
def test_decode_float8(gfx, name, dtype):
    body = "\n".join(
        f"  %f{i} = call float @llvm.amdgcn.cvt.f32.{name}(i32 %x0, i32 {i})\n"
        f"  %r{i} = insertelement <4 x float> {'%r' + str(i - 1) if i else 'poison'}, "
        f"float %f{i}, i32 {i}"
        for i in range(4)
    )
    body += "\n  %r = shufflevector <4 x float> %r3, <4 x float> poison, "
    body += "<4 x i32> <i32 0, i32 1, i32 2, i32 3>"
    declare = f"declare float @llvm.amdgcn.cvt.f32.{name}(i32, i32)"
    x, out = np.arange(256, dtype=np.uint8), np.zeros(256, np.float32)
    run(compiled(elementwise(body, "i32", "<4 x float>") + declare, gfx), 1, 64, out, x)
    np.testing.assert_array_equal(out, x.view(dtype).astype(np.float32))


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize(("gfx", "name", "dtype"), FLOAT8, ids=FLOAT8_IDS)
def test_decode_two_float8(gfx, name, dtype, high):
    intrinsic = f"llvm.amdgcn.cvt.pk.f32.{name}"
    body = f"  %r = call <2 x float> @{intrinsic}(i32 %x0, i1 {str(high).lower()})"
    declare = f"declare <2 x float> @{intrinsic}(i32, i1)"
    x, out = np.arange(256, dtype=np.uint8), np.zeros((64, 2), np.float32)
    run(compiled(elementwise(body, "i32", "<2 x float>") + declare, gfx), 1, 64, out, x)
    want = x.view(dtype).astype(np.float32).reshape(64, 4)
    np.testing.assert_array_equal(out, want[:, 2:] if high else want[:, :2])


@pytest.mark.parametrize(("gfx", "name", "dtype"), FLOAT8, ids=FLOAT8_IDS)
def test_encode_float8(gfx, name, dtype):
    body = f"  %r = call i32 @llvm.amdgcn.cvt.pk.{name}.f32(float %x0, float %x1, i32 %x2, i1 true)"
    declare = f"declare i32 @llvm.amdgcn.cvt.pk.{name}.f32(float, float, i32, i1)"
    rng = np.random.default_rng(1)
    a, b = np.ldexp(rng.standard_normal((2, 256)), rng.integers(-20, 8, (2, 256))).astype("f")
    a[:10] = 0.0, -0.0, np.inf, -np.inf, 1e-12, -1e-12, 448, 464, 465, 57344
    b[:4] = 61439, 61440, 1e30, 240
    old, out = np.full(256, 0x1234, np.uint32), np.zeros(256, np.uint32)
    code = compiled(elementwise(body, "float float i32", "i32") + declare, gfx)
    run(code, 4, 64, out, a, b, old)
    want = [x.astype(dtype).view(np.uint8).astype(np.uint32) for x in (a, b)]
    np.testing.assert_array_equal(out, want[0] << 16 | want[1] << 24 | 0x1234)
    a[:] = np.nan
    run(code, 4, 64, out, a, b, old)
    assert np.isnan((out >> 16 & 0xFF).astype(np.uint8).view(dtype).astype(np.float32)).all()


@pytest.fixture
def pairs_of_halves():
    """Two operands of a wave: pairs of small integers."""
    rng = np.random.default_rng(4)
    return rng.integers(-8, 9, (2, 64, 2)).astype(np.float32)


@pytest.mark.parametrize("gfx", ["gfx908", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_a_constant_of_halves(gfx, pairs_of_halves):
    """LLVM writes 1.0 for the pair of it and zero."""
    a = pairs_of_halves[0].astype(np.float16)
    call = "llvm.amdgcn.fdot2"
    body = f"""  %r = call float @{call}(<2 x half> %x0, <2 x half> <half 1.0, half 0.0>, float %x1,
      i1 false)"""
    declare = f"declare float @{call}(<2 x half>, <2 x half>, float, i1)"
    out, c = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    run(compiled(elementwise(body, "<2 x half> float") + declare, gfx), 1, 64, out, a, c)
    np.testing.assert_array_equal(out, a[:, 0].astype(np.float32) + c)


@pytest.mark.parametrize("gfx", ["gfx908", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_halves_are_negated_each_by_itself(gfx, pairs_of_halves, tmp_path):
    a, b = (x.astype(np.float16).view(np.uint32).ravel() for x in pairs_of_halves)
    text = "v_dot2_f32_f16 v3, v1, v2, 1.0 neg_lo:[0,1,0] neg_hi:[1,0,0]"
    got = execute(text, gfx, tmp_path, a, b, 64).view(np.float32)
    np.testing.assert_array_equal(got, 1 - (pairs_of_halves[0] * pairs_of_halves[1]).sum(1))
    got = execute(text.replace(" neg_hi:[1,0,0]", ""), gfx, tmp_path, a, b, 64).view(np.float32)
    low, high = (pairs_of_halves[0] * pairs_of_halves[1]).T
    np.testing.assert_array_equal(got, 1 - low + high)


def test_dual_dot_of_bfloats(pairs_of_halves, tmp_path):
    """v_dual_dot2acc_f32_bf16 v3, v1, v2 :: v_dual_mov_b32 v4, v0"""
    a, b = (x.astype(ml_dtypes.bfloat16).view(np.uint32).ravel() for x in pairs_of_halves)
    text = "v_mov_b32 v3, 2.0\n .long 0xcb500501, 0x03040100"
    got = execute(text, "gfx1100", tmp_path, a, b, 64).view(np.float32)
    np.testing.assert_array_equal(got, (pairs_of_halves[0] * pairs_of_halves[1]).sum(1) + 2)
