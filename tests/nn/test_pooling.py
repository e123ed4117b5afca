"""Pools against windows in NumPy loops, their positions, and pools of given sizes."""

import itertools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.test_util import check_grads
from tests.support import layer_references as reference


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def close(got, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


LAYOUTS = pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
CASES = [
    # space, window, strides, padding, dilation, ceil_mode
    ((11,), 3, 2, 1, 1, True),
    ((11,), 2, 3, 0, 4, True),
    ((9, 8), 3, 2, 1, 1, True),
    ((9, 8), (2, 3), 3, ((0, 1), 1), 1, True),
    ((9, 8), (3, 2), (1, 2), (2, 1), (2, 3), False),
    ((7, 9), 3, 4, 1, 2, True),
    ((5, 6, 4), 2, 3, 1, 1, True),
]


def put(x, layout):
    return reference.channels_first(x) if layout == "channels_first" else x


@LAYOUTS
@pytest.mark.parametrize("case", CASES, ids=str)
def test_max_pool_and_its_indices(case, layout):
    space, window, strides, padding, dilation, ceil_mode = case
    x = np.random.default_rng(0).integers(-9, 9, (2, *space, 3)).astype(np.float32)  # with ties
    windows = reference.windows_of(*case)
    largest, indices = reference.max_of_windows(x, windows)
    options = {"strides": strides, "padding": padding, "dilation": dilation,
               "ceil_mode": ceil_mode, "layout": layout}  # fmt: skip
    y, found = nn.max_pool(put(x, layout), window, **options, return_indices=True)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(y, put(largest, layout))
    np.testing.assert_array_equal(found, put(indices, layout))
    np.testing.assert_array_equal(nn.max_pool(put(x, layout), window, **options), y)
    gradient = amdjax.grad(lambda x: (nn.max_pool(x, window, **options) * found).sum())
    expected = np.zeros_like(x).reshape(2, -1, 3)
    flat = indices.reshape(2, -1, 3)
    for n, o, c in np.ndindex(flat.shape):
        expected[n, flat[n, o, c], c] += flat[n, o, c]
    close(gradient(put(x, layout)), put(expected.reshape(x.shape), layout))


@LAYOUTS
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("case", [c for c in CASES if c[4] == 1], ids=str)
def test_avg_pool_counts(case, include, layout):
    space, window, strides, padding, _, ceil_mode = case
    x = normal(2, *space, 3)
    windows = reference.windows_of(*case)
    total, inside, padded = reference.sums_of_windows(x, windows)
    options = {"strides": strides, "padding": padding, "ceil_mode": ceil_mode, "layout": layout}
    pool = lambda x, **more: nn.avg_pool(x, window, **options, **more)
    expected = total / (padded if include else inside)[None, ..., None]
    close(pool(put(x, layout), count_include_pad=include), put(expected, layout))
    close(pool(put(x, layout), divisor=7), put(total / 7, layout))
    with amdjax.enable_x64(True):
        f = lambda x: pool(x, count_include_pad=include)
        check_grads(f, (put(x.astype(np.float64), layout),), order=2, atol=1e-5, rtol=1e-5)


@LAYOUTS
def test_lp_pool(layout):
    case = ((9, 8), 3, 2, 1, 1, True)
    x = normal(2, 9, 8, 3)
    x[:, :3, :3] = 0
    options = {"strides": 2, "padding": 1, "ceil_mode": True, "layout": layout}
    for p in (2, 3.5):
        values = x if p == 2 else np.abs(x)
        total, _, counts = reference.sums_of_windows(
            values.astype(np.float64) ** p, reference.windows_of(*case)
        )
        expected = (total * (9 / counts)[None, ..., None]) ** (1 / p)
        close(nn.lp_pool(put(values, layout), 3, p, **options), put(expected, layout))
    close(nn.lp_pool(x, 2, 1), 4 * nn.avg_pool(x, 2))
    gradient = amdjax.grad(lambda x: nn.lp_pool(x, 3, 2).sum())(x)
    assert np.isfinite(gradient).all() and not np.asarray(gradient[:, :3, :3]).any()


def test_windows_larger_than_what_is_left():
    """With `ceil_mode` one is cut off at the end; results of PyTorch 2.13."""
    x = np.arange(1.0, 13, dtype=np.float32).reshape(1, 3, 4, 1)
    few, last = x[:, :1, :2], (0, slice(None), slice(None), 0)
    options = {"strides": 2, "ceil_mode": True}
    found = nn.lp_pool(x, (2, 3), 3, **options)[last]
    close(found, [[8.9628, 11.2373], [18.2915, 20.9363]], 1e-5)
    close(nn.lp_pool(few, 2, 2, **options)[last], [[3.1623]], 1e-5)
    close(nn.max_pool(few, 4, ceil_mode=True)[last], [[2.0]])
    close(nn.avg_pool(few, 4, ceil_mode=True)[last], [[1.5]])


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("size", [(3, 2), (2, 5), (4, 1)])
def test_windows_that_share_elements_see_no_others(size, odd):
    """A NaN or infinity reaches the means of its own windows, and so do gradients."""
    x = normal(1, 5, 7, 1)
    pool = lambda x: nn.adaptive_avg_pool(x, size)
    inside = np.asarray(amdjax.jacobian(pool)(x))[0, ..., 0, 0, :, :, 0] != 0
    for place in [(0, 0), (2, 3), (4, 6), (1, 5)]:
        changed = x.copy()
        changed[(0, *place, 0)] = odd
        np.testing.assert_array_equal(~np.isfinite(pool(changed)[0, ..., 0]), inside[:, :, *place])
    for place in np.ndindex(size):
        cotangent = np.ones((1, *size, 1), np.float32)
        cotangent[(0, *place, 0)] = odd
        (back,) = amdjax.vjp(pool, x)[1](jnp.asarray(cotangent))
        np.testing.assert_array_equal(~np.isfinite(back[0, ..., 0]), inside[place])


@LAYOUTS
def test_max_unpool_undoes_max_pool(layout):
    x = 1 + np.abs(normal(2, 6, 9, 3))
    y, indices = nn.max_pool(put(x, layout), (2, 3), return_indices=True, layout=layout)
    back = nn.max_unpool(y, indices, (2, 3), layout=layout)
    kept = np.where(np.asarray(back) == 0, put(x, layout), back)
    assert (np.asarray(back) != 0).sum() == y.size
    np.testing.assert_array_equal(kept, put(x, layout))
    larger = nn.max_unpool(y, indices, (2, 3), size=(7, 9), layout=layout)
    assert larger.shape == put(np.empty((2, 7, 9, 3)), layout).shape
    gradient = amdjax.grad(lambda y: (nn.max_unpool(y, indices, (2, 3), layout=layout) ** 2).sum())
    np.testing.assert_array_equal(gradient(y), 2 * np.asarray(y))
    outside = nn.max_unpool(y, jnp.full_like(indices, 54).at[:].add(-108 * (indices % 2)), (2, 3),
                            layout=layout)  # fmt: skip
    assert not np.asarray(outside).any()


@LAYOUTS
@pytest.mark.parametrize("size", [1, 2, 3, (5, 4), 12], ids=str)
def test_adaptive_pools(size, layout):
    x = normal(2, 9, 8, 3)
    new = (size, size) if isinstance(size, int) else size
    mean, largest = np.empty((2, *new, 3)), np.empty((2, *new, 3), np.float32)
    positions = np.empty((2, *new, 3), np.int32)
    for i, j in itertools.product(*map(range, new)):
        rows, columns = (
            slice(k * n // m, -(-(k + 1) * n // m)) for k, n, m in zip((i, j), (9, 8), new)
        )
        part = x[:, rows, columns]
        mean[:, i, j] = part.mean((1, 2), dtype=np.float64)
        at = part.reshape(2, -1, 3).argmax(1)
        width = part.shape[2]
        positions[:, i, j] = (rows.start + at // width) * 8 + columns.start + at % width
        largest[:, i, j] = part.max((1, 2))
    close(nn.adaptive_avg_pool(put(x, layout), size, layout=layout), put(mean, layout))
    y, found = nn.adaptive_max_pool(put(x, layout), size, return_indices=True, layout=layout)
    np.testing.assert_array_equal(y, put(largest, layout))
    np.testing.assert_array_equal(nn.adaptive_max_pool(put(x, layout), size, layout=layout), y)
    np.testing.assert_array_equal(found, put(positions, layout))
    with amdjax.enable_x64(True):
        wide = put(x.astype(np.float64), layout)
        for pool, order in ((nn.adaptive_avg_pool, 2), (nn.adaptive_max_pool, 1)):
            f = lambda x: pool(x, size, layout=layout)
            check_grads(f, (wide,), order=order, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include", [False, True])
def test_float16_sums_and_counts_beyond_its_range(include, ceil_mode):
    x = jnp.full((1, 301, 300, 1), 100.0, np.float16)
    options = {"count_include_pad": include, "ceil_mode": ceil_mode, "padding": ((1, 0), 0)}
    for f in (
        lambda x: nn.avg_pool(x, (290, 300), strides=290, **options),
        lambda x: nn.avg_pool(x, 300, divisor=90_000),
        lambda x: nn.lp_pool(x, 30, 2, strides=290, ceil_mode=ceil_mode),
    ):
        y, pull = amdjax.vjp(f, x)
        wide, wide_pull = amdjax.vjp(f, x.astype(np.float32))
        close(y.astype(np.float32), wide, rtol=2**-10)
        slope = jnp.full(y.shape, 1024.0)
        got, expected = pull(slope.astype(np.float16))[0], wide_pull(slope)[0]
        close(got.astype(np.float32), expected, rtol=2**-9)


def test_bfloat16_means_are_gathered_in_float32():
    x = jnp.asarray(256 + normal(1, 7, 1), jnp.bfloat16)
    y = nn.adaptive_avg_pool(x, 3)
    assert y.dtype == jnp.bfloat16
    expected = nn.adaptive_avg_pool(x.astype(jnp.float32), 3).astype(jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(y, np.float32), np.asarray(expected, np.float32))


LAYERS = {
    "MaxPool": (lambda: nn.MaxPool([3, 2], 2, dilation=2, ceil_mode=True),
                lambda x: nn.max_pool(x, (3, 2), strides=2, dilation=2, ceil_mode=True)),
    "AvgPool": (lambda: nn.AvgPool(3, 2, 1, count_include_pad=False),
                lambda x: nn.avg_pool(x, 3, strides=2, padding=1, count_include_pad=False)),
    "LpPool": (lambda: nn.LpPool(2, 2.0), lambda x: nn.lp_pool(x, 2, 2)),
    "AdaptiveAvgPool": (lambda: nn.AdaptiveAvgPool((3, 2)),
                        lambda x: nn.adaptive_avg_pool(x, (3, 2))),
    "AdaptiveMaxPool": (lambda: nn.AdaptiveMaxPool(3), lambda x: nn.adaptive_max_pool(x, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, function = LAYERS[name]
    layer, x = make(), jnp.asarray(normal(2, 7, 8, 3))
    assert repr(layer).startswith(f"{name}(") and not amdjax.tree.leaves(layer)
    call = lambda layer, x: layer(x)
    close(amdjax.jit(call)(layer, x), function(x))
    many = jnp.stack([x, 2 - x])
    close(amdjax.vmap(call, (None, 0))(layer, many)[1], function(2 - x))
    gradient = amdjax.grad(lambda x: (layer(x) ** 2).sum())(x)
    close(gradient, amdjax.grad(lambda x: (function(x) ** 2).sum())(x))


def test_layers_with_indices():
    x = normal(2, 6, 8, 3)
    y, indices = amdjax.jit(lambda layer, x: layer(x))(nn.MaxPool(2, return_indices=True), x)
    np.testing.assert_array_equal(nn.MaxUnpool(2)(y, indices), nn.max_unpool(y, indices, 2))
    assert nn.MaxUnpool(2)(y, indices, size=(7, 8)).shape == (2, 7, 8, 3)
    both = nn.AdaptiveMaxPool(4, return_indices=True)(x)
    np.testing.assert_array_equal(both[1], nn.adaptive_max_pool(x, 4, return_indices=True)[1])
    many = np.stack([x, x[::-1]])
    got = amdjax.vmap(lambda x: nn.max_pool(x, 3, return_indices=True)[1])(many)
    np.testing.assert_array_equal(got[1], nn.max_pool(x[::-1], 3, return_indices=True)[1])


IMAGE = np.ones((1, 4, 4, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.max_pool(IMAGE, 2, dilation=0), ValueError, "max_pool: dilation must be"),
        (lambda: nn.max_pool(IMAGE, 2, dilation=4), ValueError, "window=2 is larger"),
        (
            lambda: nn.max_pool(IMAGE, 9, strides=1, ceil_mode=True),
            ValueError,
            "window=9 is larger",
        ),
        (lambda: nn.avg_pool(IMAGE, 2, divisor=0), ValueError, "avg_pool: divisor"),
        (lambda: nn.lp_pool(IMAGE, 2, -1), ValueError, "lp_pool: p must be"),
        (lambda: nn.LpPool(2, np.inf), ValueError, "LpPool: p must be"),
        (lambda: nn.lp_pool(IMAGE.astype(int), 2, 2), TypeError, "lp_pool: x must have"),
        (lambda: nn.max_unpool(IMAGE, IMAGE, 2), TypeError, "indices must be integers"),
        (lambda: nn.max_unpool(IMAGE, np.ones(3, int), 2), ValueError, "indices must have"),
        (lambda: nn.max_unpool(IMAGE, IMAGE.astype(int), 2, padding="SAME"), ValueError, "padding"),
        (lambda: nn.adaptive_avg_pool(IMAGE, 0), ValueError, "adaptive_avg_pool: size"),
        (lambda: nn.adaptive_max_pool(IMAGE, (2, 2, 2)), ValueError, "adaptive_max_pool: size"),
        (lambda: nn.MaxPool(0), ValueError, "MaxPool: window"),
        (lambda: nn.MaxPool(2, dilation=(1, 0)), ValueError, "MaxPool: dilation"),
        (lambda: nn.AvgPool(2, strides=-1), ValueError, "AvgPool: strides"),
        (lambda: nn.LpPool(2, 2, layout="NHWC"), ValueError, "LpPool: layout"),
        (lambda: nn.AdaptiveAvgPool(2.5), ValueError, "AdaptiveAvgPool: size"),
    ],
)
def test_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
