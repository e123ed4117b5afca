"""Functions applied along axes; interpolation and phase unwrapping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    canonical_axis,
    constant,
    convert,
    is_kind,
    promote_dtypes,
    promote_dtypes_inexact,
    select,
)
from amdjax.numpy.arithmetic import clip, mod, true_divide
from amdjax.numpy.cumulative import cumsum, diff
from amdjax.numpy.sorting import searchsorted
from amdjax.transforms import vmap


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any
) -> Any:
    """`func1d` of every vector of `arr` along `axis`.

    >>> jnp.apply_along_axis(jnp.sum, 1, jnp.ones((2, 3)))
    Array([3., 3.], dtype=float32)
    """
    a = as_array("apply_along_axis", arr)
    axis = canonical_axis(axis, a.ndim)
    fn = lambda v: func1d(v, *args, **kwargs)
    for i in range(1, a.ndim - axis):
        fn = vmap(fn, in_axes=i, out_axes=-1)
    for _ in range(axis):
        fn = vmap(fn, in_axes=0, out_axes=0)
    return fn(a)


def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: int | Sequence[int]) -> Array:
    """`func(a, axis)` for one axis after the other, ranks kept.

    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3)), [0, 1])
    Array([[6.]], dtype=float32)
    """
    x = as_array("apply_over_axes", a)
    several: Any = (axes,) if type(axes) is int else axes
    for axis in several:
        result = func(x, axis)
        if result.ndim == x.ndim - 1:
            result = lax.expand_dims(result, (canonical_axis(axis, x.ndim),))
        if result.ndim != x.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        x = result
    return x


def interp(
    x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None, period: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Linear interpolation between samples.

    Args:
      x: where to interpolate.
      xp: where the samples were taken, in rising order.
      fp: the samples.
      left: value below `xp[0]`; None means `fp[0]`, "extrapolate" the first line.
      right: value above `xp[-1]`; None means `fp[-1]`, "extrapolate" the last line.
      period: period of `xp`, which then need not be sorted.

        >>> jnp.interp(1.5, jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0]))
        Array(15., dtype=float32)
    """
    for name, v in (("left", left), ("right", right)):
        if isinstance(v, str) and v != "extrapolate":
            raise ValueError(
                f"the only valid string value of `{name}` is 'extrapolate', but got: {v!r}"
            )
    x, xp, fp = as_arrays("interp", x, xp, fp)
    if is_kind(x.dtype, np.complexfloating) or is_kind(xp.dtype, np.complexfloating):
        raise ValueError("jnp.interp: complex x values not supported.")
    if xp.shape != fp.shape or xp.ndim != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
    zero = isinstance(period, (int, float)) and not period
    if period is not None and (np.ndim(period) or zero):
        raise ValueError(f"interp: period must be a non-zero number, got {period}.")
    if is_kind(fp.dtype, np.complexfloating):
        x, xp, _ = promote_dtypes_inexact(x, xp, lax.real(fp))
    else:
        x, xp, fp = promote_dtypes_inexact(x, xp, fp)
    known = lambda v: v if v is None or isinstance(v, str) else as_array("interp", v)
    sides = [known(left), known(right)]
    flags = (isinstance(sides[0], str), isinstance(sides[1], str))
    values = [None if isinstance(v, str) else v for v in sides]
    period = None if period is None else convert(period, x.dtype)
    return _interp(x, xp, fp, values[0], values[1], period, flags)


@composite(static_argnames="extrapolate")
def _interp(
    x: Array, xp: Array, fp: Array, left: Array | None, right: Array | None, period: Array | None,
    extrapolate: tuple[bool, bool],
) -> Array:  # fmt: skip
    if period is not None:
        period = lax.abs(period)
        x, xp = mod(x, period), mod(xp, period)
        xp, fp = lax.sort((xp, fp), num_keys=1)
        n = xp.size
        around = lambda v, shift: lax.concatenate(
            [lax.sub(v[n - 1 :], shift), v, lax.add(v[:1], shift)], 0
        )
        xp, fp = around(xp, period), around(fp, constant(fp, 0))
    i = clip(searchsorted(xp, x, side="right"), 1, xp.size - 1)
    at = lambda v, k: v.at[k].get(mode="clip")
    one = i.dtype.type(1)
    x0, x1, f0, f1 = at(xp, lax.sub(i, one)), at(xp, i), at(fp, lax.sub(i, one)), at(fp, i)
    width = lax.sub(x1, x0)
    # Two samples at one place: the step goes to the later one.
    same = lax.le(lax.abs(width), constant(width, float(dtypes.finfo(xp.dtype).tiny)))
    slope = convert(lax.div(lax.sub(x, x0), select(same, constant(width, 1), width)), f0.dtype)
    value = select(same, f0, lax.add(f0, lax.mul(slope, lax.sub(f1, f0))))
    if period is not None:
        return value
    if not extrapolate[0]:
        first = fp[0] if left is None else convert(left, fp.dtype)
        value = select(lax.lt(x, xp[0]), first, value)
    if not extrapolate[1]:
        last = fp[-1] if right is None else convert(right, fp.dtype)
        value = select(lax.gt(x, xp[-1]), last, value)
    return value


@composite(static_argnames="axis")
def unwrap(
    p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * np.pi
) -> Array:
    """Phases without jumps of more than half a `period` along `axis`.

    >>> jnp.round(jnp.unwrap(jnp.array([0.0, 6.0])), 3)
    Array([ 0.   , -0.283], dtype=float32)
    """
    p = as_array("unwrap", p)
    if is_kind(p.dtype, np.complexfloating):
        raise ValueError("jnp.unwrap does not support complex inputs.")
    x, turn = promote_dtypes(p, as_array("unwrap", period, 1))
    whole = is_kind(x.dtype, np.integer)
    axis = canonical_axis(axis, x.ndim)
    if not x.shape[axis]:
        return x
    step = diff(x, axis=axis)
    half = lax.div(turn, constant(turn, 2))
    low = lax.neg(half)
    centered = lax.add(mod(lax.sub(step, low), turn), low)
    on_edge = lax.bitwise_and(lax.eq(centered, low), lax.gt(step, constant(step, 0)))
    if whole:  # half a turn is a whole number only of even ones
        on_edge = lax.bitwise_and(
            on_edge, lax.eq(lax.rem(turn, constant(turn, 2)), constant(turn, 0))
        )
    centered = select(on_edge, half, centered)
    size = step if is_kind(step.dtype, np.unsignedinteger) else lax.abs(step)
    least, size = promote_dtypes_inexact(
        true_divide(turn, 2) if discont is None else as_array("unwrap", discont, 2), size
    )
    correction = select(lax.lt(size, least), constant(step, 0), lax.sub(centered, step))
    first = lax.slice_in_dim(x, 0, 1, axis=axis)
    rest = lax.slice_in_dim(x, 1, None, axis=axis)
    result = lax.concatenate([first, lax.add(rest, cumsum(correction, axis))], axis)
    return convert(result, x.dtype)
