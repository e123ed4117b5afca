"""Malformed kernels, one for each rule of the IR at least."""

from dataclasses import replace

import pytest

from amdjax.tile import Block, Buffer, Builder, Kernel, TileError, TileType, ops, verify
from amdjax.tile.attributes import Side, Sides
from amdjax.tile.parse import parse_kernel

HEAD = "kernel test(x: in f32, y: out f32, n: size index, c: inout u32) grid=1 {"
START = [
    "s: scratch f32[64]",
    "%0: index = const 0",
    "%1: f32[8] = load x strides=(1) %0",
    "%2: f32 = load x strides=() %0",
    "%3: bool = lt %2, %2",
    "%4: bool[8] = lt %1, %1",
    "%5: index[8] = iota",
]


def check(*lines, head=HEAD):
    verify(parse_kernel("\n".join([head, *("  " + line for line in (*START, *lines)), "}"])))


def test_a_kernel_that_keeps_all_rules():
    check(
        "%6: f32[8] = for %0, %0, %0, %1 (%7: index, %8: f32[8]) {",
        "  %9: f32[8] = add %8, %1",
        "  yield %9",
        "}",
        "if %3 {",
        "  store s strides=(1) masked=True %0, %6, %4",
        " } {",
        "}",
    )


WRONG = {
    # types
    "operands of add differ": ["%6: f32[8] = add %1, %2"],
    "add takes 2 operands": ["%6: f32[8] = add %1"],
    "exp is not defined for index": ["%6: index = exp %0"],
    "results of add are no f32": ["%6: f32 = add %1, %1"],
    "results of lt are no i32": ["%6: i32 = lt %2, %2"],
    "operands of select do not fit": ["%6: f32[8] = select %3, %1, %1"],
    "0.5 is no constant of index": ["%6: index = const 0.5"],
    "cannot be broadcast": ["%6: f32[4] = broadcast %1"],
    "cannot be reshaped": ["%6: f32[4,4] = reshape %1"],
    "has no rank 2": ["%6: f32[8] = transpose %1"],
    "has no lane 8": ["%6: f32 = extract lane=8 %1"],
    "lanes of shuffle": ["%6: f32[1] = shuffle lanes=(9,) %1"],
    "cannot take turns": ["%6: f32[16] = interleave axis=0 %1, %4"],
    "has no axis 1": ["%6: f32 = reduce combine=add axis=1 %1"],
    "nothing combines by 'sub'": ["%6: f32 = reduce combine=sub axis=0 %1"],
    "shapes of dot": ["%6: f32[1,8] = expand axis=0 %1", "%7: f32[1,8] = dot %6, %6, %6"],
    # memory
    "store of x, which is in": ["store x strides=(1) %0, %1"],
    "load of n, which is size": ["%6: index = load n strides=() %0"],
    "x is no size but in": ["%6: index = size x"],
    "needs 1 strides": ["%6: f32[8] = load x strides=() %0"],
    "a mask of bool": ["%6: f32[8] = load x strides=(1) masked=True other=0 %0, %3"],
    "store of f32 in memory of f64": ["store y:f64 strides=(1) %0, %1"],
    "store takes 3 operands": ["store y strides=(1) masked=True %0, %1, %1, %4"],
    "offsets of f32": ["%6: f32[8] = load_at x %1"],
    "load_rows takes a row of offsets": ["%6: f32[8], %7: f32[8] = load_rows x count=2 %1"],
    "load_rows takes numbers of index": [
        "%6: i8[8] = iota", "%7: f32[8] = load_rows x count=1 %6, %6",
    ],
    "convert_clamped is of floats": ["%6: i32[8] = convert_clamped low=1 high=3 %1"],
    "arrive counts": ["%6: bool = arrive c programs=0 %0"],
    "grid_barrier of y, which is out": ["grid_barrier y %0, %0, %0, %0"],
    "grid_barrier takes 4": ["grid_barrier c %0, %0, %0"],
    "shift takes an offset": ["shift moved=(x,y) vector=1 %0 {", "}"],
    "scratch_product takes scratch": [
        "%6: f32[8,8] = scratch_product x s pitches=(8,8) depth=8 lanes=(8,8,1) %0",
    ],
    # uniform control flow
    "if takes numbers of bool": ["if %4 {", " } {", "}"],
    "for takes numbers of index": ["for %2, %0, %0 (%6: index) {", "}"],
    "the condition of while is a scalar": [
        "%6: f32[8] = while %1 (%7: f32[8]) {", "  yield %4", " } (%8: f32[8]) {", "  yield %8",
        "}",
    ],
    "arms of if differ": ["%6: f32 = if %3 {", "  yield %2", " } {", "  yield %1", "}"],
    "a round of for makes": ["%6: f32 = for %0, %0, %0, %2 (%7: index, %8: f32) {", "}"],
    "a round of for takes": ["for %0, %0, %0 (%6: f32) {", "}"],
    "load in a body of reduce_by": [
        "%6: f32 = reduce_by axis=0 %1, %2 (%7: f32, %8: f32) {",
        "  %9: f32 = load x strides=() %0", "  yield %9", "}",
    ],
    "the body of reduce_by takes": ["%6: f32 = reduce_by axis=0 %1, %2 (%7: f32) {", "  yield %7",
                                    "}"],
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_rules(message):
    with pytest.raises(TileError, match=message):
        check(*WRONG[message])


def test_the_line_is_named():
    with pytest.raises(TileError, match=r"line 9, %6: f32\[8\] = add %1: add takes 2"):
        check("%6: f32[8] = add %1")


CONTRACT = [
    "%6: f32[16,16] = contract (x depth×4 run=1) (x lines×4 run=16) "
    "tiling=mfma·f32·1x1·1x1·16·1 %0, %0, %0, %0, %0, %0 (%10: index) {",
    "  yield %10", " } (%11: index) {", "  yield %11", " } (%12: index) {", "  yield %12",
    " } (%13: index) {", "  yield %13", "}",
]  # fmt: skip


def test_sides_of_products_are_text():
    x = Buffer("x", "f32", "in")
    plain, edge = Side(x, "depth", 4), Side(x, "lines", 2, 16, (-1, 9), (0, 1), edge=1)
    text = Sides().show((plain, edge), {"x": x})
    assert text == "(x depth×4) (x lines×2 run=16 limits=(-1, 9) shifts=(0, 1) edge=1)"
    assert Sides().read(text, {"x": x}) == (plain, edge)
    steps = Side(x, "lines", 1, None, (9,), (0,), None, 8, -3), replace(edge, run=None, granule=4)
    text = Sides().show(steps, {"x": x})
    assert text.startswith("(x lines×1 limits=(9,) granule=8 stride=-3)")
    assert Sides().read(text, {"x": x}) == steps


def test_products_are_collected():
    check(*CONTRACT, "%7: f32[8,16] = collect %6")
    with pytest.raises(TileError, match="only collect can use sums, not add"):
        check(*CONTRACT, "%7: f32[16,16] = add %6, %6")
    check(*CONTRACT, "%7: f16[8,4] = collect column=12 %6")
    for wrong in ("f32[7,16] = collect", "f32[8,8] = collect column=12", "i32[8,16] = collect"):
        with pytest.raises(TileError, match="is no slice"):
            check(*CONTRACT, f"%7: {wrong} %6")
    with pytest.raises(TileError, match="places of contract are 2 numbers"):
        check(CONTRACT[0].replace("run=1)", "run=1 limits=(9,))"), *CONTRACT[1:])
    prefetching = CONTRACT[0].replace("tiling=", "prefetch=True tiling=")
    check(prefetching.replace(" (%10", ", %0, %0, %0, %0 (%10"), *CONTRACT[1:])
    with pytest.raises(TileError, match="contract takes two sides"):  # and the next round
        check(prefetching, *CONTRACT[1:])
    with pytest.raises(TileError, match="contract takes two sides"):  # and limits that are told
        check(CONTRACT[0].replace("run=1)", "run=1 limits=(-1,))"), *CONTRACT[1:])


# What text cannot say


def written(fn):
    k = Builder("k")
    x, y = k.param("x", "f32"), k.param("y", "f32", "out")
    fn(k, x, y)
    return k.finish(1)


def test_values_are_seen_in_their_block_and_behind_what_makes_them():
    inside = []

    def leaves_a_block(k, x, y):
        k.for_(0, 4, 1, lambda i: inside.append(k.load(x, i)))
        k.store(y, 0, inside[0])

    with pytest.raises(TileError, match="cannot be seen"):
        verify(written(leaves_a_block))
    kernel = written(lambda k, x, y: k.store(y, 0, k.load(x, 0)))
    verify(kernel)
    with pytest.raises(TileError, match="cannot be seen"):
        verify(replace(kernel, body=Block(ops=kernel.body.ops[::-1])))
    with pytest.raises(TileError, match="made twice"):
        verify(replace(kernel, body=Block(ops=kernel.body.ops * 2)))


def test_buffers_are_declared():
    kernel = written(lambda k, x, y: k.store(y, 0, k.load(x, 0)))
    with pytest.raises(TileError, match="no buffer x"):
        verify(replace(kernel, params=kernel.params[1:]))
    with pytest.raises(TileError, match="x is inout"):
        verify(replace(kernel, params=[replace(kernel.params[0], role="inout"), kernel.params[1]]))
    with pytest.raises(TileError, match="two buffers"):
        verify(replace(kernel, scratch=[Buffer("x", "f32", "scratch", 4)]))
    with pytest.raises(TileError, match="no role"):
        verify(replace(kernel, scratch=[Buffer("z", "f32", "register", 4)]))
    with pytest.raises(TileError, match="n is no size"):
        verify(replace(kernel, grid="n"))


def test_attributes_are_those_of_the_operation():
    k = Builder("k")
    v = k.value(TileType("index"))
    for attrs in ({}, {"value": 1, "more": 2}):
        body = Block(ops=[ops.Const((), attrs, (v,))])
        with pytest.raises(TileError, match=r"const lacks value|const has none of"):
            verify(Kernel("k", [], [], body, 1))
