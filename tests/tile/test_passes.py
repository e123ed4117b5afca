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


@pytest.mark.parametrize("floors, narrow", [(False, "becomes=bf16 "), (True, "")])
def test_divisions_of_which_only_a_rounded_quotient_is_read(floors, narrow):
    text = f"""\
  %0: index = const 0
  %1: f32[8] = load x strides=(1) %0
  %2: f32[8] = div {{}}%1, %1
  %3: f16[8] = convert %2
  %4: f32[8] = convert %3
  %5: {"f32" if floors else "bf16"}[8] = {"floor" if floors else "convert"} %2
  %6: f32[8] = convert %5
  %7: f32[8] = add %4, %6
  store y strides=(1) %0, %7
"""
    assert after(passes.annotate_divisions, text.format("")) == text.format(narrow)


SOFTMAX = """\
  %0: index = const 0
  %1: f32[8,8] = load x strides=(8,1) %0
  %2: f32[8] = reduce combine=max axis=1 {extremum}%1
  %3: f32[8,1] = expand axis=1 %2
  %4: f32[8,8] = broadcast %3
  %5: f32[8,8] = sub %1, %4
  %6: f32[8,8] = exp %5
  %7: f32[8] = reduce combine=add axis=1 %6
  %8: f32[8,1] = expand axis=1 %7
  %9: f32[8,8] = broadcast %8
  %10: f32[8,8] = div %6, %9
  {other}
  store y strides=(8,1) %0, {result}
"""
MARKED = "numbers=True "


@pytest.mark.parametrize(
    "other, result, mark",
    [
        ("%11: f32[8,8] = neg %10", "%11", MARKED),
        ("%11: f32[8,8] = log %9", "%11", MARKED),
        ("%11: f32[8,8] = max %10, %9", "%11", ""),  # may be a number where one is NaN
        ("%11: bool[8,8] = lt %10, %9\n  %12: f32[8,8] = select %11, %9, %10", "%12", ""),
        ("%11: f32[8,8] = transpose %9\n  %12: f32[8,8] = div %6, %11", "%12", ""),  # other rows
        ("%11: f32[8,8] = broadcast %7\n  %12: f32[8,8] = div %6, %11", "%12", ""),
        ("%11: f32[8,8] = add %6, %6", "%11", ""),  # no sum of the row
        ("store y strides=(1) %0, %2", "%10", ""),
    ],
)
def test_extrema_whose_readers_find_nan(other, result, mark):
    text = SOFTMAX.format(extremum="{}", other=other, result=result)
    assert after(passes.annotate_reductions, text.format("")) == text.format(mark)


def test_sums_and_products_that_may_be_contracted():
    """Sums of products, and elements scaled by what a sum makes; no others."""
    text = """\
  %0: index = const 0
  %1: f32[8] = load x strides=(1) %0
  %2: f32[8] = mul {0}%1, %1
  %3: f32 = reduce combine=add axis=0 {0}%2
  %4: f32 = rsqrt %3
  %5: f32 = mul %4, %4
  %6: f32 = sub %5, %4
  %7: f32[8] = broadcast %6
  %8: f32[8] = mul {0}%1, %7
  %9: f32[8] = add {0}%8, %1
  %10: f32[8] = mul %1, %1
  %11: f32[8] = sub %10, %1
  %12: f32[8] = add %9, %11
  store y strides=(1) %0, %12
"""
    assert after(passes.annotate_reductions, text.format("")) == text.format("contracts=True ")


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


GATHERS = """\
  %0: index = const 0
  %1: index[8] = load at strides=(1) %0
  %2: index = const 1
  %3: index[8] = broadcast %2
  %4: index[8] = add %1, %3
  %5: f32[8] = load_at x %1
  %6: bool[8] = const True
  {between}
  %8: index = const 2
  %9: index[8] = broadcast %8
  %10: index[8] = add %1, %9
  %11: f32[8] = load_at x {masked}%{second}
  %12: f32[8] = load_at x %{third}
  %13: f32[8] = add %11, %12
  %14: f32[8] = add %5, %13
  store y strides=(1) %0, %14
"""


@pytest.mark.parametrize(
    "changed, rows",
    [
        ({}, ["count=3 %1"]),
        ({"third": 1}, ["count=2 %1"]),
        ({"second": 10, "third": 4}, []),
        ({"masked": "masked=True other=0 ", "second": "4, %6"}, []),
        ({"between": "store y strides=(1) %0, %5"}, ["count=2 %4"]),
    ],
)
def test_gathers_of_neighbors_are_rows(changed, rows):
    numbers = {"second": 4, "third": 10, "masked": "", "between": "%7: index = const 3"}
    text = GATHERS.format(**{**numbers, **changed})
    head = "kernel test(x: in f32, at: in index, y: out f32) grid=1 {\n"
    kernel = parse_kernel(head + text + "}")
    verify(kernel)
    found = passes.join_gathers(kernel)
    verify(found)
    lines = str(found).splitlines()
    assert [line.split("load_rows x ")[1] for line in lines if "load_rows" in line] == rows
    others = sum("load_at" in line for line in lines)
    assert others == 3 - sum(int(row[len("count=")]) for row in rows)  # each is read once


