"""Programs and their kernels for a GPU, with or without one at hand.

Kernels are compiled by helper processes: LLVM ends the process that asks it for code it cannot
make. What is made is kept, in memory and on disk.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import llvmlite

import amdjax.jit.control
import amdjax.kernels  # noqa: F401  (both register what plans are made of)
from amdjax import tile
from amdjax.codegen.compile_worker import MAX_LEVEL, Machine
from amdjax.codegen.elf.linker import link
from amdjax.codegen.engine import CODEGEN_VERSION, Compilation
from amdjax.codegen.gpu.amdgpu_object import check_lds, completed
from amdjax.codegen.gpu.kernel import GpuKernel
from amdjax.codegen.gpu.writer import kernel_ir
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.cpu.kernels import when_cleared
from amdjax.jit.plan import Plan, plan_program
from amdjax.runtime.cache import object_cache
from amdjax.targets import GpuTarget

SECONDS_PER_KERNEL = 0.005  # as if compiled for the host; `Compilation` knows what GPUs take
_HEADER = struct.Struct("<I")  # bytes of compressed LLVM IR in front of the code

_loaded: dict[tuple[GpuTarget, bool, str], GpuKernel] = {}
when_cleared(_loaded.clear)


def compile_device(
    closed: ClosedJaxpr,
    target: GpuTarget,
    donated: Sequence[bool] = (),
    observe: Callable[[str, Any], None] = lambda stage, x: None,
    debug: bool = True,
) -> tuple[Plan, dict[int, GpuKernel]]:
    """Compile a program for a GPU, which need not be there.

    Args:
      closed: the program as traced.
      target: the GPU.
      donated: which arguments may be overwritten.
      observe: receives (stage, object) for every intermediate form.
      debug: whether the code says which tile op each instruction comes from, on AMD GPUs. It is
        the same code, but compiling takes 6 % longer.

    Returns:
      The plan, and the kernels by the id of the tile program that a `CALL` names.

    Raises:
      CompileError: LLVM cannot make code of a kernel; the message names it.
    """
    loader = DeviceKernels(target, debug)
    try:
        plan = plan_program(closed, target, donated, observe, loader, by_line=loader.debug)
        observe("plan", plan)
        kernels = loader.load()
        observe("kernels", kernels)
        return plan, kernels
    except BaseException:
        loader.cancel()
        raise


class DeviceKernels:
    """The kernels of a program; what is neither in memory nor on disk is compiled.

    Args:
      target: the GPU.
      debug: as for `compile_device`.
    """

    def __init__(self, target: GpuTarget, debug: bool):
        self.target = target
        self.debug = debug and target.is_amdgpu
        # What identifies kernels, by their ids; kernels stay alive.
        self._texts: dict[int, tuple[tile.Kernel, str]] = {}
        self._kernels: dict[str, GpuKernel] = {}
        self._compiling: dict[str, tuple[tile.Kernel, str]] = {}  # tile programs and LLVM IR
        machine = Machine(target.triple, target.llvm_cpu, target.features)
        self._compilation = Compilation(opt=MAX_LEVEL, machine=machine)

    def expect(self, kernels: int) -> None:
        """Announce about how many kernels will come."""
        self._compilation.expect(kernels * SECONDS_PER_KERNEL)

    def add(self, kernel: tile.Kernel) -> None:
        """Take one more kernel."""
        if id(kernel) in self._texts:
            return
        given, kernel = kernel, replace(kernel, name=_symbol(kernel.name), grid=0)
        text = self._identity(kernel)
        self._texts[id(given)] = given, text
        if text in self._kernels or text in self._compiling:
            return
        found = _loaded.get((self.target, self.debug, text)) or self._from_disk(kernel, text)
        if found is not None:
            self._kernels[text] = found
            return
        llvm = kernel_ir(kernel, self.target, symbol=kernel.name, debug=self.debug)
        self._compiling[text] = kernel, llvm
        if self.target.is_amdgpu:
            check_lds(llvm, self.target)
        self._compilation.add(completed(llvm, self.target))

    def load(self) -> dict[int, GpuKernel]:
        """What was compiled, by the ids of the kernels that were added."""
        compiled = self._compilation.finish()
        for (text, (kernel, llvm)), data in zip(self._compiling.items(), compiled, strict=True):
            code = link(data, [kernel.name]) if self.target.is_amdgpu else data
            self._kernels[text] = GpuKernel.of(kernel, self.target, code, llvm, kernel.name)
            packed = zlib.compress(llvm.encode(), 3)
            object_cache().put(self._key(text), _HEADER.pack(len(packed)) + packed + code)
        for text, made in self._kernels.items():
            _loaded[self.target, self.debug, text] = made
        return {number: self._kernels[text] for number, (_, text) in self._texts.items()}

    def cancel(self) -> None:
        """The program could not be planned."""
        self._compilation.cancel()

    def _identity(self, kernel: tile.Kernel) -> str:
        """The program as text; if the code says so, also which lines of the user it comes from."""
        text, lines = tile.listing(kernel)
        if not self.debug:
            return text
        known = tile.origins(kernel, lines).items()
        return "\n".join([text, *(f"{line} {o.operation} {o.source}" for line, o in known)])

    def _from_disk(self, kernel: tile.Kernel, text: str) -> GpuKernel | None:
        entry = object_cache().get(self._key(text))
        if entry is None:
            return None
        (size,) = _HEADER.unpack_from(entry)
        llvm, code = entry[_HEADER.size :][:size], entry[_HEADER.size + size :]
        ir = zlib.decompress(llvm).decode()
        return GpuKernel.of(kernel, self.target, code, ir, kernel.name)

    def _key(self, text: str) -> bytes:
        target = self.target
        parts = (text, repr(target), llvmlite.__version__, str(CODEGEN_VERSION), str(self.debug))
        return sha256("\0".join(parts).encode()).digest()


def _symbol(name: str) -> str:
    """The name of a tile program as that of a function."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
