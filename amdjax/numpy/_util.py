"""What every function of this package does first: check, promote and broadcast its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array, ConcreteArray, from_numpy
from amdjax.core.aval import refuse_masked
from amdjax.core.backend import get_backend
from amdjax.core.config import config, default_device
from amdjax.core.context import Context, context
from amdjax.core.dims import as_size, is_symbolic_dim, same_shape
from amdjax.core.errors import ConcretizationTypeError
from amdjax.core.pytree import tree_map
from amdjax.core.trace import Tracer, concrete_or_error
from amdjax.core.tracebacks import warn
from amdjax.lax import casting
from amdjax.lax._rules import canonical_axis as canonical_axis
from amdjax.transforms import stop_gradient_p

ArrayLike: TypeAlias = "Array | np.ndarray | np.generic | bool | int | float | complex"
DTypeLike: TypeAlias = "Any"
Shape: TypeAlias = "int | Sequence[int]"
Axis: TypeAlias = "int | Sequence[int] | None"

_PYTHON_SCALARS = frozenset((bool, int, float, complex))


def is_arraylike(x: Any) -> bool:
    """Whether a function may take `x` where it asks for an array (lists and None it may not)."""
    return isinstance(x, (Array, np.ndarray, np.generic, bool, int, float, complex)) or hasattr(
        x, "__jax_array__"
    )


def check_arraylike(name: str, *args: Any) -> None:
    """Raise TypeError naming the function and the first argument that is not array-like."""
    for position, x in enumerate(args):
        if not is_arraylike(x):
            raise TypeError(
                f"{name} requires ndarray or scalar arguments, got {type(x)} at position"
                f" {position}."
            )


def as_array(name: str, x: Any, position: int = 0) -> Array:
    """`x` as an array, keeping the weak type of Python scalars.

    Raises:
      TypeError: `x` is a list, None or another object that is no array.
    """
    if isinstance(x, Array):
        return x
    if not is_arraylike(x):
        raise TypeError(
            f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}."
        )
    if hasattr(x, "__jax_array__"):
        return as_array(name, x.__jax_array__())
    dtype, weak = promotion.lattice_result_type(x)
    return convert(x, dtype, weak)


def as_arrays(name: str, *args: Any) -> list[Array]:
    """`as_array` of each argument."""
    return [as_array(name, x, position) for position, x in enumerate(args)]


def refuse_out(name: str, out: Any) -> None:
    """Arrays are immutable: no function writes into `out`."""
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")


def dtype_of(x: Any) -> np.dtype:
    """The dtype `x` has as an array (for Python scalars, the default of their kind)."""
    return dtypes.dtype(x)


def user_dtype(dtype: DTypeLike, name: str) -> np.dtype:
    """The dtype a user asked for, 64-bit types narrowed unless x64 is enabled."""
    return dtypes.check_and_canonicalize_user_dtype(dtype, name)


def is_kind(dtype: Any, kind: Any) -> bool:
    """`issubdtype`, for a dtype or anything that has one."""
    return dtypes.issubdtype(getattr(dtype, "dtype", dtype), kind)


def convert(x: Any, dtype: DTypeLike, weak: bool = False) -> Array:
    """`x` with the given dtype and weak type, untouched if it has them already."""
    if isinstance(x, Array):
        if x.dtype == dtype and x.weak_type == weak:
            return x
        if is_kind(x.dtype, np.complexfloating) and not is_kind(dtype, np.complexfloating):
            # Booleans ask whether the number is zero, everything else keeps the real part.
            x = lax.ne(x, np.zeros((), x.dtype)) if dtype == np.bool_ else lax.real(x)
        return casting.convert(x, dtype, bool(weak))
    if type(x) in _PYTHON_SCALARS:
        if type(x) is int:
            dtypes.scalar_type_to_dtype(int, x)  # raises where it fits no integer
        # The caller may donate or delete it.
        return scalar_array(x, np.dtype(dtype), bool(weak)).sharing()
    if hasattr(x, "__jax_array__"):
        return convert(x.__jax_array__(), dtype, weak)
    refuse_masked(x)
    return from_numpy(np.asarray(x).astype(dtype), bool(weak))


# What each family of functions does with the promoted dtype.
_ADJUST: dict[str, Callable[[Any], Any]] = {
    "any": lambda dtype: dtype,
    "inexact": dtypes.to_inexact_dtype,
    "numeric": dtypes.to_numeric_dtype,
}


def _promote_dtypes(kind: str, args: Sequence[Any]) -> list[Array]:
    dtype, weak = promotion.lattice_result_type(*args)
    dtype = _ADJUST[kind](dtype)
    return [convert(x, dtype, weak) for x in args]


def promote_dtypes(*args: Any) -> list[Array]:
    """All arguments with the dtype of their promotion."""
    return _promote_dtypes("any", args)


def promote_dtypes_inexact(*args: Any) -> list[Array]:
    """As `promote_dtypes`; integers and booleans become floats."""
    return _promote_dtypes("inexact", args)


def _checked(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, known to be array-like and differentiable values, unwrapped."""
    check_arraylike(name, *args)
    args = tuple(x.__jax_array__() if hasattr(x, "__jax_array__") else x for x in args)
    for x in args:
        if getattr(x, "dtype", None) == dtypes.float0:
            raise TypeError(
                f"Called {name} with a float0 array. float0s do not support any operations by"
                " design: float0 is the tangent type of integers and booleans, and the array comes"
                " from differentiating with respect to one. Use np.zeros_like(x, dtype=float) for"
                " an array of zeros."
            )
    return args


