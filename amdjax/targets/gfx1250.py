"""gfx1250, as far as LLVM knows it: waves of 32, 320 KiB of LDS.

Source: "User Guide for AMDGPU Backend". No product figures are published; the device is a guess for
the schedule, and the matrix unit is left out until its operand layout is documented.
"""

from amdjax.targets.gpu import RDNA_COSTS, Device, GpuTarget

TARGETS = (
    GpuTarget(
        name="gfx1250",
        elf_machine=0x49,
        family="gfx1250",
        device=Device("unreleased", 256, 8000, 2400, 288),
        wave_size=32,
        lds_bytes=320 << 10,
        lds_per_cu=320 << 10,
        lds_granule=2048,
        lds_banks=64,
        vgprs=512,  # half of those that can be named: LLVM spills some before it uses so many
        agprs=0,
        sgprs=106,
        max_waves=16,
        simds=4,
        costs=RDNA_COSTS,
        ieee_minmax=True,
        lds_wait=None,
        vgpr_file=1024,
        vgpr_granule=16,
        vector_rate=256,
        f64_rate=128,
        packed=("f16", "bf16", "f32"),
        fp8="ocp",
        atomics=(
            *(f"{op}_{dtype}" for op in ("fadd", "fmin", "fmax") for dtype in ("f32", "f64")),
            "pk_add_f16",
            "pk_add_bf16",
        ),
    ),
)
