"""The instruction sets: opcode numbers and field layouts as data, and what else they differ in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from amdjax import targets
from amdjax.targets import GpuTarget


@dataclass(frozen=True)
class Isa:
    """What decoding and semantics ask of an instruction set.

    Args:
      name: what the emulator calls it; part of a handler's identity.
      generation: of gfx numbers, 9 (CDNA) to 12 (RDNA4).
      table: the JSON file with its encodings.
      null: the scalar operand that reads as zero and drops what is written.
      accumulators: AGPRs come from the vector registers or are a second file of their own.
      packed_ids: the three ids of a work-item are ten bits each of v0, else v0, v1 and v2.
      float8: flavor of 8-bit floats.
    """

    name: str
    generation: int
    table: str
    null: int | None = None
    accumulators: Literal["none", "unified", "separate"] = "none"
    packed_ids: bool = True
    float8: Literal["none", "fnuz", "ocp"] = "none"

    @property
    def m0(self) -> int:
        """The number of M0 among scalar registers."""
        return 125 if self.generation >= 11 else 124

    @property
    def clears_half(self) -> bool:
        """A result of 16 bits clears the other half of its register; later sets keep it."""
        return self.generation == 9

    @property
    def split_registers(self) -> bool:
        """Bit 7 of a 16-bit operand in a short encoding says the high half of a register."""
        return self.generation >= 11

    @property
    def ids_in_trap_registers(self) -> bool:
        """Workgroup ids are in ttmp9 and ttmp7 rather than behind the user SGPRs."""
        return self.generation >= 12


ISAS = {
    isa.name: isa
    for isa in (
        Isa("cdna1", 9, "cdna1", accumulators="separate", packed_ids=False),
        Isa("cdna2", 9, "cdna2", accumulators="unified"),
        Isa("cdna3", 9, "cdna3", accumulators="unified", float8="fnuz"),
        Isa("cdna4", 9, "cdna3", accumulators="unified", float8="ocp"),
        Isa("rdna2", 10, "rdna2", null=125, packed_ids=False),
        Isa("rdna3", 11, "rdna3", null=124),
        Isa("rdna4", 12, "rdna4", null=124, float8="ocp"),
    )
}


@cache
def machines() -> dict[int, GpuTarget]:
    """Targets with an emulation, by their numbers in the low byte of `e_flags`."""
    return {t.elf_machine: t for t in map(targets.get, targets.names()) if t.isa}


def is_emulated(name: str) -> bool:
    """Whether there is an emulation of a target."""
    return any(name == target.name for target in machines().values())


def check_emulated(name: str) -> None:
    """Raise `ValueError` for a target without emulation."""
    if not is_emulated(name):
        known = ", ".join(target.name for target in machines().values())
        raise ValueError(f"{name} is not emulated; these are: {known}.")
