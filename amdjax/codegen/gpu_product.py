"""The loop of a matrix product on a workgroup: memory → registers → LDS → the matrix unit.

Each thread brings a few cells (16 bytes of the depth of one line) of both operands' next tiles from
global memory into registers while the workgroup multiplies the tiles in LDS, and then puts them
there. Sums stay in the layout of the unit until the end; through LDS they reach the layout that all
tiles have, so that what follows is coalesced and knows nothing of matrix units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from amdjax.codegen import llvm, tile
from amdjax.codegen.emitter import Emitter
from amdjax.codegen.gpu_fetch import Fetch, Operand, Places
from amdjax.codegen.gpu_matrix import (
    CELL_BYTES,
    Tiling,
    emit_digits,
    i32,
    lds_address,
    log2,
)
from amdjax.codegen.gpu_tiles import GpuTiles, Held, Rep
from amdjax.codegen.llvm import Type, Value

CELL = Type("i32", 4)


class GpuProducts(GpuTiles):
    """Products of matrices in a kernel for a GPU."""

    def op_contract(self, op: tile.Op) -> list[Rep]:
        start, stop, *origins = (self.scalar(v) for v in op.operands)
        sides = op.attrs["sides"]

        def places(block: tile.Block) -> Places:
            def at(number: Value) -> list[Value]:
                self.reps[block.args[0].number] = number
                with self.scope():  # no memory is accessed there, so that barriers need no arm
                    return [_scalar(rep) for rep in Emitter.block(self, block)]

            return at

        operands = []
        for i, side in enumerate(sides):
            self.access(side.buffer, "read")
            address = self.addresses[side.buffer.name]
            lines, depth = places(op.blocks[i]), places(op.blocks[2 + i])
            operands.append(Operand(side, address, lines, depth, *origins[2 * i : 2 * i + 2]))
        product = _Product(self, op.attrs["tiling"], operands)
        sums = self.joined(product.loop(start, stop, op.attrs["ragged"]))
        return [Held(sums if sums.type.lanes > 1 else self.register(sums, 0))]


class _Product:
    """One product, from the first load to sums in the layout of every tile."""

    def __init__(self, gen: GpuTiles, tiling: Tiling, operands: Sequence[Operand]):
        self.gen, self.f, self.tiling, self.unit = gen, gen.f, tiling, tiling.unit
        self.wave_size, self.thread = gen.isa.wave, gen.threads.number
        self.fetches = [
            Fetch(gen, tiling, operand, lines)
            for operand, lines in zip(operands, (tiling.rows, tiling.columns), strict=True)
        ]
        self.stage = sum(x.planes.cells for x in self.fetches) * CELL_BYTES
        self.memory = self._lds(self.stage * tiling.stages)
        self.fetches[1].origin = self.fetches[0].planes.cells * CELL_BYTES
        self._place_lanes()

    def _lds(self, nbytes: int) -> Value:
        buffer = self.gen.temporary("u8", nbytes)
        self.gen.access(buffer, "write")
        return self.gen.addresses[buffer.name]

    def _barrier(self) -> None:
        self.gen.isa.barrier(self.f, self.gen.workgroup // self.wave_size, only_lds=True)

    def _place_lanes(self) -> None:
        """Addresses of the first cells that a lane reads, in bytes from the stage's."""
        f, unit, tiling = self.f, self.unit, self.tiling
        lane = f.and_(self.thread, i32(self.wave_size - 1))
        wave = self.gen.uniform(f.lshr(self.thread, i32(log2(self.wave_size))))
        across = log2(tiling.waves[1])
        self.lane = lane
        self.waves = (f.lshr(wave, i32(across)), f.and_(wave, i32(tiling.waves[1] - 1)))
        self.reads = []
        for x, number, fragments, digits, group, m in zip(
            self.fetches, self.waves, tiling.fragments, unit.line, unit.group, (unit.m, unit.n),
            strict=True,
        ):  # fmt: skip
            line = f.add(f.mul(number, i32(fragments * m)), emit_digits(f, digits, lane))
            plane = f.mul(emit_digits(f, group, lane), i32(unit.cells * x.planes.plane))
            cell = f.add(plane, emit_digits(f, x.planes.line_digits, line))
            self.reads.append(f.add(f.mul(cell, i32(CELL_BYTES)), i32(x.origin)))

    def loop(self, start: Value, stop: Value, ragged: bool) -> list[Value]:
        f, depth = self.f, self.tiling.depth
        limit = stop if ragged else None
        step = llvm.const(start.type, depth)
        self._store(self._load(start, limit), i32(0))
        zeros = [llvm.zero(self.unit.sums)] * math.prod(self.tiling.fragments)
        last = f.sub(stop, step)

        def body(k: Value, carried: list[Value]) -> list[Value]:
            stage, *sums = carried
            following = f.add(k, step)
            if not ragged:  # the last tile is brought once more rather than what lies behind it
                following = f.intrinsic("smin", k.type, following, last)
            cells = self._load(following, limit)  # before the barrier, lest LLVM issue them late
            self._barrier()
            sums = self._multiply(sums, stage)
            if self.tiling.stages == 1:
                self._barrier()
            else:
                stage = f.xor(stage, i32(self.stage))
            self._store(cells, stage)
            return [stage, *sums]

        _, *sums = f.loop(start, stop, step, [i32(0), *zeros], body)
        return self._collected(sums)

    def _load(self, k: Value, limit: Value | None) -> list[list[Value]]:
        return [x.load(k, limit) for x in self.fetches]

    def _store(self, cells: list[list[Value]], stage: Value) -> None:
        at = self._at(stage, 0)
        for x, values in zip(self.fetches, cells, strict=True):
            x.store(values, at)

    def _at(self, base: Value, offset: int) -> Value:
        return lds_address(self.f, self.memory, base, offset)

    def _multiply(self, sums: list[Value], stage: Value) -> list[Value]:
        f, unit, sums = self.f, self.unit, list(sums)
        addresses = [f.add(read, stage) for read in self.reads]
        for s in range(self.tiling.depth // unit.depth):
            a, b = (self._fragments(side, addresses[side], s) for side in (0, 1))
            each = max(1, unit.cell // unit.step)
            for part in range(each):
                for i, x in enumerate(a):
                    for j, y in enumerate(b):
                        at = i * len(b) + j
                        sums[at] = unit.multiply(
                            f, _part(x, part, each), _part(y, part, each), sums[at]
                        )
        return sums

    def _fragments(self, side: int, address: Value, s: int) -> list[list[list[Value]]]:
        """[fragment][line][word]: what a lane holds of an operand at one step in depth."""
        unit, planes = self.unit, self.fetches[side].planes
        m = (unit.m, unit.n)[side]
        out = []
        for i in range(self.tiling.fragments[side]):
            lines = []
            for more in unit.more[side]:
                words = []
                for p in range(unit.cells):
                    plane = s * unit.groups * unit.cells + p
                    cell = planes.place(i * m + more, plane)
                    words += self._words(self._at(address, cell * CELL_BYTES))
                lines.append(words)
            out.append(lines)
        return out

    def _words(self, address: Value) -> list[Value]:
        cell = self.f.load(CELL, address, CELL_BYTES)
        return [self.f.extract(cell, i) for i in range(CELL.lanes)]

    # Sums to where all tiles of this shape have them

    def _collected(self, sums: list[Value]) -> list[Value]:
        """The thread's elements, in vectors of neighbours.

        A few rows of fragments of each wave pass through LDS at a time; where even one is too much,
        those of one row of waves.
        """
        gen, tiling, m = self.gen, self.tiling, self.unit.m
        vector = min(gen.kernel.vector, max(tiling.rows * tiling.columns // gen.workgroup, 1))
        across = gen.workgroup * vector
        high = max(across // tiling.columns, 1)  # rows that one vector of every thread covers
        own = tiling.fragments[0] * m
        together = tiling.fragments[0] if high > own else max(high // m, 1)
        stride = tiling.columns + CELL_BYTES // (self.unit.sums.bits // 8)
        row_bytes = together * m * stride * self.unit.sums.bits // 8
        waves = tiling.waves[0]
        apart = high <= own and waves * row_bytes > max(self.stage * tiling.stages, 16 << 10)
        memory = self._lds(row_bytes * (1 if apart else waves))
        out: list[Value] = []
        for w in range(waves) if apart else (None,):
            for first in range(0, tiling.fragments[0], together):
                if out:
                    self._barrier()
                self._put(sums, memory, stride, first, together, w)
                self._barrier()
                out += self._take(memory, stride, first, together, w, vector)
        return [out[i] for i in self._order(high, own, together, apart, across)]

    def _put(
        self, sums: list[Value], memory: Value, stride: int, first: int, together: int,
        only: int | None,
    ) -> None:  # fmt: skip
        """Rows of fragments `first..first+together` to LDS, of all waves or of one row of them."""
        f, unit, tiling = self.f, self.unit, self.tiling
        high, wide = self.waves
        size, width = unit.sums.bits // 8, tiling.fragments[1]
        run = _run(unit.elements)

        def write() -> list[Value]:
            row = emit_digits(f, unit.row, self.lane)
            if only is None:
                row = f.add(row, f.mul(high, i32(together * unit.m)))
            column = emit_digits(f, unit.column, self.lane)
            column = f.add(column, f.mul(wide, i32(width * unit.n)))
            base = f.mul(f.add(f.mul(row, i32(stride)), column), i32(size))
            for i in range(together):
                for j in range(width):
                    c = sums[(first + i) * width + j]
                    for e in range(0, len(unit.elements), run):
                        r, at = unit.elements[e]
                        place = ((i * unit.m + r) * stride + j * unit.n + at) * size
                        x = f.shuffle(c, None, range(e, e + run)) if c.type.lanes else c
                        align = math.gcd(run * size, CELL_BYTES)
                        f.store(x, lds_address(f, memory, base, place), align)
            return []

        if only is None:
            write()
        else:
            f.if_(f.icmp("eq", high, i32(only)), write)

    def _take(
        self, memory: Value, stride: int, first: int, together: int, only: int | None, vector: int
    ) -> list[Value]:
        """The thread's vectors of what `_put` wrote."""
        f, gen, tiling = self.f, self.gen, self.tiling
        size = self.unit.sums.bits // 8
        kind = self.unit.sums.with_lanes(vector)
        rows = together * self.unit.m * (1 if only is not None else tiling.waves[0])
        at = f.mul(gen.threads.number, i32(vector))
        wide = log2(tiling.columns)
        row, column = f.lshr(at, i32(wide)), f.and_(at, i32(tiling.columns - 1))
        base = f.mul(f.add(f.mul(row, i32(stride)), column), i32(size))
        across = gen.workgroup * vector
        out = []
        for e in range(0, rows * tiling.columns, across):
            r, c = divmod(e, tiling.columns)
            align = math.gcd(vector * size, CELL_BYTES)
            out.append(f.load(kind, lds_address(f, memory, base, (r * stride + c) * size), align))
        return out

    def _order(self, high: int, own: int, together: int, apart: bool, across: int) -> list[int]:
        """For each vector of a thread, in order, when `_take` returned it."""
        tiling, m = self.tiling, self.unit.m
        waves = [[w] for w in range(tiling.waves[0])] if apart else [list(range(tiling.waves[0]))]
        starts = []
        for group in waves:
            for first in range(0, tiling.fragments[0], together):
                rows = [w * own + first * m + r for w in group for r in range(together * m)]
                elements = len(rows) * tiling.columns
                for e in range(0, elements, across):
                    r, c = divmod(e, tiling.columns)
                    starts.append(rows[r] * tiling.columns + c)
        return sorted(range(len(starts)), key=starts.__getitem__)


def _run(elements: Sequence[tuple[int, int]]) -> int:
    """Sums of a lane that are neighbours in a row of the result and may be stored together."""
    run = 1
    while 2 * run <= min(len(elements), 4) and all(
        elements[e + i] == (elements[e][0], elements[e][1] + i)
        for e in range(0, len(elements), 2 * run)
        for i in range(2 * run)
    ):
        run *= 2
    return run


def _part(lines: list[list[Value]], part: int, parts: int) -> list[list[Value]]:
    size = len(lines[0]) // parts
    return [words[part * size : (part + 1) * size] for words in lines]


def _scalar(rep: Rep) -> Value:
    assert isinstance(rep, Value)
    return rep
