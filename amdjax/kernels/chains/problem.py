"""Products and what lies between them, as `passes/product_chains.py` finds them, by their loops.

The last product sums over columns what is made of rows and columns. Followed back from there, by
index expressions, are elementwise work, reductions over the columns, which are complete a pass
over them before what reads them, and products that have these rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from amdjax.core.dims import Dim
from amdjax.core.jaxpr import Atom, JaxprEqn, Var
from amdjax.core.lowering import Reduce
from amdjax.kernels.loops import row_major
from amdjax.kernels.products.contraction import Axis, Sink
from amdjax.schedule.equations import is_inlinable, own_cost
from amdjax.schedule.index import Index, LoopVar, Quotient, delinear, linear
from amdjax.schedule.reads import Recorder
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.values import part_dtype, short_dtype

__all__ = ["Chain", "Factor", "Operand"]

Place = tuple[Index, ...]
FUNCTION = 8  # what fusion counts for a function of several instructions


@dataclass(frozen=True, eq=False)
class Operand:
    """A matrix of a product: elements of a variable at an offset in terms of the chain's loops."""

    var: Atom
    offset: Index


@dataclass(frozen=True, eq=False)
class Factor:
    """A product of rows and columns.

    Args:
      result: the variable that it makes.
      depth: what is summed over.
      left: of rows and depth.
      right: of columns and depth.
    """

    result: Var
    depth: LoopVar
    left: Operand
    right: Operand


class _Refused(Exception):
    """The program between the products is not one of rows."""


@dataclass(eq=False)
class Chain:
    """A chain by its loops.

    Args:
      eqn: the equation.
      batch: loops over its entries.
      row, column, feature: loops over rows and columns of what is between, and over features of
        the result.
      weights: what is multiplied last, and where it is read.
      values: the other operand of that product.
      out: where the result goes.
      producers: the equations of what is computed where it is read.
      factors: products in front by what they make.
      reductions: over the columns, by what they make, with the level from which on it is known.
      places: where factors and reductions are read.
      needed: for each level, the factors of which it is computed.
    """

    eqn: JaxprEqn
    batch: tuple[LoopVar, ...]
    row: LoopVar
    column: LoopVar
    feature: LoopVar
    weights: tuple[Var, Place]
    values: Operand
    out: Sink
    producers: dict[Var, JaxprEqn]
    factors: dict[Var, Factor] = field(default_factory=dict)
    reductions: dict[Var, tuple[Reduction, Place, int]] = field(default_factory=dict)
    places: dict[Var, Place] = field(default_factory=dict)
    needed: list[set[Var]] = field(default_factory=list)

    @staticmethod
    def of(eqn: JaxprEqn) -> Chain | None:
        """The loops of a chain; None where what is between the products has no rows."""
        sizes = (n for e in eqn.params["jaxpr"].eqns for x in e.invars for n in x.aval.shape)
        if any(isinstance(n, Dim) or n == 0 for n in sizes):
            return None
        try:
            return _follow(eqn)
        except _Refused:
            return None

    @property
    def levels(self) -> int:
        """Passes over the columns."""
        return len(self.needed)

    @property
    def inputs(self) -> dict[Atom, Atom]:
        """Of the variables of the program between the products, those of the equation."""
        inner = self.eqn.params["jaxpr"].jaxpr.invars
        return dict(zip(inner, self.eqn.invars, strict=True))

    @property
    def eqns(self) -> Sequence[JaxprEqn]:
        """Of the program that the equation stands for."""
        found: Sequence[JaxprEqn] = self.eqn.params["jaxpr"].eqns
        return found

    @property
    def batches(self) -> int:
        """Entries of the batch."""
        return math.prod(v.extent for v in self.batch)

    @property
    def products(self) -> Iterator[JaxprEqn]:
        """Equations of all products."""
        return (e for e in self.eqns if e.primitive.name == "dot_general")

    @property
    def operations(self) -> float:
        """About the instructions for each row and column besides products.

        Functions of several have twice what fusion counts, which leaves out that memory is slower.
        """
        between = (e for e in self.eqns if e.primitive.name != "dot_general")
        size = self.row.extent * self.column.extent * self.batches
        costs = ((own_cost(e), e.outvars[0].aval.size / size) for e in between)
        return sum((cost if cost < FUNCTION else 2 * cost) * share for cost, share in costs)


