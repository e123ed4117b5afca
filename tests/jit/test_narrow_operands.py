"""Products read an operand that was converted as it is stored."""

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from tests.support.jit_helpers import results_and_schedule, small_integers

WIDENED = [
    (ml_dtypes.bfloat16, np.float32), (np.float16, np.float32), (np.int8, np.float32),
    (np.uint8, np.int32), (np.int16, np.float32), (np.uint16, np.int32), (np.float32, np.float64),
]  # fmt: skip


def stored(shape, dtype, seed=0):
    """Numbers that all dtypes have and whose sums are exact."""
    return np.abs(small_integers(shape, np.int32, seed)).astype(dtype)


def is_converted(schedule):
    """Whether a matrix is written in another dtype."""
    return "= convert_element_type over" in schedule


@pytest.mark.parametrize("rows", [1, 5, 40, 300])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("source, wide", WIDENED, ids=lambda d: np.dtype(d).name)
def test_weights_are_read_as_they_are_stored(source, wide, turned, rows):
    x, w = stored((rows, 260), wide), stored((257, 260) if turned else (260, 257), source, 1)
    f = lambda x, w: x @ (w.T if turned else w).astype(wide)
    with amdjax.enable_x64(True):
        found, schedule = results_and_schedule(f, x, w)
    np.testing.assert_array_equal(found, x @ (w.T if turned else w).astype(wide))
    assert found.dtype == wide
    if rows > 1 and rows < 257:  # of the larger operand
        assert not is_converted(schedule), schedule


def test_scales_of_channels_and_rows():
    """As with weights of bytes: what follows the product is part of its kernel."""
    x, w, scale = (
        stored((3, 300), np.float32),
        stored((300, 400), np.int8, 1),
        np.full(400, 0.5, "f"),
    )
    found, schedule = results_and_schedule(
        lambda x, w, s: jnp.maximum(x @ w.astype("f") * s, 1), x, w, scale
    )
    np.testing.assert_array_equal(found, np.maximum(x @ w.astype("f") * scale, 1))
    assert schedule.count("\n  ") == 1, schedule


def test_subnormal_numbers_count():
    """Of both operands: instructions for narrow numbers take them for zero."""
    tiny = np.full((200, 300), 2.0**-130, ml_dtypes.bfloat16)
    x = np.full((4, 200), 2.0**20, ml_dtypes.bfloat16)
    found, _ = results_and_schedule(lambda x, w: x.astype("f") @ w.astype("f"), x, tiny)
    np.testing.assert_array_equal(found, np.full((4, 300), 200 * 2.0**-110, "f"))


def test_what_others_read_is_converted_for_them():
    x, w = stored((4, 300), np.float32), stored((300, 200), np.float16, 1)

    def f(x, w):
        wide = w.astype("f")
        return x @ wide, wide.T @ wide, wide + 1

    found, _ = results_and_schedule(f, x, w)
    wide = w.astype("f")
    for got, want in zip(found, (x @ wide, wide.T @ wide, wide + 1), strict=True):
        np.testing.assert_array_equal(got, want)


def test_in_loops_and_gradients():
    x, w = stored((2, 256), np.float32), (stored((256, 256), np.int8, 1) > 2).astype(np.int8)

    def loop(x, w):
        return lax.fori_loop(0, 3, lambda i, x: x @ w.astype("f"), x)

    found, schedule = results_and_schedule(loop, x, w)
    wide = w.astype("f")
    np.testing.assert_array_equal(found, x @ wide @ wide @ wide)
    assert not is_converted(schedule), schedule
    gradient = amdjax.jit(amdjax.grad(lambda x: loop(x, w).sum()))(x)
    np.testing.assert_array_equal(gradient, np.ones_like(x) @ wide.T @ wide.T @ wide.T)


def test_narrower_conversions_stay():
    x, w = stored((4, 300), np.float16), np.full((300, 200), 1e-9, np.float32)
    found, _ = results_and_schedule(lambda x, w: x @ w.astype(np.float16), x, w)
    np.testing.assert_array_equal(found, np.zeros((4, 200), np.float16))
