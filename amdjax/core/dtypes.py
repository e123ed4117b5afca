"""Dtypes: which exist, what they are called, how they are related.

How they promote is said in `promotion.py`.

    >>> short_dtype_name(np.dtype("float32"))
    'f32'
"""

from __future__ import annotations

import abc
import functools
import math
from typing import Any, Final

import ml_dtypes
import numpy as np

from amdjax.core.config import config
from amdjax.core.tracebacks import warn


class extended(np.generic):
    """Scalar class of all dtypes which NumPy cannot hold; only for `issubdtype`."""


class prng_key(extended):
    """Scalar class of PRNG key dtypes; only for `issubdtype`.

    >>> issubdtype(np.float32, prng_key)
    False
    """


class ExtendedDType(abc.ABC):
    """Base of dtypes whose elements are not numbers, such as PRNG keys.

    Each element is stored as a small array of numbers. Programs speak of the dtype; the compiler
    replaces it by what it is stored as, in one pass. A subclass is hashable, compares by value,
    and prints as its short name. Subclasses written for JAX have `_rules`, of which these are used:
    `physical_element_aval(dtype)`, the type of what an element is stored as; `allow_conversion`, or
    `convert_to(numbers, dtype)` and `convert_from(dtype, numbers)`, whether arrays of such numbers
    may be read as elements and back; `tangent_dtype(dtype)`; `zero(dtype)` and `add(dtype, x, y)`
    for tangents that are of the dtype themselves.
    """

    @property
    @abc.abstractmethod
    def type(self) -> type:
        """The scalar class: a subclass of `extended`."""

    @property
    def element_shape(self) -> tuple[int, ...]:
        """The shape of the array that one element is stored as."""
        return tuple(self._rules.physical_element_aval(self).shape)

    @property
    def element_dtype(self) -> np.dtype:
        """The dtype of the numbers that an element is stored as."""
        return np.dtype(self._rules.physical_element_aval(self).dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return math.prod(self.element_shape) * self.element_dtype.itemsize

    def full(self, shape: tuple[int, ...], fill_value: Any) -> Any:
        """An array of this dtype, each element stored as copies of a number."""
        raise TypeError(f"there are no arrays of dtype {self} filled with {fill_value!r}.")

    def converts(self, to: bool, numbers: Any) -> bool:
        """Whether arrays of `numbers` convert to this dtype, or it to them."""
        rule = getattr(self._rules, "convert_to" if to else "convert_from", None)
        if rule is not None:
            return bool(rule(numbers, self) if to else rule(self, numbers))
        return bool(getattr(self._rules, "allow_conversion", False))

    _rules: Any = None


float0: Final[np.dtype] = np.dtype([("float0", np.void, 0)])

_ML_FLOATS = (
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e8m0fnu",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "bfloat16",
)
_ML_INTS = ("int1", "int2", "int4")
_ML_UINTS = ("uint1", "uint2", "uint4")


def _ml_dtypes_of(names: tuple[str, ...]) -> tuple[np.dtype, ...]:
    # Older releases of ml_dtypes lack the narrowest types.
    return tuple(np.dtype(getattr(ml_dtypes, n)) for n in names if hasattr(ml_dtypes, n))


custom_float_dtypes: Final = _ml_dtypes_of(_ML_FLOATS)
small_float_dtypes: Final = tuple(d for d in custom_float_dtypes if d.name != "bfloat16")
narrow_int_dtypes: Final = _ml_dtypes_of(_ML_INTS)
narrow_uint_dtypes: Final = _ml_dtypes_of(_ML_UINTS)

bool_dtypes: Final = (np.dtype(bool),)
signed_dtypes: Final = (*narrow_int_dtypes, *map(np.dtype, ("int8", "int16", "int32", "int64")))
unsigned_dtypes: Final = (
    *narrow_uint_dtypes,
    *map(np.dtype, ("uint8", "uint16", "uint32", "uint64")),
)
int_dtypes: Final = (*unsigned_dtypes, *signed_dtypes)
float_dtypes: Final = (*custom_float_dtypes, *map(np.dtype, ("float16", "float32", "float64")))
complex_dtypes: Final = (np.dtype("complex64"), np.dtype("complex128"))
array_dtypes: Final = (*bool_dtypes, *int_dtypes, *float_dtypes, *complex_dtypes)
_valid_dtypes: Final = frozenset((*array_dtypes, float0))

custom_float_set = frozenset(custom_float_dtypes)
narrow_int_set = frozenset((*narrow_int_dtypes, *narrow_uint_dtypes))

bfloat16 = ml_dtypes.bfloat16
bool_ = np.bool_
int_: Any = np.int64
uint: Any = np.uint64
float_: Any = np.float64
complex_: Any = np.complex128

# Names under which the NumPy-shaped surface offers the scalar types.
scalar_types: Final[dict[str, type]] = {
    **{d.name: d.type for d in array_dtypes if d.name != "bool"},
    "bool_": np.bool_,
    "single": np.float32,
    "double": np.float64,
    "csingle": np.complex64,
    "cdouble": np.complex128,
    "int_": int_,
    "uint": uint,
    "float_": float_,
    "complex_": complex_,
}

python_scalar_dtypes: Final[dict[type, np.dtype]] = {
    bool: np.dtype("bool"),
    int: np.dtype("int64"),
    float: np.dtype("float64"),
    complex: np.dtype("complex128"),
}

NARROWED: Final = {
    np.dtype("int64"): np.dtype("int32"),
    np.dtype("uint64"): np.dtype("uint32"),
    np.dtype("float64"): np.dtype("float32"),
    np.dtype("complex128"): np.dtype("complex64"),
}


def default_int_dtype() -> np.dtype:
    return np.dtype("int64" if config.enable_x64 else "int32")


def default_uint_dtype() -> np.dtype:
    return np.dtype("uint64" if config.enable_x64 else "uint32")


def default_float_dtype() -> np.dtype:
    return np.dtype("float64" if config.enable_x64 else "float32")


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype an array takes under the current setting of ``jax_enable_x64``.

    Args:
      dtype: anything `numpy.dtype` accepts.
      allow_extended_dtype: return an extended dtype as it is instead of raising.

    Returns:
      A `numpy.dtype`; 64-bit dtypes are narrowed to 32 bits while x64 is off.

    Raises:
      TypeError: `dtype` names no dtype.
      ValueError: `dtype` is extended and that is not allowed.

        >>> canonicalize_dtype("float64")
        dtype('float32')
    """
    if isinstance(dtype, np.dtype):  # first: the others take longer to ask for
        return dtype if config.enable_x64 else NARROWED.get(dtype, dtype)
    if isinstance(dtype, ExtendedDType):
        if allow_extended_dtype:
            return dtype
        raise ValueError(f"dtype: the extended dtype {dtype} has no canonical NumPy dtype.")
    dt = as_dtype(dtype)
    return dt if config.enable_x64 else NARROWED.get(dt, dt)


def as_dtype(dtype: Any, argument: str = "dtype") -> np.dtype:
    """`numpy.dtype(dtype)` with an error which names the argument and what was passed.

    Raises:
      TypeError: `dtype` names no dtype.
    """
    try:
        return np.dtype(dtype)
    except TypeError:
        meant = _BY_SHORT_NAME.get(dtype) if isinstance(dtype, str) else None
        hint = f" Did you mean {meant.name!r}?" if isinstance(meant, np.dtype) else ""
        raise TypeError(f"{argument}: {dtype!r} is not understood as a dtype.{hint}") from None


def check_and_canonicalize_user_dtype(dtype: Any, fun_name: str | None = None) -> Any:
    """The dtype a user asked for, valid and canonical.

    Args:
      dtype: dtype-like; Python's ``int``, ``float``, ``complex`` mean the default width.
      fun_name: the public function it was passed to, for messages.

    Raises:
      ValueError: `dtype` is None, or 64 bits wide while ``explicit_x64_dtypes`` is 'error'.
      TypeError: `dtype` is not a dtype of arrays.
    """
    where = f" in {fun_name}" if fun_name else ""
    if dtype is None:
        raise ValueError(f"dtype must be specified{where}.")
    if isinstance(dtype, ExtendedDType):
        return dtype
    if isinstance(dtype, type) and dtype in python_scalar_dtypes:
        return canonicalize_dtype(python_scalar_dtypes[dtype])
    if hasattr(dtype, "aval"):
        raise ValueError(
            f"Passing an array as a dtype argument is no longer supported{where}; pass its dtype:"
            " dtype=x.dtype."
        )
    dt = as_dtype(dtype, f"dtype{where}")
    check_valid_dtype(dt, where)
    return _explicit_dtype(dt, fun_name)


def check_valid_dtype(dtype: np.dtype, where: str = "") -> None:
    """Raise TypeError unless arrays can have this dtype."""
    if dtype not in _valid_dtypes:
        raise TypeError(
            f"JAX only supports number, bool, and string dtypes, got dtype {dtype}{where}, which "
            "is not a valid JAX type for elements; strings in arrays of NumPy only."
        )


def _explicit_dtype(dt: np.dtype, fun_name: str | None) -> np.dtype:
    if config.enable_x64 or dt not in NARROWED or config.explicit_x64_dtypes == "allow":
        return dt
    narrow = NARROWED[dt]
    where = f" requested in {fun_name}" if fun_name else ""
    remedy = 'Call config.update("jax_enable_x64", True) at start-up, or set AMDJAX_ENABLE_X64=1.'
    if config.explicit_x64_dtypes == "error":
        raise ValueError(
            f"Explicitly requested dtype {dt}{where} is not available: 64-bit dtypes are off. "
            + remedy
        )
    warn(
        f"Explicitly requested dtype {dt}{where} is not available, and will be truncated to "
        f"dtype {narrow.name}. {remedy}"
    )
    return narrow


_INEXACT: Final[dict[np.dtype, np.dtype]] = {
    **{d: np.dtype("float32") for d in (*bool_dtypes, *int_dtypes)},
    np.dtype("int64"): np.dtype("float64"),
    np.dtype("uint64"): np.dtype("float64"),
}


def to_numeric_dtype(dtype: Any) -> np.dtype:
    """`dtype`, or int32 for bool."""
    dt = np.dtype(dtype)
    return np.dtype("int32") if dt == np.dtype("bool") else dt


def to_inexact_dtype(dtype: Any) -> np.dtype:
    """`dtype` if it is a float or complex dtype, else the float dtype for it.

    >>> to_inexact_dtype("int64"), to_inexact_dtype("int8"), to_inexact_dtype("bfloat16")
    (dtype('float64'), dtype('float32'), dtype(bfloat16))
    """
    dt = np.dtype(dtype)
    return _INEXACT.get(dt, dt)


def to_complex_dtype(dtype: Any) -> np.dtype:
    """The complex dtype which holds `dtype` made inexact."""
    wide = to_inexact_dtype(dtype) in (np.dtype("float64"), np.dtype("complex128"))
    return np.dtype("complex128" if wide else "complex64")


iinfo = ml_dtypes.iinfo
finfo = ml_dtypes.finfo
can_cast = np.can_cast


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element; 8 for bool, which is stored as a byte.

    >>> itemsize_bits("int4"), itemsize_bits("complex64"), itemsize_bits(bool)
    (4, 64, 8)
    """
    if dtype is None:
        raise ValueError("dtype cannot be None.")
    if isinstance(dtype, ExtendedDType):
        raise ValueError(f"dtype: the extended dtype {dtype} has no fixed size of element.")
    dt = as_dtype(dtype)
    if dt == np.dtype("bool"):
        return 8
    if dt in int_dtypes:
        return iinfo(dt).bits
    if dt in float_dtypes:
        return finfo(dt).bits
    if dt in complex_dtypes:
        return 8 * dt.itemsize
    raise ValueError(f"dtype: {dt} is not a dtype of arrays.")


def supports_inf(dtype: Any) -> bool:
    """Whether the dtype can represent infinity."""
    dt = np.dtype(dtype)
    if dt in custom_float_set:
        # The formats spelled "fn" and the scale format e8m0 have no infinities; nor do b11fnuz.
        return "fn" not in dt.name
    return issubdtype(dt, np.inexact)


def issubdtype(a: Any, b: Any) -> bool:
    """Whether `a` is `b` or lies below it in the hierarchy of scalar types.

    Args:
      a: dtype-like, scalar class or extended dtype.
      b: the same, or an abstract class such as ``numpy.floating`` or ``dtypes.extended``.

        >>> issubdtype("bfloat16", np.floating), issubdtype("int4", np.signedinteger)
        (True, True)
    """
    return _issubdtype(
        a if isinstance(a, (type, np.dtype, ExtendedDType)) else as_dtype(a, "a"),
        b if isinstance(b, (type, np.dtype, ExtendedDType)) else as_dtype(b, "b"),
    )


@functools.lru_cache(1024)
def _issubdtype(a: Any, b: Any) -> bool:
    if isinstance(b, ExtendedDType):
        return isinstance(a, ExtendedDType) and a == b
    b_scalar = _scalar_class(b)
    a_scalar = _scalar_class(a.type if isinstance(a, ExtendedDType) else a)
    if issubclass(b_scalar, extended) or issubclass(a_scalar, extended):
        return issubclass(a_scalar, b_scalar)
    return issubclass(a_scalar, b_scalar) or b_scalar in _ML_PARENTS.get(a_scalar, ())


def _scalar_class(x: Any) -> type:
    return x if isinstance(x, type) and issubclass(x, np.generic) else np.dtype(x).type


# ml_dtypes derives its scalars straight from numpy.generic; these are the missing ancestors.
_ML_PARENTS: Final[dict[type, tuple[type, ...]]] = {
    **{d.type: (np.floating, np.inexact, np.number) for d in custom_float_dtypes},
    **{d.type: (np.signedinteger, np.integer, np.number) for d in narrow_int_dtypes},
    **{d.type: (np.unsignedinteger, np.integer, np.number) for d in narrow_uint_dtypes},
}

_KINDS: Final[dict[str, frozenset[np.dtype]]] = {
    "bool": frozenset(bool_dtypes),
    "signed integer": frozenset(signed_dtypes),
    "unsigned integer": frozenset(unsigned_dtypes),
    "integral": frozenset(int_dtypes),
    "real floating": frozenset(float_dtypes),
    "complex floating": frozenset(complex_dtypes),
    "numeric": frozenset((*int_dtypes, *float_dtypes, *complex_dtypes)),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of the given kind, as in the array API standard.

    Args:
      dtype: dtype-like.
      kind: a dtype, one of 'bool', 'signed integer', 'unsigned integer', 'integral',
        'real floating', 'complex floating', 'numeric', or a tuple of these.

    Raises:
      ValueError: `kind` is a string of no known meaning.
      TypeError: `kind` is nothing of the above.

        >>> isdtype("int4", ("integral", "bool"))
        True
    """
    dt = np.dtype(dtype)
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, str) and one in _KINDS:
            if dt in _KINDS[one]:
                return True
            continue
        try:
            other = np.dtype(one)
        except TypeError:
            if isinstance(one, str):
                raise ValueError(
                    f"kind={one!r} is neither a dtype nor one of {list(_KINDS)}."
                ) from None
            raise TypeError(f"kind must be a dtype, a string or a tuple, got {one!r}.") from None
        if dt == other:
            return True
    return False


_array_types: set[type] = set()


def register_array_type(typ: type) -> None:
    """Declare a type whose ``dtype`` is canonical already: arrays and tracers."""
    _array_types.add(typ)


def is_weakly_typed(x: Any) -> bool:
    """Whether `x` takes part in promotion with its category only."""
    typ = type(x)
    if typ is int or typ is float or typ is complex:
        return True
    aval = getattr(x, "aval", None)
    return bool(getattr(aval, "weak_type", False))


def scalar_type_of(x: Any) -> type:
    """The Python scalar type for the dtype of `x`: bool, int, float or complex.

    >>> scalar_type_of(np.float16(1))
    <class 'float'>
    """
    dt = dtype(x)
    for kind, typ in (
        ("bool", bool),
        ("integral", int),
        ("real floating", float),
        ("complex floating", complex),
    ):
        if dt in _KINDS[kind]:
            return typ
    raise TypeError(f"x: no Python scalar type corresponds to the dtype {dt}.")


def scalar_type_to_dtype(typ: type, value: Any = None) -> np.dtype:
    """The dtype for a Python scalar type.

    Args:
      typ: bool, int, float or complex.
      value: the scalar itself, to be checked against the range of the dtype.

    Raises:
      OverflowError: `value` is an int outside that range.

        >>> scalar_type_to_dtype(int, 1 << 40)
        Traceback (most recent call last):
          ...
        OverflowError: Python int 1099511627776 too large to convert to int32
    """
    dt = canonicalize_dtype(python_scalar_dtypes[typ])
    if typ is int and value is not None:
        limits = np.iinfo(dt)
        if not limits.min <= value <= limits.max:
            raise OverflowError(f"Python int {value} too large to convert to {dt}")
    return dt


def dtype(x: Any) -> Any:
    """The dtype of a value, or the canonical form of a dtype or scalar type.

    Args:
      x: an array, a Python or NumPy scalar, a scalar type, a dtype or its name.

    Returns:
      A `numpy.dtype`, or an `ExtendedDType`. Arrays and tracers keep theirs; everything else
      is canonicalized.

    Raises:
      ValueError: `x` is None.
      TypeError: `x` has no dtype, or one which arrays cannot have.

        >>> dtype(1.5), dtype(np.arange(2)), dtype(np.int8)
        (dtype('float32'), dtype('int32'), dtype('int8'))
    """
    typ = type(x)
    if typ in _array_types:
        return x.dtype
    scalar = python_scalar_dtypes.get(typ)
    if scalar is not None:
        return scalar if config.enable_x64 else NARROWED.get(scalar, scalar)
    if x is None:
        raise ValueError("Invalid argument to dtype: None.")
    if isinstance(x, ExtendedDType):
        return x
    if isinstance(x, type):
        if x in python_scalar_dtypes:
            return canonicalize_dtype(python_scalar_dtypes[x])
        if issubclass(x, np.generic):
            return _explicit_dtype(np.dtype(x), "dtype")
    if isinstance(x, (str, np.dtype)):
        dt = as_dtype(x)
        check_valid_dtype(dt)
        return _explicit_dtype(dt, "dtype")
    own = getattr(x, "dtype", None)
    if isinstance(own, ExtendedDType) or (own is not None and hasattr(x, "aval")):
        return own
    if isinstance(own, np.dtype):
        dt = own
    else:
        try:
            dt = np.result_type(x)
        except (TypeError, ValueError):
            raise TypeError(f"Cannot determine the dtype of {x!r} of type {typ}.") from None
    if dt not in _valid_dtypes:  # only then: writing an array out takes long
        check_valid_dtype(dt, f" of {x!r}")
    return canonicalize_dtype(dt)


def _short_name(dt: np.dtype) -> str:
    if dt == float0:
        return "float0"
    name = dt.name
    for long, short in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        name = name.replace(long, short)
    return name


_SHORT_NAMES: dict[Any, str] = {d: _short_name(d) for d in (*array_dtypes, float0)}
_BY_SHORT_NAME: dict[str, Any] = {name: d for d, name in _SHORT_NAMES.items()}


def register_short_name(dtype: ExtendedDType) -> None:
    """Let `dtype_from_short_name` find an extended dtype under its printed name."""
    _BY_SHORT_NAME[str(dtype)] = dtype


def short_dtype_name(dtype: Any) -> str:
    """The name a dtype has in printed programs: f32, bf16, i4, u8, f8_e4m3fn, key<fry>.

    >>> short_dtype_name(np.dtype("complex64")), short_dtype_name(np.dtype("bool"))
    ('c64', 'bool')
    """
    name = _SHORT_NAMES.get(dtype)
    if name is not None:
        return name
    return str(dtype) if isinstance(dtype, ExtendedDType) else _short_name(np.dtype(dtype))


def dtype_from_short_name(name: str) -> Any:
    """The dtype printed as `name`; inverse of `short_dtype_name`.

    Raises:
      ValueError: no dtype has this short name.

        >>> dtype_from_short_name("bf16")
        dtype(bfloat16)
    """
    try:
        return _BY_SHORT_NAME[name]
    except KeyError:
        raise ValueError(f"name={name!r} is no dtype's short name.") from None
