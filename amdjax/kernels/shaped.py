"""What a shaped kernel is given, and what it gives back.

A kernel family registers a function under the name its primitive's `Shaped` rule carries:

    @shaped("dot_general")
    def plan(ctx: ShapedContext) -> KernelPlan: ...

It reads the equation from `ctx.eqn` and decides how to compute it, writing nothing. The plan is
frozen data that prints; its `emit` builds tile programs with `ctx.kernel(name)` and returns the
launches in order; workspace between them is `Temp(dtype, size)`. A family whose
rule says `epilogue` stores what `ctx.epilogue` says instead of its plain result.

`@shaped("dot_general", on="gpu")` registers plans for GPUs. They find the machine in `ctx.gpu`,
and may return None to leave an equation to the family for CPUs, whose programs then run on one wave
each, as on a CPU with vectors as wide as a wave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal as Choice, Protocol, TypeVar

from amdjax import tile
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.core.lowering import Shaped
from amdjax.schedule.calls import Call, Copy, Temp
from amdjax.schedule.computed import ComputedOperand
from amdjax.schedule.fusion import Fusion, Region
from amdjax.schedule.gpu.partition import Resident
from amdjax.schedule.regions import lower_region, plan_region
from amdjax.schedule.search import estimated, planned
from amdjax.schedule.values import short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget

__all__ = [
    "PLANNERS", "Call", "Copy", "CopyPlan", "InOrder", "KernelPlan", "ShapedContext",
    "ShapedKernel", "Temp", "estimate", "find_plan", "has_gpu_kernels", "has_kernels",
    "lower_shaped", "plan_shaped", "shaped",
]  # fmt: skip

Calls = Sequence[Call | Copy]


class KernelPlan(Protocol):
    """How an equation is computed: frozen data that prints; nothing is written to choose it."""

    def emit(self, ctx: ShapedContext) -> Calls:
        """The launches that the plan describes, in order."""
        ...


@dataclass(frozen=True)
class InOrder:
    """Plans that are carried out one after the other."""

    plans: Sequence[KernelPlan] = ()

    def emit(self, ctx: ShapedContext) -> Calls:
        return [call for plan in self.plans for call in plan.emit(ctx)]

    def with_sums(self, ctx: ShapedContext) -> KernelPlan | None:
        """The plan with sums of what is stored; None where they have to be launches."""
        with_sums = getattr(self.plans[0], "with_sums", None) if len(self.plans) == 1 else None
        return with_sums(ctx) if with_sums else None

    def __str__(self) -> str:
        return "; ".join(map(str, self.plans)) or "no elements"


@dataclass(frozen=True)
class CopyPlan:
    """Results that are copies of operands, or take over their memory.

    Args:
      pairs: of an operand and its result.
    """

    pairs: Sequence[tuple[Any, Var]]

    def emit(self, ctx: ShapedContext) -> Calls:
        return [Copy(source, result) for source, result in self.pairs]

    def __str__(self) -> str:
        return "copies of operands"


Planner = Callable[["ShapedContext"], KernelPlan | None]
F = TypeVar("F", bound=Planner)
#: Planners of kernel families by kind of machine and name.
PLANNERS: dict[str, dict[str, Planner]] = {"cpu": {}, "gpu": {}}


def shaped(name: str, on: Choice["cpu", "gpu"] = "cpu") -> Callable[[F], F]:
    """Register the planner of the primitives whose lowering is `Shaped(name)`.

    Args:
      name: of the family.
      on: the kind of machine; one for CPUs also serves GPUs where there is no other.
    """

    def register(fn: F) -> F:
        PLANNERS[on][name] = fn
        return fn

    return register


_register_for_gpus: list[Callable[[], None]] = []


def register_for_gpus_by(register: Callable[[], None]) -> None:
    """Let families for GPUs be registered by a function, called before one is looked up."""
    _register_for_gpus.append(register)


def lower_shaped(ctx: ShapedContext) -> Calls:
    """The launches of an equation, as `plan_shaped` plans them."""
    return plan_shaped(ctx).emit(ctx)


def plan_shaped(ctx: ShapedContext) -> KernelPlan:
    """How an equation is computed.

    Raises:
      NotImplementedError: no family has the name that its primitive asks for.
    """
    plan = planned(ctx, ctx.machine, lambda: _plan_shaped(ctx))
    if ctx.sums is None:
        return plan
    with_sums = getattr(plan, "with_sums", None)
    joint: KernelPlan | None = with_sums(ctx) if with_sums else None
    return joint or InOrder((plan, _SumsBehind(ctx.sums, ctx.machine)))


@dataclass(frozen=True)
class _SumsBehind:
    """Sums of what is stored, by launches of their own."""

    sums: Sums
    machine: CpuTarget | GpuTarget

    def emit(self, ctx: ShapedContext) -> Calls:
        return lower_region(self.sums.region, self.sums.fusion, self.machine)

    def __str__(self) -> str:
        return str(plan_region(self.sums.region, self.sums.fusion, self.machine))


def _plan_shaped(ctx: ShapedContext) -> KernelPlan:
    plan = find_plan(ctx)
    if plan is None:
        name = ctx.eqn.primitive.name
        raise NotImplementedError(f"no kernels for {name} ({ctx.rule.name})")
    return plan


def has_kernels(eqn: JaxprEqn, machine: CpuTarget | GpuTarget) -> bool:
    """Whether a family has a plan for an equation, with nothing fused behind it."""
    return find_plan(ShapedContext(eqn, machine)) is not None


def has_gpu_kernels(eqn: JaxprEqn, machine: CpuTarget | GpuTarget) -> bool:
    """Whether the machine is a GPU, for which a family of its own has a plan for an equation."""
    if not isinstance(machine, GpuTarget) or not isinstance(eqn.primitive.lowering, Shaped):
        return False
    planner = PLANNERS["gpu"].get(eqn.primitive.lowering.name)
    return planner is not None and planner(ShapedContext(eqn, machine)) is not None


def estimate(eqn: JaxprEqn, machine: CpuTarget | GpuTarget, fixed: Collection[Var] = ()) -> Any:
    """About how many nanoseconds an equation takes, with nothing fused behind it."""
    return estimated(lambda: find_plan(ShapedContext(eqn, machine, fixed=fixed)))


def find_plan(ctx: ShapedContext) -> KernelPlan | None:
    """How an equation is computed, None if no family has a plan for it."""
    for register in _register_for_gpus if ctx.on_gpu else ():
        register()
    for kind in ("gpu", "cpu") if ctx.on_gpu else ("cpu",):
        planner = PLANNERS[kind].get(ctx.rule.name)
        plan = planner(ctx) if planner is not None else None
        if plan is not None:
            return plan
    return None


@dataclass
class Epilogue:
    """Elementwise work fused behind a shaped kernel: values to store instead of its result.

    Args:
      stored: the variables to write, all of the result's shape.
      producers: equations that compute them from the result and from memory.
    """

    stored: list[Var]
    producers: dict[Var, JaxprEqn]


@dataclass
class Sums:
    """Reductions of what a shaped kernel stores, over blocks of its rows, and what follows.

    Args:
      region: what is computed.
      fusion: of the program.
    """

    region: Region
    fusion: Fusion


@dataclass
class ShapedContext:
    """One equation to lower.

    Args:
      eqn: the equation.
      machine: what is compiled for.
      epilogue: what is fused behind its (single) result, if anything.
      fixed: variables that the loop around does not change. Launches at the beginning that read
        nothing else, and write workspace that no later one writes, run once, before the loop.
      resident: of that loop, if it is one launch, whose programs keep what is in LDS.
      neighbors: equations that share the launch, itself included, if their sizes differ.
      computed: the operand that the kernel computes, if it does.
      sums: of what is stored. A plan that computes them is made by `with_sums` of another.
    """

    eqn: JaxprEqn
    machine: CpuTarget | GpuTarget
    epilogue: Epilogue | None = None
    fixed: Collection[Var] = ()
    resident: Resident | None = None
    neighbors: Sequence[JaxprEqn] = ()
    computed: ComputedOperand | None = None
    sums: Sums | None = None

    @property
    def rule(self) -> Shaped:
        """What the primitive says."""
        rule = self.eqn.primitive.lowering
        assert isinstance(rule, Shaped)
        return rule

    @property
    def on_gpu(self) -> bool:
        return isinstance(self.machine, GpuTarget)

    @property
    def gpu(self) -> GpuTarget:
        """The GPU; for families that are registered for one."""
        assert isinstance(self.machine, GpuTarget)
        return self.machine

    @property
    def target(self) -> CpuTarget:
        """The machine as one with vector registers and threads, which any machine can be."""
        return self.machine.vectors

    @property
    def params(self) -> dict[str, Any]:
        return self.eqn.params

    @property
    def inputs(self) -> list[Any]:
        return list(self.eqn.invars)

    @property
    def outputs(self) -> list[Var]:
        return list(self.eqn.outvars)

    def kernel(self, name: str) -> ShapedKernel:
        """Begin a kernel."""
        return ShapedKernel(self, name)


class ShapedKernel:
    """A tile program being written, together with the arguments of its launch."""

    def __init__(self, ctx: ShapedContext, name: str):
        self.ctx = ctx
        self.k = tile.Builder(name)
        self.k.origin = ctx.eqn.origin
        self.args: list[Any] = []
        self._buffers: dict[Any, tile.Buffer] = {}

    def input(self, owner: Var | Literal | Temp) -> tile.Buffer:
        """The parameter through which an operand or workspace is read."""
        return self._param(owner, "in")

    def output(self, owner: Var | Temp) -> tile.Buffer:
        """The parameter through which a result or workspace is written."""
        return self._param(owner, "out")

    def inout(self, owner: Var | Temp) -> tile.Buffer:
        """A parameter that is read and written."""
        return self._param(owner, "inout")

    def _param(self, owner: Any, role: str) -> tile.Buffer:
        found = self._buffers.get(owner)
        if found is None:
            dtype = owner.dtype if isinstance(owner, Temp) else short_dtype(owner.aval.dtype)
            found = self._buffers[owner] = self.k.param(f"p{len(self.args)}", dtype, role)
            self.args.append(owner)
        return found

    def launch(self, grid: int, nanoseconds: float) -> Call:
        """The finished kernel as a launch of `grid` programs taking that long on one thread."""
        return Call(self.k.finish(grid), self.args, grid, nanoseconds)
