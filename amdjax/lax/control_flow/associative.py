"""`associative_scan`: prefix combinations in logarithmic depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from amdjax.core.aval import get_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.lax._rules import canonical_axis
from amdjax.lax.control_flow._common import as_array, check_callable, checked_leaves
from amdjax.lax.joining import concatenate, rev
from amdjax.lax.shape import expand_dims, reshape
from amdjax.lax.slicing import pad, slice_in_dim

__all__ = ["associative_scan"]

T = TypeVar("T")
Leaves = list[Any]


@api_boundary
def associative_scan(fn: Callable[[T, T], T], elems: T, reverse: bool = False, axis: int = 0) -> T:
    """Prefix combinations of elements under an associative function.

    Pairs of neighbors are combined first, then the prefix combinations of the pairs are found,
    and from them those of the elements: about twice as many combinations as one after another, in
    `2 log2(n)` rounds whose combinations are computed at once (Blelloch, *Prefix Sums and Their
    Applications*, 1990).

    Args:
      fn: associative; combines two slices of `elems` along `axis`, of any equal length, element
        by element, into one of the same structure and shapes.
      elems: a pytree of arrays of equal size along `axis`.
      reverse: whether to combine from the end.
      axis: the axis along which the elements lie.

    Returns:
      A pytree like `elems`, whose element `i` combines the elements up to and with `i`.

    Raises:
      TypeError: `fn` is not callable, or `elems` holds something else than arrays.
      IndexError: `elems` has no arrays.
      ValueError: the sizes along `axis` differ, `axis` is out of bounds, or `fn` changes the
        number of arrays.

        >>> lax.associative_scan(lax.add, np.arange(5)).tolist()
        [0, 1, 3, 6, 10]
    """
    check_callable("associative_scan", fn=fn)
    leaves, tree = checked_leaves("associative_scan", "elems", elems)
    if not leaves:
        raise IndexError(f"associative_scan: elems must have arrays, got {elems}")
    axis = canonical_axis(axis, get_aval(leaves[0]).ndim)
    shapes = [get_aval(x).shape for x in leaves]
    sizes = {shape[axis] if axis < len(shape) else None for shape in shapes}
    if len(sizes) > 1:
        raise ValueError(
            f"associative_scan: the arrays of elems must have one size along axis {axis}, got "
            f"shapes {', '.join(map(str, shapes))}."
        )

    def combine(a: Leaves, b: Leaves) -> Leaves:
        out, out_tree = tree_flatten(fn(tree_unflatten(tree, a), tree_unflatten(tree, b)))
        if out_tree != tree:
            raise ValueError(
                f"associative_scan: fn must return the structure of elems, {tree}, but returned "
                f"{out_tree}."
            )
        return out

    if reverse:
        leaves = [rev(x, (axis,)) for x in leaves]
    leaves = [as_array(x) for x in leaves]
    if shapes[0][axis] > 1:
        leaves = [_strong(x) for x in leaves]
    out = _running(combine, leaves, axis)
    if reverse:
        out = [rev(x, (axis,)) for x in out]
    return tree_unflatten(tree, out)


def _running(combine: Callable[[Leaves, Leaves], Leaves], xs: Leaves, axis: int) -> Leaves:
    count = xs[0].shape[axis]
    if count < 2:
        return xs
    even, odd = _every_second(xs, 0, axis), _every_second(xs, 1, axis)
    full = [_first(x, count // 2, axis) for x in even]
    # Prefix combinations of the pairs are those of the elements at odd positions. Each, combined
    # with the element that follows it, gives one at an even position.
    at_odd = _running(combine, combine(full, odd), axis)
    if count == 2:
        return [_interleave(a, b, axis) for a, b in zip(even, at_odd)]
    followed = [_first(x, (count - 1) // 2, axis) for x in at_odd]
    later = [slice_in_dim(x, 1, None, axis=axis) for x in even]
    at_even = combine(followed, later)
    heads = [_first(x, 1, axis) for x in even]
    at_even = [concatenate([a, b], axis) for a, b in zip(heads, at_even)]
    return [_interleave(a, b, axis) for a, b in zip(at_even, at_odd)]


def _strong(x: Any) -> Any:
    """`x` strongly typed, and so its cotangents, as what JAX puts together of padded arrays."""
    if not get_aval(x).weak_type:
        return x
    return pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * x.ndim)


def _every_second(xs: Leaves, start: int, axis: int) -> Leaves:
    return [slice_in_dim(x, start, None, stride=2, axis=axis) for x in xs]


def _first(x: Any, count: int, axis: int) -> Any:
    return x if x.shape[axis] == count else slice_in_dim(x, 0, count, axis=axis)


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """The elements of two arrays in turn; `even` may have one more."""
    count = odd.shape[axis]
    pairs = [expand_dims(x, (axis + 1,)) for x in (_first(even, count, axis), odd)]
    shape: Sequence[int] = odd.shape
    joined = reshape(concatenate(pairs, axis + 1), (*shape[:axis], 2 * count, *shape[axis + 1 :]))
    if even.shape[axis] == count:
        return joined
    return concatenate([joined, slice_in_dim(even, count, None, axis=axis)], axis)
