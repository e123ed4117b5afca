"""Bad calls of the functions of `jax.lax`: an argument of each does not belong there."""

from tests.support.jax_calls.lax import FAMILIES

__all__ = ["FAMILIES"]

PREFIX = "lax"
SPOIL_EVERY = 1
MODES = "eager"
