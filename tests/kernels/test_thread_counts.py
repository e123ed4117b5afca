"""Kernel families share their work between threads; how many there are alters no result.

Each family runs with fewer and with more images and rows than it makes pieces of, which is about
four for a thread, and is compared with one thread's result and with NumPy's.
"""

import itertools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from tests.support.jit_helpers import on_machine
from tests.support.turns import in_turn

THREADS = (1, 2, 3, 8)


@pytest.fixture(params=THREADS)
def threads(request, monkeypatch):
    """Programs are made for so many threads."""
    on_machine(monkeypatch, threads=request.param)
    return request.param


def whole(shape, high=4, seed=0):
    """Small integers as floats, whose sums in any order are exact."""
    return np.random.default_rng(seed).integers(-high, high, shape).astype(np.float32)


def compiled(f, *args):
    return amdjax.tree.map(np.asarray, amdjax.jit(lambda *xs: f(*xs))(*args))


# Convolutions: values and both gradients against the definition, a sum over taps.

LAYOUTS = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC")}


def plain_conv(x, w, groups, strides, padding, dilation, window_dilation):
    """Channels last; by its definition, in NumPy."""
    spatial = len(strides)
    for d in range(spatial):
        shape = list(x.shape)
        shape[1 + d] = (shape[1 + d] - 1) * dilation[d] + 1
        spread = np.zeros(shape, x.dtype)
        spread[(slice(None),) * (1 + d) + (slice(None, None, dilation[d]),)] = x
        x = spread
    x = np.pad(x, [(0, 0), *padding, (0, 0)])
    reach = [(w.shape[d] - 1) * window_dilation[d] + 1 for d in range(spatial)]
    size = [(x.shape[1 + d] - reach[d]) // strides[d] + 1 for d in range(spatial)]
    out = np.zeros((len(x), *size, w.shape[-1]), x.dtype)
    inputs, features = w.shape[-2], w.shape[-1] // groups
    for tap in np.ndindex(*w.shape[:-2]):
        window = tuple(
            slice(t * r, t * r + (n - 1) * s + 1, s)
            for t, r, n, s in zip(tap, window_dilation, size, strides)
        )
        seen = x[(slice(None), *window)]
        for g in range(groups):
            part = seen[..., g * inputs : (g + 1) * inputs]
            out[..., g * features : (g + 1) * features] += (
                part @ w[(*tap, slice(None), slice(g * features, (g + 1) * features))]
            )
    return out


FORMS = {
    "padded": {"padding": (1, 1)},
    "padded much": {"padding": (3, 2), "window": 2},
    "one side": {"padding": (2, 0)},
    "strided": {"padding": (1, 1), "strides": 2},
    "dilated window": {"padding": (2, 2), "window_dilation": 2},
    "dilated input": {"padding": (1, 2), "dilation": 2},
    "strided, dilated": {"padding": (2, 1), "strides": 3, "dilation": 2, "window_dilation": 2},
}
KINDS = {"depthwise": (5, 1, 1), "multiplied": (4, 1, 2), "grouped": (2, 3, 2), "plain": (1, 3, 4)}


CASES = [
    (kind, form, extent)
    for kind in KINDS
    for form in (FORMS if kind == "depthwise" else ("padded", "strided, dilated"))
    for extent in ((7,), (40,), (6, 5), (33, 4))
]


@pytest.mark.parametrize(("images", "case"), in_turn(itertools.product((1, 33), CASES), 2), ids=str)
def test_convolutions(threads, images, case):
    kind, form, extent = case
    spatial, options = len(extent), dict(FORMS[form])
    groups, inputs, features = KINDS[kind]
    pad, window = options.pop("padding"), options.pop("window", 3)
    dims = {k: (options.get(k, 1),) * spatial for k in ("strides", "dilation", "window_dilation")}
    padding = [pad] * spatial
    x = whole((images, *extent, groups * inputs))
    w = whole((*(window,) * spatial, inputs, groups * features), seed=1)

    def conv(x, w):
        return lax.conv_general_dilated(
            x, w, dims["strides"], padding, dims["dilation"], dims["window_dilation"],
            LAYOUTS[spatial], groups,
        )  # fmt: skip

    definition = lambda x, w: plain_conv(x, w, groups, padding=padding, **dims)
    want = definition(x, w)
    ct = whole(want.shape, 2, seed=2)
    out, gx, gw = compiled(lambda x, w, ct: (conv(x, w), *amdjax.vjp(conv, x, w)[1](ct)), x, w, ct)
    np.testing.assert_array_equal(out, want)
    # A convolution is linear in both: what it is for each basis vector tells its transpose.
    basis = np.eye(w.size, dtype=w.dtype).reshape(w.size, *w.shape)
    np.testing.assert_array_equal(gw.ravel(), [np.vdot(ct, definition(x, e)) for e in basis])
    probe = whole(x.shape, 2, seed=3)
    assert np.vdot(gx, probe) == np.vdot(ct, definition(probe, w))


# What else is shared between threads. Sizes are on both sides of those from which it is.

ROWS = (1, 5, 40)


def _order(x):
    return np.argsort(x, -1, kind="stable")


OPERATIONS = {
    "product": (lambda x: jnp.matmul(x, x.mT), lambda x: x @ np.swapaxes(x, -1, -2)),
    "thin product": (lambda x: jnp.matmul(x, x[0, 0]), lambda x: x @ x[0, 0]),
    "inner products": (lambda x: (x * x).sum(-1), lambda x: (x * x).sum(-1)),
    "sum of rows": (lambda x: x.sum((0, 1)), lambda x: x.sum((0, 1))),
    "maximum": (lambda x: x.max(-1), lambda x: x.max(-1)),
    "argmin": (lambda x: jnp.argmin(x, -1), lambda x: x.argmin(-1)),
    "cumsum": (lambda x: jnp.cumsum(x, -1), lambda x: x.cumsum(-1)),
    "cumsum of columns": (lambda x: jnp.cumsum(x, 0), lambda x: x.cumsum(0)),
    "reverse cummax": (
        lambda x: lax.cummax(x, 2, reverse=True),
        lambda x: np.maximum.accumulate(x[..., ::-1], -1)[..., ::-1],
    ),
    "sort": (lambda x: jnp.sort(x, -1), lambda x: np.sort(x, -1)),
    "argsort": (lambda x: jnp.argsort(x, -1), _order),
    "top_k": (
        lambda x: lax.top_k(x, 3)[1], lambda x: _order(-x)[..., :3],
    ),
    "scatter": (
        lambda x: jnp.zeros(7).at[jnp.int32(x) % 7].add(x),
        lambda x: np.bincount((x.astype(int) % 7).ravel(), x.ravel(), 7),
    ),
    "scatter of rows": (
        lambda x: jnp.zeros((9, x.shape[-1])).at[jnp.arange(x.shape[0] * 4) % 9].add(
            x.reshape(-1, x.shape[-1])
        ),
        lambda x: np.stack([x.reshape(-1, x.shape[-1])[i::9].sum(0) for i in range(9)]),
    ),
    "gather": (
        lambda x: x[..., jnp.int32(x[0, 0]) % 5], lambda x: x[..., x[0, 0].astype(int) % 5],
    ),
    "window maxima": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3), (1, 1, 1), "VALID"),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, -1).max(-1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("length", [9, 300, 20_001])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(threads, name, rows, length):
    operation, definition = OPERATIONS[name]
    if length > 1000 and rows > 5:
        rows = 9
    x = whole((rows, 4, length), 3)
    np.testing.assert_array_equal(compiled(operation, x), definition(x))
