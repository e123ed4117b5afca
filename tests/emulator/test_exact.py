"""Float instructions against exact rational arithmetic, one by one, over corner cases."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from amdjax.emulator import CodeObject
from tests.emulator.test_instructions import EXTRA, RDNA4, assemble
from tests.support import exact
from tests.support.emulation import ASSEMBLED, LANES, TARGETS, compiled, elementwise, link, run
from tests.support.exact import BF16, F16, F32, F64, Format
from tests.support.llvm_tools import tool

KERNEL = """
.globl k{index}
.p2align 8
.type k{index},@function
k{index}:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx4 s[8:11], s[0:1], 0x10
  v_lshlrev_b32 v0, 3, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx2 v[2:3], v0, s[6:7]
  global_load_dwordx2 v[4:5], v0, s[8:9]
  global_load_dwordx2 v[6:7], v0, s[10:11]
  s_waitcnt vmcnt(0)
  v_mov_b32 v8, 0
  v_mov_b32 v9, 0
  {body}
  global_store_dwordx2 v0, v[8:9], s[4:5]
  s_endpgm
.Lend{index}:
.size k{index}, .Lend{index}-k{index}
"""
DESCRIPTOR = """
.amdhsa_kernel k{index}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 16
  .amdhsa_next_free_sgpr 32
  .amdhsa_kernarg_size 32
  .amdhsa_float_denorm_mode_32 3
  {extra}
