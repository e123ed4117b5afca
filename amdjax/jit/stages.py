"""The stages of a program that is compiled ahead of time: traced, lowered, compiled.

>>> import amdjax, amdjax.numpy as jnp
>>> traced = amdjax.jit(lambda x: jnp.tanh(x) * 2).trace(jnp.ones(3))
>>> lowered = traced.lower()
>>> compiled = lowered.compile()
>>> compiled(jnp.zeros(3))
Array([0., 0., 0.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.errors import public_surface
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.pytree import PyTreeDef, tree_flatten, tree_unflatten
from amdjax.core.ref import Ref
from amdjax.jit import report
from amdjax.jit.cpu.program import CpuProgram, compile_for_cpu
from amdjax.jit.gpu.records import KernelRecord
from amdjax.jit.refs import without_refs
from amdjax.runtime.devices import default_device
from amdjax.targets import GpuTarget, get

if TYPE_CHECKING:
    from amdjax.jit.gpu.executable import GpuExecutable
    from amdjax.jit.gpu.profile import Profile


@dataclass(frozen=True)
class Traced:
    """A traced program.

    Attributes:
      jaxpr: the program.
      in_tree: structure of its traced arguments.
      out_tree: structure of its results.
      fun_name: name of the function it comes from.
      donated: which leaves of the arguments are donated.
    """

    jaxpr: ClosedJaxpr
    in_tree: PyTreeDef
    out_tree: PyTreeDef
    fun_name: str
    donated: tuple[bool, ...]

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the result, as a pytree of `ShapeDtypeStruct`."""
        from amdjax.api import ShapeDtypeStruct

        leaves = [ShapeDtypeStruct(a.shape, a.dtype) for a in self.jaxpr.out_avals]
        return tree_unflatten(self.out_tree, leaves)

    def lower(self) -> Lowered:
        """The program ready to compile."""
        return Lowered(self)


