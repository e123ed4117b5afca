import contextlib
import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.kernels
from amdjax import lax
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.jit.cpu.kernels import kernel_text
from amdjax.jit.plan import plan_program
from amdjax.kernels.products import contraction
from amdjax.kernels.products.convolution import phases_of_axis
from amdjax.kernels.products.cpu.dispatch import PRODUCTS
from amdjax.kernels.products.cpu.implicit import IMPLICIT
from amdjax.kernels.products.cpu.implicit_gradient import IMPLICIT_GRADIENT
from amdjax.lax.conv import ConvDimensionNumbers, conv_general_dilated_p
from amdjax.lax.elementwise import add_p
from amdjax.targets.cpu import CpuTarget
from tests.support.convolutions import plain_conv
from tests.support.kernel_runner import Runner, target
from tests.support.solvers import everywhere


def specs(layout, spatial):
    """Places of (batch, feature, spatial…) in operand, kernel and result."""
    inner = tuple(range(spatial))
    if layout.startswith("turned "):  # the last spatial axis is the outermost
        return [
            (*spec[:2], *reversed(spec[2:]))
            for spec in specs(layout.removeprefix("turned "), spatial)
        ]
    if layout == "last":
        last = (0, spatial + 1, *(i + 1 for i in inner))
        return last, (spatial + 1, spatial, *inner), last
    if layout == "transposed":  # as gradients with respect to the input see a kernel
        last = (0, spatial + 1, *(i + 1 for i in inner))
        return last, (spatial, spatial + 1, *inner), last
    if layout == "first":
        first = (0, 1, *(i + 2 for i in inner))
        return first, first, first
    if layout == "first gradient":  # batch and features change places in each
        return ((1, 0, *(i + 2 for i in inner)),) * 3
    if layout == "gradient":  # batch and features change places
        turned = (spatial + 1, 0, *(i + 1 for i in inner))
        return turned, turned, (spatial, spatial + 1, *inner)
    mixed = (spatial, 0, *(i + 1 for i in reversed(range(spatial - 1))), spatial + 1)
    return mixed, (1, 0, *(i + 2 for i in inner)), (0, spatial + 1, *(i + 1 for i in inner))


def placed(x, spec):
    """From (batch, feature, spatial…) to a layout."""
    return np.ascontiguousarray(np.transpose(x, np.argsort(spec)))


def make(
    x,
    w,
    layout,
    strides,
    padding,
    dilation=None,
    window_dilation=None,
    groups=1,
    batch_groups=1,
    preferred=None,
    **options,
):
    spatial = len(strides)
    ones = (1,) * spatial
    lhs, rhs, out = specs(layout, spatial)
    params = {
        "window_strides": tuple(strides), "padding": tuple(padding),
        "lhs_dilation": tuple(dilation or ones), "rhs_dilation": tuple(window_dilation or ones),
        "dimension_numbers": ConvDimensionNumbers(lhs, rhs, out), "feature_group_count": groups,
        "batch_group_count": batch_groups, "precision": None, "preferred_element_type": preferred,
        "out_sharding": None,
    }  # fmt: skip
    operands = placed(x, lhs), placed(w, rhs)
    return Runner(conv_general_dilated_p, operands, params, **options), operands, out


def check(
    x,
    w,
    layout,
    strides,
    padding,
    dilation=None,
    window_dilation=None,
    groups=1,
    batch_groups=1,
    **machine,
):
    runner, operands, out_spec = make(
        x, w, layout, strides, padding, dilation, window_dilation, groups, batch_groups, **machine
    )
    got = np.transpose(runner(*operands), out_spec)
    ones = (1,) * len(strides)
    wide = {"c": np.complex128, "i": np.int64, "u": np.int64}.get(x.dtype.kind, np.float64)
    arguments = (strides, padding, dilation or ones, window_dilation or ones, groups, batch_groups)
    want = plain_conv(x.astype(wide), w.astype(wide), *arguments)
    assert got.shape == want.shape
    if x.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        return runner
    scale = plain_conv(abs(x.astype(wide)), abs(w.astype(wide)), *arguments)
    eps = np.finfo(got.dtype).eps
    sums = min(eps, np.finfo(np.float32).eps) if got.dtype != np.float64 else eps
    depth = math.prod(w.shape[1:])
    bound = (
        (4 + depth) * sums * abs(scale) + eps * abs(want) + (1e-7 if got.dtype == np.float16 else 0)
    )
    error = abs(got - want)
    assert (error <= bound).all(), (error / np.maximum(bound, 1e-300)).max()
    return runner


