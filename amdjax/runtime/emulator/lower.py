"""An instruction to its handler's variant and the contents of its record's slots."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amdjax.codegen.llvm import Type, Value
from amdjax.runtime.emulator import (
    access,
    alu,
    crosslane,
    legacy,
    matrix,
    narrow,
    salu,
    scalar_float,
    scalar_memory,
    state,
    vector_memory,
)
from amdjax.runtime.emulator.builder import OPERAND_TYPES, Lanes, Operation, Variant, as_half
from amdjax.runtime.emulator.decode import LITERAL, VGPR, Instruction
from amdjax.runtime.emulator.errors import EmulatorError, UnknownInstruction
from amdjax.runtime.emulator.isa import ISAS, Isa

_INLINE_FLOATS = dict(zip(range(240, 248), (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)))
# 1/(2 pi) as the hardware has it.
_INVERSE_TWO_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
_SPECIAL = {251: "vccz", 252: "execz", 253: "scc"}
_APERTURES = {235: state.SHARED_APERTURE << 32, 236: (state.SHARED_APERTURE << 32) + 0xFFFFFFFF,
              237: state.PRIVATE_APERTURE << 32,
              238: (state.PRIVATE_APERTURE << 32) + 0xFFFFFFFF}  # fmt: skip
# Mode bits that may be written: what is emulated is round to nearest with denormals.
_MODE_REGISTER = 1
# Operations of the older set that keep the other half of a 16-bit destination.
_KEEP_HALF = {
    "v_cvt_pk_fp8_f32",
    "v_cvt_pk_bf8_f32",
    "v_mad_f16",
    "v_fma_f16",
    "v_mad_u16",
    "v_mad_i16",
    "v_div_fixup_f16",
}
_ACCUMULATE = ("v_fmac_", "v_mac_", "v_dot2c_", "v_dot4c_", "v_dot8c_", "v_dot2acc_", "v_pk_fmac_")


@dataclass
class Lowered:
    """A record's handler and slots; `target` is the pc of a branch."""

    variant: Variant
    slots: dict[int, int] = field(default_factory=dict)
    target: int | None = None


@dataclass(frozen=True)
class Wave:
    """What lowering needs to know of a kernel."""

    isa: str
    lanes: int
    entry: int
    accumulators: int  # where AGPRs begin among the vector registers
    name: str = ""
    flushes: bool = False  # f32 denormals, as the descriptor says

    @property
    def facts(self) -> Isa:
        return ISAS[self.isa]

    @property
    def stride(self) -> int:
        return 4 * self.lanes

    def vgpr(self, number: int, accumulator: bool = False) -> int:
        return state.VGPRS + self.stride * (number + (self.accumulators if accumulator else 0))

    def sgpr(self, number: int) -> int:
        if number == self.facts.null:
            return state.SINK
        return state.SGPRS + 4 * number


def inline_constant(code: int, kind: str, literal: int | None) -> int:
    """The bits of a constant operand as its type sees them."""
    bits = OPERAND_TYPES[kind].bits if kind in OPERAND_TYPES else 32
    if code == LITERAL:
        assert literal is not None
        if kind == "f64":
            return literal << 32
        if kind == "i64" and literal >> 31:
            return literal | 0xFFFFFFFF << 32
        return literal
    if 128 <= code <= 208:
        return (code - 128 if code <= 192 else 192 - code) & ((1 << 64) - 1)
    if kind == "bf16" and code in _INLINE_FLOATS:
        return struct.unpack("<I", struct.pack("<f", _INLINE_FLOATS[code]))[0] >> 16
    if code == 248:
        return _INVERSE_TWO_PI[bits]
    if code in _INLINE_FLOATS:
        return int.from_bytes(struct.pack(_FLOAT_FORMATS[bits], _INLINE_FLOATS[code]), "little")
    raise EmulatorError(f"reserved operand {code}")


def operand(wave: Wave, code: int, kind: str, literal: int | None) -> tuple[str, int]:
    """How a source field reads (`v`, `s`, `k` or a special) and its slot."""
    if code >= VGPR:
        return "v", wave.vgpr(code - VGPR)
    if code < 128:
        if code == wave.facts.null:
            return "k", 0
        return "s", wave.sgpr(code)
    if code in _SPECIAL:
        return _SPECIAL[code], 0
    if code in _APERTURES:
        return "k", _APERTURES[code] if kind.endswith("64") else _APERTURES[code] >> 32
    return "k", inline_constant(code, kind, literal)


