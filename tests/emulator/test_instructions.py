"""Single instructions, assembled, over operands chosen for their corners."""

import subprocess

import numpy as np
import pytest

from amdjax import targets
from amdjax.emulator import CodeObject
from tests.support.emulation import ASSEMBLED, LANES, link, run
from tests.support.llvm_tools import tool

SOURCE = """
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32 v0, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v1, v0, s[6:7]
  global_load_dword v2, v0, s[8:9]
  s_waitcnt vmcnt(0)
  v_mov_b32 v3, 0x11223344
{body}
  global_store_dword v0, v3, s[4:5]
  s_endpgm
.Lend:
.size kernel, .Lend-kernel
.rodata
.p2align 6
.amdhsa_kernel kernel
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 16
  .amdhsa_next_free_sgpr 32
  .amdhsa_kernarg_size 24
  .amdhsa_float_denorm_mode_32 {denormals}
  {extra}
.end_amdhsa_kernel
"""
EXTRA = {
    gfx: ".amdhsa_wavefront_size32 1" if LANES[gfx] == 32
    else ".amdhsa_accum_offset 16" if targets.get(gfx).unified_registers else ""
    for gfx in ASSEMBLED
}  # fmt: skip

# What RDNA4 has other names for.
RDNA4 = {"s_waitcnt lgkmcnt(0)": "s_wait_kmcnt 0", "s_waitcnt vmcnt(0)": "s_wait_loadcnt 0",
         "s_load_dwordx4": "s_load_b128", "s_load_dwordx2": "s_load_b64"}  # fmt: skip

INTEGERS = np.array(
    [
        0,
        1,
        2,
        31,
        32,
        255,
        0x8000,
        0xFFFF,
        0x12345678,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xDEADBEEF,
        0xFFFFFFFE,
        0xFFFFFFFF,
        0x00FF00FF,
    ],
    np.uint32,
)
FLOATS = np.array([0.0, -0.0, 1.0, -1.5, 2.5, 3.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e38,
                   3e9, -3e9, 0.49999997, 65520.0], np.float32)  # fmt: skip


def assemble(body: str, gfx: str, folder, denormals=3) -> CodeObject:
    path = folder / "x.s"
    source = SOURCE.format(body=body, extra=EXTRA[gfx], denormals=denormals)
    if gfx.startswith("gfx12"):
        for old, new in RDNA4.items():
            source = source.replace(old, new)
    path.write_text(source)
    arguments = ["-triple=amdgcn-amd-amdhsa", f"-mcpu={gfx}", "-filetype=obj"]
    subprocess.run([tool("llvm-mc"), *arguments, path, "-o", folder / "x.o"], check=True)
    return CodeObject(link((folder / "x.o").read_bytes()))


def pairs(values):
    """Every value with every other, 256 of them."""
    return tuple(np.ascontiguousarray(x).ravel() for x in np.meshgrid(values, values))


