"""Scans: sums and the like of all elements up to each position."""

from amdjax.kernels.scan import plan as plan
