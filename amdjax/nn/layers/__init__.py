"""Modules over the functional layers, a file for each kind."""

from amdjax.nn.layers.activation import *  # noqa: F403
from amdjax.nn.layers.containers import *  # noqa: F403
from amdjax.nn.layers.convolution import *  # noqa: F403
from amdjax.nn.layers.linear import *  # noqa: F403
from amdjax.nn.layers.normalization import *  # noqa: F403
from amdjax.nn.layers.pooling import *  # noqa: F403
from amdjax.nn.layers.regularization import *  # noqa: F403
