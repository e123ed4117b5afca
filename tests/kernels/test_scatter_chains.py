"""Scatters into one array, one after the other, of which compiled programs make one kernel.

Values are small integers, whose sums in any order are exact; what rounds is compared with float64.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from tests.support.jit_helpers import compiled, on_machine
from tests.support.scatters import COMBINE, Numbers, reference, values

CHAINED = [name for name in COMBINE if name != "scatter"]
DTYPES = [np.float32, np.int32, np.uint8, np.complex64, ml_dtypes.bfloat16, np.float16]
#: operand, indices, updates, numbers: elements, windows in place and moved, batches.
CASES = [
    ((40,), (25, 1), (25,), ((), (0,), (0,))),
    ((10, 4), (7, 1), (7, 3, 4), ((1, 2), (), (0,))),
    ((10, 6), (7, 2), (2, 7, 3), ((0, 2), (), (1, 0))),
    ((3, 9, 7, 3), (3, 5, 8, 2), (3, 5, 8, 3), ((3,), (1, 2), (1, 2), (0,), (0,))),
    ((50, 10), (150, 1), (150, 10), ((1,), (0,), (0,))),
    ((4, 4), (0, 1), (0, 4), ((1,), (0,), (0,))),
]
#: What each thread can own: window positions, batches, ranges, nothing.
LARGE = [
    ((9, 40), (200, 1), (200, 40), ((1,), (0,), (0,))),
    ((8, 9, 9, 3), (8, 30, 9, 2), (8, 30, 9, 3), ((3,), (1, 2), (1, 2), (0,), (0,))),
    ((90, 200), (70, 2), (70, 150), ((1,), (0,), (0, 1))),
    ((60,), (5000, 1), (5000,), ((), (0,), (0,))),
]


def chain(*steps):
    """A program of scatters, each given as name, numbers, mode and which indices and updates."""

    def run(x, indices, updates):
        for name, numbers, mode, i, u in steps:
            x = getattr(lax, name)(x, indices[i], updates[u], Numbers(*numbers), mode=mode)
        return x

    return run


def expected(steps, x, indices, updates):
    for name, numbers, mode, i, u in steps:
        x = reference(name, x, indices[i], updates[u], numbers, mode)
    return x


def inputs(case, dtype, count, seed=0):
    operand, where, update, _ = case
    rng = np.random.default_rng(seed)
    indices = [rng.integers(-2, max(operand), where).astype(np.int32) for _ in range(count)]
    return values(rng, operand, dtype), indices, [values(rng, update, dtype) for _ in range(count)]


def is_joined(f, *args):
    return "-chain" in compiled(lambda *xs: f(*xs), *args).as_text("simplified")


@pytest.mark.devices
@pytest.mark.parametrize("case", CASES, ids=lambda c: "x".join(map(str, c[0])))
@pytest.mark.parametrize("name", CHAINED)
def test_against_one_after_the_other(name, case):
    for dtype, mode in itertools.product(DTYPES, ("clip", "drop")):
        if np.dtype(dtype).kind == "c" and name[8:] in ("min", "max"):
            continue
        x, indices, updates = inputs(case, dtype, 3)
        if name == "scatter_mul":
            updates = [(u * 0 + s).astype(dtype) for u, s in zip(updates, (2, 0, 1))]
        steps = [(name, case[3], mode, i, i) for i in range(3)]
        f = amdjax.jit(chain(*steps))
        result = np.asarray(f(x, indices, updates))
        np.testing.assert_array_equal(result, expected(steps, x, indices, updates))
        assert result.dtype == x.dtype


def test_one_equation():
    x, indices, updates = inputs(CASES[0], np.float32, 3)
    add = [("scatter_add", CASES[0][3], "drop", i, i) for i in range(3)]
    assert is_joined(chain(*add), x, indices, updates)
    # The same updates twice, and indices of other integers.
    assert is_joined(chain(add[0], add[0]), x, [i.astype(np.int16) for i in indices], updates)
    # The last of several writers wins, other kinds and modes do not commute.
    put = [("scatter", *rest) for _, *rest in add]
    assert not is_joined(chain(*put), x, indices, updates)
    for name, mode in (("scatter_mul", "drop"), ("scatter_add", "clip")):
        other = (name, CASES[0][3], mode, 1, 1)
        assert not is_joined(chain(add[0], other), x, indices, updates)


def test_longer_chains_than_a_kernel_takes():
    x, indices, updates = inputs(CASES[0], np.int32, 70)
    steps = [("scatter_add", CASES[0][3], "drop", i, i) for i in range(70)]
    result = amdjax.jit(chain(*steps))(x, indices, updates)
    np.testing.assert_array_equal(np.asarray(result), expected(steps, x, indices, updates))


@st.composite
def programs(draw):
    """Steps on one array, which of the values between them are read, and by what."""
    case = draw(st.sampled_from(CASES))
    kinds = st.sampled_from([*CHAINED[:2], "scatter_add", "scatter_max", "scatter"])
    modes = st.sampled_from(["drop", "clip", "drop"])
    step = st.tuples(kinds, st.just(case[3]), modes, st.integers(0, 2), st.integers(0, 2))
    steps = draw(st.lists(step, min_size=1, max_size=6))
    reads = draw(st.lists(st.sampled_from(["", "", "", "result", "updates"]), min_size=6))
    return case, steps, reads, draw(st.integers(0, 99)), draw(st.booleans())


@pytest.mark.devices
@given(programs(), st.sampled_from([np.float32, np.int32, np.int8]))
def test_programs(program, dtype):
    """Chains whose values between are results, or lead to later updates, on donated arrays."""
    case, steps, reads, seed, donate = program
    x, indices, updates = inputs(case, dtype, 3, seed)

    def run(x, indices, updates, scatter):
        kept = []
        for (name, *rest), read in zip(steps, reads):
            numbers, mode, i, u = rest
            new = updates[u]
            if read == "updates":  # they depend on the array that they go to
                new = new + x[(0,) * x.ndim]
            x = scatter(name, x, indices[i], new.astype(dtype), numbers, mode)
            if read == "result":
                kept.append(x)
        return x, kept

    def ours(name, x, i, u, numbers, mode):
        return getattr(lax, name)(x, i, u, Numbers(*numbers), mode=mode)

    f = amdjax.jit(
        lambda x, i, u: run(x, i, u, ours), donate_argnums=(0,) if donate and x.size else ()
    )
    wanted = run(x, indices, updates, reference)
    given_array = jnp.array(x)
    result = amdjax.tree.map(np.asarray, f(given_array, indices, updates))
    amdjax.tree.map(np.testing.assert_array_equal, result, wanted)
    if not donate:
        np.testing.assert_array_equal(np.asarray(given_array), x)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", LARGE, ids=lambda c: "x".join(map(str, c[0])))
def test_sums_do_not_depend_on_threads(case, dtype, monkeypatch):
    """Sums that round are the same to the last bit, and close to those of float64."""
    operand, where, update, numbers = case
    rng = np.random.default_rng(3)
    x = rng.standard_normal(operand).astype(dtype)
    indices = [rng.integers(0, 4, where).astype(np.int32) for _ in range(4)]
    updates = [rng.standard_normal(update).astype(dtype) for _ in range(4)]
    steps = [("scatter_add", numbers, "promise_in_bounds", i, i) for i in range(4)]
    found = []
    for threads in (1, 2, 3, 8):
        with monkeypatch.context() as patch:
            on_machine(patch, threads=threads)
            found.append(np.asarray(amdjax.jit(chain(*steps))(x, indices, updates)))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    wide = [u.astype(np.float64) for u in updates]
    exact = expected(steps, x.astype(np.float64), indices, wide)
    total = expected(steps, np.abs(x.astype(np.float64)), indices, [np.abs(u) for u in wide])
    ones = [np.ones(update) for _ in updates]
    additions = expected(steps, np.zeros(operand), indices, ones)
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert np.all(np.abs(found[0].astype(np.float64) - exact) <= additions * eps * total)


@pytest.mark.devices
def test_what_users_write():
    """Additions at several places and one-hot sums, with duplicates and places outside."""
    rng = np.random.default_rng(4)
    x, y = np.zeros((30, 5), np.float32), rng.integers(-3, 4, (3, 200, 5)).astype(np.float32)
    places = rng.integers(-40, 40, (3, 200)).astype(np.int32)

    @amdjax.jit
    def add(x, places, y):
        return x.at[places[0]].add(y[0]).at[places[1]].add(y[1]).at[places[2]].add(y[2])

    wanted = x.copy()
    for i, u in zip(places.reshape(-1), y.reshape(-1, 5)):
        if -30 <= i < 30:
            wanted[i] += u
    np.testing.assert_array_equal(np.asarray(add(x, places, y)), wanted)


def test_gradients_of_corners_are_one_kernel():
    x, grid = np.ones((2, 8, 9, 3), np.float32), np.zeros((2, 4, 5, 2), np.float32)

    def loss(x, grid):
        return amdjax.nn.grid_sample(x, grid, method="cubic").sum()

    text = compiled(amdjax.grad(loss), x, grid).as_text("schedule")
    assert text.count("scatter of") == 1 and "16 times scatter of 40 windows of 3" in text
