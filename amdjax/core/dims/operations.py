"""Normal forms of what is no polynomial: quotients, remainders, maxima and minima.

Each takes out what is a polynomial, and what its facts decide; the rest becomes an unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from amdjax.core.dims.polynomial import (
    Atom,
    Monomial,
    Operation,
    Polynomial,
    atom_of,
    atoms,
    common_factor,
    constant_of,
    divide,
    divided_by,
    multiply,
    of,
    plus,
    scale,
    substituted,
    text,
)
from amdjax.core.errors import InconclusiveDimensionOperation

__all__ = [
    "Facts",
    "by_maxima",
    "floordiv",
    "greatest",
    "in_quotients",
    "mod",
    "multiplied",
    "without_common_factor",
    "without_quotient",
]

Bounds = tuple[int | None, int | None]
"""The least and the greatest value, None where there is none."""


class Facts(Protocol):
    """What is known of the unknowns."""

    def bounds(self, a: Polynomial) -> Bounds:
        """Of the values that a polynomial takes."""

    def examples(self, a: Polynomial) -> Iterable[int]:
        """Values of a polynomial for some sizes, perhaps none."""

    def is_surely_at_least_zero(self, a: Polynomial) -> bool | None:
        """For all sizes, for none (False), or for some (None)."""

    def is_positive(self, a: Polynomial) -> bool:
        """Whether a divisor of which bounds do not tell it is greater than zero."""

    def modulo(self, a: Polynomial, divisor: int) -> Polynomial:
        """A polynomial with the same remainder, in which known remainders are constants."""

    def unknown(self, operation: Operation) -> Polynomial:
        """The polynomial that an operation is: what is known to equal it, or an unknown."""

    def described(self) -> str:
        """Who asks, and what is known: sentences for messages."""


def floordiv(a: Polynomial, b: Polynomial, facts: Facts) -> Polynomial:
    """`a // b`, rounded down."""
    if _is_negative(b, a, facts):
        a, b = scale(a, -1), scale(b, -1)
    a, b, _ = without_common_factor(in_quotients(a, b, facts), b)
    whole, rest = _divided(a, b, facts)
    if not rest or _is_between(rest, b, facts):
        return whole
    if _is_between(plus(rest, b), b, facts):
        return plus(whole, of(-1))
    divisor = constant_of(b)
    if divisor is None:
        return plus(whole, facts.unknown(Operation("floordiv", (rest, b))))
    # floor((g*x + c) / (g*d)) = floor((x + floor(c / g)) / d)
    *others, (_, constant) = rest if not rest[-1][0] else (*rest, ((), 0))
    common = math.gcd(divisor, *(c for _, c in others))
    rest = plus(*(((m, c // common),) for m, c in others), of(constant // common))
    divisor //= common
    atom = atom_of(rest)
    if isinstance(atom, Operation) and atom.kind == "floordiv":
        inner = constant_of(atom.args[1])
        if inner is not None:  # floor(floor(x / d) / e) = floor(x / (d*e))
            return plus(whole, floordiv(atom.args[0], of(inner * divisor), facts))
    if divisor == 1:
        return plus(whole, rest)
    return plus(whole, facts.unknown(Operation("floordiv", (rest, of(divisor)))))


def mod(a: Polynomial, b: Polynomial, facts: Facts) -> Polynomial:
    """`a % b`, with the sign of `b`."""
    if _is_negative(b, a, facts):
        return scale(mod(scale(a, -1), scale(b, -1), facts), -1)
    a, b, factor = without_common_factor(in_quotients(a, b, facts), b)
    if factor:
        return multiply(((factor, 1),), mod(a, b, facts))
    divisor = constant_of(b)
    if divisor is not None:
        a = facts.modulo(a, divisor)
    _, rest = _divided(a, b, facts)
    if not rest or _is_between(rest, b, facts):
        return rest
    if _is_between(plus(rest, b), b, facts):
        return plus(rest, b)
    if divisor is not None:
        common = math.gcd(divisor, common_factor(rest))
        if common > 1:
            reduced = tuple((m, c // common) for m, c in rest)
            return scale(mod(reduced, of(divisor // common), facts), common)
    return facts.unknown(Operation("mod", (rest, b)))


def without_common_factor(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial, Monomial]:
    """`a` and `b`, which is not zero, without the unknowns that are factors of all their terms."""
    terms = [dict(monomial) for monomial, _ in (*a, *b)]
    common = {x: min(t.get(x, 0) for t in terms) for x in terms[0]}
    factor = tuple((x, power) for x, power in common.items() if power)
    return divided_by(a, factor), divided_by(b, factor), factor


def in_quotients(a: Polynomial, near: Polynomial, facts: Facts) -> Polynomial:
    """`a` with `4*floordiv(t, 4)` in place of `t` that is as much, if `near` has this quotient."""
    for atom in list(atoms(near)):
        if isinstance(atom, Operation) and atom.kind == "floordiv":
            unknown, divisor = atom_of(atom.args[0]), constant_of(atom.args[1])
            rest = constant_of(facts.modulo(atom.args[0], divisor)) if unknown and divisor else None
            if unknown is not None and divisor is not None and rest is not None:
                a = substituted(a, unknown, plus(scale(of(atom), divisor), of(rest)))
    return a


def _divided(a: Polynomial, b: Polynomial, facts: Facts) -> tuple[Polynomial, Polynomial]:
    """`q` and `r` with `a = q * b + r`; no negative `r` where adding `b` once is known to do."""
    whole, rest = divide(a, b)
    raised = plus(rest, b)
    if constant_of(b) is None and rest and _is_between(raised, b, facts):
        return plus(whole, of(-1)), raised  # (n - 1) // n == 0
    return whole, rest


def greatest(args: Sequence[Polynomial], facts: Facts, kind: str = "max") -> Polynomial:
    """The maximum, or the minimum if `kind` says so."""
    sign = 1 if kind == "max" else -1
    kept: list[Polynomial] = []
    for arg in args:
        atom = atom_of(arg)
        nested = atom.args if isinstance(atom, Operation) and atom.kind == kind else (arg,)
        for one in nested:
            if not any(_exceeds(other, one, sign, facts) for other in kept):
                kept = [other for other in kept if not _exceeds(one, other, sign, facts)]
                kept.append(one)
    if len(kept) == 1:
        return kept[0]
    return facts.unknown(Operation(kind, tuple(sorted(kept, key=str))))


def by_maxima(a: Polynomial) -> Polynomial:
    """`a` with maxima and minima of two as `max(d, 0)`, whose first factor is positive."""
    for atom in list(atoms(a)):
        if isinstance(atom, Operation) and atom.kind in ("max", "min") and len(atom.args) == 2:
            x, y = atom.args
            d = plus(x, scale(y, -1))
            if d[0][1] < 0:
                (x, y), d = (y, x), scale(d, -1)
            excess = of(Operation("max", (d, ())))  # of x beyond y
            a = substituted(
                a, atom, plus(y, excess) if atom.kind == "max" else plus(x, scale(excess, -1))
            )
    return a


def _exceeds(a: Polynomial, b: Polynomial, sign: int, facts: Facts) -> bool:
    return facts.is_surely_at_least_zero(scale(plus(a, scale(b, -1)), sign)) is True


def without_quotient(a: Polynomial) -> tuple[Polynomial, bool] | None:
    """A comparison of one quotient as one of its dividend.

    Returns:
      For `a = c*floordiv(x, d) + k` what is at least zero exactly where `a` is: `x + (k//c)*d`; and
      whether `a` is at least zero where it is not, as of negative `c`. None of other `a`.
    """
    terms = [(monomial, c) for monomial, c in a if monomial]
    atom = atom_of(((terms[0][0], 1),)) if len(terms) == 1 else None
    if not isinstance(atom, Operation) or atom.kind != "floordiv":
        return None
    constant = sum(c for monomial, c in a if not monomial)
    ((_, factor),), (dividend, divisor) = terms, atom.args
    # a >= 0 is not -a - 1 >= 0, and the divisor is at least 1.
    least = constant // factor if factor > 0 else (-constant - 1) // -factor
    return plus(dividend, scale(divisor, least)), factor < 0


def multiplied(
    a: Polynomial, atom: Atom, divisor: int, instead: Polynomial
) -> tuple[Polynomial, int]:
    """`a` times a power of `divisor`, with `instead` for `divisor * atom`; and that power."""
    degrees = [dict(monomial).get(atom, 0) for monomial, _ in a]
    most = max(degrees)
    terms = ((m, c * divisor ** (most - n)) for (m, c), n in zip(a, degrees, strict=True))
    return substituted(tuple(terms), atom, instead), divisor**most


def _is_between(rest: Polynomial, b: Polynomial, facts: Facts) -> bool:
    """Whether `0 <= rest < b`."""
    gap = plus(b, scale(rest, -1))
    if any(x < 0 for x in facts.examples(rest)) or any(x < 1 for x in facts.examples(gap)):
        return False
    least, surplus = facts.bounds(rest)[0], facts.bounds(gap)[0]
    return least is not None and least >= 0 and surplus is not None and surplus >= 1


def _is_negative(b: Polynomial, a: Polynomial, facts: Facts) -> bool:
    """The sign of a divisor, which must be known."""
    if not b:
        raise ZeroDivisionError("symbolic dimension divided by zero, or modulo zero")
    least, most = facts.bounds(b)
    if least is not None and least > 0:
        return False
    if most is not None and most < 0:
        return True
    if facts.is_positive(b):
        return False
    raise InconclusiveDimensionOperation(
        f"Symbolic dimension '{text(a)}' divided by '{text(b)}', which may be zero: add the "
        f"constraint '{text(b)} >= 1'.{facts.described()}"
    )
