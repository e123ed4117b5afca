"""Masks of tails: of loads that have what a select would put behind them, and of prefixes."""

import re
from dataclasses import replace

import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu.amdgpu_object import assembly
from amdjax.codegen.gpu.early_exit import early_exit
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.codegen.gpu.writer import PASSES, kernel_ir
from amdjax.emulator import MemoryFault
from amdjax.tile import passes
from tests.support.gpu_runner import DISTINCT
from tests.support.tile_runner import Backend, compile_gpu, kernel

SIGNATURE = {"x": ("f32", "in"), "n": ("index", "size"), "y": ("f32", "out")}


def program(fill, other=0, dtype="f32", through=None):
    """`x` where it has elements, and `fill` behind them."""

    def write(k: tile.Builder, x, n, y):
        mask = k.iota(256) < k.broadcast(k.size(n), (256,))
        v = k.load(x, 0, (256,), mask=mask, other=other)
        if through is not None:
            v = k.convert(v, through)
        v = k.select(mask, v, k.const(v.dtype, fill, (256,)))
        k.store(y, 0, k.convert(v, "f32"))

    return kernel(write, SIGNATURE | {"x": (dtype, "in")})


def machine_code(program, gfx="gfx942"):
    target = targets.get(gfx)
    return assembly(compile_kernel(program, target).llvm, target)


def selects(program):
    """Of what was loaded: the offsets of loads are selected, too."""
    return len(re.findall("v_cndmask", machine_code(program).partition("s_waitcnt vmcnt")[2]))


@pytest.mark.parametrize("dtype,through", [("f32", None), ("f16", "f32"), ("i32", "f32")])
def test_equal_fillings_are_not_selected(dtype, through):
    assert selects(program(0.0, 0, dtype, through)) == 0


@pytest.mark.parametrize("fill,other", [(-0.0, 0), (1.0, 0), (0.0, 2.5), (2.5, 2.5), (0.0, -0.0)])
@pytest.mark.parametrize("through", [None, "f64"])
def test_values(fill, other, through):
    made = program(fill, other, through=through)
    run = compile_gpu(made, Backend("gfx942", 1, 2))
    x, y = np.arange(100, dtype=np.float32), np.empty(256, np.float32)
    run(x, 100, y)
    np.testing.assert_array_equal(y[:100], x)
    np.testing.assert_array_equal(y[100:].view(np.int32), np.float32(fill).view(np.int32))


def guarded(scattered=False, dtype="f32", other=0):
    """Of `x`, which has `n` groups of four elements, of each three groups the first `m`."""

    def write(k: tile.Builder, x, n, m, y):
        place = k.iota(512)
        groups = place // 4
        told = lambda n: k.broadcast(k.size(n), (512,))
        mask = (groups % 3 < told(m)) & (groups < told(n))
        at = place + told(m) - told(m)
        v = k.load_at(x, at, mask, other) if scattered else k.load(x, 0, (512,), (1,), mask, other)
        k.store(y, 0, v)

    sizes = {"n": ("index", "size"), "m": ("index", "size")}
    return kernel(write, {"x": (dtype, "in")} | sizes | {"y": (dtype, "out")})


NUMPY = {"f16": np.float16, "f32": np.float32, "i8": np.int8, "f64": np.float64}


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("bits, other", [(32, 0), (32, 7), (64, 0)])
def test_guarded_loads(gfx, scattered, dtype, bits, other):
    """Zeros where nothing is come from the memory unit; the array ends with the last group."""
    made = guarded(scattered, dtype, other)
    backend = Backend(gfx, 1, 4, bits)
    x = np.random.default_rng(0).integers(-9, 9, 4 * 90).astype(NUMPY[dtype])
    y, groups = np.empty(512, x.dtype), np.arange(512) // 4
    compile_gpu(made, backend)(x, 90, 2, y)
    there = (groups % 3 < 2) & (groups < 90)
    np.testing.assert_array_equal(y, np.where(there, np.resize(x, 512), x.dtype.type(other)))
    schedule = tile.Schedule(targets.get(gfx).wave_size, 4, bits)
    code = machine_code(replace(made, schedule=schedule), gfx)
    assert ("buffer_load" in code) == ("saveexec" not in code) == (bits == 32)


