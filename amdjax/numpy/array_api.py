"""What the array API standard asks a namespace about itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.backend import get_backend

VERSION = "2024.12"


class ArrayNamespaceInfo:
    """Capabilities, devices and dtypes of `amdjax.numpy`, in the words of the array API."""

    def capabilities(self) -> dict[str, Any]:
        """What can be done with arrays inside transformations, and their largest rank."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None: arrays not placed by the user go where they are needed."""
        return None

    def devices(self) -> list[Any]:
        """All devices, and None for arrays that are not committed to one."""
        return [None, *get_backend().devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes that arrays of each kind have by default."""
        integer, floating = dtypes.default_int_dtype(), dtypes.default_float_dtype()
        return {
            "real floating": floating,
            "complex floating": dtypes.to_complex_dtype(floating),
            "integral": integer,
            "indexing": integer,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The dtypes of a kind such as "integral", of several kinds, or all, by their names."""
        widths = "8 16 32 64" if dtypes.default_int_dtype() == np.int64 else "8 16 32"
        names = [f"{sign}int{bits}" for sign in ("", "u") for bits in widths.split()]
        wide = dtypes.default_float_dtype() == np.float64
        names += ["bool", "float32", "complex64", *(("float64", "complex128") if wide else ())]
        kind = ("bool", "numeric") if kind is None else kind
        return {name: np.dtype(name) for name in names if dtypes.isdtype(name, kind)}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """What the array API standard asks about this namespace.

    >>> jnp.__array_namespace_info__().default_dtypes()["integral"]
    dtype('int32')
    """
    return ArrayNamespaceInfo()
