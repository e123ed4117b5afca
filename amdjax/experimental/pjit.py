"""`pjit`, which is `jit`."""

from amdjax.jit.api import jit as pjit

__all__ = ["pjit"]
