"""Runs the kernels of one equation without the rest of the compiler."""

from __future__ import annotations

import ctypes

import numpy as np

from amdjax.codegen import llvm
from amdjax.codegen.cpu.writer import emit_kernel
from amdjax.codegen.engine import compile_ir, engine, host
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.kernels.shaped import Epilogue, ShapedContext, Temp, lower_shaped
from amdjax.runtime import amx, threads
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize


def target(count: int = 4) -> CpuTarget:
    machine = host()
    caches = machine.l1d_bytes, machine.l2_bytes
    return CpuTarget(
        machine.vector_bits, count, *caches,
        dot_dtypes=machine.dot_dtypes, matrix_dtypes=amx.dtypes(),
    )  # fmt: skip


def aligned(nbytes):
    """Memory as plans and results have it: at a cache line, with arbitrary content."""
    block = np.full(nbytes + 64, 0xFF, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + max(nbytes, 1)]


class Runner:
    """One equation, compiled; call it with NumPy arrays."""

    def __init__(self, primitive, operands, params, *, epilogue=None, cpu_target=None):
        invars = [Var(ShapedArray(x.shape, x.dtype)) for x in operands]
        out_aval = primitive.abstract_eval(*(v.aval for v in invars), **params)
        out = Var(out_aval)
        eqn = JaxprEqn(primitive, invars, [out], params)
        self.stored, self.extra = [out], []
        fused = None
        if epilogue is not None:
            self.stored, self.extra, producers = epilogue(out)
            fused = Epilogue(self.stored, producers)
        self.invars = invars
        context = ShapedContext(eqn, cpu_target or target(), fused)
        self.calls = lower_shaped(context)
        self.code = []
        threads.initialize()
        cache = {}
        for call in self.calls:
            module = llvm.Module()
            emit_kernel(module, call.kernel, "kernel")
            text = str(module)
            if text not in cache:
                cache[text] = engine().load(compile_ir(text), ["kernel"])
            self.code.append(cache[text])
        self.compiled = len(cache)

    def prepare(self, operands, extra=()):
        memory = dict(zip(self.invars, operands)) | dict(zip(self.extra, extra))
        results = [
            aligned(v.aval.nbytes)[: v.aval.nbytes].view(v.aval.dtype).reshape(v.aval.shape)
            for v in self.stored
        ]
        memory.update(zip(self.stored, results))
        self.launches = []
        self.keep = [memory]
        for call, library in zip(self.calls, self.code):
            words = []
            for arg in call.args:
                if isinstance(arg, int):
                    words.append(arg)
                    continue
                if isinstance(arg, Literal):
                    memory[arg] = np.asarray(arg.val, arg.aval.dtype)
                elif isinstance(arg, Temp) and arg not in memory:
                    memory[arg] = aligned(arg.size * itemsize(arg.dtype))
                words.append(memory[arg].ctypes.data)
            block = (ctypes.c_int64 * (len(words) + 1))(0, *words)  # no watch before them
            first = ctypes.addressof(block) + ctypes.sizeof(ctypes.c_int64)
            self.launches.append((library["kernel"], first, call.grid, call.nanoseconds))
            self.keep.append(block)
        return results

    def run(self):
        for fn, block, grid, nanoseconds in self.launches:
            if grid > 1 and nanoseconds > 20_000:
                threads.parallel_for(fn, block, grid)
            else:
                threads.alone_for(fn, block, grid)

    def __call__(self, *operands, extra=()):
        operands = [np.ascontiguousarray(x) for x in operands]
        results = self.prepare(operands, extra)
        self.run()
        return results[0] if len(results) == 1 else results
