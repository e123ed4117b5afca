"""Traces: who processes an operation, and the values they hand out.

One trace is current in a thread (`context.trace`); `primitive.bind` gives every operation to it.
`EvalTrace` at the bottom computes; `JaxprTrace` records. The transforms add traces of their own,
each with a parent that it passes operations on to.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax.core import backend as backend_module, dtypes
from amdjax.core.array import Array, ConcreteArray, asarray_concrete, require_scalar
from amdjax.core.aval import register_aval
from amdjax.core.backend import get_backend
from amdjax.core.context import Context, context
from amdjax.core.dims import Dim
from amdjax.core.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
    leaked_tracer_message,
)
from amdjax.core.primitive import Primitive
from amdjax.core.ref import Ref, evaluate_with_refs

FlatFun = Callable[..., list[Any]]
_all_plain = frozenset((ConcreteArray,)).issuperset  # of types


class Trace:
    """Processes operations while it is the current trace.

    Args:
      parent: the trace that was current before; None at the bottom.

    Attributes:
      alive: False once the traced function has returned; tracers met later have leaked.
    """

    __slots__ = ("__weakref__", "alive", "parent")
    records = False

    def __init__(self, parent: Trace | None):
        self.parent: Any = parent
        self.alive = True

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        """Apply `primitive`; a list if it has multiple results."""
        raise NotImplementedError(type(self).__name__)

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        """Call a function with its own forward derivative.

        Args:
          primitive: `custom_jvp_call`, to pass the call on with.
          fun: the function on flat arguments.
          jvp: `jvp(*primals, *tangents) -> [*results, *tangents of results]`.
          args: flat arguments.
          params: `name`, `symbolic_zeros`.
        """
        raise NotImplementedError(type(self).__name__)

    def process_custom_vjp_call(
        self, primitive: Any, fun: FlatFun, fwd: Callable[..., Any], bwd: Callable[..., Any],
        args: Any, params: dict[str, Any],
    ) -> list[Any]:  # fmt: skip
        """Call a function with its own reverse derivative.

        Args:
          primitive: `custom_vjp_call`, to pass the call on with.
          fun: the function on flat arguments.
          fwd: `fwd(*args) -> (residuals, results)`, two lists.
          bwd: `bwd(residuals, cotangents) -> cotangents of args`, lists.
          args: flat arguments.
          params: `name`, `symbolic_zeros`, `optimize_remat`.
        """
        raise NotImplementedError(type(self).__name__)

    def outside(self, x: Any) -> Any:
        """What a value of a function that this trace processes is where the function was called."""
        return x

    @property
    def main(self) -> Any:
        """What tells one transformation from another, as JAX once named it."""
        return getattr(self, "tag", None)

    @property
    def parent_trace(self) -> Trace | None:
        """The trace that was current before, as JAX names it."""
        return self.parent

    def __repr__(self) -> str:
        return type(self).__name__


class set_trace:
    """Context manager: make a trace the current one.

    Args:
      trace: the trace.
    """

    __slots__ = ("old", "trace")

    def __init__(self, trace: Trace):
        self.trace = trace

    def __enter__(self) -> Trace:
        self.old = context.trace
        context.trace = self.trace
        return self.trace

    def __exit__(self, *exc: object) -> None:
        context.trace = self.old


class Tracer(Array):
    """A value inside a function that is being traced."""

    __slots__ = ("_trace",)

    _trace: Trace

    def __init__(self, trace: Trace, aval: Any = None):
        self._trace = trace
        if aval is not None:
            self.aval = aval

    def concrete_value(self) -> ConcreteArray | None:
        """The value if tracing knows it, else None."""
        return None

    def _known(self, error: Callable[[Any], Exception]) -> ConcreteArray:
        value = self.concrete_value()
        if value is None:
            raise error(self)
        return value

    def __bool__(self) -> bool:
        if self.concrete_value() is None and self.aval.size != 1:
            which = "an array with more than one element" if self.aval.size else "an empty array"
            raise ValueError(
                f"The truth value of {which} is ambiguous. Use a.any() or a.all(), or a.size > 0."
            )
        return bool(self._known(TracerBoolConversionError))

    def __int__(self) -> int:
        require_scalar(self)
        return int(self._known(_used_as("int")))

    def __float__(self) -> float:
        require_scalar(self)
        return float(self._known(_used_as("float")))

    def __complex__(self) -> complex:
        require_scalar(self)
        return complex(self._known(_used_as("complex")))

    def __index__(self) -> int:
        if self.aval.shape or not dtypes.issubdtype(self.aval.dtype, np.integer):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        return self._known(TracerIntegerConversionError).__index__()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TracerArrayConversionError(self)

    def item(self, *index: int) -> Any:
        """The element as a Python scalar, where the value is known.

        Args:
          index: one position for each axis, or none.

        Returns:
          A Python scalar.
        """
        return self._known(_used_as("item")).item(*index)

    def tobytes(self, order: str = "C") -> bytes:
        """Refused: the contents are not known while tracing.

        Args:
          order: ignored.
        """
        return self._known(_called("tobytes")).tobytes(order)

    def tolist(self) -> Any:
        """The elements as Python scalars, where the value is known."""
        return self._known(_called("tolist")).tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _called("__reduce__")(self)

    def __format__(self, spec: str) -> str:
        return repr(self) if not spec else format(self.item(), spec)

    @property
    def committed(self) -> bool:
        """Only concrete arrays are somewhere."""
        raise _used_as("committed")(self)

    @property
    def addressable_shards(self) -> Any:
        """Only concrete arrays are somewhere."""
        raise _used_as("addressable_shards")(self)

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def _origin_msg(self) -> str:
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, 'aval', '?')})"


_CASTS = ("bool", "complex", "float", "int")


def _used_as(what: str) -> Callable[[Any], Exception]:
    hint = f" To convert it try using `x.astype({what})`." if what in _CASTS else ""
    what = f"Python asked for it through `{what}`.{hint}"
    return lambda tracer: ConcretizationTypeError(tracer, what)


def _called(method: str) -> Callable[[Any], Exception]:
    what = f"The {method}() method was called on traced array of unknown contents."
    return lambda tracer: ConcretizationTypeError(tracer, what)


def full_lower(x: Any) -> Any:
    """The concrete array behind a tracer that knows its value, else `x`."""
    if isinstance(x, Tracer):
        value = x.concrete_value()
        return x if value is None else value
    return x


def concrete_or_error(force: Callable[[Any], Any] | None, value: Any, context: str = "") -> Any:
    """`value` as a Python or NumPy value, or a teaching error if it is traced.

    Args:
      force: what to convert with, such as `int`; None for a NumPy array.
      value: a value known while tracing.
      context: what needs it, for the message.

    Returns:
      The value.

    Raises:
      ConcretizationTypeError: the value is traced.

        >>> concrete_or_error(int, 3.0)
        3
    """
    if isinstance(value, Tracer):
        known = value.concrete_value()
        if known is None:
            raise ConcretizationTypeError(value, context)
        value = known
    return np.asarray(value) if force is None else force(value)


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` is known."""
    return not isinstance(x, Tracer) or x.concrete_value() is not None


