"""What eager operations and compiled calls run on: the compiler behind core's `Backend`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from amdjax.core import events, recorded
from amdjax.core.array import Array, ConcreteArray, PlacedArray
from amdjax.core.aval import ShapedArray
from amdjax.core.config import config, refuse_execution
from amdjax.core.instantiate import instantiate
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var, memoize_on_jaxpr
from amdjax.core.key_use import watched_operation, watched_program
from amdjax.core.primitive import Primitive
from amdjax.core.recursion import Room
from amdjax.core.ref import Ref
from amdjax.core.sharding import Format, PartitionSpec, Sharding, Space
from amdjax.core.trace import Tracer, eval_trace
from amdjax.jit import placement as placing
from amdjax.jit.arrays import Runner, SizedRunner, host_buffer
from amdjax.jit.refs import compile_on_refs, works_on_refs
from amdjax.jit.shardings import replicated_here, shardings_as_traced
from amdjax.jit.variants import Variants
from amdjax.passes.shardings import shardings_in
from amdjax.runtime.devices import CpuDevice, Device, Placement, default_device, devices
from amdjax.runtime.memory import Buffer, LateBuffer

EAGER_CACHE = 8192

# What lowerings depend on besides the equation: decompositions trace, kernels may read flags.
_READ_BY_LOWERINGS = (
    "enable_x64",
    "numpy_dtype_promotion",
    "default_matmul_precision",
    "deterministic",
    "threefry_partitionable",
    "check",
    "disabled_passes",
    "fast_math",
    "memory_limit",
    "offload_copy",
    "find_mode",
    "find_enforce",
    "db_path",
)


class CompilerBackend:
    """Compiles programs of one operation for eager use, and keeps them by signature."""

    def __init__(self) -> None:
        self._eager: dict[Any, Runner] = {}  # by the flags of traces too: one look-up for all
        self._programs: dict[Any, Runner] = {}
        self._default: tuple[Any, Placement] | None = None

    def shardings_as_traced(self, closed: ClosedJaxpr, arguments: Sequence[Any]) -> Sequence[Any]:
        """For each result of a program how it is divided along explicit axes of a mesh, or None."""
        return shardings_as_traced(closed, arguments) or ()

    # Arrays

    def put(self, value: np.ndarray) -> Buffer:
        """A buffer of our own with the contents of `value`."""
        return host_buffer(value)

    def borrow(self, value: np.ndarray) -> Buffer:
        """The memory of `value` itself as a buffer, which is never written.

        Where its elements are not aligned, they are copied when their address is asked for.
        """
        return Buffer.from_numpy(value) if value.flags.aligned else LateBuffer(value)

    def array(self, aval: ShapedArray, value: np.ndarray) -> ConcreteArray:
        """A new array with the contents of `value`, on the current mesh or the default device."""
        array = ConcreteArray(aval, host_buffer(value))
        place = self.program_placement()
        if place is None:
            return array
        array = placing.put(array, place)
        if config.mesh is not None and type(array) is PlacedArray:
            array.named = replicated_here()
        return array

    def device_put(self, x: Array, device: Any) -> Array:
        """`x` on a device; on the default one, not committed to it, if `device` is None."""
        if isinstance(device, Space):
            return placing.put_in_space(x, device)
        if isinstance(device, (Sharding, PartitionSpec, Format)):
            return placing.put_as(x, device)
        wanted = None if device is None else placing.checked_device(device, "device_put").committed
        if isinstance(x, Tracer):
            return x
        assert isinstance(x, ConcreteArray)
        if wanted is not None:
            there = placing.put(x, wanted)
            named = getattr(there, "named", None)
            return there if named is None else PlacedArray(there.aval, there.buffer, wanted)
        place = self.default_placement()
        return placing.put(x, place) if place is not None and type(x) is ConcreteArray else x

    def host_device(self) -> Device:
        """The device whose memory is the host's."""
        return devices("cpu")[0]

    def devices(self) -> list[Device]:
        """All devices, the host's first."""
        return list(dict.fromkeys([*devices("cpu"), *devices()]))

    def default_placement(self) -> Placement | None:
        """Where what was not placed goes; None for the host."""
        place = self._default_device()
        return None if isinstance(place.device, CpuDevice) else place

    def placement_of(self, arrays: Iterable[Any], name: str) -> Placement:
        """Where an operation of this name on arrays runs, some of them being placed."""
        found = placing.committed_placement(arrays, name)
        return found or placing.mesh_placement() or self._default_device()

    def program_placement(self) -> Placement | None:
        """Where a program runs whose arguments are in the host's memory; None for the host."""
        return placing.mesh_placement() or self.default_placement()

    def _default_device(self) -> Placement:
        """The default device; looking for it takes longer than a small operation."""
        chosen, known = config.default_device, self._default  # which other threads may replace
        if known is None or known[0] is not chosen:
            known = self._default = chosen, default_device().uncommitted
        return known[1]

    # Programs

    def compile(
        self,
        closed: ClosedJaxpr,
        donated: Sequence[bool],
        refs: Sequence[Any],
        placement: Placement | None,
    ) -> Runner:
        """A program as a function of arrays and references.

        Under `debug_nans` it looks for where a NaN first appears, under `debug_key_reuse` for keys
        that were used before.
        """
        held = [x.value for x in (*refs, *closed.consts) if type(x) is Ref]
        if held and not (placement and placement.committed):
            placement = placing.committed_placement(held, "jit") or placement

        def on_arrays(program: ClosedJaxpr, flags: Sequence[bool]) -> Runner:
            run = placing.compile_placed(program, flags, placement)
            if not (config.debug_nans or config.debug_infs):
                return run
            # late: loads where results are checked
            from amdjax.jit.debugging import watched_values

            return watched_values(program, run, flags)

        with Room():  # for programs in programs
            run: Runner = compile_on_refs(on_arrays, closed, donated, refs)
        if config.debug_key_reuse:
            run = watched_program(closed, run, refs)
        return run

    def compile_sized(
        self,
        closed: ClosedJaxpr,
        donated: Sequence[bool],
        refs: Sequence[Any],
        placement: Placement | None,
    ) -> SizedRunner:
        """The program, as `compile` makes it, as a function of sizes of its dimension variables.

        Args:
          closed: the program; its dimensions are those of a `SizedScope`, whose guards have to hold
            of the sizes.
          donated, refs, placement: as for `compile`.
        """
        watched = config.debug_nans or config.debug_infs or config.debug_key_reuse
        told = config.mesh is not None or next(shardings_in(closed), None) is not None
        if watched or told or refs or works_on_refs(closed):
            make = lambda sizes: self.compile(instantiate(closed, sizes), donated, refs, placement)
            return SizedRunner(make, make)
        with Room():
            return placing.compile_sized_placed(closed, donated, placement)

    # Operations

    def evaluate(
        self, primitive: Primitive, args: Sequence[ConcreteArray], params: dict[str, Any]
    ) -> Any:
        """Run one primitive."""
        key: Any = (primitive, config._trace_key, *[a.aval for a in args], *params.items())
        try:
            run = self._eager.get(key)
        except TypeError:  # a parameter that cannot be hashed
            key, run = None, None
        if run is None:
            run = self._operation(primitive, args, params, self.program_placement(), key)
        elif (native := getattr(run, "native", None)) is not None and recorded.is_wanted():
            native.record_operation(primitive, args, params)
        if events.recorder is None:
            outs = run(args)
        else:
            with events.span(primitive.name, "operation"):
                outs = run(args)
        return outs if primitive.multiple_results else outs[0]

    def evaluate_placed(
        self, primitive: Primitive, args: Sequence[ConcreteArray], params: dict[str, Any]
    ) -> Any:
        """Run one primitive where its arguments are committed, else on the default device."""
        place = self.placement_of(args, primitive.name)
        key: Any = (primitive, config._trace_key, place, *[a.aval for a in args], *params.items())
        try:
            run = self._eager.get(key)
        except TypeError:
            key, run = None, None
        if run is None:
            run = self._operation(primitive, args, params, place, key)
        elif (native := getattr(run, "native", None)) is not None and recorded.is_wanted():
            native.record_operation(primitive, args, params)
        if events.recorder is None:
            outs = run(args)
        else:
            with events.span(primitive.name, "operation"):
                outs = run(args)
        return outs if primitive.multiple_results else outs[0]

    def evaluate_at(
        self, closed: ClosedJaxpr, args: Sequence[Any], sizes: Any, name: str
    ) -> list[Any]:
        """Run a program of symbolic shapes on arrays, by few compiled forms for all sizes.

        Args:
          closed: the program, which keeps these.
          args: its arguments.
          sizes: a `transforms.symbolic_calls.Sizes`.
          name: that of the function it comes from.
        """
        refuse_execution(name)
        arrays = [x if isinstance(x, ConcreteArray) else eval_trace.concrete(x) for x in args]
        on_host = all(type(x) is ConcreteArray for x in arrays)
        place = self.program_placement() if on_host else self.placement_of(arrays, name)
        with events.span(name, "call"):
            run = _forms(closed, place).runner(dict(sizes.pairs))
            return run(arrays)

    def _operation(
        self, primitive: Primitive, args: Sequence[ConcreteArray], params: dict[str, Any],
        place: Placement | None, key: Any,
    ) -> Runner:  # fmt: skip
        """The program of one primitive, kept under a key if there is one."""
        refuse_execution(primitive.name)
        avals = [a.aval for a in args]
        # Most of what traces depend on makes no difference here; that is not compiled again.
        flags = map(config.read, _READ_BY_LOWERINGS)
        common = None if key is None else (
            primitive, place, config.mesh, *flags, *avals, *params.items()
        )  # fmt: skip
        run = self._programs.get(common) if key is not None else None
        if run is None:
            with events.span(primitive.name, "compile"):
                run = placing.compile_placed(one_equation(primitive, avals, params), (), place)
            if key is not None:
                _keep(self._programs, common, run)
        if config.debug_nans or config.debug_infs:
            run = _checked(primitive, params, run)
        if config.debug_key_reuse:
            (eqn,) = one_equation(primitive, avals, params).eqns
            run = watched_operation(eqn, run)
        if key is not None:
            _keep(self._eager, key, run)
        return run

    def clear(self) -> None:
        """Forget all programs, and what the default device is."""
        self._eager.clear()
        self._programs.clear()
        recorded.operations.clear()
        self._default = None


