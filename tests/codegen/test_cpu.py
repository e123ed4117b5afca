"""What is the CPU's own: streaming stores, prefetches, ranges of programs."""

import ctypes
import mmap

import numpy as np
import pytest

from amdjax.codegen.compile_worker import NO_STRENGTH_REDUCTION
from amdjax.codegen.cpu.writer import emit_kernel
from amdjax.codegen.llvm import Module
from amdjax.tile.kernel import MANY_CARRIED
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


@pytest.mark.parametrize("lanes", [1, 8, 16, 64])
@pytest.mark.parametrize("size, dtype", [(16, np.float32), (8, np.float32), (16, np.int32)])
def test_lookup(lanes, size, dtype):
    """The low bits of any index count."""
    table = np.arange(size, dtype=dtype) * 3 - 7
    index = np.random.default_rng(2).integers(-(2**31), 2**31, lanes).astype(np.int32)
    y, name = np.zeros(lanes, dtype), "f32" if dtype == np.float32 else "i32"

    def write(k, x, i, y):
        k.store(y, 0, k.lookup(k.load(x, 0, (size,)), k.load(i, 0, (lanes,))))

    run_kernel(write, table, index, y, x=(name, "in"), i=("i32", "in"), y=(name, "out"))
    np.testing.assert_array_equal(y, table[index % size])


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


@pytest.mark.parametrize("vectors, spread", [(1, True), (MANY_CARRIED, True), (16, False)])
def test_strength_is_not_reduced_in_products_in_registers(vectors, spread):
    """In those alone: rows of symbolic sizes whose sums are as many need it."""

    def write(k, y):
        zero, one = k.const("f32", 0, (8,)), k.const("f32", 1)
        more = lambda x: x + (k.broadcast(one, (8,)) if spread else k.const("f32", 1, (8,)))
        sums = k.for_(0, 9, 1, lambda i, *sums: [more(x) for x in sums], [zero] * vectors)
        for n, x in enumerate(sums):
            k.store(y, 8 * n, x)

    module = Module()
    emit_kernel(module, kernel(write, {"y": OUT}))
    assert (NO_STRENGTH_REDUCTION in str(module)) is (vectors == MANY_CARRIED)


INDEX_OPS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "div": np.floor_divide, "rem": np.remainder,
}  # fmt: skip


