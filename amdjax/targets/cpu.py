"""The CPU as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass

AMX_ROWS = 16  # of a register of the matrix unit
AMX_ROW_BYTES = 64  # 16 accumulators, or what one step takes of a row of the left operand


@dataclass(frozen=True)
class CpuTarget:
    """What a schedule depends on.

    Args:
      vector_bits: width of a vector register.
      threads: threads that run a kernel.
      l1_bytes: data cache of one core.
      l2_bytes: second-level cache of one core.
      dot_dtypes: of what one instruction sums the products in each 32-bit lane.
      matrix_dtypes: what a matrix unit multiplies that this process may use.
    """

    vector_bits: int = 256
    threads: int = 1
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    dot_dtypes: tuple[str, ...] = ()
    matrix_dtypes: tuple[str, ...] = ()

    @property
    def vectors(self) -> CpuTarget:
        """The machine as one with vector registers and threads."""
        return self
