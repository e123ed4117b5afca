"""Tile programs to loaded machine code, each distinct one compiled once, on CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from amdjax import tile
from amdjax.codegen.compile_worker import Machine
from amdjax.codegen.engine import Compilation
from amdjax.runtime.cache import entry_key, object_cache

__all__ = ["KernelGenerator", "KernelLoader", "clear_loaded"]

Loaded = TypeVar("Loaded")
LoadedIn = TypeVar("LoadedIn", covariant=True)

_loaded: dict[bytes, Any] = {}  # by cache key


def clear_loaded() -> None:
    """Forget compiled kernels; programs that use them keep them alive."""
    _loaded.clear()


class KernelGenerator(Protocol[LoadedIn]):
    """How tile programs become machine code of one machine.

    Attributes:
      opt: LLVM's level, as for `compile_ir`.
      machine: what helper processes compile for; None for this computer.
      seconds_per_kernel: what compiling one takes, as if for this computer; `Compilation` knows
        what other machines take.
    """

    opt: int
    machine: Machine | None
    seconds_per_kernel: float

    def facts(self) -> Sequence[str]:
        """What besides a kernel's identity decides its machine code."""

    def named(self, kernel: tile.Kernel) -> tile.Kernel:
        """The kernel under the name of its function, of a grid without size: those do not count."""

    def identity(self, kernel: tile.Kernel) -> str:
        """The text that tells a named kernel from others."""

    def llvm(self, kernel: tile.Kernel) -> str:
        """LLVM IR of a named kernel."""

    def module(self, llvm: str) -> str:
        """The IR as it is compiled."""

    def entry(self, kernel: tile.Kernel, llvm: str, data: bytes) -> bytes:
        """What is kept on disk of the object code."""

    def load(self, kernel: tile.Kernel, entry: bytes) -> LoadedIn:
        """The kernel, ready for use, from what is kept on disk."""


class KernelLoader(Generic[Loaded]):
    """The kernels of a program; what is neither in memory nor on disk is compiled.

    Kernels are added as the program is planned, so that helper processes compile the first ones
    while the last ones are being made.
    """

    def __init__(self, generator: KernelGenerator[Loaded]) -> None:
        self.generator = generator
        self._keys: dict[int, tuple[tile.Kernel, bytes]] = {}  # by id; kernels stay alive
        self._found: dict[bytes, Loaded] = {}
        self._compiling: dict[bytes, tuple[tile.Kernel, str]] = {}
        self._compilation = Compilation(opt=generator.opt, machine=generator.machine)

    @cached_property
    def _facts(self) -> Sequence[str]:
        return self.generator.facts()

    def expect(self, kernels: int) -> None:
        """Announce about how many kernels will come."""
        self._compilation.expect(kernels * self.generator.seconds_per_kernel)

    def add(self, kernel: tile.Kernel) -> None:
        """Take one more kernel."""
        if id(kernel) in self._keys:
            return
        made = self.generator
        named = made.named(kernel)
        key = entry_key(made.identity(named), *self._facts)
        self._keys[id(kernel)] = kernel, key
        if key in self._found or key in self._compiling:
            return
        found = _loaded.get(key)
        if found is None and (entry := object_cache().get(key)) is not None:
            found = _loaded.setdefault(key, made.load(named, entry))
        if found is not None:
            self._found[key] = found
            return
        llvm = made.llvm(named)
        self._compiling[key] = named, llvm
        self._compilation.add(made.module(llvm))

    def load(self) -> dict[int, Loaded]:
        """What was added, by the ids of the tile programs."""
        compiled = self._compilation.finish()
        for (key, (kernel, llvm)), data in zip(self._compiling.items(), compiled, strict=True):
            entry = self.generator.entry(kernel, llvm, data)
            object_cache().put(key, entry)
            self._found[key] = _loaded.setdefault(key, self.generator.load(kernel, entry))
        return {number: self._found[key] for number, (_, key) in self._keys.items()}

    def cancel(self) -> None:
        """The program could not be planned."""
        self._compilation.cancel()
