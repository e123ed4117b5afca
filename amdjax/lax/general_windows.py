"""Reductions over windows by any computation: `reduce_window`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.lax._rules import (
    as_ints,
    batch_to,
    check_same_dtype,
    check_same_shape,
    map_examples,
    shape_of,
)
from amdjax.lax.general_reductions import (
    as_weak_as,
    elementwise_computation,
    monoid_name,
    starts_from,
    trace_binary,
)
from amdjax.lax.reductions import highest, lowest
from amdjax.lax.shape import broadcast
from amdjax.lax.slicing import pad, slice as slice_
from amdjax.lax.windows import (
    Window,
    make_window,
    reduce_window_max_p,
    reduce_window_min_p,
    reduce_window_sum_p,
)
from amdjax.transforms.forward import jvp_flat

__all__ = ["reduce_window", "reduce_window_p"]

reduce_window_p = Primitive("reduce_window", multiple_results=True)


@reduce_window_p.def_abstract_eval
def _reduce_window_type(
    *avals: Any, jaxpr: ClosedJaxpr, consts: tuple[()], **params: Any
) -> list[ShapedArray]:
    operands, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
    check_same_shape("reduce_window", *operands)
    for x, init in zip(operands, inits):
        check_same_dtype("reduce_window", x, init)
        if init.shape:
            raise TypeError(
                "reduce_window expected init_values to be scalars but init_values have shapes "
                f"{[v.shape for v in inits]}."
            )
    out: Any
    for x, out in zip(operands, jaxpr.out_avals):
        if (out.shape, out.dtype) != ((), x.dtype):
            raise TypeError(
                "reduce_window: the computation must return scalars of the operands' dtypes, got "
                f"{out} for an operand of dtype {x.dtype}."
            )
    window = Window.of(params)
    window.check("reduce_window", operands[0].shape)
    shape = window.out_shape(operands[0].shape)
    return [
        ShapedArray(shape, x.dtype, x.weak_type and init.weak_type)
        for x, init in zip(operands, inits)
    ]


def _reduce_window_by_axis(
    *args: Any, jaxpr: ClosedJaxpr, consts: tuple[()], **params: Any
) -> list[Any]:
    """Reduce the windows along one axis after another, the last first.

    That keeps the elements of a window in order, so an associative computation gives the same,
    and takes as many combinations as the window's sizes add up to, not as they multiply to.
    """
    window = Window.of(params)
    xs, inits = list(args[: len(args) // 2]), args[len(args) // 2 :]
    combine = elementwise_computation(jaxpr)
    holes = [
        (low, high, step - 1) for (low, high), step in zip(window.padding, window.base_dilation)
    ]
    xs = [pad(x, init, holes) for x, init in zip(xs, inits)]
    counts = window.out_shape(shape_of(args[0]))
    for d in reversed(range(len(counts))):
        acc: list[Any] = []
        for k in range(window.window_dimensions[d]):
            start = k * window.window_dilation[d]
            pieces = [_every(x, d, start, counts[d], window.window_strides[d]) for x in xs]
            acc = combine(*acc, *pieces) if acc else pieces
        xs = acc
    # Once, in case it is not the identity of the computation.
    return combine(*(broadcast(init, counts) for init in inits), *xs)


def _every(x: Any, axis: int, start: int, count: int, stride: int) -> Any:
    """`count` elements along `axis`, from `start`, `stride` apart."""
    shape = shape_of(x)
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], strides[axis] = start, stride
    limits[axis] = start + (count - 1) * stride + 1
    if count == 0:
        starts[axis] = limits[axis] = 0
    return slice_(x, starts, limits, strides)


@reduce_window_p.def_jvp
def _reduce_window_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    return jvp_flat(lambda *xs: _reduce_window_by_axis(*xs, **params), primals, tangents)


@reduce_window_p.def_batch
def _reduce_window_batch(axis: Any, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    count = len(args) // 2
    if any(d is not None for d in dims[count:]):
        ys = map_examples(lambda *xs: _reduce_window_by_axis(*xs, **params), args, dims, axis.size)
        return ys, [0] * count
    operands = [batch_to(x, d, axis.size) for x, d in zip(args[:count], dims)]
    params.update(Window.of(params).batched(0)._asdict())
    return reduce_window_p.bind(*operands, *args[count:], **params), [0] * count


reduce_window_p.lowering = Decompose(_reduce_window_by_axis)

_MONOIDS: dict[str, tuple[Primitive, Callable[[Any], Any]]] = {
    "add": (reduce_window_sum_p, lambda dtype: 0),
    "max": (reduce_window_max_p, lowest),
    "min": (reduce_window_min_p, highest),
}


def reduce_window(
    operand: Any, init_value: Any, computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int], window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID", base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """Combine the elements of each window that slides over an array.

    Args:
      operand: pytree of arrays of one shape, of rank n.
      init_value: pytree of scalars of the same structure, also the value of padding: the identity
        of `computation`.
      computation: associative function of two pytrees of scalars that returns a third.
      window_strides: n steps from one window to the next; 1 where omitted.
      padding: n pairs of elements of padding before and after each axis, or a rule named as in
        `padtype_to_pads`.
      base_dilation: n distances that neighbors in the operand are moved apart; 1 where omitted.

    Returns:
      Pytree of arrays with one element for each window.

    Raises:
      TypeError: if the window does not have the operand's rank, or dtypes differ.
      ValueError: if operand and initial value differ in structure.

        >>> x = np.array([1.0, 3.0, 2.0], np.float32)
        >>> reduce_window(x, -np.inf, lax.max, (2,)).tolist()
        [3.0, 3.0]
    """
    flat, tree = tree_flatten(operand)
    inits, init_tree = tree_flatten(init_value)
    if tree != init_tree:
        raise ValueError(
            f"reduce_window: operand and init_value differ in structure: {tree} and {init_tree}."
        )
    shape = shape_of(flat[0])
    dims = as_ints(window_dimensions, "reduce_window window_dimensions")
    window = make_window(shape, dims, window_strides, padding, base_dilation, window_dilation)
    jaxpr, out_tree = trace_binary("reduce_window", computation, tree, inits)
    if out_tree != tree:
        raise ValueError(
            "reduce_window output must have the same tree structure as the operands: the "
            f"computation returns {out_tree}, the operands are {tree}."
        )
    monoid = _MONOIDS.get(monoid_name(jaxpr) or "")
    if len(flat) == 1 and monoid is not None and starts_from(inits[0], monoid[1]):
        out = monoid[0].bind(flat[0], **window._asdict())
        return tree_unflatten(tree, [as_weak_as(out, inits[0])])
    outs = reduce_window_p.bind(*flat, *inits, jaxpr=jaxpr, consts=(), **window._asdict())
    return tree_unflatten(tree, outs)
