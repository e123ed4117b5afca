"""Choosing between arrays, element by element: `select_n`, `select`, `clamp`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Pointwise
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    ORDERED,
    Zero,
    add_tangents,
    batch_to,
    check_dtype,
    check_same_dtype,
    dtype_of,
    filled_like,
    is_zero,
    repeat_to,
    scalar,
    shape_of,
    value_dtype,
    zero_tangent,
)
from amdjax.lax.bitwise import bitwise_and
from amdjax.lax.comparison import eq, gt, lt
from amdjax.lax.shape import broadcast_in_dim
from amdjax.transforms.zero import is_undefined_primal
from amdjax.typing import ArrayLike

__all__ = [
    "clamp", "clamp_p", "select", "select_n", "select_n_p",
]  # fmt: skip

select_n_p = Primitive("select_n")


@select_n_p.def_abstract_eval
def _select_n_type(which: Any, *cases: Any) -> ShapedArray:
    if not cases:
        raise ValueError("select_n must have at least one case.")
    if which.dtype != np.bool_ and not dtypes.issubdtype(which.dtype, np.integer):
        raise TypeError(f"select_n: `which` must be boolean or integer, got {which.dtype}.")
    if which.dtype == np.bool_ and len(cases) > 2:
        raise TypeError(f"select_n: a boolean `which` has two cases, got {len(cases)}.")
    check_same_dtype("select_n", *cases)
    if builtins.any(case.shape != cases[0].shape for case in cases):
        found = ", ".join(str(case.shape) for case in cases)
        raise TypeError(f"select_n cases must have the same shapes, got {found}.")
    if which.shape not in ((), cases[0].shape):
        raise TypeError(
            "select_n: `which` must be a scalar or have the shape of the cases, got shape "
            f"{which.shape} and cases of shape {cases[0].shape}."
        )
    weak = builtins.all(case.weak_type for case in cases)
    return ShapedArray(cases[0].shape, cases[0].dtype, weak)


@select_n_p.def_jvp
def _select_n_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    which, *cases = primals
    out = select_n(which, *cases)
    known = [t for t in tangents[1:] if not is_zero(t)]
    if not known:
        return out, zero_tangent(out)
    zeros = filled_like(known[0], 0)
    return out, select_n(which, *(zeros if is_zero(t) else t for t in tangents[1:]))


@select_n_p.def_transpose
def _select_n_transpose(ct: Any, which: Any, *cases: Any) -> list[Any]:
    def part(position: int, case: Any) -> Any:
        if not is_undefined_primal(case):
            return None
        if is_zero(ct):
            return Zero(case.aval)
        zeros = filled_like(ct, 0)
        if dtype_of(which) == np.bool_:
            pieces = (ct, zeros) if position == 0 else (zeros, ct)
            return select_n(which, *pieces)
        return select(eq(which, scalar(which, position)), ct, zeros)

    return [None, *(part(k, case) for k, case in enumerate(cases))]


@select_n_p.def_batch
def _select_n_batch(axis: Any, args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, int]:
    which, *cases = args
    chooser, *case_dims = dims
    if chooser is None and not shape_of(which):
        place = next(d for d in case_dims if d is not None)
    else:
        place = 0
    cases = [batch_to(c, d, axis.size, place) for c, d in zip(cases, case_dims)]
    if chooser is not None or shape_of(which):
        which = batch_to(which, chooser, axis.size)
        missing = len(shape_of(cases[0])) - len(shape_of(which))
        if missing:  # one choice for each example, each between whole arrays
            which = broadcast_in_dim(which, shape_of(cases[0]), (0,))
    return select_n(which, *cases), place


def _select_n(b: Any, which: Any, *cases: Any) -> Any:
    if value_dtype(which) == np.bool_:
        return b.select(which, cases[-1], cases[0])
    result = cases[-1]  # out of range: the nearest case
    for position in reversed(range(len(cases) - 1)):
        here = b.compare("le", which, b.const(position, which.dtype))
        result = b.select(here, cases[position], result)
    return result


select_n_p.lowering = Pointwise(_select_n)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Choose each element from one of several arrays.

    Args:
      which: boolean (two cases) or integer array naming the case of each element, or a scalar
        naming one for all; an integer out of range takes the nearest case.
      *cases: arrays of one shape and dtype.

    Raises:
      TypeError: if the cases differ in shape or dtype, or `which` does not fit them.

        >>> select_n(np.array([0, 1]), np.array([1, 2]), np.array([3, 4])).tolist()
        [1, 4]
    """
    return select_n_p.bind(which, *cases)


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Choose between two arrays by a boolean.

    Args:
      pred: boolean array, or a scalar.
      on_true: array to take elements from where `pred` holds.
      on_false: array of the same shape and dtype to take the others from.

    Raises:
      TypeError: if the cases differ in shape or dtype, or `pred` does not fit them.

        >>> select(np.array([True, False]), np.array([1, 2]), np.array([3, 4])).tolist()
        [1, 4]
    """
    return select_n_p.bind(pred, on_false, on_true)


clamp_p = Primitive("clamp")


@clamp_p.def_abstract_eval
def _clamp_type(low: Any, x: Any, high: Any) -> ShapedArray:
    check_dtype("clamp", x.dtype, ORDERED)
    check_same_dtype("clamp", low, x, high)
    for name, bound in (("min", low), ("max", high)):
        if bound.shape not in ((), x.shape):
            raise TypeError(
                f"clamp: {name} must be a scalar or have the shape of the operand, got "
                f"{name}.shape={bound.shape} and operand shape {x.shape}."
            )
    return ShapedArray(x.shape, x.dtype, low.weak_type and x.weak_type and high.weak_type)


@clamp_p.def_jvp
def _clamp_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    low, x, high = primals
    out = clamp(low, x, high)
    inside = bitwise_and(gt(x, low), lt(x, high))
    tangent: Any = zero_tangent(out)
    below = bitwise_and(gt(low, x), lt(low, high))  # where bounds cross, the upper one wins
    for where, t in zip((below, inside, lt(high, x)), tangents):
        if not is_zero(t):
            t = repeat_to(shape_of(x), t)
            tangent = add_tangents(tangent, select(where, t, filled_like(t, 0)))
    return out, tangent


@clamp_p.def_batch
def _clamp_batch(axis: Any, args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, int]:
    place = 0 if dims[1] is None else dims[1]
    x = batch_to(args[1], dims[1], axis.size, place)

    def bound(value: Any, dim: int | None) -> Any:
        if not shape_of(value):
            return value
        if dim is not None and len(shape_of(value)) == 1:
            return broadcast_in_dim(value, shape_of(x), (place,))
        return batch_to(value, dim, axis.size, place)

    return clamp(bound(args[0], dims[0]), x, bound(args[2], dims[2])), place


clamp_p.lowering = Pointwise(lambda b, low, x, high: b.min(b.max(x, low), high))


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Limit each element to an interval.

    Args:
      min: lower bounds, of the shape of `x` or a scalar.
      x: array of a real dtype.
      max: upper bounds, of the shape of `x` or a scalar; where they are below `min` they win.

    Returns:
      Array of the shape and dtype of `x`; NaN stays NaN.

    Raises:
      TypeError: if dtypes differ or a bound has another shape.

        >>> clamp(0.0, np.array([-1.0, 0.5, 2.0], np.float32), 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    return clamp_p.bind(min, x, max)