CLAMPED = """\
  %0: index = const 0
  %1: f32[8] = load x strides=(1) %0
  %2: f32 = const {low}
  %3: f32[8] = broadcast %2
  %4: f32 = const {high}
  %5: f32[8] = broadcast %4
  %6: f32[8] = max {first}
  %7: f32[8] = min {second}
  %8: i32[8] = convert %7
  %9: f32[8] = convert %8
  store y strides=(1) %0, %9
"""


@pytest.mark.parametrize(
    "changed, found",
    [
        ({}, "low=0 high=9 %1"),
        ({"low": -3.0, "first": "%1, %3", "second": "%6, %5"}, "low=-3 high=9 %1"),
        ({"low": 1.0}, None),
        ({"high": 1e9}, None),
        ({"high": 2.5}, None),
        ({"high": "inf"}, None),
        ({"second": "%6, %6"}, None),
    ],
)
def test_clamped_floats_are_converted_at_once(changed, found):
    parts = {"low": 0.0, "high": 9.0, "first": "%3, %1", "second": "%5, %6"}
    text = CLAMPED.format(**parts | changed)
    expected = f"convert_clamped {found}" if found else "convert %7"
    assert after(passes.clamp_conversions, text) == text.replace("convert %7", expected)


@pytest.mark.parametrize(
    "dtypes, found",
    [
        (("i8",), True),
        (("u8",), False),  # which has no -3
        (("u8", "i32"), False),
        (("i8", "i16"), True),
        (("i16", "i8", "i32"), True),
        (("i8", "i64"), False),
    ],
)
def test_clamped_floats_become_shorter_integers(dtypes, found):
    """At once where these hold all that is between the bounds, each of them."""
    text = CLAMPED.format(low=-3.0, high=9.0, first="%3, %1", second="%5, %6")
    head, tail = text.split("  %8:")[0], ""
    for n, dtype in enumerate(dtypes, 8):
        tail += f"  %{n}: {dtype}[8] = convert %{n - 1}\n"
    n = 8 + len(dtypes)
    end = f"  %{n}: f32[8] = convert %{n - 1}\n  store y strides=(1) %0, %{n}\n"
    last = f"%{n - 1}: {dtypes[-1]}[8] = convert"
    got = after(passes.clamp_conversions, head + tail + end)
    assert (f"{last}_clamped low=-3 high=9 %1" in got) == found


OFFSETS = """\
  %0: index = program_id
  %1: {dtype}[8] = load at:{dtype} strides=(1) %0
  %2: index[8] = convert %1
  %3: index = const {low}
  %4: index[8] = broadcast %3
  %5: index[8] = max %2, %4
  %6: index = const 100
  %7: index[8] = broadcast %6
  %8: index[8] = min %7, %5
  %9: index = const {step}
  %10: index[8] = broadcast %9
  %11: index[8] = mul %8, %10
  %12: index[8] = broadcast %0
  %13: index[8] = {join} %12, %11
  %14: f32[8] = load_at x {mask}%13
  store y strides=(1) %0, %14
"""


@pytest.mark.parametrize(
    "changed, narrow",
    [
        ({}, True),
        ({"low": -100}, True),
        ({"step": 1 << 24}, True),
        ({"step": 1 << 25}, False),  # 100 times as much takes more bits
        ({"dtype": "u32"}, False),
        ({"dtype": "u8"}, True),
        ({"dtype": "i64"}, False),
        ({"join": "sub"}, False),
    ],
)
def test_offsets_that_fit_have_32_bits(changed, narrow):
    parts = {"dtype": "i32", "low": 0, "step": 3, "join": "add", "mask": ""}
    head = "kernel test(x: in f32, at: in {dtype}, y: out f32) grid=1 {{\n"
    text = (head + OFFSETS).format(**parts | changed) + "}"
    kernel = parse_kernel(text)
    verify(kernel)
    found = passes.narrow_offsets(kernel)
    verify(found)
    (line,) = (x for x in str(found).splitlines() if "load_" in x)
    assert ("load_rows x count=1" in line) == narrow
    assert line.endswith(", %0") == narrow
    assert str(parse_kernel(str(found))) == str(found)


BETWEEN = """\
kernel test(x: in f32, at: in u16, y: out f32) grid=1 {{
  %0: index = program_id
  %1: u16[8] = load at:u16 strides=(1) %0
  %2: {dtype}[8] = convert %1
  %3: {dtype}[8] = {change}
  %4: i32[8] = convert %3
  %5: index[8] = convert %4
  %6: index = const 65535
  %7: index[8] = broadcast %6
  %8: index[8] = min %5, %7
  %9: f32[8] = load_at x %8
  store y strides=(1) %0, %9
}}
"""


