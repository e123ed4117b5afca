"""NVIDIA Ampere, for the PTX twin of the generator: A100.

Sources: "CUDA C++ Programming Guide" (technical specifications), "NVIDIA A100 Tensor Core GPU
Architecture", "Parallel Thread Execution ISA" (fragments of `mma`). A multiprocessor is a CU, a
warp a wave, shared memory LDS.
"""

from amdjax.targets.gpu import NVPTX_DATA_LAYOUT, NVPTX_TRIPLE, Device, GpuTarget, mma

MATRIX = (
    mma("f32.f32", (16, 8, 16), "f16", "<2 x half>"),
    mma("bf16", (16, 8, 16), "bf16", "i32"),
    mma("tf32", (16, 8, 8), "xf32", "i32"),
    mma("s8", (16, 8, 32), "i8", "i32", "i32"),
    mma("f64", (8, 8, 4), "f64", "double", "f64"),
)

TARGETS = (
    GpuTarget(
        name="sm_80",
        family="sm_80",
        device=Device("A100", 108, 1555, 1410, 40),
        wave_size=32,
        lds_bytes=163 << 10,
        lds_per_cu=164 << 10,
        lds_granule=128,
        lds_reserved=1 << 10,
        vgprs=255,
        agprs=0,
        sgprs=0,
        max_waves=16,
        simds=4,
        vgpr_file=512,
        vgpr_granule=8,
        max_workgroups=32,
        matrix=MATRIX,
        matrix_rate={"f16": 2048, "bf16": 2048, "xf32": 1024, "i8": 4096, "f64": 128},
        f64_rate=64,
        packed=("f16", "bf16"),
        atomics=("fadd_f32", "fadd_f64", "pk_add_f16", "pk_add_bf16"),
        dpp=False,
        triple=NVPTX_TRIPLE,
        features="+ptx70",
        data_layout=NVPTX_DATA_LAYOUT,
    ),
)
