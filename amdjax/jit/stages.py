"""The stages of a program that is compiled ahead of time: traced, lowered, compiled.

>>> import amdjax, amdjax.numpy as jnp
>>> traced = amdjax.jit(lambda x: jnp.tanh(x) * 2).trace(jnp.ones(3))
>>> lowered = traced.lower()
>>> compiled = lowered.compile()
>>> compiled(jnp.zeros(3))
Array([0., 0., 0.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from amdjax.api import ShapeDtypeStruct
from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray
from amdjax.core.backend import get_backend
from amdjax.core.boundaries import public_surface
from amdjax.core.config import refuse_execution
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.pytree import PyTreeDef, tree_unflatten
from amdjax.core.sharding import Format, Layout, SingleDeviceSharding, Space
from amdjax.jit.after_tracing import (
    AfterTracing,
    MemoryStats,
    Saved,
    called_with,
    check_types,
)
from amdjax.jit.cpu.program import CpuProgram, compile_for_cpu, plan_for_cpu
from amdjax.jit.observed import Observed
from amdjax.jit.options import compiling_with
from amdjax.jit.refs import without_refs
from amdjax.jit.symbolic import has_symbolic_dims
from amdjax.jit.symbolic_stages import SymbolicCompiled
from amdjax.jit.variants import Variants
from amdjax.runtime.devices import CpuDevice, default_device, devices
from amdjax.targets import GpuTarget, get

if TYPE_CHECKING:
    from amdjax.jit.gpu.executable import GpuExecutable
    from amdjax.jit.gpu.profile import Profile
    from amdjax.jit.gpu.records import KernelRecord
    from amdjax.passes import Changed


@dataclass(frozen=True)
class ArgInfo:
    """What is known of an argument before the program runs.

    Args:
      donated: whether the results may take over its memory.
    """

    _aval: ShapedArray
    donated: bool

    @property
    def aval(self) -> ShapedArray:
        """The type."""
        return self._aval

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        """Its dtype."""
        return self._aval.dtype

    @property
    def weak_type(self) -> bool:
        """Whether it is a weakly typed scalar or derived from such."""
        return self._aval.weak_type


CompilerOptions = dict[str, str | bool]
"""Settings that `Lowered.compile` takes, by name."""


@runtime_checkable
class Wrapped(Protocol):
    """What `jit` returns: a function to call, to trace and to lower."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program of these arguments, which is made first if need be."""

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The program for arguments like these.

        Args:
          args: the arguments.
          kwargs: those by name.

        Returns:
          The program, traced.
        """

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program for arguments like these, ready to compile.

        Args:
          args: the arguments.
          kwargs: those by name.

        Returns:
          The program, lowered.
        """


