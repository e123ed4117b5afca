"""Operations on whole arrays with NumPy.

A rule is a function of the equation and its operands; NotImplemented where it does not know how.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.dtypes import iinfo, issubdtype
from amdjax.core.jaxpr import JaxprEqn

ARRAYS: dict[str, Callable[..., Any]] = {}


def _rule(*names: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        ARRAYS.update((name, function) for name in names)
        return function

    return register


def _summable(x: np.ndarray) -> np.ndarray:
    """Numbers whose sums are exact, or of float64; integers of 64 bits wrap as they do."""
    if issubdtype(x.dtype, np.complexfloating):
        return x.astype(np.complex128)
    is_float = issubdtype(x.dtype, np.floating)
    return x.astype(np.float64 if is_float else x.dtype if x.dtype.itemsize > 4 else np.int64)


def _lowest(dtype: Any) -> Any:
    if issubdtype(dtype, np.floating):
        return -np.inf
    return False if dtype == np.bool_ else int(iinfo(dtype).min)


def _highest(dtype: Any) -> Any:
    if issubdtype(dtype, np.floating):
        return np.inf
    return True if dtype == np.bool_ else int(iinfo(dtype).max)


# Movement


@_rule("broadcast_in_dim")
def _broadcast(eqn: JaxprEqn, x: Any, *sizes: Any) -> Any:
    shape, axes = eqn.outvars[0].aval.shape, eqn.params["broadcast_dimensions"]
    spread = [1] * len(shape)
    for axis, n in zip(axes, x.shape):
        spread[axis] = n
    return np.broadcast_to(x.reshape(spread), shape)


@_rule("reshape", "squeeze")
def _reshape(eqn: JaxprEqn, x: Any, *sizes: Any) -> Any:
    return x.reshape(eqn.outvars[0].aval.shape)


@_rule("transpose")
def _transpose(eqn: JaxprEqn, x: Any) -> Any:
    return x.transpose(eqn.params["permutation"])


@_rule("rev")
def _rev(eqn: JaxprEqn, x: Any) -> Any:
    return np.flip(x, eqn.params["dimensions"])


@_rule("tile")
def _tile(eqn: JaxprEqn, x: Any) -> Any:
    return np.tile(x, eqn.params["reps"])


@_rule("concatenate")
def _concatenate(eqn: JaxprEqn, *xs: Any) -> Any:
    return np.concatenate(xs, eqn.params["dimension"])


@_rule("slice")
def _slice(eqn: JaxprEqn, x: Any) -> Any:
    p = eqn.params
    steps = p["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], steps))]


@_rule("iota")
def _iota(eqn: JaxprEqn, *sizes: Any) -> Any:
    aval, axis = eqn.outvars[0].aval, eqn.params["dimension"]
    count = np.arange(aval.shape[axis])
    return np.broadcast_to(count.reshape([-1 if i == axis else 1 for i in range(aval.ndim)]),
                           aval.shape)  # fmt: skip


@_rule("empty")
def _empty(eqn: JaxprEqn, *sizes: Any) -> Any:
    return np.zeros(eqn.outvars[0].aval.shape)


@_rule("pad")
def _pad(eqn: JaxprEqn, x: Any, value: Any) -> Any:
    return padded(x, eqn.params["padding_config"], value)


def padded(x: Any, config: Sequence[tuple[int, int, int]], value: Any) -> Any:
    """An array with others around and between its elements; what is negative cuts."""
    for axis, (low, high, inner) in enumerate(config):
        n = x.shape[axis]
        shape = [*x.shape]
        shape[axis] = max(n + max(n - 1, 0) * inner, 0)
        spread = np.full(shape, value, x.dtype)
        at = [slice(None)] * x.ndim
        at[axis] = slice(None, None, inner + 1)
        spread[tuple(at)] = x
        around = [(0, 0)] * x.ndim
        around[axis] = max(low, 0), max(high, 0)
        x = np.pad(spread, around, constant_values=value)
        at[axis] = slice(max(-low, 0), x.shape[axis] - max(-high, 0))
        x = x[tuple(at)]
    return x


@_rule("bitcast_convert_type")
def _bitcast(eqn: JaxprEqn, x: Any) -> Any:
    was, new = eqn.invars[0].aval, eqn.outvars[0].aval
    if was.shape != new.shape or was.dtype != x.dtype:
        return NotImplemented
    return np.ascontiguousarray(x).view(new.dtype).reshape(new.shape)


@_rule("dynamic_slice")
def _dynamic_slice(eqn: JaxprEqn, x: Any, *starts: Any) -> Any:
    return x[_window(x.shape, eqn.params["slice_sizes"], starts)]


@_rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: JaxprEqn, x: Any, update: Any, *starts: Any) -> Any:
    result = x.copy()
    result[_window(x.shape, update.shape, starts)] = update
    return result


def _window(shape: Any, sizes: Any, starts: Any) -> tuple[slice, ...]:
    first = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes)]
    return tuple(slice(s, s + k) for s, k in zip(first, sizes))


# Reductions


@_rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or",
       "reduce_xor")  # fmt: skip
def _reduce(eqn: JaxprEqn, x: Any) -> Any:
    axes, name = tuple(eqn.params["axes"]), eqn.primitive.name[len("reduce_") :]
    if name in ("sum", "prod"):
        return getattr(np, name)(_summable(x), axis=axes)
    function = {"max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
                "or": np.bitwise_or, "xor": np.bitwise_xor}[name]  # fmt: skip
    first = {"max": _lowest, "min": _highest, "and": lambda t: -1, "or": lambda t: 0,
             "xor": lambda t: 0}[name](x.dtype)  # fmt: skip
    if x.dtype == np.bool_:
        first = name in ("and", "min")
    return function.reduce(x, axis=axes, initial=np.array(first).astype(x.dtype))


@_rule("argmax", "argmin")
def _arg(eqn: JaxprEqn, x: Any) -> Any:
    (axis,) = eqn.params["axes"]
    wide = x.astype(np.float64) if issubdtype(x.dtype, np.floating) else x
    return getattr(np, eqn.primitive.name)(wide, axis)


@_rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(eqn: JaxprEqn, x: Any) -> Any:
    axis, is_reversed = eqn.params["axis"], eqn.params["reverse"]
    function = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum,
                "cummin": np.minimum, "cumlogsumexp": np.logaddexp}[eqn.primitive.name]  # fmt: skip
    x = _summable(x)
    x = np.flip(x, axis) if is_reversed else x
    made = function.accumulate(x, axis=axis)
    return np.flip(made, axis) if is_reversed else made


@_rule("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def _reduce_window(eqn: JaxprEqn, x: Any) -> Any:
    p, shape = eqn.params, eqn.outvars[0].aval.shape
    name = eqn.primitive.name.rpartition("_")[2]
    first = {"max": _lowest, "min": _highest, "sum": lambda t: 0}[name](x.dtype)
    function = {"max": np.maximum, "min": np.minimum, "sum": np.add}[name]
    x = _summable(x) if name == "sum" else x
    config = [(lo, hi, d - 1) for (lo, hi), d in zip(p["padding"], p["base_dilation"])]
    x = padded(x, config, np.array(first).astype(x.dtype))
    made = np.full(shape, first, x.dtype)
    for tap in itertools.product(*map(range, p["window_dimensions"])):
        made = function(made, x[_taken(tap, p["window_dilation"], p["window_strides"], shape)])
    return made


def _taken(tap: Any, dilation: Any, strides: Any, shape: Any) -> tuple[slice, ...]:
    """What a tap of a window sees at all its places."""
    return tuple(
        slice(t * d, t * d + (n - 1) * s + 1 if n else 0, s)
        for t, d, s, n in zip(tap, dilation, strides, shape)
    )


# Products


@_rule("dot_general")
def _dot(eqn: JaxprEqn, x: Any, y: Any) -> Any:
    (xc, yc), (xb, yb) = eqn.params["dimension_numbers"]
    x, y = map(_multipliable, (x, y))
    free = [[i for i in range(a.ndim) if i not in (*c, *b)]
            for a, c, b in ((x, xc, xb), (y, yc, yb))]  # fmt: skip
    lead = [x.shape[i] for i in xb]
    depth = math.prod(x.shape[i] for i in xc)
    rows, columns = ([a.shape[i] for i in f] for a, f in zip((x, y), free))
    left = x.transpose(*xb, *free[0], *xc).reshape(*lead, math.prod(rows), depth)
    right = y.transpose(*yb, *yc, *free[1]).reshape(*lead, depth, math.prod(columns))
    return (left @ right).reshape(*lead, *rows, *columns)


def _multipliable(x: Any) -> Any:
    """Integers of 16 bits have exact products and sums in float64, which is faster."""
    if issubdtype(x.dtype, np.integer) and x.dtype.itemsize <= 2:
        return x.astype(np.float64)
    return _summable(x)


@_rule("conv_general_dilated")
def _conv(eqn: JaxprEqn, x: Any, w: Any) -> Any:
    p = eqn.params
    if p["batch_group_count"] != 1:
        return NotImplemented
    numbers, groups = p["dimension_numbers"], p["feature_group_count"]
    result = eqn.outvars[0].aval.shape
    x = _multipliable(x).transpose(numbers.lhs_spec)
    w = _multipliable(w).transpose(numbers.rhs_spec)
    turned = (d for d, is_turned in enumerate(p.get("window_reversal", ()), 2) if is_turned)
    w = np.flip(w, tuple(turned))
    size = [result[i] for i in numbers.out_spec[2:]]
    config = [(lo, hi, d - 1) for (lo, hi), d in zip(p["padding"], p["lhs_dilation"])]
    x = padded(x, [(0, 0, 0), (0, 0, 0), *config], 0)
    images, depth, features = x.shape[0], w.shape[1], w.shape[0] // groups
    made = np.zeros((images, groups, features, math.prod(size)), np.result_type(x, w))
    for tap in itertools.product(*map(range, w.shape[2:])):
        at = _taken(tap, p["rhs_dilation"], p["window_strides"], size)
        seen = x[(slice(None), slice(None), *at)].reshape(images, groups, depth, -1)
        made += w[(slice(None), slice(None), *tap)].reshape(groups, features, depth) @ seen
    made = made.reshape(images, groups * features, *size)
    return made.transpose(np.argsort(numbers.out_spec))


# Positions


class Windows(NamedTuple):
    """Windows of an array that positions name: what gathers read and scatters write.

    Args:
      sizes: along the axes of the array.
      within: axes of the windows, side by side, that are inside of one.
      alone: axes of the array that these leave out, of size one.
      named: axes of the array that positions tell.
      batched: axes of the array, and of the positions, that go together.
    """

    sizes: Sequence[int]
    within: Sequence[int]
    alone: Sequence[int]
    named: Sequence[int]
    batched: tuple[Sequence[int], Sequence[int]]

    def places(self, x: Any, indices: Any) -> tuple[tuple[Any, ...], Any]:
        """For every element of the windows its place in `x`, and whether its window is inside."""
        lead = indices.shape[:-1]
        rank = len(lead) + len(self.within)
        outer = [axis for axis in range(rank) if axis not in self.within]

        def spread(values: Any, axes: Sequence[int]) -> Any:
            shape = [1] * rank
            for axis, n in zip(axes, values.shape):
                shape[axis] = n
            return values.reshape(shape)

        starts = {axis: np.zeros((1,) * len(lead), np.int64) for axis in range(x.ndim)}
        inside = np.ones(lead, bool)
        for k, axis in enumerate(self.named):
            start = indices[..., k].astype(np.int64)
            room = x.shape[axis] - self.sizes[axis]
            inside &= (start >= 0) & (start <= room)
            starts[axis] = np.clip(start, 0, max(room, 0))
        for axis, spot in zip(*self.batched):
            shape = [-1 if i == spot else 1 for i in range(len(lead))]
            starts[axis] = np.arange(lead[spot]).reshape(shape)
        inner = iter(self.within)
        places = []
        for axis in range(x.ndim):
            at = spread(starts[axis], outer)
            if axis not in self.alone:
                at = at + spread(np.arange(self.sizes[axis]), [next(inner)])
            places.append(at)
        return tuple(places), spread(inside, outer)


@_rule("gather")
def _gather(eqn: JaxprEqn, x: Any, indices: Any) -> Any:
    p, shape = eqn.params, eqn.outvars[0].aval.shape
    d = p["dimension_numbers"]
    alone = (*d.collapsed_slice_dims, *d.operand_batching_dims)
    batched = d.operand_batching_dims, d.start_indices_batching_dims
    windows = Windows(p["slice_sizes"], d.offset_dims, alone, d.start_index_map, batched)
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    places, inside = windows.places(x, indices)
    made = np.broadcast_to(x[places], shape)
    if p["mode"].name != "FILL_OR_DROP":
        return made
    fill = p["fill_value"]
    if fill is None:
        kind = eqn.outvars[0].aval.dtype
        is_inexact = issubdtype(kind, np.inexact)
        is_unsigned = kind == np.bool_ or issubdtype(kind, np.unsignedinteger)
        fill = np.nan if is_inexact else _highest(kind) if is_unsigned else _lowest(kind)
    return np.where(inside, made, np.array(fill).astype(x.dtype))


_SCATTERS = {
    "scatter": None, "scatter-add": np.add, "scatter-sub": np.subtract, "scatter-mul": np.multiply,
    "scatter-max": np.maximum, "scatter-min": np.minimum,
}  # fmt: skip


@_rule(*_SCATTERS)
def _scatter(eqn: JaxprEqn, x: Any, indices: Any, updates: Any, *consts: Any) -> Any:
    p = eqn.params
    d = p["dimension_numbers"]
    alone = {*d.inserted_window_dims, *d.operand_batching_dims}
    sizes, inner = [], iter(d.update_window_dims)
    for axis in range(x.ndim):
        sizes.append(1 if axis in alone else updates.shape[next(inner)])
    batched = d.operand_batching_dims, d.scatter_indices_batching_dims
    named = d.scatter_dims_to_operand_dims
    windows = Windows(sizes, d.update_window_dims, tuple(alone), named, batched)
    result = x.astype(_summable(x).dtype) if x.dtype != np.bool_ else x.copy()
    if 0 in updates.shape:
        return result
    places, inside = windows.places(x, indices)
    if p["mode"].name == "CLIP":
        inside = np.ones_like(inside)
    kept = np.broadcast_to(inside, updates.shape)
    at = tuple(np.broadcast_to(i, updates.shape)[kept] for i in places)
    function = _SCATTERS[eqn.primitive.name]
    values = updates[kept].astype(result.dtype)
    if function is None:
        result[at] = values
    else:
        function.at(result, at, values)
    return result


# Order


@_rule("sort")
def _sort(eqn: JaxprEqn, *xs: Any) -> Any:
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    order = np.lexsort([_orderable(x) for x in reversed(xs[:keys])], axis=axis)
    return [np.take_along_axis(x, order, axis) for x in xs]


def _orderable(x: Any) -> Any:
    """Numbers that compare as `x` does: NaN last, and zeros equal."""
    if issubdtype(x.dtype, np.floating):
        return x.astype(np.float64) + 0.0
    return x


@_rule("top_k")
def _top_k(eqn: JaxprEqn, x: Any) -> Any:
    axis, k = eqn.params["axis"], eqn.params["k"]
    if issubdtype(x.dtype, np.unsignedinteger) or x.dtype == np.bool_:
        return NotImplemented
    key = _orderable(x)
    # NaN is the largest number here.
    key = np.where(np.isnan(key), -np.inf, -key) if key.dtype.kind == "f" else ~key
    order = np.argsort(key, axis=axis, kind="stable")
    order = order[tuple(slice(k) if i == axis else slice(None) for i in range(x.ndim))]
    return [np.take_along_axis(x, order, axis), order]
