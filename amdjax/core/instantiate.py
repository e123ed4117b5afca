"""Programs of symbolic shapes made into programs of given sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amdjax.core.aval import AbstractValue, ShapedArray
from amdjax.core.dim_values import dim_as_value_p
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import (
    Atom,
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    LateJaxpr,
    Literal,
    Var,
    memoize_on_jaxpr,
    subjaxprs,
)
from amdjax.core.ref import AbstractRef

__all__ = ["Retyped", "check_values", "instantiate", "params_at", "type_at"]


def instantiate(closed: ClosedJaxpr, sizes: Mapping[str, int]) -> ClosedJaxpr:
    """The program that a symbolic one is for given sizes.

    Args:
      closed: the program.
      sizes: the size of each of its dimension variables.

    Returns:
      A program in which only the dimensions of `sizes` are symbolic. Values of others are literals.

    Raises:
      KeyError: a variable has no size.
      OverflowError: a size that the program computes with is too large for its dtype.
    """
    return _Instance(sizes).closed(closed)


def check_values(closed: ClosedJaxpr, sizes: Mapping[str, int]) -> None:
    """Raise OverflowError if a size that a program computes with is too large for its dtype."""
    if isinstance(closed, LateJaxpr) and dim_as_value_p.name not in closed.primitives:
        return
    for eqn in _values(closed.jaxpr):
        _check_value(eqn, eqn.params["dim"].evaluate(sizes))


@memoize_on_jaxpr
def _values(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """The equations that make values of sizes."""
    found = [eqn for eqn in jaxpr.eqns if eqn.primitive is dim_as_value_p]
    for body in subjaxprs(jaxpr):
        found += _values(body.jaxpr if isinstance(body, ClosedJaxpr) else body)
    return found


def _check_value(eqn: JaxprEqn, value: int) -> None:
    dtype = eqn.outvars[0].aval.dtype
    if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        dim = eqn.params["dim"]
        raise OverflowError(
            f"Symbolic dimension '{dim}' is {value} here, too large for {dtype}: {eqn.origin}. "
            "Compute such numbers in floating point, as jnp.float32(n) ** 4 does for n**4, or set "
            "enable_x64."
        )


def type_at(aval: Any, sizes: Mapping[str, int]) -> Any:
    """The type that a symbolic one is for given sizes of its dimension variables."""
    return _Instance(sizes).aval(aval)


def params_at(params: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """What parameters of an equation are for given sizes of the dimension variables."""
    return {name: _Instance(sizes).value(value) for name, value in params.items()}


class Retyped:
    """What a program becomes of which values have other types; `aval` says which."""

    def __init__(self) -> None:
        self.atoms: dict[Var, Atom] = {}

    def closed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        return ClosedJaxpr(self.jaxpr(closed.jaxpr), closed.consts)

    def jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        constvars, invars = (list(map(self.bound, v)) for v in (jaxpr.constvars, jaxpr.invars))
        eqns = [new for eqn in jaxpr.eqns if (new := self.eqn(eqn)) is not None]
        return Jaxpr(constvars, invars, list(map(self.atom, jaxpr.outvars)), eqns)

    def eqn(self, eqn: JaxprEqn) -> JaxprEqn | None:
        invars = list(map(self.atom, eqn.invars))
        params = {name: self.value(value) for name, value in eqn.params.items()}
        outvars = list(map(self.bound, eqn.outvars))
        return JaxprEqn(eqn.primitive, invars, outvars, params, eqn.effects, eqn.source)

    def bound(self, var: Var) -> Var:
        new = type(var)(self.aval(var.aval))
        if type(var) is not DropVar:
            self.atoms[var] = new
        return new

    def atom(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self.atoms[atom]

    def aval(self, aval: AbstractValue) -> Any:
        return aval.of(self.aval(aval.inner_aval)) if isinstance(aval, AbstractRef) else aval

    def inner(self) -> Retyped:
        """What does the same to programs in parameters."""
        return type(self)()

    def value(self, value: Any) -> Any:
        """A parameter: programs and types, also inside sequences and dictionaries."""
        if isinstance(value, ClosedJaxpr):
            return self.inner().closed(value)
        if isinstance(value, Jaxpr):
            return self.inner().jaxpr(value)
        if isinstance(value, AbstractValue):
            return self.aval(value)
        if isinstance(value, dict):
            return {key: self.value(x) for key, x in value.items()}
        if isinstance(value, (tuple, list)):
            parts = map(self.value, value)
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value


class _Instance(Retyped):
    """What a program becomes of which the dimension variables have values."""

    def __init__(self, sizes: Mapping[str, int]):
        super().__init__()
        self.sizes = sizes

    def inner(self) -> Retyped:
        return _Instance(self.sizes)

    def eqn(self, eqn: JaxprEqn) -> JaxprEqn | None:
        if eqn.primitive is dim_as_value_p:
            (out,), value = eqn.outvars, self.value(eqn.params["dim"])
            if not isinstance(value, Dim):
                _check_value(eqn, value)
                self.atoms[out] = Literal(value, out.aval)
                return None
        return super().eqn(eqn)

    def aval(self, aval: AbstractValue) -> Any:
        if isinstance(aval, ShapedArray) and any(isinstance(d, Dim) for d in aval.shape):
            return aval.update(shape=tuple(map(self.value, aval.shape)))
        return super().aval(aval)

    def value(self, value: Any) -> Any:
        return value.evaluate(self.sizes) if isinstance(value, Dim) else super().value(value)
