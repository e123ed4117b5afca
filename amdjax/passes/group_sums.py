"""Products of groups whose scaled sums are added, as one product with a scaled operand.

So are products with weights in few bits written whose scales differ along what is summed: no
dequantized weight is stored then. On a CPU a product of few rows computes such a weight where it
reads it, and scales the sums of groups itself.
"""

from __future__ import annotations

import math
from typing import Any

from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.simplify import Match, Rule, X, op, rewrite

FEW_ROWS = 8  # of a product that computes its other operand where it reads it


def join_group_sums(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Sums over the first axis of scaled products that are paired along it, as one product."""
    names = {e.primitive.name for e in closed.eqns}
    if not {"dot_general", "reduce_sum"} <= names:
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


RULES = (Rule("sums of scaled products of groups", op.reduce_sum(X("x")), _joined),)


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
    if scale.aval.shape != tuple(sizes):
        scale = m.apply("reshape", scale, new_sizes=tuple(sizes), dimensions=None, sharding=None)
    spread = {"shape": shape, "broadcast_dimensions": tuple(range(len(shape))), "sharding": None}
    return m.apply("broadcast_in_dim", scale, **spread)
