"""The axis that is mapped over: where a value has it, and values given one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from amdjax.core.aval import get_aval
from amdjax.core.ref import AbstractRef
from amdjax.core.trace import float0_zeros, is_float0
from amdjax.transforms import ops

not_mapped = None


class AxisData(NamedTuple):
    """The axis being mapped: its name for collectives, None if it has none, and its size.

    An axis of a mesh has one example on each device, which may write references made outside. Of
    other axes `spmd_name` may say along which axes of a mesh the compiler divides the examples.
    """

    name: Hashable
    size: int
    of_mesh: bool = False
    spmd_name: Any = None


def unbatched_aval(aval: Any, dim: int | None) -> Any:
    """The type of one element of a batch."""
    if dim is None:
        return aval
    if type(aval) is AbstractRef:
        return aval.of(unbatched_aval(aval.inner_aval, dim))
    shape = aval.shape
    return aval.update(shape=shape[:dim] + shape[dim + 1 :])


def batched_aval(axis: AxisData, aval: Any, dim: int | None = 0) -> Any:
    """The type of a batch of values of type `aval`."""
    if dim is None:
        return aval
    if type(aval) is AbstractRef:
        return aval.of(batched_aval(axis, aval.inner_aval, dim))
    shape = aval.shape
    return aval.update(shape=(*shape[:dim], axis.size, *shape[dim:]))


def move_axis(x: Any, dim: int, to: int) -> Any:
    """`x` with the mapped axis moved."""
    return ops.moveaxis(x, dim, to)


def batch_at(axis: AxisData, x: Any, dim: int | None, to: int | None) -> Any:
    """`x` with its mapped axis at `to`, repeated if it has none.

    Args:
      axis: the mapped axis.
      x: a value.
      dim: where its mapped axis is, None if it has none.
      to: where it shall be; None only if it has none.
    """
    if dim is None and to is None:
        return x
    if is_float0(x):
        aval = batched_aval(axis, unbatched_aval(get_aval(x), dim), to)
        return float0_zeros(aval.shape)
    if to is None:
        raise ValueError("a batched value cannot be made unbatched")
    if dim is None:
        return ops.broadcast(x, axis.size, to)
    return ops.moveaxis(x, dim, to)
