"""Parts of arrays, and arrays turned."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dims import holds_or_is_assumed, is_symbolic_dim

from ..nodes import Node
from ..registry import axis_of, is_host, namespace, rule, sizes

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@rule("StridedSlice", numbers=("strides",), mixed=True)
def strided_slice(node: Node, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    """Each bit of a mask says what one entry of the bounds means."""
    count = strides.size
    if begin.shape != (count,) or end.shape != (count,) or strides.ndim != 1:
        raise node.error(
            f"bounds must be vectors of one size, got {begin.shape}, {end.shape}, {strides.shape}"
        )
    starts, ends, steps = _entries(begin), _entries(end), sizes(strides)
    from_start, to_end, ellipsis, new, shrink = (node.integer(m, 0) for m in _MASKS)
    given = sum(not (new | ellipsis) >> i & 1 for i in range(count))
    if given > x.ndim or sum(ellipsis >> i & 1 for i in range(count)) > 1:
        raise node.error(f"{given} bounds for shape {x.shape}")
    index: list[Any] = []
    axis = 0
    moved: list[Any] = []  # bounds that are not known, by axis
    for i in range(count):
        bit = 1 << i
        if ellipsis & bit:
            skipped = x.ndim - axis - sum(not new >> j & 1 for j in range(i + 1, count))
            index += [slice(None)] * skipped
            axis += skipped
        elif new & bit:
            index.append(None)
        else:
            if isinstance(steps[i], int) and steps[i] == 0:
                raise node.error("strides must not be 0")
            if shrink & bit:
                index.append(_position(node, x.shape[axis], starts[i], axis, moved))
            else:
                start = None if from_start & bit else starts[i]
                end_ = None if to_end & bit else ends[i]
                index.append(_range(node, start, end_, steps[i]))
            axis += 1
    for at, start in moved:
        x = lax.dynamic_slice_in_dim(jnp.asarray(x), start, 1, axis=at)
    return x[tuple(index)]


def _entries(value: Any) -> list[Any]:
    return sizes(value) if is_host(value) else [value[i] for i in range(value.shape[0])]


def _position(node: Node, n: Any, start: Any, axis: int, moved: list[Any]) -> Any:
    """One element of an axis; where it is not known, what is left of a slice."""
    if not (isinstance(start, int) or is_symbolic_dim(start)):
        moved.append((axis, jnp.where(start < 0, start + n, start)))
        return 0
    if isinstance(start, int) and isinstance(n, int) and not -n <= start < n:
        raise node.error(f"position {start} is beyond the {n} elements of axis {axis}")
    return start


def _range(node: Node, start: Any, end: Any, step: Any) -> slice:
    for bound in (start, end):
        if not (bound is None or isinstance(bound, int) or is_symbolic_dim(bound)):
            raise node.error(
                "bounds must be known as the graph is traced, but depend on inputs or parameters"
            )
    return slice(start, end, step)


@rule("Slice", numbers=("size",), mixed=True)
def slice_(node: Node, x: Any, begin: Any, size: Any) -> Any:
    if begin.shape != (x.ndim,) or size.shape != (x.ndim,):
        raise node.error(f"bounds {begin.shape} and {size.shape} do not fit shape {x.shape}")
    counts = sizes(size)
    if not is_host(begin):
        if any(isinstance(n, int) and n < 0 for n in counts):
            raise node.error("sizes of -1 need a begin that is known as the graph is traced")
        return lax.dynamic_slice(jnp.asarray(x), list(begin), counts)
    index = []
    for axis, (n, start, count) in enumerate(zip(x.shape, sizes(begin), counts)):
        end = n if isinstance(count, int) and count == -1 else start + count
        if not all(holds_or_is_assumed(b, ">=") for b in (start, end - start, n - end)):
            raise node.error(f"{start}:{end} is beyond the {n} elements of axis {axis}")
        index.append(slice(start, end))
    return x[tuple(index)]


@rule("ReverseV2", numbers=("axis",))
def reverse(node: Node, x: Any, axis: Any) -> Any:
    axes = tuple(axis_of(node, "axis", a, x.ndim) for a in sizes(axis))
    return namespace(x).flip(x, axes) if axes else x


@rule("Roll", numbers=("shift", "axis"), only_device=True)
def roll(node: Node, x: Any, shift: Any, axis: Any) -> Any:
    axes = [axis_of(node, "axis", a, x.ndim) for a in sizes(axis)]
    if shift.size != len(axes):
        raise node.error(f"{shift.size} shifts for {len(axes)} axes")
    for by, at in zip(sizes(shift), axes):
        x = jnp.roll(x, by, at)
    return x


@rule("ReverseSequence", only_device=True)
def reverse_sequence(node: Node, x: Any, seq_lengths: Any) -> Any:
    along = axis_of(node, "seq_dim", node.integer("seq_dim"), x.ndim)
    batch = axis_of(node, "batch_dim", node.integer("batch_dim", 0), x.ndim)
    if along == batch:
        raise node.error("seq_dim and batch_dim must differ")
    positions = lax.broadcasted_iota(np.int32, x.shape, along)
    shape = [-1 if i == batch else 1 for i in range(x.ndim)]
    lengths = seq_lengths.reshape(shape).astype(np.int32)
    index = jnp.where(positions < lengths, lengths - 1 - positions, positions)
    return jnp.take_along_axis(x, index, axis=along)
