"""Shaped kernels written in the tile language; importing the package registers them all."""

from amdjax.kernels import (
    conv as conv,
    cumulative as cumulative,
    gemm as gemm,
    gpu_cumulative as gpu_cumulative,
    gpu_gemm as gpu_gemm,
    gpu_scatter as gpu_scatter,
    scatter as scatter,
    sort as sort,
    topk as topk,
    update as update,
)