@pytest.mark.parametrize("gfx", DISTINCT)
def test_guards_that_llvm_knows(gfx):
    """Offsets that are negative but for a constant, which accesses would add for themselves."""

    def write(k: tile.Builder, x, s, y):
        shape = 16, 32
        known = k.broadcast(k.expand(k.iota(16, "u32") % 16 < 16, 1), shape)
        k.store(y, 0, k.load(x, 700, shape, (k.size(s), 1), known))

    x, y = np.arange(732, dtype=np.float32), np.empty((16, 32), np.float32)
    made = kernel(write, {"x": ("f32", "in"), "s": ("index", "size"), "y": ("f32", "out")})
    compile_gpu(made, Backend(gfx, 1, 4, 32))(x, -40, y)
    np.testing.assert_array_equal(y, x[700 - 40 * np.arange(16)[:, None] + np.arange(32)])


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize("scattered", [False, True])
def test_guards_that_are_wrong_are_found(gfx, scattered):
    """What is beyond an array, but not outside of the guard, is no zero."""
    run = compile_gpu(guarded(scattered), Backend(gfx, 1, 4, 32))
    with pytest.raises(MemoryFault, match=r"outside every allocation.*buffer_load"):
        run(np.ones(4 * 90, np.float32), 92, 2, np.empty(512, np.float32))


def test_another_mask_is_selected():
    def write(k: tile.Builder, x, n, y):
        last = k.broadcast(k.size(n), (256,))
        v = k.load(x, 0, (256,), mask=k.iota(256) < last)
        k.store(y, 0, k.select(k.iota(256) * 2 < last, v, k.const("f32", 0.0, (256,))))

    run = compile_gpu(kernel(write, SIGNATURE), Backend("gfx1100", 2, 2))
    x, y = np.ones(100, np.float32), np.empty(256, np.float32)
    run(x, 100, y)
    assert y.sum() == 50


def copy(dtype="i32"):
    def write(k: tile.Builder, x, n, y):
        last = k.broadcast(k.convert(k.size(n), dtype), (1024,))
        mask = k.iota(1024, dtype) < last
        k.store(y, 0, k.load(x, 0, (1024,), mask=mask), mask=mask)

    return kernel(write, SIGNATURE)


@pytest.mark.parametrize(
    "backend", [Backend("gfx942", 2, 1), Backend("gfx1100", 2, 4, 32)], ids=str
)
def test_prefixes_of_any_length(backend):
    """Arrays end where the mask does, and what is behind is not touched."""
    run = compile_gpu(copy(), backend)
    for n in (0, 1, 3, 4, 127, 128, 511, 513, 897, 1021, 1023, 1024):
        x, y = np.arange(max(n, 1), dtype=np.float32), np.full(max(n, 1), -1, np.float32)
        run(x, n, y)
        np.testing.assert_array_equal(y, x if n else [-1])


def test_counts_that_wrap_are_no_prefix():
    """The last elements are inside here, and others are not."""
    run = compile_gpu(copy("i8"), Backend("gfx942", 1, 4))
    x, y = np.arange(1024, dtype=np.float32), np.full(1024, -1, np.float32)
    run(x, -1, y)
    inside = np.arange(1024).astype(np.int8) < -1
    assert 0 < inside.sum() < 1024 and inside[1020]
    np.testing.assert_array_equal(y, np.where(inside, x, -1))


