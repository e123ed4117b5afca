"""The loop of a matrix product on a workgroup: memory → registers → LDS → the matrix unit.

Each thread brings a few cells (16 bytes of the depth of one line) of both operands' next tiles from
global memory into registers while the workgroup multiplies the tiles in LDS, and then puts them
there. Sums stay in the layout of the atom until the end; through LDS they reach the layout that all
tiles have, so that what follows is coalesced and knows nothing of matrix units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.accesses import BlockPointer, load_tile, store_tile
from amdjax.codegen.gpu.accumulators import Accumulators, Product
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.layout_assignment import dot_tiling
from amdjax.codegen.gpu.matrix import accumulator_type, emit_digits, i32, lds_address, multiplier
from amdjax.codegen.gpu.operand_staging import (
    DepthStaging,
    LineStaging,
    Load,
    Operand,
    Places,
    staging_of,
)
from amdjax.codegen.gpu.positions import Held, Rep
from amdjax.codegen.gpu.registers import joined, register
from amdjax.codegen.gpu.row_product import RowProduct
from amdjax.codegen.gpu.tile_product import TileProduct
from amdjax.codegen.gpu.warpgroup_tiles import WarpgroupTileProduct
from amdjax.codegen.gpu.wgmma import NextTile, StagedProduct, WarpgroupProduct
from amdjax.codegen.llvm import Type, Value
from amdjax.targets.mma import CELL_BYTES, MmaAtom, Tiling, mma_atoms, staged_atoms, warpgroup_atoms
from amdjax.tile import ops

CELL = Type("i32", 4)
FEW_STEPS = 4  # of a loop, besides which one more load counts
FEW_SUMS = 32  # registers of a lane that hold sums, besides which there is room


LOWERINGS = Lowerings()

#: Products of tiles by kind of atom, of those that are not `TileProduct`.
_TILE_PRODUCTS: dict[str, Callable[[GpuEmitter, ops.Dot], TileProduct | WarpgroupTileProduct]] = {
    "wgmma": WarpgroupTileProduct, "rows": RowProduct,
}  # fmt: skip


@LOWERINGS.of(ops.Contract)
def lower_contract(g: GpuEmitter, op: ops.Contract) -> list[Rep]:
    start, stop, *more = (g.scalar(v) for v in op.operands)
    next_tile = NextTile(*more[-4:]) if op.prefetch else None
    origins, told = more[:4], iter(more[4:])

    def places(block: tile.Block) -> Places:
        return lambda number: g.inlined(block, [number])

    operands = []
    for i, side in enumerate(op.sides):
        g.buffers.access(side.buffer, "read")
        address = g.buffers.address(side.buffer)
        lines, depth = places(op.blocks[i]), places(op.blocks[2 + i])
        base, last = origins[2 * i : 2 * i + 2]
        limits = [next(told) if n == tile.TOLD else llvm.const(base.type, n) for n in side.limits]
        run = None if side.run is None else llvm.const(base.type, side.run)
        is_linear = _is_linear(g, op.blocks[2 + i])
        if run is None and not limits and is_linear:
            run, *_ = depth(llvm.const(base.type, 1))
        operands.append(Operand(side, address, lines, depth, base, last, limits, run, is_linear))
    tiling = _tiling(g, op.tiling, op.result.dtype)
    if next_tile is not None:
        product: Product = WarpgroupProduct(g, tiling, operands, next_tile)
    else:
        product = _product_kind(tiling.atom)(g, tiling, operands)
    return [Accumulators(product, product.accumulated(start, stop, op.ragged))]


def _product_kind(atom: MmaAtom) -> Callable[[GpuEmitter, Tiling, Sequence[Operand]], Product]:
    if atom.staged:
        return StagedProduct
    return WarpgroupProduct if atom.from_lds else _RegisterProduct


def _is_linear(g: GpuEmitter, block: tile.Block) -> bool:
    """Whether a block multiplies its number by another one, known before."""
    of_number = {v.number for v in block.args}
    for op in block.ops:
        rest = [v for v in op.operands if v.number not in of_number]
        if len(rest) == len(op.operands):
            continue
        is_sum = isinstance(op, ops.Add) and all(g.scalar(v).ref == "0" for v in rest)
        if not (is_sum or (isinstance(op, ops.Mul) and len(rest) == 1)):
            return False
        of_number |= {v.number for v in op.results}
    return all(v.number in of_number for v in block.yields)


def _tiling(g: GpuEmitter, x: tile.MatrixTiling, accumulator: str) -> Tiling:
    """A tiling whose atom is known by its name."""
    target = g.isa.target
    known = mma_atoms(target, x.operand, accumulator)
    known = [*known, *warpgroup_atoms(target, x.operand), *staged_atoms(target, x.operand)]
    atom = next(atom for atom in known if atom.name == x.instruction)
    return Tiling(atom, x.waves, x.fragments, x.depth, x.stages)


@LOWERINGS.of(ops.Collect)
def lower_collect(g: GpuEmitter, op: ops.Collect) -> list[Rep]:
    sums = g.rep(op.operands[0])
    assert isinstance(sums, Accumulators)
    parts = joined(g.f, sums.rows(op.result.type, op.column))
    return [Held(parts if parts.type.lanes > 1 else register(g.f, parts, 0))]


@LOWERINGS.of(ops.Dot)
def lower_dot(g: GpuEmitter, op: ops.Dot) -> list[Rep]:
    """By the vector unit: both operands in LDS, each thread sums up its elements."""
    if op.tiling is not None:
        kind = dot_tiling(g.isa.target, op).atom.kind
        return [Held(_TILE_PRODUCTS.get(kind, TileProduct)(g, op).sums())]
    f, (a, b, acc) = g.f, op.operands
    (m, depth), n = a.shape, b.shape[1]
    layout = g.layouts.of(acc.shape)
    parts = [g.in_registers(v) for v in (a, b)]
    buffer = g.buffers.temporary(a.dtype, depth * (m + n))
    g.buffers.access(buffer, "write")
    for part, v, start, width in zip(parts, (a, b), (0, m * depth), (depth, n), strict=True):
        where = BlockPointer(buffer, start, (width, 1))
        store_tile(g, where, v.dtype, g.layouts.of(v.shape), part)
    g.buffers.access(buffer, "read")

    def step(k: Value, carried: list[Value]) -> list[Value]:
        below = f.add(f.mul(k, i32(n)), i32(m * depth))
        with g.scope():
            x = load_tile(g, BlockPointer(buffer, k, (depth, 0)), a.dtype, layout)
            y = load_tile(g, BlockPointer(buffer, below, (0, 1)), b.dtype, layout)
        if a.dtype in tile.FLOATS:
            return [f.fma(x, y, carried[0])]
        return [f.add(f.mul(x, y), carried[0])]

    return [Held(f.loop(i32(0), i32(depth), 1, [g.in_registers(acc)], step)[0])]


class _RegisterProduct(Product):
    """The matrix unit takes its operands from registers."""

    def __init__(self, g: GpuEmitter, tiling: Tiling, operands: Sequence[Operand]):
        super().__init__(g, tiling)
        self._multiplier = multiplier(tiling.atom)
        self.stagings: list[LineStaging | DepthStaging] = []
        origin = 0
        for operand, lines in zip(operands, (tiling.rows, tiling.columns), strict=True):
            staging = staging_of(g, tiling, operand, lines, origin)
            self.stagings.append(staging)
            origin += staging.nbytes
        self.stage = origin
        self.memory = self.lds(self.memory_bytes)
        self.reads = self._lane_offsets()

    @property
    def memory_bytes(self) -> int:
        return self.stage * self.tiling.stages

    def _lane_offsets(self) -> list[Value]:
        """Where the first cells are that a lane reads of each operand, in bytes of the stage."""
        f, atom = self.f, self.atom
        offsets = []
        for x, number, digits, group, m in zip(
            self.stagings, self.waves, atom.line, atom.group, (atom.m, atom.n), strict=True
        ):
            line = f.add(f.mul(number, i32(m)), emit_digits(f, digits, self.lane))
            step = atom.cells * x.layout.slice_stride
            slice = f.mul(emit_digits(f, group, self.lane), i32(step))
            cell = f.add(slice, emit_digits(f, x.layout.line_digits, line))
            offsets.append(f.add(f.mul(cell, i32(CELL_BYTES)), i32(x.origin)))
        return offsets

    def accumulated(self, start: Value, stop: Value, ragged: bool) -> list[Value]:
        f, isa, depth = self.f, self.g.isa, self.tiling.depth
        waits = isa.target.waits_at_barriers
        limit = stop if ragged else None
        step = llvm.const(start.type, depth)
        self._store(self._load(start, limit), i32(0))
        zeros = [llvm.zero(accumulator_type(self.atom))] * math.prod(self.tiling.fragments)
        last, peeled = f.sub(stop, step), self._is_short(start, stop)
        offsets = [[] if ragged else x.offsets() for x in self.stagings]
        moving = [x for part in offsets for x in part]

        def load(k: Value, places: list[Value]) -> list[list[Load]]:
            found, loads = iter(places), []
            for x, part in zip(self.stagings, offsets, strict=True):
                own = [next(found) for _ in part]
                loads.append(x.load_at(k, own) if own else x.load(k, limit))
            return loads

        def body(k: Value, carried: list[Value]) -> list[Value]:
            stage, *sums = carried[: 1 + len(zeros)]
            # LLVM would have an address of 64 bits move for each of them, in every lane.
            places = [isa.computed_here(f, x) for x in carried[1 + len(zeros) :]]
            following = f.add(k, step)
            if not (ragged or peeled):  # the last tile once more rather than what lies behind it
                following = f.intrinsic("smin", k.type, following, last)
            if waits:  # for loads too
                self.barrier()
                cells = load(following, places)
                isa.begin_region(f)
            else:
                cells = load(following, places)  # before it, lest LLVM issue them late
                self.barrier()
            before = sums
            sums = self._multiply(zeros if self.atom.sums_tiles else sums, stage)
            if self.atom.sums_tiles:
                sums = [f.add(x, y) for x, y in zip(before, sums, strict=True)]
            if self._branches:
                sums = [isa.computed_here(f, x) for x in sums]
            isa.begin_region(f)  # nor would LLVM put loads away late
            if self.tiling.stages == 1:
                self.barrier()
            else:
                stage = f.xor(stage, i32(self.stage))
            self._store(cells, stage)
            return [stage, *sums, *places]

        carried, end = [i32(0), *zeros, *moving], last if peeled else stop
        stage, *rest = f.loop(start, end, step, carried, body, metadata=self.g.not_unrolled())
        sums = rest[: len(zeros)]
        if not peeled:
            return sums
        self.barrier()
        return self._multiply(sums, stage)

    def _load(self, k: Value, limit: Value | None) -> list[list[Load]]:
        return [x.load(k, limit) for x in self.stagings]

    def _store(self, cells: list[list[Load]], stage: Value) -> None:
        at = self._at(stage, 0)
        for x, values in zip(self.stagings, cells, strict=True):
            x.store(values, at)

    def _at(self, base: Value, offset: int) -> Value:
        return lds_address(self.f, self.memory, base, offset)

    def _multiply(self, sums: list[Value], stage: Value) -> list[Value]:
        """Sums with the tile in LDS."""
        f, sums, steps = self.f, list(sums), self.tiling.depth // self.atom.depth
        addresses = [f.add(read, stage) for read in self.reads]
        lookahead = int(self._is_double_buffered)
        # LLVM would move what lanes multiply behind the last read of a tile.
        ordered = self.atom.by_lanes
        held: list[list[list[list[list[list[Value]]]]]] = []
        for s in range(steps + lookahead):
            if s < steps:
                if s and self._is_crowded:
                    self.g.isa.keep_lds_reads(f, ordered)
                held.append(
                    [
                        [self._fragments(side, address, s, p) for p in range(self.atom.parts)]
                        for side, address in enumerate(addresses)
                    ]
                )
            if s >= lookahead:
                if lookahead and self._is_crowded:
                    self.g.isa.keep_lds_reads(f, ordered)
                self._step(sums, *held.pop(0))
        return sums

    def _step(
        self, sums: list[Value], a: list[list[list[list[Value]]]], b: list[list[list[list[Value]]]]
    ) -> None:
        """Multiply the fragments of one step, each with each, part by part."""
        atom = self.atom
        each = max(1, atom.cell_depth // atom.step)
        for left, right in atom.part_pairs:
            for part in range(each):
                for i, x in enumerate(a[left]):
                    for j, y in enumerate(b[right]):
                        at = i * len(b[right]) + j
                        sums[at] = self._multiplier(
                            self.f, _part(x, part, each), _part(y, part, each), sums[at]
                        )

    def _is_short(self, start: Value, stop: Value) -> bool:
        """Whether to multiply the last tile behind the loop, so that none is loaded in vain.

        It is the same code as in the loop, for which LLVM takes as long; with many sums it would
        run out of registers.
        """
        if self.atom.kind != "matrix" or self.tiling.accumulator_registers > FEW_SUMS:
            return False
        known = start.ref.isdigit() and stop.ref.isdigit()
        return known and int(stop.ref) - int(start.ref) <= FEW_STEPS * self.tiling.depth

    @property
    def _branches(self) -> bool:
        """Whether the loop has a branch, behind which LLVM would move what lanes multiply.

        All that is read for it would have to stay in registers until then.
        """
        return any(x.parts < self.g.workgroup for x in self.stagings)

    @property
    def _is_crowded(self) -> bool:
        """Whether LLVM, reading all steps of a tile at once, would run out of registers."""
        tiling, steps = self.tiling, self.tiling.depth // self.atom.depth
        held = steps * tiling.fragment_registers + tiling.accumulator_registers
        return held > self.g.isa.target.vgprs // 2

    @property
    def _is_double_buffered(self) -> bool:
        """Whether registers hold what is multiplied next besides what is multiplied now."""
        tiling = self.tiling
        held = 2 * tiling.fragment_registers + tiling.accumulator_registers
        return held < self.g.isa.target.vgprs * 3 // 4

    def _fragments(self, side: int, address: Value, s: int, part: int) -> list[list[list[Value]]]:
        """[fragment][line][word]: what a lane holds of an operand's part at one step in depth."""
        atom, layout = self.atom, self.stagings[side].layout
        distance = (atom.m, atom.n)[side] * self.tiling.waves[side]
        first = part * self.stagings[side].part_bytes
        out = []
        for i in range(self.tiling.fragments[side]):
            lines = []
            for more in atom.more[side]:
                words = []
                for p in range(atom.cells):
                    slice = s * atom.groups * atom.cells + p
                    cell = layout.place(i * distance + more, slice)
                    words += self._words(self._at(address, first + cell * CELL_BYTES))
                each = len(words) // atom.cell_lines
                lines += [words[x : x + each] for x in range(0, len(words), each)]
            out.append(lines)
        return out

    def _words(self, address: Value) -> list[Value]:
        cell = self.f.load(CELL, address, CELL_BYTES)
        return [self.f.extract(cell, i) for i in range(CELL.lanes)]


def _part(lines: list[list[Value]], part: int, parts: int) -> list[list[Value]]:
    size = len(lines[0]) // parts
    return [words[part * size : (part + 1) * size] for words in lines]
