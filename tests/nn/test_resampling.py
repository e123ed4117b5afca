"""Resampling against NumPy, point by point; its gradients against finite differences."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.nn._taps import Taps
from amdjax.test_util import check_grads
from tests.support import layer_references as reference


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def close(got, expected, rtol=2e-5, atol=1e-5):
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


def put(x, layout):
    return reference.channels_first(x) if layout == "channels_first" else x


LAYOUTS = pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
METHODS = pytest.mark.parametrize(
    ("method", "align_corners"),
    [("nearest", False), ("nearest_exact", False), ("area", False), ("linear", False),
     ("linear", True), ("cubic", False), ("cubic", True)],
)  # fmt: skip


@LAYOUTS
@METHODS
@pytest.mark.parametrize(
    ("space", "size", "factor"),
    [((7,), None, 2.5), ((5, 6), None, 2), ((5, 6), (8, 3), None), ((5, 6), None, (1, 0.4)),
     ((3, 4, 2), 5, None)],
    ids=str,
)  # fmt: skip
def test_upsample(space, size, factor, method, align_corners, layout):
    x = normal(2, *space, 3)
    each = lambda v: v if isinstance(v, tuple) else (v,) * len(space)
    sizes = each(size) if size else [int(n * f) for n, f in zip(space, each(factor))]
    scales = [n / m for n, m in zip(space, sizes)] if size else [1 / f for f in each(factor)]
    expected = x
    for axis, (new, scale) in enumerate(zip(sizes, scales), 1):
        expected = reference.resampled_axis(expected, axis, new, scale, method, align_corners)
    f = lambda x: nn.upsample(
        x, size, factor, method=method, align_corners=align_corners, layout=layout
    )
    close(f(put(x, layout)), put(expected, layout))
    if size == (8, 3):
        with amdjax.enable_x64(True):
            check_grads(f, (put(x.astype(np.float64), layout),), order=1, atol=1e-5, rtol=1e-5)


def test_upsample_of_integers_and_narrow_floats():
    x = np.arange(6, dtype=np.uint8).reshape(1, 2, 3, 1)
    np.testing.assert_array_equal(nn.upsample(x, scale_factor=2), x.repeat(2, 1).repeat(2, 2))
    assert nn.upsample(x, (3, 7)).dtype == np.uint8
    h = jnp.asarray(256 + normal(1, 5, 1), jnp.bfloat16)
    y = nn.upsample(h, 13, method="cubic")
    assert y.dtype == jnp.bfloat16
    expected = nn.upsample(h.astype(jnp.float32), 13, method="cubic").astype(jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(y, np.float32), np.asarray(expected, np.float32))


def test_transposed_taps_are_the_transposed_matrix():
    rng = np.random.default_rng(0)
    taps = Taps(rng.integers(0, 7, (12, 3)).astype(np.int32), rng.integers(-1, 3, (12, 3)) / 2)

    def matrix(taps, columns):
        dense = np.zeros((len(taps.places), columns))
        np.add.at(dense, (np.arange(len(dense))[:, None], taps.places), taps.weights)
        return dense

    np.testing.assert_array_equal(matrix(taps.transposed(7), 12), matrix(taps, 7).T)


@LAYOUTS
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("method", "space", "size"),
    [("nearest", (5, 4), (3, 6)), ("linear", (5, 4), (3, 6)), ("cubic", (5, 4), (3, 3)),
     ("linear", (7,), (5,)), ("linear", (3, 4, 2), (2, 2, 3))],
    ids=str,
)  # fmt: skip
def test_grid_sample(method, space, size, padding_mode, align_corners, layout):
    x = normal(2, *space, 3, dtype=np.float64)
    grid = np.random.default_rng(1).uniform(-1.8, 1.8, (2, *size, len(space)))
    expected = reference.grid_sample(x, grid, method, padding_mode, align_corners)
    options = {"padding_mode": padding_mode, "align_corners": align_corners, "layout": layout}
    with amdjax.enable_x64(True):
        f = lambda x, grid: nn.grid_sample(x, grid, method=method, **options)
        close(f(put(x, layout), grid), put(expected, layout), rtol=1e-12, atol=1e-12)
        if len(space) < 3 and layout == "channels_last":
            check_grads(f, (x, grid), order=1, atol=1e-5, rtol=1e-5, eps=1e-6)


def test_affine_grid_of_the_identity_samples_the_batch_itself():
    x = normal(2, 4, 5, 3)
    identity = np.tile(np.eye(2, 3, dtype=np.float32), (2, 1, 1))
    for align_corners in (False, True):
        grid = nn.affine_grid(identity, (4, 5), align_corners=align_corners)
        close(nn.grid_sample(x, grid, align_corners=align_corners), x)
    theta = normal(2, 3, 4)
    grid = nn.affine_grid(theta, (2, 3, 4))
    places = [(np.arange(n) + 0.5) * 2 / n - 1 for n in (2, 3, 4)]
    z, y, x = np.meshgrid(*places, indexing="ij")
    points = np.stack([x, y, z, np.ones_like(x)], -1)
    close(grid, np.einsum("nij,abcj->nabci", theta, points))
    assert not np.asarray(nn.affine_grid(identity, (1, 1), align_corners=True)).any()


@LAYOUTS
@pytest.mark.parametrize("space", [(3,), (2, 3), (2, 1, 3)], ids=str)
def test_pixel_shuffle_and_back(space, layout):
    x = normal(2, *space, 2 * 2 ** len(space))
    y = np.asarray(nn.pixel_shuffle(put(x, layout), 2, layout=layout))
    last = np.moveaxis(y, 1, -1) if layout == "channels_first" else y
    assert last.shape == (2, *(2 * n for n in space), 2)
    for place in np.ndindex(last.shape):
        n, *at, c = place
        offset = np.ravel_multi_index([i % 2 for i in at], (2,) * len(space))
        source = (n, *(i // 2 for i in at), c * 2 ** len(space) + offset)
        assert last[place] == x[source]
    np.testing.assert_array_equal(nn.pixel_unshuffle(y, 2, layout=layout), put(x, layout))


RESIZE = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area"]


@LAYOUTS
@pytest.mark.parametrize("method", RESIZE)
@pytest.mark.parametrize("antialias", [True, False])
def test_resize(method, antialias, layout):
    """What `image.resize` makes of the whole batch."""
    x = normal(2, 5, 6, 3)
    f = lambda x: nn.resize(x, (8, 3), method=method, antialias=antialias, layout=layout)
    expected = amdjax.image.resize(x, (2, 8, 3, 3), method, antialias)
    close(f(put(x, layout)), put(np.asarray(expected), layout))


def test_resize_of_a_constant_is_constant():
    for method in RESIZE:
        x = np.full((1, 9, 2), 3, np.float32)
        for size in (4, 9, 30):
            close(nn.resize(x, size, method=method), np.full((1, size, 2), 3))


LAYERS = {
    "Resize": (lambda: nn.Resize([3, 9], method="cubic"),
               lambda x: nn.resize(x, (3, 9), method="cubic")),
    "Upsample": (lambda: nn.Upsample(scale_factor=[2, 1.5], method="linear"),
                 lambda x: nn.upsample(x, scale_factor=(2, 1.5), method="linear")),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), lambda x: nn.pixel_shuffle(x, 2)),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), lambda x: nn.pixel_unshuffle(x, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, function = LAYERS[name]
    layer, x = make(), jnp.asarray(normal(2, 4, 6, 8))
    assert repr(layer).startswith(f"{name}(") and not amdjax.tree.leaves(layer)
    call = lambda layer, x: layer(x)
    close(amdjax.jit(call)(layer, x), function(x))
    close(amdjax.vmap(call, (None, 0))(layer, jnp.stack([x, 2 - x]))[1], function(2 - x))
    gradient = amdjax.grad(lambda x: (layer(x) ** 2).sum())
    close(gradient(x), amdjax.grad(lambda x: (function(x) ** 2).sum())(x))
    close(amdjax.vmap(gradient)(jnp.stack([x, 2 - x]))[1], gradient(2 - x))


IMAGE, GRID = np.ones((1, 4, 4, 3), np.float32), np.zeros((1, 2, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.upsample(IMAGE), ValueError, "either size or scale_factor"),
        (lambda: nn.upsample(IMAGE, 4, 2), ValueError, "either size or scale_factor"),
        (lambda: nn.upsample(IMAGE, (4, 4, 4)), ValueError, "upsample: size must have one entry"),
        (lambda: nn.upsample(IMAGE, 4.5), TypeError, "upsample: size must be"),
        (lambda: nn.upsample(IMAGE, scale_factor=-1), ValueError, "scale_factor must be"),
        (lambda: nn.upsample(IMAGE, scale_factor=0.1), ValueError, "leaves nothing"),
        (lambda: nn.upsample(IMAGE, 8, method="best"), ValueError, "method must be one of"),
        (lambda: nn.upsample(IMAGE, 8, align_corners=True), ValueError, "align_corners"),
        (lambda: nn.upsample(IMAGE.astype(int), 8, method="linear"), TypeError, "upsample: x"),
        (lambda: nn.upsample(IMAGE[0, 0], 8), ValueError, "upsample: x must have a batch"),
        (lambda: nn.grid_sample(IMAGE, GRID[0]), ValueError, "grid must have shape"),
        (lambda: nn.grid_sample(IMAGE, GRID[..., :1]), ValueError, "grid must have shape"),
        (lambda: nn.grid_sample(IMAGE, GRID.astype(int)), TypeError, "grid must have a floating"),
        (lambda: nn.grid_sample(IMAGE, GRID, padding_mode="wrap"), ValueError, "padding_mode"),
        (lambda: nn.grid_sample(IMAGE, GRID, method="area"), ValueError, "method must be"),
        (lambda: nn.affine_grid(np.ones((1, 2, 2)), (3, 3)), ValueError, "theta must have shape"),
        (lambda: nn.affine_grid(np.ones((1, 2, 3)), (3, 0)), ValueError, "affine_grid: size"),
        (lambda: nn.pixel_shuffle(IMAGE, 2), ValueError, "factor must divide the channels"),
        (lambda: nn.pixel_unshuffle(IMAGE, 3), ValueError, "factor must divide the spatial"),
        (lambda: nn.Upsample(), ValueError, "Upsample: either size or scale_factor"),
        (lambda: nn.resize(IMAGE, (4, 4, 4)), ValueError, "resize: size must have one entry"),
        (lambda: nn.resize(IMAGE, 8, method="best"), ValueError, "resize: method must be one of"),
        (lambda: nn.PixelShuffle(0), ValueError, "PixelShuffle: factor"),
        (lambda: nn.PixelUnshuffle(1.5), ValueError, "PixelUnshuffle: factor"),
    ],
)
def test_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("factor", [(1, 0.4), (2, 0.75), (3, 1)])
def test_factors_that_sizes_do_not_tell(factor):
    """Samples lie as far apart as the factor says, whether the other axis is symbolic or not."""
    x = normal(1, 5, 6, 2)
    f = lambda x: nn.upsample(x, scale_factor=factor)
    close(amdjax.jit(f, symbolic="1, h, 6, 2")(x), f(x))