def lower(wave: Wave, inst: Instruction) -> Lowered:
    """The record for an instruction.

    Raises:
        UnknownInstruction: there are no semantics for the mnemonic.
    """
    if inst.parts:
        return _dual(wave, inst)
    name = alu.ALIASES.get(inst.name, inst.name)
    if name in salu.SOPK:
        return _sopk(wave, inst, salu.SOPK[name])
    if name in salu.CONTROL:
        return _control(wave, inst)
    if name in crosslane.HANDLERS:
        return _crosslane(wave, inst)
    if matrix.shape_of(name) is not None:
        return Lowered(*matrix.lower(wave, inst, operand))
    if inst.format.startswith("SOP") and name in salu.OPERATIONS:
        return _scalar(wave, inst, salu.OPERATIONS[name], name)
    if inst.format.startswith("VOP") and name in alu.OPERATIONS:
        return _vector(wave, inst, alu.OPERATIONS[name], name)
    found = access.access_of(inst.name)
    if found is not None:
        return _memory(wave, inst, found)
    raise UnknownInstruction(
        f"no semantics for {inst.name} ({inst.format}) at +0x{inst.pc:x} on {wave.isa}"
    )


def _scalar(wave: Wave, inst: Instruction, op: Operation, name: str) -> Lowered:
    slots, kinds = {}, []
    for i, (code, kind) in enumerate(zip(_source_codes(inst, op, name), op.sources)):
        assert code is not None
        how, slots[state.SRC0 + i] = operand(wave, code, kind, inst.literal)
        kinds.append(how)
    if "sdst" in inst.fields:
        slots[state.DST] = wave.sgpr(inst.fields["sdst"])
    flags = _flush_flag(wave, op, name)
    return Lowered(Variant(name, wave.isa, wave.lanes, tuple(kinds), dst="s", flags=flags), slots)


def _flush_flag(wave: Wave, op: Operation, name: str) -> tuple[tuple[str, int], ...]:
    flushes = wave.flushes and "f32" in (op.dst, *op.sources) and "cndmask" not in name
    return (("flush", 1),) if flushes else ()


def _sopk(wave: Wave, inst: Instruction, name: str) -> Lowered:
    """The register is destination and first operand; the constant is the last."""
    raw = inst.fields["simm16"]
    signed = raw - (raw >> 15 << 16)
    value = raw if name.endswith("_u32") and "cmp" in name else signed & 0xFFFFFFFF
    register = wave.sgpr(inst.fields["sdst"])
    kinds: tuple[str, ...]
    if name == "s_mov_b32":
        slots, kinds = {state.SRC0: value}, ("k",)
    else:
        slots, kinds = {state.SRC0: register, state.SRC0 + 1: value}, ("s", "k")
    slots[state.DST] = register
    return Lowered(Variant(name, wave.isa, wave.lanes, kinds, dst="s"), slots)


def _control(wave: Wave, inst: Instruction) -> Lowered:
    name, f = inst.name, inst.fields
    if name in ("s_setreg_b32", "s_setreg_imm32_b32", "s_round_mode", "s_denorm_mode"):
        _check_mode(inst)
    if emitter_is_nothing(name):
        return Lowered(Variant("s_nop", wave.isa, wave.lanes))
    kinds: tuple[str, ...] = ()
    slots = {state.DST: wave.sgpr(f["sdst"])} if "sdst" in f else {}
    if "src0" in f and name != "s_getpc_b64":
        kind = "b64" if name.endswith("b64") and "bitset" not in name else "b32"
        how, slots[state.SRC0] = operand(wave, f["src0"], kind, inst.literal)
        kinds = (how,)
    elif name == "s_cmovk_i32":
        kinds, slots[state.SRC0] = ("k",), (f["simm16"] ^ 0x8000) - 0x8000 & 0xFFFFFFFF
    slots[state.OFFSET] = wave.entry + inst.next_pc
    target = None
    if "branch" in name:
        target = inst.next_pc + 4 * ((f["simm16"] ^ 0x8000) - 0x8000)
    return Lowered(Variant(name, wave.isa, wave.lanes, kinds, dst="s"), slots, target)


