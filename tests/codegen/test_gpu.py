"""What differs on GPUs: tiles of any size over one wave or several, on the emulator."""

import ml_dtypes
import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu import writer as gpu
from tests.support import tile_runner
from tests.support.tile_runner import run_kernel

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "u64": np.uint64, "bool": np.bool_,
}  # fmt: skip
SHAPES = [(2, 2), (5, 37), (16, 16), (64, 8), (8, 256), (33, 1), (1, 100), (3, 64), (100, 4)]


@pytest.fixture(params=tile_runner.GPUS, ids=str, autouse=True)
def gpu_backend(request):
    with tile_runner.using(request.param):
        yield request.param


def numbers(dtype, *shape):
    """Small integers: sums are exact in every dtype."""
    x = np.random.default_rng(1).integers(0, 4, shape)
    return (x % 2 if dtype == "bool" else x).astype(DTYPES[dtype])


def like(dtype, *shape):
    return np.zeros(shape, DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 64, 100, 1000, 2048])
def test_every_dtype_moves_and_adds_up(dtype, n):
    x, y, total = numbers(dtype, n), like(dtype, n), like(dtype, 3)

    def write(k, x, y, total):
        v = k.load(x, 0, (n,))
        k.store(y, 0, v)
        for i, combine in enumerate(("add", "max", "min")):
            k.store(total, i, k.reduce(combine, v))

    run_kernel(write, x, y, total, x=(dtype, "in"), y=(dtype, "out"), total=(dtype, "out"))
    np.testing.assert_array_equal(y, x)
    wide = x.astype(np.int64)
    want = [wide.sum(), wide.max(), wide.min()]
    limit = 256 if dtype == "bf16" else 2048 if dtype == "f16" else None
    if limit is None or want[0] <= limit:
        with np.errstate(over="ignore"):
            assert total[0] == np.asarray(want[0]).astype(DTYPES[dtype])
    assert [int(total[1]), int(total[2])] == want[1:]


ROWS = [(1,), (64,), (100,), (2048,)]


@pytest.mark.parametrize(
    "shape,axis", [(s, 0) for s in ROWS] + [(s, axis) for s in SHAPES for axis in (0, 1)]
)
def test_tiles_reduced_together(shape, axis):
    """The greatest element, its first place and the sum, in one reduction."""
    x, place = numbers("f32", *shape), np.indices(shape)[axis].astype(np.int64)
    kept = np.delete(shape, axis)
    greatest, first, total = (like(dtype, *kept) for dtype in ("f32", "i64", "i8"))

    def better(v, i, s, w, j, t):
        wins = (v > w) | ((v <= w) & (v >= w) & (i < j))
        k = v.builder
        return k.select(wins, v, w), k.select(wins, i, j), s + t

    def write(k, x, place, greatest, first, total):
        v = k.load(x, 0, shape)
        tiles = [v, k.load(place, 0, shape), k.convert(v, "i8")]
        neutral = [k.const("f32", -1), k.const("i64", 1 << 40), k.const("i8", 0)]
        out = k.reduce_by(better, tiles, neutral, axis)
        for buffer, result in zip((greatest, first, total), out, strict=True):
            k.store(buffer, 0, result)

    run_kernel(
        write, x, place, greatest, first, total, x=("f32", "in"), place=("i64", "in"),
        greatest=("f32", "out"), first=("i64", "out"), total=("i8", "out"),
    )  # fmt: skip
    np.testing.assert_array_equal(greatest, x.max(axis))
    np.testing.assert_array_equal(first, x.argmax(axis))
    np.testing.assert_array_equal(total, x.sum(axis).astype(np.int64).astype(np.int8))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "i8", "f64", "bf16"])
def test_rows_and_columns(shape, dtype):
    """Reductions along either axis, broadcasts back, transposes and rows of a tile."""
    rows, columns = shape
    x = numbers(dtype, *shape)
    outs = [like(dtype, *s) for s in (shape, shape, shape[::-1], (columns,), (rows,))]

    def write(k, x, by_row, by_column, turned, last, column_sums):
        v = k.load(x, 0, shape)
        sums, greatest = k.reduce("add", v, 1), k.reduce("max", v, 0)
        k.store(by_row, 0, k.broadcast(k.expand(sums, 1), shape) - v)
        k.store(by_column, 0, k.broadcast(k.expand(greatest, 0), shape) - v)
        k.store(turned, 0, k.transpose(v))
        k.store(last, 0, k.extract(v, rows - 1))
        k.store(column_sums, 0, sums)

    names = ("by_row", "by_column", "turned", "last", "column_sums")
    run_kernel(write, x, *outs, x=(dtype, "in"), **{n: (dtype, "out") for n in names})
    wide = x.astype(np.int64)
    sums = wide.sum(1)
    if dtype == "i8":
        sums = sums.astype(np.int8).astype(np.int64)
    exact = dtype != "bf16" or sums.max() <= 256
    wants = (
        sums[:, None] - wide, wide.max(0)[None] - wide, wide.T, wide[-1], sums,
    )  # fmt: skip
    for name, got, want in zip(names, outs, wants, strict=True):
        if exact or name in ("by_column", "turned", "last"):
            np.testing.assert_array_equal(got, want.astype(DTYPES[dtype]), name)


