"""What lowering makes of an instruction, and where its operands lie."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property

from amdjax.emulator import state
from amdjax.emulator.builder import OPERAND_TYPES, Variant
from amdjax.emulator.errors import EmulatorError
from amdjax.emulator.isa import ISAS, Isa
from amdjax.emulator.isa.decode import LITERAL, VGPR

_INLINE_FLOATS = dict(zip(range(240, 248), (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)))
# 1/(2 pi) as the hardware has it.
_INVERSE_TWO_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
_SPECIAL = {251: "vccz", 252: "execz", 253: "scc"}
_APERTURES = {235: state.SHARED_APERTURE << 32, 236: (state.SHARED_APERTURE << 32) + 0xFFFFFFFF,
              237: state.PRIVATE_APERTURE << 32,
              238: (state.PRIVATE_APERTURE << 32) + 0xFFFFFFFF}  # fmt: skip


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
    float_mode: int = 0xF0  # rounding and denormals, as the mode register has them

    @cached_property
    def facts(self) -> Isa:
        return ISAS[self.isa]

    @cached_property
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
