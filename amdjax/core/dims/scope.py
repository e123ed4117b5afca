"""What is known of symbolic dimensions: ranges of variables, and the constraints of users."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, cast

from amdjax.core.dims.asking import asked_by
from amdjax.core.dims.departures import Departures
from amdjax.core.dims.intervals import interval_of, known, narrower, quotient
from amdjax.core.dims.linear import Contradiction, minimum
from amdjax.core.dims.operations import (
    Bounds,
    by_maxima,
    in_quotients,
    multiplied,
    without_common_factor,
    without_quotient,
)
from amdjax.core.dims.parse import parse_constraint
from amdjax.core.dims.polynomial import (
    Atom,
    Monomial,
    Operation,
    Polynomial,
    atom_of,
    atoms,
    constant_of,
    difference,
    evaluate,
    multiply,
    of,
    plus,
    scale,
    substituted,
    text,
    variables,
)
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.integers import ceil_div
from amdjax.core.source_info import is_internal
from amdjax.core.tracebacks import is_standard

__all__ = ["SymbolicScope", "narrower"]

_LEAST, _GREATEST = 1, 2**31 - 1  # of sizes of which nothing else is told
_FEW = 8  # values for which a comparison may turn out otherwise, each noted as undecided
_MAX_DEPTH = 3  # of maxima and minima whose cases are looked at one by one
_LARGEST_DIVISOR = 64  # of sizes whose multiples are served by a program of their own
_UNASKED: Any = object()  # what tables of answers have of others
_MAX_ROWS = 200  # of a linear program: what more would decide is said to be unknown


class SymbolicScope:
    """The variables of a family of symbolic dimensions and what is known of them.

    Dimensions of two scopes cannot meet in one expression. Variables are at least 1 and
    less than 2**31 if no constraint says otherwise.

    Args:
      constraints: texts as "a >= 2*b", "t <= 512", "mod(t, 8) == 0".

    Raises:
      ValueError: a text is no constraint, or no sizes satisfy all of them.

    >>> scope = SymbolicScope(["a >= 8", "mod(b, 4) == 0"])
    >>> a, b = amdjax.export.symbolic_shape("a, b", scope=scope)
    >>> a >= 3, b % 2, a + b >= 12
    (True, 0, True)
    """

    def __init__(self, constraints: Sequence[str] = ()):
        if isinstance(constraints, str) or not isinstance(constraints, Iterable):
            kind = "the string " if isinstance(constraints, str) else ""
            raise ValueError(
                f"constraints: must be a sequence of strings, got {kind}{constraints!r}"
            )
        self.constraints: tuple[str, ...] = ()
        self._rows: list[Polynomial] = []  # of which each is at least zero
        self._is_free = True  # whether variables may have any sizes of their ranges
        self._ranges: dict[Atom, Bounds] = {}
        self._equal: dict[Atom, Polynomial] = {}
        self._residues: dict[str, tuple[int, int]] = {}  # modulus and remainder, by variable
        # What was found of polynomials, until more is known.
        self._bounds: dict[Polynomial, Bounds] = {}
        self._zeros: dict[Polynomial, bool | None] = {}
        self._signs: dict[Polynomial, bool | None] = {}
        self._equals: dict[tuple[Polynomial, Polynomial], bool | None] = {}
        self.quotients: dict[tuple[Polynomial, Polynomial], Polynomial] = {}
        self.remainders: dict[tuple[Polynomial, Polynomial], Polynomial] = {}
        self._told: list[tuple[str, list[Polynomial]]] = []  # the rows of each constraint
        self.undecided: dict[Polynomial, None] = {}
        """Differences that comparisons by `==` took for other than zero, and that may be zero."""
        self.narrower: dict[str, tuple[int, int]] = {}
        """The ranges of variables that stand for some sizes of others."""
        self.assumed: dict[Polynomial, None] = {}
        """What was taken to be at least zero, and may be less."""
        self._asked: dict[tuple[str, ...], Departures] = {}  # by variables that have sizes
        self.types: dict[Any, Any] = {}  # those interned of which dimensions are of this scope
        for constraint in constraints:
            self._add(constraint)

    def __repr__(self) -> str:
        return f"SymbolicScope({list(self.constraints)})"

    def text(self, a: Polynomial) -> str:
        """How a dimension is printed."""
        return text(a)

    def described(self) -> str:
        """Who asks what has no answer, and under which constraints: sentences for messages."""
        told = ", ".join(map(repr, self.constraints))
        return f"\n{asked_by()}" + (f"\nThe constraints so far: {told}." if told else "")

    def hashed(self, frame: FrameType | None) -> None:
        """Note that a dimension was hashed: by a user's code, any size could be the one looked for.

        A function that keeps sizes in tables or sets is not the same for all of them.
        """
        while frame is not None and is_standard(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None and not is_internal(frame.f_code):
            self.undecided[()] = None

    def take_for_unequal(self, apart: Polynomial) -> None:
        """Note that a difference is taken for other than zero, which it is not for all sizes."""
        _, factor = apart[0]
        self.undecided[apart if factor > 0 else scale(apart, -1)] = None

    # Dimensions where no symbolic ones can be

    def number(self, dim: Any, other: Any) -> Any:
        """A dimension as a scalar, for arithmetic with a value that is no size."""
        return type(dim).as_value(dim)

    def constant(self, dim: Any) -> int:
        """A dimension as an integer.

        Raises:
          InconclusiveDimensionOperation: always; where variables have sizes, it is that size.
        """
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension '{dim}' used in a context that requires a constant: write "
            "lax.fori_loop or lax.scan for a loop over it, functions of amdjax.numpy for those of "
            "numpy and math, as jnp.arange(n), jnp.zeros(n) and jnp.sqrt(n), and compute with the "
            "dimension itself instead of int(n), len(x) and float(n). Else give the axis a fixed "
            f"size, or pad it to few sizes by the buckets of jit.{self.described()}"
        )

    def estimated(self, dim: Any, other: Any, symbol: str) -> Any:
        """How a dimension compares with what is no size."""
        return NotImplemented

    def value(self, a: Polynomial) -> int:
        """A polynomial at the sizes at hand.

        Raises:
          InconclusiveDimensionOperation: there are none.
        """
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension '{text(a)}' has no value here: its size is not known yet."
            f"{self.described()}"
        )

    # Facts

    def variable(self, name: str) -> Polynomial:
        """The polynomial that a variable is."""
        return self._equal.get(name, of(name))

    def unknown(self, operation: Operation) -> Polynomial:
        return self._equal.get(operation, of(operation))

    def modulo(self, a: Polynomial, divisor: int) -> Polynomial:
        constant, unknown = 0, []
        for monomial, factor in a:
            modulus, residue = self._residue(monomial)
            if factor * modulus % divisor == 0:
                constant += factor * residue
            else:
                unknown.append((monomial, factor))
        rest = plus(tuple(unknown), of(constant % divisor))
        without = self._without_remainders(rest, divisor)
        found = rest if without == rest else self.modulo(without, divisor)
        return rest if constant_of(found) is None else found

    @staticmethod
    def _without_remainders(a: Polynomial, divisor: int) -> Polynomial:
        """A polynomial of the same remainder, with dividends in place of their remainders."""
        for monomial, factor in a:
            atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else ""
            if isinstance(atom, Operation) and atom.kind == "mod":
                modulus = constant_of(atom.args[1])
                if modulus is not None and factor * modulus % divisor == 0:
                    a = plus(a, scale(plus(atom.args[0], scale(of(atom), -1)), factor))
        return a

    def _residue(self, monomial: Monomial) -> tuple[int, int]:
        """A modulus, the greatest known, and the remainder that it leaves of a monomial."""
        modulus, residue = 0, 1  # of 1, whose remainder by anything is known
        for atom, power in monomial:
            known = self._residues.get(atom, (1, 0)) if isinstance(atom, str) else (1, 0)
            for _ in range(power):
                modulus, residue = (
                    math.gcd(modulus * known[0], modulus * known[1], known[0] * residue),
                    residue * known[1],
                )
        return modulus, residue % modulus if modulus else residue

    def is_positive(self, a: Polynomial) -> bool:
        """Whether a divisor of which bounds do not tell it is greater than zero, as of most sizes.

        Of `t - 1`, the size 1 is traced apart.
        """
        return self.is_mostly_at_least_zero(plus(a, of(-1))) is True

    def equal(self, a: Polynomial, b: Polynomial) -> bool | None:
        """Whether two dimensions are the same for all sizes, for none (False), or for some."""
        found = self._equals.get((a, b), _UNASKED)
        if found is _UNASKED:
            found = True if a == b else self._is_zero(difference(a, b))
            self._equals[a, b] = found
        return found

    def _is_zero(self, a: Polynomial) -> bool | None:
        found = self._zeros.get(a, _UNASKED)
        if found is _UNASKED:
            zeros = {value == 0 for value in self.examples(a)}
            found = self._zeros[a] = self._found_zero(a) if len(zeros) < 2 else None
        return found

    def _found_zero(self, a: Polynomial) -> bool | None:
        for bounds in (self._interval, self.bounds):  # the cheap ones first
            least, most = bounds(a)
            if least == most == 0:
                return True
            if (least is not None and least > 0) or (most is not None and most < 0):
                return False
        other = by_maxima(in_quotients(a, a, self))
        rest, _, factor = without_common_factor(other, other) if other else (other, other, ())
        if factor and (self.bounds(((factor, 1),))[0] or 0) > 0:
            other = rest
        if other != a:
            return self._is_zero(other)
        return False if self._never_zero(a) else None

    def _never_zero(self, a: Polynomial) -> bool:
        """Whether a divisor leaves another remainder than zero, whatever the sizes are."""
        common = math.gcd(*(c for monomial, c in a if monomial))
        divisors = {common, *(modulus for modulus, _ in self._residues.values())} - {0, 1}
        return any(constant_of(self.modulo(a, d)) not in (None, 0) for d in divisors)

    def bounds(self, a: Polynomial) -> Bounds:
        """The least and the greatest value of a dimension, as far as they are known."""
        found = self._bounds.get(a)
        if found is None:
            constant = constant_of(a)
            found = (constant, constant) if constant is not None else self._by_all_facts(a)
            self._bounds[a] = found
        return found

    def violated(self, sizes: Mapping[str, int]) -> str | None:
        """The first constraint that sizes of the variables do not satisfy; None if all hold.

        Raises:
          KeyError: a variable of a constraint has no size.
        """
        for constraint, rows in self.conditions(sizes):
            if any(row < 0 for row in rows):
                return constraint
        return None

    @property
    def rows_told(self) -> list[Polynomial]:
        """What is at least zero where the constraints hold that were given."""
        return [row for _, rows in self._told for row in rows]

    def conditions(
        self, sizes: Mapping[str, Any], *, of_all: bool = True
    ) -> Iterator[tuple[str, list[Any]]]:
        """The constraints, and what is at least zero of sizes of the variables where each holds.

        Args:
          sizes: integers, or dimensions of another scope.
          of_all: whether constraints on variables without a size count.

        Raises:
          KeyError: a variable of a constraint that counts has no size.
        """

        def value(name: str) -> Any:
            equal = self._equal.get(name) if name not in sizes else None
            return sizes[name] if equal is None else evaluate(equal, value)

        for constraint, rows in self._told:
            try:
                yield constraint, [evaluate(row, value) for row in rows]
            except KeyError:
                if of_all:
                    raise

    def range(self, name: str) -> Bounds:
        """The least and the greatest size of a variable, by constraints on it or by default."""
        return self._range(name)

    def is_apart(self, sizes: Mapping[str, Any]) -> bool:
        """Whether a program traced for all sizes may be none for these.

        Tracing took dimensions for unequal that it did not know to be equal. Where sizes make them
        equal, as 1 and a size that broadcasts, or are none that dimensions take, as 0, or break a
        constraint of another function that was called, the function is traced apart. Sizes may be
        dimensions of another scope, which takes them for unequal in turn.
        """
        return self._departure(sizes) is not None

    def special_case(self, sizes: Mapping[str, int]) -> dict[str, Polynomial]:
        """What to put in place of variables, where a program traced for all sizes is apart.

        Where two of them are equal, or one is a number, the program with one variable less may
        serve these sizes, and others like them. So may one of a variable that has fewer sizes: of
        multiples, as the height of an image that is halved and doubled again, or up to a bound, as
        the length of a text for which a table is cut. Empty if they are not apart.
        """
        a = self._departure(sizes)
        if a is None:
            return {}
        if evaluate(a, sizes.__getitem__) == 0:
            for monomial, factor in a:
                rest = scale(tuple(term for term in a if term[0] != monomial), -factor)
                name = atom_of(((monomial, 1),)) if monomial else None
                single = constant_of(rest) is not None or isinstance(atom_of(rest), str)
                if isinstance(name, str) and abs(factor) == 1 and single:
                    return {name: rest}
            for name in sorted(variables(a)):
                instead = self._narrower_variable(a, name, sizes)
                if instead is not None:
                    return {name: instead}
        return {name: of(sizes[name]) for name in variables(a)}

    def _narrower_variable(
        self, a: Polynomial, name: str, sizes: Mapping[str, int]
    ) -> Polynomial | None:
        """What to put in place of a variable where a dimension is zero for many of its sizes."""
        size, (low, high) = sizes[name], self._range(name)
        least, most = low or 0, _GREATEST if high is None else high
        for bound in sorted(_constants(a)):
            for part, first, last in (("to", least, bound), ("from", bound, most)):
                is_part = least <= first <= size <= last <= most and (first, last) != (least, most)
                if is_part and _vanishes(a, name, sizes, _samples(first, size, last)):
                    return self.ranged(f"{name}_{part}_{bound}", first, last)
        for divisor in range(2, min(size, _LARGEST_DIVISOR + 1)):
            multiples = range(divisor, 64 * divisor, divisor)
            if size % divisor == 0 and _vanishes(a, name, sizes, multiples):
                new = self.ranged(f"{name}_by_{divisor}", -(-least // divisor), most // divisor)
                return scale(new, divisor)
        return None

    def ranged(self, name: str, least: int, most: int) -> Polynomial:
        """A variable of sizes in a range; one of a name is always of the same."""
        variable = of(name)
        if name not in self.narrower:
            self.narrower[name] = least, most
            self._learn([plus(variable, of(-least)), plus(of(most), scale(variable, -1))])
        return variable

    def _departure(self, sizes: Mapping[str, Any]) -> Polynomial | None:
        """What has a value at sizes that it was taken not to have."""
        names = tuple(sizes)
        asked = self._asked.get(names)
        if asked is None or asked.version != (len(self.assumed), len(self.undecided)):
            ranges = {name: self.range(name) for name in names}
            asked = self._asked[names] = Departures(self.assumed, self.undecided, ranges)
        return asked.first(sizes)

    def is_at_least_zero(self, a: Polynomial) -> bool | None:
        """Whether a dimension is at least zero for all sizes, for none (False), or for some."""
        return self.is_surely_at_least_zero(a)

    def is_surely_at_least_zero(self, a: Polynomial) -> bool | None:
        """The same, where sizes at hand tell nothing."""
        found = self._signs.get(a, _UNASKED)
        if found is _UNASKED:
            signs = {value >= 0 for value in self.examples(a)}
            found = self._signs[a] = self._sign(a, _MAX_DEPTH) if len(signs) < 2 else None
        return found

    def examples(self, a: Polynomial) -> Iterator[int]:
        """Values of a polynomial for some sizes, perhaps none. Where they differ, proofs are vain.

        They are those of the least sizes that variables may have, and of the greatest.
        """
        ends = {name: self._ends(name) for name in variables(a)} if self._is_free else {}
        for at in zip(*ends.values()):
            with contextlib.suppress(ZeroDivisionError):  # there is no value
                yield evaluate(a, dict(zip(ends, at)).__getitem__)

    def _sign(self, a: Polynomial, depth: int) -> bool | None:
        for bounds in (self._interval, self.bounds):  # the cheap ones first
            least, most = bounds(a)
            if least is not None and least >= 0:
                return True
            if most is not None and most < 0:
                return False
        equivalent = without_quotient(a)
        if equivalent is not None:
            compared, is_less = equivalent
            answer = self._sign(compared, depth)
            return not answer if is_less and answer is not None else answer
        return self._in_all_cases(a, depth)

    def _in_all_cases(self, a: Polynomial, depth: int) -> bool | None:
        """As `is_surely_at_least_zero`, where a maximum or minimum is each of its arguments."""
        for atom in list(atoms(a)) if depth else ():
            if isinstance(atom, Operation) and atom.kind in ("max", "min"):
                cases = [substituted(a, atom, arg) for arg in atom.args]
                answers = {self._sign(case, depth - 1) for case in cases}
                if len(answers) == 1 and None not in answers:
                    return answers.pop()
        return None

    def is_mostly_at_least_zero(self, a: Polynomial) -> bool | None:
        """Whether a polynomial of variables is at least zero for all sizes but those that give it
        few values: which are noted, so that those sizes are traced apart. None where it is not so.

        Other sizes than the least ones are the rule: of `n >= 2`, 1 is the exception.
        """
        if any(isinstance(atom, Operation) for atom in atoms(a)):
            return None
        least, most = self.bounds(a)
        below = math.inf if least is None else -least  # how many values are
        others = math.inf if most is None else most + 1
        if min(below, others) > _FEW:
            return None
        answer = below <= others
        exceptions = range(-int(min(below, others)), 0) if answer else range(int(others))
        for value in exceptions:
            self.take_for_unequal(plus(a, of(-value)))
        return answer

    def _by_all_facts(self, a: Polynomial) -> Bounds:
        """Bounds by linear programs over all inequalities that are known."""
        interval = self._interval(a)
        if self._is_attained(a, interval):
            return interval
        constant = a[-1][1] if not a[-1][0] else 0
        form = [(monomial, c) for monomial, c in a if monomial]
        common = math.gcd(*(c for _, c in form))
        objective = {monomial: c // common for monomial, c in form}
        rows = self._relevant(a)
        # Monomials are integers, so the form is one too: bounds are rounded before they are scaled.
        low = minimum(objective, rows)
        high = minimum({monomial: -c for monomial, c in objective.items()}, rows)
        least = None if low is None else low * common + constant
        most = None if high is None else -high * common + constant
        return narrower(interval, (least, most))

    def _is_attained(self, a: Polynomial, bounds: Bounds) -> bool:
        """Whether a polynomial is known to have values as bounds say: there are no narrower ones.

        Tried are sizes at the ends of their ranges, as the first term of each variable says.
        """
        if not self._is_free or None in bounds:
            return False
        lowest: dict[str, int] = {}
        highest: dict[str, int] = {}
        for monomial, factor in a:
            for name in variables(((monomial, 1),)) - lowest.keys():
                ends = self._ends(name)
                lowest[name], highest[name] = ends if factor > 0 else ends[::-1]
        try:
            return bounds == tuple(evaluate(a, at.__getitem__) for at in (lowest, highest))
        except ZeroDivisionError:  # of which there is no value
            return False

    def _ends(self, name: str) -> tuple[int, int]:
        """The least and the greatest size that a variable may have."""
        least, most = cast("tuple[int, int]", self._range(name))  # of variables both are known
        modulus, residue = self._residues.get(name, (1, 0))
        return least, most - (most - residue) % modulus

    def _relevant(self, a: Polynomial) -> list[tuple[dict[Monomial, int], int]]:
        """The inequalities that speak of a polynomial's unknowns, and of those they bring."""
        rows: dict[Polynomial, None] = {}
        waiting, seen = [monomial for monomial, _ in a], set()
        constraints = list(self._rows)
        while waiting and len(rows) < _MAX_ROWS:
            monomial = waiting.pop()
            if not monomial or monomial in seen:
                continue
            seen.add(monomial)
            found = list(self._implied(monomial))
            near = {atom for atom, _ in monomial}
            found += [row for row in constraints if near.intersection(atoms(row))]
            for row in found:
                if row not in rows and any(m for m, _ in row):
                    rows[row] = None
                    waiting += [m for m, _ in row]
        return [({m: c for m, c in row if m}, sum(c for m, c in row if not m)) for row in rows]

    def _implied(self, monomial: Monomial) -> Iterator[Polynomial]:
        """What holds of a monomial by itself: each of the polynomials is at least zero."""
        for atom, _ in monomial:
            yield from self._sides(of(atom), self._range(atom))
            if isinstance(atom, Operation):
                yield from self._definition(atom)
            rest = tuple((x, p - (x == atom)) for x, p in monomial if (x, p) != (atom, 1))
            if rest:  # (x - least) * (rest - least) >= 0, and so on
                for left in self._sides(of(atom), self._range(atom)):
                    for right in self._sides(((rest, 1),), self._interval(((rest, 1),))):
                        yield multiply(left, right)

    @staticmethod
    def _sides(a: Polynomial, bounds: Bounds) -> Iterator[Polynomial]:
        least, most = bounds
        if least is not None:
            yield plus(a, of(-least))
        if most is not None:
            yield plus(of(most), scale(a, -1))

    def _definition(self, atom: Operation) -> Iterator[Polynomial]:
        """What an operation's arguments say of it."""
        this, args = of(atom), atom.args
        if atom.kind == "floordiv":  # b*q <= a <= b*q + b - 1
            rest = plus(args[0], scale(multiply(args[1], this), -1))
            divisor = constant_of(args[1])
            exact = constant_of(self.modulo(args[0], divisor)) if divisor else None
            least, most = (of(exact),) * 2 if exact is not None else ((), plus(args[1], of(-1)))
            yield plus(rest, scale(least, -1))
            yield plus(most, scale(rest, -1))
        elif atom.kind == "mod":
            yield plus(args[1], of(-1), scale(this, -1))
            whole = multiply(args[1], of(Operation("floordiv", args)))
            rest = plus(args[0], scale(whole, -1), scale(this, -1))
            yield from (rest, scale(rest, -1))
        else:
            sign = 1 if atom.kind == "max" else -1
            for arg in args:
                yield scale(plus(this, scale(arg, -1)), sign)

    # Intervals: bounds that need no linear program

    def _interval(self, a: Polynomial) -> Bounds:
        return interval_of(a, self._range)

    def _interval_by_surpluses(self, a: Polynomial) -> Bounds:
        """Bounds from the unknowns written as their least values and what they have beyond.

        So terms that share an unknown count together: with b = 2 + x and t = 2 + y, where neither
        x nor y is negative, b*t - t = x*y + 2*x + y + 2 is at least 2.
        """
        if len(a) < 2 or max(sum(power for _, power in monomial) for monomial, _ in a) < 2:
            return None, None
        surpluses: dict[Atom, Bounds] = {}
        shifts: dict[Atom, Polynomial] = {}
        for atom in atoms(a):
            least, most = self._range(atom)
            if least is None:
                return None, None
            surpluses[atom] = 0, None if most is None else most - least
            shifts[atom] = plus(of(atom), of(least))
        terms = []
        for monomial, factor in a:
            term: Polynomial = of(factor)
            for atom, power in monomial:
                for _ in range(power):
                    term = multiply(term, shifts[atom])
            terms.append(term)
        return interval_of(plus(*terms), surpluses.__getitem__)

    def _interval_by_quotients(self, a: Polynomial) -> Bounds:
        """Bounds with `x - mod(x, d)` in place of `d*floordiv(x, d)`, where terms share unknowns.

        So `t + 1 - 2*floordiv(t, 2)` is `1 + mod(t, 2)`, which is 1 or 2.
        """
        scale_of, found = 1, a
        for atom in list(atoms(a)):
            if not (isinstance(atom, Operation) and atom.kind == "floordiv"):
                continue
            dividend, divisor = atom.args[0], constant_of(atom.args[1])
            if divisor is None or not set(atoms(dividend)).intersection(atoms(a)):
                continue
            whole = plus(dividend, scale(of(Operation("mod", atom.args)), -1))
            found, factor = multiplied(found, atom, divisor, whole)
            scale_of *= factor
        if scale_of == 1:
            return None, None
        low, high = narrower(self._interval(found), self._interval_by_surpluses(found))
        return (
            None if low is None else ceil_div(low, scale_of),
            None if high is None else high // scale_of,
        )

    def _range(self, atom: Atom) -> Bounds:
        told = self._ranges.get(atom, (None, None))
        if isinstance(atom, str):
            first = _LEAST if told[0] is None else told[0]
            modulus, residue = self._residues.get(atom, (1, 0))
            return first + (residue - first) % modulus, _GREATEST if told[1] is None else told[1]
        (least, most), *others = map(self._interval, atom.args)
        if atom.kind == "floordiv":  # by a divisor of at least 1
            low, high = max(others[0][0] or 1, 1), others[0][1]
            found: Bounds = quotient(least, high, low), quotient(most, low, high)
        elif atom.kind == "mod":
            found = narrower((0, None), (None, None if others[0][1] is None else others[0][1] - 1))
            if least is not None and least >= 0:
                found = narrower(found, (None, most))
        else:
            best = max if atom.kind == "max" else min
            lows, highs = zip((least, most), *others, strict=True)
            found = known(best, lows), known(best, highs)
        return narrower(found, told)

    # Constraints

    def _add(self, constraint: str) -> None:
        left, symbol, right = parse_constraint(constraint, self)
        self.constraints += (constraint,)
        rows = {
            ">=": [plus(left, scale(right, -1))],
            "<=": [plus(right, scale(left, -1))],
            ">": [plus(left, scale(right, -1), of(-1))],
            "<": [plus(right, scale(left, -1), of(-1))],
            "==": [plus(left, scale(right, -1)), plus(right, scale(left, -1))],
        }[symbol]
        self._told.append((constraint, rows))
        self._learn(rows)
        try:
            if symbol == "==":
                self._add_equality(left, right)
            for row in self._rows:
                if (constant_of(row) or 0) < 0:
                    raise Contradiction(f"{constraint} holds of no sizes")
                minimum({}, self._relevant(row))
        except Contradiction:
            raise ValueError(
                f"constraints: no sizes satisfy {', '.join(map(repr, self.constraints))}"
            ) from None

    def _learn(self, rows: Sequence[Polynomial]) -> None:
        """Take polynomials to be at least zero from now on."""
        self._rows += rows
        for row in rows:
            self._is_free &= self._learn_range(row)
        operations = self.quotients, self.remainders
        for found in (self._bounds, self._equals, self._zeros, self._signs, *operations):
            found.clear()

    def assume(self, a: Polynomial, symbol: str) -> None:
        """Take a polynomial to be zero ("=="), or at least zero (">="), as far as is known.

        Sizes of which it is not are traced apart.
        """
        rows = [a, scale(a, -1)] if symbol == "==" else [a]
        self.assumed.update(dict.fromkeys(rows))
        self._learn(rows)
        # What variables are called stays, as for programs of which this is not assumed.
        if symbol == "==" and isinstance(atom_of(a[:1]), Operation):
            self._add_equality(a[:1], scale(a[1:], -1))

    def _add_equality(self, left: Polynomial, right: Polynomial) -> None:
        atom = atom_of(left)
        if isinstance(atom, Operation) and atom.kind == "mod":
            variable, modulus = atom_of(atom.args[0]), constant_of(atom.args[1])
            residue = constant_of(right)
            if isinstance(variable, str) and modulus is not None and residue is not None:
                told = self._residues.get(variable, (1, 0))
                self._residues[variable] = _both_residues(told, (modulus, residue))
        if atom is not None and atom not in set(atoms(right)):
            self._equal[atom] = right

    def _learn_range(self, row: Polynomial) -> bool:
        """What a constraint on one unknown alone says of its range; of a variable it replaces 1.

        Returns:
          Whether it is one on a variable, all of which its range tells.
        """
        terms = [(monomial, c) for monomial, c in row if monomial]
        constant = row[-1][1] if row and not row[-1][0] else 0
        if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][0][0][1] != 1:
            return False
        ((((atom, _),), factor),) = terms
        low, high = -(constant // factor), constant // -factor
        told = (low, None) if factor > 0 else (None, high)
        self._ranges[atom] = narrower(told, self._ranges.get(atom, (None, None)))
        return isinstance(atom, str)


def _vanishes(a: Polynomial, name: str, sizes: Mapping[str, int], at: Iterable[int]) -> bool:
    """Whether a dimension seems to be zero for sizes of a variable, and any of the others."""
    grown = [sizes, {n: size + 1 for n, size in sizes.items()}]
    try:
        return not any(evaluate(a, {**x, name: k}.__getitem__) for k in at for x in grown)
    except ZeroDivisionError:
        return False


def _samples(least: int, size: int, most: int) -> set[int]:
    """Some sizes of a range, one of which is told."""
    between = {size - 1, size, size + 1, (least + size) // 2, min((size + most) // 2, 4 * size)}
    return {least, most, *(n for n in between if least <= n <= most)}


def _constants(a: Polynomial) -> set[int]:
    """The numbers that a dimension and what its operations are made of add, without signs."""
    found = set[int]()
    for monomial, factor in a:
        found |= set() if monomial else {abs(factor)}
        for atom, _ in monomial:
            if isinstance(atom, Operation):
                found = found.union(*map(_constants, atom.args))
    return found


def _both_residues(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """The modulus and the remainder that follow from two (the Chinese remainder theorem)."""
    (m, r), (n, s) = a, b
    common = math.gcd(m, n)
    if (s - r) % common or not 0 <= s < n:
        raise Contradiction("remainders exclude each other")
    steps = (s - r) // common * pow(m // common, -1, n // common) % (n // common)
    return math.lcm(m, n), r + m * steps
