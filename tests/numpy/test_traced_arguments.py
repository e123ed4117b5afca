"""What is known to Python and what is traced mean the same.

Many functions look at an argument that is known (a shift, a count, an index, bounds) and have
another way for one that is traced. Both ways are compared with NumPy.
"""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from tests.support.strategies import close

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5) * 7 % 31
V = np.array([3.0, -1.0, 2.0, 7.0, 0.5], np.float32)
DOWN = np.array([5.0, 2.0, 1.0])
LONG = np.arange(300, dtype=np.float32)
I8, U8 = np.int8, np.uint8

CASES = {
    "roll flat": (lambda np, n: np.roll(X, n), 7),
    "roll negative": (lambda np, n: np.roll(X, n, 1), -3),
    "roll several by one": (lambda np, n: np.roll(X, n, (0, 2)), 2),
    "roll several by several": (lambda np, n: np.roll(X, n, (0, -1)), [1, 2]),
    "roll flat by several": (lambda np, n: np.roll(X, n), [4, 2, 5]),
    "roll one axis by several": (lambda np, n: np.roll(X, n, 1), [4, 2, 5]),
    "roll one axis twice": (lambda np, n: np.roll(X, n, (1, 1)), 1),
    "roll by none": (lambda np, n: np.roll(X, n, 0), np.zeros(0, int)),
    "roll by a byte": (lambda np, n: np.roll(LONG, n), I8(-5)),
    "roll by an unsigned byte": (lambda np, n: np.roll(LONG, n), U8(250)),
    "take": (lambda np, i: np.take(X, i, 1), [2, 0, -1]),
    "take a byte": (lambda np, i: np.take(LONG, i), np.array([3, -2], I8)),
    "index by a byte": (lambda np, i: np.asarray(LONG)[i], U8(200)),
    "linspace": (lambda np, v: np.linspace(v, 3.0, 7), 0.5),
    "linspace of arrays": (lambda np, v: np.linspace(V, v, 4, axis=1), V + 2),
    "clip": (lambda np, v: np.clip(X, v, 20), 3.0),
    "where": (lambda np, v: np.where(v, X, -X), [True, False, True, True, False]),
    "searchsorted": (lambda np, v: np.searchsorted(np.asarray([1.0, 2.0, 5.0]), v), V),
    "digitize falling": (lambda np, b: np.digitize(V, b), [5.0, 2.0, 1.0]),
    "digitize rising": (lambda np, b: np.digitize(V, b), [1.0, 2.0, 5.0]),
    "histogram bins": (lambda np, b: np.histogram(V, b)[0], [-1.0, 1.0, 8.0]),
    "percentile": (lambda np, q: np.percentile(X, q, axis=1), [0.0, 35.0, 100.0]),
    "interp": (lambda np, v: np.interp(v, DOWN[::-1], np.square(DOWN)), V),
    "trapezoid x": (lambda np, v: np.trapezoid(X, v, axis=1), [0.0, 1.0, 3.0, 7.0]),
    "trapezoid dx": (lambda np, v: np.trapezoid(X, dx=v, axis=1), np.arange(45.0).reshape(3, 3, 5)),
    "gradient": (lambda np, v: np.gradient(V, v), [0.0, 1.0, 3.0, 7.0, 8.0]),
    "diff append": (lambda np, v: np.diff(V, append=v), 4.0),
    "polyval": (lambda np, c: np.polyval(c, V), [1.0, -2.0, 3.0]),
    "unwrap period": (lambda np, p: np.unwrap(V, period=p), 2.5),
    "choose": (lambda np, i: np.choose(i, [V, -V, 2 * V], mode="wrap"), [0, 2, 1, 1, 0]),
    "take_along_axis": (lambda np, i: np.take_along_axis(X, i, 1), np.array([[[3], [0]]] * 3)),
    "tri": (lambda np, k: np.tri(3, 4, k), -1),
    "insert": (lambda np, v: np.insert(V, 2, v), 9.0),
    "full": (lambda np, v: np.full((2, 3), v), 1.5),
    "ldexp": (lambda np, e: np.ldexp(V, e), [1, -2, 0, 3, 2]),
    "left_shift": (lambda np, n: np.left_shift(np.arange(5), n), 3),
    "power": (lambda np, n: np.power(V, n), 3),
    "float power": (lambda np, n: np.power(np.abs(V), n), 0.5),
    "cov weights": (lambda np, w: np.cov(X[0], fweights=w), [1, 2, 1, 3, 1]),
    "average weights": (lambda np, w: np.average(X, 2, w), [1.0, 2.0, 1.0, 3.0, 1.0]),
    "nan_to_num": (lambda np, v: np.nan_to_num(np.asarray([1.0, np.nan]), nan=v), 5.0),
    "pad value": (lambda np, v: np.pad(V, 2, constant_values=v), 5.0),
    "isin": (lambda np, v: np.isin(V, v), [2.0, 7.0]),
    "vander": (lambda np, v: np.vander(v, 3), V),
    "convolve": (lambda np, v: np.convolve(V, v), [1.0, -1.0, 0.5]),
    "round": (lambda np, v: np.round(v, 1), V * 1.37),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_known_and_traced_arguments_agree(name):
    fun, value = CASES[name]
    expected = fun(np, np.asarray(value))
    close(fun(jnp, np.asarray(value)), expected)
    close(fun(jnp, jnp.asarray(value)), expected)
    close(amdjax.jit(lambda v: fun(jnp, v))(jnp.asarray(value)), expected)


@pytest.mark.parametrize("shifts,axis", [
    (lambda n: (n, n + 1), 1), (lambda n: [n, 1], 0), (lambda n: (n, 1), (0, 1)),
    (lambda n: (n,), 2),
])  # fmt: skip
def test_roll_by_some_traced_numbers(shifts, axis):
    f = lambda n: jnp.roll(X, shifts(n), axis)
    np.testing.assert_array_equal(amdjax.jit(f)(2), np.roll(X, shifts(2), axis))
