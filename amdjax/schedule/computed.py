"""Matrices that products of few rows compute where they read them.

Such a product reads each element of its large operand once. Where that is computed of less than it
is, as weights in few bits are dequantized, it is neither stored nor read again: the kernel computes
some columns of a step in depth, in lanes, and multiplies them by all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from amdjax.core.dims import Dim
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.core.lowering import Pointwise
from amdjax.passes.group_sums import FEW_ROWS
from amdjax.schedule.equations import is_bitcast, is_inlinable
from amdjax.schedule.index import Index, LoopVar, changes, delinear, quotients
from amdjax.schedule.reads import Tracer
from amdjax.schedule.values import short_dtype

__all__ = [
    "ComputedOperand", "computable_operand", "computed_operand", "four_bits",
    "made_of",
]  # fmt: skip

LEAST_ELEMENTS = 1 << 14  # of an operand, from which it is worth not being stored
MOST_READ = 3 / 4  # of its bytes, that what it is computed of may have
LEAST_COLUMNS = 16  # in lanes
MOST_PARTS = 4  # of the columns, whose tiles take turns
BLOCKS = (16, 32, 24, 20, 28, 12, 8)  # steps in depth between which factors may change


class Term(NamedTuple):
    """A value of which an operand is computed element by element.

    Attributes:
      atom: the value, of the shape or of one element along some axes.
      shape: in which its elements have the positions of the operand's.
    """

    atom: Any
    shape: tuple[int, ...]

    def place(self, position: Index) -> tuple[Index, ...]:
        """Where it has what the element at a position is computed of."""
        return delinear(position, self.shape) if self.atom.aval.shape else ()


@dataclass(frozen=True, eq=False)
class ComputedOperand:
    """An operand of a product that its kernel computes.

    Attributes:
      var: what is computed, a matrix whose first axes are summed over.
      side: which operand it is.
      producers: equations that make it of what is in memory.
      reads: what that is.
      columns: of the matrix.
      block: steps in depth that `factors` are the same for, if they begin at a multiple of it.
      parts: equal parts of its columns that are computed differently, as numbers are that share
        bytes; tiles of them take turns, so that what they share is near.
      core: what is multiplied and summed: `var` without factors.
      factors: what sums of a block are multiplied by, as scales of groups are.
      lookups: values that follow from a number of four bits, which has 16 of them, and that number.
    """

    var: Var
    side: int
    producers: Mapping[Var, JaxprEqn]
    reads: tuple[Var, ...]
    columns: int
    block: int
    parts: int
    core: Term
    factors: tuple[Term, ...]
    lookups: Mapping[Var, Var]

    def index(self, term: Term, depth: Index, column: Index) -> tuple[Index, ...]:
        """Where the core or a factor has what an element is computed of."""
        return term.place(depth * self.columns + column)


def computable_operand(eqn: JaxprEqn, producers: Mapping[Var, JaxprEqn]) -> Var | None:
    """The operand of a product of few rows that its kernel might compute, by shapes and dtypes."""
    if eqn.primitive.name != "dot_general":
        return None
    if any(isinstance(n, Dim) for x in eqn.invars for n in x.aval.shape):
        return None
    contract, batch = eqn.params["dimension_numbers"]
    side = _larger(eqn)
    matrix, other = eqn.invars[side], eqn.invars[1 - side]
    if batch[0] or not contract[0] or not isinstance(matrix, Var) or matrix is other:
        return None
    axes, own, first = contract[side], contract[1 - side], len(contract[0])
    runs = (tuple(range(first)), tuple(range(other.aval.ndim - first, other.aval.ndim)))
    if tuple(axes) != runs[0] or tuple(own) not in runs:
        return None
    if not all(map(_is_float, (other, *eqn.outvars))) or matrix.aval.dtype.kind == "c":
        return None
    depth = math.prod(matrix.aval.shape[:first])
    large = depth >= BLOCKS[0] and matrix.aval.size >= max(LEAST_ELEMENTS, LEAST_COLUMNS * depth)
    few = other.aval.size <= FEW_ROWS * depth
    return matrix if large and few and matrix in producers else None


def _larger(eqn: JaxprEqn) -> int:
    """Which operand of a product is the larger one."""
    return int(eqn.invars[1].aval.size >= eqn.invars[0].aval.size)


def _is_float(x: Any) -> bool:
    return short_dtype(x.aval.dtype) in ("f16", "bf16", "f32", "f64")


def computed_operand(
    eqn: JaxprEqn, matrix: Var, producers: Mapping[Var, JaxprEqn], roots: Collection[Var]
) -> ComputedOperand | None:
    """How a product's kernel can compute an operand; None if that does not pay.

    Args:
      eqn: the product.
      matrix: the operand.
      producers: equations by what they make.
      roots: values that are computed once for each element and stored.
    """
    own = made_of(matrix, producers, roots)
    reads = dict.fromkeys(
        x for e in own.values() for x in e.invars if isinstance(x, Var) and x not in own
    )
    read = sum(v.aval.nbytes for v in reads)
    if matrix not in own or read > MOST_READ * matrix.aval.nbytes:
        return None
    side = _larger(eqn)
    summed = len(eqn.params["dimension_numbers"][0][side])
    return _Analysis(matrix, own, summed).operand(side, tuple(reads))


def made_of(
    matrix: Var, producers: Mapping[Var, JaxprEqn], roots: Collection[Var]
) -> dict[Var, JaxprEqn]:
    """The equations that make an operand of what is stored."""
    own: dict[Var, JaxprEqn] = {}
    wanted: list[Any] = [matrix]
    while wanted:
        v = wanted.pop()
        if isinstance(v, Literal) or v in own or v in roots:
            continue
        if (eqn := producers.get(v)) is not None and is_inlinable(eqn):
            own[v] = eqn
            wanted += eqn.invars
    return own


class _Analysis:
    """Where the elements of an operand read others."""

    def __init__(self, matrix: Var, producers: dict[Var, JaxprEqn], summed: int):
        self.matrix, self.producers = matrix, producers
        self.whole = Term(matrix, matrix.aval.shape)
        self._known: dict[Var, frozenset[Var] | None] = {}
        self.depth = math.prod(matrix.aval.shape[:summed])
        self.columns = math.prod(matrix.aval.shape[summed:])

    def operand(self, side: int, reads: tuple[Var, ...]) -> ComputedOperand | None:
        """The operand; None where lanes do not read side by side."""
        depth, column = LoopVar("d", self.depth), LoopVar("c", self.columns)
        places, conditions = self._indices(self.whole, Index.of(depth), Index.of(column))
        by = [
            q.by for i in (*places, *conditions) for q in quotients(i) if q.inner.depends_on(depth)
        ]
        block = next((n for n in BLOCKS if all(n % b == 0 or b % n == 0 for b in by)), BLOCKS[0])
        parts = self._parts(changes(conditions, column))
        width = self.columns // parts
        lane = LoopVar("l", width)
        for part in range(parts):
            here = Index.of(lane) + part * width
            offsets, _ = self._indices(self.whole, Index.of(depth), here)
            if not all(_in_lanes(o, lane) for o in offsets):
                return None
        still = self._still_in(block)
        core, factors = self._factored(still)
        return ComputedOperand(
            self.matrix,
            side,
            self.producers,
            reads,
            self.columns,
            block,
            parts,
            core,
            tuple(factors),
            self._lookups(core.atom),
        )

    def _indices(self, term: Term, depth: Index, column: Index) -> tuple[list[Index], list[Index]]:
        """Offsets of what an element reads, and indices that are conditions or values."""
        tracer = Tracer(self.producers, lambda var, index: None)
        symbols = [s for i in (depth, column) for s in i.symbols()]
        tracer.spread_anywhere(s for s in symbols if isinstance(s, LoopVar))
        tracer.value(term.atom, term.place(depth * self.columns + column))
        return [offset for _, offset in tracer.offsets], tracer.irregular

    def _parts(self, starts: list[int]) -> int:
        """Into how many equal parts what is joined cuts the columns."""
        count = len(starts) - 1
        equal = all(n * count == i * self.columns for i, n in enumerate(starts))
        return count if equal and 1 < count <= MOST_PARTS else 1

    def _still_in(self, block: int) -> Callable[[Term], bool]:
        """What tells whether a value with the operand's shape is the same in a block of depth."""
        outer, step = LoopVar("b", -(-self.depth // block)), LoopVar("s", block)
        depth, column = Index.of(outer) * block + Index.of(step), LoopVar("c", self.columns)

        def still(term: Term) -> bool:
            if isinstance(term.atom, Literal):
                return True
            offsets, others = self._indices(term, depth, Index.of(column))
            return not any(i.depends_on(step) for i in (*offsets, *others))

        return still

    def _factored(self, still: Callable[[Term], bool]) -> tuple[Term, list[Term]]:
        """The operand without what sums can be multiplied by, and that."""
        core, factors = self.whole, list[Term]()
        while (found := self._product(core)) is not None:
            x, y = found
            if still(y) and not still(x):
                x, y = y, x
            if not still(x) or still(y):
                break
            factors.append(x)
            core = y
        return core, factors

    def _lookups(self, core: Any) -> dict[Var, Var]:
        """What follows, of what elements are computed of, from a number of four bits alone."""
        found: dict[Var, Var] = {}
        waiting, seen = [core], set[Var]()
        while waiting:
            v = waiting.pop()
            if not isinstance(v, Var) or v in seen or self._is_number(v):
                continue
            seen.add(v)
            numbers = self._numbers(v)
            if numbers is not None and len(numbers) == 1:
                (found[v],) = numbers
            elif v in self.producers:
                waiting += self.producers[v].invars
        return found

    def _numbers(self, atom: Any) -> frozenset[Var] | None:
        """The numbers of four bits of which alone a value is computed, place by place; None where
        of others.
        """
        if isinstance(atom, Literal):
            return frozenset()
        if atom not in self._known:
            self._known[atom] = self._find_numbers(atom)
        return self._known[atom]

    def _find_numbers(self, atom: Var) -> frozenset[Var] | None:
        if self._is_number(atom):
            return frozenset((atom,))
        eqn = self.producers.get(atom)
        if eqn is None or not _keeps_places(eqn):
            return None
        found = [self._numbers(x) for x in eqn.invars]
        return frozenset().union(*(x for x in found if x)) if None not in found else None

    def _is_number(self, atom: Any) -> bool:
        """Whether a value is a number of four bits, or several joined."""
        if four_bits(atom, self.producers) is not None:
            return True
        eqn = self.producers.get(atom) if isinstance(atom, Var) else None
        if eqn is None or eqn.primitive.name != "concatenate":
            return False
        return all(map(self._is_number, eqn.invars))

    def _product(self, term: Term) -> tuple[Term, Term] | None:
        """The values of which one is the product, in a dtype of sums."""
        atom = term.atom
        eqn = self.producers.get(atom) if isinstance(atom, Var) else None
        if eqn is None or atom.aval.shape != term.shape:
            return None
        while eqn is not None and is_bitcast(eqn):
            (source,) = (x for x in eqn.invars if isinstance(x, Var))
            eqn = self.producers.get(source)
        if eqn is None or eqn.primitive.name != "mul":
            return None
        out = eqn.outvars[0].aval
        x, y = (Term(x, out.shape) for x in eqn.invars)
        return (x, y) if short_dtype(out.dtype) in ("f32", "f64") else None


def _keeps_places(eqn: JaxprEqn) -> bool:
    """Whether elements are computed of those at the same position, and numbers."""
    size = eqn.outvars[0].aval.size
    if any(isinstance(x, Var) and x.aval.size != size for x in eqn.invars):
        return False  # an axis of theirs has one element
    place_by_place = isinstance(eqn.primitive.lowering, Pointwise) or is_bitcast(eqn)
    return place_by_place or eqn.primitive.name == "bitcast_convert_type"


def four_bits(atom: Any, producers: Mapping[Var, JaxprEqn]) -> tuple[Var, int] | None:
    """The bytes that hold a number of four bits, and the bits below it there; None of others."""
    if not isinstance(atom, Var):
        return None
    if (eqn := producers.get(atom)) is None:
        return (atom, 0) if short_dtype(atom.aval.dtype) in ("i4", "u4") else None
    if eqn.primitive.name not in ("and", "shift_right_logical"):
        return None
    x, y = eqn.invars
    if short_dtype(x.aval.dtype) != "u8" or not isinstance(y, Literal) or not isinstance(x, Var):
        return None
    if eqn.primitive.name == "shift_right_logical":
        return (x, 4) if int(y.val) == 4 else None
    if int(y.val) != 15:
        return None
    inner = producers.get(x)
    if inner is not None and inner.primitive.name == "shift_right_logical":
        return four_bits(x, producers)
    return x, 0


def _in_lanes(offset: Index, lane: LoopVar) -> bool:
    """Whether lanes read side by side, or all the same."""
    if offset.is_dynamic or any(q.inner.depends_on(lane) for q in quotients(offset)):
        return False
    return offset.coefficient(lane) in (0, 1)
