"""Passes from tile program to tile program, which writers of machine code run in front.

A pass is a function of a kernel that returns another one; its name is that of the function. With
`AMDJAX_CHECK=1` kernels are verified before the first and after each that changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amdjax.core.config import config
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.accesses import annotate_accesses
from amdjax.tile.passes.divisions import annotate_divisions
from amdjax.tile.passes.gathers import join_gathers
from amdjax.tile.passes.masked_selects import fold_masked_selects
from amdjax.tile.passes.positions import mark_positional_comparisons
from amdjax.tile.passes.prefetches import place_prefetches
from amdjax.tile.passes.ranges import clamp_conversions, narrow_offsets
from amdjax.tile.passes.reductions import annotate_reductions
from amdjax.tile.verifier import verify

__all__ = [
    "Pass", "annotate_accesses", "annotate_divisions", "annotate_reductions", "clamp_conversions",
    "fold_masked_selects",
    "join_gathers", "mark_positional_comparisons", "narrow_offsets", "place_prefetches", "run",
]  # fmt: skip

Pass = Callable[[Kernel], Kernel]


def run(
    kernel: Kernel,
    passes: Sequence[Pass],
    observe: Callable[[str, Kernel], None] = lambda name, kernel: None,
) -> Kernel:
    """The kernel after some passes.

    Args:
      kernel: the program.
      passes: what to run, in order.
      observe: receives the name of each pass and the kernel behind it.

    Returns:
      The last kernel.

    Raises:
      TileError: with checks on, a kernel breaks a rule of the IR.
    """
    if config.check:
        verify(kernel)
    for step in passes:
        before, kernel = kernel, step(kernel)
        if config.check and kernel is not before:
            verify(kernel)
        observe(step.__name__, kernel)
    return kernel