.end_amdhsa_kernel
"""
COUNT = 512


@dataclass(frozen=True)
class Case:
    """An instruction on a in v2, b in v4 and c in v6 (with v3, v5, v7 if wide); result in v8.

    Args:
      text: the instruction.
      reference: from bit patterns of the operands to that of the result.
      operands: format of each, or how many bits an integer has.
      result: format, or bits.
      on: pattern of the targets that have it.
    """

    text: str
    reference: Callable[..., int]
    operands: tuple[Format | int, ...]
    result: Format | int
    on: str = "gfx"


def case(text, reference, operands, result=None, on="gfx"):
    operands = operands if isinstance(operands, tuple) else (operands,)
    return Case(text, reference, operands, operands[0] if result is None else result, on)


def signed(x: int, bits: int = 32) -> int:
    return x - (x >> bits - 1 << bits)


def flushed(form: Format, x: int) -> int:
    return x if x & form.infinity else x & form.sign


def mad_flushing(a: int, b: int, c: int) -> int:
    a, b, c = (flushed(F32, x) for x in (a, b, c))
    return flushed(F32, exact.add(F32, flushed(F32, exact.mul(F32, a, b)), c))


def legacy_mul(a: int, b: int) -> int:
    zero = any(x & ~F32.sign == 0 for x in (a, b))
    return 0 if zero else exact.mul(F32, a, b)


def median(a: int, b: int, c: int) -> int:
    """The greater of the two that are not the greatest; zeros are alike there."""
    low, high = (lambda x, y, g=g: exact.extremum(F32, x, y, g) for g in (False, True))
    if any(F32.is_nan(x) for x in (a, b, c)):
        return low(low(a, b), c)
    size = lambda x: ordered(F32, x)
    first = max((a, b, c), key=size)
    others = [(b, c), (a, c), (a, b)][next(i for i, x in enumerate((a, b, c))
                                            if size(x) == size(first))]  # fmt: skip
    return high(*others)


def accumulated_high(a: int, b: int, c: int) -> int:
    """An fma of halves onto the high half of c; the low one stays."""
    return (
        exact.fma(F16, exact.mul(F16, a, F16.sign | F16.bias << 10), b, c >> 16) << 16 | c & 0xFFFF
    )


def dx9_fma(a: int, b: int, c: int) -> int:
    zero = any(x & ~F32.sign == 0 for x in (a, b))
    return c if zero else exact.fma(F32, a, b, c)


def sign_of_sum(a: int, b: int, c: int) -> int:
    return int(signed(a) * signed(b) + signed(c, 64) < 0)


def halves(compute: Callable[..., int]) -> Callable[..., int]:
    """On both halves of registers."""

    def packed(*xs: int) -> int:
        return compute(*(x & 0xFFFF for x in xs)) | compute(*(x >> 16 for x in xs)) << 16

    return packed


def words(compute: Callable[..., int]) -> Callable[..., int]:
    def packed(*xs: int) -> int:
        return compute(*(x & 0xFFFFFFFF for x in xs)) | compute(*(x >> 32 for x in xs)) << 32

    return packed


def mixed(a: int, b: int, c: int) -> int:
    """An fma of the high half of a, b, and the low half of c."""
    return exact.fma(F32, exact.convert(F16, F32, a >> 16), b, exact.convert(F16, F32, c & 0xFFFF))


def integer_to(form: Format, sign: bool, bits: int = 32) -> Callable[[int], int]:
    return lambda x: form.round(exact.Fraction(signed(x, bits) if sign else x))


def to_integer(form: Format, low: int, high: int, bits: int = 32) -> Callable[[int], int]:
    return lambda x: exact.to_integer(form, x, low, high) & (1 << bits) - 1


def fma(form):
    return lambda *xs: exact.fma(form, *xs)


def two(op, form, *args):
    return lambda a, b: op(form, a, b, *args)


def extremum3(form, greatest):
    pair = two(exact.extremum, form, greatest, True)
    return lambda a, b, c: pair(pair(a, b), c)


def chop(a: int, b: int) -> int:
    return exact.convert(F32, F16, a, True) | exact.convert(F32, F16, b, True) << 16


PAIR = (32, 32, 32)  # packed halves: any bits
CASES = [
    case("v_add_f32 v8, v2, v4", two(exact.add, F32), (F32, F32)),
    case("v_mul_f32 v8, v2, v4", two(exact.mul, F32), (F32, F32)),
    case("v_fma_f32 v8, v2, v4, v6", fma(F32), (F32, F32, F32)),
    case("v_add_f16 v8, v2, v4", two(exact.add, F16), (F16, F16)),
    case("v_mul_f16 v8, v2, v4", two(exact.mul, F16), (F16, F16)),
    case("v_fma_f16 v8, v2, v4, v6", fma(F16), (F16, F16, F16)),
    case("v_add_f64 v[8:9], v[2:3], v[4:5]", two(exact.add, F64), (F64, F64)),
    case("v_mul_f64 v[8:9], v[2:3], v[4:5]", two(exact.mul, F64), (F64, F64)),
    case("v_fma_f64 v[8:9], v[2:3], v[4:5], v[6:7]", fma(F64), (F64, F64, F64)),
    case("v_mad_f32 v8, v2, v4, v6", mad_flushing, (F32, F32, F32), on="gfx90[8a]"),
    case("v_mul_legacy_f32 v8, v2, v4", legacy_mul, (F32, F32), on="gfx(908|90a|10)"),
    case("v_mul_dx9_zero_f32 v8, v2, v4", legacy_mul, (F32, F32), on="gfx1[12]"),
    case("v_pk_fma_f16 v8, v2, v4, v6", halves(fma(F16)), PAIR, (F16, F16)),
    case("v_pk_add_f16 v8, v2, v4", halves(two(exact.add, F16)), PAIR[:2], (F16, F16)),
    case("v_pk_mul_f16 v8, v2, v4", halves(two(exact.mul, F16)), PAIR[:2], (F16, F16)),
    case("v_pk_minimum3_f16 v8, v2, v4, v6", halves(extremum3(F16, False)), PAIR, (F16, F16),
         on="gfx950"),
    case("v_pk_maximum3_f16 v8, v2, v4, v6", halves(extremum3(F16, True)), PAIR, (F16, F16),
         on="gfx950"),
    case("v_pk_fma_f32 v[8:9], v[2:3], v[4:5], v[6:7]", words(fma(F32)), (64, 64, 64),
         (F32, F32), on="gfx9(0a|4)"),
    case("v_pk_mul_f32 v[8:9], v[2:3], v[4:5]", words(two(exact.mul, F32)), (64, 64),
         (F32, F32), on="gfx9(0a|4)"),
    case("v_fma_mix_f32 v8, v2, v4, v6 op_sel:[1,0,0] op_sel_hi:[1,0,1]", mixed, (32, F32, 32),
         F32, on="gfx(908|90a|1)"),
    case("v_min_f32 v8, v2, v4", two(exact.extremum, F32, False), (F32, F32)),
    case("v_max_f32 v8, v2, v4", two(exact.extremum, F32, True), (F32, F32)),
    case("v_min_f16 v8, v2, v4", two(exact.extremum, F16, False), (F16, F16)),
    case("v_max_f64 v[8:9], v[2:3], v[4:5]", two(exact.extremum, F64, True), (F64, F64)),
    case("v_minimum_f32 v8, v2, v4", two(exact.extremum, F32, False, True), (F32, F32),
         on="gfx12"),
    case("v_maximum_f16 v8, v2, v4", two(exact.extremum, F16, True, True), (F16, F16),
         on="gfx12"),
    case("v_med3_f32 v8, v2, v4, v6", median, (F32, F32, F32)),
    case("v_ldexp_f32 v8, v2, v4", lambda a, n: exact.ldexp(F32, a, signed(n)), (F32, -300)),
    case("v_ldexp_f16 v8, v2, v4", lambda a, n: exact.ldexp(F16, a, signed(n & 0xFFFF, 16)),
         (F16, -40)),
    case("v_ldexp_f64 v[8:9], v[2:3], v4", lambda a, n: exact.ldexp(F64, a, signed(n)),
         (F64, -2200)),
    case("v_frexp_mant_f32 v8, v2", lambda a: exact.frexp(F32, a)[0], F32),
    case("v_frexp_exp_i32_f32 v8, v2", lambda a: exact.frexp(F32, a)[1] & 0xFFFFFFFF, F32, 32),
    case("v_frexp_mant_f64 v[8:9], v[2:3]", lambda a: exact.frexp(F64, a)[0], F64),
    case("v_frexp_exp_i32_f64 v8, v[2:3]", lambda a: exact.frexp(F64, a)[1] & 0xFFFFFFFF, F64, 32),
    case("v_frexp_mant_f16 v8, v2", lambda a: exact.frexp(F16, a)[0], F16),
    case("v_frexp_exp_i16_f16 v8, v2", lambda a: exact.frexp(F16, a)[1] & 0xFFFF, F16, 16),
    case("v_cvt_f16_f32 v8, v2", lambda a: exact.convert(F32, F16, a), F32, F16),
    case("v_cvt_f32_f16 v8, v2", lambda a: exact.convert(F16, F32, a), F16, F32),
    case("v_cvt_f32_f64 v8, v[2:3]", lambda a: exact.convert(F64, F32, a), F64, F32),
    case("v_cvt_f64_f32 v[8:9], v2", lambda a: exact.convert(F32, F64, a), F32, F64),
    case("v_cvt_pkrtz_f16_f32 v8, v2, v4", chop, (F32, F32), (F16, F16), on="gfx(9|10)"),
    case("v_cvt_pk_rtz_f16_f32 v8, v2, v4", chop, (F32, F32), (F16, F16), on="gfx1[12]"),
    case("v_cvt_i32_f32 v8, v2", to_integer(F32, -(1 << 31), (1 << 31) - 1), F32, 32),
    case("v_cvt_u32_f32 v8, v2", to_integer(F32, 0, (1 << 32) - 1), F32, 32),
    case("v_cvt_i32_f64 v8, v[2:3]", to_integer(F64, -(1 << 31), (1 << 31) - 1), F64, 32),
    case("v_cvt_u32_f64 v8, v[2:3]", to_integer(F64, 0, (1 << 32) - 1), F64, 32),
    case("v_cvt_i16_f16 v8, v2", to_integer(F16, -(1 << 15), (1 << 15) - 1, 16), F16, 16),
    case("v_cvt_u16_f16 v8, v2", to_integer(F16, 0, (1 << 16) - 1, 16), F16, 16),
    case("v_cvt_f32_i32 v8, v2", integer_to(F32, True), 32, F32),
    case("v_cvt_f32_u32 v8, v2", integer_to(F32, False), 32, F32),
    case("v_cvt_f64_i32 v[8:9], v2", integer_to(F64, True), 32, F64),
    case("v_cvt_f16_i16 v8, v2", lambda a: integer_to(F16, True, 16)(a & 0xFFFF), 32, F16),
    case("v_cvt_f16_u16 v8, v2", lambda a: integer_to(F16, False)(a & 0xFFFF), 32, F16),
    case("v_fma_legacy_f32 v8, v2, v4, v6", dx9_fma, (F32, F32, F32), on="gfx1030"),
    case("v_fma_dx9_zero_f32 v8, v2, v4, v6", dx9_fma, (F32, F32, F32), on="gfx1[12]"),
    case("v_lshl_add_u64 v[8:9], v[2:3], v4, v[6:7]",
         lambda a, b, c: (a << (b & 7)) + c & (1 << 64) - 1, (64, 32, 64), 64, on="gfx94"),
    case("v_mad_i64_i32 v[10:11], vcc, v2, v4, v[6:7]\n  v_cndmask_b32 v8, 0, 1, vcc",
         sign_of_sum, (32, 32, 64), 32, on="gfx9"),
    case("v_mad_i64_i32 v[10:11], vcc_lo, v2, v4, v[6:7]\n  v_cndmask_b32 v8, 0, 1, vcc_lo",
         sign_of_sum, (32, 32, 64), 32, on="gfx1"),
    case("v_mov_b32 v8, v6\n  v_fmac_f16 v8, -v2, v4 op_sel:[0,0,0,1]", accumulated_high,
         (F16, F16, 32), (F16, F16), on="gfx1[12]"),
    # Scalars: each wave takes the values of its first lane.
    *(case(f"v_readfirstlane_b32 s12, v2\n  v_readfirstlane_b32 s13, v4\n  {text}\n"
           "  v_mov_b32 v8, s14", reference, (F32, F32), result, on="gfx12")
      for text, reference, result in (
        ("s_add_f32 s14, s12, s13", two(exact.add, F32), F32),
        ("s_mul_f32 s14, s12, s13", two(exact.mul, F32), F32),
        ("s_min_num_f32 s14, s12, s13", two(exact.extremum, F32, False), F32),
        ("s_maximum_f32 s14, s12, s13", two(exact.extremum, F32, True, True), F32),
        ("s_cvt_i32_f32 s14, s12", lambda a, b: to_integer(F32, -(1 << 31), (1 << 31) - 1)(a), 32),
        ("s_cvt_pk_rtz_f16_f32 s14, s12, s13", chop, (F16, F16)),
        ("s_cmp_lt_f32 s12, s13\n  s_cselect_b32 s14, 1, 0", lambda a, b: int(
            not F32.is_nan(a) and not F32.is_nan(b)
            and ordered(F32, a) < ordered(F32, b)), 32),
      )),
]  # fmt: skip


def ordered(form: Format, x: int) -> float:
    size = float("inf") if form.is_infinite(x) else abs(form.value(x))
    return -size if form.is_negative(x) else size


def corners(form: Format) -> list[int]:
    one = form.bias << form.mantissa
    sizes = [0, 1, 2, (1 << form.mantissa) - 1, 1 << form.mantissa, (1 << form.mantissa) + 1,
             one - 1, one, one + 1, one + (1 << form.mantissa - 1), one + (1 << form.mantissa),
             one - (1 << form.mantissa), form.infinity - 1, form.infinity, form.nan,
             form.round(exact.Fraction(65520)), form.round(exact.Fraction(65519)),
             form.round(exact.Fraction(2) ** 31), form.round(exact.Fraction(2) ** 15)]  # fmt: skip
    return [x | s for x in sizes for s in (0, form.sign)]


def drawn(kind: Format | int, rng: np.random.Generator) -> np.ndarray:
    """Corner cases, and patterns near one another in size."""
    if isinstance(kind, int) and kind < 0:
        return rng.integers(kind, -kind, COUNT).astype(np.uint32).astype(np.uint64)
    bits = kind if isinstance(kind, int) else kind.bits
    values = rng.integers(0, 1 << bits, COUNT, np.uint64, endpoint=False)
    if isinstance(kind, int):
        values[:8] = [0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, 255, 256, 65535]
        return values
    one, steps = kind.bias << kind.mantissa, 5 << kind.mantissa
    near = one + rng.integers(-steps, steps, COUNT)
    values[::3] = (near | rng.integers(0, 2, COUNT) * kind.sign if kind.bits < 64 else near)[::3]
    values[1::3] = rng.choice(np.array(corners(kind), np.uint64), COUNT)[1::3]
    return values


#: Halves whose `a b + c` is 2⁻³¹ below the middle of two halves; a float takes it for the middle.
BELOW_A_TIE = (0x1001, 0x3BFE, 0x3C01)


@cache
def expected(index: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Operands of a case, and results."""
    case = CASES[index]
    rng = np.random.default_rng(index)
    operands = [drawn(kind, rng) for kind in case.operands]
    if case.operands == (F16, F16, F16):
        for x, bits in zip(operands, BELOW_A_TIE):
            x[0] = bits
    results = [case.reference(*xs) for xs in zip(*(x.tolist() for x in operands))]
    return operands, np.array(results, np.uint64)


