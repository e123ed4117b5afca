"""Changes of dtype: by value, by bits, and rounding to fewer bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array, ConcreteArray, asarray_concrete
from amdjax.core.aval import ShapedArray, is_extended, physical_aval, tangent_dtype
from amdjax.core.backend import get_backend
from amdjax.core.lowering import Element, Pointwise, Relabel
from amdjax.core.primitive import Primitive
from amdjax.core.tracebacks import warn
from amdjax.lax._rules import (
    FLOAT,
    LINEAR,
    as_ints,
    aval_of,
    batch_to,
    dtype_of,
    is_zero,
    jvp_from,
    transpose_from,
    unary,
    value_dtype,
    zero_tangent,
)
from amdjax.typing import ArrayLike, DTypeLike

__all__ = [
    "bitcast_convert_type", "bitcast_convert_type_p", "convert_element_type",
    "convert_element_type_p", "from_edtype_p", "reduce_precision", "reduce_precision_p",
    "to_edtype_p",
]  # fmt: skip

convert_element_type_p = Primitive("convert_element_type")


@convert_element_type_p.def_abstract_eval
def _convert_type(x: Any, *, new_dtype: Any, weak_type: bool, sharding: Any) -> ShapedArray:
    if is_extended(x) or isinstance(new_dtype, dtypes.ExtendedDType):
        raise ValueError(f"Cannot convert_element_type from {x.dtype} to {new_dtype}.")
    return ShapedArray(x.shape, new_dtype, weak_type)


@convert_element_type_p.def_jvp
def _convert_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    y = convert_element_type_p.bind(*primals, **params)
    (g,) = tangents
    if is_zero(g) or not dtypes.issubdtype(params["new_dtype"], np.inexact):
        return y, zero_tangent(y)
    return y, convert_element_type_p.bind(g, **params)


@convert_element_type_p.def_batch
def _convert_batch(axis: Any, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    return convert_element_type_p.bind(*args, **params), dims[0]


def _convert(b: Any, x: Any, *, new_dtype: Any, **_: Any) -> Any:
    return b.convert(x, new_dtype)


convert_element_type_p.transpose = transpose_from(lambda ct, x, **_: convert_back(ct, x))
convert_element_type_p.lowering = Pointwise(_convert, copies=True)


def _check_conversion(edtype: Any, numbers: Any, old: Any, new: Any, to: bool) -> None:
    if not edtype.converts(to, numbers):
        raise ValueError(f"Cannot convert_element_type from {old} to {new}.")
    if numbers != edtype.element_dtype:
        raise ValueError(
            f"extended dtypes can only convert to and from what they are stored as: {edtype} is "
            f"stored as {edtype.element_dtype}, got convert_element_type from {old} to {new}."
        )


def _reads_elements(name: str) -> Primitive:
    """A primitive between an array of an extended dtype and what it is stored as."""
    primitive = Primitive(name)
    primitive.lowering = Relabel()

    @primitive.def_jvp
    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        (g,) = tangents
        dtype = tangent_dtype(y.dtype)
        if is_zero(g) or dtype == dtypes.float0:
            return y, zero_tangent(y)
        return y, convert(g, dtype)

    @primitive.def_batch
    def batch(axis: Any, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        return primitive.bind(batch_to(args[0], dims[0], axis.size), **params), 0

    return primitive


to_edtype_p = _reads_elements("to_edtype")
from_edtype_p = _reads_elements("from_edtype")


@to_edtype_p.def_abstract_eval
def _to_edtype_type(x: Any, *, edtype: Any) -> ShapedArray:
    _check_conversion(edtype, x.dtype, x.dtype, edtype, to=True)
    suffix = edtype.element_shape
    rank = x.ndim - len(suffix)
    if rank < 0 or x.shape[rank:] != suffix:
        raise ValueError(
            f"can only convert to {edtype} what its elements are stored as, arrays whose last axes "
            f"are {suffix}, got an array of shape {x.shape}."
        )
    return ShapedArray(x.shape[:rank], edtype)


@from_edtype_p.def_abstract_eval
def _from_edtype_type(x: Any, *, dtype: Any) -> ShapedArray:
    _check_conversion(x.dtype, dtype, x.dtype, dtype, to=False)
    return physical_aval(x)


to_edtype_p.transpose = transpose_from(
    lambda ct, x, edtype: from_edtype_p.bind(ct, dtype=x.aval.dtype)
)
from_edtype_p.transpose = transpose_from(
    lambda ct, x, dtype: to_edtype_p.bind(ct, edtype=x.aval.dtype)
)


def convert_back(ct: Any, x: Any) -> Any:
    """A cotangent in the type of the operand `x`.

    Not by `convert`, which warns: a real operand has no imaginary part to lose.
    """
    dtype, weak_type, own = x.aval.dtype, x.aval.weak_type, aval_of(ct)
    if (own.dtype, own.weak_type) == (dtype, weak_type):
        return ct
    return convert_element_type_p.bind(ct, new_dtype=dtype, weak_type=weak_type, sharding=None)


def convert(x: Any, new_dtype: Any, weak_type: bool = False) -> Any:
    """`x` with exactly this dtype and weakness; itself if it has them already."""
    aval = aval_of(x)
    new_dtype = np.dtype(new_dtype) if isinstance(new_dtype, (type, str)) else new_dtype
    if isinstance(x, Array) and aval.dtype == new_dtype and aval.weak_type == weak_type:
        return x
    if is_extended(aval) or isinstance(new_dtype, dtypes.ExtendedDType):
        return _convert_extended(x, aval.dtype, new_dtype)
    plain = isinstance(x, (np.ndarray, np.generic)) and new_dtype != dtypes.float0
    if plain and not weak_type and x.dtype == new_dtype:
        return asarray_concrete(x)  # which needs no operation
    number = isinstance(x, (bool, int, float, np.generic)) and aval.dtype.kind != "c"
    if number and dtypes.issubdtype(new_dtype, np.floating):  # nothing is left to the program
        with np.errstate(over="ignore"):
            value = np.asarray(x, aval.dtype).astype(new_dtype)
        return ConcreteArray(ShapedArray((), new_dtype, weak_type), get_backend().put(value))
    if dtypes.issubdtype(aval.dtype, np.complexfloating) and not (
        dtypes.issubdtype(new_dtype, np.complexfloating) or new_dtype == np.bool_
    ):
        warn(
            "Casting complex values to real discards the imaginary part",
            np.exceptions.ComplexWarning,
        )
    return convert_element_type_p.bind(x, new_dtype=new_dtype, weak_type=weak_type, sharding=None)


def _convert_extended(x: Any, old: Any, new: Any) -> Any:
    """`x` read as elements of an extended dtype, or what such elements are stored as."""
    if not isinstance(old, dtypes.ExtendedDType):
        return to_edtype_p.bind(x, edtype=new)
    if isinstance(new, dtypes.ExtendedDType):
        raise ValueError(
            f"convert_element_type cannot directly convert between extended dtypes, from {old} to "
            f"{new}: convert by way of what their elements are stored as."
        )
    return from_edtype_p.bind(x, dtype=new)


def convert_like(x: Any, like: Any) -> Any:
    """`x` with the dtype and weakness of `like`."""
    aval = aval_of(like)
    return convert(x, aval.dtype, aval.weak_type)


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike | None) -> Array:
    """Convert each element to another dtype.

    Floating-point numbers lose their fraction when they become integers; complex numbers lose
    their imaginary part when they become real, with a warning.

    Args:
      operand: array of any shape and dtype.
      new_dtype: the dtype to convert to; 64-bit types become 32-bit ones unless x64 is enabled. An
        extended dtype takes arrays of what its elements are stored as, if its rules allow that, and
        is converted to nothing else.

    Returns:
      Array of the shape of the operand and of the new dtype, not weakly typed.

    Raises:
      TypeError: if `new_dtype` is not a dtype.
      ValueError: if it is None, or an extended dtype that does not convert so.

        >>> int(convert_element_type(2.7, np.int32))
        2
    """
    if new_dtype is None:
        raise ValueError("convert_element_type: dtype must be specified, got None.")
    dtype = dtypes.check_and_canonicalize_user_dtype(new_dtype, "convert_element_type")
    if type(operand) is int and dtypes.issubdtype(dtype, np.number):
        # Python integers beyond the default dtype wrap, or round, as those within it.
        wide = np.asarray(operand)
        operand = (wide if wide.dtype.kind in "iu" else wide.astype(np.float64)).astype(dtype)
    return convert(operand, dtype)


bitcast_convert_type_p = Primitive("bitcast_convert_type")


@bitcast_convert_type_p.def_abstract_eval
def _bitcast_type(x: Any, *, new_dtype: np.dtype) -> ShapedArray:
    if x.dtype == new_dtype:
        return ShapedArray(x.shape, new_dtype)
    for dtype in (x.dtype, new_dtype):
        if isinstance(dtype, dtypes.ExtendedDType):
            raise ValueError(f"bitcast_convert_type: unexpected input: dtype={dtype}")
    if x.dtype.kind in "bc" or new_dtype.kind in "bc":
        raise TypeError(
            "bitcast_convert_type takes boolean or complex values only to their own dtype, got "
            f"operand dtype {x.dtype} and new_dtype {new_dtype}."
        )
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(new_dtype)
    if new <= old:
        return ShapedArray(x.shape if new == old else (*x.shape, old // new), new_dtype)
    if not x.shape or x.shape[-1] * old != new:
        raise ValueError(
            f"bitcast_convert_type from {x.dtype} to the wider {new_dtype} needs a last axis of "
            f"size {new // old}, got an operand of shape {x.shape}."
        )
    return ShapedArray(x.shape[:-1], new_dtype)


bitcast_convert_type_p.jvp = jvp_from(bitcast_convert_type_p, ())


@bitcast_convert_type_p.def_batch
def _bitcast_batch(axis: Any, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
    x = batch_to(args[0], dims[0], axis.size)  # the last axis may come or go
    return bitcast_convert_type_p.bind(x, **params), 0


def _bitcast(b: Any, index: Any, x: Any, *, new_dtype: np.dtype) -> Any:
    if x.dtype == new_dtype:
        return b.read(x, index)
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(new_dtype)
    if new == old:
        return b.bitcast(b.read(x, index), new_dtype)
    wide, narrow = (np.dtype(f"uint{bits}") for bits in (max(old, new), min(old, new)))
    if new < old:
        shift = b.index_value(index[-1] * new, wide)
        bits = b.bitcast(b.read(x, index[:-1]), wide)
        return b.bitcast(b.convert(b.shr_logical(bits, shift), narrow), new_dtype)
    result = b.const(0, wide)
    for k in range(new // old):
        part = b.convert(b.bitcast(b.read(x, [*index, k]), narrow), wide)
        result = b.add(result, b.shl(part, b.const(k * old, wide)))
    return b.bitcast(result, new_dtype)


bitcast_convert_type_p.lowering = Element(_bitcast)


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Read the bits of each element as another dtype.

    Args:
      operand: array of any dtype but boolean and complex.
      new_dtype: a dtype of the same width; or a narrower one, which adds a last axis that holds
        the pieces from the least significant on; or a wider one, which joins the last axis.

    Returns:
      Array of the new dtype.

    Raises:
      TypeError: for boolean or complex types.
      ValueError: if the last axis does not make up one element of a wider dtype.

        >>> hex(int(bitcast_convert_type(np.float32(1), np.int32)))
        '0x3f800000'
    """
    dtype = dtypes.check_and_canonicalize_user_dtype(new_dtype, "bitcast_convert_type")
    return bitcast_convert_type_p.bind(operand, new_dtype=dtype)