def emitter_is_nothing(name: str) -> bool:
    return salu.CONTROL[name] is salu.nothing


def _check_mode(inst: Instruction) -> None:
    """Only settings that are emulated may be made."""
    if inst.name == "s_denorm_mode" and inst.fields["simm16"] & 15 == 15:
        return
    if inst.name == "s_round_mode" and inst.fields["simm16"] & 15 == 0:
        return
    register = inst.fields["simm16"] & 63
    if inst.name.startswith("s_setreg") and register != _MODE_REGISTER:
        return
    raise EmulatorError(
        f"{inst.name} at +0x{inst.pc:x} changes rounding or denormals: no emulation"
    )


def _modifiers(inst: Instruction) -> dict[str, int]:
    f = inst.fields
    sources = {"neg": f.get("neg", 0), "abs": f.get("abs", 0)}
    for extra in (inst.dpp or {}, inst.sdwa or {}):
        for i in range(2):
            sources["neg"] |= extra.get(f"src{i}_neg", 0) << i
            sources["abs"] |= extra.get(f"src{i}_abs", 0) << i
    return sources


def _half_register(wave: Wave, inst: Instruction, code: int, kind: str) -> tuple[int, int]:
    """In short encodings bit 7 of a register for 16 bits may say its high half."""
    short = inst.format in ("VOP1", "VOP2", "VOPC")
    is_half = kind in OPERAND_TYPES and OPERAND_TYPES[kind].bits == 16
    if wave.facts.split_registers and short and is_half and code >= VGPR and code & 128:
        return code - 128, 1
    return code, 0


def _source_codes(inst: Instruction, op: Operation, name: str) -> list[int | None]:
    """Source fields in the order of the operation's operands; None stands for VCC."""
    f = inst.fields
    codes: list[int | None] = [f[key] for key in ("src0", "src1", "src2") if key in f]
    if "fmamk" in name or "madmk" in name:
        return [f["src0"], LITERAL, f["src1"]]
    if "fmaak" in name or "madak" in name:
        return [f["src0"], f["src1"], LITERAL]
    if name.startswith("s_fmac_"):
        return [*codes, f["sdst"]]
    if name.startswith(_ACCUMULATE):
        return [*codes[:2], f["vdst"] + VGPR]
    codes = codes[: len(op.sources)]
    return codes + [None] * (len(op.sources) - len(codes))


def _vector(wave: Wave, inst: Instruction, op: Operation, name: str) -> Lowered:
    f = inst.fields
    slots, kinds, opsel = {}, [], f.get("opsel", 0)
    implicit = 0
    for i, (code, kind) in enumerate(zip(_source_codes(inst, op, name), op.sources)):
        if code is None or (kind == "mask" and name.startswith("v_div_fmas")):
            code = state.VCC
        code, high = _half_register(wave, inst, code, kind)
        opsel |= high << i
        # Masks are as wide as the wave; their register is a scalar one.
        how, slots[state.SRC0 + i] = operand(wave, code, kind, inst.literal)
        kinds.append(how)
    dst, slots[state.DST], implicit = _vector_destination(wave, inst, op, name)
    opsel |= implicit << 3
    if op.sdst:
        # Without a field of its own the carry goes to VCC.
        slots[state.SDST] = wave.sgpr(f.get("sdst", state.VCC))
    if "accvgpr" in name:
        _accumulator_move(wave, inst, name, slots)
    flags = [("keeps_half", 1)] if inst.name in _KEEP_HALF else []
    flags += _flush_flag(wave, op, name)
    if op.packed:
        flags += [
            ("opsel_hi", f.get("opsel_hi", 3) | f.get("opsel_hi2", 1) << 2),
            ("neg_hi", f.get("neg_hi", 0)),
        ]
    modifiers = _modifiers(inst)
    clamp = f.get("clmp", 0) | (inst.sdwa or {}).get("clmp", 0) * (op.dst != "mask")
    variant = Variant(
        name, wave.isa, wave.lanes, tuple(kinds), dst,
        neg=modifiers["neg"], abs=modifiers["abs"], omod=f.get("omod", 0), clamp=clamp,
        opsel=opsel, dpp=_frozen(inst.dpp), sdwa=_frozen(inst.sdwa), flags=tuple(flags),
    )  # fmt: skip
    return Lowered(variant, slots)


