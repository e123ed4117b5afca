"""Shaped kernels written in the tile language; importing the package registers them all."""

from amdjax.kernels import scatter, update

__all__ = ["scatter", "update"]
