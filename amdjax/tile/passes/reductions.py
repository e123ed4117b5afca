"""What the operands and the readers of reductions leave open about them."""

from __future__ import annotations

from collections.abc import Iterator

from amdjax.tile import ops
from amdjax.tile.ir import Op, Trait, Value, nested_ops
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import makers, readers, rewritten
from amdjax.tile.types import FLOATS

_SPREADS = ops.Broadcast, ops.Expand

#: NaN if an operand is, element by element.
_PASS_NAN = frozenset({
    "add", "sub", "mul", "div", "fma", "neg", "abs", "exp", "exp2", "log", "log1p", "expm1", "sqrt",
    "rsqrt", "tanh", "logistic",
})  # fmt: skip


def annotate_reductions(kernel: Kernel) -> Kernel:
    """Mark sums and products that may be contracted, and extrema whose readers find NaN anyway."""
    found = [op for op in nested_ops(kernel.body) if isinstance(op, ops.Reduce)]
    if not found:
        return kernel
    made, reading = makers(kernel.body), readers(kernel.body)
    contracted = set(_contracted(kernel, made))
    numbers = {
        op.result.number
        for op in found
        if op.combine in ("max", "min") and op.x.dtype in FLOATS and _is_of_numbers(op, reading)
    }

    def change(op: Op) -> Op:
        number = op.results[0].number if op.results else -1
        if number in contracted:
            return op.with_(attrs=op.attrs | {"contracts": True})
        return op.with_(attrs=op.attrs | {"numbers": True}) if number in numbers else op

    return rewritten(kernel, change) if contracted or numbers else kernel


def _contracted(kernel: Kernel, made: dict[int, Op]) -> Iterator[int]:
    """Results of sums and products of float, to both of which the rounding of products is left.

    It is where a reduction sums products, as in a product of matrices. And it is in what is made of
    elements and a sum of all of them, which no order of summing makes the same everywhere: rows
    that are normalized, then scaled and shifted.
    """
    statistics: set[int] = set()  # made of sums
    scaled: set[int] = set()  # products of elements with such
    for op in nested_ops(kernel.body):
        if op.blocks or len(op.results) != 1 or op.result.dtype != "f32":
            continue
        numbers, out = {v.number for v in op.operands}, op.result.number
        if isinstance(op, ops.Reduce) and op.combine == "add":
            statistics.add(out)
            if isinstance(made.get(op.x.number), ops.Mul):
                yield from (out, op.x.number)
        elif isinstance(op, ops.Mul) and numbers & (statistics | scaled) and op.result.shape:
            scaled.add(out)
        elif isinstance(op, ops.Add | ops.Sub) and numbers & scaled:
            yield from (out, *(numbers & scaled))
        elif numbers & statistics and (Trait.ELEMENTWISE in op.traits or isinstance(op, _SPREADS)):
            statistics.add(out)


def _is_of_numbers(extremum: ops.Reduce, reading: dict[int, list[Op]]) -> bool:
    """Whether an extremum of a row with a NaN may be anything.

    So it is in a softmax: sums of a row with a NaN are NaN, and so is all that is made of them.
    """
    nan = {extremum.x.number}  # where the element of the row is one
    lost: set[int] = set()  # throughout, if the row has one
    open_ends = {extremum.result.number}  # what depends on the extremum and is not yet NaN
    waiting = [extremum.x, extremum.result]
    depend: list[Value] = []
    while waiting:
        v = waiting.pop()
        for op in reading.get(v.number, ()):
            if op is extremum:
                continue
            if Trait.PURE not in op.traits or op.blocks:
                depend.append(v)
                continue
            out = op.result
            before = out.number in nan, out.number in lost, out.number in open_ends
            numbers = {x.number for x in op.operands}
            passes = op.name in _PASS_NAN or _is_conversion(op)
            if numbers & lost and (passes or _is_spread(op, extremum.axis)):
                lost.add(out.number)
            elif passes and numbers & nan:
                nan.add(out.number)
            elif _sums(op, extremum) and numbers & nan:
                lost.add(out.number)
            if numbers & open_ends:
                open_ends.add(out.number)
            if before != (out.number in nan, out.number in lost, out.number in open_ends):
                waiting.append(out)
    return not any(v.number in open_ends and v.number not in lost for v in depend)


def _is_conversion(op: Op) -> bool:
    return isinstance(op, ops.Convert) and {op.operands[0].dtype, op.result.dtype} <= set(FLOATS)


def _is_spread(op: Op, axis: int) -> bool:
    """Whether numbers of rows go to the elements of these rows."""
    if isinstance(op, ops.Broadcast):
        return len(op.x.shape) in (0, len(op.result.shape))
    return isinstance(op, ops.Expand) and op.axis == axis


def _sums(op: Op, extremum: ops.Reduce) -> bool:
    """Whether an operation sums rows of the extremum's."""
    if not isinstance(op, ops.Reduce) or op.combine != "add":
        return False
    return op.x.shape == extremum.x.shape and op.axis == extremum.axis
