"""Abstract values: what tracing knows of a value before it is computed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from amdjax.core import dtypes
from amdjax.core.dims import Dim, DimSize
from amdjax.core.dtypes import ExtendedDType
from amdjax.core.sharding import (
    DEVICE,
    NamedSharding,
    PartitionSpec,
    Space,
    explicit_entries,
    sharding_of_type,
)


class AbstractValue:
    """Base of what an operation can take or return."""

    __slots__ = ()

    memory_space: Space = Space.Device

    def str_short(self) -> str:
        """The short form printed in jaxprs."""
        raise NotImplementedError(type(self).__name__)

    def to_tangent(self) -> AbstractValue:
        """The type of tangents and cotangents of such a value."""
        raise TypeError(f"values of type {self} have no tangents")

    def to_tangent_aval(self) -> AbstractValue:
        """The type of tangents, by JAX's name."""
        return self.to_tangent()


class ShapedArray(AbstractValue):
    """An array of known shape and dtype.

    Interned: equal avals are one object, so that comparing and hashing them costs nothing and
    they can be keys of dispatch tables.

    Args:
      shape: the extents.
      dtype: NumPy's dtype, or an extended one such as that of PRNG keys.
      weak_type: whether the value came from a Python scalar and yields in promotion.
      sharding: how it is laid out over a mesh, of which the type keeps the explicit axes. Such
        types describe arrays; no program is traced with them.
      memory_space: whether it is in the memory that its device computes in, or in the host's.

    >>> ShapedArray((2, 3), "float32")
    ShapedArray(float32[2,3])
    >>> ShapedArray((2,), "int8") is ShapedArray([2], np.int8)
    True
    """

    __slots__ = (
        *("__weakref__", "_sharding", "_tangent"),
        *("dtype", "memory_space", "ndim", "shape", "size", "weak_type"),
    )

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    ndim: int
    size: int
    _tangent: ShapedArray | None
    _sharding: NamedSharding | None
    _interned: ClassVar[dict[Any, ShapedArray]] = {}

    def __new__(
        cls, shape: Any, dtype: Any, weak_type: bool = False, *, sharding: Any = None,
        memory_space: Space = Space.Device,
    ) -> ShapedArray:  # fmt: skip
        if sharding is not None or memory_space is not DEVICE:
            return cls._make(shape, dtype, weak_type, sharding, memory_space)
        key = (shape, dtype, weak_type)
        try:
            return ShapedArray._interned[key]
        except (KeyError, TypeError):
            return cls._make(shape, dtype, weak_type)

    @classmethod
    def _make(
        cls, shape: Any, dtype: Any, weak_type: Any, sharding: Any = None,
        memory_space: Space = Space.Device,
    ) -> ShapedArray:  # fmt: skip
        if not isinstance(dtype, (np.dtype, ExtendedDType)):
            dtype = np.dtype(dtype)
        shape = tuple(canonical_dim(d) for d in shape)
        key: tuple[Any, ...] = (shape, dtype, bool(weak_type))
        sharding = isinstance(sharding, NamedSharding) and _sharding_in_type(sharding, shape)
        host = memory_space is Space.Host
        if sharding or host:
            key = (*key, sharding or None, host)
        interned = interned_types(shape)
        found = interned.get(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.shape, self.dtype, self.weak_type = key[:3]
        self.ndim = len(shape)
        self.size = math.prod(shape)
        self._tangent = None
        self._sharding = sharding or None
        self.memory_space = Space.Host if host else Space.Device
        return interned.setdefault(key, self)

    def update(self, **changes: Any) -> ShapedArray:
        """The same aval with some changed, which are named as they are when it is made."""
        kept = self._sharding if "shape" not in changes else None
        return ShapedArray(
            changes.get("shape", self.shape),
            changes.get("dtype", self.dtype),
            changes.get("weak_type", self.weak_type),
            sharding=changes.get("sharding", kept),
            memory_space=changes.get("memory_space", self.memory_space),
        )

    def strong(self) -> ShapedArray:
        """The same aval, not weakly typed."""
        return self.update(weak_type=False) if self.weak_type else self

    def unsharded(self) -> ShapedArray:
        """The type of values of programs: without a sharding."""
        if self._sharding is None:
            return self
        return ShapedArray(self.shape, self.dtype, self.weak_type, memory_space=self.memory_space)

    strip_weak_type = strong

    def to_tangent(self) -> ShapedArray:
        tangent = self._tangent
        if tangent is None:
            tangent = self._tangent = ShapedArray(
                self.shape, tangent_dtype(self.dtype), self.weak_type,
                memory_space=self.memory_space,
            )  # fmt: skip
        return tangent

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def sharding(self) -> NamedSharding:
        """How the array is laid out along explicit axes of a mesh, as far as the type says."""
        return self._sharding or sharding_of_type(self.ndim)

    @property
    def vma(self) -> frozenset[Any]:
        """Manual axes of a mesh along which the value is known to differ: none are tracked."""
        return frozenset()

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def str_short(self) -> str:
        return f"{dtypes.short_dtype_name(self.dtype)}{self._extents()}"

    def _extents(self) -> str:
        """The extents as types print them, behind the memory space unless it is the device's."""
        space = "" if self.memory_space is Space.Device else "<host>"
        return f"{space}[{','.join(map(str, self.shape))}]"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __str__(self) -> str:
        name = getattr(self.dtype, "name", str(self.dtype))
        return f"{'~' if self.weak_type else ''}{name}{self._extents()}"

    def __repr__(self) -> str:
        name = getattr(self.dtype, "name", str(self.dtype))
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({name}{self._extents()}{weak})"

    def __reduce__(self) -> Any:
        make = functools.partial(
            ShapedArray, sharding=self._sharding, memory_space=self.memory_space
        )
        return make, (self.shape, self.dtype, self.weak_type)

    def __copy__(self) -> ShapedArray:
        return self

    def __deepcopy__(self, memo: Any) -> ShapedArray:
        return self


def interned_types(shape: tuple[DimSize, ...]) -> dict[Any, Any]:
    """Where types of a shape are interned: those of symbolic ones end with their scope."""
    for n in shape:
        if type(n) is Dim:
            return n.scope.types
    return ShapedArray._interned


def _sharding_in_type(sharding: NamedSharding, shape: tuple[int, ...]) -> NamedSharding:
    """What types keep of a sharding, once it is known to fit."""
    sharding.shard_shape(shape)
    return NamedSharding(
        sharding.mesh.abstract_mesh, PartitionSpec(*explicit_entries(sharding, len(shape)))
    )


def is_extended(aval: Any) -> bool:
    """Whether a value of this type has elements that are not numbers."""
    return isinstance(aval, ShapedArray) and isinstance(aval.dtype, ExtendedDType)


def physical_aval(aval: ShapedArray) -> ShapedArray:
    """The type of the array of numbers that an array is stored as."""
    dtype = aval.dtype
    if not isinstance(dtype, ExtendedDType):
        return aval
    shape = (*aval.shape, *dtype.element_shape)
    return ShapedArray(shape, dtype.element_dtype, memory_space=aval.memory_space)


class AbstractToken(AbstractValue):
    """The type of tokens, which only order effects."""

    __slots__ = ()

    def str_short(self) -> str:
        return "Tok"

    def to_tangent(self) -> AbstractToken:
        return self

    def __repr__(self) -> str:
        return "AbstractToken()"


abstract_token = AbstractToken()


def canonical_dim(d: Any) -> Any:
    """`d` as a Python int; arrays of rank zero, NumPy integers and symbolic sizes are accepted."""
    if type(d) is int or type(d) is Dim:
        return d
    try:
        return d.__index__()
    except AttributeError:
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {d!r}."
        ) from None