class _Steps(NamedTuple):
    """How arguments of given avals are promoted: the dtype, who needs it, and the rank."""

    dtype: Any
    weak: bool
    converts: tuple[bool, ...]
    rank: int | None


_steps: dict[Any, _Steps] = {}


def _promote(name: str, kind: str, args: tuple[Any, ...]) -> list[Array]:
    """Check, promote and lift arguments to one rank.

    What is to be done depends on avals and types only and is remembered by them.
    """
    key: list[Any] = [kind, config._trace_key]
    for x in args:
        if isinstance(x, Array):
            key.append(x.aval)
        elif type(x) in _PYTHON_SCALARS:
            key.append(type(x))
        else:
            args = _checked(name, args)
            _refuse_extended(name, args)
            return promote_ranks(name, *_promote_dtypes(kind, args))
    found = _steps.get(tuple(key))
    if found is None:
        found = _steps[tuple(key)] = _plan_steps(name, kind, args)
    dtype, weak, converts, rank = found
    out = [
        (convert(x, dtype, weak) if needed else x) for x, needed in zip(args, converts, strict=True)
    ]
    return out if rank is None else promote_ranks(name, *out)


def _plan_steps(name: str, kind: str, args: tuple[Any, ...]) -> _Steps:
    _refuse_extended(name, args)
    dtype, weak = promotion.lattice_result_type(*_checked(name, args))
    dtype = _ADJUST[kind](dtype)
    converts = tuple(
        not isinstance(x, Array) or x.dtype != dtype or x.weak_type != weak for x in args
    )
    ranks = {x.ndim for x in args if isinstance(x, Array) and x.ndim}
    return _Steps(dtype, weak, converts, max(ranks) if len(ranks) > 1 else None)


def _refuse_extended(name: str, args: tuple[Any, ...]) -> None:
    """Raise TypeError where elements that are not numbers would have to be promoted."""
    found = [dtypes.dtype(x) for x in args]
    if len(set(found)) > 1 and any(isinstance(d, dtypes.ExtendedDType) for d in found):
        raise TypeError(f"{name} does not accept dtypes {', '.join(map(str, found))}.")


def promote_args(name: str, *args: Any) -> list[Array]:
    """Checked arguments with one dtype and compatible ranks."""
    if len(args) == 2:
        x, y = args
        # Nearly every call has operands of one type. Strict promotion of weak ones makes defaults.
        same = isinstance(x, Array) and isinstance(y, Array) and x.aval is y.aval
        if same and not x.aval.weak_type:
            return [x, y]
    return _promote(name, "any", args)


def promote_args_inexact(name: str, *args: Any) -> list[Array]:
    """As `promote_args`; integers and booleans become floats."""
    return _promote(name, "inexact", args)


def promote_args_numeric(name: str, *args: Any) -> list[Array]:
    """As `promote_args`; booleans become integers."""
    return _promote(name, "numeric", args)


def promote_ranks(name: str, *args: Array) -> list[Array]:
    """Arguments of equal rank, scalars excepted: lax stretches axes of one and scalars itself."""
    ranks = {x.ndim for x in args if x.ndim}
    if len(ranks) < 2:
        return list(args)
    shapes = [x.shape for x in args]
    complain_about_ranks(name, shapes)
    rank = len(lax.broadcast_shapes(*shapes))
    return [lax.broadcast_to_rank(x, rank) for x in args]


