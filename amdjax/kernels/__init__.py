"""Shaped kernels written in the tile language; importing the package registers them all.

A family is a folder with what it does on CPUs and on GPUs: `products/` (matrix products and
convolutions), `sorting/`, `scan/`, `scatter/`, `update/`. `shaped.py` is what families are given,
`loops.py` and `gpu_loops.py` are what they share.
"""

from amdjax.kernels import (
    products as products,
    scan as scan,
    scatter as scatter,
    sorting as sorting,
    update as update,
)
