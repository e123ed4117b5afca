"""Rounding and denormals as the mode register says, against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from amdjax.emulator import EmulatorError
from tests.emulator.test_instructions import assemble, execute
from tests.support.emulation import run
from tests.support.exact import F16, F32, F64, Format

TARGETS = ("gfx908", "gfx942", "gfx1030", "gfx1100", "gfx1201")
NEAREST, UP, DOWN, ZERO = range(4)


def rounded(form: Format, x: Fraction, mode: int, negative: bool) -> int:
    """The pattern that x becomes; an exact zero is `negative` or not."""
    if x == 0 or mode == NEAREST:
        return form.round(x, zero_sign=negative)
    down = form.round(x, toward_zero=True)
    if form.value(down) == x or mode == ZERO or (mode == UP) == (x < 0):
        return down | form.sign * (x < 0)
    return down + 1 | form.sign * (x < 0)


def added(form, mode, a, b):
    x, y = form.value(a), form.value(b)
    signs = form.is_negative(a), form.is_negative(b)
    return rounded(form, x + y, mode, all(signs) or (any(signs) and mode == DOWN))


def multiplied(form, mode, a, b):
    negative = form.is_negative(a) != form.is_negative(b)
    return rounded(form, form.value(a) * form.value(b), mode, negative)


def fused(form, mode, a, b):
    """a * b + a"""
    product, negative = form.value(a) * form.value(b), form.is_negative(a) != form.is_negative(b)
    signs = negative, form.is_negative(a)
    return rounded(form, product + form.value(a), mode, all(signs) or (any(signs) and mode == DOWN))


def converted(source, to, mode, a):
    return rounded(to, source.value(a), mode, source.is_negative(a))


WIDENED = "v_cvt_f64_f32 v[4:5], v1\n v_cvt_f64_f32 v[6:7], v2\n"
# Text, the result, and which of the two rounding modes it obeys.
CASES = {
    "v_add_f32 v3, v1, v2": (lambda m, a, b: added(F32, m, a, b), 0),
    "v_mul_f32 v3, v1, v2": (lambda m, a, b: multiplied(F32, m, a, b), 0),
    "v_fma_f32 v3, v1, v2, v1": (lambda m, a, b: fused(F32, m, a, b), 0),
    "v_cvt_f32_i32 v3, v1": (
        lambda m, a, b: rounded(F32, Fraction(a - (a >> 31 << 32)), m, False), 0),
    "v_cvt_f32_u32 v3, v1": (lambda m, a, b: rounded(F32, Fraction(a), m, False), 0),
    "v_mov_b32 v3, 0\n v_cvt_f16_f32 v3, v1": (lambda m, a, b: converted(F32, F16, m, a), 1),
    "v_mov_b32 v3, 0\n v_add_f16 v3, v1, v2": (
        lambda m, a, b: added(F16, m, a & 0xFFFF, b & 0xFFFF), 1),
    "v_mov_b32 v3, 0\n v_fma_f16 v3, v1, v2, v1": (
        lambda m, a, b: fused(F16, m, a & 0xFFFF, b & 0xFFFF), 1),
    "v_pk_mul_f16 v3, v1, v2": (lambda m, a, b: multiplied(F16, m, a & 0xFFFF, b & 0xFFFF)
                                | multiplied(F16, m, a >> 16, b >> 16) << 16, 1),
    WIDENED + "v_add_f64 v[8:9], v[4:5], v[6:7]\n v_mov_b32 v3, v8": (
        lambda m, a, b: added(F64, m, *(F64.round(F32.value(x), F32.is_negative(x))
                                        for x in (a, b))) & 0xFFFFFFFF, 1),
}  # fmt: skip


def words(seed: int) -> np.ndarray:
    """Patterns that are finite as f32 and as two f16, near one another in size."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0x3A000000, 0x47000000, 256, np.uint32) & 0xFFFFBFFF
    x[:6] = [0, 0x80000000, 0x3F803C00, 0xBF80BC00, 1, 0x33800001]
    return x | rng.integers(0, 2, 256, np.uint32) << 31


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("mode", [NEAREST, UP, DOWN, ZERO])
@pytest.mark.parametrize("text", CASES, ids=lambda x: x.split("\n")[-1])
def test_rounding(gfx, mode, text, tmp_path):
    reference, which = CASES[text]
    a, b = words(1), words(2)
    # The other formats round otherwise, and behind it everything is as before.
    value = mode << 2 * which | (mode ^ 1) << 2 * (1 - which)
    body = f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), {value}\n {text}\n"
    got = execute(body, gfx, tmp_path, a, b)
    want = [reference(mode, x, y) for x, y in zip(a.tolist(), b.tolist())]
    np.testing.assert_array_equal(got, np.array(want, np.uint32))


