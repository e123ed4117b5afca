"""Writes the handler of one instruction form: operands in, values over all lanes, results out.

A handler is `ptr handler(ptr wave, ptr record)`; it returns the record to run next, or null after
it stored why the wave stops. Semantics see `Lanes`, whose values are vectors with one element a
lane for vector instructions and scalars for scalar ones, so that one expression serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from amdjax.codegen.llvm import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    PTR,
    Function,
    Module,
    Type,
    Value,
    const,
    vector,
    zero,
)  # fmt: skip
from amdjax.emulator import state
from amdjax.emulator.alu.dpp import source_lanes
from amdjax.emulator.isa import ISAS

OPERAND_TYPES = {
    **{f"{kind}{bits}": Type(f"i{bits}") for kind in "uib" for bits in (16, 32, 64)},
    "f16": F16, "bf16": BF16, "f32": F32, "f64": F64,
    "i8": I8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variant:
    """Everything that a handler's code depends on; equal variants share one handler."""

    name: str
    isa: str
    lanes: int
    sources: tuple[str, ...] = ()
    dst: str = "v"
    sdst: str = "s"
    neg: int = 0
    abs: int = 0
    omod: int = 0
    clamp: int = 0
    opsel: int = 0
    opsel_hi: int = 0
    dpp: tuple[tuple[str, int], ...] | None = None
    sdwa: tuple[tuple[str, int], ...] | None = None
    flags: tuple[tuple[str, int], ...] = ()
    parts: tuple[Variant, ...] = ()

    def flag(self, name: str) -> int:
        return dict(self.flags).get(name, 0)


# One object for equal variants: making one costs more than finding it.
variant_of = cache(Variant)


@dataclass(frozen=True)
class Operation:
    """What an instruction computes: operand types and the expression.

    `mask` stands for one bit a lane in scalar registers, `-` for no destination.
    """

    dst: str
    sources: tuple[str, ...]
    compute: Callable[..., Value]
    saturate: Callable[..., Value] | None = None
    scc: Callable[..., Value] | None = None
    sdst: str = ""
    packed: bool = False


