"""Collectives by which the elements of a mapped axis exchange parts: gathers, scatters, swaps."""

from __future__ import annotations

import math
from typing import Any

from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.pytree import tree_map
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData, batch_at
from amdjax.transforms.collectives import (
    AxisName,
    CollectivePrimitive,
    axis_names,
    axis_size,
    batch_rule,
    linear_collective,
    refuse_groups,
)

all_gather_p = linear_collective("all_gather")


@all_gather_p.def_abstract_eval
def _all_gather_abstract(
    x: Any, *, all_gather_dimension: int, axis_size: int, tiled: bool, **_: Any
) -> Any:
    shape = list(x.shape)
    if tiled:
        shape[all_gather_dimension] *= axis_size
    else:
        shape.insert(all_gather_dimension, axis_size)
    return ShapedArray(shape, x.dtype)


@batch_rule(all_gather_p, "all_gather_dimension")
def _all_gather_batch(
    axis: AxisData, x: Any, dim: Any, *, all_gather_dimension: int, tiled: bool, **_: Any
) -> Any:
    out = batch_at(axis, x, dim, all_gather_dimension)
    return (_merge(out, all_gather_dimension) if tiled else out), None


def _merge(x: Any, at: int) -> Any:
    """`x` with the axes `at` and `at + 1` made one."""
    shape = get_aval(x).shape
    return ops.reshape(x, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))


