"""Shaped kernels written in the tile language; importing the package registers them all."""

from amdjax.kernels import conv, gemm, scatter, update

__all__ = ["conv", "gemm", "scatter", "update"]
