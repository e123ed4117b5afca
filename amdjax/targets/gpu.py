"""A GPU as code generation, the schedule and the linker see it.

Sources of the figures in this folder: "User Guide for AMDGPU Backend" (LLVM), AMD's instruction set
architecture guides ("AMD Instinct MI100", "MI200", "MI300", "CDNA4", "RDNA2", "RDNA3", "RDNA4"),
the CDNA white papers, and ROCm's "GPU hardware specifications". The tests compile every matrix and
dot instruction listed and compare occupancy with what LLVM reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from amdjax.core.integers import ceil_div
from amdjax.targets.cpu import CpuTarget

AMDGPU_TRIPLE = "amdgcn-amd-amdhsa"
AMDGPU_DATA_LAYOUT = (
    "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32"
    "-p8:128:128:128:48-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256"
    "-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
)
NVPTX_TRIPLE = "nvptx64-nvidia-cuda"
NVPTX_DATA_LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"

#: Where the lanes of a wave hold the elements of a matrix; see `MatrixInstruction`.
Layout = Literal["mfma", "mfma_f64", "wmma_rdna3", "wmma_rdna4", "mma"]
Fp8 = Literal["none", "fnuz", "ocp"]


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """`D = A @ B + C` by one wave, as an LLVM intrinsic.

    Args:
      intrinsic: full name of the LLVM intrinsic; of the instruction, if LLVM has none for it.
      m, n, k: A is m x k, B is k x n, C and D are m x n.
      operand: dtype of A and B (`f32`, `f16`, `bf16`, `f64`, `xf32`, `i8`, `i4`, `fp8`, `bf8`).
      accumulator: dtype of C and D.
      operand_type: LLVM type of what a lane holds of A, and of B (`mma`: of each register of it).
      accumulator_type: LLVM type of what a lane holds of C and D.
      operand_elements: elements of A, and of B, in a lane (`mma`: of A).
      accumulator_elements: elements of C in a lane.
      arguments: the call's arguments; `a`, `b`, `c` stand for the operands, `signed` for the flag
        that A or B is signed, in this order.
      layout: which lane holds which element; see `operand_position`, `accumulator_position`.
      blocks: independent products done at once.
    """

    intrinsic: str
    m: int
    n: int
    k: int
    operand: str
    accumulator: str
    operand_type: str
    accumulator_type: str
    operand_elements: int
    accumulator_elements: int
    arguments: tuple[str, ...]
    layout: Layout
    blocks: int = 1

    @property
    def operand_registers(self) -> int:
        """32-bit registers a lane holds A, or B, in."""
        return _bits(self.operand_type) // 32

    @property
    def accumulator_registers(self) -> int:
        """32-bit registers a lane holds C in."""
        return _bits(self.accumulator_type) // 32

    @property
    def flops(self) -> int:
        """Multiplications and additions of one execution."""
        return 2 * self.m * self.n * self.k * self.blocks

    def call_arguments(
        self, a: str, b: str, c: str, signed: tuple[bool, bool] = (True, True)
    ) -> str:
        """The text between the parentheses of the call, for the names or constants of operands."""
        values = {
            "a": f"{self.operand_type} {a}",
            "b": f"{self.operand_type} {b}",
            "c": f"{self.accumulator_type} {c}",
        }
        flags = iter(signed)
        return ", ".join(
            f"i1 {str(next(flags)).lower()}" if x == "signed" else values.get(x, x)
            for x in self.arguments
        )

    def operand_position(self, lane: int, element: int) -> tuple[int, int]:
        """(row of A, or column of B; index along k) of an element that a lane holds.

        Rows of A and columns of B lie alike; in `mma` a lane holds one column of B, as it holds
        the first of its rows of A. For one block; instructions of several give each group of
        `m * k / elements` lanes its own.
        """
        if self.layout == "mma":
            width = max(32 // _bits(self.operand), 1)
            register, place = divmod(element, width)
            part, row = divmod(register, self.m // 8)
            return lane // 4 + 8 * row, (4 * part + lane % 4) * width + place
        if self.layout == "wmma_rdna3":  # lanes 16..31 repeat lanes 0..15
            return lane % self.m, element
        return lane % self.m, lane // self.m * self.operand_elements + element

    def accumulator_position(self, lane: int, element: int) -> tuple[int, int]:
        """(row, column) of an element of C and D that a lane holds; for one block."""
        if self.layout == "mma":
            return lane // 4 + element // 2 * 8, lane % 4 * 2 + element % 2
        column, group = lane % self.n, lane // self.n
        groups = self.m * self.n // self.accumulator_elements // self.n
        if self.layout in ("mfma_f64", "wmma_rdna3"):
            return element * groups + group, column
        if self.layout == "wmma_rdna4":
            return group * self.accumulator_elements + element, column
        # Four rows together, then those of the other groups of lanes.
        return element // 4 * 4 * groups + group * 4 + element % 4, column


def _bits(llvm_type: str) -> int:
    count, _, element = llvm_type.strip("<>").rpartition(" x ")
    names = {"half": 16, "bfloat": 16, "bf16": 16, "float": 32, "xf32": 32, "double": 64}
    width = names.get(element) or int(element[1:])
    return int(count or 1) * width


@dataclass(frozen=True, slots=True)
class DotInstruction:
    """`c + sum(a * b)` within a lane, as an LLVM intrinsic.

    Args:
      intrinsic: full name.
      operand: dtype of the elements of a and b.
      signed: signs of a and b; None where the call says (`sudot4`) or for floats.
      width: elements of a and b.
      result: dtype of the sum.
    """

    intrinsic: str
    operand: str
    signed: bool | None
    width: int
    result: str


@dataclass(frozen=True, slots=True)
class Device:
    """A product: what the schedule assumes when it compiles without the device at hand.

    Args:
      name: the product.
      compute_units: CUs that one HIP device has (a chiplet, where it appears as its own device).
      bandwidth: memory bandwidth in GB/s.
      clock: peak engine clock in MHz.
      memory: bytes of memory in GiB; 0 where it is the host's.
    """

    name: str
    compute_units: int
    bandwidth: int
    clock: int
    memory: int = 0


@dataclass(frozen=True, slots=True)
class GpuCosts:
    """What schedules reckon with: clocks of a compute unit (CU), and bytes.

    `lds_rate` is published ("AMD CDNA 3 Architecture"; "NVIDIA H100 Tensor Core GPU Architecture").
    The others were fitted on an H100, so that plans of products rank as they were timed. Those of
    `CDNA_COSTS` and `RDNA_COSTS` were fitted so that plans of products on gfx942 and gfx1100 rank
    as the emulator's model estimates them (docs/amd.md); AMD's hardware was not timed.

    Args:
      cache_rate: bytes that a CU gets from the second-level cache in a clock while all of them ask.
      few_rate: the same where so few ask that it has more for each, at most; 0 if it has not.
      line: bytes that it gets from there at least; 1 where the fitted costs have it in them.
      lds_rate: bytes that a CU reads of its LDS in a clock.
      load_latency: clocks that a load from memory takes.
      copy_latency: clocks that an asynchronous copy of a tile to LDS takes, while all CUs copy.
      stall: clocks for which threads of a program wait for each other in each tile of depth.
      program: clocks until a program multiplies, and that its last stores take.
      program_issue: of that, clocks that other programs on the CU cannot use.
      launch: clocks that a second launch costs.
      atomic: clocks from one atomic operation on a word to the next one on it.
      arrival: clocks that the last program of a tile takes before it adds the parts of others.
      not_hidden: share of what a CU does besides what takes longest that is not hidden by it.
      busy_threads: threads of a CU from which more of them hide no more latency.
      waves: waves of a SIMD from which more of them hide no more latency of its arithmetic. A SIMD
        of CDNA takes as long to issue an instruction of a wave as to compute it ("AMD CDNA 3
        Instruction Set Architecture"), one of RDNA a few instructions ("RDNA Architecture").
      row_elements: elements of a row that a thread has where there are many rows.
    """

    cache_rate: int = 40
    few_rate: int = 0
    line: int = 1
    lds_rate: int = 128
    load_latency: int = 800
    copy_latency: int = 2000
    stall: int = 200
    program: int = 1500
    program_issue: int = 300
    launch: int = 8000
    atomic: int = 8
    arrival: int = 2000
    not_hidden: float = 0.2
    busy_threads: int = 1024
    waves: int = 8
    row_elements: int = 8

    def grid_barrier(self, programs: int) -> int:
        """About the clocks for which resident programs wait for each other.

        Threads gather before one of them arrives and after it has seen all others; an atomic goes
        to the second-level cache, what the last one stored there comes back, and atomics of all
        programs follow each other. With 128 programs that is 3000, as was seen on an H100.
        """
        return 2 * self.stall + 2 * self.load_latency + programs * self.atomic


CDNA_COSTS = GpuCosts(
    cache_rate=20, few_rate=48, line=128, load_latency=600, program=500, program_issue=500,
    arrival=1000, not_hidden=0.3, waves=1, row_elements=16,
)  # fmt: skip
RDNA_COSTS = replace(CDNA_COSTS, waves=2, row_elements=32)
#: Buffers of 32-bit floats; on RDNA whatever ends beyond their size is out of bounds.
CDNA_BUFFER_WORD = 4 << 15 | 7 << 12
RDNA_BUFFER_WORD = 3 << 28 | 1 << 24 | 22 << 12


@dataclass(frozen=True)
class GpuTarget:
    """One instruction set, with the limits of the machines that have it.

    Args:
      name: LLVM's name of the processor.
      family: `CDNA1` ... `CDNA4`, `RDNA2` ... `RDNA4`, `gfx1250`, `sm_80`, `sm_90`.
      device: the product assumed where none is at hand.
      wave_size: lanes of a wave.
      lds_bytes: LDS that one workgroup may use.
      lds_per_cu: LDS shared by the workgroups of one CU (RDNA: of one workgroup processor).
      lds_granule: bytes LDS is allocated in.
      lds_banks: banks of 4 bytes.
      lds_reserved: bytes that the system takes of each workgroup's.
      lds_wait: what `s_waitcnt` is told to wait for LDS alone; None where LDS has an instruction of
        its own.
      vgprs, agprs: registers one wave can address; `agprs` are for matrix results.
      sgprs: scalar registers that a program can name.
      vgpr_file: registers a SIMD divides among its waves, for each lane.
      vgpr_granule: registers are allocated in multiples of this.
      unified_registers: VGPRs and AGPRs come from one file (CDNA2 and later).
      max_waves: waves that a SIMD holds at most.
      simds: SIMDs that share `lds_per_cu`.
      waits_at_barriers: a wave may only come to a barrier when all its accesses of memory are done;
        LLVM calls what later processors have a back-off barrier.
      max_workgroup: threads of a workgroup at most.
      max_workgroups: workgroups that share `lds_per_cu` at most, where they have more than a wave.
      matrix: matrix instructions.
      matrix_rate: floating-point operations a CU does in one clock with them, by operand dtype.
      register_share: what part of that instructions reach which take operands from registers,
        where others read them from LDS; those of f64 reach all.
      vector_rate: the same for f32 (fused multiply-adds, packed or dual issue included).
      f64_rate: the same for f64.
      packed: operations on two elements at once, by dtype: `f32` (v_pk_fma_f32), `f16`, `bf16`.
      dots: dot instructions.
      fp8: flavor of float8 the conversion and matrix instructions read.
      atomics: global atomic operations done by one instruction: `fadd_f32`, `fadd_f64`, `fmin_f64`,
        `pk_add_f16`, `pk_add_bf16`, ...
      max_load_bytes: widest global access of a lane.
      kernarg_bytes: bytes of arguments that a launch passes at most, as the runtimes state it
        ("CUDA C++ Programming Guide", function parameters; HIP takes as many).
      buffer_word: the fourth word of a buffer's resource, by which loads from a buffer of bytes
        bring zeros where they reach beyond its size, and take 32 bits without a sign as offset;
        None where that is not known.
      buffer_reach: bytes up to which such loads add a constant by themselves.
      preloads_arguments: waves start with a kernel's first arguments in scalar registers.
      ieee_minmax: minimum and maximum of floats that pass NaN on are one instruction.
      dpp: lane permutations are operand modifiers; `dpp_row_bcast` also reaches over rows (GCN).
      costs: what schedules reckon with.
      elf_machine: number of the processor in `e_flags` (llvm/BinaryFormat/ELF.h).
      isa: instruction set as the emulator calls it (`emulator.isa.ISAS`); empty where it has none.
      triple, cpu, features, data_layout: what LLVM is told.
    """

    name: str
    family: str
    device: Device
    wave_size: int
    lds_bytes: int
    vgprs: int
    agprs: int
    sgprs: int
    max_waves: int
    simds: int
    vgpr_file: int
    vgpr_granule: int
    lds_per_cu: int = 64 << 10
    lds_granule: int = 512
    lds_banks: int = 32
    lds_reserved: int = 0
    lds_wait: int | None = 0xC07F
    unified_registers: bool = False
    waits_at_barriers: bool = False
    max_workgroup: int = 1024
    max_workgroups: int = 16
    matrix: tuple[MatrixInstruction, ...] = ()
    matrix_rate: dict[str, int] = field(default_factory=dict, hash=False)
    register_share: float = 1.0
    vector_rate: int = 128
    f64_rate: int = 4
    packed: tuple[str, ...] = ()
    dots: tuple[DotInstruction, ...] = ()
    fp8: Fp8 = "none"
    atomics: tuple[str, ...] = ()
    max_load_bytes: int = 16
    kernarg_bytes: int = 4096
    buffer_word: int | None = None
    buffer_reach: int = 1 << 12
    preloads_arguments: bool = False
    ieee_minmax: bool = False
    dpp: bool = True
    dpp_row_bcast: bool = False
    costs: GpuCosts = GpuCosts()
    elf_machine: int = 0
    isa: str = ""
    triple: str = AMDGPU_TRIPLE
    cpu: str = ""
    features: str = ""
    data_layout: str = AMDGPU_DATA_LAYOUT

    def sibling(self, name: str, elf_machine: int, device: Device) -> GpuTarget:
        """A processor that differs in its number and its products alone."""
        return replace(self, name=name, elf_machine=elf_machine, device=device)

    @property
    def is_amdgpu(self) -> bool:
        return self.triple == AMDGPU_TRIPLE

    @property
    def llvm_cpu(self) -> str:
        """LLVM's `-mcpu`."""
        return self.cpu or self.name

    @property
    def loads_unaligned(self) -> bool:
        """Whether loads of several words may begin at any element."""
        return self.buffer_word is not None

    @property
    def compute_units(self) -> int:
        """CUs of the device assumed where none is at hand."""
        return self.device.compute_units

    @property
    def lds_units(self) -> int:
        """Parts of the device with an LDS of their own: CUs, on RDNA processors of two of them."""
        pairs = self.is_amdgpu and self.wave_size == 32
        return max(self.compute_units // 2, 1) if pairs else self.compute_units

    # What schedules ask

    @property
    def joins_kernels(self) -> bool:
        """Whether small kernels of different code are one, and kernels sum what they have.

        `schedule/gpu/joined.py` and `schedule/row_sums.py` say which. On NVIDIA neither was timed.
        """
        return self.is_amdgpu

    @property
    def issue_clocks(self) -> int:
        """Clocks for which an instruction of a wave keeps its SIMD.

        Nothing on NVIDIA's, where the fitted costs have it in them.
        """
        return 0 if not self.is_amdgpu else 4 if self.wave_size == 64 else 1

    @property
    def issues_pairs(self) -> bool:
        """Whether two operations on f32 are one instruction if they read other banks of registers.

        One operand that both share has to be a scalar register for that (RDNA 3).
        """
        return self.is_amdgpu and self.vector_rate == 256 and "f32" not in self.packed

    @property
    def rounds_to_bf16(self) -> bool:
        """Whether an instruction rounds f32 to bf16."""
        return not self.is_amdgpu or self.family in ("CDNA4", "gfx1250")

    @property
    def usual_workgroup(self) -> int:
        """Threads of a program, where nothing speaks for more or fewer."""
        return min(256, self.max_workgroup)

    @property
    def busy_threads(self) -> int:
        """Threads of a grid from which more of them hide no more latency."""
        return self.compute_units * self.costs.busy_threads

    @property
    def resident_threads(self) -> int:
        """Threads that the device holds at once at most."""
        return self.lds_units * self.simds * self.max_waves * self.wave_size

    @property
    def issuing_threads(self) -> int:
        """Threads of a program from which more of them only share what its SIMDs issue."""
        return min(self.simds * self.wave_size * self.costs.waves, self.max_workgroup)

    def registers_of(self, workgroup: int) -> int:
        """32-bit registers that a thread may have where a workgroup has so many of them."""
        waves = ceil_div(workgroup, self.wave_size * self.simds)  # on each SIMD
        return min(self.vgprs, self.vgpr_file // waves)

    def vector_for(self, bits: int) -> int:
        """Elements side by side in a thread, for the narrowest dtype in memory."""
        return max(1, min(8, 8 * self.max_load_bytes // max(bits, 8)))

    @property
    def vectors(self) -> CpuTarget:
        """The machine as one with vector registers and threads.

        A program of a kernel family for CPUs runs on one wave: its vectors are a register of the
        wave, its caches half of the LDS that a workgroup may have. Threads are few, since such
        families combine what threads did one after the other.
        """
        cache = self.lds_bytes // 2
        return CpuTarget(32 * self.wave_size, min(self.compute_units, 32), cache // 2, cache)

    def matrix_for(self, operand: str, accumulator: str | None = None) -> list[MatrixInstruction]:
        """Instructions of one block for operands of a dtype, most work an execution first."""
        found = [
            i
            for i in self.matrix
            if i.operand == operand
            and i.blocks == 1
            and (accumulator is None or i.accumulator == accumulator)
        ]
        return sorted(found, key=lambda i: -i.flops)

    def dot_for(self, operand: str, result: str) -> DotInstruction | None:
        """The dot instruction for signed or float elements of a dtype."""
        matches = (d for d in self.dots if (d.operand, d.result) == (operand, result))
        return next(matches, None)


def mfma(
    suffix: str, shape: tuple[int, int, int], operand: str, operand_type: str, *,
    accumulator: str = "f32", blocks: int = 1,
) -> MatrixInstruction:  # fmt: skip
    """An MFMA instruction of a wave of 64; `suffix` follows `llvm.amdgcn.mfma.`."""
    m, n, k = shape
    element = {"f32": "float", "i32": "i32", "f64": "double"}[accumulator]
    held = m * n * blocks // 64
    return MatrixInstruction(
        f"llvm.amdgcn.mfma.{suffix}",
        m,
        n,
        k,
        operand,
        accumulator,
        operand_type,
        f"<{held} x {element}>" if held > 1 else element,
        m * k * blocks // 64,
        held,
        ("a", "b", "c", "i32 0", "i32 0", "i32 0"),
        "mfma_f64" if accumulator == "f64" else "mfma",
        blocks,
    )


def wmma(
    suffix: str, operand: str, operand_type: str, *, k: int = 16, layout: Layout
) -> MatrixInstruction:
    """A WMMA instruction of a wave of 32; `suffix` follows `llvm.amdgcn.wmma.`."""
    integer = operand in ("i8", "i4")
    return MatrixInstruction(
        f"llvm.amdgcn.wmma.{suffix}",
        16,
        16,
        k,
        operand,
        "i32" if integer else "f32",
        operand_type,
        "<8 x i32>" if integer else "<8 x float>",
        k if layout == "wmma_rdna3" else k // 2,
        8,
        ("signed", "a", "signed", "b", "c", "i1 false") if integer else ("a", "b", "c"),
        layout,
    )


def mma(
    suffix: str, shape: tuple[int, int, int], operand: str, register: str, accumulator: str = "f32"
) -> MatrixInstruction:
    """An `mma.sync` of a warp; `suffix` follows `llvm.nvvm.mma.` and the shape.

    Its operands and its result are separate registers, in structs. Without a suffix it is the
    instruction itself, for which LLVM has no intrinsic, and its dtypes are all alike.
    """
    m, n, k = shape
    element = {"f32": "float", "i32": "i32", "f64": "double"}[accumulator]
    name = f"m{m}n{n}k{k}.row.col.{suffix or '.'.join([operand] * 4)}"
    return MatrixInstruction(
        f"llvm.nvvm.mma.{name}" if suffix else f"mma.sync.aligned.{name}",
        m,
        n,
        k,
        operand,
        accumulator,
        register,
        f"<{m * n // 32} x {element}>",
        m * k // 32,
        m * n // 32,
        (),
        "mma",
    )
