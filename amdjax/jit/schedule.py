"""How the steps of a program are computed, as text: the plans of regions and of kernel families."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from amdjax.core.config import config, disabled_passes
from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.core.lowering import Shaped
from amdjax.kernels.shaped import Epilogue, ShapedContext, Sums, plan_shaped
from amdjax.schedule.domain import region_producers
from amdjax.schedule.equations import is_bitcast
from amdjax.schedule.fusion import Fusion, Region, Single, step_writes
from amdjax.schedule.gpu.partition import Resident
from amdjax.schedule.horizontal import steps_text
from amdjax.schedule.regions import plan_region
from amdjax.schedule.writer import Machine


def epilogue(step: Single, fusion: Fusion) -> Epilogue | None:
    """What a shaped kernel computes on its tiles before it stores them."""
    if step.epilogue is None:
        return None
    made = [*step.eqn.outvars, *step_writes(step.epilogue)]
    stored = [v for v in made if v in fusion.stored]
    return Epilogue(stored, region_producers(step.epilogue, fusion))


def shaped_context(
    step: Single, fusion: Fusion, target: Machine, fixed: Collection[Var],
    resident: Resident | None,
) -> ShapedContext:  # fmt: skip
    """What a kernel family is given to compute a step."""
    neighbors = [s.eqn for s in fusion.launch_of(step) if isinstance(s, Single)]
    if len({tuple(x.aval.shape for x in e.invars) for e in neighbors}) == 1:
        neighbors = []
    fused = epilogue(step, fusion)
    sums = None if step.sums is None else Sums(step.sums, fusion)
    more = tuple(neighbors), step.computed, sums
    return ShapedContext(step.eqn, target, fused, fixed, resident, *more)


def is_shaped(eqn: JaxprEqn) -> bool:
    """Whether a kernel family computes an equation, which has elements."""
    rule = eqn.primitive.lowering
    return isinstance(rule, Shaped) and any(v.aval.size for v in eqn.outvars)


@dataclass(frozen=True)
class Schedule:
    """The steps of a program and how a machine computes them; planned again when printed.

    Args:
      fixed: variables that the loop around the program does not change.
      resident: of that loop, if it is one launch.
      off: the passes that were off when it was compiled.
    """

    fusion: Fusion
    target: Machine
    fixed: Collection[Var] = ()
    resident: Resident | None = None
    off: tuple[str, ...] = field(default_factory=lambda: config.disabled_passes)

    def __str__(self) -> str:
        with disabled_passes(self.off):
            return self._text()

    def _text(self) -> str:
        lines = []
        texts = str(self.fusion).splitlines()
        for text, step in zip(texts, self.fusion.steps, strict=True):
            lines.append(text)
            together = self.fusion.launch_of(step)
            if step is together[0] and len(together) > 1:
                lines.insert(-1, f"{steps_text(together)} in one launch:")
            if isinstance(step, Region):
                plan = plan_region(step, self.fusion, self.target, self.resident)
                lines.append("  no elements" if plan is None else f"  {plan}")
            elif is_shaped(step.eqn) and not is_bitcast(step.eqn):
                ctx = shaped_context(step, self.fusion, self.target, self.fixed, self.resident)
                lines.append(f"  {plan_shaped(ctx)}")
        return "\n".join(lines)
