"""Shaped kernels written in the tile language; importing the package registers them all."""

from amdjax.kernels import conv as conv
from amdjax.kernels import cumulative as cumulative
from amdjax.kernels import gemm as gemm
from amdjax.kernels import scatter as scatter
from amdjax.kernels import sort as sort
from amdjax.kernels import topk as topk
from amdjax.kernels import update as update