@pytest.mark.parametrize("known", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", INDEX_OPS)
def test_index_arithmetic_with_numbers(name, known):
    """Numbers that are known give what those give that are read."""
    counts = name in ("div", "rem")
    left, right = range(0 if counts else -3, 4), range(1 if counts else -3, 4)
    pairs = [(a, b) for a in left for b in right]
    x, y = np.array(pairs, np.int64), np.zeros(len(pairs), np.int64)

    def write(k, x, y):
        for n, pair in enumerate(pairs):
            a, b = (
                k.const("index", number) if is_known
                else k.convert(k.load(x, 2 * n + side), "index")
                for side, (number, is_known) in enumerate(zip(pair, known, strict=True))
            )  # fmt: skip
            k.store(y, n, k.convert(k.op(name, a, b), "i64"))

    run_kernel(write, x, y, x=("i64", "in"), y=("i64", "out"))
    np.testing.assert_array_equal(y, INDEX_OPS[name](*x.T))


@pytest.mark.parametrize("taken", [0, 1])
def test_what_is_written_once_is_known_behind_branches_and_rounds(taken):
    """Addresses and sums of a branch, of a loop and of its one round are no others' behind it."""
    x, y = np.arange(8, dtype=np.int64), np.zeros(4, np.int64)

    def write(k, x, y):
        n = k.convert(k.load(x, taken), "index")

        def read():
            return k.load(x, n + 2)

        k.if_(n > 0, lambda: k.store(y, 0, read()))
        k.for_(0, n, 1, lambda i: k.store(y, 1, read()))
        (once,) = k.for_(0, 1, 1, lambda i, sum: [sum + k.load(x, n + i + 3)], [read()])
        k.store(y, 2, once)
        k.store(y, 3, read())

    run_kernel(write, x, y, x=("i64", "in"), y=("i64", "out"))
    np.testing.assert_array_equal(y, [3 * taken, 3 * taken, 5 + 2 * taken, 2 + taken])


def test_loops_of_one_round_are_no_loops():
    def write(k, y):
        k.for_(2, 5, 4, lambda i: k.store(y, i, k.const("f32", 1)))

    def loops(write):
        module = Module()
        emit_kernel(module, kernel(write, {"y": OUT}))
        return str(module).count(" phi ")

    assert loops(write) == loops(lambda k, y: k.store(y, 2, k.const("f32", 1)))


def test_reads_and_prefetches_of_products_move_from_one_place():
    """Of an address in the loop only what moves is added; what is known is part of it."""
    x, y = f32(400), np.zeros(8 * MANY_CARRIED, np.float32)
    rows = np.array([1, 2, 3, 100], np.int64)

    def write(k, n, x, y):
        still = [k.convert(k.load(n, at), "index") for at in range(3)]
        zero, steps = k.const("f32", 0, (8,)), k.convert(k.load(n, 3), "index")

        def step(i, *sums):
            k.prefetch(x, still[0] + still[2] + i * 2)
            a = k.broadcast(k.load(x, still[0] + (still[1] + i) + 5), (8,))
            b = k.load(x, i * 3 + still[2] + 8, (8,), (1,))
            return [total + (a * b) for total in sums]

        sums = k.for_(0, steps, 1, step, [zero] * MANY_CARRIED)
        for n, total in enumerate(sums):
            k.store(y, 8 * n, total)

    run_kernel(write, rows, x, y, n=("i64", "in"), x=IN, y=OUT)
    i = np.arange(100)
    want = (x[1 + 2 + i + 5, None] * x[i[:, None] * 3 + 3 + 8 + np.arange(8)]).sum(0)
    np.testing.assert_allclose(y.reshape(-1, 8), np.tile(want, (MANY_CARRIED, 1)), rtol=1e-5)


def lone_page():
    """Bytes between memory that is not mapped."""
    page = mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, 3 * page), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for side in (0, 2):
        assert not libc.mprotect(ctypes.c_void_p(whole.ctypes.data + side * page), page, 0)
    return whole[page : 2 * page]


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i16"])
@pytest.mark.parametrize("stride", [-5, -4, -3, -2, -1, 2, 3, 4])
def test_near_neighbors_beside_unmapped_memory(stride, dtype):
    """Lanes that are read with what lies between them, up to the ends of a page."""
    kind = {"f32": "f4", "f64": "f8", "i8": "i1", "i16": "i2"}[dtype]
    x = lone_page().view(kind)
    x[:] = np.random.default_rng(3).integers(-100, 100, len(x))
    for lanes in (4, 8, 64):
        reach = abs(stride) * (lanes - 1)
        for low in (0, len(x) - reach - 1):
            first = low if stride > 0 else low + reach
            y = np.zeros(reach + 1, kind)

            def write(k, x, y, first=first, lanes=lanes, reach=reach):
                read = k.load(x, first, (lanes,), (stride,))
                k.store(y, 0 if stride > 0 else reach, read, (stride,))

            run_kernel(write, x, y, x=(dtype, "in"), y=(dtype, "out"))
            between = np.arange(reach + 1) % abs(stride) != 0
            np.testing.assert_array_equal(y, np.where(between, 0, x[low : low + reach + 1]))


@pytest.mark.parametrize("dtype", ["f32", "i32", "f64", "i16"])
@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_rows_that_are_gathered_beside_unmapped_memory(count, dtype):
    """The elements behind computed places, up to the ends of a page."""
    x = lone_page().view({"f32": "f4", "i32": "i4", "f64": "f8", "i16": "i2"}[dtype])
    x[:] = np.random.default_rng(4).integers(-100, 100, len(x))
    for lanes in (2, 4, 8, 32, 24):
        at = np.random.default_rng(lanes).integers(0, len(x) - count + 1, lanes)
        at[[0, -1]] = len(x) - count, 0
        y = np.zeros((count, lanes), x.dtype)

        def write(k, x, at, y, lanes=lanes):
            where = k.load(at, 0, (lanes,))
            found = [k.load_at(x, where + j if j else where) for j in range(count)]
            for j, row in enumerate(found):
                k.store(y, j * lanes, row)

        run_kernel(write, x, at, y, x=(dtype, "in"), at=("i64", "in"), y=(dtype, "out"))
        np.testing.assert_array_equal(y, x[at + np.arange(count)[:, None]])
