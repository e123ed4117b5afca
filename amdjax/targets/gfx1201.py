"""RDNA4: Radeon RX 9070, RX 9060 and Radeon AI PRO R9700.

Source: "RDNA4 Instruction Set Architecture". WMMA operands are spread over all 32 lanes; float8 is
OCP's.
"""

from dataclasses import replace

from amdjax.targets import gfx1100
from amdjax.targets.gpu import Device, Layout, wmma

_LAYOUT: Layout = "wmma_rdna4"

MATRIX = (
    wmma("f32.16x16x16.f16.v8f32.v8f16", "f16", "<8 x half>", layout=_LAYOUT),
    wmma("f32.16x16x16.bf16.v8f32.v8i16", "bf16", "<8 x i16>", layout=_LAYOUT),
    wmma("i32.16x16x16.iu8.v8i32.v2i32", "i8", "<2 x i32>", layout=_LAYOUT),
    wmma("i32.16x16x32.iu4.v8i32.v2i32", "i4", "<2 x i32>", layout=_LAYOUT, k=32),
    wmma("f32.16x16x16.fp8.fp8.v8f32.v2i32", "fp8", "<2 x i32>", layout=_LAYOUT),
    wmma("f32.16x16x16.bf8.bf8.v8f32.v2i32", "bf8", "<2 x i32>", layout=_LAYOUT),
    wmma("f32.16x16x16.fp8.bf8.v8f32.v2i32", "fp8_bf8", "<2 x i32>", layout=_LAYOUT),
    wmma("f32.16x16x16.bf8.fp8.v8f32.v2i32", "bf8_fp8", "<2 x i32>", layout=_LAYOUT),
)

_GFX1201 = replace(
    gfx1100.TARGETS[0],
    name="gfx1201",
    elf_machine=0x4E,
    isa="rdna4",
    family="RDNA4",
    device=Device("Radeon RX 9070 XT", 64, 640, 2970, 16),
    ieee_minmax=True,
    lds_wait=None,
    buffer_reach=1 << 23,
    matrix=MATRIX,
    matrix_rate={"f16": 1024, "bf16": 1024, "i8": 2048, "i4": 4096, "fp8": 2048, "bf8": 2048},
    fp8="ocp",
    atomics=(*gfx1100.TARGETS[0].atomics, "pk_add_f16", "pk_add_bf16"),
)

TARGETS = (
    _GFX1201,
    _GFX1201.sibling("gfx1200", 0x48, Device("Radeon RX 9060 XT", 32, 320, 3130, 16)),
)
