"""Ragged products: each group by itself in NumPy, all ways of stating them, and derivatives."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
from amdjax import jit, lax, numpy as jnp, vmap
from amdjax.transforms.staging import make_jaxpr
from tests.support.jit_helpers import on_machine
from tests.support.lax_checks import check_derivatives


def reference(lhs, rhs, sizes, numbers):
    """By a mask of which position is in which group, in float64."""
    (left, right), (left_batch, right_batch) = numbers.dot_dimension_numbers
    (ragged,), groups = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    free = [d for d in range(lhs.ndim) if d not in (*left, *left_batch)]
    contracted = ragged in left
    outer = left[: left.index(ragged)] if contracted else [d for d in free if d < ragged]
    outer = [*left_batch, *outer]
    sizes = np.broadcast_to(sizes, [lhs.shape[d] for d in outer] + [sizes.shape[-1]])
    stops = np.cumsum(sizes, -1)[..., None, :]
    place = np.arange(lhs.shape[ragged])[:, None]
    mask = (place >= stops - sizes[..., None, :]) & (place < stops)
    letters = iter("abcdefghijklmnopqrstuvwxy")
    x = [next(letters) for _ in range(lhs.ndim)]
    y = [next(letters) for _ in range(rhs.ndim)]
    for i, j in zip((*left, *left_batch), (*right, *right_batch)):
        y[j] = x[i]
    for d in groups:
        y[d] = "z"
    columns = [y[d] for d in range(rhs.ndim) if d not in (*right, *right_batch, *groups)]
    m = [x[d] for d in (*outer, ragged)] + ["z"]
    out = ["z"] * contracted + [x[d] for d in (*left_batch, *free)] + columns
    form = f"{''.join(x)},{''.join(y)},{''.join(m)}->{''.join(out)}"
    return np.einsum(form, *(v.astype(np.float64) for v in (lhs, rhs, mask)), optimize=True)


def close(found, wanted, steps):
    """Within roundings of sums of about `steps` terms."""
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * (1 + np.sqrt(steps)))


NUMBERS = lax.RaggedDotDimensionNumbers
ROWS = NUMBERS((((1,), (1,)), ((), ())), (0,), (0,))
DEPTH = NUMBERS((((0,), (0,)), ((), ())), (0,), ())


@st.composite
def ragged_products(draw):
    """Every kind of axis in any order; groups of rows or of depth."""
    contracted = draw(st.booleans())
    least = {"b": 0, "c": 1, "f": int(not contracted), "n": 0}
    size = st.sampled_from((1, 2, 3, 5, 19))
    extents = {k: draw(st.lists(size, min_size=n, max_size=2)) for k, n in least.items()}
    groups = draw(st.integers(1, 6))
    extents["g"] = [] if contracted else [groups]
    axes = lambda kinds: [(k, i) for k in kinds for i in range(len(extents[k]))]
    x, y = (draw(st.permutations(axes(kinds))) for kinds in ("bcf", "bcng"))
    pairs = [
        tuple(tuple(map(side.index, order)) for side in (x, y))
        for order in (draw(st.permutations(axes(kind))) for kind in "cb")
    ]
    cut = draw(
        st.sampled_from([d for d, (k, _) in enumerate(x) if k == ("c" if contracted else "f")])
    )
    numbers = NUMBERS(pairs, (cut,), [y.index(("g", 0))] if not contracted else ())
    shapes = [tuple(extents[k][i] for k, i in side) for side in (x, y)]
    left, batch = pairs[0][0], pairs[1][0]
    outer = left[: left.index(cut)] if contracted else [d for d in range(cut) if x[d][0] == "f"]
    outer = [shapes[0][d] for d in (*batch, *outer)]
    outer = outer if draw(st.booleans()) else []
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    total = shapes[0][cut] * draw(st.sampled_from((0.6, 1.0, 1.5)))
    sizes = (rng.dirichlet(np.full(groups, 0.5), outer or None) * total + rng.random()).astype(int)
    operands = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    return *operands, sizes.astype(np.int32), numbers


@given(ragged_products())
@settings(max_examples=10)
def test_ragged_products(case):
    *args, numbers = case
    close(lax.ragged_dot_general(*case), reference(*args, numbers), args[0].size)


@given(ragged_products())
@settings(max_examples=4)
def test_cotangents_of_ragged_products(case):
    """Each is linear in its operand: its product with a direction is that of the result."""
    x, w, sizes, numbers = case
    rng = np.random.default_rng(0)
    out, pull = amdjax.vjp(lambda x, w: lax.ragged_dot_general(x, w, sizes, numbers), x, w)
    ct = rng.standard_normal(out.shape).astype(np.float32)
    dx, dw = pull(ct)
    u, v = (rng.standard_normal(a.shape).astype(np.float32) for a in (x, w))
    scale = 1e-4 * (1 + np.sqrt(out.size * x.size))
    left = np.vdot(reference(u, w, sizes, numbers), ct)
    np.testing.assert_allclose(np.vdot(np.float64(dx), u), left, atol=scale)
    right = np.vdot(reference(x, v, sizes, numbers), ct)
    np.testing.assert_allclose(np.vdot(np.float64(dw), v), right, atol=scale)


@given(ragged_products(), st.data())
@settings(max_examples=5)
def test_batched_ragged_products(case, data):
    """Any of the operands and of the sizes batched, along any axis."""
    *args, numbers = case
    stacks = [np.stack([np.roll(x, i, -1) for i in range(3)]) for x in args]
    which = data.draw(st.lists(st.booleans(), min_size=3, max_size=3).filter(any))
    dims = [data.draw(st.integers(0, x.ndim)) if on else None for x, on in zip(args, which)]
    given = [x[0] if d is None else np.moveaxis(x, 0, d) for x, d in zip(stacks, dims)]
    found = vmap(lambda *xs: lax.ragged_dot_general(*xs, numbers), tuple(dims))(*given)
    for i, one in enumerate(found):
        member = [x[0 if d is None else i] for x, d in zip(stacks, dims)]
        close(one, reference(*member, numbers), args[0].size)


SIZES = {
    "even": [64] * 4, "one": [256], "none at the ends": [0, 100, 0, 0, 156, 0],
    "few rows": [3, 1, 0, 2], "too many": [100, 300, 7], "ones": [1] * 30, "nothing": [0, 0],
}  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_groups_of_any_sizes(sizes):
    """Several blocks, tiles that are cut, and rows that no group has, which are zero."""
    rng = np.random.default_rng(0)
    x, sizes = rng.standard_normal((256, 70)).astype(np.float32), np.array(sizes, np.int32)
    w = rng.standard_normal((len(sizes), 70, 90)).astype(np.float32)
    close(jit(lax.ragged_dot)(x, w, sizes), reference(x, w, sizes, ROWS), 70)
    y = rng.standard_normal((256, 90)).astype(np.float32)
    found = jit(lambda *args: lax.ragged_dot_general(*args, DEPTH))(x, y, sizes)
    close(found, reference(x, y, sizes, DEPTH), 256)


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_blocks_find_their_groups(threads, monkeypatch):
    """Of more groups than blocks and threads, some of several blocks."""
    on_machine(monkeypatch, threads=threads)
    rng = np.random.default_rng(0)
    sizes = (rng.dirichlet(np.full(60, 0.3)) * 1500).astype(np.int32)
    x = rng.standard_normal((1500, 33)).astype(np.float32)
    w = rng.standard_normal((60, 33, 130)).astype(np.float32)
    close(jit(lax.ragged_dot)(x, w, sizes), reference(x, w, sizes, ROWS), 33)


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int8", "int32", "uint8", "complex64", "bool"]
)
@pytest.mark.parametrize("numbers", [ROWS, DEPTH], ids=["rows", "depth"])
def test_dtypes_of_ragged_products(dtype, numbers):
    """Small integers, whose products are exact."""
    rng = np.random.default_rng(0)
    low, high = (0, 2) if dtype == "bool" else (0 if dtype[0] == "u" else -3, 4)
    x, sizes = rng.integers(low, high, (50, 16)), np.array([20, 0, 25], np.int64)
    w = rng.integers(low, high, (3, 16, 40) if numbers is ROWS else (50, 40))
    wanted = reference(x, w, sizes, numbers)
    with amdjax.enable_x64(dtype == "float64"):
        x, w = jnp.asarray(x).astype(dtype), jnp.asarray(w).astype(dtype)
        kind = np.int32 if dtype in ("int8", "uint8") else None
        found = lax.ragged_dot_general(x, w, sizes, numbers, preferred_element_type=kind)
        assert found.dtype == (kind or x.dtype)
        wanted = wanted != 0 if dtype == "bool" else wanted
        np.testing.assert_array_equal(
            np.asarray(found.astype(complex if dtype[0] == "c" else float)), wanted
        )


def test_fused_behind_groups():
    """Bias, activation and residual are applied where rows are stored, those of no group too."""
    rng = np.random.default_rng(0)
    x, b, r = (rng.standard_normal(s).astype(np.float32) for s in ((90, 20), (33,), (90, 33)))
    w, sizes = rng.standard_normal((3, 20, 33)).astype(np.float32), np.array([50, 1, 30], np.int32)
    f = jit(lambda x, w: jnp.maximum(lax.ragged_dot(x, w, sizes) + b, 0) + r)
    close(f(x, w), np.maximum(reference(x, w, sizes, ROWS) + b, 0) + r, 20)


def test_what_is_not_finite_stays_in_its_group():
    x, w = np.ones((6, 3), np.float32), np.ones((2, 3, 4), np.float32)
    x[0], w[1] = np.inf, np.nan
    found = np.asarray(lax.ragged_dot(x, w, np.array([4, 1])))
    assert np.isinf(found[0]).all() and (found[1:4] == 3).all()
    assert np.isnan(found[4]).all() and (found[5] == 0).all()


def test_derivatives_of_ragged_products():
    rng = np.random.default_rng(0)
    x, w, sizes = rng.standard_normal((6, 3)), rng.standard_normal((2, 3, 4)), np.array([2, 3])
    check_derivatives(lambda p, q: lax.ragged_dot(p, q, sizes), x, w)
    check_derivatives(lambda p, q: lax.ragged_dot_general(p, q, sizes, DEPTH), x, x)


def test_paired_ragged_axis():
    """Groups of a batch axis make no difference."""
    x = np.arange(24.0, dtype=np.float32).reshape(4, 2, 3)
    numbers = NUMBERS((((2,), (2,)), ((0,), (0,))), (0,), ())
    found = lax.ragged_dot_general(x, x, np.array([1, 2]), numbers)
    np.testing.assert_allclose(found, x @ x.transpose(0, 2, 1))


def test_ragged_products_in_print():
    x, w, sizes = np.ones((4, 2), np.float32), np.ones((2, 2, 3), np.float32), np.array([1, 2])
    assert "d:f32[4,3] = ragged_dot_general[" in str(make_jaxpr(lax.ragged_dot)(x, w, sizes))


@pytest.mark.parametrize(
    "ragged, groups, sizes, message",
    [
        ([0, 1], [0], (2,), "exactly one lhs ragged"),
        ([2], [0], (2,), "less than the number of axes of the lhs"),
        ([0], [], (2,), "exactly one rhs group"),
        ([0], [3], (2,), "less than the number of axes of the rhs"),
        ([0], [1], (2,), "distinct from contracting"),
        ([1], [0], (2,), "zero group dimensions"),
        ([0], [0], (), "at least one axis"),
        ([0], [0], (6, 2), r"shape \(2,\), got \(6, 2\)"),
        ([0], [0], (3,), "size to be 3, got 2"),
    ],
)
def test_errors_of_ragged_products(ragged, groups, sizes, message):
    numbers = NUMBERS((((1,), (1,)), ((), ())), ragged, groups)
    x, w = np.ones((6, 3), np.float32), np.ones((2, 3, 4), np.float32)
    with pytest.raises(TypeError, match=message):
        lax.ragged_dot_general(x, w, np.ones(sizes, np.int32), numbers)
