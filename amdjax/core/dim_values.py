"""Symbolic dimensions as operands: the operation that makes a value of a size."""

from __future__ import annotations

from typing import Any

from amdjax.core.aval import ShapedArray, register_aval
from amdjax.core.dims import Dim
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.lowering import Element
from amdjax.core.primitive import Primitive

__all__ = ["dim_as_value", "dim_as_value_p"]

dim_as_value_p = Primitive("dim_as_value")


def dim_as_value(dim: Dim) -> Any:
    """A size as a scalar, weakly typed as a Python integer is."""
    return dim_as_value_p.bind(dim=dim)


def _type_of(dim: Dim) -> ShapedArray:
    return ShapedArray((), dim.dtype, weak_type=True)


@dim_as_value_p.def_abstract_eval
def _dim_as_value_type(*, dim: Dim) -> ShapedArray:
    return _type_of(dim)


@dim_as_value_p.def_impl
def _no_value(*, dim: Dim) -> Any:
    raise InconclusiveDimensionOperation(
        f"Symbolic dimension '{dim}' has no value here: functions of symbolic shapes are traced, "
        "by make_jaxpr or eval_shape, and not run."
    )


dim_as_value_p.lowering = Element(lambda b, index, *, dim: b.const(dim, dim.dtype))

register_aval(Dim, _type_of)
Dim.as_value = dim_as_value