@pytest.mark.parametrize("n", [1, 2, 5, 64, 100, 256, 777, 1024])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "i64", "u8"])
def test_running_combinations(n, reverse, dtype):
    x, y, z = numbers(dtype, n), like(dtype, n), like(dtype, n)

    def write(k, x, y, z):
        v = k.load(x, 0, (n,))
        k.store(y, 0, k.cumulative("add", v, reverse))
        k.store(z, 0, k.cumulative("max", v, reverse))

    run_kernel(write, x, y, z, x=(dtype, "in"), y=(dtype, "out"), z=(dtype, "out"))
    turned = x[::-1] if reverse else x
    for got, ufunc in ((y, np.add), (z, np.maximum)):
        want = ufunc.accumulate(turned, dtype=x.dtype)
        np.testing.assert_array_equal(got, want[::-1] if reverse else want)


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_of_rows(reverse):
    x, y = numbers("f32", 9, 33), like("f32", 9, 33)
    run_kernel(
        lambda k, x, y: k.store(y, 0, k.cumulative("add", k.load(x, 0, (9, 33)), reverse)),
        x, y, x=("f32", "in"), y=("f32", "out"),
    )  # fmt: skip
    want = x[:, ::-1].cumsum(1)[:, ::-1] if reverse else x.cumsum(1)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("n", [4, 100, 1000])
