"""Recurrent networks: cells, sequences of steps, and modules over them."""

from amdjax.rnn.cells import *  # noqa: F403
from amdjax.rnn.layers import *  # noqa: F403
from amdjax.rnn.sequences import *  # noqa: F403
