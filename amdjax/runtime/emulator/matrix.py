"""Matrix instructions: MFMA of CDNA and WMMA of RDNA3.

Operands are gathered from lanes into plain matrices, multiplied row by row, and each row of the
result, which lies in neighbouring lanes of one register, is stored as a vector. Sums run over k in
order with one rounding a step; the hardware's order within an instruction is not published.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from amdjax.codegen.llvm import I16, I32, I64, Type, Value, const
from amdjax.runtime.emulator import state
from amdjax.runtime.emulator.builder import Lanes, Variant
from amdjax.runtime.emulator.decode import VGPR, Instruction
from amdjax.runtime.emulator.errors import EmulatorError

_ELEMENTS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "i8": "i8",
             "iu8": "i8", "fp8": "i8", "bf8": "i8"}  # fmt: skip
_SUMS = {"f32": "float", "i32": "i32", "f64": "double", "f16": "float", "bf16": "float"}
_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "i8": 1, "i32": 4}


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
    wmma: bool

    @property
    def per_lane(self) -> int:
        """Elements of A (or B) that one lane holds."""
        return self.k if self.wmma else self.m * self.k * self.blocks // 64

    def registers(self, element: str) -> int:
        """Registers that hold A or B, of elements `element`."""
        return max(1, self.per_lane * _BYTES[_ELEMENTS[element]] // 4)

    def accumulator_registers(self, lanes: int) -> int:
        """Registers that hold C or D; 16-bit elements have one each."""
        return self.m * self.n * self.blocks // lanes * (2 if self.out == "f64" else 1)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k * self.blocks

    @property
    def rows_together(self) -> int:
        """Consecutive rows that one lane holds in consecutive registers."""
        return 1 if self.wmma or self.out == "f64" else 4


@cache
def shape_of(name: str) -> Shape | None:
    """The shape in a mnemonic, or None if it is no (known) matrix instruction."""
    match = re.fullmatch(
        r"v_(mfma|wmma)_(\w+?)_(\d+)x(\d+)x(\d+)_(?:(\d+)b_)?([a-z]+\d+)(?:_([a-z]+8))?", name
    )
    if match is None or match[7] not in _ELEMENTS or match[2] not in _SUMS:
        return None
    m, n, k = (int(match[i]) for i in (3, 4, 5))
    blocks = int(match[6] or 1)
    return Shape(m, n, k, blocks, match[7], match[8] or match[7], match[2], match[1] == "wmma")


def lower(wave: Any, inst: Instruction, operand: Callable[..., tuple[str, int]]) -> Any:
    """Variant and slots of a matrix instruction."""
    f, shape = inst.fields, shape_of(inst.name)
    assert shape is not None
    flags: dict[str, int] = {}
    acc = f.get("acc", 0)
    if not shape.wmma:
        if f["cbsz"] or f["abid"] or f["blgp"]:
            raise EmulatorError(f"{inst.name} at +0x{inst.pc:x} with cbsz, abid or blgp")
    elif shape.a == "iu8":
        flags = {"signed": f["neg"] & 3}
    elif f["neg"] or f["neg_hi"]:
        raise EmulatorError(f"{inst.name} at +0x{inst.pc:x} with negated operands")
    if shape.wmma and shape.out in ("f16", "bf16"):
        flags["high"] = f["opsel"] >> 2 & 1
    shift = wave.vgpr(0, True) - wave.vgpr(0)
    kinds, slots = [], {}
    for i in range(3):
        code = f[f"src{i}"]
        kind = {"f64": "f64", "i32": "i32"}.get(shape.out, "f32") if i == 2 else "b32"
        how, slots[state.SRC0 + i] = operand(wave, code, kind, inst.literal)
        accumulator = f.get("acc_cd", 0) if i == 2 else acc >> i & 1
        if code >= VGPR and accumulator:
            slots[state.SRC0 + i] += shift
        kinds.append(how)
    slots[state.DST] = wave.vgpr(f["vdst"], bool(f.get("acc_cd", 0)))
    return Variant(inst.name, wave.isa, wave.lanes, tuple(kinds), flags=tuple(flags.items())), slots


def emit(h: Lanes) -> None:
    """Write the handler of a matrix instruction. EXEC plays no part."""
    shape = shape_of(h.variant.name)
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
    width = _BYTES[_ELEMENTS[name]]
    base = h.at(h.wave, h.slot(state.SRC0 + which))
    # The upper half of a WMMA wave repeats the lower.
    lanes = size if shape.wmma else 64

    def lane(index: Value, _: list[Value]) -> list[Value]:
        line, group = f.urem(index, const(I64, size)), f.udiv(index, const(I64, size))
        block, part = (f.urem(group, const(I64, shape.blocks)),
                       f.udiv(group, const(I64, shape.blocks)))  # fmt: skip
        for j in range(shape.per_lane):
            k = f.add(f.mul(part, const(I64, shape.per_lane)), const(I64, j))
            word, offset = divmod(j * width, 4)
            place = h.at(h.at(base, f.shl(index, const(I64, 2))), word * h.vgpr_stride() + offset)
            x = _element(h, place, name, which, elem)
            if which == 0:
                target = _at(h, _at(h, block, size, line), shape.k, k)
            else:
                target = _at(h, _at(h, block, shape.k, k), size, line)
            f.store(x, f.gep(buffer, target, Type(elem)))
        return []

    f.loop(const(I64, 0), const(I64, lanes), 1, [], lane)
    return buffer


def _element(h: Lanes, place: Value, name: str, which: int, elem: str) -> Value:
    """One element in the type of the sum."""
    f = h.f
    if name == "f64":
        low, high = f.load(I32, place, 4), f.load(I32, h.at(place, h.vgpr_stride()), 4)
        return f.bitcast(h.join(low, high), Type("double"))
    x = f.load(Type(_ELEMENTS[name]), place, 1)
    if name in ("fp8", "bf8"):
        table = h.f.module.add_global(f"table_{name}", _float8_table(name))
        return f.load(Type("float"), f.gep(table, f.cast("zext", x, "i64"), Type("float")), 4)
    if elem == "i32":
        signed = name == "i8" or h.variant.flag("signed") >> which & 1
        return f.int_resize(x, "i32", bool(signed))
    return x if _ELEMENTS[name] == elem else f.cast("fpext", x, elem)


@cache
def _float8_table(name: str) -> str:
    """All values of gfx942's 8-bit floats (one zero, no infinities) as bits of f32."""
    import ml_dtypes
    import numpy as np

    dtype = ml_dtypes.float8_e4m3fnuz if name == "fp8" else ml_dtypes.float8_e5m2fnuz
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
    if shape.out in ("f16", "bf16"):
        low = f.lshr(low, const(low.type, 16 * h.variant.flag("high")))
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
    if shape.out in ("f16", "bf16"):
        half = f.bitcast(f.cast("fptrunc", total, _ELEMENTS[shape.out]), I16.with_lanes(n))
        old = f.load(Type("i32", n), place, 4)
        upper = h.variant.flag("high")
        mine = f.shl(f.cast("zext", half, "i32"), const(old.type, 16 * upper))
        total = f.or_(mine, f.and_(old, const(old.type, 0xFFFF if upper else 0xFFFF0000)))
    f.store(f.bitcast(total, Type("i32", n)), place, 4)
