"""Reductions: one value from all elements along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.config import config
from amdjax.core.integers import ceil_div
from amdjax.core.lowering import Reduce
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    BOOL,
    FLAT,
    INT,
    LINEAR,
    NUMBER,
    ORDERED,
    Derivative,
    Kinds,
    Shape,
    after_batch,
    as_axes,
    as_ints,
    canonical_axes,
    check_dtype,
    dtype_of,
    filled_like,
    is_complex,
    jvp_from,
    move_axis,
    shape_of,
    transpose_from,
)
from amdjax.lax.casting import convert_like
from amdjax.lax.comparison import eq
from amdjax.lax.complexes import complex, imag, real
from amdjax.lax.elementwise import add, div, mul
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, expand_dims, reshape
from amdjax.lax.slicing import pad, slice_in_dim
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "argmax", "argmax_p", "argmin", "argmin_p", "reduce_and", "reduce_and_p", "reduce_max",
    "reduce_max_p", "reduce_min", "reduce_min_p", "reduce_or", "reduce_or_p", "reduce_prod",
    "reduce_prod_p", "reduce_sum", "reduce_sum_p", "reduce_xor", "reduce_xor_p",
]  # fmt: skip


def check_axes(name: str, x: Any, axes: Shape) -> None:
    if any(not 0 <= axis < x.ndim for axis in axes):
        text = f"{name}: axes {axes} contain out-of-bounds indices for {x}."
        raise np.exceptions.AxisError(text)  # an IndexError and a ValueError
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: duplicate value in 'axes' {axes}.")


def without(shape: Shape, axes: Shape) -> Shape:
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def reducer(
    name: str,
    kinds: Kinds,
    combine: str,
    identity: Callable[[np.dtype], Any],
    derivative: Derivative,
) -> Primitive:
    """A reduction of one array by an associative and commutative tile op.

    Args:
      name: its name.
      kinds: the accepted dtypes.
      combine: the tile op.
      identity: the value of an empty reduction in a dtype.
      derivative: `fn(g, y, x, *, axes)`, or a word of `_rules`.

    Returns:
      The primitive with all its rules but the transpose.
    """
    primitive = Primitive(name)

    def abstract_eval(x: Any, *, axes: Shape, **_: Any) -> ShapedArray:
        check_dtype(name, x.dtype, kinds)
        check_axes(name, x, axes)
        return ShapedArray(without(x.shape, axes), x.dtype, x.weak_type)

    primitive.abstract_eval = abstract_eval
    primitive.batch = _reduction_batch(primitive)
    primitive.jvp = jvp_from(primitive, (derivative,))
    primitive.lowering = Reduce(combine, identity)
    return primitive


def _reduction_batch(primitive: Primitive) -> Callable[..., Any]:
    def batch(axis: Any, args: Any, dims: Any, *, axes: Shape, **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        moved = tuple(after_batch(d, dim) for d in axes)
        y = primitive.bind(x, axes=moved, **params)
        return y, dim - sum(d < dim for d in moved)

    return batch


def lowest(dtype: Any) -> Any:
    """The value that no value of `dtype` is below."""
    if dtype == np.bool_:
        return False
    if dtypes.issubdtype(dtype, np.integer):
        return dtypes.iinfo(dtype).min
    return -np.inf if dtypes.supports_inf(dtype) else float(dtypes.finfo(dtype).min)


def highest(dtype: Any) -> Any:
    """The value that no value of `dtype` is above."""
    if dtype == np.bool_:
        return True
    if dtypes.issubdtype(dtype, np.integer):
        return dtypes.iinfo(dtype).max
    return np.inf if dtypes.supports_inf(dtype) else float(dtypes.finfo(dtype).max)


def all_bits(dtype: Any) -> Any:
    if dtype == np.bool_:
        return True
    return dtypes.iinfo(dtype).max if dtypes.issubdtype(dtype, np.unsignedinteger) else -1


def _extremum_derivative(g: Any, y: Any, x: Any, *, axes: Shape, **_: Any) -> Any:
    """All elements equal to the extremum share its tangent."""
    chosen = convert_like(eq(x, expand_dims(y, axes)), g)
    return div(reduce_sum(mul(g, chosen), axes), reduce_sum(chosen, axes))


def _product_derivative(g: Any, y: Any, x: Any, *, axes: Shape, **_: Any) -> Any:
    """Halve the axis again and again: no division, so zeros among the elements do no harm."""
    x, g = flatten_axes(x, axes), flatten_axes(g, axes)
    while (n := shape_of(x)[0]) > 1:
        if n % 2:
            config = [(0, 1, 0), *[(0, 0, 0)] * (len(shape_of(x)) - 1)]
            one, zero = np.ones((), dtype_of(x))[()], np.zeros((), dtype_of(x))[()]
            x, g = pad(x, one, config), pad(g, zero, config)
        half = ceil_div(n, 2)
        (x0, x1), (g0, g1) = (
            (slice_in_dim(v, 0, half), slice_in_dim(v, half, 2 * half)) for v in (x, g)
        )
        x, g = mul(x0, x1), add(mul(g0, x1), mul(x0, g1))
    return reduce_sum(g, (0,))


def flatten_axes(x: Any, axes: Shape) -> Any:
    """Bring `axes` together into one leading axis."""
    shape = shape_of(x)
    for place, axis in enumerate(sorted(axes)):
        x = move_axis(x, axis, place)
    rest = without(shape, axes)
    return reshape(x, (int(np.prod([shape[d] for d in axes], dtype=int)), *rest))


reduce_sum_p = reducer("reduce_sum", NUMBER, "add", lambda dtype: 0, LINEAR)
reduce_prod_p = reducer("reduce_prod", NUMBER, "mul", lambda dtype: 1, _product_derivative)
reduce_max_p = reducer("reduce_max", ORDERED, "max", lowest, _extremum_derivative)
reduce_min_p = reducer("reduce_min", ORDERED, "min", highest, _extremum_derivative)
reduce_and_p = reducer("reduce_and", BOOL | INT, "and", all_bits, FLAT)
reduce_or_p = reducer("reduce_or", BOOL | INT, "or", lambda dtype: 0, FLAT)
reduce_xor_p = reducer("reduce_xor", BOOL | INT, "xor", lambda dtype: 0, FLAT)

reduce_sum_p.transpose = transpose_from(
    lambda ct, x, *, axes, **_: broadcast_in_dim(
        ct, x.aval.shape, [d for d in range(x.aval.ndim) if d not in axes]
    )
)


def reduce_sum(operand: ArrayLike, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Sum of the elements along axes.

    Args:
      operand: array of a numeric dtype.

    Returns:
      Array of the operand's dtype without these axes; 0 for no elements.

    Raises:
      TypeError: for another dtype.
      ValueError: if an axis is out of bounds or named twice; or if numbers of 16 bits are summed
        while `jax_allow_f16_reductions` is off.

        >>> int(reduce_sum(np.array([1, 2, 3]), (0,)))
        6
    """
    axes = as_axes(axes, "reduce_sum axes")
    if not config.allow_f16_reductions:
        _refuse_narrow_sum(operand, axes)
    return reduce_sum_p.bind(operand, axes=axes, out_sharding=out_sharding)


