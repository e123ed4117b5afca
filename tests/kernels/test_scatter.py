import itertools

import ml_dtypes
import numpy as np
import pytest

from amdjax import lax
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from tests.support.scatters import COMBINE, Numbers, reference, values

DTYPES = [np.float32, np.int32, np.int8, np.complex64, ml_dtypes.bfloat16, np.bool_]
#: operand, indices, updates, numbers: windows of every kind, batches, and sizes for every way of
#: sharing the work between threads.
CASES = [
    ((10,), (7, 1), (7,), ((), (0,), (0,))),
    ((10,), (1,), (), ((), (0,), (0,))),
    ((10, 4), (7, 1), (7, 4), ((1,), (0,), (0,))),
    ((10, 4), (7, 1), (4, 7), ((0,), (0,), (0,))),
    ((10, 4), (7, 1), (7, 3, 4), ((1, 2), (), (0,))),
    ((10, 6), (7, 2), (2, 7, 3), ((0, 2), (), (1, 0))),
    ((3, 10, 6), (3, 7, 1), (3, 7, 6), ((2,), (1,), (1,), (0,), (0,))),
    ((10, 3, 6), (7, 3, 2), (7, 3, 2), ((2,), (0,), (0, 2), (1,), (1,))),
    ((5, 6), (4, 0), (4, 5, 6), ((1, 2), (), ())),
    ((0, 4), (3, 1), (3, 4), ((1,), (0,), (0,))),
    ((4, 4), (0, 1), (0, 4), ((1,), (0,), (0,))),
    ((20, 300), (70, 1), (70, 300), ((1,), (0,), (0,))),
    ((50, 10), (2000, 1), (2000, 10), ((1,), (0,), (0,))),
    ((8, 40, 10), (8, 300, 1), (8, 300, 10), ((2,), (1,), (1,), (0,), (0,))),
    ((60,), (17_000, 1), (17_000,), ((), (0,), (0,))),
    ((40, 300), (90, 2), (90, 200), ((1,), (0,), (0, 1))),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "x".join(map(str, c[0])))
@pytest.mark.parametrize("name", COMBINE)
def test_against_one_after_the_other(name, case):
    operand_shape, indices_shape, updates_shape, numbers = case
    rng = np.random.default_rng(0)
    for dtype, mode in itertools.product(DTYPES, ("clip", "drop")):
        kind = np.dtype(dtype).kind
        if (kind == "b" and name != "scatter") or (kind == "c" and name[8:] in ("min", "max")):
            continue
        operand, updates = (values(rng, s, dtype) for s in (operand_shape, updates_shape))
        if name == "scatter_mul":
            updates = (updates * 0 - 1).astype(dtype)  # nothing overflows or loses digits
        indices = rng.integers(-2, max(operand_shape), indices_shape).astype(np.int32)
        result = getattr(lax, name)(operand, indices, updates, Numbers(*numbers), mode=mode)
        expected = reference(name, operand, indices, updates, numbers, mode)
        np.testing.assert_array_equal(np.asarray(result), expected)
        assert result.dtype == expected.dtype


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.complex64, np.int16])
@pytest.mark.parametrize("width", [(), (3,)])
@pytest.mark.parametrize("name", COMBINE)
def test_unique_indices(name, width, dtype):
    if np.dtype(dtype).kind == "c" and name[8:] in ("min", "max"):
        pytest.skip("complex numbers have no order in NumPy")
    rng = np.random.default_rng(1)
    operand, updates = values(rng, (20_000, *width), dtype), values(rng, (17_001, *width), dtype)
    indices = rng.permutation(20_000)[:17_001, None].astype(np.int32)
    numbers = ((1,) if width else (), (0,), (0,))
    result = getattr(lax, name)(operand, indices, updates, Numbers(*numbers), unique_indices=True)
    expected = operand.copy()
    expected[indices[:, 0]] = COMBINE[name](operand[indices[:, 0]], updates)
    np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32])
def test_index_dtypes(dtype):
    indices = np.array([[3], [250], [0]], dtype)
    result = lax.scatter(
        np.zeros(4, np.float32), indices, np.ones(3, np.float32), Numbers((), (0,), (0,))
    )
    assert result.tolist() == [1, 0, 0, 1]


def test_an_operand_that_is_also_read():
    """The result must not take over memory that indices or updates are read from."""
    numbers = Numbers((), (0,), (0,))

    def fn(x):
        y = lax.add(x, x)
        indices = lax.reshape(lax.rem(y, np.int32(5)), (5, 1))
        return [lax.scatter_add(y, indices, y, numbers)]

    x = np.array([4, 1, 3, 2, 0], np.int32)
    closed = trace_to_jaxpr(fn, [ShapedArray(x.shape, x.dtype)])
    expected = 2 * x
    np.add.at(expected, (2 * x) % 5, 2 * x)
    np.testing.assert_array_equal(np.asarray(jaxpr_as_fun(closed)(x)[0]), expected)


def test_the_operand_stays_as_it_was():
    x = lax.add(np.zeros(6, np.float32), np.float32(1))
    lax.scatter(x, np.array([[2]]), np.zeros(1, np.float32), Numbers((), (0,), (0,)))
    lax.dynamic_update_slice(x, np.zeros(2, np.float32), (3,))
    assert x.tolist() == [1] * 6


def test_scatter_apply():
    x = np.arange(6, dtype=np.float32)
    indices = np.array([[1], [4], [1]], np.int32)
    result = lax.scatter_apply(
        x, indices, lambda v: lax.add(lax.mul(v, v), np.float32(3)),
        Numbers((), (0,), (0,)), update_shape=(3,),
    )  # fmt: skip
    assert result.tolist() == [0, 19, 2, 3, 19, 5]


@pytest.mark.devices
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.bool_, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "shape, update, start",
    [
        ((5,), (3,), (1,)), ((5,), (3,), (9,)), ((5,), (3,), (-3,)), ((), (), ()),
        ((4, 6, 7), (2, 6, 7), (1, 0, 0)), ((4, 6, 7), (4, 6, 2), (1, 0, 3)),
        ((4, 6, 7), (2, 3, 7), (3, -1, 0)), ((100, 200), (100, 1), (0, 77)),
        ((3, 0), (2, 0), (1, 0)), ((4, 4), (0, 4), (1, 0)), ((20_000,), (17_000,), (10,)),
        ((90, 100), (90, 99), (0, 1)), ((300, 3, 2), (280, 2, 2), (7, 1, 0)),
        ((3, 5, 9, 64), (3, 5, 1, 64), (0, 0, 8, 0)), ((3, 9, 2048), (2, 7, 1003), (1, 1, 5)),
    ],
)  # fmt: skip
def test_dynamic_update_slice(shape, update, start, dtype):
    rng = np.random.default_rng(2)
    x, u = values(rng, shape, dtype), np.zeros(update, dtype)
    result = lax.dynamic_update_slice(x, u, start)
    expected = x.copy()
    wrapped = [s + n if s < 0 else s for s, n in zip(start, shape)]
    first = [min(max(s, 0), n - m) for s, n, m in zip(wrapped, shape, update)]
    expected[tuple(slice(f, f + m) for f, m in zip(first, update))] = u
    np.testing.assert_array_equal(np.asarray(result), expected)
