"""Scans along an axis: cumulative sums, products, extrema, log-sum-exp."""

from amdjax.kernels.scan import cpu as cpu, gpu as gpu
