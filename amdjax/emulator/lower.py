"""An instruction to its handler's variant and the contents of its record's slots."""

from __future__ import annotations

from amdjax.emulator import state
from amdjax.emulator.alu import crosslane, matrix, salu, valu, valu_float
from amdjax.emulator.builder import OPERAND_TYPES, Operation, variant_of
from amdjax.emulator.errors import EmulatorError, UnknownInstruction
from amdjax.emulator.isa import access
from amdjax.emulator.isa.decode import LITERAL, VGPR, Instruction
from amdjax.emulator.memory.lower_memory import lower_memory
from amdjax.emulator.records import Lowered, Wave, operand

_MODE_REGISTER = 1
# Of the mode register: rounding and denormals of f32, then of f16 and f64.
_ROUNDING, _DENORMALS = 0, 4
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
_HALVES = frozenset(kind for kind, type in OPERAND_TYPES.items() if type.bits == 16)
_ACCUMULATE = ("v_fmac_", "v_mac_", "v_dot2c_", "v_dot4c_", "v_dot8c_", "v_dot2acc_", "v_pk_fmac_")


def lower(wave: Wave, inst: Instruction) -> Lowered:
    """The record for an instruction.

    Raises:
        UnknownInstruction: there are no semantics for the mnemonic.
    """
    if inst.parts:
        return _dual(wave, inst)
    name = valu.ALIASES.get(inst.name, inst.name)
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
    if inst.format.startswith("VOP") and name in valu.OPERATIONS:
        return _vector(wave, inst, valu.OPERATIONS[name], name)
    found = access.access_of(inst.name)
    if found is not None:
        return lower_memory(wave, inst, found)
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
    flags = tuple(_mode_flags(wave, op, name))
    return Lowered(
        variant_of(name, wave.isa, wave.lanes, tuple(kinds), dst="s", flags=flags), slots
    )


def _mode_flags(wave: Wave, op: Operation, name: str) -> list[tuple[str, int]]:
    """How an operation rounds, and which formats lose their denormals, if not as usual."""
    kinds = {op.dst, *op.sources} & {"f16", "f32", "f64"}
    if name in valu_float.MIXED:
        kinds |= {"f16", "f32"}
    if not kinds or "cndmask" in name or "_class_" in name:
        return []
    mode = wave.float_mode
    # Conversions round as what they make, whatever they are made of.
    shared = op.dst in ("f16", "f64") or (op.dst != "f32" and "f32" not in kinds)
    rounding = mode >> 2 * shared & 3
    flushed = ~mode >> _DENORMALS & 15
    flushed &= 3 * ("f32" in kinds) | 12 * bool(kinds & {"f16", "f64"})
    return [(key, value) for key, value in (("round", rounding), ("flush", flushed)) if value]


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
    return Lowered(variant_of(name, wave.isa, wave.lanes, kinds, dst="s"), slots)


def _control(wave: Wave, inst: Instruction) -> Lowered:
    name, f = inst.name, inst.fields
    if emitter_is_nothing(name):
        return Lowered(variant_of("s_nop", wave.isa, wave.lanes))
    if name in salu.MODE_WRITERS:
        mode = mode_after(inst, wave.float_mode)
        return Lowered(variant_of("s_setreg", wave.isa, wave.lanes, flags=(("mode", mode),)))
    kinds: tuple[str, ...] = ()
    flags: tuple[tuple[str, int], ...] = ()
    target_register = None if name == "s_setpc_b64" else f.get("sdst", f.get("sdata"))
    slots = {} if target_register is None else {state.DST: wave.sgpr(target_register)}
    if "src0" in f and name != "s_getpc_b64":
        kind = "b64" if name.endswith("b64") and "bitset" not in name else "b32"
        how, slots[state.SRC0] = operand(wave, f["src0"], kind, inst.literal)
        kinds = (how,)
    elif name == "s_cmovk_i32":
        kinds, slots[state.SRC0] = ("k",), (f["simm16"] ^ 0x8000) - 0x8000 & 0xFFFFFFFF
    slots[state.OFFSET] = wave.entry + inst.next_pc
    target = None
    if "branch" in name or name == "s_call_b64":
        target = inst.next_pc + 4 * ((f["simm16"] ^ 0x8000) - 0x8000)
    elif name == "s_set_gpr_idx_on":
        flags = (("mode", f["src1"] & 15),)
    elif name == "s_getreg_b32":
        if f["simm16"] & 63 != _MODE_REGISTER:
            raise EmulatorError(f"{name} at +0x{inst.pc:x} reads another register than the mode")
        flags = (("register", f["simm16"]),)
    variant = variant_of(name, wave.isa, wave.lanes, kinds, dst="s", flags=flags)
    return Lowered(variant, slots, target)


def emitter_is_nothing(name: str) -> bool:
    return salu.CONTROL[name] is salu.nothing


def mode_after(inst: Instruction, mode: int) -> int:
    """How the mode register rounds and treats denormals behind an instruction.

    Raises:
        EmulatorError: the instruction writes what is not known before it runs, or other parts.
    """
    name, simm = inst.name, inst.fields.get("simm16", 0)
    if name == "s_round_mode":
        return _with_field(mode, _ROUNDING, 4, simm)
    if name == "s_denorm_mode":
        return _with_field(mode, _DENORMALS, 4, simm)
    if name not in salu.MODE_WRITERS or simm & 63 != _MODE_REGISTER:
        return mode
    first, width = simm >> 6 & 31, (simm >> 11 & 31) + 1
    if inst.literal is None or first + width > 8:
        raise EmulatorError(
            f"{name} at +0x{inst.pc:x} writes more of the mode than constants for rounding and "
            "denormals: no emulation"
        )
    return _with_field(mode, first, width, inst.literal)


