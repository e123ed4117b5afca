"""The machines that problems are solved on, and what names their results."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from amdjax.codegen.engine import CODEGEN_VERSION, host
from amdjax.find.database import MachineKey
from amdjax.jit.cpu.program import cpu_target
from amdjax.runtime.devices import default_device
from amdjax.runtime.gpu import GpuDevice
from amdjax.schedule.writer import Machine
from amdjax.targets import GpuTarget, get
from amdjax.targets.cpu import CpuTarget


def version() -> str:
    """What makes machine code, to the version."""
    # late: only naming the version needs it
    from llvmlite import binding

    return f"{CODEGEN_VERSION}/LLVM {'.'.join(map(str, binding.llvm_version_info))}"


def default_machine() -> Machine:
    """What programs are compiled for where nothing else is said."""
    device = default_device()
    return device.target if isinstance(device, GpuDevice) else cpu_target()


def machine_named(target: str | Machine | None) -> Machine:
    """The machine that a target names: `cpu`, a GPU as in `gfx942`; the default one if None."""
    if target is None:
        return default_machine()
    if isinstance(target, (CpuTarget, GpuTarget)):
        return target
    return cpu_target() if target == "cpu" else get(target)


def machine_key(machine: Machine) -> MachineKey:
    """What results on a machine are found under."""
    if isinstance(machine, GpuTarget):
        return MachineKey(machine.name, machine.compute_units)
    return MachineKey(_cpu_name(machine.vector_bits), machine.threads)


@cache
def _cpu_name(vector_bits: int) -> str:
    features = hashlib.blake2b(host().features.encode(), digest_size=4).hexdigest()
    return f"{_model() or host().cpu}, {host().cpu}, {vector_bits} bits, features {features}"


def _model() -> str:
    """The model of the CPU as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, "")
