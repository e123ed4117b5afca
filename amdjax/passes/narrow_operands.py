"""Products that read their operands as they are stored, not converted to the dtype of sums.

As with weights of bytes or bfloat16 that are converted where they are used: the converted matrix
would be written and read again, which takes longer than a product of few rows, and more memory than
the weights. Kernels of CPUs convert what they load, or what they pack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Var
from amdjax.passes.cleanup import eliminate_dead_code

LEAST_BYTES = 1 << 16  # of a converted operand, from which it is worth not being stored

#: What is converted in an instruction or a few, to what keeps all of its values.
_WIDER = {
    "bfloat16": ("float32",), "float16": ("float32",), "float32": ("float64",),
    "int8": ("float32", "int32"), "uint8": ("float32", "int32"),
    "int16": ("float32", "int32"), "uint16": ("float32", "int32"),
}  # fmt: skip


def read_narrow_operands(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Products of the narrow array, where the larger operand is one that was converted."""
    makers = {v: e for e in closed.eqns for v in e.outvars}
    eqns = [_narrowed(e, makers) if e.primitive.name == "dot_general" else e for e in closed.eqns]
    if all(new is old for new, old in zip(eqns, closed.eqns, strict=True)):
        return closed
    return eliminate_dead_code(closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns)))


def _narrowed(eqn: JaxprEqn, makers: dict[Var, JaxprEqn]) -> JaxprEqn:
    """A product of the larger operand as it was before its conversion.

    Of one operand alone: where both are narrow there are instructions that multiply them, but these
    may take subnormal numbers for zero, which conversions do not.
    """
    sizes = [_converted_bytes(x) for x in eqn.invars]
    side = int(sizes[1] >= sizes[0])
    maker = makers.get(eqn.invars[side])  # type: ignore[arg-type]
    if sizes[side] < LEAST_BYTES or maker is None or not _widens(maker):
        return eqn
    source = maker.invars[0]
    if source.aval.dtype == eqn.invars[1 - side].aval.dtype:
        return eqn
    invars = list(eqn.invars)
    invars[side] = source
    params = {**eqn.params, "preferred_element_type": eqn.outvars[0].aval.dtype}
    return eqn.replace(invars=invars, params=params)


def _widens(eqn: JaxprEqn) -> bool:
    """Whether an equation is a conversion that kernels make of what they load."""
    if eqn.primitive.name != "convert_element_type" or not isinstance(eqn.invars[0], Var):
        return False
    source, to = (x.aval.dtype for x in (eqn.invars[0], eqn.outvars[0]))
    return str(to) in _WIDER.get(str(source), ())


def _converted_bytes(x: Any) -> int:
    """Bytes of an operand, none of a symbolic number."""
    size = x.aval.size
    return 0 if isinstance(size, Dim) else int(size) * np.dtype(x.aval.dtype).itemsize
