"""Products of groups of rows, whose sizes are known as a program runs: `ragged_dot_general`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Decompose, Shaped
from amdjax.core.precision import PrecisionLike, canonical_precision
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    FLAT,
    Shape,
    batch_to,
    dtype_of,
    filled_like,
    jvp_from,
    move_axis,
    shape_of,
    transpose_from,
)
from amdjax.lax.bitwise import bitwise_and
from amdjax.lax.casting import convert, convert_back
from amdjax.lax.comparison import ge, lt
from amdjax.lax.cumulative import cumsum
from amdjax.lax.dot import (
    DotDimensionNumbers,
    bind_product,
    dot_general_p,
    free_axes,
    swapped_precision,
)
from amdjax.lax.elementwise import min as minimum
from amdjax.lax.filling import broadcasted_iota
from amdjax.lax.reductions import reduce_sum
from amdjax.lax.selection import clamp, select
from amdjax.lax.shape import broadcast_in_dim, transpose
from amdjax.lax.slicing import pad, slice_in_dim
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general", "ragged_dot_general_p",
]  # fmt: skip


@dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """Which axes of a ragged product are contracted, paired, ragged and grouped.

    Args:
      dot_dimension_numbers: as in `dot_general`.
      lhs_ragged_dimensions: the axis of `lhs` that is cut into groups.
      rhs_group_dimensions: the axis of `rhs` with one entry for each group, if any.
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]

    def __init__(
        self,
        dot_dimension_numbers: DotDimensionNumbers,
        lhs_ragged_dimensions: Sequence[int],
        rhs_group_dimensions: Sequence[int],
    ):
        numbers = tuple(tuple(tuple(axes) for axes in pair) for pair in dot_dimension_numbers)
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", tuple(lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", tuple(rhs_group_dimensions))


_ROWS = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def outer_axes(rank: int, numbers: RaggedDotDimensionNumbers) -> tuple[int, ...]:
    """Axes of `lhs` along which sizes of groups may differ: those outside the ragged one."""
    contract, batch = (left for left, _ in numbers.dot_dimension_numbers)
    (ragged,) = numbers.lhs_ragged_dimensions
    if ragged in batch:
        return tuple(batch[: batch.index(ragged)])
    if ragged in contract:
        return (*batch, *contract[: contract.index(ragged)])
    return (*batch, *(d for d in free_axes(rank, contract, batch) if d < ragged))


def _is_contracted(numbers: RaggedDotDimensionNumbers) -> bool:
    return numbers.lhs_ragged_dimensions[0] in numbers.dot_dimension_numbers[0][0]


def _check_ragged(lhs: Shape, rhs: Shape, sizes: Shape, numbers: RaggedDotDimensionNumbers) -> None:
    """Refuse dimension numbers and sizes of groups that do not fit the operands."""
    name = "ragged_dot_general"
    ragged, groups = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    (left, right), (left_batch, right_batch) = numbers.dot_dimension_numbers
    if len(ragged) != 1:
        raise TypeError(f"{name} expects exactly one lhs ragged dimension, got {ragged}.")
    if not 0 <= ragged[0] < len(lhs):
        raise TypeError(
            f"{name} requires lhs ragged dimension numbers to be nonnegative and less than the "
            f"number of axes of the lhs, got {ragged[0]} for lhs of shape {lhs}."
        )
    if ragged[0] in (*left, *left_batch):
        if groups:
            raise TypeError(
                f"{name} requires zero group dimensions in the rhs when lhs ragged dimension is "
                f"contracting or batch, got {groups}."
            )
    else:
        if len(groups) != 1:
            raise TypeError(
                f"{name} requires exactly one rhs group dimension when lhs ragged dimension is "
                f"noncontracting, got {groups}."
            )
        if not 0 <= groups[0] < len(rhs):
            raise TypeError(
                f"{name} requires rhs group dimension numbers to be nonnegative and less than "
                f"the number of axes of the rhs, got {groups[0]} for rhs of shape {rhs}."
            )
        if groups[0] in (*right, *right_batch):
            raise TypeError(
                f"{name} requires rhs group dimension numbers to be distinct from contracting "
                f"and batch dimensions, got {groups[0]} with {(*right, *right_batch)}."
            )
    if not sizes:
        raise TypeError(f"{name} expects group_sizes to have at least one axis, got a scalar.")
    wanted = (*(lhs[d] for d in outer_axes(len(lhs), numbers)), sizes[-1])
    if sizes not in (wanted, wanted[-1:]):
        raise TypeError(f"{name}: expected group_sizes to have shape {wanted}, got {sizes}.")
    if groups and rhs[groups[0]] != sizes[-1]:
        raise TypeError(
            f"{name} expected rhs group dimension size to be {sizes[-1]}, got {rhs[groups[0]]}."
        )


