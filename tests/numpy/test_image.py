"""`image` against Pillow's filters, exact averages and differences."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import enable_x64, image, jit, vmap
from amdjax.test_util import check_grads

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
FILTERS = {"linear": Image.BILINEAR, "lanczos3": Image.LANCZOS, "cubic": Image.BICUBIC}
METHODS = ["linear", "lanczos3", "lanczos5", "cubic", "cubic-pytorch", "area"]


@pytest.mark.parametrize("method", FILTERS)
@pytest.mark.parametrize("shape", [(5, 7), (20, 30), (9, 30), (12, 17)])
def test_against_pillow(method, shape):
    x = RNG.uniform(size=(12, 17)).astype(np.float32)
    want = np.asarray(Image.fromarray(x).resize(shape[::-1], FILTERS[method]))
    np.testing.assert_allclose(image.resize(x, shape, method), want, atol=2e-5)
    np.testing.assert_allclose(jit(lambda x: image.resize(x, shape, method))(x), want, atol=2e-5)


def test_nearest_keeps_values_and_dtype():
    x = np.arange(12, dtype=np.int8).reshape(3, 4)
    got = image.resize(x, (6, 2), "nearest")
    assert got.dtype == np.int8
    np.testing.assert_array_equal(got, x[[0, 0, 1, 1, 2, 2]][:, [1, 3]])


def test_areas_are_means():
    x = RNG.normal(size=(6, 8)).astype(np.float32)
    want = x.reshape(3, 2, 4, 2).mean((1, 3))
    np.testing.assert_allclose(image.resize(x, (3, 4), "area"), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("antialias", [False, True])
def test_constants_stay_and_equal_sizes_change_nothing(method, antialias):
    x = RNG.normal(size=(5, 6, 2)).astype(np.float32)
    np.testing.assert_array_equal(image.resize(x, x.shape, method, antialias), x)
    ones = image.resize(np.ones((5, 6)), (11, 3), method, antialias)
    np.testing.assert_allclose(ones, 1, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_gradients(method):
    x, scale, move = RNG.normal(size=(4, 5)), np.array([1.6, 0.7]), np.array([0.3, -0.2])
    with enable_x64(True):
        f = lambda x, s, t: image.scale_and_translate(x, (7, 4), (0, 1), s, t, method, False)
        check_grads(f, (x, scale, move), 1, atol=1e-5, rtol=1e-5)
        check_grads(lambda x: image.resize(x, (2, 9), method), (x,), 1)
        batch = np.stack([x, x + 1])
        np.testing.assert_allclose(
            vmap(lambda x: f(x, scale, move))(batch)[1], f(batch[1], scale, move)
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex64, np.int32])
@pytest.mark.parametrize("method", ["linear", "cubic", "cubic-pytorch", "lanczos3", "area"])
@pytest.mark.parametrize("antialias", [True, False])
def test_few_samples_are_summed_as_by_a_product(method, dtype, antialias):
    """The same sizes by `scale_and_translate`, which multiplies by a matrix of weights."""
    x = np.random.default_rng(0).integers(-9, 9, (2, 60, 41, 3)).astype(dtype)
    for shape in ((2, 110, 90, 3), (2, 45, 33, 3)):
        got = image.resize(x, shape, method, antialias)
        scale = np.array([n / m for n, m in zip(shape[1:3], x.shape[1:3])], np.float32)
        translation = np.zeros(2, np.float32)
        wide = x.astype(np.complex64 if dtype == np.complex64 else np.float32)
        want = image.scale_and_translate(wide, shape, (1, 2), scale, translation, method, antialias)
        assert got.dtype == (np.float32 if dtype == np.int32 else dtype)
        tolerance = 0.02 if dtype == np.float16 else 2e-4
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_moving_by_whole_samples():
    x = jnp.arange(6.0)
    for method in METHODS[:4]:
        got = image.scale_and_translate(x, (6,), (0,), jnp.ones(1), jnp.array([2.0]), method)
        np.testing.assert_allclose(got, [0, 0, 0, 1, 2, 3], atol=1e-6)
    got = image.scale_and_translate(
        x[None], (1, 6), (-1,), jnp.ones(1), jnp.array([-1.0]), "linear"
    )
    np.testing.assert_allclose(got, [[1, 2, 3, 4, 5, 0]], atol=1e-6)


def test_refusals():
    x = jnp.ones((3, 4))
    with pytest.raises(ValueError, match="number of dimensions"):
        image.resize(x, (3,), "linear")
    with pytest.raises(ValueError, match="Unknown resize method"):
        image.resize(x, (3, 2), "sharp")
    with pytest.raises(ValueError, match="Nearest"):
        image.scale_and_translate(x, (3, 4), (0,), jnp.ones(1), jnp.ones(1), "nearest")
    assert hasattr(amdjax, "image")