def execute(body: str, gfx: str, folder, a, b, group=256):
    out = np.zeros(a.size, np.uint32)
    run(assemble(body, gfx, folder), a.size // group, group, out, a, b)
    return out


def signed(x):
    return x.astype(np.int64) - (x.astype(np.int64) >> 31 << 32)


def u32(x):
    return (np.asarray(x) & 0xFFFFFFFF).astype(np.uint32)


def signed_field(x, offset, width):
    field = signed(x) >> offset & (1 << width) - 1
    return field - (field >> (width - 1) << width)


INTEGER = {
    "v_bfe_i32 v3, v1, 4, 8": lambda a, b: signed_field(a, 4, 8),
    "v_bfe_u32 v3, v1, 28, 8": lambda a, b: a >> 28,
    "v_bfi_b32 v3, v1, v2, 7": lambda a, b: a & b | ~a & 7,
    "v_alignbit_b32 v3, v1, v2, 5": lambda a, b: (a.astype(np.int64) << 32 | b) >> 5,
    "v_alignbyte_b32 v3, v1, v2, 3": lambda a, b: (a.astype(np.int64) << 32 | b) >> 24,
    "v_mul_hi_i32 v3, v1, v2": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_i32_i24 v3, v1, v2": lambda a, b: signed_field(a, 0, 24) * signed_field(b, 0, 24),
    "v_min_i32 v3, v1, v2": lambda a, b: np.minimum(signed(a), signed(b)),
    "v_med3_i32 v3, v1, v2, -5": lambda a, b: np.median(
        [signed(a), signed(b), np.full(a.shape, -5)], axis=0).astype(np.int64),
    "v_lshl_add_u32 v3, v1, 3, v2": lambda a, b: (a.astype(np.int64) << 3) + b,
    "v_and_or_b32 v3, v1, 60, v2": lambda a, b: a & 60 | b,
    "v_cvt_f32_ubyte2 v3, v1": lambda a, b: (a >> 16 & 255).astype(np.float32).view(np.uint32),
    "v_bfm_b32 v3, v1, v2": lambda a, b: ((1 << (a & 31).astype(np.int64)) - 1) << (b & 31),
    "v_mbcnt_lo_u32_b32 v3, v1, 7": None,
    "v_cvt_pk_u16_u32 v3, v1, v2": lambda a, b: (
        np.minimum(a, 65535) | np.minimum(b, 65535).astype(np.int64) << 16),
    "v_sad_u32 v3, v1, v2, 9": lambda a, b: abs(a.astype(np.int64) - b) + 9,
}  # fmt: skip


@pytest.mark.parametrize("gfx", ASSEMBLED)
@pytest.mark.parametrize("body", [k for k, v in INTEGER.items() if v])
def test_integer(gfx, body, tmp_path):
    a, b = pairs(INTEGERS)
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b), u32(INTEGER[body](a, b)))


@pytest.mark.parametrize("gfx", ASSEMBLED)
def test_perm(gfx, tmp_path):
    selectors = np.array([0x03020100, 0x07060504, 0x0C0D0800, 0x090A0B0C, 0x04050607], np.uint32)
    rng = np.random.default_rng(0)
    a, b = rng.choice(selectors, 256), rng.integers(0, 2**32, 256, np.uint32)
    got = execute("v_mov_b32 v4, 0x80ff017f\n v_perm_b32 v3, v2, v4, v1", gfx, tmp_path, a, b)

    def byte(data: bytes, s: int) -> int:
        if s < 8:
            return data[s]
        return 255 * (data[2 * s - 15] >> 7) if s < 12 else 0 if s == 12 else 255

    for selector, x, r in zip(a.tolist(), b.tolist(), got.tolist()):
        data = (x << 32 | 0x80FF017F).to_bytes(8, "little")
        want = bytes(byte(data, s) for s in selector.to_bytes(4, "little"))
        assert r.to_bytes(4, "little") == want


def flushed(x):
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


FLOAT = {
    "v_add_f32 v3, v1, v2": lambda a, b: a + b,
    "v_max_f32 v3, v1, v2": np.fmax,
    "v_mul_f32 v3, -v1, |v2|": lambda a, b: -a * abs(b),
    "v_add_f32 v3, v1, v2 clamp": lambda a, b: np.clip(np.nan_to_num(a + b, nan=0), 0, 1),
    "v_fma_f32 v3, v1, v2, v1": lambda a, b: (a.astype(np.float64) * b + a).astype(np.float32),
    "v_rcp_f32 v3, v1": lambda a, b: flushed(1 / flushed(a)),
    "v_exp_f32 v3, v1": lambda a, b: flushed(np.exp2(flushed(a).astype("f8")).astype("f4")),
    "v_log_f32 v3, v1": lambda a, b: np.log2(flushed(a).astype("f8")).astype("f4"),
    "v_floor_f32 v3, v1": lambda a, b: np.floor(a),
    "v_rndne_f32 v3, v1": lambda a, b: np.rint(a),
    "v_frexp_mant_f32 v3, v1": lambda a, b: np.frexp(a)[0],
    "v_ldexp_f32 v3, v1, -3": lambda a, b: np.ldexp(a, -3),
    "v_cvt_f32_f16 v3, v1": lambda a, b: (a.view(np.uint32) & 0xFFFF).astype(np.uint16).view(
        np.float16).astype(np.float32),
}  # fmt: skip


