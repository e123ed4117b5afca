"""Writes kernels of regions without reductions, as plans of maps say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax import tile
from amdjax.core.dims import is_multiple, surely_equal
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.index import Index, LoopVar, Symbol, linear
from amdjax.schedule.map_plan import CpuMapPlan, Part, Transposition
from amdjax.schedule.values import El, Lanes
from amdjax.schedule.writer import RegionWriter


class MapEmitter:
    """What kernels of maps have in common.

    Args:
      plan: of the region.
      region: what is computed.
      fusion: of the program.
      target: the machine.
      name: of the kernel.
      elements: what writes elements.
    """

    def __init__(
        self, plan: Any, region: Region, fusion: Fusion, target: Any, name: str = "kernel",
        elements: type[ElementBuilder] = ElementBuilder,
    ):  # fmt: skip
        self.plan, self.region, self.fusion, self.domain = plan, region, fusion, plan.domain
        self.w = RegionWriter(region, fusion, target, plan.domain, name, elements)
        self.k, self.b = self.w.k, self.w.b

    def store_roots(self, steps: Sequence[dict[Symbol, Index]] = ({},)) -> None:
        """Compute the values of this point, then store them: a result may lie over an input.

        `steps` are values of loops at several points. Points share what does not depend on them.
        """
        places: dict[tuple[Root, Var], list[tuple[Index, El]]] = {}
        for step in steps:
            for root in self.region.roots:
                if root.loop is not None:  # its steps store what they make
                    self.b.results(root.eqn, self.domain.element_index(root.loop.shape))
                for v in root.points:
                    if v in self.fusion.stored:
                        index = self.domain.root_index(root, v)
                        index = tuple(i.substitute(step) for i in index)
                        place, x = linear(index, v.aval.shape), self.b.value(v, index)
                        places.setdefault((root, v), []).append((place, x))
        self.w.store_steps(places)


class CpuMapEmitter(MapEmitter):
    """Kernels of maps on a CPU."""

    plan: CpuMapPlan

    def call(self) -> Call:
        """The launch that computes the region."""
        plan = self.plan
        if plan.lane_var is None:
            self.store_roots()
            return self.w.finish(1, 1)
        if plan.transposition is not None:
            self._squares(plan.lane_var, plan.transposition)
        elif plan.flat:
            self._flat(plan.lane_var)
        else:
            self._blocks(plan.lane_var)
        return self.w.finish(plan.grid, plan.domain.size)

    def _lane_loop(self, var: LoopVar, start: tile.Value | int, stop: tile.Value | int) -> None:
        unrolled = self.plan.unrolled
        steps: list[dict[Symbol, Index]] = [{}]
        if unrolled is not None:
            steps = [{unrolled: Index(i)} for i in range(unrolled.extent)]

        def body(lanes: Lanes) -> Sequence[tile.Value]:
            self.store_roots(steps)
            return ()

        masked = self.plan.is_masked
        self.w.lane_loop(var, self.plan.count, start, stop, (), body, masked=masked)

    def _flat(self, var: LoopVar) -> None:
        k, chunk = self.k, self.plan.chunk
        size = self.w.param(var.extent, "index", "size")
        start = k.program_id() * chunk
        self._lane_loop(var, start, k.min(start + chunk, k.size(size)))

    def _blocks(self, lane_var: LoopVar) -> None:
        k, plan = self.k, self.plan
        pid, start, stop = k.program_id(), None, None
        if not surely_equal(plan.chunks, 1):
            chunks = k.const("index", plan.chunks)
            start = (pid % chunks) * plan.chunk
            stop = k.min(start + plan.chunk, lane_var.extent)
            pid = pid // plan.chunks
        lanes = lambda: self._ranges(lane_var, plan.ranges, start, stop, self._lane_loop)
        if plan.span == 1:
            self.w.bind_outer(plan.outer, pid)
            self._inner_loops(plan.inner, None, lanes)
            return
        last, spans = plan.outer[-1], plan.spans
        self.w.bind_outer(plan.outer[:-1], pid // spans)
        first = (pid % spans) * plan.span
        self._inner_loops(
            (last, *plan.inner), (first, k.min(first + plan.span, last.extent)), lanes
        )

    def _ranges(
        self, var: LoopVar, ranges: Sequence[Part], start: tile.Value | None,
        stop: tile.Value | None, loop: Callable[..., None],
    ) -> None:  # fmt: skip
        """The parts of a loop, as far as they lie between two places, one by one."""
        for part in ranges:
            low: tile.Value | int = part.start
            high: tile.Value | int = part.stop
            if start is not None and stop is not None:
                low = self.k.max(start, low)
                high = self.k.max(self.k.min(stop, high), low)
            with var.within(part.start, part.stop):
                loop(var, low, high)

    def _inner_loops(
        self, variables: Sequence[LoopVar], span: tuple[tile.Value, tile.Value] | None,
        body: Callable[[], Any],
    ) -> None:  # fmt: skip
        """A nest of scalar loops around `body`, the first one over a span if there is one."""
        if not variables:
            body()
            return
        first, *rest = variables
        parts = (Part(0, first.extent),) if rest else self.plan.inner_ranges
        start, stop = span or (None, None)

        def loop(var: LoopVar, low: tile.Value | int, high: tile.Value | int) -> None:
            def step(i: tile.Value) -> None:
                self.b.scalars[var] = i
                self._inner_loops(rest, None, body)

            self.k.for_(low, high, 1, self.b.nested(step))

        self._ranges(first, parts or (Part(0, first.extent),), start, stop, loop)

    def _squares(self, lane_var: LoopVar, square: Transposition) -> None:
        """Square tiles: what lies the other way is transposed in registers."""
        k, w, across, side, block = self.k, self.w, square.operand_var, square.side, square.block
        pid = k.program_id()
        places: list[tile.Value] = []
        for n_blocks in reversed(self.plan.blocks):
            places.insert(0, (pid % n_blocks) * block)
            pid = pid // n_blocks
        w.bind_outer(self.plan.outer, pid)
        stops = [
            k.min(p + block, v.extent) for p, v in zip(places, (across, lane_var), strict=True)
        ]

        def tile_at(i: tile.Value, j: tile.Value) -> None:
            whole = ((i + side) <= stops[0]) & ((j + side) <= stops[1])

            def full() -> None:
                lanes = [Lanes(across, side, 0, i), Lanes(lane_var, side, 1, j)]
                w.with_lanes(lanes, self.store_roots)

            def part() -> None:
                """Row by row: of a masked square each row would be written out."""
                mask = w.mask(j, side, stops[1])

                def row(r: tile.Value) -> None:
                    self.b.scalars[across] = r
                    w.with_lanes([Lanes(lane_var, side, 0, j, mask)], self.store_roots)

                k.for_(i, k.min(i + side, stops[0]), 1, self.b.nested(row))

            if is_multiple(across.extent, side) and is_multiple(lane_var.extent, side):
                full()
            else:
                k.if_(whole, self.b.nested(full), self.b.nested(part))

        def rows(i: tile.Value) -> None:
            k.for_(places[1], stops[1], side, self.b.nested(lambda j: tile_at(i, j)))

        # Squares take a cache line a row at a time, which memory is slow to serve.
        transposed = [w.memory(v) for v in square.transposed]
        k.for_(places[0], stops[0], side, self.b.nested(rows), prefetch=transposed)
