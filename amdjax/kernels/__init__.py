"""Shaped kernels written in the tile language; the package registers them all.

A family is a folder with what it does on CPUs and on GPUs: `products/` (matrix products and
convolutions), `attention/`, `sorting/`, `scan/`, `scatter/`, `update/`. `shaped.py` is what
families are given, `loops.py` and `gpu_loops.py` are what they share.

Families that have folders in their folders are registered from here: where Ctrl-C interrupted an
import, these are there without the family, whose own import would need them as they are read.
"""

from amdjax.kernels import (
    attention as attention,
    scan as scan,
    scatter as scatter,
    shaped as _shaped,
    sorting as sorting,
    update as update,
)
from amdjax.kernels.products.cpu import dispatch as _products  # noqa: F401


def register_for_gpus() -> None:
    """Register the families for GPUs, as the first that is looked up does by itself."""
    # late: programs for CPUs need none of them
    import amdjax.kernels.attention.gpu
    import amdjax.kernels.attention.gpu_gradient
    import amdjax.kernels.chains.gpu
    import amdjax.kernels.products.gpu.dispatch
    import amdjax.kernels.scatter.gpu
    import amdjax.kernels.transfers
    import amdjax.kernels.update.gpu  # noqa: F401


_shaped.register_for_gpus_by(register_for_gpus)
