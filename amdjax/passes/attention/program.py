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


def held(number: float, dtype: np.dtype) -> float | None:
    """A number as a dtype holds it, None where that is none."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = np.isfinite(number) and limits.min <= int(number) <= limits.max
        return float(int(number)) if fits else None
    if dtype.kind == "b":
        return float(number != 0)
    with np.errstate(all="ignore"):
        return float(np.asarray(number).astype(dtype)) if is_float(dtype) else None


def _exactly(value: np.ndarray) -> float | None:
    """The number of an array, None for an integer of more bits than floats have."""
    number = float(value)
    return number if value.dtype.kind not in "iu" or int(number) == int(value) else None


def is_float(dtype: np.dtype) -> bool:
    """Whether a dtype is of floats that only round; eight bits are asked for to lose something."""
    return dtype.kind in "fV" and dtype.itemsize > 1


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
        self._numbers: dict[Var, float | None] = {}

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
            is_number = value.dtype.kind in "biufV" and not value.dtype.names
            return _exactly(value) if is_number else None
        if atom in self.consts:
            return self._constant(self.consts[atom])
        if atom not in self._numbers:
            eqn = self.maker(atom)
            self._numbers[atom] = None if eqn is None else self._computed(eqn)
        return self._numbers[atom]

    def _computed(self, eqn: JaxprEqn) -> float | None:
        """The number that an equation makes everywhere, as its dtype holds it."""
        name, aval = eqn.primitive.name, eqn.outvars[0].aval
        is_moved = name in STRUCTURAL or name == "convert_element_type"
        if not is_moved and (aval.shape or name not in _NUMBERS or aval.dtype.kind != "f"):
            return None
        values = [self.number(x) for x in eqn.invars]
        known = [np.float64(x) for x in values if x is not None]
        if len(known) < len(values):
            return None
        with np.errstate(all="ignore"):
            return held(known[0] if is_moved else _NUMBERS[name](*known), aval.dtype)

    @staticmethod
    def _constant(value: Any) -> float | None:
        aval = getattr(value, "aval", value)
        if getattr(aval, "size", None) != 1 or np.dtype(aval.dtype).kind not in "iuf":
            return None
        return _exactly(np.asarray(value).reshape(()))

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
