"""Which registers an instruction reads and writes.

Registers are bits of an integer: scalar registers by operand number, vector registers from 128 on,
accumulators behind the others, as in a wave's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from amdjax.emulator import state
from amdjax.emulator.alu import matrix, salu, valu, valu_float
from amdjax.emulator.builder import OPERAND_TYPES, Operation, Variant
from amdjax.emulator.isa import ISAS, access
from amdjax.emulator.memory import buffer_memory
from amdjax.emulator.records import Lowered, Wave

FIRST_VECTOR = 128


@dataclass(frozen=True)
class Footprint:
    """Slots that hold registers, each with how many of them the instruction reads or writes."""

    reads: tuple[tuple[int, int], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()

    def moved(self, base: int) -> Footprint:
        """With slots counted from `base` on."""
        return Footprint(
            tuple((s + base, n) for s, n in self.reads),
            tuple((s + base, n) for s, n in self.writes),
        )

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(self.reads + other.reads, self.writes + other.writes)


def registers(wave: Wave, lowered: Lowered) -> tuple[int, int]:
    """Registers read and registers written, as sets of bits."""
    footprint = footprint_of(lowered.variant)
    return tuple(
        _bits(wave, lowered.slots, places) for places in (footprint.reads, footprint.writes)
    )  # type: ignore[return-value]


def _bits(wave: Wave, slots: dict[int, int], places: tuple[tuple[int, int], ...]) -> int:
    found = 0
    for slot, count in places:
        offset = slots.get(slot, 0)
        if offset >= state.VGPRS:
            first = FIRST_VECTOR + (offset - state.VGPRS) // wave.stride
        elif offset >= state.SGPRS:
            first = (offset - state.SGPRS) // 4
        else:
            continue
        found |= ((1 << count) - 1) << first
    return found


def register_name(wave: Wave, bit: int) -> str:
    """How assembly writes the register."""
    if bit < FIRST_VECTOR:
        special = {state.VCC: "vcc", state.EXEC: "exec", ISAS[wave.isa].m0: "m0"}
        return special.get(bit, f"s{bit}")
    number = bit - FIRST_VECTOR
    if ISAS[wave.isa].accumulators != "none" and number >= wave.accumulators:
        return f"a{number - wave.accumulators}"
    return f"v{number}"


@cache
def footprint_of(variant: Variant) -> Footprint:
    """The slots of a variant's records that hold registers."""
    if variant.parts:
        first, second = (footprint_of(part) for part in variant.parts)
        return first + second.moved(state.SECOND)
    name = variant.name
    if name in salu.CONTROL:
        return _control(variant)
    if (shape := matrix.shape_of(name, variant.isa)) is not None:
        return _matrix(variant, shape)
    if (op := valu.OPERATIONS.get(name) or salu.OPERATIONS.get(name)) is not None:
        return _computed(variant, op)
    if (what := access.access_of(name)) is not None and name not in _CROSS_LANE:
        return _scalar_load(variant, what) if what.kind == "scalar" else _memory(variant, what)
    return _crosslane(variant)


_CROSS_LANE = ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32")


def _sources(variant: Variant, counts: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (state.SRC0 + i, count)
        for i, (how, count) in enumerate(zip(variant.sources, counts))
        if how in "vs"
    )


def _computed(variant: Variant, op: Operation) -> Footprint:
    # Mixed operations are packed in form only: their operands are single registers.
    pairs = op.packed and variant.name not in valu_float.MIXED

    def width(kind: str) -> int:
        if kind == "mask":
            return variant.lanes // 32
        bits = OPERAND_TYPES[kind].bits
        return 2 if bits == 64 or (pairs and bits == 32) else 1

    reads = _sources(variant, [width(kind) for kind in op.sources])
    writes = [] if op.dst == "-" else [(state.DST, width(op.dst))]
    if op.sdst:
        writes.append((state.SDST, variant.lanes // 32))
    return Footprint(reads, tuple(writes))


def _control(variant: Variant) -> Footprint:
    count = 2 if variant.name.endswith("b64") else 1
    reads = _sources(variant, [1 if "bitset" in variant.name else count])
    return Footprint(reads, ((state.DST, count),))


def _matrix(variant: Variant, shape: matrix.Shape) -> Footprint:
    operands = [shape.registers(name) for name in (shape.a, shape.b)]
    total = shape.accumulator_registers(variant.lanes)
    return Footprint(_sources(variant, [*operands, total]), ((state.DST, total),))


def _scalar_load(variant: Variant, what: access.Access) -> Footprint:
    extra = ((state.SRC0 + 1, 1),) if variant.flag("soffset") else ()
    return Footprint(((state.SRC0, 2), *extra), ((state.DST, what.dwords),))


def _memory(variant: Variant, what: access.Access) -> Footprint:
    reads: list[tuple[int, int]] = []
    if what.space == "lds":
        reads.append((state.SRC0, 1))
    elif what.space == "buffer":
        reads += [(state.SRC0, 1)] * variant.flag("vaddr")
        reads += [(buffer_memory.RESOURCE, 4)]
        reads += [(buffer_memory.SCALAR_OFFSET, 1)] * variant.flag("soffset")
    elif what.space == "scratch":
        reads += [(state.SRC0, 1)] * variant.flag("vaddr")
        reads += [(state.SRC0 + 2, 1)] * variant.flag("saddr")
    elif variant.flag("saddr"):
        reads += [(state.SRC0, 1), (state.SRC0 + 2, 2)]
    else:
        reads.append((state.SRC0, 2))
    writes: list[tuple[int, int]] = []
    if what.to_lds:
        return Footprint(tuple(reads))
    if what.kind == "load":
        writes.append((state.DST, what.dwords * what.count))
    else:
        compares = what.operation == "cmpxchg"
        wide = 2 if compares and what.space != "lds" else 1
        reads.append((state.SRC0 + 1, what.dwords * wide))
        if what.space == "lds" and (compares or what.count == 2):
            reads.append((state.SRC0 + 2, what.dwords))
        if variant.flag("returns"):
            writes.append((state.DST, what.dwords))
    return Footprint(tuple(reads), tuple(writes))


def _crosslane(variant: Variant) -> Footprint:
    reads = _sources(variant, [1] * len(variant.sources))
    if variant.name in ("v_swap_b16", "v_swap_b32"):
        both = (*reads, (state.DST, 1))
        return Footprint(both, both)
    return Footprint(reads, ((state.DST, 1),))
