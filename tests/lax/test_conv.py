import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import jit, lax, numpy as jnp
from amdjax.core.config import enable_x64
from amdjax.transforms.differentiate import vjp
from tests.support.lax_checks import check_batching, check_derivatives

NHWC = ("NHWC", "HWIO", "NHWC")


def reference(x, w, strides, pads, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Convolution by definition, of arrays laid out as batch, feature, space."""
    n = x.ndim - 2
    lhs_dilation, rhs_dilation = lhs_dilation or (1,) * n, rhs_dilation or (1,) * n
    spread = np.zeros((*x.shape[:2], *((s - 1) * d + 1 for s, d in zip(x.shape[2:], lhs_dilation))))
    spread[(..., *(slice(None, None, d) for d in lhs_dilation))] = x
    spread = np.pad(spread, [(0, 0), (0, 0), *pads])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], rhs_dilation)]
    counts = [(s - r) // step + 1 for s, r, step in zip(spread.shape[2:], reach, strides)]
    parts = []
    for g in range(groups * batch_groups):
        inputs = np.split(np.split(spread, batch_groups, 0)[g % batch_groups], groups, 1)[
            g % groups
        ]
        kernel = np.split(w, groups * batch_groups, 0)[g]
        out = np.zeros((inputs.shape[0], kernel.shape[0], *counts))
        for k in itertools.product(*map(range, w.shape[2:])):
            starts = [i * d for i, d in zip(k, rhs_dilation)]
            window = [slice(a, a + (c - 1) * s + 1, s) for a, c, s in zip(starts, counts, strides)]
            seen = inputs[(slice(None), slice(None), *window)]
            out += np.einsum("ni...,oi->no...", seen, kernel[(..., *k)])
        parts.append(out)
    return np.concatenate(parts, 1)


@st.composite
def convolutions(draw):
    n = draw(st.integers(1, 2))
    few = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(n))
    kind = draw(st.sampled_from(["plain", "groups", "batch_groups"]))
    groups, batch_groups = (2 if kind == name else 1 for name in ("groups", "batch_groups"))
    per_group, kernel = draw(st.integers(1, 3)), few(1, 3)
    lhs = (batch_groups * draw(st.integers(1, 2)), groups * per_group, *few(5, 7))
    rhs = (2 * draw(st.integers(1, 2)), per_group, *kernel)
    pads = tuple(zip(few(0, 2), few(0, 2)))
    return lhs, rhs, few(1, 2), pads, few(1, 2), few(1, 2), groups, batch_groups


@given(convolutions(), st.integers(0, 99))
def test_values(case, seed):
    left, right, strides, pads, lhs_dilation, rhs_dilation, groups, batch_groups = case
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal(left), rng.standard_normal(right)
    found = lax.conv_general_dilated(
        x.astype(np.float32),
        w.astype(np.float32),
        strides,
        pads,
        lhs_dilation,
        rhs_dilation,
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )
    wanted = reference(x, w, strides, pads, lhs_dilation, rhs_dilation, groups, batch_groups)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "uint8")])
def test_bytes_of_both_signs(dtypes, groups):
    rng = np.random.default_rng(groups)
    shapes = (2, 9, 8, 8), (3, 3, 8 // groups, 16)
    x, w = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max + 1, shape).astype(d)
        for d, shape in zip(dtypes, shapes, strict=True)
    )
    options = {"feature_group_count": groups, "rhs_dilation": (2, 1), "dimension_numbers": NHWC}
    found = lax.conv_general_dilated(
        x, w, (1, 2), ((2, 1), (1, 1)), preferred_element_type=np.int32, **options
    )
    first = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
    wanted = reference(*first, (1, 2), ((2, 1), (1, 1)), None, (2, 1), groups)
    np.testing.assert_array_equal(found, wanted.transpose(0, 2, 3, 1))
    with pytest.raises(TypeError, match="same dtypes"):
        lax.conv_general_dilated(x, w, (1, 2), "SAME", **options)


@pytest.mark.parametrize("numbers", [NHWC, ("HNCW", "IOWH", "CWNH"), ("NCHW", "OIHW", "NCHW")])
def test_layouts(numbers):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((4, 3, 2, 3))
    place = lambda v, names, spec: np.transpose(v, [names.index(c) for c in spec])
    # Strides follow the order of the kernel's spatial axes.
    strides = (2, 1) if next(c for c in numbers[1] if c in "HW") == "H" else (1, 2)
    found = lax.conv_general_dilated(
        place(x, "NCHW", numbers[0]).astype(np.float32),
        place(w, "OIHW", numbers[1]).astype(np.float32),
        strides,
        "VALID",
        dimension_numbers=numbers,
    )
    wanted = reference(x, w, (2, 1), [(0, 0), (0, 0)])
    np.testing.assert_allclose(found, place(wanted, "NCHW", numbers[2]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(2, 0, 16), (2, 3, 0), (0, 3, 16)])
@pytest.mark.parametrize("numbers", [NHWC, ("NCHW", "OIHW", "NCHW")])
@pytest.mark.parametrize("groups", [1, 2])
def test_empty_operands(numbers, groups, sizes):
    images, features, columns = sizes
    sides = {"N": images, "C": features * groups, "O": columns * groups, "I": features}
    x = np.ones([sides.get(c, 6) for c in numbers[0]], np.float32)
    w = np.ones([sides.get(c, 3) for c in numbers[1]], np.float32)

    def both(x, w):
        out, pullback = vjp(
            lambda x, w: lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
            ), x, w,
        )  # fmt: skip
        return out, pullback(jnp.ones_like(out))

    out, gradients = jit(both)(x, w)
    assert out.shape == tuple({**sides, "C": columns * groups}.get(c, 6) for c in numbers[2])
    assert [g.shape for g in gradients] == [x.shape, w.shape]
    assert not any(np.any(v) for v in (out, *gradients))


CASES = {
    "1d": ((2, 3, 7), (4, 3, 3), dict(window_strides=(1,), padding="SAME")),
    "2d": ((2, 3, 6, 5), (4, 3, 3, 2), dict(window_strides=(2, 1), padding="VALID")),
    "dilated": (
        (2, 2, 6, 5),
        (3, 2, 3, 2),
        dict(
            window_strides=(2, 1),
            padding=((1, 2), (-1, 2)),
            lhs_dilation=(1, 2),
            rhs_dilation=(2, 1),
        ),
    ),
    "layout": (
        (2, 6, 5, 3),
        (3, 2, 3, 4),
        dict(window_strides=(2, 1), padding="SAME", dimension_numbers=NHWC),
    ),
    "groups": (
        (2, 4, 6),
        (6, 2, 3),
        dict(window_strides=(2,), padding="SAME", feature_group_count=2),
    ),
    "depthwise": (
        (2, 6, 3),
        (3, 1, 6),
        dict(
            window_strides=(1,),
            padding="SAME",
            feature_group_count=3,
            dimension_numbers=("NHC", "HIO", "NHC"),
        ),
    ),
    "batch_groups": (
        (4, 2, 6),
        (6, 2, 3),
        dict(window_strides=(1,), padding="VALID", batch_group_count=2),
    ),
    "no_space": ((4, 3), (6, 3), dict(window_strides=(), padding=())),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_rules(case):
    left, right, options = CASES[case]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(left), rng.standard_normal(right)
    fun = lambda p, q: lax.conv_general_dilated(p, q, **options)
    check_derivatives(fun, x, w)
    check_batching(fun, x.astype(np.float32), w.astype(np.float32), rtol=1e-4, atol=1e-4)


def test_strides_that_leave_input_unused():
    x, w = np.random.default_rng(0).standard_normal((1, 1, 8)), np.ones((1, 1, 2))
    check_derivatives(lambda p, q: lax.conv_general_dilated(p, q, (3,), "VALID"), x, w)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1,), (2,), (3,)])
def test_transposed_convolution_is_the_transpose(padding, strides):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 2, 4))  # space, input and output features of the forward one
    layout = ("NHC", "HIO", "NHC")
    forward = lambda v: lax.conv_general_dilated(v, w, strides, padding, dimension_numbers=layout)
    with enable_x64(True):
        x = rng.standard_normal((1, 6, 2))
        y, pull = vjp(forward, x)
        ct = rng.standard_normal(y.shape)
        found = lax.conv_transpose(ct, w, strides, padding, transpose_kernel=True)
        n = min(found.shape[1], 6)
        wanted = np.asarray(pull(ct)[0])
        np.testing.assert_allclose(np.asarray(found)[:, :n], wanted[:, :n], rtol=1e-6)
    assert (
        found.shape[1:]
        == lax.conv_transpose_shape_tuple(y.shape, (3, 4, 2), strides, padding, layout)[1:]
    )


def test_transposed_convolution_with_pairs():
    x, w = np.ones((1, 4, 1), np.float32), np.ones((3, 1, 1), np.float32)
    assert lax.conv_transpose(x, w, (2,), [(2, 2)]).shape == (1, 9, 1)
    consistent = lax.conv_transpose(x, w, (2,), [(0, 0)], use_consistent_padding=True)
    assert consistent.shape == (1, 9, 1)


def test_patches_and_local_kernels():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 5, 6)).astype(np.float32)
    w = rng.standard_normal((4, 3, 2, 3)).astype(np.float32)
    patches = lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "SAME")
    shared = np.einsum("nk...,ok->no...", patches, w.reshape(4, -1))
    plain = np.asarray(lax.conv_general_dilated(x, w, (1, 2), "SAME"))
    np.testing.assert_allclose(shared, plain, rtol=1e-4, atol=1e-4)
    kernels = np.broadcast_to(w.reshape(4, -1, 1, 1), (4, 18, 5, 3)).copy()
    local = lax.conv_general_dilated_local(x, kernels, (1, 2), "SAME", (2, 3))
    np.testing.assert_allclose(local, plain, rtol=1e-4, atol=1e-4)


def test_short_forms_and_shapes():
    x, w = np.ones((1, 2, 8, 8), np.float32), np.ones((3, 2, 3, 3), np.float32)
    assert lax.conv(x, w, (2, 2), "SAME").shape == (1, 3, 4, 4)
    assert lax.conv_with_general_padding(x, w, (1, 1), "VALID", None, (2, 2)).shape == (1, 3, 4, 4)
    assert lax.conv_shape_tuple((1, 2, 8), (3, 2, 3), (2,), [(1, 1)]) == (1, 3, 4)
    assert lax.conv_general_shape_tuple(
        (1, 8, 2), (3, 2, 5), (2,), "SAME", ("NHC", "HIO", "NHC")
    ) == (1, 4, 5)
    half = lax.conv_general_dilated(
        x.astype(np.float16), w.astype(np.float16), (1, 1), "SAME", preferred_element_type="float32"
    )
    assert half.dtype == np.float32


X, W = np.ones((2, 2, 3, 3), np.float32), np.ones((4, 2, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            ValueError,
            "feature",
            lambda: lax.conv(X, np.ones((1, 3, 2, 2), np.float32), (1, 1), "SAME"),
        ),
        (RuntimeError, "FULL", lambda: lax.conv(X, W, (1, 1), "FULL")),
        (ValueError, "window_strides must have", lambda: lax.conv(X, W, (1,), "SAME")),
        (ValueError, "pairs", lambda: lax.conv_general_dilated(X, W, (1, 1), (1, 1))),
        (TypeError, "same dtypes", lambda: lax.conv(X, W.astype(np.float16), (1, 1), "SAME")),
        (TypeError, "rank", lambda: lax.conv(X, W[0], (1, 1), "SAME")),
        (
            ValueError,
            "at most one",
            lambda: lax.conv_general_dilated(
                X, W, (1, 1), "SAME", feature_group_count=2, batch_group_count=2
            ),
        ),
        (
            ValueError,
            "batch_group_count",
            lambda: lax.conv_general_dilated(X, W, (1, 1), "SAME", batch_group_count=3),
        ),
        (
            TypeError,
            "spatial",
            lambda: lax.conv_dimension_numbers(X.shape, W.shape, ("NCHW", "OIHX", "NCHW")),
        ),
        (
            TypeError,
            "4 characters",
            lambda: lax.conv_dimension_numbers(X.shape, W.shape, ("NCH", "OIH", "NCH")),
        ),
    ],
)
def test_errors(error, message, call):
    with pytest.raises(error, match=message):
        call()
