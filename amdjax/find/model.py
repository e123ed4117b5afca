"""About how long kernels take on a GPU that is not there, by the emulator's model of time.

Launches follow each other. Of long launches a sample of the workgroups is emulated; a few of them
are traced, which `emulator.debug.replay` replays. Estimates rank plans of one problem; they are no
times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.find.program import Program
from amdjax.runtime.devices import devices, platforms
from amdjax.runtime.gpu import GpuDevice
from amdjax.targets import GpuTarget

if TYPE_CHECKING:
    from amdjax.emulator.debug.counters import Counters
    from amdjax.emulator.debug.timing import Traced

#: Kinds of problems whose launches may be sampled: what they read where does not depend on values
#: that other workgroups have computed.
SAMPLABLE = ("product", "convolution", "map", "rows")
INSTRUCTIONS = 1 << 18  # of all waves of a launch together, of which a sample has about as many


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
) -> tuple[list[Any], list[Counters], list[Traced | None]]:
    """Results of a run on an emulated GPU, what each launch did, and some of it in detail.

    Args:
      run: the program.
      arrays: its arguments.
      sampled: whether long launches run a sample of their workgroups.
    """
    # late: the emulator loads where it runs
    from amdjax.emulator.debug.counters import recording, sampling
    from amdjax.emulator.debug.timing import tracing

    sample = sampling(INSTRUCTIONS) if sampled else contextlib.nullcontext()
    with recording() as launches, tracing() as traces, sample:
        results = run(arrays)
        for x in results:
            x.block_until_ready()
    return results, launches, traces


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


def estimated_seconds(traces: Iterable[Traced | None], target: GpuTarget) -> float:
    """About how long launches take, one after the other."""
    # late: the emulator loads where it runs
    from amdjax.emulator.debug.replay import estimate

    cycles = sum(target.costs.launch + (estimate(x).cycles if x else 0.0) for x in traces)
    return cycles / (target.device.clock * 1e6)