@cache
def assembled(gfx: str) -> CodeObject:
    """All cases that a target has, as kernels of one code object."""
    import tempfile
    from pathlib import Path

    chosen = [(i, c) for i, c in enumerate(CASES) if re.match(c.on, gfx)]
    text = ".text\n" + "".join(KERNEL.format(index=i, body=c.text) for i, c in chosen)
    text += ".rodata\n.p2align 6\n"
    text += "".join(DESCRIPTOR.format(index=i, extra=EXTRA[gfx]) for i, _ in chosen)
    if gfx.startswith("gfx12"):
        for old, new in RDNA4.items():
            text = text.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "x.s"), Path(folder, "x.o")
        source.write_text(text)
        arguments = ["-triple=amdgcn-amd-amdhsa", f"-mcpu={gfx}", "-filetype=obj"]
        subprocess.run([tool("llvm-mc"), *arguments, source, "-o", target], check=True)
        return CodeObject(link(target.read_bytes()))


def parts(case: Case, x: np.ndarray) -> list[tuple[np.ndarray, Format | None]]:
    """A result's pieces with their formats."""
    if isinstance(case.result, int):
        return [(x & np.uint64((1 << case.result) - 1), None)]
    forms = case.result if isinstance(case.result, tuple) else (case.result,)
    found, shift = [], 0
    for form in forms:
        found.append((x >> np.uint64(shift) & np.uint64((1 << form.bits) - 1), form))
        shift += form.bits
    return found


