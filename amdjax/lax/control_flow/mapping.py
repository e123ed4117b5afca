"""`map`: a function applied to one row after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.pytree import tree_map, tree_unflatten
from amdjax.lax.control_flow._common import Body, check_callable, checked_leaves
from amdjax.lax.control_flow.scans import scan_body, scan_length
from amdjax.lax.joining import concatenate
from amdjax.lax.shape import reshape
from amdjax.lax.slicing import slice_in_dim
from amdjax.transforms.vmap import vmap

__all__ = ["map"]

X = TypeVar("X")
Y = TypeVar("Y")


@api_boundary
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y:
    """Apply a function to each row of arrays, one after another, and stack the results.

    `vmap` computes all rows at once; this needs the memory of one.

    Args:
      f: a function of a row of each array.
      xs: a pytree of arrays with axis 0 of equal size.
      batch_size: rows to compute at once, with `vmap`; 0 for all of them. What remains is
        computed as a smaller batch.

    Returns:
      The results stacked along a new axis 0.

    Raises:
      TypeError: `f` is not callable, or `xs` holds something else than arrays.
      ValueError: the sizes of axis 0 differ, there are no arrays, or `batch_size` is negative.

        >>> lax.map(lambda x: x * 2, np.arange(3.0)).tolist()
        [0.0, 2.0, 4.0]
    """
    check_callable("map", f=f)
    if batch_size is None:
        return _map(f, f, xs)
    if batch_size < 0:
        raise ValueError(f"map: batch_size must not be negative, got {batch_size}.")
    leaves, tree = checked_leaves("map", "xs", xs)
    length = scan_length("map", xs, leaves, None)
    batched = vmap(f)
    batches = length // batch_size if batch_size else 0
    if batches == 0:
        return batched(xs)
    whole = batches * batch_size
    first = [_in_batches(x, batches, batch_size) for x in leaves]
    ys = tree_map(_rows, _map(f, batched, tree_unflatten(tree, first)))
    if whole == length:
        return ys
    rest = tree_unflatten(tree, [slice_in_dim(x, whole, length) for x in leaves])
    return tree_map(lambda a, b: concatenate([a, b], 0), ys, batched(rest))


def _map(fun: Callable[..., Any], call: Callable[..., Any], xs: Any) -> Any:
    form = "batched" if call is not fun else ""
    step = lambda _, x: ((), call(x))
    body = Body("map", fun, step, fun_args=lambda args: args[1:], form=form)
    return scan_body(body, (), xs, None)[1]


def _in_batches(x: Any, batches: int, size: int) -> Any:
    shape = get_aval(x).shape
    rows = slice_in_dim(x, 0, batches * size)
    return reshape(rows, (batches, size, *shape[1:]))


def _rows(y: Any) -> Any:
    shape = y.shape
    return reshape(y, (shape[0] * shape[1], *shape[2:]))
