"""Instructions that few kernels have."""

import numpy as np
import pytest

from tests.emulator.test_instructions import EXTRA, INTEGERS, execute, pairs, u32
from tests.support.emulation import compiled, elementwise, run

GCN = ("gfx908", "gfx90a", "gfx942")


def byte(x, i, bits=8):
    return (x.astype(np.int64) >> bits * i) & (1 << bits) - 1


def distances(a, b, bits=8, masked=False):
    parts = [
        (abs(byte(a, i, bits) - byte(b, i, bits)), byte(b, i, bits)) for i in range(32 // bits)
    ]
    return sum(d * (y != 0) if masked else d for d, y in parts)


def saturated(x, i):
    return np.clip(((x >> 16 * i & 0xFFFF).astype(np.uint16).view(np.int16)), 0, 255).astype(int)


VECTOR = {
    "v_sad_u8 v3, v1, v2, v1": lambda a, b: distances(a, b) + a,
    "v_sad_hi_u8 v3, v1, v2, v1": lambda a, b: (distances(a, b) << 16) + a,
    "v_msad_u8 v3, v1, v2, v1": lambda a, b: distances(a, b, masked=True) + a,
    "v_sad_u16 v3, v1, v2, v1": lambda a, b: distances(a, b, 16) + a,
    "v_lerp_u8 v3, v1, v2, v2": lambda a, b: sum(
        (byte(a, i) + byte(b, i) + (byte(b, i) & 1) >> 1) << 8 * i for i in range(4)),
}  # fmt: skip


@pytest.mark.parametrize("gfx", EXTRA)
@pytest.mark.parametrize("body", VECTOR)
def test_bytes(gfx, body, tmp_path):
    a, b = pairs(INTEGERS)
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), u32(VECTOR[body](a, b)))


@pytest.mark.parametrize("gfx", EXTRA)
def test_saturating_pack(gfx, tmp_path):
    a, b = pairs(INTEGERS)
    got = execute("v_mov_b32 v3, 0\n v_sat_pk_u8_i16 v3, v1", gfx, tmp_path, a, b)
    np.testing.assert_array_equal(got, saturated(a, 0) | saturated(a, 1) << 8)


SCALAR = {
    "s_ff0_i32_b32 s11, s10": lambda x: next((i for i in range(32) if not x >> i & 1), 2**32 - 1),
    "s_wqm_b32 s11, s10": lambda x: sum(15 << 4 * i for i in range(8) if x >> 4 * i & 15),
    "s_quadmask_b32 s11, s10": lambda x: sum(1 << i for i in range(8) if x >> 4 * i & 15),
    "s_bitreplicate_b64_b32 s[10:11], s10": lambda x: sum(
        3 << 2 * i for i in range(16) if x >> 16 + i & 1),
    "s_mov_b32 s12, 0\n s_mov_b32 s13, s10\n s_flbit_i32_i64 s11, s[12:13]": lambda x: next(
        (i for i in range(1, 32) if x >> 31 - i & 1 != x >> 31), 32 if x >> 31 else 2**32 - 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("gfx", "body"),
    [(g, b) for g in ("gfx942", "gfx1100") for b in SCALAR if g in GCN or "ff0" not in b],
)
@pytest.mark.parametrize("value", [0, 1, 0x80000000, 0xFFFFFFFF, 0x00F01234, 0xFFF0FFFF])
def test_scalar_bits(gfx, body, value, tmp_path):
    text = body.replace("s_flbit_i32_i64", "s_cls_i32_i64") if gfx == "gfx1100" else body
    text = f"s_mov_b32 s10, {value}\n {text}\n v_mov_b32 v3, s11"
    zeros = np.zeros(64, np.uint32)
    np.testing.assert_array_equal(
        execute(text, gfx, tmp_path, zeros, zeros, group=64), u32(SCALAR[body](value))
    )


@pytest.mark.parametrize("elem", ["half", "bfloat"])
def test_dot_of_halves(elem, tmp_path):
    import ml_dtypes

    dtype = np.float16 if elem == "half" else ml_dtypes.bfloat16
    name = "v_dot2_f16_f16" if elem == "half" else "v_dot2_bf16_bf16"
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 256, 2)).astype(dtype)
    got = execute(f"{name} v3, v1, v2, v1", "gfx1100", tmp_path,
                  *(np.ascontiguousarray(x).view(np.uint32).ravel() for x in (a, b)))  # fmt: skip
    want = (a.astype(float) * b.astype(float)).sum(1) + a[:, 0].astype(float)
    np.testing.assert_array_equal(
        (got & 0xFFFF).astype(np.uint16).view(dtype), want.astype(np.float32).astype(dtype)
    )


