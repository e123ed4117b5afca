"""Random programs give what NumPy gives, whatever fusion and schedule make of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdjax.numpy as jnp
from amdjax import jit, make_jaxpr
from amdjax.core.jaxpr import eval_jaxpr
from tests.support.random_programs import draw_program, expected

#: Programs whose results jump (comparisons, argmax, zero tests) are compared op by op instead.
JUMPS = {"choose", "argmax", "through_bool"}


def epsilon(dtype):
    return float(ml_dtypes.finfo(dtype).eps)


def tolerance(program, want, dtype):
    """Each step rounds once for every term it combines; sums are trees, so their depth counts."""
    scale = max(1.0, *(float(np.abs(w).max()) for w in want if w.size), 1.0)
    steps = len(program.steps) + 2
    return 60 * steps * epsilon(dtype) * max(scale, 30.0)


def check(program, dtype):
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
        check(draw_program(seed, np.float32), np.float32)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8, np.int16, np.uint32])
def test_integers_exactly(dtype):
    for seed in range(1000, 1018):
        check(draw_program(seed, dtype), dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.complex64])
def test_other_dtypes(dtype):
    for seed in range(2000, 2018):
        check(draw_program(seed, dtype), dtype)


@pytest.mark.parametrize("seed", range(3000, 3012))
def test_fused_as_op_by_op(seed):
    """One kernel or many: comparisons and argmax jump alike, so every kind of step is compared.

    Fusion changes no rounding: float32 elementwise steps give the same bits. Reductions may
    combine in another order, so programs of this test have none but exact ones.
    """
    program = draw_program(seed, np.float32)
    inexact = {"sum", "center", "softmax", "cumsum", "dot"}
    if any(name in inexact for name, _, _ in program.steps):
        program = draw_program(seed, np.int32)

    def f(*xs):
        return program.run(jnp, xs)

    closed = make_jaxpr(f)(*program.inputs)
    one_by_one = eval_jaxpr(closed.jaxpr, closed.consts, *map(jnp.asarray, program.inputs))
    for a, b in zip(jit(f)(*program.inputs), one_by_one, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=str(program))


CHAIN = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16",
         "float32", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
         "float8_e5m2fnuz", "int4", "uint4"]  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_chains_of_conversions(seed):
    """Conversions in one kernel round at every step, as conversions one by one do."""
    rng = np.random.default_rng(seed)
    names = [CHAIN[i] for i in rng.integers(0, len(CHAIN), 5)]
    low = 0 if any(n.startswith(("u", "b")) and n != "bfloat16" for n in names) else -8
    x = rng.integers(8 * low, 8 * 7, 37).astype(np.float32) / 8
    if "float8" not in str(names) and "complex64" not in names:
        x = x.astype(np.float16)

    def chain(x):
        for i, name in enumerate(names):
            if x.dtype.kind == "c":
                x = x.real
            x = x.astype(name)
            if i == 2 and name not in ("bool", "complex64"):
                x = x.reshape(-1, 1)
        return x

    got = np.asarray(jit(chain)(x))
    one_by_one = np.asarray(chain(jnp.asarray(x)))
    want = x
    for name in names:
        want = (want.real if want.dtype.kind == "c" else want).astype(jnp.dtype(name))
    wide = np.complex64 if want.dtype.kind == "c" else np.float32
    np.testing.assert_array_equal(got.astype(wide), one_by_one.astype(wide), err_msg=str(names))
    np.testing.assert_array_equal(
        got.astype(wide).ravel(), want.astype(wide).ravel(), err_msg=str(names)
    )


@pytest.mark.parametrize("shape", [(), (1,), (0,), (7,), (3, 0), (2, 65), (33, 1, 5)])
def test_predicates_and_logic(shape):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 3, shape), rng.integers(-3, 3, shape)
    a, b = np.asarray(a, np.int32), np.asarray(b, np.int32)

    def f(xp, a, b):
        p, q = a < b, xp.logical_xor(a == b, b > 0)
        axes = tuple(range(len(shape)))
        return p & ~q, xp.where(p | q, a, -b), xp.any(p, axis=axes), xp.all(q, axis=axes)

    for got, want in zip(jit(lambda a, b: f(jnp, a, b))(a, b), f(np, a, b), strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == np.asarray(want).dtype


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_ties_and_nans_of_argmax(axis):
    x = np.random.default_rng(0).integers(0, 3, (5, 70, 3)).astype(np.float32)
    x[1, 7, 2] = x[1, 9, 2] = x[4, 0, 0] = np.nan
    for name in ("argmax", "argmin"):
        got = jit(lambda x, name=name: getattr(jnp, name)(x, axis))(x)
        np.testing.assert_array_equal(got, getattr(np, name)(x, axis))
