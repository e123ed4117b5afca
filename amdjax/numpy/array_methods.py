"""Operators, methods and properties of arrays, installed on core's `Array`.

An operator on two arrays of one aval, or on an array and a Python number that does not change its
dtype, goes straight to `primitive.bind`, and so does a product of matrices: what to bind is looked
up by the avals. Everything else goes through the NumPy-shaped function of the same meaning.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, recorded
from amdjax.core.array import Array, ConcreteArray
from amdjax.core.array_type import install_methods
from amdjax.core.backend import get_backend
from amdjax.core.boundaries import api_boundary, guard_methods
from amdjax.core.config import config
from amdjax.core.context import Context, context
from amdjax.core.dims import same_shape
from amdjax.core.precision import canonical_precision
from amdjax.core.primitive import Primitive
from amdjax.core.ref import is_ref
from amdjax.core.trace import Tracer
from amdjax.core.tracebacks import hide_internal_frames
from amdjax.numpy import (
    arithmetic,
    contractions,
    conversion,
    cumulative,
    diagonals,
    editing,
    elementary,
    logic,
    manipulation,
    reductions,
    refs,
    rounding,
    selecting,
    sorting,
)
from amdjax.numpy._util import scalar_of, user_dtype
from amdjax.numpy.array_api import VERSION
from amdjax.numpy.index_updates import IndexUpdate
from amdjax.numpy.indexing import row, take_index

_INT32 = np.dtype("int32")
_INT_LIMIT = 1 << 31  # what fits every default integer needs no look at the settings
_NUMBERS = frozenset((bool, int, float, complex))
_OTHERS = (Array, np.ndarray, np.generic, bool, int, float, complex)

# Which primitive an operator is on operands of one dtype: by the dtype's kind.


def _kind(dtype: Any) -> str:
    if dtypes.issubdtype(dtype, np.complexfloating):
        return "c"
    if dtypes.issubdtype(dtype, np.inexact):
        return "f"
    return "b" if dtype == np.bool_ else "i"


def _table(**by_kind: Primitive) -> dict[str, Primitive]:
    return by_kind


_numeric = lambda p: _table(i=p, f=p, c=p)
_ordered = lambda p: _table(b=p, i=p, f=p)
_bitwise = lambda p: _table(b=p, i=p)

_DIRECT: dict[str, dict[str, Primitive]] = {
    "add": _numeric(lax.add_p) | _table(b=lax.or_p),
    "sub": _numeric(lax.sub_p),
    "mul": _numeric(lax.mul_p) | _table(b=lax.and_p),
    "truediv": _table(f=lax.div_p, c=lax.div_p),
    "lt": _ordered(lax.lt_p),
    "le": _ordered(lax.le_p),
    "gt": _ordered(lax.gt_p),
    "ge": _ordered(lax.ge_p),
    "eq": _ordered(lax.eq_p) | _table(c=lax.eq_p),
    "ne": _ordered(lax.ne_p) | _table(c=lax.ne_p),
    "and": _bitwise(lax.and_p),
    "or": _bitwise(lax.or_p),
    "xor": _bitwise(lax.xor_p),
}


Plan = tuple[Primitive, dict[str, Any]]  # what to bind, with which parameters


def _pair_plan(direct: dict[str, Primitive], x: Any, y: Any) -> Plan | None:
    """What to bind to operands of avals `x` and `y`, None if anything has to be converted."""
    if isinstance(x.dtype, dtypes.ExtendedDType) or x.dtype != y.dtype:
        return None
    # What two weak ones become depends on how dtypes promote at the time.
    if x.weak_type or y.weak_type or (x.shape and y.shape and not same_shape(x.shape, y.shape)):
        return None
    found = direct.get(_kind(x.dtype))
    return None if found is None else (found, {})


def _product_plan(x: Any, y: Any, _: Any) -> Plan | None:
    """What to bind to matrices or vectors of one dtype, as settings have it."""
    if x.dtype != y.dtype or x.weak_type or y.weak_type:
        return None
    if isinstance(x.dtype, dtypes.ExtendedDType) or not dtypes.issubdtype(x.dtype, np.number):
        return None
    if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2):
        return None
    inner = x.shape[-1], y.shape[0]
    if not all(type(n) is int for n in inner) or inner[0] != inner[1]:
        return None
    return lax.dot_general_p, {
        "dimension_numbers": (((x.ndim - 1,), (0,)), ((), ())),
        "precision": canonical_precision(None),
        "out_sharding": None,
        "preferred_element_type": x.dtype,
    }


def _number_plan(direct: dict[str, Primitive], x: Any, number: type, _: bool) -> Primitive | None:
    """The primitive for an array and a Python number that takes on the array's dtype."""
    if isinstance(x.dtype, dtypes.ExtendedDType) or dtypes.canonicalize_dtype(x.dtype) != x.dtype:
        return None
    kind = _kind(x.dtype)
    rank = {"b": 0, "i": 1, "f": 2, "c": 3}
    of_number = {bool: 0, int: 1, float: 2, complex: 3}[number]
    default = {"b": bool, "i": int, "f": float, "c": complex}[kind]
    if x.weak_type and x.dtype != dtypes.scalar_type_to_dtype(default):
        return None  # both weak, of which the wider one counts
    return direct.get(kind) if of_number <= rank[kind] else None


