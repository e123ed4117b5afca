"""Where lanes hold the elements of products: against the tables of the targets, and banks."""

import pytest

from amdjax import targets
from amdjax.targets.mma import (
    MATRIX_NAMES,
    SharedLayout,
    Tiling,
    digits_of,
    lane_atom,
    matrix_atom,
    mma_atoms,
)

DISTINCT = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "sm_90")
ALL = [(name, i) for name in DISTINCT for i in targets.get(name).matrix if i.blocks == 1]


@pytest.mark.parametrize("name, i", ALL, ids=lambda x: getattr(x, "intrinsic", x))
def test_atoms_hold_what_instructions_do(name, i):
    target = targets.get(name)
    if i.operand in ("i4", "fp8_bf8", "bf8_fp8"):
        pytest.skip("not multiplied by an atom")
    atom = matrix_atom(i, target)
    lanes = range(target.wave_size)
    sums, lines, depths = set(), set(), set()
    for lane in lanes:
        row, column = digits_of(atom.row, lane), digits_of(atom.column, lane)
        mine = {(row + r, column + c) for r, c in atom.elements}
        held = {i.accumulator_position(lane, e) for e in range(i.accumulator_elements)}
        # The transposed product where that gives a lane neighbors of a row.
        assert mine in (held, {(c, r) for r, c in held})
        sums |= mine
        first = digits_of(atom.line[0], lane)
        places = {i.operand_position(lane, e) for e in range(i.operand_elements)}
        assert {first + m for m in atom.more[0]} == {line for line, _ in places}
        lines |= {first + m for m in atom.more[0]}
        depths.add(digits_of(atom.group[0], lane))
    assert sums == {(r, c) for r in range(i.m) for c in range(i.n)}
    assert lines == set(range(i.m)) and depths == set(range(atom.groups))
    assert atom.step * atom.groups == i.k


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("operand, sums", [("f16", "f32"), ("f32", "f32"), ("f64", "f64")])
def test_every_target_multiplies(name, operand, sums):
    found = mma_atoms(targets.get(name), operand, sums)
    assert found and all(u.operand == operand and u.accumulator == sums for u in found)
    assert [u.m * u.n for u in found] == sorted((u.m * u.n for u in found), reverse=True)


def test_float8_has_the_flavor_of_the_target():
    assert mma_atoms(targets.get("gfx942"), "f8_e4m3fnuz", "f32")[0].name.endswith("fp8.fp8")
    assert mma_atoms(targets.get("gfx950"), "f8_e4m3fn", "f32")[0].name.endswith("fp8.fp8")
    assert not mma_atoms(targets.get("gfx942"), "f8_e4m3fn", "f32")
    assert set(MATRIX_NAMES.values()) == {"fp8", "bf8"}


@pytest.mark.parametrize("together", [1, 2, 4])
@pytest.mark.parametrize("lines, planes", [(16, 2), (32, 4), (128, 4), (64, 8), (8, 1)])
def test_cells_are_distinct(lines, planes, together):
    p = SharedLayout(lines, planes, together)
    places = [p.place(line, plane) for line in range(lines) for plane in range(planes)]
    assert len(set(places)) == lines * planes and max(places) < p.cells
    # Distances between fragments are constants.
    for line in range(0, lines, 8):
        assert all(p.place(line + i, 0) == p.place(line, 0) + p.place(i, 0) for i in range(8))


def conflicts(cells, lanes=8):
    """Clocks that an access of 16 bytes a lane takes beyond those it moves data in."""
    extra = 0
    for first in range(0, len(cells), lanes):
        group = set(cells[first : first + lanes])
        banks = [cell % 8 for cell in group]
        extra += max(banks.count(bank) for bank in banks) - 1
    return extra


READS = [
    (name, atom, together)
    for name in DISTINCT
    for operand, sums in (("f16", "f32"), ("f32", "f32"), ("i8", "i32"), ("f64", "f64"))
    for atom in mma_atoms(targets.get(name), operand, sums)
    for together in ((1,) if name == "sm_90" or atom.across else (1, 4))
]


@pytest.mark.parametrize("name, atom, together", READS, ids=str)
def test_fragments_are_read_without_bank_conflicts(name, atom, together):
    lanes = range(targets.get(name).wave_size)
    tiling = Tiling(atom, (2, 2), (4, 4), max(atom.depth, 2 * atom.cell))
    planes = SharedLayout(128, tiling.depth // atom.cell_depth, together, atom.cell_lines)
    for side in (0, 1):
        cells = [
            planes.place(digits_of(atom.line[side], x), digits_of(atom.group[side], x) * atom.cells)
            for x in lanes
        ]
        assert conflicts(cells) == 0, (side, cells)


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
def test_lanes_divide_the_result(name, dtype):
    target = targets.get(name)
    atom = lane_atom(target, dtype, dtype)
    held = [
        (digits_of(atom.row, lane) + r, digits_of(atom.column, lane) + c)
        for lane in range(target.wave_size)
        for r, c in atom.elements
    ]
    assert sorted(held) == [(r, c) for r in range(atom.m) for c in range(atom.n)]


@pytest.mark.parametrize("planes", [1, 2, 4, 8])
def test_cells_along_depth_are_written_without_bank_conflicts(planes):
    p = SharedLayout(128, planes)
    assert conflicts([p.place(x // planes, x % planes) for x in range(64)]) == 0