class Lanes:
    """The handler being written, with the operands of its variant."""

    def __init__(self, f: Function, variant: Variant, base: int = 0) -> None:
        self.f, self.variant, self.base = f, variant, base
        self.wave, self.record = f.args
        self.lanes = variant.lanes
        self._write_enable: Value | None = None

    # Constants and shapes

    @property
    def wide(self) -> int:
        """Elements of values here: the wave's lanes, or none in scalar instructions."""
        return 0 if self.variant.name.startswith(("s_", "v_s_")) else self.lanes

    def type(self, elem: str) -> Type:
        return Type(elem, self.wide)

    def const(self, elem: str, value: float | int) -> Value:
        return const(self.type(elem), value)

    def like(self, x: Value, value: float | int) -> Value:
        return const(x.type, value)

    def splat(self, x: Value) -> Value:
        return self.f.splat(x, self.wide) if self.wide and not x.type.lanes else x

    # Memory of the wave and the record

    def at(self, pointer: Value, offset: int | Value) -> Value:
        return self.f.gep(pointer, offset, I8)

    def slot(self, index: int) -> Value:
        """The value in one of the record's operand slots."""
        place = state.SLOTS + 8 * (index + self.base)
        return self.f.load(I64, self.at(self.record, place), 8)

    def header(self, offset: int, type: Type) -> Value:
        return self.f.load(type, self.at(self.wave, offset))

    def sgpr(self, number: int, type: Type) -> Value:
        return self.f.load(type, self.at(self.wave, state.SGPRS + 4 * number), 4)

    def set_sgpr(self, number: int, value: Value) -> None:
        self.f.store(value, self.at(self.wave, state.SGPRS + 4 * number), 4)

    @property
    def mask_type(self) -> Type:
        return I64 if self.lanes == 64 else I32

    def exec_bits(self) -> Value:
        return self.sgpr(state.EXEC, self.mask_type)

    def exec(self) -> Value:
        """EXEC as one bit a lane."""
        return self.f.bitcast(self.exec_bits(), Type("i1", self.lanes))

    def bits_of(self, mask: Value) -> Value:
        return self.f.bitcast(mask, self.mask_type)

    def scc(self) -> Value:
        return self.f.cast("trunc", self.header(state.SCC, I32), "i1")

    def set_scc(self, flag: Value) -> None:
        value = self.f.cast("zext", flag, "i32") if flag.type == I1 else flag
        self.f.store(value, self.at(self.wave, state.SCC))

    def vgpr_stride(self) -> int:
        return 4 * self.lanes

    # Operands

    def raw(self, index: int, kind: str, bits: int) -> Value:
        """The bits of source `index` as an integer of 32 or 64 bits over the lanes."""
        place = self.slot(state.SRC0 + index)
        if kind == "v":
            place = self._indexed(place, index)
        return self.raw_at(place, kind, bits)

    def _indexed(self, place: Value, operand: int) -> Value:
        """The register of an operand (3: the destination), moved on in the index mode of GCN."""
        if not self.variant.flag("relative") >> operand & 1:
            return place
        return self.register_beyond(
            place, self.f.and_(self.m0(), const(I32, 0xFF)), self.vgpr_stride()
        )

    def m0(self) -> Value:
        return self.sgpr(ISAS[self.variant.isa].m0, I32)

    def register_beyond(self, place: Value, registers: Value, size: int) -> Value:
        """A register so many further on; past the end there is only the first."""
        f = self.f
        step = f.mul(f.cast("zext", registers, "i64"), const(I64, size))
        beyond = f.add(place, step)
        first, last = (state.SGPRS, state.SGPRS + 4 * 104) if size == 4 else (state.VGPRS, 0)
        end = const(I64, last) if last else self.header(state.END, I64)
        inside = f.icmp("ule", f.add(beyond, const(I64, size)), end)
        return f.select(inside, beyond, const(I64, first))

    def raw_at(self, place: Value, kind: str, bits: int) -> Value:
        wide = 64 if bits == 64 else 32
        if kind == "v":
            return self.load_vgpr(self.at(self.wave, place), wide)
        return self.splat(self.scalar_at(place, kind, wide))

    def scalar_at(self, place: Value, kind: str, wide: int) -> Value:
        if kind == "s":
            return self.f.load(Type(f"i{wide}"), self.at(self.wave, place), 4)
        if kind == "k":
            return self.f.int_resize(place, f"i{wide}", False)
        special = {
            "scc": self.scc,
            "vccz": lambda: self._is_zero(self.sgpr(state.VCC, self.mask_type)),
            "execz": lambda: self._is_zero(self.exec_bits()),
        }[kind]()
        return self.f.cast("zext", special, f"i{wide}")

    def _is_zero(self, x: Value) -> Value:
        return self.f.icmp("eq", x, const(x.type, 0))

    def load_vgpr(self, pointer: Value, bits: int) -> Value:
        """Register(s) at `pointer`: 32-bit elements, or 64-bit ones from two registers."""
        half = Type("i32", self.lanes)
        low = self.f.load(half, pointer, 64)
        if bits == 32:
            return low
        high = self.f.load(half, self.at(pointer, self.vgpr_stride()), 64)
        return self.join(low, high)

    def join(self, low: Value, high: Value) -> Value:
        f = self.f
        shifted = f.shl(f.cast("zext", high, "i64"), const(Type("i64", high.type.lanes), 32))
        return f.or_(f.cast("zext", low, "i64"), shifted)

    def split(self, x: Value) -> tuple[Value, Value]:
        f = self.f
        high = f.cast("trunc", f.lshr(x, const(x.type, 32)), "i32")
        return f.cast("trunc", x, "i32"), high

    def source(self, index: int, kind: str) -> Value:
        """Source `index` as operand type `kind`, with DPP, SDWA and modifiers applied."""
        v, f = self.variant, self.f
        if kind == "mask":
            bits = self.scalar_at(self.slot(state.SRC0 + index), v.sources[index], self.lanes)
            return f.bitcast(bits, Type("i1", self.lanes))
        to = OPERAND_TYPES[kind]
        x = self.raw(index, v.sources[index], to.bits)
        if index == 0 and v.dpp is not None:
            x = self._dpp(x)
        if v.sdwa is not None and index < 2:
            x = self._select_part(x, index)
        if to.bits == 16:
            # A constant is in the low half, wherever the selection points.
            if v.opsel >> index & 1 and v.sources[index] != "k":
                x = f.lshr(x, self.like(x, 16))
            x = f.cast("trunc", x, "i16")
        elif to.bits == 8:
            x = f.cast("trunc", x, "i8")
        return self.modify(x, index, to)

    def modify(self, x: Value, index: int, to: Type) -> Value:
        """Apply |x| and -x to bits and give them their type."""
        v, f = self.variant, self.f
        if to.is_float:
            sign = 1 << (to.bits - 1)
            if v.abs >> index & 1:
                x = f.and_(x, self.like(x, sign - 1))
            if v.neg >> index & 1:
                x = f.xor(x, self.like(x, sign))
        return f.bitcast(x, Type(to.elem, x.type.lanes))

    def _select_part(self, x: Value, index: int) -> Value:
        """SDWA: a byte or word of the register, extended."""
        sdwa = dict(self.variant.sdwa or ())
        part, signed = sdwa[f"src{index}_sel"], sdwa[f"src{index}_sext"]
        if part == 6:
            return x
        elem, shift = ("i8", 8 * part) if part < 4 else ("i16", 16 * (part - 4))
        x = self.f.lshr(x, self.like(x, shift)) if shift else x
        return self.f.int_resize(self.f.cast("trunc", x, elem), "i32", bool(signed))

    def _dpp(self, x: Value) -> Value:
        """Source 0 from other lanes; lanes without a source are 0 or keep the destination."""
        f, dpp = self.f, dict(self.variant.dpp or ())
        lanes = source_lanes(dpp, self.lanes)
        valid = vector("i1", [lane >= 0 for lane in lanes])
        index = [max(lane, 0) for lane in lanes]
        moved = f.shuffle(x, None, index)
        if not dpp.get("fi", 0):
            valid = f.and_(valid, f.shuffle(self.exec(), None, index))
        if "lanes8" in dpp or dpp["bc"]:
            moved = f.select(valid, moved, zero(moved.type))
        else:
            self.restrict(valid)
        if "lanes8" not in dpp:
            rows, banks = dpp["row_mask"], dpp["bank_mask"]
            enabled = [
                bool(rows >> (i // 16) & 1 and banks >> (i // 4 % 4) & 1) for i in range(self.lanes)
            ]
            if not all(enabled):
                self.restrict(vector("i1", enabled))
        return moved

    def restrict(self, mask: Value) -> None:
        """Write results to these lanes only."""
        current = self._write_enable
        self._write_enable = mask if current is None else self.f.and_(current, mask)

    # Results

    def write_mask(self) -> Value:
        mask = self.exec()
        return mask if self._write_enable is None else self.f.and_(mask, self._write_enable)

    def write(self, value: Value, kind: str, slot: int = state.DST, target: str = "") -> None:
        """Store the result of operand type `kind` to the destination."""
        target = target or self.variant.dst
        if target == "n" or kind == "-":
            return
        register = self.slot(slot)
        if target == "v" and slot == state.DST:
            register = self._indexed(register, 3)
        place = self.at(self.wave, register)
        if kind == "mask":
            bits = self.bits_of(self.f.and_(value, self.write_mask()))
            self.f.store(bits, place, 4)
        elif target == "s":
            if value.type.is_float:
                value = self.f.bitcast(value, Type(f"i{value.type.bits}"))
            if value.type.bits < 32:
                value = self.f.cast("zext", value, "i32")
            self.f.store(value, place, 4)
        else:
            self._write_vector(value, place)

    def _write_vector(self, value: Value, place: Value) -> None:
        f = self.f
        bits = value.type.bits
        value = f.bitcast(value, Type(f"i{bits}", self.lanes))
        mask = self.write_mask()
        if bits == 64:
            low, high = self.split(value)
            f.masked_store(low, place, mask, 64)
            f.masked_store(high, self.at(place, self.vgpr_stride()), mask, 64)
            return
        if bits == 16:
            value = self._merge_half(value, place)
        elif self.variant.sdwa is not None:
            value = self._merge_part(value, place)
        f.masked_store(value, place, mask, 64)

    def _merge_half(self, value: Value, place: Value) -> Value:
        """A 16-bit result: CDNA clears the other half (unless it can choose), RDNA keeps it."""
        f, high = self.f, self.variant.opsel >> 3 & 1
        wide = f.cast("zext", value, "i32")
        if self.variant.sdwa is not None:
            return self._merge_part(wide, place)
        clears = ISAS[self.variant.isa].clears_half and not self.variant.flag("keeps_half")
        if clears and not high:
            return wide
        old = f.load(wide.type, place, 64)
        if high:
            wide = f.shl(wide, self.like(wide, 16))
        keep = f.and_(old, self.like(old, 0xFFFF if high else 0xFFFF0000))
        return f.or_(wide, keep)

    def _merge_part(self, value: Value, place: Value) -> Value:
        """SDWA: the result goes to a byte or word of the destination."""
        sdwa = dict(self.variant.sdwa or ())
        part, unused = sdwa.get("dst_sel", 6), sdwa.get("dst_unused", 0)
        if part == 6:
            return value
        f = self.f
        width, shift = (8, 8 * part) if part < 4 else (16, 16 * (part - 4))
        field_mask = ((1 << width) - 1) << shift
        value = f.shl(value, self.like(value, shift)) if shift else value
        if unused == 1:  # sign extend above, clear below
            up = 32 - width - shift
            value = f.ashr(f.shl(value, self.like(value, up)), self.like(value, up))
            return f.and_(value, self.like(value, -(1 << shift)))
        value = f.and_(value, self.like(value, field_mask))
        if unused == 2:
            old = f.load(value.type, place, 64)
            value = f.or_(value, f.and_(old, self.like(old, ~field_mask)))
        return value

    # Leaving the handler

    def next_record(self) -> Value:
        return self.at(self.record, state.RECORD)

    def finish(self) -> None:
        self.f.ret(self.next_record())

    def stop(self, status: state.Status, resume: Value | None = None) -> None:
        """Leave the wave with `status`; it goes on at `resume`, by default this instruction."""
        self.f.store(resume or self.record, self.at(self.wave, state.PC))
        self.f.store(const(I32, int(status)), self.at(self.wave, state.STATUS))
        self.f.ret(Value(PTR, "null"))


Emitter = Callable[[Lanes], None]


def defining(table: dict[str, Operation]) -> Callable[..., None]:
    """A function that enters operations in a table; `types` is `result sources...`."""

    def define(names: str, types: str, compute: Callable[..., Any], **options: Any) -> None:
        dst, *sources = types.split()
        for name in names.split():
            table[name] = Operation(dst, tuple(sources), compute, **options)

    return define


def entering(table: dict[str, Emitter]) -> Callable[[str], Callable[[Emitter], Emitter]]:
    """A decorator that enters in a table what writes whole handlers of instructions."""

    def named(names: str) -> Callable[[Emitter], Emitter]:
        def enter(emit: Emitter) -> Emitter:
            table.update(dict.fromkeys(names.split(), emit))
            return emit

        return enter

    return named


def new_handler(name: str) -> tuple[Module, Function]:
    """A module with one handler function, open for writing."""
    module = Module()
    f = module.function(name, [("wave", PTR), ("record", PTR)], PTR, attributes="nounwind")
    return module, f


def as_half(lanes: Lanes, part: int) -> Lanes:
    """The writer for one half of a dual instruction."""
    variant = lanes.variant.parts[part]
    return Lanes(lanes.f, replace(variant), state.SECOND * part)