def _round_bits(b: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round half to even in the integer that holds the bits, then clip the exponent."""
    dtype = value_dtype(x)
    if dtype.itemsize < 4:
        wide = b.convert(x, np.dtype(np.float32))
        params = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
        return b.convert(_round_bits(b, wide, **params), x.dtype)
    info = np.finfo(dtype)
    word = np.dtype(f"uint{info.bits}")

    def const(value: int) -> Any:
        return b.const(value, word)

    bits = b.bitcast(x, word)
    sign = b.shl(b.shr_logical(bits, const(info.bits - 1)), const(info.bits - 1))
    rounded = b.sub(bits, sign)
    dropped = info.nmant - mantissa_bits
    if dropped > 0:
        odd = b.rem(b.shr_logical(rounded, const(dropped)), const(2))
        rounded = b.add(rounded, b.add(odd, const((1 << (dropped - 1)) - 1)))
        rounded = b.shl(b.shr_logical(rounded, const(dropped)), const(dropped))
    if exponent_bits < info.nexp:
        bias, largest = (1 << (info.nexp - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        infinity = const(((1 << info.nexp) - 1) << info.nmant)
        first_too_large = const((bias + largest + 1) << info.nmant)
        first_normal = const((bias - largest + 1) << info.nmant)
        rounded = b.select(b.compare("ge", rounded, first_too_large), infinity, rounded)
        rounded = b.select(b.compare("lt", rounded, first_normal), const(0), rounded)
    result = b.bitcast(b.add(rounded, sign), x.dtype)
    return b.select(b.compare("ne", x, x), x, result)


reduce_precision_p = unary("reduce_precision", FLOAT, LINEAR, _round_bits)
reduce_precision_p.transpose = transpose_from(
    lambda ct, x, **params: reduce_precision_p.bind(ct, **params)
)


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round each element to a floating-point format of fewer bits, keeping the dtype.

    Args:
      operand: array of a floating-point dtype.
      exponent_bits: width of the exponent, at least 1.
      mantissa_bits: width of the stored mantissa, at least 0.

    Returns:
      Array of the shape and dtype of the operand. Values beyond the format become infinite; its
      subnormal values become zero.

    Raises:
      TypeError: for a dtype that is not floating-point.
      ValueError: for impossible widths.

        >>> float(reduce_precision(1.2, exponent_bits=8, mantissa_bits=2))
        1.25
    """
    dtype_of(operand)
    (exponent_bits,) = as_ints((exponent_bits,), "reduce_precision exponent_bits")
    (mantissa_bits,) = as_ints((mantissa_bits,), "reduce_precision mantissa_bits")
    if exponent_bits < 1:
        raise ValueError(f"reduce_precision: exponent_bits must be positive, got {exponent_bits}.")
    if mantissa_bits < 0:
        raise ValueError(
            f"reduce_precision: mantissa_bits must not be negative, got {mantissa_bits}."
        )
    return reduce_precision_p.bind(
        operand, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
    )
