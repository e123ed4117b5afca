"""Special functions: `scipy.special`."""

from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special.elementary import *  # noqa: F403

_public_surface(globals())
