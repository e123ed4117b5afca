"""Narrow numbers: which there are, and arrays stored in them with their scales."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.integers import ceil_div
from amdjax.core.trace import is_concrete
from amdjax.nn.module import Module, static
from amdjax.numpy._util import ArrayLike, as_array

__all__ = ["FORMATS", "Format", "QuantizedArray", "quantize_array"]


@dataclasses.dataclass(frozen=True)
class Format:
    """How a number is stored in few bits.

    Args:
      name: what `dtype=` calls it.
      dtype: of a stored number.
      lowest: the least value; symmetric integers keep to `-highest`.
      highest: the largest value.
      group: how many numbers share a scale unless the caller says; None for no groups.
      scale_dtype: of scales.

        >>> FORMATS["int8"].highest
        127.0
    """

    name: str
    dtype: np.dtype
    lowest: float
    highest: float
    group: int | None = None
    scale_dtype: np.dtype = np.dtype(np.float32)  # noqa: RUF009

    @property
    def is_integer(self) -> bool:
        """Whether numbers are whole, and may have a zero point."""
        return dtypes.issubdtype(self.dtype, np.integer)

    @property
    def is_scaled(self) -> bool:
        """Whether numbers need a scale; float16 and bfloat16 reach as they are."""
        return self.name not in ("float16", "bfloat16")

    @property
    def per_byte(self) -> int:
        """How many numbers a byte holds."""
        return 2 if self.name in _PACKED else 1

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return 8 * self.dtype.itemsize // self.per_byte


_PACKED = ("int4", "uint4", "mxfp4")


def _table() -> dict[str, Format]:
    table = {}
    for name in ("int4", "uint4", "int8", "uint8", "int16", "uint16"):
        info = dtypes.iinfo(name)
        group = 32 if name.endswith("int4") else None
        table[name] = Format(name, np.dtype(info.dtype), float(info.min), float(info.max), group)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float16", "bfloat16"):
        highest = float(dtypes.finfo(name).max)
        table[name] = Format(name, dtypes.finfo(name).dtype, -highest, highest)
    e2m1, e8m0 = (
        next(d for d in dtypes.custom_float_dtypes if d.name == name)
        for name in ("float4_e2m1fn", "float8_e8m0fnu")
    )
    table["mxfp4"] = Format("mxfp4", e2m1, -6.0, 6.0, 32, e8m0)
    return table


#: The formats by name.
FORMATS: dict[str, Format] = _table()
_ALIASES = {"fp8": "float8_e4m3fn", "fp16": "float16", "bf16": "bfloat16", "float4": "mxfp4"}


def format_of(what: str, dtype: Any) -> Format:
    """The format that a `dtype=` names.

    Raises:
      ValueError: there is none.
    """
    if isinstance(dtype, Format):
        return dtype
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    found = FORMATS.get(_ALIASES.get(name, name))
    if found is None:
        raise ValueError(f"{what}: dtype must be one of {', '.join(FORMATS)}, got {dtype!r}.")
    return found


class QuantizedArray(Module):
    """An array stored in few bits: `(values - zero_point) * scale`.

    A pytree. `scale` and `zero_point` have the array's rank; along each axis they have one entry,
    or one for each element, or one for each group of neighbors.

    Args:
      values: stored numbers; of 4 bits two in a byte of uint8, those of the first half of the last
        axis in the low bits, which are taken apart without moving any from lane to lane.
      scale: what a step is worth.
      zero_point: which stored number is zero; None if 0 is.
      format: the name of the format.
      dtype: of the array that it stands for.
      last: the size of the last axis, where numbers share bytes.

        >>> q = quantize_array(jnp.array([[1.0, -2.0], [3.0, 4.0]]), "int8", axis=0)
        >>> q.values.dtype, q.scale.shape, q.nbytes
        (dtype('int8'), (2, 1), 12)
        >>> q.dequantize().round(1)
        Array([[ 1., -2.],
               [ 3.,  4.]], dtype=float32)
    """

    values: Array
    scale: Array
    zero_point: Array | None
    format: str = static()
    dtype: str = static()
    last: int | None = static(default=None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that it stands for."""
        shape = tuple(self.values.shape)
        return shape if self.last is None else (*shape[:-1], self.last)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.values.ndim

    @property
    def nbytes(self) -> int:
        """Bytes of all that is stored."""
        return sum(x.nbytes for x in (self.values, self.scale, self.zero_point) if x is not None)

    def unpacked(self) -> Array:
        """The stored numbers, one an element.

        Returns:
          An array of `shape`, of the format's dtype; of int8 or uint8 if that is int4 or uint4.

        Example:
          >>> quantize_array(jnp.array([1.0, -7.0]), "int4", group=2).unpacked()
          Array([ 1, -7], dtype=int8)
        """
        return self.values if self.last is None else _unpack(self.values, self._format, self.last)

    def integers(self) -> tuple[Array, float]:
        """The stored numbers as integers where that takes less than to convert floats of 4 bits.

        Returns:
          An array of `shape`, and what one is worth: of float4 they are halves, and no zero is
          negative.

        Example:
          >>> quantize_array(jnp.array([0.5, -6.0, 3.0]), "mxfp4").integers()
          (Array([  1, -12,   6], dtype=int8), 0.5)
        """
        if self._format.dtype.name != "float4_e2m1fn" or self.last is None:
            return self.unpacked(), 1.0
        bits = _bits(self.values, self.last).astype(np.int8)
        code = bits & np.int8(7)
        # 0 to 4 in halves, 4 to 6 in ones, 6 to 12 in twos: each line is above the others there.
        by_ones, by_twos = code * np.int8(2) - np.int8(4), code * np.int8(4) - np.int8(16)
        halves = jnp.maximum(code, jnp.maximum(by_ones, by_twos))
        return jnp.where(bits > 7, -halves, halves), 0.5

    def dequantize(self) -> Array:
        """The array that it stands for.

        Returns:
          An array of `shape` and `dtype`.

        Example:
          >>> quantize_array(jnp.array([127.0, 0.6, 1.5]), "int8").dequantize()
          Array([127.,   1.,   2.], dtype=float32)
        """
        wide = np.promote_types(np.float32, np.dtype(self.dtype) if self._is_plain else np.float32)
        values = self.unpacked().astype(wide)
        if self.zero_point is not None:
            values = values - spread(self.zero_point.astype(wide), self.shape)
        return (values * spread(self.scale.astype(wide), self.shape)).astype(self.dtype)

    @property
    def _is_plain(self) -> bool:
        return self.dtype in ("float32", "float64")

    @property
    def _format(self) -> Format:
        return FORMATS[self.format]


