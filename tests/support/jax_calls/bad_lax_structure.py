"""Bad calls of what moves, contracts, windows, gathers and scatters in `jax.lax`."""

from tests.support.jax_calls.lax_structure import FAMILIES

__all__ = ["FAMILIES"]

PREFIX = "lax"
SPOIL_EVERY = 1
MODES = "eager"
