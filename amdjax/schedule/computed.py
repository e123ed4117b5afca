"""Matrices that products of few rows compute where they read them.

Such a product reads each element of its large operand once. Where that is computed of less than it
is, as weights in few bits are dequantized, it is neither stored nor read again: the kernel computes
some columns of a step in depth, in lanes, and multiplies them by all rows. Of a matrix that is
summed over its last axes lanes are steps in depth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from amdjax.core.dims import Dim
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.core.lowering import Pointwise
from amdjax.passes.group_sums import FEW_ROWS, LEAST_COLUMNS
from amdjax.schedule.equations import is_bitcast, is_inlinable
from amdjax.schedule.index import Index, LoopVar, changes, delinear, quotients
from amdjax.schedule.reads import Tracer
from amdjax.schedule.values import short_dtype

LEAST_ELEMENTS = 1 << 14  # of an operand, from which it is worth not being stored
MOST_READ = 3 / 4  # of its bytes, that what it is computed of may have
MOST_PARTS = 4  # of the columns, whose tiles take turns
BLOCKS = (16, 32, 24, 20, 28, 12, 8)  # steps in depth between which factors may change
LINE_BLOCKS = (128, 64, 32, 16)  # the same where they are in lanes
MOST_INTERLEAVED = 8  # steps in depth that one element of memory has numbers of
#: What has the elements of operands in other places.
LAYOUT_CHANGES = {
    "broadcast_in_dim",
    "concatenate",
    "expand_dims",
    "reshape",
    "slice",
    "squeeze",
    "transpose",
}


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
      strides: positions from one step in depth, and from one column, to the next.
      block: steps in depth that `factors` are the same for, if they begin at a multiple of it.
      parts: equal parts of what is in lanes that are computed differently, as numbers are that
        share bytes; tiles of them take turns, so that what they share is near.
      interleave: neighbors in depth whose numbers share an element of memory, if depth is in lanes.
      core: what is multiplied and summed: `var` without factors.
      factors: what sums of a block are multiplied by, as scales of groups are.
      lookups: values that follow from a number of four bits, which has 16 of them, and that number.
    """

    var: Var
    side: int
    producers: Mapping[Var, JaxprEqn]
    reads: tuple[Var, ...]
    strides: tuple[int, int]
    block: int
    parts: int
    interleave: int
    core: Term
    factors: tuple[Term, ...]
    lookups: Mapping[Var, Var]

    def index(self, term: Term, depth: Index, column: Index) -> tuple[Index, ...]:
        """Where the core or a factor has what an element is computed of."""
        return term.place(depth * self.strides[0] + column * self.strides[1])

    @property
    def by_line(self) -> bool:
        """Whether steps in depth are in lanes."""
        return self.strides[0] == 1


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
    own, count, rank = contract[1 - side], len(contract[0]), matrix.aval.ndim
    runs = (tuple(range(count)), tuple(range(other.aval.ndim - count, other.aval.ndim)))
    leading = tuple(contract[side]) == tuple(range(count))
    if not leading and tuple(contract[side]) != tuple(range(rank - count, rank)):
        return None
    if tuple(own) not in runs:
        return None
    if not all(map(_is_float, (other, *eqn.outvars))) or matrix.aval.dtype.kind == "c":
        return None
    depth = math.prod(matrix.aval.shape[d] for d in contract[side])
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
    analysis = _Analysis(matrix, own, eqn.params["dimension_numbers"][0][side])
    return analysis.operand(side, tuple(reads))


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

    def __init__(self, matrix: Var, producers: dict[Var, JaxprEqn], summed: Sequence[int]):
        self.matrix, self.producers = matrix, producers
        self.whole = Term(matrix, matrix.aval.shape)
        self._known: dict[Var, frozenset[Var] | None] = {}
        self.depth = math.prod(matrix.aval.shape[d] for d in summed)
        self.columns = matrix.aval.size // self.depth
        self.by_line = summed[0] != 0 or len(summed) == matrix.aval.ndim
        self.strides = (1, self.depth) if self.by_line else (self.columns, 1)

    def operand(self, side: int, reads: tuple[Var, ...]) -> ComputedOperand | None:
        """The operand; None where lanes do not read side by side."""
        depth, column = LoopVar("d", self.depth), LoopVar("c", self.columns)
        places, conditions = self._indices(self.whole, Index.of(depth), Index.of(column))
        by = [
            q.by for i in (*places, *conditions) for q in quotients(i) if q.inner.depends_on(depth)
        ]
        parts = _equal_parts(changes(conditions, depth if self.by_line else column))
        block, interleave = self._line_block(by, parts) if self.by_line else (_block(by), 1)
        if not block or not self._fits_lanes(block, parts, interleave):
            return None
        core, factors = self._factored(self._still_in(block))
        return ComputedOperand(
            self.matrix, side, self.producers, reads, self.strides, block, parts, interleave, core,
            tuple(factors), self._lookups(core.atom),
        )  # fmt: skip

    def _line_block(self, by: Sequence[int], parts: int) -> tuple[int, int]:
        """Steps in depth of a block, none where the depth is no whole number of blocks, and how
        many of them share an element of memory.
        """
        interleave = math.lcm(*(b for b in by if b <= MOST_INTERLEAVED))
        far = [b for b in by if b > MOST_INTERLEAVED]
        fits = (
            n
            for n in LINE_BLOCKS
            if self.depth % (parts * n) == 0
            and n % interleave == 0
            and all(b % n == 0 for b in far)
        )
        return next(fits, 0), interleave

    def _fits_lanes(self, block: int, parts: int, interleave: int) -> bool:
        """Whether what lanes read lies side by side, in each part."""
        whole = self.depth if self.by_line else self.columns
        width = whole // parts
        outer, lane = LoopVar("b", width // block), LoopVar("l", width)
        depth, column = LoopVar("d", self.depth), LoopVar("c", self.columns)
        if self.by_line:
            lane = LoopVar("l", block // interleave)
        for part, n in itertools.product(range(parts), range(interleave)):
            here = Index.of(lane) * interleave + (part * width + n)
            if self.by_line:
                offsets, _ = self._indices(
                    self.whole, here + Index.of(outer) * block, Index.of(column)
                )
            else:
                offsets, _ = self._indices(self.whole, Index.of(depth), here)
            if not all(_in_lanes(o, lane) for o in offsets):
                return False
        return True

    def _indices(self, term: Term, depth: Index, column: Index) -> tuple[list[Index], list[Index]]:
        """Offsets of what an element reads, and indices that are conditions or values."""
        tracer = Tracer(self.producers, lambda var, index: None)
        symbols = [s for i in (depth, column) for s in i.symbols()]
        tracer.spread_anywhere(s for s in symbols if isinstance(s, LoopVar))
        tracer.value(term.atom, term.place(depth * self.strides[0] + column * self.strides[1]))
        return [offset for _, offset in tracer.offsets], tracer.irregular

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
        if eqn is None:
            return None
        if eqn.primitive.name == "broadcast_in_dim" and isinstance(eqn.invars[0], Literal):
            return frozenset()
        if not _keeps_places(eqn):
            return None
        found = [self._numbers(x) for x in eqn.invars]
        sizes = [x.aval.size for x, numbers in zip(eqn.invars, found) if numbers]
        if any(n != atom.aval.size for n in sizes):  # one along an axis
            return None
        return frozenset().union(*(x for x in found if x)) if None not in found else None

    def _is_number(self, atom: Any) -> bool:
        """Whether a value is a number of four bits, or such are what it is put together of."""
        if four_bits(atom, self.producers) is not None:
            return True
        eqn = self.producers.get(atom) if isinstance(atom, Var) else None
        if eqn is None or eqn.primitive.name not in LAYOUT_CHANGES:
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


def _block(by: Sequence[int]) -> int:
    """Steps in depth of a block, in which what is divided by such numbers does not change, or
    changes as in all blocks.
    """
    return next((n for n in BLOCKS if all(n % b == 0 or b % n == 0 for b in by)), BLOCKS[0])


def _equal_parts(starts: Sequence[int]) -> int:
    """Into how many equal parts a loop is cut by places, its ends included."""
    count = len(starts) - 1
    equal = all(n * count == i * starts[-1] for i, n in enumerate(starts))
    return count if equal and count <= MOST_PARTS else 1


def _keeps_places(eqn: JaxprEqn) -> bool:
    """Whether elements are computed of those at the same place, or of one along some axes."""
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
