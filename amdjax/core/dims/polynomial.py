"""Polynomials with integer coefficients, of which symbolic dimensions are made.

The unknowns are variables and operations that are no polynomials. A polynomial is kept in one
normal form:

    b*t + floordiv(t, 16) - 1

    {((b, 1), (t, 1)): 1,  ((floordiv(t, 16), 1),): 1,  (): -1}
      monomial         coefficient                     the constant
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

__all__ = [
    "Atom", "Monomial", "Operation", "Polynomial", "atom_of", "compiled", "constant_of",
    "difference", "evaluate", "forget", "multiply", "of", "order", "plus", "product_of", "scale",
    "substituted", "text", "variables",
]  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """An unknown that is computed of polynomials: `kind(*args)`."""

    kind: str  # of OPERATIONS
    args: tuple[Polynomial, ...]

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.args))

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _text(self) -> str:
        return f"{self.kind}({', '.join(map(text, self.args))})"

    def __str__(self) -> str:
        return self._text


OPERATIONS: dict[str, Callable[..., Any]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}

Atom: TypeAlias = str | Operation
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
"""Powers of unknowns, in the order of their texts; () is the constant's."""

Polynomial: TypeAlias = tuple[tuple[Monomial, int], ...]
"""Coefficients by monomial, none of them zero, in the order of `order`; () is zero."""


#: Results that are not computed again: compilers do the same arithmetic over and over.
_KEPT = 1 << 14


def of(x: int | Atom) -> Polynomial:
    """A constant or an unknown as a polynomial."""
    if isinstance(x, int):
        return (((), x),) if x else ()
    return ((((x, 1),), 1),)


def _normal(terms: Mapping[Monomial, int]) -> Polynomial:
    return tuple(sorted(((m, c) for m, c in terms.items() if c), key=lambda term: order(term[0])))


_Function = TypeVar("_Function", bound=Callable[..., Any])
_tables: list[Any] = []


def _kept(function: _Function) -> _Function:
    """A function that knows its last results: of sizes the same is computed again and again."""
    table = functools.lru_cache(_KEPT)(function)
    _tables.append(table)
    return cast("_Function", table)


def forget() -> None:
    """Empty the tables of results."""
    for table in _tables:
        table.cache_clear()


@_kept
def order(monomial: Monomial) -> Any:
    """What terms are sorted by: the greatest degree first, then names."""
    return -sum(p for _, p in monomial), [(str(atom), -power) for atom, power in monomial]


@_kept
def plus(*summands: Polynomial) -> Polynomial:
    """The sum."""
    terms: dict[Monomial, int] = {}
    for summand in summands:
        for monomial, factor in summand:
            terms[monomial] = terms.get(monomial, 0) + factor
    return _normal(terms)


@_kept
def difference(a: Polynomial, b: Polynomial, margin: int = 0) -> Polynomial:
    """`a - b + margin`."""
    return plus(a, scale(b, -1), of(margin))


def shifted(a: Polynomial, by: int) -> Polynomial:
    """The sum with an integer: the constant is the last term."""
    if a and not a[-1][0]:
        by += a[-1][1]
        a = a[:-1]
    return (*a, ((), by)) if by else a


def scale(a: Polynomial, factor: int) -> Polynomial:
    """Each coefficient times an integer."""
    return tuple([(monomial, c * factor) for monomial, c in a]) if factor else ()


@_kept
def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """The product."""
    terms: dict[Monomial, int] = {}
    for left, x in a:
        for right, y in b:
            monomial = product_of(left, right)
            terms[monomial] = terms.get(monomial, 0) + x * y
    return _normal(terms)


@_kept
def product_of(left: Monomial, right: Monomial) -> Monomial:
    """The product of monomials."""
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


@_kept
def substituted(a: Polynomial, atom: Atom, instead: Polynomial) -> Polynomial:
    """A polynomial with another one in place of an unknown of its terms."""
    terms = []
    for monomial, factor in a:
        rest = tuple((x, power) for x, power in monomial if x != atom)
        term: Polynomial = ((rest, factor),)
        for _ in range(dict(monomial).get(atom, 0)):
            term = multiply(term, instead)
        terms.append(term)
    return plus(*terms)