def _operator(name: str, fn: Callable[[Any, Any], Any], reflected: bool) -> Callable[..., Any]:
    direct = _DIRECT.get(name, {})
    is_product = name == "matmul" and not reflected
    make_plan = _product_plan if is_product else functools.partial(_pair_plan, direct)
    pairs: dict[Any, Any] = {}
    numbers: dict[Any, Any] = {}

    def general(self: Array, other: Any) -> Any:
        if not isinstance(other, _OTHERS):
            # Python would answer == and != itself, and ask lists whether arrays are indices.
            if type(other) in (list, tuple, set, dict):  # subclasses may have operators
                types = [type(v).__name__ for v in ((other, self) if reflected else (self, other))]
                raise TypeError(
                    f"unsupported operand types for {name}: {types[0]!r} and {types[1]!r}; "
                    "numpy.asarray makes an array of numbers in a collection."
                )
            if not hasattr(other, "__jax_array__"):
                return NotImplemented
            other = other.__jax_array__()
        return fn(other, self) if reflected else fn(self, other)

    def method(self: Array, other: Any) -> Any:
        try:
            if type(other) is type(self):
                key = (
                    (self.aval, other.aval, config._trace_key)
                    if is_product
                    else (self.aval, other.aval)
                )
                plan = pairs.get(key, False)
                if plan is False:
                    plan = pairs[key] = make_plan(*key)
                if plan is not None:
                    primitive, params = plan
                    if reflected:
                        return primitive.bind(other, self, **params)
                    if recorded.operations:
                        place = getattr(self, "placement", None)
                        recorded.note_operator(method, primitive, key[:2], params, place)
                    return primitive.bind(self, other, **params)
            elif type(other) in _NUMBERS:
                aval = self.aval
                number = (aval, type(other), config.enable_x64)
                plan = numbers.get(number, False)
                if plan is False:
                    plan = numbers[number] = _number_plan(direct, *number)
                if plan is not None:
                    if type(other) is int and not -_INT_LIMIT <= other < _INT_LIMIT:
                        dtypes.scalar_type_to_dtype(int, other)
                    other = scalar_of(other, aval.dtype, aval.weak_type)
                    return plan.bind(other, self) if reflected else plan.bind(self, other)
            return general(self, other)
        except Exception as e:
            hide_internal_frames(e)
            raise

    method.__name__ = method.__qualname__ = f"__{'r' if reflected else ''}{name}__"
    return method


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": arithmetic.add,
    "sub": arithmetic.subtract,
    "mul": arithmetic.multiply,
    "truediv": arithmetic.true_divide,
    "floordiv": arithmetic.floor_divide,
    "mod": arithmetic.remainder,
    "divmod": arithmetic.divmod,
    "pow": arithmetic.power,
    "matmul": contractions.matmul,
    "and": logic.bitwise_and,
    "or": logic.bitwise_or,
    "xor": logic.bitwise_xor,
    "lshift": logic.left_shift,
    "rshift": logic.right_shift,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": logic.equal,
    "ne": logic.not_equal,
    "lt": logic.less,
    "le": logic.less_equal,
    "gt": logic.greater,
    "ge": logic.greater_equal,
}


