"""Tile programs as LLVM IR for GPUs: amdgcn and nvptx.

A program of the grid is a workgroup; `docs/gpu.md` says how tiles are spread over its threads.
What writes an operation is a function of `GpuEmitter` and the operation; each module named in
`LOWERINGS` has those of one subject. What is to be known of a kernel, `PASSES` have found out
before. What differs between targets is `isa`; barriers are placed by `barriers`.
"""

from __future__ import annotations

from amdjax import tile
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu import (
    atomics,
    control,
    elementwise,
    layout_conversion,
    memory,
    product,
    reduce,
    scan,
    scratch_product,
)
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.isa import isa_of
from amdjax.codegen.gpu.layout_conversion import moved
from amdjax.codegen.gpu.warpgroup_tiles import wait_for_copies
from amdjax.codegen.llvm import Module
from amdjax.targets import GpuTarget
from amdjax.tile import passes
from amdjax.tile.passes import (
    annotate_accesses,
    annotate_divisions,
    annotate_reductions,
    fold_masked_selects,
)

#: What is found out of a kernel before it is written.
PASSES = (fold_masked_selects, annotate_accesses, annotate_divisions, annotate_reductions)

LOWERINGS = Lowerings(
    atomics.LOWERINGS,
    control.LOWERINGS,
    elementwise.LOWERINGS,
    layout_conversion.LOWERINGS,
    memory.LOWERINGS,
    product.LOWERINGS,
    reduce.LOWERINGS,
    scan.LOWERINGS,
    scratch_product.LOWERINGS,
)


def kernel_ir(
    kernel: tile.Kernel,
    target: GpuTarget,
    *,
    index_bits: int | None = None,
    symbol: str = "kernel",
    debug: bool = True,
) -> str:
    """A tile program as a module of LLVM IR.

    Args:
      kernel: the program.
      target: the GPU.
      index_bits: 32 where every buffer is smaller than 2 GiB, or 64; the kernel's own by default.
      symbol: name of the function.
      debug: whether instructions say which line of `str(kernel)` they come from; AMD only.

    Returns:
      LLVM IR text, complete but for optimization.

    Raises:
      ValueError: the workgroup is not a power of two of whole waves that the target can run.
    """
    _check_workgroup(kernel, target)
    isa = isa_of(target)
    module = Module(target.triple, target.data_layout, isa.native, isa.estimates)
    bits = index_bits or kernel.schedule.index_bits
    written, kernel = kernel, passes.run(kernel, PASSES)
    emitter = GpuEmitter(module, kernel, isa, LOWERINGS, symbol, bits, moved, wait_for_copies)
    emitter.write(written if debug and target.is_amdgpu else None)
    return str(module)


def _check_workgroup(kernel: tile.Kernel, target: GpuTarget) -> None:
    n = kernel.schedule.workgroup or target.wave_size
    if n & (n - 1) or not target.wave_size <= n <= target.max_workgroup:
        raise ValueError(
            f"workgroup of {n} threads: {target.name} runs powers of two from {target.wave_size} "
            f"to {target.max_workgroup}"
        )
