"""Arrays exchanged with other libraries through DLPack."""

from __future__ import annotations

from typing import Any

from amdjax.core import dtypes
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.numpy import from_dlpack
from amdjax.typing import DTypeLike

__all__ = ["from_dlpack", "is_supported_dtype"]


def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Whether arrays of a dtype can be exchanged.

    Args:
      dtype: what `numpy.dtype` understands.

    Returns:
      A bool.

        >>> amdjax.dlpack.is_supported_dtype("bfloat16")
        True
    """
    found: Any = dtypes.as_dtype(dtype)
    return found in dtypes.array_dtypes and dtypes.itemsize_bits(found) >= 8


_public_surface(globals())
