"""Products that read their operands where they lie: what their kernels share."""

from __future__ import annotations

from dataclasses import replace

from amdjax import tile
from amdjax.core.dims import surely_equal
from amdjax.kernels.products.contraction import Contraction, Sink, Source, lane_count
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.split_k import combine_parts, split_sink
from amdjax.kernels.products.writing import Writer
from amdjax.kernels.shaped import Call, ShapedContext

Value = tile.Value


def plain_contraction(p: Contraction) -> Contraction | None:
    """A real contraction with one loop each, its columns many; None where there are more loops."""
    if p.is_complex or not p.depth or not _is_plain(p):
        return None
    return p.swapped() if p.columns == 1 and p.rows > 1 else p


def _is_plain(problem: Contraction) -> bool:
    """Whether rows, columns and depth are one loop each, without limits."""
    sources = (problem.a, problem.b)
    if any(s.limits or len(s.lines) > 1 or len(s.depth) > 1 for s in sources):
        return False
    return len(problem.out.rows) <= 1 and len(problem.out.columns) <= 1


def stride_of(axes: tuple) -> int:
    return axes[0].stride if axes else 1


class PlainProduct:
    """The launches of a contraction of one loop each.

    Args:
      splits: parts of the depth that different programs sum.
    """

    def __init__(self, ctx: ShapedContext, problem: Contraction, splits: int):
        self.ctx, self.problem, self.target, self.splits = ctx, problem, ctx.target, splits
        self.lanes = lane_count(ctx.target, problem.accumulate)

    def calls(self) -> list[Call]:
        p, splits = self.problem, self.splits
        if splits > 1:
            sink, temp = split_sink(p, splits)
            return [self._product(sink), combine_parts(self.ctx, p, temp, splits)]
        return [self._product(p.out)]

    def _product(self, sink: Sink) -> Call:
        """The kernel, which writes to `sink`."""
        raise NotImplementedError

    def begin(self, name: str, sink: Sink, blocks: list[int]) -> tuple[list[Value], Value | None]:
        """Open the kernel; returns the place along each of `blocks` and the part of the depth."""
        p, splits = self.problem, self.splits
        self.program = program = Program(self.ctx, name)
        self.k = k = program.k
        self.a = program.buffer(p.a.owner, p.a.dtype)
        if self.ctx.computed is None:
            self.b = program.buffer(p.b.owner, p.b.dtype)
        pid = k.program_id()
        places: list[Value] = []
        for n in reversed(blocks):
            one = surely_equal(n, 1)
            places.insert(0, k.const("index", 0) if one else pid % n)
            pid = pid if one else pid // n
        part = None
        if splits > 1:
            part = pid % splits
            pid = pid // splits
        batch = program.split(pid, "batch", p.out.batch)
        self.a_base, self.b_base = (self._start(s, batch) for s in (p.a, p.b))
        digits = batch if part is None else [part, *batch]
        self.writer = Writer(program, replace(p, out=sink), digits)
        return places, part

    def _start(self, source: Source, batch: list[Value]) -> Value:
        base = self.k.const("index", source.offset)
        for axis, digit in zip(source.batch, batch):
            if axis.stride:
                base = base + digit * axis.stride
        return base

    def load(
        self,
        buffer: tile.Buffer,
        at: Value,
        stride: int,
        shape: tuple[int, ...],
        mask: Value | None = None,
    ) -> Value:
        x = self.k.load(buffer, at, shape, (stride,) if shape else None, mask)
        return self.k.convert(x, self.problem.accumulate)