_tangent_dtypes: dict[Any, Any] = {}


def tangent_dtype(dtype: Any) -> Any:
    """The dtype of tangents of values of `dtype`: itself if inexact, what its rules say, or float0.

    Args:
      dtype: a dtype.

    Returns:
      A dtype.

        >>> tangent_dtype(np.dtype("float32"))
        dtype('float32')
    """
    found = _tangent_dtypes.get(dtype)
    if found is None:
        if isinstance(dtype, ExtendedDType):
            rule = getattr(dtype._rules, "tangent_dtype", None)
            found = rule(dtype) if rule else dtypes.float0
        else:
            found = dtype if dtypes.issubdtype(dtype, np.inexact) else dtypes.float0
        _tangent_dtypes[dtype] = found
    return found


_aval_of: dict[type, Callable[[Any], AbstractValue]] = {}
pytype_aval_mappings = _aval_of  # by the name under which libraries add types


abstract_types: set[type] = set()
"""Types of what stands for a value while programs are made, and has none."""


def register_aval(
    typ: type, rule: Callable[[Any], AbstractValue], *, abstract: bool = False
) -> None:
    """Let values of `typ` (and of its subclasses) take part in operations.

    Args:
      typ: a class.
      rule: from one of its values to the type.
      abstract: whether there is nothing but the type, so that no program can run on it.
    """
    _aval_of[typ] = rule
    if abstract:
        abstract_types.add(typ)


