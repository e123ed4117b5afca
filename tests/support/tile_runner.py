"""Runs tile programs on NumPy arrays."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from amdjax import targets, tile
from amdjax.codegen import llvm
from amdjax.codegen.cpu.writer import emit_kernel
from amdjax.codegen.engine import compile_ir, engine
from amdjax.codegen.gpu import kernel as gpu_kernel
from amdjax.core import dtypes
from amdjax.emulator import CodeObject, Memory, launch

PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class Backend:
    """The CPU, or an emulated GPU with the layout of tiles.

    Args:
      gfx: the GPU's name; none is the CPU.
      waves: of a workgroup.
      vector, index_bits: as in `tile.Kernel`.
    """

    gfx: str = ""
    waves: int = 1
    vector: int = 1
    index_bits: int = 64

    def __str__(self) -> str:
        return f"{self.gfx}-{self.waves}x{self.vector}" if self.gfx else "cpu"


CPU = Backend()
GPUS = tuple(
    Backend(gfx, *layout) for gfx in ("gfx942", "gfx1100") for layout in ((1, 1, 64), (4, 2, 32))
)
BACKENDS = (CPU, *GPUS)
_current = CPU


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """Kernels are compiled for a backend."""
    global _current
    before, _current = _current, backend
    yield
    _current = before


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
    return _compile_cpu(program) if _current == CPU else compile_gpu(program, _current)


def compile_gpu(program: tile.Kernel, backend: Backend) -> Callable[..., None]:
    """The program on an emulated GPU. It must neither spill nor access other memory."""
    target = targets.get(backend.gfx)
    given = program.schedule
    schedule = tile.Schedule(
        given.workgroup or backend.waves * target.wave_size,
        given.vector if given.vector > 1 else backend.vector,
        backend.index_bits,
    )
    program = replace(program, schedule=schedule)
    compiled = gpu_kernel.compile_kernel(program, target)
    assert compiled.scratch_bytes == 0
    code = CodeObject(compiled.code)

    def run(*args: Any) -> None:
        words = [a if isinstance(a, int) else a.ctypes.data for a in args]
        memory = Memory()
        with memory.holding(*(a for a in args if isinstance(a, np.ndarray))):
            launch(
                code.kernels[compiled.name],
                program.grid,
                compiled.workgroup,
                struct.pack(f"<{len(words)}q", *words),
                memory,
            )

    return run


def _compile_cpu(program: tile.Kernel) -> Callable[..., None]:
    module = llvm.Module()
    emit_kernel(module, program, "kernel")
    library = engine().load(compile_ir(str(module)), ["kernel"])
    call = PROTOTYPE(library["kernel"])

    def between(*args: Any, begin: int, end: int, worker: int = 0) -> None:
        """Some programs of the grid."""
        words = [a if isinstance(a, int) else a.ctypes.data for a in args]
        block = (ctypes.c_int64 * max(len(words), 1))(*words)
        call(ctypes.addressof(block), begin, end, worker)

    def run(*args: Any, worker: int = 0) -> None:
        between(*args, begin=0, end=program.grid, worker=worker)

    run.between = between  # type: ignore[attr-defined]
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
