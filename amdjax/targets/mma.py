"""How the waves of a workgroup hold a matrix product: atoms, tilings, tiles in local memory.

An *atom* multiplies `m` lines of `a` with `n` lines of `b` (rows of the left operand, columns of
the right one) over some depth, once for each wave: a matrix instruction, or multiply-adds of the
vector lanes where there is none. All atoms read their operands alike: a lane takes *cells* of 16
bytes, each a few consecutive elements of the depth of one line. Which part of the depth a lane
takes does not matter as long as both operands agree, so no atom needs its operands shuffled. Vector
lanes, which multiply each line of theirs with each, take cells of a few neighboring lines at one
step in depth: what a lane holds at a time is then as little as can be.

In LDS the cells of a tile lie in slices, one for each step of a cell in depth, line beside line
(`SharedLayout`). Neighboring lanes then read neighboring cells, and every distance is a constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from amdjax.core.dtypes import dtype_from_short_name
from amdjax.targets.gpu import DotInstruction, GpuTarget, MatrixInstruction

CELL_BYTES = 16
WARPGROUP_ROW_BYTES = 128  # of a tile in shared memory, as `wgmma` reads it
WARPGROUP_STEP_BYTES = 32  # depth of one `wgmma`

#: A number made of digits of another: the sum of `x // divisor % modulus * scale`.
Digits = tuple[tuple[int, int, int], ...]

#: What the targets' tables call dtypes of 8 bits.
MATRIX_NAMES = {
    "f8_e4m3fn": "fp8", "f8_e4m3fnuz": "fp8", "f8_e5m2": "bf8", "f8_e5m2fnuz": "bf8",
}  # fmt: skip

#: Lanes that share rows, where each multiplies what the others hold of them, and the neighboring
#: columns of sums that a lane has.
ROW_LANES, LANE_COLUMNS = 8, 2

#: Matrix instructions; NVIDIA's of a warp and of four; dot products and multiply-adds of lanes, and
#: multiply-adds of lanes that share rows.
Kind = Literal["matrix", "mma", "wgmma", "dot", "fma", "rows"]


def digits_of(digits: Digits, x: int) -> int:
    """The number that `digits` makes of `x`."""
    return sum(x // divisor % modulus * scale for divisor, modulus, scale in digits)


def _itemsize(dtype: str) -> int:
    return 4 if dtype == "xf32" else dtype_from_short_name(dtype).itemsize


def _terms(format: str) -> tuple[str, int]:
    """The dtype of the parts of a format, and how many products of parts are added."""
    return (format[:-2], int(format[-1])) if format[-2] == "x" else (format, 1)


@dataclass(frozen=True)
class MmaAtom:
    """What multiplies.

    Args:
      name: of the instruction, for people.
      kind: of instruction.
      operand, accumulator: dtypes.
      m, n: lines of `a` and of `b`.
      step: consecutive elements of depth that a lane holds of a line.
      groups: lanes that share a line and divide its depth.
      line: lines that a lane holds, of `a` and of `b`: the first, from its number in the wave ...
      more: ... and the distances to the others.
      group: which part of the depth a lane takes, of `a` and of `b`.
      row, column: where in the result a lane's accumulators are ...
      elements: ... and the distances (row, column) of each.
      flops: multiplications and additions of a compute unit in a clock.
      instruction: of the target's table; None where it is written otherwise.
      doubled: accumulators take twice the registers, as where multiply-adds of integers have 64
        bits.
      transposed: the instruction takes `b` for its left operand.
      terms: products of parts of the operands that are added, where they are sums of parts.
      staged: operands pass through registers on their way to LDS, from which the atom reads them.
    """

    name: str
    kind: Kind
    operand: str
    accumulator: str
    m: int
    n: int
    step: int
    groups: int
    line: tuple[Digits, Digits]
    more: tuple[tuple[int, ...], tuple[int, ...]]
    group: tuple[Digits, Digits]
    row: Digits
    column: Digits
    elements: tuple[tuple[int, int], ...]
    flops: int
    instruction: MatrixInstruction | DotInstruction | None = None
    doubled: bool = False
    transposed: bool = False
    terms: int = 1
    staged: bool = False

    @property
    def format(self) -> str:
        """In which operands are multiplied: their dtype, and the number of terms."""
        return self.operand if self.terms == 1 else f"{self.operand}x{self.terms}"

    @property
    def parts(self) -> int:
        """Whose sum an operand is."""
        return 1 if self.terms == 1 else 2 if self.terms == 3 else 3

    @property
    def part_pairs(self) -> list[tuple[int, int]]:
        """The parts of `a` and `b` that meet in each term, the least products first."""
        pairs = [(i, j) for i in range(self.parts) for j in range(self.parts)]
        return sorted(pairs, key=sum)[: self.terms][::-1]

    @property
    def sums_tiles(self) -> bool:
        """Whether sums of a tile in depth begin at zero, and lanes add them.

        NVIDIA's units cut off what does not fit when they add, which after many steps costs more
        than several products of parts are to gain.
        """
        return self.terms > 1 and self.kind in ("mma", "wgmma")

    @property
    def from_lds(self) -> bool:
        """Whether it reads its operands from LDS by itself."""
        return self.kind == "wgmma"

    @property
    def copied(self) -> bool:
        """Whether its operands are copied from memory to LDS as they are."""
        return self.from_lds and not self.staged

    @property
    def by_lanes(self) -> bool:
        """Whether it is arithmetic of vector lanes."""
        return self.kind in ("dot", "fma", "rows")

    @property
    def takes_sums(self) -> bool:
        """Whether the left operand lies among the lanes as sums do, in the order of the depth."""
        return self.kind in ("wgmma", "rows")

    @property
    def across(self) -> bool:
        """Whether a cell holds neighboring lines at one step in depth, not steps of one line."""
        return self.kind == "fma"

    @property
    def operand_bytes(self) -> int:
        """Of an element of the operands."""
        return _itemsize(self.operand)

    @property
    def accumulator_bytes(self) -> int:
        """Of an accumulator."""
        return _itemsize(self.accumulator)

    @property
    def cell(self) -> int:
        """Elements in a cell."""
        return CELL_BYTES // self.operand_bytes

    @property
    def cell_lines(self) -> int:
        """Lines of which a cell has elements."""
        return self.cell if self.across else 1

    @property
    def cell_depth(self) -> int:
        """Steps in depth of which a cell has elements."""
        return self.cell // self.cell_lines

    @property
    def cells(self) -> int:
        """Cells of a line that a lane reads at a time."""
        return max(1, self.step // self.cell_depth)

    @property
    def depth(self) -> int:
        """Elements of depth that all lanes of a line hold, or read at a time."""
        if self.kind == "rows":
            return self.groups * self.step
        return self.groups * self.cells * self.cell_depth

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Tiling:
    """How a workgroup divides a tile of a product.

    Args:
      atom: what multiplies.
      waves: waves along rows and columns.
      fragments: atoms along rows and columns of each wave.
      depth: of the operands' tiles in LDS.
      stages: tiles of each operand in LDS.
    """

    atom: MmaAtom
    waves: tuple[int, int]
    fragments: tuple[int, int]
    depth: int
    stages: int = 1

    @property
    def rows(self) -> int:
        return self.waves[0] * self.fragments[0] * self.atom.m

    @property
    def columns(self) -> int:
        return self.waves[1] * self.fragments[1] * self.atom.n

    @property
    def columns_together(self) -> int:
        """Columns of the result that pass on together: a power of two."""
        return self.columns & -self.columns

    @property
    def wave_count(self) -> int:
        return self.waves[0] * self.waves[1]

    @property
    def accumulator_registers(self) -> int:
        """Registers in which a lane holds accumulators."""
        each = len(self.atom.elements) * max(self.atom.accumulator_bytes // 4, 1)
        twice = self.atom.doubled or self.atom.sums_tiles
        return math.prod(self.fragments) * each * (2 if twice else 1)

    @property
    def fragment_registers(self) -> int:
        """Registers in which a lane holds what it multiplies at a time."""
        if self.atom.from_lds:
            return 0
        more = zip(self.fragments, self.atom.more, strict=True)
        lines = sum(fragments * len(distances) for fragments, distances in more)
        return lines * self.atom.cells * self.atom.parts * CELL_BYTES // 4


@dataclass(frozen=True)
class SharedLayout:
    """Where the cells of an operand's tile lie in LDS, counted in cells.

    Args:
      lines: of the tile.
      slices: steps of a cell in depth.
      interleave: neighboring lines that one thread stores at the same time. They lie apart, so that
        the threads beside it store beside it.
      cell_lines: neighboring lines in a cell.
    """

    lines: int
    slices: int
    interleave: int = 1
    cell_lines: int = 1

    @property
    def interleave_stride(self) -> int:
        """Cells between lines that one thread stores."""
        padding = 8 // self.interleave if self.interleave > 1 else 0
        return self.lines // (self.interleave * self.cell_lines) + padding

    @property
    def slice_stride(self) -> int:
        """Cells of a slice; a few more than it has lines, so that slices begin in other banks."""
        padding = max(1, 8 // self.slices) if self.slices > 1 else 0
        return self.interleave * self.interleave_stride + padding

    @property
    def cells(self) -> int:
        return self.slice_stride * self.slices

    @property
    def line_digits(self) -> Digits:
        """A line's place in its slice. Lines that are multiples of `interleave` apart stay so."""
        if self.interleave == 1:
            return ((self.cell_lines, 1 << 30, 1),)
        return ((1, self.interleave, self.interleave_stride), (self.interleave, 1 << 30, 1))

    def place(self, line: int, slice: int) -> int:
        """The cell of a line in a slice."""
        return slice * self.slice_stride + digits_of(self.line_digits, line)


