"""Applying primitives outside of programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.array import asarray_concrete
from amdjax.core.primitive import Primitive
from amdjax.core.trace import eval_trace
from amdjax.extend.backend import Backend as Backend

__all__ = ["Backend", "apply_primitive", "canonicalize_dtype_handlers"]

canonicalize_dtype_handlers: dict[type, Any] = dict.fromkeys(
    (bool, int, float, complex, np.ndarray, np.generic), asarray_concrete
)
"""How values become arrays; what libraries add is kept, and never asked: `np.asarray` is."""


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """Compute a primitive of concrete operands.

    Args:
      prim: the primitive.
      *args: its operands.
      **params: its parameters.

    Returns:
      Its result, or a list of them.

        >>> from amdjax.extend.core.primitives import add_p
        >>> print(apply_primitive(add_p, 1.0, 2.0))
        3.0
    """
    impl, prim.impl = prim.impl, None  # which may well be this function
    try:
        return eval_trace.process_primitive(prim, args, params)
    finally:
        prim.impl = impl
