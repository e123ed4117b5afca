"""Tile programs made for GPUs compute what those made for the CPU do."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

import amdjax.numpy as jnp
from amdjax import jit, lax, tile, vmap
from amdjax.core.pytree import tree_leaves
from amdjax.kernels.gpu_loops import element_tile
from amdjax.kernels.shaped import ShapedContext
from amdjax.kernels.sorting import sort
from amdjax.schedule.gpu import row_plan
from amdjax.schedule.gpu.calls import scratch_limit
from amdjax.targets import get
from tests.support.gpu_cases import CASES, layer_norm_gradient, normal, softmax
from tests.support.gpu_oracle import TINY, assert_same, kernels_for, run_schedules
from tests.support.random_programs import draw_program

GFX942 = get("gfx942")
#: Steps that jump: rounding differently they may choose differently.
JUMPS = {"choose", "argmax", "through_bool"}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    f, *args = CASES[name]
    narrow = any(x.dtype.itemsize == 2 for x in args)
    assert_same(f, *args, rtol=2e-2 if narrow else 2e-4)


@pytest.mark.parametrize("rows", [3, 8, 12, 16, 33])
@pytest.mark.parametrize("columns", [5, 8, 9, 16, 31])
def test_rows_that_lie_across_memory(rows, columns):
    """Tiles that memory holds transposed, finished or not along either axis."""

    def reductions(x, y):
        softmaxed = x.T / (1 + abs(x.T)).sum(0)
        return x.T.sum(0), x.T.max(1), (x.T * y).sum(0), softmaxed, x.T + y

    x = normal(rows, columns)
    assert_same(reductions, x, normal(columns, rows), rtol=2e-5)


@pytest.mark.parametrize("n", [7, 1000])
@pytest.mark.parametrize("dtype", [
    np.float32, np.float16, np.int32, np.uint8, np.bool_, np.complex64, ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
])  # fmt: skip
def test_sort_by_digits(dtype, n, monkeypatch):
    """Equal elements stay in order, zeros have one key, and NaN comes last, as on a CPU."""
    monkeypatch.setattr("amdjax.kernels.sorting.gpu.radix.DIGIT_PASSES", 0)
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1.0, -1.0, 2.5, -3.0]
    special += [np.inf, -np.inf, np.nan] if np.dtype(dtype).kind in "fcV" else []
    x = rng.choice(special, (n, 3)).astype(dtype)
    if dtype == np.complex64:
        x.imag = rng.choice(special, x.shape)
    number = np.arange(3 * n, dtype=np.int32).reshape(n, 3)

    def sorts(x, number):
        twice = lax.sort([number % 3, x, number], dimension=0, num_keys=2)
        largest = [] if dtype == np.complex64 else lax.top_k(x.T, min(n, 5))
        return lax.sort(x, dimension=0), lax.sort([x, number], dimension=0), twice, largest

    with_numbers = [np.asarray(a) for a in tree_leaves(run_schedules(sorts, x, number))]
    for a, b in zip(with_numbers, tree_leaves(jit(sorts)(x, number)), strict=True):
        b = np.asarray(b)
        assert a.dtype == b.dtype
        nan = np.isnan(b.astype(np.complex128))
        np.testing.assert_array_equal(np.isnan(a.astype(np.complex128)), nan)
        assert a[~nan].tobytes() == b[~nan].tobytes()


def test_long_rows_are_sorted_by_digits():
    names = lambda n: [k.name for k in kernels_for(jnp.sort, normal(n), target=GFX942)]
    assert names(1 << 20) == ["sort_count", "sort_sum", "sort_move"] * 4
    assert "sort_fill" in names(1 << 12)


@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("case", ["elements", "rows", "windows", "batches"])
def test_of_updates_that_coincide_the_last_wins(case, mode, monkeypatch):
    """Whatever the order in which a GPU comes to them: here the last elements come first."""

    def backwards(k, target, total):
        number, mask, grid = element_tile(k, target, total)
        return k.const("index", total - 1, number.shape) - number, mask, grid

    def with_rows(x, i, y):
        return x.at[i].set(y, mode=mode)

    def with_windows(x, i, y):
        numbers = lax.ScatterDimensionNumbers((1, 2), (), (0,))
        return lax.scatter(x, i[:, None], y, numbers, mode=mode)

    indices = np.random.default_rng(0).integers(-3, 9, (4, 50)).astype(np.int32)
    f, *args = {
        "elements": (with_rows, normal(7), indices[0], normal(50)),
        "rows": (with_rows, normal(7, 5), indices[0], normal(50, 5)),
        "windows": (with_windows, normal(7, 5), indices[0], normal(50, 3, 5)),
        "batches": (vmap(with_rows), normal(4, 7, 5), indices, normal(4, 50, 5)),
    }[case]
    monkeypatch.setattr("amdjax.kernels.scatter.gpu.element_tile", backwards)
    np.testing.assert_array_equal(run_schedules(f, *args), jit(f)(*args))


FALLBACKS = ("sort", "sort_long", "top_k", "add_at", "embedding_gradient", "cumsum_long")


@pytest.mark.parametrize("name", FALLBACKS)
def test_families_for_cpus_serve_gpus(name, families_for_cpus):
    f, *args = CASES[name]
    assert_same(f, *args)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8, np.uint16, ml_dtypes.bfloat16])
def test_random_programs(dtype):
    for seed in range(30):
        program = draw_program(seed, dtype)
        floats = np.dtype(dtype).kind not in "iu"
        if floats and any(name in JUMPS for name, _, _ in program.steps):
            continue
        run = lambda *xs, program=program: program.run(jnp, xs)
        assert_same(run, *map(jnp.asarray, program.inputs), rtol=0.1 if floats else 0.0)


def test_narrow_waves_and_wide_ones_agree():
    for wave in (2, 8):
        target = dataclasses.replace(TINY, wave_size=wave, max_workgroup=4 * wave)
        assert_same(softmax, normal(7, 45), target=target)
        assert_same(lambda x: x.T + x, normal(70, 70), target=target)


@pytest.mark.parametrize("rows,columns", [(8, 32), (512, 1000), (3, 5000), (4096, 16384)])
def test_a_row_in_registers_is_read_once(rows, columns):
    (kernel,) = kernels_for(softmax, normal(rows, columns), target=GFX942)
    text = str(kernel)
    assert text.count("load x0") == 1 and text.count("store ") == 1
    assert "for " not in text and not kernel.scratch


def test_rows_beyond_the_registers_take_several_passes():
    (kernel,) = kernels_for(softmax, normal(16, 98_304), target=GFX942)
    assert str(kernel).count(" = for ") == 1 and str(kernel).count("for %") == 2


def test_gradients_of_layer_norm_are_a_kernel_over_rows_and_one_over_columns():
    """On NVIDIA's; on AMD's they are one (`test_row_sums.py`)."""
    args = normal(512, 1024), normal(1024), normal(1024)
    by_row, by_column = kernels_for(layer_norm_gradient, *args, target=get("sm_90"))
    assert by_row.name.startswith("rows_") and by_column.name.startswith("rows_")
    # The normalized input is computed again for the columns rather than stored and read.
    stores = [line for line in str(by_row).splitlines() if " store " in line]
    assert sum("strides=(1)" in line for line in stores) == 1
    assert "reduce combine=add axis=0" in str(by_column)


def test_long_reductions_fill_the_machine():
    x = normal(1 << 22)
    (kernel,) = kernels_for(lambda x: x.sum(), x, target=GFX942)
    assert kernel.schedule.workgroup == 256 and kernel.schedule.vector == 4
    assert kernel.grid == math.isqrt(x.size // row_plan.SHARE)


def test_memory_moves_in_vectors_of_16_bytes():
    shapes = {"float32": 4, "bfloat16": 8, "int8": 8}
    for dtype, vector in shapes.items():
        x = jnp.zeros(1 << 22, dtype)
        (kernel,) = kernels_for(lambda x: x + x, x, target=GFX942)
        assert kernel.schedule.vector == vector, dtype


def test_tiles_run_along_short_groups_that_are_stored_side_by_side():
    """And not along positions, although more is read that is the same for all of these."""

    def normalized(x, scale, *of_groups):
        x = x.reshape(4, 4096, 32, 4)
        for s in of_groups:
            x = x * s[:, None, :, None] + jnp.sin(s)[:, None, :, None]
        return x.reshape(4, 4096, 128) * scale + scale[::-1]

    groups = [normal(4, 32) for _ in range(4)]
    lowered = jit(normalized).lower(normal(4, 4096, 128), normal(128), *groups)
    text = lowered.compile(target="gfx942")
    (line,) = (x for x in text.as_text("schedule").splitlines() if x.startswith("  map of 2097152"))
    assert "as one loop" in line


def test_column_reductions_of_much_read_whole_accesses():
    """However many values are alive together."""

    def sums(x, *others):
        for y in others:
            x = jnp.where(y > 0, x * y, x + y)
        return x, x.sum(0), (x * others[0]).sum(0), (x * others[1]).sum(0)

    xs = [normal(8192, 256).astype(np.float16) for _ in range(14)]
    (line,) = (
        x for x in jit(sums).lower(*xs).compile(target="gfx942").as_text("schedule").splitlines()
        if x.startswith("  rows of 8192")
    )  # fmt: skip
    rows, columns = map(
        int, line.partition(" of ")[2].partition(" over ")[0].rpartition(" ")[2].split("×")
    )
    threads = int(line.partition(" threads")[0].rpartition(" ")[2])
    assert rows * columns >= 8 * threads


def test_what_layers_add_to_is_stored_by_some_of_them():
    """As sums that all later layers read: not made anew of all that was added."""

    def layers(x, w):
        for _ in range(8):
            y = x - x.mean(1, keepdims=True)
            x = x + (y * lax.rsqrt((y * y).mean(1, keepdims=True) + 1)).astype(w.dtype) @ w + 1
        return x

    x, w = normal(512, 256), normal(256, 256)
    text = jit(layers).lower(x, w).compile(target="gfx942").as_text("schedule").splitlines()
    norms = [line for line in text if "rsqrt" in line]
    assert len(norms) == 8
    assert max(line.rpartition("(")[2].count("f32[512,256]") for line in norms) <= 3
    assert_same(layers, x, w, rtol=2e-3)


def test_indices_are_narrow_where_buffers_are_small():
    (small,) = kernels_for(lambda x: x + 1, normal(100), target=GFX942)
    assert small.schedule.index_bits == 32
    big = jit(lambda x: x + 1).trace
    from amdjax import ShapeDtypeStruct
    from amdjax.jit.plan import plan_program

    traced = big(ShapeDtypeStruct((1 << 29,), "float32"))
    (large,) = plan_program(traced.jaxpr, GFX942).kernels()
    assert large.schedule.index_bits == 64


@pytest.fixture
def families_for_cpus(monkeypatch):
    """Kernel families as if none were written for GPUs."""
    monkeypatch.setattr(ShapedContext, "on_gpu", False)
    plan_rows = sort.plan_rows
    monkeypatch.setattr(sort, "plan_rows", lambda machine, rows: plan_rows(machine.vectors, rows))


def test_scratch_beyond_lds_becomes_workspace(families_for_cpus):
    cramped = dataclasses.replace(TINY, lds_bytes=256)
    x = normal(6, 40)
    kernels = kernels_for(jnp.sort, x, target=cramped)
    assert any(p.name.startswith("w_") for k in kernels for p in k.params)
    for k in kernels:
        used = sum(b.size * tile.itemsize(b.dtype) for b in k.scratch)
        assert used <= scratch_limit(cramped)
        lines = tile.listing(k)[1]  # which debug information names
        assert all(id(op.source) in lines for op in tile.nested_ops(k.body))
    np.testing.assert_array_equal(run_schedules(jnp.sort, x, target=cramped), np.sort(x))


def test_few_programs_share_a_workspace(monkeypatch, families_for_cpus):
    monkeypatch.setattr("amdjax.schedule.gpu.calls.WORKSPACE", 4096)
    cramped = dataclasses.replace(TINY, lds_bytes=256)
    x = normal(50, 40)
    np.testing.assert_array_equal(run_schedules(jnp.sort, x, target=cramped), np.sort(x))


@pytest.mark.parametrize("columns,align", [(30, 8), (31, 4), (32, 16)])
def test_slices_of_loops_are_as_aligned_as_their_strides(columns, align):
    def step(carry, x):
        return carry, x + carry[::-1]

    f = lambda c, xs: lax.scan(step, c, xs)[1]
    kernels = kernels_for(f, normal(columns), normal(5, columns), target=GFX942)
    assert min(k.align for k in kernels) == align
    assert_same(f, normal(columns), normal(5, columns))


SOFTMAX = """\
kernel rows_reduce_max_reduce_sum_div(x0: in f32, y1: out f32) grid=64 workgroup=256 vector=4 \
index_bits=32 {
  %0: index = program_id
  %1: index = const 0
  %2: index = const 1000
  %3: index = sub %2, %1
  %4: i32 = convert %3
  %5: i32[1024] = iota
  %6: i32[1024] = const 2
  %7: i32[1024] = shr_arithmetic %5, %6
  %8: i32 = const 2
  %9: i32 = shr_arithmetic %4, %8
  %10: i32[1024] = broadcast %9
  %11: bool[1024] = lt %7, %10
  %12: f32 = const -inf
  %13: index = mul %0, %2
  %14: index = const 1
  %15: index = mul %1, %14
  %16: index = add %13, %15
  %17: f32[1024] = load x0 strides=(1) masked=True other=0 %16, %11
  %18: f32[1024] = broadcast %12
  %19: f32[1024] = select %11, %17, %18
  %20: f32 = reduce combine=max axis=0 %19
  %21: f32 = const 0.0
  %22: f32[1024] = broadcast %20
  %23: f32[1024] = sub %17, %22
  %24: f32[1024] = exp %23
  %25: f32[1024] = broadcast %21
  %26: f32[1024] = select %11, %24, %25
  %27: f32 = reduce combine=add axis=0 %26
  %28: f32[1024] = broadcast %27
  %29: f32[1024] = div %24, %28
  store y1 strides=(1) masked=True %16, %29, %11
}
"""
TRANSPOSED_ADD = """\
kernel map_add(x0: in f32, y1: out f32) grid=4 workgroup=256 vector=4 index_bits=32 {
  %0: index = program_id
  %1: index = const 2
  %2: index = rem %0, %1
  %3: index = const 64
  %4: index = mul %2, %3
  %5: index = div %0, %1
  %6: index = mul %5, %3
  %7: index = const 0
  %8: index = const 1
  %9: index = mul %6, %8
  %10: index = add %7, %9
  %11: index = const 128
  %12: index = mul %4, %11
  %13: index = add %10, %12
  %14: f32[64,64] = load x0 strides=(128,1) %13
  %15: f32[64,64] = transpose %14
  %16: index = mul %6, %11
  %17: index = add %7, %16
  %18: index = mul %4, %8
  %19: index = add %17, %18
  %20: f32[64,64] = load x0 strides=(128,1) %19
  %21: f32[64,64] = add %15, %20
  store y1 strides=(128,1) %19, %21
}
"""


def test_softmax_as_text():
    (kernel,) = kernels_for(softmax, normal(64, 1000), target=GFX942)
    assert str(kernel) + "\n" == SOFTMAX


def test_transposed_add_as_text():
    (kernel,) = kernels_for(lambda x: x.T + x, normal(128, 128), target=GFX942)
    assert str(kernel) + "\n" == TRANSPOSED_ADD