def _frozen(bits: dict[str, int] | None) -> tuple[tuple[str, int], ...] | None:
    if bits is None:
        return None
    return tuple(sorted((k, v) for k, v in bits.items() if k != "vsrc0"))


def _accumulator_move(wave: Wave, inst: Instruction, name: str, slots: dict[int, int]) -> None:
    shift = wave.vgpr(0, True) - wave.vgpr(0)
    if name != "v_accvgpr_write":
        slots[state.SRC0] += shift
    if name != "v_accvgpr_read":
        slots[state.DST] += shift


def _vector_destination(
    wave: Wave, inst: Instruction, op: Operation, name: str
) -> tuple[str, int, int]:
    """Kind and slot of the destination, and whether it is a register's high half."""
    f = inst.fields
    if name.startswith("v_s_"):
        return "s", wave.sgpr(f["vdst"]), 0
    if op.dst != "mask":
        code, high = _half_register(wave, inst, f["vdst"] + VGPR, op.dst)
        return "v", wave.vgpr(code - VGPR), high
    if name.startswith("v_cmpx") and wave.facts.generation >= 10:
        return "s", wave.sgpr(state.EXEC), 0
    if inst.format == "VOPC":
        if inst.sdwa is not None and inst.sdwa["sd"]:
            return "s", wave.sgpr(inst.sdwa["sdst"] & 127), 0
        return "s", wave.sgpr(state.VCC), 0
    return "s", wave.sgpr(f["vdst"]), 0


def _dual(wave: Wave, inst: Instruction) -> Lowered:
    lowered = [lower(wave, part) for part in inst.parts]
    slots: dict[int, int] = {}
    for i, half in enumerate(lowered):
        slots |= {index + state.SECOND * i: value for index, value in half.slots.items()}
    parts = tuple(half.variant for half in lowered)
    return Lowered(Variant("v_dual", wave.isa, wave.lanes, parts=parts), slots)


def _crosslane(wave: Wave, inst: Instruction) -> Lowered:
    f, name = inst.fields, inst.name
    flags: list[tuple[str, int]] = []
    if name.startswith("ds_"):
        offset = f["offset0"] | f["offset1"] << 8
        slots = {
            state.DST: wave.vgpr(f["vdst"]), state.SRC0: wave.vgpr(f["addr"]),
            state.SRC0 + 1: wave.vgpr(f["data0"]), state.OFFSET: offset,
        }  # fmt: skip
        kinds: tuple[str, ...] = ("v", "v")
        if name == "ds_swizzle_b32":
            flags.append(("offset", offset))
    else:
        scalar = name.startswith("v_read")
        slots = {state.DST: (wave.sgpr if scalar else wave.vgpr)(f["vdst"])}
        found = []
        for i, key in enumerate(k for k in ("src0", "src1", "src2") if k in f):
            how, slots[state.SRC0 + i] = operand(wave, f[key], "b32", inst.literal)
            found.append(how)
        kinds = tuple(found)
    return Lowered(Variant(name, wave.isa, wave.lanes, kinds, flags=tuple(flags)), slots)


def _memory(wave: Wave, inst: Instruction, what: access.Access) -> Lowered:
    f = inst.fields
    if what.kind == "scalar":
        return _scalar_memory(wave, inst)
    accumulators = bool(f.get("acc", 0))
    flags: dict[str, int] = {}
    slots = {state.DST: wave.vgpr(f["vdst"], accumulators), state.SRC0: wave.vgpr(f["addr"])}
    if inst.format == "DS":
        slots[state.SRC0 + 1] = wave.vgpr(f["data0"], accumulators)
        slots[state.SRC0 + 2] = wave.vgpr(f["data1"], accumulators)
        if what.count == 2:
            slots[state.OFFSET] = f["offset0"] * what.scale
            slots[state.TARGET] = f["offset1"] * what.scale
        else:
            slots[state.OFFSET] = f["offset0"] | f["offset1"] << 8
        flags["returns"] = int("_rtn" in inst.name)
    else:
        slots[state.SRC0 + 1] = wave.vgpr(f["data"], accumulators)
        slots[state.OFFSET] = f["offset"]
        # What says that an atomic returns the old value is the lowest cache bit in every set.
        flags["returns"] = f.get("sc0", 0) | f.get("glc", 0) | f.get("th", 0) & 1
        has_saddr = f["saddr"] not in (127, wave.facts.null)
        if inst.format != "FLAT" and has_saddr:
            flags["saddr"] = 1
            slots[state.SRC0 + 2] = wave.sgpr(f["saddr"])
        flags["vaddr"] = f.get("sve", 0)
    if what.kind != "atomic":
        flags.pop("returns")
    if what.space != "scratch":
        flags.pop("vaddr", None)
    kept = tuple((k, v) for k, v in flags.items() if v)
    return Lowered(Variant(inst.name, wave.isa, wave.lanes, flags=kept), slots)


