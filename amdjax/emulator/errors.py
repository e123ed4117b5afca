"""What the emulator finds wrong with a kernel."""

from __future__ import annotations

from dataclasses import dataclass


class EmulatorError(RuntimeError):
    """A kernel cannot be run, or did what hardware would not survive."""


class UnknownInstruction(EmulatorError):
    """Machine code that no table knows, or a mnemonic without semantics yet."""


@dataclass(frozen=True)
class Place:
    """Where a kernel was when it went wrong.

    Attributes:
        kernel: its name.
        instruction: the instruction as text.
        pc: bytes from the kernel's entry.
        source: the line the instruction was made from, where the code object says so.
        origin: the functions that were inlined there, in words; of code that we compile the user's
            operation and line.
        workgroup: ids in x, y, z.
        wave: number of the wave in its workgroup.
        lane: -1 where no single lane is to blame.
    """

    kernel: str
    instruction: str
    pc: int
    source: str = ""
    origin: str = ""
    workgroup: tuple[int, int, int] = (0, 0, 0)
    wave: int = 0
    lane: int = -1

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        source += f", from {self.origin}" if self.origin else ""
        lane = f", lane {self.lane}" if self.lane >= 0 else ""
        return (
            f"kernel {self.kernel}, {self.instruction} at +0x{self.pc:x}{source}, "
            f"workgroup {self.workgroup}, wave {self.wave}{lane}"
        )


class KernelFault(EmulatorError):
    """A kernel did something wrong; `place` says where.

    Args:
        what: the fault in words.
        place: where.
    """

    def __init__(self, what: str, place: Place) -> None:
        super().__init__(f"{what}: {place}")
        self.place = place
        self.kernel, self.instruction, self.pc = place.kernel, place.instruction, place.pc
        self.source, self.origin = place.source, place.origin
        self.workgroup = place.workgroup
        self.wave, self.lane = place.wave, place.lane


class MemoryFault(KernelFault):
    """An access outside every allocation, or one that is not aligned.

    `address` is an offset where the memory is LDS or scratch.
    """

    def __init__(self, what: str, place: Place, address: int) -> None:
        super().__init__(f"{what} 0x{address:x}", place)
        self.address = address


class UninitializedRead(MemoryFault):
    """A read of memory that was not written."""


class DataRace(MemoryFault):
    """Two waves accessed the same bytes, one of them writing, without a barrier between."""


class MissingWait(KernelFault):
    """A register was used before the load into it was waited for.

    Or a barrier was reached with stores to LDS under way.
    """


class DivergentBarrier(KernelFault):
    """Waves of one workgroup wait at different barriers, some more often than others."""