def _operators() -> dict[str, Any]:
    methods = {f"__{name}__": _operator(name, fn, False) for name, fn in _COMPARISONS.items()}
    for name, fn in _FUNCTIONS.items():
        methods[f"__{name}__"] = _operator(name, fn, False)
        methods[f"__r{name}__"] = _operator(name, fn, True)
    return methods


def _neg(self: Array) -> Array:
    return lax.neg(self)


def _pos(self: Array) -> Array:
    return self


def _round(self: Array, ndigits: int | None = None) -> Array:
    result = rounding.round(self, 0 if ndigits is None else ndigits)
    # Python's round(x) gives an int.
    return (
        result
        if ndigits is not None or _kind(self.dtype) in "ib"
        else conversion.astype(result, int)
    )


def _getitem(self: Array, index: Any) -> Array:
    try:
        if type(index) is int and context.trace is Context.base:
            shape = self.shape
            if shape and shape[0]:
                at = index + shape[0] if index < 0 else index
                return row(self, scalar_of(min(max(at, 0), shape[0] - 1), _INT32))
        return refs.get(self, index) if is_ref(self) else take_index(self, index)
    except Exception as e:
        hide_internal_frames(e)
        raise


def _setitem(self: Array, index: Any, value: Any) -> None:
    if is_ref(self):
        return refs.set(self, index, value)
    raise TypeError(
        f"JAX arrays are immutable and do not support in-place item assignment. Instead of"
        f" x[idx] = y, use x = x.at[idx].set(y) or another .at[] method. Got an array of shape"
        f" {self.shape}."
    )


def _iter(self: Array) -> Iterator[Array]:
    if not self.ndim:
        raise TypeError("iteration over a 0-d array")
    return (self[i] for i in range(self.shape[0]))


def _contains(self: Array, value: Any) -> bool:
    if self.ndim != 1:
        raise ValueError(
            f"Array.__contains__: search array must be one-dimensional, got shape {self.shape}"
        )
    if not isinstance(value, _OTHERS):
        raise TypeError(f"Array.__contains__: unsupported operand type {type(value)}")
    if np.ndim(value):
        raise ValueError(
            f"Array.__contains__: query value must be a scalar, got shape {np.shape(value)}"
        )
    return bool(reductions.any(logic.equal(self, value)))


def _reshape(self: Array, *args: Any, order: str = "C", copy: bool | None = None,
             out_sharding: Any = None) -> Any:  # fmt: skip
    """The elements in another shape, given as one tuple or as several ints; see `numpy.reshape`."""
    if is_ref(self):
        return refs.View(self).reshape(*args)
    shape = args[0] if len(args) == 1 else args
    return manipulation.reshape(self, shape, order)


def _transpose(self: Array, *args: Any) -> Array:
    """The array with its axes permuted, by default reversed; see `numpy.transpose`."""
    if not args or (len(args) == 1 and args[0] is None):
        return manipulation.transpose(self)
    axes = args[0] if len(args) == 1 and np.ndim(args[0]) else args
    return manipulation.transpose(self, axes)


def _astype(self: Array, dtype: Any, copy: bool = False, device: Any = None) -> Array:
    """The array with another dtype; see `numpy.astype`."""
    return conversion.astype(self, dtype, copy=copy, device=device)


