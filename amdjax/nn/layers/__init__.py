"""Modules over the functional layers, a file for each kind."""

from amdjax.nn.layers import (
    activation,
    attention,
    containers,
    convolution,
    linear,
    normalization,
    pooling,
    regularization,
    resampling,
)
from amdjax.nn.layers.activation import *  # noqa: F403
from amdjax.nn.layers.attention import *  # noqa: F403
from amdjax.nn.layers.containers import *  # noqa: F403
from amdjax.nn.layers.convolution import *  # noqa: F403
from amdjax.nn.layers.linear import *  # noqa: F403
from amdjax.nn.layers.normalization import *  # noqa: F403
from amdjax.nn.layers.pooling import *  # noqa: F403
from amdjax.nn.layers.regularization import *  # noqa: F403
from amdjax.nn.layers.resampling import *  # noqa: F403

# The names of the files are those of the functions' files in `nn`; they are not to replace them.
__all__: list[str] = []
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += containers.__all__
__all__ += convolution.__all__
__all__ += linear.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += regularization.__all__
__all__ += resampling.__all__
