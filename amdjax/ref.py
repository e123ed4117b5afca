"""References to mutable arrays: what they hold is read and written in program order."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.ref import AbstractRef, Ref
from amdjax.numpy.refs import addupdate, empty_ref, free_ref, freeze, get, new_ref, set, swap

__all__ = [
    "AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set",
    "swap",
]  # fmt: skip

_public_surface(globals())