@pytest.mark.parametrize("gfx", TARGETS)
def test_modes_of_the_descriptor_and_of_parts_of_a_kernel(gfx, tmp_path):
    a, b = words(1), words(2)
    restore = "s_round_mode 0xf" if gfx.startswith("gfx1") else (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 15")  # fmt: skip
    body = f"""v_add_f32 v4, v1, v2
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1
    s_getreg_b32 s10, hwreg(HW_REG_MODE, 0, 2)
    v_add_f32 v5, v1, v2
    {restore}
    v_add_f32 v6, v1, v2
    v_sub_f32 v3, v5, v6
    v_cmp_neq_f32 vcc, v4, v6
    v_addc_co_u32 v3, vcc, 0, v3, vcc
    v_add_u32 v3, s10, v3"""
    if gfx.startswith("gfx1"):
        body = body.replace("vcc", "vcc_lo").replace("v_addc_co_u32", "v_add_co_ci_u32")
        body = body.replace("v_add_u32", "v_add_nc_u32")
    kernel = assemble(body, gfx, tmp_path, "3\n .amdhsa_float_round_mode_32 3")
    out = np.zeros(256, np.uint32)
    run(kernel, 1, 256, out, a, b)

    def expected(x, y):
        up, down = added(F32, UP, x, y), added(F32, ZERO, x, y)
        return added(F32, ZERO, up, down ^ F32.sign) + UP

    np.testing.assert_array_equal(out, [expected(x, y) for x, y in zip(a.tolist(), b.tolist())])


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("mode", range(16))
def test_denormals(gfx, mode, tmp_path):
    """Of each two bits the lower keeps them in operands, the higher in results."""
    tiny32, tiny16, least32, least16 = 0x00000123, 0x0123, 0x00800000, 0x0400
    pairs = [(tiny32, 0), (0x80000000 | tiny32, 0x80000000), (least32, 0x80800000 - 5)]
    a, b = (np.resize(np.array(x, np.uint32), 64) for x in zip(*pairs))
    body = f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), {mode}\n v_add_f32 v3, v1, v2"
    got = execute(body, gfx, tmp_path, a, b, 64)[:3]
    kept, sign = mode & 3 == 3, 0x80000000
    # Of the last sum the second operand may be lost, or the result.
    last = 5 if kept else 0 if mode & 1 else least32
    np.testing.assert_array_equal(got, [tiny32 * kept, sign | tiny32 * kept, last])
    a, b = (np.resize(np.array(x, np.uint32), 64) for x in ((tiny16, least16), (0, 0x8000 | 0x3FB)))
    body = f"""s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), {mode}
    v_mov_b32 v3, 0
    v_add_f16 v3, v1, v2"""
    got = execute(body, gfx, tmp_path, a, b, 64)[:2]
    kept = mode >> 2 == 3
    last = 5 if kept else 0 if mode & 4 else least16
    np.testing.assert_array_equal(got, [tiny16 * kept, last])


@pytest.mark.parametrize("gfx", TARGETS)
def test_classes_do_not_lose_denormals(gfx, tmp_path):
    a = np.array([1e-40, -1e-40, 0.0, 1.0] * 16, np.float32).view(np.uint32)
    vcc = "vcc" if gfx.startswith("gfx9") else "vcc_lo"
    body = f"""v_cmp_class_f32 {vcc}, v1, v2
    v_cndmask_b32 v3, 0, 1, {vcc}"""
    out = np.zeros(64, np.uint32)
    run(assemble(body, gfx, tmp_path, denormals=0), 1, 64, out, a, np.full(64, 0x90, np.uint32))
    np.testing.assert_array_equal(out[:4], [1, 1, 0, 0])


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("gfx", "form"), [(gfx, "e64") for gfx in TARGETS] + [("gfx942", "sdwa"), ("gfx1030", "sdwa")]
)
def test_results_are_scaled_where_none_is_denormal(gfx, form, mode, tmp_path):
    parts = "dst_sel:DWORD src0_sel:DWORD src1_sel:DWORD" if form == "sdwa" else ""
    a, b = np.linspace(-3, 3, 64, dtype=np.float32), np.full(64, 0.7, np.float32)
    body = f"""s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), {12 | mode}
    v_mul_f32_{form} v3, v1, v2 mul:4 {parts}"""
    got = execute(body, gfx, tmp_path, a.view(np.uint32), b.view(np.uint32), 64).view(np.float32)
    np.testing.assert_array_equal(got, a * b * np.float32(1 if mode & 2 else 4))


REFUSED = {
    "s_mov_b32 s10, 3\n s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s10": "more of the mode",
    "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 8, 1), 0": "more of the mode",
    """s_cmp_eq_u32 s4, 0
    s_cbranch_scc1 over
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 1
    over: v_add_f32 v3, v1, v2""": "a jump to where floats are rounded otherwise",
}  # fmt: skip


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("body", REFUSED)
def test_modes_that_are_not_known_in_advance(gfx, body, tmp_path):
    x = np.zeros(64, np.uint32)
    with pytest.raises(EmulatorError, match=REFUSED[body]):
        execute(body, gfx, tmp_path, x, x, 64)