def _type(
    lhs: Any, rhs: Any, groups: int, numbers: RaggedDotDimensionNumbers, **params: Any
) -> ShapedArray:
    """That of the product of a single group, and an axis of groups if these are contracted."""
    contract, (left, right) = numbers.dot_dimension_numbers
    if numbers.rhs_group_dimensions:
        (group,) = numbers.rhs_group_dimensions
        rhs = rhs.update(shape=tuple(n for d, n in enumerate(rhs.shape) if d != group))
        right, own = (tuple(d - (d > group) for d in axes) for axes in (right, contract[1]))
        contract = contract[0], own
    numbers_of_one = contract, (left, right)
    out = dot_general_p.abstract_eval(lhs, rhs, dimension_numbers=numbers_of_one, **params)  # type: ignore[misc]
    return out.update(shape=(groups, *out.shape)) if _is_contracted(numbers) else out


ragged_dot_general_p = Primitive("ragged_dot_general")


@ragged_dot_general_p.def_abstract_eval
def _ragged_type(
    lhs: Any, rhs: Any, sizes: Any, *, ragged_dot_dimension_numbers: Any, group_offset: Any,
    **params: Any,
) -> ShapedArray:  # fmt: skip
    _check_ragged(lhs.shape, rhs.shape, sizes.shape, ragged_dot_dimension_numbers)
    return _type(lhs, rhs, sizes.shape[-1], ragged_dot_dimension_numbers, **params)


ragged_dot_general_p.jvp = jvp_from(
    ragged_dot_general_p,
    (
        lambda g, y, lhs, rhs, sizes, **params: ragged_dot_general_p.bind(g, rhs, sizes, **params),
        lambda g, y, lhs, rhs, sizes, **params: ragged_dot_general_p.bind(lhs, g, sizes, **params),
        FLAT,
    ),
)


def _front(x: Any, axes: Sequence[int]) -> Any:
    """`x` with some of its axes moved to the front, in this order."""
    return transpose(x, (*axes, *(d for d in range(len(shape_of(x))) if d not in axes)))


