"""The comparison with Triton's code: figures, tables, and our side of it."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
tool = pytest.importorskip("compare_triton", reason="a source distribution has no tools")

OURS = tool.Figures(300, 30, 900.0, 90, 10, 4096, 5, 24, 16, 0, 8)
TRITON = tool.Figures(200, 60, 1800.0, 60, 20, 4096, 0, 130, 40, 0, 4, "64×64 4 waves")


def test_the_best_way_spills_nothing():
    spilling = replace(TRITON, instructions=100, spills=3)
    slower = replace(TRITON, instructions=250)
    spills = lambda x: x.spills
    assert tool.best([slower, spilling, TRITON], lambda x: x.instructions, spills) is TRITON
    assert tool.best([spilling], lambda x: x.instructions, spills) is spilling


def test_table():
    behind = tool.Compared("product", "gfx942", OURS, tool.Best(TRITON, 40, 1200.0))
    ahead = tool.Compared("sum", "gfx942", TRITON, tool.Best(OURS, 80, 900.0))
    assert behind.ratio == 1.5
    titles, _, first, second = tool.table([behind, ahead]).splitlines()
    assert titles.count("|") == first.count("|") == second.count("|")
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells == [
        "product", "**1.50**", "0.75", "0.75", "300 · 200", "900 · 1,800", "0.10 · 0.25", "4",
        "5 · 0", "24 / 16 · 130 / 40", "0", "8 · 4", "64×64 4 waves",
    ]  # fmt: skip
    assert second.startswith("| sum | 0.67 | 0.75 | **2.00** |")


def test_page_names_what_is_behind(monkeypatch):
    monkeypatch.setattr(tool, "CAUSES", {"product": "it waits"})
    rows = [
        tool.Compared(name, "gfx942", OURS, tool.Best(TRITON, busiest, 1800.0))
        for name, busiest in (("product", 20), ("other", 20), ("spread", 40))
    ]
    text = tool.page([*rows, tool.Compared("sum", "gfx1100", TRITON, tool.Best(OURS, 60, 1800.0))])
    assert "## gfx942\n\nOf 3 rows 0 are" in text and "## gfx1100\n\nOf 1 rows 1 are" in text
    listed = text.split("## Rows that are behind")[1].split("\n")
    assert [x for x in listed if x.startswith("- ")] == [
        "- it waits: product on gfx942 (1.50, 1.50, 0.50).",
        "- no cause found yet: other on gfx942 (1.50, 1.50, 0.50).",
        f"- {tool._SPREAD}: spread on gfx942 (1.50, 0.75, 0.50).",
    ]
    assert "Not measured yet: add, 1M f32 on gfx942;" in text


def test_busiest_simd():
    """One wave has all to do, others a share; a group keeps to one compute unit."""
    gpu = tool.get("gfx942")
    simds = gpu.lds_units * gpu.simds

    def of(workgroups, waves):
        counters = tool.Counters(launches=1, workgroups=workgroups, waves=waves)
        counters.by_mnemonic["v_add_f32"] = 10 * waves
        return tool._busiest(counters, gpu)

    assert of(1, 1) == of(simds, simds) == of(1, gpu.simds) == 10
    assert of(simds + 1, simds + 1) == of(1, gpu.simds + 1) == 20


def test_registers_of_an_assembly():
    names = "vgpr_count: 32", "sgpr_count: 18", "vgpr_spill_count: 2", "sgpr_spill_count: 1"
    text = "\n".join(f"    .{name}" for name in names)
    assert tool._registers(text) == (32, 18, 3)


@pytest.mark.parametrize("target", tool.TARGETS)
def test_our_side(target):
    """Counts follow from the sizes, and a wrong result is none."""
    row = tool.Row(
        "add", tool._named(x=(tool.F32, 4096), y=(tool.F32, 4096)), lambda x, y: x + y,
        lambda x, y: {"out": x + y}, {"out": tool.F32}, (),
    )  # fmt: skip
    found = tool.run_ours(row, target)
    assert found.nbytes == 3 * 4 * 4096 and found.matrix == found.spills == 0
    assert found.vector >= 4096 // tool.get(target).wave_size / 4
    wrong = replace(row, ours=lambda x, y: x + y * np.float32(1.001))
    with pytest.raises(AssertionError, match="add: out is wrong"):
        tool.run_ours(wrong, target)


def test_rows_are_of_both_sides():
    rows = tool.rows()
    assert len({row.name for row in rows}) == len(rows) >= 32
    assert all(row.triton for row in rows)
    products = [row.name for row in rows if row.name.startswith("product")]
    assert len(products) == 20
