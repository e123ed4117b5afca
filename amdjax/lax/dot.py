"""Matrix products: `dot_general`, and the forms made from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.config import numpy_dtype_promotion
from amdjax.core.lowering import Shaped
from amdjax.core.precision import (
    DotAlgorithm,
    DotAlgorithmPreset,
    Precision,
    PrecisionLike,
    canonical_precision,
)
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    ANY,
    Shape,
    after_batch,
    as_ints,
    bilinear,
    check_dtype,
    dtype_of,
    jvp_from,
    shape_of,
    transpose_from,
)
from amdjax.lax.casting import convert, convert_back
from amdjax.lax.comparison import ne
from amdjax.lax.shape import transpose
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "DotAlgorithm", "DotAlgorithmPreset", "DotDimensionNumbers", "Precision", "PrecisionLike",
    "batch_matmul", "dot", "dot_general", "dot_general_p",
]  # fmt: skip

Contraction = tuple[Shape, Shape]
DotDimensionNumbers = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]


def free_axes(ndim: int, contracted: Sequence[int], batch: Sequence[int]) -> list[int]:
    """Axes that are neither contracted nor batched."""
    return [d for d in range(ndim) if d not in contracted and d not in batch]


dot_general_p = Primitive("dot_general")


@dot_general_p.def_abstract_eval
def _dot_general_type(
    lhs: Any, rhs: Any, *, dimension_numbers: tuple[Contraction, Contraction], precision: Any,
    preferred_element_type: Any, out_sharding: Any,
) -> ShapedArray:  # fmt: skip
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    check_dtype("dot_general", lhs.dtype, ANY, 0)
    check_dtype("dot_general", rhs.dtype, ANY, 1)
    _check_dot_axes("lhs", lhs, lhs_contract, lhs_batch)
    _check_dot_axes("rhs", rhs, rhs_contract, rhs_batch)
    _check_pairs("batch", lhs, rhs, lhs_batch, rhs_batch)
    _check_pairs("contracting", lhs, rhs, lhs_contract, rhs_contract)
    shape = [lhs.shape[d] for d in lhs_batch]
    shape += [lhs.shape[d] for d in free_axes(lhs.ndim, lhs_contract, lhs_batch)]
    shape += [rhs.shape[d] for d in free_axes(rhs.ndim, rhs_contract, rhs_batch)]
    weak = lhs.weak_type and rhs.weak_type
    if preferred_element_type is not None:
        return ShapedArray(shape, preferred_element_type, weak)
    if lhs.dtype == rhs.dtype:
        return ShapedArray(shape, lhs.dtype, weak)
    with numpy_dtype_promotion("standard"):  # products of two dtypes are no implicit promotion
        return ShapedArray(shape, promotion.promote_types(lhs.dtype, rhs.dtype), weak)


def _check_dot_axes(side: str, x: Any, contracted: Shape, batch: Shape) -> None:
    axes = (*contracted, *batch)
    if any(not 0 <= d < x.ndim for d in axes) or len(set(axes)) != len(axes):
        raise TypeError(
            f"dot_general: axes of {side} must be distinct, nonnegative and below its rank, got "
            f"contracting {contracted} and batch {batch} for shape {x.shape}."
        )


def _check_pairs(kind: str, lhs: Any, rhs: Any, left: Shape, right: Shape) -> None:
    if len(left) != len(right):
        raise TypeError(
            f"dot_general requires equal numbers of {kind} dimensions, got {left} of lhs and "
            f"{right} of rhs."
        )
    sizes = tuple(lhs.shape[d] for d in left), tuple(rhs.shape[d] for d in right)
    if sizes[0] != sizes[1]:
        raise TypeError(
            f"dot_general requires {kind} dimensions to have the same shape, got {sizes[0]} and "
            f"{sizes[1]}: axes {left} of lhs {lhs.shape} and {right} of rhs {rhs.shape}."
        )


def _cotangent_of(side: int) -> Any:
    """Transpose with respect to one operand: the product of `ct` with the other operand."""

    def rule(ct: Any, lhs: Any, rhs: Any, *, dimension_numbers: Any, **params: Any) -> Any:
        x, other = (lhs, rhs) if side == 0 else (rhs, lhs)
        (contract, other_contract), (batch, other_batch) = (
            pair if side == 0 else pair[::-1] for pair in dimension_numbers
        )
        own_free = free_axes(x.aval.ndim, contract, batch)
        other_free = free_axes(len(shape_of(other)), other_contract, other_batch)
        # `ct` has the axes batch, free of lhs, free of rhs.
        first = len(batch) + (len(own_free) if side == 0 else 0)
        summed = tuple(range(first, first + len(other_free)))
        numbers = ((summed, tuple(other_free)), (tuple(range(len(batch))), other_batch))
        params["precision"] = swapped_precision(params["precision"], side)
        if x.aval.dtype.kind == "c":  # a real result's slope has an imaginary part
            params["preferred_element_type"] = None
        out = dot_general_p.bind(ct, other, dimension_numbers=numbers, **params)
        # `out` has the axes batch, own free, and the contracted ones in the other's order.
        order = sorted(range(len(contract)), key=other_contract.__getitem__)
        axes = [*batch, *own_free, *(contract[k] for k in order)]
        out = transpose(out, sorted(range(len(axes)), key=axes.__getitem__))
        return convert_back(out, x)

    return rule


def swapped_precision(precision: Any, side: int) -> Any:
    """Precisions of (ct, other); `ct` takes the place of the operand asked for."""
    if side == 1 and isinstance(precision, tuple) and not isinstance(precision, DotAlgorithm):
        return precision[::-1]
    return precision


@dot_general_p.def_batch
def _dot_general_batch(
    axis: Any, args: Any, dims: Any, *, dimension_numbers: Any, **params: Any
) -> tuple[Any, int]:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    (lhs, rhs), (left, right) = args, dims

    def moved(axes: Shape, dim: int | None) -> Shape:
        return axes if dim is None else tuple(after_batch(d, dim) for d in axes)

    contract = moved(lhs_contract, left), moved(rhs_contract, right)
    batch = moved(lhs_batch, left), moved(rhs_batch, right)
    if left is not None and right is not None:
        batch = (left, *batch[0]), (right, *batch[1])
        place = 0
    elif left is not None:  # one more free axis of lhs
        free = free_axes(len(shape_of(lhs)), contract[0], batch[0])
        place = len(batch[0]) + free.index(left)
    else:
        free = free_axes(len(shape_of(rhs)), contract[1], batch[1])
        lhs_free = len(free_axes(len(shape_of(lhs)), contract[0], batch[0]))
        place = len(batch[0]) + lhs_free + free.index(right)
    return dot_general_p.bind(lhs, rhs, dimension_numbers=(contract, batch), **params), place


dot_general_p.jvp = jvp_from(dot_general_p, bilinear(dot_general_p.bind))
dot_general_p.transpose = transpose_from(_cotangent_of(0), _cotangent_of(1))


def _flops(eqn: Any) -> float:
    (contract, _), _ = eqn.params["dimension_numbers"]
    return 2 * math.prod(eqn.invars[0].aval.shape[i] for i in contract)


dot_general_p.lowering = Shaped("dot_general", epilogue=True, flops=_flops)


def dot_general(
    lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None, *,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Sum of products along chosen axes of two arrays.

    Args:
      lhs: array of any dtype.
      rhs: array of any dtype.
      dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`: the axes
        summed over, and those along which the operands are paired; of equal sizes.
      preferred_element_type: dtype of the result and of the sums; by default the operands' common
        dtype.

    Returns:
      Array whose axes are the batch axes, the other axes of `lhs`, the other axes of `rhs`.

    Raises:
      TypeError: if the axes do not exist or differ in size.
      ValueError: for an unknown precision.

        >>> x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
        >>> dot_general(x, x, (((1,), (1,)), ((), ()))).tolist()
        [[5.0, 14.0], [14.0, 50.0]]
    """
    try:
        contract, batch = (
            tuple(as_ints(axes, "dot_general dimension_numbers") for axes in (left, right))
            for left, right in dimension_numbers
        )
    except (TypeError, ValueError):
        raise TypeError(
            "dot_general: dimension_numbers must be ((lhs_contracting, rhs_contracting), "
            f"(lhs_batch, rhs_batch)), got {dimension_numbers!r}."
        ) from None
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_and_canonicalize_user_dtype(
            preferred_element_type, "dot_general"
        )
    bind = partial(
        dot_general_p.bind,
        dimension_numbers=(contract, batch),
        precision=canonical_precision(precision),
        out_sharding=out_sharding,
    )
    return bind_product(bind, lhs, rhs, preferred_element_type)