@pytest.mark.parametrize("swapped", [False, True])
def test_one_comparison_tells_whole_tiles(swapped):
    """Where the last element is inside, all are; `n > iota` is not looked for."""

    def write(k: tile.Builder, x, n, y):
        last, count = k.broadcast(k.convert(k.size(n), "i32"), (1024,)), k.iota(1024, "i32")
        mask = last > count if swapped else count < last
        k.store(y, 0, k.reduce("add", k.load(x, 0, (1024,), mask=mask)))

    made = replace(kernel(write, SIGNATURE), schedule=tile.Schedule(64))
    conjunctions = kernel_ir(made, targets.get("gfx942")).count("and i1")
    assert conjunctions == (15 if swapped else 0)


def running_sums(exchanges=False, unmasked=False, other=False, threads=64, vector=1):
    """Sums down the columns of an array of `m` rows of `n` numbers, written row by row."""

    def write(k: tile.Builder, x, m, n, y):
        columns = k.size(n)
        inside = lambda n: k.iota(64) < k.broadcast(n, (64,))
        mask = inside(columns)

        def row(i, total):
            v = k.load(x, i * columns, (64,), mask=mask)
            if exchanges:
                v = v + k.broadcast(k.reduce("max", v), (64,))
            total = total + v
            k.store(y, i * columns, total, mask=None if unmasked else mask)
            if other:
                k.store(y, i * columns, total, mask=inside(columns - 1))
            return total

        k.for_(0, k.size(m), 1, row, [k.const("f32", 0.0, (64,))], users=True)

    signature = {"x": ("f32", "in"), "m": ("index", "size"), **SIGNATURE}
    made = kernel(write, {name: signature[name] for name in "xmny"})
    return replace(made, schedule=tile.Schedule(threads, vector))


def exit_of(made):
    return early_exit(passes.run(made, PASSES), made.schedule.workgroup)


def test_threads_outside_end():
    """Where all that is written is under one mask of which a thread has one answer."""
    made = running_sums()
    assert exit_of(made) is not None
    text = kernel_ir(made, targets.get("gfx942"))
    (body,) = re.findall(r"^body\..*?^done", text, re.S | re.M)
    assert " br i1 " not in body and text.count("label %out") == 2


@pytest.mark.parametrize(
    "form",
    [{"exchanges": True}, {"unmasked": True}, {"other": True}, {"threads": 32}],
    ids=lambda form: next(iter(form)),
)
def test_threads_outside_that_are_needed_stay(form):
    assert exit_of(running_sums(**form)) is None


def test_columns_that_threads_exchange_keep_them():
    """What is read down its columns is turned between the threads."""

    def write(k: tile.Builder, x, n, y):
        edge = k.expand(k.iota(8) < k.broadcast(k.size(n), (8,)), 1)
        mask = k.broadcast(edge, (8, 8))
        k.store(y, 0, k.load(x, 0, (8, 8), (1, 8), mask=mask), (8, 1), mask=mask)

    made = replace(kernel(write, SIGNATURE), schedule=tile.Schedule(64))
    assert exit_of(made) is None


@pytest.mark.parametrize("backend", [Backend("gfx942", 1, 1), Backend("gfx1100", 2, 1)], ids=str)
@pytest.mark.parametrize("exchanges", [False, True])
def test_running_sums(backend, exchanges):
    made = replace(running_sums(exchanges), schedule=tile.Schedule(64))
    run = compile_gpu(made, backend)
    for n in (1, 33, 63, 64):
        x = np.arange(3 * n, dtype=np.float32).reshape(3, n)
        y = np.zeros_like(x)
        run(x, 3, n, y)
        rows = x + np.maximum(x.max(1, keepdims=True), 0) if exchanges else x
        np.testing.assert_array_equal(y, np.cumsum(rows, 0))


def test_loops_of_the_user_stay_loops():
    """LLVM would write several rounds at once, and then one by one what is left of them."""
    text = kernel_ir(running_sums(), targets.get("sm_90"))
    assert text.count('!{!"llvm.loop.unroll.runtime.disable"}') == 1