def _axes(eqn: JaxprEqn, side: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Batch, free and contracted axes of an operand."""
    contract, batch = eqn.params["dimension_numbers"]
    ndim = eqn.invars[side].aval.ndim
    free = [d for d in range(ndim) if d not in (*contract[side], *batch[side])]
    return batch[side], free, contract[side]


def _place(eqn: JaxprEqn, side: int, groups: Sequence[Sequence[Index]]) -> Place:
    """The index of an operand by what its batch, free and contracted axes are."""
    found: dict[int, Index] = {}
    for axes, indices in zip(_axes(eqn, side), groups, strict=True):
        found.update(zip(axes, indices, strict=True))
    return tuple(found[d] for d in range(len(found)))


def _digits(var: LoopVar, eqn: JaxprEqn, side: int, axes: Sequence[int]) -> Sequence[Index]:
    """A loop as places along several axes of an operand."""
    shape = eqn.invars[side].aval.shape
    return delinear(Index.of(var), tuple(shape[d] for d in axes))


def _size(eqn: JaxprEqn, side: int, axes: Sequence[int]) -> int:
    return math.prod(eqn.invars[side].aval.shape[d] for d in axes)


def _follow(eqn: JaxprEqn) -> Chain:
    eqns = eqn.params["jaxpr"].eqns
    made, order = {v for e in eqns for v in e.outvars}, None
    if eqns[-1].primitive.name == "transpose":
        eqns, order = eqns[:-1], eqns[-1].params["permutation"]
    last = eqns[-1]
    side = next((s for s in (0, 1) if last.invars[s] in made), 0)
    (entries, lines, deep), (_, wide, _) = _axes(last, side), _axes(last, 1 - side)
    shape = last.invars[side].aval.shape
    batch = tuple(LoopVar(f"b{i}", shape[d]) for i, d in enumerate(entries))
    row = LoopVar("row", _size(last, side, lines))
    column = LoopVar("column", _size(last, side, deep))
    feature = LoopVar("feature", _size(last, 1 - side, wide))
    entry = [Index.of(v) for v in batch]
    columns = _digits(column, last, side, deep)
    at = _place(last, side, (entry, _digits(row, last, side, lines), columns))
    other = last.invars[1 - side]
    place = _place(last, 1 - side, (entry, _digits(feature, last, 1 - side, wide), columns))
    producers = {v: e for e in eqns if is_inlinable(e) for v in e.outvars}
    sink = _sink(eqn.outvars[0], order, len(batch), len(lines if side == 0 else wide), side)
    chain = Chain(
        eqn, batch, row, column, feature, (last.invars[side], at),
        Operand(other, linear(place, other.aval.shape)), sink, producers,
    )  # fmt: skip
    _check(chain.values, (column, feature), row)
    makers = {v: e for e in eqns for v in e.outvars}
    levels = _Levels(chain, makers)
    level = levels.read(*chain.weights)
    chain.needed = [levels.needed.get(n, set()) for n in range(level + 1)]
    return chain


def _sink(out: Var, order: Sequence[int] | None, batch: int, first: int, side: int) -> Sink:
    """Where rows and features of the last product go, whose axes are in some order in memory."""
    shape = out.aval.shape
    stored = [Axis(n, s) for n, s in zip(shape, row_major(shape), strict=True)]
    places = {d: axis for d, axis in zip(order or range(len(shape)), stored, strict=True)}
    axes = tuple(places[d] for d in range(len(shape)))
    groups = axes[batch : batch + first], axes[batch + first :]
    rows, columns = groups if side == 0 else groups[::-1]
    dtype = part_dtype(short_dtype(out.aval.dtype))
    return Sink(out, dtype, 0, axes[:batch], rows, columns)


class _Levels:
    """Follows what is read back to products and reductions.

    Args:
      chain: gets them.
      makers: equations of all that is made in it.
    """

    def __init__(self, chain: Chain, makers: dict[Var, JaxprEqn]):
        self.chain, self.makers = chain, makers
        self.needed: dict[int, set[Var]] = {}

    def read(self, var: Var, index: Place) -> int:
        """The level at which a value can be computed."""
        recorder = self._recorder()
        recorder.value(var, index)
        return self._level(recorder)

    def _recorder(self) -> Recorder:
        chain = self.chain
        return Recorder(chain.producers, set(), [*chain.batch, chain.row, chain.column])

    def _level(self, recorder: Recorder) -> int:
        chain, level, factors = self.chain, 0, set[Var]()
        for v, index in recorder.reads:
            if v not in self.makers:
                continue
            if chain.places.setdefault(v, index) != index:
                raise _Refused  # read at several places
            if self.makers[v].primitive.name == "dot_general":
                factors.add(v)
                if v not in chain.factors:
                    chain.factors[v] = self._factor(self.makers[v], index)
            else:
                if v not in chain.reductions:
                    chain.reductions[v] = self._reduction(self.makers[v], index)
                level = max(level, chain.reductions[v][2] + 1)
        self.needed.setdefault(level, set()).update(factors)
        return level

    def _reduction(self, eqn: JaxprEqn, index: Place) -> tuple[Reduction, Place, int]:
        chain = self.chain
        if not isinstance(eqn.primitive.lowering, Reduce) or "axes" not in eqn.params:
            raise _Refused
        rule, axes = Reduction(eqn), eqn.params["axes"]
        simple = rule.is_simple and rule.is_numeric and len(eqn.outvars) == 1
        if not simple or any(i.depends_on(chain.column) for i in index):
            raise _Refused
        extents = tuple(rule.shape[d] for d in axes)
        if math.prod(extents) != chain.column.extent:
            raise _Refused
        kept = [d for d in range(len(rule.shape)) if d not in axes]
        places = dict(zip(kept, index, strict=True))
        places.update(zip(axes, delinear(Index.of(chain.column), extents), strict=True))
        at = tuple(places[d] for d in range(len(rule.shape)))
        recorder = self._recorder()
        rule.element(recorder, at)
        return rule, at, self._level(recorder)

    def _factor(self, eqn: JaxprEqn, index: Place) -> Factor:
        chain = self.chain
        depth = LoopVar("depth", _size(eqn, 0, _axes(eqn, 0)[2]))
        offsets, place = [], len(_axes(eqn, 0)[0])
        for side in (0, 1):
            _, free, deep = _axes(eqn, side)
            lines = index[place : place + len(free)]
            place += len(free)
            groups = index[: len(_axes(eqn, 0)[0])], lines, _digits(depth, eqn, side, deep)
            at = _place(eqn, side, groups)
            offsets.append(linear(at, eqn.invars[side].aval.shape))
        sides = (0, 1) if not offsets[0].depends_on(chain.column) else (1, 0)
        left, right = (Operand(eqn.invars[s], offsets[s]) for s in sides)
        _check(left, (chain.row, depth), chain.column)
        _check(right, (chain.column, depth), chain.row)
        return Factor(eqn.outvars[0], depth, left, right)


def _check(operand: Operand, over: Sequence[LoopVar], besides: LoopVar) -> None:
    """Refuse an operand that is no matrix over two loops, or not all there."""
    offset, (low, high) = operand.offset, operand.offset.range()
    if offset.is_dynamic or offset.depends_on(besides):
        raise _Refused
    if low is None or high is None or low < 0 or high >= operand.var.aval.size:
        raise _Refused  # read under a condition
    for symbol, _ in offset.terms:
        if isinstance(symbol, Quotient) and any(symbol.inner.depends_on(v) for v in over):
            raise _Refused
