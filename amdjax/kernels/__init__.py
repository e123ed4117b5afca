"""Shaped kernels written in the tile language; importing the package registers them all."""

from amdjax.kernels import (
    conv as conv,
    cumulative as cumulative,
    gemm as gemm,
    gpu as gpu,
    scatter as scatter,
    sort as sort,
    topk as topk,
    update as update,
)
