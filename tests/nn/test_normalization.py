"""Norms against NumPy: statistics, running statistics, blocks of rows, layers."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.nn._moments import moments_of
from amdjax.test_util import check_grads
from tests.support import layer_references as reference


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def close(got, expected, rtol=2e-5, atol=2e-5):
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


def moments(x, axes):
    x = np.asarray(x, np.float64)
    return x.mean(axes), 1 / np.sqrt(x.var(axes) + 1e-5)


@pytest.mark.parametrize("axes", [(1,), (1, 2), (0, 1, 2), (2, 3), (3,), (0, 2), (0,), ()], ids=str)
def test_moments_far_from_zero(axes):
    """Blocks of rows are merged without loss: 5e4 deviations from zero, in float32."""
    x = 5e4 + normal(2, 24, 40, 16)
    mean, variance = moments_of(jnp.asarray(x), axes)
    close(mean, x.astype(np.float64).mean(axes, keepdims=True), rtol=1e-6)
    close(variance, x.astype(np.float64).var(axes, keepdims=True), rtol=5e-3, atol=1e-3)


@pytest.mark.cpu_only("derivatives in float64, of the operations of the first ones")
@pytest.mark.parametrize("axes", [(0, 1), (1,)], ids=str)
def test_moments_have_right_derivatives_of_any_order(axes):
    """They are taken around centers that count as constant."""
    with amdjax.enable_x64(True):
        x = jnp.asarray(normal(4, 16, 32, dtype=np.float64)[:, :, :2])
        x = jnp.concatenate([x] * 64, 2)  # wide enough for blocks of rows
        f = lambda s: sum(v.sum() for v in moments_of(jnp.sin(s * x), axes)[1:])
        check_grads(f, (jnp.float64(0.7),), order=3, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_norm_and_its_statistics(groups, layout):
    x, scale, bias = 2 + 3 * normal(3, 8, 5, 6), normal(6), normal(6, seed=1)
    split = x.reshape(3, 40, groups, -1)
    mean, inverse = moments(split, (1, 3))
    lift = lambda v: v[:, None, :, None]
    expected = ((split - lift(mean)) * lift(inverse)).reshape(x.shape) * scale + bias
    axis = -1
    if layout == "channels_first":
        x, expected, axis = *map(reference.channels_first, (x, expected)), 1
    options = {"groups": groups, "axis": axis, "return_statistics": True}
    y, statistics = nn.group_norm(x, scale, bias, **options)
    close(y, expected)
    close(statistics[0], mean)
    close(statistics[1], inverse)
    close(nn.group_norm(x, scale, bias, groups=groups, axis=axis), expected)


@pytest.mark.parametrize("axis", [-1, 1])
def test_gradient_of_group_norm_over_blocks_of_rows(axis):
    with amdjax.enable_x64(True):
        x, c = normal(2, 64, 2, 16, dtype=np.float64), normal(16, dtype=np.float64)
        x = reference.channels_first(x) if axis == 1 else x
        w = jnp.asarray(normal(*x.shape, seed=1, dtype=np.float64))
        f = lambda x, s, b: (nn.group_norm(x, s, b, groups=4, axis=axis) * w).sum()
        check_grads(f, (jnp.asarray(x), c, c), order=1, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


def test_statistics_of_other_norms():
    x, scale = 1 + normal(4, 5, 6), normal(6)
    y, (mean, inverse) = nn.layer_norm(x, axis=(1, 2), return_statistics=True)
    expected = moments(x, (1, 2))
    close(mean, expected[0])
    close(inverse, expected[1])
    close(y, (x - expected[0][:, None, None]) * expected[1][:, None, None])
    y, inverse = nn.rms_norm(x, scale, return_statistics=True)
    close(inverse, 1 / np.sqrt((x**2).mean(-1) + 1e-6))
    close(y, x * np.asarray(inverse)[..., None] * scale)
    running = jnp.full(6, 0.5), jnp.full(6, 2.0)
    for train, expected in [(True, moments(x, (0, 1))), (False, (0.5, 1 / np.sqrt(2 + 1e-5)))]:
        _, _, (mean, inverse) = nn.batch_norm(
            x, None, None, *running, train=train, return_statistics=True
        )
        close(mean, np.broadcast_to(expected[0], 6))
        close(inverse, np.broadcast_to(expected[1], 6))


def test_add_layer_norm_does_not_round_the_sum():
    x, residual, scale, bias = (normal(*s, seed=3) for s in ((5, 64), (5, 64), (64,), (64,)))
    close(nn.add_layer_norm(x, residual, scale, bias), nn.layer_norm(x + residual, scale, bias))
    wide, narrow = jnp.full((1, 4), 256, jnp.bfloat16), jnp.arange(4, dtype=jnp.bfloat16) / 4
    y = nn.add_layer_norm(wide, narrow[None])
    assert y.dtype == jnp.bfloat16
    close(y.astype(jnp.float32), nn.layer_norm(narrow.astype(jnp.float32))[None], atol=5e-3)
    assert nn.add_layer_norm(wide, np.zeros((1, 4), np.float32)).dtype == np.float32


@pytest.mark.parametrize("axis", [-1, 1])
def test_instance_norm_with_running_statistics(axis):
    x = 2 + 3 * normal(4, 5, 6, 3)
    each, variances = x.astype(np.float64).mean((1, 2)), x.astype(np.float64).var((1, 2), ddof=1)
    mean, variance = normal(3), 1 + normal(3, seed=1) ** 2
    put = reference.channels_first if axis == 1 else lambda v: v
    y, (new_mean, new_variance), (means, inverse) = nn.instance_norm(
        put(x), None, None, mean, variance, axis=axis, momentum=0.7, return_statistics=True
    )
    expected = moments(x, (1, 2))
    lift = lambda v: v[:, None, None]
    close(y, put((x - lift(expected[0])) * lift(expected[1])))
    close(means, expected[0])
    close(inverse, expected[1])
    close(new_mean, 0.7 * mean + 0.3 * each.mean(0))
    close(new_variance, 0.7 * variance + 0.3 * variances.mean(0))
    y, (same, _) = nn.instance_norm(put(x), None, None, mean, variance, train=False, axis=axis)
    close(y, put((x - mean) / np.sqrt(variance + 1e-5)))
    np.testing.assert_array_equal(same, mean)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("mode", "axes"), [("cross_channel", (3,)), ("within_channel", (1, 2))])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_local_response_norm(size, mode, axes, layout):
    x = 3 * normal(2, 4, 7, 6)
    expected = reference.local_response(x, size, axes, 0.3, 0.6, 1.5)
    put = reference.channels_first if layout == "channels_first" else lambda v: v
    options = {"alpha": 0.3, "beta": 0.6, "k": 1.5, "mode": mode, "layout": layout}
    close(nn.local_response_norm(put(x), size, **options), put(expected))
    assert nn.local_response_norm(jnp.asarray(x, jnp.bfloat16), size).dtype == jnp.bfloat16
    with amdjax.enable_x64(True):
        f = lambda x: nn.local_response_norm(x, size, **options)
        check_grads(f, (jnp.asarray(put(x), jnp.float64),), order=2, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("train", [False, True])
def test_an_activation_after_batch_norm_costs_no_pass(train):
    """The documentation of `batch_norm` says so, in place of an option for it."""
    x, c = jnp.asarray(normal(8, 32, 32, 64)), jnp.ones(64)

    def steps(activation):
        f = lambda x, c: activation(nn.batch_norm(x, c, c, c, c, train=train)[0])
        return amdjax.jit(f).lower(x, c).compile().as_text("fusion").strip().splitlines()

    assert len(steps(nn.relu)) == len(steps(lambda y: y))
    assert "max" in steps(nn.relu)[-1]


LAYERS = {
    "LayerNorm": (lambda: nn.LayerNorm((5, 6)), lambda x: nn.layer_norm(x, axis=(2, 3))),
    "AddLayerNorm": (lambda: nn.AddLayerNorm(6), lambda x: nn.layer_norm(x + x)),
    "RMSNorm": (lambda: nn.RMSNorm((5, 6)), lambda x: nn.rms_norm(x, axis=(2, 3))),
    "T5LayerNorm": (lambda: nn.T5LayerNorm(6), nn.rms_norm),
    "InstanceNorm": (lambda: nn.InstanceNorm(6, affine=True), nn.instance_norm),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(3), lambda x: nn.local_response_norm(x, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, function = LAYERS[name]
    layer, x = make(), jnp.asarray(normal(2, 4, 5, 6))
    assert type(layer).__name__ == name and repr(layer).startswith(f"{name}(")
    args = (x, x) if name == "AddLayerNorm" else (x,)
    close(layer(*args), function(x))
    call = lambda layer, args: layer(*args)
    close(amdjax.jit(call)(layer, args), function(x))
    many = tuple(jnp.stack([a, 2 * a]) for a in args)
    close(amdjax.vmap(call, (None, 0))(layer, many)[1], call(layer, tuple(2 * a for a in args)))
    f = lambda layer: (layer(*args) * normal(2, 4, 5, 6, seed=1)).sum()
    for parameter in amdjax.tree.leaves(amdjax.grad(f)(layer)):
        assert np.isfinite(parameter).all() and np.asarray(parameter).any()


def test_instance_norm_gathers_statistics_within_apply():
    layer, x = nn.InstanceNorm(3, running_statistics=True, momentum=0.5), 3 + normal(4, 6, 3)
    y, trained = nn.apply(layer, x, train=True)
    close(y, nn.instance_norm(x))
    close(trained.mean, 0.5 * x.mean((0, 1)))
    close(trained(x), (x - trained.mean) / np.sqrt(trained.variance + 1e-5))


def test_batch_norm_of_each_activation():
    layer, x = nn.BatchNorm((4, 3), axis=(1, 2)), 1 + normal(9, 4, 3)
    y, layer = nn.apply(layer, x, train=True)
    mean, inverse = moments(x, 0)
    close(y, (x - mean) * inverse)
    close(layer.mean, 0.1 * mean)


IMAGE = np.ones((2, 4, 4, 6), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.add_layer_norm(IMAGE, IMAGE[0]), ValueError, "residual must have the shape"),
        (
            lambda: nn.add_layer_norm(IMAGE, IMAGE > 0),
            TypeError,
            "residual must have a real",
        ),
        (lambda: nn.instance_norm(IMAGE, mean=np.ones(6)), TypeError, "given together"),
        (lambda: nn.instance_norm(IMAGE, train=False), ValueError, "instance_norm: train=False"),
        (lambda: nn.instance_norm(IMAGE, axis=0), ValueError, "instance_norm: axis"),
        (lambda: nn.instance_norm(IMAGE, np.ones(5)), ValueError, "instance_norm: scale must have"),
        (lambda: nn.local_response_norm(IMAGE, 0), ValueError, "size must be a positive"),
        (lambda: nn.local_response_norm(IMAGE, 3, mode="across"), ValueError, "mode must be one"),
        (lambda: nn.local_response_norm(IMAGE, 3, layout="NHWC"), ValueError, "layout"),
        (lambda: nn.BatchNorm((3, 4)), ValueError, "BatchNorm: axis must have an entry"),
        (lambda: nn.GroupNorm(6, groups=4), ValueError, "GroupNorm: groups must divide"),
        (lambda: nn.LayerNorm((3, 0)), ValueError, "LayerNorm: features must be"),
        (lambda: nn.AddLayerNorm(-1), ValueError, "AddLayerNorm: features must be"),
        (lambda: nn.InstanceNorm(1.5), ValueError, "InstanceNorm: channels must be"),
        (lambda: nn.Linear(3), TypeError, r"^Linear\(\) missing .* 'out_features'"),
        (lambda: nn.Linear(3, 0, key=0), ValueError, "^Linear: out_features"),
    ],
)
def test_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
