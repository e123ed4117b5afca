"""What is the CPU's own: streaming stores, prefetches, ranges of programs."""

import ctypes

import numpy as np

from tests.support.tile_runner import PROTOTYPE, compile_kernel, kernel, run_kernel

IN, OUT = ("f32", "in"), ("f32", "out")


def f32(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def test_prefetch_is_harmless():
    x, room = f32(8), np.zeros(32, np.float32)
    first = -room.ctypes.data % 64 // 4  # streaming stores begin at a cache line
    y = room[first : first + 8]

    def write(k, x, y):
        k.prefetch(x, k.const("index", 1 << 40))
        k.prefetch(y, k.const("index", 0), write=True, level=2)
        k.store(y, 0, k.load(x, 0, (8,)), streaming=True)

    run_kernel(write, x, y, x=IN, y=OUT)
    np.testing.assert_array_equal(y, x)


def test_the_grid_may_be_cut_anywhere():
    """The pool calls a kernel for ranges of programs."""
    y = np.zeros(10, np.int64)
    run = compile_kernel(
        kernel(
            lambda k, y: k.store(y, k.program_id(), k.convert(k.program_id() * 3, "i64")),
            {"y": ("i64", "out")},
            10,
        )
    )
    block = (ctypes.c_int64 * 1)(y.ctypes.data)
    PROTOTYPE(run.library["kernel"])(ctypes.addressof(block), 4, 7, 1)
    np.testing.assert_array_equal(y, [0, 0, 0, 0, 12, 15, 18, 0, 0, 0])
