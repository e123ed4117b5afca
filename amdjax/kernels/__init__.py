"""Shaped kernels written in the tile language."""
