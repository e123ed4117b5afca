"""Kernels of regions with reductions.

A program is a row (the reduced axes run in lanes) or a bundle of rows (neighbouring rows run in
lanes), and it makes one pass over its rows for each level of reductions that wait for each other.
Few rows with much to reduce are cut into pieces, and a second kernel combines the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.domain import Domain
from amdjax.schedule.element import El, Lanes, flat_parts, short_dtype
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.index import Index, LoopVar, linear, placed
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.region_kernel import Machine, RegionKernel

STASH_LIMIT = 8192  # elements of a row kept in scratch between passes
SPLIT_WORK = 1 << 15  # elements below which a reduction is not cut into pieces


class RowKernel(RegionKernel):
    """A region with reductions."""

    stash_limit = STASH_LIMIT

    def begin(self) -> None:
        super().begin()
        self.per_row = self.b  # writes what is computed once a row
        self.level = 0
        self.rows: dict[Var, El] = {}
        self.stashed: dict[Var, tuple[tile.Buffer, int]] = {}

    def build(self) -> list[Call]:
        domain = self.domain
        self.reductions = {r: Reduction(r.eqn) for r in self.region.roots if r.is_reduction}
        self.inner = [v for v in domain.vars if v in domain.reduced]
        self.outer = [v for v in domain.vars if v not in domain.reduced]
        self.levels = max(r.level for r in self.region.roots)
        self._choose_lanes()
        pieces = self._pieces()
        if pieces > 1:
            return self._build_pieces(pieces)
        self.begin()
        self._programs(self._passes)
        return [self.finish(self.grid, domain.size * (1 + self.levels))]

    # Shape of the schedule

    def _choose_lanes(self) -> None:
        """Lanes over the reduced axes (a row a program) or over neighbouring rows."""
        vars_, reduced = self.domain.vars, self.domain.reduced
        last = vars_[-1] if vars_ else None
        rows = int(np.prod([v.extent for v in self.outer], dtype=np.int64))
        self.lane_var: LoopVar | None
        if last is None:
            self.lane_var, self.lanes_reduce = None, False
        elif not self.outer:
            self.lane_var, self.lanes_reduce = self.inner[-1], True
        elif not self.inner:
            self.lane_var, self.lanes_reduce = self.outer[-1], False
        elif last in reduced:
            short = last.extent < 16 and rows >= 64 and self.outer[-1].extent >= 8
            self.lane_var, self.lanes_reduce = (self.outer[-1], False) if short else (last, True)
        else:
            narrow = last.extent < 4 and self.inner[-1].extent >= 16
            self.lane_var, self.lanes_reduce = (self.inner[-1], True) if narrow else (last, False)
        self.count = self.lane_count(self.lane_var.extent) if self.lane_var is not None else 0

    @property
    def grid(self) -> int:
        n = int(np.prod([v.extent for v in self.outer], dtype=np.int64))
        if self.lane_var is not None and not self.lanes_reduce:
            n = n // self.lane_var.extent * ceil_div(self.lane_var.extent, self.count)
        return n

    def _pieces(self) -> int:
        """Into how many pieces the outermost reduced loop is cut."""
        if self.levels > 0 or not self.inner or self.domain.size < SPLIT_WORK:
            return 1
        wanted = 4 * self.target.vectors.threads
        if self.grid >= wanted:
            return 1
        most = max(1, self.cut.extent // (self.unit * (8 if self.unit > 1 else 1)))
        return max(1, min(ceil_div(wanted, self.grid), most, self.domain.size // (SPLIT_WORK // 4)))

    @property
    def cut(self) -> LoopVar:
        """The reduced loop that is cut into pieces."""
        return self.inner[0]

    @property
    def unit(self) -> int:
        """Steps of it that stay together."""
        return self.count if self.cut is self.lane_var else 1

    # Programs

    def _programs(self, body: Callable[[], None], pieces: int = 1) -> None:
        """Bind the variables of the grid and write the body for one program."""
        k = self.k
        pid = k.program_id()
        if pieces > 1:
            self.piece = k.op("rem", pid, k.const("index", pieces))
            pid = k.op("div", pid, k.const("index", pieces))
        outer = self.outer
        if self.lane_var is None or self.lanes_reduce:
            self.bind_outer(outer, pid)
            body()
            return
        outer = [v for v in outer if v is not self.lane_var]
        n, blocks = self.lane_var.extent, ceil_div(self.lane_var.extent, self.count)
        base = k.op("rem", pid, k.const("index", blocks)) * self.count
        lane_var = self.lane_var
        self.bind_outer(outer, k.op("div", pid, k.const("index", blocks)))

        def with_mask(mask: tile.Value | None) -> None:
            self.with_lanes([Lanes(lane_var, self.count, 0, base, mask)], body)

        if n % self.count == 0:
            with_mask(None)
            return
        k.if_(
            k.op("le", base + self.count, k.const("index", n)),
            self.b.nested(lambda: with_mask(None)),
            self.b.nested(lambda: with_mask(self.mask(base, self.count, k.const("index", n)))),
        )

    def _passes(self) -> None:
        self.rows, self.stashed = {}, {}
        for level in range(self.levels + 1):
            self.level = level
            self._pass(level)
            self._row_roots(level)

    def _pass(self, level: int) -> None:
        reductions = [r for r in self.region.roots if r.is_reduction and r.level == level]
        elements = [
            r for r in self.region.roots if not r.is_reduction and not r.row and r.level == level
        ]
        elements = [
            r for r in elements if any(v in self.fusion.stored for v in r.vars) or self._stashes(r)
        ]
        if not reductions and not elements:
            return
        totals = self._reduce_loop(reductions, elements)
        for r, accs in zip(reductions, totals, strict=True):
            with self.k.made_from(r.eqn.origin):
                self._finish(r, self.horizontal(self.reductions[r], accs))

    def _finish(self, root: Root, accs: list[El]) -> None:
        """The results of a reduction from its accumulators."""
        finished = self.reductions[root].finish(self.per_row, accs)
        for v, x in zip(root.vars, finished, strict=True):
            self.rows[v] = x
            if v in self.fusion.stored:
                self._store_row(v, x)

    def horizontal(self, rule: Reduction, accs: list[El]) -> list[El]:
        """What the lanes accumulated, combined."""
        return rule.horizontal(self.b, accs) if self.lanes_reduce else accs

    def _row_roots(self, level: int) -> None:
        for r in self.region.roots:
            if r.row and r.level == level:
                for v in r.vars:
                    x = self.rows[v] = self.per_row.value(v, self.domain.row_index(v.aval.shape))
                    if v in self.fusion.stored:
                        with self.k.made_from(r.eqn.origin):
                            self._store_row(v, x)

    def _store_row(self, var: Var, x: El) -> None:
        shape = var.aval.shape
        self.per_row.store(self.output(var), linear(self.domain.row_index(shape), shape), x)

    def _stashes(self, root: Root) -> bool:
        """Whether an expensive value that later passes read is kept in scratch."""
        if not self.lanes_reduce or root.cost <= 8 or root.level == self.levels:
            return False
        per_row = int(np.prod([v.extent for v in self.inner], dtype=np.int64))
        if per_row > self.stash_limit or any(x.aval.dtype.kind == "c" for x in root.vars):
            return False
        own = set(root.vars)
        return any(v in own for r in self.region.roots if r.level > root.level for v, _ in r.reads)

    def _stash_position(self) -> Index:
        position = Index(0)
        for v in self.inner:
            position = position * v.extent + Index.of(v)
        return position

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        if var in self.rows:
            return self.rows[var]
        if var in self.stashed and self.stashed[var][1] < self.level:
            buffer = self.stashed[var][0]
            value = self.b._load(buffer, self._stash_position())
            return El(short_dtype(var.aval.dtype), value)
        root = next((r for r in self.region.roots if var in r.vars), None)
        if (
            root is not None
            and not root.row
            and var in self.fusion.stored
            and root.level < self.level
        ):
            return self.b.load(var, linear(index, var.aval.shape))
        return None

    def _reduce_loop(
        self,
        reductions: Sequence[Root],
        elements: Sequence[Root],
        bounds: tuple[Any, Any] | None = None,
    ) -> list[list[El]]:
        """One pass over the reduced axes; `bounds` limits the outermost loop."""
        k, b = self.k, self.b
        rules = [self.reductions[r] for r in reductions]
        shape = (self.count,) if self.lane_var is not None else ()
        starts = [rule.identity(b) for rule in rules]
        flat = [k.broadcast(p, shape) for els in starts for e in els for p in e.parts]

        def innermost(mask: tile.Value | None, carried: Sequence[tile.Value]) -> list[tile.Value]:
            for r in elements:
                self._element_root(r)
            it = iter(carried)
            out: list[tile.Value] = []
            for rule, start in zip(rules, starts, strict=True):
                accs = [El(e.dtype, *(next(it) for _ in e.parts)) for e in start]
                with k.made_from(rule.eqn.origin):
                    xs = rule.element(b, self.domain.element_index(rule.shape))
                    if mask is not None:
                        keep = El("bool", mask)
                        xs = [b.select(keep, x, e) for x, e in zip(xs, start, strict=True)]
                    merged = rule.merge(b, accs, xs)
                    out += [k.broadcast(p, shape) for e in merged for p in e.parts]
            return out

        def loops(
            remaining: list[LoopVar], carried: Sequence[tile.Value], first: bool
        ) -> Sequence[tile.Value]:
            if not remaining:
                return innermost(None, carried)
            var, rest = remaining[0], remaining[1:]
            low, high = bounds if first and bounds else (0, var.extent)
            if var is self.lane_var:
                return self.lane_loop(
                    var, self.count, low, high, carried, lambda l, *c: innermost(l.mask, c)
                )

            def body(i: tile.Value, *values: tile.Value) -> Sequence[tile.Value]:
                b.scalars[var] = i
                return loops(rest, values, False)

            return k.for_(low, high, 1, b.nested(body), carried)

        order = [v for v in self.inner if v is not self.lane_var]
        if self.lane_var is not None and self.lanes_reduce:
            order.append(self.lane_var)
        result = iter(loops(order, flat, True))
        return [[El(e.dtype, *(next(result) for _ in e.parts)) for e in start] for start in starts]

    def _element_root(self, root: Root) -> None:
        for v in root.vars:
            index = self.domain.element_index(v.aval.shape)
            x = self.b.value(v, index)
            with self.k.made_from(root.eqn.origin):
                if v in self.fusion.stored:
                    self.b.store(self.output(v), linear(index, v.aval.shape), x)
                elif self._stashes(root):
                    self._stash(v, x, root.level)

    def _stash_size(self) -> int:
        per_row = int(np.prod([v.extent for v in self.inner], dtype=np.int64))
        return per_row + self.count

    def _stash(self, var: Var, x: El, level: int) -> None:
        if var not in self.stashed:
            name, dtype = f"s{len(self.stashed)}", x.value.dtype
            buffer = self.k.scratch(name, dtype, self._stash_size())
            self.stashed[var] = (buffer, level)
        self.b._store(self.stashed[var][0], self._stash_position(), x.value)

    # Reductions in pieces

    def _length(self, pieces: int) -> int:
        """Steps of the loop in a piece of it."""
        return ceil_div(self.cut.extent, pieces * self.unit) * self.unit

    def _bounds(self, pieces: int) -> tuple[Any, Any]:
        """Where this program's piece of the loop begins and ends."""
        k, length = self.k, self._length(pieces)
        low = k.op("mul", self.piece, k.const("index", length))
        return low, k.op("min", low + length, k.const("index", self.cut.extent))

    def _piece_totals(self, pieces: int) -> list[tuple[Root, list[El]]]:
        """What this program's piece contributes to each reduction."""
        bounds = self._bounds(pieces)
        roots = [r for r in self.region.roots if r.is_reduction]
        elements = [r for r in self.region.roots if not r.is_reduction and not r.row]
        elements = [r for r in elements if any(v in self.fusion.stored for v in r.vars)]
        totals = self._reduce_loop(roots, elements, bounds)
        out = []
        for r, accs in zip(roots, totals, strict=True):
            with self.k.made_from(r.eqn.origin):
                out.append((r, self.horizontal(self.reductions[r], accs)))
        return out

    def _build_pieces(self, pieces: int) -> list[Call]:
        """Partial results for each piece, then a kernel that combines them."""
        pieces = ceil_div(self.cut.extent, self._length(pieces))  # that are not empty
        rows = int(np.prod([v.extent for v in self.outer], dtype=np.int64))
        self.begin()
        partials: dict[Root, list[Temp]] = {}

        def body() -> None:
            for r, accs in self._piece_totals(pieces):
                with self.k.made_from(r.eqn.origin):
                    parts = flat_parts(accs)
                    if r not in partials:
                        partials[r] = [Temp(p.dtype, pieces * rows) for p in parts]
                    for temp, part in zip(partials[r], parts, strict=True):
                        buffer = self.param(temp, temp.dtype, "out")
                        self._store_partial(buffer, part, rows)

        self._programs(body, pieces)
        first_call = self.finish(self.grid * pieces, self.domain.size)
        return [first_call, self._combine(partials, pieces, rows)]

    def _store_partial(self, buffer: tile.Buffer, part: tile.Value, rows: int) -> None:
        row = Index(0)
        for v in self.outer:
            row = row * v.extent + Index.of(v)
        b = self.per_row
        piece = LoopVar("piece", 1 << 30)
        b.scalars[piece] = self.piece
        b._store(buffer, Index.of(piece) * rows + row, part)

    def _combine(self, partials: dict[Root, list[Temp]], pieces: int, rows: int) -> Call:
        return CombineKernel(
            self.region, self.fusion, self.target, self.reductions, partials, pieces, rows
        ).build()


