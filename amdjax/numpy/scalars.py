"""The scalar types (`jnp.float32`, …), abstract types and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.numpy.creation import asarray


class _ScalarType(type):
    """A class that stands for a dtype and, called, makes an array of it."""

    dtype: np.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.dtype.type == other

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __call__(cls, x: Any) -> Array:
        return asarray(x, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'jax.numpy.{cls.__name__}'>"


def _make(name: str, scalar: type) -> Any:
    doc = f"The dtype {np.dtype(scalar).name}; called, makes an array of it."
    return _ScalarType(name, (), {"dtype": np.dtype(scalar), "__doc__": doc, "__slots__": ()})


_made = {name: _make(name, scalar) for name, scalar in dtypes.scalar_types.items()}
# Several names, one object: `jnp.double is jnp.float64`.
_canonical: dict[Any, Any] = {}
for _name, _type in _made.items():
    _made[_name] = _canonical.setdefault(_type.dtype, _type)

globals().update(_made)
bool = bool_ = _made["bool_"]

ComplexWarning = np.exceptions.ComplexWarning
character = np.character
complexfloating = np.complexfloating
flexible = np.flexible
floating = np.floating
generic = np.generic
inexact = np.inexact
integer = np.integer
number = np.number
object_ = np.object_
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger

dtype = np.dtype
ndarray = Array
finfo = dtypes.finfo
iinfo = dtypes.iinfo

e = np.e
euler_gamma = np.euler_gamma
inf = np.inf
nan = np.nan
newaxis = None
pi = np.pi


def result_type(*args: Any) -> Any:
    """The dtype that an operation on the arguments computes in.

    >>> jnp.result_type(jnp.int8(1), 2.0)
    dtype('float32')
    """
    return dtypes.result_type(*args)


def promote_types(a: Any, b: Any) -> Any:
    """The dtype that values of two dtypes promote to.

    >>> jnp.promote_types("int32", "bfloat16")
    dtype(bfloat16)
    """
    return dtypes.promote_types(a, b)


def issubdtype(arg1: Any, arg2: Any) -> Any:
    """Whether a dtype is of a kind such as `jnp.floating`.

    >>> jnp.issubdtype(jnp.bfloat16, jnp.floating)
    True
    """
    return dtypes.issubdtype(arg1, arg2)


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is of a kind of the array API.

    >>> jnp.isdtype(jnp.float32, "real floating")
    True
    """
    return dtypes.isdtype(dtype, kind)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> Any:
    """Whether a cast is allowed by NumPy's rule.

    >>> jnp.can_cast("int8", "int16")
    True
    """
    return dtypes.can_cast(from_, to, casting=casting)


def get_printoptions() -> dict[str, Any]:
    """How arrays are printed; NumPy's options."""
    return np.get_printoptions()


def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """Change how arrays are printed; NumPy's options."""
    np.set_printoptions(*args, **kwargs)


def printoptions(*args: Any, **kwargs: Any) -> Any:
    """A context in which arrays are printed otherwise."""
    return np.printoptions(*args, **kwargs)


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None,
    suppress_small: Any = None,
) -> str:  # fmt: skip
    """The text of `arr` as Python prints it.

    >>> jnp.array_repr(jnp.arange(2))
    'Array([0, 1], dtype=int32)'
    """
    text = np.array_repr(np.asarray(arr), max_line_width, precision, suppress_small)
    if isinstance(arr, Array) and max_line_width is precision is suppress_small is None:
        return repr(arr)
    return "Array" + text.removeprefix("array")


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None,
    suppress_small: Any = None,
) -> str:  # fmt: skip
    """The values of `a` as text.

    >>> jnp.array_str(jnp.arange(2))
    '[0 1]'
    """
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)