def complain_about_ranks(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise or warn, as `numpy_rank_promotion` says, that operands differ in rank."""
    if config.numpy_rank_promotion == "allow":
        return
    text = " ".join(map(str, shapes))
    why = f"{name}: operands with shapes {text} require rank promotion."
    if config.numpy_rank_promotion == "raise":
        raise ValueError(
            f"{why} Operands could not be broadcast together for {name} on shapes {text} and with"
            " the config option numpy_rank_promotion='raise'."
        )
    warn(
        f"{why} Following NumPy automatic rank promotion for {name} on shapes {text}. Set the"
        " config option numpy_rank_promotion to 'allow' to silence this warning."
    )


def broadcast_to(x: Any, shape: Shape) -> Array:
    """`x` repeated to `shape`, new axes in front."""
    x = as_array("broadcast_to", x)
    shape = canonical_shape(shape)
    if same_shape(x.shape, shape):
        return x
    lead = len(shape) - x.ndim
    if lead < 0:
        raise ValueError(
            f"Cannot broadcast to shape with fewer dimensions: {x.shape} and requested {shape}"
        )
    if any(have not in (1, want) for have, want in zip(x.shape, shape[lead:], strict=True)):
        raise ValueError(f"Incompatible shapes for broadcasting: {x.shape} and requested {shape}")
    # An axis of one that is stretched is dropped and made anew.
    stretched = [i for i, n in enumerate(x.shape) if n != shape[lead + i]]
    kept = tuple(lead + i for i in range(x.ndim) if i not in stretched)
    if stretched:
        x = lax.squeeze(x, tuple(stretched))
    return lax.broadcast_in_dim(x, shape, kept)


def broadcast_arrays(*args: Array) -> list[Array]:
    """All arguments with the shape of their broadcast."""
    shapes = {x.shape for x in args}
    if len(shapes) < 2:
        return list(args)
    shape = lax.broadcast_shapes(*shapes)
    return [broadcast_to(x, shape) for x in args]


def canonical_shape(shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence, as a tuple of ints.

    Raises:
      TypeError: an entry is not an integer (a traced value cannot decide a shape).
    """
    if not isinstance(shape, (tuple, list)):
        shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    try:
        return tuple(map(as_size, shape))
    except TypeError:
        hint = ""
        if any(isinstance(n, Tracer) for n in shape):
            hint = (
                "\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller"
                " subfunctions."
            )
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.{hint}"
        ) from None


def canonical_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """One axis, several, or all (None), as distinct numbers in `[0, ndim)`."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, Iterable) and not (hasattr(axis, "ndim") and axis.ndim == 0):
        axes = tuple(canonical_axis(a, ndim) for a in axis)
        if len(set(axes)) != len(axes):
            raise ValueError(f"duplicate value in 'axis': {axis}, a repeated axis")
        return axes
    return (canonical_axis(axis, ndim),)


def concrete_int(x: Any, what: str) -> int:
    """`x` as a Python int; under tracing the error says which argument must be known."""
    try:
        return concrete_or_error(as_size, x, f"It is {what}.")
    except ConcretizationTypeError:
        raise
    except TypeError:
        raise TypeError(f"{what} must be a concrete integer, got {x!r} of {type(x)}.") from None


_scalars: dict[Any, Any] = {}


def constant(like: Any, value: Any) -> Any:
    """A scalar of the dtype of `like`, for use next to it in lax; weakly typed as a scalar is.

    While tracing it is a literal. Eagerly it is an array, kept for the next operation with the
    same number, since putting a scalar on a device costs as much as a small operation.
    """
    return scalar_of(value, like.dtype, getattr(like, "weak_type", False) and not np.ndim(like))


def strong(like: Any, value: Any) -> Any:
    """As `constant`, but not weakly typed: what it meets becomes strong."""
    return scalar_of(value, like.dtype)


def scalar_of(value: Any, dtype: np.dtype, weak: bool = False) -> Any:
    """`value` as a scalar operand; see `constant`."""
    if is_symbolic_dim(value) or isinstance(value, Array):
        return convert(value, dtype, weak)
    if not weak and context.trace is not Context.base:
        return _host_scalar(value, dtype)
    return scalar_array(value, dtype, weak)


def _host_scalar(value: Any, dtype: np.dtype) -> Any:
    """`value` as `dtype`; integers beyond the range of a narrow dtype wrap."""
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        return np.asarray(value, dtypes.scalar_type_to_dtype(int, value)).astype(dtype)


def scalar_array(value: Any, dtype: np.dtype, weak: bool = False) -> ConcreteArray:
    """`value` as an array without axes, one for all uses."""
    # Zeros of both signs are equal as keys, NaN is not equal to itself.
    key = (value or repr(value), type(value), dtype, weak, config.default_device)
    found = _scalars.get(key)
    if found is None or found.buffer is None:
        found = from_numpy(_host_scalar(value, dtype), weak)
        if value == value:
            if len(_scalars) > 4096:
                _scalars.clear()
            _scalars[key] = found
    return found


def on_device(device: Any, make: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The arrays that `make(*args)` returns, made on a device and committed to it."""
    (home,) = getattr(device, "device_set", (device,))
    with default_device(home):
        made = make(*args, **options)
    return tree_map(lambda x: get_backend().device_put(x, device), made)


def stop_gradient(x: Array) -> Array:
    """`x`, of which derivatives do not know."""
    return stop_gradient_p.bind(x)


def select(condition: Any, x: Any, y: Any) -> Array:
    """`where` of arrays that agree in dtype; scalars stretch."""
    shape = lax.broadcast_shapes(x.shape, y.shape)
    if condition.ndim:
        shape = lax.broadcast_shapes(condition.shape, shape)
        condition = broadcast_to(condition, shape)
    return lax.select(condition, broadcast_to(x, shape), broadcast_to(y, shape))