@pytest.mark.parametrize(
    "dtype, change, clamped",
    [
        ("i32", "max %2, %2", False),
        ("i64", "min %2, %2", False),
        ("u64", "min %2, %2", False),
        # Rounded to 65536, to infinity, or past what is exact.
        ("bf16", "max %2, %2", True),
        ("f16", "max %2, %2", True),
        ("f32", "max %2, %2", True),
        # Below 0 is beyond everything.
        ("u32", "sub %2, %2", True),
        ("u64", "sub %2, %2", True),
    ],
)
def test_clamps_stay_where_ranges_are_not_known(dtype, change, clamped):
    """Ranges are those of integers: floats round what they hold, and unsigned ones wrap at 0."""
    kernel = parse_kernel(BETWEEN.format(dtype=dtype, change=change))
    verify(kernel)
    found = passes.narrow_offsets(kernel)
    verify(found)
    (offsets,) = (x.split()[-1] for x in str(found).splitlines() if "load_rows" in x)
    assert (offsets == "%4") != clamped


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


AHEAD = """\
  %0: index = const 0
  %1: index = size n
  %2: index = const 2
  %3: f32[8] = const 0.0
  %4: f32[8] = for prefetch=(x) prefetch_distance=4 %0, %1, %2, %3 (%5: index, %6: f32[8]) {{
    %7: index = add %5, %1
    %8: index = const {distance}
    %9: index = mul %7, %8
    {prefetch}%10: f32[8] = load x strides=(1) %9
    %11: f32[8] = load y strides=(1) %9
    %12: f32[8] = add %10, %11
    yield %12
  }}
  store y strides=(1) %0, %4
"""


@pytest.mark.parametrize("distance, far", [(128, True), (-128, True), (64, False)])
def test_far_reads_are_asked_for_rounds_ahead(distance, far):
    """Rounds of step 2 are 1024 bytes apart; four ahead is as many times eight elements."""
    text = AHEAD.format(distance=distance, prefetch="")
    asked = f"%13: index = const {8 * distance}\n    %14: index = add %9, %13\n"
    asked += "    prefetch x level=1 %14\n    "
    expected = AHEAD.format(distance=distance, prefetch=asked if far else "")
    expected = str(parse_kernel(HEAD + expected + "}"))  # which numbers values anew
    assert HEAD + after(passes.place_prefetches, text) + "}" == expected


STREAM = """\
  %0: index = const 0
  %1: index = size n
  %2: index = const 32
  for prefetch=(x) prefetch_distance={rounds} %0, %1, %2 (%3: index) {{
{prefetch}    %{value}: f32[32] = load x strides=(1) %3
    store y strides=(1) %3, %{value}
  }}
"""


@pytest.mark.parametrize("rounds, next_page", [(62, True), (32, False)])
def test_streams_are_asked_for_on_the_pages_that_follow(rounds, next_page):
    """Rounds are two lines; hardware foresees those of the same page."""
    asked = "".join(
        f"    %{n}: index = const {32 * rounds + at}\n    %{n + 1}: index = add %3, %{n}\n"
        f"    prefetch x level=1 %{n + 1}\n"
        for n, at in ((4, 0), (6, 16))
    )
    found = after(passes.place_prefetches, STREAM.format(rounds=rounds, prefetch="", value=4))
    expected = STREAM.format(rounds=rounds, prefetch=asked, value=8)
    plain = STREAM.format(rounds=rounds, prefetch="", value=4)
    assert found == (expected if next_page else plain)


def test_reads_that_are_not_linear_in_the_round_are_left_alone():
    linear = AHEAD.format(distance=999, prefetch="")
    for offset in ("mul %7, %7", "xor %7, %8", "div %7, %8"):
        text = linear.replace("mul %7, %8", offset)
        assert after(passes.place_prefetches, text) == text


SQUARES = """\
  %0: index = program_id
  %1: index = const 4
  %2: index = const 32
  %3: index = const 100
  %4: index = add %0, %2
  %5: index = min %4, %3
{prefetch}  for prefetch=(x) %0, %5, %1 (%6: index) {{
    for %0, %4, %1 (%7: index) {{
      %8: index = const {distance}
      %9: index = mul %7, %8
      %10: index = add %9, %6
      %11: f32[4,4] = load x strides=(1,{distance}) %10
      store y strides=(100,1) %10, %11
    }}
  }}
"""
ROWS = """\
  %6: index = const 0
  %7: index = const 32
  %8: index = const 1
  for %6, %7, %8 (%9: index) {
    %10: index = add %0, %9
    %11: index = const 999
    %12: index = mul %10, %11
    %13: index = add %12, %0
    %14: index = const 0
    %15: index = add %13, %14
    prefetch x level=2 %15
    %16: index = const 16
    %17: index = add %13, %16
    prefetch x level=2 %17
  }
"""


def test_what_is_read_across_rows_is_asked_for_along_them():
    """32 rows of 32 elements, which are two cache lines."""
    found = after(passes.place_prefetches, SQUARES.format(prefetch="", distance=999))
    assert found.split("  for prefetch")[0] == SQUARES.split("{prefetch}")[0] + ROWS
    plain = SQUARES.format(prefetch="", distance=0)  # every round reads the same
    assert after(passes.place_prefetches, plain) == plain
