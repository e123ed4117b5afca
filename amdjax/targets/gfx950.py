"""CDNA4: AMD Instinct MI350X, MI355X.

Sources: "AMD CDNA4 Instruction Set Architecture", "AMD CDNA 4 Architecture". float8 is OCP's. The
xf32 instructions of CDNA3 are gone; products of 16-bit and 8-bit operands are twice as deep.
"""

from dataclasses import replace

from amdjax.targets import gfx90a, gfx908, gfx942
from amdjax.targets.gpu import Device, DotInstruction, mfma

MATRIX = (
    mfma("f32.32x32x16.f16", (32, 32, 16), "f16", "<8 x half>"),
    mfma("f32.16x16x32.f16", (16, 16, 32), "f16", "<8 x half>"),
    mfma("f32.32x32x16.bf16", (32, 32, 16), "bf16", "<8 x bfloat>"),
    mfma("f32.16x16x32.bf16", (16, 16, 32), "bf16", "<8 x bfloat>"),
    mfma("i32.32x32x32.i8", (32, 32, 32), "i8", "<4 x i32>", accumulator="i32"),
    mfma("i32.16x16x64.i8", (16, 16, 64), "i8", "<4 x i32>", accumulator="i32"),
)

TARGETS = (
    replace(
        gfx942.TARGETS[0],
        name="gfx950",
        elf_machine=0x4F,
        isa="cdna4",
        family="CDNA4",
        device=Device("Instinct MI355X", 256, 8000, 2400, 288),
        lds_bytes=160 << 10,
        lds_per_cu=160 << 10,
        lds_granule=1280,
        lds_banks=64,
        ieee_minmax=True,
        matrix=(
            gfx908.MATRIX
            + gfx908.MATRIX_I8_BLOCKS
            + gfx90a.MATRIX_BF16
            + gfx90a.MATRIX_F64
            + gfx942.MATRIX_I8
            + gfx942.MATRIX_FP8
            + MATRIX
        ),
        dots=(*gfx908.DOTS, DotInstruction("llvm.amdgcn.fdot2.f32.bf16", "bf16", None, 2, "f32")),
        matrix_rate={"f32": 256, "f64": 128}
        | {"f16": 4096, "bf16": 4096, "i8": 8192, "fp8": 8192, "bf8": 8192},
        fp8="ocp",
    ),
)
