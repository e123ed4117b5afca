"""Tile programs on every backend: memory, shapes, combining, control flow, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from tests.support.tile_runner import compile_kernel, kernel, run_kernel

pytestmark = pytest.mark.usefixtures("backend")

IN, OUT, INOUT = ("f32", "in"), ("f32", "out"), ("f32", "inout")


def f32(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 16, 64, 100])
@pytest.mark.parametrize("stride", [0, 1, 2, 5])
def test_loads_and_stores_with_strides(lanes, stride):
    x, y = f32(600), np.zeros(600, np.float32)
    run_kernel(
        lambda k, x, y: k.store(y, 2, k.load(x, 3, (lanes,), (stride,)), (4,)), x, y, x=IN, y=OUT
    )
    want = np.zeros(600, np.float32)
    want[2 : 2 + 4 * lanes : 4] = x[3 + stride * np.arange(lanes)]
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("shape", [(4, 8), (8, 8), (16, 16), (8, 4), (3, 5), (1, 8), (8, 1)])
@pytest.mark.parametrize("strides", [(20, 1), (1, 20), (40, 2)])
def test_square_tiles(shape, strides):
    x, y = f32(1000), np.zeros(shape, np.float32)
    run_kernel(lambda k, x, y: k.store(y, 0, k.load(x, 1, shape, strides)), x, y, x=IN, y=OUT)
    i, j = np.indices(shape)
    np.testing.assert_array_equal(y, x[1 + i * strides[0] + j * strides[1]])


def test_strides_known_at_run_time():
    x, y = f32(64), np.zeros(8, np.float32)

    def write(k, x, s, y):
        k.store(y, 0, k.load(x, 0, (8,), (k.size(s),)))

    run_kernel(write, x, 7, y, x=IN, s=("index", "size"), y=OUT)
    np.testing.assert_array_equal(y, x[:56:7])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i16", "i64", "bool"])
@pytest.mark.parametrize("alive", [0, 1, 5, 16])
def test_masks_touch_nothing_else(dtype, alive):
    kinds = {"f32": "f", "f64": "d", "i8": "b", "i16": "h", "i64": "q", "bool": "?"}
    x = np.arange(1, 17).astype(kinds[dtype])
    y = np.zeros(18, kinds[dtype])

    def write(k, x, y):
        mask = k.iota(16, "i32") < k.const("i32", alive, (16,))
        k.store(y, 1, k.load(x, 0, (16,), mask=mask), mask=mask)

    run_kernel(write, x, y, x=(dtype, "in"), y=(dtype, "out"))
    np.testing.assert_array_equal(y[1:17], np.where(np.arange(16) < alive, x, 0))
    assert not y[0] and not y[17]


def test_masked_lanes_are_not_read():
    """The address past the mask is not mapped."""
    x = f32(4)
    y = np.zeros(16, np.float32)

    def write(k, x, y):
        mask = k.iota(16, "i32") < k.const("i32", 4, (16,))
        far = k.select(mask, k.iota(16), k.const("index", 1 << 44, (16,)))
        k.store(y, 0, k.load_at(x, far, mask, other=-1.0))

    run_kernel(write, x, y, x=IN, y=OUT)
    np.testing.assert_array_equal(y, np.r_[x, np.full(12, -1)])


@pytest.mark.parametrize("constant", [True, False])
def test_truncated_integers_in_masked_stores(constant):
    """One lane of a constant mask must not make the store wider."""
    x, y = np.arange(16, dtype=np.int32) + 300, np.full(64, 7, np.int8)

    def write(k, x, m, y):
        lane = k.const("index", 0) if constant else k.size(m)
        mask = k.op("eq", k.iota(16), k.broadcast(lane, (16,)))
        k.store(y, 0, k.convert(k.load(x, 0, (16,)), "i8"), mask=mask)

    run_kernel(write, x, 0, y, x=("i32", "in"), m=("index", "size"), y=("i8", "out"))
    np.testing.assert_array_equal(y, np.r_[np.int32(300).astype(np.int8), np.full(63, 7)])


def test_gather_and_scatter():
    x, at, y = f32(50), np.array([3, 3, 49, 0, 7, 8, 9, 1]), np.zeros(50, np.float32)

    def write(k, x, at, y):
        where = k.load(at, 0, (8,))
        k.store_at(y, k.convert(where, "index"), k.load_at(x, k.convert(where, "index")))

    run_kernel(write, x, at, y, x=IN, at=("i64", "in"), y=OUT)
    want = np.zeros(50, np.float32)
    want[at] = x[at]
    np.testing.assert_array_equal(y, want)


def test_where_offsets_coincide_the_last_element_wins():
    y = np.zeros(4, np.float32)

    def write(k, y):
        k.store_at(y, k.const("index", 2, (8,)), k.convert(k.iota(8, "i32"), "f32"))

    run_kernel(write, y, y=OUT)
    np.testing.assert_array_equal(y, [0, 0, 7, 0])


@pytest.mark.parametrize("combine", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(combine, axis):
    x = f32(4, 8)
    y = np.zeros(x.shape[1 - axis], np.float32)

    def write(k, x, y):
        k.store(y, 0, k.reduce(combine, k.load(x, 0, (4, 8)), axis))

    run_kernel(write, x, y, x=IN, y=OUT)
    numpy = {"add": np.sum, "mul": np.prod, "min": np.min, "max": np.max}[combine]
    np.testing.assert_allclose(y, numpy(x.astype(np.float64), axis), rtol=8 * 2**-23)


@pytest.mark.parametrize("combine", ["min", "max"])
def test_reductions_pass_nan_on(combine):
    x, y = f32(16), np.zeros(1, np.float32)
    x[5] = np.nan
    run_kernel(
        lambda k, x, y: k.store(y, 0, k.reduce(combine, k.load(x, 0, (16,)))), x, y, x=IN, y=OUT
    )
    assert np.isnan(y[0])


@pytest.mark.parametrize("combine", ["and", "or", "xor", "add", "min", "max"])
@pytest.mark.parametrize("dtype", ["i32", "u8"])
def test_integer_reductions(combine, dtype):
    kind = {"i32": np.int32, "u8": np.uint8}[dtype]
    x = np.random.default_rng(0).integers(0, 255, 16).astype(kind)
    y = np.zeros(1, kind)
    run_kernel(
        lambda k, x, y: k.store(y, 0, k.reduce(combine, k.load(x, 0, (16,)))),
        x, y, x=(dtype, "in"), y=(dtype, "out"),
    )  # fmt: skip
    ufunc = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add,
             "min": np.minimum, "max": np.maximum}[combine]  # fmt: skip
    assert y[0] == ufunc.reduce(x, dtype=kind)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lanes", [2, 8, 16, 32])
def test_running_sums(lanes, reverse):
    x = np.arange(lanes, dtype=np.float32) + 1
    y = np.zeros_like(x)
    run_kernel(
        lambda k, x, y: k.store(y, 0, k.cumulative("add", k.load(x, 0, (lanes,)), reverse)),
        x, y, x=IN, y=OUT,
    )  # fmt: skip
    np.testing.assert_array_equal(y, np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x))


@pytest.mark.parametrize("shape", [(2, 2), (4, 8), (8, 4), (16, 16), (3, 7), (1, 5), (32, 8)])
def test_transposes(shape):
    x, y = f32(*shape), np.zeros(shape[::-1], np.float32)
    run_kernel(lambda k, x, y: k.store(y, 0, k.transpose(k.load(x, 0, shape))), x, y, x=IN, y=OUT)
    np.testing.assert_array_equal(y, x.T)


def test_products_of_tiles():
    a, b, c = f32(4, 8), f32(8, 16), f32(4, 16)
    y = np.zeros((4, 16), np.float32)

    def write(k, a, b, c, y):
        k.store(y, 0, k.dot(k.load(a, 0, (4, 8)), k.load(b, 0, (8, 16)), k.load(c, 0, (4, 16))))

    run_kernel(write, a, b, c, y, a=IN, b=IN, c=IN, y=OUT)
    want = c.astype(np.float64) + a.astype(np.float64) @ b
    np.testing.assert_allclose(y, want, atol=9 * 2**-24 * (np.abs(a) @ np.abs(b) + 1).max())


def dot_words(types, a, b, c):
    y = np.zeros_like(c)
    sums = "i32" if c.dtype == np.int32 else "f32"

    def write(k, a, b, c, y):
        words = [k.load(p, 0, (16,)) for p in (a, b)]
        k.store(y, 0, k.dot_words(types, *words, k.load(c, 0, (16,))))

    run_kernel(write, a.view(np.int32), b.view(np.int32), c, y, a=("i32", "in"), b=("i32", "in"),
               c=(sums, "in"), y=(sums, "out"))  # fmt: skip
    return y


def test_products_of_four_bytes():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 255, 64).astype(np.uint8), rng.integers(-128, 127, 64).astype(np.int8)
    c = rng.integers(-99, 99, 16).astype(np.int32)
    y = dot_words(("u8", "i8"), a, b, c)
    np.testing.assert_array_equal(
        y, c + (a.astype(np.int32) * b).reshape(16, 4).sum(1, dtype=np.int32)
    )


def test_products_of_two_integers():
    """Modulo 2**32, as integers are added: of four times the smallest number, too."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**15), 2**15, 32).astype(np.int16) for _ in range(2))
    a[:4] = b[:4] = -(2**15)
    c = rng.integers(-(2**31), 2**31, 16).astype(np.int32)
    want = c + (a.astype(np.int64) * b).reshape(16, 2).sum(1)
    np.testing.assert_array_equal(dot_words(("i16", "i16"), a, b, c), want.astype(np.int32))