class CombineKernel(RegionKernel):
    """Combines partial results of a reduction and computes what follows from them per row."""

    def __init__(
        self,
        region: Region,
        fusion: Fusion,
        target: Machine,
        reductions: dict[Root, Reduction],
        partials: dict[Root, list[Temp]],
        pieces: int,
        rows: int,
    ):
        self.partials, self.pieces, self.total_rows = partials, pieces, rows
        self.reductions = reductions
        super().__init__(region, fusion, target, Domain.of_rows(region, fusion))

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        root = next((r for r in self.partials if var in r.vars), None)
        if root is None:
            return None
        rule, temps = self.reductions[root], self.partials[root]
        position = linear(index, var.aval.shape)

        def step(k: tuple[Index, ...], accs: list[El]) -> list[El]:
            it = iter(temps)
            xs = []
            for a in accs:
                buffers = [self.param(t, t.dtype, "in") for t in (next(it) for _ in a.parts)]
                xs.append(
                    El(
                        a.dtype,
                        *(self.b._load(u, k[0] * self.total_rows + position) for u in buffers),
                    )
                )
            return rule.merge(self.b, accs, xs)

        with self.k.made_from(root.eqn.origin):
            accs = self.b.fold([self.pieces], rule.identity(self.b), step)
            return rule.finish(self.b, accs)[root.vars.index(var)]

    def store_rows(self, symbols: Sequence[Index]) -> None:
        """Store what belongs to the row at `symbols`, its place along each axis."""
        for root in self.region.roots:
            if not (root.is_reduction or root.row):
                continue
            for v in root.vars:
                if v in self.fusion.stored:
                    index = placed(symbols, v.aval.shape)
                    x = self.b.value(v, index)
                    with self.k.made_from(root.eqn.origin):
                        self.b.store(self.output(v), linear(index, v.aval.shape), x)

    def build(self) -> Call:
        k, n = self.k, self.total_rows
        row = LoopVar("row", n)
        symbols = self.b.delinear(Index.of(row), self.region.row_shape)

        def body(lanes: Lanes | None = None) -> Sequence[tile.Value]:
            self.store_rows(symbols)
            return ()

        if n == 1:
            body()
            return self.finish(1, self.pieces)
        count = self.lane_count(n)
        start = k.program_id() * count
        stop = k.op("min", start + count, k.const("index", n))
        self.lane_loop(row, count, start, stop, (), body)
        return self.finish(ceil_div(n, count), n * self.pieces)
