"""Tile programs as LLVM IR for GPUs: amdgcn and nvptx.

A program of the grid is a workgroup; `docs/gpu.md` says how tiles are spread over its threads.
The classes below each other are one writer: `tiles` knows how tiles are held, `memory`
how they are loaded and stored, `combine` and `moves` how threads exchange elements, and
`GpuKernel` here everything elementwise and the products. What differs between targets is
`isa`; barriers are placed by `barriers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import lowers
from amdjax.codegen.gpu.combine import GpuCombine
from amdjax.codegen.gpu.divide import FEWEST, divided
from amdjax.codegen.gpu.isa import Isa, isa_of
from amdjax.codegen.gpu.layout import Place
from amdjax.codegen.gpu.memory import Spread
from amdjax.codegen.gpu.product import GpuProducts
from amdjax.codegen.gpu.tiles import Coordinates, Held, Positional, Rep
from amdjax.codegen.llvm import I32, Module, Value
from amdjax.codegen.pointwise import lower_convert
from amdjax.targets import GpuTarget
from amdjax.tile import ops

__all__ = ["GpuWriter", "kernel_ir"]


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
    writer = GpuWriter(module, kernel, isa, symbol, index_bits or kernel.schedule.index_bits)
    writer.write(debug and target.is_amdgpu)
    return str(module)


def _check_workgroup(kernel: tile.Kernel, target: GpuTarget) -> None:
    n = kernel.schedule.workgroup or target.wave_size
    if n & (n - 1) or not target.wave_size <= n <= target.max_workgroup:
        raise ValueError(
            f"workgroup of {n} threads: {target.name} runs powers of two from {target.wave_size} "
            f"to {target.max_workgroup}"
        )


def _filling(x: float | int | bool, of: tile.Value) -> str:
    """A number as text, which tells -0.0 from 0.0."""
    return repr(float(x) if of.dtype in tile.FLOATS else int(x))


class GpuWriter(GpuProducts, GpuCombine):
    """Writes one kernel."""

    def __init__(self, module: Module, kernel: tile.Kernel, isa: Isa, name: str, index_bits: int):
        super().__init__(module, kernel, isa, name, index_bits)
        #: What a tile is where a mask is false, and the mask, by the tile's number.
        self._masked_loads: dict[int, tuple[int, str]] = {}
        self._constants: dict[int, str] = {}
        #: Numbers of counts that do not wrap around, and of scalars in all elements.
        self._counts: set[int] = set()
        self._spread: set[int] = set()
        #: Unsigned counts from some number, which may wrap around to zero once.
        self._moved_counts: set[int] = set()
        #: Axes along which tiles do not change, by their numbers.
        self._same_along: dict[int, tuple[int, ...]] = {}

    def written(self, op: tile.Op) -> None:
        if isinstance(op, ops.Broadcast):
            self._note_broadcast(op)
        self._note_filling(op)
        self._note_range(op)
        self.neighbours.note(op)
        if op.results and op.results[0].type == tile.TileType("index"):
            self.divisors[op.results[0].number] = self._divisor(op)

    def _divisor(self, op: tile.Op) -> int:
        known = [self.divisors.get(v.number, 1) for v in op.operands]
        if isinstance(op, ops.Const):
            x = int(op.value.x)
            return x & -x if x else 1 << 30
        if isinstance(op, ops.Mul):
            return min(known[0] * known[1], 1 << 30)
        if isinstance(op, (ops.Add, ops.Sub, ops.Min, ops.Max)):
            return min(known)
        return min(known[1:]) if isinstance(op, ops.Select) else 1

    def _note_filling(self, op: tile.Op) -> None:
        if isinstance(op, ops.Const):
            self._constants[op.results[0].number] = _filling(op.value.x, op.results[0])
        elif isinstance(op, ops.Broadcast) and (x := self._constants.get(op.operands[0].number)):
            self._constants[op.results[0].number] = x
        elif isinstance(op, ops.Load) and op.masked:
            fill = _filling(op.other, op.results[0])
            self._masked_loads[op.results[0].number] = op.operands[-1].number, fill
        elif isinstance(op, ops.Convert) and (
            found := self._masked_loads.get(op.operands[0].number)
        ):
            mask, fill = found
            if float(fill) == 0:
                self._masked_loads[op.results[0].number] = (
                    mask,
                    _filling(float(fill), op.results[0]),
                )

    def _note_broadcast(self, op: tile.Op) -> None:
        x, to = op.operands[0].shape, op.results[0].shape
        ahead = len(to) - len(x)
        same = [a for a, n in enumerate(to) if a < ahead or (x[a - ahead] == 1 != n)]
        self._same_along[op.results[0].number] = tuple(same)

    def _note_range(self, op: tile.Op) -> None:
        """Masks such as `iota < n`, and unsigned `iota + base < n`."""
        if isinstance(op, ops.Iota) and op.results[0].dtype in ("i32", "u32", "i64", "index"):
            self._counts.add(op.results[0].number)
        elif isinstance(op, ops.Broadcast) and not op.operands[0].shape:
            self._spread.add(op.results[0].number)
        elif isinstance(op, ops.Add) and op.results[0].dtype == "u32":
            if self._is_count(op.operands):
                self._moved_counts.add(op.results[0].number)
        elif isinstance(op, (ops.Lt, ops.Le)):
            count, limit = op.operands
            if self._is_count(op.operands):
                self.ends[op.results[0].number] = (-1,)
            elif count.number in self._moved_counts and limit.number in self._spread:
                self.ends[op.results[0].number] = (0, -1)

    def _is_count(self, operands: Sequence[tile.Value]) -> bool:
        """Whether the first operand counts, and the second is a scalar in all elements."""
        return operands[0].number in self._counts and operands[1].number in self._spread

    # Elementwise

    @lowers(ops.Select)
    def lower_select(self, op: ops.Select) -> list[Rep]:
        """Of a load that has the same elements where the mask is false, nothing."""
        mask, x, other = op.operands
        other_is = self._constants.get(other.number)
        if other_is is not None and self._masked_loads.get(x.number) == (mask.number, other_is):
            return [self.rep(x)]
        return self.lower_elementwise(op)

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
    def lower_div(self, op: ops.Elementwise) -> list[Rep]:
        """Where a thread has several elements with the same divisor, without so many divisions."""
        x, d = op.operands
        if d.dtype != "f32" or not isinstance(self.rep(x), Held):
            return self.lower_elementwise(op)
        groups = self._equal_registers(d)
        if min(map(len, groups)) < FEWEST:
            return self.lower_elementwise(op)
        elements, divisors = self.in_registers(x), self.in_registers(d)
        parts = [
            divided(self, self.f.shuffle(elements, None, g), self.register(divisors, g[0]))
            for g in groups
        ]
        return [Held(self.joined(parts))]

    def _equal_registers(self, v: tile.Value) -> list[list[int]]:
        """The registers of a tile, neighbours together that are known to hold the same number."""
        if not v.shape:
            return [[0]]
        same = self._same_along.get(v.number, ())

        def where(r: int) -> list[Place]:
            return [place for axis, place in enumerate(places[r]) if axis not in same]

        places = self.places(self.layout(v.shape))
        return [list(g) for _, g in itertools.groupby(range(len(places)), where)]

    @lowers(ops.Elementwise)
    def lower_elementwise(self, op: ops.Elementwise) -> list[Rep]:
        dtype = op.operands[-1].dtype  # `select` has its condition first
        return self._each(op, lambda *xs: self.elementwise(op.name, dtype, *xs, **op.attrs))

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
