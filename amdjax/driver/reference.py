"""Programs operation by operation with NumPy: what compiled ones are compared with.

Floats are computed in float64 and rounded to their type after each operation, or not at all
(`is_double`). Nothing of the compiler is used. An operation without a rule here is run by amdjax,
alone; `Reference.unchecked` names those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.dtypes import issubdtype
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Host, Shaped
from amdjax.driver.reference_arrays import ARRAYS
from amdjax.driver.reference_elements import ELEMENTS
from amdjax.passes.extended import store_extended
from amdjax.passes.flatten import flatten_calls, written_out

Values = list[np.ndarray]


class Reference:
    """Evaluates programs.

    Args:
      is_double: whether floats stay in float64, whatever their type.

    Attributes:
      unchecked: names of operations that have no rule.
    """

    def __init__(self, is_double: bool = False) -> None:
        self.is_double = is_double
        self.unchecked: set[str] = set()
        self._flat: dict[int, tuple[ClosedJaxpr, ClosedJaxpr]] = {}

    def run(
        self, closed: ClosedJaxpr, args: Sequence[Any],
        see: Callable[[int, JaxprEqn, Values, Values], None] | None = None,
    ) -> Values:  # fmt: skip
        """The results of a program.

        Args:
          closed: the program, of known shapes.
          args: its arguments.
          see: is told of each operation: its number, itself, operands and results.
        """
        jaxpr = closed.jaxpr
        env = dict(zip(jaxpr.constvars, map(self.wide, closed.consts)))
        env.update(zip(jaxpr.invars, map(self.wide, args)))

        def read(atom: Any) -> np.ndarray:
            if isinstance(atom, Literal):
                return self.wide(np.asarray(atom.val, atom.aval.dtype))
            return env[atom]

        last = {v: i for i, e in enumerate(jaxpr.eqns) for v in e.invars if isinstance(v, Var)}
        for i, eqn in enumerate(jaxpr.eqns):
            operands = [read(x) for x in eqn.invars]
            results = self.equation(eqn, operands)
            if see is not None:
                see(i, eqn, operands, results)
            env.update(zip(eqn.outvars, results))
            for v in {x for x in eqn.invars if isinstance(x, Var) and last[x] == i}:
                if v not in jaxpr.outvars:
                    del env[v]
        return [read(v) for v in jaxpr.outvars]

    def wide(self, x: Any) -> np.ndarray:
        """An array of NumPy; of float64 where that is asked for."""
        array = np.asarray(x)
        return array.astype(_wide(array.dtype)) if self.is_double else array

    def equation(self, eqn: JaxprEqn, operands: Values) -> Values:
        """The results of an operation."""
        name = eqn.primitive.name
        control = _CONTROL.get(name)
        if control is not None:
            return control(self, eqn, operands)
        types = [v.aval for v in eqn.outvars]
        with np.errstate(all="ignore"):
            made = self._computed(eqn, operands)
            return [self._rounded(y, t) for y, t in zip(made, types)]

    def _computed(self, eqn: JaxprEqn, operands: Values) -> Sequence[Any]:
        name, params = eqn.primitive.name, eqn.params
        dtype = eqn.outvars[0].aval.dtype if eqn.outvars else None
        element = ELEMENTS.get(name)
        if element is not None:
            return [element(dtype, *map(_as_wide, operands), **params)]
        made = ARRAYS.get(name)
        found = NotImplemented if made is None else made(eqn, *operands)
        if found is not NotImplemented:
            return found if isinstance(found, (list, tuple)) else [found]
        rule = eqn.primitive.lowering
        if isinstance(rule, Host):
            return list(rule.fn(*self._narrow(eqn, operands), **params) or [])
        if isinstance(rule, Shaped) and rule.composed is not None:
            return self.run(self.flat(written_out(eqn, rule.composed)), operands)
        self.unchecked.add(name)
        made = eqn.primitive.bind(*map(jnp.asarray, self._narrow(eqn, operands)), **params)
        return made if eqn.primitive.multiple_results else [made]

    def _narrow(self, eqn: JaxprEqn, operands: Values) -> Values:
        return [x.astype(v.aval.dtype, copy=False) for x, v in zip(operands, eqn.invars)]

    def _rounded(self, y: Any, aval: Any) -> np.ndarray:
        array = np.asarray(y)
        if array.shape != tuple(aval.shape):
            array = np.broadcast_to(array, aval.shape)
        dtype = _wide(aval.dtype) if self.is_double else aval.dtype
        return array if array.dtype == dtype else _cast(array, np.dtype(dtype))

    def flat(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """A program with its calls written out; that of a loop once."""
        found = self._flat.get(id(closed))
        if found is None:
            flat = store_extended(flatten_calls(closed))
            found = self._flat[id(closed)] = flat, closed
        return found[0]


def _wide(dtype: Any) -> Any:
    if issubdtype(dtype, np.complexfloating):
        return np.complex128
    return np.float64 if issubdtype(dtype, np.floating) else dtype


def _as_wide(x: np.ndarray) -> np.ndarray:
    return x.astype(_wide(x.dtype), copy=False)


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Complex numbers lose their imaginary part only where the result has none."""
    if np.iscomplexobj(x) and not issubdtype(dtype, np.complexfloating):
        x = x.real
    return x.astype(dtype)


# Control flow


def _cond(r: Reference, eqn: JaxprEqn, operands: Values) -> Values:
    branches = eqn.params["branches"]
    which = int(np.clip(int(operands[0]), 0, len(branches) - 1))
    return r.run(r.flat(branches[which]), operands[1:])


def _while(r: Reference, eqn: JaxprEqn, operands: Values) -> Values:
    p = eqn.params
    tests, bodies = p["cond_nconsts"], p["body_nconsts"]
    cond, body = r.flat(p["cond_jaxpr"]), r.flat(p["body_jaxpr"])
    fixed = operands[:tests], operands[tests : tests + bodies]
    carry = operands[tests + bodies :]
    while bool(r.run(cond, [*fixed[0], *carry])[0]):
        carry = r.run(body, [*fixed[1], *carry])
    return carry


def _scan(r: Reference, eqn: JaxprEqn, operands: Values) -> Values:
    p = eqn.params
    body = r.flat(p["jaxpr"])
    first, count, length = p["num_consts"], p["num_carry"], p["length"]
    fixed, carry = operands[:first], operands[first : first + count]
    rows = operands[first + count :]
    steps = range(length - 1, -1, -1) if p["reverse"] else range(length)
    made: list[Values] = []
    for i in steps:
        out = r.run(body, [*fixed, *carry, *(x[i] for x in rows)])
        carry = out[:count]
        made.append(out[count:])
    if p["reverse"]:
        made.reverse()
    stacked = [
        np.stack([m[k] for m in made]) if made else np.zeros(v.aval.shape, v.aval.dtype)
        for k, v in enumerate(eqn.outvars[count:])
    ]
    return [*carry, *stacked]


_CONTROL: dict[str, Callable[[Reference, JaxprEqn, Values], Values]] = {
    "cond": _cond, "while": _while, "scan": _scan,
}  # fmt: skip
