"""What becomes of cotangents that `f_vjp.with_refs` is asked about."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.transforms.pullback import DidntWant, DontWant, GradRef, GradValue

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]

_public_surface(globals())
