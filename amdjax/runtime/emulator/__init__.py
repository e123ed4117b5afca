"""Executes AMDGPU code objects on the CPU, from machine code and kernel descriptor alone.

`CodeObject` reads a linked code object, `launch` runs one of its kernels over a grid. Machine code
is decoded by tables (`decode`, `isa/`); every instruction becomes a record that holds the address
of a native handler and the places of its operands. Handlers are LLVM code for one operation in one
operand form over all lanes of a wave, written once in the semantics tables (`alu`, `salu`,
`memory_ops`, …), compiled when first met and kept in the compile cache, so that a new kernel costs
decoding only.
"""

from amdjax.runtime.emulator.code_object import CodeObject, Kernel
from amdjax.runtime.emulator.errors import EmulatorError, MemoryFault, UnknownInstruction
from amdjax.runtime.emulator.machine import Counters, launch
from amdjax.runtime.emulator.memory import Memory

__all__ = [
    "CodeObject",
    "Counters",
    "EmulatorError",
    "Kernel",
    "Memory",
    "MemoryFault",
    "UnknownInstruction",
    "launch",
]