@_kept
def divide(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """`q` and `r` with `a = q * b + r`, where no term of `r` is a multiple of `b`'s first one.

    Multiples are those with integer factors. The division of polynomials by the leading term;
    by an integer, each coefficient of the remainder ends in `[0, b)`.
    """
    (lead, factor), *_ = b
    whole: Polynomial = ()
    rest: Polynomial = ()
    left = a
    while left:
        (monomial, coefficient), *others = left
        ratio = _quotient(monomial, lead)
        times = coefficient // factor if ratio is not None else 0
        if times and (not lead or coefficient % factor == 0):
            assert ratio is not None
            part = ((ratio, times),)
            whole = plus(whole, part)
            left = plus(left, scale(multiply(part, b), -1))
            if left and left[0][0] == monomial:  # what an integer leaves of a coefficient
                rest, left = plus(rest, left[:1]), left[1:]
        else:
            rest, left = plus(rest, ((monomial, coefficient),)), tuple(others)
    return whole, rest


def divided_by(a: Polynomial, factor: Monomial) -> Polynomial:
    """A polynomial by a factor of all its terms."""
    if not factor:
        return a
    return tuple((_quotient(monomial, factor) or (), c) for monomial, c in a)


def _quotient(left: Monomial, right: Monomial) -> Monomial | None:
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple((atom, power) for atom, power in powers.items() if power)


def common_factor(a: Polynomial) -> int:
    """The greatest integer that divides all coefficients."""
    return math.gcd(*(c for _, c in a))


def constant_of(a: Polynomial) -> int | None:
    """The value of a polynomial without unknowns, None if it has any."""
    if not a:
        return 0
    return a[0][1] if not a[0][0] else None


def atom_of(a: Polynomial) -> Atom | None:
    """The unknown that a polynomial is, None if it is more than one alone."""
    if len(a) == 1 and a[0][1] == 1 and len(a[0][0]) == 1 and a[0][0][0][1] == 1:
        return a[0][0][0][0]
    return None


def atoms(a: Polynomial) -> Iterable[Atom]:
    """The unknowns of the terms, those inside operations left out."""
    return dict.fromkeys(atom for monomial, _ in a for atom, _ in monomial)


def variables(a: Polynomial) -> set[str]:
    """The names of all variables, those inside operations too."""
    found: set[str] = set()
    for atom in atoms(a):
        found.update([atom] if isinstance(atom, str) else set().union(*map(variables, atom.args)))
    return found


def evaluate(a: Polynomial, value: Callable[[str], Any], zero: Any = 0) -> Any:
    """The value where variables have values: integers, or anything else with arithmetic."""
    total = zero
    for monomial, factor in a:
        term: Any = factor
        for atom, power in monomial:
            x = value(atom) if type(atom) is str else _value(atom, value, zero)
            term = term * (x if power == 1 else x**power)
        total = total + term
    return total


def _value(atom: Atom, value: Callable[[str], Any], zero: Any) -> Any:
    if isinstance(atom, str):
        return value(atom)
    return OPERATIONS[atom.kind](*(evaluate(x, value, zero) for x in atom.args))


_FUNCTIONS = {"__builtins__": {}, "max": max, "min": min}


_Values = Callable[[Mapping[str, int]], tuple[int, ...]]


def compiled(polynomials: Sequence[Polynomial]) -> _Values:
    """A function that evaluates polynomials where variables have values.

    From its second call on it is some ten times as fast: what is called once is not compiled.
    """
    calls: list[_Values] = []

    def values_at(values: Mapping[str, int]) -> tuple[int, ...]:
        if not calls:
            calls.append(lambda values: tuple(evaluate(a, values.__getitem__) for a in polynomials))
        elif len(calls) == 1:
            calls.append(_in_python(polynomials))
        return calls[-1](values)

    return values_at


def _in_python(polynomials: Sequence[Polynomial]) -> _Values:
    names = sorted(set().union(*map(variables, polynomials)))
    known = {name: f"x{i}" for i, name in enumerate(names)}
    written = "".join(f"{_python(a, known)}, " for a in polynomials)
    try:  # names are ours, so that nothing else than arithmetic is run
        function = eval(f"lambda {', '.join(known.values())}: ({written})", _FUNCTIONS)
    except (SyntaxError, MemoryError, RecursionError):  # nested too deeply for Python's parser
        return lambda values: tuple(evaluate(a, values.__getitem__) for a in polynomials)
    return lambda values: function(*map(values.__getitem__, names))


def _python(a: Polynomial, names: Mapping[str, str]) -> str:
    """An expression in Python, in parentheses, with names for the variables."""
    return f"({' + '.join(_python_term(m, c, names) for m, c in a) or '0'})"


def _python_term(monomial: Monomial, factor: int, names: Mapping[str, str]) -> str:
    powers = (f"{_python_atom(atom, names)} ** {p}" if p > 1 else _python_atom(atom, names)
              for atom, p in monomial)  # fmt: skip
    return " * ".join([str(factor), *powers])


def _python_atom(atom: Atom, names: Mapping[str, str]) -> str:
    if isinstance(atom, str):
        return names[atom]
    args = [_python(x, names) for x in atom.args]
    infix = {"floordiv": "//", "mod": "%"}.get(atom.kind)
    return f"({f' {infix} '.join(args)})" if infix else f"{atom.kind}({', '.join(args)})"


@_kept
def text(a: Polynomial) -> str:
    """How it is printed: '2*t + floordiv(t, 16) - 1'."""
    written = ""
    for monomial, factor in a:
        sign = ("- " if factor < 0 else "") if not written else f" {'-' if factor < 0 else '+'} "
        written += sign + _term(monomial, abs(factor))
    return written or "0"


def _term(monomial: Monomial, factor: int) -> str:
    powers = [f"{atom}^{power}" if power > 1 else str(atom) for atom, power in monomial]
    return "*".join([*([str(factor)] if factor != 1 or not powers else []), *powers])
