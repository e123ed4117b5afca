"""Graphs of TensorFlow, frozen or of a SavedModel, as pure functions of arrays.

`load` reads a file into a `Model`. Neither TensorFlow nor a description of its messages is needed,
only protobuf: `pip install 'amdjax[tf]'`. See docs/tensorflow.md.
"""

from __future__ import annotations

from amdjax.core.boundaries import public_surface
from amdjax.export.values import Value as Value

from . import rules as rules
from .errors import TensorFlowError as TensorFlowError, UnsupportedOperator as UnsupportedOperator
from .model import Model as Model
from .reading import load as load
from .registry import operators as operators

__all__ = ["Model", "TensorFlowError", "UnsupportedOperator", "Value", "load", "operators"]

public_surface(globals())