def test_masks_that_cut_anywhere(n):
    """Every length of the live part; memory ends where it does."""
    for alive in {0, 1, n // 3, n - 1, n}:
        x, y = numbers("f32", alive) + 1, np.zeros(alive, np.float32)

        def write(k, x, y, live):
            mask = k.iota(n) < k.broadcast(k.size(live), (n,))
            v = k.load(x, 0, (n,), mask=mask, other=-1.0)
            least = k.reduce("min", v)
            k.store(y, 0, v + k.broadcast(least, (n,)), mask=mask)

        run_kernel(write, x, y, alive, x=("f32", "in"), y=("f32", "out"), live=("index", "size"))
        np.testing.assert_array_equal(y, x + (-1 if alive < n else x.min()) if alive else x)


@pytest.mark.parametrize("n", [8, 100, 500])
def test_shuffles(n):
    x, z = numbers("i32", n), numbers("i32", n) + 9
    at = np.random.default_rng(2).integers(0, 2 * n, n)
    y = [like("i32", n) for _ in range(3)]

    def write(k, x, z, a, b, c):
        v, w = k.load(x, 0, (n,)), k.load(z, 0, (n,))
        k.store(a, 0, k.shuffle(v, range(n)[::-1]))
        k.store(b, 0, k.shuffle(v, at.tolist(), w))
        k.store(c, 0, k.shuffle(k.iota(n, "i32"), (at % n).tolist()))

    outs = dict.fromkeys("abc", ("i32", "out"))
    run_kernel(write, x, z, *y, x=("i32", "in"), z=("i32", "in"), **outs)
    np.testing.assert_array_equal(y[0], x[::-1])
    np.testing.assert_array_equal(y[1], np.r_[x, z][at])
    np.testing.assert_array_equal(y[2], at % n)


@pytest.mark.parametrize("n", [16, 300])
def test_scattered_elements_of_equal_places(n):
    """The last live element of the tile wins, whichever thread has it."""
    rng = np.random.default_rng(3)
    at, live = rng.integers(0, 9, n), rng.random(n) < 0.7
    y = np.full(9, -1, np.int32)

    def write(k, at, live, y):
        where = k.convert(k.load(at, 0, (n,)), "index")
        k.store_at(y, where, k.iota(n, "i32"), k.load(live, 0, (n,)))

    run_kernel(write, at, live, y, at=("i64", "in"), live=("bool", "in"), y=("i32", "out"))
    want = np.full(9, -1, np.int32)
    for i in np.flatnonzero(live):
        want[at[i]] = i
    np.testing.assert_array_equal(y, want)


def test_atomics_of_tiles():
    x, at = numbers("f32", 500), np.random.default_rng(4).integers(0, 7, 500)
    y = np.zeros(7, np.float32)

    def write(k, x, at, y):
        k.atomic("add", y, k.convert(k.load(at, 0, (500,)), "index"), k.load(x, 0, (500,)))

    run_kernel(write, x, at, y, x=("f32", "in"), at=("i64", "in"), y=("f32", "inout"))
    np.testing.assert_array_equal(y, np.bincount(at, x, 7))


def test_old_values_of_atomics_reach_all_threads():
    y, seen = np.array([40], np.int32), np.zeros(600, np.int32)

    def write(k, y, seen):
        old = k.atomic("add", y, k.const("index", 0), k.const("i32", 2))
        k.store(seen, 0, k.broadcast(old, (600,)))

    run_kernel(write, y, seen, y=("i32", "inout"), seen=("i32", "out"))
    assert y[0] == 42 and set(seen) == {40}


def test_memory_carries_values_between_threads():
    """A program sees its own stores, in scratch and in its parameters, also around loops."""
    x, y = numbers("f32", 512), np.zeros(512, np.float32)

    def write(k, x, y):
        s = k.scratch("s", "f32", 512)
        k.store(s, 0, k.load(x, 0, (512,)))

        def turn(_):
            v = k.load(s, 511, (512,), (-1,))
            k.store(s, 0, v + k.const("f32", 1, (512,)))

        k.for_(0, 3, 1, turn)
        k.store(y, 0, k.load(s, 0, (512,)))
        k.store(y, 7, k.load(y, 500) + 1.0)
        k.store(y, 0, k.load(y, 1, (256,), (2,)))

    run_kernel(write, x, y, x=("f32", "in"), y=("f32", "inout"))
    want = x[::-1] + 3
    want[7] = want[500] + 1
    want[:256] = want[1::2].copy()
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("strides", [(1, 40), (40, 1), (-40, 1), (-1, -40), (0, 3)])
def test_strided_tiles(strides):
    x, y = numbers("i16", 3000), like("i16", 24, 32)
    start = 1500 if min(strides) < 0 else 3

    def write(k, x, y, s):
        v = k.load(x, start, (24, 32), strides)
        w = k.load(x, start, (24, 32), (k.size(s), strides[1]))
        k.store(y, 0, v + w)

    run_kernel(write, x, y, strides[0], x=("i16", "in"), y=("i16", "out"), s=("index", "size"))
    i, j = np.indices((24, 32))
    np.testing.assert_array_equal(y, 2 * x[start + i * strides[0] + j * strides[1]])


@pytest.mark.parametrize("dtype", ["f32", "u8"])
def test_columns_that_are_contiguous(dtype):
    """Loads and stores go along memory; masks of positions turn with them, others do not."""
    rows, columns, alive = 16, 40, 11
    x, y, z = (numbers(dtype, columns, rows) for _ in range(3))
    y[:], z[:] = 9, 9

    def write(k, x, y, z, n):
        shape = (rows, columns)
        row = k.broadcast(k.expand(k.iota(rows), 1), shape)
        mask = row < k.broadcast(k.size(n), shape)
        v = k.load(x, 0, shape, (1, rows), mask=mask, other=3)
        k.store(y, 0, v, (1, rows), mask=mask)
        k.store(z, 0, k.load(y, 0, shape, (1, rows), mask=v < k.const(dtype, 2, shape)),
                (1, rows))  # fmt: skip

    run_kernel(
        write, x, y, z, alive,
        x=(dtype, "in"), y=(dtype, "inout"), z=(dtype, "out"), n=("index", "size"),
    )  # fmt: skip
    live = np.arange(rows) < alive
    np.testing.assert_array_equal(y, np.where(live, x, 9))
    np.testing.assert_array_equal(z, np.where(np.where(live, x, 3) < 2, y, 0))


def test_workgroups_that_cannot_run(gpu_backend):
    target = targets.get(gpu_backend.gfx)
    for workgroup in (16, 96, 2048):
        k = tile.Builder("test")
        k.schedule.workgroup = workgroup
        with pytest.raises(ValueError, match=f"powers of two from {target.wave_size} to 1024"):
            gpu.kernel_ir(k.finish(1), target)
