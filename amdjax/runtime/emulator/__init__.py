"""Executes AMDGPU code objects on the CPU, from machine code and kernel descriptor alone.

`CodeObject` reads a linked code object, `launch` runs one of its kernels over a grid. Machine code
is decoded by tables (`decode`, `isa/`); every instruction becomes a record that holds the address
of a native handler and the places of its operands. Handlers are LLVM code for one operation in one
operand form over all lanes of a wave, written once in the semantics tables (`alu`, `salu`,
`memory_ops`, …), compiled when first met and kept in the compile cache, so that a new kernel costs
decoding only. A native driver runs workgroups, every wave from barrier to barrier.

What is exact: integers; IEEE add, mul, fma, sqrt in f64, conversions, rounding; min and max; MFMA
and WMMA on integers. Approximate instructions (rcp, rsq, sqrt, exp, log, sin, cos) are computed in
double and rounded, which is within what hardware promises but need not equal its last bit. NaN
payloads are not tracked. Rounding is to nearest; f32 denormals are kept or flushed as the kernel
descriptor says, and a kernel that changes the mode is refused. Waiting and caches need nothing:
instructions run in order, and waves of a workgroup one after the other between barriers.

A new instruction is an entry in a semantics table; a new machine is a decode table in `isa/`, an
entry of `code_object._MACHINES` and what its encodings do differently in `lower`.
"""

from amdjax.runtime.emulator.checks import Checks
from amdjax.runtime.emulator.code_object import CodeObject, Kernel
from amdjax.runtime.emulator.counters import Counters, recording, table
from amdjax.runtime.emulator.errors import (
    DataRace,
    DivergentBarrier,
    EmulatorError,
    KernelFault,
    MemoryFault,
    MissingWait,
    Place,
    UninitialisedRead,
    UnknownInstruction,
)
from amdjax.runtime.emulator.machine import launch
from amdjax.runtime.emulator.memory import Memory

__all__ = [
    "Checks",
    "CodeObject",
    "Counters",
    "DataRace",
    "DivergentBarrier",
    "EmulatorError",
    "Kernel",
    "KernelFault",
    "Memory",
    "MemoryFault",
    "MissingWait",
    "Place",
    "UninitialisedRead",
    "UnknownInstruction",
    "launch",
    "recording",
    "table",
]
