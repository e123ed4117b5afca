"""Layouts of products of tiles: who holds what, and what may be an operand as it is."""

import pytest

from amdjax import targets
from amdjax.codegen.gpu.fragments import (
    FragmentLayout,
    accumulator_layout,
    bit_digits,
    operand_layout,
    operand_order,
    rectangles,
)
from amdjax.targets.mma import Tiling, along_rows, digits_of, mma_atoms, row_atoms

DISTINCT = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90")
ATOMS = [
    (name, along_rows(atom))
    for name in DISTINCT
    for operand, sums in (("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64"))
    for atom in mma_atoms(targets.get(name), operand, sums)
    if not atom.by_lanes
]


def tilings(atom):
    """Of two products, where the sums of the first are the left operand of the second."""
    wide = max(64, 2 * atom.depth, 2 * atom.n)
    first = Tiling(atom, (2, 1), (2, wide // atom.n), 2 * atom.depth)
    return first, Tiling(atom, (2, 1), (2, 2), wide)


def held(layout: FragmentLayout):
    """Each element with the threads that hold it."""
    found = {}
    for thread in range(layout.threads):
        for r in range(layout.registers):
            found.setdefault(layout.place(thread, r), set()).add(thread)
    return found


#: Of lanes that share rows.
ROWS = [(name, x) for name in ("gfx1100", "sm_90") for x in row_atoms(targets.get(name), "f32")]


@pytest.mark.parametrize("name, atom", ATOMS + ROWS, ids=str)
def test_layouts_hold_every_element(name, atom):
    wave = targets.get(name).wave_size
    for tiling in tilings(atom):
        for layout in (accumulator_layout(tiling, wave), operand_layout(tiling, wave)):
            threads = held(layout)
            assert set(threads) == {
                (r, c) for r in range(layout.shape[0]) for c in range(layout.shape[1])
            }
            turned = layout.transposed
            assert turned.shape == layout.shape[::-1] and turned.transposed == layout
        assert {len(x) for x in held(accumulator_layout(tiling, wave)).values()} == {1}


@pytest.mark.parametrize("name, atom", ATOMS, ids=str)
def test_sums_are_left_operands(name, atom):
    """What an instruction takes of each lane is what stands there in the right operand's order."""
    wave = targets.get(name).wave_size
    first, second = tilings(atom)
    layout = accumulator_layout(first, wave)
    order = operand_order(layout, second, wave)
    assert order is not None
    digits = bit_digits(order.depth)
    unit = atom.cells * atom.cell_depth
    lines = dict.fromkeys(row for row, _ in operand_layout(second, wave).elements)
    for thread in range(layout.threads):
        group = digits_of(atom.group[0], thread % wave)
        for row, registers in zip(lines, order.lines, strict=True):
            for slot, r in enumerate(registers):
                step, x = divmod(slot, unit)
                place = (step * atom.groups + group) * unit + x
                lower = thread & ~order.lane
                there = thread if not order.lane else lower if r >= 0 else lower | order.lane
                at = layout.place(there, r if r >= 0 else ~r)
                base = digits_of(operand_layout(second, wave).bases[0], thread)
                assert at == (base + row, order.depth[place])
                assert digits_of(digits, at[1]) == place


@pytest.mark.parametrize("name, atom", ROWS, ids=str)
def test_sums_of_lanes_that_share_rows_are_left_operands_as_they_lie(name, atom):
    wave = targets.get(name).wave_size
    tiling = Tiling(atom, (2, 1), (2, 64 // atom.n), 64)
    assert accumulator_layout(tiling, wave) == operand_layout(tiling, wave)
    assert accumulator_layout(tiling, wave).width == 2  # neighbors, which are loaded together


def test_sums_on_nvidia_have_the_order_of_transposed_cells():
    """A lane gets of every eight rows of the right operand those two that it has of the left."""
    _name, atom = next(x for x in ATOMS if x[0] == "sm_90")
    first, second = tilings(atom)
    order = operand_order(accumulator_layout(first, 32), second, 32)
    for at, column in enumerate(order.depth):
        step, group, word, one = at // 32, at // 8 % 4, at // 2 % 4, at % 2
        assert column == 32 * step + 8 * word + 2 * group + one


def test_other_rows_are_no_operand():
    _name, atom = next(x for x in ATOMS if x[0] == "gfx942")
    first, second = tilings(atom)
    assert operand_order(accumulator_layout(first, 64).transposed, second, 64) is None
    other = Tiling(atom, (4, 1), (1, first.fragments[1]), first.depth)
    assert operand_order(accumulator_layout(other, 64), second, 64) is None


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("threads", [32, 128, 512])
@pytest.mark.parametrize("shape", [(16, 16), (64, 64), (32, 256), (128, 8)])
def test_rectangles_hold_every_element(shape, threads, itemsize):
    layout = rectangles(shape, threads, itemsize)
    found = held(layout)
    assert len(found) == shape[0] * shape[1]
    # The same number of threads has each element.
    assert len({len(x) for x in found.values()}) == 1


def test_rows_and_columns_of_a_layout():
    _, atom = next(x for x in ATOMS if x[0] == "gfx942")
    first, _ = tilings(atom)
    layout = accumulator_layout(first, 64)
    rows, columns = layout.without(1), layout.without(0)
    assert rows.shape == layout.shape[:1] and columns.shape == layout.shape[1:]
    assert rows.registers == 2 and rows.thread_bits(0) == layout.thread_bits(0)
    assert layout.along(1).shape == (layout.shape[0], 1)
    assert layout.width == 4 and layout.minor_axis == 1
