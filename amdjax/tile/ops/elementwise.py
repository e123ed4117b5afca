"""Elementwise operations: one element of the result from the elements at its place."""

from __future__ import annotations

from typing import Any, ClassVar

from amdjax.tile.attributes import Attribute, Constant, Flag, Found, Word
from amdjax.tile.ir import Op, Operand, TileError, Trait, expect
from amdjax.tile.types import FLOATS, INTEGERS, Number, TileType

_NUMBERS = frozenset((*FLOATS, *INTEGERS))
_ALL = _NUMBERS | {"bool"}
_BITS = INTEGERS | {"bool"}
_FLOATING = frozenset(FLOATS)

#: What floats that are held between two integers are converted to.
CLAMPED = frozenset(("i8", "u8", "i16", "u16", "i32"))

_COSTLY = 8.0  # of operations of several instructions

#: Every elementwise operation of values of one dtype, by name.
ELEMENTWISE: dict[str, type[Elementwise]] = {}


class Elementwise(Op, traits=Trait.PURE | Trait.ELEMENTWISE):
    """An operation whose operands have one dtype and one shape.

    Those in `RELAXED` may be `relaxed`, where they are of floats: sums, differences and products
    may then be contracted to `fma`, functions have the errors of their relaxed forms
    (`codegen.math.relaxed`).
    """

    __slots__ = ()
    arity: ClassVar[int] = 2
    dtypes: ClassVar[frozenset[str]] = _ALL
    relaxed = Flag()

    def __init_subclass__(cls, name: str = "", **options: Any) -> None:
        super().__init_subclass__(name, **options)
        if name:
            ELEMENTWISE[name] = cls

    @property
    def parameters(self) -> dict[str, Any]:
        """Attributes that say what is computed."""
        if not self.attrs:
            return self.attrs
        found = [a.name for a in self.attributes if isinstance(a, Found)]
        return {name: x for name, x in self.attrs.items() if name not in found}

    def result_types(self) -> tuple[TileType, ...]:
        return (self.operands[0].type,)

    def check(self) -> None:
        expect(len(self.operands) == self.arity, "{} takes {} operands", self.name, self.arity)
        type = self.operands[0].type
        if any(v.type != type for v in self.operands):
            raise TileError(f"operands of {self.name} differ: {_listed(self)}")
        expect(type.dtype in self.dtypes, "{} is not defined for {}", self.name, type.dtype)
        known = self.name in RELAXED and type.dtype in FLOATS
        expect(known or not self.relaxed, "{} of {} has no relaxed form", self.name, type.dtype)


def _listed(op: Op) -> str:
    return ", ".join(str(v.type) for v in op.operands)


class Comparison(Elementwise):
    """Whether numbers are in an order; `positional` if that depends on the places of elements."""

    __slots__ = ()
    positional = Found(False)

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType("bool", self.operands[0].shape),)


class Rounded(Elementwise):
    """A function of floats with a shorter form for results of 16 bits.

    `rounded` says that the result counts as an element of `f16` or `bf16` although its type has
    more bits: as many as those need suffice.
    """

    __slots__ = ()
    dtypes = _FLOATING
    rounded = Word("")


def _operation(
    name: str,
    arity: int,
    dtypes: frozenset[str],
    base: type[Elementwise] = Elementwise,
    cost: float = 1.0,
) -> type[Elementwise]:
    class_name = "".join(part.title() for part in name.split("_"))
    body = {"arity": arity, "dtypes": dtypes, "cost": cost, "__slots__": (), "__module__": __name__}
    return type(class_name, (base,), body, name=name)


Rem = _operation("rem", 2, _NUMBERS, cost=_COSTLY)
Min, Max = (_operation(name, 2, _ALL) for name in ("min", "max"))
And, Or, Xor = (_operation(name, 2, _BITS) for name in ("and", "or", "xor"))
Shl, ShrLogical, ShrArithmetic = (
    _operation(name, 2, INTEGERS) for name in ("shl", "shr_logical", "shr_arithmetic")
)
Eq, Ne, Lt, Le, Gt, Ge = (
    _operation(name, 2, _ALL, Comparison) for name in ("eq", "ne", "lt", "le", "gt", "ge")
)
Neg, Abs, Sign = (_operation(name, 1, _NUMBERS) for name in ("neg", "abs", "sign"))
Not = _operation("not", 1, _BITS)
Clz, Popcnt = (_operation(name, 1, INTEGERS) for name in ("clz", "popcnt"))
IsFinite = _operation("is_finite", 1, _FLOATING, Comparison)
Fma = _operation("fma", 3, _FLOATING)

