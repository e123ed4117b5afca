"""Updates of a constant, one element a row: choices by position, which fuse with what reads them.

The gradient of picking one element of each row, as a loss does with the logits of labels, is such
an update of zeros. As a step of its own it would write an array that others read again.
"""

from __future__ import annotations

from typing import Any

from amdjax.core.jaxpr import Literal
from amdjax.passes.simplify import Match


def update_as_choice(m: Match) -> Any:
    """`update where position == index else constant`, if each row has one update, of an element."""
    numbers, indices = m["numbers"], m["i"].aval
    along = tuple(numbers.scatter_dims_to_operand_dims)
    rows = [a for a in range(len(m.out.shape)) if a not in along]
    if (
        m.rewriter.constant(m["operand"]) is None
        or len(along) != 1
        or tuple(numbers.inserted_window_dims) != along
        or tuple(numbers.update_window_dims)
        or list(numbers.operand_batching_dims) != rows
        or m["mode"].name not in ("FILL_OR_DROP", "PROMISE_IN_BOUNDS", "ONE_HOT")
        or indices.dtype.kind not in "iu"
        or indices.dtype.itemsize < 4
    ):
        return None
    dims = tuple(numbers.scatter_indices_batching_dims)
    others = [n for a, n in enumerate(indices.shape) if a not in dims]
    if list(dims) != sorted(dims) or any(n != 1 for n in others):
        return None
    shape = m.out.shape

    def over_rows(x: Any) -> Any:
        sizes = tuple(shape[a] for a in rows)
        flat = m.apply("reshape", x, new_sizes=sizes, dimensions=None, sharding=None)
        return m.apply(
            "broadcast_in_dim", flat, shape=shape, broadcast_dimensions=tuple(rows), sharding=None
        )

    position = m.apply("iota", dtype=indices.dtype, shape=shape, dimension=along[0], sharding=None)
    chosen = m.apply("eq", position, over_rows(m["i"]))
    return m.apply("select_n", chosen, m["operand"], over_rows(m["updates"]))


def addition_as_choice(m: Match) -> Any:
    """The same of what is added, which has to be to zero."""
    return update_as_choice(m) if m.rewriter.constant(m["operand"]) == 0 else None


def sum_with_additions(m: Match) -> Any:
    """`y + (zeros with additions)`: the additions to `y`, which need neither zeros nor a sum.

    So the gradient of what is picked at several places, as the corners around a point, is one array
    to which each adds. Narrow floats stay apart, as they would be rounded at each addition.
    """
    dtype = m.out.dtype
    if dtype.kind not in "iufc" or (dtype.kind == "f" and dtype.itemsize < 4):
        return None
    for x, rest in ((m["y"], m["x"]), (m["x"], m["y"])):
        eqn = m.source(x, "scatter-add")
        if eqn is None or m.rewriter.uses[x] != 1 or m.rewriter.constant(eqn.invars[0]) != 0:
            continue
        if rest is not x and not isinstance(rest, Literal):
            return m.apply("scatter-add", rest, *eqn.invars[1:], **eqn.params)
    return None


def sum_of_one_choice(m: Match) -> Any:
    """The sum of what is zero but for one element a row: that element, where the row has it."""
    (axis,) = m["axes"] if len(m["axes"]) == 1 else (None,)
    operand = m.eqn.invars[0].aval
    rows = tuple(a for a in range(len(operand.shape)) if a != axis)
    if axis is None or m["along"] != axis or not m["dims_i"] == m["dims_x"] == rows:
        return None
    i, x = m["i"], m["x"]
    if i.aval.shape != m.out.shape or x.aval.shape != m.out.shape:
        return None
    index = i.aval.dtype.type
    first = m.apply("ge", i, Literal(index(0)))
    inside = m.apply("and", first, m.apply("lt", i, Literal(index(operand.shape[axis]))))
    nothing = m.apply(
        "broadcast_in_dim", Literal(x.aval.dtype.type(0)), shape=x.aval.shape,
        broadcast_dimensions=(), sharding=None,
    )  # fmt: skip
    return m.apply("select_n", inside, nothing, x)
