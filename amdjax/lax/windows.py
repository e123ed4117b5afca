"""Reductions over windows that slide over an array (pooling), and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.dims import as_size
from amdjax.core.integers import ceil_div
from amdjax.core.lowering import Decompose, Element
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    LINEAR,
    NUMBER,
    ORDERED,
    Derivative,
    Kinds,
    Shape,
    Zero,
    as_axes,
    as_ints,
    batch_to,
    check_dtype,
    check_same_dtype,
    check_same_shape,
    dtype_of,
    insert,
    is_zero,
    jvp_from,
    scalar,
    shape_of,
    transpose_from,
    zero_tangent,
)
from amdjax.lax.comparison import ge_p, le_p
from amdjax.lax.padding import dilated, padded, pads_of_transpose, padtype_to_pads, window_counts
from amdjax.lax.reductions import highest, lowest
from amdjax.lax.slicing import pad, slice as slice_

__all__ = [
    "reduce_window_max_p", "reduce_window_min_p", "reduce_window_shape_tuple",
    "reduce_window_sum_p", "select_and_gather_add_p", "select_and_scatter_add_p",
]  # fmt: skip


def _over_windows(emit: Callable[..., Any]) -> Element:
    """The rule of an operation whose elements each see a window of the operand."""
    return Element(emit, _window_cost, reads_many=True)


def _window_cost(params: Mapping[str, Any]) -> float:
    read = math.prod(Window.of(dict(params)).steps)
    return 4.0 * min(64, read)


class Window(NamedTuple):
    """The parameters that window primitives have in common, one entry for each axis."""

    window_dimensions: Shape
    window_strides: Shape
    padding: tuple[tuple[int, int], ...]
    base_dilation: Shape
    window_dilation: Shape

    @staticmethod
    def of(params: dict[str, Any]) -> Window:
        """The window among a primitive's parameters; dilations default to 1."""
        ones = (1,) * len(params["window_dimensions"])
        return Window(**{name: params.get(name, ones) for name in Window._fields})

    def out_shape(self, shape: Shape) -> Shape:
        """Number of windows along each axis of an array of this shape."""
        base = padded(dilated(shape, self.base_dilation), self.padding)
        reach = dilated(self.window_dimensions, self.window_dilation)
        return window_counts(base, reach, self.window_strides)

    def check(self, name: str, shape: Shape) -> None:
        """Raise a TypeError unless the window fits arrays of this shape."""
        for field, values in self._asdict().items():
            if len(values) != len(shape):
                raise TypeError(
                    f"{name}: {field} must have one entry for each axis of the operand, got "
                    f"{values} for operand shape {shape}."
                )
            if field != "padding" and any(value < 1 for value in values):
                raise TypeError(
                    f"{name}: {field} must have every element be positive, got {values}."
                )

    def batched(self, dim: int) -> Window:
        """The same window for arrays with one more axis at `dim`."""
        one: list[Any] = [1, 1, (0, 0), 1, 1]
        return Window(*(insert(values, dim, entry) for values, entry in zip(self, one)))

    def read(self, b: Any, index: Any, k: Any, x: Any, otherwise: Any) -> Any:
        """Element `k` of window `index` of `x`; `otherwise` where it is padding or a hole."""
        places = [self._place(b, d, i, j) for d, (i, j) in enumerate(zip(index, k))]
        return self._read_at(b, places, x, otherwise)

    @property
    def steps(self) -> Shape:
        """How many elements of the operand a window meets along each axis, at most."""
        sizes = zip(self.window_dimensions, self.base_dilation, self.window_dilation)
        return tuple(ceil_div(n, hole) if apart == 1 else n for n, hole, apart in sizes)

    def met(self, b: Any, index: Any, k: Any, x: Any, otherwise: Any) -> Any:
        """The `k`-th of the elements of `x` that window `index` meets, holes passed over."""
        places = []
        for d, (i, j) in enumerate(zip(index, k)):
            hole = self.base_dilation[d]
            if hole == 1 or self.window_dilation[d] > 1:
                places.append(self._place(b, d, i, j))
                continue
            lead = max(0, ceil_div(self.padding[d][0], hole))
            first = i * self.window_strides[d] + (lead * hole - self.padding[d][0])
            at = (first + (hole - 1)) // hole + j
            guard = b.in_bounds(at * hole - first, self.window_dimensions[d])
            places.append((at - lead, [guard]))
        return self._read_at(b, places, x, otherwise)

    def _place(self, b: Any, d: int, i: Any, j: Any) -> tuple[Any, list[Any]]:
        """Where element `j` of window `i` lies along an axis, and what must hold for it to be."""
        low, hole = self.padding[d][0], self.base_dilation[d]
        at = i * self.window_strides[d] + j * self.window_dilation[d] - low
        if hole == 1:
            return at, []
        lead = max(0, ceil_div(low, hole))  # keeps the dividend from being negative
        at = at + lead * hole
        return at // hole - lead, [b.in_bounds(at % hole, 1)]

    @staticmethod
    def _read_at(b: Any, places: Sequence[tuple[Any, list[Any]]], x: Any, otherwise: Any) -> Any:
        guards = [
            guard
            for (at, holds), n in zip(places, x.shape)
            for guard in (*holds, b.in_bounds(at, n))
        ]
        return b.read_if(b.all_of(*guards), x, [at for at, _ in places], otherwise)


