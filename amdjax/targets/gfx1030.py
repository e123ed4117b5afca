"""RDNA2: Radeon RX 6000, Radeon PRO W6000, and APUs with that graphics. No matrix unit.

Source: "RDNA 2 Instruction Set Architecture". Kernels run in workgroup-processor mode: four SIMDs
of two CUs share 128 KiB of LDS, of which one workgroup may use 64 KiB.
"""

from amdjax.targets import gfx908
from amdjax.targets.gpu import RDNA_BUFFER_WORD, RDNA_COSTS, Device, GpuTarget

_GFX1030 = GpuTarget(
    name="gfx1030",
    elf_machine=0x36,
    isa="rdna2",
    family="RDNA2",
    device=Device("Radeon RX 6900 XT", 80, 512, 2250, 16),
    wave_size=32,
    lds_bytes=64 << 10,
    lds_per_cu=128 << 10,
    lds_granule=1024,
    vgprs=256,
    agprs=0,
    sgprs=106,
    max_waves=16,
    simds=4,
    costs=RDNA_COSTS,
    vgpr_file=1024,
    vgpr_granule=16,
    max_workgroups=32,
    buffer_word=RDNA_BUFFER_WORD,
    packed=("f16",),
    dots=gfx908.DOTS,
    f64_rate=8,
    atomics=("fmin_f32", "fmax_f32", "fmin_f64", "fmax_f64"),
)

TARGETS = (
    _GFX1030,
    _GFX1030.sibling("gfx1031", 0x37, Device("Radeon RX 6700 XT", 40, 384, 2581, 12)),
    _GFX1030.sibling("gfx1032", 0x38, Device("Radeon RX 6600 XT", 32, 256, 2589, 8)),
    _GFX1030.sibling("gfx1033", 0x39, Device("Steam Deck APU", 8, 88, 1600)),
    _GFX1030.sibling("gfx1034", 0x3E, Device("Radeon RX 6500 XT", 16, 144, 2815, 4)),
    _GFX1030.sibling("gfx1035", 0x3D, Device("Radeon 680M", 12, 102, 2400)),
    _GFX1030.sibling("gfx1036", 0x45, Device("Radeon 610M", 2, 83, 2200)),
)
