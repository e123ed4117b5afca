"""What users see arrays as: the type of all arrays, and how it gets operators and methods."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core.aval import Typed, register_aval
from amdjax.core.boundaries import api_boundary
from amdjax.core.ref import Ref, is_ref


class Array(Typed):
    """An array: what `isinstance(x, amdjax.Array)` asks for, true of traced values too.

    Operators and NumPy's methods are installed by the NumPy-shaped floor through
    `install_methods`.
    """

    __slots__ = ("__weakref__",)
    __array_priority__ = 100

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.aval.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.aval.nbytes

    @property
    def __numpy_dtype__(self) -> Any:
        # What `numpy.dtype(x)` asks for, which is rarely meant.
        text = "Implicit conversion of an array to a dtype is deprecated; use x.dtype instead."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.aval.dtype

    if TYPE_CHECKING:  # what the NumPy-shaped floor installs

        def __add__(self, other: Any) -> Array: ...
        def __radd__(self, other: Any) -> Array: ...
        def __sub__(self, other: Any) -> Array: ...
        def __rsub__(self, other: Any) -> Array: ...
        def __mul__(self, other: Any) -> Array: ...
        def __rmul__(self, other: Any) -> Array: ...
        def __truediv__(self, other: Any) -> Array: ...
        def __rtruediv__(self, other: Any) -> Array: ...
        def __floordiv__(self, other: Any) -> Array: ...
        def __rfloordiv__(self, other: Any) -> Array: ...
        def __mod__(self, other: Any) -> Array: ...
        def __rmod__(self, other: Any) -> Array: ...
        def __divmod__(self, other: Any) -> tuple[Array, Array]: ...
        def __rdivmod__(self, other: Any) -> tuple[Array, Array]: ...
        def __pow__(self, other: Any) -> Array: ...
        def __rpow__(self, other: Any) -> Array: ...
        def __matmul__(self, other: Any) -> Array: ...
        def __rmatmul__(self, other: Any) -> Array: ...
        def __and__(self, other: Any) -> Array: ...
        def __rand__(self, other: Any) -> Array: ...
        def __or__(self, other: Any) -> Array: ...
        def __ror__(self, other: Any) -> Array: ...
        def __xor__(self, other: Any) -> Array: ...
        def __rxor__(self, other: Any) -> Array: ...
        def __lshift__(self, other: Any) -> Array: ...
        def __rlshift__(self, other: Any) -> Array: ...
        def __rshift__(self, other: Any) -> Array: ...
        def __rrshift__(self, other: Any) -> Array: ...
        def __eq__(self, other: Any) -> Array: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Array: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Array: ...
        def __le__(self, other: Any) -> Array: ...
        def __gt__(self, other: Any) -> Array: ...
        def __ge__(self, other: Any) -> Array: ...
        def __neg__(self) -> Array: ...
        def __pos__(self) -> Array: ...
        def __abs__(self) -> Array: ...
        def __invert__(self) -> Array: ...
        def __round__(self, ndigits: int = 0) -> Array: ...
        def __getitem__(self, index: Any) -> Array: ...
        def __iter__(self) -> Iterator[Array]: ...
        def __reversed__(self) -> Iterator[Array]: ...
        def __contains__(self, item: Any) -> bool: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __complex__(self) -> complex: ...
        def __index__(self) -> int: ...
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...

    def item(self, *index: int) -> Any:
        """The element at `index` as a Python scalar; the only one if no index is given.

        Args:
          index: one position for each axis, or none.

        Returns:
          A Python scalar.
        """
        raise NotImplementedError(type(self).__name__)

    def tolist(self) -> Any:
        """The array as nested lists of Python scalars."""
        raise NotImplementedError(type(self).__name__)

    def __len__(self) -> int:
        return len(self.aval)

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        # Reached for methods that are not installed yet, of references, and for mistakes.
        if name != "aval" and is_ref(self) and name in Ref.__dict__:
            return Ref.__dict__[name].__get__(self, type(self))
        if not name.startswith("__") and load_methods():
            return getattr(self, name)
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}{_HINTS.get(name, '')}"
        )


_HINTS = {
    "sharding": ": ask typeof(x).sharding",
    "__cuda_array_interface__": (
        ": __cuda_array_interface__ is only defined for NVIDIA GPU buffers."
    ),
}
"""What to say of attributes that some arrays have."""


def install_methods(methods: Mapping[str, Any], on: type = Array) -> None:
    """Install operators, methods and properties on all arrays, traced or not.

    Args:
      methods: attributes by name.
      on: `Array`, or one of its subclasses for what only that class has.
    """
    for name, method in methods.items():
        setattr(on, name, method)


_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
_DUNDERS = tuple(
    f"__{name}__"
    for name in (
        *_OPERATORS,
        *(f"r{name}" for name in _OPERATORS),
        *("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "round"),
        *("getitem", "setitem", "iter", "reversed", "contains"),
    )
)
_methods_loader: Callable[[], None] | None = None


_loading = threading.RLock()


def set_methods_loader(loader: Callable[[], None]) -> None:
    """Name the function that installs operators and methods; it is called when one is first used.

    The floor that defines them need not be imported before.
    """
    global _methods_loader
    _methods_loader = loader
    install_methods({name: _placeholder(name) for name in _DUNDERS})


def load_methods() -> bool:
    """Install operators and methods now; False if they are already."""
    global _methods_loader
    with _loading:
        loader, _methods_loader = _methods_loader, None
        if loader is None:
            return False
        for name in _DUNDERS:
            if getattr(Array.__dict__.get(name), "is_placeholder", False):
                delattr(Array, name)
        loader()
    return True


def _placeholder(name: str) -> Callable[..., Any]:
    @api_boundary
    def operator(self: Array, *args: Any) -> Any:
        load_methods()
        method = getattr(type(self), name, None)
        return NotImplemented if method is None else method(self, *args)

    operator.is_placeholder = True  # type: ignore[attr-defined]
    return operator


register_aval(Array, lambda x: x.aval)
