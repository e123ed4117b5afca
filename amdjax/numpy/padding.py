"""`pad` in all of NumPy's modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.dims import Dim, is_symbolic_dim, min_dim, surely_equal
from amdjax.core.integers import ceil_div
from amdjax.numpy import reductions
from amdjax.numpy._util import ArrayLike, as_array, broadcast_to, convert, is_kind, strong
from amdjax.numpy.apply import apply_along_axis
from amdjax.numpy.conversion import asarray
from amdjax.numpy.ranges import linspace
from amdjax.numpy.selecting import take
from amdjax.numpy.statistics import median

_OPTIONS = {
    "constant": {"constant_values"},
    "edge": set(),
    "linear_ramp": {"end_values"},
    "maximum": {"stat_length"},
    "mean": {"stat_length"},
    "median": {"stat_length"},
    "minimum": {"stat_length"},
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    "wrap": set(),
    "empty": set(),
}

Widths = list[tuple[int, int]]


def pad(
    array: ArrayLike, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any
) -> Array:
    """`array` with a border.

    Args:
      array: array.
      pad_width: how much before and after each axis: a number, a pair, one pair an axis, or a
        dictionary from axes to these.
      mode: "constant" (with `constant_values`), "edge", "linear_ramp" (`end_values`), "maximum",
        "minimum", "mean", "median" (`stat_length`), "reflect" and "symmetric" (`reflect_type`),
        "wrap", "empty", or a function as in NumPy.
      kwargs: the option of the mode.

    Raises:
      NotImplementedError: the mode is unknown.
      ValueError: an option does not belong to the mode, or a width is negative.

        >>> jnp.pad(jnp.array([1, 2]), 1)
        Array([0, 1, 2, 0], dtype=int32)
    """
    a = as_array("pad", array)
    return convert(_padded(a, pad_width, mode, kwargs), a.dtype, a.weak_type)


def _padded(a: Array, pad_width: Any, mode: str | Callable[..., Any], kwargs: Any) -> Array:
    widths = _pairs(pad_width, a.ndim, "pad_width")
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError("index can't contain negative values")
    if callable(mode):
        return _by_function(a, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad.")
    unknown = set(kwargs) - _OPTIONS[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {sorted(unknown)}")
    if mode == "empty":
        mode = "constant"
    if mode == "constant":
        return _constant(a, widths, kwargs.get("constant_values", 0))
    for axis, (before, after) in enumerate(widths):
        if surely_equal(before, 0) and surely_equal(after, 0):
            continue
        if not a.shape[axis]:
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant'")
        a = _extend(a, axis, before, after, mode, kwargs)
    return a


def _pairs(value: Any, rank: int, name: str) -> Widths:
    if isinstance(value, dict):
        full: Any = [(0, 0)] * rank
        for axis, width in value.items():
            full[axis] = (width, width) if np.ndim(width) == 0 else tuple(width)
        value = full
    pairs = np.asarray(value)
    symbolic = pairs.dtype == object and all(isinstance(n, (int, Dim)) for n in pairs.ravel())
    if pairs.dtype.kind not in "iu" and pairs.size and not symbolic:
        raise TypeError(f"`{name}` must be of integral type, got {value}.")
    try:
        return [tuple(p) for p in np.broadcast_to(pairs, (rank, 2)).tolist()]
    except ValueError:
        raise ValueError(
            f"jnp.pad: {name} with {value} is not broadcastable to shape ({rank}, 2)"
        ) from None


def _values(value: Any, rank: int, dtype: Any) -> list[tuple[Any, Any]]:
    """One value before and one after each axis; they may be traced."""
    if not isinstance(value, (list, tuple)) and np.ndim(value) == 0:
        x = convert(value, dtype)
        return [(x, x)] * rank
    full = broadcast_to(convert(asarray(value), dtype), (rank, 2))
    return [(full[i, 0], full[i, 1]) for i in range(rank)]


def _constant(a: Array, widths: Widths, values: Any) -> Array:
    pairs = _values(values, a.ndim, a.dtype)
    if all(before is after for before, after in pairs) and len({id(b) for b, _ in pairs}) < 2:
        if not a.ndim:
            return a
        return lax.pad(a, pairs[0][0], [(before, after, 0) for before, after in widths])
    for axis, ((before, after), (first, last)) in enumerate(zip(widths, pairs)):
        config = [(0, 0, 0)] * a.ndim
        config[axis] = (before, 0, 0)
        a = lax.pad(a, first, config)
        config[axis] = (0, after, 0)
        a = lax.pad(a, last, config)
    return a


def _extend(a: Array, axis: int, before: int, after: int, mode: str, options: Any) -> Array:
    if mode == "edge":
        n = a.shape[axis]
        return _join(_repeat(_part(a, axis, 0, 1), axis, before), a,
                     _repeat(_part(a, axis, n - 1, n), axis, after), axis)  # fmt: skip
    if mode in ("reflect", "symmetric"):
        odd = options.get("reflect_type", "even")
        if odd not in ("even", "odd"):
            raise ValueError(f"reflect_type must be 'even' or 'odd', got {odd!r}")
        return _mirror(a, axis, before, after, mode == "reflect", odd == "odd")
    if mode == "wrap":
        return _wrap(a, axis, before, after)
    if mode == "linear_ramp":
        return _ramp(a, axis, before, after, options.get("end_values", 0))
    return _statistic(a, axis, before, after, mode, options.get("stat_length"))


def _part(a: Array, axis: int, lo: int, hi: int) -> Array:
    return lax.slice_in_dim(a, lo, hi, axis=axis)


def _repeat(edge: Array, axis: int, n: int) -> Array:
    return broadcast_to(edge, tuple(n if i == axis else s for i, s in enumerate(edge.shape)))


def _join(first: Array, a: Array, last: Array, axis: int) -> Array:
    parts = [p for p in (first, a, last) if not surely_equal(p.shape[axis], 0)]
    return lax.concatenate(parts, axis) if len(parts) > 1 else parts[0]


def _mirror(a: Array, axis: int, before: int, after: int, reflect: bool, odd: bool) -> Array:
    """Reflected again and again, each time what is there by then, until both sides are wide."""
    own = 1 if reflect else 0
    if a.shape[axis] == 1 and reflect:
        return _extend(a, axis, before, after, "edge", {})
    result = a
    for width, at_start in ((before, True), (after, False)):
        length = a.shape[axis]
        while width > 0:
            n = result.shape[axis]
            step = min(width, length - own)
            if at_start:
                part, edge = _part(result, axis, own, own + step), _part(result, axis, 0, 1)
            else:
                part = _part(result, axis, n - own - step, n - own)
                edge = _part(result, axis, n - 1, n)
            part = lax.rev(part, (axis,))
            if odd:
                twice = lax.mul(_repeat(edge, axis, step), np.asarray(2, a.dtype))
                part = lax.sub(twice, part)
            result = lax.concatenate([part, result] if at_start else [result, part], axis)
            width -= step
            length = a.shape[axis]
    return result


def _wrap(a: Array, axis: int, before: int, after: int) -> Array:
    n = a.shape[axis]
    left, right = ceil_div(before, n), ceil_div(after, n)
    if is_symbolic_dim(left) or is_symbolic_dim(right):
        places = lax.iota(np.dtype("int32"), before + n + after)
        return take(a, lax.sub(places, strong(places, before)), axis, mode="wrap")
    tiled = lax.concatenate([a] * (left + 1 + right), axis) if left + right else a
    start = left * n - before
    return _part(tiled, axis, start, start + before + n + after)


def _ramp(a: Array, axis: int, before: int, after: int, ends: Any) -> Array:
    first, last = _values(ends, a.ndim, a.dtype)[axis]
    n = a.shape[axis]
    edge = lambda i: lax.squeeze(_part(a, axis, i, i + 1), (axis,))
    ramp = lambda end, at, k: linspace(end, edge(at), k, endpoint=False, dtype=a.dtype, axis=axis)
    parts = []
    if before:
        parts.append(ramp(first, 0, before))
    parts.append(a)
    if after:
        parts.append(lax.rev(ramp(last, n - 1, after), (axis,)))
    return lax.concatenate(parts, axis)


def _statistic(a: Array, axis: int, before: int, after: int, mode: str, length: Any) -> Array:
    fn: Any = {
        "maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean,
        "median": median,
    }[mode]  # fmt: skip
    n = a.shape[axis]
    lengths = (n, n) if length is None else _pairs(length, a.ndim, "stat_length")[axis]
    if any(k < 1 for k in lengths):
        raise ValueError("stat_length of 0 yields no value for padding")
    first = fn(_part(a, axis, 0, min_dim(lengths[0], n)), axis, keepdims=True)
    last = fn(_part(a, axis, n - min_dim(lengths[1], n), n), axis, keepdims=True)
    if is_kind(a.dtype, np.integer):
        first, last = (
            lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN) if is_kind(x.dtype, np.floating) else x
            for x in (first, last)
        )
    first, last = convert(first, a.dtype), convert(last, a.dtype)
    return _join(_repeat(first, axis, before), a, _repeat(last, axis, after), axis)


def _by_function(a: Array, widths: Widths, fn: Callable[..., Any], options: Any) -> Array:
    padded = _constant(a, widths, 0)
    for axis, width in enumerate(widths):
        padded = apply_along_axis(fn, axis, padded, width, axis, options)
    return padded
