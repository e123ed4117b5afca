"""Convolution in any number of dimensions: the primitive and its general public form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import surely_equal
from amdjax.core.lowering import Shaped
from amdjax.core.precision import PrecisionLike, canonical_precision
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    ANY,
    Shape,
    as_axes,
    as_ints,
    aval_of,
    bilinear,
    check_dtype,
    check_same_dtype,
    jvp_from,
    move_axis,
    shape_of,
    transpose_from,
)
from amdjax.lax.casting import convert, convert_back
from amdjax.lax.dot import bind_product
from amdjax.lax.filling import full
from amdjax.lax.joining import rev
from amdjax.lax.padding import (
    dilated,
    padded,
    pads_of_kernel_gradient,
    pads_of_transpose,
    padtype_to_pads,
    window_counts,
)
from amdjax.lax.shape import reshape
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "conv_dimension_numbers",
    "conv_general_dilated", "conv_general_dilated_p", "conv_general_permutations",
]  # fmt: skip


class ConvDimensionNumbers(NamedTuple):
    """Which axes of a convolution's arrays are batch, feature and space.

    Args:
      lhs_spec: axes of the input: batch, feature, then the spatial ones.
      rhs_spec: axes of the kernel: output feature, input feature, then the spatial ones.
      out_spec: axes of the result: batch, feature, then the spatial ones.
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


ConvGeneralDilatedDimensionNumbers = tuple[str, str, str] | ConvDimensionNumbers | None

conv_general_dilated_p = Primitive("conv_general_dilated")

_BYTES = {"int8", "uint8"}  # which are multiplied by each other, too, and summed in 32 bits


