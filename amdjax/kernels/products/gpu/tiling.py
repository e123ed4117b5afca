"""How a contraction is cut for a GPU: dtypes to multiply, tiles, parts of the depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.gpu.operands import contiguity, run_of_tiles
from amdjax.schedule.search import Family, Solver
from amdjax.targets import GpuTarget
from amdjax.targets.mma import (
    CELL_BYTES,
    MATRIX_NAMES,
    WARPGROUP_ROW_BYTES,
    MmaAtom,
    SharedLayout,
    Tiling,
    mma_atoms,
)
from amdjax.tile import FLOATS, MatrixTiling, itemsize
from amdjax.tile.types import NARROW_INTS

WAVES = 4  # of a program, one for each SIMD
MOST_SUMS = 128  # registers of a lane that hold sums
WARPGROUP_STAGES = (4, 3, 2)  # tiles of an operand in LDS; the largest tile leaves room for four
LEAST_DEPTH = 16  # of a tile, where there is as much
DEEPER = 2, 4  # times as much, where LDS and registers allow
FEW_SUMS = 8  # sums of a lane with which half of the time goes into issuing what reads fragments
LDS_WORDS = 4  # registers that an instruction reads from LDS
STEP_INSTRUCTIONS = 20  # of a tile in depth: its places, waits, barriers and the loop
WITH_WAIT = 2  # instructions for each fragment, and for each of their products
OTHER_REGISTERS = 16  # of a lane, besides sums, what is multiplied and what is brought
PREFETCH_CLOCKS = 50  # of a step, more than without, where the next tile is brought besides
PREFETCH_COLUMNS = 64  # of sums that pass through LDS at a time then
LOAD_REGISTERS = 2  # besides what a load brings: its place, and whether something is there
SPLIT_GAIN = 1.5  # of products of parts, below which splitting operands costs what they gain
TIE = 1e-6  # of work that waiting hides, so that less of it is better where all else is equal
PARTS_TOGETHER = 8  # parts that are read before any is added
PARTS_BYTES = 64 << 10  # of sums that one program adds, where programs share the depth


@dataclass(frozen=True)
class Plan:
    """A contraction, cut.

    Args:
      tiling: of a program's tile.
      splits: parts of the depth that different programs sum.
      part: depth of each.
      rounded: operands are rounded before.
    """

    tiling: Tiling
    splits: int
    part: int
    rounded: bool = False

    def __str__(self) -> str:
        t = self.tiling
        out = f"tiles of {t.rows}×{t.columns}×{t.depth} by {t.atom.name}"
        out += f", {t.waves[0]}×{t.waves[1]} waves"
        out += f", {t.stages} stages" if t.stages > 1 else ""
        out += f", split {self.splits} ways along depth" if self.splits > 1 else ""
        return out + (", operands rounded before" if self.rounded else "")


def matrix_tiling(tiling: Tiling) -> MatrixTiling:
    """The tiling as a tile program has it, which knows atoms by name."""
    atom, waves, fragments = tiling.atom, tiling.waves, tiling.fragments
    return MatrixTiling(atom.name, atom.format, waves, fragments, tiling.depth, tiling.stages)


def operand_atoms(
    target: GpuTarget, a: str, b: str, accumulate: str, formats: Sequence[str] = ()
) -> list[MmaAtom]:
    """What can multiply operands of two dtypes; the fastest, in all its sizes.

    Without loss, but that float32 may be taken in one of the `formats`.
    """
    best: list[MmaAtom] = []
    may = formats if accumulate == "f32" in (a, b) else ()
    for dtype in (*_common_dtypes(a, b, accumulate), *may):
        found = mma_atoms(target, dtype, accumulate)
        least = SPLIT_GAIN if found and found[0].parts > 1 else 1
        if found and (not best or found[0].flops > least * best[0].flops):
            best = found
    return best


def _common_dtypes(a: str, b: str, accumulate: str) -> Iterator[str]:
    """Dtypes that hold all values of both operands, as far as the sums need them."""
    if a == b and a in MATRIX_NAMES and accumulate == "f32":
        yield a
    if accumulate in FLOATS:
        for dtype in ("f16", "bf16"):
            if accumulate == "f32" and all(x == dtype or x in _WITHIN[dtype] for x in (a, b)):
                yield dtype
    elif accumulate == "i32" and all(x in _WITHIN["i8"] for x in (a, b)):
        yield "i8"
    yield accumulate


_NARROW = ("bool", *NARROW_INTS)
#: Dtypes whose values another holds.
_WITHIN = {
    "i8": frozenset({*_NARROW, "i8"}),
    "f16": frozenset({*_NARROW, "i8", "u8", *MATRIX_NAMES, "f8_e4m3", "f8_e3m4",
                      "f8_e4m3b11fnuz", "f4_e2m1fn"}),
    "bf16": frozenset({*_NARROW, "i8", "u8", *MATRIX_NAMES, "f8_e4m3", "f8_e3m4",
                       "f8_e4m3b11fnuz", "f8_e8m0fnu", "f4_e2m1fn"}),
}  # fmt: skip


class ProductProblem(NamedTuple):
    """A contraction to cut.

    Args:
      contraction: merged.
      atoms: what can multiply.
      products: that a program computes one after the other, before it uses their sums.
      rounded: the same of operands that are rounded before, if they may be.
    """

    contraction: Contraction
    atoms: Sequence[MmaAtom]
    products: int = 1
    rounded: RoundedProduct | None = None


class RoundedProduct(NamedTuple):
    """A product of operands that are rounded before.

    Args:
      product: of what they become.
      launches: that round them.
      moved: bytes that these read and write.
    """

    product: ProductProblem
    launches: int
    moved: int


def candidates(problem: ProductProblem, target: GpuTarget) -> list[Plan]:
    """All plans worth a look."""
    before = candidates(problem.rounded.product, target) if problem.rounded else []
    plans = [
        plan
        for atom in _fitting(problem)
        for tiling in _tilings(target, problem.contraction, atom, problem.products)
        for plan in _split_plans(target, problem.contraction, tiling)
    ]
    return plans + [replace(plan, rounded=True) for plan in before]


def _fitting(problem: ProductProblem) -> Sequence[MmaAtom]:
    """The atoms of which half would not be enough; the smallest if there are none."""
    rows, columns = problem.contraction.rows, problem.contraction.columns
    found = [x for x in problem.atoms if x.from_lds or (x.m < 2 * rows and x.n < 2 * columns)]
    return found or problem.atoms[-1:]


def _tilings(
    target: GpuTarget, problem: Contraction, atom: MmaAtom, products: int
) -> Iterator[Tiling]:
    if atom.from_lds:
        return _warpgroup_tilings(target, problem, atom)
    return _wave_tilings(target, problem, atom, products)


def _warpgroup_tilings(target: GpuTarget, problem: Contraction, atom: MmaAtom) -> Iterator[Tiling]:
    """One or two warpgroups, each with 64 rows; copies up to three tiles ahead."""
    for rows in (64, 128):
        if rows > 2 * max(problem.rows, 64) or atom.n > 2 * max(problem.columns, 64):
            continue
        depth = WARPGROUP_ROW_BYTES // atom.operand_bytes
        for stages in WARPGROUP_STAGES if atom.copied else (2,):
            tiling = Tiling(atom, (rows // atom.m, 1), (1, 1), depth, stages)
            if atom.copied or _registers(target, problem, tiling) <= target.vgprs:
                yield tiling


def _wave_tilings(
    target: GpuTarget, problem: Contraction, atom: MmaAtom, products: int
) -> Iterator[Tiling]:
    waves = WAVES if target.wave_size == 64 else 2 * WAVES
    for depth, rows, columns in itertools.product(
        _depths(target, problem, atom), _sizes(atom.m), _sizes(atom.n)
    ):
        if rows >= 2 * max(problem.rows, atom.m) or columns >= 2 * max(problem.columns, atom.n):
            continue  # half of it has all of them
        grid = _wave_grid(atom, rows, columns, waves)
        fragments = rows // (grid[0] * atom.m), columns // (grid[1] * atom.n)
        tiling = Tiling(atom, grid, fragments, depth)
        finished = (products - 1) * tiling.accumulator_registers
        if finished + tiling.accumulator_registers > MOST_SUMS:
            continue
        most = target.vgprs - finished
        deep = depth > _usual_depth(problem, atom)
        if deep and not _fits(target, problem, tiling, target.vgprs // 2 - finished):
            continue
        while tiling.depth > atom.depth and _registers(target, problem, tiling) > most:
            tiling = replace(tiling, depth=tiling.depth // 2)
        if _registers(target, problem, tiling) <= most:
            yield tiling
            if not target.is_amdgpu:  # whose LDS is small enough without
                yield replace(tiling, stages=2)


def _usual_depth(problem: Contraction, atom: MmaAtom) -> int:
    wanted = max(atom.depth, 64 // atom.operand_bytes, LEAST_DEPTH)
    return max(atom.depth, min(wanted, power_of_two(problem.depth)))


def _depths(target: GpuTarget, problem: Contraction, atom: MmaAtom) -> list[int]:
    """Depths of tiles: where programs wait for memory in each, few deep ones wait less often."""
    usual = _usual_depth(problem, atom)
    if not target.is_amdgpu or atom.across:
        return [usual]
    deeper = [usual * k for k in DEEPER if usual * k <= problem.depth]
    runs = _runs(problem, usual)
    return [usual, *(depth for depth in deeper if _runs(problem, depth) == runs)]


def _runs(problem: Contraction, depth: int) -> list[bool]:
    """Whether tiles of each operand lie within a run of the depth's innermost loop."""
    return [run_of_tiles(x, depth) is not None for x in (problem.a, problem.b)]


