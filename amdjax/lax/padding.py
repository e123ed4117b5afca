"""Arithmetic of windows that slide over padded arrays, shared by convolution and pooling."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from amdjax.core.dims import max_dim
from amdjax.core.integers import ceil_div
from amdjax.lax._rules import as_ints

__all__ = ["padtype_to_pads"]

Pads = Sequence[tuple[int, int]]


class PaddingType(enum.Enum):
    """How to choose the padding of a window."""

    VALID = 1
    SAME = 2
    SAME_LOWER = 3


def dilated(sizes: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Sizes after `dilation - 1` holes are put between neighbors."""
    return tuple(
        n if step == 1 else max_dim(1 + step * (n - 1), 0) for n, step in zip(sizes, dilation)
    )


def window_counts(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    """How many windows fit along each axis."""
    counts = ((n - w) // step + 1 for n, w, step in zip(sizes, window, strides))
    return tuple(max_dim(count, 0) for count in counts)


def padded(sizes: Sequence[int], pads: Pads) -> tuple[int, ...]:
    """Sizes with padding; negative padding takes elements away."""
    return tuple(n + low + high for n, (low, high) in zip(sizes, pads))


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | PaddingType,
) -> list[tuple[int, int]]:
    """The padding of each axis for a rule called by name.

    `SAME` makes as many windows as strides fit into the axis and puts an odd element of padding
    at its end, `SAME_LOWER` at its start; `VALID` does not pad.

    Args:
      in_shape: sizes of the axes.
      window_shape: sizes of the window, dilated.
      window_strides: steps of the window.
      padding: name of the rule.

    Returns:
      Pairs (low, high).

    Raises:
      RuntimeError: if no rule has that name.
      TypeError: if `padding` is not a name, or a size no integer.
      ValueError: if there is not one entry of each for each axis.

        >>> padtype_to_pads((5,), (2,), (1,), "SAME")
        [(0, 1)]
    """
    if isinstance(padding, str):
        try:
            padding = PaddingType[padding.upper()]
        except KeyError:
            raise RuntimeError(
                "Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got "
                f"{padding!r}."
            ) from None
    if not isinstance(padding, PaddingType):
        raise TypeError(f"padding must be a string or pairs of integers, got {padding!r}.")
    if padding is PaddingType.VALID:
        return [(0, 0)] * len(in_shape)
    sizes = as_ints(in_shape, "in_shape")
    window, strides = (
        as_ints(given, name)
        for given, name in ((window_shape, "window_shape"), (window_strides, "window_strides"))
    )
    if not len(sizes) == len(window) == len(strides):
        raise ValueError(
            f"padding {padding.name}: in_shape, window_shape and window_strides must have one entry"
            f" for each axis, got {sizes}, {window} and {strides}."
        )
    pads = []
    for n, w, step in zip(sizes, window, strides):
        missing = max_dim((ceil_div(n, step) - 1) * step + w - n, 0)
        small, large = missing // 2, missing - missing // 2
        pads.append((small, large) if padding is PaddingType.SAME else (large, small))
    return pads


def pads_of_transpose(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], out_sizes: Sequence[int],
    pads: Pads, base_dilation: Sequence[int], window_dilation: Sequence[int],
) -> list[tuple[int, int]]:  # fmt: skip
    """Padding of the cotangent, holes put in by `strides`, for the transposed sliding window.

    Every position of the dilated operand then sees, through the flipped window, the results it
    went into.
    """
    base = dilated(sizes, base_dilation)
    reach = dilated(window, window_dilation)
    out = dilated(out_sizes, strides)
    before = [w - low - 1 for w, (low, _) in zip(reach, pads)]
    return [(lo, n + w - 1 - o - lo) for n, w, o, lo in zip(base, reach, out, before)]


def pads_of_kernel_gradient(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], out_sizes: Sequence[int],
    pads: Pads, base_dilation: Sequence[int], kernel_dilation: Sequence[int],
) -> list[tuple[int, int]]:  # fmt: skip
    """Padding of the operand for the convolution with the cotangent that gives the kernel's
    gradient: as many positions as the dilated kernel has.
    """
    base = dilated(sizes, base_dilation)
    reach = dilated(kernel, kernel_dilation)
    out = dilated(out_sizes, strides)
    return [(low, o - n + w - low - 1) for n, w, o, (low, _) in zip(base, reach, out, pads)]
