"""What the axes of arrays are of: which run along the same thing, through reshapes and transposes.

A layout names for each dimension of an array the axes it runs along, the slowest first. Unit
dimensions run along none. Where a reshape divides a dimension, its axis becomes two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from amdjax.core.jaxpr import JaxprEqn
from amdjax.core.precision import precision_setting


class Axis:
    """Something that dimensions run along.

    Args:
      size: its extent.
      is_free: whether it was only broadcast along, so that it may turn out to be any other.
    """

    __slots__ = ("is_free", "parts", "size")

    def __init__(self, size: int, is_free: bool = False):
        self.size, self.is_free = size, is_free
        self.parts: tuple[Axis, Axis] | None = None

    def divide(self, size: int) -> None:
        """Make it two, the faster one of `size`."""
        self.parts = Axis(self.size // size, self.is_free), Axis(size, self.is_free)


Layout = tuple[tuple[Axis, ...], ...]


def fresh(shape: Sequence[int], is_free: bool = False) -> Layout:
    """A layout of new axes."""
    return tuple(() if n == 1 else (Axis(n, is_free),) for n in shape)


def whole(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Axes with what they were divided into in place of those that were."""
    out: list[Axis] = []
    for axis in axes:
        out += (axis,) if axis.parts is None else whole(axis.parts)
    return tuple(out)


def settled(layout: Layout) -> Layout:
    """A layout after all divisions so far."""
    return tuple(whole(axes) for axes in layout)


def flat(layout: Layout) -> tuple[Axis, ...]:
    """The axes of all dimensions in order."""
    return tuple(axis for axes in layout for axis in whole(axes))


def reshaped(layout: Layout, shape: Sequence[int]) -> Layout | None:
    """The layout of an array that is reshaped, None where dimensions are cut across axes."""
    rest = list(reversed(flat(layout)))
    out: list[tuple[Axis, ...]] = []
    for n in reversed(shape):
        axes: list[Axis] = []
        while n > 1:
            axis = rest.pop(0) if rest else None
            if axis is None:
                return None
            if n % axis.size:
                if axis.size % n:
                    return None
                axis.divide(n)
                assert axis.parts is not None
                slow, fast = axis.parts
                rest.insert(0, slow)
                axis = fast
            axes.insert(0, axis)
            n //= axis.size
        out.insert(0, tuple(axes))
    return None if rest else tuple(out)


def of_operand(layout: Layout, shape: Sequence[int]) -> Layout:
    """The layout of an operand of elementwise arithmetic, of that of the result."""
    return tuple(axes if n > 1 else () for axes, n in zip(layout, shape)) if shape else ()


def joined(x: Layout, y: Layout) -> Layout | None:
    """The layout of what is computed of two arrays of one shape, None if they do not fit."""
    out = []
    for a, b in zip(settled(x), settled(y), strict=True):
        if a == b or all(axis.is_free for axis in b):
            out.append(a)
        elif all(axis.is_free for axis in a):
            out.append(b)
        else:
            return None
    return tuple(out)


STRUCTURAL = frozenset({"transpose", "reshape", "squeeze", "broadcast_in_dim"})


def after(eqn: JaxprEqn, layout: Layout) -> Layout | None:
    """The layout of the result of a structural equation."""
    shape = eqn.outvars[0].aval.shape
    if eqn.primitive.name == "transpose":
        return tuple(layout[d] for d in eqn.params["permutation"])
    if eqn.primitive.name != "broadcast_in_dim":
        return reshaped(layout, shape)
    out = list(fresh(shape, True))
    for d, axes in zip(eqn.params["broadcast_dimensions"], layout, strict=True):
        if axes:
            out[d] = axes
    return tuple(out)


def before(eqn: JaxprEqn, layout: Layout) -> Layout | None:
    """The layout of the operand of a structural equation, of that of its result."""
    shape = eqn.invars[0].aval.shape
    if eqn.primitive.name == "transpose":
        places = sorted(range(len(shape)), key=lambda i: eqn.params["permutation"][i])
        return tuple(layout[i] for i in places)
    if eqn.primitive.name != "broadcast_in_dim":
        return reshaped(layout, shape)
    pairs = zip(eqn.params["broadcast_dimensions"], shape, strict=True)
    return tuple(layout[d] if n > 1 else () for d, n in pairs)


def is_plain(eqn: JaxprEqn) -> bool:
    """Whether a product asks for nothing that attention does not know of."""
    if eqn.outvars[0].aval.dtype.itemsize == 1:
        return False
    precision = precision_setting(eqn.params["precision"])
    return precision != "F64_F64_F64" and eqn.params["out_sharding"] is None


def of_product(eqn: JaxprEqn, out: Layout) -> tuple[Layout, Layout]:
    """The layouts of a product's operands; what it sums over gets axes of its own."""
    contract, batch = eqn.params["dimension_numbers"]
    shapes = [x.aval.shape for x in eqn.invars]
    sides: list[dict[int, tuple[Axis, ...]]] = [{}, {}]
    for i, (a, b) in enumerate(zip(*batch, strict=True)):
        sides[0][a] = sides[1][b] = out[i]
    for a, b in zip(*contract, strict=True):
        sides[0][a] = sides[1][b] = fresh((shapes[0][a],))[0]
    place = len(batch[0])
    for side, shape in zip(sides, shapes, strict=True):
        for d in range(len(shape)):
            if d not in side:
                side[d] = out[place]
                place += 1
    first, second = (tuple(side[d] for d in range(len(side))) for side in sides)
    return first, second


def product_result(eqn: JaxprEqn, place: int, layout: Layout) -> tuple[Layout, Layout]:
    """The layouts of a product's result and of its other operand, of that of operand `place`.

    What only the other operand has gets axes of its own.
    """
    contract, batch = eqn.params["dimension_numbers"]
    other = eqn.invars[1 - place].aval.shape
    mine = (*contract[place], *batch[place])
    theirs = (*contract[1 - place], *batch[1 - place])
    known = dict(zip(theirs, (layout[d] for d in mine), strict=True))
    full = tuple(known[d] if d in known else fresh((n,))[0] for d, n in enumerate(other))
    free = [
        [layout[d] for d in range(len(layout)) if d not in mine],
        [full[d] for d in range(len(full)) if d not in known],
    ]
    first, second = free[::-1] if place else free
    return (*(layout[d] for d in batch[place]), *first, *second), full


def extent(axes: Sequence[Axis]) -> int:
    """The number of elements along some axes."""
    return math.prod(axis.size for axis in whole(axes))
