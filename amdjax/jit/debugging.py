"""Finding where a NaN or infinity first appears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.config import config, debug_infs, debug_nans
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, Literal
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive


def has_invalid(arrays: Sequence[ConcreteArray]) -> bool:
    """Whether a result holds what `debug_nans` or `debug_infs` forbid."""
    return any(_invalid(np.asarray(x), config.debug_nans, config.debug_infs) for x in arrays)


def _invalid(x: np.ndarray, nans: bool, infs: bool) -> str | None:
    if x.dtype.kind not in "fcV" or (x.dtype.kind == "V" and x.dtype.itemsize > 2):
        return None
    values = x if x.dtype.kind in "fc" else x.astype(np.float32)
    if nans and np.isnan(values).any():
        return "nan"
    if infs and np.isinf(values).any():
        return "inf"
    return None


def check_results(primitive: Primitive, outs: Sequence[ConcreteArray]) -> None:
    """Raise if an operation that ran by itself made what the flags forbid."""
    for x in outs:
        kind = _invalid(np.asarray(x), config.debug_nans, config.debug_infs)
        if kind is not None:
            raise FloatingPointError(f"invalid value ({kind}) encountered in {primitive.name}")


def find_invalid(closed: ClosedJaxpr, args: Sequence[Any]) -> None:
    """Run a program operation by operation and raise at the first invalid result."""
    forbidden = config.debug_nans, config.debug_infs
    with debug_nans(False), debug_infs(False):
        _find(closed, args, forbidden)
    raise FloatingPointError("invalid value encountered in the result of a jitted function")


def _find(closed: ClosedJaxpr, args: Sequence[Any], forbidden: tuple[bool, bool]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else env[atom]

    for eqn in closed.jaxpr.eqns:
        values = [read(x) for x in eqn.invars]
        rule = eqn.primitive.lowering
        if isinstance(rule, Control) and rule.name == "call":
            inner = eqn.params[rule.jaxpr_param]
            inner = ClosedJaxpr(inner, ()) if isinstance(inner, Jaxpr) else inner
            outs = _find(inner, values[len(values) - len(inner.jaxpr.invars) :], forbidden)
        else:
            out = eqn.primitive.bind(*values, **eqn.params)
            outs = out if eqn.primitive.multiple_results else [out]
        for x in outs:
            kind = _invalid(np.asarray(x), *forbidden)
            if kind is not None:
                raise FloatingPointError(
                    f"invalid value ({kind}) encountered in {eqn.primitive.name}, "
                    f"computed at {eqn.source}"
                )
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in closed.jaxpr.outvars]
