"""Kernels that the compiler makes of programs, without compiling them further."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import amdjax.jit.control
import amdjax.kernels  # noqa: F401
from amdjax import jit, targets
from amdjax.codegen.gpu import writer as gpu
from amdjax.jit.cpu import kernels as cpu
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.plan import plan_program
from amdjax.tile import Kernel

TARGETS = ("cpu", "gfx942", "gfx1100")


class Collector:
    """A loader that only keeps what it is given."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []

    def start(self, kernels: int) -> None:
        pass

    def expect(self, kernels: int) -> None:
        pass

    def add(self, kernel: Kernel) -> None:
        self.kernels.append(kernel)


def kernels_of(f: Any, args: Sequence[Any], target: str) -> Iterator[Kernel]:
    """The distinct kernels of a program for a target."""
    loader = Collector()
    machine = cpu_target() if target == "cpu" else targets.get(target)
    plan_program(jit(f).lower(*args).traced.jaxpr, machine, loader=loader)
    yield from {str(k): k for k in loader.kernels}.values()


def code(kernel: Kernel, target: str) -> str:
    """A kernel as LLVM IR."""
    if target == "cpu":
        return cpu.kernel_ir(kernel)
    return gpu.kernel_ir(kernel, targets.get(target), debug=False)