def _window_batch(primitive: Primitive) -> Callable[..., Any]:
    """Batching of primitives whose operands all have the rank of the window."""

    def batch(axis: Any, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        place = next(d for d in dims if d is not None)
        args = [batch_to(x, d, axis.size, place) for x, d in zip(args, dims)]
        moved = Window.of(params).batched(place)._asdict()
        params = {name: moved.get(name, value) for name, value in params.items()}
        return primitive.bind(*args, **params), place

    return batch


def _window_reducer(
    name: str, kinds: Kinds, combine: str, identity: Callable[[Any], Any], derivative: Derivative
) -> Primitive:
    primitive = Primitive(name)

    def abstract_eval(x: Any, **params: Any) -> ShapedArray:
        check_dtype(name, x.dtype, kinds)
        window = Window.of(params)
        window.check(name, x.shape)
        return ShapedArray(window.out_shape(x.shape), x.dtype, x.weak_type)

    def element(b: Any, index: Any, x: Any, **params: Any) -> Any:
        window = Window.of(params)
        start = b.const(identity(x.dtype), x.dtype)

        def step(k: Any, acc: Any) -> Any:
            return getattr(b, combine)(acc, window.met(b, index, k, x, start))

        return b.fold(window.steps, start, step)

    primitive.abstract_eval = abstract_eval
    primitive.lowering = _over_windows(element)
    primitive.batch = _window_batch(primitive)
    primitive.jvp = jvp_from(primitive, (derivative,))
    return primitive


def _chosen_tangent(select_prim: Primitive) -> Derivative:
    def derivative(g: Any, y: Any, x: Any, **params: Any) -> Any:
        return select_and_gather_add_p.bind(g, x, select_prim=select_prim, **params)

    return derivative


reduce_window_sum_p = _window_reducer("reduce_window_sum", NUMBER, "add", lambda dtype: 0, LINEAR)
reduce_window_max_p = _window_reducer(
    "reduce_window_max", ORDERED, "max", lowest, _chosen_tangent(ge_p)
)
reduce_window_min_p = _window_reducer(
    "reduce_window_min", ORDERED, "min", highest, _chosen_tangent(le_p)
)


def _window_sum_transpose(ct: Any, x: Any, **params: Any) -> Any:
    """Each element collects the cotangents of the windows it went into: again a window sum."""
    window = Window.of(params)
    shape = x.aval.shape
    dims, strides, pads, base_dilation, window_dilation = window
    around = pads_of_transpose(
        shape, dims, strides, shape_of(ct), pads, base_dilation, window_dilation
    )
    config = [(low, high, step - 1) for (low, high), step in zip(around, strides)]
    return reduce_window_sum_p.bind(
        pad(ct, scalar(ct, 0), config),
        window_dimensions=dims,
        window_strides=base_dilation,
        padding=((0, 0),) * len(shape),
        base_dilation=(1,) * len(shape),
        window_dilation=window_dilation,
    )


reduce_window_sum_p.transpose = transpose_from(_window_sum_transpose)


def _better(b: Any, select_prim: Primitive, new: Any, best: Any) -> Any:
    """Whether `new` replaces `best`: strictly better, or not comparable (NaN), but NaN stays."""
    keep = b.compare(select_prim.name, best, new)
    return b.and_(b.not_(keep), b.compare("eq", best, best))


def _worst(select_prim: Primitive, dtype: Any) -> Any:
    return lowest(dtype) if select_prim is ge_p else highest(dtype)


select_and_gather_add_p = Primitive("select_and_gather_add")


@select_and_gather_add_p.def_abstract_eval
def _gather_type(tangents: Any, x: Any, *, select_prim: Primitive, **params: Any) -> ShapedArray:
    check_same_shape("select_and_gather_add", tangents, x)
    window = Window.of(params)
    window.check("select_and_gather_add", x.shape)
    return ShapedArray(window.out_shape(x.shape), tangents.dtype, tangents.weak_type)


def _gather_element(
    b: Any, index: Any, tangents: Any, x: Any, *, select_prim: Primitive, **params: Any
) -> Any:
    """In each window, the tangent of the first element that is best."""
    window = Window.of(params)
    worst = b.const(_worst(select_prim, x.dtype), x.dtype)
    zero = b.const(0, tangents.dtype)

    def step(k: Any, acc: Any) -> list[Any]:
        best, tangent = acc
        value = window.read(b, index, k, x, worst)
        wins = _better(b, select_prim, value, best)
        own = window.read(b, index, k, tangents, zero)
        return [b.select(wins, value, best), b.select(wins, own, tangent)]

    return b.fold(window.window_dimensions, [worst, zero], step)[1]


def _gather_transpose(ct: Any, tangents: Any, x: Any, **params: Any) -> list[Any]:
    if is_zero(ct):
        return [Zero(tangents.aval), None]
    window = Window.of(params)
    holes = [(0, 0, step - 1) for step in window.base_dilation]
    worst = scalar(x, _worst(params["select_prim"], dtype_of(x)))
    spread = pad(x, worst, holes) if any(hole[2] for hole in holes) else x
    result = _select_and_scatter_add(ct, spread, params["select_prim"], window)
    if spread is not x:
        shape = shape_of(result)
        result = slice_(result, (0,) * len(shape), shape, window.base_dilation)
    return [result, None]


def _source_only(primitive: Primitive) -> Callable[..., Any]:
    """Derivative of operations that are linear in the first operand and locally constant in the
    second, which only says what is chosen.
    """

    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        if is_zero(tangents[0]):
            return y, zero_tangent(y)
        return y, primitive.bind(tangents[0], primals[1], **params)

    return jvp


select_and_gather_add_p.jvp = _source_only(select_and_gather_add_p)
select_and_gather_add_p.transpose = _gather_transpose
select_and_gather_add_p.batch = _window_batch(select_and_gather_add_p)
select_and_gather_add_p.lowering = _over_windows(_gather_element)


select_and_scatter_add_p = Primitive("select_and_scatter_add")


@select_and_scatter_add_p.def_abstract_eval
def _scatter_type(source: Any, x: Any, *, select_prim: Primitive, **params: Any) -> ShapedArray:
    check_same_dtype("select_and_scatter_add", source, x)
    window = Window.of(params)
    window.check("select_and_scatter_add", x.shape)
    expected = window.out_shape(x.shape)
    if source.shape != expected:
        raise TypeError(
            f"select_and_scatter_add: source must have one element for each window, {expected}, "
            f"got {source.shape}."
        )
    return ShapedArray(x.shape, x.dtype, source.weak_type and x.weak_type)


def _scatter_transpose(ct: Any, source: Any, x: Any, **params: Any) -> list[Any]:
    if is_zero(ct):
        return [Zero(source.aval), None]
    window = Window.of(params)._asdict()
    params = {"select_prim": params["select_prim"], **window}
    return [select_and_gather_add_p.bind(ct, x, **params), None]


def _select_and_scatter_add(source: Any, x: Any, select_prim: Primitive, window: Window) -> Any:
    dilated_window = any(step != 1 for step in window.window_dilation)
    return select_and_scatter_add_p.bind(
        source, x, select_prim=select_prim, window_dimensions=window.window_dimensions,
        window_strides=window.window_strides, padding=window.padding,
        **({"window_dilation": window.window_dilation} if dilated_window else {}),
    )  # fmt: skip


# The gradient of max pooling, without scattering: one pass finds the winner of each window, a
# second lets every element of the operand look at the few windows that cover it. Both run in
# parallel over their outputs and add in a fixed order.
window_winner_p = Primitive("window_winner")
winners_scatter_add_p = Primitive("winners_scatter_add")


@window_winner_p.def_abstract_eval
def _winner_type(x: Any, **params: Any) -> ShapedArray:
    window = Window.of(params)
    return ShapedArray(window.out_shape(x.shape), _place_dtype(window))


def _place_dtype(window: Window) -> np.dtype:
    """Of places within a window: a byte where that will do, for all are stored."""
    size = math.prod(window.window_dimensions)
    return np.dtype(np.uint8 if isinstance(size, int) and size <= 256 else np.int32)


def _winner_element(b: Any, index: Any, x: Any, *, select_prim: Primitive, **params: Any) -> Any:
    """Row-major position, within each window, of the first element that is best."""
    window = Window.of(params)
    dims = window.window_dimensions
    worst = b.const(_worst(select_prim, x.dtype), x.dtype)
    # If all are equally bad, the first element that is not padding wins.
    first = [
        b.clamp_index((low - i * step + (d - 1)) // d, 0, n - 1) if low > 0 else 0
        for i, n, (low, _), step, d in zip(
            index, dims, window.padding, window.window_strides, window.window_dilation
        )
    ]

    def step(k: Any, acc: Any) -> list[Any]:
        best, winner = acc
        value = window.read(b, index, k, x, worst)
        wins = _better(b, select_prim, value, best)
        here = b.index_value(b.linear(k, dims), np.dtype(np.int32))
        return [b.select(wins, value, best), b.select(wins, here, winner)]

    start = b.index_value(b.linear(first, dims), np.dtype(np.int32))
    return b.convert(b.fold(dims, [worst, start], step)[1], _place_dtype(window))


@window_winner_p.def_jvp
def _winner_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    winner = window_winner_p.bind(*primals, **params)
    return winner, zero_tangent(winner)


@winners_scatter_add_p.def_abstract_eval
def _winners_type(source: Any, winners: Any, *, shape: Shape, **_: Any) -> ShapedArray:
    return ShapedArray(shape, source.dtype)


def _winners_element(
    b: Any, index: Any, source: Any, winners: Any, *, shape: Shape, **params: Any
) -> Any:
    window = Window.of(params)
    dims, strides = window.window_dimensions, window.window_strides
    zero = b.const(0, source.dtype)

    def step(back: Any, acc: Any) -> Any:
        guards, windows, inside = [], [], []
        for d, i in enumerate(index):
            low = window.padding[d][0]
            lead = max(0, -(low // strides[d]))  # keeps the dividend from being negative
            at = i + (low + lead * strides[d])
            o = at // strides[d] - lead - back[d]
            k = at % strides[d] + back[d] * strides[d]
            if (step := window.window_dilation[d]) > 1:
                guards.append(b.in_bounds(k % step, 1))
                k = k // step
            guards += [b.in_bounds(o, source.shape[d]), b.in_bounds(k, dims[d])]
            windows.append(o)
            inside.append(k)
        guard = b.all_of(*guards)
        whole = np.dtype(np.int32)
        own = b.index_value(b.linear(inside, dims), whole)
        winner = b.when(
            guard, lambda: b.convert(b.read(winners, windows), whole), lambda: b.const(-1, whole)
        )
        won = b.compare("eq", winner, own)
        return b.add(acc, b.select(won, b.read_if(guard, source, windows, zero), zero))

    reach = dilated(dims, window.window_dilation)
    covering = [ceil_div(n, stride) for n, stride in zip(reach, strides)]
    return b.fold(covering, zero, step)


def _scatter_decomposed(source: Any, x: Any, **params: Any) -> Any:
    winners = window_winner_p.bind(x, **params)
    del params["select_prim"]
    return winners_scatter_add_p.bind(source, winners, shape=shape_of(x), **params)


window_winner_p.batch = _window_batch(window_winner_p)
window_winner_p.lowering = _over_windows(_winner_element)
winners_scatter_add_p.lowering = _over_windows(_winners_element)
select_and_scatter_add_p.jvp = _source_only(select_and_scatter_add_p)
select_and_scatter_add_p.transpose = _scatter_transpose
select_and_scatter_add_p.batch = _window_batch(select_and_scatter_add_p)
select_and_scatter_add_p.lowering = Decompose(_scatter_decomposed)


def make_window(
    shape: Shape,
    dims: Shape,
    strides: Sequence[int] | None,
    padding: str | Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None,
    window_dilation: Sequence[int] | None,
) -> Window:
    def default(values: Sequence[int] | None, name: str) -> Shape:
        return (1,) * len(dims) if values is None else as_ints(values, f"reduce_window {name}")

    strides = default(strides, "window_strides")
    window_dilation = default(window_dilation, "window_dilation")
    if isinstance(padding, str):
        reach = dilated(dims, window_dilation)
        pads = tuple(padtype_to_pads(shape, reach, strides, padding))
    else:
        pads = tuple((as_size(low), as_size(high)) for low, high in padding)
    window = Window(dims, strides, pads, default(base_dilation, "base_dilation"), window_dilation)
    window.check("reduce_window", shape)
    return window


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Shape:
    """The shape of a windowed reduction.

    Args:
      operand_shape: shape of the operand, of rank n.
      window_strides: n steps of the window.
      padding: n pairs of elements of padding.
      base_dilation: n distances between neighbors in the operand; 1 where omitted.

    Returns:
      The number of windows along each axis.

    Raises:
      ValueError: if the window does not have the operand's rank.

        >>> reduce_window_shape_tuple((5, 4), (2, 2), (1, 2), ((0, 0), (0, 0)))
        (4, 2)
    """
    shape = tuple(operand_shape)
    dims = as_axes(window_dimensions, "window_dimensions")
    for name, given in (("window_dimensions", dims), ("padding", padding)):
        if len(given) != len(shape):
            raise ValueError(
                f"reduce_window_shape_tuple: {name} must have one entry for each axis of "
                f"{shape}, got {given}."
            )
    return make_window(
        shape, dims, window_strides, padding, base_dilation, window_dilation
    ).out_shape(shape)
