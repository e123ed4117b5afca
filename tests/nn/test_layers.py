"""Functional layers against NumPy, their gradients against finite differences."""

import importlib
import pkgutil

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, random
from amdjax.test_util import check_grads
from tests.support import layer_references as reference


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


CONVOLUTIONS = [
    # space, window, strides, padding, explicit pads, dilation, groups
    ((7,), (3,), (1,), "SAME", ((1, 1),), (1,), 1),
    ((8, 7), (3, 3), (1, 1), "SAME", ((1, 1), (1, 1)), (1, 1), 1),
    ((8, 7), (3, 2), (2, 3), "SAME", ((0, 1), (0, 1)), (1, 1), 1),
    ((8, 7), (3, 3), (1, 2), "VALID", ((0, 0), (0, 0)), (2, 1), 1),
    ((8, 7), (3, 3), (2, 2), ((1, 0), 2), ((1, 0), (2, 2)), (1, 1), 2),
    ((6, 6), (3, 3), (1, 1), 1, ((1, 1), (1, 1)), (1, 1), 4),
    ((4, 5, 3), (2, 2, 2), (1, 2, 1), "VALID", ((0, 0),) * 3, (1, 1, 1), 1),
]


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv(case, layout):
    space, window, strides, padding, pads, dilation, groups = case
    x, kernel = normal(2, *space, 4), normal(*window, 4 // groups, 8)
    bias = normal(8)
    expected = reference.conv(x, kernel, strides, pads, dilation, groups) + bias
    if layout == "channels_first":
        x, kernel = reference.channels_first(x), reference.kernel_channels_first(kernel)
        expected = reference.channels_first(expected)
    y = nn.conv(x, kernel, bias, strides=strides, padding=padding, dilation=dilation,
                groups=groups, layout=layout)  # fmt: skip
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("padding", ["SAME", "VALID", 1, ((0, 1), 1)], ids=str)
@pytest.mark.parametrize(("strides", "dilation"), [(1, 1), (2, 1), ((3, 2), 1), (2, 2), (4, 1)])
def test_conv_transpose_is_the_transpose_of_conv(strides, dilation, padding, layout):
    """<conv(a), b> == <a, conv_transpose(b)> with the kernel's channels exchanged."""
    options = {"strides": strides, "padding": padding, "dilation": dilation, "layout": layout}
    first = layout == "channels_first"
    b, kernel = normal(2, 4, 5, 3), normal(3, 3, 6, 3)  # conv: 6 -> 3 channels
    exchanged = np.swapaxes(kernel, -1, -2)
    if first:
        b, kernel, exchanged = (
            reference.channels_first(b),
            reference.kernel_channels_first(kernel),
            reference.kernel_channels_first(exchanged),
        )
    image = nn.conv_transpose(b, exchanged, **options)
    a = normal(*image.shape, seed=1)
    forward = nn.conv(a, kernel, **options)
    assert forward.shape == b.shape
    np.testing.assert_allclose(np.vdot(forward, b), np.vdot(a, image), rtol=1e-3, atol=1e-3)


def test_conv_transpose_sizes_and_groups():
    x, kernel = normal(1, 5, 5, 4), normal(3, 3, 2, 6)
    y = nn.conv_transpose(x, kernel, normal(6), strides=2, padding=1, output_padding=1, groups=2)
    assert y.shape == (1, 10, 10, 6)
    halves = [
        nn.conv_transpose(x[..., i * 2 : i * 2 + 2], kernel[..., i * 3 : i * 3 + 3], strides=2,
                          padding=1, output_padding=1)
        for i in range(2)
    ]  # fmt: skip
    np.testing.assert_allclose(y - normal(6), np.concatenate(halves, -1), rtol=1e-4, atol=1e-4)


def test_conv_of_small_integers_is_summed_in_int32():
    x, kernel = np.full((1, 9, 9, 8), 127, np.int8), np.full((3, 3, 8, 1), 127, np.int8)
    y = nn.conv(x, kernel, padding="VALID")
    assert y.dtype == np.int32 and int(y[0, 0, 0, 0]) == 72 * 127 * 127


POOLS = [
    ((6, 6), 2, None, "VALID", ((0, 0), (0, 0))),
    ((7, 8), (3, 2), (2, 1), "SAME", ((1, 1), (0, 1))),
    ((5, 5), 3, 1, 1, ((1, 1), (1, 1))),
    ((9,), 3, 2, ((1, 0),), ((1, 0),)),
    ((4, 4, 4), 2, 2, "VALID", ((0, 0),) * 3),
]


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_pools(case, layout):
    space, window, strides, padding, pads = case
    as_tuple = lambda v: (v,) * len(space) if isinstance(v, int) else v
    size = as_tuple(window)
    steps = size if strides is None else as_tuple(strides)
    x = normal(2, *space, 3)
    ones = np.ones_like(x)
    largest = reference.pool(x, size, steps, pads, np.max, -np.inf)
    total = reference.pool(x, size, steps, pads, np.sum, 0.0)
    inside = reference.pool(ones, size, steps, pads, np.sum, 0.0)
    put = reference.channels_first if layout == "channels_first" else (lambda v: v)
    options = {"strides": strides, "padding": padding, "layout": layout}
    close = lambda got, expected: np.testing.assert_allclose(
        got, put(expected), rtol=1e-5, atol=1e-6
    )
    close(nn.max_pool(put(x), window, **options), largest)
    close(nn.avg_pool(put(x), window, **options), total / np.prod(size))
    close(nn.avg_pool(put(x), window, **options, count_include_pad=False), total / inside)


def test_global_pools_and_integer_max_pool():
    x = normal(2, 4, 5, 3)
    np.testing.assert_allclose(nn.global_avg_pool(x), x.mean((1, 2)), rtol=1e-5, atol=1e-6)
    first = reference.channels_first(x)
    np.testing.assert_array_equal(nn.global_max_pool(first, layout="channels_first"), x.max((1, 2)))
    i = (normal(1, 4, 4, 1) * 100).astype(np.int32)
    np.testing.assert_array_equal(
        nn.max_pool(i, 2), reference.pool(i, (2, 2), (2, 2), ((0, 0),) * 2, np.max, -1e9)
    )


def standardized(x, axes, epsilon=1e-5):
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def test_norms():
    x, scale, bias = normal(4, 5, 6), normal(6), normal(6, seed=1)
    close = lambda got, expected: np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    close(nn.layer_norm(x, scale, bias), standardized(x, -1) * scale + bias)
    both = normal(5, 6)
    close(nn.layer_norm(x, both, axis=(1, 2)), standardized(x, (1, 2)) * both)
    close(nn.rms_norm(x, scale), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale)
    grouped = standardized(x.reshape(4, 5, 3, 2), (1, 3)).reshape(x.shape)
    close(nn.group_norm(x, scale, bias, groups=3), grouped * scale + bias)
    first = nn.group_norm(reference.channels_first(x), scale, bias, groups=3, axis=1)
    close(first, reference.channels_first(grouped * scale + bias))
    close(nn.instance_norm(x, scale), standardized(x, 1) * scale)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_norms_of_16_bits_gather_in_32(dtype):
    x = jnp.asarray(1000 + 50 * normal(4, 256), dtype)
    y = nn.layer_norm(x)
    assert y.dtype == dtype
    expected = standardized(np.asarray(x, np.float64), -1)
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, atol=2e-2)


