"""Winograd's convolutions: matrices, values over sizes and layouts, errors, where they apply."""

from fractions import Fraction

import numpy as np
import pytest

import amdjax
from amdjax import jit, lax
from amdjax.core.config import disabled_passes
from amdjax.kernels.products.cpu import dispatch, winograd
from amdjax.schedule.search import Family

SOLVERS = ("Winograd F(2, 3)", "Winograd F(4, 3)")
NHWC = ("NHWC", "HWIO", "NHWC")


@pytest.fixture(params=SOLVERS)
def solver(request, monkeypatch):
    """Convolutions are computed by one of the solvers where it applies."""
    family, find, used = dispatch.CONVOLUTIONS, Family.find, []

    def choose(self, problem, machine):
        if self is not family:
            return find(self, problem, machine)
        (chosen,) = (s for s in self.solvers if s.name == request.param)
        plans = chosen.plans(problem, machine)
        used.extend(plans)
        return plans[0] if plans else find(self, problem, machine)

    monkeypatch.setattr(Family, "find", choose)
    amdjax.clear_caches()
    yield used
    amdjax.clear_caches()


@pytest.mark.parametrize("transforms", [winograd.F23, winograd.F43])
def test_matrices_are_exact(transforms):
    """In rational numbers, of every unit vector of data and of kernels."""
    n = transforms.size + 2
    for i in range(n):
        for j in range(3):
            data = [exact(row[i]) for row in transforms.data]
            kernel = [exact(row[j]) for row in transforms.kernel]
            products = [x * y for x, y in zip(data, kernel, strict=True)]
            found = [sum(exact(a) * x for a, x in zip(row, products)) for row in transforms.out]
            assert found == [Fraction(i == k + j) for k in range(transforms.size)]


@pytest.mark.parametrize("shape", [(1, 4, 4), (2, 9, 7), (1, 1, 13), (3, 6, 1), (1, 2, 2)])
@pytest.mark.parametrize("features", [(1, 1), (5, 16), (16, 33), (37, 8)])
@pytest.mark.parametrize("padding", ["SAME", "VALID", ((2, 0), (1, 3))])
def test_values(solver, shape, features, padding):
    rng = np.random.default_rng(3)
    if padding == "VALID" and min(shape[1:]) < 3:
        pytest.skip("no positions")
    x = rng.standard_normal((*shape, features[0])).astype(np.float32)
    w = rng.standard_normal((3, 3, *features)).astype(np.float32)
    found = jit(lambda x, w: convolution(x, w, padding))(x, w)
    assert solver
    expected = reference(x, w, padding)
    error = np.abs(np.asarray(found) - expected).max()
    assert error <= 2e-5 * 9 * features[0] ** 0.5


def exact(x):
    return Fraction(x).limit_denominator(100)


def convolution(x, w, padding="SAME", form=NHWC, **options):
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=form, **options)


def reference(x, w, padding):
    """In float64, window by window."""
    if isinstance(padding, str):
        padding = ((1, 1), (1, 1)) if padding == "SAME" else ((0, 0), (0, 0))
    x = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return np.einsum("nhwcyx,yxcf->nhwf", windows, w.astype(np.float64))


def test_what_is_fused_behind(solver):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 10, 11, 8)), rng.standard_normal((3, 3, 8, 19))
    x, w, b = x.astype(np.float32), w.astype(np.float32), np.arange(19, dtype=np.float32)
    f = jit(lambda x, w, b: np.float32(2) * amdjax.nn.relu(convolution(x, w) + b))
    expected = 2 * np.maximum(reference(x, w, "SAME") + b, 0)
    np.testing.assert_allclose(np.asarray(f(x, w, b)), expected, 1e-4, 1e-3)
    assert solver


def test_gradients(solver):
    """Of the input: kernels turned around, whose output features lie apart."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 8, 9, 6)).astype(np.float32)
    w = rng.standard_normal((3, 3, 6, 10)).astype(np.float32)
    ct = rng.standard_normal((1, 8, 9, 10)).astype(np.float32)
    (found,) = jit(lambda x, ct: amdjax.vjp(lambda x: convolution(x, w), x)[1](ct))(x, ct)
    turned = np.swapaxes(w[::-1, ::-1], 2, 3)
    np.testing.assert_allclose(np.asarray(found), reference(ct, turned, "SAME"), 1e-4, 1e-3)
    assert solver


def test_errors(solver):
    """Far below what their growth allows, near those of other plans."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 24, 24, 64)).astype(np.float32)
    w = rng.standard_normal((3, 3, 64, 32)).astype(np.float32)
    found = np.asarray(jit(convolution)(x, w))
    error = np.abs(found - reference(x, w, "SAME")).max()
    (plan, *_) = solver
    transforms = winograd.F23 if plan.size == 2 else winograd.F43
    scale = np.finfo(np.float32).eps * reference(abs(x), abs(w), "SAME").max()
    assert error <= scale * transforms.error_growth
    assert error <= scale * (1 if plan.size == 2 else 16)


@pytest.mark.parametrize(
    "case",
    [
        lambda x, w: convolution(x.astype(np.float64), w.astype(np.float64)),
        lambda x, w: convolution(x.astype(np.float16), w.astype(np.float16)),
        lambda x, w: convolution(x, w, precision="highest"),
        lambda x, w: convolution(x, w, rhs_dilation=(2, 2)),
        lambda x, w: convolution(x, w, ((1, 1), (1, 1)), lhs_dilation=(2, 2)),
        lambda x, w: convolution(x, w[:2]),
        lambda x, w: convolution(x, w[:, :, :1], feature_group_count=8),
        lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=NHWC),
        lambda x, w: convolution(
            np.moveaxis(x, 3, 1), w, form=("NCHW", "HWIO", "NCHW")
        ),
    ],
)  # fmt: skip
def test_where_it_does_not_apply(solver, case):
    x, w = np.ones((1, 6, 6, 8), np.float32), np.ones((3, 3, 8, 8), np.float32)
    # Of the last case the layout could be another one.
    with amdjax.enable_x64(True), disabled_passes("choose_layouts"):
        case(x, w)
    assert not solver


@pytest.mark.parametrize("precision", [None, "fastest", "high"])
def test_estimates_choose_it_where_results_may_be_less_accurate(precision):
    x, w = np.ones((1, 56, 56, 64), np.float32), np.ones((3, 3, 64, 64), np.float32)
    f = jit(lambda x, w: convolution(x, w, precision=precision))
    found = "Winograd" in f.lower(x, w).compile().as_text("schedule")
    assert found == (precision == "fastest")


def test_estimates_leave_it_where_it_is_slower():
    """Few features: transforms take longer than they save."""
    x, w = np.ones((1, 56, 56, 3), np.float32), np.ones((3, 3, 3, 16), np.float32)
    f = jit(lambda x, w: convolution(x, w, precision="fastest"))
    assert "Winograd" not in f.lower(x, w).compile().as_text("schedule")


def test_large_pixels_stay_in_their_windows():
    """Unless it is asked for speed: a pixel loses no accuracy to others that it does not see."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 56, 56, 64)).astype(np.float32)
    w = rng.standard_normal((3, 3, 64, 64)).astype(np.float32)
    x[0, 20, 20] = 1e30
    found = np.asarray(jit(lambda x, w: convolution(x, w))(x, w)).astype(np.float64)
    sees = np.zeros((56, 56), bool)
    sees[19:22, 19:22] = True
    expected = reference(x, w, "SAME")
    np.testing.assert_allclose(found[0, ~sees], expected[0, ~sees], 1e-4, 1e-3)
