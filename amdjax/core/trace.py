"""Traces: who processes an operation, and the values they hand out.

One trace is current in a thread (`context.trace`); `primitive.bind` gives every operation to it.
`EvalTrace` at the bottom computes; `JaxprTrace` records. The transforms add traces of their own,
each with a parent that it passes operations on to.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core import backend as backend_module, dtypes, source_info
from amdjax.core.array import Array, ConcreteArray, asarray_concrete, require_scalar
from amdjax.core.aval import AbstractValue, ShapedArray, abstract_types, get_aval, register_aval
from amdjax.core.backend import get_backend
from amdjax.core.check import check_jaxpr
from amdjax.core.config import config
from amdjax.core.context import Context, context
from amdjax.core.effects import Effects, join_effects, no_effects
from amdjax.core.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
    leaked_tracer_message,
)
from amdjax.core.jaxpr import (
    Atom,
    ClosedJaxpr,
    DebugInfo,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    hoist_consts,
    with_leading,
)
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.recursion import Room
from amdjax.core.ref import AbstractRef, Ref, evaluate_with_refs, refuse_refs
from amdjax.core.source_info import SourceInfo

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
        self,
        primitive: Any,
        fun: FlatFun,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        args: Any,
        params: dict[str, Any],
    ) -> list[Any]:
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

    Example:
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
        self,
        primitive: Any,
        fun: FlatFun,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        args: Any,
        params: dict[str, Any],
    ) -> list[Any]:
        return fun(*args)


eval_trace = EvalTrace(None)
Context.base = eval_trace
context.trace = eval_trace


def find_current_trace() -> Trace:
    """The trace that processes operations of this thread now."""
    return context.trace


class JaxprTracer(Tracer):
    """A variable of the program being recorded.

    Args:
      trace: the trace that records.
      var: the variable.
      source: the line that made it.
    """

    __slots__ = ("aval", "source", "variable")

    def __init__(self, trace: JaxprTrace, var: Var, source: SourceInfo):
        self._trace = trace
        self.aval = var.aval
        self.variable = var
        self.source = source

    def _origin_msg(self) -> str:
        return self._trace.origin(self)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"JitTracer({self.aval})"


class JaxprTrace(Trace):
    """Records operations as a jaxpr.

    Values that are not its own tracers become constants: scalars are written into the program,
    everything else, tracers of other traces included, becomes a constvar.

    Args:
      parent: the trace that was current before.
      debug_info: for error messages.
      scopes_outside: how many of the enclosing scopes are not the program's own.

    Attributes:
      keep_arrays: whether arrays become constvars even if they are scalars.
    """

    __slots__ = (
        "constants", "constvars", "debug_info", "eqns", "invars", "keep_arrays", "scopes_outside",
    )  # fmt: skip
    records = True

    def __init__(
        self, parent: Trace | None, debug_info: DebugInfo | None = None, scopes_outside: int = 0
    ):
        super().__init__(parent)
        self.debug_info = debug_info
        self.scopes_outside = scopes_outside
        self.keep_arrays = False
        self.invars: list[Var] = []
        self.eqns: list[JaxprEqn] = []
        self.constvars: dict[int, Var] = {}
        self.constants: list[Any] = []

    def new_arg(self, aval: AbstractValue) -> JaxprTracer:
        """A tracer for a further argument of the program."""
        var = Var(aval)
        self.invars.append(var)
        return JaxprTracer(self, var, source_info.unknown)

    def atom(self, x: Any) -> Atom:
        """`x` as it appears in the program."""
        if type(x) is JaxprTracer and x._trace is self:
            return x.variable
        if isinstance(x, Tracer):
            if not x._trace.alive:
                raise UnexpectedTracerError(leaked_tracer_message(x))
        elif not (self.keep_arrays and isinstance(x, ConcreteArray)):
            literal = as_literal(x)
            if literal is not None:
                return literal
        var = self.constvars.get(id(x))
        return var if var is not None else self._new_const(x)

    def _new_const(self, x: Any) -> Var:
        kept = isinstance(x, (Tracer, ConcreteArray)) or type(x) is Ref or is_float0(x)
        kept = kept or type(x) in abstract_types
        value = x if kept else asarray_concrete(x)
        var = Var(get_aval(value))
        self.constvars[id(x)] = var
        # `x` itself is kept too, lest another object get its id.
        self.constants.append((var, value, x))
        return var

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        atoms = [
            x.variable if type(x) is JaxprTracer and x._trace is self else self.atom(x)
            for x in args
        ]
        avals = [a.aval for a in atoms]
        if AbstractRef in map(type, avals) and type(primitive.lowering) is not Control:
            refuse_refs(primitive, avals)
        rule = primitive.abstract_eval
        if rule is None:
            raise NotImplementedError(f"Abstract evaluation for '{primitive.name}' not implemented")
        out = rule(*avals, **params)
        if isinstance(out, (tuple, list)) is not primitive.multiple_results:
            wanted = "of types" if primitive.multiple_results else "for several results only"
            raise ValueError(
                f"{primitive.name}.abstract_eval() method should return a tuple or list {wanted}, "
                f"as multiple_results={primitive.multiple_results} says, got {out!r}."
            )
        effects = primitive.effects(*avals, **params) if primitive.effects else no_effects
        outs = self.record(
            primitive, atoms, out if primitive.multiple_results else (out,), params, effects
        )
        return outs if primitive.multiple_results else outs[0]

    def record(
        self,
        primitive: Primitive,
        atoms: list[Atom],
        out_avals: Any,
        params: dict[str, Any],
        effects: Effects = no_effects,
    ) -> list[Any]:
        """Append an equation; returns tracers of its results."""
        source = source_info.current()
        if self.scopes_outside:
            source = source._replace(scope=source.scope[self.scopes_outside :])
        outvars = [Var(a) for a in out_avals]
        self.eqns.append(JaxprEqn(primitive, atoms, outvars, params, effects, source))
        return [JaxprTracer(self, v, source) for v in outvars]

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        return primitive.record(self, fun, jvp, args, params)

    def process_custom_vjp_call(
        self,
        primitive: Any,
        fun: FlatFun,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        args: Any,
        params: dict[str, Any],
    ) -> list[Any]:
        return primitive.record(self, fun, fwd, bwd, args, params)

    def finish(self, outs: Sequence[Any]) -> ClosedJaxpr:
        """The program recorded so far, with results `outs`; ends the trace."""
        outvars = [self.atom(x) for x in outs]
        if AbstractRef in [type(v.aval) for v in outvars]:
            raise ValueError(self._returned_ref(outs, outvars))
        self.alive = False
        constvars = [c[0] for c in self.constants]
        effects = join_effects(*(e.effects for e in self.eqns if e.effects))
        jaxpr = Jaxpr(constvars, self.invars, outvars, self.eqns, effects, self.debug_info)
        return ClosedJaxpr(jaxpr, [c[1] for c in self.constants])

    def _returned_ref(self, outs: Sequence[Any], outvars: Sequence[Any]) -> str:
        info = self.debug_info or DebugInfo()
        i, var = next((i, v) for i, v in enumerate(outvars) if type(v.aval) is AbstractRef)
        names = info.arg_names or ()
        if var in self.invars and len(names) == len(self.invars):
            whence = f"was passed in as the argument {names[self.invars.index(var)]}"
        else:
            whence = f"was created on line {getattr(outs[i], 'source', 'unknown')}"
        return (
            f"function {info.name} traced for {info.kind} returned a mutable array reference of "
            f"type {var.aval}. References cannot be returned; return what they hold, ref[...].\n\n"
            f"Result {i} {whence}."
        )

    def origin(self, tracer: JaxprTracer) -> str:
        """Where a tracer came from, for error messages."""
        info = self.debug_info or DebugInfo()
        where = f" at {info.location}" if info.location else ""
        lines = [f"This happened while tracing the function {info.name}{where} for {info.kind}."]
        depends = self._arguments_behind(tracer.variable)
        if depends:
            names = ", ".join(depends[:5]) + (", …" if len(depends) > 5 else "")
            plural = "s" if len(depends) > 1 else ""
            lines.append(f"The value depends on the argument{plural} {names}.")
        if tracer.source.code is not None:
            lines.append(f"It was created on line {tracer.source}.")
        return "\n".join(lines)

    def _arguments_behind(self, var: Var) -> list[str]:
        behind = {var}
        for eqn in reversed(self.eqns):
            if any(v in behind for v in eqn.outvars):
                behind.update(v for v in eqn.invars if isinstance(v, Var))
        names = (self.debug_info and self.debug_info.arg_names) or ()
        if len(names) != len(self.invars):
            return []
        return [name for name, v in zip(names, self.invars) if v in behind]


register_aval(Tracer, lambda x: x.aval)
register_aval(JaxprTracer, lambda x: x.aval)
dtypes.register_array_type(JaxprTracer)

_SCALARS = frozenset((bool, int, float, complex))


def as_literal(x: Any) -> Literal | None:
    """`x` as a literal if it is a known scalar, else None."""
    if type(x) in _SCALARS:
        return Literal(x, get_aval(x))
    if isinstance(x, (ConcreteArray, np.ndarray, np.generic)) and x.shape == ():
        aval = get_aval(x)
        if not isinstance(aval, ShapedArray) or isinstance(aval.dtype, dtypes.ExtendedDType):
            return None
        if aval.dtype == dtypes.float0:
            return None
        value = np.asarray(x, dtype=aval.dtype)
        return Literal(value.item() if aval.weak_type else value[()], aval)
    return None


def is_float0(x: Any) -> bool:
    """Whether `x` is an array of the tangents of integers."""
    return isinstance(x, np.ndarray) and x.dtype == dtypes.float0


#: Of the frames between two functions of the user that are traced one in the other, those of ours.
FRAMES_OF_A_TRACE = 6


def trace_to_jaxpr(
    fun: FlatFun, in_avals: Sequence[AbstractValue], *, debug_info: DebugInfo | None = None
) -> ClosedJaxpr:
    """Record what `fun` does with arguments of the given types.

    Args:
      fun: takes flat arguments, returns a list.
      in_avals: the types.
      debug_info: for error messages.

    Returns:
      The program. Its consts may hold tracers of enclosing traces: primitives with sub-programs
      pass them as arguments (`hoist_tracers`).
    """
    trace = JaxprTrace(context.trace, debug_info)
    outer, context.trace = context.trace, trace
    place = source_info.enter_program()
    try:
        with Room(FRAMES_OF_A_TRACE):
            outs = fun(*[trace.new_arg(a) for a in in_avals])
            closed = trace.finish(outs)
    finally:
        source_info.restore(place)
        context.trace = outer
        trace.alive = False
    if config.check:
        _check_program(closed)
    if config.check_tracer_leaks:
        outs = None  # type: ignore[assignment]
        watch = weakref.ref(trace)
        del trace
        check_leaks(watch)
    return closed


def _check_program(closed: ClosedJaxpr) -> None:
    check_jaxpr(closed)


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


def hoist_tracers(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """The program with constants that are tracers or references as leading arguments, and those.

    For programs that become parameters, which must not mention enclosing traces.
    """
    traced = [isinstance(c, Tracer) or type(c) is Ref for c in closed.consts]
    if not any(traced):
        return closed, []
    if all(traced):
        return hoist_consts(closed)
    jaxpr = closed.jaxpr
    first = [v for v, t in zip(jaxpr.constvars, traced) if t]
    kept = [v for v, t in zip(jaxpr.constvars, traced) if not t]
    info = with_leading(jaxpr.debug_info, len(first))
    new = jaxpr.replace(constvars=kept, invars=[*first, *jaxpr.invars], debug_info=info)
    consts = [c for c, t in zip(closed.consts, traced) if not t]
    return ClosedJaxpr(new, consts), [c for c, t in zip(closed.consts, traced) if t]
