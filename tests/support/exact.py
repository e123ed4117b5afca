"""IEEE formats in exact rational arithmetic: the reference that float instructions are held to."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary format with infinities; values are bit patterns."""

    bits: int
    mantissa: int

    @property
    def bias(self) -> int:
        return (1 << self.bits - 2 - self.mantissa) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.bits - 1 - self.mantissa) - 1) << self.mantissa

    @property
    def nan(self) -> int:
        return self.infinity | 1 << self.mantissa - 1

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    def is_nan(self, x: int) -> bool:
        return x & ~self.sign > self.infinity

    def is_infinite(self, x: int) -> bool:
        return x & ~self.sign == self.infinity

    def is_negative(self, x: int) -> bool:
        return bool(x & self.sign)

    def value(self, x: int) -> Fraction:
        """Of a finite pattern."""
        size = x & ~self.sign
        exponent, fraction = divmod(size, 1 << self.mantissa)
        if exponent:
            fraction += 1 << self.mantissa
        scaled = fraction * Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa)
        return -scaled if self.is_negative(x) else scaled

    def round(self, x: Fraction, zero_sign: bool = False, toward_zero: bool = False) -> int:
        """The nearest pattern, ties to even; an exact zero has the sign given."""
        if x == 0:
            return self.sign if zero_sign else 0
        size, sign = abs(x), self.sign if x < 0 else 0
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
        exponent = max(exponent, 1 - self.bias)
        units = size / Fraction(2) ** (exponent - self.mantissa)
        count = int(units) if toward_zero else round(units)
        pattern = (exponent + self.bias - 1 << self.mantissa) + count
        largest = self.infinity - toward_zero
        return min(pattern, largest) | sign


F16, F32, F64 = Format(16, 10), Format(32, 23), Format(64, 52)
#: Half of an f32.
BF16 = Format(16, 7)


def fma(form: Format, a: int, b: int, c: int) -> int:
    """a * b + c with one rounding."""
    negative = form.is_negative(a) != form.is_negative(b)
    if any(map(form.is_nan, (a, b, c))):
        return form.nan
    if form.is_infinite(a) or form.is_infinite(b):
        zero = any(x & ~form.sign == 0 for x in (a, b))
        opposed = form.is_infinite(c) and form.is_negative(c) != negative
        return form.nan if zero or opposed else form.infinity | negative * form.sign
    if form.is_infinite(c):
        return c
    product = form.value(a) * form.value(b)
    total = product + form.value(c)
    both = form.is_negative(c) and (product < 0 or (product == 0 and negative))
    return form.round(total, zero_sign=both and product == 0 and form.value(c) == 0)


def add(form: Format, a: int, b: int) -> int:
    one = form.bias << form.mantissa
    return fma(form, a, one, b)


def mul(form: Format, a: int, b: int) -> int:
    """A product's zero has the sign of its operands."""
    negative = form.is_negative(a) != form.is_negative(b)
    return fma(form, a, b, form.sign if negative else 0)


def extremum(form: Format, a: int, b: int, greater: bool, propagate: bool = False) -> int:
    """IEEE 754-2019 minimumNumber, maximumNumber, or those that propagate NaN."""
    nans = [form.is_nan(x) for x in (a, b)]
    if any(nans):
        return form.nan if propagate or all(nans) else b if nans[0] else a
    key = lambda x: (x ^ (2 * form.sign - 1)) if form.is_negative(x) else x | form.sign
    return max(a, b, key=key) if greater else min(a, b, key=key)


def ldexp(form: Format, x: int, n: int) -> int:
    if form.is_nan(x) or form.is_infinite(x):
        return x
    return form.round(form.value(x) * Fraction(2) ** n, zero_sign=form.is_negative(x))


def frexp(form: Format, x: int) -> tuple[int, int]:
    """Mantissa as a pattern in [0.5, 1), and exponent."""
    if form.is_nan(x) or form.is_infinite(x) or form.value(x) == 0:
        return x, 0
    size = abs(form.value(x))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size >= Fraction(2) ** exponent
    return form.round(form.value(x) / Fraction(2) ** exponent), exponent


def convert(source: Format, to: Format, x: int, toward_zero: bool = False) -> int:
    if source.is_nan(x):
        return to.nan
    negative = source.is_negative(x)
    if source.is_infinite(x):
        return to.infinity | negative * to.sign
    return to.round(source.value(x), negative, toward_zero)


def to_integer(form: Format, x: int, low: int, high: int) -> int:
    """Toward zero, saturating; NaN gives 0."""
    if form.is_nan(x):
        return 0
    if form.is_infinite(x):
        return low if form.is_negative(x) else high
    return max(low, min(high, int(form.value(x))))
