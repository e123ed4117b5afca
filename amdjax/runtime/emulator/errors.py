"""What the emulator finds wrong with a kernel."""

from __future__ import annotations


class EmulatorError(RuntimeError):
    """A kernel cannot be run, or did what hardware would not survive."""


class UnknownInstruction(EmulatorError):
    """Machine code that no table knows, or a mnemonic without semantics yet."""


class MemoryFault(EmulatorError):
    """An access outside every allocation, or one that is not aligned.

    Attributes say where: `kernel`, `instruction` (mnemonic), `pc` (bytes from the kernel's entry),
    `lane`, `address`.
    """

    def __init__(
        self, what: str, kernel: str, instruction: str, pc: int, lane: int, address: int
    ) -> None:
        super().__init__(
            f"{what}: kernel {kernel}, {instruction} at +0x{pc:x}, lane {lane}, "
            f"address 0x{address:x}"
        )
        self.kernel, self.instruction, self.pc = kernel, instruction, pc
        self.lane, self.address = lane, address
