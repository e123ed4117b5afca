"""CDNA1: AMD Instinct MI100.

Sources: "AMD Instinct MI100 Instruction Set Architecture", "Introducing AMD CDNA Architecture".
The matrix rates are the published peaks divided by CUs and clock.
"""

from amdjax.targets.gpu import CDNA_BUFFER_WORD, CDNA_COSTS, Device, DotInstruction, GpuTarget, mfma

_HALF4 = "<4 x half>"
_BF16 = "<2 x i16>"

MATRIX = (
    mfma("f32.32x32x2f32", (32, 32, 2), "f32", "float"),
    mfma("f32.16x16x4f32", (16, 16, 4), "f32", "float"),
    mfma("f32.32x32x1f32", (32, 32, 1), "f32", "float", blocks=2),
    mfma("f32.16x16x1f32", (16, 16, 1), "f32", "float", blocks=4),
    mfma("f32.4x4x1f32", (4, 4, 1), "f32", "float", blocks=16),
    mfma("f32.32x32x8f16", (32, 32, 8), "f16", _HALF4),
    mfma("f32.16x16x16f16", (16, 16, 16), "f16", _HALF4),
    mfma("f32.32x32x4f16", (32, 32, 4), "f16", _HALF4, blocks=2),
    mfma("f32.16x16x4f16", (16, 16, 4), "f16", _HALF4, blocks=4),
    mfma("f32.4x4x4f16", (4, 4, 4), "f16", _HALF4, blocks=16),
)
MATRIX_I8 = (
    mfma("i32.32x32x8i8", (32, 32, 8), "i8", "i32", accumulator="i32"),
    mfma("i32.16x16x16i8", (16, 16, 16), "i8", "i32", accumulator="i32"),
)
MATRIX_I8_BLOCKS = (
    mfma("i32.32x32x4i8", (32, 32, 4), "i8", "i32", accumulator="i32", blocks=2),
    mfma("i32.16x16x4i8", (16, 16, 4), "i8", "i32", accumulator="i32", blocks=4),
    mfma("i32.4x4x4i8", (4, 4, 4), "i8", "i32", accumulator="i32", blocks=16),
)
# Half as many products as the instructions that CDNA2 added.
MATRIX_BF16 = (
    mfma("f32.32x32x4bf16", (32, 32, 4), "bf16", _BF16),
    mfma("f32.16x16x8bf16", (16, 16, 8), "bf16", _BF16),
    mfma("f32.32x32x2bf16", (32, 32, 2), "bf16", _BF16, blocks=2),
    mfma("f32.16x16x2bf16", (16, 16, 2), "bf16", _BF16, blocks=4),
    mfma("f32.4x4x2bf16", (4, 4, 2), "bf16", _BF16, blocks=16),
)

DOTS = (
    DotInstruction("llvm.amdgcn.fdot2", "f16", None, 2, "f32"),
    DotInstruction("llvm.amdgcn.sdot2", "i16", True, 2, "i32"),
    DotInstruction("llvm.amdgcn.udot2", "i16", False, 2, "i32"),
    DotInstruction("llvm.amdgcn.sdot4", "i8", True, 4, "i32"),
    DotInstruction("llvm.amdgcn.udot4", "i8", False, 4, "i32"),
    DotInstruction("llvm.amdgcn.sdot8", "i4", True, 8, "i32"),
    DotInstruction("llvm.amdgcn.udot8", "i4", False, 8, "i32"),
)

TARGETS = (
    GpuTarget(
        name="gfx908",
        elf_machine=0x30,
        isa="cdna1",
        family="CDNA1",
        device=Device("Instinct MI100", 120, 1229, 1502, 32),
        wave_size=64,
        lds_bytes=64 << 10,
        vgprs=256,
        agprs=256,
        sgprs=102,
        waits_at_barriers=True,
        max_waves=10,
        simds=4,
        costs=CDNA_COSTS,
        vgpr_file=256,
        vgpr_granule=4,
        matrix=MATRIX + MATRIX_I8 + MATRIX_I8_BLOCKS + MATRIX_BF16,
        matrix_rate={"f32": 256, "f16": 1024, "bf16": 512, "i8": 1024},
        f64_rate=64,
        packed=("f16",),
        dots=DOTS,
        # Without a result: code that reads the old value back gets a loop.
        atomics=("fadd_f32_no_return", "pk_add_f16_no_return"),
        dpp_row_bcast=True,
        buffer_word=CDNA_BUFFER_WORD,
    ),
)