def test_products_of_two_bfloat16():
    """One rounding for each product that is added, that of the upper halves first."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(32).astype(ml_dtypes.bfloat16) for _ in range(2))
    c = (100 * rng.standard_normal(16)).astype(np.float32)
    products = (a.astype(np.float64) * b.astype(np.float64)).reshape(16, 2)
    want = ((c + products[:, 1]).astype(np.float32) + products[:, 0]).astype(np.float32)
    np.testing.assert_array_equal(dot_words(("bf16", "bf16"), a, b, c), want)


@pytest.mark.parametrize("lanes", [1, 2, 8, 16, 32, 64])
def test_compress(lanes):
    x = np.arange(lanes, dtype=np.int32)
    keep = np.random.default_rng(1).random(lanes) < 0.6
    y = np.zeros(lanes, np.int32)

    def write(k, x, m, y):
        k.store(y, 0, k.compress(k.load(x, 0, (lanes,)), k.load(m, 0, (lanes,))))

    run_kernel(write, x, keep, y, x=("i32", "in"), m=("bool", "in"), y=("i32", "out"))
    np.testing.assert_array_equal(y[: keep.sum()], x[keep])


def test_shuffle_extract_expand_broadcast():
    x, y = f32(8), np.zeros((4, 8), np.float32)

    def write(k, x, y):
        row = k.load(x, 0, (8,))
        turned = k.shuffle(row, [7, 6, 5, 4, 3, 2, 1, 0])
        column = k.expand(k.shuffle(row, [0, 1, 2, 3]), 1)
        total = k.broadcast(k.expand(turned, 0), (4, 8)) + k.broadcast(column, (4, 8))
        k.store(y, 0, total * k.extract(row, 2))

    run_kernel(write, x, y, x=IN, y=OUT)
    np.testing.assert_array_equal(y, (x[::-1][None] + x[:4, None]) * x[2])


@pytest.mark.parametrize("shape,axis", [((8,), 0), ((4, 8), 0), ((4, 8), 1)])
def test_tiles_in_turns(shape, axis):
    """What was loaded, and what follows from position, beside each other along an axis."""
    x, found = f32(2, *shape), shape[:axis] + (2 * shape[axis],) + shape[axis + 1 :]
    loaded, counted = np.zeros(found, np.float32), np.zeros(found, np.int32)

    def write(k, x, loaded, counted):
        a, b = (k.load(x, i * x_size, shape) for i in (0, 1))
        k.store(loaded, 0, k.interleave(a, b, axis))
        lines = [k.iota(n, "i32") * (10 if i == 0 else 1) for i, n in enumerate(shape)]
        places = lines[0]
        if len(shape) == 2:
            wide = [k.broadcast(k.expand(line, 1 - i), shape) for i, line in enumerate(lines)]
            places = wide[0] + wide[1]
        k.store(counted, 0, k.interleave(places, places * -1, axis))

    x_size = x[0].size
    run_kernel(write, x, loaded, counted, x=IN, loaded=OUT, counted=("i32", "out"))
    turns = lambda a, b: np.stack([a, b], axis + 1).reshape(found)
    np.testing.assert_array_equal(loaded, turns(*x))
    steps = np.array([10, 1])[: len(shape)].reshape(-1, *[1] * len(shape))
    places = (np.indices(shape) * steps).sum(0)
    np.testing.assert_array_equal(counted, turns(places, -places))


def test_loops_carry_values():
    x, y = f32(64), np.zeros(9, np.float32)

    def write(k, x, y):
        start = [k.const("f32", 0.0, (8,)), k.const("f32", 1.0)]

        def body(i, total, scale):
            return total + k.load(x, i, (8,)) * scale, scale * 0.5

        total, scale = k.for_(0, 64, 8, body, start)
        k.store(y, 0, total)
        k.store(y, 8, scale)

    run_kernel(write, x, y, x=IN, y=OUT)
    want = sum(x[8 * i : 8 * i + 8] * np.float32(0.5**i) for i in range(8))
    np.testing.assert_allclose(y[:8], want, rtol=1e-6, atol=1e-6)
    assert y[8] == 0.5**8


def test_loops_that_do_not_run():
    y = np.zeros(1, np.float32)

    def write(k, n, y):
        (v,) = k.for_(0, k.size(n), 1, lambda i, v: v + 1.0, [k.const("f32", 5.0)])
        k.store(y, 0, v)

    run = compile_kernel(kernel(write, {"n": ("index", "size"), "y": OUT}))
    for n, want in [(0, 5), (-3, 5), (2, 7)]:
        run(n, y)
        assert y[0] == want


def test_while_and_if():
    y = np.zeros(2, np.int64)

    def write(k, n, y):
        def step(v, count):
            (v,) = k.if_(k.op("eq", v % 2, k.const("index", 0)), lambda: v // 2, lambda: v * 3 + 1)
            return v, count + 1

        start = [k.size(n), k.const("index", 0)]
        v, count = k.while_(lambda v, _: k.op("ne", v, k.const("index", 1)), step, start)
        k.store(y, 0, k.convert(v, "i64"))
        k.store(y, 1, k.convert(count, "i64"))

    run_kernel(write, 27, y, n=("index", "size"), y=("i64", "out"))
    np.testing.assert_array_equal(y, [1, 111])


def test_scratch_belongs_to_a_program():
    x, y = f32(32), np.zeros(32, np.float32)

    def write(k, x, y):
        scratch = k.scratch("s", "f32", 8)
        base = k.program_id() * 8
        k.store(scratch, 0, k.load(x, base, (8,)))
        k.store(y, base, k.load(scratch, 7, (8,), (-1,)))

    run_kernel(write, x, y, grid=4, x=IN, y=OUT)
    np.testing.assert_array_equal(y, x.reshape(4, 8)[:, ::-1].ravel())


@pytest.mark.parametrize(
    "combine,numpy", [("add", np.add), ("min", np.minimum), ("max", np.maximum)]
)
@pytest.mark.parametrize("dtype,kind", [("f32", "f"), ("i32", "i"), ("u32", "I")])
def test_atomics(combine, numpy, dtype, kind):
    x, y = np.arange(1, 17).astype(kind), np.full(1, 9, kind)

    def write(k, x, y):
        k.atomic(combine, y, k.const("index", 0), k.load(x, k.program_id()))

    run_kernel(write, x, y, grid=16, x=(dtype, "in"), y=(dtype, "inout"))
    assert y[0] == numpy.reduce(np.r_[np.full(1, 9, kind), x])


def test_reading_memory_as_another_dtype():
    x, y = f32(16), np.zeros(16, np.uint32)

    def write(k, x, y):
        k.store(y, 0, k.load(x, 0, (16,), dtype="u32"))

    run_kernel(write, x, y, x=IN, y=("u32", "out"))
    np.testing.assert_array_equal(y, x.view(np.uint32))
