"""Special forms of convolution: plain, transposed, patches, locally connected; their shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from amdjax.core.array import Array
from amdjax.core.integers import ceil_div
from amdjax.core.precision import PrecisionLike
from amdjax.lax._rules import Shape, as_axes, as_ints, scalar, shape_of
from amdjax.lax.casting import convert_element_type
from amdjax.lax.conv import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv_dimension_numbers,
    conv_general_dilated,
    conv_general_permutations,
    conv_padding,
    refuse_dilated,
)
from amdjax.lax.dot import dot_general
from amdjax.lax.joining import rev, stack
from amdjax.lax.padding import dilated, padded, padtype_to_pads, window_counts
from amdjax.lax.shape import reshape, transpose
from amdjax.lax.slicing import pad, slice as slice_
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "conv", "conv_general_dilated_local", "conv_general_dilated_patches",
    "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose", "conv_transpose_shape_tuple",
    "conv_with_general_padding",
]  # fmt: skip


def conv(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: str,
    precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
) -> Array:  # fmt: skip
    """Convolution of arrays laid out as batch, feature, space.

    Args:
      lhs: input of shape (batch, feature, *space).
      padding: `"SAME"`, `"SAME_LOWER"` or `"VALID"`.

        >>> x, w = np.ones((1, 2, 8, 8), np.float32), np.ones((3, 2, 3, 3), np.float32)
        >>> conv(x, w, (1, 1), "SAME").shape
        (1, 3, 8, 8)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_with_general_padding(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:  # fmt: skip
    """Convolution of arrays laid out as batch, feature, space, with dilations.

    Args:
      lhs: input of shape (batch, feature, *space).
      padding: pairs of elements of padding, or a rule named as in `padtype_to_pads`.
      lhs_dilation: distances that neighbors in the input are moved apart.
      rhs_dilation: distances that neighbors in the kernel are moved apart.

        >>> x, w = np.ones((1, 2, 8), np.float32), np.ones((3, 2, 3), np.float32)
        >>> conv_with_general_padding(x, w, (1,), [(1, 1)], None, (2,)).shape
        (1, 3, 6)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def _transposed_pads(kernel: int, stride: int, padding: Any) -> tuple[int, int]:
    """Padding that undoes, as to size, a forward convolution with `padding`."""
    if padding == "VALID":
        total = kernel + stride - 2 + max(kernel - stride, 0)
        return kernel - 1, total - kernel + 1
    if padding == "SAME":
        total = kernel + stride - 2
        before = kernel - 1 if stride > kernel - 1 else ceil_div(total, 2)
        return before, total - before
    if isinstance(padding, str):
        raise ValueError(f"conv_transpose: padding must be 'SAME', 'VALID' or pairs: {padding!r}.")
    low, high = padding
    return kernel - low - 1, kernel - high - 1


_TRANSPOSED_LAYOUTS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: ArrayLike, rhs: ArrayLike, strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, transpose_kernel: bool = False,
    precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:  # fmt: skip
    """Transposed ("fractionally strided") convolution.

    Args:
      rhs: kernel, array of rank n + 2.
      strides: n steps, by which the result is larger than the input.
      padding: `"SAME"` or `"VALID"`, of the forward convolution this transposes; or n pairs of
        elements of padding of the dilated input.
      rhs_dilation: n distances that neighbors in the kernel are moved apart; 1 where omitted.
      dimension_numbers: as in `conv_general_dilated`; features last where omitted.
      transpose_kernel: flip the kernel's spatial axes and exchange its features, which makes this
        the exact transpose of the forward convolution with `rhs`.
      use_consistent_padding: let pairs, too, be the padding of the forward convolution.

    Raises:
      ValueError: if sizes or padding do not fit, or there is no default layout for the rank.

        >>> x, w = np.ones((1, 4, 2), np.float32), np.ones((3, 2, 5), np.float32)
        >>> conv_transpose(x, w, (2,), "SAME").shape
        (1, 8, 5)
    """
    left, right = shape_of(lhs), shape_of(rhs)
    if dimension_numbers is None:
        if len(left) not in _TRANSPOSED_LAYOUTS:
            raise ValueError(f"conv_transpose: dimension_numbers are needed for rank {len(left)}.")
        dimension_numbers = _TRANSPOSED_LAYOUTS[len(left)]
    numbers = conv_dimension_numbers(left, right, dimension_numbers)
    out_axis, in_axis, *space = numbers.rhs_spec
    rhs_dilation = (1,) * len(space) if rhs_dilation is None else rhs_dilation
    pads: Any = padding
    if use_consistent_padding or (isinstance(padding, str) and padding in ("SAME", "VALID")):
        kernel = dilated([right[d] for d in space], rhs_dilation)
        each = [padding] * len(space) if isinstance(padding, str) else padding
        pads = [_transposed_pads(k, s, p) for k, s, p in zip(kernel, strides, each)]
    if transpose_kernel:
        order = list(range(len(right)))
        order[out_axis], order[in_axis] = in_axis, out_axis
        rhs = transpose(rev(rhs, space), order)
    return conv_general_dilated(
        lhs, rhs, (1,) * len(space), pads, strides, rhs_dilation, numbers, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_patches(
    lhs: ArrayLike, filter_shape: Sequence[int], window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:  # fmt: skip
    """The elements that each window of a convolution sees, as features.

    Args:
      window_strides: n steps between windows.
      dimension_numbers: as in `conv_general_dilated`.
      precision: accepted for compatibility; elements are copied exactly.
      preferred_element_type: dtype of the result.

    Returns:
      Array of rank n + 2. Its features are numbered by input feature, then by position in the
      window in row-major order.

    Raises:
      TypeError: if `filter_shape` is a number.
      ValueError: if sizes do not fit.

        >>> x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
        >>> conv_general_dilated_patches(x, (2,), (1,), "VALID").tolist()
        [[[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]]
    """
    shape = shape_of(lhs)
    if isinstance(filter_shape, int):
        raise TypeError(f"filter_shape must be a sequence of integers, got {filter_shape!r}.")
    window = as_ints(filter_shape, "filter_shape")
    kernel_shape = (1, 1, *window)
    numbers = conv_dimension_numbers(shape, kernel_shape, dimension_numbers)
    ones = (1,) * len(window)
    lhs_dilation = ones if lhs_dilation is None else as_axes(lhs_dilation, "lhs_dilation")
    if isinstance(padding, str):
        refuse_dilated("conv_general_dilated_patches", padding, lhs_dilation)
    rhs_dilation = ones if rhs_dilation is None else as_axes(rhs_dilation, "rhs_dilation")
    strides = as_ints(window_strides, "window_strides")
    as_given = ConvDimensionNumbers(numbers.lhs_spec, tuple(range(len(shape))), numbers.out_spec)
    pads = conv_padding(shape, kernel_shape, as_given, strides, rhs_dilation, padding)

    x = transpose(lhs, numbers.lhs_spec)
    holes = [(low, high, step - 1) for (low, high), step in zip(pads, lhs_dilation)]
    x = pad(x, scalar(x, 0), [(0, 0, 0), (0, 0, 0), *holes])
    batch, features, *space = shape_of(x)
    counts = window_counts(space, dilated(window, rhs_dilation), strides)
    pieces = []
    for position in np.ndindex(*window):
        starts = [int(k) * step for k, step in zip(position, rhs_dilation)]
        stops = [a + (n - 1) * s + 1 if n else a for a, n, s in zip(starts, counts, strides)]
        piece = slice_(x, (0, 0, *starts), (batch, features, *stops), (1, 1, *strides))
        pieces.append(piece)
    out = reshape(stack(pieces, 2), (batch, features * math.prod(window), *counts))
    order = sorted(range(len(shape)), key=numbers.out_spec.__getitem__)
    out = transpose(out, order)
    if preferred_element_type is None:
        return out
    return convert_element_type(out, preferred_element_type)


def conv_general_dilated_local(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: PrecisionLike = None,
) -> Array:  # fmt: skip
    """Convolution with a kernel of its own at each place of the result.

    Args:
      rhs: kernels, array of rank n + 2. Its spatial axes are places in the result; its input
        features are those of `conv_general_dilated_patches`.
      window_strides: n steps between windows.
      dimension_numbers: as in `conv_general_dilated`.

    Raises:
      ValueError: if sizes do not fit.

        >>> x, w = np.ones((1, 1, 4), np.float32), np.ones((5, 2, 3), np.float32)
        >>> conv_general_dilated_local(x, w, (1,), "VALID", (2,)).shape
        (1, 5, 3)
    """
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers
    )
    kernel_shape = (1, 1, *filter_shape)
    numbers = conv_dimension_numbers(shape_of(lhs), kernel_shape, dimension_numbers)
    pairs = sorted(zip(numbers.out_spec[2:], numbers.rhs_spec[2:]))
    places = tuple(d for d, _ in pairs), tuple(d for _, d in pairs)
    contract = (numbers.out_spec[1],), (numbers.rhs_spec[1],)
    out = dot_general(patches, rhs, (contract, places), precision=precision)
    # Axes now: places in the result's order, batch, output feature.
    batch_axis, feature_axis = numbers.out_spec[:2]
    first, second = sorted([(batch_axis, -2), (feature_axis, -1)])
    rank = len(shape_of(out))
    order = list(range(rank - 2))
    order.insert(first[0], rank + first[1])
    order.insert(second[0], rank + second[1])
    return transpose(out, order)


def _canonical_shapes(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Sequence[str]
) -> tuple[Shape, Shape, Sequence[int]]:
    lhs_spec, rhs_spec, out_spec = conv_general_permutations(dimension_numbers)
    return (
        _permuted("lhs_shape", lhs_shape, lhs_spec),
        _permuted("rhs_shape", rhs_shape, rhs_spec),
        sorted(range(len(out_spec)), key=out_spec.__getitem__),
    )


def _permuted(name: str, shape: Any, order: Sequence[int]) -> Shape:
    given = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if len(given) < len(order):
        raise IndexError(
            f"convolution: {name} must have the {len(order)} axes of dimension_numbers, got "
            f"{shape!r}."
        )
    sizes = as_ints(given, f"convolution {name}")
    return tuple(sizes[d] for d in order)


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> Shape:
    """The shape of a convolution of arrays laid out as batch, feature, space.

    Args:
      lhs_shape: shape of the input, dilated.
      rhs_shape: shape of the kernel, dilated.
      strides: steps between windows.
      pads: pairs of elements of padding, or a rule named as in `padtype_to_pads`.
      batch_group_count: number of groups that the batch is divided into.

    Raises:
      TypeError: if there is not one pair for each spatial axis.
      ValueError: if negative padding takes away more than there is.

        >>> conv_shape_tuple((1, 2, 8), (3, 2, 3), (2,), "SAME")
        (1, 3, 4)
    """
    space, kernel = tuple(lhs_shape[2:]), tuple(rhs_shape[2:])
    strides = as_ints(strides, "convolution strides")
    if isinstance(pads, str):
        pads = padtype_to_pads(space, kernel, strides, pads)
    if len(pads) != len(space):
        raise TypeError(f"convolution: expected {len(space)} pairs of padding, got {len(pads)}.")
    base = padded(space, pads)
    if any(n < 0 for n in base):
        raise ValueError(f"convolution: padding {pads} takes away more than the sizes {space}.")
    counts = window_counts(base, kernel, strides)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *counts)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Sequence[str],
) -> Shape:
    """The shape of a convolution in any layout.

    Args:
      padding: pairs of elements of padding, or a rule named as in `padtype_to_pads`.
      dimension_numbers: names of the axes of input, kernel and result.

    Raises:
      TypeError: if the dimension numbers are not well formed.

        >>> conv_general_shape_tuple((1, 8, 2), (3, 2, 5), (2,), "SAME", ("NHC", "HIO", "NHC"))
        (1, 4, 5)
    """
    left, right, order = _canonical_shapes(lhs_shape, rhs_shape, dimension_numbers)
    out = conv_shape_tuple(left, right, window_strides, padding)
    return tuple(out[d] for d in order)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Sequence[str],
) -> Shape:
    """The shape of a transposed convolution in any layout.

    Args:
      window_strides: steps by which the result is larger.
      padding: `"SAME"`, `"VALID"`, or pairs of elements of padding of the dilated input.
      dimension_numbers: names of the axes of input, kernel and result.

    Raises:
      ValueError: for an unknown rule of padding.

        >>> conv_transpose_shape_tuple((1, 4, 2), (3, 2, 5), (2,), "SAME", ("NHC", "HIO", "NHC"))
        (1, 8, 5)
    """
    left, right, order = _canonical_shapes(lhs_shape, rhs_shape, dimension_numbers)
    if isinstance(padding, str):
        padding = [_transposed_pads(k, s, padding) for k, s in zip(right[2:], window_strides)]
    base = padded(dilated(left[2:], window_strides), padding)
    out = (left[0], right[0], *window_counts(base, right[2:], (1,) * len(base)))
    return tuple(out[d] for d in order)
