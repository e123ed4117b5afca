"""Products on windows that are written out first: explicit columns.

What several loops and limits tell of an operand becomes a plain matrix in memory, with its zeros:
each window of a convolution is a line of it, and so are the windows of each tap for the gradient of
a kernel. A product of plain matrices follows. That costs memory and time for as many copies of an
element as windows see it, and pays where windows overlap little, where they are read often, or
where runs of neighboring elements are too short to be packed well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import Dim, choosing, size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    ProductProblem,
    Source,
    lane_count,
    private_cache,
)
from amdjax.kernels.products.cpu.costs import (
    is_aliased,
    launch,
    nanoseconds,
    packing,
    return_cycles,
)
from amdjax.kernels.products.cpu.packing import copy_lines
from amdjax.kernels.products.cpu.reading import Part, Reader
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, Copy, InOrder, KernelPlan, ShapedContext, Temp
from amdjax.schedule.search import Family, Solver
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

MOST_BYTES = 256 << 20  # of a matrix that is written out
MOST_PROGRAMS = 4  # that copy, for each thread


@dataclass(frozen=True)
class ExplicitColumnsPlan:
    """An operand as a matrix, and a product of matrices.

    Args:
      problem: the contraction, merged.
      operand: which one is written out, `a` or `b`.
      source: it, its lines those of the matrix: by line, or turned, by depth.
      matrix: where it goes.
      pitch: elements from one line of the matrix to the next.
      chunk: lines that a program copies.
      product: how the product is computed.
    """

    problem: Contraction
    operand: str
    source: Source
    matrix: Temp
    pitch: int
    chunk: int
    product: KernelPlan

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return [self._copy(ctx), *self.product.emit(ctx)]

    def __str__(self) -> str:
        lines, depth = self.source.line_count, self.source.depth_count
        return f"explicit columns, {lines}×{depth} of {self.problem}, {self.product}"

    @property
    def batches(self) -> int:
        """Matrices that differ."""
        return math.prod(axis.extent for axis in _moving(self.source))

    def cycles(self, target: CpuTarget) -> float:
        """Of copying, about, and of what leaves the second-level cache."""
        source = self.source.at_hand()
        nbytes = size_hint(self.matrix.size) * itemsize(self.matrix.dtype)
        lines, depth = min(self.chunk, source.line_count), source.depth_count
        each = packing(source, lines, depth, 1, target, self.problem.accumulate)
        programs = size_hint(self.batches) * ceil_div(source.line_count, self.chunk)
        cycles = launch(each, programs, target)
        if nbytes > private_cache(target):
            each_byte = 1 / target.costs.memory_rate + return_cycles(nbytes, target)
            cycles += nbytes * each_byte / target.threads
        return cycles

    def _copy(self, ctx: ShapedContext) -> Call:
        """The launch that writes the matrix."""
        program = Program(ctx, "columns")
        k, source = program.k, self.source
        own = _moving(source)
        reader = Reader(program, replace(source, batch=own), self.operand)
        matrix = program.buffer(self.matrix, source.dtype, "out")
        chunks = ceil_div(source.line_count, self.chunk)
        pid = k.program_id()
        entry, first = pid // chunks, (pid % chunks) * self.chunk
        depth = k.const("index", source.depth_count)
        batch = program.split(entry, "batch", own)
        part = Part.of(reader, batch, first, k.const("index", 0), depth)
        count = k.min(k.const("index", source.line_count) - first, self.chunk)
        lanes = lane_count(ctx.target, self.problem.accumulate)
        at = (entry * source.line_count + first) * self.pitch
        copy_lines(part, count, matrix, self.pitch, lanes, whole=True, at=at)
        time = nanoseconds(self.cycles(replace(ctx.target, threads=1)), ctx.target)
        if isinstance(self.matrix.size, Dim):
            time = time / size_hint(self.matrix.size) * self.matrix.size
        return program.launch(self.batches * chunks, time)


def _moving(source: Source) -> tuple[Axis, ...]:
    """The loops over a batch that move an operand."""
    return tuple(axis for axis in source.batch if axis.stride or any(axis.shifts))


def explicit_columns(
    products: Family[ProductProblem, CpuTarget, KernelPlan],
) -> Solver[ProductProblem, CpuTarget, ExplicitColumnsPlan]:
    """The algorithm; `products` are by what it multiplies."""

    def plans(product: ProductProblem, target: CpuTarget) -> list[ExplicitColumnsPlan]:
        p = product.merged
        written = _written(p, target)
        if written is None:
            return []
        matrix = _matrix_source(p, written)
        plain = replace(p, a=matrix) if written.operand == "a" else replace(p, b=matrix)
        return [replace(written, product=products.best(ProductProblem.of(plain), target))]

    def cost(product: ProductProblem, plan: ExplicitColumnsPlan, target: CpuTarget) -> float:
        return nanoseconds(plan.cycles(target), target)

    return Solver("explicit columns", plans, cost, least=_least_cost, composite=True)


def _written(p: Contraction, target: CpuTarget) -> ExplicitColumnsPlan | None:
    """How an operand is written out, not what multiplies it; None where none is."""
    found = _operand(p)
    if found is None:
        return None
    operand, source = found
    lanes = lane_count(target, p.accumulate)
    pitch = round_up(source.depth_count + lanes, 16)
    pitch += 16 * is_aliased(size_hint(pitch), source.dtype)
    size = math.prod(axis.extent for axis in _moving(source)) * source.line_count * pitch
    with choosing():
        if size * itemsize(source.dtype) > MOST_BYTES:
            return None
    matrices = size_hint(size // (source.line_count * pitch))
    wanted = ceil_div(MOST_PROGRAMS * target.threads, matrices)
    chunk = ceil_div(size_hint(source.line_count), wanted)
    matrix = Temp(source.dtype, size + lanes)
    return ExplicitColumnsPlan(p, operand, source, matrix, pitch, chunk, InOrder())


def _matrix_source(p: Contraction, plan: ExplicitColumnsPlan) -> Source:
    """What is written out, as the product reads it."""
    source, pitch = plan.source, plan.pitch
    moving = _moving(source)
    batch, stride = [], math.prod(axis.extent for axis in moving) * source.line_count * pitch
    for axis in source.batch:
        own = axis in moving
        stride //= axis.extent if own else 1
        batch.append(Axis(axis.extent, stride if own else 0))
    lines, depth = Axis(source.line_count, pitch), Axis(source.depth_count, 1)
    if source is not getattr(p, plan.operand):
        lines, depth = depth, lines
    return Source(plan.matrix, source.dtype, 0, tuple(batch), (lines,), (depth,))


def _least_cost(product: ProductProblem, target: CpuTarget) -> float:
    """Nanoseconds of copying, and of two multiply-adds of vectors a cycle.

    Zero of symbolic sizes, and of what words or a matrix unit may multiply in less.
    """
    p = product.merged
    if p.at_hand is not p or p.accumulate not in tile.FLOATS or target.matrix_dtypes:
        return 0.0
    written = _written(p, target)
    if written is None:
        return math.inf
    multiplied = p.batches * p.rows * p.columns * p.depth / lane_count(target, p.accumulate) / 2
    return nanoseconds(written.cycles(target) + multiplied / target.threads, target)


def _operand(p: Contraction) -> tuple[str, Source] | None:
    """The operand that is no plain matrix, its longest contiguous loop last; None if all are."""
    if p.is_complex or not p.depth:
        return None
    for name, source in (("a", p.a), ("b", p.b)):
        if not source.limits and len(source.lines) <= 1 and len(source.depth) <= 1:
            continue
        turned = replace(source, lines=source.depth, depth=source.lines).merged()
        ways = [way for way in (source, turned) if way.depth and way.depth[-1].stride == 1]
        if ways:
            return name, max(ways, key=lambda way: size_hint(way.depth[-1].extent))
    return None