@pytest.mark.parametrize("gfx", ASSEMBLED)
@pytest.mark.parametrize("body", FLOAT)
def test_float(gfx, body, tmp_path):
    a, b = pairs(FLOATS)
    got = execute(body, gfx, tmp_path, a, b).view(np.float32)
    with np.errstate(all="ignore"):
        want = FLOAT[body](a, b).astype(np.float32)
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want) & (want != 0) if "max" in body or "clamp" in body else ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


@pytest.mark.parametrize("gfx", ASSEMBLED)
def test_denormals_are_flushed_where_the_descriptor_says(gfx, tmp_path):
    a, b = pairs(np.array([1e-40, -1e-40, 1.5, 2.0**-100, 2.0**-30], np.float32))
    out = np.zeros_like(a)
    for op in (np.add, np.multiply):
        body = f"v_{'add' if op is np.add else 'mul'}_f32 v3, v1, v2"
        run(assemble(body, gfx, tmp_path, denormals=0), 1, a.size, out, a, b)
        np.testing.assert_array_equal(out, flushed(op(flushed(a), flushed(b))))


@pytest.mark.parametrize("gfx", ASSEMBLED)
def test_float_to_int_saturates(gfx, tmp_path):
    a, b = pairs(FLOATS)
    got = execute("v_cvt_i32_f32 v3, v1", gfx, tmp_path, a, b).view(np.int32)
    want = np.clip(np.nan_to_num(a.astype(np.float64), nan=0), -(2**31), 2**31 - 1)
    np.testing.assert_array_equal(got, np.trunc(want).astype(np.int64))


SDWA = {
    "v_mov_b32_sdwa v3, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2":
        lambda a, b: a >> 16 & 255,
    "v_add_u32_sdwa v3, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE "
    "src0_sel:WORD_0 src1_sel:BYTE_3":
        lambda a, b: ((a & 0xFFFF) + (b >> 24) & 0xFFFF) << 16 | 0x3344,
    "v_add_u32_sdwa v3, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD "
    "src0_sel:DWORD src1_sel:BYTE_0": lambda a, b: a.astype(np.int64) + signed_field(b, 0, 8),
}  # fmt: skip


@pytest.mark.parametrize("body", SDWA)
def test_sdwa(body, tmp_path):
    a, b = pairs(INTEGERS)
    np.testing.assert_array_equal(execute(body, "gfx942", tmp_path, a, b), u32(SDWA[body](a, b)))


DPP = {
    "row_shl:1": lambda i: np.where(i % 16 < 15, i + 1, -1),
    "row_ror:4": lambda i: i & ~15 | (i - 4) % 16,
    "row_mirror": lambda i: i & ~15 | 15 - i % 16,
    "row_half_mirror": lambda i: i & ~7 | 7 - i % 8,
    "quad_perm:[3,2,1,0]": lambda i: i & ~3 | 3 - i % 4,
}


@pytest.mark.parametrize("gfx", ASSEMBLED)
@pytest.mark.parametrize("control", DPP)
def test_dpp(gfx, control, tmp_path):
    a = np.arange(64, dtype=np.uint32) * 3
    body = f"v_mov_b32_dpp v3, v1 {control} row_mask:0xf bank_mask:0xf"
    got = execute(body, gfx, tmp_path, a, a, 64).reshape(-1, LANES[gfx])
    source = DPP[control](np.arange(LANES[gfx]))
    for row, x in zip(got, a.reshape(-1, LANES[gfx])):
        np.testing.assert_array_equal(row, np.where(source >= 0, x[source], 0x11223344))


