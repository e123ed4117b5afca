"""Matrix instructions: MFMA of CDNA and WMMA of RDNA3 and RDNA4.

Operands are gathered from lanes into plain matrices, multiplied row by row, and each row of the
result, which lies in neighboring lanes of one register, is stored as a vector. Sums run over k in
order with one rounding a step; the hardware's order within an instruction is not published, nor is
how operands are rounded to xf32 (here to nearest even).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from amdjax.codegen.llvm import I16, I32, I64, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.alu.valu_float import to_bfloat
from amdjax.emulator.builder import Lanes, Variant
from amdjax.emulator.errors import EmulatorError
from amdjax.emulator.isa import ISAS
from amdjax.emulator.isa.decode import VGPR, Instruction

_ELEMENTS = {"f16": "half", "bf16": "bfloat", "f32": "float", "xf32": "float", "f64": "double",
             "i8": "i8", "iu8": "i8", "iu4": "i8", "fp8": "i8", "bf8": "i8"}  # fmt: skip
# Elements of A in a lane, for the older mnemonics, which do not say how many blocks there are.
_HELD = {"f32": 1, "f16": 4, "bf16": 2, "i8": 4, "f64": 1}
_SUMS = {"f32": "float", "i32": "i32", "f64": "double", "f16": "float", "bf16": "float"}
_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "i8": 1, "i32": 4}

Family = Literal["mfma", "rdna3", "rdna4"]


@dataclass(frozen=True)
class Shape:
    """A matrix instruction: D[m, n] = sum over k of A[m, k] B[k, n] + C[m, n], `blocks` times."""

    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    out: str
    family: Family

    @property
    def operand_lanes(self) -> int:
        """Lanes that A (or B) is spread over; what is left of a wave repeats them."""
        return {"mfma": 64, "rdna4": 32, "rdna3": 16}[self.family]

    @property
    def per_lane(self) -> int:
        """Elements of A (or B) that one lane holds."""
        return self.m * self.k * self.blocks // self.operand_lanes

    def registers(self, element: str) -> int:
        """Registers that hold A or B, of elements `element`."""
        return max(1, self.per_lane * _bits(element) // 32)

    def accumulator_registers(self, lanes: int) -> int:
        """Registers that hold C or D; elements of 16 bits have one each, or share one (RDNA4)."""
        held = self.m * self.n * self.blocks // lanes
        return held // 2 if self.packs_result else held * (2 if self.out == "f64" else 1)

    @property
    def halves(self) -> bool:
        """C and D have elements of 16 bits."""
        return self.out in ("f16", "bf16")

    @property
    def packs_result(self) -> bool:
        """Two elements of C or D share a register."""
        return self.halves and self.family == "rdna4"

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k * self.blocks

    @property
    def rows_together(self) -> int:
        """Consecutive rows that one lane holds in consecutive registers."""
        if self.family == "mfma":
            return 1 if self.out == "f64" else 4
        return 8 if self.family == "rdna4" else 1


def _bits(element: str) -> int:
    return 4 if element == "iu4" else 8 * _BYTES[_ELEMENTS[element]]


@cache
def shape_of(name: str, isa: str = "") -> Shape | None:
    """The shape in a mnemonic, or None if it is no (known) matrix instruction.

    Args:
        name: the mnemonic.
        isa: the instruction set, on which the layout of WMMA depends.
    """
    match = re.fullmatch(
        r"v_(mfma|wmma)_(\w+?)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?([a-z]+\d+)(?:_([a-z]+8|1k))?", name
    )
    if match is None or match[7] not in _ELEMENTS or match[2] not in _SUMS:
        return None
    m, n, k = (int(match[i]) for i in (3, 4, 5))
    a, b = match[7], match[8] or match[7]
    blocks = int(match[6] or 1)
    if not re.search(r"x\d+_", name):
        held, b = _HELD[a] * (2 if b == "1k" else 1), a
        blocks = 64 * held // (m * k)
    wmma: Family = "rdna4" if isa == "rdna4" else "rdna3"
    family: Family = "mfma" if match[1] == "mfma" else wmma
    return Shape(m, n, k, blocks, a, b, match[2], family)


def lower(wave: Any, inst: Instruction, operand: Callable[..., tuple[str, int]]) -> Any:
    """Variant and slots of a matrix instruction."""
    f, shape = inst.fields, shape_of(inst.name, wave.isa)
    assert shape is not None
    flags: dict[str, int] = {}
    acc = f.get("acc", 0)
    # CDNA1 has nothing but accumulators for C and D.
    sums = wave.facts.accumulators == "separate" or bool(f.get("acc_cd", 0))
    if wave.lanes == 64 and shape.family != "mfma":
        raise EmulatorError(f"{inst.name} at +0x{inst.pc:x} in a wave of 64")
    if shape.family == "mfma":
        if f["cbsz"] or f["abid"] or f["blgp"]:
            raise EmulatorError(f"{inst.name} at +0x{inst.pc:x} with cbsz, abid or blgp")
    elif f["clmp"]:
        raise EmulatorError(f"{inst.name} at +0x{inst.pc:x} with clamp")
    elif shape.a in ("iu8", "iu4"):
        flags = {"signed": f["neg"] & 3}
    elif f["neg"] or f["neg_hi"]:
        raise EmulatorError(f"{inst.name} at +0x{inst.pc:x} with negated operands")
    if shape.halves and not shape.packs_result:
        flags["high"] = f["opsel"] >> 2 & 1
    shift = wave.vgpr(0, True) - wave.vgpr(0)
    kinds, slots = [], {}
    for i in range(3):
        code = f[f"src{i}"]
        kind = {"f64": "f64", "i32": "i32"}.get(shape.out, "f32") if i == 2 else "b32"
        how, slots[state.SRC0 + i] = operand(wave, code, kind, inst.literal)
        accumulator = sums if i == 2 else acc >> i & 1
        if code >= VGPR and accumulator:
            slots[state.SRC0 + i] += shift
        kinds.append(how)
    slots[state.DST] = wave.vgpr(f["vdst"], sums)
    return Variant(inst.name, wave.isa, wave.lanes, tuple(kinds), flags=tuple(flags.items())), slots


def emit(h: Lanes) -> None:
    """Write the handler of a matrix instruction. EXEC plays no part."""
    shape = shape_of(h.variant.name, h.variant.isa)
    assert shape is not None
    elem = _SUMS[shape.out]
    a = _gathered(h, shape, 0, elem)
    b = _gathered(h, shape, 1, elem)
    f = h.f
    rows = const(I64, shape.m * shape.blocks)
    c = f.alloca(Type(elem, shape.n), shape.m * shape.blocks)

    def held(index: Value) -> Value:
        return f.gep(c, index, Type(elem, shape.n))

    def keep(index: Value, _: list[Value]) -> list[Value]:
        """D may overlap C in part."""
        f.store(_load_row(h, shape, index), held(index))
        return []

    f.loop(const(I64, 0), rows, 1, [], keep)

    def row(index: Value, _: list[Value]) -> list[Value]:
        """Row index % m of block index // m."""
        block = f.udiv(index, const(I64, shape.m))
        total = f.load(Type(elem, shape.n), held(index))

        def step(k: Value, carried: list[Value]) -> list[Value]:
            x = f.load(Type(elem), f.gep(a, _at(h, index, shape.k, k), Type(elem)))
            at_b = f.mul(_at(h, block, shape.k, k), const(I64, shape.n))
            y = f.load(Type(elem, shape.n), f.gep(b, at_b, Type(elem)), _BYTES[elem])
            x = f.splat(x, shape.n)
            return [f.add(f.mul(x, y), carried[0]) if elem == "i32" else f.fma(x, y, carried[0])]

        (total,) = f.loop(const(I64, 0), const(I64, shape.k), 1, [total], step)
        _store_row(h, shape, index, total)
        return []

    f.loop(const(I64, 0), rows, 1, [], row)
    h.finish()


