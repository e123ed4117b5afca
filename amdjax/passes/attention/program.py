"""A program as recognition reads it: who makes a value, who reads it, which numbers are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.passes.attention.axes import STRUCTURAL, Layout, before

Atom = Any

#: What computes a number of numbers, so far as programs scale logits by it.
_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power,
}  # fmt: skip


class Program:
    """A flat program, its equations by what they make and what they read."""

    def __init__(self, closed: ClosedJaxpr):
        self.closed = closed
        self.eqns = closed.eqns
        self.makers = {v: e for e in self.eqns for v in e.outvars}
        self.place = {v: i for i, e in enumerate(self.eqns) for v in e.outvars}
        self.readers: dict[Any, list[int]] = defaultdict(list)
        for i, eqn in enumerate(self.eqns):
            for x in eqn.invars:
                if isinstance(x, Var):
                    self.readers[x].append(i)
        self.consts = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        self.results = {v for v in closed.jaxpr.outvars if isinstance(v, Var)}

    def maker(self, atom: Atom, *names: str) -> JaxprEqn | None:
        """The equation that makes a value, if its primitive has one of the names."""
        eqn = self.makers.get(atom) if isinstance(atom, Var) else None
        return eqn if eqn is not None and (not names or eqn.primitive.name in names) else None

    def defined(self, atom: Atom) -> int:
        """Behind how many equations a value is there."""
        return self.place[atom] + 1 if atom in self.place else 0

    def number(self, atom: Atom) -> float | None:
        """The number that a value is everywhere, None if it is none or not known."""
        if isinstance(atom, Literal):
            value = np.asarray(atom.val)
            return float(value) if value.dtype.kind in "biuf" or value.dtype.names is None else None
        if atom in self.consts:
            return self._constant(self.consts[atom])
        eqn = self.maker(atom)
        if eqn is None:
            return None
        name = eqn.primitive.name
        if name in STRUCTURAL or name == "convert_element_type":
            found = self.number(eqn.invars[0])
            return None if found is None or eqn.outvars[0].aval.dtype.kind not in "iufV" else found
        if atom.aval.shape or name not in _NUMBERS:
            return None
        values = [self.number(x) for x in eqn.invars]
        known = [np.float64(x) for x in values if x is not None]
        if len(known) < len(values) or atom.aval.dtype.kind != "f":
            return None
        with np.errstate(all="ignore"):
            return float(_NUMBERS[name](*known))

    @staticmethod
    def _constant(value: Any) -> float | None:
        aval = getattr(value, "aval", value)
        if getattr(aval, "shape", None) != () or np.dtype(aval.dtype).kind not in "iuf":
            return None
        return float(np.asarray(value))

    def root(
        self, atom: Atom, layout: Layout, *, through_broadcasts: bool = True
    ) -> tuple[Atom, Layout]:
        """What a value was moved from, reshaped or broadcast, and the layout of that."""
        while (eqn := self.maker(atom, *STRUCTURAL)) is not None:
            if not through_broadcasts and _repeats(eqn):
                break
            found = before(eqn, layout)
            if found is None:
                break
            atom, layout = eqn.invars[0], found
        return atom, layout


def _repeats(eqn: JaxprEqn) -> bool:
    return eqn.outvars[0].aval.size != getattr(eqn.invars[0].aval, "size", 1)
