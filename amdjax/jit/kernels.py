"""Tile programs to addresses of machine code, each distinct one compiled once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from hashlib import sha256

from amdjax.codegen import tile
from amdjax.codegen.cpu import emit_kernel
from amdjax.codegen.engine import CODEGEN_VERSION, Library, compile_many, host
from amdjax.codegen.llvm import Module
from amdjax.runtime import native
from amdjax.runtime.cache import object_cache

_loaded: dict[str, Library] = {}
_lock = threading.Lock()
SYMBOL = "kernel"


def kernel_text(kernel: tile.Kernel) -> str:
    """What identifies a kernel: its program, without its name and the size of its grid."""
    return tile.print_kernel(tile.Kernel(SYMBOL, kernel.params, kernel.scratch, kernel.body, 0))


def kernel_ir(kernel: tile.Kernel) -> str:
    """The kernel as LLVM IR."""
    module = Module()
    emit_kernel(module, kernel, SYMBOL)
    return str(module)


def _cache_key(text: str) -> bytes:
    machine = host()
    parts = (text, machine.triple, machine.cpu, machine.features, str(CODEGEN_VERSION))
    return sha256("\0".join(parts).encode()).digest()


def load_kernels(kernels: Sequence[tile.Kernel]) -> tuple[list[int], list[Library]]:
    """Addresses of the kernels' functions, and what must be kept alive while they are used.

    Looks in memory, then on disk, and compiles what is left, in several processes if it is much.
    """
    texts = [kernel_text(k) for k in kernels]
    with _lock:
        missing = {t: k for t, k in zip(texts, kernels, strict=True) if t not in _loaded}
        if missing:
            _load(missing)
        libraries = [_loaded[t] for t in texts]
    return [library[SYMBOL] for library in libraries], libraries


def _load(missing: dict[str, tile.Kernel]) -> None:
    cache = object_cache()
    keys = {t: _cache_key(t) for t in missing}
    objects = {t: cache.get(keys[t]) for t in missing}
    absent = [t for t, data in objects.items() if data is None]
    if absent:
        compiled = compile_many([kernel_ir(missing[t]) for t in absent])
        for t, made in zip(absent, compiled, strict=True):
            objects[t] = made
            cache.put(keys[t], made)
    for t, data in objects.items():
        assert data is not None
        _loaded[t] = native.load(data, [SYMBOL])


def clear_loaded() -> None:
    """Forget compiled kernels; programs that use them keep them alive."""
    with _lock:
        _loaded.clear()
