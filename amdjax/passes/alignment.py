"""Products on GPUs whose operands begin each row where wide accesses may.

A matrix unit is fed in accesses of 16 bytes. Where the last axis of an operand is no multiple of
those, as that of logits over 50,257 words, rows begin anywhere and are read element by element: a
product takes five to eight times as long. So the operand gets zeros behind each row, which costs to
write and read it once, or less where what makes it can write them. Where the axis is summed over,
the other operand gets zeros beside them, so that what is infinite in either meets none of them;
where it is not, the result is cut.

The same goes for a result whose rows are reduced, as those of logits by a softmax: it is stored,
and read again by rows. An operand with zeros makes it some columns wider; readers see it cut.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax.core.integers import round_up
from amdjax.core.jaxpr import ClosedJaxpr, Literal, Var
from amdjax.core.lowering import Pointwise, Reduce
from amdjax.passes.cleanup import eliminate_common_subexpressions
from amdjax.passes.simplify import Match, Op, Rule, X, rewrite

ACCESS = 16  # bytes
MOST_SHARE = 1 / 4  # of zeros in a row
#: Operations of a product for each byte that padding moves, from which it pays: unaligned it runs
#: at about 120 TFLOP/s where aligned it runs at 600 and memory moves 3.5 TB/s; twice that.
LEAST_INTENSITY = 80


def align_products(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with zeros behind the rows of what long products read, where that pays.

    What several products read is padded once.
    """
    if not any(e.primitive.name == "dot_general" for e in closed.eqns):
        return closed
    by_rows = _read_by_rows(closed)

    def replacement(m: Match) -> Any | None:
        return _aligned(m, m.eqn.outvars[0] in by_rows)

    new = rewrite(closed, (Rule("align", Op("dot_general", (X("x"), X("y")), ()), replacement),))
    if len(new.eqns) == len(closed.eqns):
        return closed
    return eliminate_common_subexpressions(new)


def _read_by_rows(closed: ClosedJaxpr) -> set[Var]:
    """Values whose last axis a reduction goes along, as they are or through functions of elements.

    None that the program returns, which would be copied.
    """
    found: set[Var] = set()
    for eqn in reversed(closed.eqns):
        operands = [x for x in eqn.invars if isinstance(x, Var) and x.aval.ndim]
        lowering = eqn.primitive.lowering
        if isinstance(lowering, Reduce):
            found.update(x for x in operands if x.aval.ndim - 1 in eqn.params.get("axes", ()))
        elif isinstance(lowering, Pointwise) and eqn.outvars[0] in found:
            found.update(operands)
    return found - {v for v in closed.jaxpr.outvars if isinstance(v, Var)}


def _aligned(m: Match, by_rows: bool) -> Any | None:
    """A product of padded operands, or of a padded result, if that pays."""
    shapes = [*(x.aval.shape for x in m.eqn.invars), m.out.shape]
    if not all(isinstance(n, int) for shape in shapes for n in shape):
        return None
    for side in (0, 1):
        found = _padded(m, side)
        if found is not None:
            return found
    return _widened(m) if by_rows else None


def _widened(m: Match) -> Any | None:
    """A product that makes some columns more than are read; None if that does not pay."""
    (summed, batch), operands = m.eqn.params["dimension_numbers"], list(m.eqn.invars)
    added = _missing(m.out)
    free = [
        (side, d)
        for side, x in enumerate(operands)
        for d in range(x.aval.ndim)
        if d not in (*summed[side], *batch[side])
    ]
    if not added or not free:
        return None
    side, axis = free[-1]
    if 2 * operands[side].aval.nbytes > m.out.nbytes:
        return None
    operands[side] = _with_zeros(m, operands[side], axis, added)
    return _cut(m, operands)


def _padded(m: Match, side: int) -> Any | None:
    (summed, batch), operands = m.eqn.params["dimension_numbers"], list(m.eqn.invars)
    x, other = operands[side].aval, operands[1 - side].aval
    last, added = x.ndim - 1, _missing(x) if x.dtype.itemsize <= 2 else 0
    if not added or last in batch[side]:
        return None
    depth = math.prod(x.shape[d] for d in summed[side])
    moved = [x, other if last in summed[side] else m.out]
    nbytes = sum(2 * y.size * y.dtype.itemsize for y in moved)
    if 2 * m.out.size * depth < LEAST_INTENSITY * nbytes:
        return None
    operands[side] = _with_zeros(m, operands[side], last, added)
    if last in summed[side]:
        across = summed[1 - side][summed[side].index(last)]
        operands[1 - side] = _with_zeros(m, operands[1 - side], across, added)
        return m.apply("dot_general", *operands, **m.eqn.params)
    return _cut(m, operands)


def _cut(m: Match, operands: list[Any]) -> Any:
    """The product of operands that make its result wider, as wide as it was."""
    wide = m.apply("dot_general", *operands, **m.eqn.params)
    return m.apply(
        "slice", wide, start_indices=(0,) * m.out.ndim, limit_indices=m.out.shape, strides=None
    )


def _missing(x: Any) -> int:
    """Elements that are missing behind each row, so that the next begins aligned; few or none."""
    size = x.dtype.itemsize
    if not x.ndim or ACCESS % size:
        return 0
    added: int = round_up(x.shape[-1], ACCESS // size) - x.shape[-1]
    return added if added <= MOST_SHARE * x.shape[-1] else 0


def _with_zeros(m: Match, x: Any, axis: int, number: int) -> Any:
    zero = Literal(np.zeros((), x.aval.dtype)[()])
    config = tuple((0, number if d == axis else 0, 0) for d in range(x.aval.ndim))
    return m.apply("pad", x, zero, padding_config=config)
