"""What the `onnx` package knows of the standard: its messages and its operators."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["has_body", "onnx_package", "schema_of", "version_of"]

_package: Any = None
_missing: ImportError | None = None
try:
    import onnx.numpy_helper

    _package = onnx
except ImportError as e:  # which models tell of
    _missing = e


def onnx_package() -> Any:
    """The `onnx` package.

    Raises:
      ImportError: it is not installed; the message says how to install it.
    """
    if _missing is not None:
        needs = "amdjax.onnx needs the onnx package: pip install 'amdjax[onnx]'"
        raise ImportError(needs) from _missing
    return _package


@cache
def schema_of(domain: str, op: str, opset: int) -> Any:
    """The standard's definition of an operator at an opset, or None.

    The first look at one takes as long as reading a small model.
    """
    defs = onnx_package().defs
    try:
        return defs.get_schema(op, max_inclusive_version=opset, domain=domain)
    except defs.SchemaError:
        return None


def version_of(domain: str, op: str, opset: int) -> int:
    """The opset, up to one, in which an operator last changed; that one if that is not known."""
    schema = schema_of(domain, op, opset)
    return opset if schema is None else int(schema.since_version)


def has_body(schema: Any) -> bool:
    """Whether the standard defines an operator by others."""
    return bool(schema.has_function or schema.has_context_dependent_function)
