"""Finding where a NaN or infinity first appears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.config import config
from amdjax.core.jaxpr import ClosedJaxpr, Literal


def has_invalid(arrays: Sequence[ConcreteArray]) -> bool:
    """Whether a result holds what `debug_nans` or `debug_infs` forbid."""
    return any(_invalid(np.asarray(x)) for x in arrays)


def _invalid(x: np.ndarray) -> str | None:
    if x.dtype.kind not in "fcV" or (x.dtype.kind == "V" and x.dtype.itemsize > 2):
        return None
    values = x if x.dtype.kind in "fc" else x.astype(np.float32)
    if config.debug_nans and np.isnan(values).any():
        return "nan"
    if config.debug_infs and np.isinf(values).any():
        return "inf"
    return None


def find_invalid(closed: ClosedJaxpr, args: Sequence[Any]) -> None:
    """Run a program operation by operation and raise at the first invalid result."""
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, args, strict=True))
    for eqn in closed.jaxpr.eqns:
        values = [x.val if isinstance(x, Literal) else env[x] for x in eqn.invars]
        out = eqn.primitive.bind(*values, **eqn.params)
        outs = out if eqn.primitive.multiple_results else [out]
        for x in outs:
            kind = _invalid(np.asarray(x))
            if kind is not None:
                raise FloatingPointError(
                    f"invalid value ({kind}) encountered in {eqn.primitive.name}, computed at {eqn.source}"
                )
        env.update(zip(eqn.outvars, outs, strict=True))
    raise FloatingPointError("invalid value encountered in the result of a jitted function")
