"""Bad calls of the functions of `jax.numpy`: an argument of each does not belong there."""

from tests.support.jax_calls.numpy import FAMILIES

__all__ = ["FAMILIES"]

PREFIX = "numpy"
SPOIL_EVERY = 1
MODES = "eager"
