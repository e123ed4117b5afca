"""Batching: each operation is applied to a whole batch, its values carrying a mapped axis."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import get_aval, register_aval
from amdjax.core.config import config
from amdjax.core.context import context, is_recording
from amdjax.core.effects import NamedAxisEffect
from amdjax.core.jaxpr import ClosedJaxpr, jaxpr_as_fun, memoize_on_jaxpr, subjaxprs_of_value
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.ref import BATCHED_REFS
from amdjax.core.trace import FlatFun, Trace, Tracer, check_leaks, set_trace
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData, batch_at, batched_aval, not_mapped, unbatched_aval
from amdjax.transforms.discharge import must_discharge, run_on_refs
from amdjax.transforms.forward import known_value
from amdjax.transforms.zero import Zero


class BatchTracer(Tracer):
    """A value for each element of the batch, stacked along axis `dim` of `value`."""

    __slots__ = ("_aval", "dim", "value")

    def __init__(self, trace: BatchTrace, value: Any, dim: int | None):
        self._trace = trace
        self.value = value
        self.dim = dim
        self._aval: Any = None

    @property
    def aval(self) -> Any:
        aval = self._aval
        if aval is None:
            aval = self._aval = unbatched_aval(get_aval(self.value), self.dim)
        return aval

    @property
    def val(self) -> Any:
        """The batch, by JAX's name."""
        return self.value

    @property
    def batch_dim(self) -> int | None:
        """Where its mapped axis is, by JAX's name."""
        return self.dim

    def __repr__(self) -> str:
        return f"VmapTracer(aval={self.aval}, batched={get_aval(self.value)})"

    def concrete_value(self) -> ConcreteArray | None:
        return known_value(self.value) if self.dim is not_mapped else None

    def _origin_msg(self) -> str:
        size = get_aval(self.value).shape[self.dim] if self.dim is not None else 1
        inner = self.value._origin_msg() if isinstance(self.value, Tracer) else ""
        return f"It differs between the {size} elements that vmap maps over.\n{inner}"


register_aval(BatchTracer, lambda x: x.aval)


