"""What padding of arguments may change: where elements beyond the sizes meet others.

The program is followed once, forward. Of each array is known what it holds beyond the size before
padding, along each axis that is padded: a number, the same as before it, or something unknown.
Masks are comparisons of positions with sizes before padding. An operation by which elements along
such an axis meet is harmless if what lies beyond is its identity, as 0 of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core import dtypes
from amdjax.core.dims import Dim
from amdjax.core.dtypes import ExtendedDType
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, subjaxprs_of_value
from amdjax.core.lowering import Control, Pointwise


class Mark:
    """What lies beyond a size, where it is no number that is known."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


UNKNOWN, SAME = Mark("unknown"), Mark("same")


class Fact(NamedTuple):
    """What is known of an array.

    Attributes:
      beyond: for each padded axis what lies beyond the size before padding: a number, `SAME` if all
        elements along the axis are alike, or `UNKNOWN`.
      number: what all elements are, None if that is not known.
      size: a function of sizes before padding that all elements are: an integer or a dimension.
      position: an axis and a size, of which elements are the sum of the latter and their position.
    """

    beyond: Mapping[int, Any] = {}
    number: Any = None
    size: Any = None
    position: tuple[int, Any] | None = None

    def at(self, axis: int) -> Any:
        """What lies beyond along an axis; of a scalar, which serves for any."""
        if self.number is not None:
            return self.number
        return self.beyond.get(axis, SAME)

    def moved(self, to: Mapping[int, int]) -> Fact:
        """The fact of an array whose axes are others."""
        beyond = {to[i]: x for i, x in self.beyond.items() if i in to}
        position = self.position
        if position is not None:
            position = (to[position[0]], position[1]) if position[0] in to else None
        return Fact(beyond, self.number, self.size, position)


Rule = Callable[["Reader", JaxprEqn, list[Fact]], list[Fact]]


