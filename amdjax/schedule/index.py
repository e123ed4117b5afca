"""Index expressions: affine sums of loop variables, with division and remainder kept exact.

The compiler follows an output element back to the input elements it needs; how it gets there is
written in these expressions. Constants fold, terms collect, and `//` and `%` simplify by the known
ranges of their operands, so that a reshape back and forth disappears.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from amdjax.core.dims import (
    Dim,
    divisor,
    is_multiple,
    is_natural,
    same_shape,
    size_hint,
    surely_equal,
)

_serial = count()
MOSTLY = 7 / 8  # of a range


class Symbol:
    """Something an index may depend on, with its inclusive range when known."""

    __slots__ = ("hi", "key", "lo", "name")

    def __init__(self, name: str, lo: int | None, hi: int | None):
        self.name, self.lo, self.hi = name, lo, hi
        self.key = next(_serial)

    def __repr__(self) -> str:
        return self.name


class LoopVar(Symbol):
    """A loop variable running over `range(extent)`."""

    __slots__ = ("extent",)

    def __init__(self, name: str, extent: int):
        super().__init__(name, 0, extent - 1 if extent else 0)
        self.extent = extent

    @contextmanager
    def within(self, start: int, stop: int) -> Iterator[None]:
        """For what is written in a part of the loop, where the variable's range is smaller."""
        whole = self.lo, self.hi
        self.lo, self.hi = start, stop - 1
        try:
            yield
        finally:
            self.lo, self.hi = whole


class Dynamic(Symbol):
    """An index read from data: wraps a value of the element builder."""

    __slots__ = ("value",)

    def __init__(self, value: Any, lo: int | None = None, hi: int | None = None):
        super().__init__("dyn", lo, hi)
        self.value = value


class Quotient(Symbol):
    """`inner // by` or `inner % by` where it does not simplify."""

    __slots__ = ("by", "inner", "remainder")
    _known: ClassVar[dict[Any, Quotient]] = {}

    @staticmethod
    def of(inner: Index, by: int, remainder: bool) -> Quotient:
        key = (inner, by, remainder, inner.range())  # ranges are smaller in parts of loops
        found = Quotient._known.get(key)
        if found is None:
            if len(Quotient._known) > 10_000:
                Quotient._known.clear()
            found = Quotient._known[key] = Quotient(inner, by, remainder)
        return found

    def __init__(self, inner: Index, by: int, remainder: bool):
        lo, hi = inner.range()
        if remainder:
            super().__init__(f"({inner} % {by})", 0, by - 1)
        else:
            super().__init__(
                f"({inner} // {by})",
                None if lo is None else lo // by,
                None if hi is None else hi // by,
            )
        self.inner, self.by, self.remainder = inner, by, remainder