@memoize_on_jaxpr
def _forms(closed: ClosedJaxpr, place: Placement | None) -> Variants:
    """The compiled forms of a program of symbolic shapes."""
    return Variants(closed, (False,) * len(closed.in_avals), (), place)


def _keep(programs: dict[Any, Runner], key: Any, run: Runner) -> None:
    if len(programs) >= EAGER_CACHE:
        programs.clear()
        recorded.operations.clear()
    programs[key] = run


def _checked(primitive: Primitive, params: dict[str, Any], run: Runner) -> Runner:
    """Under `debug_nans`: an operation that raises for what the flags forbid."""
    # late: loads where results are checked
    from amdjax.jit.debugging import check_results

    def checked(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        outs = run(args)
        check_results(primitive, params, args, outs)
        return outs

    return checked


def one_equation(
    primitive: Primitive, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> ClosedJaxpr:
    """The program that applies one primitive to its arguments."""
    if primitive.abstract_eval is None:
        raise NotImplementedError(f"Evaluation rule for '{primitive.name}' not implemented")
    out = primitive.out_types(avals, params)
    invars = [Var(a) for a in avals]
    outvars = [Var(a) for a in (out if primitive.multiple_results else [out])]
    effects = primitive.effects(*avals, **params) if primitive.effects else frozenset()
    eqn = JaxprEqn(primitive, invars, outvars, params, effects)
    return ClosedJaxpr(Jaxpr([], invars, outvars, [eqn]), [])


def load() -> CompilerBackend:
    """The backend; registered with `core.backend.set_backend`."""
    backend = CompilerBackend()

    def forget(value: Any) -> None:
        # late: loads where results are checked
        from amdjax.jit.api import clear_caches

        clear_caches()

    # These flags decide what the default device is, and programs were compiled for that.
    for flag in ("platforms", "emulate"):
        config.on_update(flag, forget)
    return backend


__all__ = ["CompilerBackend", "config", "load"]