def arrays(seed, x_shape, w_shape, dtype=np.float32):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return tuple(rng.integers(-9, 9, s).astype(dtype) for s in (x_shape, w_shape))
    if np.dtype(dtype).kind == "c":
        return tuple(
            (rng.standard_normal(s) + 1j * rng.standard_normal(s)).astype(dtype)
            for s in (x_shape, w_shape)
        )
    return tuple(rng.standard_normal(s).astype(dtype) for s in (x_shape, w_shape))


@st.composite
def convolutions(draw):
    spatial = draw(st.integers(1, 3))
    few = lambda lo, hi: tuple(draw(st.integers(lo, hi)) for _ in range(spatial))
    kind = draw(st.sampled_from(["plain", "grouped", "depthwise", "batched"]))
    groups = draw(st.integers(2, 20)) if kind != "plain" else 1
    inputs = 1 if kind == "depthwise" else draw(st.sampled_from([1, 2, 5, 16]))
    features = draw(st.sampled_from([1, 2, 3, 17]))
    images = draw(st.integers(1, 3))
    window, extent = few(1, 4), few(1, 9 if spatial > 1 else 40)
    batched = kind == "batched"
    x_shape = (images * (groups if batched else 1), inputs * (1 if batched else groups), *extent)
    options = dict(
        layout=draw(st.sampled_from(["last", "first", "gradient", "mixed"])), strides=few(1, 3),
        padding=tuple((draw(st.integers(-1, 3)), draw(st.integers(-1, 3))) for _ in range(spatial)),
        dilation=few(1, 3), window_dilation=few(1, 3),
        groups=1 if batched else groups, batch_groups=groups if batched else 1,
    )  # fmt: skip
    return x_shape, (features * groups, inputs, *window), options


def has_room(x_shape, w_shape, options):
    """Whether the padded input is no smaller than nothing, as the type rule demands."""
    for d in range(len(options["strides"])):
        spread = (x_shape[2 + d] - 1) * options["dilation"][d] + 1 + sum(options["padding"][d])
        if spread < (w_shape[2 + d] - 1) * options["window_dilation"][d] + 1:
            return False
    return True


@pytest.mark.turns(3)
@settings(max_examples=80, deadline=None)
@given(
    convolutions(),
    st.sampled_from([np.float32] * 3 + [np.float64, np.float16, np.int32, np.complex64]),
)
def test_against_the_definition(conv, dtype):
    x_shape, w_shape, options = conv
    if has_room(x_shape, w_shape, options):
        check(*arrays(0, x_shape, w_shape, dtype), **options)


