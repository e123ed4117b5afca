"""Arguments that layers share: layouts, windows, padding; and errors that name them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.dims import is_symbolic_dim
from amdjax.lax.padding import padtype_to_pads
from amdjax.numpy._util import convert, dtype_of, is_arraylike

Ints = int | Sequence[int]
Padding = str | int | Sequence[int | tuple[int, int]]
Pads = tuple[tuple[int, int], ...]

LAYOUTS = ("channels_last", "channels_first")


def check_layout(name: str, layout: str) -> bool:
    """Whether the channels are the last axis.

    Raises:
      ValueError: `layout` is no layout.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"{name}: layout must be one of {LAYOUTS}, got {layout!r}.")
    return layout == "channels_last"


def space_rank(name: str, x: Array) -> int:
    """The number of spatial axes of a batch of signals, images or volumes."""
    if x.ndim < 3:
        raise ValueError(
            f"{name}: x must have a batch axis, a channel axis and one or more spatial axes, got "
            f"shape {x.shape}. Add a batch axis with x[None] or use vmap."
        )
    return x.ndim - 2


def ints(name: str, argument: str, value: Ints, rank: int, least: int = 1) -> tuple[int, ...]:
    """One integer for each spatial axis; a single one stands for all.

    Raises:
      TypeError: not integers.
      ValueError: not `rank` of them, or one is below `least`.
    """
    try:
        values = tuple(map(operator.index, value))  # type: ignore[arg-type]
    except TypeError:
        try:
            values = (operator.index(value),) * rank  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(
                f"{name}: {argument} must be an integer or a sequence of integers, got {value!r}."
            ) from None
    if len(values) != rank:
        raise ValueError(
            f"{name}: {argument} must have one entry for each of the {rank} spatial axes, got "
            f"{value!r}."
        )
    if any(v < least for v in values):
        raise ValueError(f"{name}: {argument} must be at least {least}, got {value!r}.")
    return values


def pads(
    name: str, padding: Padding, space: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> Pads:
    """Padding as a pair for each spatial axis.

    Args:
      name: function that asks, for errors.
      padding: "SAME" (as many windows as input positions, divided by the stride and rounded up),
        "VALID" (none), an integer for all sides, or for each axis an integer or a pair.
      space: sizes of the spatial axes.
      window: sizes of the window, dilation included.
      strides: steps of the window.
    """
    if isinstance(padding, str):
        rule = padding.upper()
        if rule not in ("SAME", "VALID"):
            raise ValueError(
                f"{name}: padding must be 'SAME', 'VALID' or integers, got {padding!r}."
            )
        return tuple(padtype_to_pads(space, window, strides, rule))
    entries: Any = padding if hasattr(padding, "__len__") else (padding,) * len(space)
    per_axis = tuple(entries)
    if len(per_axis) != len(space):
        raise ValueError(
            f"{name}: padding must have one entry for each of the {len(space)} spatial axes, got "
            f"{padding!r}."
        )
    return tuple(_pair(name, padding, entry) for entry in per_axis)


def _pair(name: str, padding: Any, entry: Any) -> tuple[int, int]:
    try:
        low, high = map(operator.index, entry if isinstance(entry, Sequence) else (entry, entry))
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}: padding must be 'SAME', 'VALID', an integer, or for each spatial axis an "
            f"integer or a pair of integers, got {padding!r}."
        ) from None
    return low, high