def spread(x: Array, shape: Sequence[int]) -> Array:
    """Scales repeated for the elements of their groups; axes of one entry stay as they are."""
    for axis, (have, size) in enumerate(zip(x.shape, shape)):
        if have not in (1, size):
            x = jnp.repeat(x, ceil_div(size, have), axis)
            x = lax.slice_in_dim(x, 0, size, axis=axis)
    return x


def _pack(numbers: Array, form: Format) -> Array:
    """Numbers of 4 bits, two in a byte."""
    if not form.is_integer:
        numbers = lax.bitcast_convert_type(numbers, "uint4")
    bits = numbers.astype(np.uint8) & np.uint8(15)
    if bits.shape[-1] % 2:
        bits = jnp.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, 1)])
    half = bits.shape[-1] // 2
    return bits[..., :half] | (bits[..., half:] << np.uint8(4))


def _unpack(packed: Array, form: Format, last: int) -> Array:
    """The numbers of 4 bits in bytes, those of int4 as int8."""
    bits = _bits(packed, last)
    if form.dtype.name == "int4":
        return (bits ^ np.uint8(8)).astype(np.int8) - np.int8(8)
    if form.is_integer:
        return bits
    return lax.bitcast_convert_type(bits.astype("uint4"), form.dtype)


def _bits(packed: Array, last: int) -> Array:
    """Numbers of 4 bits as bytes hold them, each in a byte of its own."""
    return jnp.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)[..., :last]


