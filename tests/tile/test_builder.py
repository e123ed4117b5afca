"""The tile language itself: what builders write and how programs print."""

import math

import pytest

from amdjax.tile import Builder, TileType
from tests.support.tile_runner import kernel


def builder():
    k = Builder("k")
    return k, k.param("x", "f32"), k.param("y", "f32", "out")


def names(k):
    return [op.name for op in k.block.ops]


def test_print_golden():
    def write(k, x, n, y):
        def body(i, total):
            return total + k.load(x, i, (8,), (2,))

        (total,) = k.for_(0, k.size(n), 16, body, [k.const("f32", 0.0, (8,))])
        k.if_(k.reduce("add", total) < 1.5, lambda: k.store(y, 0, total))

    text = str(kernel(write, {"x": ("f32", "in"), "n": ("index", "size"), "y": ("f32", "out")}))
    assert (
        text
        == """\
kernel test(x: in f32, n: size index, y: out f32) grid=1 {
  %0: index = size n
  %1: f32[8] = const 0.0
  %2: index = const 0
  %3: index = const 16
  %4: f32[8] = for %2, %0, %3, %1 (%5: index, %6: f32[8]) {
    %7: f32[8] = load x strides=(2) %5
    %8: f32[8] = add %6, %7
    yield %8
  }
  %9: f32 = reduce combine=add axis=0 %4
  %10: f32 = const 1.5
  %11: bool = lt %9, %10
  if %11 {
    store y strides=(1) %2, %4
   } {
  }
}"""
    )


def test_equal_programs_print_equal_whatever_was_thrown_away():
    def plain(k, x, y):
        k.store(y, 0, k.load(x, 0) + 1.0)

    def wasteful(k, x, y):
        k.value(TileType("f32"))
        plain(k, x, y)

    signature = {"x": ("f32", "in"), "y": ("f32", "out")}
    assert str(kernel(plain, signature)) == str(kernel(wasteful, signature))


def test_pure_instructions_are_written_once():
    k, x, _ = builder()
    a = k.load(x, 0)
    assert (a + 1.0) is (a + 1.0)
    assert k.op("sin", a) is k.op("sin", a)
    assert k.const("f32", 2.0) is k.const("f32", 2.0)
    assert k.load(x, 0) is not a  # memory may have changed


def test_constants_are_told_apart_by_bits():
    k = Builder("k")
    assert k.const("f32", 0.0) is not k.const("f32", -0.0)
    assert k.const("f32", math.nan) is k.const("f32", math.nan)
    assert k.const("i32", 1) is not k.const("i64", 1)
    assert k.const("bool", 1) is k.const("bool", True)


def test_values_of_inner_blocks_are_not_reused_outside():
    k, x, _ = builder()
    a = k.load(x, 0)
    inside = []
    k.if_(a < 0.0, lambda: inside.append(k.op("exp", a)))
    assert k.op("exp", a) is not inside[0]


def test_values_of_outer_blocks_are_reused_inside():
    k, x, _ = builder()
    a = k.load(x, 0)
    outside = k.op("exp", a)
    found = []
    k.for_(0, 4, 1, lambda i: found.append(k.op("exp", a)))
    assert found[0] is outside


def test_operators():
    k, x, _ = builder()
    a = k.load(x, 0)
    (a + 1.0), (2.0 - a), (a * a), (a / 3.0), (3.0 / a), (-a), (a < 1.0), (a >= 0.0)
    assert [n for n in names(k) if n != "const"] == [
        "load", "add", "sub", "mul", "div", "div", "neg", "lt", "ge",
    ]  # fmt: skip
    i = k.program_id()
    assert [(i // 4).dtype, (i % 4).dtype, (i << 1).dtype] == ["index"] * 3


@pytest.mark.parametrize("shape", [(), (8,), (4, 8)])
def test_types_of_results(shape):
    k = Builder("k")
    a = k.const("f32", 1.0, shape)
    assert k.op("lt", a, a).type == TileType("bool", shape)
    assert k.op("is_finite", a).type == TileType("bool", shape)
    assert k.select(a < 2.0, a, a).type == TileType("f32", shape)
    assert k.convert(a, "i8").type == TileType("i8", shape)
    assert k.bitcast(a, "u32").type == TileType("u32", shape)
    assert k.broadcast(k.const("f32", 1.0), (4, 8)).shape == (4, 8)


def test_shapes_of_results():
    k = Builder("k")
    a, row = k.const("f32", 1.0, (4, 8)), k.const("f32", 1.0, (8,))
    assert k.reduce("add", a).shape == (4,)
    assert k.reduce("add", a, 0).shape == (8,)
    assert k.transpose(a).shape == (8, 4)
    assert k.expand(row, 0).shape == (1, 8) and k.expand(row, 1).shape == (8, 1)
    assert k.extract(a, 2).shape == (8,) and k.extract(row, 3).shape == ()
    assert k.shuffle(row, (3, 1, 2)).shape == (3,)
    assert str(a.type) == "f32[4,8]" and str(TileType("i8")) == "i8"


def test_conversions_to_the_same_dtype_write_nothing():
    k = Builder("k")
    a = k.const("f32", 1.0)
    assert k.convert(a, "f32") is a and k.bitcast(a, "f32") is a
    assert k.broadcast(a, ()) is a
