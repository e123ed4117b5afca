"""Tile programs as LLVM IR for CPUs.

A kernel becomes `void name(ptr args, i64 begin, i64 end, i64 worker)`: `args` points to one word a
parameter (an address, or the number itself for a `size`), and the programs `begin..end` of the grid
run one after the other. The word before the parameters is the address of the call's watch, or 0
(`control.py`). What writes an operation is a function of `CpuEmitter` and the operation;
each module named in `LOWERINGS` has those of one subject.
"""

from __future__ import annotations

from amdjax import tile
from amdjax.codegen.compile_worker import NO_STRENGTH_REDUCTION, ROTATED, RUNS_ONCE
from amdjax.codegen.cpu import amx, control, elementwise, memory, product, reduce, shape
from amdjax.codegen.cpu.emitter import CpuEmitter
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.llvm import I64, PTR, Module, Value
from amdjax.tile import ops, passes
from amdjax.tile.passes import (
    clamp_conversions,
    join_gathers,
    mark_positional_comparisons,
    narrow_offsets,
    place_prefetches,
)

KERNEL_ATTRIBUTES = (
    'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "no-trapping-math"="true"'
)
#: Bytes of scratch, which lies on the stack: threads have 8 MiB of it.
SCRATCH_LIMIT = 6 << 20
#: What is found out of a kernel, and put into it, before it is written.
PASSES = (
    place_prefetches,
    mark_positional_comparisons,
    clamp_conversions,
    join_gathers,
    narrow_offsets,
)

LOWERINGS = Lowerings(
    control.LOWERINGS,
    elementwise.LOWERINGS,
    memory.LOWERINGS,
    product.LOWERINGS,
    reduce.LOWERINGS,
    shape.LOWERINGS,
)


def emit_kernel(module: Module, kernel: tile.Kernel, name: str | None = None) -> None:
    """Write the function of one kernel into `module`.

    Raises:
      ValueError: the kernel has more scratch than a thread's stack has room for.
    """
    wanted = sum(s.size * tile.itemsize(s.dtype) for s in kernel.scratch)
    if wanted > SCRATCH_LIMIT:
        raise ValueError(
            f"kernel {kernel.name}: {wanted} bytes of scratch; the stack of a thread has room for "
            f"{SCRATCH_LIMIT}"
        )
    arguments = [("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)]
    attributes = KERNEL_ATTRIBUTES
    if kernel.has_micro_kernel:
        # Its addresses are moved once a round as they are written: reducing their strength changes
        # nothing that can be measured, and takes a third of the time to compile.
        attributes = f"{attributes} {NO_STRENGTH_REDUCTION}"
    if not kernel.has(ops.While):
        attributes = f"{attributes} {ROTATED}"
    if kernel.runs_once:
        attributes = f"{attributes} {RUNS_ONCE}"
    f = module.function(name or kernel.name, arguments, attributes=attributes)
    kernel = passes.run(kernel, PASSES)
    c = CpuEmitter(f, kernel, LOWERINGS)
    on_amx = kernel.has(ops.AmxProduct)
    if on_amx:
        amx.configure(f)

    def program(number: Value) -> None:
        c.program = number
        c.block(kernel.body)

    control.program_loop(f, kernel, program)
    if on_amx:
        amx.release(f)
    if c.streams is not None:
        f.emit("fence seq_cst")  # streaming stores are ordered with nothing else
    f.ret()