class BatchTrace(Trace):
    """Applies batching rules in its parent.

    Args:
      parent: the trace that processes operations on batches.
      tag: identifies the mapping, as in `JVPTrace`.
      axis: the mapped axis.
    """

    __slots__ = ("axis", "tag")

    def __init__(self, parent: Trace, tag: object, axis: AxisData):
        super().__init__(parent)
        self.tag = tag
        self.axis = axis

    def split(self, x: Any) -> tuple[Any, int | None]:
        """A value's batch and where its mapped axis is."""
        if type(x) is BatchTracer and x._trace.tag is self.tag:  # type: ignore[attr-defined]
            return x.value, x.dim
        return x, not_mapped

    def split_all(self, args: Any) -> tuple[list[Any], list[Any]]:
        pairs = [self.split(x) for x in args]
        return [v for v, _ in pairs], [d for _, d in pairs]

    def pair(self, value: Any, dim: int | None) -> Any:
        return value if dim is not_mapped else BatchTracer(self, value, dim)

    def process_primitive(self, primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
        if must_discharge(primitive, args, params):
            return run_on_refs(primitive, args, params, True)
        values, dims = self.split_all(args)
        with set_trace(self.parent):
            if (
                all(d is None for d in dims)
                and primitive.name not in BATCHED_REFS
                and not self.speaks_of_axis(primitive, params)
            ):
                return self.parent.process_primitive(primitive, values, params)
            if primitive.batch is None:
                raise NotImplementedError(f"Batching rule for '{primitive.name}' not implemented")
            out, out_dim = primitive.batch(self.axis, values, dims, **params)
        if primitive.multiple_results:
            if out_dim is None or isinstance(out_dim, int):
                out_dim = [out_dim] * len(out)
            return [self.pair(v, d) for v, d in zip(out, out_dim)]
        return self.pair(out, out_dim)

    def speaks_of_axis(self, primitive: Primitive, params: dict[str, Any]) -> bool:
        """Whether an operation is, or has inside, a collective over the mapped axis."""
        if self.axis.name is None:
            return False
        if isinstance(primitive, CollectivePrimitive):
            return self.axis.name in primitive.axis_names(params)
        effect = NamedAxisEffect(self.axis.name)
        subs = (j for v in params.values() for j in subjaxprs_of_value(v))
        return any(effect in j.effects for j in subs)

    def process_custom_jvp_call(
        self, primitive: Any, fun: FlatFun, jvp: FlatFun, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        values, dims = self.split_all(args)
        call = _CustomCall(self.axis, self.tag, dims)
        with set_trace(self.parent):
            outs = primitive.bind_functions(call.fun(fun), call.jvp(jvp), values, params)
        return [self.pair(x, d) for x, d in zip(outs, call.out_dims)]

    def process_custom_vjp_call(
        self, primitive: Any, fun: FlatFun, fwd: Any, bwd: Any, args: Any, params: dict[str, Any]
    ) -> list[Any]:
        values, dims = self.split_all(args)
        call = _CustomCall(self.axis, self.tag, dims)
        with set_trace(self.parent):
            outs = primitive.bind_functions(
                call.fun(fun), call.fwd(fwd), call.bwd(bwd), values, params
            )
        return [self.pair(x, d) for x, d in zip(outs, call.out_dims)]


class _CustomCall:
    """The functions of one call with custom derivatives, made functions on batches.

    Each may be called at any time, or never. Where the mapped axes of results are is settled by
    the one that is called first.
    """

    def __init__(self, axis: AxisData, tag: object, dims: list[Any]):
        self.axis, self.tag, self.dims = axis, tag, dims
        self.out_dims: list[Any] = []
        self.residual_dims: list[Any] = []
        self.settled = False

    def batch(self, fun: FlatFun, args: Any, dims: Any) -> tuple[list[Any], list[Any]]:
        return batch_flat(fun, self.axis, args, dims, self.tag)

    def settle(self, dims: Sequence[Any]) -> None:
        """Mapped results have the axis first."""
        if not self.settled:
            self.settled = True
            self.out_dims = [None if d is None else 0 for d in dims]

    def place(self, outs: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
        """Results, or their tangents, with mapped axes where they were settled to be."""
        return [self.place_one(*x) for x in zip(outs, dims, self.out_dims)]

    def place_one(self, x: Any, dim: int | None, to: int | None) -> Any:
        if type(x) is Zero:
            return Zero(batched_aval(self.axis, x.aval, to))
        if dim is not None and to is None:
            raise ValueError(
                "vmap of a function with custom derivatives: a result is the same for all "
                "elements, but differs between them according to the function's rule."
            )
        return batch_at(self.axis, x, dim, to)

    def fun(self, fun: FlatFun) -> FlatFun:
        def batched(*args: Any) -> list[Any]:
            outs, dims = self.batch(fun, args, self.dims)
            # The rule of a recorded call comes later; what it says of tangents is not known yet.
            mapped = any(d is not None for d in self.dims)
            self.settle([0] * len(outs) if mapped and is_recording() else dims)
            return self.place(outs, dims)

        return batched

    def jvp(self, jvp: FlatFun) -> FlatFun:
        def batched(*args: Any) -> list[Any]:
            zeros = [
                Zero(unbatched_aval(t.aval, d)) if type(t) is Zero else None
                for t, d in zip(args[len(self.dims) :], self.dims)
            ]

            def flat(*args: Any) -> list[Any]:
                # A tangent known to be zero has no batch.
                given = args[len(zeros) :]
                return jvp(
                    *args[: len(zeros)], *(t if z is None else z for t, z in zip(given, zeros))
                )

            tangent_dims = [d if z is None else None for d, z in zip(self.dims, zeros)]
            outs, dims = self.batch(flat, args, [*self.dims, *tangent_dims])
            n = len(outs) // 2
            # A result is mapped if it or its tangent is.
            self.settle([t if d is None else d for d, t in zip(dims[:n], dims[n:])])
            return [*self.place(outs[:n], dims[:n]), *self.place(outs[n:], dims[n:])]

        return batched

    def fwd(self, fwd: Any) -> Any:
        def batched(nonzeros: Any, *args: Any) -> tuple[list[Any], list[Any]]:
            count = 0

            def flat(*args: Any) -> list[Any]:
                nonlocal count
                residuals, outs = fwd(nonzeros, *args)
                count = len(residuals)
                return [*residuals, *outs]

            outs, dims = self.batch(flat, args, self.dims)
            self.residual_dims = dims[:count]
            self.settle(dims[count:])
            return outs[:count], self.place(outs[count:], dims[count:])

        return batched

    def bwd(self, bwd: Any) -> Any:
        def batched(residuals: Any, cts: Any) -> list[Any]:
            count = len(residuals)
            zeros = [
                Zero(unbatched_aval(ct.aval, d)) if type(ct) is Zero else None
                for ct, d in zip(cts, self.out_dims)
            ]

            def flat(*args: Any) -> list[Any]:
                given = [ct if z is None else z for ct, z in zip(args[count:], zeros)]
                return bwd(args[:count], given)

            ct_dims = [d if z is None else None for d, z in zip(self.out_dims, zeros)]
            in_dims = [*self.residual_dims, *ct_dims]
            outs, dims = self.batch(flat, [*residuals, *cts], in_dims)
            return [_match_or_sum(self.axis, *x) for x in zip(outs, dims, self.dims)]

        return batched


def _match_or_sum(axis: AxisData, ct: Any, dim: int | None, wanted: int | None) -> Any:
    """The cotangent of an argument that is mapped at `wanted`, or shared."""
    if ct is None:
        return None
    if type(ct) is Zero:
        return Zero(batched_aval(axis, ct.aval, wanted))
    if wanted is not None:
        return batch_at(axis, ct, dim, wanted)
    return ops.reduce_sum(batch_at(axis, ct, dim, 0), (0,))


class CollectivePrimitive(Primitive):
    """A primitive that speaks of mapped axes by name.

    Its batching rule is called for each axis it names, even if no operand is mapped.
    """

    __slots__ = ()

    def axis_names(self, params: dict[str, Any]) -> tuple[Hashable, ...]:
        """The axes an operation speaks of."""
        names = params.get("axes", params.get("axis_name"))
        return tuple(names) if isinstance(names, (tuple, list)) else (names,)


class axis_env:
    """Context manager: a named axis exists, so that its size can be asked for."""

    __slots__ = ("axis", "old")

    def __init__(self, axis: AxisData):
        self.axis = axis

    def __enter__(self) -> None:
        self.old = config.axis_env
        if self.axis.name is not None:
            config.set_axis_env({**self.old, self.axis.name: self.axis.size})

    def __exit__(self, *exc: object) -> None:
        if self.axis.name is not None:
            config.set_axis_env(self.old)


def batch_flat(
    fun: FlatFun, axis: AxisData, args: Sequence[Any], dims: Sequence[Any], tag: object = None
) -> tuple[list[Any], list[Any]]:
    """Apply a function of flat arguments to batches.

    Args:
      fun: returns a list.
      axis: the mapped axis.
      args: batches and shared values.
      dims: where the mapped axis of each argument is, None for shared ones.
      tag: of the mapping this continues, if the function was passed on by a `BatchTrace`.

    Returns:
      Results and where their mapped axes are; results may contain None and `Zero`.
    """
    trace = BatchTrace(context.trace, tag or object(), axis)
    tracers = [trace.pair(x, d) for x, d in zip(args, dims)]
    with set_trace(trace), axis_env(axis):
        outs = fun(*tracers)
    found = trace.split_all(outs)
    if config.check_tracer_leaks:
        watch = weakref.ref(trace)
        del tracers, outs, trace
        check_leaks(watch)
    return found


def batch_jaxpr(
    closed: ClosedJaxpr,
    axis: AxisData,
    in_batched: Sequence[bool],
    instantiate: bool | Sequence[bool] = False,
) -> tuple[ClosedJaxpr, list[bool]]:
    """The program on batches, whose mapped axes come first.

    Args:
      closed: the program.
      axis: the mapped axis.
      in_batched: which arguments are batches.
      instantiate: which results shall be batches though they need not be.

    Returns:
      The program and which of its results are batches.
    """
    dims = [0 if b else None for b in in_batched]
    if isinstance(instantiate, bool):
        instantiate = (instantiate,) * len(closed.out_avals)
    batched, out_dims = _batch_jaxpr(closed, axis, tuple(dims), tuple(map(bool, instantiate)))
    return batched, [d is not None for d in out_dims]


def batch_jaxpr_axes(
    closed: ClosedJaxpr,
    axis: AxisData,
    in_dims: Sequence[int | None],
    instantiate: bool | Sequence[bool] = False,
) -> tuple[ClosedJaxpr, list[int | None]]:
    """As `batch_jaxpr`, with mapped axes of arguments anywhere; those of results come first."""
    if isinstance(instantiate, bool):
        instantiate = (instantiate,) * len(closed.out_avals)
    return _batch_jaxpr(closed, axis, tuple(in_dims), tuple(map(bool, instantiate)))


@memoize_on_jaxpr
def _batch_jaxpr(
    closed: ClosedJaxpr, axis: AxisData, in_dims: tuple[Any, ...], instantiate: tuple[bool, ...]
) -> tuple[ClosedJaxpr, list[Any]]:
    out_dims: list[Any] = []

    def fun(*args: Any) -> list[Any]:
        outs, dims = batch_flat(jaxpr_as_fun(closed), axis, args, in_dims)
        wanted = [0 if d is not None or inst else None for d, inst in zip(dims, instantiate)]
        out_dims.extend(wanted)
        return [batch_at(axis, x, d, w) for x, d, w in zip(outs, dims, wanted)]

    avals = [batched_aval(axis, a, d) for a, d in zip(closed.in_avals, in_dims)]
    return trace_to_jaxpr(fun, avals), out_dims
