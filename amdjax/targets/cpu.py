"""The CPU as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass

AMX_ROWS = 16  # of a register of the matrix unit
AMX_ROW_BYTES = 64  # 16 accumulators, or what one step takes of a row of the left operand


PARALLEL_FROM = 20_000.0  # nanoseconds on one thread from which waking others pays


@dataclass(frozen=True)
class CpuCosts:
    """What plans are reckoned with: cycles of a core, and bytes that a thread moves in a cycle.

    What depends on caches, registers and threads follows from the `CpuTarget`; this is what is
    left, for cores that begin two vector multiply-adds and two loads a cycle. Fitted to times of a
    thousand plans of 120 products and convolutions, on one thread of a Zen 5 core with vectors of
    512 bits; of the size that optimization guides of AMD and Intel publish for rates of caches.

    The clock only tells whether a kernel is worth waking other threads: plans are compared in
    cycles. It is a number for all machines of a kind, not measured, so that plans are always the
    same.

    Args:
      clock: cycles in a nanosecond.
      step: of a tile's step in depth, beside what keeps the units busy.
      latency: until a sum is there that the next step adds to.
      load: until a load of such a step is done, many of them at once.
      wide: of such a step, for each vector of a row beyond two.
      call: to begin a kernel.
      wake: until other threads have begun with a kernel.
      program: to begin a program that has scratch.
      tile: to begin and to store a tile of registers.
      copy: a vector from where elements lie side by side to where they do again.
      masked_copy: the same with comparisons of where its elements are with limits.
      gather: an element from somewhere.
      line, run: to begin a line, or a run of the innermost loop, that is copied.
      convert: a vector or a number to the dtype of sums.
      point, kernel_point: a vector of a point of Winograd's tiles, and of its transformed kernels,
        whose points lie far apart in the cache's sets.
      store: a row of a tile to a result whose rows share sets of the caches.
      aliased_row: until a row of a panel is there whose rows share sets of the caches.
      cache_rate: bytes from the second-level cache, many lines at once.
      stream_rate: bytes from beyond the first-level cache, side by side and prefetched.
      memory_rate: bytes from or to beyond the second-level cache, a panel at a time.
      panels_rate: the same, of several panels side by side that are read once.
      run_rate: bytes from beyond the second-level cache, in short runs that lie pages apart.
      far_rate: bytes from or to beyond all caches, in short runs.
    """

    clock: float = 4.0
    step: float = 0.3
    latency: float = 4.0
    load: float = 0.51
    wide: float = 0.6
    call: float = 800.0
    wake: float = 4000.0
    program: float = 1500.0
    tile: float = 60.0
    copy: float = 2.4
    masked_copy: float = 5.5
    gather: float = 1.8
    line: float = 12.0
    run: float = 300.0
    convert: float = 1.0
    point: float = 3.5
    kernel_point: float = 18.0
    store: float = 22.0
    aliased_row: float = 11.0
    cache_rate: float = 13.0
    stream_rate: float = 24.0
    memory_rate: float = 8.0
    panels_rate: float = 12.0
    run_rate: float = 5.0
    far_rate: float = 2.0


WIDE_VECTORS = CpuCosts()
#: Tiles as measured on a Zen 3 core with vectors of 256 bits, where an element that is multiplied
#: with a vector is spread over lanes by a load of its own.
NARROW_VECTORS = CpuCosts(clock=3.0, step=0.4, latency=4.15, load=0.62, wide=0.2)


@dataclass(frozen=True)
class CpuTarget:
    """What a schedule depends on.

    Args:
      vector_bits: width of a vector register.
      threads: threads that run a kernel.
      l1_bytes: data cache of one core.
      l2_bytes: second-level cache of one core.
      l3_bytes: last cache, which cores share.
      dot_dtypes: of what one instruction sums the products in each 32-bit lane.
      matrix_dtypes: what a matrix unit multiplies that this process may use.
    """

    vector_bits: int = 256
    threads: int = 1
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 16 << 20
    dot_dtypes: tuple[str, ...] = ()
    matrix_dtypes: tuple[str, ...] = ()

    @property
    def costs(self) -> CpuCosts:
        """What plans are reckoned with."""
        return WIDE_VECTORS if self.vector_bits >= 512 else NARROW_VECTORS

    @property
    def vectors(self) -> CpuTarget:
        """The machine as one with vector registers and threads."""
        return self
