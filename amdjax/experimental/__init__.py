"""Names that JAX keeps under `jax.experimental`, so that programs run with the import changed.

>>> import numpy as np, amdjax
>>> from amdjax.experimental import io_callback
>>> amdjax.jit(lambda x: io_callback(np.sin, x, x))(0.0)
Array(0., dtype=float32)
"""

from amdjax import enable_x64 as enable_x64, io_callback as io_callback

__all__ = ["enable_x64", "io_callback"]