def _cotangent_of(side: int) -> Any:
    """Transpose with respect to one operand: the ragged product of `ct` with the other operand."""

    def rule(
        ct: Any, lhs: Any, rhs: Any, sizes: Any, *, ragged_dot_dimension_numbers: Any, **params: Any
    ) -> Any:
        numbers = ragged_dot_dimension_numbers
        x, other = (lhs, rhs) if side == 0 else (rhs, lhs)
        (contract, others), (batch, other_batch) = (
            pair if side == 0 else pair[::-1] for pair in numbers.dot_dimension_numbers
        )
        ranks = [x.aval.ndim, len(shape_of(other))]
        grouped = tuple(numbers.rhs_group_dimensions)
        skip = [grouped if side == 1 else (), grouped if side == 0 else ()]
        free = free_axes(ranks[0], contract, (*batch, *skip[0]))
        other_free = free_axes(ranks[1], others, (*other_batch, *skip[1]))
        params["precision"] = swapped_precision(params["precision"], side)
        if x.aval.dtype.kind == "c":  # a real result's slope has an imaginary part
            params["preferred_element_type"] = None
        pairs, n = tuple(range(len(batch))), len(batch)

        def product(a: Any, b: Any, contracted: Any, pairs: Any, ragged: int, group: Any) -> Any:
            own = RaggedDotDimensionNumbers((contracted, pairs), (ragged,), group)
            return ragged_dot_general_p.bind(
                a, b, sizes, ragged_dot_dimension_numbers=own, **params
            )

        if _is_contracted(numbers):
            # Each group of the depth meets its entry of `ct`, of axes group, batch, lhs, rhs. The
            # order in which axes are contracted says along which of them sizes may differ.
            a = _front(other, (*other_batch, *others))
            left = numbers.dot_dimension_numbers[0][0]
            ragged = n + left.index(numbers.lhs_ragged_dimensions[0])
            first = 1 + n + (len(free) if side == 0 else 0)
            summed = tuple(range(n + len(others), ranks[1]))
            at = tuple(range(first, first + len(other_free)))
            ct_batch = tuple(1 + d for d in pairs)
            out = product(a, ct, (summed, at), (pairs, ct_batch), ragged, (0,))
            axes = [*batch, *contract, *free]
        elif side == 0:
            first = n + len(free)
            summed = tuple(range(first, first + len(other_free)))
            ragged = n + free.index(numbers.lhs_ragged_dimensions[0])
            both = (summed, tuple(other_free)), (pairs, tuple(other_batch))
            out = product(ct, other, *both, ragged, grouped)
            axes = [*batch, *free, *_by_place(contract, others)]
        else:
            summed = tuple(range(n, n + len(other_free)))
            both = (tuple(other_free), summed), (tuple(other_batch), pairs)
            out = product(other, ct, *both, numbers.lhs_ragged_dimensions[0], ())
            axes = [*grouped, *batch, *_by_place(contract, others), *free]
        out = transpose(out, sorted(range(len(axes)), key=axes.__getitem__))
        return convert_back(out, x)

    return rule


def _by_place(contract: Shape, others: Shape) -> list[int]:
    """Contracted axes of one operand in the order of the other's, in which they come out."""
    return [contract[i] for i in sorted(range(len(contract)), key=others.__getitem__)]


ragged_dot_general_p.transpose = transpose_from(_cotangent_of(0), _cotangent_of(1), None)


@ragged_dot_general_p.def_batch
def _ragged_batch(
    axis: Any, args: Any, dims: Any, *, ragged_dot_dimension_numbers: Any, **params: Any
) -> tuple[Any, int]:
    """Operands that are both batched are paired; one alone has one more free axis.

    Sizes that differ do so along batch axes, or along free ones of `lhs` if those are cut.
    """
    numbers = ragged_dot_dimension_numbers
    (lhs, rhs, sizes), (left, right, by), n = args, dims, axis.size
    contracted = _is_contracted(numbers)
    if left is not None or by is not None:
        lhs, left = batch_to(lhs, left, n), 0
    if right is not None or (by is not None and contracted):
        rhs, right = batch_to(rhs, right, n), 0
    both = left is not None and right is not None

    def moved(axes: Sequence[int], side: int) -> tuple[int, ...]:
        return tuple(d + ((left, right)[side] is not None) for d in axes)

    contract, batch = (
        (moved(axes[0], 0), moved(axes[1], 1)) for axes in numbers.dot_dimension_numbers
    )
    rank = len(shape_of(lhs)) - (left is not None)
    outer, count = outer_axes(rank, numbers), len(batch[0])
    place, among = count + contracted, None if contracted else count
    if both:
        place, among = int(contracted), 0
        batch = (0, *batch[0]), (0, *batch[1])
    elif right is not None:
        place += len(free_axes(len(shape_of(lhs)), contract[0], batch[0]))
        among = None
    if by is not None or (among is not None and len(shape_of(sizes)) > 1):
        assert among is not None
        whole = len(shape_of(sizes)) - (by is not None) > 1
        sizes = batch_to(sizes, by, n, among if whole else 0)
        if not whole:
            shape = [shape_of(lhs)[moved([d], 0)[0]] for d in outer]
            shape = [*shape[:among], n, *shape[among:], shape_of(sizes)[1]]
            sizes = broadcast_in_dim(sizes, shape, (among, len(shape) - 1))
    own = RaggedDotDimensionNumbers(
        (contract, batch),
        moved(numbers.lhs_ragged_dimensions, 0),
        moved(numbers.rhs_group_dimensions, 1),
    )
    out = ragged_dot_general_p.bind(lhs, rhs, sizes, ragged_dot_dimension_numbers=own, **params)
    return out, place


