"""NVIDIA Hopper, for the PTX twin of the generator: H100.

Sources: "CUDA C++ Programming Guide" (technical specifications), "NVIDIA H100 Tensor Core GPU
Architecture". `sm_90a` is the form that admits wgmma.
"""

from dataclasses import replace

from amdjax.targets import sm_80
from amdjax.targets.gpu import Device, mma

_SM_90 = replace(
    sm_80.TARGETS[0],
    name="sm_90",
    family="sm_90",
    device=Device("H100 SXM", 132, 3350, 1980, 80),
    lds_bytes=227 << 10,
    lds_per_cu=228 << 10,
    matrix=(
        *(i for i in sm_80.MATRIX if i.operand != "f64"),
        mma("", (16, 8, 8), "f64", "double", "f64"),
    ),
    # Reached with wgmma.
    matrix_rate={"f16": 4096, "bf16": 4096, "xf32": 2048, "i8": 8192, "fp8": 8192, "f64": 256},
    register_share=0.6,
    vector_rate=256,
    f64_rate=128,
    fp8="ocp",
    features="+ptx80",
)

TARGETS = (_SM_90, replace(_SM_90, name="sm_90a"))
