"""Products of arrays in few bits: integers summed exactly in int32, then scaled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.integers import ceil_div
from amdjax.core.primitive import Primitive
from amdjax.quantize.formats import FORMATS, QuantizedArray, spread

__all__: list[str] = []


def contracted_axes(operation: str, params: dict[str, Any], side: int) -> tuple[int, ...]:
    """The axes of an operand that a product sums over; of a convolution's input those that its
    scale may not differ along.
    """
    numbers = params["dimension_numbers"]
    if operation == "dot_general":
        return tuple(numbers[0][side])
    return tuple((numbers.lhs_spec, numbers.rhs_spec)[side][1:])


def group_axis(operation: str, params: dict[str, Any], side: int) -> int:
    """The axis along which a weight is cut into groups: the first that is summed over."""
    return contracted_axes(operation, params, side)[0]


def bind(operation: str, params: dict[str, Any], lhs: Any, rhs: Any, dtype: Any) -> Array:
    """A product with other operands, summed in `dtype`."""
    params = {**params, "preferred_element_type": np.dtype(dtype)}
    return Primitive.by_name[operation].bind(lhs, rhs, **params)


def can_scale(operation: str, params: dict[str, Any], q: QuantizedArray, side: int) -> bool:
    """Whether an operand's scales and zero points are the same along what is summed over."""
    both = [x for x in (q.scale, q.zero_point) if x is not None]
    axes = contracted_axes(operation, params, side)
    return all(x.shape[d] == 1 for x in both for d in axes)


def to_result(operation: str, params: dict[str, Any], x: Array, side: int, ndim: int) -> Array:
    """An operand's scales along the axes of the result."""
    own = _places(operation, params, x.ndim, side, ndim)
    shape = [1] * ndim
    for d, place in own.items():
        shape[place] = x.shape[d]
    # What is dropped has one entry, so that it may stand anywhere.
    order = [*sorted(own, key=lambda d: own[d]), *(d for d in range(x.ndim) if d not in own)]
    return lax.transpose(x, order).reshape(shape)


def of_result(
    operation: str, params: dict[str, Any], x: Array, side: int, shape: Sequence[int]
) -> Array:
    """What the axes of a result have that are an operand's, along those of the operand."""
    own = _places(operation, params, len(shape), side, x.ndim)
    order = sorted(own, key=lambda d: own[d])
    x = x.reshape([shape[d] for d in order])
    x = lax.transpose(x, [order.index(d) for d in sorted(own)])
    return x.reshape([n if d in own else 1 for d, n in enumerate(shape)])


def _places(
    operation: str, params: dict[str, Any], rank: int, side: int, ndim: int
) -> dict[int, int]:
    """Axes of an operand of some rank that are axes of the result, with their places there."""
    numbers = params["dimension_numbers"]
    if operation == "conv_general_dilated":
        spec = (numbers.lhs_spec, numbers.rhs_spec)[side]
        return {spec[0]: numbers.out_spec[side]}
    contract, batch = numbers[0][side], numbers[1][side]
    free = [d for d in range(rank) if d not in (*contract, *batch)]
    first = len(batch) if side == 0 else ndim - len(free)
    return {d: i for i, d in enumerate(batch)} | {d: first + i for i, d in enumerate(free)}


def weight_sums(operation: str, params: dict[str, Any], q: QuantizedArray, side: int) -> Array:
    """What the zero point of the other operand is multiplied by: sums of stored numbers."""
    return _sum(_signed(q)[0], contracted_axes(operation, params, side))


def _sum(values: Array, axes: Sequence[int]) -> Array:
    """In int32, where 64-bit types are on, too: that is what products are summed in."""
    return jnp.sum(values, tuple(axes), np.int32, keepdims=True)