@pytest.mark.parametrize(("axis", "reduced"), [(-1, (0, 1, 2)), (1, (0, 2, 3)), ((1, 2, 3), (0,))])
def test_batch_norm(axis, reduced):
    x = 3 + 2 * normal(4, 3, 5, 6)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in reduced)
    scale, bias = normal(*shape), normal(*shape, seed=1)
    mean, variance = normal(*shape, seed=2), np.abs(normal(*shape, seed=3))
    apply = amdjax.jit(nn.batch_norm, static_argnames=("train", "axis"))
    y, (new_mean, new_variance) = apply(x, scale, bias, mean, variance, train=True, axis=axis)
    lift = lambda v: np.expand_dims(v, reduced)
    close = lambda got, expected: np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    close(y, standardized(x, reduced) * lift(scale) + lift(bias))
    close(new_mean, 0.9 * mean + 0.1 * x.mean(reduced))
    close(new_variance, 0.9 * variance + 0.1 * x.var(reduced, ddof=1))
    y, (same_mean, _) = apply(x, scale, bias, mean, variance, train=False, axis=axis)
    expected = (x - lift(mean)) / np.sqrt(lift(variance) + 1e-5) * lift(scale) + lift(bias)
    close(y, expected)
    np.testing.assert_array_equal(same_mean, mean)