@pytest.mark.parametrize(
    ("gfx", "index"),
    [(gfx, i) for gfx in ASSEMBLED for i, c in enumerate(CASES) if re.match(c.on, gfx)],
    ids=lambda x: x if isinstance(x, str) else re.findall(r"[vs]_\w+", CASES[x].text)[-1]
    if "readfirstlane" not in CASES[x].text else re.findall(r"[vs]_\w+", CASES[x].text)[2],
)  # fmt: skip
def test_instruction(gfx, index):
    case = CASES[index]
    operands, want = expected(index)
    scalar = "readfirstlane" in case.text
    if scalar:
        operands = [np.repeat(x[:32], LANES[gfx]) for x in operands]
        want = np.repeat(want[:32], LANES[gfx])
    operands = [np.ascontiguousarray(x) for x in operands]
    given = [*operands, *[np.zeros_like(operands[0])] * (3 - len(operands))]
    out = np.zeros(operands[0].size, np.uint64)
    for start in range(0, out.size, 512):
        block = [np.ascontiguousarray(x[start : start + 512]) for x in given]
        part = np.zeros(block[0].size, np.uint64)
        run(assembled(gfx), 1, part.size, part, *block, name=f"k{index}")
        out[start : start + 512] = part
    for (got, form), (exactly, _) in zip(parts(case, out), parts(case, want)):
        if form is not None:
            nan = np.array([form.is_nan(x) for x in exactly.tolist()])
            assert all(form.is_nan(x) for x in got[nan].tolist())
            got, exactly = got[~nan], exactly[~nan]
        np.testing.assert_array_equal(got, exactly)


