"""Runs tile programs on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax.codegen import cpu, llvm, tile
from amdjax.codegen.engine import compile_ir, engine
from amdjax.core import dtypes

PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def kernel(
    write: Callable[..., None], signature: dict[str, tuple[str, str]], grid: int = 1
) -> tile.Kernel:
    """A kernel with the given parameters, `name: (dtype, role)`; `write(k, **buffers)` fills it."""
    k = tile.Builder("test")
    buffers = {name: k.param(name, dtype, role) for name, (dtype, role) in signature.items()}
    write(k, **buffers)
    return k.finish(grid)


def compile_kernel(program: tile.Kernel) -> Callable[..., None]:
    """The program as a function of arrays and numbers, one for each parameter."""
    module = llvm.Module()
    cpu.emit_kernel(module, program, "kernel")
    library = engine().load(compile_ir(str(module)), ["kernel"])
    call = PROTOTYPE(library["kernel"])

    def run(*args: Any, worker: int = 0) -> None:
        words = [a if isinstance(a, int) else a.ctypes.data for a in args]
        block = (ctypes.c_int64 * max(len(words), 1))(*words)
        call(ctypes.addressof(block), 0, program.grid, worker)

    run.library = library  # type: ignore[attr-defined]
    return run


def run_kernel(write: Callable[..., None], *args: Any, grid: int = 1, **signature: Any) -> None:
    """Write, compile and run a kernel at once."""
    compile_kernel(kernel(write, signature, grid))(*args)


def elementwise(op: Callable[..., Any], *xs: np.ndarray, out: Any, lanes: int = 16) -> np.ndarray:
    """`op(k, *tiles)` on arrays of equal length, `lanes` elements at a time."""
    n = xs[0].size
    xs = tuple(np.concatenate([x, x[: -n % lanes or 0]]) if n % lanes else x for x in xs)
    n_padded = -(-n // lanes) * lanes
    xs = tuple(np.resize(x, n_padded) for x in xs)
    result = np.zeros(n_padded, out)
    k = tile.Builder("test")
    names = [dtypes.short_dtype_name(x.dtype) for x in xs]
    buffers = [k.param(f"x{i}", name, "in") for i, name in enumerate(names)]
    y = k.param("y", dtypes.short_dtype_name(np.dtype(out)), "out")

    def body(i: Any) -> None:
        shape = (lanes,) if lanes > 1 else ()
        k.store(y, i, op(k, *(k.load(b, i, shape) for b in buffers)))

    k.for_(0, n_padded, lanes, body)
    compile_kernel(k.finish(1))(*xs, result)
    return result[:n]
