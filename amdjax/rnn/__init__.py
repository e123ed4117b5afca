"""Recurrent networks: cells, sequences of steps, and modules over them."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.rnn import _docs
from amdjax.rnn.cells import *  # noqa: F403
from amdjax.rnn.layers import *  # noqa: F403
from amdjax.rnn.parameters import *  # noqa: F403
from amdjax.rnn.sequences import *  # noqa: F403

_complete(globals(), _docs.FAMILIES, _docs.PHRASES)
_public_surface(globals())