def test_bf16(gfx_of_all):
    """Rounded by an instruction on CDNA4, by integer arithmetic elsewhere."""
    values = drawn(F32, np.random.default_rng(5)).astype(np.uint32)
    body = "  %r = fptrunc <2 x float> %x0 to <2 x bfloat>"
    out = np.zeros(COUNT, np.uint16)
    code = compiled(elementwise(body, "<2 x float>", "<2 x bfloat>"), gfx_of_all)
    run(code, COUNT // 128, 64, out, values)
    want = np.array([exact.convert(F32, BF16, x) for x in values.tolist()], np.uint16)
    nan = np.isnan(values.view(np.float32))
    assert all(BF16.is_nan(x) for x in out[nan].tolist())
    np.testing.assert_array_equal(out[~nan], want[~nan])


@pytest.fixture(params=TARGETS)
def gfx_of_all(request):
    return request.param


# What is only approximate: function, arguments that matter most, units of the last place allowed.
APPROXIMATE = {
    "rcp": (lambda x: 1 / x, (-8, 8)), "sqrt": (np.sqrt, (0, 100)),
    "rsq": (lambda x: 1 / np.sqrt(x), (0, 100)), "exp": (np.exp2, (-14, 15)),
    "log": (np.log2, (0, 50)), "sin": (lambda x: np.sin(2 * np.pi * x), (-0.25, 0.25)),
    "cos": (lambda x: np.cos(2 * np.pi * x), (-0.2, 0.2)),
}  # fmt: skip
INF, NAN = float("inf"), float("nan")
SPECIAL = {
    "rcp": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN)],
    "rsq": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN)],
    "exp": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (3.0, 8.0), (200.0, INF)],
    "log": [(0.0, -INF), (INF, INF), (-1.0, NAN), (8.0, 3.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN)],
    "cos": [(0.0, 1.0), (INF, NAN)],
}


@pytest.mark.parametrize("gfx", ASSEMBLED)
@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximation(gfx, kind, name, tmp_path):
    """Within one unit in the last place, and right where there is no question."""
    function, (low, high) = APPROXIMATE[name]
    dtype = {"f16": np.float16, "f32": np.float32}[kind]
    x = np.random.default_rng(0).uniform(low, high, 256).astype(dtype)
    special = SPECIAL[name]
    x[: len(special)] = [given for given, _ in special]
    words = np.zeros(256, np.uint32)
    words.view(dtype)[:: 4 // x.itemsize] = x
    code = assemble(f"v_{name}_{kind} v3, v1", gfx, tmp_path)
    out = np.zeros(256, np.uint32)
    run(code, 1, 256, out, words, words)
    got = out.view(dtype)[:: 4 // x.itemsize].astype(np.float64)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
        want[: len(special)] = [result for _, result in special]
        bound = np.spacing(np.abs(want).astype(dtype)).astype(np.float64)
    number = np.isfinite(want)
    np.testing.assert_array_equal(got[~number], want[~number])
    assert (np.abs(got[number] - want[number]) <= bound[number]).all()
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(want)[zero])
