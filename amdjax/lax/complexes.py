"""Complex numbers: parts, conjugate, assembly."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.array import Array
from amdjax.lax._public import unary_function
from amdjax.lax._rules import (
    COMPLEX,
    LINEAR,
    Kinds,
    binary,
    dtype_of,
    real_dtype,
    scalar,
    unary,
    value_dtype,
)
from amdjax.lax.elementwise import neg
from amdjax.typing import ArrayLike

__all__ = [
    "complex", "complex_p", "conj", "conj_p", "imag", "imag_p", "real", "real_p",
]  # fmt: skip

_COMPONENT: Kinds = frozenset({np.float32, np.float64})


def _complex_dtype(x: Any, *_: Any, **__: Any) -> np.dtype:
    return np.result_type(x.dtype, np.complex64)


def _without_imaginary(x: Any) -> Any:
    return complex(x, scalar(x, 0))


real_p = unary(
    "real", COMPLEX, LINEAR, lambda b, x: b.real(x), transpose=lambda ct, x: _without_imaginary(ct),
    out=real_dtype,
)  # fmt: skip
imag_p = unary(
    "imag",
    COMPLEX,
    LINEAR,
    lambda b, x: b.imag(x),
    # The pairing of tangents and cotangents is x y without conjugation: hence the sign.
    transpose=lambda ct, x: complex(scalar(ct, 0), neg(ct)),
    out=real_dtype,
)


real = unary_function(real_p, "Real part of each element.", "1 + 2j", "1.0")
imag = unary_function(imag_p, "Imaginary part of each element.", "1 + 2j", "2.0")


complex_p = binary(
    "complex", _COMPONENT, lambda g, z, x, y: _without_imaginary(g),
    lambda g, z, x, y: complex(scalar(g, 0), g), lambda b, x, y: b.complex(x, y),
    transpose=(lambda ct, x, y: real(ct), lambda ct, x, y: neg(imag(ct))), out=_complex_dtype,
)  # fmt: skip


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """The complex numbers `x + iy`, element by element.

    Args:
      x: real parts, array of dtype float32 or float64.
      y: imaginary parts, array of the same dtype; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape, complex64 or complex128.

    Raises:
      TypeError: for other dtypes, or shapes that do not match.

        >>> complex(1.0, 2.0).tolist()
        (1+2j)
    """
    return complex_p.bind(x, y)


def _conj(b: Any, x: Any, *, input_dtype: Any) -> Any:
    if value_dtype(x).kind == "c":
        return b.complex(b.real(x), b.neg(b.imag(x)))
    return b.complex(x, b.const(0, x.dtype))


def _conj_transpose(ct: Any, x: Any, *, input_dtype: Any) -> Any:
    return conj(ct) if np.dtype(input_dtype).kind == "c" else real(ct)


conj_p = unary(
    "conj", _COMPONENT | COMPLEX, LINEAR, _conj, transpose=_conj_transpose, out=_complex_dtype
)


def conj(x: ArrayLike) -> Array:
    """Complex conjugate of each element.

    Args:
      x: array of dtype complex64, complex128, float32 or float64.

    Returns:
      Array of the shape of `x` and of a complex dtype.

    Raises:
      TypeError: for other dtypes.

        >>> conj(1 + 2j).tolist()
        (1-2j)
    """
    return conj_p.bind(x, input_dtype=dtype_of(x))
