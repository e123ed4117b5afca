"""Sequences, which are lists, and optionals, which are values or None."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.trace import Tracer

from ..registry import integer, ints, namespace, rule


@rule("SequenceConstruct")
def construct(*items: Any) -> list[Any]:
    """A sequence of these."""
    return list(items)


@rule("SequenceEmpty")
def empty(*, dtype: Any = None) -> list[Any]:
    """A sequence of nothing."""
    return []


@rule("SequenceLength")
def length(sequence: list[Any]) -> Any:
    """How many items there are."""
    return np.asarray(len(sequence), np.int64)


@rule("SequenceAt")
def at(sequence: list[Any], position: Any, *, node: Any) -> Any:
    """An item; under tracing its position may be computed where all items have one shape."""
    if isinstance(position, Tracer):
        n = len(sequence)
        return jnp.stack(sequence)[jnp.where(position < 0, position + n, position).reshape(())]
    return sequence[_place(sequence, position, 0, node)]


@rule("SequenceInsert")
def insert(sequence: list[Any], item: Any, position: Any = None, *, node: Any) -> list[Any]:
    """The sequence with one more item, at its end where no position is given."""
    i = len(sequence) if position is None else _place(sequence, position, 1, node)
    return [*sequence[:i], item, *sequence[i:]]


@rule("SequenceErase")
def erase(sequence: list[Any], position: Any = None, *, node: Any) -> list[Any]:
    """The sequence without an item, the last where no position is given."""
    i = _place(sequence, -1 if position is None else position, 0, node)
    return [*sequence[:i], *sequence[i + 1 :]]


def _place(sequence: list[Any], position: Any, extra: int, node: Any) -> int:
    """A position, counted from the front."""
    i, n = integer(position, "position"), len(sequence)
    if not -n <= i < n + extra:
        raise node.error(f"position must be in [{-n}, {n + extra}), got {i}")
    return int(i + n if i < 0 else i)


@rule("SplitToSequence")
def split(x: Any, sizes: Any = None, *, node: Any, axis: int = 0, keepdims: int = 1) -> list[Any]:
    """Parts along an axis: of size 1, of one size but the last, or of the sizes given."""
    xnp = namespace(x)
    n = x.shape[axis]
    if sizes is None:
        parts = xnp.split(x, n, axis) if n else []
        return parts if keepdims else [xnp.squeeze(part, axis) for part in parts]
    if np.ndim(sizes) == 0:
        step = integer(sizes, "split")
        if step <= 0:
            raise node.error(f"split must be positive, got {step}")
        ends = list(range(step, n, step))
    else:
        widths = ints(sizes, "split")
        if sum(widths) != n or min(widths, default=0) < 0:
            raise node.error(f"split must add up to {n}, the size of axis {axis}, got {widths}")
        ends = np.cumsum(widths)[:-1].tolist()
    return list(xnp.split(x, ends, axis))


@rule("ConcatFromSequence")
def concatenate(sequence: list[Any], *, node: Any, axis: int, new_axis: int = 0) -> Any:
    """The items, joined along an axis."""
    if not sequence:
        raise node.error("a sequence of nothing cannot be joined")
    xnp = namespace(*sequence)
    return (xnp.stack if new_axis else xnp.concatenate)(sequence, axis)


@rule("Optional")
def optional(value: Any = None, *, type: Any = None) -> Any:
    """An optional with this value, or an empty one."""
    return value


@rule("OptionalGetElement")
def get_element(value: Any, *, node: Any) -> Any:
    """The value of an optional."""
    if value is None:
        raise node.error("the optional is empty")
    return value


@rule("OptionalHasElement")
def has_element(value: Any = None) -> Any:
    """Whether an optional has a value."""
    return np.asarray(value is not None)
