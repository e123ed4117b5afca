"""Values with arithmetic operators, so that formulas in IR look like formulas.

An `Expr` is a `Value` together with the `Function` it belongs to. Python numbers take the type of
the expression they meet. Comparisons of floats are ordered: false where an operand is NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..llvm import Function, Type, Value, const

Number = float | int


@dataclass(frozen=True)
class Format:
    """An IEEE 754 binary format and the integers that hold its bits."""

    elem: str
    bits: int
    mantissa: int

    @property
    def int_elem(self) -> str:
        return f"i{self.bits}"

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def one_bits(self) -> int:
        return self.bias << self.mantissa

    @property
    def inf_bits(self) -> int:
        return (2 * self.bias + 1) << self.mantissa

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def min_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def round_magic(self) -> float:
        """Adding this to a small number rounds it to an integer, left in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def round_magic_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) | (1 << (self.mantissa - 1))


FORMATS = {
    f.elem: f
    for f in (
        Format("float", 32, 23),
        Format("double", 64, 52),
        Format("half", 16, 10),
        Format("bfloat", 16, 7),
    )
}


class Expr:
    """A value being computed in a function; operators write instructions."""

    __slots__ = ("f", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, f: Function, value: Value):
        self.f, self.value = f, value

    @property
    def type(self) -> Type:
        return self.value.type

    @property
    def format(self) -> Format:
        return FORMATS[self.type.elem]

    @property
    def is_double(self) -> bool:
        return self.type.elem == "double"

    def like(self, x: Expr | Number) -> Expr:
        """`x` as an operand beside this expression."""
        return x if isinstance(x, Expr) else Expr(self.f, const(self.type, x))

    def _binary(self, op: Callable, other: Expr | Number) -> Expr:
        return Expr(self.f, op(self.value, self.like(other).value))

    def __add__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.add, other)

    def __sub__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.sub, other)

    def __mul__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.mul, other)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.fdiv, other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Number) -> Expr:
        return self.like(other) - self

    def __rtruediv__(self, other: Number) -> Expr:
        return self.like(other) / self

    def __neg__(self) -> Expr:
        return Expr(self.f, self.f.neg(self.value))

    def __and__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.and_, other)

    def __or__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.or_, other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.xor, other)

    def __invert__(self) -> Expr:
        return Expr(self.f, self.f.not_(self.value))

    def __lshift__(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.shl, other)

    def __rshift__(self, other: Expr | Number) -> Expr:
        """Logical shift to the right."""
        return self._binary(self.f.lshr, other)

    def ashr(self, other: Expr | Number) -> Expr:
        return self._binary(self.f.ashr, other)

    def _compare(self, ordered: str, integer: str, other: Expr | Number) -> Expr:
        if self.type.is_float:
            return self._binary(functools.partial(self.f.fcmp, ordered), other)
        return self._binary(functools.partial(self.f.icmp, integer), other)

    def __lt__(self, other: Expr | Number) -> Expr:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Expr | Number) -> Expr:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return self._compare("oge", "sge", other)

    def __eq__(self, other: Expr | Number) -> Expr:  # type: ignore[override]
        return self._compare("oeq", "eq", other)

    def __ne__(self, other: Expr | Number) -> Expr:  # type: ignore[override]
        return self._compare("une", "ne", other)

    def below(self, other: Expr | Number) -> Expr:
        """Unsigned `<` of integers."""
        return self._binary(functools.partial(self.f.icmp, "ult"), other)

    def is_nan(self) -> Expr:
        return self._binary(functools.partial(self.f.fcmp, "uno"), self)

    # Representation

    def bits(self) -> Expr:
        """The bits of a float as an integer of its width."""
        return Expr(self.f, self.f.bitcast(self.value, self.type.with_elem(f"i{self.type.bits}")))

    def as_float(self) -> Expr:
        """Bits of an integer as the float of its width."""
        elem = {16: "half", 32: "float", 64: "double"}[self.type.bits]
        return Expr(self.f, self.f.bitcast(self.value, self.type.with_elem(elem)))

    def cast(self, op: str, elem: str) -> Expr:
        return Expr(self.f, self.f.cast(op, self.value, elem))

    def to_int(self) -> Expr:
        """Truncated to the signed integer of the same width; must be in range."""
        return self.cast("fptosi", f"i{self.type.bits}")

    def to_float(self) -> Expr:
        return self.cast("sitofp", {16: "half", 32: "float", 64: "double"}[self.type.bits])

    def resize(self, elem: str, signed: bool = False) -> Expr:
        return Expr(self.f, self.f.int_resize(self.value, elem, signed))

    def sign_bit(self) -> Expr:
        """Whether the sign bit is set, also for -0 and NaN."""
        return self.bits() < 0


