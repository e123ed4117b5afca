"""Instructions as text, for messages."""

from __future__ import annotations

from amdjax.emulator import state
from amdjax.emulator.isa.decode import Instruction
from amdjax.emulator.operands import FIRST_VECTOR, footprint_of, register_name
from amdjax.emulator.records import Lowered, Wave


def instruction_text(wave: Wave, inst: Instruction, lowered: Lowered) -> str:
    """Mnemonic and operands, destinations first; modifiers of operands are left out."""
    variant, slots = lowered.variant, lowered.slots
    footprint = footprint_of(variant)
    shown = [_range(wave, slots[slot], n) for slot, n in footprint.writes if slot in slots]
    widths = dict(footprint.reads)
    for slot in sorted(widths.keys() | _constants(variant.sources)):
        if slot not in slots:
            continue
        known = slot in widths
        shown.append(_range(wave, slots[slot], widths[slot]) if known else _constant(slots[slot]))
    operands = ", ".join(x for x in shown if x)
    offset = slots.get(state.OFFSET, 0) if inst.format in _WITH_OFFSET else 0
    return f"{inst.name} {operands}".strip() + (f" offset:{offset}" if offset else "")


_WITH_OFFSET = ("SMEM", "DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF")


def _constants(sources: tuple[str, ...]) -> set[int]:
    return {state.SRC0 + i for i, how in enumerate(sources) if how == "k"}


def _constant(value: int) -> str:
    return str(value) if value < 256 else f"0x{value:x}"


def _range(wave: Wave, offset: int, count: int) -> str:
    """A register, or several: v3, s[4:7]."""
    if offset < state.SGPRS:
        return "null"
    if offset >= state.VGPRS:
        bit = FIRST_VECTOR + (offset - state.VGPRS) // wave.stride
    else:
        bit = (offset - state.SGPRS) // 4
    name = register_name(wave, bit)
    if count == 1 or not name[1:].isdigit():
        return name
    return f"{name[0]}[{name[1:]}:{int(name[1:]) + count - 1}]"
