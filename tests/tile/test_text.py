"""Text of kernels: it says all that code depends on, and reads back."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax.numpy as jnp
from amdjax.tile import TileError, verify
from amdjax.tile.parse import parse_kernel
from tests.support import gpu_zoo
from tests.support.gpu_cases import CASES
from tests.support.random_programs import draw_program
from tests.support.tile_kernels import TARGETS, code, kernels_of

EMPTY = "kernel test(x: in f32, y: out f32) grid=1 {\n%s}"


def assert_reads_back(kernel, target):
    verify(kernel)
    text = str(kernel)
    again = parse_kernel(text)
    verify(again)
    assert str(again) == text
    assert code(again, target) == code(kernel, target)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_programs(name, target):
    f, *args = CASES[name]
    for kernel in kernels_of(f, args, target):
        assert_reads_back(kernel, target)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.sampled_from(TARGETS))
def test_kernels_of_drawn_programs(choices, target):
    program = draw_program(choices, np.float32)
    run = lambda *xs: program.run(jnp, xs)
    for kernel in kernels_of(run, program.inputs, target):
        assert_reads_back(kernel, target)


@pytest.mark.parametrize("name", gpu_zoo.KERNELS)
def test_kernels_with_every_operation(name):
    assert_reads_back(gpu_zoo.build(name, 256, 4), "gfx942")


@pytest.mark.parametrize("lines, message", [
    ("  %0: index = nothing\n", "line 2: .* is no operation"),
    ("  store y strides=() %0, %1\n", "line 2: %0 is not there"),
    ("  %0: index = const 0\n  %0: index = const 1\n", "line 3: %0 is there already"),
    ("  %0: index = const 0\n  %1: f32 = load z strides=() %0\n", "line 3: 'z' of load"),
    ("  %0: index = const 0\n  %1: f32 = load x %0\n", "line 3: load lacks strides"),
    ("  %0: index = const 0\n  for %0, %0, %0 (%1: index) {\n", "ends within a kernel"),
    ("  %0: index = const zero\n", "line 2: 'zero' of const"),
    ("  %0: index = program_id twice=1\n", "program_id has no attribute"),
])  # fmt: skip
def test_what_is_no_kernel(lines, message):
    with pytest.raises(TileError, match=message):
        parse_kernel(EMPTY % lines)


def test_a_buffer_seen_as_another_dtype_is_written_so():
    text = EMPTY % (
        "  %0: index = const 0\n  %1: u32 = load x:u32 strides=() %0\n"
        "  store y:u32 strides=() %0, %1\n"
    )
    kernel = parse_kernel(text)
    verify(kernel)
    assert str(kernel) == text
    assert kernel.body.ops[1].buffer.dtype == "u32"
