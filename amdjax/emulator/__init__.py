"""Executes AMDGPU code objects on the CPU, from machine code and kernel descriptor alone.

`CodeObject` reads a linked code object, `launch` runs one of its kernels over a grid. Machine code
is decoded by tables (`decode`, `isa/`); every instruction becomes a record that holds the address
of a native handler and the places of its operands (`lower`, `records`, `program`). Handlers are
LLVM code for one operation in one operand form over all lanes of a wave (`write`), made from the
semantics tables (`alu/`, `memory/`) when first met and kept
in the compile cache, so that a new kernel costs decoding only. A native driver (`driver`) runs
workgroups, every wave from barrier to barrier.

What is exact: integers; IEEE add, mul, fma, sqrt in f64, conversions, rounding; min and max; MFMA
and WMMA on integers. Approximate instructions (rcp, rsq, sqrt, exp, log, sin, cos) are computed in
double and rounded, which is within what hardware promises but need not equal its last bit. NaN
payloads are not tracked. Rounding and denormals are as the kernel descriptor says, and as code that
sets the mode register to constants; the host's own rounding is set for that.

It is a sanitizer (`checks` lists what it looks for): addresses are checked against the allocations
of a `Memory`, reads against the shadow of what was written (`shadow`, `write_log`), which also says
which wave wrote it since the last barrier. Instructions run in order, so a missing wait does no
harm here; it is found by following outstanding loads over the control flow (`waits`), once for each
kernel and for all of its paths, and raised where execution reaches it. Stores that a barrier finds
outstanding stay their wave's own, where its workgroup may have several caches: others race with it.

It is a profiler: `launch` returns `Counters`; within `recording()` memory traffic and bank
conflicts are counted too (`statistics`), and `table` shows what was recorded,
`operations_table` by the operations of the user's program that instructions were made from, which
code objects may say in their debug information (`debug/`).

It is a model of time: within `debug.timing.tracing()` one workgroup of a launch is traced, which
`debug.replay.estimate` replays with the latencies and rates of the target (`targets.timing`).

A new instruction is an entry in a semantics table; a new instruction set is a decode
table in `isa/`, an entry of `isa.ISAS`, and what its encodings do differently in `lower`; targets
say which one is theirs.
"""

from amdjax.emulator.checks import Checks
from amdjax.emulator.code_object import CodeObject, Kernel
from amdjax.emulator.debug.counters import Counters, operations_table, recording, table
from amdjax.emulator.errors import (
    DataRace,
    DivergentBarrier,
    EmulatorError,
    KernelFault,
    MemoryFault,
    MissingWait,
    Place,
    UninitializedRead,
    UnknownInstruction,
)
from amdjax.emulator.machine import launch
from amdjax.emulator.memory.allocations import Memory

__all__ = [
    "Checks", "CodeObject", "Counters", "DataRace", "DivergentBarrier", "EmulatorError", "Kernel",
    "KernelFault", "Memory", "MemoryFault", "MissingWait", "Place", "UninitializedRead",
    "UnknownInstruction", "launch", "operations_table", "recording", "table",
]  # fmt: skip
