"""How long a GPU takes for what: the constants of the timing model (`emulator.debug.timing`).

All in clocks of the engine at its peak, and bytes. What is published, with its source in brackets:

- [isa] AMD's instruction set guides and architecture papers ("GCN", "CDNA", "CDNA 2", "CDNA 3",
  "CDNA 4", "RDNA" white papers): a SIMD of CDNA takes four clocks for a wave of 64, one of RDNA one
  for a wave of 32; transcendental functions run at a quarter of the rate; LDS serves 128 bytes a
  clock to a CU; sizes and widths of caches. Rates of matrix and f64 instructions are those of
  `GpuTarget.matrix_rate` and `f64_rate`, which are peaks divided by CUs and clock.
- [llvm] LLVM's scheduling model (llvm/lib/Target/AMDGPU/SISchedule.td): passes of MFMA; on RDNA
  latencies of 5 (arithmetic), 10 (transcendental), 8 (32-bit multiplication), 2 (scalar).
- [mt4g] Reports of the public tool mt4g, whose pointer chases on MI100, MI210 and MI300X found L1
  136, 120, 116; L2 344, 309, 288; behind L2 on MI300X 497; memory 703, -, 900; LDS 50, -, 51;
  scalar cache 48, behind it 155, 132, 124 more. MI300X reads 15.4 TB/s from L2, 5.8 from Infinity
  Cache, 4.0 from memory.
- [stream] BabelStream's copy on MI300X: 4.11 TB/s ("Azure AI benchmarking guide").
- [rdna3] A published pointer chase on a RX 7900 XT: 26 ns in the vector cache, 40 in L1, 70 in L2,
  161 in Infinity Cache; "Chips and Cheese" has 150 for the last.
- [rocprof] ROCm Compute Profiler's peaks: 64 bytes a clock of L1 to a CU, 128 from MI300 on.

Everything else is assumed, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from amdjax.targets.gpu import GpuTarget


@dataclass(frozen=True, slots=True)
class Level:
    """What is behind the first-level caches, the nearest first.

    Args:
      name: for people.
      latency: clocks from a load's issue until its result can be used.
      rate: bytes that a CU gets in a clock while all of them ask; 0 where the device's bandwidth
        says so.
      nbytes: of all its parts together; 0 has no end.
      parts: how many of it the device has, each for some of the CUs.
      keeps: it holds what the kernel before left in it.
    """

    name: str
    latency: int
    rate: float
    nbytes: int = 0
    parts: int = 1
    keeps: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """The constants of one instruction set and the products that have it.

    Args:
      issue: clocks from one instruction of a wave to its next, and of a class on a SIMD.
      arithmetic: clocks until a vector result can be used.
      transcendental, multiply: likewise of these, at a quarter of the rate; on RDNA transcendental
        functions have a unit of their own.
      double: likewise of f64, whose rate the target says, if that is less.
      scalar: likewise of scalar arithmetic.
      matrix_results: elements of D that a matrix unit makes in a clock at most; 0: any number.
      matrix_extra: clocks from the end of a matrix instruction until others may use its result.
      branch: clocks from a branch to what comes next.
      barrier: clocks from the last wave's arrival until waves go on.
      lds: clocks from a load of one cycle in LDS to its result.
      constant: likewise from the scalar cache; what is not there takes `constant_miss` more.
      l1: likewise from the first-level cache.
      l1_bytes, l1_line, l1_rate: its size, its line, and bytes a clock.
      levels: what is behind.
      efficiency: share of the device's bandwidth that a copy gets.
    """

    issue: int
    arithmetic: int
    transcendental: int
    multiply: int
    double: int
    scalar: int
    matrix_results: int
    matrix_extra: int
    branch: int
    barrier: int
    lds: int
    constant: int
    constant_miss: int
    l1: int
    l1_bytes: int
    l1_line: int
    l1_rate: int
    levels: tuple[Level, ...]
    efficiency: float


_MIB = 1 << 20

# [isa] [llvm] Dependent instructions of a wave follow each other; a result of MFMA waits for three
# passes more than its own. [mt4g] `barrier` is assumed.
_CDNA1 = Timing(
    issue=4, arithmetic=4, transcendental=16, multiply=16, double=4, scalar=4, matrix_results=16,
    matrix_extra=12, branch=8, barrier=16, lds=50, constant=48,
    constant_miss=155, l1=136, l1_bytes=16 << 10, l1_line=64, l1_rate=64,
    # 32 channels of 128 bytes a clock [isa]; what MI100 was measured to get is far less.
    levels=(Level("L2", 344, 4096 / 120, 8 * _MIB), Level("HBM", 703, 0)),
    efficiency=0.8,
)  # fmt: skip
_CDNA2 = replace(
    _CDNA1, constant_miss=132, l1=120,
    # HBM's latency is assumed to be that of MI100 in nanoseconds.
    levels=(Level("L2", 309, 4096 / 104, 8 * _MIB), Level("HBM", 790, 0)),
    efficiency=0.85,
)  # fmt: skip
_CDNA3 = replace(
    _CDNA2, matrix_results=32, lds=51, constant_miss=124, l1=116, l1_bytes=32 << 10,
    l1_line=128, l1_rate=128,
    levels=(
        Level("L2", 288, 15.4e12 / 2.1e9 / 304, 32 * _MIB, parts=8, keeps=False),
        Level("Infinity Cache", 497, 5.8e12 / 2.1e9 / 304, 256 * _MIB),
        Level("HBM", 900, 0),
    ),
    efficiency=4.11 / 5.3,
)  # fmt: skip
# Transcendental functions are twice as fast [isa]. Latencies in clocks are assumed to be those of
# MI300X, as are L2's bytes a clock and the share of the bandwidth; Infinity Cache a fifth faster.
_CDNA4 = replace(
    _CDNA3,
    transcendental=8,
    levels=(
        replace(_CDNA3.levels[0], rate=24.1),
        replace(_CDNA3.levels[1], rate=12.0),
        _CDNA3.levels[2],
    ),
)  # fmt: skip
# [llvm] [rdna3] at 2.5 GHz. LDS, the scalar cache, memory (100 ns behind Infinity Cache), the
# widths of L2 and Infinity Cache and `barrier` are assumed.
_RDNA3 = Timing(
    issue=1, arithmetic=5, transcendental=10, multiply=8, double=38, scalar=2, matrix_results=0,
    matrix_extra=5, branch=32, barrier=16, lds=60, constant=38,
    constant_miss=100, l1=66, l1_bytes=32 << 10, l1_line=128, l1_rate=128,
    levels=(
        Level("L2", 175, 3072 / 96, 6 * _MIB),
        Level("Infinity Cache", 400, 3.0e12 / 2.5e9 / 96, 96 * _MIB),
        Level("GDDR6", 650, 0),
    ),
    efficiency=0.9,
)  # fmt: skip
# As many nanoseconds as RDNA3, which is assumed; widths [isa]: 16 channels of 64 bytes each.
_RDNA2 = replace(
    _RDNA3, double=22, constant=34, l1=60, l1_bytes=16 << 10,
    levels=(
        Level("L2", 158, 2048 / 80, 4 * _MIB),
        Level("Infinity Cache", 360, 1.94e12 / 2.25e9 / 80, 128 * _MIB),
        Level("GDDR6", 585, 0),
    ),
)  # fmt: skip
# As many nanoseconds as RDNA3, and the widths: all assumed.
_RDNA4 = replace(
    _RDNA3, constant=45, l1=78,
    levels=(
        Level("L2", 208, 2048 / 64, 8 * _MIB),
        Level("Infinity Cache", 475, 2.5e12 / 2.97e9 / 64, 64 * _MIB),
        Level("GDDR6", 770, 0),
    ),
)  # fmt: skip

_BY_ISA = {
    "cdna1": _CDNA1, "cdna2": _CDNA2, "cdna3": _CDNA3, "cdna4": _CDNA4, "rdna2": _RDNA2,
    "rdna3": _RDNA3, "rdna4": _RDNA4,
}  # fmt: skip


def timing_of(target: GpuTarget) -> Timing:
    """The constants of a target that can be emulated; siblings have those of the largest chip.

    >>> from amdjax.targets import get
    >>> timing_of(get("gfx942")).issue, timing_of(get("gfx1100")).issue
    (4, 1)

    Raises:
      ValueError: there are none, as for GPUs that are not AMD's.
    """
    if target.isa not in _BY_ISA:
        raise ValueError(f"no timing is known of {target.name}")
    return _BY_ISA[target.isa]


def memory_rate(target: GpuTarget) -> float:
    """Bytes that each CU gets from memory in a clock while all of them copy."""
    device = target.device
    peak = device.bandwidth * 1e9 / (device.clock * 1e6) / device.compute_units
    return peak * timing_of(target).efficiency


def left_rate(target: GpuTarget, nbytes: int) -> float:
    """Bytes that a device reads or writes in a clock, of so many that a kernel left or leaves."""
    for level in timing_of(target).levels:
        if level.rate and level.keeps and nbytes <= level.nbytes:
            return level.rate * target.compute_units
    return memory_rate(target) * target.compute_units


def simds_of_cu(target: GpuTarget) -> int:
    """SIMDs of a CU; those of RDNA share LDS with as many of another one."""
    return target.simds if target.wave_size == 64 else target.simds // 2


def matrix_clocks(
    target: GpuTarget, operand: str, shape: tuple[int, int, int], blocks: int = 1
) -> int:
    """Clocks for which a matrix instruction keeps the matrix unit of its SIMD.

    Args:
      operand: dtype, as in `GpuTarget.matrix_rate`.
      shape: m, n and k of a block.
      blocks: independent products that it does.

    An MFMA takes at least as long as its results do, whence older forms gain nothing on newer
    machines [llvm].

    >>> from amdjax.targets import get
    >>> matrix_clocks(get("gfx942"), "f16", (32, 32, 8))
    32
    """
    m, n, k = shape
    clocks = 2 * m * n * k * blocks * simds_of_cu(target) / target.matrix_rate[operand]
    if results := timing_of(target).matrix_results:
        clocks = max(clocks, 8 if m == 4 else max(m * n * blocks, 512) / results)
    return round(clocks)


def double_clocks(target: GpuTarget) -> int:
    """Clocks for which an f64 instruction keeps its SIMD."""
    return round(2 * target.wave_size * simds_of_cu(target) / target.f64_rate)
