"""The scalar types (`jnp.float32`, …), abstract types and constants."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.boundaries import api_boundary
from amdjax.numpy.conversion import asarray


class _ScalarType(type):
    """A class that stands for a dtype and, called, makes an array of it."""

    dtype: np.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> builtins.bool:
        return cls is other or cls.dtype.type == other

    def __ne__(cls, other: object) -> builtins.bool:
        return not cls == other

    @api_boundary
    def __call__(cls, x: Any) -> Array:
        return asarray(x, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> builtins.bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'jax.numpy.{cls.__name__}'>"


def _make(name: str, scalar: type) -> Any:
    doc = f"The dtype {np.dtype(scalar).name}; called, makes an array of it."
    return _ScalarType(name, (), {"dtype": np.dtype(scalar), "__doc__": doc, "__slots__": ()})


uint1 = _make("uint1", dtypes.scalar_types["uint1"])
uint2 = _make("uint2", dtypes.scalar_types["uint2"])
uint4 = _make("uint4", dtypes.scalar_types["uint4"])
uint8 = _make("uint8", dtypes.scalar_types["uint8"])
uint16 = _make("uint16", dtypes.scalar_types["uint16"])
uint32 = _make("uint32", dtypes.scalar_types["uint32"])
uint64 = _make("uint64", dtypes.scalar_types["uint64"])
int1 = _make("int1", dtypes.scalar_types["int1"])
int2 = _make("int2", dtypes.scalar_types["int2"])
int4 = _make("int4", dtypes.scalar_types["int4"])
int8 = _make("int8", dtypes.scalar_types["int8"])
int16 = _make("int16", dtypes.scalar_types["int16"])
int32 = _make("int32", dtypes.scalar_types["int32"])
int64 = _make("int64", dtypes.scalar_types["int64"])
float4_e2m1fn = _make("float4_e2m1fn", dtypes.scalar_types["float4_e2m1fn"])
float6_e2m3fn = _make("float6_e2m3fn", dtypes.scalar_types["float6_e2m3fn"])
float6_e3m2fn = _make("float6_e3m2fn", dtypes.scalar_types["float6_e3m2fn"])
float8_e3m4 = _make("float8_e3m4", dtypes.scalar_types["float8_e3m4"])
float8_e4m3 = _make("float8_e4m3", dtypes.scalar_types["float8_e4m3"])
float8_e8m0fnu = _make("float8_e8m0fnu", dtypes.scalar_types["float8_e8m0fnu"])
float8_e4m3b11fnuz = _make("float8_e4m3b11fnuz", dtypes.scalar_types["float8_e4m3b11fnuz"])
float8_e4m3fn = _make("float8_e4m3fn", dtypes.scalar_types["float8_e4m3fn"])
float8_e4m3fnuz = _make("float8_e4m3fnuz", dtypes.scalar_types["float8_e4m3fnuz"])
float8_e5m2 = _make("float8_e5m2", dtypes.scalar_types["float8_e5m2"])
float8_e5m2fnuz = _make("float8_e5m2fnuz", dtypes.scalar_types["float8_e5m2fnuz"])
bfloat16 = _make("bfloat16", dtypes.scalar_types["bfloat16"])
float16 = _make("float16", dtypes.scalar_types["float16"])
float32 = _make("float32", dtypes.scalar_types["float32"])
float64 = _make("float64", dtypes.scalar_types["float64"])
complex64 = _make("complex64", dtypes.scalar_types["complex64"])
complex128 = _make("complex128", dtypes.scalar_types["complex128"])
bool_ = _make("bool_", dtypes.scalar_types["bool_"])
single = float32
double = float64
csingle = complex64
cdouble = complex128
int_ = int64
uint = uint64
float_ = float64
complex_ = complex128
bool = bool_

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
    return promotion.result_type(*args)


def promote_types(a: Any, b: Any) -> Any:
    """The dtype that values of two dtypes promote to.

    >>> jnp.promote_types("int32", "bfloat16")
    dtype(bfloat16)
    """
    return promotion.promote_types(a, b)


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


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> Any:
    """Whether a cast is allowed by NumPy's rule.

    >>> jnp.can_cast("int8", "int16")
    True
    """
    return dtypes.can_cast(from_, to, casting=casting)


def get_printoptions() -> Any:
    """How arrays are printed; NumPy's options.

    >>> jnp.get_printoptions()["precision"]
    8
    """
    return np.get_printoptions()


def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """Change how arrays are printed; NumPy's options.

    >>> jnp.set_printoptions(precision=8)
    """
    np.set_printoptions(*args, **kwargs)


def printoptions(*args: Any, **kwargs: Any) -> Any:
    """A context in which arrays are printed otherwise.

    >>> with jnp.printoptions(precision=2):
    ...     print(jnp.array([1.23456]))
    [1.23]
    """
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
    return "Array" + text.removeprefix("array") if isinstance(arr, Array) else text


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None,
    suppress_small: Any = None,
) -> str:  # fmt: skip
    """The values of `a` as text.

    >>> jnp.array_str(jnp.arange(2))
    '[0 1]'
    """
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)