def _refuse_narrow_sum(operand: ArrayLike, axes: Shape) -> None:
    aval: Any = get_aval(operand)
    narrow = dtypes.issubdtype(aval.dtype, np.floating) and dtypes.itemsize_bits(aval.dtype) <= 16
    if narrow and any(aval.shape[d] != 1 for d in axes):
        raise ValueError(
            f"reduce_sum on operand {aval.str_short()} is not allowed when "
            "jax_allow_f16_reductions=False: convert it to float32 first."
        )


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Product of the elements along axes.

    Args:
      operand: array of a numeric dtype.

    Returns:
      Array of the operand's dtype without these axes; 1 for no elements.

        >>> int(reduce_prod(np.array([2, 3, 4]), (0,)))
        24
    """
    return reduce_prod_p.bind(operand, axes=as_axes(axes, "reduce_prod axes"))


def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Greatest of the elements along axes; NaN if any is.

    Args:
      operand: array of numbers or booleans; complex ones are ordered by their parts in turn.

    Returns:
      Array of the operand's dtype without these axes; for no elements its least value.

        >>> int(reduce_max(np.array([2, 4, 3]), (0,)))
        4
    """
    return _extremum(reduce_max_p, operand, as_axes(axes, "reduce_max axes"), -np.inf)


def _extremum(primitive: Primitive, operand: ArrayLike, axes: Shape, worst: float) -> Array:
    """Complex numbers are ordered by their real parts, then by their imaginary parts."""
    if not is_complex(operand):
        return primitive.bind(operand, axes=axes)
    first, second = real(operand), imag(operand)
    best = primitive.bind(first, axes=axes)
    shape = shape_of(operand)
    kept = [d for d in range(len(shape)) if d not in canonical_axes(axes, len(shape), "axes")]
    tied = eq(first, broadcast_in_dim(best, shape, kept))
    rest = select(tied, second, filled_like(second, worst))
    return complex(best, primitive.bind(rest, axes=axes))


