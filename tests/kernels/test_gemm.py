import contextlib
import dataclasses
import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.kernels
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.codegen.cpu.writer import SCRATCH_LIMIT
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.jit.plan import plan_program
from amdjax.kernels.products import contraction
from amdjax.kernels.products.cpu import blocking
from amdjax.kernels.products.cpu.direct import DIRECT, DOT_PRODUCTS
from amdjax.kernels.products.cpu.dispatch import PRODUCTS
from amdjax.kernels.products.cpu.micro_kernel import steps_of_turn
from amdjax.kernels.products.cpu.packed import PACKED
from amdjax.kernels.products.cpu.rank_updates import RANK_UPDATES
from amdjax.kernels.products.cpu.streamed import STREAMED
from amdjax.lax.dot import dot_general_p
from amdjax.lax.elementwise import add_p, max_p
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize
from tests.support.jit_helpers import (
    compiled,
    on_machine,
    results_and_schedule,
    small_integers,
)
from tests.support.kernel_runner import Runner, target

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTS = [np.int8, np.uint8, np.int32, np.int64]
COMPLEX = [np.complex64, np.complex128]
WIDER = [
    (np.int8, np.int32), (np.uint8, np.int32),
    (np.float16, np.float32), (ml_dtypes.bfloat16, np.float32),
]  # fmt: skip
SPECIAL = [
    (1, 5000, 40), (300, 2000, 1), (4, 3000, 9), (1, 70000, 1), (2, 40000, 3),
    (40, 30000, 30), (600, 900, 500), (1, 1, 1), (700, 2, 300),
]  # fmt: skip
FUSED = [
    (5, 7, 9), (40, 300, 33), (300, 900, 130), (1, 3000, 50), (200, 3000, 1),
    (30, 20000, 40), (4, 100, 70),
]  # fmt: skip
EPS = {"float32": 2**-24, "float64": 2**-53, "float16": 2**-11, "bfloat16": 2**-8}


def params(numbers, preferred=None):
    return {
        "dimension_numbers": numbers,
        "precision": None,
        "preferred_element_type": preferred,
        "out_sharding": None,
    }


