"""Symbolic dimensions with a size at hand: what sizes decide is answered, and kept as a guard."""

from __future__ import annotations

import contextlib
import contextvars
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from amdjax.core.context import entered
from amdjax.core.dims.expression import Dim, DimSize
from amdjax.core.dims.operations import Bounds
from amdjax.core.dims.polynomial import (
    Atom,
    Polynomial,
    common_factor,
    evaluate,
    of,
    plus,
    scale,
    text,
)
from amdjax.core.dims.scope import SymbolicScope, narrower
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.integers import ceil_div, power_of_two

__all__ = [
    "Choice", "Estimate", "Guard", "SizedScope", "at_sizes", "bound", "capped", "cheapest",
    "choosing", "covering", "divisor", "estimated", "fits", "fits_at_hand", "in_units",
    "is_multiple", "is_multiple_at_hand", "is_natural", "like_at_hand", "no_less", "same_shape",
    "size_hint", "surely_equal",
]  # fmt: skip


#: As many times the least cost is as good.
ABOUT = 1.1

_choosing = contextvars.ContextVar("choosing", default=False)
_in_numbers = contextvars.ContextVar("in_numbers", default=False)


def choosing(chooses: bool = True) -> entered[bool]:
    """In here sizes are compared to choose among what is right for all of them.

    `<` and the like note preferences, not guards. Equality does not choose: it notes guards.

    Args:
      chooses: False where guards are noted all the same.
    """
    return entered(_choosing, chooses)


def text_at_hand(x: Any) -> str:
    """How something is printed, with the sizes at hand in place of symbolic ones."""
    with entered(_in_numbers, True):
        return str(x)


class Guard(NamedTuple):
    """Whether a polynomial is at least zero, or zero, at the sizes a decision was made for."""

    kind: str  # "ge" or "eq"
    polynomial: Polynomial
    answer: bool

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return self.agrees(evaluate(self.polynomial, sizes.__getitem__))

    def agrees(self, value: int) -> bool:
        """Whether it holds where the polynomial has a value."""
        return (value >= 0 if self.kind == "ge" else value == 0) is self.answer

    def __str__(self) -> str:
        symbol = {"ge": (">=", "<"), "eq": ("==", "!=")}[self.kind][not self.answer]
        constant = sum(c for monomial, c in self.polynomial if not monomial)
        rest = tuple((monomial, c) for monomial, c in self.polynomial if monomial)
        return f"{text(rest)} {symbol} {-constant}"


def counted(name: str, unit: int) -> str:
    """What a variable is called that is counted in units."""
    return name if unit == 1 else f"{name}_{unit}"


