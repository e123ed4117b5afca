"""Signals, transforms, images and grids of `scipy` against SciPy."""

import warnings

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft as sp_fft
import scipy.integrate
import scipy.interpolate
import scipy.ndimage
import scipy.signal as sp

import amdjax as jax
import amdjax.numpy as jnp
from amdjax import grad, jit, vmap
from amdjax.scipy import cluster, fft, integrate, interpolate, ndimage, signal
from amdjax.test_util import check_grads

RNG = np.random.default_rng(0)
MODES = ["full", "same", "valid"]


pytestmark = pytest.mark.usefixtures("double_precision")


def close(got, want, tolerance=1e-11):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["dct", "idct", "dctn", "idctn"])
@pytest.mark.parametrize("norm", [None, "backward", "ortho"])
def test_cosine_transforms(name, norm):
    x = RNG.normal(size=(5, 8)) + 1j * RNG.normal(size=(5, 8))
    ours, theirs = getattr(fft, name), getattr(sp_fft, name)
    for value in (x.real, x):
        close(ours(value, norm=norm), theirs(value, norm=norm))
    if name.endswith("n"):
        for s, axes in (((3, 9), None), (None, (1,)), ((4,), (0,)), ((6, 2), (1, 0))):
            close(
                ours(x.real, s=s, axes=axes, norm=norm), theirs(x.real, s=s, axes=axes, norm=norm)
            )
    else:
        for n, axis in ((3, 0), (11, 1), (1, -1)):
            close(
                ours(x.real, n=n, axis=axis, norm=norm), theirs(x.real, n=n, axis=axis, norm=norm)
            )
    assert ours(x.real.astype(np.float32)).dtype == np.float32
    check_grads(lambda x: ours(x, norm=norm), (x.real,), 1)
    with pytest.raises(NotImplementedError, match="type"):
        ours(x, type=3)
    with pytest.raises(ValueError, match="norm"):
        ours(x, norm="forward")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve"])
