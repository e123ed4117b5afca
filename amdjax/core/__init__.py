"""Avals, dtypes, primitives, jaxprs, traces, pytrees, errors and flags.

What users may ask for by `amdjax.core.NAME`, and JAX programs by `jax.core.NAME`, is in `_PUBLIC`;
more for those who write interpreters of programs is in `amdjax.extend.core`.
"""

import importlib as _importlib
from typing import Any as _Any

_PUBLIC = {
    "AbstractValue": "aval",
    "Atom": "jaxpr",
    "ShapedArray": "aval",
    "Trace": "trace",
    "Tracer": "trace",
    "eval_jaxpr": "jaxpr",
    "concrete_or_error": "trace",
    "check_jaxpr": "check",
    "DropVar": "jaxpr",
    "Effect": "effects",
    "Effects": "effects",
    "JaxprTypeError": "errors",
    "InconclusiveDimensionOperation": "errors",
    "no_effects": "effects",
    "abstract_token": "aval",
    "is_symbolic_dim": "dims",
    "max_dim": "dims",
    "min_dim": "dims",
    "pytype_aval_mappings": "aval",
}


def __getattr__(name: str) -> _Any:
    """Loaded when first asked for."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
