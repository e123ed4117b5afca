"""SciPy's surface on traced arrays; its modules are loaded when first asked for."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from amdjax.core.boundaries import api_boundary as _api_boundary

_MODULES = (
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal",
    "sparse", "spatial", "special", "stats",
)  # fmt: skip


@_api_boundary
def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"amdjax.scipy.{name}")
    raise AttributeError(f"module 'amdjax.scipy' has no attribute {name!r}")
