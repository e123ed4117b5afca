"""Losses: how far predictions are from what was wanted."""

from amdjax.nn.losses.classification import *  # noqa: F403
from amdjax.nn.losses.ctc import *  # noqa: F403
from amdjax.nn.losses.margin import *  # noqa: F403
from amdjax.nn.losses.regression import *  # noqa: F403
