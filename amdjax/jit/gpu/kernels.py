"""Programs and their kernels for a GPU, with or without one at hand.

Kernels are compiled by helper processes: LLVM ends the process that asks it for code it cannot
make. What is made is kept, in memory and on disk.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import amdjax.jit.control
import amdjax.kernels  # noqa: F401  (both register what plans are made of)
from amdjax import tile
from amdjax.codegen.compile_worker import MAX_LEVEL, Machine
from amdjax.codegen.elf.linker import link
from amdjax.codegen.gpu.amdgpu_object import check_lds, completed, machine_of
from amdjax.codegen.gpu.kernel import GpuKernel
from amdjax.codegen.gpu.writer import kernel_ir
from amdjax.core.collector import rare_collections
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.arrays import Runner, SizedRunner
from amdjax.jit.instructions import Plan
from amdjax.jit.kernels import KernelLoader, is_carried
from amdjax.jit.plan import plan_program
from amdjax.jit.stored_variants import StoredVariant
from amdjax.targets import GpuTarget

_HEADER = struct.Struct("<I")  # bytes of compressed LLVM IR in front of the code


@rare_collections
def compile_device(
    closed: ClosedJaxpr,
    target: GpuTarget,
    donated: Sequence[bool] = (),
    observe: Callable[[str, Any], None] = lambda stage, x: None,
    debug: bool = True,
    kept: bool = True,
) -> tuple[Plan, dict[int, GpuKernel]]:
    """Compile a program for a GPU, which need not be there.

    Args:
      closed: the program as traced.
      target: the GPU.
      donated: which arguments may be overwritten.
      observe: receives (stage, object) for every intermediate form.
      debug: whether the code says which tile op each instruction comes from, on AMD GPUs. It is
        the same code, but compiling takes 6 % longer.
      kept: whether a plan will do that was kept, of which stages tell nothing.

    Returns:
      The plan, and the kernels by the id of the tile program that a `CALL` names.

    Raises:
      CompileError: LLVM cannot make code of a kernel; the message names it.
    """
    generator = GpuGenerator(target, debug and not is_carried())
    loader, key = KernelLoader(generator), None
    if kept and not generator.debug:
        key = loader.key(closed, donated, target)
    if key is not None and (found := loader.read(key, closed.consts)) is not None:
        return found
    plan, kernels = _planned(closed, donated, observe, loader, generator)
    if key is not None:
        loader.keep(key, plan, closed.consts)
    return plan, kernels


@rare_collections
def compile_sized_device(
    closed: ClosedJaxpr, target: GpuTarget, donated: Sequence[bool] = (),
    observe: Callable[[str, Any], None] = lambda stage, x: None, debug: bool = True,
) -> tuple[Plan, dict[int, GpuKernel], bytes | None]:  # fmt: skip
    """The same for a program whose dimensions are symbolic with sizes at hand.

    Returns:
      The plan, its kernels, and the plan as data where what is compiled is recorded.
    """
    generator = GpuGenerator(target, debug and not is_carried())
    loader = KernelLoader(generator)
    plan, kernels = _planned(closed, donated, observe, loader, generator)
    return plan, kernels, loader.written(plan, closed.consts)


def _planned(
    closed: ClosedJaxpr, donated: Sequence[bool], observe: Callable[[str, Any], None],
    loader: KernelLoader[GpuKernel], generator: GpuGenerator,
) -> tuple[Plan, dict[int, GpuKernel]]:  # fmt: skip
    """The plan of a program and its kernels, whether or not a plan is kept."""
    target, by_line = generator.target, generator.debug
    try:
        plan = plan_program(closed, target, donated, observe, loader, by_line=by_line)
        observe("plan", plan)
        kernels = loader.load()
        observe("kernels", kernels)
        return plan, kernels
    except BaseException:
        loader.cancel()
        raise


def read_sized_device(
    closed: ClosedJaxpr, target: GpuTarget, donated: Sequence[bool]
) -> list[tuple[StoredVariant, list[Any], dict[int, GpuKernel]]]:
    """The variants that come with a program, as `KernelLoader.variants` finds them."""
    return KernelLoader(GpuGenerator(target, False)).variants(closed, donated, target)


def sized_variants_key(
    closed: ClosedJaxpr, target: GpuTarget, donated: Sequence[bool]
) -> bytes | None:
    """The key under which these come; None where a program has none."""
    return KernelLoader(GpuGenerator(target, False)).variants_key(closed, donated, target)


def sized_runner(
    plan: Plan, kernels: Mapping[int, GpuKernel], written: bytes | None,
    make: Callable[[Mapping[str, int]], Runner],
) -> SizedRunner:  # fmt: skip
    """A program whose dimensions are symbolic; `make` makes one of arrays for sizes."""

    def code(kernel: tile.Kernel) -> Any:
        compiled = kernels[id(kernel)]
        return compiled.name, compiled.code, compiled.kernarg, compiled.workgroup

    identity, launches = plan.identity(code), plan.launches(code)
    return SizedRunner(make, identity, launches, plan.peaks, list(plan.aliases), written)


class GpuGenerator:
    """A `KernelGenerator` for a GPU, of linked code objects or PTX.

    Args:
      target: the GPU.
      debug: as for `compile_device`.
    """

    opt = MAX_LEVEL
    seconds_per_kernel = 0.005

    def __init__(self, target: GpuTarget, debug: bool):
        self.target, self.debug = target, debug and target.is_amdgpu
        self.machine: Machine | None = machine_of(target)

    def facts(self) -> tuple[str, ...]:
        return repr(self.target), str(self.debug)

    def named(self, kernel: tile.Kernel) -> tile.Kernel:
        return replace(kernel, name=_symbol(kernel.name), grid=0)

    def identity(self, kernel: tile.Kernel) -> str:
        """The program as text; if the code says so, also which lines of the user it comes from."""
        text, lines = tile.listing(kernel)
        if not self.debug:
            return text
        known = tile.origins(kernel, lines).items()
        return "\n".join([text, *(f"{line} {o.operation} {o.source}" for line, o in known)])

    def llvm(self, kernel: tile.Kernel) -> str:
        return kernel_ir(kernel, self.target, symbol=kernel.name, debug=self.debug)

    def module(self, llvm: str) -> str:
        if self.target.is_amdgpu:
            check_lds(llvm, self.target)
        return completed(llvm, self.target)

    def entry(self, kernel: tile.Kernel, llvm: str, data: bytes) -> bytes:
        code = link(data, kernel.name) if self.target.is_amdgpu else data
        packed = zlib.compress(llvm.encode(), 3)
        return _HEADER.pack(len(packed)) + packed + code

    def load(self, kernel: tile.Kernel, entry: bytes) -> GpuKernel:
        (size,) = _HEADER.unpack_from(entry)
        llvm, code = entry[_HEADER.size :][:size], entry[_HEADER.size + size :]
        return GpuKernel.of(kernel, self.target, code, zlib.decompress(llvm).decode(), kernel.name)


def _symbol(name: str) -> str:
    """The name of a tile program as that of a function."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
