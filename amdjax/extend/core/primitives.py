"""All primitives by the names that JAX gives them, such as `sin_p`.

>>> from amdjax.extend.core.primitives import sin_p
>>> sin_p
sin
"""

from __future__ import annotations

import importlib

from amdjax.core.primitive import Primitive

_HOMES = (
    "amdjax.lax",
    "amdjax.lax.linalg",
    "amdjax.lax.control_flow",
    "amdjax.lax.rng",
    "amdjax.transforms",
    "amdjax.transforms.collectives",
    "amdjax.transforms.exchanges",
    "amdjax.transforms.callbacks",
    "amdjax.random.gamma_family",
)
# What JAX's name is not the printed name with `_p`.
_PRINTED = {
    "add_jaxvals_p": "add_any",
    "remat_p": "remat2",
    "linear_solve_p": "custom_linear_solve",
}

call_p = Primitive("call", multiple_results=True)
"""For tables of rules; programs call others by `closed_call_p` and `jit_p`."""


def __getattr__(name: str) -> Primitive:
    if not name.endswith("_p"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in _HOMES:
        found = getattr(importlib.import_module(home), name, None)
        if isinstance(found, Primitive):
            return found
    found = Primitive.by_name.get(_PRINTED.get(name, name.removesuffix("_p").replace("_", "-")))
    found = found or Primitive.by_name.get(_PRINTED.get(name, name.removesuffix("_p")))
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    for home in _HOMES:
        importlib.import_module(home)
    return sorted({*_PRINTED, *(f"{name.replace('-', '_')}_p" for name in Primitive.by_name)})