def values(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(max(info.min, -200), min(info.max, 200), shape, endpoint=True).astype(
            dtype
        )
    return rng.standard_normal(shape).astype(dtype)


def expected(x, y, numbers):
    """The product and, for floats, the product of magnitudes that errors are measured by."""
    (cx, cy), (bx, by) = numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    shared = {("x", d): next(letters) for d in (*bx, *cx)}
    shared |= {("y", e): shared["x", d] for d, e in zip((*bx, *cx), (*by, *cy))}
    names = [
        [
            shared.get((side, d)) or shared.setdefault((side, d), next(letters))
            for d in range(z.ndim)
        ]
        for side, z in (("x", x), ("y", y))
    ]
    free = [
        [n for d, n in enumerate(ns) if d not in (*b, *c)]
        for ns, b, c in zip(names, (bx, by), (cx, cy))
    ]
    out = [names[0][d] for d in bx] + free[0] + free[1]
    spec = f"{''.join(names[0])},{''.join(names[1])}->{''.join(out)}"
    wide = {"f": np.float64, "c": np.complex128, "V": np.float64}.get(x.dtype.kind, np.int64)
    x, y = x.astype(wide), y.astype(wide)
    return np.einsum(spec, x, y), np.einsum(spec, abs(x), abs(y))


def depth_of(x, numbers):
    return int(np.prod([x.shape[d] for d in numbers[0][0]]))


def check(x, y, numbers, preferred=None, out=None):
    if out is None:
        out = Runner(dot_general_p, [x, y], params(numbers, preferred))(x, y)
    want, scale = expected(x, y, numbers)
    if out.dtype.kind in "iu":
        np.testing.assert_array_equal(out, want.astype(out.dtype))
        return
    real = out.real.dtype.name
    sums = "float32" if real in ("float16", "bfloat16") else real
    bound = (
        (4 + depth_of(x, numbers)) * EPS[sums] * scale
        + EPS[real] * abs(want)
        + 1e-7 * (real == "float16")
    )
    error = abs(out.astype(want.dtype) - want)
    assert (error <= 2 * bound).all(), (error / np.maximum(bound, 1e-300)).max()


MATMUL = (((1,), (0,)), ((), ()))


@st.composite
def products(draw):
    """Operand shapes with their axes in any order, and the dimension numbers."""
    extent = st.sampled_from([1, 2, 3, 5, 8, 15, 16, 17, 33, 64])
    batch, contract, rows, columns = (draw(st.lists(extent, max_size=n)) for n in (2, 2, 2, 2))
    sides = []
    for free in (rows, columns):
        tags = [("b", i) for i in range(len(batch))] + [("k", i) for i in range(len(contract))]
        tags = draw(st.permutations(tags + [("f", i) for i in range(len(free))]))
        # Free axes keep their order in the result whatever their order in the operand.
        size = {"b": batch, "k": contract, "f": free}
        shape = tuple(size[t][i] for t, i in tags)
        place = lambda kind, n, tags=tags: tuple(tags.index((kind, i)) for i in range(n))
        sides.append((shape, place("b", len(batch)), place("k", len(contract))))
    (xs, xb, xk), (ys, yb, yk) = sides
    total = np.prod([*batch, *contract, *rows, *columns], dtype=float)
    return xs, ys, ((xk, yk), (xb, yb)), total


@pytest.mark.turns(3)
@settings(max_examples=60, deadline=None)
@given(products(), st.sampled_from([*FLOATS, *INTS, *COMPLEX]), st.integers(0, 99))
def test_any_layout(product, dtype, seed):
    xs, ys, numbers, total = product
    if total > 2e6:
        return
    rng = np.random.default_rng(seed)
    check(values(rng, xs, dtype), values(rng, ys, dtype), numbers)


@pytest.mark.turns(3)
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 150), st.integers(1, 700), st.integers(1, 150), st.booleans(), st.booleans())
def test_matrices(m, k, n, turn_x, turn_y):
    rng = np.random.default_rng(m * k * n)
    x, y = (
        values(rng, (k, m) if turn_x else (m, k), np.float32),
        values(rng, (n, k) if turn_y else (k, n), np.float32),
    )
    check(x, y, (((0 if turn_x else 1,), (1 if turn_y else 0,)), ((), ())))


@pytest.mark.parametrize("m, k, n", SPECIAL)
@pytest.mark.parametrize("turn_x", [False, True])
@pytest.mark.parametrize("turn_y", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shapes_with_a_method_of_their_own(m, k, n, turn_x, turn_y, dtype):
    rng = np.random.default_rng(0)
    x, y = (
        values(rng, (k, m) if turn_x else (m, k), dtype),
        values(rng, (n, k) if turn_y else (k, n), dtype),
    )
    check(x, y, (((0 if turn_x else 1,), (1 if turn_y else 0,)), ((), ())))


@pytest.mark.parametrize(
    "shapes", [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0, 0), (0, 0))]
)
def test_nothing_to_compute(shapes):
    x, y = (np.ones(s, np.float32) for s in shapes)
    check(x, y, MATMUL)


def test_scalars():
    check(np.float32(3), np.float32(4), (((), ()), ((), ())))


@pytest.mark.parametrize("dtype, preferred", WIDER)
@pytest.mark.parametrize("turn", [False, True])
def test_wider_results(dtype, preferred, turn):
    rng = np.random.default_rng(1)
    x, y = values(rng, (37, 203), dtype), values(rng, (50, 203) if turn else (203, 50), dtype)
    check(x, y, (((1,), (1 if turn else 0,)), ((), ())), np.dtype(preferred))


