"""Products of few rows with weights in few bits, as one product with a computed operand.

Where scales differ along what is summed such products are written group by group, whose scaled sums
are added, or element by element, as one sum: no dequantized weight is stored then. On a CPU a
product of few rows computes such a weight where it reads it, and scales the sums of groups itself.
"""

from __future__ import annotations

import math
from typing import Any

from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.simplify import Match, Rule, X, op, rewrite

FEW_ROWS = 8  # of a product that computes its other operand where it reads it
LEAST_COLUMNS = 16  # of that
LANES = 8  # least neighbors in memory of which lanes of that are computed
MOST_EQUATIONS = 32  # among which conversions are looked for


def join_group_sums(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Sums over the first axis of scaled products that are paired along it, and sums of what few
    rows are multiplied by element by element, as one product.
    """
    names = {e.primitive.name for e in closed.eqns}
    if "reduce_sum" not in names or not {"dot_general", "convert_element_type"} & names:
        return closed
    return eliminate_dead_code(rewrite(closed, RULES))


def _joined(m: Match) -> Any:
    """The product along groups and depth at once, if one operand has few rows."""
    if m.eqn.params["axes"] != (0,) or m.eqn.params["out_sharding"] is not None:
        return None
    scales: list[Any] = []
    product = _product(m, m["x"], scales)
    if product is None or not scales:
        return None
    contract, batch = product.params["dimension_numbers"]
    if (contract, batch) != (((1,), (1,)), ((0,), (0,))):
        return None
    shapes = [x.aval.shape for x in product.invars]
    if any(isinstance(n, Dim) for shape in shapes for n in shape):
        return None
    side = int(math.prod(shapes[1]) >= math.prod(shapes[0]))
    matrix = product.invars[side]
    if math.prod(shapes[1 - side]) > FEW_ROWS * math.prod(shapes[side][:2]):
        return None
    kept = [*range(2, matrix.aval.ndim)]
    first = 1 if side == 0 else 1 + len(shapes[0]) - 2
    places = [0, *range(first, first + len(kept))]  # of groups and of `kept` in the sums
    dtype = product.outvars[0].aval.dtype
    scaled = m.convert(matrix, dtype)
    for scale in scales:
        factor = _of_matrix(m, m.convert(scale, dtype), matrix.aval.shape, kept, places)
        if factor is None:
            return None
        scaled = m.apply("mul", scaled, factor)
    operands = (product.invars[1 - side], scaled)[:: 1 if side else -1]
    params = {**product.params, "dimension_numbers": (((0, 1), (0, 1)), ((), ()))}
    return m.apply("dot_general", *operands, **{**params, "preferred_element_type": m.out.dtype})


def _multiplied(m: Match) -> Any:
    """The product of few rows and a matrix of narrow numbers that a sum over all but the first two
    axes is: `sum(x[:, None] * w)`, or of several such products.
    """
    shape, axes = m["x"].aval.shape, tuple(m.eqn.params["axes"])
    if axes != tuple(range(2, len(shape))) or any(isinstance(n, Dim) for n in shape):
        return None
    rows, columns, *summed = shape
    if rows > FEW_ROWS or columns < LEAST_COLUMNS or m.out.dtype != m["x"].aval.dtype:
        return None
    terms = _terms(m, m["x"], shape)
    if not terms or not any(_is_narrow(m, w) for _, factors in terms for w in factors):
        return None
    if summed[-1] % LANES or len(terms) * math.prod(summed) % (2 * LANES):
        return None  # it would be stored
    common: list[Any] = []  # factors of all terms, which their sum may be multiplied by
    while all(len(f) > 1 and f[-1] is terms[0][1][-1] for _, f in terms):
        common += [f.pop() for _, f in terms][:1]
    lhs, rhs = [], []
    for x, factors in terms:
        lhs.append(_reshaped(m, _spread(m, x, (rows, 1, *summed)), (rows, *summed, 1)))
        matrix = _spread(m, factors[0], (1, columns, *summed))
        for factor in factors[1:]:
            matrix = m.apply("mul", matrix, _spread(m, factor, (1, columns, *summed)))
        rhs.append(_reshaped(m, matrix, (columns, *summed, 1)))
    left, right = (
        x[0] if len(x) == 1 else m.apply("concatenate", *x, dimension=len(summed) + 1)
        for x in (lhs, rhs)
    )
    for factor in common:
        own = _reshaped(m, factor, (*factor.aval.shape[1:], 1))
        right = m.apply("mul", right, _spread(m, own, right.aval.shape))
    contract = tuple(range(1, len(summed) + 2))
    return m.apply(
        "dot_general", left, right, dimension_numbers=((contract, contract), ((), ())),
        precision=None, preferred_element_type=m.out.dtype, out_sharding=None,
    )  # fmt: skip


RULES = (
    Rule("sums of scaled products of groups", op.reduce_sum(X("x")), _joined),
    Rule("sums of products by element", op.reduce_sum(X("x")), _multiplied),
)


def _terms(m: Match, atom: Any, shape: tuple[int, ...]) -> list[tuple[Any, list[Any]]]:
    """The products that are added to a value: of rows and the factors of a matrix; none where it is
    something else.
    """
    if not isinstance(atom, Var) or m.rewriter.uses[atom] > 1:
        return []
    if (eqn := m.source(atom, "add")) is not None:
        parts = [_terms(m, x, shape) for x in eqn.invars]
        return [term for part in parts for term in part] if all(parts) else []
    eqn = m.source(atom, "mul")
    for x, y in (eqn.invars, eqn.invars[::-1]) if eqn is not None else ():
        if not _is_of(y, 0, shape):
            continue
        if _is_of(x, 1, shape):
            return [(x, [y])]
        found = _terms(m, x, shape)
        if found:
            return [(rows, [*factors, y]) for rows, factors in found]
    return []


def _is_of(atom: Any, axis: int, shape: tuple[int, ...]) -> bool:
    """Whether a value of a shape's rank is the same along an axis, but not along the other one."""
    own = atom.aval.shape
    return len(own) == len(shape) and own[axis] == 1 and own[1 - axis] == shape[1 - axis]


def _is_narrow(m: Match, atom: Any) -> bool:
    """Whether a value is computed of numbers that were converted to more bits."""
    waiting, seen = [atom], 0
    while waiting and seen < MOST_EQUATIONS:
        v, seen = waiting.pop(), seen + 1
        eqn = m.rewriter.makers.get(v) if isinstance(v, Var) else None
        if eqn is None:
            continue
        sizes = [x.aval.dtype.itemsize for x in (*eqn.invars, *eqn.outvars)]
        if eqn.primitive.name == "convert_element_type" and 2 * sizes[0] <= sizes[1]:
            return True
        waiting += eqn.invars
    return False


def _spread(m: Match, atom: Any, shape: tuple[int, ...]) -> Any:
    """A value repeated along axes where it has one element."""
    if atom.aval.shape == shape:
        return atom
    spread = {"shape": shape, "broadcast_dimensions": tuple(range(len(shape))), "sharding": None}
    return m.apply("broadcast_in_dim", atom, **spread)


def _reshaped(m: Match, atom: Any, shape: tuple[int, ...]) -> Any:
    if atom.aval.shape == shape:
        return atom
    return m.apply("reshape", atom, new_sizes=shape, dimensions=None, sharding=None)


def _product(m: Match, atom: Any, scales: list[Any]) -> JaxprEqn | None:
    """The product behind an atom that nothing else reads, and what it is multiplied by."""
    while isinstance(atom, Var) and m.rewriter.uses[atom] <= 1:
        found = m.source(atom, "dot_general")
        if found is not None:
            return found
        eqn = m.source(atom, "mul")
        if eqn is None:
            return None
        sides = [x for x in eqn.invars if m.source(x, "mul") or m.source(x, "dot_general")]
        if len(sides) != 1:
            return None
        scales += [x for x in eqn.invars if x is not sides[0]]
        (atom,) = sides
    return None


def _of_matrix(
    m: Match, scale: Any, shape: tuple[int, ...], kept: list[int], places: list[int]
) -> Any:
    """A factor of the sums as one of the matrix; None if it differs along the other operand."""
    if isinstance(scale, Literal) or not scale.aval.shape:
        return scale
    own = [scale.aval.shape[i] for i in places]
    if math.prod(own) != scale.aval.size:
        return None
    sizes = [1] * len(shape)
    for d, n in zip((0, *kept), own, strict=True):
        sizes[d] = n
    return _spread(m, _reshaped(m, scale, tuple(sizes)), shape)
