"""Bytes that are padded with a zero point for a convolution: the same sums without the padding."""

import numpy as np
import pytest

import amdjax
from amdjax import lax
from amdjax.core.check import check_jaxpr
from amdjax.passes import prepare
from amdjax.passes.paddings import pad_in_convolutions
from tests.support.jit_helpers import run_jaxpr

FIRST, LAST = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")


def numbers(shape, dtype, seed=0):
    info = np.iinfo(dtype)
    r = np.random.default_rng(seed)
    return r.integers(info.min, info.max + 1, shape).astype(dtype)


def padded(x, w, zero, config, numbers=FIRST, **options):
    x = lax.pad(x, zero, config)
    options = {"window_strides": (1, 1), "padding": "VALID", **options}
    return lax.conv_general_dilated(
        x, w, dimension_numbers=numbers, preferred_element_type=np.int32, **options
    )


def moved(f, *args, cost=lambda eqn, fixed: 1.0):
    before = prepare(amdjax.make_jaxpr(f)(*args))
    after = pad_in_convolutions(before, cost)
    check_jaxpr(after.jaxpr)
    for a, b in zip(run_jaxpr(before, *args), run_jaxpr(after, *args), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    return before, after


def pads(closed):
    return sum(e.primitive.name == "pad" for e in closed.eqns)


AROUND = ((0, 0, 0), (0, 0, 0), (1, 2, 0), (0, 1, 0))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("end", ["min", "max", None])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window_strides": (2, 1)},
        {"rhs_dilation": (2, 1)},
        {"feature_group_count": 4},
        {"feature_group_count": 2},
    ],
    ids=str,
)
def test_sums_are_the_same_bit_for_bit(dtype, end, options):
    zero = np.dtype(dtype).type(3 if end is None else getattr(np.iinfo(dtype), end))
    groups = options.get("feature_group_count", 1)
    x, w = numbers((2, 4, 9, 8), dtype), numbers((8, 4 // groups, 3, 2), dtype, 1)
    before, after = moved(lambda x, w: padded(x, w, zero, AROUND, **options), x, w)
    assert pads(before) == 1 and pads(after) == 0


def images(closed):
    convolutions = [e for e in closed.eqns if e.primitive.name == "conv_general_dilated"]
    return [str(e.invars[0].aval.dtype) for e in convolutions]


@pytest.mark.parametrize(
    "zero, fastest, image",
    [
        (-128, "uint8", "uint8"),
        (-128, "int16", "int16"),
        (-128, "int8", "int8"),
        (-127, "uint8", "int16"),
        (-127, "int16", "int16"),
    ],
)
def test_what_is_fastest_is_multiplied(zero, fastest, image):
    """Bytes without sign, of which the lowest int8 is zero, numbers of 16 bits, or padded bytes."""
    cost = lambda eqn, fixed: 1.0 if eqn.invars[0].aval.dtype == fastest else 1e6
    _, after = moved(lambda x, w: padded(x, w, np.int8(zero), AROUND), X, W, cost=cost)
    assert images(after) == [image]


def test_features_last():
    config = (AROUND[0], *AROUND[2:], AROUND[0])
    x, w = numbers((1, 7, 9, 5), "int8"), numbers((3, 3, 5, 6), "int8", 1)
    _, after = moved(lambda x, w: padded(x, w, np.int8(-128), config, LAST), x, w)
    assert pads(after) == 0


def test_a_zero_point_that_is_reshaped_and_converted():
    def f(x, w):
        zero = lax.convert_element_type(np.int32(-7), np.int8).reshape(1, 1).reshape(())
        return padded(x, w, zero, AROUND)

    before = prepare(amdjax.make_jaxpr(f)(X, W))
    assert pads(pad_in_convolutions(before, lambda eqn, fixed: 1.0)) == 0


X, W = numbers((2, 4, 9, 8), "int8"), numbers((8, 4, 3, 2), "int8", 1)
BETWEEN = (*AROUND[:2], (1, 1, 1), (0, 0, 0))
LESS = (*AROUND[:2], (-1, 1, 0), (0, 0, 0))
OF_FEATURES = (AROUND[0], (0, 1, 0), (1, 1, 0), (0, 0, 0))
OF_IMAGES = ((0, 1, 0), AROUND[1], (1, 1, 0), (0, 0, 0))


@pytest.mark.parametrize("config", [BETWEEN, LESS, OF_IMAGES], ids=str)
def test_other_paddings_stay(config):
    before, after = moved(lambda x, w: padded(x, w, np.int8(5), config), X, W)
    assert after is before


def test_what_cannot_be_told_stays():
    more = numbers((8, 5, 3, 2), "int8", 1)
    for f, *args in (
        (lambda x, w, z: padded(x, w, z, AROUND), X, W, np.int8(4)),  # an argument
        (lambda x, w: padded(x, w, np.int8(5), OF_FEATURES), X, more),
        (lambda x, w: padded(x, w, np.int8(5), AROUND, padding="SAME"), X, W),
        (lambda x, w: padded(x, w, np.int16(5), AROUND), X.astype("int16"), W.astype("int16")),
    ):
        before, after = moved(f, *args)
        assert after is before


def test_a_padded_image_that_is_read_elsewhere_stays():
    def f(x, w):
        y = lax.pad(x, np.int8(5), AROUND)
        return lax.conv_general_dilated(
            y, w, (1, 1), "VALID", preferred_element_type=np.int32
        ), lax.cumsum(y, 2)

    before, after = moved(f, X, W)
    assert after is before


def test_estimates_decide():
    """A convolution that takes longer with padding of its own than it saves stays."""
    slow = lambda eqn, fixed: 1e6 if eqn.invars[0].aval.dtype == np.int16 else 1.0
    before, after = moved(lambda x, w: padded(x, w, np.int8(5), AROUND), X, W, cost=slow)
    assert after is before


@pytest.mark.parametrize("groups", [1, 16])
def test_compiled(groups):
    """The whole compiler, next to sums in 64 bits."""
    x, w = numbers((1, 16, 12, 12), "int8"), numbers((16, 16 // groups, 3, 3), "int8", 1)
    config = (*AROUND[:2], (1, 1, 0), (1, 1, 0))
    run = amdjax.jit(lambda x: padded(x, w, np.int8(-128), config, feature_group_count=groups))
    wide = np.pad(x.astype(np.int64), [c[:2] for c in config], constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    if groups == 1:
        wanted = np.einsum("nihwyx,oiyx->nohw", windows, w.astype(np.int64))
    else:
        wanted = np.einsum("nohwyx,oyx->nohw", windows, w[:, 0].astype(np.int64))
    np.testing.assert_array_equal(run(x), wanted)
