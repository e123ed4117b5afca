"""What programs make of the exponentials of logits: weights, and gradients of them.

All that follows from exponentials `e` elementwise or by sums over keys is a polynomial in `e`, in
their sums `z`, in the cotangent `g` of the weights, which is a product with values, and in the sums
`r` of `e * g`. However softmax and its gradient are written, their polynomials are `e / z` and
`e g / z - e r / z²`. Values with other polynomials, or that something else reads, are no attention.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.core.precision import precision_setting
from amdjax.passes.attention.axes import (
    STRUCTURAL,
    Axis,
    Layout,
    after,
    before,
    flat,
    is_plain,
    joined,
    of_operand,
    of_product,
    product_result,
    settled,
    whole,
)
from amdjax.passes.attention.logits import Placed
from amdjax.passes.attention.program import Atom, Program, is_float

Monomial = tuple[int, int, int, int]  # powers of e, g, z, r
Polynomial = dict[Monomial, float]

WEIGHTS: Polynomial = {(1, 0, -1, 0): 1.0}
SLOPES: Polynomial = {(1, 1, -1, 0): 1.0, (1, 0, -2, 1): -1.0}


def closeness(dtype: np.dtype) -> float:
    """The relative difference of factors that are equal but for rounding."""
    return 8.0 * float(np.finfo(np.float64 if dtype == np.float64 else np.float32).eps)


def factor_of(x: Polynomial, y: Polynomial, close: float) -> float | None:
    """`c` where `x` is `c y`, else None."""
    first = next(iter(y))
    factor = x.get(first, 0.0) / y[first]
    if not factor or x.keys() != y.keys():
        return None
    is_alike = all(abs(x[m] - factor * y[m]) <= close * abs(factor * y[m]) for m in y)
    return factor if is_alike else None


def _sum(x: Polynomial, y: Polynomial, sign: float, close: float) -> Polynomial:
    out = dict(x)
    for monomial, c in y.items():
        total = out.get(monomial, 0.0) + sign * c
        if abs(total) <= close * abs(c):
            out.pop(monomial, None)
        else:
            out[monomial] = total
    return out


def _product(x: Polynomial, y: Polynomial, close: float) -> Polynomial | None:
    out: Polynomial = {}
    for a, c in x.items():
        for b, d in y.items():
            monomial: Any = tuple(i + j for i, j in zip(a, b, strict=True))
            if monomial[1] + monomial[3] > 1:
                return None
            out = _sum(out, {monomial: c * d}, 1.0, close)
    return out


def _power(x: Polynomial, n: int) -> Polynomial | None:
    """A power of what has one term, of sums alone if `n` is negative."""
    if len(x) != 1:
        return None
    ((monomial, c),) = x.items()
    if monomial[1] or monomial[3] or (n < 0 and monomial[0]):
        return None
    power: Any = tuple(n * i for i in monomial)
    with np.errstate(all="ignore"):
        return {power: float(np.float64(c) ** n)}


def _summed(x: Polynomial, close: float) -> Polynomial | None:
    """The sum over keys."""
    out: Polynomial = {}
    for (e, g, z, r), c in x.items():
        if e != 1:
            return None
        out = _sum(out, {(0, 0, z, r + 1) if g else (0, 0, z + 1, r): c}, 1.0, close)
    return out


@dataclass(frozen=True)
class Known:
    """A value made of exponentials."""

    polynomial: Polynomial
    layout: Layout


@dataclass(frozen=True)
class Product:
    """A product of such a value with another one.

    Args:
      eqn: the equation.
      known: the operand made of exponentials.
      other: the other operand.
      result: what the product makes.
    """

    eqn: JaxprEqn
    known: Known
    other: Placed
    result: Placed

    @property
    def summed(self) -> set[Axis]:
        """The axes of exponentials that it sums over."""
        return set(flat(self.known.layout)) - set(self.result.axes)


@dataclass
class Weights:
    """All that is made of some exponentials.

    Args:
      products: with what weights, and gradients of logits, are multiplied.
      gradients: what reaches anything else, summed over some axes or as it is: gradients of biases.
      cotangent: what is multiplied with values to give that of the weights.
      values: of that product.
      choices: predicates of choices between something made of exponentials and zero, and whether
        it is that where they hold.
      is_zeroed: whether such a choice is made of weights, not only of gradients of logits.
      is_chosen_fully: whether there is one for each choice that logits are made by.
      is_nan_zeroed: whether weights that are NaN, which all of a row are if one is, become zero.
      close: the relative difference of factors that are equal but for rounding.
      narrowest: the fewest bytes of a dtype that something made of exponentials is rounded to.
      precisions: of all products.
    """

    products: list[Product] = field(default_factory=list)
    gradients: list[tuple[Polynomial, Placed]] = field(default_factory=list)
    cotangent: Placed | None = None
    values: Placed | None = None
    choices: list[tuple[Placed, bool]] = field(default_factory=list)
    is_zeroed: bool = False
    is_chosen_fully: bool = False
    is_nan_zeroed: bool = False
    close: float = 0.0
    narrowest: int = 8
    precisions: set[str | None] = field(default_factory=set)


def find_weights(
    program: Program, exponentials: Var, layout: Layout, keys: tuple[Axis, ...]
) -> Weights | None:
    """All that is made of exponentials, None if something else is than attention has.

    Args:
      program: where they are.
      exponentials: of logits.
      layout: theirs.
      keys: the axes that softmax sums over.
    """
    search = _Search(program, exponentials, layout, keys)
    return search.found if search.run() else None


class _Search:
    """Follows exponentials through a program in its order."""

    def __init__(self, program: Program, exponentials: Var, layout: Layout, keys: Any):
        self.program, self.keys, self.pairs = program, keys, layout
        self.exponentials, self.close = exponentials, closeness(exponentials.aval.dtype)
        self.found = Weights(close=self.close)
        self.known: dict[Any, Known] = {exponentials: Known({(1, 0, 0, 0): 1.0}, layout)}
        self.cotangent_product: tuple[JaxprEqn, Layout] | None = None
        self.nan_tests: set[Atom] = set()

    def run(self) -> bool:
        """Whether all that reads values made of exponentials was understood."""
        waiting = list(self.program.readers[self.exponentials])
        done: set[int] = set()
        while waiting:
            place = heapq.heappop(waiting)
            if place in done:
                continue
            done.add(place)
            eqn = self.program.eqns[place]
            if eqn.effects or len(eqn.outvars) != 1 or not self._step(eqn):
                if not self._leave([x for x in eqn.invars if x in self.known]):
                    return False
            elif eqn.outvars[0] in self.known:
                for reader in self.program.readers[eqn.outvars[0]]:
                    heapq.heappush(waiting, reader)
        return self._leave([v for v in self.known if v in self.program.results])

    def _leave(self, values: Sequence[Any]) -> bool:
        """Whether values may be read by anything else: gradients of logits, which biases have."""
        for v in values:
            known = self.known[v]
            if factor_of(known.polynomial, SLOPES, self.close) is None:
                return False
            if all(v is not placed.atom for _, placed in self.found.gradients):
                self.found.gradients.append((known.polynomial, Placed(v, known.layout)))
        return True

    def _step(self, eqn: JaxprEqn) -> bool:
        name = eqn.primitive.name
        if name == "dot_general":
            return self._multiplied(eqn)
        if name == "reduce_sum" and not self._is_over_keys(eqn):
            return self._bias_sum(eqn)
        if name == "ne":
            return self._is_for_zeros(eqn)
        rule = _RULES.get(name)
        made = rule(self, eqn) if rule is not None else None
        if made is None:
            return False
        self.known[eqn.outvars[0]] = made
        return True

    def _is_over_keys(self, eqn: JaxprEqn) -> bool:
        layout = settled(self.known[eqn.invars[0]].layout)
        summed = [axis for d in eqn.params["axes"] for axis in layout[d]]
        return set(summed) == set(whole(self.keys))

    # Rules: what an equation makes

    def _moved(self, eqn: JaxprEqn) -> Known | None:
        x = self.known[eqn.invars[0]]
        layout = after(eqn, x.layout)
        return None if layout is None else Known(x.polynomial, layout)

    def _same(self, eqn: JaxprEqn) -> Known | None:
        dtype = eqn.outvars[0].aval.dtype
        self.found.narrowest = min(self.found.narrowest, dtype.itemsize)
        return self.known[eqn.invars[0]] if is_float(dtype) else None

    def _negated(self, eqn: JaxprEqn) -> Known:
        x = self.known[eqn.invars[0]]
        return Known({m: -c for m, c in x.polynomial.items()}, x.layout)

    def _raised(self, eqn: JaxprEqn) -> Known | None:
        x = self.known[eqn.invars[0]]
        made = _power(x.polynomial, eqn.params["y"])
        return None if made is None else Known(made, x.layout)

    def _total(self, eqn: JaxprEqn) -> Known | None:
        x = self.known[eqn.invars[0]]
        made = _summed(x.polynomial, self.close)
        axes = eqn.params["axes"]
        layout = tuple(x.layout[d] for d in range(len(x.layout)) if d not in axes)
        return None if made is None else Known(made, layout)

    def _combined(
        self, eqn: JaxprEqn, rule: Callable[[Polynomial, Polynomial, float], Polynomial | None]
    ) -> Known | None:
        layout = self._result(eqn)
        if layout is None:
            return None
        operands = [self._operand(x, layout) for x in eqn.invars]
        is_zero = [x is not None and not x.polynomial for x in operands]
        if any(is_zero) and eqn.primitive.name == "mul":
            return Known({}, layout)  # no derivative, as that of the greatest logit
        if operands[0] is None or operands[1] is None:
            return Known({}, layout) if is_zero[0] and eqn.primitive.name == "div" else None
        both = joined(operands[0].layout, operands[1].layout)
        made = rule(operands[0].polynomial, operands[1].polynomial, self.close)
        return None if both is None or made is None else Known(made, both)

    def _result(self, eqn: JaxprEqn) -> Layout | None:
        """The layout of what arithmetic makes: an operand's, or of pairs if that is of rows."""
        shape = eqn.outvars[0].aval.shape
        sides = [x for x in eqn.invars if isinstance(x, Var) and x in self.known]
        whole_sides = [self.known[x].layout for x in sides if x.aval.shape == shape]
        of_pairs = None
        if shape == self.exponentials.aval.shape:
            side = whole_sides[0] if whole_sides else self.known[sides[0]].layout
            of_pairs = joined(side, self.pairs)
        return whole_sides[0] if of_pairs is None and whole_sides else of_pairs

    def _operand(self, atom: Atom, layout: Layout) -> Known | None:
        """An operand of elementwise arithmetic whose result has the layout, None if not known."""
        if isinstance(atom, Var) and atom in self.known:
            x = self.known[atom]
            return x if atom.aval.shape else Known(x.polynomial, layout)
        number = self.program.number(atom)
        if number is not None:
            return Known({(0, 0, 0, 0): number} if number else {}, layout)
        return self._cotangent(atom, of_operand(layout, atom.aval.shape))

    def _chosen(self, eqn: JaxprEqn) -> Known | None:
        """Zero where a pair takes no part; there exponentials are zero anyway."""
        which, *cases = eqn.invars
        if len(cases) != 2 or which in self.known or which.aval.dtype != bool:
            return None
        if which in self.nan_tests:
            self.found.is_nan_zeroed = True
            return self.known[cases[0]]
        for i in (0, 1):
            x = self.known.get(cases[i])
            if x is None or self.program.number(cases[1 - i]) != 0:
                continue
            if any(m[0] == 0 for m in x.polynomial):
                return None
            axes = of_operand(x.layout, which.aval.shape)
            self.found.choices.append((Placed(which, axes), i == 1))
            self.found.is_zeroed |= not all(m[1] or m[3] for m in x.polynomial)
            return x
        return None

    def _is_for_zeros(self, eqn: JaxprEqn) -> bool:
        """Whether it asks which weights are NaN, for nothing but to have zeros in their place."""
        (x, y), (which,) = eqn.invars, eqn.outvars
        readers = [self.program.eqns[place] for place in self.program.readers[which]]
        if x is not y or which in self.program.results:
            return False
        if factor_of(self.known[x].polynomial, WEIGHTS, self.close) is None:
            return False
        if not all(
            e.primitive.name == "select_n" and e.invars[:2] == [which, x]
            and self.program.number(e.invars[2]) == 0
            for e in readers
        ):  # fmt: skip
            return False
        self.nan_tests.add(which)
        return True

    # The cotangent of weights

    def _cotangent(self, atom: Atom, layout: Layout) -> Known | None:
        """A product with values, perhaps negated or scaled, as the cotangent of weights."""
        program, factor, place = self.program, 1.0, layout
        while (eqn := program.maker(atom)) is not None and eqn.primitive.name != "dot_general":
            name = eqn.primitive.name
            if name in STRUCTURAL:
                inner = before(eqn, place)
                if inner is None:
                    return None
                place = inner
            elif name == "neg":
                factor = -factor
            elif name == "convert_element_type" and is_float(atom.aval.dtype):
                self.found.narrowest = min(self.found.narrowest, atom.aval.dtype.itemsize)
            else:
                return None
            atom = eqn.invars[0]
        if eqn is None or not self._is_cotangent(eqn, place):
            return None
        return Known({(0, 1, 0, 0): factor}, layout)

    def _is_cotangent(self, eqn: JaxprEqn, layout: Layout) -> bool:
        if self.cotangent_product is not None:
            known, place = self.cotangent_product
            return eqn is known and settled(layout) == settled(place)
        sides = of_product(eqn, layout)
        if not is_plain(eqn) or set(flat(layout)) != set(flat(self.pairs)):
            return False
        placed = [Placed(x, side) for x, side in zip(eqn.invars, sides, strict=True)]
        keys = set(whole(self.keys))
        with_keys = [bool(keys & set(p.axes)) for p in placed]
        if with_keys not in ([True, False], [False, True]):
            return False
        values, cotangent = placed if with_keys[0] else placed[::-1]
        if self.found.values is not None:
            names = same_value(self.program, values, self.found.values, flat(self.pairs))
            if names is None:
                return False
            cotangent = cotangent.renamed(names)
        else:
            self.found.values = values
        self.cotangent_product, self.found.cotangent = (eqn, layout), cotangent
        self.found.precisions.add(precision_setting(eqn.params["precision"]))
        return True

    # What leaves exponentials

    def _multiplied(self, eqn: JaxprEqn) -> bool:
        places = [i for i, x in enumerate(eqn.invars) if x in self.known]
        if len(places) != 1 or not is_plain(eqn):
            return False
        known, other = self.known[eqn.invars[places[0]]], eqn.invars[1 - places[0]]
        result, layout = product_result(eqn, places[0], settled(known.layout))
        product = Product(eqn, known, Placed(other, layout), Placed(eqn.outvars[0], result))
        factor = factor_of(known.polynomial, WEIGHTS, self.close)
        if factor is not None and product.summed == set(whole(self.keys)):
            if self.found.values is not None:
                return False
            self.found.values = product.other
        self.found.products.append(product)
        self.found.precisions.add(precision_setting(eqn.params["precision"]))
        return True

    def _bias_sum(self, eqn: JaxprEqn) -> bool:
        known = self.known[eqn.invars[0]]
        axes = eqn.params["axes"]
        layout = tuple(known.layout[d] for d in range(len(known.layout)) if d not in axes)
        if factor_of(known.polynomial, SLOPES, self.close) is None:
            return False
        self.found.gradients.append((known.polynomial, Placed(eqn.outvars[0], layout)))
        return True


