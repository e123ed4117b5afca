"""Scatter: updates written or combined into windows of an array."""

from amdjax.kernels.scatter import cpu as cpu
