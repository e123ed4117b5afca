"""How programs of attention on GPUs are divided, and tiles of queries, keys and values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.kernels.attention.problem import Attention, Layout
from amdjax.kernels.gpu_loops import every
from amdjax.schedule.values import compute_dtype
from amdjax.targets import GpuCosts, GpuTarget
from amdjax.targets.mma import CELL_BYTES, WARPGROUP_ROW_BYTES, MmaAtom, tile_atoms
from amdjax.tile import MatrixTiling

__all__ = [
    "Blocking", "Registers", "as_operand", "divided", "first_kind", "fits", "inside", "lines",
    "multiplied", "overlapped_clocks",
]  # fmt: skip

Value = tile.Value

COLUMNS = (16, 32, 64, 128)  # of a block of what a program goes through
WAVES = 4  # of a program, one for each SIMD
WARPGROUPS = ((WAVES, 1), (WAVES, 2), (2 * WAVES, 1))  # waves, and atoms along the rows of each
MOST_FEATURES = 256
ROUND_LATENCY = 800  # clocks: of copies, and from products to what is made of them
WAVE_LATENCY = 25  # for which a wave is waited for
OVERFULL = 1.04  # where right operands take none: a few of them elsewhere cost less than blocks
ROW_REGISTERS = 32  # for cells that lanes which share rows read, and read next
ROW_CLOCKS = 10  # of a block, for each row whose sums lanes share
CHUNKS, PARTS = (64, 32), (1, 2, 4)  # of features, where these are too many for registers
FULL = 0.91  # of the registers, where LLVM may read as early as it likes


@dataclass(frozen=True)
class Blocking:
    """A block of rows for each program, which goes through blocks of columns.

    Args:
      atom: the matrix instruction.
      waves: of a program, each with rows of its own.
      high: atoms along the rows of each wave.
      columns: of a block.
      in_turn: whether waves read right operands in turn with their products, as registers are few,
        not as early as may be.
      chunk: features that logits are summed over at a time, where they are too many to keep all of
        the rows in registers; 0 for all of them at once. Nothing is then brought early.
      parts: programs that share a block of rows, each of which makes some features of its results.
      spills: whether registers may be too few, so that some of what they hold goes to memory.
    """

    atom: MmaAtom
    waves: int
    high: int
    columns: int
    in_turn: bool = False
    chunk: int = 0
    parts: int = 1
    spills: bool = False

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.waves * self.high * self.atom.m

    def padded(self, features: int) -> int:
        """Features in tiles: a power of two of whole instructions, and of rows in LDS."""
        least = max(self.atom.depth, self.atom.n)
        if self.atom.from_lds:
            least = WARPGROUP_ROW_BYTES // self.atom.operand_bytes
        return max(power_of_two(features), least)

    def features(self, problem: Attention) -> tuple[int, int]:
        """Of queries and keys in tiles, and of values."""
        return self.padded(problem.features), self.padded(problem.value_features)

    def held(self, features: int) -> int:
        """Of so many features of rows, those that are in registers at a time."""
        return min(self.chunk, features) if self.chunk else features

    def made(self, problem: Attention) -> tuple[int, int]:
        """The same, as far as a program has sums of them."""
        wide, value_wide = self.features(problem)
        return wide // self.parts, value_wide // self.parts

    def is_ragged(self, problem: Attention, columns: int) -> bool:
        """Whether tiles of so many columns reach over what there is."""
        whole = problem.features, problem.value_features
        return not is_multiple(columns, self.columns) or whole != self.features(problem)

    def tiling(self, columns: int, depth: int) -> MatrixTiling:
        """Of a product of the block's rows."""
        atom = self.atom
        fragments, stages = (self.high, columns // atom.n), 0 if self.in_turn else 1
        return MatrixTiling(atom.name, atom.operand, (self.waves, 1), fragments, depth, stages)

    def sums(self, columns: int) -> int:
        """Registers of a lane for sums of all rows and so many columns."""
        each = len(self.atom.elements) * max(self.atom.accumulator_bytes // 4, 1)
        return each * self.high * columns // self.atom.n

    def operand(self, depth: int) -> int:
        """Registers of a lane for a left operand of so many columns."""
        atom = self.atom
        held = self.high * len(atom.more[0]) * depth // atom.groups
        return held * atom.operand_bytes // 4

    def right_operand(self, columns: int) -> int:
        """Registers of a lane for what is read at a time of a right operand: half of a step."""
        if self.atom.from_lds:
            return 0
        if self.atom.kind == "rows":  # what is multiplied now and next, and what lanes share
            return ROW_REGISTERS + self.high * len(self.atom.more[0]) * self.atom.cell_depth
        return columns // self.atom.n * self.atom.cells * CELL_BYTES // 8

    def prefetched(self, target: GpuTarget, features: int, ragged: bool) -> int:
        """Registers of a lane for the next block, of so many features in all."""
        if self.atom.from_lds:  # it is copied past them
            return 0
        nbytes = self.columns * features * self.atom.operand_bytes
        count = nbytes // (4 * self.waves * target.wave_size)
        if not ragged:
            return count
        # With places, and whether something is there.
        return 5 * count if self.atom.kind == "rows" else 3 * count

    def waits(self, costs: GpuCosts) -> float:
        """Clocks that each block of columns takes besides what is computed of its pairs.

        Lanes that share rows wait for what they bring, and scale the sums of each row anew; matrix
        units work meanwhile. Fitted on an H200, where blocks of 16 columns take 1.4 times as long
        in all as those of 32.
        """
        if self.atom.kind == "rows":
            return 2 * costs.stall + ROW_CLOCKS * self.rows
        return costs.stall / 2

    def again(self, features: Sequence[int], costs: GpuCosts) -> float:
        """Clocks for rows that are read again in each block of columns, whose loads are waited for.

        Args:
          features: of each operand.
          costs: of the machine.
        """
        if not self.chunk:
            return 0.0
        brought = self.rows * sum(features) * self.atom.operand_bytes / costs.cache_rate
        waits = sum(ceil_div(n, self.chunk) for n in features) + 1
        return brought + waits * costs.load_latency / 2

    def __str__(self) -> str:
        out = f"blocks of {self.rows} rows and {self.columns} columns by {self.atom.name}"
        out = f"{out}, {self.waves} waves of {self.high}" + (", in turn" if self.in_turn else "")
        out += f", {self.chunk} features at a time" if self.chunk else ""
        out += f", results in {self.parts} parts" if self.parts > 1 else ""
        return out + (", some registers in memory" if self.spills else "")


def multiplied(dtype: str, formats: Sequence[str], target: GpuTarget) -> str:
    """What operands are multiplied as: those of eight bits as float16, which has all.

    So weights, which are operands of the second product, are rounded no further either. Where only
    lanes multiply, float32, and that in the fastest format that may stand for it.
    """
    if dtype == "f32":
        whole = (x for x in formats if x[-2] != "x")  # no sums of parts
        return max((dtype, *whole), key=lambda x: _rate(target, x))
    dtype = "f16" if dtype.startswith(("f8_e3", "f8_e4", "f8_e5")) else dtype
    return dtype if tile_atoms(target, dtype, compute_dtype(dtype)) else "f32"


def _rate(target: GpuTarget, operand: str) -> int:
    """Of what multiplies tiles; of lanes the rate of all targets that have them."""
    return max((x.flops for x in tile_atoms(target, operand, "f32")), default=0)


class Registers(NamedTuple):
    """About as many as a lane needs.

    Attributes:
      computed: that arithmetic of lanes touches.
      multiplied: that only the matrix unit touches, through the whole loop.
    """

    computed: int
    multiplied: int


def fits(
    cut: Blocking, target: GpuTarget, registers: Registers, features: int, tiles: int = 1
) -> bool:
    """Whether a program has the registers and the LDS.

    Args:
      cut: its blocks.
      target: the GPU.
      registers: of a lane.
      features: of all tiles of a block of columns.
      tiles: as which each of these is in LDS.
    """
    threads = cut.waves * target.wave_size
    full = 1 if cut.in_turn and not cut.chunk else OVERFULL if cut.atom.from_lds else FULL
    most = both = target.registers_of(threads)
    if target.unified_registers:  # what only the matrix unit touches may be in the other half
        both = min(2 * most, target.vgpr_file // ceil_div(cut.waves, target.simds))
    enough = registers.computed <= most * full and sum(registers) <= both * full
    return (enough or cut.spills) and _lds(cut, target, features, tiles) <= target.lds_bytes


def _lds(cut: Blocking, target: GpuTarget, features: int, tiles: int) -> int:
    block = cut.columns * features * cut.atom.operand_bytes
    if cut.atom.from_lds:  # either of two places of each tile, which begin as rows must
        return 2 * block + 4 * target.lds_reserved
    return tiles * block * 5 // 4 + target.lds_reserved


def overlapped_clocks(
    cut: Blocking, target: GpuTarget, registers: Registers, features: int, programs: int,
    steps: int, products: float, computed: float,
) -> float:  # fmt: skip
    """Of a compute unit, for all programs that it gets, which multiply right operands from LDS.

    As many of them as there are registers and LDS for run beside each other, and compute while
    others multiply. Alone, one would wait for its products, and for what they wait for.

    Args:
      cut: its blocks.
      target: the GPU.
      registers: of a lane.
      features: of all tiles of a block of columns.
      programs: of the grid.
      steps: blocks of columns of each program.
      products, computed: clocks of a block's products and of its arithmetic.
    """
    waves = ceil_div(cut.waves, target.simds)
    # The estimate of registers is rather high.
    resident = int(target.vgpr_file / (waves * sum(registers)) + 0.3)
    resident = min(resident, target.lds_per_cu // _lds(cut, target, features, 1))
    resident = max(1, min(resident, ceil_div(programs, target.compute_units)))
    busy = max(products, computed)
    waiting = ROUND_LATENCY + cut.waves * WAVE_LATENCY
    step = busy + (products + computed + waiting - busy) / resident
    rounds = ceil_div(programs, target.compute_units * resident) * resident
    return rounds * (steps * step + target.costs.program)


def first_kind(
    problem: Attention, target: GpuTarget, rows: int, accepts: Callable[[Blocking], bool]
) -> list[Blocking]:
    """All blockings of the best kind of which some are accepted.

    Args:
      problem: the attention.
      target: the GPU.
      rows: of a head.
      accepts: whether the machine has what one needs.
    """
    for kind in _kinds(problem, target, rows):
        if found := [cut for cut in kind if accepts(cut)]:
            return found
    return []


def _kinds(problem: Attention, target: GpuTarget, rows: int) -> Iterator[list[Blocking]]:
    """Blockings by kind, for so many rows; none where nothing multiplies the dtype.

    The best ones have large instructions, read early and keep their rows. Those of fewer registers
    follow: that read in turn, have smaller instructions, read rows again in each block of columns.
    """
    wide = max(problem.features, problem.value_features)
    if wide > MOST_FEATURES or problem.accumulate != "f32":
        return
    atoms = tile_atoms(
        target, multiplied(problem.dtype, problem.formats, target), problem.accumulate
    )
    of_warps = [x for x in atoms if not x.from_lds]
    # Larger ones read less for what they multiply, where all waves have rows.
    large = [x for x in of_warps if x.m * WAVES < 2 * rows][:1] or of_warps[-1:]
    best = [cut for atom in large for cut in _of_warps(atom, target, rows)]
    best += _of_warpgroups([x for x in atoms if x.from_lds], rows)
    yield best
    if target.is_amdgpu:
        yield [replace(cut, in_turn=True) for cut in best]
    small = of_warps[of_warps.index(large[0]) :] if large else []
    cuts = [cut for atom in small for cut in _of_warps(atom, target, rows)]
    cuts = [replace(cut, in_turn=target.is_amdgpu) for cut in cuts]
    yield cuts
    again = [
        replace(cut, chunk=chunk, parts=parts)
        for cut, chunk, parts in itertools.product(cuts, CHUNKS, PARTS)
        if chunk < max(features := cut.features(problem)) and parts * cut.padded(1) <= min(features)
    ]
    yield again
    if not target.is_amdgpu:  # its assembler does with fewer registers, or leaves some in memory
        yield [replace(cut, spills=True) for cut in _of_few_registers(again or cuts)]


def _of_few_registers(cuts: Sequence[Blocking]) -> list[Blocking]:
    """Those of the smallest blocks that sum the fewest features."""

    def size(cut: Blocking) -> tuple[int, ...]:
        return cut.high * cut.atom.m, cut.columns, cut.chunk, -cut.parts

    least = min(map(size, cuts), default=())
    return [cut for cut in cuts if size(cut) == least]


def _of_warps(atom: MmaAtom, target: GpuTarget, rows: int) -> Iterator[Blocking]:
    for high, columns in itertools.product((1, 2), COLUMNS):
        if columns % atom.depth or columns % atom.n:
            continue
        needed = min(WAVES, power_of_two(ceil_div(rows, high * atom.m)))
        more = needed if target.is_amdgpu else min(2 * needed, WAVES)  # warps bring more at a time
        for waves in sorted({needed, more, WAVES}):
            yield Blocking(atom, waves, high, columns)


def _of_warpgroups(atoms: Sequence[MmaAtom], rows: int) -> Iterator[Blocking]:
    for atom, (waves, high) in itertools.product(atoms, WARPGROUPS):
        if (waves, high) == WARPGROUPS[0] or waves * high * atom.m < 2 * rows:
            yield from (Blocking(atom, waves, high, columns) for columns in COLUMNS)


def lines(
    k: tile.Builder, source: tile.Buffer, layout: Layout, shape: tuple[int, int],
    place: tuple[Value, Value, Value], extents: tuple[int, int], feature: Value | None = None,
) -> Value:  # fmt: skip
    """A tile of queries, keys or values, zeros where there are none.

    Args:
      k: the kernel.
      source: in which they are ...
      layout: ... and where.
      shape: of the tile.
      place: the entry of the batch, the first line and the head.
      extents: lines and features that there are.
      feature: the first of the tile; None for one that has all.
    """
    (batch, first, head), (count, features) = place, extents
    at = batch * layout.batch + first * layout.line + head * layout.head
    at = at + layout.offset if layout.offset else at
    if feature is not None:
        at = at + feature
    mask = inside(k, shape, (first, count), features, feature)
    return k.load(source, at, shape, (layout.line, 1), mask, eager=True)


def divided(number: Value, parts: int) -> tuple[Value | None, Value]:
    """Of programs that share a block, which one it is, and the number of the block.

    None where there is one.
    """
    return (number % parts, number // parts) if parts > 1 else (None, number)


def as_operand(k: tile.Builder, x: Value, cut: Blocking) -> Value:
    """A tile as it is multiplied: sums begin with 0, to which -0 adds nothing."""
    to = "f32" if cut.atom.operand == "xf32" else cut.atom.operand
    return x if to == x.dtype else k.convert(k.convert(x, "f32"), to, nsz=True)


def inside(
    k: tile.Builder, shape: tuple[int, ...], lines: tuple[Value, int], features: int,
    feature: Value | None = None,
) -> Value | None:  # fmt: skip
    """Which elements of a tile of lines there are; None for all.

    Args:
      k: the kernel.
      shape: of the tile.
      lines: the first line of the tile, and how many there are in all.
      features: of a line.
      feature: the first of the tile, which counts in tiles; None for one that has all.
    """
    (high, wide), (first, count) = shape, lines
    conditions = []
    if not is_multiple(count, high):
        line = k.iota(high) + k.broadcast(first, (high,))
        conditions.append(k.broadcast(k.expand(line < count, 1), (high, wide)))
    if features < wide if feature is None else features % wide:
        places = k.iota(wide, "i32")
        if feature is not None:
            places = places + k.broadcast(k.convert(feature, "i32"), (wide,))
        conditions.append(k.broadcast(k.expand(places < features, 0), (high, wide)))
    return every(k, conditions)