def _scalar_memory(wave: Wave, inst: Instruction) -> Lowered:
    f = inst.fields
    slots = {state.DST: wave.sgpr(f["sdata"]), state.SRC0: wave.sgpr(2 * f["sbase"])}
    if wave.facts.generation == 9:
        has_register = f["soffset_en"]
        slots[state.OFFSET] = f["offset"] if f["imm"] else 0
        register = f["soffset"]
        if not f["imm"] and not f["soffset_en"]:
            # Without either flag the offset field names a register.
            has_register, register = 1, f["offset"] & 127
    else:
        has_register, register = int(f["soffset"] != wave.facts.null), f["soffset"]
        slots[state.OFFSET] = f["offset"]
    if has_register:
        slots[state.SRC0 + 1] = wave.sgpr(register)
    flags = (("soffset", 1),) if has_register else ()
    return Lowered(Variant(inst.name, wave.isa, wave.lanes, flags=flags), slots)


# Writing handlers

assert legacy and narrow and scalar_float  # their operations are entered in the tables


def write_handler(h: Lanes) -> None:
    """Write the code of `h.variant`'s handler."""
    name = h.variant.name
    if name == "v_dual":
        pending = [_computed(as_half(h, i)) for i in range(2)]
        for store in pending:
            store()
        h.finish()
    elif name in salu.CONTROL:
        salu.CONTROL[name](h)
    elif name in crosslane.HANDLERS:
        crosslane.HANDLERS[name](h)
    elif matrix.shape_of(name) is not None:
        matrix.emit(h)
    elif name in alu.OPERATIONS or name in salu.OPERATIONS:
        _computed(h)()
        h.finish()
    else:
        found = access.access_of(name)
        assert found is not None
        (scalar_memory if found.kind == "scalar" else vector_memory).emit(h, found)


def _computed(h: Lanes) -> Callable[[], None]:
    """Write the computation; the returned function writes its stores."""
    name = h.variant.name
    op = alu.OPERATIONS.get(name) or salu.OPERATIONS[name]
    if name in alu.MIXED:
        return _computed_mixed(h, op)
    if op.packed:
        return _computed_packed(h, op)
    sources = [h.source(i, kind) for i, kind in enumerate(op.sources)]
    if h.variant.flag("flush"):
        sources = [alu.flush(h, x) if k == "f32" else x for x, k in zip(sources, op.sources)]
    result = _clamped(h, op, sources)
    second: Value | None = None
    if isinstance(result, tuple):
        result, second = result
    elif op.scc is not None:
        second = op.scc(h, result)

    def store() -> None:
        h.write(result, op.dst)
        if name.startswith("v_cmpx") and ISAS[h.variant.isa].generation == 9:
            h.set_sgpr(state.EXEC, h.bits_of(h.f.and_(result, h.exec())))
        if second is not None and op.sdst:
            h.write(second, op.sdst, state.SDST)
        elif second is not None:
            h.set_scc(second)

    return store


def _clamped(h: Lanes, op: Operation, sources: list[Value]) -> Any:
    """The operation with its output modifiers."""
    v, f = h.variant, h.f
    if v.flag("flush") and op.packed:
        sources = [alu.flush(h, x) if x.type.elem == "float" else x for x in sources]
    if op.dst not in ("f16", "f32", "f64"):
        if v.clamp and op.dst != "mask":
            if op.saturate is None:
                raise UnknownInstruction(f"no semantics for {v.name} with clamp")
            return op.saturate(h, *sources)
        return op.compute(h, *sources)
    result = op.compute(h, *sources)
    pair = result if isinstance(result, tuple) else None
    x = pair[0] if pair else result
    if v.omod:
        x = f.mul(x, h.like(x, {1: 2.0, 2: 4.0, 3: 0.5}[v.omod]))
    if v.clamp:
        # NaN becomes 0, as kernels are run with DX10_CLAMP.
        x = alu.fmin(h, alu.fmax(h, x, h.like(x, 0.0)), h.like(x, 1.0))
    if v.flag("flush") and op.dst == "f32":
        x = alu.flush(h, x)
    return (x, pair[1]) if pair else x