def test_convolutions(name, mode):
    for shapes in (
        ((7,), (3,)),
        ((3,), (7,)),
        ((4,), (4,)),
        ((6, 5), (3, 2)),
        ((4, 3, 5), (4, 1, 2)),
    ):
        for kind in (np.real, np.asarray):
            a, b = (kind(RNG.normal(size=s) + 1j * RNG.normal(size=s)) for s in shapes)
            close(getattr(signal, name)(a, b, mode), getattr(sp, name)(a, b, mode))
            if name != "fftconvolve":
                fast = getattr(signal, name)(a, b, mode, method="fft")
                close(fast, getattr(sp, name)(a, b, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
@pytest.mark.parametrize(
    "shapes", [((6, 5), (3, 2)), ((3, 2), (6, 5)), ((4, 4), (4, 4)), ((5, 4), (2, 4))]
)
def test_convolutions_of_matrices(name, mode, shapes):
    a, b = (RNG.normal(size=s) + 1j * RNG.normal(size=s) for s in shapes)
    close(getattr(signal, name)(a, b, mode), getattr(sp, name)(a, b, mode))
    with pytest.raises(NotImplementedError, match="boundary"):
        getattr(signal, name)(a, b, boundary="wrap")
    with pytest.raises(ValueError, match="2-dimensional"):
        getattr(signal, name)(a[0], b[0])


def test_convolutions_along_some_axes_and_their_errors():
    a, b = RNG.normal(size=(2, 7, 3)), RNG.normal(size=(2, 4, 3))
    close(signal.fftconvolve(a, b, axes=1), sp.fftconvolve(a, b, axes=1))
    with pytest.raises(ValueError, match="mapped axes"):
        signal.fftconvolve(a, b[:1], axes=[1])
    for call in (signal.convolve, signal.fftconvolve):
        with pytest.raises(ValueError, match="mode"):
            call(a, b, "none")
    with pytest.raises(ValueError, match="One input must be"):
        signal.convolve(np.ones((2, 3)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="zero-size"):
        signal.convolve(np.ones(0), np.ones(2))
    with pytest.raises(ValueError, match="method"):
        signal.convolve(a, b, method="slow")
    check_grads(lambda a, b: signal.convolve(a, b), (a, b), 2)


def test_detrend():
    x = RNG.normal(size=(3, 40)).cumsum(-1)
    close(signal.detrend(x), sp.detrend(x))
    close(signal.detrend(x, type="constant"), sp.detrend(x, type="constant"))
    close(signal.detrend(x.T, axis=0, bp=[5, 20]), sp.detrend(x.T, axis=0, bp=[5, 20]))
    with pytest.raises(ValueError, match="Trend type"):
        signal.detrend(x, type="cubic")
    with pytest.raises(ValueError, match="Breakpoints"):
        signal.detrend(x, bp=99)


SPECTRA = [
    {}, {"nperseg": 16}, {"nperseg": 15, "noverlap": 5, "nfft": 20}, {"axis": 0, "nperseg": 4},
    {"nperseg": 8, "window": "hamming"}, {"nperseg": 8, "return_onesided": False},
    {"window": np.linspace(1, 2, 10), "nperseg": 10},
    {"nperseg": 8, "detrend": "linear"}, {"fs": 4.0},
]  # fmt: skip


@pytest.mark.parametrize("options", SPECTRA)
@pytest.mark.parametrize("name", ["welch", "csd", "stft"])
def test_spectra(name, options):
    x, y = RNG.normal(size=(2, 12, 70))
    args = (x, y) if name == "csd" else (x,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, want = getattr(signal, name)(*args, **options), getattr(sp, name)(*args, **options)
    for g, w in zip(got, want, strict=True):
        close(g, w)


@pytest.mark.parametrize("average", ["mean", "median"])
@pytest.mark.parametrize("scaling", ["density", "spectrum"])
def test_averages_and_scales(average, scaling):
    x, y = RNG.normal(size=(2, 3, 100))
    options = {"nperseg": 16, "average": average, "scaling": scaling}
    close(signal.welch(x, **options)[1], sp.welch(x, **options)[1])
    close(signal.csd(x, y, **options)[1], sp.csd(x, y, **options)[1])


@pytest.mark.parametrize("average", ["mean", "median"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_spectra_keep_the_precision_of_the_signal(dtype, average):
    x = RNG.normal(size=(2, 40)).astype(dtype)
    real = np.finfo(dtype).dtype
    options = {"nperseg": 8, "detrend": False, "return_onesided": False}
    with jax.numpy_dtype_promotion("strict"):
        for detrend in ("constant", "linear", False):
            results = signal.welch(x, **options | {"detrend": detrend}, average=average)
            assert [r.dtype for r in results] == [real, real]
        cross = signal.csd(x, x, **options, average=average)
        frequencies, times, z = signal.stft(x, **options)
        times_back, back = signal.istft(z, nperseg=8, input_onesided=False)
    wide = np.result_type(dtype, np.complex64)
    assert [r.dtype for r in (*cross, frequencies, times, times_back)] == [real, wide, *[real] * 3]
    assert (z.dtype, back.dtype) == (wide, wide)


@pytest.mark.parametrize("boundary", ["even", "odd", "constant", "zeros", None])
def test_a_signal_comes_back_from_its_spectrum(boundary):
    x = RNG.normal(size=(2, 64))
    options = {"nperseg": 16, "boundary": boundary}
    got = signal.stft(x, **options)
    for g, w in zip(got, sp.stft(x, **options), strict=True):
        close(g, w)
    _, back = signal.istft(got[2], nperseg=16, boundary=boundary is not None)
    want = sp.istft(np.asarray(got[2]), nperseg=16, boundary=boundary is not None)
    close(back, want[1])
    if boundary is not None:
        close(back, x, 1e-9)


def test_spectra_are_differentiable_and_refuse():
    x = RNG.normal(size=64)
    check_grads(lambda x: signal.welch(x, nperseg=16)[1], (x,), 1)
    check_grads(lambda x: signal.istft(signal.stft(x, nperseg=16)[2], nperseg=16)[1], (x,), 1)
    for options in ({"nperseg": 0}, {"noverlap": 300, "nperseg": 16}, {"nfft": 4, "nperseg": 16}):
        with pytest.raises(ValueError, match="nperseg"):
            signal.welch(x, **options)


@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_values_between_entries(mode, order):
    # Whole sizes beyond the array are told apart by all modes; SciPy's "wrap" is "grid-wrap" here.
    theirs = {"wrap": "grid-wrap", "constant": "grid-constant"}.get(mode, mode)
    for dtype in (np.float64, np.float32, np.int32):
        x = (RNG.normal(size=(5, 6)) * 20).astype(dtype)
        places = RNG.uniform(-7, 12, size=(2, 50))
        got = ndimage.map_coordinates(x, list(places), order, mode, cval=3.0)
        want = scipy.ndimage.map_coordinates(
            x.astype(float), places, order=order, mode=theirs, cval=3.0
        )
        assert got.dtype == dtype
        if dtype == np.int32:
            want = np.trunc(want + np.copysign(0.5, want))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_gradients_between_entries():
    x, places = RNG.normal(size=(5, 6)), RNG.uniform(0, 4, size=(2, 9))
    f = lambda x, places: ndimage.map_coordinates(x, places, 1, mode="nearest")
    check_grads(f, (x, places), 1)
    batch = np.stack([places, places + 0.25])
    close(vmap(f, (None, 0))(x, batch)[1], f(x, batch[1]))
    with pytest.raises(NotImplementedError, match="order<=1"):
        ndimage.map_coordinates(x, places, 2)
    with pytest.raises(NotImplementedError, match="mode"):
        ndimage.map_coordinates(x, places, 1, mode="grid-wrap")
    with pytest.raises(ValueError, match="sequence of length"):
        ndimage.map_coordinates(x, places[:1], 1)


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [None, np.nan, 4.0])
def test_grids(method, fill):
    grid = (np.array([0.0, 1.0, 4.0]), np.linspace(-1, 1, 5))
    values = RNG.normal(size=(3, 5, 2))
    points = RNG.uniform(-1.5, 4.5, size=(40, 2))
    f = interpolate.RegularGridInterpolator(grid, values, method, fill_value=fill)
    g = scipy.interpolate.RegularGridInterpolator(
        grid, values, method, bounds_error=False, fill_value=fill
    )
    close(f(points), g(points))
    close(jit(lambda f, x: f(x))(f, points), g(points))
    close(f((points[:, 0], 0.25)), g((points[:, 0], 0.25)))


def test_grids_are_differentiable_and_refuse():
    grid, values = (np.arange(4.0),), RNG.normal(size=4)
    make = interpolate.RegularGridInterpolator
    close(grad(lambda v: make(grid, v)(np.array([0.25]))[0])(values), [0.75, 0.25, 0, 0])
    with pytest.raises(ValueError, match="method"):
        make(grid, values, "cubic")
    with pytest.raises(ValueError, match="point arrays"):
        make((*grid, *grid), values)
    with pytest.raises(NotImplementedError, match="bounds_error"):
        make(grid, values, bounds_error=True)
    with pytest.raises(ValueError, match="fill_value"):
        make(grid, values, fill_value=1j)
    with pytest.raises(ValueError, match="dimension"):
        make(grid, values)(np.ones((3, 2)))


def test_codes_and_integrals():
    codes, points = RNG.normal(size=(5, 3)), RNG.normal(size=(20, 3))
    for g, w in zip(cluster.vq.vq(points, codes), scipy.cluster.vq.vq(points, codes), strict=True):
        close(g, w)
    with pytest.raises(ValueError, match="same rank"):
        cluster.vq.vq(points, codes[0])
    y, x = RNG.normal(size=(2, 9)), np.sort(RNG.normal(size=9))
    close(integrate.trapezoid(y, x), scipy.integrate.trapezoid(y, x))
    assert integrate.trapezoid(jnp.arange(3)).dtype == np.float64