_ALIVE = (
    "An enclosing transform still works on it, but this operation does not belong to it. A "
    "function with a custom derivative that closes over the value must take it as an argument."
)


class EvalTrace(Trace):
    """The bottom: computes."""

    __slots__ = ()

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        if primitive.impl is not None:
            return primitive.impl(*args, **params)
        if _all_plain(map(type, args)):  # as in `compute`: a call less for most operations
            return (backend_module._backend or get_backend()).evaluate(primitive, args, params)
        return self.compute(primitive, args, params)

    def compute(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        """What the compiled operation gives."""
        backend = backend_module._backend or get_backend()
        if not _all_plain(map(type, args)):
            if Ref in map(type, args):
                return evaluate_with_refs(primitive, args, params)
            args = [a if type(a) is ConcreteArray else self.concrete(a) for a in args]
            if not _all_plain(map(type, args)):
                return backend.evaluate_placed(primitive, args, params)
        return backend.evaluate(primitive, args, params)

    def concrete(self, x: Any) -> ConcreteArray:
        if isinstance(x, Tracer):
            raise UnexpectedTracerError(leaked_tracer_message(x, _ALIVE if x._trace.alive else ""))
        return asarray_concrete(x)

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        return fun(*args)

    def process_custom_vjp_call(
        self, primitive: Any, fun: FlatFun, fwd: Callable[..., Any], bwd: Callable[..., Any],
        args: Any, params: dict[str, Any],
    ) -> list[Any]:  # fmt: skip
        return fun(*args)


eval_trace = EvalTrace(None)
Context.base = eval_trace
context.trace = eval_trace


def find_current_trace() -> Trace:
    """The trace that processes operations of this thread now."""
    return context.trace


register_aval(Tracer, lambda x: x.aval)


def is_float0(x: Any) -> bool:
    """Whether `x` is an array of the tangents of integers."""
    return isinstance(x, np.ndarray) and x.dtype == dtypes.float0


def float0_zeros(shape: Any) -> np.ndarray:
    """The tangent of integers of a shape. NumPy has none of symbolic shapes: with one the function
    is traced for each size.
    """
    for size in shape:
        if isinstance(size, Dim):
            size.scope.undecided[()] = None
    return np.zeros(shape, dtypes.float0)


def check_leaks(watch: weakref.ref[Any]) -> None:
    """Raise UnexpectedTracerError if tracers keep a trace alive that should have gone."""
    if watch() is None:
        return
    gc.collect()
    trace = watch()
    if trace is None:
        return
    leaked = [o for o in gc.get_referrers(trace) if isinstance(o, Tracer)]
    if leaked:
        what = "\n".join(leaked_tracer_message(t) for t in leaked[:3])
        raise UnexpectedTracerError(f"Leaked trace, with {len(leaked)} tracer(s) alive.\n{what}")
