"""RDNA3 and RDNA3.5: Radeon RX 7000, Radeon PRO W7000, and APUs with that graphics.

Source: "RDNA3 Instruction Set Architecture". WMMA of a wave of 32: lanes 16..31 repeat the operand
rows of lanes 0..15. Products whose accumulator is f16 or bf16 use every second half of a register.
"""

from dataclasses import replace

from amdjax.targets import gfx1030
from amdjax.targets.gpu import RDNA_BUFFER_WORD, Device, DotInstruction, Layout, wmma

_LAYOUT: Layout = "wmma_rdna3"

MATRIX = (
    wmma("f32.16x16x16.f16.v8f32.v16f16", "f16", "<16 x half>", layout=_LAYOUT),
    wmma("f32.16x16x16.bf16.v8f32.v16i16", "bf16", "<16 x i16>", layout=_LAYOUT),
    wmma("i32.16x16x16.iu8.v8i32.v4i32", "i8", "<4 x i32>", layout=_LAYOUT),
    wmma("i32.16x16x16.iu4.v8i32.v2i32", "i4", "<2 x i32>", layout=_LAYOUT),
)

DOTS = (
    DotInstruction("llvm.amdgcn.fdot2", "f16", None, 2, "f32"),
    DotInstruction("llvm.amdgcn.fdot2.f32.bf16", "bf16", None, 2, "f32"),
    DotInstruction("llvm.amdgcn.sudot4", "i8", None, 4, "i32"),
    DotInstruction("llvm.amdgcn.udot4", "i8", False, 4, "i32"),
    DotInstruction("llvm.amdgcn.sudot8", "i4", None, 8, "i32"),
    DotInstruction("llvm.amdgcn.udot8", "i4", False, 8, "i32"),
)

_GFX1100 = replace(
    gfx1030.TARGETS[0],
    name="gfx1100",
    elf_machine=0x41,
    isa="rdna3",
    family="RDNA3",
    device=Device("Radeon RX 7900 XTX", 96, 960, 2500, 24),
    lds_wait=0xFC07,
    vgpr_file=1536,
    vgpr_granule=24,
    buffer_word=RDNA_BUFFER_WORD,
    matrix=MATRIX,
    matrix_rate={"f16": 512, "bf16": 512, "i8": 512, "i4": 1024},
    vector_rate=256,
    dots=DOTS,
    atomics=("fadd_f32", "fmin_f32", "fmax_f32"),
)
# The smaller chips have two thirds of the registers.
_SMALL = replace(_GFX1100, vgpr_file=1024, vgpr_granule=16)

TARGETS = (
    _GFX1100,
    _GFX1100.sibling("gfx1101", 0x46, Device("Radeon RX 7800 XT", 60, 624, 2430, 16)),
    _SMALL.sibling("gfx1102", 0x47, Device("Radeon RX 7600", 32, 288, 2655, 8)),
    _SMALL.sibling("gfx1103", 0x44, Device("Radeon 780M", 12, 120, 2700)),
    _SMALL.sibling("gfx1150", 0x43, Device("Radeon 890M", 16, 120, 2900)),
    _SMALL.sibling("gfx1152", 0x55, Device("Radeon 860M", 8, 120, 3000)),
    _SMALL.sibling("gfx1153", 0x58, Device("Radeon 820M", 2, 90, 2800)),
    _GFX1100.sibling("gfx1151", 0x4A, Device("Radeon 8060S", 40, 256, 2900)),
)
