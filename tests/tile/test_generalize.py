"""Kernels that differ in numbers alone become one, which computes what each of them does."""

import numpy as np
import pytest

from amdjax import tile
from amdjax.tile.generalize import generalize, structure, with_strides_told
from tests.support.tile_runner import compile_kernel, kernel

SIGNATURE = {"x": ("f32", "in"), "y": ("f32", "out")}


def sums(rows, columns, stride, start=0, op="add", dtype="f32", limit=1 << 40, room=4):
    """Sums of rows of a matrix, from a column on, of which those within a limit are written."""

    def write(k, x, y):
        kept = k.scratch("kept", dtype, room)

        def row(i):
            add = lambda j, total: k.op(op, total, k.convert(k.load(x, i * stride + j), dtype))
            (total,) = k.for_(start, columns, 1, add, [k.const(dtype, 0)])
            k.store(kept, i * 0, total)
            inside = k.convert(i, "u64") < k.const("u64", limit)
            k.if_(inside, lambda: k.store(y, i, k.convert(k.load(kept, i * 0), "f32")))

        k.for_(0, rows, 1, row)

    return kernel(write, SIGNATURE)


def run(program, *numbers):
    x, y = np.arange(1.0, 401, dtype=np.float32), np.full(24, -1, np.float32)
    compile_kernel(program)(x, y, *numbers)
    return y


# Of some the numbers are equal to others, so that they are written once there.
SIZES = [(3, 5, 7), (5, 5, 5), (1, 1, 1), (16, 17, 20), (8, 9, 9, 1), (2, 7, 7, 2), (7, 3, 3)]
SIZES += [(4, 5, 6, 0, "add", "f32", 3), (4, 4, 4, 0, "add", "f32", 4, 9)]


@pytest.mark.parametrize("some", [SIZES, SIZES[::-1], SIZES[1:3]], ids=["all", "reversed", "two"])
def test_one_kernel_computes_what_each_did(some):
    kernels = [sums(*sizes) for sizes in some]
    assert len({structure(k) for k in kernels}) == 1
    general, numbers = generalize(kernels)
    tile.verify(general)
    assert max(s.size for k in kernels for s in k.scratch) == general.scratch[0].size
    given = len(kernels[0].params)
    assert [p.role for p in general.params[given:]] == ["size"] * len(numbers[0]) != []
    for k, own in zip(kernels, numbers, strict=True):
        np.testing.assert_array_equal(run(general, *own), run(k))


def test_numbers_that_are_equal_in_all_stay_constants():
    general, numbers = generalize([sums(3, 5, 7), sums(4, 5, 7)])
    assert numbers == [[3], [4]] and str(general).count("size index") == 1


def test_equal_kernels_are_one_without_parameters():
    one = sums(3, 5, 7)
    general, numbers = generalize([one, sums(3, 5, 7)])
    assert numbers == [[], []] and general.params == one.params
    np.testing.assert_array_equal(run(general), run(one))


def tiles(stride, step):
    """Sums of three tiles whose rows are `stride` apart, under a mask for the last one."""

    def write(k, x, y):
        total = k.const("f32", 0, (4, 5))
        for i in range(3):
            mask = (
                None if i < 2 else k.broadcast(k.iota(5, "i32") < k.const("i32", 3, (5,)), (4, 5))
            )
            total = total + k.load(x, k.program_id() + i * step, (4, 5), (stride, 1), mask)
        k.store(y, 0, total, (5, 1))

    return kernel(write, SIGNATURE)


@pytest.mark.parametrize("aligned", [False, True])
def test_strides_may_differ_if_they_are_told(aligned):
    kernels = [tiles(stride, 2 * stride) for stride in (12, 20, 8)]
    assert len({structure(k) for k in kernels}) == 3
    told = [with_strides_told(k) for k in kernels]
    assert len({structure(k) for k in told}) == 1
    general, numbers = generalize(told, aligned=aligned)
    tile.verify(general)
    assert numbers[0][0] == (12 // 4 if aligned else 12)
    for k, own in zip(kernels, numbers, strict=True):
        np.testing.assert_array_equal(run(general, *own), run(k))


def unrolled(count):
    return kernel(lambda k, x, y: [k.store(y, i, k.load(x, i)) for i in range(count)], SIGNATURE)


def filled(value):
    return kernel(lambda k, x, y: k.store(y, 0, k.const("f32", value)), SIGNATURE)


@pytest.mark.parametrize(
    "other",
    [
        sums(3, 5, 7, op="max"), sums(3, 5, 7, dtype="f64"), unrolled(2), filled(1.0),
        kernel(lambda k, x, y: k.store(y, 0, k.load(x, k.program_id())), SIGNATURE, 3),
    ],
    ids=["operation", "dtype", "length", "number", "programs"],
)  # fmt: skip
def test_kernels_that_differ_in_more_stay_apart(other):
    assert structure(other) not in [structure(k) for k in (sums(3, 5, 7), unrolled(3), filled(2.0))]