def test_batch_norm_over_a_vmapped_axis_is_that_of_the_whole_batch():
    x = normal(4, 8, 3)
    zeros, ones = jnp.zeros(3), jnp.ones(3)
    norm = lambda x, name: nn.batch_norm(x, None, None, zeros, ones, train=True, axis_name=name)
    y, (mean, variance) = amdjax.vmap(lambda x: norm(x, "devices"), axis_name="devices")(x)
    whole, (whole_mean, whole_variance) = norm(x.reshape(32, 3), None)
    np.testing.assert_allclose(y.reshape(32, 3), whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean[0], whole_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variance[3], whole_variance, rtol=1e-4)


def test_dropout():
    x = jnp.ones((200, 100))
    key = random.key(3)
    y = np.asarray(nn.dropout(key, x, 0.25))
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(y, amdjax.jit(nn.dropout)(key, x, 0.25))
    assert (nn.dropout(random.key(4), x, 0.25) != y).any()
    shared = np.asarray(nn.dropout(key, x, 0.5, broadcast_axes=0))
    assert (shared == shared[:1]).all() and 0 < (shared[0] == 0).mean() < 1
    assert nn.dropout(key, x, 0.0) is x
    assert not np.asarray(nn.dropout(key, x, 1.0)).any()
    grads = amdjax.grad(lambda x: nn.dropout(key, x, 0.25).sum())(x)
    np.testing.assert_array_equal(grads, y)
    # A rate that only a run tells may be 1, too.
    grads = amdjax.jit(lambda r: amdjax.grad(lambda x: nn.dropout(key, x, r).sum())(x))(1.0)
    np.testing.assert_array_equal(grads, 0)


def test_dense_and_embedding():
    x, kernel, bias = normal(2, 3, 4), normal(4, 5), normal(5)
    np.testing.assert_allclose(nn.dense(x, kernel, bias), x @ kernel + bias, rtol=1e-5, atol=1e-5)
    table, ids = normal(7, 3), np.array([[0, 6], [3, 3]])
    np.testing.assert_array_equal(nn.embedding(table, ids), table[ids])
    np.testing.assert_array_equal(nn.embedding(table, np.array([-1, 99])), table[[0, 6]])
    grads = amdjax.grad(lambda t: nn.embedding(t, ids).sum())(jnp.asarray(table))
    np.testing.assert_array_equal(grads[:, 0], [1, 0, 0, 2, 0, 0, 1])


