"""Writing a window into an array at a position known only at run time."""

from amdjax.kernels.update import cpu as cpu
