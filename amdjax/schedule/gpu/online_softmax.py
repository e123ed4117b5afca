"""Sums of exponentials less a maximum, in the pass over a row that finds the maximum.

`s = sum(w * exp(k * (x - m)))` with `m = max(x)` seems to need two passes. But relative to any
other number in place of `m` the sum is the same up to a factor. So each thread sums relative to the
largest number that it has met, and scales what it has whenever that grows (M. Milakov and
N. Gimelshein, "Online normalizer calculation for softmax", 2018). The weights `w` may be anything
known by then and what is subtracted any function of `m`: both are found by following operations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.core.lowering import Element, Pointwise, Reduce
from amdjax.schedule.domain import region_producers
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.values import compute_dtype, short_dtype


@dataclass(frozen=True)
class Rescaled:
    """A sum of `w * power(factor * (x - shift))`.

    Args:
      extremum: the reduction that finds the largest `x` (the smallest for a negative factor).
      shift: what is subtracted: a value of the row that follows from the extremum.
      factor: of the exponent.
      power: `exp` or `exp2`.
    """

    extremum: Root
    shift: Var
    factor: float
    power: str


def merge_passes(region: Region, fusion: Fusion) -> tuple[Region, dict[Root, Rescaled]]:
    """The region with sums at the level of the extrema that they are relative to.

    Args:
      region: with reductions along rows.
      fusion: of the program.

    Returns:
      A region whose levels are fewer where that is possible, and what is known of such sums.
    """
    found: dict[Root, Rescaled] = {}
    level = 0
    while level < max(r.level for r in region.roots):
        sums = [r for r in region.roots if r.is_reduction and r.level == level + 1]
        matches = {r: m for r in sums if (m := _match(r, region, fusion)) is not None}
        if not sums or len(matches) < len(sums):
            level += 1
            continue
        roots = {r: replace(r, level=_merged_level(r, level)) for r in region.roots}
        known = {**found, **matches}
        found = {roots[r]: replace(m, extremum=roots[m.extremum]) for r, m in known.items()}
        region = replace(region, roots=list(roots.values()))
        level += 1
    return region, found


def _merged_level(root: Root, level: int) -> int:
    """The level of a root where reductions of the next level are computed at this one.

    Elements that wait for the extremum only are computed in the next pass, with those that wait
    for the sums.
    """
    if root.level == level + 1 and not (root.is_reduction or root.row):
        return root.level
    return root.level - (root.level > level)


def _match(root: Root, region: Region, fusion: Fusion) -> Rescaled | None:
    """What a sum is relative to, if that is an extremum of the level before."""
    if _combine(root) != "add":
        return None
    for extremum in region.roots:
        if extremum.is_reduction and extremum.level == root.level - 1 and _is_extremum(extremum):
            match = _Terms(extremum, region, fusion).sum(root)
            if match is not None:
                return match
    return None


def _combine(root: Root) -> Any:
    """By what a plain reduction combines."""
    rule = root.eqn.primitive.lowering
    plain = isinstance(rule, Reduce) and rule.prepare is None and rule.finish is None
    return rule.combine if isinstance(rule, Reduce) and plain else None


def _is_extremum(root: Root) -> bool:
    return _combine(root) in ("max", "min") and _kind(root.vars[0]) == "f"


def _kind(x: Any) -> str:
    name = compute_dtype(short_dtype(x.aval.dtype))
    return "f" if name in ("f32", "f64") else name


@dataclass(frozen=True)
class _Form:
    """What a value is in terms of the operand and the result of the extremum.

    `known` does not depend on the result, nor does `constant`, which is the same everywhere, nor
    `operand`; `row` follows from the result; an `exponent` is `factor * (operand - shift)`, a
    `term` a known multiple of a power of such an exponent.
    """

    kind: str
    factor: float = 1.0
    shift: Any = None
    power: str = ""


_KNOWN, _CONSTANT, _OPERAND, _ROW = map(_Form, ("known", "constant", "operand", "row"))
_FREE = (_KNOWN, _CONSTANT, _OPERAND)


def _operation(eqn: JaxprEqn) -> str:
    """The tile op that computes an element of a result, if it is one."""
    rule = eqn.primitive.lowering
    return rule.op if isinstance(rule, Pointwise) and isinstance(rule.op, str) else ""


def _copies(eqn: JaxprEqn) -> bool:
    """Whether a result is the operand at the same place, perhaps in another dtype."""
    rule = eqn.primitive.lowering
    return isinstance(rule, Pointwise) and rule.copies


def _places(eqn: JaxprEqn) -> bool:
    """Whether a result's elements are the operand's, wherever they are."""
    rule = eqn.primitive.lowering
    return _copies(eqn) or (isinstance(rule, Element) and rule.keeps_order)


class _Terms:
    """Follows the operations between an extremum and a sum."""

    def __init__(self, extremum: Root, region: Region, fusion: Fusion):
        self.extremum, self.region = extremum, region
        self.producers = region_producers(region, fusion)
        late = [r for r in region.roots if r.is_reduction and r.level >= extremum.level]
        self.waiting = {v for r in late for v in r.vars}
        self.forms: dict[Var, _Form | None] = {}
        self.operand = self._origin(extremum.eqn.invars[0])

    def sum(self, root: Root) -> Rescaled | None:
        """What a sum is; None if it is not relative to the extremum."""
        (x,) = root.eqn.invars
        term = self.form(x)
        if term is None or term.kind != "term" or term.shift is None:
            return None
        names = {compute_dtype(short_dtype(v.aval.dtype)) for v in (x, self.extremum.vars[0])}
        if len(names) > 1:
            return None
        return Rescaled(self.extremum, term.shift, term.factor, term.power)

    def _origin(self, x: Any) -> Any:
        """The value that an atom is, perhaps of another dtype."""
        while (eqn := self._maker(x)) is not None and _copies(eqn):
            if not _keeps_value(eqn):
                break
            x = eqn.invars[0]
        return x

    def _maker(self, x: Any) -> JaxprEqn | None:
        return None if isinstance(x, Literal) else self.producers.get(x)

    def form(self, x: Any) -> _Form | None:
        """What an atom is; None if it is nothing of use."""
        if isinstance(x, Literal):
            return _CONSTANT
        if x not in self.forms:
            self.forms[x] = self._form(x)
        return self.forms[x]

    def _form(self, x: Var) -> _Form | None:
        if x in self.extremum.vars:
            return _ROW
        if self._origin(x) is self.operand:
            return _OPERAND
        eqn = self.producers.get(x)
        if eqn is None:
            return None if x in self.waiting else _KNOWN
        forms = [self.form(a) for a in eqn.invars]
        if any(f is None for f in forms):
            return None
        return self._result(eqn, [f for f in forms if f is not None])

    def _result(self, eqn: JaxprEqn, forms: list[_Form]) -> _Form | None:
        name, first = _operation(eqn), forms[0] if forms else _CONSTANT
        if all(f == _CONSTANT for f in forms):
            return _CONSTANT if _places(eqn) or name == "neg" else _KNOWN
        if all(f in _FREE for f in forms):
            return _KNOWN
        if all(f in (_ROW, _CONSTANT) for f in forms):
            return _ROW
        if _copies(eqn) or (name == "neg" and first.kind == "term"):
            return first if _kind(eqn.outvars[0]) == "f" else None
        if name in ("sub", "mul", "div", "neg"):
            return self._arithmetic(eqn, forms)
        if name in ("exp", "exp2") and first.kind == "exponent":
            grows = (first.factor > 0) == (_combine(self.extremum) == "max")
            return replace(first, kind="term", power=name) if grows else None
        return None

    def _arithmetic(self, eqn: JaxprEqn, forms: list[_Form]) -> _Form | None:
        name, first, last = _operation(eqn), forms[0], forms[-1]
        if name == "sub" and {first, last} == {_OPERAND, _ROW}:
            shift = eqn.invars[1 if first == _OPERAND else 0]
            return _Form("exponent", 1.0 if first == _OPERAND else -1.0, shift)
        if name == "neg" and first.kind == "exponent":
            return replace(first, factor=-first.factor)
        if name in ("mul", "div") and first.kind == "term" and last in _FREE:
            return first
        if name == "mul" and last.kind == "term" and first in _FREE:
            return last
        if name in ("mul", "div") and first.kind == "exponent":
            return self._scaled(first, eqn.invars[1], name == "div")
        if name == "mul" and last.kind == "exponent":
            return self._scaled(last, eqn.invars[0], False)
        return None

    def _scaled(self, exponent: _Form, by: Any, divide: bool) -> _Form | None:
        number = self._number(by)
        if not number:
            return None
        factor = exponent.factor / number if divide else exponent.factor * number
        return replace(exponent, factor=factor)

    def _number(self, x: Any) -> float | None:
        """The number that a constant is."""
        if isinstance(x, Literal):
            return float(x.val)
        eqn = self._maker(x)
        if eqn is None or not _places(eqn):
            return None
        return self._number(eqn.invars[0])


def _keeps_value(eqn: JaxprEqn) -> bool:
    """Whether a conversion between floats is exact."""
    (x,), (y,) = eqn.invars, eqn.outvars
    wider = x.aval.dtype.itemsize < y.aval.dtype.itemsize or x.aval.dtype == y.aval.dtype
    return wider and _kind(x) == "f" and _kind(y) == "f"