# How it is computed

MANY_GROUPS = 256  # of which each sum is not to be taken by itself

grouped_dot_p = Primitive("grouped_dot")


@grouped_dot_p.def_abstract_eval
def _grouped_type(lhs: Any, rhs: Any, bounds: Any, *, numbers: Any, **params: Any) -> ShapedArray:
    return _type(lhs, rhs, bounds.shape[-1] - 1, numbers, **params)


def _in_groups(
    lhs: Any, rhs: Any, sizes: Any, *, ragged_dot_dimension_numbers: Any, group_offset: Any,
    **params: Any,
) -> Any:  # fmt: skip
    """A ragged product by where groups begin and end."""
    numbers, shape = ragged_dot_dimension_numbers, shape_of(lhs)
    (ragged,) = numbers.lhs_ragged_dimensions
    if ragged in numbers.dot_dimension_numbers[1][0]:
        dims = numbers.dot_dimension_numbers
        return dot_general_p.bind(lhs, rhs, dimension_numbers=dims, **params)
    sizes = convert(sizes, np.dtype(np.int32))
    bounds = _bounds(clamp(filled_like(sizes, 0), sizes, filled_like(sizes, shape[ragged])))
    bounds = minimum(bounds, filled_like(bounds, shape[ragged]))
    return grouped_dot_p.bind(lhs, rhs, bounds, numbers=numbers, **params)


def _bounds(sizes: Any) -> Any:
    """Where groups begin, and the last one ends: for each, the sum of all sizes before."""
    *outer, count = shape_of(sizes)
    rank = len(outer)
    if count > MANY_GROUPS:
        stops = cumsum(sizes, rank)
        return pad(stops, np.int32(0), [(0, 0, 0)] * rank + [(1, 0, 0)])
    shape = (*outer, count + 1, count)  # sums of masked rows are one kernel, if more work
    copies = broadcast_in_dim(sizes, shape, (*range(rank), rank + 1))
    of, before = (broadcasted_iota(np.int32, shape, rank + i) for i in (0, 1))
    return reduce_sum(select(lt(before, of), copies, filled_like(copies, 0)), (rank + 1,))


def _masked(lhs: Any, rhs: Any, bounds: Any, *, numbers: Any, **params: Any) -> Any:
    """A product of all rows with all groups, in which rows of other groups are zero."""
    contract, batch = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    shape, rank, last = shape_of(lhs), len(shape_of(bounds)), len(shape_of(bounds)) - 1
    bounds = move_axis(bounds, last, 0)
    groups = shape_of(bounds)[0] - 1
    starts, stops = (slice_in_dim(bounds, i, i + groups, axis=0) for i in (0, 1))
    masks_shape = (groups, *shape)
    place = broadcasted_iota(np.int32, masks_shape, ragged + 1)
    along = (0, *(d + 1 for d in outer_axes(len(shape), numbers)))[:rank]
    first, end = (broadcast_in_dim(v, masks_shape, along) for v in (starts, stops))
    copies = broadcast_in_dim(lhs, masks_shape, range(1, len(shape) + 1))
    members = bitwise_and(ge(place, first), lt(place, end))
    grouped = select(members, copies, filled_like(copies, 0))
    left_contract, left_batch = (tuple(d + 1 for d in axes) for axes in (contract[0], batch[0]))
    if _is_contracted(numbers):
        dims = (left_contract, contract[1]), (left_batch, batch[1])
        out = dot_general_p.bind(grouped, rhs, dimension_numbers=dims, **params)
        return move_axis(out, len(left_batch), 0)
    (group_axis,) = numbers.rhs_group_dimensions
    dims = ((0, *left_contract), (group_axis, *contract[1])), (left_batch, batch[1])
    return dot_general_p.bind(grouped, rhs, dimension_numbers=dims, **params)


