"""Types for annotations of code which uses amdjax."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, Union, runtime_checkable

import numpy as np


@runtime_checkable
class SupportsDType(Protocol):
    """Anything with a NumPy dtype."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""


@runtime_checkable
class SupportsArray(SupportsDType, Protocol):
    """Arrays and tracers: they have a dtype, a shape, and an abstract value."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""

    @property
    def aval(self) -> Any:
        """The abstract value: shape, dtype and weak type."""


# What converts to an array without being asked: no lists, no strings.
ArrayLike: TypeAlias = Union[  # noqa: UP007
    SupportsArray, np.ndarray, np.bool_, np.number, bool, int, float, complex
]

# What `numpy.dtype` accepts and arrays can hold; None is not meant to be passed.
DTypeLike: TypeAlias = Union[str, type[Any], np.dtype, SupportsDType]  # noqa: UP007
