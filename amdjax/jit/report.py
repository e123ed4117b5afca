"""Compiled programs as text: every stage in a form a person can read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.core.lowering import Shaped
from amdjax.core.sharding import Space
from amdjax.jit.gpu.records import DEVICE_STAGES, device_text
from amdjax.jit.instructions import Label, Plan, View
from amdjax.passes import Changed, changes_text
from amdjax.runtime import vm
from amdjax.schedule.fusion import Fusion, Region

TEXT_STAGES = (
    "jaxpr", "simplified", "fusion", "schedule", "tiles", "passes", "plan", "llvm", "asm",
)  # fmt: skip
GPU_STAGES = (*TEXT_STAGES, *(s for s in DEVICE_STAGES if s not in TEXT_STAGES))
OPCODES = [
    "HALT",
    "CALL",
    "JUMP",
    "UNLESS",
    "SET",
    "ADD",
    "REPEAT",
    "SWAP",
    "ADDRESS",
    "COPY",
    "SWITCH",
    "HOST",
    "CALLS",
    "ASIDE",
    "AWAIT",
]


def stage_text(stage: str, jaxpr: Any, stages: Sequence[tuple[str, Any]], plan: Any) -> str:
    """The text of a stage, from what the compiler observed; `plan` is None where there is none.

    Raises:
      ValueError: there is no such stage.
    """
    device_kernels = next((x for name, x in stages if name == "kernels"), None)
    known = TEXT_STAGES if device_kernels is None else GPU_STAGES
    if stage not in known:
        raise ValueError(f"stage must be one of {', '.join(known)}; got {stage!r}")
    if stage == "jaxpr":
        return str(jaxpr)
    if stage == "simplified":
        return "\n".join(str(f.jaxpr) for f in fusions(stages))
    if stage == "fusion":
        return "\n\n".join(str(f) for f in fusions(stages))
    if stage == "schedule":
        return "\n\n".join(str(x) for name, x in stages if name == "schedule")
    if stage == "plan":
        return plan_text(plan)
    if stage == "passes" and plan is None:
        return changes_text(changes(stages))
    kernels = distinct(plan.kernels())
    if stage == "tiles":
        return "\n\n".join(map(_tile_program, kernels))
    if stage == "passes":
        passed = [_passed(k, device_kernels is not None) for k in kernels]
        return "\n\n".join([changes_text(changes(stages)), *passed])
    if device_kernels is not None:
        return device_text(stage, plan, device_kernels)
    # late: loads when a text is asked for
    from amdjax.codegen.engine import to_assembly
    from amdjax.jit.cpu.kernels import kernel_ir

    texts = [kernel_ir(k) for k in kernels]
    return "\n".join(texts if stage == "llvm" else map(to_assembly, texts))


def _tile_program(kernel: tile.Kernel) -> str:
    """A kernel, and what its lines were made from."""
    # late: loads when a text is asked for
    from amdjax.codegen.debug_info import with_origins

    text, lines = tile.listing(kernel)
    return with_origins(text, tile.origins(kernel, lines))


def _passed(kernel: tile.Kernel, for_gpu: bool) -> str:
    """A kernel after each pass in front of code generation."""
    # late: loads when a text is asked for
    from amdjax.codegen.cpu import writer as cpu
    from amdjax.codegen.gpu import writer as gpu

    texts, last = [], str(kernel)

    def note(name: str, changed: tile.Kernel) -> None:
        nonlocal last
        text = str(changed)
        texts.append(f"# {name}\n{text}" if text != last else f"# {name}: nothing to do")
        last = text

    tile.passes.run(kernel, gpu.PASSES if for_gpu else cpu.PASSES, note)
    return "\n\n".join([f"# {kernel.name}", *texts])


def fusions(stages: Sequence[tuple[str, Any]]) -> list[Fusion]:
    return [x for _, x in stages if isinstance(x, Fusion)]


def changes(stages: Sequence[tuple[str, Any]]) -> list[Changed]:
    """What each pass made of the program, and of its loops and branches, in order."""
    return [x for _, x in stages if isinstance(x, Changed)]


def distinct(kernels: Sequence[tile.Kernel]) -> list[tile.Kernel]:
    # late: loads when a text is asked for
    from amdjax.jit.cpu.kernels import kernel_text

    return list({kernel_text(k): k for k in kernels}.values())


def plan_text(plan: Plan) -> str:
    """The instructions, one a line."""
    labels = {w.position for i in plan.instructions for w in i.words if isinstance(w, Label)}
    names: dict[int, str] = {}

    def word(w: Any) -> str:
        if isinstance(w, View):
            return operand_text(w, plan)
        if isinstance(w, Label):
            return f"@{w.position}"
        if isinstance(w, tile.Kernel):
            return names.setdefault(id(w), f"{w.name}#{len(names)}")
        return str(w)

    lines = [f"arena {plan.arena_bytes} bytes"]
    lines += [f"host {plan.host_bytes} bytes"] if plan.host_bytes else []
    for n, i in enumerate(plan.instructions):
        mark = f"@{n}:" if n in labels else ""
        lines.append(f"{mark:6s}{OPCODES[i.opcode]} " + " ".join(map(word, i.words)))
    return "\n".join(lines)


def operand_text(view: View, plan: Plan) -> str:
    slot = view.storage.slot
    if slot is None:
        arena = "arena" if view.storage.space is Space.Device else "host"
        base = f"{arena}+{view.storage.offset + view.offset}"
    elif slot == vm.ZERO:
        return str(view.offset)
    else:
        if plan.inputs <= slot < plan.outputs:
            name = f"in{slot - plan.inputs}"
        elif slot >= plan.constants_at:
            name = f"const{slot - plan.constants_at}"
        else:
            name = f"slot{slot}"
        base = name + (f"+{view.offset}" if view.offset else "")
    return base + (f"+[{view.counter}]*{view.stride}" if view.stride else "")


def cost_analysis(stages: Sequence[tuple[str, Any]]) -> dict[str, float]:
    """Arithmetic and memory traffic by rough count, loop bodies counted once."""
    flops = traffic = 0.0
    for fusion in fusions(stages):
        for step in fusion.steps:
            if isinstance(step, Region):
                size = float(np.prod(step.domain, dtype=np.float64))
                roots = [r for region in step.parts for r in region.roots]
                flops += size * sum(r.cost for r in roots)
                own = {v for r in roots for v in r.vars}
                reads = {v for r in roots for v, _ in r.reads} - own
                traffic += sum(v.aval.nbytes for v in reads | (own & fusion.stored))
            else:
                flops += single_flops(step.eqn)
                traffic += sum(v.aval.nbytes for v in [*step.reads, *step.eqn.outvars])
    return {"flops": flops, "bytes accessed": traffic}


def single_flops(eqn: Any) -> float:
    out = float(math.prod(eqn.outvars[0].aval.shape)) if eqn.outvars else 0.0
    rule = eqn.primitive.lowering
    return out * rule.flops(eqn) if isinstance(rule, Shaped) else out