class Reader:
    """Follows programs.

    Args:
      padded: the variables whose sizes are padded.
      rules: what is known of results of operations, by their names.

    Attributes:
      found: where elements meet, as texts.
    """

    def __init__(self, padded: frozenset[str], rules: Mapping[str, Rule]):
        self.padded, self.rules = padded, rules
        self.found: list[str] = []

    def run(self, program: Any, facts: Sequence[Fact | None]) -> list[Fact]:
        """Follow a program; returns what is known of its results."""
        jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
        known: dict[Any, Fact] = {}

        def read(atom: Any) -> Fact:
            if isinstance(atom, Literal):
                whole = isinstance(atom.val, (int, np.integer)) and not isinstance(atom.val, bool)
                return Fact(number=atom.val, size=int(atom.val) if whole else None)
            return known.get(atom) or self.unknown(atom.aval)

        for var, fact in zip(jaxpr.invars, facts, strict=True):
            known[var] = fact or self.unknown(var.aval)
        for eqn in jaxpr.eqns:
            outs = self.equation(eqn, list(map(read, eqn.invars)))
            known.update(zip(eqn.outvars, outs, strict=True))
        return list(map(read, jaxpr.outvars))

    def variables(self, size: Any) -> set[str]:
        return size.variables() & self.padded if isinstance(size, Dim) else set()

    def axes(self, aval: Any) -> dict[int, set[str]]:
        """The axes that are padded, and the variables on which their sizes depend."""
        dims = enumerate(getattr(aval, "shape", ()))
        return {i: names for i, d in dims if (names := self.variables(d))}

    def unknown(self, aval: Any) -> Fact:
        return Fact(dict.fromkeys(self.axes(aval), UNKNOWN))

    def report(self, eqn: JaxprEqn, names: Iterable[str]) -> None:
        told = ", ".join(sorted(set(names)))
        self.found.append(f"{eqn.primitive.name} along {told} ({eqn.source})")

    def equation(self, eqn: JaxprEqn, facts: list[Fact]) -> list[Fact]:
        name = eqn.primitive.name
        rule = self.rules.get(name)
        self._check_parameters(eqn)
        bodies = [b for v in eqn.params.values() for b in subjaxprs_of_value(v)]
        if rule is not None:
            return rule(self, eqn, facts)
        if name in _REDUCTIONS:
            return [self.reduction(eqn, facts[0])]
        if name in _SCANS:
            return [self.cumulative(eqn, facts[0])]
        if isinstance(eqn.primitive.lowering, Pointwise) and len(eqn.outvars) == 1:
            return [pointwise(self, eqn, facts)]
        if len(bodies) == 1 and _is_call(eqn, bodies[0]):
            return self.run(bodies[0], facts)
        return self.anything(eqn)

    def _check_parameters(self, eqn: JaxprEqn) -> None:
        """What depends on sizes, beside the size of results, may compute something else."""
        given = (value for name, value in eqn.params.items() if name not in _OF_SIZES)
        names = {n for value in given for n in self._names_in(value)}
        self.meet(eqn, names, False)

    def _names_in(self, value: Any) -> set[str]:
        if isinstance(value, (tuple, list)):
            return set().union(*map(self._names_in, value))
        return self.variables(value)

    def anything(self, eqn: JaxprEqn) -> list[Fact]:
        """An operation of which nothing is known."""
        touched = [self.axes(v.aval) for v in (*eqn.invars, *eqn.outvars)]
        names = {n for axes in touched for group in axes.values() for n in group}
        if names:
            self.report(eqn, names)
        return [self.unknown(v.aval) for v in eqn.outvars]

    def meet(self, eqn: JaxprEqn, names: set[str], harmless: bool) -> None:
        """Elements meet along an axis whose size depends on variables."""
        if names and not harmless:
            self.report(eqn, names)

    def reduction(self, eqn: JaxprEqn, fact: Fact) -> Fact:
        operand, axes = eqn.invars[0].aval, eqn.params["axes"]
        identity, keeps = _REDUCTIONS[eqn.primitive.name]
        neutral = lambda x: is_identity(x, identity, operand.dtype)
        padded = self.axes(operand)
        for axis in axes:
            beyond = fact.at(axis)
            harmless = neutral(beyond) or (keeps and beyond is SAME)
            self.meet(eqn, padded.get(axis, set()), harmless)
        left = [i for i in range(len(operand.shape)) if i not in axes]
        index = eqn.primitive.name.startswith("arg")
        same = {i: x for i in padded if (x := fact.at(i)) is SAME or (
            not index and x is not UNKNOWN and (keeps or neutral(x)))}  # fmt: skip
        beyond = {j: same.get(i, UNKNOWN) for j, i in enumerate(left) if i in padded}
        return Fact(beyond)

    def cumulative(self, eqn: JaxprEqn, fact: Fact) -> Fact:
        operand, axis = eqn.invars[0].aval, eqn.params["axis"]
        identity = _SCANS[eqn.primitive.name]
        neutral = lambda x: is_identity(x, identity, operand.dtype)
        padded = self.axes(operand)
        if eqn.params["reverse"]:
            self.meet(eqn, padded.get(axis, set()), neutral(fact.at(axis)))
        return Fact({
            i: x if (x := fact.at(i)) is not SAME and neutral(x) and (
                i != axis or eqn.params["reverse"]) else UNKNOWN
            for i in padded
        })  # fmt: skip


def _is_call(eqn: JaxprEqn, body: Any) -> bool:
    """Whether an equation is its body, applied to all of its operands once."""
    rule = eqn.primitive.lowering
    program = body.jaxpr if isinstance(body, ClosedJaxpr) else body
    inside = [(v.aval, w.aval) for v, w in zip(program.invars, eqn.invars)]
    same = all(getattr(a, "shape", None) == getattr(b, "shape", None) for a, b in inside)
    return isinstance(rule, Control) and rule.name == "call" and same


def inputs_of(body: Any) -> Sequence[Any]:
    return (body.jaxpr if isinstance(body, ClosedJaxpr) else body).invars