def _with_field(word: int, first: int, width: int, value: int) -> int:
    mask = (1 << width) - 1 << first
    return word & ~mask | value << first & mask


def _modifiers(inst: Instruction) -> tuple[int, int]:
    """Which operands are negated, and of which the absolute value is taken."""
    neg, absolute = inst.fields.get("neg", 0), inst.fields.get("abs", 0)
    extra = inst.dpp or inst.sdwa
    if extra is not None:
        for i in range(2):
            neg |= extra.get(f"src{i}_neg", 0) << i
            absolute |= extra.get(f"src{i}_abs", 0) << i
    return neg, absolute


def _half_register(wave: Wave, inst: Instruction, code: int, kind: str) -> tuple[int, int]:
    """In short encodings bit 7 of a register for 16 bits may say its high half."""
    may_be_high = code & 128 and code >= VGPR and kind in _HALVES
    if may_be_high and wave.facts.split_registers and inst.format in ("VOP1", "VOP2", "VOPC"):
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
        seen_as = _constant_kind(name, kind)
        how, slots[state.SRC0 + i] = operand(wave, code, seen_as, inst.literal)
        kinds.append(how)
    dst, slots[state.DST], implicit = _vector_destination(wave, inst, op, name)
    opsel |= implicit << 3
    if name.startswith(_ACCUMULATE) and not op.packed:  # what is added to is the destination
        opsel = opsel & ~4 | opsel >> 1 & 4
    if op.sdst:
        # Without a field of its own the carry goes to VCC.
        slots[state.SDST] = wave.sgpr(f.get("sdst", state.VCC))
    if "accvgpr" in name:
        _accumulator_move(wave, inst, name, slots)
    flags = [("keeps_half", 1)] if inst.name in _KEEP_HALF else []
    flags += _mode_flags(wave, op, name)
    if op.packed:
        flags.append(("opsel_hi", f.get("opsel_hi", 3) | f.get("opsel_hi2", 1) << 2))
    if op.packed or name.startswith("v_dot2_f"):
        flags.append(("neg_hi", f.get("neg_hi", 0)))
    neg, absolute = _modifiers(inst)
    part = inst.sdwa if inst.sdwa and op.dst != "mask" else {}
    omod = f.get("omod", 0) | part.get("omod", 0)
    if name.startswith("v_bitop3"):  # a table of eight bits is where modifiers are
        flags.append(("table", omod << 6 | absolute << 3 | neg))
        neg = absolute = omod = 0
    clamp = f.get("clmp", 0) | part.get("clmp", 0)
    if clamp and op.saturate is None and op.dst not in ("f16", "f32", "f64", "mask"):
        raise UnknownInstruction(f"no semantics for {inst.name} with clamp at +0x{inst.pc:x}")
    variant = variant_of(
        name, wave.isa, wave.lanes, tuple(kinds), dst,
        neg=neg, abs=absolute, omod=omod, clamp=clamp,
        opsel=opsel, dpp=_frozen(inst.dpp), sdwa=_frozen(inst.sdwa), flags=tuple(flags),
    )  # fmt: skip
    return Lowered(variant, slots)


def _constant_kind(name: str, kind: str) -> str:
    """What a constant operand is: of pairs of halves a half, the other being zero."""
    if kind != "b32" or not name.startswith("v_dot2"):
        return kind
    return "bf16" if "_bf16" in name else "f16" if "_f16" in name else kind


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
    return Lowered(variant_of("v_dual", wave.isa, wave.lanes, parts=parts), slots)


def _swap_halves(wave: Wave, inst: Instruction) -> Lowered:
    f = inst.fields
    source, source_high = _half_register(wave, inst, f["src0"], "b16")
    target, target_high = _half_register(wave, inst, f["vdst"] + VGPR, "b16")
    opsel = source_high | target_high << 3
    slots = {state.SRC0: wave.vgpr(source - VGPR), state.DST: wave.vgpr(target - VGPR)}
    return Lowered(variant_of(inst.name, wave.isa, wave.lanes, ("v",), opsel=opsel), slots)


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
            kinds = ("v",)
    elif name == "v_swap_b16":
        return _swap_halves(wave, inst)
    else:
        scalar = name.startswith("v_read")
        slots = {state.DST: (wave.sgpr if scalar else wave.vgpr)(f["vdst"])}
        found = []
        count = 2 if name in ("v_readlane_b32", "v_writelane_b32") else 3
        for i, key in enumerate(k for k in ("src0", "src1", "src2")[:count] if k in f):
            how, slots[state.SRC0 + i] = operand(wave, f[key], "b32", inst.literal)
            found.append(how)
        kinds = tuple(found)
    opsel = f.get("opsel", 0) if name.startswith("v_permlane") else 0
    variant = variant_of(name, wave.isa, wave.lanes, kinds, opsel=opsel, flags=tuple(flags))
    return Lowered(variant, slots)
