"""Kernels that GPUs compute differently; importing the package registers them."""

from amdjax.kernels.gpu import (
    cumulative as cumulative,
    gemm as gemm,
    scatter as scatter,
    update as update,
)
