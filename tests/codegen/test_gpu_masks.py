"""Masks of tails: of loads that have what a select would put behind them, and of prefixes."""

import re
from dataclasses import replace

import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu.amdgpu_object import assembly
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.codegen.gpu.writer import kernel_ir
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


def selects(program):
    target = targets.get("gfx942")
    text = assembly(compile_kernel(program, target).llvm, target)
    return len(re.findall("v_cndmask", text))


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