def quantized_product(
    operation: str, params: dict[str, Any], lhs: QuantizedArray, rhs: QuantizedArray,
    dtype: Any, sums: Array | None = None, weight: int = 1, shift: Array | None = None,
) -> Array:  # fmt: skip
    """The product of two arrays in few bits.

    Args:
      operation: "dot_general" or "conv_general_dilated".
      params: those of the equation.
      lhs: an operand whose scales differ along axes of the result only.
      rhs: another.
      dtype: of the result.
      sums: `weight_sums` of the operand `weight`, if they are known.
      weight: which operand that is.
      shift: what is added to sums before they are scaled, as `sums` lies.

    Returns:
      The product. Sums of integers are exact.
    """
    wide = np.promote_types(np.float32, dtype) if dtype in (np.float32, np.float64) else np.float32
    if FORMATS[lhs.format].is_integer:
        given = (sums, None) if weight == 0 else (None, sums)
        out = _integer_sums(operation, params, lhs, rhs, given, shift, weight)
    else:
        out = bind(operation, params, lhs.unpacked(), rhs.unpacked(), np.float32)
        if shift is not None:
            out = out + to_result(operation, params, shift, weight, out.ndim)
    scales = [
        to_result(operation, params, q.scale.astype(wide), side, out.ndim)
        for side, q in enumerate((lhs, rhs))
    ]
    return (out.astype(wide) * (scales[0] * scales[1])).astype(dtype)


def signed(values: Array, zero: Array | None) -> tuple[Array, Array | None]:
    """Integers of 8 bits and less as int8, and their zero point in int32. Those of uint8 are moved
    by 128.
    """
    zero = None if zero is None else zero.astype(np.int32)
    if values.dtype != np.uint8:
        return values.astype(np.int8), zero
    values = lax.bitcast_convert_type(values ^ np.uint8(128), np.int8)
    return values, jnp.asarray(0 if zero is None else zero) - np.int32(128)


def _signed(q: QuantizedArray) -> tuple[Array, Array | None]:
    values, zero = signed(q.unpacked(), q.zero_point)
    return values, None if zero is None else jnp.broadcast_to(zero, q.scale.shape)


def without_zero_points(
    sums: Array, depth: int, lhs: tuple[Array | None, Callable[[], Array]],
    rhs: tuple[Array | None, Callable[[], Array]], shift: Array | None = None,
) -> Array:  # fmt: skip
    """`sum((a - p) * (b - q)) + shift` from sums of `a * b`, which are `depth` products each.

    Args:
      sums: `sum(a * b)`, in int32.
      depth: how many are summed.
      lhs: `p`, in int32 and to be broadcast to the sums, or None for 0; what gives `sum(a)`.
      rhs: the same of `b`.
    """
    (p, sum_a), (q, sum_b) = lhs, rhs
    if p is not None:
        # Both follow from the weight: where that is a constant, one number for each channel does.
        sums = sums - (p * sum_b() if shift is None else p * sum_b() - shift)
    elif shift is not None:
        sums = sums + shift
    if q is not None:
        sums = sums - q * sum_a()
    if p is not None and q is not None:
        sums = sums + np.int32(depth) * p * q
    return sums


def _integer_sums(
    operation: str, params: dict[str, Any], lhs: QuantizedArray, rhs: QuantizedArray,
    sums: Sequence[Array | None], shift: Array | None, weight: int,
) -> Array:  # fmt: skip
    """`sum((lhs - its zero) * (rhs - its zero)) + shift`, in int32; `shift` as a weight lies."""
    (x, x_zero), (w, w_zero) = _signed(lhs), _signed(rhs)
    if operation == "conv_general_dilated":
        return convolution_sums(params, x, x_zero, w, w_zero, sums[1], shift)
    out = bind(operation, params, x, w, np.int32)
    place = lambda value, side: to_result(operation, params, value, side, out.ndim)
    axes = [contracted_axes(operation, params, side) for side in (0, 1)]

    def total(side: int) -> Array:
        known = sums[side]
        return place(_sum((x, w)[side], axes[side]) if known is None else known, side)

    zeros = [
        None if zero is None else place(zero, side) for side, zero in enumerate((x_zero, w_zero))
    ]
    depth = int(np.prod([x.shape[d] for d in axes[0]], dtype=int))
    return without_zero_points(
        out, depth, (zeros[0], lambda: total(0)), (zeros[1], lambda: total(1)),
        None if shift is None else place(shift, weight),
    )  # fmt: skip


