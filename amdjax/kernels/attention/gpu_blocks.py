"""How programs of attention on GPUs are divided, and tiles of queries, keys and values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from amdjax import tile
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.gpu_loops import every
from amdjax.targets import GpuTarget
from amdjax.targets.mma import CELL_BYTES, MmaAtom, along_rows, mma_atoms
from amdjax.tile import MatrixTiling

__all__ = [
    "Blocking", "Registers", "as_operand", "blockings", "fits", "inside", "lines", "multiplied",
]  # fmt: skip

Value = tile.Value

COLUMNS = (16, 32, 64, 128)  # of a block of what a program goes through
WAVES = 4  # of a program, one for each SIMD
MOST_FEATURES = 256
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
    """

    atom: MmaAtom
    waves: int
    high: int
    columns: int
    in_turn: bool = False

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.waves * self.high * self.atom.m

    def padded(self, features: int) -> int:
        """Features in tiles: a power of two of whole instructions."""
        return max(power_of_two(features), self.atom.depth, self.atom.n)

    def features(self, problem: Attention) -> tuple[int, int]:
        """Of queries and keys in tiles, and of values."""
        return self.padded(problem.features), self.padded(problem.value_features)

    def is_ragged(self, problem: Attention, columns: int) -> bool:
        """Whether tiles of so many columns reach over what there is."""
        whole = problem.features, problem.value_features
        return columns % self.columns != 0 or whole != self.features(problem)

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
        return columns // self.atom.n * self.atom.cells * CELL_BYTES // 8

    def prefetched(self, target: GpuTarget, features: int, ragged: bool) -> int:
        """Registers of a lane for the next block, of so many features in all."""
        nbytes = self.columns * features * self.atom.operand_bytes
        count = nbytes // (4 * self.waves * target.wave_size)
        return 3 * count if ragged else count  # with places, and whether something is there

    def __str__(self) -> str:
        out = f"blocks of {self.rows} rows and {self.columns} columns by {self.atom.name}"
        return f"{out}, {self.waves} waves of {self.high}" + (", in turn" if self.in_turn else "")


def multiplied(dtype: str) -> str:
    """What operands of a dtype are multiplied as: those of eight bits as float16, which has all.

    So weights, which are operands of the second product, are rounded no further either.
    """
    return "f16" if dtype.startswith(("f8_e3", "f8_e4", "f8_e5")) else dtype


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
    lds = tiles * cut.columns * features * cut.atom.operand_bytes * 5 // 4 + target.lds_reserved
    full = 1 if cut.in_turn else FULL
    most = both = target.registers_of(threads)
    if target.unified_registers:  # what only the matrix unit touches may be in the other half
        both = min(2 * most, target.vgpr_file // ceil_div(cut.waves, target.simds))
    enough = registers.computed <= most * full and sum(registers) <= both * full
    return enough and lds <= target.lds_bytes


def blockings(problem: Attention, target: GpuTarget, rows: int) -> Iterator[Blocking]:
    """All that are worth a look for so many rows; none where nothing multiplies the dtype."""
    wide = max(problem.features, problem.value_features)
    if wide > MOST_FEATURES or problem.accumulate != "f32":
        return
    known = map(along_rows, mma_atoms(target, multiplied(problem.dtype), problem.accumulate))
    atoms = [atom for atom in known if atom is not None]
    # Larger ones read less for what they multiply, where all waves have rows.
    atoms = [x for x in atoms if x.m * WAVES < 2 * rows][:1] or atoms[-1:]
    for atom, high, columns in itertools.product(atoms, (1, 2), COLUMNS):
        if columns % atom.depth or columns % atom.n:
            continue
        needed = min(WAVES, power_of_two(ceil_div(rows, high * atom.m)))
        for waves in sorted({needed, WAVES}):
            yield Blocking(atom, waves, high, columns)


def lines(
    k: tile.Builder, source: tile.Buffer, shape: tuple[int, int], place: tuple[Value, Value, Value],
    extents: tuple[int, int, int],
) -> Value:  # fmt: skip
    """A tile of queries, keys or values, zeros where there are none.

    Args:
      k: the kernel.
      source: of shape `(batch, lines, heads, features)`.
      shape: of the tile.
      place: the entry of the batch, the first line and the head.
      extents: lines, heads and features that there are.
    """
    (batch, first, head), (count, heads, features) = place, extents
    at = ((batch * count + first) * heads + head) * features
    mask = inside(k, shape, (first, count), features)
    return k.load(source, at, shape, (heads * features, 1), mask, eager=True)


def as_operand(k: tile.Builder, x: Value) -> Value:
    """A tile as it is multiplied."""
    to = multiplied(x.dtype)
    return x if to == x.dtype else k.convert(k.convert(x, "f32"), to)


def inside(
    k: tile.Builder, shape: tuple[int, ...], lines: tuple[Value, int], features: int
) -> Value | None:
    """Which elements of a tile of lines there are; None for all.

    Args:
      k: the kernel.
      shape: of the tile.
      lines: the first line of the tile, and how many there are in all.
      features: of a line.
    """
    (high, wide), (first, count) = shape, lines
    conditions = []
    if count % high:
        line = k.iota(high) + k.broadcast(first, (high,))
        conditions.append(k.broadcast(k.expand(line < count, 1), (high, wide)))
    if features < wide:
        conditions.append(k.broadcast(k.expand(k.iota(wide, "i32") < features, 0), (high, wide)))
    return every(k, conditions)