def scale_of(low: Array, high: Array, form: Format, symmetric: bool) -> tuple[Array, Array | None]:
    """The scale, and the zero point, with which numbers of a range fit into a format."""
    if form.scale_dtype.name == "float8_e8m0fnu":
        return _power_of_two(jnp.maximum(-low, high), form), None
    if symmetric or not form.is_integer:
        return _at_least_tiny(jnp.maximum(-low, high) / np.float32(form.highest)), None
    low, high = jnp.minimum(low, 0), jnp.maximum(high, 0)
    # Divided first: the difference of two large numbers is none.
    steps = np.float32(form.highest - form.lowest)
    scale = _at_least_tiny(high / steps - low / steps)
    zero = jnp.clip(jnp.round(form.lowest - low / scale), form.lowest, form.highest)
    return scale, zero.astype(form.dtype)


def _at_least_tiny(scale: Array) -> Array:
    """A scale by which one can divide."""
    return jnp.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)


def _power_of_two(largest: Array, form: Format) -> Array:
    """The shared scale of OCP Microscaling Formats v1.0, 6.3: the largest number's power of two by
    that of the format; what is then still beyond is the largest of the format.
    """
    _, exponent = jnp.frexp(jnp.where(largest > 0, largest, 1))
    of_format = math.frexp(form.highest)[1]
    exponent = jnp.clip(exponent - of_format, -127, 127)
    return jnp.ldexp(np.float32(1), exponent).astype(form.scale_dtype)


def _to_format(x: Array, zero: Array | None, form: Format, symmetric: bool) -> Array:
    """Numbers that were divided by their scale, rounded half to even and clipped."""
    lowest = -form.highest if symmetric and form.lowest < 0 else form.lowest
    if form.is_integer:
        x = jnp.round(x)
        if zero is not None:
            x = x + zero.astype(x.dtype)
    return jnp.clip(x, lowest, form.highest).astype(form.dtype)


def quantize_array(
    x: ArrayLike, dtype: Any = "int8", *, axis: int | Sequence[int] | None = None,
    group: int | None = None, symmetric: bool = True, scale: ArrayLike | None = None,
    zero_point: ArrayLike | None = None,
) -> QuantizedArray:  # fmt: skip
    """An array in few bits.

    Numbers are divided by the scale, rounded half to even, moved by the zero point and clipped.

    Args:
      x: array of floats.
      dtype: int8, uint8, int16, uint16, float8_e4m3fn ("fp8"), float8_e4m3fnuz, float8_e5m2; int4,
        uint4, and "mxfp4": float4_e2m1fn in groups that share a power of two.
      axis: without groups the axes along which each element has a scale of its own, as channels
        have; None for one scale. With groups the axis that is cut into them, the last by default.
      group: how many neighbors along `axis` share a scale, at each place of the other axes; if it
        does not divide these, as many groups of about the same size. Of 4-bit formats 32 by
        default, but where `axis` is None and `group` is 0 one scale.
      symmetric: whether zero is stored as 0. Unsigned integers are not.
      scale: the scales, of `x`'s rank or none; by default such that the largest number fits.
      zero_point: the stored zeros; only with `scale`.

    Returns:
      The quantized array.

    Raises:
      TypeError: `x` is not of floats.
      ValueError: an unknown dtype, an axis out of range, a group that is not positive, a number
        that is infinite or NaN, or unsigned integers that are to be symmetric.

        >>> q = quantize_array(jnp.linspace(-1, 1, 64).reshape(32, 2), "int4", axis=0)
        >>> q.shape, q.values.shape, q.scale.shape
        ((32, 2), (32, 1), (1, 2))
    """
    x = as_array("quantize_array", x)
    if not dtypes.issubdtype(x.dtype, np.floating):
        raise TypeError(f"quantize_array: x must be of floats, got {x.dtype}.")
    form = format_of("quantize_array", dtype)
    if not form.is_scaled:
        raise ValueError(f"quantize_array: {form.name} has no scales; use x.astype({form.name!r}).")
    if form.is_integer and not form.lowest and symmetric and scale is None:
        raise ValueError(f"quantize_array: dtype {form.name} needs symmetric=False.")
    wide = x.astype(np.promote_types(np.float32, x.dtype if x.dtype == np.float64 else np.float32))
    check_finite("quantize_array: x", wide)
    if scale is None:
        if zero_point is not None:
            raise ValueError("quantize_array: zero_point must come with scale.")
        low, high = _ranges(wide, form, axis, group)
        found, zero = scale_of(low, high, form, symmetric)
    else:
        found = as_array("quantize_array", scale).astype(form.scale_dtype)
        found = found if found.ndim else found.reshape((1,) * x.ndim)
        zero = None
        if zero_point is not None:
            zero = jnp.broadcast_to(as_array("quantize_array", zero_point), found.shape)
            zero = zero.astype(form.dtype)
        check_scales(found.shape, x.shape)
    return stored(wide, found, zero, form, symmetric and zero is None, str(x.dtype))