#: Parameters that say how large results are, or that rules look at.
_OF_SIZES = frozenset((
    "dim", "length", "limit_indices", "new_sizes", "padding", "padding_config", "shape",
    "slice_sizes", "start_indices",
))  # fmt: skip

#: What reductions and scans do not change by, and whether elements that are alike count once.
_REDUCTIONS: dict[str, tuple[str, bool]] = {
    "reduce_sum": ("zero", False), "reduce_prod": ("one", False), "reduce_xor": ("zero", False),
    "reduce_max": ("least", True), "reduce_min": ("greatest", True), "reduce_and": ("ones", True),
    "reduce_or": ("zero", True), "argmax": ("least", True), "argmin": ("greatest", True),
}  # fmt: skip
_SCANS = {
    "cumsum": "zero", "cumprod": "one", "cummax": "least", "cummin": "greatest",
    "cumlogsumexp": "least",
}  # fmt: skip


def is_identity(x: Any, which: str, dtype: Any) -> bool:
    if isinstance(x, Mark):
        return False
    if which in ("zero", "one"):
        return bool(x == (which == "one"))
    if dtype == np.bool_:
        return bool(x) == (which != "least")
    whole = dtypes.issubdtype(dtype, np.integer)
    if which == "ones":
        return (whole and int(x) == -1 % 2 ** (8 * np.dtype(dtype).itemsize)) or int(x) == -1
    if whole:
        limits = np.iinfo(dtype)
        return int(x) == (limits.min if which == "least" else limits.max)
    most = float(dtypes.finfo(dtype).max)
    return bool(x <= -most if which == "least" else x >= most)


# Elementwise

_COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal,
}  # fmt: skip
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_NUMPY: dict[str, Callable[..., Any]] = {
    **_COMPARISONS, "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
    "abs": np.abs, "max": np.maximum, "min": np.minimum, "exp": np.exp, "log": np.log,
    "tanh": np.tanh, "sign": np.sign, "sqrt": np.sqrt, "square": np.square, "sin": np.sin,
    "expm1": np.expm1, "log1p": np.log1p, "and": np.bitwise_and, "or": np.bitwise_or,
    "not": np.bitwise_not, "xor": np.bitwise_xor, "is_finite": np.isfinite, "exp2": np.exp2,
}  # fmt: skip
AS_IT_IS = frozenset(
    ("stop_gradient", "copy", "copy_p", "reduce_precision", "optimization_barrier")
)


def pointwise(reader: Reader, eqn: JaxprEqn, facts: list[Fact]) -> Fact:
    name, (out,) = eqn.primitive.name, eqn.outvars
    axes = reader.axes(out.aval)
    size, position = _sizes(name, facts, out.aval.dtype)
    if name == "dim_as_value":
        dim = eqn.params["dim"]
        reader.meet(eqn, reader.variables(dim), False)
        return Fact(size=dim)
    if name in AS_IT_IS and len(facts) == 1:
        return facts[0]
    masks = _mask(reader, name, facts, out.aval) if name in _COMPARISONS else {}
    dtype = out.aval.dtype
    number = _computed(eqn, [f.number for f in facts], dtype)
    beyond = {
        i: masks[i] if i in masks else _beyond(eqn, [f.at(i) for f in facts], facts, dtype)
        for i in axes
    }
    return Fact(beyond, number, size, position)


def _sizes(name: str, facts: list[Fact], dtype: Any) -> tuple[Any, tuple[int, Any] | None]:
    """What elements are as functions of sizes and positions."""
    if name == "convert_element_type":
        # In few bits numbers begin anew.
        return (facts[0].size, facts[0].position) if np.dtype(dtype).itemsize >= 4 else (None, None)
    if name not in ("add", "sub", "mul") or len(facts) != 2:
        return None, None
    a, b = facts
    if a.size is not None and b.size is not None:
        by = {"add": lambda: a.size + b.size, "sub": lambda: a.size - b.size}
        return by.get(name, lambda: a.size * b.size)(), None
    if name == "add" and a.size is not None:
        a, b = b, a
    if name != "mul" and a.position is not None and b.size is not None:
        axis, offset = a.position
        return None, (axis, offset + b.size if name == "add" else offset - b.size)
    return None, None