def convolution_sums(
    params: dict[str, Any], x: Array, x_zero: Array | None, w: Array, w_zero: Array | None,
    sums: Array | None = None, shift: Array | None = None,
) -> Array:  # fmt: skip
    """A convolution of integers of 8 bits without their zero points, in int32.

    Args:
      params: those of the equation.
      x: the image.
      x_zero: its zero point, a single one; None for 0.
      w: the kernel.
      w_zero: its zero points, to be broadcast to it, one for each feature of the result at most.
      sums: of the kernel for each feature of the result, if they are known.
      shift: what is added, for each feature of the result.
    """
    operation, numbers = "conv_general_dilated", params["dimension_numbers"]
    if x_zero is not None or w_zero is not None:
        # What is outside the image is zero, which is stored as the zero point.
        config = [(0, 0, 0)] * x.ndim
        dilations = params["lhs_dilation"] or (1,) * (x.ndim - 2)
        for d, (low, high), dilation in zip(numbers.lhs_spec[2:], params["padding"], dilations):
            config[d] = (low, high, dilation - 1)
        edge = jnp.asarray(0 if x_zero is None else x_zero).reshape(()).astype(x.dtype)
        x = lax.pad(x, edge, config)
        params = {
            **params, "padding": ((0, 0),) * (x.ndim - 2), "lhs_dilation": (1,) * (x.ndim - 2),
        }  # fmt: skip
    out = bind(operation, params, x, w, np.int32)
    axes = contracted_axes(operation, params, 1)
    place = lambda value: to_result(operation, params, value, 1, out.ndim)
    per_feature = [n if d == numbers.rhs_spec[0] else 1 for d, n in enumerate(w.shape)]
    q = None if w_zero is None else jnp.broadcast_to(w_zero.astype(np.int32), per_feature)
    depth = int(np.prod([w.shape[d] for d in axes], dtype=int))
    return without_zero_points(
        out, depth,
        (None if x_zero is None else x_zero.astype(np.int32).reshape(()),
         lambda: _window_sums(params, x, w.shape)),
        (None if q is None else place(q), lambda: place(_sum(w, axes) if sums is None else sums)),
        None if shift is None else place(shift),
    )  # fmt: skip


def mean_axes(operation: str, params: dict[str, Any], side: int, ndim: int) -> tuple[int, ...]:
    """The axes of an operand along which means serve `product_of_means`."""
    numbers = params["dimension_numbers"]
    if operation == "dot_general":
        kept = *numbers[0][side], *numbers[1][side]
    else:
        kept = (numbers.lhs_spec[1],)
    return tuple(d for d in range(ndim) if d not in kept)


def product_of_means(
    operation: str, params: dict[str, Any], means: Array, weight: Array, side: int
) -> Array:
    """The mean of a product along the axes of its result that are not the weight's, as that lies.

    Args:
      operation, params: the product.
      means: of the other operand along `mean_axes`. What pads an image is left out of account.
      weight: the weight.
      side: which operand that is.
    """
    lhs, rhs = (means, weight)[:: 1 if side else -1]
    if operation == "dot_general":
        out = bind(operation, params, lhs, rhs, np.float32)
        return of_result(operation, params, out, side, weight.shape)
    numbers = params["dimension_numbers"]
    space, shape = numbers.lhs_spec[2:], list(means.shape)
    ones = (1,) * len(space)
    for d, of_kernel, apart in zip(space, numbers.rhs_spec[2:], params["rhs_dilation"] or ones):
        shape[d] = (weight.shape[of_kernel] - 1) * apart + 1
    once = {
        **params, "padding": ((0, 0),) * len(space), "window_strides": ones, "lhs_dilation": ones,
    }  # fmt: skip
    # Zeros between the numbers of an image are read as often.
    among = math.prod(params["lhs_dilation"] or ones)
    out = bind(operation, once, jnp.broadcast_to(lhs, shape), rhs, np.float32) / among
    return of_result(operation, params, out, side, weight.shape)