def _flops(eqn: Any) -> float:
    numbers, lhs = eqn.params["numbers"], eqn.invars[0].aval
    (contract, _), _ = numbers.dot_dimension_numbers
    steps = 2 * math.prod(lhs.shape[i] for i in contract)
    return steps / eqn.outvars[0].aval.shape[0] if _is_contracted(numbers) else steps


ragged_dot_general_p.lowering = Decompose(_in_groups)
grouped_dot_p.lowering = Shaped("grouped_dot", epilogue=True, flops=_flops, composed=_masked)


def ragged_dot_general(
    lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None, group_offset: ArrayLike | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Product in which consecutive pieces of an axis of `lhs` are groups.

    A ragged axis that is neither contracted nor paired meets, in each group, that group's entry
    of `rhs`. A contracted one gives a result for each group. For a paired one groups make no
    difference. Time is that of the rows, however they are divided.

    Args:
      lhs: array of any rank.
      rhs: array of any rank.
      group_sizes: integer array of shape (groups,), sizes of the pieces, or (…, groups) where
        they differ along the axes of `lhs` outside the ragged one: the batch axes first, then,
        of the kind (contracted or not) that the ragged axis is of, those before it. Elements
        beyond their sum count for nothing.
      ragged_dot_dimension_numbers: which axes are which.

    Returns:
      Array as of `dot_general`, with a leading axis of groups if the ragged axis is contracted.

    Raises:
      NotImplementedError: for a `group_offset`.
      TypeError: if sizes or dimension numbers do not fit.

        >>> x, w = np.ones((3, 2), np.float32), np.ones((2, 2, 4), np.float32)
        >>> ragged_dot_general(x, w, np.array([1, 2]), _ROWS).shape
        (3, 4)
    """
    if group_offset is not None:
        raise NotImplementedError("ragged_dot_general: group_offset is not supported.")
    _check_ragged(shape_of(lhs), shape_of(rhs), shape_of(group_sizes), ragged_dot_dimension_numbers)
    if not dtypes.issubdtype(dtype_of(group_sizes), np.integer):
        raise TypeError(
            f"ragged_dot_general: group_sizes must be integers, got {dtype_of(group_sizes)}"
        )
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_and_canonicalize_user_dtype(
            preferred_element_type, "ragged_dot_general"
        )

    def bind(x: ArrayLike, y: ArrayLike, **params: Any) -> Array:
        return ragged_dot_general_p.bind(
            x, y, group_sizes, ragged_dot_dimension_numbers=ragged_dot_dimension_numbers,
            precision=canonical_precision(precision), group_offset=None,
            out_sharding=out_sharding, **params,
        )  # fmt: skip

    return bind_product(bind, lhs, rhs, preferred_element_type)


def ragged_dot(
    lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None, group_offset: ArrayLike | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Product of consecutive groups of rows with a matrix for each group.

    Args:
      lhs: array of shape (m, k).
      rhs: array of shape (groups, k, n).
      group_sizes: integer array of shape (groups,), numbers of rows.

    Returns:
      Array of shape (m, n); rows beyond the last group are zero.

    Raises:
      TypeError: if sizes do not fit.

        >>> x, w = np.ones((3, 2), np.float32), np.ones((2, 2, 4), np.float32)
        >>> ragged_dot(x, w, np.array([1, 2])).shape
        (3, 4)
    """
    return ragged_dot_general(
        lhs, rhs, group_sizes, _ROWS, precision, preferred_element_type, group_offset
    )