def stored(
    x: Array, scale: Array, zero: Array | None, form: Format, symmetric: bool, dtype: str,
    inverse: Array | None = None,
) -> QuantizedArray:  # fmt: skip
    """An array in a format, its scales known.

    Numbers are divided by the scale, or multiplied by its `inverse`, which is faster and rounds to
    another where a ratio is within an ulp of the middle between two.
    """
    of_each = lambda scale: spread(scale.astype(x.dtype), x.shape)
    ratio = x / of_each(scale) if inverse is None else x * of_each(inverse)
    zeros = None if zero is None else spread(zero, x.shape)
    numbers = _to_format(ratio, zeros, form, symmetric)
    if form.per_byte == 1 or not x.ndim:
        return QuantizedArray(numbers, scale, zero, form.name, dtype)
    return QuantizedArray(_pack(numbers, form), scale, zero, form.name, dtype, x.shape[-1])


def check_finite(what: str, x: Array) -> None:
    """Refuse NaN and infinities, where numbers are known."""
    if is_concrete(x) and not bool(jnp.isfinite(x).all()):
        raise ValueError(f"{what} must be finite, got NaN or infinity.")


def check_scales(scales: Sequence[int], shape: Sequence[int]) -> None:
    """Refuse scales that do not belong to an array."""
    fits = len(scales) == len(shape) and all(
        0 < n <= size and ceil_div(size, ceil_div(size, n)) == n
        for n, size in zip(scales, shape) if n != 1
    )  # fmt: skip
    if not fits:
        raise ValueError(
            f"quantize_array: scale of shape {tuple(scales)} must have along each axis of "
            f"{tuple(shape)} one entry, one for each element, or one for each of equal groups, "
            "of which the last may be shorter."
        )


def _ranges(x: Array, form: Format, axis: Any, group: int | None) -> tuple[Array, Array]:
    """The least and the largest number for each scale."""
    if group is None and form.group and x.ndim:
        group = form.group
    if group:
        return _group_ranges(x, -1 if axis is None else axis, group)
    own = () if axis is None else axes_of(axis, x.ndim)
    rest = tuple(d for d in range(x.ndim) if d not in own)
    if not x.size:
        return (jnp.zeros([x.shape[d] if d in own else 1 for d in range(x.ndim)], x.dtype),) * 2
    return x.min(rest, keepdims=True), x.max(rest, keepdims=True)


def _group_ranges(x: Array, axis: Any, group: Any) -> tuple[Array, Array]:
    axes = axes_of(axis, x.ndim)
    if len(axes) != 1:
        raise ValueError(f"quantize_array: axis must be one axis where there are groups: {axis!r}.")
    (axis,), group = axes, operator.index(group)
    size = x.shape[axis]
    if group < 1:
        raise ValueError(f"quantize_array: group must be positive, got {group}.")
    # Of the same size, but for the last, so that the number of scales tells it.
    count = max(ceil_div(size, group), 1)
    each = max(ceil_div(size, count), 1)
    if count * each != size and size:
        ends = [(0, count * each - size if d == axis else 0) for d in range(x.ndim)]
        x = jnp.pad(x, ends, mode="edge")
    blocks = x.reshape(*x.shape[:axis], count, each, *x.shape[axis + 1 :])
    return blocks.min(axis + 1), blocks.max(axis + 1)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front.

    Raises:
      ValueError: there is no such axis.
    """
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    found = tuple(operator.index(d) for d in given)
    for d in found:
        if not -ndim <= d < ndim:
            raise ValueError(f"quantize_array: axis {d} is out of range for {ndim} axes.")
    return tuple(sorted({d % ndim for d in found}))
