"""A program compiled ahead of time for a GPU, which may or may not be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.array import ConcreteArray
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.arrays import Runner
from amdjax.jit.gpu.kernels import compile_device
from amdjax.jit.gpu.profile import Profile
from amdjax.jit.gpu.program import GpuProgram
from amdjax.jit.gpu.records import kernel_records, warn_of_scratch
from amdjax.jit.placement import committed_placement
from amdjax.runtime.devices import Placement, default_device, devices, platforms
from amdjax.runtime.gpu import GpuDevice
from amdjax.targets import GpuTarget


class GpuExecutable:
    """Runs a program on a device of its target, one that arguments are committed to or the first.

    Args:
      closed: the program as traced.
      target: the GPU.
      donated: which arguments may be overwritten.
      observe: receives (stage, object) for every intermediate form.
      kept: as for `compile_device`.

    Attributes:
      plan: its instructions.
      sizes: bytes of the results.
      records: its kernels.

    Raises:
      CompileError: LLVM cannot make code of a kernel.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        target: GpuTarget,
        donated: Sequence[bool],
        observe: Callable[[str, Any], None],
        kept: bool = True,
    ):
        self.closed, self.target = closed, target
        self.plan, self._kernels = compile_device(closed, target, donated, observe, kept=kept)
        self.sizes = [a.nbytes for a in closed.out_avals]
        self.records = kernel_records(self.plan, self._kernels)
        self._home: Placement | None = None
        self._runs: dict[Placement, Runner] = {}
        warn_of_scratch(self.records)

    def __call__(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """Run on arrays that have the avals the program was compiled for.

        Raises:
          RuntimeError: there is no device of the target.
          ValueError: arguments are committed to different devices.
        """
        placement = self._placement(args)
        run = self._runs.get(placement)
        if run is None:
            program = self._program(_gpu(placement))
            run = self._runs[placement] = program.runner(placement)
        return run(args)

    def _program(self, device: GpuDevice) -> GpuProgram:
        return GpuProgram(self.closed.out_avals, self.plan, self._kernels, device)

    def _placement(self, args: Sequence[ConcreteArray]) -> Placement:
        """Arrays may come from anywhere; those on a device of the target say which."""
        found = committed_placement(args, f"the program compiled for {self.target.name}")
        if found is not None and getattr(found.device, "target", None) == self.target:
            return found
        if self._home is None:
            self._home = device_of(self.target).uncommitted
        return self._home

    def profile(self, args: Sequence[ConcreteArray]) -> Profile:
        """Run once on an emulator of the target, which counts what the kernels do.

        Raises:
          ValueError: the target is none that the emulator knows.
        """
        # late: the emulator loads where it runs
        from amdjax.emulator.debug.counters import recording
        from amdjax.emulator.debug.timing import tracing
        from amdjax.emulator.device import emulated_device

        if not self.target.is_amdgpu:
            raise ValueError(f"profile counts on an emulated AMD GPU, not on {self.target.name}")
        device = emulated_device(self.target.name)
        program = self._program(device)
        with recording() as launches, tracing() as traces:
            results = program.runner(device.uncommitted)([x.copy() for x in args])
        return Profile(self.target.name, launches, results, traces)


def _gpu(placement: Placement) -> GpuDevice:
    assert isinstance(placement.device, GpuDevice)
    return placement.device


def device_of(target: GpuTarget) -> GpuDevice:
    """The default device if it is of the target, else the first one that is.

    Raises:
      RuntimeError: there is none.
    """
    everything = [default_device(), *(d for name in platforms() for d in devices(name))]
    for device in everything:
        if isinstance(device, GpuDevice) and device.target.name == target.name:
            return device
    # late: the emulator loads where it runs
    from amdjax.emulator.isa import is_emulated

    name = target.name
    advice = f"; AMDJAX_EMULATE={name} runs it in an emulator" if is_emulated(name) else ""
    raise RuntimeError(
        f"the program was compiled for {name}, and there is no such device here{advice}"
    )