def refuse_abstract(x: Any) -> None:
    """Raise TypeError for what stands for a value and has none."""
    if type(x) in abstract_types:
        raise TypeError(
            f"A {type(x).__name__} does not have a value: it can be traced with, and neither be "
            f"an argument nor a constant of a function that runs, got {x!r}."
        )


def get_aval(x: Any) -> Any:
    """The abstract value of an array, tracer, NumPy array or Python scalar: a `ShapedArray`.

    Only tokens and other values that no array operation takes have another one.

    Raises:
      TypeError: `x` is not a value that operations take.

    >>> get_aval(1.5)
    ShapedArray(float32[], weak_type=True)
    """
    rule = _aval_of.get(type(x))
    return rule(x) if rule is not None else _get_aval_slow(x)


def _get_aval_slow(x: Any) -> AbstractValue:
    for base in type(x).__mro__[1:]:
        rule = _aval_of.get(base)
        if rule is not None:
            _aval_of[type(x)] = rule
            return rule(x)
    if hasattr(x, "__jax_array__"):
        return get_aval(x.__jax_array__())
    raise TypeError(f"Value {x!r} with type {type(x)} is not a valid JAX type")


class Typed:
    """What has a type, its `aval`, and tells of it."""

    __slots__ = ()

    aval: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.aval.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @property
    def weak_type(self) -> bool:
        """Whether the dtype yields in promotion, as that of a Python scalar does."""
        return self.aval.weak_type


def is_valid_value(x: Any) -> bool:
    """Whether operations take `x`: arrays, tracers, NumPy arrays and Python scalars.

    Args:
      x: anything.

    Returns:
      Whether they do.

        >>> is_valid_value(1.0), is_valid_value("text")
        (True, False)
    """
    return type(x) in _aval_of or any(base in _aval_of for base in type(x).__mro__)


def is_array_like(x: Any) -> bool:
    """Whether `x` is such a value or makes one of itself by `__jax_array__`."""
    return is_valid_value(x) or hasattr(x, "__jax_array__")


def _python_scalar(typ: type) -> Callable[[Any], AbstractValue]:
    weak = typ is not bool

    def rule(x: Any) -> AbstractValue:
        return ShapedArray((), dtypes.scalar_type_to_dtype(typ, x), weak)

    return rule


def refuse_masked(x: Any) -> None:
    """Raise ValueError for an array of `numpy.ma`, whose mask would be lost."""
    if isinstance(x, np.ndarray) and hasattr(x, "mask"):
        raise ValueError(
            "numpy masked arrays are not supported; x.filled(value) makes a plain array of x"
        )


def _numpy_value(x: Any) -> AbstractValue:
    dtype = x.dtype
    refuse_masked(x)
    if dtype != dtypes.float0:
        dtypes.check_valid_dtype(dtype)
        dtype = dtypes.canonicalize_dtype(dtype)
    return ShapedArray(x.shape, dtype)


for _typ in (bool, int, float, complex):
    register_aval(_typ, _python_scalar(_typ))
register_aval(np.ndarray, _numpy_value)
register_aval(np.generic, _numpy_value)
