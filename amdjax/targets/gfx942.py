"""CDNA3: AMD Instinct MI300A, MI300X, MI325X.

Sources: "AMD Instinct MI300 Instruction Set Architecture", "AMD CDNA 3 Architecture".
float8 is the "fnuz" flavor: no negative zero, one NaN, bias one higher than OCP's.
"""

from dataclasses import replace

from amdjax.targets import gfx90a, gfx908
from amdjax.targets.gpu import Device, mfma

MATRIX_I8 = (
    mfma("i32.32x32x16.i8", (32, 32, 16), "i8", "i64", accumulator="i32"),
    mfma("i32.16x16x32.i8", (16, 16, 32), "i8", "i64", accumulator="i32"),
)
MATRIX_XF32 = (
    mfma("f32.32x32x4.xf32", (32, 32, 4), "xf32", "<2 x float>"),
    mfma("f32.16x16x8.xf32", (16, 16, 8), "xf32", "<2 x float>"),
)
#: Of fp8 (e4m3) and bf8 (e5m2); `operand` names both where they differ.
MATRIX_FP8 = tuple(
    mfma(f"f32.{shape[0]}x{shape[1]}x{shape[2]}.{a}.{b}", shape, operand, "i64")
    for a, b, operand in (
        ("fp8", "fp8", "fp8"),
        ("bf8", "bf8", "bf8"),
        ("fp8", "bf8", "fp8_bf8"),
        ("bf8", "fp8", "bf8_fp8"),
    )
    for shape in ((32, 32, 16), (16, 16, 32))
)

TARGETS = (
    replace(
        gfx90a.TARGETS[0],
        name="gfx942",
        elf_machine=0x4C,
        isa="cdna3",
        family="CDNA3",
        device=Device("Instinct MI300X", 304, 5300, 2100, 192),
        matrix=(
            gfx908.MATRIX
            + gfx908.MATRIX_I8_BLOCKS
            + gfx90a.MATRIX_BF16
            + gfx90a.MATRIX_F64
            + MATRIX_I8
            + MATRIX_XF32
            + MATRIX_FP8
        ),
        matrix_rate={"f32": 256, "f64": 256, "xf32": 1024}
        | {"f16": 2048, "bf16": 2048, "i8": 4096, "fp8": 4096, "bf8": 4096},
        fp8="fnuz",
        preloads_arguments=True,
        atomics=(*gfx90a.TARGETS[0].atomics, "pk_add_bf16"),
    ),
)
