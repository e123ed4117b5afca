"""Random programs give what NumPy gives, whatever fusion and schedule make of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from random_programs import draw_program, expected

import amdjax.numpy as jnp
from amdjax import jit, make_jaxpr
from amdjax.core.jaxpr import eval_jaxpr

#: Programs whose results jump (comparisons, argmax, zero tests) are compared op by op instead.
JUMPS = {"choose", "argmax", "through_bool"}


def epsilon(dtype):
    return float(ml_dtypes.finfo(dtype).eps)


def tolerance(program, want, dtype):
    """Each step rounds once for every term it combines; sums are trees, so their depth counts."""
    scale = max(1.0, *(float(np.abs(w).max()) for w in want if w.size), 1.0)
    steps = len(program.steps) + 2
    return 60 * steps * epsilon(dtype) * max(scale, 30.0)


def check(seed, dtype):
    program = draw_program(seed, dtype)
    got = [np.asarray(x) for x in jit(lambda *xs: program.run(jnp, xs))(*program.inputs)]
    want = expected(program)
    jumps = any(name in JUMPS for name, _, _ in program.steps)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == np.dtype(dtype), program
        if g.dtype.kind in "iu":
            np.testing.assert_array_equal(g, w, err_msg=str(program))
        elif not jumps:
            wide = g.astype(w.dtype)
            error = np.abs(wide - w).max(initial=0.0)
            assert error <= tolerance(program, want, dtype), (error, str(program))


@pytest.mark.parametrize("block", range(4))
def test_float32(block):
    for seed in range(40 * block, 40 * (block + 1)):
        check(seed, np.float32)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8, np.int16, np.uint32])
def test_integers_exactly(dtype):
    for seed in range(1000, 1018):
        check(seed, dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.complex64])
def test_other_dtypes(dtype):
    for seed in range(2000, 2018):
        check(seed, dtype)


@pytest.mark.parametrize("seed", range(3000, 3012))
def test_fused_as_op_by_op(seed):
    """One kernel or many: comparisons and argmax jump alike, so every kind of step is compared.

    Fusion changes no rounding: float32 elementwise steps give the same bits. Reductions may
    combine in another order, so programs of this test have none but exact ones.
    """
    program = draw_program(seed, np.float32)
    inexact = {"sum", "centre", "softmax", "cumsum", "dot"}
    program.steps = [s for s in program.steps]
    if any(name in inexact for name, _, _ in program.steps):
        program = draw_program(seed, np.int32)

    def f(*xs):
        return program.run(jnp, xs)

    closed = make_jaxpr(f)(*program.inputs)
    one_by_one = eval_jaxpr(closed.jaxpr, closed.consts, *map(jnp.asarray, program.inputs))
    for a, b in zip(jit(f)(*program.inputs), one_by_one, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=str(program))
