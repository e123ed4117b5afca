"""What the derivative rules speak of: symbolic zeros, unknown linear inputs, sums of tangents."""

from __future__ import annotations

from typing import Any

from amdjax.core import dtypes
from amdjax.core.array import Array, asarray_concrete
from amdjax.core.aval import AbstractValue, ShapedArray, Typed, get_aval, register_aval
from amdjax.core.lowering import Pointwise
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_map
from amdjax.core.ref import AbstractRef
from amdjax.core.sharding import ArrayCopySemantics, Space
from amdjax.core.trace import float0_zeros
from amdjax.transforms import ops
from amdjax.transforms.axes import batch_at


class Zero:
    """A tangent or cotangent known to be zero; it costs nothing.

    Args:
      aval: the type of the tangent.
    """

    __slots__ = ("aval",)

    def __init__(self, aval: AbstractValue):
        self.aval: Any = aval

    @staticmethod
    def of(primal: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(get_aval(primal).to_tangent())

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"


class _OnlyTyped(Typed):
    """Stands for a value of which only the type is known.

    Args:
      aval: the type.
    """

    __slots__ = ("aval",)

    def __init__(self, aval: AbstractValue):
        self.aval: Any = aval

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval.str_short()})"


class SymbolicZero(_OnlyTyped):
    """What custom rules with `symbolic_zeros=True` receive in place of zeros.

    Args:
      aval: the type of the tangent or cotangent.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.aval)


class UndefinedPrimal(_OnlyTyped):
    """In a transpose rule, an operand that the operation is linear in; its value is unknown.

    Args:
      aval: its type.
    """

    __slots__ = ()


register_aval(UndefinedPrimal, lambda x: x.aval)
register_aval(SymbolicZero, lambda x: x.aval)


def is_undefined_primal(x: Any) -> bool:
    """Whether `x` is the unknown operand of a transpose rule.

    Args:
      x: an operand.

    Returns:
      Whether it is.

        >>> is_undefined_primal(1.0)
        False
    """
    return type(x) is UndefinedPrimal


def zeros_like_aval(aval: Any) -> Any:
    """Zeros of a type: a scalar, a recorded fill, or an array.

    Args:
      aval: the type.

    Returns:
      An array.

    Raises:
      TypeError: it is not that of an array.

        >>> from amdjax.core.aval import get_aval
        >>> zeros_like_aval(get_aval(np.ones(2, np.float32))).shape
        (2,)
    """
    if isinstance(aval, ShapedArray):
        if aval.dtype == dtypes.float0:
            return float0_zeros(aval.shape)
        if aval.memory_space is not Space.Device:
            on_device = zeros_like_aval(aval.update(memory_space=Space.Device))
            return in_space(on_device, aval.memory_space)
        zero = getattr(getattr(aval.dtype, "_rules", None), "zero", None)
        if zero is not None:
            return ops.broadcast_in_dim(zero(aval.dtype), aval.shape, ())
        return ops.full(aval.shape, 0, aval.dtype, aval.weak_type)
    if type(aval) is AbstractRef:  # reverse mode gives no cotangents of references
        return float0_zeros(aval.shape)
    raise TypeError(f"there are no zeros of type {aval}")


def ones_like_aval(aval: Any) -> Any:
    """Ones of a type."""
    ones = ops.full(aval.shape, 1, aval.dtype, aval.weak_type)
    return in_space(ones, getattr(aval, "memory_space", Space.Device))


def in_space(x: Any, space: Space) -> Any:
    """A value in a memory space, where it may be already."""
    if get_aval(x).memory_space is space:
        return x
    copy = ArrayCopySemantics.REUSE_INPUT
    put = Primitive.by_name["device_put"]
    return put.bind(x, devices=(space,), srcs=(None,), copy_semantics=(copy,))[0]


def instantiate_zeros(x: Any) -> Any:
    """`x`, or an array of zeros if it is symbolically zero.

    Args:
      x: an array or a `Zero`.

    Returns:
      An array.

        >>> instantiate_zeros(jnp.ones(1))
        Array([1.], dtype=float32)
    """
    return zeros_like_aval(x.aval) if type(x) is Zero else x


def zero_from_primal(value: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of a value, as rules of `custom_jvp` may return it.

    Args:
      value: a pytree of arrays.
      symbolic_zeros: whether to return `SymbolicZero`s.

    Returns:
      A pytree of zeros of the tangents' types: float0 for integers and booleans.

        >>> print(zero_from_primal(2.0))
        0.0
    """

    def zero(leaf: Any) -> Any:
        aval = get_aval(leaf).to_tangent()
        return SymbolicZero(aval) if symbolic_zeros else as_result(Zero(aval))

    return tree_map(zero, value)


