"""Symbolic dimensions as users see them: sizes of axes that only the arguments of a run tell."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias, cast

from amdjax.core import dtypes
from amdjax.core.dims import polynomial
from amdjax.core.dims.asking import is_called_as
from amdjax.core.dims.operations import floordiv, greatest, mod
from amdjax.core.dims.parse import parse_dimension
from amdjax.core.dims.polynomial import (
    Polynomial,
    constant_of,
    difference,
    multiply,
    of,
    plus,
    scale,
    shifted,
)
from amdjax.core.dims.scope import SymbolicScope
from amdjax.core.errors import InconclusiveDimensionOperation

__all__ = ["Dim", "DimSize", "as_size", "is_symbolic_dim", "largest", "max_dim", "min_dim"]

DimSize: TypeAlias = "Dim | int"
_OPERATORS = {">=": "ge", ">": "gt", "<=": "le", "<": "lt"}


class Dim:
    """A symbolic dimension.

    Made by `symbolic_shape` and by arithmetic. Integers on either side are taken as they are;
    results that depend on no variable are integers. `==` is True where both sides are equal for
    all sizes, and a dimension is true unless it `== 0`. `<` and the like answer what holds of all
    sizes but a few, and raise where there is no such answer.

    Args:
      scope: what is known of the variables.
      polynomial: its normal form, not a constant.
    """

    __slots__ = ("_apart", "_hash", "polynomial", "scope")
    as_value: ClassVar[Callable[[Dim], Any]]
    """Makes a scalar of a dimension: what operations use where the other operand is no size."""

    def __init__(self, scope: SymbolicScope, polynomial: Polynomial):
        self.scope = scope
        self.polynomial = polynomial
        self._hash: int | None = None  # until it is asked for
        self._apart: int | None = None  # the last number that it is known never to be

    # Arithmetic

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's numbers and arrays leave arithmetic with dimensions to the methods here."""
        operation = getattr(operator, _UFUNCS.get(ufunc.__name__, ufunc.__name__), None)
        if method != "__call__" or kwargs or len(inputs) != 2 or operation is None:
            raise InconclusiveDimensionOperation(
                f"numpy.{ufunc.__name__} has no value for the symbolic dimension '{self}': use "
                f"amdjax.numpy.{ufunc.__name__}.{self.scope.described()}"
            )
        left, right = inputs
        if isinstance(left, Dim):
            return operation(left, right)
        return _SWAPPED[operation.__name__](right, left)

    def __add__(self, other: Any) -> Any:
        if type(other) is int:  # the most frequent one
            return Dim(self.scope, shifted(self.polynomial, other))
        return self._with(other, plus, operator.add)

    def __radd__(self, other: Any) -> Any:
        if type(other) is int:
            return self + other
        return self._with(other, plus, operator.add, swapped=True)

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return self + -other
        return self._with(other, _minus, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, _minus, operator.sub, swapped=True)

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            return Dim(self.scope, scale(self.polynomial, other)) if other else 0
        return self._with(other, multiply, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        if type(other) is int:
            return self * other
        return self._with(other, multiply, operator.mul, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, self._floordiv, operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, self._floordiv, operator.floordiv, swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, self._mod, operator.mod)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, self._mod, operator.mod, swapped=True)

    def __truediv__(self, other: Any) -> Any:
        if type(other) is int and is_called_as("arange", sys._getframe(1)):
            raise InconclusiveDimensionOperation(
                f"numpy.arange has no value for the symbolic dimension '{self}': use "
                f"amdjax.numpy.arange.{self.scope.described()}"
            )
        return self._with(other, None, operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, None, operator.truediv, swapped=True)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __neg__(self) -> DimSize:
        return wrapped(self.scope, scale(self.polynomial, -1))

    def __pos__(self) -> Dim:
        return self

    def __pow__(self, power: Any, modulo: Any = None) -> Any:
        exponent = _polynomial_of(power)
        if exponent is None:
            return self.scope.number(self, power) ** power
        count = constant_of(exponent)
        if count is None or modulo is not None:
            raise InconclusiveDimensionOperation(
                f"Symbolic dimension '{self}' to the power {power!r}: only constant powers of at "
                f"least 0 are dimensions.{self.scope.described()}"
            )
        if count < 0:  # of integers, too, it is a float
            return self.scope.number(self, power) ** float(count)
        result: DimSize = 1
        for _ in range(count):
            result = result * self
        return result

    def __rpow__(self, base: Any) -> Any:
        if isinstance(base, int):
            self._take_for_exponent(abs(base))
        return base ** self.scope.number(self, base)

    def _take_for_exponent(self, base: int) -> None:
        """Take powers of an integer to be integers of the dtype: sizes of others are apart."""
        most = next((e for e in range(64) if base ** (e + 1) > dtypes.iinfo(self.dtype).max), None)
        rooms = [self.polynomial]
        if most is not None:
            rooms.append(plus(of(most), scale(self.polynomial, -1)))
        for room in rooms:
            holds = self.scope.is_at_least_zero(room)
            if holds is False:
                raise OverflowError(f"{base} to the power '{self}' is no {self.dtype}")
            if holds is None:
                self.scope.assume(room, ">=")

    def _floordiv(self, a: Polynomial, b: Polynomial) -> Polynomial:
        known = self.scope.quotients
        found = known.get((a, b))
        if found is None:
            found = known[a, b] = floordiv(a, b, self.scope)
        return found

    def _mod(self, a: Polynomial, b: Polynomial) -> Polynomial:
        known = self.scope.remainders
        found = known.get((a, b))
        if found is None:
            found = known[a, b] = mod(a, b, self.scope)
        return found

    def _with(
        self,
        other: Any,
        rule: Callable[[Polynomial, Polynomial], Polynomial] | None,
        of_values: Callable[[Any, Any], Any],
        *,
        swapped: bool = False,
    ) -> Any:
        """A dimension where the other operand is a size, else the operation on values."""
        mine = self.polynomial
        if rule is not None and type(other) is int:  # the most frequent one
            b = of(other)
            return wrapped(self.scope, rule(b, mine) if swapped else rule(mine, b))
        if isinstance(other, (list, tuple, str)) and of_values is operator.mul:
            return other * int(self)
        theirs = self._operand(other) if rule is not None else None
        if rule is None or theirs is None:
            value = self.scope.number(self, other)
            if value is NotImplemented:
                return value
            return of_values(other, value) if swapped else of_values(value, other)
        return wrapped(self.scope, rule(theirs, mine) if swapped else rule(mine, theirs))

    def _operand(self, other: Any) -> Polynomial | None:
        if isinstance(other, Dim):
            if other.scope is self.scope:
                return other.polynomial
            raise ValueError(
                f"Symbolic dimensions '{self}' and '{other}' have different scopes: make both with "
                "one call of symbolic_shape, or give scope= to the second."
            )
        return _polynomial_of(other)

    # Comparison

    def __eq__(self, other: Any) -> Any:
        if type(other) is int and other == self._apart:  # the most frequent one
            return False
        if type(other) is Dim and other.scope is self.scope and other.polynomial == self.polynomial:
            return True
        whole = type(other) is float and other.is_integer()
        theirs = of(other) if type(other) is int else _polynomial_of(int(other) if whole else other)
        if theirs is None:
            value = self._beside_array(other)
            return NotImplemented if value is NotImplemented else value == other
        if isinstance(other, Dim) and other.scope is not self.scope:
            return False
        answer = self.scope.equal(self.polynomial, theirs)
        if answer is None:
            self.scope.take_for_unequal(_minus(self.polynomial, theirs))
        elif not answer and type(other) is int:
            self._apart = other
        return answer is True

    def __ne__(self, other: Any) -> Any:
        equal = self.__eq__(other)
        if equal is NotImplemented:
            return equal
        return not equal if isinstance(equal, bool) else self._beside_array(other) != other

    def _beside_array(self, other: Any) -> Any:
        """Its value, where it is compared with the elements of an array."""
        return self.scope.number(self, other) if hasattr(other, "dtype") else NotImplemented

    def __hash__(self) -> int:
        # Tables and sets find a size by its hash, so that `==` is never asked.
        self.scope.hashed(sys._getframe(1))
        if self._hash is None:
            self._hash = hash((id(self.scope), self.polynomial))
        return self._hash

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, ">=", 1, 0)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, ">", 1, -1)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=", -1, 0)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<", -1, -1)

    def _compare(self, other: Any, symbol: str, sign: int, margin: int) -> Any:
        """Whether the difference, times a sign and with a margin, is at least zero."""
        theirs = self._operand(other)
        if theirs is None:
            value = self._beside_array(other)
            if value is not NotImplemented:
                return getattr(operator, _OPERATORS[symbol])(value, other)
            return self.scope.estimated(self, other, symbol)
        mine = self.polynomial
        beyond = difference(mine, theirs, margin) if sign > 0 else difference(theirs, mine, margin)
        answer = self.scope.is_at_least_zero(beyond)
        if answer is None:
            answer = self.scope.is_mostly_at_least_zero(beyond)
        if answer is not None:
            return answer
        opposite = {">=": "<", "<": ">=", ">": "<=", "<=": ">"}[symbol]
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{self}' {symbol} '{other}' is inconclusive: the "
            f"answer depends on the sizes. If it is the same for all that are meant, say so by the "
            f"constraint '{self} {symbol} {other}' or '{self} {opposite} {other}'. Else give the "
            "axis a fixed size, pad it to few sizes by the buckets of jit, or write max_dim and "
            f"min_dim of amdjax.core where it is about max and min.{self.scope.described()}"
        )

    def __bool__(self) -> bool:
        return bool(self != 0)

    # As a number

    @property
    def dtype(self) -> Any:
        """The dtype of its value: that of Python integers, which yields in promotion."""
        return dtypes.scalar_type_to_dtype(int, 0)

    weak_type = True

    def __jax_array__(self) -> Any:
        return Dim.as_value(self)

    def __int__(self) -> int:
        return self.scope.constant(self)

    __index__ = __int__

    def __round__(self, digits: int | None = None) -> Any:
        return self if digits is None or digits >= 0 else round(int(self), digits)

    def __trunc__(self) -> Dim:
        return self

    __floor__ = __ceil__ = __trunc__

    def bit_length(self) -> int:
        """As of an integer, to whose power of two all is limited that comes of it."""
        length = self.scope.value(self.polynomial).bit_length()
        return length if 1 << length > self >= (1 << length) // 2 else 0

    def __repr__(self) -> str:
        return self.scope.text(self.polynomial)

    def __format__(self, spec: str) -> str:
        # Its text stands for the digits, which are not known, and is on the right as they are.
        if not spec.endswith("d"):
            return format(str(self), spec)
        right = ">" if spec[0].isdigit() else ""
        return format(str(self), right + spec.removesuffix("d").removesuffix(","))

    def __abs__(self) -> Any:
        return max_dim(self, -self)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self

    def variables(self) -> set[str]:
        """The names of the variables it depends on."""
        return polynomial.variables(self.polynomial)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The size where the variables have values.

        Args:
          sizes: the value of each variable.

        Raises:
          KeyError: a variable has none.
        """
        return cast("int", polynomial.evaluate(self.polynomial, sizes.__getitem__))


# Operators whose ufuncs have other names, and those where the dimension is on the right.
_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "floor_divide": "floordiv",
    "remainder": "mod", "divide": "truediv", "power": "pow", "equal": "eq", "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip
_SWAPPED: dict[str, Callable[[Any, Any], Any]] = {
    "add": Dim.__radd__, "sub": Dim.__rsub__, "mul": Dim.__rmul__, "floordiv": Dim.__rfloordiv__,
    "mod": Dim.__rmod__, "truediv": Dim.__rtruediv__, "eq": Dim.__eq__, "ne": Dim.__ne__,
    "lt": Dim.__gt__, "le": Dim.__ge__, "gt": Dim.__lt__, "ge": Dim.__le__,
    "pow": lambda n, x: x ** n.scope.number(n, x),
}  # fmt: skip


def wrapped(scope: SymbolicScope, a: Polynomial) -> DimSize:
    """A dimension, or an integer if the polynomial is constant."""
    constant = constant_of(a)
    return Dim(scope, a) if constant is None else constant


def _minus(a: Polynomial, b: Polynomial) -> Polynomial:
    return plus(a, scale(b, -1))


def _polynomial_of(x: Any) -> Polynomial | None:
    """Of a size, None for what is none."""
    if isinstance(x, Dim):
        return x.polynomial
    try:
        return of(operator.index(x))
    except TypeError:
        return None


def symbolic_dimension(text: str, scope: SymbolicScope) -> DimSize:
    """The dimension that a text describes.

    Raises:
      ValueError: it describes none.
    """
    return wrapped(scope, parse_dimension(text, scope))


def as_size(x: Any) -> Any:
    """`x` as the size of an axis: a Python int or a symbolic dimension.

    Raises:
      TypeError: it is neither.
    """
    return x if type(x) is Dim else operator.index(x)


def largest(size: DimSize) -> int:
    """A bound of a size: of a symbolic one the greatest that it can have, as far as is known."""
    if not isinstance(size, Dim):
        return size
    most = size.scope.bounds(size.polynomial)[1]
    return 2**63 - 1 if most is None else most


def is_symbolic_dim(size: Any) -> bool:
    """Whether the size of an axis is symbolic.

    Args:
      size: an integer or a symbolic dimension.

    Returns:
      Whether it is the latter.

        >>> is_symbolic_dim(3)
        False
    """
    return isinstance(size, Dim)


def max_dim(*sizes: DimSize) -> Any:
    """The greatest of sizes, symbolic ones too, of which `max` needs to know which it is.

    Args:
      sizes: integers and symbolic dimensions.

    Returns:
      An integer or a symbolic dimension.

        >>> max_dim(3, 5)
        5
    """
    return _extreme(sizes, "max")


def min_dim(*sizes: DimSize) -> Any:
    """The least of sizes, symbolic ones too, of which `min` needs to know which it is.

    Args:
      sizes: integers and symbolic dimensions.

    Returns:
      An integer or a symbolic dimension.

        >>> min_dim(3, 5)
        3
    """
    return _extreme(sizes, "min")


def _extreme(sizes: tuple[DimSize, ...], kind: str) -> DimSize:
    symbolic = [x for x in sizes if isinstance(x, Dim)]
    if not symbolic:
        return max(sizes) if kind == "max" else min(sizes)
    operands = [symbolic[0]._operand(x) for x in sizes]
    if None in operands:
        raise TypeError(f"{kind}_dim: sizes must be integers or symbolic dimensions, got {sizes}")
    scope = symbolic[0].scope
    return wrapped(scope, greatest([x for x in operands if x is not None], scope, kind))