@dataclass(frozen=True)
class Lowered:
    """A program ready to compile."""

    traced: Traced

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the result, as a pytree of `ShapeDtypeStruct`."""
        return self.traced.out_info

    def as_text(self, stage: str = "jaxpr") -> str:
        """The program at a stage.

        Args:
          stage: one of `jaxpr simplified fusion tiles passes plan llvm asm`; all but the first
            compile the program.

        Returns:
          Text for people to read; its form may change.

        Raises:
          ValueError: there is no such stage.

        Example:
          >>> import amdjax
          >>> print(amdjax.jit(lambda x: x * 2 + 1).lower(1.0).as_text())
          { lambda ; a:f32[]. let
              b:f32[] = mul a 2.0:f32[]
              c:f32[] = add b 1.0:f32[]
            in (c,) }
        """
        return str(self.traced.jaxpr) if stage == "jaxpr" else self.compile().as_text(stage)

    def cost_analysis(self) -> dict[str, float]:
        """Estimates of the work; see `Compiled.cost_analysis`."""
        return self.compile().cost_analysis()

    def compile(self, target: str | GpuTarget | None = None) -> Compiled:
        """Compile the program.

        Args:
          target: a GPU, or its name as in `gfx942` or `sm_90`; it need not be there, nor its
            driver. The default device if None.

        Returns:
          The compiled program, which can be looked at, and called where there is such a device.

        Raises:
          ValueError: no target has that name; the message lists the known ones and the nearest.
          TypeError: `target` is neither a name nor a `GpuTarget`.

        Warns:
          UserWarning: a kernel has too few registers and spills some, or uses scratch memory.

        Example:
          >>> import amdjax, amdjax.numpy as jnp
          >>> compiled = amdjax.jit(lambda x: x + 1).lower(jnp.zeros(1000)).compile("gfx942")
          >>> [(k.name, k.scratch_bytes) for k in compiled.kernels]
          [('map_add', 0)]
        """
        stages: list[tuple[str, Any]] = []
        gpu = _default_target() if target is None else _target(target)
        traced = self.traced
        program, donated, runner = without_refs(traced.jaxpr, traced.donated)
        observe = lambda s, x: stages.append((s, x))
        executable: CpuProgram | GpuExecutable
        if gpu is None:
            executable = compile_for_cpu(program, donated, observe)
        else:
            from amdjax.jit.gpu.executable import GpuExecutable

            executable = GpuExecutable(program, gpu, donated, observe)
        return Compiled(traced, executable, stages, runner)


@dataclass(frozen=True)
class Compiled:
    """A compiled program; call it with arguments of the signature it was lowered for."""

    traced: Traced
    executable: CpuProgram | GpuExecutable
    stages: list[tuple[str, Any]] = field(repr=False)
    runner: Callable[[Any], Any] = field(repr=False)

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the result, as a pytree of `ShapeDtypeStruct`."""
        return self.traced.out_info

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = self.runner(self.executable)
        return tree_unflatten(self.traced.out_tree, run(self._arrays(args, kwargs)))

    def _arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[ConcreteArray]:
        """The leaves of the arguments, which fit what the program was compiled for."""
        leaves, tree = tree_flatten((args, kwargs))
        if tree != self.traced.in_tree:
            raise TypeError(
                f"{self.traced.fun_name} was compiled for arguments of structure "
                f"{self.traced.in_tree}, called with {tree}"
            )
        own = (ConcreteArray, Ref)
        arrays = [x if type(x) in own else asarray_concrete(x) for x in leaves]
        self._check(arrays)
        return arrays

    def _check(self, arrays: Sequence[ConcreteArray]) -> None:
        for i, (x, want) in enumerate(zip(arrays, self.traced.jaxpr.in_avals, strict=True)):
            if x.aval.shape != want.shape or x.aval.dtype != want.dtype:
                raise TypeError(
                    f"{self.traced.fun_name} was compiled for argument {i} of type "
                    f"{want.str_short()}, called with {x.aval.str_short()}"
                )

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
        return report.stage_text(stage, self.traced.jaxpr, self.stages, self.executable.plan)

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
          operation and line they were made from (`total.by_operation`); prints as two tables.

        Raises:
          ValueError: the program was compiled for the CPU or for PTX.

        Example:
          >>> import amdjax, amdjax.numpy as jnp
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
          >>> import amdjax, amdjax.numpy as jnp
          >>> compiled = amdjax.jit(lambda x: x + 1).lower(jnp.zeros(1000)).compile()
          >>> compiled.cost_analysis()["bytes accessed"]
          8000.0
        """
        return report.cost_analysis(self.stages)

    def memory_analysis(self) -> MemoryStats:
        """Bytes the program takes: arguments, results, the arena of intermediates, constants.

        Example:
          >>> import amdjax, amdjax.numpy as jnp
          >>> compiled = amdjax.jit(lambda x: x + 1).lower(jnp.zeros(1000)).compile()
          >>> compiled.memory_analysis().output_size_in_bytes
          4000
        """
        arguments = sum(a.nbytes for a in self.traced.jaxpr.in_avals)
        results = sum(a.nbytes for a in self.traced.jaxpr.out_avals)
        aliased = sum(self.executable.sizes[i] for i in self.executable.plan.aliases)
        constants = sum(np.asarray(c).nbytes for c in self.executable.plan.constants)
        return MemoryStats(arguments, results, aliased, self.executable.plan.arena_bytes, constants)


def _target(target: str | GpuTarget) -> GpuTarget:
    return target if isinstance(target, GpuTarget) else get(target)


def _default_target() -> GpuTarget | None:
    """The target of the default device; None for the CPU."""
    return getattr(default_device(), "target", None)


@dataclass(frozen=True)
class MemoryStats:
    """Memory of a compiled program, in bytes.

    Attributes:
      argument_size_in_bytes: of all arguments.
      output_size_in_bytes: of all results.
      alias_size_in_bytes: of results that take over the memory of donated arguments.
      temp_size_in_bytes: of the arena that holds intermediates.
      constant_size_in_bytes: of arrays that the program captured.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    constant_size_in_bytes: int


public_surface(globals())
