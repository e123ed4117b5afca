"""Sorting along an axis, and the greatest or least k elements."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import as_size
from amdjax.core.lowering import Decompose, Shaped
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    ANY,
    ORDERED,
    as_ints,
    batch_to,
    check_dtype,
    is_zero,
    move_axis,
    shape_of,
    zero_tangent,
)
from amdjax.lax.elementwise import neg
from amdjax.lax.filling import broadcasted_iota
from amdjax.lax.gather import take_along

__all__ = [
    "approx_max_k", "approx_min_k", "approx_top_k_p", "sort", "sort_key_val", "sort_p", "top_k",
    "top_k_p",
]  # fmt: skip


def _axis(name: str, axis: int, shape: tuple[int, ...]) -> int:
    axis = operator.index(axis)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"{name}: axis {axis} is out of bounds for an array of shape {shape}.")
    return axis % len(shape)


sort_p = Primitive("sort", multiple_results=True)


@sort_p.def_abstract_eval
def _sort_type(*operands, dimension, is_stable, num_keys):
    if any(x.shape != operands[0].shape for x in operands):
        found = ", ".join(str(x.shape) for x in operands)
        raise TypeError(f"sort operands must have equal shapes, got {found}.")
    for x in operands[:num_keys]:
        check_dtype("sort", x.dtype, ANY)
    return list(operands)


@sort_p.def_jvp
def _sort_jvp(primals, tangents, *, dimension, **params):
    positions = broadcasted_iota(np.int32, shape_of(primals[0]), dimension)
    *outs, order = sort_p.bind(*primals, positions, dimension=dimension, **params)
    changes = [
        zero_tangent(y) if is_zero(t) else take_along(t, order, dimension)
        for y, t in zip(outs, tangents)
    ]
    return outs, changes


@sort_p.def_batch
def _sort_batch(axis, args, dims, *, dimension, **params):
    args = [batch_to(x, d, axis.size) for x, d in zip(args, dims)]
    outs = sort_p.bind(*args, dimension=dimension + 1, **params)
    return outs, [0] * len(outs)


sort_p.lowering = Shaped("sort")


def sort(
    operand: Any | Sequence[Any], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Any:
    """Arrays in ascending order along an axis, all permuted like the first ones.

    Numbers ascend to infinity, then come NaNs; the two zeros count as equal, and so do all NaNs.
    Complex numbers are ordered by real part, then by imaginary part.

    Args:
      operand: an array, or a sequence of arrays of one shape.
      is_stable: whether equal elements keep their order.
      num_keys: how many of the arrays decide, the first one first; the others are carried along.

    Returns:
      The sorted array, or a tuple of them if `operand` is a sequence.

    Raises:
      TypeError: if there is no operand or the shapes differ.
      ValueError: if `num_keys` or `dimension` is out of range.

        >>> k, v = np.array([2, 1, 2], np.int32), np.array([3, 4, 1], np.int32)
        >>> [x.tolist() for x in lax.sort((k, v), num_keys=2)]
        [[1, 2, 2], [4, 1, 3]]
    """
    several = isinstance(operand, (list, tuple))
    operands = list(operand) if several else [operand]
    if not operands:
        raise TypeError("sort needs at least one operand.")
    if not 1 <= num_keys <= len(operands):
        raise ValueError(
            f"sort num_keys must lie between 1 and the number of operands, {len(operands)}; "
            f"got {num_keys}."
        )
    outs = sort_p.bind(
        *operands,
        dimension=_axis("sort", dimension, shape_of(operands[0])),
        is_stable=bool(is_stable),
        num_keys=num_keys,
    )
    return tuple(outs) if several else outs[0]


def sort_key_val(
    keys: Any, values: Any, dimension: int = -1, is_stable: bool = True
) -> tuple[Any, Any]:
    """`keys` in ascending order along an axis, and `values` permuted like them.

    Args:
      keys: an array.
      values: an array of the same shape.
      is_stable: whether equal keys keep their order.

    Returns:
      Sorted keys and permuted values.

    Raises:
      TypeError: if the shapes differ.

        >>> k, v = lax.sort_key_val(np.array([2, 0, 1], np.int32), np.array([5, 6, 7], np.int32))
        >>> v.tolist()
        [6, 7, 5]
    """
    keys, values = sort((keys, values), dimension, is_stable, num_keys=1)
    return keys, values


top_k_p = Primitive("top_k", multiple_results=True)


@top_k_p.def_abstract_eval
def _top_k_type(operand, *, k, axis):
    check_dtype("top_k", operand.dtype, ORDERED)
    return _k_along("top_k", operand, k, axis)


def _k_along(name, operand, k, axis):
    size = operand.shape[axis]
    if not 0 <= k <= size:
        raise ValueError(
            f"{name} k must lie between 0 and the size of the axis, got k={k} for axis {axis} of "
            f"shape {operand.shape}."
        )
    if size > 2**31:
        raise ValueError(
            f"{name} returns int32 indices, which will overflow for shape {operand.shape}."
        )
    shape = tuple(k if d == axis else n for d, n in enumerate(operand.shape))
    return [ShapedArray(shape, operand.dtype, operand.weak_type), ShapedArray(shape, np.int32)]


def _follow_indices(outs, t, axis):
    """Tangents of chosen elements and of their indices."""
    values, indices = outs
    change = zero_tangent(values) if is_zero(t) else take_along(t, indices, axis)
    return outs, [change, zero_tangent(indices)]


@top_k_p.def_jvp
def _top_k_jvp(primals, tangents, *, k, axis):
    return _follow_indices(top_k_p.bind(*primals, k=k, axis=axis), tangents[0], axis)


@top_k_p.def_batch
def _top_k_batch(axis_data, args, dims, *, k, axis):
    outs = top_k_p.bind(move_axis(args[0], dims[0], 0), k=k, axis=axis + 1)
    return outs, [0, 0]


top_k_p.lowering = Shaped("top_k")


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Any]:
    """The `k` greatest elements along an axis, greatest first, and where they are.

    Among equal elements the one with the lower index comes first; NaN counts as greatest.

    Args:
      operand: an array of a real dtype.
      k: how many, at most the size of the axis.
      axis: the axis along which to look.

    Returns:
      Values, and their int32 indices along `axis`; both have size `k` there.

    Raises:
      TypeError: for a complex operand.
      ValueError: for a scalar, or if `k` or `axis` is out of range.

        >>> values, indices = lax.top_k(np.array([9.0, 3.0, 6.0, 4.0, 10.0], np.float32), 3)
        >>> values.tolist(), indices.tolist()
        ([10.0, 9.0, 6.0], [4, 0, 2])
    """
    shape = np.shape(operand)  # of what is no array, too: a scalar is refused first
    if not shape:
        raise ValueError("top_k operand must have at least one dimension, got a scalar.")
    (k,) = as_ints((k,), "top_k k")
    if k < 0:
        raise ValueError(f"top_k: k must not be negative, got k={k}.")
    values, indices = top_k_p.bind(operand, k=k, axis=_axis("top_k", axis, shape))
    return [values, indices]


approx_top_k_p = Primitive("approx_top_k", multiple_results=True)


@approx_top_k_p.def_abstract_eval
def _approx_top_k_type(operand, *, k, reduction_dimension, **_):
    if not dtypes.issubdtype(operand.dtype, np.floating):
        raise ValueError(f"approx_top_k operand must be of a floating dtype, got {operand.dtype}.")
    return _k_along("approx_top_k", operand, k, reduction_dimension)


@approx_top_k_p.def_jvp
def _approx_top_k_jvp(primals, tangents, *, reduction_dimension, **params):
    outs = approx_top_k_p.bind(*primals, reduction_dimension=reduction_dimension, **params)
    return _follow_indices(outs, tangents[0], reduction_dimension)


@approx_top_k_p.def_batch
def _approx_top_k_batch(axis, args, dims, *, reduction_dimension, **params):
    operand = move_axis(args[0], dims[0], 0)
    outs = approx_top_k_p.bind(operand, reduction_dimension=reduction_dimension + 1, **params)
    return outs, [0, 0]


def _exact_top_k(operand, *, k, reduction_dimension, is_max_k, **_):
    if is_max_k:
        return top_k_p.bind(operand, k=k, axis=reduction_dimension)
    values, indices = top_k_p.bind(neg(operand), k=k, axis=reduction_dimension)
    return [neg(values), indices]


approx_top_k_p.lowering = Decompose(_exact_top_k)


def approx_max_k(
    operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
    reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """The `k` greatest elements along an axis; exact, whatever recall is asked for.

    >>> lax.approx_max_k(np.array([1.0, 3.0, 2.0], np.float32), 2)[1].tolist()
    [1, 2]
    """
    return _approx_k(
        operand, k, reduction_dimension, recall_target, True, reduction_input_size_override,
        aggregate_to_topk,
    )  # fmt: skip


def approx_min_k(
    operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
    reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """The `k` least elements along an axis; exact, whatever recall is asked for.

    >>> lax.approx_min_k(np.array([1.0, 3.0, 2.0], np.float32), 2)[1].tolist()
    [0, 2]
    """
    return _approx_k(
        operand, k, reduction_dimension, recall_target, False, reduction_input_size_override,
        aggregate_to_topk,
    )  # fmt: skip


def _approx_k(operand, k, axis, recall, is_max, size_override, aggregate) -> tuple[Any, Any]:
    name = "approx_max_k" if is_max else "approx_min_k"
    shape = shape_of(operand)
    if k <= 0:
        raise ValueError(f"{name} k must be positive, got {k}.")
    values, indices = approx_top_k_p.bind(
        operand,
        k=as_size(k),
        reduction_dimension=_axis(name, axis, shape),
        recall_target=float(recall),
        is_max_k=is_max,
        reduction_input_size_override=operator.index(size_override),
        aggregate_to_topk=bool(aggregate),
    )
    return values, indices
