"""CDNA2: AMD Instinct MI210, MI250, MI250X. Each chiplet of an MI250 is a device of its own.

Sources: "AMD Instinct MI200 Instruction Set Architecture", "Introducing AMD CDNA 2 Architecture".
"""

from amdjax.targets import gfx908
from amdjax.targets.gpu import CDNA_BUFFER_WORD, CDNA_COSTS, Device, GpuTarget, mfma

_BF16 = "<4 x i16>"

MATRIX_BF16 = (
    mfma("f32.32x32x8bf16.1k", (32, 32, 8), "bf16", _BF16),
    mfma("f32.16x16x16bf16.1k", (16, 16, 16), "bf16", _BF16),
    mfma("f32.32x32x4bf16.1k", (32, 32, 4), "bf16", _BF16, blocks=2),
    mfma("f32.16x16x4bf16.1k", (16, 16, 4), "bf16", _BF16, blocks=4),
    mfma("f32.4x4x4bf16.1k", (4, 4, 4), "bf16", _BF16, blocks=16),
)
MATRIX_F64 = (
    mfma("f64.16x16x4f64", (16, 16, 4), "f64", "double", accumulator="f64"),
    mfma("f64.4x4x4f64", (4, 4, 4), "f64", "double", accumulator="f64", blocks=4),
)

TARGETS = (
    GpuTarget(
        name="gfx90a",
        elf_machine=0x3F,
        isa="cdna2",
        family="CDNA2",
        device=Device("Instinct MI210", 104, 1638, 1700, 64),
        wave_size=64,
        lds_bytes=64 << 10,
        vgprs=256,
        agprs=256,
        sgprs=102,
        max_waves=8,
        simds=4,
        costs=CDNA_COSTS,
        vgpr_file=512,
        vgpr_granule=8,
        unified_registers=True,
        matrix=(
            gfx908.MATRIX
            + gfx908.MATRIX_I8
            + gfx908.MATRIX_I8_BLOCKS
            + gfx908.MATRIX_BF16
            + MATRIX_BF16
            + MATRIX_F64
        ),
        matrix_rate={"f32": 256, "f64": 256, "f16": 1024, "bf16": 1024, "i8": 1024},
        vector_rate=256,
        f64_rate=128,
        packed=("f16", "f32"),
        dots=gfx908.DOTS,
        atomics=("fadd_f32", "fadd_f64", "fmin_f64", "fmax_f64", "pk_add_f16"),
        dpp_row_bcast=True,
        buffer_word=CDNA_BUFFER_WORD,
    ),
)
