"""Matrix products with groups of rows or with scales, made from `dot_general`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.precision import PrecisionLike
from amdjax.lax._rules import Shape, dtype_of, filled_like, move_axis, shape_of
from amdjax.lax.bitwise import bitwise_and
from amdjax.lax.casting import convert
from amdjax.lax.comparison import ge, lt
from amdjax.lax.cumulative import cumsum
from amdjax.lax.dot import DotDimensionNumbers, dot_general
from amdjax.lax.elementwise import mul, sub
from amdjax.lax.filling import broadcasted_iota
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, reshape
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general", "scaled_dot",
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


def _size_axes(lhs: Shape, numbers: RaggedDotDimensionNumbers) -> tuple[int, ...]:
    """Axes of `lhs` along which sizes of groups may differ: those outside the ragged one."""
    contract, batch = (left for left, _ in numbers.dot_dimension_numbers)
    (ragged,) = numbers.lhs_ragged_dimensions
    if ragged in batch:
        return tuple(batch[: batch.index(ragged)])
    if ragged in contract:
        return (*batch, *contract[: contract.index(ragged)])
    return (*batch, *(d for d in range(ragged) if d not in (*batch, *contract)))


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
    wanted = (*(lhs[d] for d in _size_axes(lhs, numbers)), sizes[-1])
    if sizes not in (wanted, wanted[-1:]):
        raise TypeError(f"{name}: expected group_sizes to have shape {wanted}, got {sizes}.")
    if groups and rhs[groups[0]] != sizes[-1]:
        raise TypeError(
            f"{name} expected rhs group dimension size to be {sizes[-1]}, got {rhs[groups[0]]}."
        )


def _group_masks(group_sizes: Any, shape: Shape, ragged: int, size_axes: tuple[int, ...]) -> Any:
    """For each group, which positions along `ragged` of an array of `shape` are in it."""
    sizes = convert(group_sizes, np.dtype(np.int32))
    sizes = move_axis(sizes, len(shape_of(sizes)) - 1, 0)
    stops = cumsum(sizes)
    starts = sub(stops, sizes)
    masks_shape = (shape_of(sizes)[0], *shape)
    place = broadcasted_iota(np.int32, masks_shape, ragged + 1)
    along = (0, *(d + 1 for d in size_axes))[: len(shape_of(sizes))]
    first, last = (broadcast_in_dim(v, masks_shape, along) for v in (starts, stops))
    return bitwise_and(ge(place, first), lt(place, last))


def ragged_dot_general(
    lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None, group_offset: ArrayLike | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Product in which consecutive pieces of an axis of `lhs` are groups.

    A ragged axis that is neither contracted nor paired meets, in each group, that group's entry
    of `rhs`. A contracted one gives a result for each group. For a paired one groups make no
    difference.

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
    shape, numbers = shape_of(lhs), ragged_dot_dimension_numbers
    _check_ragged(shape, shape_of(rhs), shape_of(group_sizes), numbers)
    if not dtypes.issubdtype(dtype_of(group_sizes), np.integer):
        raise TypeError(
            f"ragged_dot_general: group_sizes must be integers, got {dtype_of(group_sizes)}"
        )
    contract, batch = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    options: Any = {"precision": precision, "preferred_element_type": preferred_element_type}
    if ragged in batch[0]:
        return dot_general(lhs, rhs, (contract, batch), **options)
    groups = shape_of(group_sizes)[-1]
    members = _group_masks(group_sizes, shape, ragged, _size_axes(shape, numbers))
    copies = broadcast_in_dim(lhs, (groups, *shape), range(1, len(shape) + 1))
    grouped = select(members, copies, filled_like(copies, 0))
    left_contract, left_batch = (tuple(d + 1 for d in axes) for axes in (contract[0], batch[0]))
    if ragged in contract[0]:
        out = dot_general(
            grouped, rhs, ((left_contract, contract[1]), (left_batch, batch[1])), **options
        )
        return move_axis(out, len(left_batch), 0)
    (group_axis,) = numbers.rhs_group_dimensions
    with_groups = ((0, *left_contract), (group_axis, *contract[1]))
    return dot_general(grouped, rhs, (with_groups, (left_batch, batch[1])), **options)


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


def _scaled(x: Any, scale: Any, dtype: Any) -> Any:
    """`x` times `scale`, each entry of which holds for a block of `x`."""
    x = convert(x, dtype)
    if scale is None:
        return x
    shape, blocks = shape_of(x), shape_of(scale)
    if len(shape) != len(blocks) or any(b == 0 or n % b for n, b in zip(shape, blocks)):
        raise TypeError(
            f"scaled_dot: a scale of shape {blocks} does not divide an operand of shape {shape}."
        )
    wide = tuple(size for n, b in zip(shape, blocks) for size in (b, n // b))
    spread = broadcast_in_dim(convert(scale, dtype), wide, range(0, len(wide), 2))
    return mul(x, reshape(spread, shape))


def scaled_dot(
    lhs: ArrayLike, rhs: ArrayLike, *, lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None, dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:  # fmt: skip
    """Product of operands that are stored in few bits with a scale for each block.

    Args:
      lhs: array of shape (…, m, k).
      rhs: array of shape (…, k, n).
      lhs_scale: array whose sizes divide those of `lhs`; 1 where omitted.
      rhs_scale: array whose sizes divide those of `rhs`; 1 where omitted.
      dimension_numbers: as in `dot_general`; a stack of matrix products where omitted.
      preferred_element_type: dtype of scaled operands and result; bfloat16 where omitted.

    Returns:
      The product.

    Raises:
      TypeError: if a rank is below two or a scale does not fit.

        >>> x, s = np.ones((2, 4), np.float32), np.full((2, 2), 0.5, np.float32)
        >>> scaled_dot(x, x.T.copy(), lhs_scale=s).shape
        (2, 2)
    """
    rank = len(shape_of(lhs))
    if dimension_numbers is None:
        if rank < 2:
            raise TypeError(f"scaled_dot needs operands of rank 2 or more, got rank {rank}.")
        batch = tuple(range(rank - 2))
        dimension_numbers = (((rank - 1,), (rank - 2,)), (batch, batch))
    dtype = dtypes.check_and_canonicalize_user_dtype(
        dtypes.bfloat16 if preferred_element_type is None else preferred_element_type, "scaled_dot"
    )
    left, right = _scaled(lhs, lhs_scale, dtype), _scaled(rhs, rhs_scale, dtype)
    return dot_general(left, right, dimension_numbers, preferred_element_type=dtype)
