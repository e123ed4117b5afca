"""Passes, from text to text."""

from dataclasses import replace

import pytest

from amdjax.core.config import config
from amdjax.tile import TileError, passes, verify
from amdjax.tile.parse import parse_kernel

HEAD = "kernel test(x: in f32, y: out f32, n: size index) grid=1 {\n"


def after(change, text):
    """The body of a kernel behind a pass."""
    kernel = parse_kernel(HEAD + text + "}")
    verify(kernel)
    before = str(kernel)
    changed = change(kernel)
    verify(changed)
    assert str(kernel) == before  # a pass leaves what it is given as it is
    return str(changed).removeprefix(HEAD).removesuffix("}")


SELECT = """\
  %0: index = const 0
  %1: index[8] = iota
  %2: index = size n
  %3: index[8] = broadcast %2
  %4: bool[8] = lt %1, %3
  %5: f32[8] = load x strides=(1) masked=True other={other} %0, %4
  %6: f32[8] = const {constant}
  %7: f32[8] = select {operands}
  store y strides=(1) %0, %7
"""


@pytest.mark.parametrize(
    "other, constant, operands, folds",
    [
        ("0", "0.0", "%4, %5, %6", True),
        ("-inf", "-inf", "%4, %5, %6", True),
        ("0", "-0.0", "%4, %5, %6", False),
        ("0", "1.0", "%4, %5, %6", False),
        ("0", "0.0", "%4, %6, %5", False),
    ],
)
def test_selects_of_masked_loads(other, constant, operands, folds):
    text = SELECT.format(other=other, constant=constant, operands=operands)
    found = after(passes.fold_masked_selects, text)
    folded = "\n".join(line for line in text.split("\n") if "select" not in line)
    assert found == (folded.replace("%7", "%5") if folds else text)


def test_selects_of_converted_loads():
    text = """\
  %0: index = const 0
  %1: bool[8] = const True
  %2: f32[8] = load x strides=(1) masked=True other=0 %0, %1
  %3: f64[8] = convert %2
  %4: f64 = const 0.0
  %5: f64[8] = broadcast %4
  %6: f64[8] = select %1, %3, %5
  %7: f32[8] = convert %6
  store y strides=(1) %0, %7
"""
    found = after(passes.fold_masked_selects, text)
    assert "select" not in found and "%6: f32[8] = convert %3" in found


def test_accesses():
    text = """\
  %0: index = program_id
  %1: index = const 96
  %2: index = mul %0, %1
  %3: index[64] = iota
  %4: index = size n
  %5: index[64] = broadcast %4
  %6: bool[64] = lt %3, %5
  %7: f32[64] = load x strides=(1) masked=True other=0 {}%2, %6
  %8: u32[64] = iota
  %9: u32 = convert %4
  %10: u32[64] = broadcast %9
  %11: u32[64] = add %8, %10
  %12: bool[64] = lt %11, %10
  store y strides=(1) masked=True {}%2, %7, %12
  %13: index[64] = const 8
  %14: index[64] = div %3, %13
  %15: bool[64] = lt %14, %5
  %16: index[64] = broadcast %2
  %17: index[64] = add %3, %16
  %18: f32[64] = load_at x masked=True other=0 {}%17, %15
  store_at y {}%14, %18
"""
    found = after(passes.annotate_accesses, text.format("", "", "", ""))
    assert found == text.format(
        "mask_form=prefix divisibility=32 ",
        "mask_form=interval divisibility=32 ",
        "mask_constancy=8 contiguity=64 divisibility=32 ",
        "",
    )


def test_divisions():
    text = """\
  %0: index = const 0
  %1: f32[4,8] = load x strides=(8,1) %0
  %2: f32[4] = reduce combine=add axis=1 %1
  %3: f32[4,1] = expand axis=1 %2
  %4: f32[4,8] = broadcast %3
  %5: f32[4,8] = div {}%1, %4
  %6: f32[4,8] = div %4, %1
  %7: f32[4,8] = add %5, %6
  store y strides=(8,1) %0, %7
"""
    assert after(passes.annotate_divisions, text.format("")) == text.format("same_along=(1,) ")


def test_positions():
    text = """\
  %0: index = const 0
  %1: index = size n
  %2: f32[8] = load x strides=(1) %0
  %3: index[8] = iota
  %4: index[8] = broadcast %1
  %5: index[8] = add %4, %3
  %6: bool[8] = ge {}%5, %4
  %7: bool[8] = lt %2, %2
  %8: bool = lt %0, %1
  %9: bool[8] = and %6, %7
  store y strides=(1) masked=True %0, %2, %9
"""
    found = after(passes.mark_positional_comparisons, text.format(""))
    assert found == text.format("positional=True ")


def test_changes_reach_into_blocks_and_what_leaves_them():
    text = """\
  %0: index = const 0
  %1: index = size n
  %2: bool[8] = const True
  %3: f32[8] = const 0.0
  %4: f32[8] = for %0, %1, %1, %3 (%5: index, %6: f32[8]) {
    %7: f32[8] = load x strides=(1) masked=True other=0 %5, %2
    %8: f32[8] = select %2, %7, %3
    yield %8
  }
  store y strides=(1) %0, %4
"""
    found = after(passes.fold_masked_selects, text)
    assert "select" not in found and "yield %7" in found


def test_runs_are_observed_and_verified():
    kernel = parse_kernel(HEAD + SELECT.format(other=0, constant=0.0, operands="%4, %5, %6") + "}")
    seen = []
    steps = (passes.fold_masked_selects, passes.annotate_accesses)
    last = passes.run(kernel, steps, lambda name, k: seen.append((name, k)))
    assert [name for name, _ in seen] == ["fold_masked_selects", "annotate_accesses"]
    assert seen[-1][1] is last and "mask_form=prefix" in str(last)

    def break_it(kernel):
        return replace(kernel, params=kernel.params[:1])

    before = config.check
    config.update("check", True)
    try:
        with pytest.raises(TileError, match="no buffer n"):
            passes.run(kernel, (break_it,))
    finally:
        config.update("check", before)
