"""The logits of attention that is written out: products of queries and keys, and what follows them.

From the exponentials back to the product: scales, biases, choices by a mask. What masks compare
positions is found again as bounds of their difference.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amdjax.core.jaxpr import JaxprEqn
from amdjax.core.precision import precision_setting
from amdjax.passes.attention.axes import (
    STRUCTURAL,
    Axis,
    Layout,
    before,
    flat,
    is_plain,
    of_operand,
    of_product,
    settled,
    whole,
)
from amdjax.passes.attention.program import Atom, Program, held, is_float

Affine = tuple[dict[Axis, int], int]

#: No logit that means anything is as small: beside any other its weight is zero.
NEVER = -1e9
SCALED_NEVER = -2e3  # the same after scaling, which scales the others as well
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": operator.eq, "ne": operator.ne, "ge": operator.ge, "gt": operator.gt, "le": operator.le,
    "lt": operator.lt,
}  # fmt: skip
#: What makes other numbers of the two that a predicate chooses from.
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "convert_element_type": lambda x: x,
}  # fmt: skip
MOST_COMPARED = 1 << 24  # elements of a constant mask that is compared with a triangle


@dataclass(frozen=True)
class Placed:
    """A value and the axes it runs along."""

    atom: Atom
    layout: Layout

    @property
    def axes(self) -> tuple[Axis, ...]:
        return flat(self.layout)

    def renamed(self, names: dict[Axis, Axis]) -> Placed:
        """The value along other axes."""
        layout = settled(self.layout)
        return Placed(self.atom, tuple(tuple(names.get(x, x) for x in axes) for axes in layout))


@dataclass(frozen=True)
class Condition:
    """A boolean array that says which pairs take part, or which do not."""

    value: Placed
    is_kept: bool


@dataclass(frozen=True)
class Distance:
    """Pairs whose first position less the second one is no less than `least`."""

    first: Axis
    second: Axis
    least: int


@dataclass
class Logits:
    """What logits are computed of.

    Args:
      query: of the product, the operand that has no axis of keys.
      key: the other one.
      scale: factor of the products.
      precision: of the products.
      biases: what is added, each with a factor.
      conditions: which pairs take part, by arrays ...
      distances: ... and by distance, with what says so.
      fill: the logit of pairs that take no part, None if all do.
      choices: the predicates of all choices, as they are written.
      narrowest: the fewest bytes of a dtype that they are rounded to.
      is_alone: whether a bound was added as a finite number, beside which nothing else may say
        which pairs take part: rows without any would tell what was added from what was chosen.
    """

    query: Placed
    key: Placed
    scale: float
    precision: str | None
    biases: list[tuple[float, Placed]] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    distances: list[tuple[Distance, Condition]] = field(default_factory=list)
    fill: float | None = None
    choices: list[tuple[Placed, bool]] = field(default_factory=list)
    narrowest: int = 8
    is_alone: bool = False


def find_logits(program: Program, atom: Atom, layout: Layout, keys: set[Axis]) -> Logits | None:
    """What logits are computed of, None if that is no attention.

    Args:
      program: where they are.
      atom: the logits.
      layout: theirs.
      keys: the axes that softmax sums over.
    """
    for found in _Traversal(program, keys).ways(atom, layout, 1.0, False):
        return found
    return None


def scaled(program: Program, eqn: JaxprEqn) -> tuple[Atom, float] | None:
    """What a product or quotient multiplies by a positive number, and the number."""
    x, y = eqn.invars
    number = program.number(y)
    if number is None and eqn.primitive.name == "mul":
        x, number = y, program.number(x)
    if number is None or not np.isfinite(number) or number <= 0:
        return None
    return x, number if eqn.primitive.name == "mul" else 1 / number


class _Traversal:
    """From logits back to the product; a sum has two ways, of which one leads there."""

    def __init__(self, program: Program, keys: set[Axis]):
        self.program, self.keys = program, keys
        self.affine: dict[tuple[Atom, Layout], Affine | None] = {}
        self.vain: set[tuple[Any, ...]] = set()

    def ways(self, atom: Atom, layout: Layout, factor: float, is_biased: bool) -> Iterator[Logits]:
        """The ways to a product.

        Args:
          atom: a value on the way.
          layout: its layout.
          factor: what it is multiplied by later.
          is_biased: whether something is added to it later.
        """
        eqn = self.program.maker(atom)
        visit = atom, flat(layout), is_biased
        if eqn is None or visit in self.vain:
            return
        self.vain.add(visit)  # a program of sums of sums has more ways than can be walked
        name = eqn.primitive.name
        if name == "dot_general":
            if (found := self._product(eqn, layout, factor)) is not None:
                yield found
        elif name in STRUCTURAL or name == "convert_element_type":
            inner = before(eqn, layout) if name in STRUCTURAL else layout
            dtypes = [x.aval.dtype for x in (eqn.invars[0], eqn.outvars[0])]
            if inner is not None and all(map(is_float, dtypes)):
                for found in self.ways(eqn.invars[0], inner, factor, is_biased):
                    found.narrowest = min(found.narrowest, dtypes[1].itemsize)
                    yield found
        elif name in ("mul", "div"):
            yield from self._scaled(eqn, layout, factor, is_biased)
        elif name in ("add", "sub"):
            yield from self._biased(eqn, layout, factor)
        elif name == "select_n":
            yield from self._chosen(eqn, layout, factor, is_biased)

    def _scaled(
        self, eqn: JaxprEqn, layout: Layout, factor: float, is_biased: bool
    ) -> Iterator[Logits]:
        found = scaled(self.program, eqn)
        if found is not None:
            yield from self.ways(found[0], layout, factor * found[1], is_biased)

    def _biased(self, eqn: JaxprEqn, layout: Layout, factor: float) -> Iterator[Logits]:
        x, y = eqn.invars
        pairs = [(x, y, 1.0 if eqn.primitive.name == "add" else -1.0)]
        if eqn.primitive.name == "add":
            pairs.append((y, x, 1.0))
        for on, bias, sign in pairs:
            if on.aval.shape != eqn.outvars[0].aval.shape:
                continue
            axes = of_operand(layout, bias.aval.shape)
            placed = Placed(*self.program.root(bias, axes))
            for found in self.ways(on, layout, factor, True):
                if found.is_alone:
                    continue
                if (bounded := self._bounded(found, placed, factor * sign, eqn)) is not None:
                    yield bounded
                found.biases.append((factor * sign, placed))
                yield found

    def _bounded(self, found: Logits, bias: Placed, factor: float, eqn: JaxprEqn) -> Logits | None:
        """Logits to which zero is added within a distance, and beyond it what leaves no weight.

        Pairs beyond it take no part then, if each query has others: so what they are does not
        count, NaN and infinity included.
        """
        if found.distances or found.conditions or found.fill is not None:
            return None
        two = self._two_values(bias.atom, bias.layout)
        if two is None:
            return None
        which, *values = two
        dtype = eqn.outvars[0].aval.dtype
        added = [held(x * factor, dtype) if x else 0.0 for x in values]
        fill = min(x for x in (*added, 0.0) if x is not None)
        if 0.0 not in added or not _is_never(fill, eqn) or fill > SCALED_NEVER:
            return None
        conditions = self._conditions(which, added[0] == 0)
        distances = [(d, c) for c in conditions if (d := self._distance(c)) is not None]
        if len(conditions) != 1 or len(distances) != 1 or not self._leaves_keys(distances[0][0]):
            return None
        is_alone = bool(np.isfinite(fill))
        if is_alone and found.biases:
            return None
        return replace(
            found, distances=distances, conditions=[], biases=[*found.biases],
            choices=[*found.choices], fill=None if is_alone else fill, is_alone=is_alone,
        )  # fmt: skip

    def _leaves_keys(self, distance: Distance) -> bool:
        """Whether each query has a key no farther away."""
        keys = {axis for key in self.keys for axis in whole([key])}
        if distance.first not in keys:
            return distance.second in keys and distance.least <= 0
        sizes = distance.first.size, distance.second.size
        return all(isinstance(n, int) for n in sizes) and sizes[0] - sizes[1] >= distance.least

    def _two_values(self, atom: Atom, layout: Layout) -> tuple[Placed, float, float] | None:
        """A predicate and what a value is where it holds and where it does not, else None."""
        atom, layout = self.program.root(atom, layout)
        eqn = self.program.maker(atom)
        if eqn is None:
            return None
        name, numbers = eqn.primitive.name, [self.program.number(x) for x in eqn.invars]
        operands = [Placed(x, of_operand(layout, x.aval.shape)) for x in eqn.invars]
        if name == "select_n":
            if len(numbers) != 3 or None in numbers[1:] or eqn.invars[0].aval.dtype != bool:
                return None
            return operands[0], numbers[2], numbers[1]  # type: ignore[return-value]
        compute = _ARITHMETIC.get(name)
        unknown = [i for i, number in enumerate(numbers) if number is None]
        if compute is None or len(unknown) != 1:
            return None
        (i,) = unknown
        x = operands[i]
        is_predicate = x.atom.aval.dtype.kind == "b"
        found = (x, 1.0, 0.0) if is_predicate else self._two_values(x.atom, x.layout)
        if found is None:
            return None
        which, *values = found
        with np.errstate(all="ignore"):
            made = [compute(*numbers[:i], value, *numbers[i + 1 :]) for value in values]
        rounded = [held(float(value), eqn.outvars[0].aval.dtype) for value in made]
        return None if None in rounded else (which, *rounded)  # type: ignore[return-value]

    def _chosen(
        self, eqn: JaxprEqn, layout: Layout, factor: float, is_biased: bool
    ) -> Iterator[Logits]:
        which, *cases = eqn.invars
        if len(cases) != 2 or which.aval.dtype != bool:
            return
        for other, on, is_kept in ((cases[0], cases[1], True), (cases[1], cases[0], False)):
            number = self.program.number(other)
            if number is None or on.aval.shape != eqn.outvars[0].aval.shape:
                continue
            axes = of_operand(layout, which.aval.shape)
            fill = held(number * factor, eqn.outvars[0].aval.dtype)
            if fill is None or not _is_never(number, eqn) or fill > SCALED_NEVER:
                continue
            if is_biased and np.isfinite(fill):
                continue
            for found in self.ways(on, layout, factor, is_biased):
                if found.is_alone or (found.fill is not None and found.fill != fill):
                    continue
                found.fill = fill
                chosen = Placed(which, axes)
                found.choices.append((chosen, is_kept))
                for condition in self._conditions(chosen, is_kept):
                    place = self._distance(condition)
                    if place is None:
                        found.conditions.append(condition)
                    else:
                        found.distances.append((place, condition))
                yield found

    def _product(self, eqn: JaxprEqn, layout: Layout, factor: float) -> Logits | None:
        if not is_plain(eqn):
            return None
        sides = of_product(eqn, layout)
        placed = [Placed(x, side) for x, side in zip(eqn.invars, sides, strict=True)]
        keys = {axis for key in self.keys for axis in whole([key])}
        with_keys = [bool(keys & set(p.axes)) for p in placed]
        if with_keys == [True, False]:
            placed.reverse()
        elif with_keys != [False, True]:
            return None
        query, key = placed
        # Of the logits' axes keys may have those of softmax alone, and what queries have too.
        if (set(flat(layout)) - set(query.axes)) != keys:
            return None
        return Logits(query, key, factor, precision_setting(eqn.params["precision"]))

    # Masks

    def _conditions(self, value: Placed, is_kept: bool) -> list[Condition]:
        """A predicate as conditions that must all hold."""
        atom, layout = self.program.root(value.atom, value.layout)
        eqn = self.program.maker(atom, "not", "and", "or", "select_n", *_COMPARISONS)
        parts = None if eqn is None else self._parts(eqn, is_kept)
        if parts is None:
            return [Condition(Placed(atom, layout), is_kept)]
        placed = ((Placed(x, of_operand(layout, x.aval.shape)), kept) for x, kept in parts)
        return [c for part, kept in placed for c in self._conditions(part, kept)]

    def _parts(self, eqn: JaxprEqn, is_kept: bool) -> list[tuple[Atom, bool]] | None:
        """Predicates that must all hold, or must not, for one that is made of them to do so."""
        name, operands = eqn.primitive.name, eqn.invars
        if name == "not":
            return [(operands[0], not is_kept)]
        if name == ("and" if is_kept else "or"):
            return [(x, is_kept) for x in operands]
        compare = _COMPARISONS.get(name)
        chosen_by = eqn if compare is None else self.program.maker(operands[0], "select_n")
        if chosen_by is None or len(chosen_by.invars) != 3:
            return None
        which, *cases = chosen_by.invars
        if which.aval.dtype != bool:
            return None
        numbers = [self.program.number(x) for x in cases]
        if compare is not None:
            limit = self.program.number(operands[1])
            numbers = [None if None in (x, limit) else compare(x, limit) for x in numbers]
        if None not in numbers and numbers[0] != numbers[1]:  # as of a triangle of ones
            return [(which, is_kept == bool(numbers[1]))]
        for other, on, chosen in ((0, 1, True), (1, 0, False)):  # as of a triangle of a mask
            if compare is None and numbers[other] is not None and bool(numbers[other]) != is_kept:
                return [(which, chosen), (cases[on], is_kept)]
        return None

    def _distance(self, condition: Condition) -> Distance | None:
        """A condition that is a bound of how far two positions are apart."""
        value = condition.value
        known = self.program.consts.get(value.atom)
        if known is not None:
            return self._triangle(known, condition)
        eqn = self.program.maker(value.atom, "ge", "gt", "le", "lt")
        if eqn is None:
            return None
        sides = [self._affine(x, value.layout) for x in eqn.invars]
        if sides[0] is None or sides[1] is None:
            return None
        name = eqn.primitive.name
        if name in ("le", "lt"):
            sides.reverse()
        (first, a), (second, b) = sides  # type: ignore[misc]
        terms = {axis: first.get(axis, 0) - second.get(axis, 0) for axis in {*first, *second}}
        least, terms = b - a + (name in ("gt", "lt")), {x: n for x, n in terms.items() if n}
        if not condition.is_kept:
            least, terms = 1 - least, {axis: -n for axis, n in terms.items()}
        if sorted(terms.values()) != [-1, 1]:
            return None
        by_factor = {n: axis for axis, n in terms.items()}
        return Distance(by_factor[1], by_factor[-1], least)

    def _affine(self, atom: Atom, layout: Layout) -> Affine | None:
        """Factors of positions, and a constant, of which an integer is the sum if none wraps."""
        number = self.program.number(atom)
        if number is not None:
            return ({}, int(number)) if number.is_integer() else None
        if atom.aval.dtype.kind != "i":
            return None
        known = atom, layout
        if known not in self.affine:
            self.affine[known] = self._sum_of_positions(*known)
        found = self.affine[known]
        if found is None:
            return None
        terms, constant = found
        most = abs(constant) + sum(abs(n) * axis.size for axis, n in terms.items())
        return found if most <= np.iinfo(atom.aval.dtype).max else None

    def _sum_of_positions(self, atom: Atom, layout: Layout) -> Affine | None:
        atom, layout = self.program.root(atom, of_operand(layout, atom.aval.shape))
        eqn = self.program.maker(atom)
        if eqn is None:
            return None
        name = eqn.primitive.name
        if name == "iota":
            axes = whole(layout[eqn.params["dimension"]])
            return ({axes[0]: 1}, 0) if len(axes) == 1 else None if axes else ({}, 0)
        if name == "convert_element_type":
            return self._affine(eqn.invars[0], layout)
        if name not in ("add", "sub"):
            return None
        first, second = (self._affine(x, layout) for x in eqn.invars)
        if first is None or second is None:
            return None
        sign = 1 if name == "add" else -1
        axes_of = {*first[0], *second[0]}
        terms = {x: first[0].get(x, 0) + sign * second[0].get(x, 0) for x in axes_of}
        return terms, first[1] + sign * second[1]

    @staticmethod
    def _triangle(value: Any, condition: Condition) -> Distance | None:
        """A constant that is a triangle of true elements."""
        dims = [axes for axes in settled(condition.value.layout) if axes]
        shape = getattr(value, "shape", ())
        if len(dims) != 2 or any(len(d) != 1 for d in dims) or np.prod(shape) > MOST_COMPARED:
            return None
        if condition.value.atom.aval.dtype != bool:
            return None
        keep = np.asarray(value).reshape([d[0].size for d in dims]) == condition.is_kept
        rows, columns = keep.shape
        least = 1 - int(keep[0].sum())
        if not np.array_equal(keep, np.tri(rows, columns, -least, dtype=bool)):
            return None
        return Distance(dims[0][0], dims[1][0], least)


def _is_never(number: float, eqn: JaxprEqn) -> bool:
    """Whether a logit is so small that its pair takes no part beside any other."""
    dtype = eqn.outvars[0].aval.dtype
    return number <= (-60000.0 if dtype == np.float16 else NEVER)
