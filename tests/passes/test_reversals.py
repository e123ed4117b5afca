"""Convolutions with reversed kernels read these where they lie."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.check import check_jaxpr
from amdjax.core.config import disabled_passes
from amdjax.passes import Facts, prepare
from amdjax.passes.reversals import read_reversed_kernels

FIRST, LAST, MIXED = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NHWC", "IOHW", "NHWC")
RNG = np.random.default_rng(0)


def draw(shape, dtype):
    if np.dtype(dtype).kind in "iu":
        return RNG.integers(-50, 50, shape).astype(dtype)
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if dtype == "complex64" else x).astype(dtype)


def operands(numbers, dtype, batch=2, into=6, out=5, taps=(3, 2), size=(9, 8)):
    sizes = {"N": batch, "C": into, "O": out, "I": into, "H": 0, "W": 1}
    at = lambda spec, space: [space[sizes[c]] if c in "HW" else sizes[c] for c in spec]
    return draw(at(numbers[0], size), dtype), draw(at(numbers[1], taps), dtype)


def primitives(closed):
    return [e.primitive.name for e in closed.eqns]


def check(x, w, numbers, turned="HW", ulps=4, **options):
    """As with a kernel that was reversed by NumPy."""
    axes = tuple(numbers[1].index(c) for c in turned)
    options = {"window_strides": (1, 1), "padding": ((1, 2), (0, 1)), **options}

    def f(x, w):
        return lax.conv_general_dilated(x, lax.rev(w, axes), dimension_numbers=numbers, **options)

    # which may have them moved and reversed at once
    off = {"disabled_passes": "choose_layouts"}
    compiled = amdjax.jit(f).lower(x, w).compile(compiler_options=off)
    changed = [c.name for c in compiled.passes if c.source is not c.result]
    assert "read_reversed_kernels" in changed
    assert " rev[" not in compiled.as_text("simplified")
    flipped = np.ascontiguousarray(np.flip(w, axes))
    plain = lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=numbers, **options)
    got, want = np.asarray(compiled(x, w)), np.asarray(amdjax.jit(plain)(x, flipped))
    assert got.dtype == want.dtype
    if got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        eps = jnp.finfo(got.dtype).eps
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        got, want = got.astype(wide), want.astype(wide)
        np.testing.assert_allclose(got, want, rtol=0, atol=ulps * eps * np.abs(want).max())


@pytest.mark.parametrize("turned", ["HW", "W"])
@pytest.mark.parametrize("numbers", [FIRST, LAST, MIXED], ids=["first", "last", "mixed"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window_strides": (2, 1)},
        {"lhs_dilation": (2, 1)},
        {"lhs_dilation": (2, 3), "window_strides": (3, 1)},
        {"rhs_dilation": (1, 2)},
    ],
    ids=str,
)
def test_layouts_and_steps(numbers, turned, options):
    check(*operands(numbers, "float32"), numbers, turned, **options)


@pytest.mark.parametrize("numbers", [FIRST, LAST], ids=["first", "last"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex64", "int32", "int8"])
def test_dtypes(numbers, dtype):
    with amdjax.enable_x64(True):
        check(*operands(numbers, jnp.dtype(dtype)), numbers)
    if dtype == "int8":
        x, w = operands(numbers, "uint8"), operands(numbers, "int8")
        check(x[0], w[1], numbers, preferred_element_type=np.int32)


@pytest.mark.parametrize("numbers", [FIRST, LAST], ids=["first", "last"])
@pytest.mark.parametrize(
    ("batch", "into", "out", "taps", "size"),
    [
        (1, 64, 96, (3, 3), (7, 7)), (4, 32, 64, (3, 3), (16, 16)), (8, 3, 16, (5, 5), (20, 20)),
        (1, 1, 40, (3, 3), (30, 31)), (1, 128, 1, (3, 3), (6, 5)), (2, 16, 24, (1, 7), (4, 33)),
    ],
)  # fmt: skip
def test_sizes_of_which_each_has_another_plan(numbers, batch, into, out, taps, size):
    x, w = operands(numbers, "float32", batch, into, out, taps, size)
    check(x, w, numbers, ulps=16)


def test_winograd_reads_them_too():
    x, w = operands(LAST, "float32", 2, 32, 32, (3, 3), (12, 12))
    check(x, w, LAST, ulps=64, precision="default")


def prepared(f, *args):
    closed = prepare(amdjax.make_jaxpr(f)(*args), Facts(machine="cpu"))
    check_jaxpr(closed.jaxpr)
    return closed


@pytest.mark.parametrize("numbers", [FIRST, LAST], ids=["first", "last"])
def test_gradients_of_images_reverse_nothing(numbers):
    x, w = operands(numbers, "float32")
    f = lambda x, w: lax.conv_general_dilated(
        jnp.sin(x), w, (2, 1), "SAME", dimension_numbers=numbers
    ).sum()
    assert "rev" not in primitives(prepared(amdjax.grad(f, argnums=(0, 1)), x, w))
    with disabled_passes("read_reversed_kernels"):
        assert "rev" in primitives(prepared(amdjax.grad(f, argnums=(0, 1)), x, w))


def test_what_stays_as_it_is():
    """Groups, axes that are no taps, and kernels that others read reversed."""
    x, w = operands(LAST, "float32")
    conv = lambda x, w, **options: lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=LAST, **options
    )
    features = prepared(lambda x, w: conv(x, lax.rev(w, (0, 2))), x, w)
    grouped = prepared(
        lambda x, w: conv(x, lax.rev(w, (0, 1)), feature_group_count=6),
        x, draw((3, 2, 1, 6), "float32"),
    )  # fmt: skip
    for closed in (features, grouped):
        assert "rev" in primitives(closed)
        assert read_reversed_kernels(closed) is closed

    def twice(x, w):
        v = lax.rev(w, (0, 1))
        return conv(x, v), jnp.sort(v)

    assert "rev" in primitives(prepared(twice, x, w))
    np.testing.assert_allclose(
        amdjax.jit(twice)(x, w)[0], conv(x, w[::-1, ::-1]), rtol=1e-5, atol=1e-5
    )