@pytest.mark.parametrize("table", [0x96, 0xE8, 0x1B, 0x40, 0xFF])
def test_any_function_of_three_bits(table):
    text = elementwise(
        f"  %r = call i32 @llvm.amdgcn.bitop3.i32(i32 %x0, i32 %x1, i32 %x2, i32 {table})",
        "i32 i32 i32", "i32",
    ) + "declare i32 @llvm.amdgcn.bitop3.i32(i32, i32, i32, i32)"  # fmt: skip
    a, b, c = np.random.default_rng(1).integers(0, 2**32, (3, 64), np.uint32)
    out = np.zeros(64, np.uint32)
    counters = run(compiled(text, "gfx950"), 1, 64, out, a, b, c)
    want = np.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            terms = [x if row & bit else ~x for x, bit in ((a, 4), (b, 2), (c, 1))]
            want |= terms[0] & terms[1] & terms[2]
    np.testing.assert_array_equal(out, want)
    assert table == 0xFF or any("bitop3" in name for name in counters.by_mnemonic)


@pytest.mark.parametrize("distance", [16, 32])
def test_swap_of_rows(distance):
    name = f"llvm.amdgcn.permlane{distance}.swap"
    text = elementwise(
        f"""  %p = call {{i32, i32}} @{name}(i32 %x0, i32 %x1, i1 false, i1 false)
  %a = extractvalue {{i32, i32}} %p, 0
  %b = extractvalue {{i32, i32}} %p, 1
  %h = shl i32 %b, 16
  %r = or i32 %a, %h""",
        "i32 i32", "i32",
    ) + f"declare {{i32, i32}} @{name}(i32, i32, i1, i1)"  # fmt: skip
    a = np.arange(64, dtype=np.uint32)
    b, out = a + 100, np.zeros(64, np.uint32)
    run(compiled(text, "gfx950"), 1, 64, out, a, b)
    odd = np.arange(64) // distance % 2 == 1
    want_a = np.where(odd, np.roll(b, distance), a)
    want_b = np.where(odd, b, np.roll(a, -distance))
    np.testing.assert_array_equal(out, want_a | want_b << 16)


def swap_b16(target, source, target_high, source_high):
    """Encoded by hand: assemblers of several versions write halves of registers differently."""
    code = (source | source_high << 7 | 0x100) | 0x66 << 9 | (target | target_high << 7) << 17
    return f".long {0x7E000000 | code:#x}"


def with_half(x, high, half):
    return (x & 0xFFFF | half << 16) if high else (x & 0xFFFF0000 | half)


@pytest.mark.parametrize("gfx", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("target_high", [0, 1])
@pytest.mark.parametrize("source_high", [0, 1])
def test_swapped_halves(gfx, target_high, source_high, tmp_path):
    a, b = pairs(INTEGERS)
    half_a, half_b = byte(a, target_high, 16), byte(b, source_high, 16)
    wanted = with_half(a, target_high, half_b), with_half(b, source_high, half_a)
    for register, want in zip((1, 2), wanted):
        body = f"{swap_b16(1, 2, target_high, source_high)}\n v_mov_b32 v3, v{register}"
        np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), u32(want))


@pytest.mark.parametrize("lanes", ["-1", "0x0f0f0f0f"])
def test_swap_within_a_register(lanes, tmp_path):
    a, b = pairs(INTEGERS)
    body = f"s_mov_b32 exec_lo, {lanes}\n {swap_b16(1, 1, 0, 1)}\n s_mov_b32 exec_lo, -1"
    swapped = u32(a >> 16 | a << 16)
    on = int(lanes, 0) >> np.arange(a.size) % 32 & 1
    got = execute(f"{body}\n v_mov_b32 v3, v1", "gfx1100", tmp_path, a, b)
    np.testing.assert_array_equal(got, np.where(on, swapped, a))


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
def test_swapped_registers(gfx, tmp_path):
    a, b = pairs(INTEGERS)
    for register, want in ((1, b), (2, a)):
        body = f"v_swap_b32 v1, v2\n v_mov_b32 v3, v{register}"
        np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), want)
