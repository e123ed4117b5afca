"""Products of tiles by Hopper's warpgroups: layouts, and which operands are copied to LDS.

There is no emulator for PTX; what the instructions say is looked at.
"""

import re

import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu.copied_tiles import copied_tiles
from amdjax.codegen.gpu.fragments import accumulator_layout, operand_layout
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.codegen.gpu.warpgroup_tiles import cell_layout
from amdjax.codegen.gpu.writer import PASSES
from amdjax.targets.mma import Tiling, tile_atoms
from amdjax.tile import MatrixTiling, passes

TARGET = targets.get("sm_90a")
ROWS = 64  # of all tiles, and columns


def atom(operand):
    return tile_atoms(TARGET, operand, "f32")[0]


@pytest.mark.parametrize("operand", ["f16", "bf16"])
def test_sums_are_left_operands_as_they_lie(operand):
    first = Tiling(atom(operand), (8, 1), (2, 16), 64)
    second = Tiling(atom(operand), (8, 1), (2, 8), 128)
    sums = accumulator_layout(first, 32)
    assert operand_layout(second, 32) == sums
    # "Parallel Thread Execution ISA", wgmma: fragments of m64nNk16.
    for thread, register in ((0, 0), (37, 5), (255, 30), (130, 63)):
        row, column = sums.place(thread, register)
        fragment, inside = divmod(register, 64)
        assert row == thread // 32 * 32 + fragment * 16 + thread % 32 // 4 + inside // 2 % 2 * 8
        assert column == inside // 4 * 8 + thread % 4 * 2 + inside % 2


def test_only_hopper_has_them():
    for name in ("sm_80", "sm_90", "gfx942", "gfx1100"):
        assert not any(x.from_lds for x in tile_atoms(targets.get(name), "f16", "f32"))
    assert not any(x.from_lds for x in tile_atoms(TARGET, "f32", "f32"))


