"""Memory instructions to records."""

from __future__ import annotations

from amdjax.emulator import state
from amdjax.emulator.builder import variant_of
from amdjax.emulator.errors import UnknownInstruction
from amdjax.emulator.isa import access
from amdjax.emulator.isa.decode import Instruction
from amdjax.emulator.memory import buffer_memory
from amdjax.emulator.records import Lowered, Wave, operand


def lower_memory(wave: Wave, inst: Instruction, what: access.Access) -> Lowered:
    f = inst.fields
    if what.kind == "scalar":
        return _scalar_memory(wave, inst)
    if what.space == "buffer":
        return _buffer(wave, inst, what)
    if f.get("lds", 0):
        raise UnknownInstruction(f"no semantics for {inst.name} with lds")
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
        # Older scratch instructions have one of the two addresses.
        flags["vaddr"] = f["sve"] if "sve" in f else int(not has_saddr)
    if what.kind != "atomic":
        flags.pop("returns")
    if what.space != "scratch":
        flags.pop("vaddr", None)
    kept = tuple((k, v) for k, v in flags.items() if v)
    return Lowered(variant_of(inst.name, wave.isa, wave.lanes, flags=kept), slots)


def _buffer(wave: Wave, inst: Instruction, what: access.Access) -> Lowered:
    f = inst.fields
    if f["idxen"] or f.get("lds", 0) or f.get("tfe", 0):
        raise UnknownInstruction(f"no semantics for {inst.name} with an index, lds or tfe")
    data = wave.vgpr(f["vdata"], bool(f.get("acc", 0)))
    # The resource is named by its first register, in older sets in units of four.
    resource = f["srsrc"] if wave.facts.generation >= 12 else 4 * f["srsrc"]
    slots = {state.DST: data, state.SRC0: wave.vgpr(f["vaddr"]), state.SRC0 + 1: data,
             buffer_memory.RESOURCE: wave.sgpr(resource)}  # fmt: skip
    how, soffset = operand(wave, f["soffset"], "b32", None)
    slots[state.OFFSET] = f["offset"] + (soffset if how == "k" else 0)
    if how == "s":
        slots[buffer_memory.SCALAR_OFFSET] = soffset
    returns = f.get("sc0", 0) | f.get("glc", 0) | f.get("th", 0) & 1
    flags = {"vaddr": f["offen"], "soffset": how == "s",
             "returns": what.kind == "atomic" and returns}  # fmt: skip
    kept = tuple((k, 1) for k, v in flags.items() if v)
    return Lowered(variant_of(inst.name, wave.isa, wave.lanes, flags=kept), slots)


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
    return Lowered(variant_of(inst.name, wave.isa, wave.lanes, flags=flags), slots)