def _window_sums(params: dict[str, Any], x: Array, kernel: Sequence[int]) -> Array:
    """Sums of what each window of a convolution without padding reads, as the result lies."""
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    features, *space = numbers.lhs_spec[1:]
    parts = x.reshape(*x.shape[:features], groups, -1, *x.shape[features + 1 :])
    parts = jnp.sum(parts, features + 1, np.int32)
    dilations = params["rhs_dilation"] or (1,) * len(space)
    window, strides, apart = ([1] * x.ndim for _ in range(3))
    for i, d in enumerate(space):
        window[d], strides[d] = kernel[numbers.rhs_spec[2 + i]], params["window_strides"][i]
        apart[d] = dilations[i]
    sums = lax.reduce_window(
        parts, np.int32(0), lax.add, window, strides, "VALID", window_dilation=apart
    )
    order = [0] * x.ndim
    for d, place in zip(numbers.lhs_spec, numbers.out_spec, strict=True):
        order[place] = d
    of_each = kernel[numbers.rhs_spec[0]] // groups
    return jnp.repeat(lax.transpose(sums, order), of_each, numbers.out_spec[1])


def product_of_stored(
    operation: str, params: dict[str, Any], x: Array, q: QuantizedArray, side: int, dtype: Any
) -> Array:
    """The product of floats and a weight in few bits, which is converted where it is used."""
    wide = x.dtype
    if q.zero_point is None and can_scale(operation, params, q, side):
        values, worth = q.integers()
        lhs, rhs = (x, values.astype(wide))[:: 1 if side else -1]
        # Sums of what is stored may be more than float16 holds, as those of int8 mostly are.
        out = bind(operation, params, lhs, rhs, np.promote_types(dtype, np.float32))
        scale = to_result(operation, params, q.scale.astype(np.float32), side, out.ndim)
        return (out * worth * scale.astype(out.dtype)).astype(dtype)
    if operation == "dot_general" and _is_by_groups(params, x, q, side):
        return _product_by_groups(params, x, q, side).astype(dtype)
    lhs, rhs = (x, _of_integers(q).astype(wide))[:: 1 if side else -1]
    return bind(operation, params, lhs, rhs, dtype)


def _of_integers(q: QuantizedArray) -> Array:
    """The array that it stands for, converted from integers where that takes less."""
    values, worth = q.integers()
    if worth == 1:
        return q.dequantize()
    return values.astype(np.float32) * worth * spread(q.scale.astype(np.float32), q.shape)


def _is_by_groups(params: dict[str, Any], x: Array, q: QuantizedArray, side: int) -> bool:
    """Whether a product is done group by group, each scaled: with few rows that is less to store
    than the dequantized weight.
    """
    contract, batch = params["dimension_numbers"]
    if q.zero_point is not None or len(contract[side]) != 1 or batch[0]:
        return False
    (axis,), (own,) = contract[side], contract[1 - side]
    rows = [size for d, size in enumerate(x.shape) if d != own]
    known = all(isinstance(size, int) for size in rows)
    return known and math.prod(rows) * q.scale.shape[axis] < q.shape[axis]


def _product_by_groups(params: dict[str, Any], x: Array, q: QuantizedArray, side: int) -> Array:
    (axis,), (own,) = (params["dimension_numbers"][0][s] for s in (side, 1 - side))
    scale = jnp.moveaxis(q.scale.astype(np.float32), axis, 0)
    groups, size = scale.shape[0], q.shape[axis]
    each = ceil_div(size, groups)

    def cut(x: Array, axis: int) -> Array:
        """Groups of neighbors first; what the last lacks is zero."""
        x = jnp.moveaxis(x, axis, 0)
        if groups * each != size:
            x = jnp.pad(x, [(0, groups * each - size), *[(0, 0)] * (x.ndim - 1)])
        return x.reshape(groups, each, *x.shape[1:])

    values, worth = q.integers()
    w, x = cut(values, axis).astype(x.dtype), cut(x, own)
    numbers = (((1,), (1,)), ((0,), (0,)))
    lhs, rhs = (x, w)[:: 1 if side else -1]
    out = bind("dot_general", {**params, "dimension_numbers": numbers}, lhs, rhs, np.float32)
    ones = (1,) * (x.ndim - 2)
    ones = (*ones, *scale.shape[1:]) if side else (*scale.shape[1:], *ones)
    return jnp.sum(out * worth * scale.reshape(groups, *ones), 0)