@pytest.mark.parametrize("threads", [128, 256])
@pytest.mark.parametrize("shape", [(16, 64), (64, 64), (32, 256), (128, 128)])
def test_every_cell_is_copied(shape, threads):
    layout = cell_layout(shape, threads, 2)
    cells = [layout.place(t, r) for t in range(threads) for r in range(layout.registers)]
    assert set(cells) == {(r, c) for r in range(shape[0]) for c in range(0, shape[1], 8)}
    assert len(cells) == max(shape[0] * shape[1] // 8, threads)


def looped(change="", offset=64 * 64):
    """`out = a · (b₀ + b₁ + …)ᵀ`, where each `b` is loaded while the one before is multiplied."""
    k = tile.Builder("k")
    a, b = k.param("a", "f16"), k.param("b", "f16", "inout" if change == "written" else "in")
    out = k.param("out", "f32", "out")
    k.schedule.workgroup = 128
    shape = ROWS, ROWS
    strides = (ROWS, 1) if change != "columns" else (1, ROWS)
    tiling = MatrixTiling(atom("f16").name, "f16", (4, 1), (1, 8), ROWS, 1)
    left = k.load(a, 0, shape)
    mask = k.broadcast(k.expand(k.iota(ROWS) < 40, 0), shape)
    ragged = k.broadcast(k.expand(k.iota(ROWS) < 41, 0), shape)
    masks = {"masked": (mask, 0), "ragged": (ragged, 0), "filled": (mask, 1)}

    def load(i):
        return k.load(b, i * offset, shape, strides, *masks.get(change, (None, 0)))

    def step(i, x, total):
        if change == "late":
            x = load(i)
        following = load(i + 1)
        if change == "stored":
            k.store(out, 0, k.convert(following, "f32"), (ROWS, 1))
        used = k.transpose(x + x if change == "computed" else x)
        return [following, k.dot(left, used, total, tiling)]

    def products(first):
        return k.for_(0, k.program_id(), 1, step, [first, k.const("f32", 0, shape)])[1]

    first = load(k.index(0))
    if change == "outer":  # what the inner loop begins with is loaded once for all its runs
        k.for_(0, 4, 1, lambda i: k.store(out, i, products(first), (ROWS, 1)))
    else:
        k.store(out, 0, products(first), (ROWS, 1))
    return k.finish(4)


@pytest.mark.parametrize("change", ["", "masked"])
def test_what_a_loop_brings_for_its_next_round_is_copied(change):
    found = copied_tiles(passes.run(looped(change), PASSES), TARGET)
    assert {x.name for x in found.tiles.values()} == {"tiles.0"}
    assert len(found.partners) == 2 and len(found.transposes) == 1 and len(found.waiting) == 1


@pytest.mark.parametrize(
    "change",
    ["written", "columns", "ragged", "filled", "late", "stored", "computed", "outer"],
)
def test_what_is_no_copy(change):
    """It would be another tile's, or is needed elsewhere: it goes through registers."""
    kernel = looped(change)
    assert not copied_tiles(passes.run(kernel, PASSES), TARGET).tiles
    text = compile_kernel(kernel, TARGET).code.decode()
    assert "wgmma.mma_async" in text and "cp.async" not in text
    assert "st.shared.v4" in text  # whole cells


def test_offsets_that_nothing_is_known_of():
    found = copied_tiles(passes.run(looped(offset=ROWS * ROWS + 4), PASSES), TARGET)
    assert not found.tiles


def test_a_round_waits_once():
    text = compile_kernel(looped(), TARGET).code.decode()
    # Half of the 512 cells of a tile each before the loop and in a round.
    assert len(re.findall(r"cp\.async\.cg\.shared\.global", text)) == 8
    assert "st.shared" not in text.split("wgmma.mma_async")[0]
    _, _, inside = text.partition("cp.async.commit_group")
    order = re.findall(r"wait_group|proxy\.async|bar\.sync|cp\.async\.cg|wgmma\.fence", inside)
    kept = [x for i, x in enumerate(order) if not i or order[i - 1] != x]
    at = kept.index("proxy.async")
    assert kept[at - 1 : at + 4] == [
        "wait_group", "proxy.async", "bar.sync", "cp.async.cg", "wgmma.fence",
    ]  # fmt: skip


def test_operands_that_are_constants_are_in_registers():
    """No word of a left operand is a constant, nor what products are added to in a loop."""
    k = tile.Builder("k")
    a, b, out = k.param("a", "f16"), k.param("b", "f16"), k.param("out", "f32", "out")
    k.schedule.workgroup = 128
    shape = ROWS, ROWS
    few = k.broadcast(k.expand(k.iota(ROWS, "i32") < 40, 0), shape)
    left = k.load(a, 0, shape, (40, 1), few, eager=True)
    tiling = MatrixTiling(atom("f16").name, "f16", (4, 1), (1, 8), ROWS, 1)
    zeros = k.const("f32", 0, shape)

    def step(i, total):
        right = k.load(b, i * (ROWS * ROWS), shape)
        sums = k.dot(left, k.transpose(right), zeros, tiling)
        return [k.dot(k.convert(sums, "f16"), right, total, tiling)]

    (total,) = k.for_(0, 1, 1, step, [zeros])
    k.store(out, 0, total)
    text = compile_kernel(k.finish(1), TARGET).code.decode()
    constants = set(re.findall(r"mov\.[bf]32 \t?(%\w+), 0\S*;", text))
    copied = True
    while copied:
        pairs = re.findall(r"mov\.[bf]32 \t?(%\w+), (%\w+);", text)
        copied = {x for x, y in pairs if y in constants} - constants
        constants |= copied
    found = re.findall(r"wgmma\.mma_async[^{]*\{([^}]*)\}, \{([^}]*)\}, d, (\w), 1, 1, (\d)", text)
    assert len(found) == 8
    assert [x[2:] for x in found] == [("q", "0"), *[("p", "0")] * 3, *[("p", "1")] * 4]
    for sums, left, adds, by_lines in found:
        assert not constants & set(left.split(", "))
        if by_lines == "1":
            assert adds == "p" and not constants & set(sums.split(", "))
