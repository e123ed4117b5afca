"""Minima of functions: `scipy.optimize`."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.scipy.optimize.minimization import (
    OptimizeResults as OptimizeResults,
    minimize as minimize,
)

_public_surface(globals())