def _fits(target: GpuTarget, problem: Contraction, tiling: Tiling, registers: int) -> bool:
    lds = _operand_bytes(target, problem, tiling) + target.lds_reserved
    return _registers(target, problem, tiling) <= registers and lds <= target.lds_bytes


def _loads(
    target: GpuTarget, problem: Contraction, tiling: Tiling
) -> Iterator[tuple[int, int, int]]:
    """Of each operand: loads of a lane in a tile, words of each, transfers that turn a word."""
    threads = tiling.wave_count * target.wave_size
    for source, lines in ((problem.a, tiling.rows), (problem.b, tiling.columns)):
        along, vector, edge = contiguity(source, tiling.atom, target)
        turned, size = along == "lines" and not tiling.atom.across, itemsize(source.dtype)
        loads = max(lines * tiling.depth // (threads * vector), 1)
        turns = {1: 2, 2: 1}.get(size, 0) if turned else 0
        yield loads, ceil_div(vector * size, 4), turns + (edge is not None)


def _registers(target: GpuTarget, problem: Contraction, tiling: Tiling) -> int:
    """About as many as a lane needs in the loop of a product."""
    brought = sum(
        loads * (words * max(turns, 1) + LOAD_REGISTERS)
        for loads, words, turns in _loads(target, problem, tiling)
    )
    return tiling.accumulator_registers + tiling.fragment_registers + brought + OTHER_REGISTERS


def _brought_bytes(target: GpuTarget, problem: Contraction, tiling: Tiling) -> int:
    """Bytes that come from the second-level cache for a tile in depth.

    Of a line there that reaches beyond the tile's side, others bring the rest; what reaches beyond
    its depth is still near in the next step.
    """
    total = 0
    for source, lines in ((problem.a, tiling.rows), (problem.b, tiling.columns)):
        along, nbytes = contiguity(source, tiling.atom, target)[0], lines * itemsize(source.dtype)
        total += max(nbytes, target.costs.line) if along == "lines" else nbytes
    return total * tiling.depth


def _step_instructions(target: GpuTarget, problem: Contraction, tiling: Tiling) -> float:
    """About the instructions of a wave for one tile in depth.

    They load it, turn its words and store them to LDS, read fragments and multiply them.
    """
    brought = sum(
        loads * (2 + words * turns) for loads, words, turns in _loads(target, problem, tiling)
    )
    multiplied = math.prod(tiling.fragments) + tiling.fragment_registers / LDS_WORDS
    return STEP_INSTRUCTIONS + brought + WITH_WAIT * multiplied * tiling.depth / tiling.atom.depth


def _split_plans(target: GpuTarget, problem: Contraction, tiling: Tiling) -> Iterator[Plan]:
    """With one part of the depth, and with as many as can be of use."""
    depth, programs = tiling.depth, tile_count(problem, tiling)
    # Any few where a program fills a unit, lest the last ones leave units idle.
    few = range(1, PARTS_TOGETHER) if tiling.atom.from_lds else (1, 2, 4)
    many = (PARTS_TOGETHER << i for i in itertools.count())
    for splits in itertools.chain(few, many):
        if splits > 1 and programs * splits > 4 * target.compute_units:
            return
        part = round_up(ceil_div(problem.depth, splits), depth)
        if splits == 1 or (splits - 1) * part < problem.depth:
            yield Plan(tiling, splits, part)
        if part < 8 * depth:
            return


def tile_count(problem: Contraction, tiling: Tiling) -> int:
    """Tiles of the result."""
    high, wide = ceil_div(problem.rows, tiling.rows), ceil_div(problem.columns, tiling.columns)
    return problem.batches * high * wide


def _sizes(least: int) -> list[int]:
    sizes = [least]
    while sizes[-1] < 256:
        sizes.append(sizes[-1] * 2)
    return sizes


def _wave_grid(atom: MmaAtom, rows: int, columns: int, most: int) -> tuple[int, int]:
    """Waves along rows and columns; each gets about a square."""
    high, wide = 1, 1
    while high * wide < most:
        can = [rows // (high * atom.m) > 1, columns // (wide * atom.n) > 1]
        if not any(can):
            break
        if can[0] and (not can[1] or rows // high >= columns // wide):
            high *= 2
        else:
            wide *= 2
    return high, wide


def plan_cost(product: ProductProblem, plan: Plan, target: GpuTarget) -> float:
    """Clocks until the last compute unit is done, or the last pair of them that shares its LDS.

    The programs on a unit share what it can do, and together hide how long memory takes.
    """
    if plan.rounded:
        assert product.rounded is not None
        narrow, launches, moved = product.rounded
        taken = plan_cost(narrow, replace(plan, rounded=False), target)
        rate = _memory_rate(target) * target.compute_units
        return taken + target.costs.launch * launches + moved / rate
    problem = product.contraction
    tiling, atom, costs = plan.tiling, plan.tiling.atom, target.costs
    rows, columns = tiling.rows, tiling.columns
    steps = ceil_div(plan.part, tiling.depth)
    units = target.lds_units
    beside = target.compute_units / units  # compute units that work on a program together
    accumulators = math.prod(tiling.fragments) * len(atom.elements)
    few, latency, stall = FEW_SUMS, float(costs.load_latency), costs.stall / tiling.stages
    if target.issue_clocks:  # instructions are counted, which these stand for
        few, stall = 0, 0
    if atom.copied:
        latency, stall = costs.copy_latency / (tiling.stages - 1), 0
    busy = 2 * rows * columns * tiling.depth / atom.flops * (1 + few / accumulators)
    programs = tile_count(problem, tiling) * plan.splits
    rate = max(costs.cache_rate, min(costs.few_rate, costs.cache_rate * units / max(programs, 1)))
    loads = _brought_bytes(target, problem, tiling) / rate
    parts = [x / beside for x in (busy, loads, _fragment_reads(target, tiling) / costs.lds_rate)]
    issue = _step_instructions(target, problem, tiling) * target.issue_clocks
    parts.append(issue * tiling.wave_count / target.simds)
    # Threads that put operands into LDS for `wgmma` wait for loads and for what they multiply.
    hidden = 0 if atom.staged else 1 - costs.not_hidden
    step = sum(parts) - (sum(parts) - max(parts)) * hidden
    stored = atom.accumulator if plan.splits > 1 else problem.out.dtype
    filled = min(rows, problem.rows) * min(columns, problem.columns)
    store = filled * itemsize(stored) / (_memory_rate(target) * beside)
    alone = costs.program + steps * (max(step + stall, latency) + issue) + store

    def together(programs: int) -> float:
        """Clocks of programs on one compute unit."""
        return max(alone, programs * (costs.program_issue + steps * step + store))

    most = _resident(target, problem, tiling)
    full, rest = divmod(programs, most * units)
    cycles = full * together(most)
    if rest:
        cycles += together(ceil_div(rest, units))
    if plan.splits > 1:
        moved = problem.batches * problem.rows * problem.columns * atom.accumulator_bytes
        everywhere = costs.cache_rate / 2 * target.compute_units
        cycles += costs.arrival if adds_parts(problem, plan) else costs.launch
        cycles += ceil_div(plan.splits, PARTS_TOGETHER) * costs.load_latency
        cycles += 2 * plan.splits * moved / everywhere
    return cycles + TIE * programs * steps * sum(parts)


PRODUCTS: Family[ProductProblem, GpuTarget, Plan] = Family(
    "product on a GPU", Solver("matrix unit", candidates, plan_cost)
)


def _operand_bytes(target: GpuTarget, problem: Contraction, tiling: Tiling) -> int:
    """Bytes of LDS that both operands take in one stage."""
    atom = tiling.atom
    if atom.from_lds:
        return (tiling.rows + tiling.columns) * tiling.depth * atom.operand_bytes * atom.parts
    cells = 0
    for source, lines in ((problem.a, tiling.rows), (problem.b, tiling.columns)):
        along, vector, _ = contiguity(source, atom, target)
        interleave = vector if along == "lines" and not atom.across else 1
        slices = tiling.depth // atom.cell_depth
        cells += SharedLayout(lines, slices, interleave, atom.cell_lines).cells
    return cells * atom.parts * CELL_BYTES


def adds_parts(problem: Contraction, plan: Plan) -> bool:
    """Whether the last program of a tile adds its parts, which are few enough for one."""
    problem = problem.at_hand
    rows, columns = min(plan.tiling.rows, problem.rows), min(plan.tiling.columns, problem.columns)
    nbytes = plan.splits * rows * columns * itemsize(problem.accumulate)
    together = plan.tiling.columns_together == plan.tiling.columns
    return plan.splits > 1 and together and nbytes <= PARTS_BYTES


def _memory_rate(target: GpuTarget) -> float:
    """Bytes of memory that a compute unit gets in a clock."""
    device = target.device
    return device.bandwidth * 1e3 / (device.clock * device.compute_units)


def _fragment_reads(target: GpuTarget, tiling: Tiling) -> float:
    """Bytes of LDS that lanes read for one tile in depth."""
    atom = tiling.atom
    if atom.from_lds:
        return 0.0
    each = 4 * tiling.fragment_registers * target.wave_size * tiling.wave_count
    return each * tiling.depth / atom.depth


def prefetches_tiles(target: GpuTarget, problem: Contraction, tiling: Tiling) -> bool:
    """Whether programs that compute tiles in rounds, and bring the next one's, are faster.

    A round begins at once then, but steps take longer. The next tile is beside sums that pass
    through LDS, in a compute unit that holds one program.
    """
    tiles, steps = tile_count(problem, tiling), problem.depth // tiling.depth
    each = 2 if problem.out.dtype in ("f16", "bf16") else tiling.atom.accumulator_bytes
    sums = tiling.rows * PREFETCH_COLUMNS * each
    lds = _operand_bytes(target, problem, tiling) * tiling.stages + sums + 2 * target.lds_reserved
    return (
        tiling.stages <= steps < target.costs.program / PREFETCH_CLOCKS
        and tiles > target.compute_units
        and lds <= target.lds_bytes
        and _resident(target, problem, tiling) == 1
    )


def _resident(target: GpuTarget, problem: Contraction, tiling: Tiling) -> int:
    """Programs that a compute unit holds at once, as far as LDS and sums in registers go."""
    atom = tiling.atom
    operands = _operand_bytes(target, problem, tiling)
    result = atom.m * tiling.columns * atom.accumulator_bytes
    lds = max(operands * tiling.stages, result) + target.lds_reserved
    waves = target.vgpr_file // (tiling.accumulator_registers + 64) * target.simds
    return max(1, min(target.lds_per_cu // lds, waves // tiling.wave_count))
