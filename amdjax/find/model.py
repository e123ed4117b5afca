"""About how long kernels take on a GPU that is not there, from what the emulator counts.

Launches follow each other. In each the busiest compute unit has as many workgroups as the others or
one more; it does what takes longest, and some of the rest that is not hidden, but is no faster than
one workgroup that waits for its loads. Of long launches a sample of the workgroups is emulated, and
counted for all. Rates are those of the target, what things cost that of
`targets.gpu.GpuCosts`, by which plans of products are chosen too. Estimates rank plans of one
problem; they are no times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.find.program import Program
from amdjax.runtime.devices import devices, platforms
from amdjax.runtime.gpu import GpuDevice
from amdjax.targets import GpuTarget

if TYPE_CHECKING:
    from amdjax.emulator.debug.counters import Counters

__all__ = ["SAMPLABLE", "counted", "emulated_program", "estimated_seconds", "is_here", "written"]

#: Kinds of problems whose launches may be sampled: what they read where does not depend on values
#: that other workgroups have computed.
SAMPLABLE = ("product", "convolution", "map", "rows")
INSTRUCTIONS = 1 << 18  # of all waves of a launch together, of which a sample has about as many

LINE = 64  # bytes
IN_FLIGHT = 8  # loads of a wave that wait together


def is_here(target: GpuTarget) -> bool:
    """Whether this computer has such a GPU, emulated ones apart."""
    return any(
        isinstance(d, GpuDevice) and d.target.name == target.name
        for name in platforms()
        if name != "emulated"
        for d in devices(name)
    )


def emulated_program(closed: ClosedJaxpr, target: GpuTarget) -> Program:
    """A program for an emulated GPU.

    Raises:
      ValueError: there is no emulator of the target.
    """
    # late: loads with the first GPU
    from amdjax.emulator.device import emulated_device
    from amdjax.jit.gpu.kernels import compile_device
    from amdjax.jit.gpu.program import GpuProgram

    plan, kernels = compile_device(closed, target, (), lambda stage, x: None)
    device = emulated_device(target.name)
    program = GpuProgram(closed.out_avals, plan, kernels, device)
    return Program(program.runner(device.uncommitted), plan.arena_bytes)


def counted(
    run: Callable[[Sequence[Any]], list[Any]], arrays: Sequence[Any], sampled: bool = False
) -> tuple[list[Any], list[Counters]]:
    """Results of a run on an emulated GPU, and what each launch did.

    Args:
      run: the program.
      arrays: its arguments.
      sampled: whether long launches run a sample of their workgroups.
    """
    # late: the emulator loads where it runs
    from amdjax.emulator.debug.counters import recording, sampling

    sample = sampling(INSTRUCTIONS) if sampled else contextlib.nullcontext()
    with recording() as launches, sample:
        results = run(arrays)
        for x in results:
            x.block_until_ready()
    return results, launches


def written(x: np.ndarray, launches: Sequence[Counters]) -> np.ndarray | None:
    """Which elements of a result are as a whole run has them; None if all are.

    Workgroups of the last launch that were left out left new memory as it was. What is computed of
    something that is missing tells nothing.
    """
    if not any(launch.sampled for launch in launches):
        return None
    if any(launch.sampled for launch in launches[:-1]):
        return np.zeros(x.shape, bool)
    data = np.ascontiguousarray(x).reshape(x.size, 1).view(np.uint8)
    return np.asarray((data != 255).any(axis=1).reshape(x.shape))


def estimated_seconds(launches: Iterable[Counters], target: GpuTarget) -> float:
    """About how long launches take, one after the other."""
    clocks = sum(_clocks(launch, target) for launch in launches)
    return clocks / (target.device.clock * 1e6)


def _clocks(c: Counters, target: GpuTarget) -> float:
    costs, device = target.costs, target.device
    if not c.workgroups:
        return float(costs.launch)
    most = ceil_div(c.workgroups, target.compute_units)
    share = most / c.workgroups  # of all work, what the busiest compute unit does
    busy = [
        share * c.by_class["valu"] * target.wave_size / (target.vector_rate / 2),
        share * c.matrix_flops / _matrix_rate(c, target),
        share * c.bank_cycles,
        share * c.lines_64 * LINE / costs.cache_rate,
        c.ideal_64 * LINE / (device.bandwidth * 1e3 / device.clock),
    ]
    steps = max(c.barriers, c.accesses / IN_FLIGHT) / max(c.waves, 1)
    resident = c.occupancy.waves * target.simds if c.occupancy else 8 * target.simds
    turns = ceil_div(most * ceil_div(c.waves, c.workgroups), max(resident, 1))
    alone = turns * (costs.program + steps * costs.load_latency)
    return costs.launch + max(alone, max(busy) + costs.not_hidden * (sum(busy) - max(busy)))


def _matrix_rate(c: Counters, target: GpuTarget) -> float:
    """Operations of a compute unit in a clock with the matrix instructions that ran."""
    used = (name for name in c.by_mnemonic if "mfma" in name or "wmma" in name)
    operand = next(used, "").rpartition("_")[2]
    return float(target.matrix_rate.get(operand, target.vector_rate))