@conv_general_dilated_p.def_abstract_eval
def _conv_type(
    lhs: Any, rhs: Any, *, window_strides: Shape, padding: tuple[tuple[int, int], ...],
    lhs_dilation: Shape, rhs_dilation: Shape, dimension_numbers: ConvDimensionNumbers,
    feature_group_count: int, batch_group_count: int, precision: Any, preferred_element_type: Any,
    out_sharding: Any, window_reversal: tuple[bool, ...] = (),
) -> ShapedArray:  # fmt: skip
    """That of the result; `window_reversal` tells of spatial axes whose taps count from the last.

    Passes of the compiler alone set it.
    """
    check_dtype("conv_general_dilated", lhs.dtype, ANY, 0)
    if preferred_element_type != np.int32 or {str(lhs.dtype), str(rhs.dtype)} != _BYTES:
        check_same_dtype("conv_general_dilated", lhs, rhs)
    if lhs.ndim != rhs.ndim:
        raise ValueError(
            "conv_general_dilated lhs and rhs must have the same number of dimensions, got "
            f"shapes {lhs.shape} and {rhs.shape}."
        )
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    batch, features, *space = (lhs.shape[d] for d in lhs_spec)
    out_features, in_features, *kernel = (rhs.shape[d] for d in rhs_spec)
    _check_groups(
        batch, features, out_features, in_features, feature_group_count, batch_group_count
    )
    entries: tuple[tuple[str, Sequence[Any]], ...] = (
        ("window_strides", window_strides),
        ("padding", padding),
        ("lhs_dilation", lhs_dilation),
        ("rhs_dilation", rhs_dilation),
    )
    for name, values in entries:
        if len(values) != len(kernel):
            raise ValueError(
                f"conv_general_dilated window and {name} must have the same number of dimensions, "
                f"one for each of the {len(kernel)} spatial ones, got {name} {values}."
            )
        if name != "padding" and any(value < 1 for value in values):
            raise ValueError(f"conv_general_dilated: {name} must be positive, got {values}.")
    base = padded(dilated(space, lhs_dilation), padding)
    if any(n < 0 for n in base):
        raise ValueError(
            f"conv_general_dilated: negative padding {padding} takes away more than the spatial "
            f"sizes {tuple(space)} of lhs."
        )
    counts = window_counts(base, dilated(kernel, rhs_dilation), window_strides)
    shape = [0] * lhs.ndim
    for d, n in zip(out_spec, (batch // batch_group_count, out_features, *counts)):
        shape[d] = n
    dtype = lhs.dtype if preferred_element_type is None else preferred_element_type
    return ShapedArray(shape, dtype, lhs.weak_type and rhs.weak_type)


def _check_groups(
    batch: int, features: int, out_features: int, in_features: int, feature_groups: int,
    batch_groups: int,
) -> None:  # fmt: skip
    name = "conv_general_dilated"
    if feature_groups < 1 or batch_groups < 1:
        raise ValueError(
            f"{name}: group counts must be positive, got feature_group_count={feature_groups} "
            f"and batch_group_count={batch_groups}."
        )
    if not (surely_equal(feature_groups, 1) or surely_equal(batch_groups, 1)):
        raise ValueError(
            f"{name}: at most one of feature_group_count and batch_group_count may exceed 1, got "
            f"{feature_groups} and {batch_groups}."
        )
    if features % feature_groups or features // feature_groups != in_features:
        raise ValueError(
            f"{name}: lhs feature dimension size divided by feature_group_count must equal the "
            f"rhs input feature dimension size, got {features} / {feature_groups} != {in_features}."
        )
    if out_features % feature_groups:
        raise ValueError(
            f"{name}: rhs output feature dimension size {out_features} must be a multiple of "
            f"feature_group_count {feature_groups}."
        )
    if batch % batch_groups or out_features % batch_groups:
        raise ValueError(
            f"{name}: lhs batch dimension size {batch} and rhs output feature dimension size "
            f"{out_features} must be multiples of batch_group_count {batch_groups}."
        )


def _split_axis(x: Any, axis: int, groups: int) -> Any:
    """Cut `axis` into two, the first of size `groups`."""
    shape = shape_of(x)
    return reshape(x, (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))


def _merge_axes(x: Any, axis: int) -> Any:
    """Join `axis` and the one after it."""
    shape = shape_of(x)
    return reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _move_groups(x: Any, source: int, destination: int, groups: int) -> Any:
    """Take the groups out of axis `source` and put them in front of axis `destination`."""
    x = _split_axis(x, source, groups)
    return _merge_axes(move_axis(x, source, destination), destination)


def _swapped(spec: Sequence[int]) -> tuple[int, ...]:
    """The same axes with batch and feature, or the two features, in each other's role."""
    return (spec[1], spec[0], *spec[2:])


def _sizes(x: Any, spec: Sequence[int]) -> Shape:
    shape = shape_of(x)
    return tuple(shape[d] for d in spec[2:])


def _cotangent_of_lhs(ct: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Convolve the cotangent with the flipped kernel, its features exchanged."""
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    batch_groups = params["batch_group_count"]
    groups = max(params["feature_group_count"], batch_groups)
    pads = pads_of_transpose(
        _sizes(lhs, lhs_spec), _sizes(rhs, rhs_spec), params["window_strides"],
        _sizes(ct, out_spec), params["padding"], params["lhs_dilation"], params["rhs_dilation"],
    )  # fmt: skip
    kernel = convert(rev(rhs, rhs_spec[2:]), aval_of(ct).dtype)
    if groups > 1:
        kernel = _move_groups(kernel, rhs_spec[0], rhs_spec[1], groups)
    params.update(
        window_strides=params["lhs_dilation"],
        padding=tuple(pads),
        lhs_dilation=params["window_strides"],
        dimension_numbers=ConvDimensionNumbers(out_spec, _swapped(rhs_spec), lhs_spec),
        feature_group_count=groups,
        batch_group_count=1,
    )
    out = conv_general_dilated_p.bind(ct, kernel, **params)
    if batch_groups > 1:  # each group's features belong to its own part of the batch
        out = _move_groups(out, lhs_spec[1], lhs_spec[0], groups)
    return convert_back(out, lhs)


def _cotangent_of_rhs(ct: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Convolve the input with the cotangent as kernel, summing over the batch."""
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    if ct.size == 0:
        return full(rhs.aval.shape, 0, rhs.aval.dtype)
    pads = pads_of_kernel_gradient(
        _sizes(lhs, lhs_spec), _sizes(rhs, rhs_spec), params["window_strides"],
        _sizes(ct, out_spec), params["padding"], params["lhs_dilation"], params["rhs_dilation"],
    )  # fmt: skip
    numbers = ConvDimensionNumbers(_swapped(lhs_spec), _swapped(out_spec), _swapped(rhs_spec))
    params.update(
        window_strides=params["rhs_dilation"],
        padding=tuple(pads),
        rhs_dilation=params["window_strides"],
        dimension_numbers=numbers,
        feature_group_count=params["batch_group_count"],
        batch_group_count=params["feature_group_count"],
    )
    out = conv_general_dilated_p.bind(convert(lhs, aval_of(ct).dtype), ct, **params)
    return convert_back(out, rhs)


def _insert_batch(x: Any, dim: int, axis: int, groups: int = 1) -> Any:
    """Hide the batch axis in `axis` of the unbatched array: its elements become those of
    (group, example, rest).
    """
    x = move_axis(x, dim, axis)
    if groups > 1:
        x = move_axis(_split_axis(x, axis + 1, groups), axis + 1, axis)
        x = _merge_axes(x, axis)
    return _merge_axes(x, axis)


def _extract_batch(y: Any, axis: int, size: int, groups: int = 1) -> Any:
    """Undo `_insert_batch`; the batch axis becomes the first."""
    if groups == 1:
        return move_axis(_split_axis(y, axis, size), axis, 0)
    y = _split_axis(_split_axis(y, axis, groups), axis + 1, size)
    return _merge_axes(move_axis(y, axis + 1, 0), axis + 1)


@conv_general_dilated_p.def_batch
def _conv_batch(axis: Any, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
    (lhs, rhs), (left, right) = args, dims
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    batch_groups = params["batch_group_count"]
    if axis.size == 0:
        return _no_examples(args, dims, params), 0
    if left is not None and right is not None:
        # Examples become groups: of the batch if it has groups already, else of the features.
        where = lhs_spec[0] if batch_groups > 1 else lhs_spec[1]
        count = "batch_group_count" if batch_groups > 1 else "feature_group_count"
        params[count] *= axis.size
        lhs = _insert_batch(lhs, left, where)
        rhs = _insert_batch(rhs, right, rhs_spec[0])
        out = conv_general_dilated_p.bind(lhs, rhs, **params)
        return _extract_batch(out, out_spec[1], axis.size), 0
    if left is not None:
        lhs = _insert_batch(lhs, left, lhs_spec[0], batch_groups)
        out = conv_general_dilated_p.bind(lhs, rhs, **params)
        return _extract_batch(out, out_spec[0], axis.size), 0
    groups = max(batch_groups, params["feature_group_count"])
    rhs = _insert_batch(rhs, right, rhs_spec[0], groups)
    out = conv_general_dilated_p.bind(lhs, rhs, **params)
    return _extract_batch(out, out_spec[1], axis.size, groups), 0


def _no_examples(args: Any, dims: Any, params: dict[str, Any]) -> Any:
    avals = []
    for x, dim in zip(args, dims):
        shape = shape_of(x)
        unbatched = shape if dim is None else (*shape[:dim], *shape[dim + 1 :])
        avals.append(ShapedArray(unbatched, aval_of(x).dtype))
    out = _conv_type(*avals, **params)
    return full((0, *out.shape), 0, out.dtype)


conv_general_dilated_p.jvp = jvp_from(conv_general_dilated_p, bilinear(conv_general_dilated_p.bind))
conv_general_dilated_p.transpose = transpose_from(_cotangent_of_lhs, _cotangent_of_rhs)


def _flops(eqn: Any) -> float:
    kernel = eqn.invars[1].aval.shape
    return 2.0 * math.prod(kernel) / kernel[eqn.params["dimension_numbers"].rhs_spec[0]]


conv_general_dilated_p.lowering = Shaped("conv_general_dilated", epilogue=True, flops=_flops)


def conv_padding(
    lhs_shape: Shape, rhs_shape: Shape, numbers: ConvDimensionNumbers,
    window_strides: Sequence[int], rhs_dilation: Sequence[int], padding: Any,
) -> tuple[tuple[int, int], ...]:  # fmt: skip
    """Padding as pairs of integers.

    Raises:
      ValueError: if it is neither a name nor a sequence of pairs.
    """
    if isinstance(padding, str):
        space = [lhs_shape[d] for d in numbers.lhs_spec[2:]]
        kernel = [rhs_shape[d] for d in numbers.rhs_spec[2:]]
        return tuple(padtype_to_pads(space, dilated(kernel, rhs_dilation), window_strides, padding))
    try:
        pairs: tuple[Any, ...] = tuple(as_ints(pair, "padding") for pair in padding)
    except TypeError:
        pairs = ((),)
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(
            "conv_general_dilated: padding argument must be a string or a sequence of (low, high) "
            f"pairs of integers, got {padding!r}."
        )
    return pairs


def refuse_dilated(name: str, padding: str, lhs_dilation: Shape) -> None:
    """Raise ValueError where padding is named for an input that is dilated."""
    if any(step != 1 for step in lhs_dilation):
        raise ValueError(
            f"{name}: String padding is not implemented for a dilated input, got {padding!r} and "
            f"lhs_dilation {lhs_dilation}. Specify the padding in numbers, or use conv_transpose."
        )


def conv_general_dilated(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, feature_group_count: int = 1,
    batch_group_count: int = 1, precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Convolution in n spatial dimensions (the kernel is not flipped).

    Args:
      rhs: kernel, array of rank n + 2 and of the same dtype; where the result is int32, bytes of
        both signs may meet.
      window_strides: n steps between windows.
      padding: n pairs of elements of padding before and after each spatial axis, or a rule named
        as in `padtype_to_pads`.
      lhs_dilation: n distances that neighbors in the input are moved apart (transposed
        convolution); 1 where omitted.
      rhs_dilation: n distances that neighbors in the kernel are moved apart (atrous
        convolution); 1 where omitted.
      dimension_numbers: three strings that name the axes of input, kernel and result, such as
        `("NHWC", "HWIO", "NHWC")`; batch, feature, space in this order where omitted. Strides,
        padding and dilations follow the order of the kernel's spatial axes.
      feature_group_count: number of groups that features are divided into; each group of output
        features sees one group of input features.
      batch_group_count: number of groups that the batch is divided into; each group of output
        features sees one group of the batch.

    Raises:
      TypeError: if dtypes differ or the dimension numbers are not well formed.
      ValueError: if sizes, groups, strides or padding do not fit.

        >>> x, w = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)
        >>> conv_general_dilated(x, w, (1,), "VALID").tolist()
        [[[2.0, 2.0, 2.0]]]
    """
    left, right = shape_of(lhs), shape_of(rhs)
    numbers = conv_dimension_numbers(left, right, dimension_numbers)
    ones = (1,) * (len(left) - 2)
    name = "conv_general_dilated"
    window_strides = as_ints(window_strides, f"{name} window_strides")
    lhs_dilation = ones if lhs_dilation is None else as_axes(lhs_dilation, f"{name} lhs_dilation")
    if isinstance(padding, str):
        refuse_dilated(name, padding, lhs_dilation)
    rhs_dilation = ones if rhs_dilation is None else as_axes(rhs_dilation, f"{name} rhs_dilation")
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_and_canonicalize_user_dtype(
            preferred_element_type, name
        )
    bind = partial(
        conv_general_dilated_p.bind, window_strides=window_strides,
        padding=conv_padding(left, right, numbers, window_strides, rhs_dilation, padding),
        lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation, dimension_numbers=numbers,
        feature_group_count=feature_group_count, batch_group_count=batch_group_count,
        precision=canonical_precision(precision), out_sharding=out_sharding,
    )  # fmt: skip
    return bind_product(bind, lhs, rhs, preferred_element_type)


def conv_dimension_numbers(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
) -> ConvDimensionNumbers:
    """Dimension numbers in canonical form.

    Args:
      dimension_numbers: three strings, canonical numbers, or None for batch, feature, space.

    Returns:
      The positions of the axes.

    Raises:
      TypeError: if ranks differ or a string does not name the axes.

        >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 6), ("NHWC", "HWIO", "NHWC")).rhs_spec
        (3, 2, 0, 1)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if rank != len(rhs_shape):
        raise TypeError(
            f"convolution: lhs and rhs must have the same rank, got shapes {tuple(lhs_shape)} and "
            f"{tuple(rhs_shape)}."
        )
    if dimension_numbers is None:
        order = tuple(range(rank))
        return ConvDimensionNumbers(order, order, order)
    if not isinstance(dimension_numbers, (list, tuple)) or len(dimension_numbers) != 3:
        raise TypeError(
            "convolution dimension_numbers must be None, a ConvDimensionNumbers or three strings, "
            f"got {dimension_numbers!r}."
        )
    for spec in dimension_numbers:
        if not isinstance(spec, str) or len(spec) != rank:
            raise TypeError(
                f"convolution dimension_numbers must be strings of {rank} characters for shapes "
                f"{tuple(lhs_shape)} and {tuple(rhs_shape)}, got {dimension_numbers!r}."
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def conv_general_permutations(
    dimension_numbers: Sequence[str],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Positions of the axes named by three strings.

    Args:
      dimension_numbers: names of the axes of input, kernel and result.

    Returns:
      Three tuples of positions: batch and feature (of the kernel: output and input feature), then
      the spatial axes in the kernel's order.

    Raises:
      TypeError: if a string does not name the axes.
      ValueError: if there are not three.

        >>> conv_general_permutations(("NHC", "HIO", "NHC"))
        ((0, 2, 1), (2, 1, 0), (0, 2, 1))
    """
    given = tuple(dimension_numbers)
    if len(given) != 3:
        raise ValueError(
            f"convolution dimension_numbers must be three strings, got {dimension_numbers!r}."
        )
    roles = (("N", "C"), ("O", "I"), ("N", "C"))
    for spec, (first, second) in zip(given, roles):
        if len(set(spec)) != len(spec) or first not in spec or second not in spec:
            raise TypeError(
                f"convolution dimension_numbers {spec!r} must contain {first!r} and {second!r} "
                f"and no character twice, got {given}."
            )
    spaces = [set(spec) - set(role) for spec, role in zip(given, roles)]
    if spaces[0] != spaces[1] or spaces[1] != spaces[2]:
        raise TypeError(
            "convolution dimension_numbers elements must each have the same set of spatial "
            f"characters, got {given}."
        )
    order = [character for character in given[1] if character not in "OI"]
    lhs, rhs, out = (
        tuple(spec.index(character) for character in (*role, *order))
        for spec, role in zip(given, roles)
    )
    return lhs, rhs, out