def bind_product(
    bind: Callable[..., Array], lhs: ArrayLike, rhs: ArrayLike, preferred: Any
) -> Array:
    """A product by `bind`; of booleans, whether any pair is true together, which is counted."""
    wanted = preferred is not None and preferred == np.bool_  # `dtype("float64") == None` holds
    if preferred is None or wanted:
        if dtype_of(lhs) == dtype_of(rhs) == np.bool_:
            pairs = convert(lhs, np.int32), convert(rhs, np.int32)
            return ne(bind(*pairs, preferred_element_type=None), np.int32(0))
        if wanted:
            raise TypeError(
                "preferred_element_type bool is for products of booleans, got operands of "
                f"{dtype_of(lhs)} and {dtype_of(rhs)}."
            )
    return bind(lhs, rhs, preferred_element_type=preferred)


def dot(
    lhs: ArrayLike, rhs: ArrayLike, *, dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Product of vectors and matrices.

    Args:
      lhs: array of rank 1 or 2, or any rank with `dimension_numbers`.
      rhs: array of rank 1 or 2, whose first axis has the size of the last of `lhs`.
      dimension_numbers: see `dot_general`.

    Returns:
      The product.

    Raises:
      ValueError: if the ranks or sizes do not fit and there are no `dimension_numbers`.

        >>> float(dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
        11.0
    """
    if dimension_numbers is None:
        left, right = np.shape(lhs), np.shape(rhs)
        if not 1 <= len(left) <= 2 or not 1 <= len(right) <= 2 or left[-1] != right[0]:
            raise ValueError(
                "dot without dimension_numbers multiplies vectors and matrices whose inner sizes "
                f"agree, got lhs of shape {left} and rhs of shape {right}."
            )
        dimension_numbers = (((len(left) - 1,), (0,)), ((), ()))
    return dot_general(
        lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding
    )


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Product of stacks of matrices.

    Args:
      lhs: array of shape (…, m, k).
      rhs: array of shape (…, k, n) with the same leading sizes.

    Returns:
      Array of shape (…, m, n).

    Raises:
      ValueError: if a rank is below two or the ranks differ.
      TypeError: if sizes do not fit.

        >>> x = np.ones((3, 2, 2), np.float32)
        >>> batch_matmul(x, x).shape
        (3, 2, 2)
    """
    left, right = shape_of(lhs), shape_of(rhs)
    if min(len(left), len(right)) < 2:
        raise ValueError(f"batch_matmul needs arrays of rank 2 or more, got {left} and {right}.")
    if len(left) != len(right):
        raise ValueError(f"batch_matmul needs arrays of equal rank, got {left} and {right}.")
    n = len(left)
    batch = tuple(range(n - 2))
    return dot_general(lhs, rhs, (((n - 1,), (n - 2,)), (batch, batch)), precision)
