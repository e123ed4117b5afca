"""Tile programs to addresses of machine code, each distinct one compiled once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

from amdjax import tile
from amdjax.codegen.cpu import emit_kernel
from amdjax.codegen.engine import CODEGEN_VERSION, Compilation, Library, compile_ir, host
from amdjax.codegen.llvm import Module
from amdjax.runtime import native
from amdjax.runtime.cache import object_cache

_loaded: dict[str, Library] = {}
_lock = threading.Lock()
SYMBOL = "kernel"
SECONDS_PER_KERNEL = 0.01  # of compiling; they range from 2 to 60 ms


def kernel_text(kernel: tile.Kernel) -> str:
    """What identifies a kernel: its program, without its name and the size of its grid."""
    return tile.print_kernel(replace(kernel, name=SYMBOL, grid=0))


def kernel_ir(kernel: tile.Kernel) -> str:
    """The kernel as LLVM IR."""
    module = Module()
    emit_kernel(module, kernel, SYMBOL)
    return str(module)


def _cache_key(text: str) -> bytes:
    machine = host()
    parts = (text, machine.triple, machine.cpu, machine.features, str(CODEGEN_VERSION))
    return sha256("\0".join(parts).encode()).digest()


class KernelLoader:
    """The kernels of a program; what is neither in memory nor on disk is compiled.

    Kernels are added as the program is planned, so that helper processes compile the first ones
    while the last ones are being made.
    """

    def __init__(self) -> None:
        self._texts: dict[int, tuple[tile.Kernel, str]] = {}  # by id; kernels stay alive
        self._objects: dict[str, bytes] = {}  # found on disk
        self._compiling: dict[str, bytes] = {}  # cache keys of what is being compiled
        self._compilation = Compilation()

    def expect(self, kernels: int) -> None:
        """Announce about how many kernels will come."""
        self._compilation.expect(kernels * SECONDS_PER_KERNEL)

    def add(self, kernel: tile.Kernel) -> None:
        """Take one more kernel."""
        if id(kernel) in self._texts:
            return
        text = kernel_text(kernel)
        self._texts[id(kernel)] = kernel, text
        if text in _loaded or text in self._objects or text in self._compiling:
            return
        key = _cache_key(text)
        found = object_cache().get(key)
        if found is not None:
            self._objects[text] = found
        else:
            self._compiling[text] = key
            self._compilation.add(kernel_ir(kernel))

    def load(self, kernels: Sequence[tile.Kernel]) -> tuple[list[int], list[Library]]:
        """Addresses of the functions of kernels that were added, and what to keep alive."""
        compiled = self._compilation.finish()
        for (text, key), data in zip(self._compiling.items(), compiled, strict=True):
            object_cache().put(key, data)
            self._objects[text] = data
        libraries = [self._library(self._texts[id(k)][1]) for k in kernels]
        return [library[SYMBOL] for library in libraries], libraries

    def _library(self, text: str) -> Library:
        found = _loaded.get(text)
        if found is None:
            with _lock:
                found = _loaded.get(text)
                if found is None:
                    data = self._objects.get(text) or self._compiled_again(text)
                    found = _loaded[text] = native.load(data, [SYMBOL])
        return found

    def _compiled_again(self, text: str) -> bytes:
        """A kernel that was in memory when it was added, but has been cleared since."""
        kernel = next(k for k, t in self._texts.values() if t == text)
        return compile_ir(kernel_ir(kernel))

    def cancel(self) -> None:
        """The program could not be planned."""
        self._compilation.cancel()


_when_cleared: list[Callable[[], None]] = []


def when_cleared(forget: Callable[[], None]) -> None:
    """Have `forget` called whenever compiled kernels are forgotten."""
    _when_cleared.append(forget)


def clear_loaded() -> None:
    """Forget compiled kernels; programs that use them keep them alive."""
    with _lock:
        _loaded.clear()
    for forget in _when_cleared:
        forget()
