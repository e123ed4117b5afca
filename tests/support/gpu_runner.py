"""Runs the GPU kernels of one equation on the emulator, without the rest of the compiler."""

from __future__ import annotations

import struct

import numpy as np

from amdjax import targets
from amdjax.codegen.gpu import kernel as gpu_kernel
from amdjax.core.aval import ShapedArray
from amdjax.core.dtypes import dtype_from_short_name
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.emulator import CodeObject, Memory, launch
from amdjax.kernels.shaped import Call, Epilogue, ShapedContext, Temp, lower_shaped

EMULATED = ("gfx942", "gfx1100")
#: One of each generation.
DISTINCT = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


class GpuRunner:
    """One equation for one target; call it with NumPy arrays.

    Args:
      primitive, operands, params: of the equation.
      gfx: the target.
      epilogue: `fn(out) -> (stored, extra operands, producers)`.
      lower: what makes launches of the context; the registered family by default.
      index_bits: width of indices, for buffers of any size.
    """

    def __init__(
        self, primitive, operands, params, gfx, *, epilogue=None, lower=lower_shaped, index_bits=32
    ):
        self.gfx, self.index_bits = gfx, index_bits
        self.invars = [Var(ShapedArray(x.shape, x.dtype)) for x in operands]
        made = primitive.abstract_eval(*(v.aval for v in self.invars), **params)
        outs = list(map(Var, made if primitive.multiple_results else [made]))
        eqn = JaxprEqn(primitive, self.invars, outs, params)
        self.stored, self.extra = outs, []
        fused = None
        if epilogue is not None:
            (out,) = outs
            self.stored, self.extra, producers = epilogue(out)
            fused = Epilogue(self.stored, producers)
        self.calls: list[Call] = list(lower(ShapedContext(eqn, targets.get(gfx), fused)))

    def compiled(self):
        return [
            gpu_kernel.compile_kernel(c.kernel, targets.get(self.gfx), index_bits=self.index_bits)
            for c in self.calls
        ]

    def __call__(self, *operands, extra=()):
        operands = [np.ascontiguousarray(x) for x in (*operands, *extra)]
        held = dict(zip([*self.invars, *self.extra], operands, strict=True))
        for v in self.stored:
            held[v] = np.frombuffer(bytearray(b"\xff" * v.aval.nbytes), v.aval.dtype)
            held[v] = held[v].reshape(v.aval.shape)
        self.counters = []
        for call, kernel in zip(self.calls, self.compiled(), strict=True):
            assert kernel.scratch_bytes == 0
            self._launch(call, kernel, held)
        results = [held[v] for v in self.stored]
        return results[0] if len(results) == 1 else results

    def _launch(self, call, kernel, held):
        words, arrays = [], []
        for arg in call.args:
            if isinstance(arg, int):
                words.append(arg)
                continue
            if isinstance(arg, Temp) and arg not in held:
                held[arg] = np.full(
                    arg.size, 0 if arg.zero else 77, dtype_from_short_name(arg.dtype)
                )
            if isinstance(arg, Literal):
                held[arg] = np.asarray(arg.val, arg.aval.dtype)
            arrays.append(held[arg])
            words.append(held[arg].ctypes.data)
        memory, code = Memory(), CodeObject(kernel.code)
        with memory.holding(*arrays):
            self.counters.append(
                launch(
                    code.kernels["kernel"], call.grid, kernel.workgroup,
                    struct.pack(f"<{len(words)}q", *words), memory,
                )
            )  # fmt: skip