def _view(self: Array, dtype: Any = None, type: None = None) -> Array:
    """The memory of the array read as another dtype; see `lax.bitcast_convert_type`."""
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported.")
    dtype = dtypes.default_float_dtype() if dtype is None else user_dtype(dtype, "view")
    if dtype == self.dtype:
        return self
    if not self.ndim:
        if dtypes.itemsize_bits(self.dtype) != dtypes.itemsize_bits(dtype):
            raise ValueError("view() cannot change the itemsize of an array without axes")
        return lax.reshape(_view(lax.reshape(self, (1,)), dtype), ())
    if _kind(self.dtype) == "c":
        parts = lax.stack([lax.real(self), lax.imag(self)], axis=self.ndim)
        return _view(lax.reshape(parts, (*self.shape[:-1], 2 * self.shape[-1])), dtype)
    if dtypes.issubdtype(dtype, np.complexfloating):
        halves = _view(self, dtypes.finfo(dtype).dtype)
        if halves.shape[-1] % 2:
            raise ValueError(
                f"view: the last axis of {self.shape} does not hold whole numbers of {dtype}"
            )
        pairs = lax.reshape(halves, (*halves.shape[:-1], halves.shape[-1] // 2, 2))
        part = lambda i: lax.index_in_dim(pairs, i, pairs.ndim - 1, keepdims=False)
        return lax.complex(part(0), part(1))
    old, new = dtypes.itemsize_bits(self.dtype), dtypes.itemsize_bits(dtype)
    if self.dtype == np.bool_ or dtype == np.bool_:
        x = conversion.astype(self, np.uint8) if self.dtype == bool else _view(self, np.uint8)
        return _view(x, dtype) if dtype != np.bool_ else lax.ne(x, np.uint8(0))
    if old == new:
        return lax.bitcast_convert_type(self, dtype)
    if old > new:
        parts = lax.bitcast_convert_type(self, dtype)
        return lax.reshape(parts, (*self.shape[:-1], self.shape[-1] * (old // new)))
    ratio = new // old
    if self.shape[-1] % ratio:
        raise ValueError(
            "When changing to a larger dtype, its size must be a divisor of the total size in bytes"
            " of the last axis of the array."
        )
    grouped = lax.reshape(self, (*self.shape[:-1], self.shape[-1] // ratio, ratio))
    return lax.bitcast_convert_type(grouped, dtype)


def _byteswap(self: Array, inplace: bool = False) -> Array:
    """The array with the bytes of each element, or of each part of complex ones, reversed.

    Args:
      inplace: must be false.

    Returns:
      An array.
    """
    if inplace:
        raise ValueError("byteswap: arrays are immutable; inplace must be False")
    if self.dtype.itemsize == 1:
        return self
    if _kind(self.dtype) == "c":
        return lax.complex(_byteswap(lax.real(self)), _byteswap(lax.imag(self)))
    parts = lax.bitcast_convert_type(self, np.uint8)
    return lax.bitcast_convert_type(lax.rev(parts, (parts.ndim - 1,)), self.dtype)


def _flatten(self: Array, order: str = "C") -> Array:
    """The elements in one axis; see `numpy.ravel`."""
    return manipulation.ravel(self, order)


def _copy(self: Array) -> Array:
    """A copy of the array."""
    return conversion.copy(self)


def _clip(self: Array, min: Any = None, max: Any = None) -> Array:
    """Each element moved into the interval from `min` to `max`; see `numpy.clip`."""
    return arithmetic.clip(self, min, max)


def _to_device(self: Array, device: Any, *, stream: Any = None) -> Array:
    """The array on another device; see `device_put`."""
    return get_backend().device_put(self, device)


def _namespace_of(module: ModuleType) -> Callable[..., ModuleType]:
    def namespace(self: Array, *, api_version: str | None = None) -> ModuleType:
        """The module that implements the array API."""
        if api_version not in (None, VERSION):
            raise ValueError(
                f"api_version={api_version!r} is not available; available versions are"
                f" [{VERSION!r}]"
            )
        return module

    return namespace


def _method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the module as a method: the array is its first argument."""

    @functools.wraps(fn)
    def method(self: Array, *args: Any, **kwargs: Any) -> Any:
        try:
            return fn(self, *args, **kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    return method


def _compress(self: Array, condition: Any, axis: int | None = None, **options: Any) -> Array:
    """As `numpy.compress` of this array."""
    return selecting.compress(condition, self, axis, **options)


_METHODS: dict[str, Any] = {
    "__neg__": _neg,
    "__pos__": _pos,
    "__abs__": lambda self: arithmetic.absolute(self),
    "__invert__": lambda self: logic.bitwise_not(self),
    "__round__": _round,
    "__getitem__": _getitem,
    "__setitem__": _setitem,
    "__iter__": _iter,
    "__contains__": _contains,
    "astype": _astype,
    "byteswap": _byteswap,
    "clip": _clip,
    "copy": _copy,
    "flatten": _flatten,
    "reshape": _reshape,
    "to_device": _to_device,
    "transpose": _transpose,
    "view": _view,
    "all": _method(reductions.all),
    "any": _method(reductions.any),
    "argmax": _method(reductions.argmax),
    "argmin": _method(reductions.argmin),
    "argpartition": _method(sorting.argpartition),
    "argsort": _method(sorting.argsort),
    "choose": _method(selecting.choose),
    "compress": _compress,
    "conj": _method(elementary.conjugate),
    "conjugate": _method(elementary.conjugate),
    "cumprod": _method(cumulative.cumprod),
    "cumsum": _method(cumulative.cumsum),
    "diagonal": _method(diagonals.diagonal),
    "dot": _method(contractions.dot),
    "max": _method(reductions.max),
    "mean": _method(reductions.mean),
    "min": _method(reductions.min),
    "nonzero": _method(selecting.nonzero),
    "prod": _method(reductions.prod),
    "ptp": _method(reductions.ptp),
    "ravel": _method(manipulation.ravel),
    "repeat": _method(editing.repeat),
    "round": _method(rounding.round),
    "searchsorted": _method(sorting.searchsorted),
    "sort": _method(sorting.sort),
    "squeeze": _method(manipulation.squeeze),
    "std": _method(reductions.std),
    "sum": _method(reductions.sum),
    "swapaxes": _method(manipulation.swapaxes),
    "take": _method(selecting.take),
    "trace": _method(diagonals.trace),
    "var": _method(reductions.var),
    "T": property(lambda self: manipulation.transpose(self), doc="The axes in reverse."),
    "mT": property(api_boundary(manipulation.matrix_transpose), doc="The last two axes exchanged."),
    "at": property(
        lambda self: refs.At(refs.View(self)) if is_ref(self) else IndexUpdate(self),
        doc="Functional updates: `x.at[index].set(value)`.",
    ),
    "real": property(elementary.real, doc="The real part."),
    "imag": property(elementary.imag, doc="The imaginary part."),
    "flat": property(_flatten, doc="The elements in one axis."),
}


# What hides amdjax's frames itself, as one more call would cost too much.
_FAST = frozenset(
    name for name, method in _METHODS.items() if hasattr(method, "__wrapped__")
) | {"__getitem__"}  # fmt: skip
_GUARDED = (
    *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__", "__hash__"),
    *("__len__", "__getattr__", "__format__", "item", "tolist", "__reversed__", "__deepcopy__"),
)


def install(namespace: ModuleType) -> None:
    """Give all arrays, concrete and traced, their operators and methods.

    Args:
      namespace: the module that implements the array API.
    """
    _METHODS["__array_namespace__"] = _namespace_of(namespace)
    for method in _METHODS.values():  # functions have been documented in the meantime
        if hasattr(method, "__wrapped__"):
            method.__doc__ = method.__wrapped__.__doc__
    install_methods(_operators())
    install_methods(_METHODS)
    guard_methods(Array, (*_GUARDED, *(name for name in _METHODS if name not in _FAST)))
    guard_methods(ConcreteArray, _GUARDED)
    guard_methods(Tracer, _GUARDED)
