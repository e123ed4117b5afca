"""Recurrent networks: cells, sequences of steps, and modules over them."""

from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.core.errors import public_surface as _public_surface
from amdjax.rnn.cells import *  # noqa: F403
from amdjax.rnn.layers import *  # noqa: F403
from amdjax.rnn.parameters import *  # noqa: F403
from amdjax.rnn.sequences import *  # noqa: F403

_complete(globals(), (), _Phrases())
_public_surface(globals())
