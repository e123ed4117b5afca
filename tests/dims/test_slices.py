"""Slices whose bounds and steps are symbolic, against NumPy's at many sizes."""

import itertools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from tests.support.turns import in_turn

BOUNDS = {
    "": lambda n: None, "0": lambda n: 0, "2": lambda n: 2, "4": lambda n: 4, "-2": lambda n: -2,
    "-4": lambda n: -4, "n": lambda n: n, "-n": lambda n: -n, "n//2": lambda n: n // 2,
    "2n+2": lambda n: 2 * n + 2, "-2n-2": lambda n: -2 * n - 2,
}  # fmt: skip
STEPS = {
    "": lambda n: None, "2": lambda n: 2, "-1": lambda n: -1, "-2": lambda n: -2, "3": lambda n: 3,
    "n": lambda n: n, "-n": lambda n: -n, "n//2+1": lambda n: n // 2 + 1,
}  # fmt: skip
SLICES = {
    f"[{start}:{stop}:{step}]": lambda n, parts=(BOUNDS[start], BOUNDS[stop], STEPS[step]): slice(
        *[part(n) for part in parts]
    )
    for start, stop, step in itertools.product(BOUNDS, BOUNDS, STEPS)
}


def results(x, table, index):
    """Of what an index takes, of what it writes to, and of it beside other indices."""
    taken = x[index(x.shape[0])]
    written = x.at[index(x.shape[0])].add(2.0)
    gradient = amdjax.grad(lambda x: (x[index(x.shape[0])] ** 2).sum())(x)
    one = table[index(x.shape[0]), jnp.int32(1) + x.shape[0] * 0]
    return taken, written, gradient, one, table[index(x.shape[0]), jnp.array([0, 2])]


def expected(x, table, index):
    written, gradient = x.copy(), np.zeros_like(x)
    written[index(len(x))] += 2
    gradient[index(len(x))] = 2 * x[index(len(x))]
    rows = table[index(len(x))]
    return x[index(len(x))], written, gradient, rows[:, 1], rows[:, [0, 2]]


@pytest.mark.parametrize("name", in_turn(SLICES, 80))
def test_slices_of_symbolic_bounds_and_steps(name):
    index = SLICES[name]
    f = amdjax.jit(lambda x, table: results(x, table, index), symbolic=("n", "n, 3"))
    for n in (5, 16, 2, 1, 7):
        x = np.arange(1, n + 1, dtype=np.float32)
        table = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        for got, want in zip(f(x, table), expected(x, table, index), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{name} of {n}")


@pytest.mark.parametrize("name", ["[:-4:2]", "[-2::-2]", "[::n]", "[n//2::n//2+1]", "[4:-2:3]"])
def test_slices_with_steps_need_no_constraints(name):
    """How many elements there are is known as a dimension, and one trace has it for all sizes."""
    shapes = []

    def f(x):
        shapes.append(x.shape)
        return x[SLICES[name](x.shape[0])]

    f = amdjax.jit(f, symbolic="n")
    for n in (9, 6, 17, 30):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x), x[SLICES[name](n)])
    assert len(shapes) == 1


def test_windows_that_start_before_the_end():
    """A negative start, and a window whose size is symbolic."""
    f = amdjax.jit(
        lambda x: (
            lax.dynamic_slice(x, (-1,), (x.shape[0] - 1,)),
            lax.dynamic_slice(x, (x.shape[0] // 2,), (x.shape[0] // 2,)),
            lax.dynamic_update_slice(x, x[:1] * 9, (-2,)),
        ),
        symbolic="n",
    )
    for n in (5, 2, 16):
        x = np.arange(1, n + 1, dtype=np.float32)
        last, half, updated = f(x)
        want = x.copy()
        want[-2] = 9
        np.testing.assert_array_equal(last, x[1:])
        np.testing.assert_array_equal(half, x[n // 2 : n // 2 * 2])
        np.testing.assert_array_equal(updated, want)