Operand = Expr | Number
Pair = tuple[Expr, Expr]


def _operands(*args: Operand) -> list[Expr]:
    first = next(a for a in args if isinstance(a, Expr))
    return [first.like(a) for a in args]


def intrinsic(name: str, *args: Operand) -> Expr:
    exprs = _operands(*args)
    f = exprs[0].f
    return Expr(f, f.intrinsic(name, exprs[0].type, *(e.value for e in exprs)))


def fma(a: Operand, b: Operand, c: Operand) -> Expr:
    """`a * b + c` with one rounding."""
    return intrinsic("fma", a, b, c)


def absolute(x: Expr) -> Expr:
    return intrinsic("fabs", x)


def copysign(magnitude: Operand, sign: Operand) -> Expr:
    """`magnitude` with the sign of `sign`.

    LLVM moves conversions of scalars, operands and result, into its intrinsic, also where it has
    found that in masks, and has no instruction for what that makes: a bfloat16 with the sign of a
    half, a half with that of a double. Shifts, of the sign in and to its place, stay what they are.
    """
    x, y = _operands(magnitude, sign)
    if x.type.lanes and not x.f.module.lanes_apart:
        return intrinsic("copysign", x, y)
    bits = x.bits()
    turned = funnel_shift_left(bits, y.bits(), bits.like(1))
    placed = funnel_shift_left(turned, turned, bits.like(x.format.bits - 1))
    return Expr(x.f, x.f.bitcast(placed.value, x.type))


def sqrt_of(x: Expr) -> Expr:
    return intrinsic("sqrt", x)


def estimate(name: str, x: Expr, *others: Number) -> Expr:
    """The target's estimate of a function of floats, lane by lane; see `Module.estimates`."""
    f, instruction = x.f, x.f.module.estimates[name]
    one = x.type.with_lanes(0)
    constants = [const(one, y) for y in others]
    if not x.type.lanes:
        return Expr(f, f.call(instruction, x.type, x.value, *constants))
    result = x.value
    for lane in range(x.type.lanes):
        y = f.call(instruction, one, f.extract(x.value, lane), *constants)
        result = f.insert(result, y, lane)
    return Expr(f, result)


def has_good_estimates(x: Expr) -> bool:
    """Whether estimates of floats are right to an ulp, so that little is lacking."""
    return "median" in x.f.module.estimates and not x.is_double


def rough_inverse(x: Expr) -> Expr:
    """`1 / x`, perhaps some ulp off, for moderate `x`: where what it lacks is made up for."""
    if "rcp" in x.f.module.estimates and not x.is_double:
        return estimate("rcp", x)
    return 1.0 / x


def near_inverse(x: Expr) -> Expr:
    """`1 / x` to about half an ulp for moderate `x`; an estimate takes a Newton step."""
    y = rough_inverse(x)
    return fma(y, fma(-x, y, 1.0), y) if "rcp" in x.f.module.estimates and not x.is_double else y


def truncate(x: Expr) -> Expr:
    return intrinsic("trunc", x)


def round_to_even(x: Expr) -> Expr:
    return intrinsic("roundeven", x)


def count_leading_zeros(x: Expr) -> Expr:
    """Leading zero bits of a non-zero integer."""
    zero_is_poison = Value(Type("i1"), "true")
    return Expr(x.f, x.f.intrinsic("ctlz", x.type, x.value, zero_is_poison))


def funnel_shift_left(high: Expr, low: Expr, count: Expr) -> Expr:
    """The upper half of `high:low << count`."""
    return intrinsic("fshl", high, low, count)