@pytest.mark.parametrize("x_dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("m, k, n", [(20, 400, 50), (300, 3000, 90), (1, 4000, 64), (33, 404, 31)])
def test_bytes(m, k, n, turn, x_dtype):
    rng = np.random.default_rng(1)
    low = -128 if x_dtype is np.int8 else 0
    x = rng.integers(low, low + 255, (2, m, k), endpoint=True).astype(x_dtype)
    y = rng.integers(-128, 127, (2, n, k) if turn else (2, k, n), endpoint=True).astype(np.int8)
    check(x, y, (((2,), (2 if turn else 1,)), ((0,), (0,))), np.dtype(np.int32))


def test_specials_stay_in_their_row_and_column():
    x, y = np.ones((40, 300), np.float32), np.ones((300, 50), np.float32)
    x[7, 3], y[5, 9] = np.nan, np.inf
    out = Runner(dot_general_p, [x, y], params(MATMUL))(x, y)
    mask = np.zeros(out.shape, bool)
    mask[7], mask[:, 9] = True, True
    assert np.isfinite(out[~mask]).all() and np.isnan(out[7]).all() and np.isinf(out[8, 9])


@pytest.mark.parametrize(
    "m, k, n", [(1, 300_000, 1), (1, 50_000, 3), (9, 20_000, 40), (2, 90_000, 256)]
)
@pytest.mark.parametrize("turn", [False, True])
def test_long_sums_are_begun_anew(m, k, n, turn):
    """All numbers are positive: a single sum of so many has ten times the error and more."""
    rng = np.random.default_rng(0)
    x = rng.random((m, k), np.float32)
    y = rng.random((n, k) if turn else (k, n), np.float32)
    numbers = (((1,), (1 if turn else 0,)), ((), ()))
    exact = x.astype(np.float64) @ (y.T if turn else y).astype(np.float64)
    used = 0
    for solver in (DIRECT, DOT_PRODUCTS, PACKED, RANK_UPDATES):
        with using(solver) as applied:
            found = Runner(dot_general_p, [x, y], params(numbers))(x, y)
        used += bool(applied)
        np.testing.assert_allclose(found, exact, 2e-6)
    assert used > 1


@settings(max_examples=12)
@given(
    st.integers(1, 64), st.integers(64, 700), st.integers(256, 900), st.integers(0, 30),
    st.sampled_from([(), (3,)]), st.sampled_from([np.float32, np.float64, np.float16, np.int32]),
    st.sampled_from([128, 256, 512]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_few_rows_times_a_matrix_that_streams(m, k, n, number, batch, dtype, bits, threads):
    x, y = small_integers((*batch, m, k), dtype), small_integers((*batch, k, n), dtype, 1)
    bias = small_integers((n,), dtype, 2)
    f = lambda x, y, bias: (x @ y, jnp.maximum(x @ y + bias, 1))
    exact = x.astype("d") @ y.astype("d")
    with pytest.MonkeyPatch.context() as patch, using(RANK_UPDATES, number) as applied:
        on_machine(patch, vector_bits=min(bits, target().vector_bits), threads=threads)
        with amdjax.enable_x64(True):
            plain, fused = compiled(f, x, y, bias)(x, y, bias)
    assert applied
    np.testing.assert_array_equal(plain, exact.astype(dtype))
    if dtype is not np.float16:  # whose sum is rounded before the bias is added, or after
        np.testing.assert_array_equal(fused, np.maximum(exact + bias, 1).astype(dtype))


@settings(max_examples=12)
@given(
    st.integers(1, 3), st.integers(1, 1200), st.integers(130, 700), st.integers(0, 5),
    st.sampled_from([(), (3,), (2, 3)]), st.sampled_from([np.float32, np.float64, np.int32]),
    st.sampled_from([128, 256, 512]), st.sampled_from([1, 3]), st.booleans(),
)  # fmt: skip
def test_few_rows_times_a_matrix_that_was_packed(
    m, k, n, number, batch, dtype, bits, threads, turned
):
    x, y = small_integers((*batch, m, k), dtype), small_integers((*batch, k, n), dtype, 1)
    bias, start = small_integers((n,), dtype, 2), small_integers((*batch, m, n), dtype, 3)
    weights = np.ascontiguousarray(y.swapaxes(-1, -2)) if turned else y
    exact = x.astype("d") @ y.astype("d")

    def f(x, bias, total):
        y = weights.swapaxes(-1, -2) if turned else weights
        return x @ y, jnp.maximum(x @ y + bias, 1), total + x @ y

    def loop(x, total, y):
        return lax.fori_loop(0, 3, lambda i, total: jnp.minimum(total, 5) + x @ y, total)

    with pytest.MonkeyPatch.context() as patch, using(STREAMED, number) as applied:
        on_machine(patch, vector_bits=min(bits, target().vector_bits), threads=threads)
        with amdjax.enable_x64(True):
            found = compiled(f, x, bias, start)(x, bias, start)
            looped = compiled(loop, x, start, y)(x, start, y)
    assert applied
    plain, fused, added = map(np.asarray, found)
    np.testing.assert_array_equal(plain, exact)
    np.testing.assert_array_equal(fused, np.maximum(exact + bias, 1))
    np.testing.assert_array_equal(added, start + exact)
    for _ in range(3):
        start = np.minimum(start, 5) + exact
    np.testing.assert_array_equal(looped, start)


def test_long_sums_over_packed_panels_are_begun_anew():
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 300_000), np.float32), rng.random((300_000, 100), np.float32)
    with using(STREAMED) as applied:
        found = compiled(lambda x: x @ y, x)(x)
    assert applied
    np.testing.assert_allclose(found, x.astype(np.float64) @ y.astype(np.float64), 2e-6)


def test_a_matrix_that_streams_is_read_once(monkeypatch):
    """Few rows and a matrix that is not near: no tile runs along the whole depth."""
    on_machine(monkeypatch, vector_bits=256, threads=1, l2_bytes=512 << 10, l3_bytes=32 << 20)
    for rows in 1, 3, 8, 16:
        x, y = small_integers((rows, 1024)), small_integers((1024, 4096))
        found, plan = results_and_schedule(lambda x, y: x @ y, x, y)
        np.testing.assert_array_equal(found, x @ y)
        assert "rank-16 updates" in plan, plan


def test_a_matrix_that_streams_is_prefetched_by_lines():
    """The block of 16 rows after the one that is multiplied, each line once, if it is not near."""
    depth, columns = 2048, 4096
    numbers = params((((1,), (0,)), ((), ())))
    for rows, dtype, size in (8, np.float32, 4), (8, np.float16, 2), (1, np.float32, 4):
        x, y = small_integers((rows, depth), dtype), small_integers((depth, columns), dtype)
        with using(RANK_UPDATES) as applied:
            runner = Runner(dot_general_p, [x, y], numbers)
        (plan,) = applied
        (kernel,) = (call.kernel for call in runner.calls if call.kernel.name == "rank_updates")
        asked = str(kernel).count("prefetch p1 level=2")
        steps = steps_of_turn(plan.tile) + (steps_of_turn(plan.tile) > 1)  # a turn's, and the rest
        assert asked == (rows > 1) * steps * math.ceil(plan.tile.columns * size / 64)
        assert plan.prefetch == (rows > 1) == ("prefetched" in str(plan))
        np.testing.assert_array_equal(runner(x, y), x.astype("f") @ y.astype("f"))
    x, y = small_integers((8, 256)), small_integers((256, 256))
    with using(RANK_UPDATES) as applied:
        Runner(dot_general_p, [x, y], numbers)
    assert applied and not applied[0].prefetch


def test_a_matrix_that_streams_for_any_number_of_rows_and_columns(monkeypatch):
    monkeypatch.setattr(PRODUCTS, "solvers", [RANK_UPDATES, DIRECT, PACKED])
    f = amdjax.jit(lambda x, y: nn.relu(x @ y) + 1, symbolic=["b, t", "t, 8*n"])
    for b, t, n in (3, 300, 40), (4, 100, 33), (1, 64, 60), (64, 129, 32), (65, 64, 40), (8, 0, 50):
        x, y = small_integers((b, t)), small_integers((t, 8 * n), seed=1)
        np.testing.assert_array_equal(f(x, y), np.maximum(x @ y, 0) + 1)


@contextlib.contextmanager
def using(solver, number=0):
    """Products are computed by a solver's plan of that number wherever it applies; yields them."""
    applied = []

    def usual(problem, machine):
        plans = solver.plans(problem, machine)
        plan = plans[number % len(plans)] if plans else None
        applied.extend(plans[:1])
        return plan

    usually = PRODUCTS.solvers
    PRODUCTS.solvers = [dataclasses.replace(solver, usual=usual, tier=-1), *usually]
    try:
        yield applied
    finally:
        PRODUCTS.solvers = usually


def test_sizes_share_machine_code():
    rng = np.random.default_rng(0)
    texts = []
    for m, n, k in [(1024, 2048, 700), (1024, 2048, 710)]:
        x, y = values(rng, (m, k), np.float32), values(rng, (k, n), np.float32)
        runner = Runner(dot_general_p, [x, y], params(MATMUL))
        texts.append(str(runner.calls[-1].kernel).partition("\n")[2])
    assert texts[0] == texts[1]


# Epilogues


def bias_relu(shape):
    """`max(out + bias[None, :], other)` behind a product."""

    def epilogue(out):
        dtype = out.aval.dtype
        other = Var(ShapedArray(shape, dtype))
        summed, result = Var(out.aval), Var(out.aval)
        producers = {
            summed: JaxprEqn(add_p, [out, other], [summed], {}),
            result: JaxprEqn(max_p, [summed, other], [result], {}),
        }
        return [result, out], [other], producers

    return epilogue


@pytest.mark.parametrize("shape", FUSED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("turn", [False, True])
def test_fused_equals_unfused(shape, dtype, turn):
    m, k, n = shape
    rng = np.random.default_rng(0)
    x, y = values(rng, (m, k), dtype), values(rng, (n, k) if turn else (k, n), dtype)
    other = values(rng, (m, n), dtype)
    numbers = (((1,), (1 if turn else 0,)), ((), ()))
    plain = Runner(dot_general_p, [x, y], params(numbers))(x, y)
    fused = Runner(dot_general_p, [x, y], params(numbers), epilogue=bias_relu((m, n)))
    result, out = fused(x, y, extra=[other])
    np.testing.assert_array_equal(out, plain)
    if dtype is not np.float16:
        np.testing.assert_array_equal(result, np.maximum(plain + other, other))


@pytest.mark.parametrize("columns", [64, 72])
@pytest.mark.parametrize("kind", ["direct", "packed"])
def test_what_an_epilogue_reads_is_asked_for(columns, kind):
    """What it reads where the result lies, but no bias; tiles that are whole have no masks."""
    rng = np.random.default_rng(0)
    shape = (40, columns)
    x, y = values(rng, (40, 50), np.float32), values(rng, (columns, 50), np.float32)
    x, y, turned = (x, y.T.copy(), 0) if kind == "direct" else (x, y, 1)
    numbers = (((1,), (turned,)), ((), ()))
    runner = Runner(dot_general_p, [x, y], params(numbers), epilogue=bias_relu(shape))
    call = next(c for c in runner.calls if c.kernel.name in ("direct", "product"))
    lines = str(call.kernel).splitlines()
    asked = {line.split()[1] for line in lines if line.lstrip().startswith("prefetch p")}
    assert {p.name for p in call.kernel.params if p.role == "out"} < asked
    assert call.kernel.params[-1].name in asked
    if kind == "direct":
        assert not any(line.lstrip().startswith("store p") and "masked" in line for line in lines)
    other = values(rng, shape, np.float32)
    result, out = runner(x, y, extra=[other])
    np.testing.assert_array_equal(result, np.maximum(out + other, other))


@pytest.mark.parametrize(("m", "k", "turn"), [(100, 64, False), (300, 900, True)])
def test_what_rows_share_is_read_before_them(m, k, turn):
    """The rows of a tile share what belongs to a column; what belongs to a row, each reads."""
    x, w = small_integers((m, k)), small_integers((256, k) if turn else (k, 256), seed=1)
    bias, factor = small_integers((256,), seed=2), small_integers((m, 1), seed=3)

    def f(x, w, bias, factor):
        return jnp.maximum((x @ (w.T if turn else w) - bias * 2) * factor, bias)

    program = compiled(f, x, w, bias, factor)
    tiles = program.as_text("tiles")
    (rows,) = [loop for loop in tiles.split(" for ")[1:] if "`sub`" in loop and "store p" in loop]
    read = {line.split()[4] for line in rows.splitlines() if " = load p" in line}
    assert len(read) == 1  # the factor
    expected = np.maximum((x @ (w.T if turn else w) - bias * 2) * factor, bias)
    np.testing.assert_array_equal(np.asarray(program(x, w, bias, factor)), expected)


def test_fused_complex():
    rng = np.random.default_rng(0)
    x, y, other = (values(rng, s, np.complex64) for s in ((20, 30), (30, 17), (20, 17)))

    def epilogue(out):
        operand, result = Var(ShapedArray(other.shape, other.dtype)), Var(out.aval)
        return [result], [operand], {result: JaxprEqn(add_p, [out, operand], [result], {})}

    plain = Runner(dot_general_p, [x, y], params(MATMUL))(x, y)
    fused = Runner(dot_general_p, [x, y], params(MATMUL), epilogue=epilogue)(x, y, extra=[other])
    np.testing.assert_array_equal(fused, plain + other)


# Decisions


def test_loops_merge():
    source = contraction.Source(
        None, "f32", 0, (), (contraction.Axis(4, 30), contraction.Axis(5, 6)),
        (contraction.Axis(2, 3), contraction.Axis(3, 1)),
    )  # fmt: skip
    merged = source.merged()
    assert merged.lines == (contraction.Axis(20, 6),) and merged.depth == (contraction.Axis(6, 1),)


@pytest.mark.parametrize("rows, columns", [(1, 1), (16, 16), (64, 64), (100, 33), (2048, 2048)])
def test_tiles_fit_the_registers(rows, columns):
    for bits, registers in ((512, 32), (256, 16), (128, 16)):
        machine = target()
        machine = type(machine)(bits, 4, machine.l1_bytes, machine.l2_bytes)
        tile = contraction.choose_tile(machine, rows, columns, "f32")
        assert tile.rows * tile.vectors + tile.vectors + 1 <= registers


@pytest.mark.parametrize("depth", [30, 900])  # at once, and in parts whose sums wait in scratch
@pytest.mark.parametrize("rows", [2, 7, 13, 40])
def test_tiles_of_two_heights(rows, depth, monkeypatch):
    monkeypatch.setattr(contraction, "EVEN_GAIN", math.inf)
    monkeypatch.setattr(contraction, "EVEN_WORK", 0)
    rng = np.random.default_rng(0)
    x, y = values(rng, (rows, depth), np.float32), values(rng, (depth, 90), np.float32)
    other = values(rng, (rows, 90), np.float32)
    plans = []
    for bits in (128, 256, 512):
        machine = CpuTarget(bits, 3, 16 << 10, 256 << 10)
        with using(PACKED) as applied:
            runner = Runner(dot_general_p, [x, y], params(MATMUL), cpu_target=machine)
            fused = Runner(
                dot_general_p, [x, y], params(MATMUL), epilogue=bias_relu(other.shape),
                cpu_target=machine,
            )  # fmt: skip
        plans += map(str, applied)
        check(x, y, MATMUL, out=runner(x, y))
        result, out = fused(x, y, extra=[other])
        check(x, y, MATMUL, out=out)
        np.testing.assert_array_equal(result, np.maximum(out + other, other))
    assert any(" and " in plan for plan in plans) == (rows > 2)


@pytest.mark.parametrize("height", range(2, 15))
def test_tiles_of_two_heights_have_no_row_too_many(height):
    shape = contraction.TileShape(height, 2, 16, even=True)
    for rows in range(1, 300):
        (tall, one), (short, lower) = shape.covering(rows)
        assert (one.rows, lower.rows) == (height, height - 1)
        covered = tall * height + short * (height - 1)
        assert covered == rows or (covered > rows and tall == 0 and short * height >= rows)


def test_other_machines():
    """Narrower vectors and smaller caches give the same numbers."""
    rng = np.random.default_rng(0)
    x, y = values(rng, (70, 600), np.float32), values(rng, (600, 90), np.float32)
    for bits in (128, 256, 512):
        machine = type(target())(bits, 3, 32 << 10, 256 << 10)
        runner = Runner(dot_general_p, [x, y], params(MATMUL), cpu_target=machine)
        check(x, y, MATMUL, out=runner(x, y))


@pytest.mark.parametrize("size", [64, 200])
def test_small_products_are_one_launch(size):
    rng = np.random.default_rng(0)
    x, y = values(rng, (size, size), np.float32), values(rng, (size, size), np.float32)
    here = target()
    machine = type(here)(here.vector_bits, here.threads, 48 << 10, 2 << 20)
    runner = Runner(dot_general_p, [x, y], params(MATMUL), cpu_target=machine)
    assert len(runner.calls) == 1
    check(x, y, MATMUL, out=runner(x, y))


@pytest.mark.parametrize("depth, woken", [(280, 1), (150, 0)])
def test_threads_are_woken_for_a_product_whatever_its_plan(depth, woken):
    """Else plans that take longer would be chosen for being shared among threads."""
    structs = [amdjax.ShapeDtypeStruct(shape, "float32") for shape in ((64, depth), (depth, 96))]
    jaxpr = amdjax.jit(jnp.matmul).trace(*structs).jaxpr
    found = set()
    for solver, number in itertools.product((DIRECT, PACKED), range(8)):
        with using(solver, number):
            plan = plan_program(jaxpr, CpuTarget(512, 2))
        for step in plan.instructions:
            kernel, programs, parallel = (*step.words, None, None, None)[:3]
            if getattr(kernel, "name", None) in ("direct", "product") and programs > 1:
                assert parallel == woken
                found.add((kernel.name, programs))
    assert {name for name, _ in found} == {"direct", "product"}


@pytest.mark.parametrize("columns", [2048, 2050])
@pytest.mark.parametrize("turn", [False, True])
def test_large_results_go_past_the_caches(columns, turn):
    """Where rows are whole cache lines; others are stored as ever."""
    rng = np.random.default_rng(0)
    x = values(rng, (2048, 9), np.float32)
    y = values(rng, (columns, 9) if turn else (9, columns), np.float32)
    numbers = (((1,), (1 if turn else 0,)), ((), ()))
    runner = Runner(dot_general_p, [x, y], params(numbers))
    streams = any("streaming=True" in str(call.kernel) for call in runner.calls)
    assert streams == (columns == 2048 and target().vector_bits == 512)
    check(x, y, numbers, out=runner(x, y))


@pytest.mark.parametrize("sizes", [(500, 640, 40), (700, 700, 33)])
def test_depth_is_not_cut_where_the_right_operand_stays_in_cache(sizes):
    m, k, n = sizes
    rng = np.random.default_rng(0)
    x, y = values(rng, (m, k), np.float32), values(rng, (n, k), np.float32)
    numbers = (((1,), (1,)), ((), ()))
    check(x, y, numbers)
    shape = contraction.TileShape(14, 2, 16)
    axes = lambda *extents: tuple(contraction.Axis(e, 1) for e in extents)
    a, b = (contraction.Source(None, "f32", 0, (), axes(e), axes(k)) for e in (m, n))
    sink = contraction.Sink(None, "f32", 0, (), axes(m), axes(n))
    problem = contraction.Contraction(a, b, sink, "f32")
    assert blocking.blockings(problem, CACHES, shape)[0].depth >= k


@pytest.mark.parametrize("rows", [1, 4, 60])
def test_panels_that_one_tile_reads(rows, monkeypatch):
    """Nothing asks for the next one, and they are as deep as rounding errors allow."""
    monkeypatch.setattr(PRODUCTS, "solvers", [PACKED])
    for k in (400, 3000):
        x, y = small_integers((rows, k)), small_integers((1000, k))
        numbers = (((1,), (1,)), ((), ()))
        with using(PACKED) as applied:
            runner = Runner(dot_general_p, [x, y], params(numbers), cpu_target=CACHES)
        np.testing.assert_array_equal(runner(x, y), x @ y.T)
        (cut,) = {plan.blocking for plan in applied}
        (kernel,) = (call.kernel for call in runner.calls if call.kernel.name == "product")
        one = cut.rows == 1 and rows <= cut.tile.rows
        assert one == (rows < 60)
        assert ("level=2" in str(kernel)) == (cut.shared and cut.rows > 1)
        if one:
            assert cut.depth == k if k == 400 else 256 < cut.depth <= 640


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("sizes", [(500, 640, 40), (3, 100_000, 70), (2000, 3000, 900), (14, 9, 1)])
def test_what_is_known_of_some_blocks_changes_no_cost_of_others(sizes, fixed):
    m, k, n = sizes
    axes = lambda extent, stride: (contraction.Axis(extent, stride),)
    a = contraction.Source(None, "f32", 0, (), axes(m, k), axes(k, 1))
    b = contraction.Source(None, "f32", 0, (), axes(n, 1), axes(k, n), fixed=fixed)
    sink = contraction.Sink(None, "f32", 0, (), axes(m, n), axes(n, 1))
    new = lambda: contraction.Contraction(a, b, sink, "f32")
    problem = new()
    for rows in (6, 14):
        for size in (4, 2):
            shape = contraction.TileShape(rows, 2, 16)
            cuts = blocking.blockings(problem, CACHES, shape, size)
            cuts += [dataclasses.replace(cut, shared=not cut.shared) for cut in cuts]
            costs = [blocking.block_cycles(problem, CACHES, cut, size) for cut in cuts]
            assert costs == [blocking.block_cycles(new(), CACHES, cut, size) for cut in cuts]
    other = CpuTarget(512, 1, 48 << 10, 1 << 20)
    cut = blocking.blockings(problem, other, shape)[0]
    cost = blocking.block_cycles(problem, other, cut)
    assert cost == blocking.block_cycles(new(), other, cut)


CACHES = CpuTarget(512, 4, 48 << 10, 2 << 20)


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("transposed", [False, True])
def test_blocks_of_shallow_products_fit_the_stack(depth, threads, transposed):
    """Scratch lies on the stack; many rows of a few elements once asked for more than it has."""
    x = np.ones((300_000, depth), np.float32)
    y = np.ones((depth, 2), np.float32)
    y = np.ascontiguousarray(y.T) if transposed else y

    def f(x, y):
        return x @ (y.T if transposed else y)

    jaxpr = amdjax.jit(f).trace(x, y).jaxpr
    for private in (256 << 10, 1 << 20, 4 << 20):
        machine = CpuTarget(512, threads, l2_bytes=private)
        for kernel in plan_program(jaxpr, machine).kernels():
            wanted = sum(s.size * itemsize(s.dtype) for s in kernel.scratch)
            assert wanted <= SCRATCH_LIMIT, (kernel.name, wanted)
    np.testing.assert_array_equal(amdjax.jit(f)(x, y), np.full((300_000, 2), depth, np.float32))


@pytest.mark.parametrize("window", [False, True])
def test_matrices_beyond_all_caches_are_not_read_again_and_again(window, monkeypatch):
    """Rows apart in memory are packed; windows are written out only where a cache keeps them.

    That is where windows are not read from a padded copy, which is faster.
    """
    others = [s for s in PRODUCTS.solvers if s.name != "implicit gradient"]
    monkeypatch.setattr(PRODUCTS, "solvers", others)

    def f(x, ct):
        if not window:
            return x.T @ ct
        kernel = jnp.zeros((3, 3, 3, 32, 64))
        dims = ("NDHWC", "DHWIO", "NDHWC")
        conv = lambda w: lax.conv_general_dilated(x, w, (1,) * 3, "SAME", dimension_numbers=dims)
        return amdjax.vjp(conv, kernel)[1](ct)[0]

    shapes = [(2, 16, 16, 16, n) for n in (32, 64)] if window else [(8192, n) for n in (864, 64)]
    jaxpr = amdjax.jit(f).trace(*(amdjax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)).jaxpr
    for cache in (32 << 20, 512 << 20):
        machine = CpuTarget(512, 1, 48 << 10, 1 << 20, cache)
        names = " ".join(kernel.name for kernel in plan_program(jaxpr, machine).kernels())
        assert ("direct" in names) == (cache > 32 << 20), names
        assert ("columns" in names) == (window and cache > 32 << 20), names