CASES = [
    ((2, 64, 14, 14), (64, 64, 3, 3), dict(strides=(1, 1), padding=[(1, 1)] * 2)),
    ((2, 64, 14, 14), (128, 64, 1, 1), dict(strides=(2, 2), padding=[(0, 0)] * 2)),
    ((2, 3, 40, 40), (32, 3, 7, 7), dict(strides=(2, 2), padding=[(3, 3)] * 2)),
    ((2, 64, 20, 20), (64, 1, 3, 3), dict(strides=(1, 1), padding=[(1, 1)] * 2, groups=64)),
    ((2, 40, 9, 50), (80, 1, 5, 3), dict(strides=(1, 2), padding=[(2, 2), (0, 1)], groups=40)),
    ((1, 6, 5, 90), (6, 1, 2, 40), dict(strides=(1, 1), padding=[(0, 0), (9, 30)], groups=6)),
    ((2, 64, 12, 12), (64, 8, 3, 3), dict(strides=(1, 1), padding=[(1, 1)] * 2, groups=8)),
    ((2, 32, 9, 9), (48, 32, 4, 4), dict(strides=(1, 1), padding=[(2, 2)] * 2, dilation=(2, 2))),
    ((2, 300, 8, 8), (40, 300, 3, 3), dict(strides=(1, 1), padding=[(1, 1)] * 2)),
    ((1, 1, 30, 30), (16, 1, 3, 3), dict(strides=(1, 1), padding=[(1, 1)] * 2)),
    ((2, 40, 11, 9), (3, 40, 5, 4), dict(strides=(1, 1), padding=[(3, 2)] * 2, dilation=(2, 2))),
    ((2, 32, 11, 9), (1, 32, 3, 3), dict(strides=(1, 1), padding=[(1, 1)] * 2)),
]
DILATED = dict(strides=(1, 1), padding=[(3, 1)] * 2, window_dilation=(2, 2))
GRADIENTS = [
    ((32, 4, 12, 12), (24, 4, 12, 12), dict(strides=(1, 1), padding=[(1, 1)] * 2)),
    ((3, 2, 30, 30), (20, 2, 12, 12), DILATED),
    ((40, 3, 11, 9), (40, 3, 11, 9), dict(strides=(1, 1), padding=[(1, 1)] * 2, batch_groups=40)),
    ((32, 3, 14, 14), (64, 3, 14, 14), dict(strides=(1, 1), padding=[(1, 1)] * 2, batch_groups=8)),
    ((16, 8, 40, 40), (16, 8, 40, 40), dict(strides=(1, 1), padding=[(1, 1)] * 2)),
    ((12, 6, 14, 14), (36, 2, 14, 14), dict(strides=(1, 1), padding=[(1, 1)] * 2, groups=3)),
]


def implicit_products(number):
    """Implicit products wherever there are such, by the plan of that number."""
    return everywhere(IMPLICIT, number)


@contextlib.contextmanager
def explicit_columns():
    """Operands that are no plain matrices are written out; yields what was."""
    usually, written = PRODUCTS.solvers, []
    (solver,) = (s for s in usually if s.name == "explicit columns")

    def usual(product, machine):
        plans = solver.plans(product, machine)
        written.extend(plans)
        return plans[0] if plans else None

    PRODUCTS.solvers = [dataclasses.replace(solver, usual=usual, tier=-1), *usually]
    try:
        yield written
    finally:
        PRODUCTS.solvers = usually


@pytest.mark.turns(3)
@settings(max_examples=60, deadline=None)
@given(
    convolutions(),
    st.sampled_from([np.float32] * 3 + [np.float64, np.float16, np.int32]),
    st.integers(1, 3), st.sampled_from([128, 512]),
    st.sampled_from(["last", "first", "transposed", "gradient", "mixed"]),
)  # fmt: skip
def test_explicit_columns(conv, dtype, threads, bits, layout):
    x_shape, w_shape, options = conv
    machine = dataclasses.replace(target(threads), vector_bits=min(bits, target().vector_bits))
    if has_room(x_shape, w_shape, options):
        with explicit_columns():
            operands = arrays(0, x_shape, w_shape, dtype)
            check(*operands, **options | {"layout": layout}, cpu_target=machine)