def select(condition: Expr, a: Operand, b: Operand) -> Expr:
    """`a` where the condition holds, else `b`; one of them is an expression."""
    first, second = _operands(a, b)
    return Expr(condition.f, condition.f.select(condition.value, first.value, second.value))


def select_constant(condition: Expr, a: Number, b: Number, like: Expr) -> Expr:
    return select(condition, like.like(a), like.like(b))


def at_most(x: Expr, limit: Operand) -> Expr:
    """The smaller of both; `x` where it is NaN. One instruction on x86."""
    limit = x.like(limit)
    return select(x > limit, limit, x)


def at_least(x: Expr, limit: Operand) -> Expr:
    """The larger of both; `x` where it is NaN."""
    limit = x.like(limit)
    return select(x < limit, limit, x)


def any_lane(condition: Expr) -> Value:
    """A scalar: whether the condition holds in some lane."""
    f, value = condition.f, condition.value
    if not value.type.lanes:
        return value
    if not f.module.lanes_apart:
        return f.reduce("or", value)
    return functools.reduce(f.or_, [f.extract(value, lane) for lane in range(value.type.lanes)])


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, lowest order first."""
    result: Operand = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result if isinstance(result, Expr) else x.like(result)


def two_chains(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial as even and odd part, lowest order first.

    Horner's rule waits for each step; two chains of half the length cost one multiplication more.
    """
    square = x * x
    even, odd = polynomial(square, coefficients[::2]), polynomial(square, coefficients[1::2])
    return fma(odd, x, even)


def odd_polynomial(x: Expr, z: Expr, coefficients: Sequence[float]) -> Expr:
    """`x + x * z * P(z)`; the sign of a zero `x` survives whatever the sign of `P`."""
    # Adding zero makes a vanishing product +0, so that the outer sum cannot turn -0 into +0.
    product = fma(z, polynomial(z, coefficients), 0.0)
    return fma(product, x, x)


def round_shifted(x: Expr, factor: float) -> tuple[Expr, Expr]:
    """`(n, shifted)`: `x * factor` rounded to an integer `n`, also in the low bits of `shifted`."""
    magic = x.format.round_magic
    shifted = fma(x, factor, magic)
    return shifted - magic, shifted


def low_integer(shifted: Expr) -> Expr:
    """The integer in the low bits that `round_shifted` left."""
    return shifted.bits() - shifted.format.round_magic_bits


def power_of_two(n: Expr, fmt: Format) -> Expr:
    """`2 ** n` for an integer expression in the range of normal exponents."""
    return ((n << fmt.mantissa) + fmt.one_bits).as_float()


def least_power(fmt: Format) -> int:
    """Twice the exponent whose bits are those of zero."""
    return -2 * fmt.bias


def scale_by_power(x: Expr, n: Expr) -> Expr:
    """`x * 2**n`, rounded once if the result is subnormal; |n| up to twice the largest exponent.

    Zero for the least `n`, which costs nothing: that a result is not zero but too small for a
    number takes some processors a hundred cycles, and what masks take out of a softmax is much.
    """
    if "ldexp" in x.f.module.native:
        types = [x.type, n.type.with_elem("i32")]
        power = n.resize("i32", signed=True)
        scaled = Expr(x.f, x.f.intrinsic("ldexp", x.type, x.value, power.value, overload=types))
        if "subnormal" in x.f.module.native:
            return scaled
        # The instruction is masked; what NaN leaves in `n` is not the least.
        return select(n != least_power(x.format), scaled, x.like(0.0))
    # Two factors in the range of normal numbers, or zero; multiplication keeps a NaN one.
    half = n.ashr(1)
    return x * power_of_two(half, x.format) * power_of_two(n - half, x.format)


def fast_two_sum(a: Expr, b: Expr) -> Pair:
    """`a + b` and its rounding error, for `|a| >= |b|` or `a = 0`."""
    s = a + b
    return s, b - (s - a)


def two_sum(a: Expr, b: Expr) -> Pair:
    """`a + b` and its rounding error."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)