@dataclass(frozen=True, eq=True)
class Index:
    """`const + Σ coefficient * symbol`; immutable, equal expressions compare equal."""

    const: int
    terms: tuple[tuple[Symbol, int], ...] = ()

    @staticmethod
    def of(x: Index | Symbol | int) -> Index:
        if isinstance(x, Index):
            return x
        if isinstance(x, Symbol):
            if isinstance(x, LoopVar) and x.extent == 1:
                return Index(0)
            return Index(0, ((x, 1),))
        return Index(x if isinstance(x, Dim) else int(x))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, (int, Dim)):
            return Index(self.const + other, self.terms)
        merged = dict(self.terms)
        for symbol, c in other.terms:
            merged[symbol] = merged.get(symbol, 0) + c
        if any(isinstance(s, Quotient) and s.remainder for s in merged):
            joined = _joined(merged)
            if joined is not None:
                return joined + (self.const + other.const)
        kept = ((s, c) for s, c in merged.items() if not surely_equal(c, 0))
        terms = sorted(kept, key=lambda t: t[0].key)
        return Index(self.const + other.const, tuple(terms))

    __radd__ = __add__

    def __mul__(self, k: int) -> Index:
        if surely_equal(k, 0):
            return Index(0)
        return Index(self.const * k, tuple((s, c * k) for s, c in self.terms))

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other)

    def __rsub__(self, other: int) -> Index:
        return -self + other

    def range(self) -> tuple[int | None, int | None]:
        """Inclusive bounds; None where unknown."""
        lo: int | None = self.const
        hi: int | None = self.const
        for s, c in self.terms:
            low, high = (s.lo, s.hi) if c > 0 else (s.hi, s.lo)
            lo = None if lo is None or low is None else lo + c * low
            hi = None if hi is None or high is None else hi + c * high
        return lo, hi

    def _split(self, n: int) -> tuple[Index, Index]:
        """`self == n * whole + rest` with the multiples of `n` taken out of the terms."""
        multiples = [is_multiple(c, n) for _, c in self.terms]
        divided = tuple((s, c // n) for (s, c), m in zip(self.terms, multiples) if m)
        others = tuple(term for term, m in zip(self.terms, multiples) if not m)
        whole, rest = Index(self.const // n, divided), Index(self.const % n, others)
        lo, _ = rest.range()
        if lo is not None and not is_natural(
            lo
        ):  # keep dividends from being negative: machines truncate
            shift = -(lo // n)
            whole, rest = whole - shift, rest + shift * n
        return whole, rest

    def _in_units(self, n: int) -> tuple[int, Index, Index]:
        """`unit, coarse, fine` with `self == unit * coarse + fine` and `0 <= fine < unit`.

        The unit is the largest such divisor of `n`; 1 if there is no other.
        What is finer than a divisor of `n` has no part in the quotient by `n`, and all of itself in
        the remainder: `(64 * i + j) // 128 == i // 2` for `j < 64`.
        """
        units = {_common(c, n) for _, c in self.terms}
        for unit in sorted(units, key=size_hint, reverse=True):
            multiples = [is_multiple(c, unit) for _, c in self.terms]
            others = tuple(term for term, m in zip(self.terms, multiples) if not m)
            fine = Index(self.const % unit, others)
            lo, hi = fine.range()
            if lo is not None and hi is not None and _within(lo, hi, unit):
                terms = tuple((s, c // unit) for (s, c), m in zip(self.terms, multiples) if m)
                return unit, Index(self.const // unit, terms), fine
        return 1, self, Index(0)

    def __floordiv__(self, n: int) -> Index:
        if surely_equal(n, 1):
            return self
        whole, rest = self._split(n)
        lo, hi = rest.range()
        if lo is not None and hi is not None and _same_quotient(lo, hi, n):
            return whole + lo // n
        if len(rest.terms) == 1:
            (s, c), *_ = rest.terms
            if isinstance(s, Quotient) and not s.remainder and surely_equal(c, 1):
                return whole + (s.inner + rest.const * s.by) // (s.by * n)
        unit, coarse, _ = rest._in_units(n)
        if not surely_equal(unit, 1):
            return whole + coarse // (n // unit)
        return whole + Index.of(Quotient.of(rest, n, remainder=False))

    def __mod__(self, n: int) -> Index:
        if surely_equal(n, 1):
            return Index(0)
        _, rest = self._split(n)
        lo, hi = rest.range()
        if lo is not None and hi is not None and _same_quotient(lo, hi, n):
            return rest - (lo // n) * n
        unit, coarse, fine = rest._in_units(n)
        if not surely_equal(unit, 1):
            return coarse % (n // unit) * unit + fine
        return Index.of(Quotient.of(rest, n, remainder=True))

    def coefficient(self, symbol: Symbol) -> int:
        return next((c for s, c in self.terms if s is symbol), 0)

    def symbols(self) -> Iterator[Symbol]:
        """All that it depends on; of quotients what is divided."""
        for s, _ in self.terms:
            if isinstance(s, Quotient):
                yield from s.inner.symbols()
            else:
                yield s

    def depends_on(self, symbol: Symbol) -> bool:
        """Whether the symbol occurs, also inside quotients (not inside dynamic values)."""
        for s, _ in self.terms:
            if s is symbol or (isinstance(s, Quotient) and s.inner.depends_on(symbol)):
                return True
        return False

    @property
    def is_dynamic(self) -> bool:
        """Whether it depends on data."""
        return any(
            isinstance(s, Dynamic) or (isinstance(s, Quotient) and s.inner.is_dynamic)
            for s, _ in self.terms
        )

    def substitute(self, table: dict[Symbol, Index]) -> Index:
        out = Index(self.const)
        for s, c in self.terms:
            if s in table:
                out = out + table[s] * c
            elif isinstance(s, Quotient):
                inner = s.inner.substitute(table)
                out = out + (inner % s.by if s.remainder else inner // s.by) * c
            else:
                out = out + Index.of(s) * c
        return out

    # Comparisons build guards; equality of expressions stays Python's ==.
    def ge(self, other: Index | int) -> Guard:
        return Guard((Condition("ge", self - other),))

    def lt(self, other: Index | int) -> Guard:
        return Guard((Condition("ge", -(self - other) - 1),))

    def equals(self, other: Index | int) -> Guard:
        return Guard((Condition("eq", self - other),))

    __ge__, __lt__ = ge, lt

    def __gt__(self, other: Index | int) -> Guard:
        return self.ge(other + 1)

    def __le__(self, other: Index | int) -> Guard:
        return self.lt(other + 1)

    def __repr__(self) -> str:
        # Text decides nothing of symbolic sizes.
        parts = [f"{s}" if surely_equal(c, 1) else f"{c}*{s}" for s, c in self.terms]
        const = [str(self.const)] if not surely_equal(self.const, 0) or not parts else []
        return " + ".join(parts + const)


def _common(c: int, n: int) -> int:
    """A common divisor of a factor and a divisor, the greatest that is known."""
    if is_multiple(n, c):
        return abs(c) if isinstance(c, int) else c
    return n if is_multiple(c, n) else divisor(c, n)


def _within(lo: int, hi: int, n: int) -> bool:
    """Whether `0 <= lo` and `hi < n`, for all sizes."""
    return is_natural(lo) is True and is_natural(n - hi - 1) is True


def _same_quotient(lo: int, hi: int, n: int) -> bool:
    """Whether all from `lo` to `hi` have one quotient by `n`, whatever the sizes are."""
    return surely_equal(lo // n, hi // n)


def _joined(terms: dict[Symbol, int]) -> Index | None:
    """A sum in which a quotient and a remainder of one dividend are put together; None without.

    `x // n * n + x % n` is `x`, and `(x // n + y) % m * n + x % n` is `(x + y * n) % (n * m)`.
    """
    for s, c in terms.items():
        if not (isinstance(s, Quotient) and s.remainder and c):
            continue
        whole = s.inner // s.by
        if len(whole.terms) != 1 or not same_shape((whole.const, whole.terms[0][1]), (0, 1)):
            continue
        quotient = whole.terms[0][0]
        for t, factor in terms.items():
            if factor != c * s.by:
                continue
            if t is quotient:
                dividend = s.inner
            elif (
                isinstance(t, Quotient)
                and t.remainder
                and surely_equal(t.inner.coefficient(quotient), 1)
            ):
                dividend = (s.inner + (t.inner - whole) * s.by) % (t.by * s.by)
            else:
                continue
            others = sorted(
                ((u, k) for u, k in terms.items() if k and u is not s and u is not t),
                key=lambda term: term[0].key,
            )
            return Index(0, tuple(others)) + dividend * c
    return None


def quotients(i: Index) -> list[Quotient]:
    """All that an index divides, nested ones too."""
    found = []
    for s, _ in i.terms:
        if isinstance(s, Quotient):
            found += [s, *quotients(s.inner)]
    return found


def symbols_in(i: Index) -> set[Symbol]:
    """All that an index depends on, quotients and what they divide."""
    out: set[Symbol] = set()
    for s, _ in i.terms:
        out.add(s)
        if isinstance(s, Quotient):
            out |= symbols_in(s.inner)
    return out


def changes(indices: Iterable[Index], var: LoopVar) -> list[int]:
    """Where conditions on a loop's variable alone, that indices stand for, change; ends included.

    What is joined, or padded, is computed in each part from the operands that lie there.
    """
    places, n = {0, var.extent}, var.extent
    for i in indices:
        if len(i.terms) == 1 and i.terms[0][0] is var and abs(i.terms[0][1]) == 1:
            # Where `var + const >= 0` begins to hold, and `const - var >= 0` holds no more.
            place = -i.const if i.terms[0][1] == 1 else i.const + 1
            places |= {place} if 0 < place < n else set()
    return sorted(places)


@dataclass(frozen=True)
class Condition:
    """`index >= 0` or `index == 0`."""

    kind: str
    index: Index

    def is_same(self, other: Condition) -> bool:
        """Whether it is another one, for all sizes."""
        a, b = self.index, other.index
        return (
            self.kind == other.kind
            and [s for s, _ in a.terms] == [s for s, _ in b.terms]
            and same_shape([a.const, *(c for _, c in a.terms)], [b.const, *(c for _, c in b.terms)])
        )

    def mostly_holds(self) -> bool:
        """Whether it holds for nearly all of the range of its index."""
        lo, hi = self.index.range()
        if self.kind != "ge" or not isinstance(lo, int) or not isinstance(hi, int):
            return False
        return hi + 1 >= MOSTLY * (hi - lo + 1)

    def known(self) -> bool | None:
        """True or False when the ranges decide it."""
        lo, hi = self.index.range()
        if self.kind == "ge":
            if lo is not None and is_natural(lo):
                return True
            return False if hi is not None and is_natural(hi) is False else None
        if lo is not None and hi is not None and surely_equal(lo, hi):
            known = is_natural(lo), is_natural(-lo)
            return True if all(known) else False if False in known else None
        if (lo is not None and is_natural(lo - 1)) or (hi is not None and is_natural(-hi - 1)):
            return False
        return None


@dataclass(frozen=True)
class Guard:
    """A conjunction of conditions on indices."""

    conditions: tuple[Condition, ...] = ()

    def __and__(self, other: Guard) -> Guard:
        new = (c for c in other.conditions if not any(map(c.is_same, self.conditions)))
        return Guard((*self.conditions, *new))

    def spares_little(self, offset: Index) -> bool:
        """Whether about as much is read at an offset with the guard as without it."""
        return all(
            c.mostly_holds() or not any(map(offset.depends_on, c.index.symbols()))
            for c in self.conditions
        )

    def simplify(self) -> Guard | bool:
        """Drop what is always true; False if one can never hold."""
        rest = []
        for c in self.conditions:
            known = c.known()
            if known is False:
                return False
            if known is None:
                rest.append(c)
        return Guard(tuple(rest)) if rest else True


TRUE = Guard()


def placed(symbols: Iterable[Index], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """An index into `shape`: the symbols in order for axes longer than one, 0 for the others."""
    it = iter(symbols)
    return tuple(Index(0) if n == 1 else next(it) for n in shape)


def linear(index: tuple[Index, ...], shape: tuple[int, ...]) -> Index:
    """Row-major position of an index."""
    out = Index(0)
    for i, n in zip(index, shape, strict=True):
        out = out * n + i
    return out


def delinear(position: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The index at a row-major position known to lie inside `shape`."""
    out = []
    for k, n in enumerate(shape):
        inner = 1
        for m in shape[k + 1 :]:
            inner *= m
        i = position // inner if inner else Index(0)
        out.append(i % n if k and n else i)
    return tuple(out)


def in_bounds(i: Index, n: int) -> Guard:
    """Whether an index is one of an axis of `n` elements."""
    i = Index.of(i)
    return i.ge(0) & i.lt(n)


def all_of(*guards: Guard | bool) -> Guard | bool:
    """Whether all of some guards hold."""
    if any(g is False for g in guards):
        return False
    return functools.reduce(operator.and_, (g for g in guards if isinstance(g, Guard)), TRUE)
