"""Running sums, products, extrema and log-sum-exps along an axis."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Shaped
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    INEXACT,
    LINEAR,
    NUMBER,
    check_dtype,
    is_complex,
    is_zero,
    jvp_from,
    scalar,
    shape_of,
    zero_tangent,
)
from amdjax.lax.complexes import real
from amdjax.lax.control_flow.associative import associative_scan
from amdjax.lax.elementary import exp
from amdjax.lax.elementwise import add, max, min, mul, sub
from amdjax.lax.filling import full_like
from amdjax.lax.rounding import is_finite
from amdjax.lax.selection import select
from amdjax.lax.slicing import pad
from amdjax.transforms.forward import jvp_flat

__all__ = [
    "cumlogsumexp", "cumlogsumexp_p", "cummax", "cummax_p", "cummin", "cummin_p", "cumprod",
    "cumprod_p", "cumsum", "cumsum_p",
]  # fmt: skip


def _bind(prim: Primitive, operand: Any, axis: int, reverse: bool) -> Any:
    axis, rank = operator.index(axis), len(shape_of(operand))
    if not 0 <= axis < rank:
        raise ValueError(
            f"{prim.name} axis must lie in [0, {rank}) for an array of shape "
            f"{shape_of(operand)}, got {axis}."
        )
    return prim.bind(operand, axis=axis, reverse=bool(reverse))


def _cumulative(name: str, kinds, op: str) -> Primitive:
    prim = Primitive(name)

    @prim.def_abstract_eval
    def abstract_eval(operand, *, axis, reverse):
        check_dtype(name, operand.dtype, kinds)
        return ShapedArray(operand.shape, operand.dtype, operand.weak_type)

    @prim.def_batch
    def batch(axis_data, args, dims, *, axis, reverse):
        (operand,), (dim,) = args, dims
        return prim.bind(operand, axis=axis + (dim <= axis), reverse=reverse), dim

    prim.lowering = Shaped("cumulative", op=op)
    return prim


cumsum_p = _cumulative("cumsum", NUMBER, "add")


cumsum_p.jvp = jvp_from(cumsum_p, (LINEAR,))


@cumsum_p.def_transpose
def _cumsum_transpose(ct, operand, *, axis, reverse):
    return [cumsum_p.bind(ct, axis=axis, reverse=not reverse)]


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The sums of all elements up to each position along an axis.

    >>> lax.cumsum(np.arange(1, 5, dtype=np.int32), reverse=True).tolist()
    [10, 9, 7, 4]
    """
    return _bind(cumsum_p, operand, axis, reverse)


cumprod_p = _cumulative("cumprod", NUMBER, "mul")


@cumprod_p.def_jvp
def _cumprod_jvp(primals, tangents, *, axis, reverse):
    (x,), (t,) = primals, tangents
    y = cumprod_p.bind(x, axis=axis, reverse=reverse)
    if is_zero(t):
        return y, zero_tangent(y)
    # y[i] = x[i] y[i-1]. No division: elements may be zero.
    return y, _recurrence(x, mul(t, _previous(y, 1, axis, reverse)), axis, reverse)


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The products of all elements up to each position along an axis.

    >>> lax.cumprod(np.arange(1, 5, dtype=np.int32)).tolist()
    [1, 2, 6, 24]
    """
    return _bind(cumprod_p, operand, axis, reverse)


cumlogsumexp_p = _cumulative("cumlogsumexp", INEXACT, "logaddexp")


@cumlogsumexp_p.def_jvp
def _cumlogsumexp_jvp(primals, tangents, *, axis, reverse):
    (x,), (t,) = primals, tangents
    y = cumlogsumexp_p.bind(x, axis=axis, reverse=reverse)
    if is_zero(t):
        return y, zero_tangent(y)
    # exp(y[i]) = exp(x[i]) + exp(y[i-1]), divided by exp(y[i]).
    kept = exp(sub(_previous(y, 0, axis, reverse), _without_infinities(y)))
    share = exp(sub(x, _without_infinities(y)))
    return y, _recurrence(kept, mul(t, share), axis, reverse)


def _without_infinities(x: Any) -> Any:
    return select(is_finite(real(x) if is_complex(x) else x), x, full_like(x, 0))


def _previous(x: Any, first: Any, axis: int, reverse: bool) -> Any:
    """`x` moved on by one position along `axis`, with `first` moving in."""
    pads = [(0, 0, 0)] * len(shape_of(x))
    pads[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return pad(x, scalar(x, first), pads)


def _recurrence(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    """The solution of `d[i] = a[i] d[i-1] + b[i]` along an axis; linear in `b`."""

    def join(left, right):
        (a1, b1), (a2, b2) = left, right
        return mul(a1, a2), add(mul(a2, b1), b2)

    _, solution = associative_scan(join, (a, b), reverse=reverse, axis=axis)
    return solution


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """`log(cumsum(exp(x)))` along an axis, without overflow.

    Args:
      operand: an array of a floating or complex dtype.

    Raises:
      TypeError: for another dtype.
      ValueError: if `axis` is out of range.

        >>> print(lax.cumlogsumexp(np.zeros(3, np.float32)).round(3))
        [0.    0.693 1.099]
    """
    return _bind(cumlogsumexp_p, operand, axis, reverse)


cummax_p = _cumulative("cummax", NUMBER, "max")
cummin_p = _cumulative("cummin", NUMBER, "min")


def _running_extremum_jvp(prim, extremum, primals, tangents, *, axis, reverse):
    # Where elements tie, each comparison of the tree of a parallel scan halves the tangents.
    def tree(x):
        return [associative_scan(extremum, x, reverse=reverse, axis=axis)]

    (_,), (tangent,) = jvp_flat(tree, primals, tangents)
    return prim.bind(*primals, axis=axis, reverse=reverse), tangent


cummax_p.def_jvp(partial(_running_extremum_jvp, cummax_p, max))
cummin_p.def_jvp(partial(_running_extremum_jvp, cummin_p, min))


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The greatest element up to each position along an axis; NaN from the first NaN on.

    >>> lax.cummax(np.array([2, 1, 5, 3], np.int32)).tolist()
    [2, 2, 5, 5]
    """
    return _bind(cummax_p, operand, axis, reverse)


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The least element up to each position along an axis; NaN from the first NaN on.

    >>> lax.cummin(np.array([2, 1, 5, 3], np.int32)).tolist()
    [2, 1, 1, 1]
    """
    return _bind(cummin_p, operand, axis, reverse)