def in_units(sizes: Mapping[str, int], units: Mapping[str, int]) -> dict[str, int]:
    """The values of variables that are counted in units, where those that are not have sizes."""
    return {counted(name, unit): sizes[name] // unit for name, unit in units.items()}


class SizedScope(SymbolicScope):
    """Variables that have sizes.

    Dimensions stay symbolic. A comparison that holds of all sizes is answered as in any scope; of
    another the sizes at hand tell the answer, which is noted as a guard. Whatever was decided is
    right for all sizes of which the guards hold.

    Args:
      sizes: of each variable.
      known: of which the constraints on single variables hold here too; of others nothing is known
        but that they are at least 2.
      units: in which some of them are counted, so that all that is computed of them is known to be
        divisible: of a unit of 16 `t` is 16 times the variable `t_16` of the scope.

    Attributes:
      sizes: of each variable of the scope.
      units: of each variable outside.
    """

    def __init__(
        self, sizes: Mapping[str, int], known: SymbolicScope | None = None,
        units: Mapping[str, int] | None = None,
    ):  # fmt: skip
        super().__init__()
        self.units = {name: (units or {}).get(name, 1) for name in sizes}
        self.sizes = in_units(sizes, self.units)
        self.guards: dict[tuple[str, Polynomial], bool] = {}
        self.preferences: dict[tuple[str, Polynomial], bool] = {}
        self.choices: list[Choice] = []
        self._values: dict[Polynomial, int] = {}
        self._extremes: list[dict[str, int]] = []
        self._intervals: dict[Polynomial, Bounds] = {}
        self._known_ranges: dict[Atom, Bounds] = {}
        for name, unit in self.units.items():
            least, most = (None, None) if known is None else known.bounds(of(name))
            most = None if most is None else most // unit
            self._ranges[counted(name, unit)] = ceil_div(max(least or 2, 2), unit), most
            if known is not None and name in known._residues and unit == 1:
                self._residues[name] = known._residues[name]
        ends = zip(*map(self._ends, self.sizes))
        self._extremes = [dict(zip(self.sizes, end)) for end in ends]

    def hashed(self, frame: Any) -> None:
        """Nothing to note: the compiler's own tables compare what they find."""

    def close(self) -> None:
        """Decide nothing more: what follows would have no guard, and be right for one size."""
        self.guards, self.preferences = _Decided(self.guards), _Decided(self.preferences)

    def variables(self) -> dict[str, Any]:
        """The variables outside, as dimensions."""
        return {n: unit * Dim(self, of(counted(n, unit))) for n, unit in self.units.items()}

    @property
    def required(self) -> list[Guard]:
        """What has to hold of other sizes."""
        return [Guard(kind, a, answer) for (kind, a), answer in self.guards.items()]

    @property
    def preferred(self) -> list[Guard | Choice]:
        """What holds of other sizes for which the same would be chosen."""
        compared = [Guard(kind, a, answer) for (kind, a), answer in self.preferences.items()]
        return [*compared, *self.choices]

    def value(self, a: Polynomial) -> int:
        """At the sizes at hand; nothing is noted."""
        found = self._values.get(a)
        if found is None:
            found = self._values[a] = cast("int", evaluate(a, self.sizes.__getitem__))
        return found

    def examples(self, a: Polynomial) -> Iterator[int]:
        yield self.value(a)  # also if the least and the greatest sizes may be none
        for at in self._extremes:
            with contextlib.suppress(ZeroDivisionError):
                yield evaluate(a, at.__getitem__)

    def _learn(self, rows: Sequence[Polynomial]) -> None:
        super()._learn(rows)
        self._extremes = []
        self._intervals.clear()
        self._known_ranges.clear()

    def _range(self, atom: Atom) -> Bounds:
        found = self._known_ranges.get(atom)
        if found is None:
            found = self._known_ranges[atom] = super()._range(atom)
        return found

    def _interval(self, a: Polynomial) -> Bounds:
        found = self._intervals.get(a)
        if found is None:
            found = self._intervals[a] = super()._interval(a)
        return found

    def text(self, a: Polynomial) -> str:
        return str(self.value(a)) if _in_numbers.get() else super().text(a)

    def bounds(self, a: Polynomial) -> Bounds:
        # Intervals alone: linear programs would take longer than they save.
        found = self._bounds.get(a)
        if found is None:
            found = self._interval(a)
            if not self._is_attained(a, found):
                found = narrower(found, self._interval_by_surpluses(a))
                found = narrower(found, self._interval_by_quotients(a))
            self._bounds[a] = found
        return found

    def is_at_least_zero(self, a: Polynomial) -> bool:
        known = super().is_at_least_zero(a)
        if known is not None:
            return known
        table = self.preferences if _choosing.get() else self.guards
        return table.setdefault(("ge", a), self.value(a) >= 0)

    def is_positive(self, a: Polynomial) -> bool:
        # Also where something is chosen: what was made of the quotient is wrong for other sizes.
        return self.guards.setdefault(("ge", plus(a, of(-1))), self.value(a) >= 1)

    def equal(self, a: Polynomial, b: Polynomial) -> bool:
        known = self.surely_equal(a, b)
        if known is not None:
            return known
        difference = plus(a, scale(b, -1))
        if difference[0][1] < 0:  # one form of both directions
            difference = scale(difference, -1)
        return self.guards.setdefault(("eq", difference), self.value(difference) == 0)

    def surely_equal(self, a: Polynomial, b: Polynomial) -> bool | None:
        """Whether two dimensions are the same for all sizes, for none (False), or for some."""
        return super().equal(a, b)

    def constant(self, dim: Dim) -> int:
        """The size itself, to which all is limited that comes of it."""
        value = self.value(dim.polynomial)
        self.equal(dim.polynomial, of(value))
        return value

    def number(self, dim: Dim, other: Any) -> Any:
        """For arithmetic with numbers that are no sizes: an estimate."""
        return Estimate.of(dim) if isinstance(other, (int, float, Dim)) else NotImplemented

    def estimated(self, dim: Dim, other: Any, symbol: str) -> Any:
        if not isinstance(other, (float, Estimate)):
            return NotImplemented
        compare = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
        return compare[symbol](self.value(dim.polynomial), _value_of(other))


class _Decided(dict[tuple[str, Polynomial], bool]):
    """What was decided, to which nothing is added."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            guard = Guard(key[0], key[1], default)
            raise InconclusiveDimensionOperation(
                f"whether '{guard}' was asked when all was decided and compiled"
            )
        return self[key]


class Choice(NamedTuple):
    """One of several costs, which is about the least."""

    costs: Sequence[Any]
    place: int

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return not self.excess(sizes)

    def excess(self, sizes: Mapping[str, int]) -> float:
        """By what share of the least cost it costs more; 0 if it is about as much."""
        values = [at_sizes(cost, sizes) for cost in self.costs]
        mine, least = values[self.place], min(values)
        more, size = mine - least, abs(least)  # gains are costs below zero
        return 0.0 if more <= (ABOUT - 1) * size else more / size if size else math.inf

    def __str__(self) -> str:
        return f"plan {self.place + 1} of {len(self.costs)}"


class EstimateTypeError(InconclusiveDimensionOperation, TypeError):
    """An estimate was to become a number."""


def _pick(x: float, least: float, more: Any, less: Any) -> Any:
    return more if x >= least else less


#: What estimates are computed by, and of how many numbers: "at least" of one and a bound is the
#: third or the fourth.
OPERATIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "+": (operator.add, 2), "-": (operator.sub, 2), "*": (operator.mul, 2),
    "/": (operator.truediv, 2), "**": (operator.pow, 2), "log2": (math.log2, 1),
    "min": (min, 2), "ceil_div": (ceil_div, 2), "at least": (_pick, 4),
}  # fmt: skip


class Estimate:
    """A number that is computed of sizes and is none, good for estimates alone.

    It compares by its value at the sizes at hand, without a guard: nothing right or wrong may
    follow. So it becomes no constant, neither an integer nor a float; a traced function makes an
    operand of it, which is computed anew for other sizes.

    Args:
      scope: of the sizes; None where there are none at hand, and the estimate has no value.
      operation: one of `OPERATIONS`.
      operands: what it is done with: numbers, dimensions and estimates.
    """

    __slots__ = ("operands", "operation", "scope", "value")
    __array_ufunc__ = None

    def __init__(self, scope: SizedScope | None, operation: str, *operands: Any):
        self.scope, self.operation, self.operands = scope, operation, operands
        self.value = math.nan
        if scope is not None:
            self.value = float(OPERATIONS[operation][0](*map(_value_of, operands)))

    @staticmethod
    def of(dim: Dim) -> Estimate:
        return Estimate(cast("SizedScope", dim.scope), "+", dim, 0)

    def at(self, sizes: Mapping[str, Any]) -> Any:
        """Its value for sizes of the variables."""
        return OPERATIONS[self.operation][0](*(at_sizes(x, sizes) for x in self.operands))

    def _refuse(self, *_: Any) -> Any:
        raise EstimateTypeError(
            "an estimate becomes no constant: compute with the dimension itself, or with size_hint"
        )

    __int__ = __index__ = __float__ = __ceil__ = __floor__ = __trunc__ = __round__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse

    def __jax_array__(self) -> Any:
        scope = cast("SizedScope", self.scope)
        return self.at({name: Dim(scope, of(name)).__jax_array__() for name in scope.sizes})

    def __neg__(self) -> Estimate:
        return self * -1.0

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return f"about {self.value:g}"

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def _with(self, symbol: str, *operands: Any) -> Any:
        if not all(isinstance(x, (int, float, Dim, Estimate)) for x in operands):
            return NotImplemented
        return Estimate(self.scope, symbol, *operands)

    def __add__(self, other: Any) -> Any:
        return self._with("+", self, other)

    def __sub__(self, other: Any) -> Any:
        return self._with("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", self, other)

    def __truediv__(self, other: Any) -> Any:
        return self._with("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with("/", other, self)

    def __pow__(self, other: Any) -> Any:
        return self._with("**", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def _compared(self, other: Any, compare: Callable[[float, float], bool]) -> Any:
        if isinstance(other, (int, float, Dim, Estimate)):
            return compare(self.value, _value_of(other))
        return NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, operator.eq)

    def __hash__(self) -> int:
        return hash(self.value)


def _value_of(x: Any) -> float:
    """A number at the sizes at hand."""
    return x.value if isinstance(x, Estimate) else size_hint(x)


# Questions about sizes that may be symbolic


def size_hint(size: Any) -> Any:
    """A size, or an estimate, as the number that it is at the sizes at hand: to estimate by."""
    if isinstance(size, Estimate):
        return size.value
    if not isinstance(size, Dim):
        return size
    scope = size.scope
    return scope.value(size.polynomial) if isinstance(scope, SizedScope) else int(size)


def no_less(size: DimSize, most: int) -> int:
    """`min(size, most)`, which is a number; what uses it needs sizes no less than it.

    That is a guard of a symbolic size. It need not be the minimum of other sizes than those at
    hand, of which it may be too small.
    """
    number = min(size_hint(size), most)
    if not size >= number:
        raise AssertionError(f"{size} is less than {number}")
    return number


def bound(size: DimSize, most: int) -> int:
    """A size as a number, of a symbolic one `most`; what uses it needs sizes no greater."""
    if not isinstance(size, Dim):
        return size
    if not size <= most:
        raise AssertionError(f"{size} is greater than {most}")
    return most


def covering(size: DimSize) -> int:
    """The least power of two that is no less than a size; what uses it needs sizes no greater.

    That is a guard of a symbolic size, and preferably it is the least one of others, too.
    """
    with choosing():
        number = power_of_two(cast("int", size))
    with choosing(False):
        return bound(size, number) if isinstance(size, Dim) else number


def capped(size: DimSize, most: int) -> int:
    """`min(size, most)` as a number: how much of an axis is taken at once, of what masks its end.

    Of a symbolic size it is in quarters of the most, in eighths of it below half, and preferably so
    for others.
    """
    if not isinstance(size, Dim):
        return min(size, most)
    numbers = [most * eighths // 8 for eighths in (1, 2, 3, 4, 6)]
    with choosing():
        return next((number for number in numbers if number and size <= number), most)


def fits(size: DimSize, room: int) -> bool:
    """Whether a size is at most a number: of a symbolic one at hand, and preferably of others."""
    with choosing():
        return bool(size <= room)


def fits_at_hand(size: DimSize, room: int) -> bool:
    """Whether a size is at most a number at the sizes at hand.

    If it is, that is a guard of a symbolic size. If not, other sizes that are at most it are as
    right here, and better off elsewhere: a preference.
    """
    at_hand = bool(size_hint(size) <= room)
    with choosing(not at_hand):
        bool(size <= room)  # noted
    return at_hand


#: Sizes between which another plan may be the best one.
_CLASSES = (3, 4, 8, 16, 64, 128, 256, 512, 1024, 4096, 1 << 15)


def like_at_hand(size: DimSize, most: int = _CLASSES[-1]) -> None:
    """Prefer sizes that are about as large as that at hand, and rather those that are near.

    Args:
      size: a dimension; of a number nothing is preferred.
      most: from where on all sizes are alike.
    """
    if isinstance(size, Dim):
        with choosing():
            for least in _CLASSES:
                if least <= most:
                    bool(size >= least)  # each is a preference of its own


def estimated(operation: str, *sizes: Any) -> Any:
    """One of `OPERATIONS`, such as a logarithm, on sizes: on symbolic ones it is an estimate."""
    scope = next((n.scope for n in sizes if isinstance(n, (Dim, Estimate))), None)
    if scope is None:
        return OPERATIONS[operation][0](*sizes)
    return Estimate(cast("SizedScope", scope), operation, *sizes)


def cheapest(costs: Sequence[Any]) -> int:
    """The place of the least of some costs, preferably of sizes of which it is about the least."""
    place = min(range(len(costs)), key=lambda i: size_hint(costs[i]))
    scope = next((cost.scope for cost in costs if isinstance(cost, (Dim, Estimate))), None)
    if isinstance(scope, SizedScope):
        scope.choices.append(Choice(tuple(costs), place))
    return place


def surely_equal(a: DimSize, b: DimSize) -> bool:
    """Whether two sizes are the same, symbolic ones for all sizes of their variables."""
    if not (isinstance(a, Dim) and isinstance(b, Dim)):
        return not (isinstance(a, Dim) or isinstance(b, Dim)) and a == b
    return a.scope is b.scope and a.polynomial == b.polynomial  # which is in one normal form


def same_shape(a: Sequence[DimSize], b: Sequence[DimSize]) -> bool:
    """Whether shapes are the same, symbolic ones for all sizes of their variables."""
    return len(a) == len(b) and all(map(surely_equal, a, b))


def is_natural(size: DimSize) -> bool | None:
    """Whether a size is at least zero, for all sizes of its variables, for none, or for some."""
    if not isinstance(size, Dim):
        return size >= 0
    scope = size.scope
    return SymbolicScope.is_at_least_zero(scope, size.polynomial)


def is_multiple(a: DimSize, unit: DimSize) -> bool:
    """Whether a size is a multiple of another, symbolic ones for all sizes of their variables."""
    if not (isinstance(a, Dim) or isinstance(unit, Dim)):
        return a % unit == 0
    if isinstance(a, Dim) and not isinstance(unit, Dim):
        if any(value % unit for value in a.scope.examples(a.polynomial)):
            return False
        return common_factor(a.polynomial) % unit == 0 or surely_equal(a % unit, 0)
    return surely_equal(a % unit, 0)


def is_multiple_at_hand(a: DimSize, unit: int) -> bool:
    """Whether a size is a multiple of a number at the sizes at hand.

    If it is, that is a guard, as of any comparison. If not, other sizes of which it is one are as
    right here, and better off elsewhere: a preference.
    """
    rest = a % unit
    if not isinstance(rest, Dim):
        return rest == 0
    scope = cast("SizedScope", rest.scope)
    if size_hint(rest):
        scope.preferences.setdefault(("eq", rest.polynomial), False)
        return False
    return bool(rest == 0)


def divisor(*sizes: DimSize) -> int:
    """An integer that divides sizes: the greatest one that divides all values of symbolic ones."""
    return math.gcd(*(common_factor(n.polynomial) if isinstance(n, Dim) else n for n in sizes))


def at_sizes(size: Any, sizes: Mapping[str, int]) -> Any:
    """A size, or an estimate, for values of the variables; other numbers as they are."""
    if isinstance(size, Dim):
        return size.evaluate(sizes)
    return size.at(sizes) if isinstance(size, Estimate) else size