@pytest.mark.parametrize("x_shape, w_shape, options", [*CASES, *GRADIENTS])
def test_explicit_columns_of_networks(x_shape, w_shape, options):
    """Forward, and as gradients of kernels are laid out."""
    for layout in ("last", "gradient"):
        with explicit_columns() as written:
            check(*arrays(1, x_shape, w_shape), layout=layout, **options)
        few = 1 in (w_shape[1], x_shape[0] // options.get("batch_groups", 1))
        few = few or (options.get("groups", 1) > 1 and x_shape[1] == w_shape[0])
        assert written or few or w_shape[2:] == (1, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "x_shape, w_shape, options",
    [
        ((2, 64, 12, 12), (64, 8, 3, 3), dict(strides=(1, 1), padding=[(1, 1)] * 2, groups=8)),
        ((2, 24, 9, 11), (24, 4, 3, 3), dict(strides=(2, 1), padding=[(1, 1)] * 2, groups=6)),
        ((1, 32, 5, 40), (32, 2, 2, 20), dict(strides=(1, 2), padding=[(3, 9)] * 2, groups=16)),
        ((2, 20, 7, 9), (20, 2, 2, 3), DILATED | dict(groups=10)),
        ((1, 36, 6, 5), (36, 4, 3, 3), dict(strides=(1, 1), padding=[(2, 2)] * 2, groups=9,
                                            dilation=(2, 2))),
    ],
)  # fmt: skip
def test_groups_of_few_features_side_by_side_in_a_vector(x_shape, w_shape, options, dtype):
    x, w = arrays(3, x_shape, w_shape, dtype)
    for threads, bits in ((1, 512), (3, 256), (1, 128)):
        machine = dataclasses.replace(target(threads), vector_bits=bits)
        check(x, w, **options, layout="last", cpu_target=machine)


def test_explicit_columns_of_one_image_and_none():
    for images in (0, 1):
        x, w = np.ones((images, 3, 9, 9), np.float32), np.ones((4, 3, 7, 7), np.float32)
        with explicit_columns():
            check(x, w, "last", (2, 2), [(3, 3)] * 2)


@pytest.mark.turns(3)
@settings(max_examples=60, deadline=None)
@given(
    convolutions(), st.sampled_from([np.float32] * 3 + [np.float64, np.float16, np.int32]),
    st.integers(0, 5), st.integers(1, 3), st.sampled_from([128, 512]),
)  # fmt: skip
def test_implicit_products(conv, dtype, number, threads, bits):
    x_shape, w_shape, options = conv
    machine = dataclasses.replace(target(threads), vector_bits=min(bits, target().vector_bits))
    if has_room(x_shape, w_shape, options):
        with implicit_products(number):
            operands = arrays(0, x_shape, w_shape, dtype)
            for layout in ("last", "turned last"):
                check(*operands, **options | {"layout": layout}, cpu_target=machine)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("x_shape, w_shape, options", CASES)
def test_implicit_products_of_networks(x_shape, w_shape, options, number):
    with implicit_products(number):
        check(*arrays(1, x_shape, w_shape), layout="last", **options)
        runner, operands, _ = make(*arrays(1, x_shape, w_shape), "last", **options)
    others, _, _ = make(*arrays(1, x_shape, w_shape), "last", **options)
    np.testing.assert_allclose(runner(*operands), others(*operands), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("width", [5, 7, 13, 28])
def test_implicit_products_of_two_heights(width, monkeypatch):
    monkeypatch.setattr(contraction, "EVEN_GAIN", math.inf)
    monkeypatch.setattr(contraction, "EVEN_WORK", 0)
    operands = arrays(0, (2, 5, 3, width), (19, 5, 3, 3))
    for bits, number in itertools.product((128, 256, 512), range(2)):
        machine = dataclasses.replace(target(), vector_bits=bits)
        with implicit_products(number) as plans:
            options = dict(strides=(1, 1), padding=[(1, 1)] * 2)
            check(*operands, layout="last", **options, cpu_target=machine)
        assert number or all(" and " in str(plan) for plan in plans)


def test_implicit_products_begin_long_sums_anew():
    """One sum of all 4608 products has twice the error."""
    x, w = arrays(0, (1, 512, 7, 7), (16, 512, 3, 3))
    with implicit_products(0):
        runner, operands, out = make(x, w, "last", (1, 1), [(1, 1)] * 2)
    wide = x.astype(float), w.astype(float)
    want = plain_conv(*wide, (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), 1, 1)
    error = np.transpose(runner(*operands), out) - want
    assert np.sqrt(np.square(error).mean() / np.square(want).mean()) < 6e-7


def test_implicit_products_read_nothing_that_does_not_exist():
    """What is not finite reaches only the results whose windows hold it."""
    x, w = arrays(0, (2, 5, 9, 10), (7, 5, 3, 3))
    x[1, 2, 4, 5] = np.inf
    with implicit_products(0):
        runner, operands, out = make(x, w, "last", (1, 1), [(1, 1)] * 2)
    finite = np.isfinite(np.transpose(runner(*operands), out)).all(1)
    want = np.ones((2, 9, 10), bool)
    want[1, 3:6, 4:7] = False
    np.testing.assert_array_equal(finite, want)


@pytest.mark.turns(3)
@settings(max_examples=80, deadline=None)
@given(
    convolutions(), st.sampled_from([np.float32] * 3 + [np.float64, np.float16, np.int32]),
    st.integers(0, 5), st.integers(1, 3), st.sampled_from([128, 512]),
    st.sampled_from([1 << 14, 1 << 16, 1 << 19]),
)  # fmt: skip
def test_implicit_gradients(conv, dtype, number, threads, bits, cache):
    x_shape, w_shape, options = conv
    bits = min(bits, target().vector_bits)
    machine = dataclasses.replace(target(threads), vector_bits=bits, l2_bytes=cache)
    if has_room(x_shape, w_shape, options):
        with everywhere(IMPLICIT_GRADIENT, number):
            operands = arrays(0, x_shape, w_shape, dtype)
            for layout in ("gradient", "turned gradient"):
                check(*operands, **options | {"layout": layout}, cpu_target=machine)


@pytest.mark.parametrize("layout", ["last", "gradient"])
@pytest.mark.parametrize("apart", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_axes_along_which_taps_are_as_far_apart(layout, apart):
    """What is summed over has one order, also where strides do not tell it: taps, features."""
    solver = IMPLICIT if layout == "last" else IMPLICIT_GRADIENT
    for shape in itertools.product((1, 2), repeat=4):
        x, w = arrays(0, shape, (3, shape[1], 2, 2), np.int32)
        for turned in ("", "turned "):
            with everywhere(solver, 0):
                check(x, w, turned + layout, (1, 1), [(0, 2)] * 2, window_dilation=apart)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("x_shape, w_shape, options", GRADIENTS)
def test_implicit_gradients_of_networks(x_shape, w_shape, options, threads, number):
    """In several blocks of positions, which fit a small cache, and from several threads."""
    machine = dataclasses.replace(target(threads), l2_bytes=256 << 10)
    with everywhere(IMPLICIT_GRADIENT, number) as chosen:
        check(*arrays(2, x_shape, w_shape), layout="gradient", cpu_target=machine, **options)
    assert all(math.prod(axis.taps for axis in plan.axes) > 1 for plan in chosen)


def test_implicit_gradients_in_blocks():
    """Blocks of positions of which the last is smaller, summed by three programs."""
    x, w = arrays(0, (21, 2, 23, 17), (19, 2, 23, 17))
    # Blocks fit a cache that grows with the vectors.
    for bits, cache in ((128, 16 << 10), (256, 32 << 10), (512, 48 << 10)):
        if bits > target().vector_bits:
            break
        machine = dataclasses.replace(target(3), vector_bits=bits, l2_bytes=cache)
        rounds = []
        for number in range(6):
            with everywhere(IMPLICIT_GRADIENT, number) as chosen:
                check(x, w, "gradient", (1, 1), [(1, 1)] * 2, cpu_target=machine)
            rounds += [plan.rounds for plan in chosen]
        assert len(rounds) == 6 and sum(n > 1 for n in rounds) >= 3, (bits, rounds)


@pytest.mark.parametrize("groups", [1, 3])
def test_implicit_gradients_read_nothing_that_does_not_exist(groups):
    """What is not finite reaches only the taps and features that see it."""
    x, w = arrays(0, (5 * groups, 2, 9, 10), (7 * groups, 2, 9, 10))
    x[2, 1, 0, 0] = np.inf
    with everywhere(IMPLICIT_GRADIENT, 0) as chosen:
        options = dict(batch_groups=groups)
        runner, operands, out = make(x, w, "gradient", (1, 1), [(1, 1)] * 2, **options)
    assert chosen
    found = np.isfinite(np.transpose(runner(*operands), out))
    want = np.ones((5, 7 * groups, 3, 3), bool)
    want[2, :7, :2, :2] = False
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("layout", ["last", "first", "transposed"])
@pytest.mark.parametrize("x_shape, w_shape, options", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_networks(layout, x_shape, w_shape, options, dtype):
    check(*arrays(1, x_shape, w_shape, dtype), layout=layout, **options)


@pytest.mark.parametrize("layout", ["gradient", "last", "mixed"])
@pytest.mark.parametrize("x_shape, w_shape, options", GRADIENTS)
def test_kernel_gradients(layout, x_shape, w_shape, options):
    check(*arrays(2, x_shape, w_shape), layout=layout, **options)


@pytest.mark.parametrize(
    "shapes",
    [((0, 3, 5, 5), (4, 3, 2, 2)), ((2, 0, 5, 5), (4, 0, 2, 2)), ((2, 3, 5, 5), (0, 3, 2, 2))],
)
def test_nothing_to_compute(shapes):
    check(*arrays(0, *shapes), layout="last", strides=(1, 1), padding=[(0, 0)] * 2)


def test_no_spatial_axes():
    x, w = arrays(0, (5, 7), (3, 7))
    runner, operands, _ = make(x, w, "first", (), ())
    np.testing.assert_allclose(runner(*operands), x @ w.T, rtol=1e-5)


def test_nothing_is_read_outside_the_input():
    """Memory around the operands is poisoned: what leaks into a result is not finite."""
    x, w = arrays(0, (2, 5, 9, 10), (7, 5, 3, 3))
    for layout in ("last", "first"):
        runner, (lhs, rhs), _ = make(x, w, layout, (1, 1), [(1, 1)] * 2)
        around = []
        for operand in (lhs, rhs):
            block = np.full(operand.size + 512, np.nan, np.float32)
            block[256:-256] = operand.ravel()
            around.append(block[256:-256].reshape(operand.shape))
        assert np.isfinite(runner(*around)).all()


@pytest.mark.parametrize("x_shape, w_shape, options", CASES)
@pytest.mark.parametrize("layout", ["last", "first", "transposed"])
def test_fused_equals_unfused(x_shape, w_shape, options, layout):
    x, w = arrays(3, x_shape, w_shape)
    plain, operands, _ = make(x, w, layout, **options)
    result = plain(*operands)
    other = np.random.default_rng(0).standard_normal(result.shape).astype(np.float32)

    def epilogue(out):
        operand, total = Var(ShapedArray(other.shape, other.dtype)), Var(out.aval)
        return [total, out], [operand], {total: JaxprEqn(add_p, [out, operand], [total], {})}

    fused, operands, _ = make(x, w, layout, **options, epilogue=epilogue)
    total, again = fused(*operands, extra=[other])
    np.testing.assert_array_equal(again, result)
    np.testing.assert_array_equal(total, result + other)


def test_fused_kernel_gradient():
    x, w = arrays(3, (40, 3, 11, 9), (40, 3, 11, 9))
    options = dict(strides=(1, 1), padding=[(1, 1)] * 2, batch_groups=40)
    plain, operands, _ = make(x, w, "gradient", **options)
    result = plain(*operands)

    def epilogue(out):
        total = Var(out.aval)
        return [total], [], {total: JaxprEqn(add_p, [out, out], [total], {})}

    fused, operands, _ = make(x, w, "gradient", **options, epilogue=epilogue)
    np.testing.assert_array_equal(fused(*operands), result + result)


@given(
    *(st.integers(1, n) for n in (12, 6, 4)),
    st.integers(-2, 6),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_phases_cover_positions_and_taps(
    extent, window, stride, padding, dilation, window_dilation
):
    """Every position appears once, with just the taps that fall on an element."""
    seen = {}
    for p in phases_of_axis(extent, window, stride, padding, dilation, window_dilation):
        for i in range(p.count):
            places = {
                p.tap + j * p.tap_step: p.start + i * p.shift + j * p.tap_shift
                for j in range(p.taps)
            }
            assert seen.setdefault(p.first + i * p.step, places) is places
    for position in range(extent):
        taps = {
            t: (position * stride - padding + t * window_dilation) // dilation
            for t in range(window)
            if (position * stride - padding + t * window_dilation) % dilation == 0
        }
        assert seen[position] == taps


def test_depthwise_is_one_launch():
    x, w = arrays(0, (2, 64, 20, 20), (64, 1, 3, 3))
    runner = make(x, w, "last", (1, 1), [(1, 1)] * 2, groups=64)[0]
    assert len(runner.calls) == 1 and runner.calls[0].grid == 40


def test_other_machines():
    x, w = arrays(0, (2, 20, 9, 9), (30, 20, 3, 3))
    want = plain_conv(x.astype(float), w.astype(float), (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), 1, 1)
    for bits in (128, 256):
        machine = type(target())(bits, 3, 32 << 10, 256 << 10)
        runner, operands, out = make(x, w, "last", (1, 1), [(1, 1)] * 2, cpu_target=machine)
        np.testing.assert_allclose(np.transpose(runner(*operands), out), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "window, strides, dilation, plan",
    [
        ((7, 7), (1, 1), (1, 1), "3×7 positions"),
        ((5, 9), (2, 1), (1, 2), "3×9 positions"),
        ((40,), (1,), (1,), "20 positions"),
        ((3, 3, 4), (1, 1, 1), (1, 1, 1), "2×3×4 positions"),
        ((21, 23), (1, 1), (1, 1), "packed product"),
    ],
)
def test_gradient_of_a_depthwise_kernel_in_blocks(window, strides, dilation, plan, monkeypatch):
    """Kernels with more positions than registers hold are summed block by block.

    Several threads take as long by a padded copy, of which one group is as good as many.
    """
    others = [s for s in PRODUCTS.solvers if s is not IMPLICIT_GRADIENT]
    monkeypatch.setattr(PRODUCTS, "solvers", others)
    rng = np.random.default_rng(0)
    spatial = tuple(3 * (d * (n - 1) + 1) // 2 for n, d in zip(window, dilation))
    axes = range(1, 1 + len(window))
    pads = [(d * (n - 1) // 2, 1) for n, d in zip(window, dilation)]
    x = rng.standard_normal((2, *spatial, 18)).astype(np.float32)
    letters = "DHW"[-len(window) :]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")

    def conv(w):
        return lax.conv_general_dilated(
            x, w, strides, pads, rhs_dilation=dilation, dimension_numbers=numbers,
            feature_group_count=18,
        )  # fmt: skip

    w = np.zeros((*window, 1, 18), np.float32)
    g = rng.standard_normal(amdjax.eval_shape(conv, w).shape).astype(np.float32)
    compiled = amdjax.jit(lambda g: amdjax.vjp(conv, w)[1](g)[0]).lower(g).compile()
    assert plan in compiled.as_text("schedule")
    padded = np.pad(x.astype(float), [(0, 0), *pads, (0, 0)])
    want = np.empty(w.shape)
    for tap in np.ndindex(*window):
        at = [slice(t * d, t * d + s * (n - 1) + 1, s)
              for t, d, s, n in zip(tap, dilation, strides, g.shape[1:-1])]  # fmt: skip
        want[tap] = (padded[:, *at] * g).sum((0, *axes))
    np.testing.assert_allclose(compiled(g), want, rtol=1e-4, atol=1e-4)


def test_kernels_of_any_number_of_features_are_packed_by_the_same_code():
    def packs(features, inputs):
        x, w = (np.ones(s, np.float32) for s in ((1, 9, 9, inputs), (features, inputs, 3, 3)))
        numbers = ("NHWC", "OIHW", "NHWC")
        f = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        np.testing.assert_array_equal(amdjax.jit(f)(x, w)[0, 4, 4], np.full(features, 9.0 * inputs))
        closed = amdjax.make_jaxpr(f)(x, w)
        kernels = plan_program(closed, CpuTarget(512, 1, 32 << 10, 1 << 20)).kernels()
        return [kernel_text(k) for k in kernels if k.name == "pack"]

    assert packs(64, 96) == packs(128, 160) != []