# Atoms


def mma_atoms(target: GpuTarget, format: str, accumulator: str) -> list[MmaAtom]:
    """What can multiply operands in a format, largest first; empty if they must be converted.

    A format is a dtype, or one with the number of products of parts that make one product of what
    is the sum of parts: `bf16x3`.

    Vector lanes multiply f32, f64 and integers of 32 or 64 bits; smaller operands only where the
    target sums several products in one instruction.
    """
    operand, terms = _terms(format)
    name = MATRIX_NAMES.get(operand, operand)
    found = [matrix_atom(i, target) for i in target.matrix_for(name, accumulator)]
    found = [atom for atom in found if atom.operand == operand]  # the target's flavor of float8
    if terms > 1:
        return [
            replace(x, name=f"{x.name}.x{terms}", terms=terms, flops=x.flops // terms)
            for x in found
        ]
    if found:
        return found
    return [x] if (x := lane_atom(target, operand, accumulator)) is not None else []


@cache
def matrix_atom(i: MatrixInstruction, target: GpuTarget) -> MmaAtom:
    """The atom of a matrix instruction."""
    dtypes = {v: k for k, v in MATRIX_NAMES.items() if k.endswith("fnuz") == (target.fp8 == "fnuz")}
    operand = dtypes.get(i.operand, i.operand)
    flops = target.matrix_rate.get(i.operand, target.vector_rate)
    if i.layout == "mma":
        by_others = target.register_share < 1 and operand != "f64"
        return _mma_atom(i, operand, int(flops * target.register_share) if by_others else flops)
    groups = 1 if i.layout == "wmma_rdna3" else target.wave_size // i.m
    line: Digits = ((1, i.m, 1),)
    group: Digits = () if groups == 1 else ((i.m, groups, 1),)
    places = [i.accumulator_position(0, e) for e in range(i.accumulator_elements)]
    row: Digits = ((i.n, target.wave_size // i.n, i.accumulator_position(i.n, 0)[0]),)
    column: Digits = ((1, i.n, 1),)
    atom = MmaAtom(
        i.intrinsic.removeprefix("llvm.amdgcn."), "matrix", operand, i.accumulator, i.m, i.n,
        i.operand_elements, groups, (line, line), ((0,), (0,)), (group, group), row, column,
        tuple(places), flops, i,
    )  # fmt: skip
    # Where a lane holds neighboring rows of a column, it then has neighboring columns of a row,
    # which are stored together.
    return turned(atom) if places[1][0] - places[0][0] == 1 else atom


def turned(atom: MmaAtom) -> MmaAtom:
    """The atom of the transposed product by the same instruction."""
    return replace(
        atom, m=atom.n, n=atom.m, line=atom.line[::-1], more=atom.more[::-1],
        group=atom.group[::-1], row=atom.column, column=atom.row,
        elements=tuple((c, r) for r, c in atom.elements), transposed=not atom.transposed,
    )  # fmt: skip


def along_rows(atom: MmaAtom) -> MmaAtom | None:
    """The atom whose lanes hold sums of the rows that they hold of the left operand.

    What is computed of the sums of one product, row by row, can then be the left operand of the
    next. It is the atom itself or its turned one; None where neither does.
    """
    if atom.kind not in ("matrix", "mma", "wgmma"):
        return None
    return next((x for x in (atom, turned(atom)) if x.row == x.line[0]), None)


def _mma_atom(i: MatrixInstruction, operand: str, flops: int) -> MmaAtom:
    """NVIDIA's `mma.sync`: four lanes share a line, and hold every eighth row."""
    rows = tuple(range(0, i.m, 8))
    elements = tuple((r, c) for r in rows for c in (0, 1))
    line: Digits = ((4, 8, 1),)
    group: Digits = ((1, 4, 1),)
    name = i.intrinsic.removeprefix("llvm.nvvm.").removeprefix("mma.sync.aligned.")
    return MmaAtom(
        name, "mma", operand, i.accumulator, i.m, i.n, i.k // 4, 4, (line, line), (rows, (0,)),
        (group, group), line, ((1, 4, 2),), elements, flops, i,
    )  # fmt: skip


@cache
def lane_atom(target: GpuTarget, operand: str, accumulator: str) -> MmaAtom | None:
    """Multiply-adds of vector lanes, eight of which lie along a row of the result."""
    if operand == accumulator and operand in ("f32", "f64", "i32", "i64"):
        rate = target.f64_rate if accumulator == "f64" else target.vector_rate
        doubled = target.is_amdgpu and accumulator.startswith("i")
        return _fma_atom(target.wave_size // 8, operand, rate, doubled)
    dot = target.dot_for(operand, accumulator)
    if dot is None or not target.is_amdgpu:
        return None
    m, n = target.wave_size // 8, 8
    a: Digits = ((8, m, 1),)
    b: Digits = ((1, n, 1),)
    rate = target.vector_rate * {"f16": 2, "i8": 4}.get(operand, 1)
    return MmaAtom(
        f"dot.{operand}", "dot", operand, accumulator, m, n, CELL_BYTES // _itemsize(operand), 1,
        (a, b), ((0,), (0,)), ((), ()), a, b, ((0, 0),), rate, dot,
    )  # fmt: skip


def _fma_atom(high: int, dtype: str, flops: int, doubled: bool) -> MmaAtom:
    """Each lane multiplies a few neighboring lines of `a` with as many of `b`."""
    each = CELL_BYTES // _itemsize(dtype)
    a: Digits = ((8, high, each),)
    b: Digits = ((1, 8, each),)
    elements = tuple((i, j) for i in range(each) for j in range(each))
    return MmaAtom(
        f"fma.{dtype}", "fma", dtype, dtype, high * each, 8 * each, 1, 1, (a, b), ((0,), (0,)),
        ((), ()), a, b, elements, flops, doubled=doubled,
    )  # fmt: skip


@cache
def row_atoms(target: GpuTarget, operand: str) -> list[MmaAtom]:
    """Multiply-adds of lanes that share rows, each of which has a part of the left operand.

    What one of them has of a row, the others get of it while they multiply. So left operands lie as
    sums do, as those of matrix instructions that `along_rows` finds.
    """
    if operand != "f32" or target.wave_size != 32:
        return []
    return [_row_atom(target, operand, rows) for rows in (4, 2)]


def _row_atom(target: GpuTarget, operand: str, rows: int) -> MmaAtom:
    """Of so many rows of each lane."""
    high, more = target.wave_size // ROW_LANES, tuple(range(rows))
    wide, beside = ROW_LANES * LANE_COLUMNS, tuple(range(LANE_COLUMNS))
    line: Digits = ((ROW_LANES, high, rows),)
    place: Digits = ((1, ROW_LANES, LANE_COLUMNS),)
    return MmaAtom(
        f"fma.rows{rows}.{operand}", "rows", operand, operand, high * rows, wide, LANE_COLUMNS,
        ROW_LANES, (line, place), (more, beside), (place, ()), line, place,
        tuple((r, c) for r in more for c in beside), target.vector_rate,
    )  # fmt: skip


@cache
def warpgroup_atoms(target: GpuTarget, operand: str) -> list[MmaAtom]:
    """The atoms of a target that has `wgmma`, for operands of a dtype; each warp has 16 rows.

    Sums of float8 are no full f32 in this unit, so that those are multiplied as f16.
    """
    if target.name != "sm_90a" or operand not in ("f16", "bf16", "i8", "xf32"):
        return []
    rate = target.matrix_rate[operand]
    return [_warpgroup_atom(operand, columns, rate) for columns in (256, 192, 128, 64)]


@cache
def staged_atoms(target: GpuTarget, format: str) -> list[MmaAtom]:
    """The same for operands in a format that memory has not: lines of theirs are rows in LDS."""
    operand, terms = _terms(format)
    if target.name != "sm_90a" or operand not in ("f16", "bf16", "xf32"):
        return []
    rate = target.matrix_rate[operand] // terms
    found = [_warpgroup_atom(operand, columns, rate) for columns in (256, 128, 64)]
    suffix = f".x{terms}.staged" if terms > 1 else ".staged"
    return [replace(x, name=x.name + suffix, terms=terms, staged=True) for x in found]


def _warpgroup_atom(operand: str, columns: int, flops: int) -> MmaAtom:
    line: Digits = ((4, 8, 1),)
    step = WARPGROUP_STEP_BYTES // _itemsize(operand)
    accumulator = "i32" if operand == "i8" else "f32"
    elements = tuple((e // 2 % 2 * 8, e // 4 * 8 + e % 2) for e in range(columns // 2))
    return MmaAtom(
        f"wgmma.m64n{columns}k{step}.{operand}", "wgmma", operand, accumulator, 16, columns, step,
        1, (line, line), ((0,), (0,)), ((), ()), line, ((1, 4, 2),), elements, flops,
    )  # fmt: skip


def tile_atoms(target: GpuTarget, operand: str, accumulator: str) -> list[MmaAtom]:
    """What multiplies tiles whose left operand is in registers, as `along_rows` has it.

    Lanes do where no matrix instruction multiplies f32. Of `wgmma` an atom is the part of a warp
    and of eight columns: its lanes hold the sums of `mma.sync`, and of the left operand what lies
    where sums would, in the order of the depth.
    """
    found = [x for atom in mma_atoms(target, operand, accumulator) if (x := along_rows(atom))]
    if not found and accumulator == operand:
        return row_atoms(target, operand)
    if accumulator != "f32" or operand == "i8" or not warpgroup_atoms(target, operand):
        return found
    line: Digits = ((4, 8, 1),)
    depth = WARPGROUP_STEP_BYTES // _itemsize(operand)
    group: Digits = ((1, 4, 1),)
    warpgroup = MmaAtom(
        f"wgmma.m64k{depth}.{operand}", "wgmma", operand, accumulator, 16, 8, depth // 4, 4,
        (line, line), ((0, 8), (0,)), (group, group), line, ((1, 4, 2),),
        ((0, 0), (0, 1), (8, 0), (8, 1)), target.matrix_rate[operand],
    )  # fmt: skip
    return [warpgroup, *found]