def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Least of the elements along axes; NaN if any is.

    Args:
      operand: array of numbers or booleans; complex ones are ordered by their parts in turn.

    Returns:
      Array of the operand's dtype without these axes; for no elements its greatest value.

        >>> int(reduce_min(np.array([2, 4, 3]), (0,)))
        2
    """
    return _extremum(reduce_min_p, operand, as_axes(axes, "reduce_min axes"), np.inf)


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise conjunction of the elements along axes; of booleans the logical one.

    Args:
      operand: array of an integer or boolean dtype.

    Returns:
      Array of the operand's dtype without these axes; all bits set for no elements.

        >>> bool(reduce_and(np.array([True, False]), (0,)))
        False
    """
    return reduce_and_p.bind(operand, axes=as_axes(axes, "reduce_and axes"))


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise disjunction of the elements along axes; of booleans the logical one.

    >>> bool(reduce_or(np.array([True, False]), (0,)))
    True
    """
    return reduce_or_p.bind(operand, axes=as_axes(axes, "reduce_or axes"))


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise exclusive disjunction of the elements along axes.

    >>> int(reduce_xor(np.array([6, 3]), (0,)))
    5
    """
    return reduce_xor_p.bind(operand, axes=as_axes(axes, "reduce_xor axes"))


def _arg_reducer(name: str, no_better: str, worst: Callable[[np.dtype], Any]) -> Primitive:
    """Index of the extreme element: a reduction of pairs (value, index)."""
    primitive = Primitive(name)

    def abstract_eval(x: Any, *, axes: Shape, index_dtype: Any) -> ShapedArray:
        check_dtype(name, x.dtype, ORDERED)
        (axis,) = axes
        if not 0 <= axis < x.ndim:
            raise ValueError(f"{name}: Invalid axis {axis} for operand shape {x.shape}.")
        if not dtypes.issubdtype(index_dtype, np.integer):
            raise TypeError(f"{name}: index_dtype must be an integer type, got {index_dtype}.")
        if x.shape[axis] == 0:
            raise ValueError(
                "argmin and argmax require non-empty reduced dimension, got "
                f"{name} along axis {axis} of operand shape {x.shape}."
            )
        return ShapedArray(without(x.shape, axes), index_dtype)

    def prepare(b: Any, index: Any, x: Any, *, axes: Shape, index_dtype: Any) -> list[Any]:
        return [x, b.index_value(index[axes[0]], index_dtype)]

    def combine(b: Any, left: Any, right: Any) -> list[Any]:
        """The better value, NaN best of all; of equals the first."""
        (x, i), (y, j) = left, right
        wins = b.and_(b.not_(b.compare(no_better, x, y)), b.compare("eq", y, y))
        as_good = b.or_(b.compare(no_better, y, x), b.compare("ne", x, x))
        left_wins = b.or_(wins, b.and_(as_good, b.compare("lt", i, j)))
        return [b.select(left_wins, x, y), b.select(left_wins, i, j)]

    def append(b: Any, left: Any, right: Any) -> list[Any]:
        (x, i), (y, j) = left, right
        left_wins = b.or_(b.compare(no_better, y, x), b.compare("ne", x, x))
        return [b.select(left_wins, x, y), b.select(left_wins, i, j)]

    primitive.abstract_eval = abstract_eval
    primitive.batch = _reduction_batch(primitive)
    primitive.jvp = jvp_from(primitive, ())
    # Where no element is better than the worst value, the first one is the worst.
    identity, finish = [worst, lambda dtype: 0], lambda b, values, **_: values[1]
    primitive.lowering = Reduce(combine, identity, prepare, finish, append)
    return primitive


argmax_p = _arg_reducer("argmax", "le", lowest)
argmin_p = _arg_reducer("argmin", "ge", highest)


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Index of the greatest element along an axis; of the first of equals, of the first NaN if any.

    >>> int(argmax(np.array([2, 4, 3]), 0, np.int32))
    1
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(index_dtype, "argmax")
    return argmax_p.bind(operand, axes=as_ints(axis, "argmax axis"), index_dtype=dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Index of the least element along an axis; of the first of equals, of the first NaN if any.

    >>> int(argmin(np.array([2, 4, 3]), 0, np.int32))
    0
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(index_dtype, "argmin")
    return argmin_p.bind(operand, axes=as_ints(axis, "argmin axis"), index_dtype=dtype)
