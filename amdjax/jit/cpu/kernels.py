"""Machine code of tile programs for this computer."""

from __future__ import annotations

from dataclasses import replace

from amdjax import tile
from amdjax.codegen.compile_worker import Machine
from amdjax.codegen.engine import Library, host
from amdjax.jit.kernels import KernelLoader
from amdjax.runtime import native

SYMBOL = "kernel"


def kernel_text(kernel: tile.Kernel) -> str:
    """What identifies a kernel: its program, without its name and the size of its grid."""
    return str(replace(kernel, name=SYMBOL, grid=0))


def kernel_ir(kernel: tile.Kernel) -> str:
    """The kernel as LLVM IR for this computer."""
    # late: kernels that were compiled before need no generator
    from amdjax.codegen.cpu.writer import emit_kernel
    from amdjax.codegen.llvm import Module

    module = Module(native=host().native)
    emit_kernel(module, kernel, SYMBOL)
    return str(module)


class CpuGenerator:
    """A `KernelGenerator` of libraries with one function, `SYMBOL`."""

    opt = 2
    machine: Machine | None = None
    seconds_per_kernel = 0.01  # they range from 2 to 60 ms

    def facts(self) -> tuple[str, ...]:
        machine = host()
        return machine.triple, machine.cpu, machine.features

    def named(self, kernel: tile.Kernel) -> tile.Kernel:
        return replace(kernel, name=SYMBOL, grid=0)

    def identity(self, kernel: tile.Kernel) -> str:
        return str(kernel)

    def llvm(self, kernel: tile.Kernel) -> str:
        return kernel_ir(kernel)

    def module(self, llvm: str) -> str:
        return llvm

    def entry(self, kernel: tile.Kernel, llvm: str, data: bytes) -> bytes:
        return data

    def load(self, kernel: tile.Kernel, entry: bytes) -> Library:
        return native.load(entry, [SYMBOL])


def cpu_kernels() -> KernelLoader[Library]:
    """The kernels of a program for this computer."""
    return KernelLoader(CpuGenerator())
