"""Checks of what samplers are asked for, and bits of typed keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.errors import TypePromotionError
from amdjax.lax._rules import as_axes, as_ints
from amdjax.numpy._util import check_arraylike
from amdjax.random._keys import as_key
from amdjax.random._prng import random_bits as bits_of

__all__ = ["bits_of"]

Shape = tuple[int, ...]


def single_key(name: str, key: Any) -> Any:
    """`key` as one typed key."""
    return as_key(name, key)[0]


def as_shape(name: str, shape: Any) -> Shape:
    """A shape given as a sequence of integers."""
    try:
        wanted = as_axes if isinstance(shape, np.generic) else as_ints
        return wanted(shape, f"{name} shape")
    except TypeError as e:
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type: {e}"
        ) from None


def float_dtype(name: str, dtype: Any) -> np.dtype:
    """The dtype of real samples; the default one for `None`."""
    return _checked(name, dtype, float, np.floating, "a float")


def inexact_dtype(name: str, dtype: Any) -> np.dtype:
    """The dtype of real or complex samples; the default real one for `None`."""
    return _checked(name, dtype, float, np.inexact, "a float or complex")


def int_dtype(name: str, dtype: Any) -> np.dtype:
    """The dtype of integer samples; the default one for `None`."""
    return _checked(name, dtype, int, np.integer, "an int")


def _checked(name: str, dtype: Any, default: type, kind: type, words: str) -> np.dtype:
    dtype = dtypes.check_and_canonicalize_user_dtype(default if dtype is None else dtype)
    if not dtypes.issubdtype(dtype, kind):
        raise ValueError(f"dtype argument to `{name}` must be {words} dtype, got {dtype}")
    return dtype


def parameter_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """The shape of samples whose parameters are arrays.

    Args:
      name: the sampler.
      shape: the shape asked for, or `None` for that of the parameters.
      parameters: arrays.

    Returns:
      `shape`, or the parameters' common shape.

    Raises:
      TypeError: if a parameter is no array.
      ValueError: if the parameters do not broadcast to `shape`.
    """
    check_arraylike(name, *parameters)
    return common_shape(name, shape, *map(np.shape, parameters))


def common_shape(name: str, shape: Any, *shapes: Shape) -> Shape:
    """As `parameter_shape` of parameters that have the given shapes."""
    if shape is None:
        return lax.broadcast_shapes(*shapes) if shapes else ()
    shape = as_shape(name, shape)
    if shapes and not _reaches(shape, shapes):
        found = ", ".join(map(str, shapes))
        raise ValueError(
            f"{name} parameters must broadcast to its shape argument {shape}, got shapes {found}."
        )
    return shape


def _reaches(shape: Shape, shapes: Sequence[Shape]) -> bool:
    try:
        return lax.broadcast_shapes(shape, *shapes) == shape
    except ValueError:
        return False


def check_castable(name: str, dtype: np.dtype, *parameters: Any) -> None:
    """Raise unless parameters become `dtype` without loss."""
    for p in parameters:
        if not promotion.safe_to_cast(p, dtype):
            raise TypePromotionError(
                f"{name} parameters must be safe to cast to its dtype {dtype}, "
                f"got one of dtype {dtypes.dtype(p)}."
            )


def float_arguments(name: str, key: Any, shape: Any, dtype: Any, *parameters: Any) -> Any:
    """Key, shape and floating dtype of the sampler `name`, whose parameters fit both."""
    typed, dtype = single_key(name, key), float_dtype(name, dtype)
    if not parameters:
        return typed, as_shape(name, shape), dtype
    shape = parameter_shape(name, shape, *parameters)
    check_castable(name, dtype, *parameters)
    return typed, shape, dtype