def _mask(reader: Reader, name: str, facts: list[Fact], aval: Any) -> dict[int, bool]:
    """What a comparison of positions with sizes is beyond the size of the axis."""
    left, right = facts
    if left.position is None:
        name, left, right = _SWAPPED[name], right, left
    if left.position is None or right.size is None:
        return {}
    axis, offset = left.position
    above = aval.shape[axis] + offset - right.size  # of the first that lies beyond
    if name in ("lt", "ge"):
        return {axis: name == "ge"} if never_negative(above) else {}
    return {axis: name in ("gt", "ne")} if never_negative(above - 1) else {}


def never_negative(size: Any) -> bool:
    """Whether a size is at least zero, a symbolic one for all sizes of its variables."""
    if isinstance(size, Dim):
        return size.scope.is_at_least_zero(size.polynomial) is True
    return bool(size >= 0)


def _computed(eqn: JaxprEqn, numbers: Sequence[Any], dtype: Any) -> Any:
    """The result of numbers, None if one is not known or the operation has none here."""
    name = eqn.primitive.name
    if any(x is None or isinstance(x, Mark) for x in numbers):
        return None
    if isinstance(dtype, ExtendedDType):
        return None
    with np.errstate(all="ignore"):
        if name == "convert_element_type":
            return np.asarray(numbers[0]).astype(dtype)[()]
        if name == "select_n":
            return numbers[1 + int(numbers[0])]
        if name == "integer_pow":
            return np.asarray(numbers[0] ** eqn.params["y"], dtype)[()] if numbers[0] else None
        if name == "div" and dtypes.issubdtype(dtype, np.inexact):
            return np.asarray(np.divide(*numbers)).astype(dtype)[()]
        rule = _NUMPY.get(name)
        if rule is None or len(numbers) > 2:
            return None
        kinds = [v.aval.dtype for v in eqn.invars]
        return np.asarray(rule(*(np.asarray(x, k) for x, k in zip(numbers, kinds))), dtype)[()]


def _beyond(eqn: JaxprEqn, values: list[Any], facts: list[Fact], dtype: Any) -> Any:
    """What an elementwise operation makes of what lies beyond in its operands."""
    name = eqn.primitive.name
    if name == "select_n" and not isinstance(values[0], Mark):
        chosen = values[1 + int(values[0])]
        if not isinstance(chosen, Mark):
            return chosen
    known = name == "select_n" and not any(isinstance(v, Mark) for v in values[1:])
    if known and all(v == values[1] for v in values[2:]):
        return values[1]
    found = _computed(eqn, values, dtype)
    if found is not None:
        return found
    if all(v is SAME or f.number is not None for v, f in zip(values, facts)):
        return SAME
    return _absorbed(name, values, dtype)


def _absorbed(name: str, values: list[Any], dtype: Any) -> Any:
    """What an operation on a number and something else is whatever the latter is.

    Of floats the latter must be that of the elements before, which an infinity would spoil as well.
    """
    if len(values) != 2:
        return UNKNOWN
    numbers = [v for v in values if not isinstance(v, Mark)]
    if len(numbers) != 1:
        return UNKNOWN
    x, floats = numbers[0], dtypes.issubdtype(dtype, np.inexact)
    alike = any(v is SAME for v in values) or not floats
    if name in ("mul", "and") and alike and not x:
        return x
    if name == "or" and dtype == np.bool_ and x:
        return x
    if name == "div" and alike and floats and x is values[0] and not x:
        return x
    if name in ("add", "sub") and floats and alike and abs(x) >= float(dtypes.finfo(dtype).max):
        return x if name == "add" or x is values[0] else -x
    return UNKNOWN