def _divided(x: Polynomial, y: Polynomial, close: float) -> Polynomial | None:
    inverse = _power(y, -1)
    return None if inverse is None else _product(x, inverse, close)


_RULES: dict[str, Callable[[_Search, JaxprEqn], Known | None]] = {
    **dict.fromkeys(STRUCTURAL, _Search._moved),
    **dict.fromkeys(("convert_element_type", "copy", "stop_gradient"), _Search._same),
    "neg": _Search._negated,
    "integer_pow": _Search._raised,
    "reduce_sum": _Search._total,
    **dict.fromkeys(
        ("add", "add_any"), lambda s, e: s._combined(e, lambda x, y, c: _sum(x, y, 1.0, c))
    ),
    "sub": lambda s, e: s._combined(e, lambda x, y, c: _sum(x, y, -1.0, c)),
    "mul": lambda s, e: s._combined(e, _product),
    "div": lambda s, e: s._combined(e, _divided),
    "select_n": _Search._chosen,
}


def same_value(
    program: Program, x: Placed, y: Placed, pairs: tuple[Axis, ...]
) -> dict[Axis, Axis] | None:
    """The axes of one operand as those of another, None if they are not one array.

    Those that are none of logits (`pairs`), features, are what they are by their place.
    """
    (a, layout), (b, other) = (program.root(p.atom, p.layout, through_broadcasts=False)
                               for p in (x, y))  # fmt: skip
    if a is not b or len(layout) != len(other):
        return None
    fixed, names = set(whole(pairs)), dict[Axis, Axis]()
    for mine, theirs in zip(settled(layout), settled(other), strict=True):
        if len(mine) != len(theirs):
            return None
        for one, two in zip(mine, theirs, strict=True):
            if one is not two and (one.size != two.size or one in fixed or two in fixed):
                return None
            names[one] = two
    return names