def _part(x: Any, at: int, count: int) -> Any:
    """`x` with the axis `at` cut into `count` parts, which get an axis of their own at `at`."""
    shape = get_aval(x).shape
    return ops.reshape(x, (*shape[:at], count, shape[at] // count, *shape[at + 1 :]))


def _over_axis(p: CollectivePrimitive, x: Any, name: Any, tiled: bool, **axes: int) -> Any:
    """A collective over one mapped axis."""
    size = axis_size(name)
    return p.bind(x, axis_index_groups=None, axis_name=(name,), axis_size=size, tiled=tiled, **axes)


def all_gather(
    x: Any, axis_name: AxisName, *, axis_index_groups: Any = None, axis: int = 0,
    tiled: bool = False, to: str = "varying",
) -> Any:  # fmt: skip
    """Stack the elements of a mapped axis.

    Args:
      axis: where the mapped axis appears in the result.
      tiled: whether elements are concatenated along an existing axis instead.
      to: "varying", "reduced" or "invarying"; of no effect, since axes mapped by `vmap` have no
        such types.

    Returns:
      A pytree of arrays, the same for all elements.

    Raises:
      ValueError: for another `to`.

        >>> f = amdjax.vmap(lambda x: amdjax.lax.all_gather(x, "i").sum(), axis_name="i")
        >>> print(f(np.array([1.0, 3.0])))
        [4. 4.]
    """
    if to not in ("varying", "reduced", "invarying"):
        raise ValueError(f"all_gather: to must be 'varying', 'reduced' or 'invarying', got {to!r}")
    refuse_groups(axis_index_groups)
    names = axis_names(axis_name)

    def gather(leaf: Any) -> Any:
        at = axis % (get_aval(leaf).ndim + (not tiled))
        for name in reversed(names):  # the first changes slowest, so it comes last
            leaf = _over_axis(all_gather_p, leaf, name, tiled, all_gather_dimension=at)
        for _ in names[1:] if not tiled else ():
            leaf = _merge(leaf, at)
        return leaf

    return tree_map(gather, x)


reduce_scatter_p = linear_collective("reduce_scatter")


@reduce_scatter_p.def_abstract_eval
def _reduce_scatter_abstract(
    x: Any, *, scatter_dimension: int, axis_size: int, tiled: bool, **_: Any
) -> Any:
    shape = list(x.shape)
    if tiled:
        shape[scatter_dimension] //= axis_size
    else:
        shape.pop(scatter_dimension)
    return ShapedArray(shape, x.dtype)


@batch_rule(reduce_scatter_p, "scatter_dimension")
def _reduce_scatter_batch(
    axis: AxisData, x: Any, dim: Any, *, scatter_dimension: int, tiled: bool, **_: Any
) -> Any:
    total = ops.reduce_sum(batch_at(axis, x, dim, 0), (0,))
    out = _part(total, scatter_dimension, axis.size) if tiled else total
    return out, scatter_dimension


def _transpose_as(
    primitive: CollectivePrimitive, at: str, other: CollectivePrimitive, to: str
) -> None:
    """The transpose is `other`, along the axis that the parameter `at` names, there `to`."""

    @primitive.def_transpose
    def transpose(ct: Any, x: Any, **params: Any) -> list[Any]:
        position = params.pop(at)
        return [other.bind(ct, **params, **{to: position})]


_transpose_as(all_gather_p, "all_gather_dimension", reduce_scatter_p, "scatter_dimension")
_transpose_as(reduce_scatter_p, "scatter_dimension", all_gather_p, "all_gather_dimension")


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """Sum over a mapped axis, of which each element gets one part.

    Args:
      scatter_dimension: the axis that is divided.
      tiled: whether that axis stays, shortened, instead of being removed.

    Returns:
      A pytree of arrays.

    Raises:
      ValueError: the divided axis does not fit the mapped one.

        >>> f = amdjax.vmap(lambda x: amdjax.lax.psum_scatter(x, "i"), axis_name="i")
        >>> print(f(np.array([[1.0, 2.0], [3.0, 4.0]])))
        [4. 6.]
    """
    refuse_groups(axis_index_groups)
    names = axis_names(axis_name)

    def scatter(leaf: Any) -> Any:
        shape = get_aval(leaf).shape
        at = scatter_dimension % len(shape)
        total = axis_size(names)
        if shape[at] % total if tiled else shape[at] != total:
            raise ValueError(
                f"psum_scatter: axis {at} of {shape} cannot be divided among {total} elements"
                + ("" if tiled else ", a part of size one for each")
            )
        if len(names) > 1 and not tiled:
            leaf = ops.reshape(leaf, (*shape[:at], *map(axis_size, names), *shape[at + 1 :]))
        for name in names:
            leaf = _over_axis(reduce_scatter_p, leaf, name, tiled, scatter_dimension=at)
        return leaf

    return tree_map(scatter, x)


all_to_all_p = linear_collective("all_to_all")


@all_to_all_p.def_abstract_eval
def _all_to_all_abstract(
    x: Any, *, split_axis: int, concat_axis: int, axis_size: int, tiled: bool, **_: Any
) -> Any:
    shape = list(x.shape)
    if tiled:
        if shape[split_axis] % axis_size:
            raise ValueError(
                f"all_to_all: axis {split_axis} of {x.shape} cannot be divided among {axis_size}"
            )
        shape[split_axis] //= axis_size
        shape[concat_axis] *= axis_size
    else:
        if shape.pop(split_axis) != axis_size:
            raise ValueError(
                f"all_to_all: axis {split_axis} of {x.shape} must have the size {axis_size} of the "
                "mapped axis"
            )
        shape.insert(concat_axis, axis_size)
    return ShapedArray(shape, x.dtype)


@all_to_all_p.def_transpose
def _all_to_all_transpose(
    ct: Any, x: Any, *, split_axis: int, concat_axis: int, **params: Any
) -> list[Any]:
    return [all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params)]


@batch_rule(all_to_all_p, "split_axis", "concat_axis")
def _all_to_all_batch(
    axis: AxisData, x: Any, dim: Any, *, split_axis: int, concat_axis: int, tiled: bool, **_: Any
) -> Any:
    x = batch_at(axis, x, dim, 0)
    if tiled:
        x = _part(x, split_axis + 1, axis.size)
    # (from, …, to, …): what was the mapped axis is concatenated, `to` becomes the mapped one.
    x = ops.moveaxis(x, split_axis + 1, 0)
    x = ops.moveaxis(x, 1, concat_axis + 1)
    return (_merge(x, concat_axis + 1) if tiled else x), 0


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange a mapped axis with an axis of the elements, which stays where it is.

    Args:
      axis_name: name of the mapped axis.
      axis: an axis of the elements, of the same size.

    Returns:
      A pytree of arrays of the same shapes.

        >>> f = amdjax.vmap(lambda x: amdjax.lax.pswapaxes(x, "i", 0), axis_name="i")
        >>> print(f(np.array([[1.0, 2.0], [3.0, 4.0]])))
        [[1. 3.]
         [2. 4.]]
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def all_to_all(
    x: Any, axis_name: AxisName, split_axis: int, concat_axis: int, *,
    axis_index_groups: Any = None, tiled: bool = False,
) -> Any:  # fmt: skip
    """Exchange a mapped axis with an axis of the elements.

    Args:
      axis_name: name of the mapped axis.
      split_axis: the axis that is divided among the elements.
      concat_axis: where the parts that an element receives are put together.
      tiled: whether `split_axis` stays, shortened, and parts are concatenated along an existing
        axis.

    Returns:
      A pytree of arrays.

    Raises:
      IndexError: an axis is out of bounds.
      ValueError: the divided axis does not fit the mapped one.

        >>> f = amdjax.vmap(lambda x: amdjax.lax.all_to_all(x, "i", 0, 0), axis_name="i")
        >>> print(f(np.array([[1.0, 2.0], [3.0, 4.0]])))
        [[1. 3.]
         [2. 4.]]
    """
    refuse_groups(axis_index_groups)
    names = axis_names(axis_name)

    def exchange(leaf: Any) -> Any:
        ndim = get_aval(leaf).ndim
        for name, axis in (("split_axis", split_axis), ("concat_axis", concat_axis)):
            if not -ndim <= axis < ndim:
                raise IndexError(f"all_to_all {name} {axis} is out of bounds for rank {ndim}.")
        split, concat = split_axis % ndim, concat_axis % ndim
        if len(names) > 1:
            return _exchange_several(leaf, names, split, concat, tiled)
        return _exchange(leaf, names[0], split, concat, tiled)

    return tree_map(exchange, x)


def _exchange(x: Any, name: Any, split: int, concat: int, tiled: bool) -> Any:
    return _over_axis(all_to_all_p, x, name, tiled, concat_axis=concat, split_axis=split)


def _exchange_several(x: Any, names: Any, split: int, concat: int, tiled: bool) -> Any:
    """An exchange over several mapped axes, the first name changing slowest.

    The axis that is divided is viewed as one axis for each name, which that name exchanges alone.
    """
    shape, sizes = get_aval(x).shape, tuple(map(axis_size, names))
    total = math.prod(sizes)
    part, left = divmod(shape[split], total)
    if left or (part != 1 and not tiled):
        raise ValueError(
            f"all_to_all: axis {split} of {shape} cannot be divided among {total} elements"
        )
    parts = (part,) if tiled else ()
    x = ops.reshape(x, (*shape[:split], *sizes, *parts, *shape[split + 1 :]))
    for k, name in enumerate(names):
        x = _exchange(x, name, split + k, split + k, False)
    x = ops.reshape(x, (*shape[:split], total, *parts, *shape[split + 1 :]))
    x = ops.moveaxis(x, split, concat)
    return _merge(x, concat) if tiled else x


def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    """The value that one element of a mapped axis has.

    Args:
      source: position of the element.

    Returns:
      A pytree like `x`, the same for all elements of the axis.

        >>> f = amdjax.vmap(lambda x: amdjax.lax.pbroadcast(x, "i", 1), axis_name="i")
        >>> print(f(np.array([1.0, 3.0])))
        [3. 3.]
    """

    def pick(leaf: Any) -> Any:
        one = ops.slice_in_dim(all_gather(leaf, axis_name), source, source + 1, 0)
        return ops.reshape(one, get_aval(leaf).shape)

    return tree_map(pick, x)