GRADIENTS = {
    "conv": lambda: (lambda x, k, b: nn.conv(x, k, b, strides=2, groups=2),
                     (normal(1, 5, 4, 4), normal(3, 3, 2, 2), normal(2))),
    "conv_transpose": lambda: (lambda x, k: nn.conv_transpose(x, k, strides=2, dilation=2),
                               (normal(1, 3, 3, 2), normal(2, 3, 2, 2))),
    "max_pool": lambda: (lambda x: nn.max_pool(x, 3, strides=2, padding="SAME"),
                         (normal(1, 6, 5, 2),)),
    "avg_pool": lambda: (lambda x: nn.avg_pool(x, 3, strides=2, padding=1, count_include_pad=False),
                         (normal(1, 6, 5, 2),)),
    "layer_norm": lambda: (nn.layer_norm, (normal(3, 6), normal(6), normal(6))),
    "rms_norm": lambda: (nn.rms_norm, (normal(3, 6), normal(6))),
    "group_norm": lambda: (lambda x, s, b: nn.group_norm(x, s, b, groups=2),
                           (normal(2, 3, 4), normal(4), normal(4))),
    "batch_norm": lambda: (lambda x, s, b: nn.batch_norm(
        x, s, b, jnp.zeros(3, x.dtype), jnp.ones(3, x.dtype), train=True)[0],
                           (normal(5, 3), normal(3), normal(3))),
    "softmax_cross_entropy": lambda: (
        lambda x: nn.softmax_cross_entropy(x, np.array([0, 2, 1]), label_smoothing=0.1),
        (normal(3, 4),)),
    "sigmoid_cross_entropy": lambda: (
        lambda x: nn.sigmoid_cross_entropy(x, np.array([0.0, 1.0, 0.3])), (normal(3),)),
    "huber": lambda: (lambda a, b: nn.huber(a, b, delta=0.7), (normal(9), normal(9, seed=1))),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    with amdjax.enable_x64(True):
        f, args = GRADIENTS[name]()
        args = [jnp.asarray(a, jnp.float64) for a in args]
        order = 1 if name in ("max_pool", "huber") else 2
        check_grads(f, args, order=order, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, k: nn.conv(x, k, strides=2),
        lambda x, k: nn.conv_transpose(x, k, strides=2),
        lambda x, k: nn.max_pool(x, 2) + nn.avg_pool(x, 2),
        lambda x, k: nn.group_norm(x, groups=2),
        lambda x, k: nn.batch_norm(x, None, None, k[0, 0, 0], k[0, 0, 0], train=True)[0],
    ],
)
def test_vmap_is_a_loop(f):
    x, k = normal(3, 2, 6, 6, 4), normal(3, 3, 3, 4, 4)
    expected = np.stack([f(a, b) for a, b in zip(x, k)])
    np.testing.assert_allclose(amdjax.vmap(f)(x, k), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(amdjax.jit(amdjax.vmap(f))(x, k), expected, rtol=1e-4, atol=1e-5)


def test_cross_entropies():
    logits, labels = normal(5, 4) * 3, np.array([0, 3, 1, 1, 2])
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    each = -log_p[np.arange(5), labels]
    close = lambda got, expected: np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    loss = nn.softmax_cross_entropy
    close(loss(logits, labels, reduction="none"), each)
    close(loss(logits, labels), each.mean())
    close(loss(logits, labels, reduction="sum"), each.sum())
    close(loss(logits.T, labels, axis=0), each.mean())
    hot = np.eye(4, dtype=np.float32)[labels]
    close(loss(logits, hot), each.mean())
    smooth = -(log_p * (0.9 * hot + 0.1 / 4)).sum(1)
    close(loss(logits, labels, label_smoothing=0.1, reduction="none"), smooth)
    close(loss(logits, hot, label_smoothing=0.1, reduction="none"), smooth)
    close(loss(logits, np.full(5, -1), label_smoothing=0.1, reduction="none"), np.zeros(5))
    infinite = loss(jnp.array([[0.0, -jnp.inf]]), jnp.array([0]))
    assert float(infinite) == 0

    p, y = 1 / (1 + np.exp(-logits)), (normal(5, 4) > 0).astype(np.float32)
    expected = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    close(nn.sigmoid_cross_entropy(logits, y, reduction="none"), expected)


def test_regression_losses():
    a, b = normal(6) * 2, normal(6, seed=1)
    d = np.abs(a - b)
    close = lambda got, expected: np.testing.assert_allclose(got, expected, rtol=1e-5)
    close(nn.mse(a, b), (d**2).mean())
    close(nn.mae(a, b, reduction="sum"), d.sum())
    close(nn.huber(a, b, reduction="none"), np.where(d < 1, d**2 / 2, d - 0.5))


IMAGE, KERNEL = np.ones((1, 4, 4, 3), np.float32), np.ones((3, 3, 3, 2), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.conv(IMAGE[0, 0], KERNEL), ValueError, "x must have a batch axis"),
        (lambda: nn.conv(IMAGE, KERNEL[0]), ValueError, "kernel must have as many axes"),
        (lambda: nn.conv(IMAGE, KERNEL[:, :, :2]), ValueError, "2 channels .* has 3 channels"),
        (lambda: nn.conv(IMAGE, KERNEL, np.ones(3)), ValueError, r"bias must have shape \(2,\)"),
        (lambda: nn.conv(IMAGE, KERNEL, groups=0), ValueError, "groups"),
        (lambda: nn.conv(IMAGE, KERNEL[:, :, :1], groups=3), ValueError, "groups must divide"),
        (lambda: nn.conv(IMAGE, KERNEL, strides=0), ValueError, "strides must be at least 1"),
        (lambda: nn.conv(IMAGE, KERNEL, strides=(1, 1, 1)), ValueError, "strides .* 2 spatial"),
        (lambda: nn.conv(IMAGE, KERNEL, strides=1.5), TypeError, "strides must be an integer"),
        (lambda: nn.conv(IMAGE, KERNEL, padding="FULL"), ValueError, "padding"),
        (lambda: nn.conv(IMAGE, KERNEL, padding=((1, 2, 3), 1)), TypeError, "padding"),
        (lambda: nn.conv(IMAGE, KERNEL, layout="NHWC"), ValueError, "layout"),
        (lambda: nn.conv_transpose(IMAGE, KERNEL, output_padding=-1), ValueError, "output_padding"),
        (lambda: nn.max_pool(IMAGE, 5), ValueError, "window=5 is larger"),
        (lambda: nn.max_pool(IMAGE, 2, padding=2), ValueError, "smaller than the window"),
        (lambda: nn.max_pool(IMAGE, "2"), TypeError, "window"),
        (lambda: nn.avg_pool(IMAGE.astype(int), 2), TypeError, "x must have a floating-point"),
        (lambda: nn.layer_norm(IMAGE, np.ones(4)), ValueError, r"scale must have shape \(3,\)"),
        (lambda: nn.layer_norm(IMAGE.astype(int)), TypeError, "layer_norm: x"),
        (lambda: nn.group_norm(IMAGE, groups=2), ValueError, "groups must be a divisor"),
        (lambda: nn.batch_norm(IMAGE, None, None, None, np.ones(3), train=True), TypeError, "mean"),
        (lambda: nn.dropout(random.key(0), IMAGE, 1.5), ValueError, "rate"),
        (lambda: nn.dense(IMAGE, np.ones((4, 2))), ValueError, "kernel must have shape"),
        (lambda: nn.dense(IMAGE, np.ones((3, 2)), np.ones(3)), ValueError, "bias"),
        (lambda: nn.embedding(np.ones((3, 2)), np.ones(2)), TypeError, "ids must be integers"),
        (lambda: nn.softmax_cross_entropy(np.ones((2, 3)), np.array([1])), ValueError, "labels"),
        (lambda: nn.softmax_cross_entropy(np.ones((2, 3)), np.ones(2)), ValueError, "labels"),
        (lambda: nn.mse(np.ones(2), np.ones(3)), ValueError, "same shape"),
        (lambda: nn.mse(np.ones(2), np.ones(2), reduction="max"), ValueError, "reduction"),
    ],
)
def test_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_layers_trace_to_flat_programs():
    """Composites leave their operations in the caller's program, where they can fuse."""
    f = lambda x, k, s: nn.relu(nn.layer_norm(nn.conv(x, k), s))
    jaxpr = amdjax.make_jaxpr(f)(IMAGE, KERNEL, np.ones(2, np.float32))
    names = [e.primitive.name for e in jaxpr.jaxpr.eqns]
    assert "conv_general_dilated" in names and "rsqrt" in names


def test_every_layer_is_public():
    """The package of layers names its files one by one, since functions' files have their names."""
    files = [m.name for m in pkgutil.iter_modules(nn.layers.__path__)]
    names = [n for m in files for n in importlib.import_module(f"amdjax.nn.layers.{m}").__all__]
    assert "Dense" in names and all(issubclass(getattr(nn, name), nn.Module) for name in names)
    assert nn.pooling.__name__ == "amdjax.nn.pooling"


@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "int8"), ("int16", "int8")])
def test_narrow_integers_are_summed_in_int32(kinds):
    """Of both signs, too, whose common dtype has 16 bits."""
    x, w = np.full((1, 4, 4, 8), 100, kinds[0]), np.full((3, 3, 8, 2), 100, kinds[1])
    y = nn.conv(x, w, padding="VALID")
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, np.full((1, 2, 2, 2), 100 * 100 * 72))
