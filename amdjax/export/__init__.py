"""Symbolic shapes, and programs kept apart from the functions that they were traced from.

Under JAX's names; see docs/shapes.md. Programs with their weights and machine code, in a file, are
artifacts; see docs/artifacts.md.
"""

from __future__ import annotations

from amdjax.core.boundaries import public_surface
from amdjax.core.dims import (
    SymbolicScope as SymbolicScope,
    is_symbolic_dim as is_symbolic_dim,
    symbolic_shape as symbolic_shape,
)

from .artifact import (
    Artifact as Artifact,
    deserialize as deserialize,
    load_artifact as load_artifact,
)
from .container import ArtifactError as ArtifactError
from .program import (
    Exported as Exported,
    export as export,
    symbolic_args_specs as symbolic_args_specs,
)

__all__ = [
    "Artifact", "ArtifactError", "Exported", "SymbolicScope", "deserialize", "export",
    "is_symbolic_dim", "load_artifact", "symbolic_args_specs", "symbolic_shape",
]  # fmt: skip

public_surface(globals())