def _computed_packed(h: Lanes, op: Operation) -> Callable[[], None]:
    """The scalar operation on low and high parts, which op_sel and op_sel_hi choose."""
    v, f = h.variant, h.f
    wide = OPERAND_TYPES[op.dst].bits == 32
    selections = (v.opsel & 7, v.flag("opsel_hi"))
    negations = (v.neg, v.flag("neg_hi"))
    parts = []
    for half in range(2):
        sources = []
        for i, kind in enumerate(op.sources):
            select = v.name == "v_pk_mov_b32" and i != half
            if select:
                continue
            # v_pk_mov takes its low result from source 0 and its high one from source 1.
            chosen = selections[0] if v.name == "v_pk_mov_b32" else selections[half]
            high = chosen >> i & 1
            x = _packed_source(h, i, kind, bool(high), wide)
            if OPERAND_TYPES[kind].is_float and negations[half] >> i & 1:
                x = f.neg(x)
            sources.append(x)
        if v.name == "v_pk_mov_b32":
            sources = [sources[0], sources[0]]
        parts.append(_clamped(h, op, sources))

    def store() -> None:
        if wide:
            words = [f.bitcast(p, Type("i32", h.lanes)) for p in parts]
            h.write(h.join(*words), "b64")
        else:
            h.write(alu.pack16(h, *parts), "b32")

    return store


def _computed_mixed(h: Lanes, op: Operation) -> Callable[[], None]:
    """An fma of operands that are f32, or a half of a register where op_sel_hi is set."""
    v, f = h.variant, h.f
    sources = []
    for i in range(3):
        x = h.raw(i, v.sources[i], 32)
        if v.flag("opsel_hi") >> i & 1:
            x = f.lshr(x, h.like(x, 16)) if v.opsel >> i & 1 else x
            x = f.bitcast(f.cast("trunc", x, "i16"), Type("half", h.lanes))
            x = f.cast("fpext", x, "float")
        else:
            x = f.bitcast(x, Type("float", h.lanes))
        if v.flag("neg_hi") >> i & 1:
            x = f.unary_intrinsic("fabs", x)
        sources.append(f.neg(x) if v.neg >> i & 1 else x)
    if op.dst == "f32":
        result = _clamped(h, op, sources)
        return lambda: h.write(result, "f32")
    result = f.cast("fptrunc", f.fma(*sources), "half")
    if v.clamp:
        result = alu.fmin(h, alu.fmax(h, result, h.like(result, 0.0)), h.like(result, 1.0))
    high = v.name == "v_fma_mixhi_f16"

    def store() -> None:
        place = h.at(h.wave, h.slot(state.DST))
        mine = f.cast("zext", f.bitcast(result, Type("i16", h.lanes)), "i32")
        mine = f.shl(mine, h.like(mine, 16)) if high else mine
        old = f.load(mine.type, place, 64)
        kept = f.and_(old, h.like(old, 0xFFFF if high else 0xFFFF0000))
        h.write(f.or_(mine, kept), "b32")

    return store


def _packed_source(h: Lanes, index: int, kind: str, high: bool, wide: bool) -> Value:
    v, f = h.variant, h.f
    to = OPERAND_TYPES[kind]
    how = v.sources[index]
    if wide:
        # A constant is the same in both parts.
        if how == "k":
            x = h.raw(index, how, 32)
        else:
            x = h.split(h.raw(index, how, 64))[int(high)]
    else:
        x = h.raw(index, how, 32)
        if index == 0 and v.dpp is not None:
            x = h._dpp(x)
        x = f.lshr(x, h.like(x, 16)) if high else x
        x = f.cast("trunc", x, "i16")
    return f.bitcast(x, Type(to.elem, x.type.lanes))