def as_result(x: Any) -> Any:
    """A tangent or cotangent as users get it: an array, also where numbers will do inside."""
    x = instantiate_zeros(x)
    if isinstance(x, (Array, SymbolicZero)) or get_aval(x).dtype == dtypes.float0:
        return x
    return asarray_concrete(x)


def replace_float0s(primal: Any, tangent: Any) -> Any:
    """`tangent`, but zeros of the type of `primal` where tangents of that type are trivial."""
    if get_aval(tangent).dtype == dtypes.float0:
        return zeros_like_aval(get_aval(primal))
    return tangent


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents, either of which may be `Zero`.

    Args:
      x: an array or a `Zero`.
      y: another one of its type.

    Returns:
      Their sum.

        >>> add_tangents(jnp.ones(1), jnp.ones(1))
        Array([2.], dtype=float32)
    """
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    dtype = get_aval(x).dtype
    if dtype == dtypes.float0:
        return x
    if isinstance(dtype, dtypes.ExtendedDType):
        return dtype._rules.add(dtype, x, y)
    return add_any_p.bind(x, y)


add_any_p = Primitive("add_any")
add_any_p.lowering = Pointwise("add")


@add_any_p.def_abstract_eval
def _add_any_abstract(x: Any, y: Any) -> Any:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise TypeError(f"add_any takes values of one type, got {x} and {y}")
    return x  # as weak as the first


@add_any_p.def_jvp
def _add_any_jvp(primals: Any, tangents: Any) -> Any:
    return add_any_p.bind(*primals), add_tangents(*tangents)


@add_any_p.def_transpose
def _add_any_transpose(ct: Any, x: Any, y: Any) -> Any:
    return [ct if is_undefined_primal(v) else None for v in (x, y)]


@add_any_p.def_batch
def _add_any_batch(axis: Any, args: Any, dims: Any) -> Any:
    x, y = (batch_at(axis, v, d, 0) for v, d in zip(args, dims))
    return add_any_p.bind(x, y), 0


def _identity(x: Any, **_: Any) -> Any:
    return x


copy_p = Primitive("copy")
copy_p.lowering = Pointwise(lambda b, x: x, copies=True)
copy_p.def_abstract_eval(_identity)
copy_p.def_jvp(
    lambda primals, tangents: (
        copy_p.bind(*primals),
        tangents[0] if type(tangents[0]) is Zero else copy_p.bind(*tangents),
    )
)
copy_p.def_transpose(lambda ct, x: [ct if type(ct) is Zero else copy_p.bind(ct)])
copy_p.def_batch(lambda axis, args, dims: (copy_p.bind(*args), dims[0]))

stop_gradient_p = Primitive("stop_gradient")
stop_gradient_p.lowering = Pointwise(lambda b, x: x, copies=True)
stop_gradient_p.def_abstract_eval(_identity)
stop_gradient_p.def_jvp(
    lambda primals, tangents: (
        stop_gradient_p.bind(*primals),
        tangents[0] if type(tangents[0]) is Zero else Zero(get_aval(tangents[0])),
    )
)
stop_gradient_p.def_batch(lambda axis, args, dims: (stop_gradient_p.bind(*args), dims[0]))