@dataclass(frozen=True)
class Traced:
    """A traced program.

    Args:
      jaxpr: the program.
      in_tree: structure of its traced arguments.
      out_tree: structure of its results.
      fun_name: name of the function it comes from.
      donated: which leaves of the arguments are donated.
      out_shardings: for each leaf of the results where it is asked to be, None for anywhere.
      again: traces the function for other types of the leaves; None if it is not there.
      compiler_options: those that `jit` was given.
    """

    jaxpr: ClosedJaxpr
    in_tree: PyTreeDef
    out_tree: PyTreeDef
    fun_name: str
    donated: tuple[bool, ...]
    out_shardings: Sequence[Any] | None = None
    again: Callable[[Sequence[Any]], tuple[ClosedJaxpr, PyTreeDef]] | None = field(
        default=None, repr=False, compare=False
    )
    compiler_options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def args_info(self) -> Any:
        """The arguments, `(args, kwargs)`, as a pytree of `ArgInfo`."""
        leaves = [ArgInfo(a, d) for a, d in zip(self.jaxpr.in_avals, self.donated, strict=True)]
        return tree_unflatten(self.in_tree, leaves)

    @property
    def in_avals(self) -> Any:
        """The types of the arguments, `(args, kwargs)`."""
        return tree_unflatten(self.in_tree, self.jaxpr.in_avals)

    @property
    def out_avals(self) -> Any:
        """The types of the results."""
        return tree_unflatten(self.out_tree, self.jaxpr.out_avals)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Positions of the donated ones among the leaves of the arguments."""
        return tuple(i for i, donated in enumerate(self.donated) if donated)

    @property
    def out_info(self) -> Any:
        """Shapes, dtypes and `out_shardings` of the result, as a pytree of `ShapeDtypeStruct`."""
        avals = self.jaxpr.out_avals
        leaves = [
            ShapeDtypeStruct(a.shape, a.dtype, sharding=s, weak_type=a.weak_type)
            for a, s in zip(avals, self.out_shardings or (None,) * len(avals), strict=True)
        ]
        return tree_unflatten(self.out_tree, leaves)

    @property
    def effects(self) -> Any:
        """What the program does besides computing."""
        return self.jaxpr.effects

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """The program ready to compile.

        Args:
          lowering_platforms: accepted; `compile` chooses.

        Returns:
          The program, lowered.
        """
        return Lowered(self)


@dataclass(frozen=True)
class Lowered(AfterTracing):
    """A program ready to compile.

    Args:
      traced: the traced program.
    """

    traced: Traced

    def as_text(
        self, stage: str = "jaxpr", *, dialect: str | None = None, debug_info: bool = False
    ) -> str:
        """The program at a stage.

        Args:
          stage: one of `jaxpr simplified fusion tiles passes plan llvm asm`; all but the first
            compile the program.
          dialect: another name of `stage`; XLA's dialects are refused.
          debug_info: accepted; lines are in `as_text("tiles")`.

        Returns:
          Text for people to read; its form may change.

        Raises:
          ValueError: there is no such stage.

        Example:
          >>> print(amdjax.jit(lambda x: x * 2 + 1).lower(1.0).as_text())
          { lambda ; a:f32[]. let
              b:f32[] = mul a 2.0:f32[]
              c:f32[] = add b 1.0:f32[]
            in (c,) }
        """
        stage = dialect or stage
        return str(self.traced.jaxpr) if stage == "jaxpr" else self.compile().as_text(stage)

    def cost_analysis(self) -> dict[str, float]:
        """Estimates of the work; see `Compiled.cost_analysis`."""
        return self.compile().cost_analysis()

    def compile(
        self,
        target: str | GpuTarget | None = None,
        *,
        compiler_options: dict[str, Any] | None = None,
        device_assignment: Any = None,
    ) -> Any:
        """Compile the program.

        Args:
          target: a GPU, or its name as in `gfx942` or `sm_90`; it need not be there, nor its
            driver. The default device if None.
          compiler_options: settings of `amdjax.config` by name, in force while it compiles, such as
            `{"memory_limit": 2**30}`; with those that `jit` was given.
          device_assignment: accepted.

        Returns:
          The compiled program, which can be looked at, and called where there is such a device: a
          `Compiled`, or a `SymbolicCompiled` if shapes of its arguments are symbolic.

        Raises:
          ValueError: no target has that name; the message lists the known ones and the nearest.
          TypeError: `target` is neither a name nor a `GpuTarget`.
          RuntimeError: there is no such compiler option, or it does not take this value.

        Warns:
          UserWarning: a kernel has too few registers and spills some, or uses scratch memory.

        Example:
          >>> compiled = amdjax.jit(lambda x: x + 1).lower(jnp.zeros(1000)).compile("gfx942")
          >>> [(k.name, k.scratch_bytes) for k in compiled.kernels]
          [('map_add', 0)]
        """
        options = {**self.traced.compiler_options, **(compiler_options or {})}
        if has_symbolic_dims(self.traced.jaxpr.in_avals):
            with compiling_with(options):  # raises now for what there is not
                gpu = _default_target() if target is None else _target(target)

            def of_sizes(traced: Traced) -> Compiled:
                with compiling_with(options):
                    return Lowered(traced)._compile(target)

            closed, donated, variants = self.traced.jaxpr, self.traced.donated, None
            if target is None:
                variants = Variants(closed, donated, (), get_backend().program_placement())
            name = "cpu" if gpu is None else gpu.name
            return SymbolicCompiled(
                self.traced, of_sizes, variants, lambda: compiling_with(options), name
            )
        with compiling_with(options):
            return self._compile(target)

    def _compile(self, target: str | GpuTarget | None) -> Compiled:
        gpu = _default_target() if target is None else _target(target)
        traced = self.traced
        program, donated, runner = without_refs(traced.jaxpr, traced.donated)
        if gpu is None:
            observed = Observed(
                lambda observe: compile_for_cpu(program, donated, observe),
                lambda observe: plan_for_cpu(program, donated, observe),
            )
        else:
            # late: loads the generator for GPUs
            from amdjax.jit.gpu.executable import GpuExecutable

            device = gpu
            made = lambda observe, kept: GpuExecutable(program, device, donated, observe, kept)
            observed = Observed(
                lambda observe: made(observe, True), lambda observe: made(observe, False).plan
            )
        return Compiled(traced, observed, runner)


@dataclass(frozen=True)
class Compiled(AfterTracing, Saved):
    """A compiled program; call it with arguments of the signature it was lowered for.

    Args:
      traced: the traced program.
      observed: what a device runs, and what each stage of the compiler made.
      runner: calls the executable with the leaves of the arguments.
    """

    traced: Traced
    observed: Observed = field(repr=False)
    runner: Callable[[Any], Any] = field(repr=False)

    @property
    def executable(self) -> CpuProgram | GpuExecutable:
        """What a device runs."""
        return self.observed.executable

    @property
    def stages(self) -> list[tuple[str, Any]]:
        """What each stage of the compiler made, by name."""
        return self.observed.stages

    @property
    def input_shardings(self) -> Any:
        """Where the arguments are taken from, `(args, kwargs)`, as a pytree of shardings."""
        return self._laid_out(lambda aval: self._sharding, self.traced.in_tree)

    @property
    def output_shardings(self) -> Any:
        """Where the results lie, as a pytree of shardings."""
        return self._laid_out(lambda aval: self._sharding, self.traced.out_tree)

    @property
    def input_formats(self) -> Any:
        """The formats of the arguments, `(args, kwargs)`: layouts in memory and shardings."""
        return self._laid_out(self._format, self.traced.in_tree)

    @property
    def output_formats(self) -> Any:
        """The formats of the results."""
        return self._laid_out(self._format, self.traced.out_tree)

    def _laid_out(self, of: Callable[[Any], Any], tree: PyTreeDef) -> Any:
        closed = self.traced.jaxpr
        avals = closed.in_avals if tree is self.traced.in_tree else closed.out_avals
        return tree_unflatten(tree, [of(a) for a in avals])

    def _format(self, aval: Any) -> Format:
        return Format(Layout(tuple(range(aval.ndim))), self._sharding)

    @property
    def _sharding(self) -> SingleDeviceSharding:
        on_cpu = isinstance(self.executable, CpuProgram)
        device = devices("cpu")[0] if on_cpu else default_device()
        if not on_cpu and isinstance(device, CpuDevice):
            raise ValueError(
                f"{self.traced.fun_name} was compiled for a GPU that is not there, so that "
                "arguments and results have no place"
            )
        return SingleDeviceSharding(device)

    @property
    def target_name(self) -> str:
        """What it was compiled for: "cpu", or the name of a GPU."""
        return "cpu" if isinstance(self.executable, CpuProgram) else self.executable.target.name

    def runtime_executable(self) -> CpuProgram | GpuExecutable:
        """The program as the runtime has it."""
        return self.executable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse_execution(self.traced.fun_name)
        run = self.runner(self.executable)
        return tree_unflatten(self.traced.out_tree, run(self._arrays(args, kwargs)))

    def _arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[ConcreteArray]:
        """The leaves of the arguments, which fit what the program was compiled for."""
        arrays = called_with(self.traced, args, kwargs)
        check_types(self.traced, arrays)
        return arrays

    def as_text(self, stage: str = "fusion") -> str:
        """The program at a stage.

        Args:
          stage: one of `jaxpr simplified fusion tiles passes plan llvm asm`; for a GPU also
            `amdgcn` or `ptx`, which is what `asm` is there, and `resources`, a table of registers
            and memory.

        Returns:
          Text for people to read; its form may change.

        Raises:
          ValueError: there is no such stage.
        """
        # late: loads when a text is asked for
        from amdjax.jit import report

        observed = self.observed
        return report.stage_text(stage, self.traced.jaxpr, observed.stages, observed.plan)

    @property
    def passes(self) -> list[Changed]:
        """What each pass made of the program, of its loops and of its branches, in order.

        `as_text("passes")` begins with this as text; docs/passes.md lists the passes.

        Example:
          >>> f = amdjax.jit(lambda x: x + 0.0)
          >>> for name, before, after in f.lower(1.0).compile().passes:
          ...     if len(before.eqns) != len(after.eqns):
          ...         print(name, len(before.eqns), len(after.eqns))
          simplify 1 0
        """
        # late: loads when a text is asked for
        from amdjax.jit import report

        return report.changes(self.stages)

    @property
    def kernels(self) -> list[KernelRecord]:
        """The kernels of a program for a GPU: code, launches, registers and memory.

        Raises:
          ValueError: the program was compiled for the CPU, whose kernels have no such records.
        """
        if isinstance(self.executable, CpuProgram):
            raise ValueError(
                "kernels are recorded for GPUs: compile with a target, as in compile('gfx942')"
            )
        return self.executable.records

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Run a program compiled for an AMD GPU on the emulator, and count what its kernels do.

        Args:
          *args: as for a call; donated arguments stay as they are.
          **kwargs: likewise.

        Returns:
          Instructions by class, bytes moved and how well accesses coalesce, LDS bank conflicts,
          the share of matrix instructions and the occupancy of every launch, and the same of each
          operation and line they were made from (`total.by_operation`); estimated cycles and where
          waves stand (`cycles`, `timings`). Prints as tables.

        Raises:
          ValueError: the program was compiled for the CPU or for PTX.

        Example:
          >>> x = jnp.zeros(1024)
          >>> compiled = amdjax.jit(lambda x: x + 1).lower(x).compile("gfx942")
          >>> counted = compiled.profile(x)
          >>> counted.total.bytes_read, counted.total.coalescing
          (4096, 1.0)
        """
        if isinstance(self.executable, CpuProgram):
            raise ValueError(
                "profile counts what kernels do on an AMD GPU: compile with a target, "
                "as in compile('gfx942')"
            )
        return self.executable.profile(self._arrays(args, kwargs))

    def cost_analysis(self) -> dict[str, float]:
        """Estimates of the work.

        Returns:
          `flops`, the operations on elements, and `bytes accessed`, what the kernels read from
          and write to memory.

        Example:
          >>> compiled = amdjax.jit(lambda x: x + 1).lower(jnp.zeros(1000)).compile()
          >>> compiled.cost_analysis()["bytes accessed"]
          8000.0
        """
        # late: loads when a text is asked for
        from amdjax.jit import report

        return report.cost_analysis(self.stages)

    def memory_analysis(self) -> MemoryStats:
        """Bytes the program takes: arguments, results, the arena of intermediates, constants.

        Of a program for a GPU those in the host's memory are counted apart.

        Example:
          >>> compiled = amdjax.jit(lambda x: x + 1).lower(jnp.zeros(1000)).compile()
          >>> compiled.memory_analysis().output_size_in_bytes
          4000
        """
        plan, closed = self.executable.plan, self.traced.jaxpr
        on_gpu = isinstance(getattr(self.executable, "target", None), GpuTarget)
        arguments, results = [0, 0], [0, 0]
        for i, a in enumerate(closed.in_avals):
            arguments[i in plan.hosted] += a.nbytes
        for a in closed.out_avals:
            results[on_gpu and a.memory_space is Space.Host] += a.nbytes
        aliased = sum(self.executable.sizes[i] for i in plan.aliases)
        constants = sum(np.asarray(c).nbytes for c in plan.constants)
        return MemoryStats(
            arguments[0], results[0], aliased, plan.arena_bytes, constants,
            arguments[1], results[1], plan.host_bytes,
        )  # fmt: skip


def _target(target: str | GpuTarget) -> GpuTarget:
    return target if isinstance(target, GpuTarget) else get(target)


def _default_target() -> GpuTarget | None:
    """The target of the default device; None for the CPU."""
    return getattr(default_device(), "target", None)


public_surface(globals())