def dilated(sizes: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """How far windows reach whose elements lie `dilation` apart."""
    return tuple((n - 1) * d + 1 for n, d in zip(sizes, dilation))


def check_floating(name: str, x: Array, argument: str = "x") -> None:
    """Raise TypeError unless `x` is real or complex floating-point."""
    if not dtypes.issubdtype(x.dtype, np.inexact):
        raise TypeError(f"{name}: {argument} must have a floating-point dtype, got {x.dtype}.")


def check_real(name: str, x: Array, argument: str = "x") -> None:
    """Raise TypeError unless `x` is real and floating-point."""
    if not dtypes.issubdtype(x.dtype, np.floating):
        raise TypeError(f"{name}: {argument} must have a real floating-point dtype, got {x.dtype}.")


def check_no_complex(name: str, x: Array, argument: str) -> None:
    """Raise TypeError where a complex array would lose its imaginary part."""
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        raise TypeError(f"{name}: {argument} must be real, got {x.dtype}.")


def check_flag(name: str, **flags: Any) -> None:
    """Raise TypeError for a string, all of which count as true."""
    for argument, value in flags.items():
        if isinstance(value, str):
            raise TypeError(f"{name}: {argument} must be True or False, got {value!r}.")


def widened(x: Array) -> Array:
    """Floats of 16 bits and fewer as float32, in which their sums, squares and counts are found."""
    small = dtypes.issubdtype(x.dtype, np.floating) and dtypes.finfo(x.dtype).bits < 32
    return convert(x, np.float32) if small else x


def is_integer(value: Any) -> bool:
    """Whether a value is an integer of Python or NumPy, as products of shapes are."""
    return isinstance(value, (int, np.integer))


def check_positive(name: str, **sizes: Any) -> None:
    """Raise ValueError unless all sizes are positive integers, or symbolic and positive."""
    for argument, value in sizes.items():
        if not (is_integer(value) or is_symbolic_dim(value)) or value < 1:
            raise ValueError(f"{name}: {argument} must be a positive integer, got {value!r}.")


def check_sizes(name: str, **sizes: Any) -> tuple[int, ...]:
    """A size, or several, as a tuple.

    Raises:
      ValueError: one is no positive integer, or there is none.
    """
    ((argument, value),) = sizes.items()
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not found or not all(is_integer(n) and n > 0 for n in found):
        raise ValueError(
            f"{name}: {argument} must be a positive integer or a tuple of them, got {value!r}."
        )
    return found


def hashable(value: Any) -> Any:
    """Static fields are compared, hashed and saved: tuples and integers of Python."""
    if isinstance(value, np.integer):
        return int(value)
    return tuple(map(hashable, value)) if isinstance(value, (list, tuple)) else value


def check_rate(name: str, rate: Any) -> None:
    """Raise ValueError unless a probability that is known lies in [0, 1]."""
    check_share(name, "rate", rate, "a probability in [0, 1]")


def check_share(name: str, argument: str, value: Any, what: str = "in [0, 1]") -> None:
    """Raise ValueError unless a number that is known lies in [0, 1]; TypeError for no number."""
    check_number(name, argument, value, what)
    if isinstance(value, (int, float, np.number)) and not 0 <= value <= 1:
        raise ValueError(f"{name}: {argument} must be {what}, got {value!r}.")


def check_number(name: str, argument: str, value: Any, what: str = "a number") -> None:
    """Raise TypeError unless `value` is a number or an array."""
    if not is_arraylike(value):
        raise TypeError(f"{name}: {argument} must be {what}, got {value!r}.")


def check_not_negative(name: str, **numbers: Any) -> None:
    """Raise ValueError for a number that is known and negative, TypeError for no number."""
    for argument, value in numbers.items():
        check_number(name, argument, value)
        if isinstance(value, (int, float, np.number)) and not value >= 0:
            raise ValueError(f"{name}: {argument} must not be negative, got {value!r}.")


def check_integer(name: str, argument: str, value: Any) -> None:
    """Raise TypeError unless `value` is an integer, or an array of such."""
    if not (is_arraylike(value) and dtypes.issubdtype(dtype_of(value), np.integer)):
        raise TypeError(f"{name}: {argument} must be an integer, got {value!r}.")


def check_callable(name: str, **functions: Any) -> None:
    """Raise TypeError unless all of them can be called."""
    for argument, value in functions.items():
        if not callable(value):
            raise TypeError(f"{name}: {argument} must be a function, got {value!r}.")


def check_padding(name: str, padding: Any, rank: int) -> None:
    """Raise an error for a padding that no batch with `rank` spatial axes takes."""
    pads(name, padding, (1,) * rank, (1,) * rank, (1,) * rank)
