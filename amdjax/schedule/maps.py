"""Kernels of regions without reductions: programs are blocks of the domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.core.integers import ceil_div, round_up
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call
from amdjax.schedule.element import CACHE_LINE, Lanes
from amdjax.schedule.index import LoopVar, Quotient, linear
from amdjax.schedule.region_kernel import STREAM_FROM, RegionKernel

CHUNK = 4096  # elements that a program handles ...
CHUNK_COST = 4 << 20  # ... unless they cost more than this together


class MapKernel(RegionKernel):
    """A region without reductions."""

    def build(self) -> Call:
        domain = self.domain
        if not domain.vars:
            self.store_roots()
            return self.finish(1, 1)
        lane_var = self._lane_var()
        across = self._across(lane_var)
        if across is not None:
            return self._build_transposing(lane_var, across)
        if self._is_flat():
            return self._build_flat(lane_var)
        return self._build_blocks(lane_var)

    def store_roots(self) -> None:
        """Compute the values of this point, then store them: a result may lie over an input."""
        values = []
        for root in self.region.roots:
            if root.loop is not None:  # its steps store what they make
                self.b.results(root.eqn, self.domain.element_index(root.loop.shape))
            for v in root.points:
                if v in self.fusion.stored:
                    index = self.domain.root_index(root, v)
                    place, x = linear(index, v.aval.shape), self.b.value(v, index)
                    values.append((v, place, x, root.eqn.origin))
        for v, position, x, origin in values:
            with self.k.made_from(origin):
                self.b.store(self.output(v), position, x)

    def _lane_var(self) -> LoopVar:
        """The loop whose neighbours lie side by side in most accesses."""

        def score(var: LoopVar) -> float:
            total = 0.0
            for _, o in self.domain.stores:
                total += 4.0 if o.coefficient(var) == 1 else 0.0
            for _, o in self.domain.loads:
                total += 2.0 if o.coefficient(var) == 1 else 1.0 if not o.depends_on(var) else 0.0
            return total if var.extent >= 8 else total * var.extent / 16

        return max(reversed(self.domain.vars), key=score)

    def _across(self, lane_var: LoopVar) -> LoopVar | None:
        """A loop along which some access is contiguous while it strides along the lanes."""
        if self.domain.widest > 64 or lane_var.extent < 8 or self.domain.operations > 100:
            return None
        for _, o in self.domain.loads:
            if o.coefficient(lane_var) in (0, 1) or any(
                isinstance(s, Quotient) for s, _ in o.terms
            ):
                continue
            for var in self.domain.vars:
                if var is not lane_var and var.extent >= 8 and o.coefficient(var) == 1:
                    return var
        return None

    def _is_flat(self) -> bool:
        """Whether one code serves every length: a single loop, nothing depends on its extent."""
        offsets = [o for _, o in self.domain.loads + self.domain.stores]
        plain = all(o.const == 0 and all(c == 1 for _, c in o.terms) for o in offsets)
        return len(self.domain.vars) == 1 and not self.domain.irregular and plain

    def _build_flat(self, var: LoopVar) -> Call:
        k, n = self.k, var.extent
        count = self.lane_count(1 << 20)
        size = self.param(n, "index", "size")
        chunk = self._chunk(count)
        start = k.program_id() * chunk
        stop = k.op("min", start + chunk, k.size(size))

        def body(lanes: Lanes) -> Sequence[tile.Value]:
            self.store_roots()
            return ()

        self.lane_loop(var, count, start, stop, (), body)
        return self.finish(ceil_div(n, chunk), n)

    def _build_blocks(self, lane_var: LoopVar) -> Call:
        k, n = self.k, lane_var.extent
        count = self.lane_count(n)
        outer = [v for v in self.domain.vars if v is not lane_var]
        most = self._chunk(count)
        chunk = min(n, most)
        chunks = ceil_div(n, chunk)
        pid = k.program_id()
        start: tile.Value | int = 0
        stop: tile.Value | int = n
        if chunks > 1:
            start = k.op("mul", k.op("rem", pid, k.const("index", chunks)), k.const("index", chunk))
            stop = k.op("min", start + chunk, k.const("index", n))
            pid = k.op("div", pid, k.const("index", chunks))
        inner = self._inner_loops(outer, n, most)
        self.bind_outer(outer, pid)

        def body(lanes: Lanes) -> Sequence[tile.Value]:
            self.store_roots()
            return ()

        self._loop_over(inner, lambda: self.lane_loop(lane_var, count, start, stop, (), body))
        rows = int(np.prod([v.extent for v in outer], dtype=np.int64))
        return self.finish(rows * chunks, self.domain.size)

    def _chunk(self, count: int) -> int:
        """Elements that a program handles, whole tiles."""
        most = min(CHUNK, int(CHUNK_COST / max(self.domain.cost, 1.0)))
        return round_up(max(most, 1), count)

    @staticmethod
    def _inner_loops(outer: list[LoopVar], row: int, most: int) -> list[LoopVar]:
        """Move loops from the grid into the program, until it has work enough to be worth one."""
        inner: list[LoopVar] = []
        while outer and row * outer[-1].extent <= most:
            row *= outer[-1].extent
            inner.insert(0, outer.pop())
        return inner

    def _loop_over(self, variables: Sequence[LoopVar], body: Callable[[], Any]) -> None:
        """A nest of scalar loops around `body`."""
        if not variables:
            body()
            return

        def step(i: tile.Value) -> None:
            self.b.scalars[variables[0]] = i
            self._loop_over(variables[1:], body)

        self.k.for_(0, variables[0].extent, 1, self.b.nested(step))

    def _build_transposing(self, lane_var: LoopVar, across: LoopVar) -> Call:
        """Square tiles: what lies the other way is transposed in registers."""
        k = self.k
        side = 16 if self.domain.widest <= 32 and self.target.vectors.vector_bits >= 512 else 8
        far = self._far_operands(lane_var, across)
        block = (8 if far else 4) * side
        outer = [v for v in self.domain.vars if v is not lane_var and v is not across]
        counts = [ceil_div(v.extent, block) for v in (across, lane_var)]
        pid = k.program_id()
        places: list[tile.Value] = []
        for n_blocks in reversed(counts):
            places.insert(0, k.op("rem", pid, k.const("index", n_blocks)) * block)
            pid = k.op("div", pid, k.const("index", n_blocks))
        self.bind_outer(outer, pid)
        stops = [
            k.op("min", p + block, k.const("index", v.extent))
            for p, v in zip(places, (across, lane_var), strict=True)
        ]

        def tile_at(i: tile.Value, j: tile.Value) -> None:
            whole = k.op("and", k.op("le", i + side, stops[0]), k.op("le", j + side, stops[1]))

            def full() -> None:
                self._square(across, lane_var, side, i, j, None, None)

            def part() -> None:
                masks = self.mask(i, side, stops[0]), self.mask(j, side, stops[1])
                self._square(across, lane_var, side, i, j, *masks)

            if across.extent % side == 0 and lane_var.extent % side == 0:
                full()
            else:
                k.if_(whole, self.b.nested(full), self.b.nested(part))

        for v, distance in far:
            self._fetch_rows(self.memory(v), distance, places, block)
        rows = self.b.nested(
            lambda i: (
                k.for_(places[1], stops[1], side, self.b.nested(lambda j: tile_at(i, j))) and None
            )
        )
        k.for_(places[0], stops[0], side, rows)
        batches = int(np.prod([v.extent for v in outer], dtype=np.int64))
        return self.finish(batches * counts[0] * counts[1], self.domain.size)

    def _far_operands(self, lane_var: LoopVar, across: LoopVar) -> list[tuple[Var, int]]:
        """Operands beyond the caches that lie the other way, and the distance of their rows."""
        return [
            (v, distance)
            for v, o in self.domain.loads
            if v.aval.nbytes >= STREAM_FROM
            and o.coefficient(across) == 1
            and (distance := o.coefficient(lane_var)) > 1
            and len(o.terms) == 2
            and o.const == 0
        ]

    def _fetch_rows(
        self, buffer: tile.Buffer, distance: int, places: Sequence[tile.Value], block: int
    ) -> None:
        """Ask for a block of an operand row by row, as it lies in memory.

        The squares take it a cache line a row at a time, which memory is slow to serve.
        """
        k, line = self.k, CACHE_LINE // tile.itemsize(buffer.dtype)

        def row(i: tile.Value) -> None:
            start = k.op("add", k.op("add", places[1], i) * distance, places[0])
            for at in range(0, block, line):
                k.prefetch(buffer, start + at, level=2)

        k.for_(0, block, 1, self.b.nested(row))

    def _square(
        self,
        across: LoopVar,
        lane_var: LoopVar,
        side: int,
        i: tile.Value,
        j: tile.Value,
        row_mask: tile.Value | None,
        column_mask: tile.Value | None,
    ) -> None:
        k = self.k
        lanes = [
            Lanes(across, side, 0, i, None if row_mask is None else k.expand(row_mask, 1)),
            Lanes(lane_var, side, 1, j, None if column_mask is None else k.expand(column_mask, 0)),
        ]
        self.with_lanes(lanes, self.store_roots)