SCALAR = {
    "s_bfe_i32 s12, s10, 0x80004": lambda a, b: signed_field(a, 4, 8),
    "s_mul_hi_u32 s12, s10, s11": lambda a, b: a.astype(np.uint64) * b >> np.uint64(32),
    "s_add_u32 s12, s10, s11\n s_addc_u32 s12, 0, 0": lambda a, b: (
        a.astype(np.int64) + b >> 32),
    "s_add_i32 s12, s10, s11\n s_cselect_b32 s12, 1, 0": lambda a, b: (
        abs(signed(a) + signed(b) + 0.5) > 2**31),
    "s_min_i32 s12, s10, s11": lambda a, b: np.minimum(signed(a), signed(b)),
    "s_max_i32 s12, s10, s11\n s_cselect_b32 s12, 1, 0": lambda a, b: signed(a) >= signed(b),
    "s_max_u32 s12, s10, s11\n s_cselect_b32 s12, 1, 0": lambda a, b: a >= b,
    "s_min_u32 s12, s10, s11\n s_cselect_b32 s12, 1, 0": lambda a, b: a < b,
    "s_ashr_i32 s12, s10, s11": lambda a, b: signed(a) >> (b & 31),
    "s_bitcmp1_b32 s10, 4\n s_cselect_b32 s12, 1, 0": lambda a, b: a >> 4 & 1,
    "s_cmp_lt_i32 s10, s11\n s_cselect_b32 s12, 1, 0": lambda a, b: signed(a) < signed(b),
    "s_movk_i32 s12, 0xfff0\n s_addk_i32 s12, 3": lambda a, b: np.full(a.shape, -13),
    "s_pack_lh_b32_b16 s12, s10, s11": lambda a, b: a & 0xFFFF | b & 0xFFFF0000,
    "s_abs_i32 s12, s10": lambda a, b: abs(signed(a)),
    "s_bcnt1_i32_b32 s12, s10": lambda a, b: np.bitwise_count(a),
}  # fmt: skip


@pytest.mark.parametrize("gfx", ASSEMBLED)
@pytest.mark.parametrize("body", SCALAR)
def test_scalar(gfx, body, tmp_path):
    """Each wave works on the values of its first lane."""
    a, b = pairs(INTEGERS)
    lanes = LANES[gfx]
    wide = [np.repeat(x, lanes) for x in (a, b)]
    text = "v_readfirstlane_b32 s10, v1\n v_readfirstlane_b32 s11, v2\n s_nop 4\n "
    code = assemble(text + body + "\n v_mov_b32 v3, s12", gfx, tmp_path)
    got = []
    for i in range(0, 256, 16):
        out = np.zeros(16 * lanes, np.uint32)
        part = slice(i * lanes, (i + 16) * lanes)
        run(code, 1, 16 * lanes, out, *(np.ascontiguousarray(x[part]) for x in wide))
        got.append(out[::lanes])
    np.testing.assert_array_equal(np.concatenate(got), u32(SCALAR[body](a, b).astype(np.int64)))


@pytest.mark.parametrize("gfx", ASSEMBLED)
def test_dpp_with_modifiers(gfx, tmp_path):
    a = np.arange(64, dtype=np.float32) - 30
    b = np.arange(64, dtype=np.float32) * 100
    body = "v_add_f32_dpp v3, -v1, |v2| quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
    got = execute(body, gfx, tmp_path, a, b, 64).view(np.float32)
    np.testing.assert_array_equal(got, -a[np.arange(64) ^ 1] + b)


@pytest.mark.parametrize("gfx", ["gfx1100", "gfx1201"])
def test_comparison_of_rows_that_are_off(gfx, tmp_path):
    """A lane that DPP masks off has a bit of zero."""
    a, b = np.zeros(64, np.uint32), np.ones(64, np.uint32)
    body = """v_cmp_lt_u32_dpp vcc_lo, v1, v2 row_ror:1 row_mask:0x1 bank_mask:0x5
    v_mov_b32 v3, vcc_lo"""
    np.testing.assert_array_equal(execute(body, gfx, tmp_path, a, b, 64), 0x0F0F)
