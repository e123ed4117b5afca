"""Special functions: `scipy.special`."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.scipy.special import _docs
from amdjax.scipy.special.elementary import *  # noqa: F403
from amdjax.scipy.special.error_integrals import *  # noqa: F403
from amdjax.scipy.special.exponential_integrals import *  # noqa: F403
from amdjax.scipy.special.hypergeometric import *  # noqa: F403
from amdjax.scipy.special.recurrences import *  # noqa: F403

_complete(globals(), _docs.FAMILIES, _docs.PHRASES)
_public_surface(globals())
