"""Matrix products of scaled operands, made from `dot_general`."""

from __future__ import annotations

from typing import Any

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.lax._rules import shape_of
from amdjax.lax.casting import convert
from amdjax.lax.dot import DotDimensionNumbers, dot_general
from amdjax.lax.elementwise import mul
from amdjax.lax.shape import broadcast_in_dim, reshape
from amdjax.typing import ArrayLike, DTypeLike

__all__ = ["scaled_dot"]


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
