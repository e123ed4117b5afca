"""ONNX models: read as pure functions, whose weights are their parameters.

`load` reads a file, `backend` is ONNX's Backend interface. Needs the `onnx` package
(`pip install 'amdjax[onnx]'`).
"""

from __future__ import annotations

from amdjax.export.values import Value
from amdjax.onnx import rules as rules
from amdjax.onnx.errors import NotTraceable, OnnxError, UnsupportedOperator
from amdjax.onnx.model import Model, load
from amdjax.onnx.registry import operators

__all__ = [
    "Model",
    "NotTraceable",
    "OnnxError",
    "UnsupportedOperator",
    "Value",
    "load",
    "operators",
]