def _at(h: Lanes, outer: Value, stride: int, inner: Value) -> Value:
    return h.f.add(h.f.mul(outer, const(I64, stride)), inner)


def _gathered(h: Lanes, shape: Shape, which: int, elem: str) -> Value:
    """A as [block, m, k] or B as [block, k, n] in the type of the sum."""
    f = h.f
    size, name = (shape.m, shape.a) if which == 0 else (shape.n, shape.b)
    buffer = f.alloca(Type(elem), size * shape.k * shape.blocks)
    base = h.at(h.wave, h.slot(state.SRC0 + which))

    def lane(index: Value, _: list[Value]) -> list[Value]:
        line, group = f.urem(index, const(I64, size)), f.udiv(index, const(I64, size))
        block, part = (f.urem(group, const(I64, shape.blocks)),
                       f.udiv(group, const(I64, shape.blocks)))  # fmt: skip
        for j in range(shape.per_lane):
            k = f.add(f.mul(part, const(I64, shape.per_lane)), const(I64, j))
            word, bit = divmod(j * _bits(name), 32)
            register = h.at(h.at(base, f.shl(index, const(I64, 2))), word * h.vgpr_stride())
            x = _element(h, h.at(register, bit // 8), name, which, elem, bit % 8)
            if which == 0:
                target = _at(h, _at(h, block, size, line), shape.k, k)
            else:
                target = _at(h, _at(h, block, shape.k, k), size, line)
            f.store(x, f.gep(buffer, target, Type(elem)))
        return []

    f.loop(const(I64, 0), const(I64, shape.operand_lanes), 1, [], lane)
    return buffer


def _element(h: Lanes, place: Value, name: str, which: int, elem: str, bit: int) -> Value:
    """One element, `bit` bits into the byte at `place`, in the type of the sum."""
    f = h.f
    if name == "f64":
        low, high = f.load(I32, place, 4), f.load(I32, h.at(place, h.vgpr_stride()), 4)
        return f.bitcast(h.join(low, high), Type("double"))
    x = f.load(Type(_ELEMENTS[name]), place, 1)
    if name in ("fp8", "bf8"):
        values = _float8_table(name, ISAS[h.variant.isa].float8)
        table = h.f.module.add_global(f"table_{name}", values)
        return f.load(Type("float"), f.gep(table, f.cast("zext", x, "i64"), Type("float")), 4)
    if elem == "i32":
        signed = bool(name == "i8" or h.variant.flag("signed") >> which & 1)
        if name == "iu4":
            x = f.shl(x, const(x.type, 4 - bit))
            x = f.ashr(x, const(x.type, 4)) if signed else f.lshr(x, const(x.type, 4))
        return f.int_resize(x, "i32", signed)
    if name == "xf32":
        return _round_to_xf32(h, x)
    return x if _ELEMENTS[name] == elem else f.cast("fpext", x, elem)


def _round_to_xf32(h: Lanes, x: Value) -> Value:
    """To a mantissa of ten bits, to nearest even; infinities and NaN stay."""
    f = h.f
    bits = f.bitcast(x, Type("i32"))
    odd = f.and_(f.lshr(bits, const(I32, 13)), const(I32, 1))
    rounded = f.add(f.add(bits, const(I32, 0xFFF)), odd)
    rounded = f.bitcast(f.and_(rounded, const(I32, -(1 << 13))), x.type)
    finite = f.fcmp("olt", f.unary_intrinsic("fabs", x), const(x.type, float("inf")))
    return f.select(finite, rounded, x)


@cache
def _float8_table(name: str, flavor: str) -> str:
    """All values of an 8-bit float as bits of f32."""
    if flavor == "fnuz":
        dtype = ml_dtypes.float8_e4m3fnuz if name == "fp8" else ml_dtypes.float8_e5m2fnuz
    else:
        dtype = ml_dtypes.float8_e4m3fn if name == "fp8" else ml_dtypes.float8_e5m2
    bits = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32).view(np.int32)
    words = ", ".join(f"i32 {x}" for x in bits.tolist())
    return f"private constant [256 x i32] [{words}], align 4"


def _row_place(h: Lanes, shape: Shape, index: Value) -> tuple[Value, Value]:
    """Register number (of elements) and first lane of a row of C and D."""
    f = h.f
    together = shape.rows_together
    if shape.out == "f64" and shape.blocks > 1:
        # 4x4x4, four blocks: lane = n + 4 block + 16 row.
        row, block = f.urem(index, const(I64, 4)), f.udiv(index, const(I64, 4))
        return const(I64, 0), f.add(f.shl(row, const(I64, 4)), f.shl(block, const(I64, 2)))
    groups = const(I64, h.lanes // shape.n)
    bundle = f.udiv(index, const(I64, together))
    register = f.add(
        f.mul(f.udiv(bundle, groups), const(I64, together)), f.urem(index, const(I64, together))
    )
    return register, f.mul(f.urem(bundle, groups), const(I64, shape.n))


def _row_pointer(h: Lanes, shape: Shape, index: Value, slot: int) -> Value:
    register, lane = _row_place(h, shape, index)
    if shape.packs_result:
        register = h.f.lshr(register, const(I64, 1))
    words = 2 if shape.out == "f64" else 1
    offset = h.f.add(
        h.f.mul(register, const(I64, words * h.vgpr_stride())), h.f.shl(lane, const(I64, 2))
    )
    return h.at(h.at(h.wave, h.slot(slot)), offset)


def _load_row(h: Lanes, shape: Shape, index: Value) -> Value:
    f, n = h.f, shape.n
    result = Type(_SUMS[shape.out], n)
    if h.variant.sources[2] != "v":
        bits = 64 if shape.out == "f64" else 32
        x = h.scalar_at(h.slot(state.SRC0 + 2), h.variant.sources[2], bits)
        return f.splat(f.bitcast(x, result.with_lanes(0)), n)
    place = _row_pointer(h, shape, index, state.SRC0 + 2)
    low = f.load(Type("i32", n), place, 4)
    if shape.out == "f64":
        high = f.load(Type("i32", n), h.at(place, h.vgpr_stride()), 4)
        return f.bitcast(h.join(low, high), result)
    if shape.halves:
        low = f.lshr(low, _half_place(h, shape, index))
        half = f.bitcast(f.cast("trunc", low, "i16"), Type(_ELEMENTS[shape.out], n))
        return f.cast("fpext", half, "float")
    return f.bitcast(low, result)


def _store_row(h: Lanes, shape: Shape, index: Value, total: Value) -> None:
    f, n = h.f, shape.n
    place = _row_pointer(h, shape, index, state.DST)
    if shape.out == "f64":
        low, high = h.split(f.bitcast(total, Type("i64", n)))
        f.store(low, place, 4)
        f.store(high, h.at(place, h.vgpr_stride()), 4)
        return
    if shape.halves:
        rounded = f.cast("fptrunc", total, "half") if shape.out == "f16" else to_bfloat(h, total)
        half = f.bitcast(rounded, I16.with_lanes(n))
        old = f.load(Type("i32", n), place, 4)
        at = _half_place(h, shape, index)
        others = f.not_(f.shl(const(old.type, 0xFFFF), at))
        total = f.or_(f.shl(f.cast("zext", half, "i32"), at), f.and_(old, others))
    f.store(f.bitcast(total, Type("i32", n)), place, 4)


def _half_place(h: Lanes, shape: Shape, index: Value) -> Value:
    """By how many bits an element of a row is shifted in its register."""
    type = Type("i32", shape.n)
    if not shape.packs_result:
        return const(type, 16 * h.variant.flag("high"))
    odd = h.f.and_(h.f.cast("trunc", index, "i32"), const(I32, 1))
    return h.f.splat(h.f.shl(odd, const(I32, 4)), shape.n)
