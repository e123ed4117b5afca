"""Helpers for making and searching programs, and for asking what is being traced."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from amdjax.core import source_info as _sources
from amdjax.core.array import Array
from amdjax.core.aval import AbstractValue, ShapedArray, tangent_dtype
from amdjax.core.config import config
from amdjax.core.context import context
from amdjax.core.effects import Effects
from amdjax.core.jaxpr import Atom, Jaxpr, JaxprEqn, Var, open_jaxpr, subjaxprs_of_value
from amdjax.core.jaxpr_trace import JaxprTrace
from amdjax.core.primitive import Primitive
from amdjax.core.trace import Trace, eval_trace
from amdjax.transforms.batching import BatchTrace

primal_dtype_to_tangent_dtype = tangent_dtype


class _TokenType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Array) and (value.shape, value.dtype) == ((0,), np.bool_)


class Token(metaclass=_TokenType):
    """What `isinstance` asks for of a value that only orders effects, an array without elements."""


class TraceTag:
    """Tells one transformation from another; all are equal, so that they may be keys of caches."""

    def __hash__(self) -> int:
        return hash(TraceTag)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceTag)


class OpaqueTraceState:
    """Which trace is the current one, for comparison only.

    Args:
      trace: the trace.
    """

    def __init__(self, trace: Trace):
        self._trace = weakref.ref(trace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._trace == other._trace

    def __hash__(self) -> int:
        return hash(self._trace)


def get_opaque_trace_state(convention: Any = None) -> OpaqueTraceState:
    """Something that is equal as long as the current trace is the same.

    Args:
      convention: accepted.

    Returns:
      The state.

        >>> get_opaque_trace_state() == get_opaque_trace_state()
        True
    """
    return OpaqueTraceState(context.trace)


def find_top_trace(values: Any) -> Trace:
    """The trace that processes operations now.

    Args:
      values: accepted; the trace does not depend on the operands.

    Returns:
      The trace.

        >>> find_top_trace([]) is eval_trace
        True
    """
    return context.trace


class take_current_trace:
    """Context manager: the evaluating trace is current inside; gives the trace that was."""

    def __enter__(self) -> Trace:
        self._outer = context.trace
        context.trace = eval_trace
        return self._outer

    def __exit__(self, *exc: object) -> None:
        context.trace = self._outer


def trace_state_clean() -> bool:
    """Whether nothing is being traced.

    Returns:
      Whether it is so.

        >>> trace_state_clean()
        True
    """
    return context.trace is eval_trace and not config.axis_env


def _enclosing(kind: type) -> bool:
    trace = context.trace
    while trace is not None:
        if isinstance(trace, kind):
            return True
        trace = trace.parent
    return False


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a program is being recorded.

    Returns:
      Whether it is so.

        >>> unsafe_am_i_under_a_jit_DO_NOT_USE()
        False
    """
    return _enclosing(JaxprTrace)


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether operations are being batched.

    Returns:
      Whether it is so.

        >>> unsafe_am_i_under_a_vmap_DO_NOT_USE()
        False
    """
    return _enclosing(BatchTrace)


def unsafe_get_axis_names_DO_NOT_USE() -> list[Any]:
    """The names of the mapped axes.

    Returns:
      A list.

        >>> unsafe_get_axis_names_DO_NOT_USE()
        []
    """
    return list(config.axis_env)


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether there are named mapped axes.

    Returns:
      Whether it is so.

        >>> nonempty_axis_env_DO_NOT_USE()
        False
    """
    return bool(config.axis_env)


def call_impl(fun: Any, *args: Any, **params: Any) -> Any:
    """Call a `linear_util.WrappedFun`; `params` are the primitive's, not the function's.

    Args:
      fun: the function.
      args: its arguments.
      params: ignored.

    Returns:
      What the function returns.

        >>> from amdjax.extend.linear_util import wrap_init
        >>> call_impl(wrap_init(lambda x: x + 1), 2, name="f")
        3
    """
    return fun.call_wrapped(*args)


def gensym(suffix: str = "") -> Callable[[AbstractValue], Var]:
    """A function that makes variables of given types.

    Args:
      suffix: accepted; variables are named when they are printed.

    Returns:
      The function.

        >>> gensym()(ShapedArray((2,), "float32"))
        Var(f32[2])
    """
    return Var


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The programs among an equation's parameters, without their constants.

    Args:
      params: the parameters.

    Returns:
      An iterator over them.

        >>> closed = amdjax.make_jaxpr(amdjax.jit(lambda x: x * 2))(1.0)
        >>> len(list(jaxprs_in_params(closed.jaxpr.eqns[0].params)))
        1
    """
    for value in params.values():
        yield from map(open_jaxpr, subjaxprs_of_value(value))


def mapped_aval(size: int, axis: int | None, aval: Any) -> Any:
    """The type of one element of a batch.

    Args:
      size: how many elements there are.
      axis: the axis along which they are stacked, None if the value is the same for all.
      aval: the batch's type.

    Returns:
      A type.

    Raises:
      ValueError: the axis is not of that size.

        >>> mapped_aval(3, 0, ShapedArray((3, 2), "float32"))
        ShapedArray(float32[2])
    """
    if axis is None or not isinstance(aval, ShapedArray):
        return aval
    if aval.shape[axis] != size:
        raise ValueError(f"axis {axis} of {aval} has not the size {size}")
    shape = (*aval.shape[:axis], *aval.shape[axis + 1 :])
    return ShapedArray(shape, aval.dtype, aval.weak_type)


def unmapped_aval(size: int, axis: int | None, aval: Any, *rest: Any) -> Any:
    """The type of a batch of values; the inverse of `mapped_aval`.

    Args:
      size: how many elements there are.
      axis: the axis along which they are stacked, None if the value is the same for all.
      aval: one element's type.
      *rest: accepted.

    Returns:
      A type.

        >>> unmapped_aval(3, 1, ShapedArray((2,), "float32"))
        ShapedArray(float32[2,3])
    """
    if rest:  # as JAX once had it: (size, name, axis, aval)
        axis, aval = aval, rest[0]
    if axis is None or not isinstance(aval, ShapedArray):
        return aval
    shape = (*aval.shape[:axis], size, *aval.shape[axis:])
    return ShapedArray(shape, aval.dtype, aval.weak_type)


def new_jaxpr_eqn(
    invars: Sequence[Atom], outvars: Sequence[Var], primitive: Primitive, params: dict[str, Any],
    effects: Effects, source_info: Any = None, ctx: Any = None,
) -> JaxprEqn:  # fmt: skip
    """An equation `outvars = primitive[params] invars`.

    Args:
      invars: variables and literals.
      outvars: variables.
      primitive: the operation.
      params: its parameters.
      effects: what it does besides computing.
      source_info: where it was written; here if omitted.
      ctx: accepted.

    Returns:
      The equation.

        >>> from amdjax.extend.core.primitives import neg_p
        >>> x, y = Var(ShapedArray((), "float32")), Var(ShapedArray((), "float32"))
        >>> new_jaxpr_eqn([x], [y], neg_p, {}, frozenset()).primitive is neg_p
        True
    """
    source = _sources.current() if source_info is None else source_info
    return JaxprEqn(primitive, list(invars), list(outvars), params, effects, source)