_operation("copysign", 2, _FLOATING)
for _name in ("ceil", "floor", "round_away", "round_even", "trunc"):
    _operation(_name, 1, _FLOATING)
for _name in ("atan2", "nextafter", "pow"):
    _operation(_name, 2, _FLOATING, cost=_COSTLY)
for _name in (
    "acos", "acosh", "asin", "asinh", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "cos", "digamma",
    "erf_inv", "lgamma", "log10", "log2", "sin", "sqrt",
):  # fmt: skip
    _operation(_name, 1, _FLOATING, cost=_COSTLY)

#: Operations with a shorter form for results of 16 bits.
NARROW = frozenset({
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "sinh", "cosh", "tanh", "tan",
    "atan", "rsqrt", "erf", "erfc",
})  # fmt: skip
for _name in sorted(NARROW):
    _operation(_name, 1, _FLOATING, Rounded, _COSTLY)

#: Operations that differ where they are relaxed.
RELAXED = frozenset({"add", "sub", "mul", "div", "exp", "exp2", "logistic", "tanh", "rsqrt"})

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Contractible(Elementwise):
    """Of floats; where both say that they may, a product and a sum of it are rounded once."""

    __slots__ = ()
    contracts = Found(False)


Add, Sub, Mul = (_operation(name, 2, _ALL, Contractible) for name in ("add", "sub", "mul"))


class Div(Elementwise, name="div"):
    """`a / b`, of integers toward zero; along axes of `same_along` all divisors are the same.

    If it is only read to be rounded to 16 bits, `becomes` is the dtype of those of the wider range.
    """

    __slots__ = ()
    dtypes = _NUMBERS
    cost = _COSTLY
    same_along = Found[tuple[int, ...]](())
    becomes = Found("")


class Select(Elementwise, name="select"):
    """`a` where `condition` is true, `b` elsewhere."""

    __slots__ = ()
    condition, a, b = Operand(0), Operand(1), Operand(2)

    def result_types(self) -> tuple[TileType, ...]:
        return (self.a.type,)

    def check(self) -> None:
        expect(len(self.operands) == 3, "select takes 3 operands")
        same = self.a.type == self.b.type
        whole = self.condition.type == TileType("bool", self.a.shape)
        if not (same and whole):
            raise TileError(f"operands of select do not fit: {_listed(self)}")


class Const(Op, name="const", traits=Trait.PURE):
    """A number in all elements."""

    __slots__ = ()
    value = Constant()

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        dtype, x = self.result.dtype, self.value.x
        same = type(Number.of(dtype, x).x) is type(x)
        expect(not self.operands and same, "{!r} is no constant of {}", x, dtype)


class _Cast(Op):
    __slots__ = ()
    x = Operand(0)

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        expect(len(self.operands) == 1, "{} takes one operand", self.name)
        to = self.result.type
        expect(self.x.shape == to.shape, "{} of {} is no {}", self.name, self.x.type, to)


class Convert(_Cast, name="convert", traits=Trait.PURE | Trait.ELEMENTWISE):
    """The same numbers in another dtype, rounded to nearest even or saturated.

    Of no signed zeros (`nsz`) zero may have any sign.
    """

    __slots__ = ()
    nsz = Found(False)


class ConvertClamped(_Cast, name="convert_clamped", traits=Trait.PURE | Trait.ELEMENTWISE):
    """Floats held between two integers, as integers rounded toward zero; NaN is 0.

    CPUs have it, for which `clamp_conversions` writes it.
    """

    __slots__ = ()
    low = Attribute[int]()
    high = Attribute[int]()

    def check(self) -> None:
        super().check()
        floats = self.x.dtype in ("f32", "f64") and self.result.dtype in CLAMPED
        expect(floats and self.low <= 0 <= self.high, "convert_clamped is of floats around 0")


class Bitcast(_Cast, name="bitcast", traits=Trait.PURE | Trait.ELEMENTWISE):
    """The same bits in another dtype."""

    __slots__ = ()
