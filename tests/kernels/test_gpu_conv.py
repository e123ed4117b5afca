"""Convolutions on GPUs, as machine code in the emulator, against their definition."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax.kernels  # noqa: F401
from amdjax import tile
from amdjax.lax.conv import ConvDimensionNumbers, conv_general_dilated_p
from amdjax.targets import GpuTarget
from tests.kernels.test_conv import convolutions, has_room, placed, plain_conv, specs
from tests.support.gpu_runner import DISTINCT, EMULATED, GpuRunner

pytestmark = pytest.mark.share(4)

HALF = {"dtype": np.float16}
LAYOUTS = ("last", "transposed", "first", "gradient", "mixed")


def make(x, w, gfx, layout, strides, padding, **options):
    """A runner, its operands and where (batch, feature, spatial…) are in its result."""
    spatial = len(strides)
    ones = (1,) * spatial
    lhs, rhs, out = specs(layout, spatial)
    params = {
        "window_strides": tuple(strides), "padding": tuple(padding),
        "lhs_dilation": options.get("dilation", ones),
        "rhs_dilation": options.get("window_dilation", ones),
        "dimension_numbers": ConvDimensionNumbers(lhs, rhs, out),
        "feature_group_count": options.get("groups", 1),
        "batch_group_count": options.get("batch_groups", 1), "precision": None,
        "preferred_element_type": options.get("out"), "out_sharding": None,
    }  # fmt: skip
    if "reversal" in options:
        params["window_reversal"] = options["reversal"]
    operands = placed(x, lhs), placed(w, rhs)
    bits = options.get("index_bits", 32)
    return GpuRunner(conv_general_dilated_p, operands, params, gfx, index_bits=bits), operands, out


def check(gfx, layout, images, size, features, window, strides, padding, **options):
    """Small integers, of which every dtype holds the products and sums."""
    rng = np.random.default_rng(0)
    groups, batch_groups = options.get("groups", 1), options.get("batch_groups", 1)
    dtype = options.pop("dtype", np.float32)
    into, out_features = features
    x = rng.integers(-3, 4, (images, into, *size)).astype(dtype)
    w = rng.integers(-3, 4, (out_features, into // groups, *window)).astype(dtype)
    runner, operands, spec = make(x, w, gfx, layout, strides, padding, **options)
    got = np.transpose(runner(*operands), spec)
    w = np.flip(w, [axis for axis, turned in enumerate(options.get("reversal", ()), 2) if turned])
    ones = (1,) * len(strides)
    want = plain_conv(
        x.astype(np.float64), w.astype(np.float64), strides, padding,
        options.get("dilation", ones), options.get("window_dilation", ones), groups, batch_groups,
    )  # fmt: skip
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(got.dtype))
    return runner


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "options",
    [{"reversal": (True, True)}, {"reversal": (False, True), "dilation": (2, 1), **HALF}],
    ids=["all", "one"],
)
def test_taps_are_counted_from_the_last(gfx, layout, options):
    check(gfx, layout, 2, (9, 7), (8, 24), (3, 2), (1, 1), [(1, 1), (0, 1)], **options)
    check(gfx, layout, 1, (6, 7), (32, 16), (1, 3), (1, 1), [(0, 0), (2, 1)], **options)


# Each of them takes another plan: few features in or out, one of each, taps as many as pixels.
@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("features", "size", "window"),
    [
        ((3, 32), (9, 8), (3, 3)), ((1, 32), (9, 8), (3, 2)), ((32, 3), (9, 8), (3, 3)),
        ((1, 1), (9, 8), (3, 3)), ((1, 8), (5, 6), (5, 5)), ((16, 16), (8, 8), (7, 7)),
        ((3, 32), (8, 8), (7, 6)),
    ],
    ids=str,
)  # fmt: skip
def test_every_plan_reads_reversed_kernels(gfx, layout, features, size, window):
    check(
        gfx, layout, 2, size, features, window, (1, 1), [(1, 1), (1, 0)], reversal=(True, True),
        **HALF,
    )  # fmt: skip


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
def test_layouts(gfx, layout, strides):
    check(gfx, layout, 2, (9, 7), (8, 24), (3, 2), strides, [(1, 1), (0, 1)])


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes(gfx, dtype):
    check(gfx, "last", 2, (8, 8), (16, 20), (3, 3), (1, 1), [(1, 1)] * 2, dtype=dtype)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", ["last", "first"])
def test_dilations(gfx, layout):
    check(gfx, layout, 1, (7, 6), (4, 5), (3, 3), (1, 2), [(2, 1), (1, 3)],
          dilation=(2, 1), window_dilation=(1, 2))  # fmt: skip


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "window, dilation, padding, launches",
    [
        ((4, 4), (2, 2), [(2, 2)] * 2, 1), ((2, 2), (2, 2), [(1, 1)] * 2, 1),
        ((4, 1), (2, 1), [(1, 3), (0, 0)], 1), ((3, 3), (3, 3), [(2, 2)] * 2, 1),
        ((3, 3), (2, 2), [(1, 2)] * 2, 4), ((6, 3), (3, 2), [(2, 5), (1, 2)], 2),
    ],
)  # fmt: skip
def test_phases_of_a_dilated_input(gfx, layout, window, dilation, padding, launches):
    """Those that are alike are one launch."""
    sizes = 2, (5, 4), (8, 16), window, (1, 1), padding
    runner = check(gfx, layout, *sizes, dilation=dilation)
    assert sum(call.kernel.name == "product" for call in runner.calls) == launches


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", ["last", "first"])
@pytest.mark.parametrize("options", [{"groups": 2}, {"batch_groups": 2}])
def test_groups(gfx, layout, options):
    check(gfx, layout, 4, (6, 6), (8, 12), (3, 3), (1, 1), [(1, 1)] * 2, **options)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", ["last", "first", "mixed"])
@pytest.mark.parametrize(
    "features, strides, padding, options",
    [
        ((16, 16), (1, 1), [(1, 1)] * 2, {}), ((12, 24), (2, 1), [(0, 1), (2, 0)], {}),
        ((9, 9), (1, 2), [(1, 1)] * 2, {"window_dilation": (2, 1)}),
        ((8, 8), (1, 1), [(1, 2)] * 2, {"dilation": (2, 1)}),
        ((16, 16), (1, 1), [(0, 0)] * 2, {"dtype": np.float16}),
    ],
)  # fmt: skip
def test_depthwise(gfx, layout, features, strides, padding, options):
    runner = check(
        gfx, layout, 2, (9, 11), features, (3, 3), strides, padding, groups=features[0], **options
    )
    assert {c.kernel.name for c in runner.calls} == {"depthwise"}


@pytest.fixture(params=["busy", "idle"])
def busy(request, monkeypatch):
    """GPUs that small problems keep busy, whose programs get as much work as of large ones."""
    if request.param == "busy":
        monkeypatch.setattr(GpuTarget, "busy_threads", 1)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", ["last", "first", "gradient"])
@pytest.mark.parametrize(
    "features, size, window, strides, padding, options",
    [
        ((16, 16), (9, 11), (3, 3), (1, 1), [(1, 1)] * 2, {}),
        ((24, 24), (7, 13), (3, 3), (2, 2), [(1, 0), (0, 1)], {"dtype": np.float16}),
        ((8, 16), (6, 10), (5, 7), (1, 1), [(2, 2), (3, 3)], {}),
        ((8, 8), (5, 9), (3, 3), (1, 1), [(2, 1)] * 2, {"dilation": (2, 2)}),
        ((8, 8), (40,), (4,), (1,), [(3, 0)], {"dtype": np.float16}),
        ((12, 12), (35,), (20,), (1,), [(0, 19)], {}),
        ((8, 8), (4, 5, 9), (3, 2, 3), (1, 1, 2), [(1, 1), (1, 0), (1, 1)], {}),
        ((8, 8), (9, 1), (3, 1), (1, 1), [(1, 1), (0, 0)], {"window_dilation": (2, 1)}),
    ],
)  # fmt: skip
def test_depthwise_in_runs(busy, gfx, layout, features, size, window, strides, padding, options):
    """Programs that compute several tiles."""
    runner = check(
        gfx, layout, 2, size, features, window, strides, padding, groups=features[0], **options
    )
    assert {c.kernel.name for c in runner.calls} == {"depthwise"}


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "groups, images, size, window, positions, options",
    [
        (16, 2, (9, 11), (9, 11), (3, 3), {}),
        (24, 3, (8, 12), (8, 12), (3, 3), {"dtype": np.float16}),
        (9, 2, (13, 12), (7, 6), (3, 2), {"window_dilation": (2, 2)}),
        (8, 1, (12, 10), (12, 10), (7, 7), {}), (8, 2, (7, 6), (6, 3), (3, 4), {"strides": (2, 1)}),
        (16, 2, (40,), (40,), (4,), {"dtype": np.float16}), (8, 3, (9, 1), (9, 1), (3, 1), {}),
        (8, 2, (4, 5, 6), (4, 5, 6), (3, 2, 3), {}),
    ],
)  # fmt: skip
def test_gradient_of_a_depthwise_kernel(
    busy, gfx, layout, groups, images, size, window, positions, options
):
    spatial = range(len(size))
    strides = options.get("strides", (1,) * len(size))
    dilation = options.get("window_dilation", (1,) * len(size))
    reach = [
        (positions[d] - 1) * strides[d] + (window[d] - 1) * dilation[d] + 1 - size[d]
        for d in spatial
    ]
    padding = [(n // 2, n - n // 2) for n in reach]
    options = {key: x for key, x in options.items() if key != "strides"}
    runner = check(
        gfx, layout, groups, size, (images, groups), window, strides, padding,
        batch_groups=groups, **options,
    )  # fmt: skip
    assert {c.kernel.name for c in runner.calls} == {"kernel_gradient", "combine"}


def names(runner):
    return [call.kernel.name for call in runner.calls]


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "features, size, window, strides, padding, options",
    [
        ((3, 16), (15, 14), (7, 7), (2, 2), [(3, 3)] * 2, HALF),
        ((3, 20), (8, 7), (3, 3), (1, 1), [(1, 1)] * 2, HALF),
        ((1, 16), (8, 9), (5, 3), (1, 2), [(0, 2), (1, 0)], HALF),
        ((2, 17), (20,), (4,), (3,), [(2, 1)], HALF),
        ((3, 16), (3, 4, 5), (2, 3, 2), (1, 1, 1), [(1, 0)] * 3, HALF),
    ],
)  # fmt: skip
def test_few_features(gfx, layout, features, size, window, strides, padding, options):
    runner = check(gfx, layout, 2, size, features, window, strides, padding, **options)
    assert names(runner)[:3] == ["arrange", "arrange", "product"]


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "features, images, size, positions, options",
    [
        ((3, 16), 2, (17, 15), (7, 7), {"window_dilation": (2, 2), **HALF}),
        ((1, 20), 3, (6, 8), (3, 2), HALF), ((2, 16), 2, (9,), (4,), HALF),
        ((2, 16), 2, (3, 4, 5), (2, 2, 3), HALF),
    ],
)  # fmt: skip
def test_gradient_for_few_features(gfx, layout, features, images, size, positions, options):
    (into, columns), ones = features, (1,) * len(size)
    dilation = options.get("window_dilation", ones)
    window = [(n + 1) // by for n, by in zip(size, dilation, strict=True)]
    reach = [
        p - 1 + (w - 1) * by + 1 - n
        for p, w, by, n in zip(positions, window, dilation, size, strict=True)
    ]
    padding = [(n // 2, n - n // 2) for n in reach]
    runner = check(gfx, layout, into, size, (images, columns), window, ones, padding, **options)
    assert names(runner)[0] == "arrange" and names(runner)[-1] == "extract"


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize(
    "features, size, window, strides, padding, options",
    [
        ((32, 24), (9, 7), (3, 2), (1, 1), [(1, 1), (0, 1)], HALF),
        ((16, 40), (8, 9), (3, 3), (2, 1), [(2, 1)] * 2, {"window_dilation": (1, 2)}),
        ((64, 16), (5, 6), (1, 3), (1, 1), [(0, 0), (2, 1)], {"reversal": (False, True), **HALF}),
        ((32, 16), (4, 5), (4, 3), (1, 1), [(2, 1)] * 2, {"dilation": (2, 1)}),
        ((64, 32), (7,), (3,), (1,), [(3, 0)], {"groups": 2, **HALF}),
        ((32, 8), (3, 4, 5), (2, 1, 3), (1, 1, 1), [(1, 0)] * 3, HALF),
    ],
)  # fmt: skip
def test_features_innermost(gfx, features, size, window, strides, padding, options):
    """Taps outside of features, where positions lie side by side."""
    runner = check(gfx, "first", 2, size, features, window, strides, padding, **options)
    assert names(runner)[:2] == ["arrange", "product"]


def sides(runner):
    """The operands of its products."""
    found = [op for c in runner.calls for op in tile.nested_ops(c.kernel.body)]
    return [side for op in found if isinstance(op, tile.ops.Contract) for side in op.sides]


def edges(runner):
    """Neighbors that are read at once where only parts of them may be inside, by operand."""
    return [side.vector for side in sides(runner) if side.edge is not None]


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize(
    "images, features, size, window, padding, dtype, together",
    [
        (2, (32, 16), (3, 8), (3, 3), [(1, 1), (1, 1)], np.float16, 4),
        (1, (32, 16), (2, 4), (1, 7), [(0, 0), (6, 4)], ml_dtypes.bfloat16, 4),
        (1, (32, 16), (3, 5), (2, 4), [(1, 0), (2, 5)], np.int8, 4),
        (2, (32, 16), (3, 6), (3, 3), [(1, 1), (0, 2)], np.float16, 2),
        (1, (16, 16), (2, 4), (1, 4), [(0, 0), (3, 0)], np.float32, 2),
        (2, (64, 64), (2, 8), (1, 3), [(0, 0), (1, 1)], np.float16, 4),
    ],
)  # fmt: skip
def test_groups_at_edges(gfx, images, features, size, window, padding, dtype, together):
    """Positions that are read at once although taps move them out of the image, on both sides."""
    options = {"groups": 2} if features == (64, 64) else {}
    out = np.int32 if dtype == np.int8 else None
    runner = check(
        gfx, "first", images, size, features, window, (1, 1), padding, dtype=dtype, out=out,
        **options,
    )  # fmt: skip
    assert edges(runner) == [together]


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize(
    "size, positions, dtype, together",
    [
        ((5, 8), (3, 3), np.float16, 4),
        ((3, 4), (1, 5), np.int8, 4),
        ((3, 6), (3, 3), np.float32, 2),
    ],
)
def test_gradients_at_edges(gfx, size, positions, dtype, together):
    """The same of depth: kernels as large as the image."""
    padding = [((n - 1) // 2, (n - 1) // 2) for n in positions]
    out = np.int32 if dtype == np.int8 else None
    runner = check(
        gfx, "first gradient", 24, size, (3, 16), size, (1, 1), padding, dtype=dtype, out=out
    )
    assert edges(runner) == [together]


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize("layout", ["first gradient", "gradient"])
@pytest.mark.parametrize(
    "size, window, dilation, dtype, granule",
    [((6, 16), (3, 8), (2, 2), np.float16, 8), ((5, 6), (5, 6), (1, 1), np.float32, 2)],
)
def test_steps_of_gradients(gfx, layout, size, window, dilation, dtype, granule):
    """Positions of a row, which are summed over, share where they are."""
    sizes = 24, size, (3, 16), window, (1, 1), [(1, 0), (1, 0)]
    runner = check(gfx, layout, *sizes, dtype=dtype, window_dilation=dilation)
    steps = {(side.granule, side.stride) for side in sides(runner)}
    assert layout == "gradient" or steps == {(granule, 1), (granule, dilation[1])}


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1201"])
def test_large_arrays_at_edges(gfx):
    """Whose elements have numbers of 64 bits: nothing brings zeros by itself."""
    sizes = (3, 8), (64, 32), (3, 3), (1, 1), [(1, 1)] * 2
    assert edges(check(gfx, "first", 2, *sizes, index_bits=64, **HALF)) == [4]


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "groups, features, options",
    [
        (8, (32, 32), {"dtype": np.float16}), (6, (12, 18), {}), (4, (4, 8), {}),
        (4, (16, 8), {"dilation": (2, 2)}),
    ],
)  # fmt: skip
def test_narrow_groups(gfx, layout, groups, features, options):
    sizes = (2, (5, 6), features, (3, 3), (1, 1), [(1, 1)] * 2)
    runner = check(gfx, layout, *sizes, groups=groups, **options)
    assert names(runner)[:2] == ["arrange", "product"]


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "groups, features, options", [(8, (32, 32), {"dtype": np.float16}), (6, (12, 18), {})]
)
def test_gradient_for_narrow_groups(gfx, layout, groups, features, options):
    into, columns = features
    sizes = (into, (7, 6), (2, columns), (7, 6), (1, 1), [(1, 1)] * 2)
    runner = check(gfx, layout, *sizes, batch_groups=groups, **options)
    assert names(runner)[-1] == "extract"


@pytest.mark.parametrize("gfx", EMULATED)
def test_one_and_three_spatial_axes(gfx):
    check(gfx, "last", 2, (30,), (3, 17), (5,), (2,), [(2, 2)])
    check(gfx, "last", 1, (4, 5, 6), (3, 6), (2, 3, 2), (1, 1, 1), [(0, 1), (1, 1), (0, 0)])


@pytest.mark.parametrize("gfx", EMULATED)
def test_one_feature(gfx):
    """Results whose tiles have one column, at places that are no single stride apart."""
    sizes = (2, 2, 3), (1, 1), (1, 1, 1), (1, 1, 1), [(0, 0)] * 3
    check(gfx, "last", 1, *sizes, dilation=(1, 1, 2))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(convolutions(), st.sampled_from([np.float32, np.complex64]), st.sampled_from(EMULATED))
def test_any_convolution(conv, dtype, gfx):
    x_shape, w_shape, options = conv
    if not has_room(x_shape, w_shape, options):
        return
    given_options = {key: x for key, x in options.items() if x is not None}
    layout, strides, padding = (given_options.pop(x) for x in ("layout", "strides", "padding"))
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-2, 3, shape).astype(dtype) for shape in (x_shape, w_shape))
    runner, operands, spec = make(x, w, gfx, layout, strides, padding, **given_options)
    ones = (1,) * len(strides)
    want = plain_conv(
        x.astype(np.complex128), w.astype(np.complex128), strides, padding,
        given_options.get("dilation", ones), given_options.get("window_dilation", ones),
        given_options.get("groups", 1), given_options.get("batch_groups", 1),
    )  # fmt: skip
    np.testing.assert_array_equal(np.transpose(runner(*operands), spec), want)


@pytest.mark.parametrize("gfx", EMULATED)
def test_nothing_to_sum(gfx):
    check(gfx, "last", 2, (4, 4), (0, 5), (3, 3), (1, 1), [(1, 1)] * 2)
    # Some positions of a dilated input see no tap.
    check(gfx, "last", 1, (4,), (2, 3), (1,), (1,), [(0, 0)], dilation=(2,))


@pytest.mark.parametrize("gfx", ["gfx908", "gfx942", "gfx1030", "gfx1100", "gfx1201", "sm_90a"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_registers_suffice(gfx, layout, dtype):
    """Short sums, whose loops LLVM would unroll, with padding in the way."""
    x, w = np.empty((32, 32, 8, 8), dtype), np.empty((64, 32, 3, 3), dtype)
    runner, _, _ = make(x, w, gfx, layout, (1, 1), [(1, 1)] * 2)
    assert all(kernel.scratch_bytes == 0 for kernel in runner.compiled())
