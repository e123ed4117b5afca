"""Masked loads that already have what a select would put where the mask is false."""

import re

import numpy as np
import pytest
from tile_runner import Backend, compile_gpu, kernel

from amdjax import targets
from amdjax.codegen import tile
from amdjax.codegen.amdgpu_object import assembly
from amdjax.codegen.gpu_kernel import compile_kernel

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
