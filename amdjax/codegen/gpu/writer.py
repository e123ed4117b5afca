"""Tile programs as LLVM IR for GPUs: amdgcn and nvptx.

A program of the grid is a workgroup; `docs/gpu.md` says how tiles are spread over its threads.
The classes below each other are one writer: `tiles` knows how tiles are held, `memory`
how they are loaded and stored, `layout_conversion`, `reduce` and `scan` how threads exchange
elements, and `GpuWriter` here everything elementwise and the products. What is to be known of a
kernel, `PASSES` have found out before. What differs between targets is
`isa`; barriers are placed by `barriers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import lowers
from amdjax.codegen.gpu.divide import FEWEST, divided
from amdjax.codegen.gpu.isa import isa_of
from amdjax.codegen.gpu.layout import Place
from amdjax.codegen.gpu.memory import Spread
from amdjax.codegen.gpu.product import GpuProducts
from amdjax.codegen.gpu.scan import GpuScan
from amdjax.codegen.gpu.tiles import Coordinates, Held, Positional, Rep
from amdjax.codegen.llvm import I32, Module, Value
from amdjax.codegen.pointwise import lower_convert
from amdjax.targets import GpuTarget
from amdjax.tile import ops, passes
from amdjax.tile.passes import annotate_accesses, annotate_divisions, fold_masked_selects

__all__ = ["PASSES", "GpuWriter", "kernel_ir"]

#: What is found out of a kernel before it is written.
PASSES = (fold_masked_selects, annotate_accesses, annotate_divisions)


def kernel_ir(
    kernel: tile.Kernel,
    target: GpuTarget,
    *,
    index_bits: int | None = None,
    symbol: str = "kernel",
    debug: bool = True,
) -> str:
    """A tile program as a module of LLVM IR.

    Args:
      kernel: the program.
      target: the GPU.
      index_bits: 32 where every buffer is smaller than 2 GiB, or 64; the kernel's own by default.
      symbol: name of the function.
      debug: whether instructions say which line of `str(kernel)` they come from; AMD only.

    Returns:
      LLVM IR text, complete but for optimisation.

    Raises:
      ValueError: the workgroup is not a power of two of whole waves that the target can run.
    """
    _check_workgroup(kernel, target)
    isa = isa_of(target)
    module = Module(target.triple, target.data_layout, isa.native, isa.estimates)
    written, kernel = kernel, passes.run(kernel, PASSES)
    writer = GpuWriter(module, kernel, isa, symbol, index_bits or kernel.schedule.index_bits)
    writer.write(written if debug and target.is_amdgpu else None)
    return str(module)


def _check_workgroup(kernel: tile.Kernel, target: GpuTarget) -> None:
    n = kernel.schedule.workgroup or target.wave_size
    if n & (n - 1) or not target.wave_size <= n <= target.max_workgroup:
        raise ValueError(
            f"workgroup of {n} threads: {target.name} runs powers of two from {target.wave_size} "
            f"to {target.max_workgroup}"
        )


class GpuWriter(GpuProducts, GpuScan):
    """Writes one kernel."""

    # Elementwise

    def _each(self, op: tile.Op, fn: Callable[..., Value]) -> list[Rep]:
        """`fn` of the operands' elements; of positions alone, it stays a function of position."""
        reps = [self.rep(v) for v in op.operands]
        shape = op.results[0].shape
        if not shape:
            return [fn(*reps)]
        if any(isinstance(rep, Held) for rep in reps):
            return [Held(fn(*(self.held(rep, shape) for rep in reps)))]
        return [Positional(lambda at: fn(*(self.evaluate(rep, at) for rep in reps)))]

    @lowers(ops.Div)
    def lower_div(self, op: ops.Div) -> list[Rep]:
        """Where a thread has several elements with the same divisor, without so many divisions."""
        x, d = op.operands
        if d.dtype != "f32" or not isinstance(self.rep(x), Held):
            return self.lower_elementwise(op)
        groups = self._equal_registers(d, op.same_along)
        if min(map(len, groups)) < FEWEST:
            return self.lower_elementwise(op)
        elements, divisors = self.in_registers(x), self.in_registers(d)
        parts = [
            divided(self, self.f.shuffle(elements, None, g), self.register(divisors, g[0]))
            for g in groups
        ]
        return [Held(self.joined(parts))]

    def _equal_registers(self, v: tile.Value, same: tuple[int, ...]) -> list[list[int]]:
        """The registers of a tile that is the same along axes, those with one number together."""
        if not v.shape:
            return [[0]]

        def where(r: int) -> list[Place]:
            return [place for axis, place in enumerate(places[r]) if axis not in same]

        places = self.places(self.layout(v.shape))
        return [list(g) for _, g in itertools.groupby(range(len(places)), where)]

    @lowers(ops.Elementwise)
    def lower_elementwise(self, op: ops.Elementwise) -> list[Rep]:
        dtype = op.operands[-1].dtype  # `select` has its condition first
        return self._each(op, lambda *xs: self.elementwise(op.name, dtype, *xs, **op.parameters))

    @lowers(ops.Convert)
    def lower_convert(self, op: ops.Convert) -> list[Rep]:
        source, to = (
            self.index.elem if d == "index" else d
            for d in (op.operands[0].dtype, op.results[0].dtype)
        )
        return self._each(op, lambda x: lower_convert(self.f, x, source, to))

    @lowers(ops.Bitcast)
    def lower_bitcast(self, op: ops.Bitcast) -> list[Rep]:
        to = self.element(op.results[0].dtype)
        if op.operands[0].dtype == "index":  # of 64 bits, whatever it has here
            return self._each(op, lambda x: self.f.int_resize(x, to, True))
        return self._each(op, lambda x: self.f.bitcast(x, x.type.with_elem(to)))

    @lowers(ops.Const)
    def lower_const(self, op: ops.Const) -> list[Rep]:
        t, x = op.results[0].type, op.value.x
        if not t.shape:
            return [llvm.const(self.vector(t.dtype, 1), x)]
        return [Positional(lambda at: llvm.const(self.vector(t.dtype, at.registers), x))]

    @lowers(ops.ProgramId)
    def lower_program_id(self, op: ops.ProgramId) -> list[Rep]:
        return [
            self._at_head(
                lambda: self.f.int_resize(self.isa.program(self.f), self.index.elem, False)
            )
        ]

    @lowers(ops.Size)
    def lower_size(self, op: ops.Size) -> list[Rep]:
        size = self.addresses[op.buffer.name]
        return [self.f.int_resize(size, self.index.elem, True)]

    @lowers(ops.Iota)
    def lower_iota(self, op: ops.Iota) -> list[Rep]:
        dtype = op.results[0].dtype
        element = self.element(dtype)

        def count(at: Coordinates) -> Value:
            if dtype in tile.FLOATS:
                return self.f.cast("uitofp", at.axis(0), element)
            return self.f.int_resize(at.axis(0), element, False)

        return [Positional(count)]

    # Products

    @lowers(ops.Dot)
    def lower_dot(self, op: ops.Dot) -> list[Rep]:
        """By the vector unit: both operands in LDS, each thread sums up its elements."""
        a, b, acc = op.operands
        (m, depth), n = a.shape, b.shape[1]
        layout = self.layout(acc.shape)
        parts = [self.in_registers(v) for v in (a, b)]
        buffer = self.temporary(a.dtype, depth * (m + n))
        self.access(buffer, "write")
        for part, v, start, width in zip(parts, (a, b), (0, m * depth), (depth, n), strict=True):
            where = Spread(buffer, start, (width, 1))
            self.store_tile(where, v.dtype, self.layout(v.shape), part)
        self.access(buffer, "read")
        f = self.f

        def step(k: Value, carried: list[Value]) -> list[Value]:
            below = f.add(f.mul(k, llvm.const(I32, n)), llvm.const(I32, m * depth))
            with self.scope():
                x = self.load_tile(Spread(buffer, k, (depth, 0)), a.dtype, layout)
                y = self.load_tile(Spread(buffer, below, (0, 1)), b.dtype, layout)
            if a.dtype in tile.FLOATS:
                return [f.fma(x, y, carried[0])]
            return [f.add(f.mul(x, y), carried[0])]

        bounds = llvm.const(I32, 0), llvm.const(I32, depth)
        return [Held(f.loop(*bounds, 1, [self.in_registers(acc)], step)[0])]

    @lowers(ops.Dot4)
    def lower_dot4(self, op: ops.Dot4) -> list[Rep]:
        def product(*xs: Value) -> Value:
            registers = [[self.register(x, r) for x in xs] for r in range(xs[0].type.lanes or 1)]
            return self.joined([self.isa.dot4(self.f, *words) for words in registers])

        return self._each(op, product)
