"""Modules: pytrees, immutability, state, composition."""

import dataclasses
import importlib
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, random

KEY = random.key(0)


def small_network(key=KEY):
    k1, k2 = random.split(key)
    return nn.Sequential(
        [
            nn.Conv(1, 4, (3, 3), key=k1),
            nn.BatchNorm(4),
            nn.relu,
            nn.MaxPool(2),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Dense(16, 3, key=k2),
        ]
    )


LAYERS = {
    "Dense": (lambda: nn.Dense(4, 3, key=KEY), (2, 4), (2, 3)),
    "Conv": (lambda: nn.Conv(4, 6, 3, strides=2, groups=2, key=KEY), (2, 8, 8, 4), (2, 4, 4, 6)),
    "Conv 1-D": (lambda: nn.Conv(4, 6, (3,), padding="VALID", key=KEY), (2, 8, 4), (2, 6, 6)),
    "Conv first": (lambda: nn.Conv(4, 6, 3, layout="channels_first", padding=[0, (1, 2)], key=KEY),
                   (2, 4, 8, 8), (2, 6, 6, 9)),
    "ConvTranspose": (lambda: nn.ConvTranspose(4, 6, 3, strides=2, padding=1, output_padding=1,
                                               key=KEY), (2, 4, 4, 4), (2, 8, 8, 6)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (2, 4), (2, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (2, 4), (2, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(4, groups=2), (2, 5, 4), (2, 5, 4)),
    "MaxPool": (lambda: nn.MaxPool(2), (2, 4, 4, 1), (2, 2, 2, 1)),
    "AvgPool": (lambda: nn.AvgPool((2, 2)), (2, 4, 4, 1), (2, 2, 2, 1)),
    "Flatten": (lambda: nn.Flatten(), (2, 3, 4), (2, 12)),
    "Dropout": (lambda: nn.Dropout(0.3), (2, 4), (2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_jit_and_differentiate(name):
    make, shape, out = LAYERS[name]
    layer, x = make(), jnp.ones(shape)
    run = lambda layer: nn.apply(layer, x, key=KEY, train=True)[0]
    y = amdjax.jit(run)(layer)
    assert y.shape == out
    np.testing.assert_allclose(y, run(layer), rtol=1e-5, atol=1e-6)
    grads = amdjax.grad(lambda layer: run(layer).sum())(layer)
    assert amdjax.tree.structure(grads) == amdjax.tree.structure(layer)
    leaves, tree = amdjax.tree.flatten(layer)
    assert amdjax.tree.structure(make()) == tree and hash(tree) == hash(tree)
    assert repr(amdjax.tree.unflatten(tree, leaves)) == repr(layer)


def test_modules_are_immutable():
    layer = nn.Dense(2, 3, key=KEY)
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"replace\(bias"):
        layer.bias = None
    with pytest.raises(AttributeError, match="no field 'weight'"):
        layer.weight = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        del layer.bias
    with pytest.raises(TypeError, match="no field 'weight'"):
        layer.replace(weight=1)
    assert layer.replace(bias=None).bias is None and layer.bias is not None


def test_a_layer_that_apply_does_not_reach_is_told_of():
    with pytest.warns(UserWarning, match=r"Old\.__call__ takes train=False") as warned:

        class Old(nn.Module):
            def __call__(self, x, *, train=False):
                return x

    assert warned[0].filename == __file__


def test_a_forgotten_field_is_named():
    class Forgetful(nn.Module):
        a: object
        b: object

        def __init__(self):
            self.a = 1

    with pytest.raises(AttributeError, match=r"Forgetful\.b was never assigned"):
        Forgetful()


def test_fields_may_be_assigned_again_until_init_is_done():
    class Grown(nn.Module):
        size: int = nn.static(default=3)
        parts: list = dataclasses.field(default_factory=list)
        scale: object = 1.0

        def __init__(self, factor):
            self.scale = self.scale * factor
            self.scale += 1

    class Larger(Grown):
        more: object = None

        def __init__(self):
            super().__init__(4)
            self.more, self.size = self.scale, 5

    grown, larger = Grown(2), Larger()
    assert (grown.size, grown.parts, grown.scale) == (3, [], 3.0)
    assert (larger.size, larger.scale, larger.more) == (5, 5.0, 5.0)
    for module in (grown, larger):
        with pytest.raises(dataclasses.FrozenInstanceError):
            module.scale = 1.0
    assert amdjax.tree.leaves(larger) == [5.0, 5.0]


def test_batches_without_examples():
    attention = nn.MultiHeadAttention(4, 2, kv_heads=1, key=KEY)
    assert attention(jnp.zeros((0, 3, 4))).shape == (0, 3, 4)
    assert nn.Flatten()(jnp.zeros((0, 3, 4))).shape == (0, 12)
    slope = amdjax.grad(lambda layer: layer(jnp.zeros((0, 3, 4))).sum())(attention)
    assert not slope.query.kernel.any()


def test_layers_of_a_generator():
    layers = nn.Sequential(nn.Lambda(lambda x: x + 1) for _ in range(3))
    assert len(layers) == 3 and layers(0) == 3
    with pytest.raises(TypeError, match="Sequential: layers must be a list"):
        nn.Sequential(nn.relu)


@pytest.mark.parametrize("first", ["amdjax.nn._surface", "amdjax.nn.data", "amdjax.nn.layers"])
def test_names_do_not_depend_on_what_is_imported_first(first):
    code = f"import {first}; from amdjax import nn; nn.Dense, nn.data.batches, nn.softmax"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fields_become_children_or_structure():
    class Scaled(nn.Module):
        inner: nn.Dense
        factors: dict
        power: int = nn.static(default=2)

    layer = Scaled(nn.Dense(2, 2, key=KEY, use_bias=False), {"a": 2.0, "b": None})
    paths = [amdjax.tree_util.keystr(p) for p, _ in amdjax.tree.leaves_with_path(layer)]
    assert paths == [".inner.kernel", ".factors['a']"]
    assert amdjax.tree.structure(layer) != amdjax.tree.structure(layer.replace(power=3))
    assert repr(layer) == (
        "Scaled(inner=Dense(kernel=float32[2,2], bias=None), factors={'a': 2.0, 'b': None})"
    )
    assert repr(layer.replace(power=3)).endswith("power=3)")


def test_large_networks_are_printed_on_several_lines():
    assert (
        repr(nn.Sequential([small_network()[:2], nn.Lambda(abs)]))
        == """\
Sequential(layers=(
  Sequential(layers=(
    Conv(kernel=float32[3,3,1,4], bias=float32[4]),
    BatchNorm(scale=float32[4], bias=float32[4], mean=float32[4], variance=float32[4]),
  )),
  Lambda(fn=abs),
))"""
    )


def test_subclasses_inherit_a_written_init():
    class Named(nn.Dense):
        def double(self, x):
            return 2 * self(x)

    layer = Named(2, 3, key=KEY)
    assert layer.double(jnp.ones(2)).shape == (3,)
    assert type(amdjax.tree.map(lambda x: x, layer)) is Named


def test_sequential():
    net = small_network()
    x = jnp.ones((2, 4, 4, 1))
    assert net(x).shape == (2, 3)
    _, after = amdjax.jit(lambda n, x, k: nn.apply(n, x, key=k, train=True))(net, x, KEY)
    assert amdjax.tree.structure(after) == amdjax.tree.structure(net)
    assert (after[1].mean != net[1].mean).any()
    assert len(net) == 7 and isinstance(net[:2], nn.Sequential) and len(net[:2]) == 2
    assert net[2:4](x).shape == (2, 2, 2, 1)
    with pytest.raises(TypeError, match=r"layers\[1\]"):
        nn.Sequential([nn.relu, 3])


def test_partition_and_combine():
    net = small_network()
    params, rest = nn.partition(net)
    assert params[1].mean is None and rest[1].mean is not None and rest[0].kernel is None
    assert repr(nn.combine(params, rest)) == repr(net)
    both = nn.partition({"net": [net], "steps": jnp.int32(3), "w": 1.0})
    assert both[0]["steps"] is None and both[0]["w"] == 1.0
    assert nn.count_parameters(net) == 9 * 4 + 4 + 8 + 16 * 3 + 3
    grads = amdjax.grad(lambda p: nn.combine(p, rest)(jnp.ones((1, 4, 4, 1))).sum())(params)
    assert grads[1].mean is None and grads[1].scale.shape == (4,)


def test_an_ensemble_by_vmap():
    keys = random.split(KEY, 5)
    nets = amdjax.vmap(lambda k: nn.Dense(2, 3, key=k))(keys)
    assert nets.kernel.shape == (5, 2, 3)
    y = amdjax.vmap(lambda net, x: net(x), in_axes=(0, None))(nets, jnp.ones((4, 2)))
    assert y.shape == (5, 4, 3)


def test_init_scale_and_dtype():
    layer = nn.Conv(64, 128, (3, 3), key=KEY)
    np.testing.assert_allclose(np.std(layer.kernel), (9 * 64) ** -0.5, rtol=0.05)
    first = nn.Conv(64, 128, (3, 3), key=KEY, layout="channels_first")
    np.testing.assert_allclose(np.std(first.kernel), (9 * 64) ** -0.5, rtol=0.05)
    assert nn.Dense(2, 3, key=KEY, dtype=jnp.bfloat16).bias.dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Dense(0, 3, key=KEY), "in_features"),
        (lambda: nn.Conv(3, 4, 3, groups=2, key=KEY), "groups must divide"),
        (lambda: nn.Conv(3, 4, 3, layout="x", key=KEY), "layout"),
        (lambda: nn.Dropout(2.0), "rate"),
        (lambda: nn.BatchNorm(-1), "features"),
        (lambda: nn.Embedding(0, 3, key=KEY), "count"),
    ],
)
def test_bad_sizes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_every_layer_is_a_name_of_nn():
    for info in pkgutil.iter_modules(nn.layers.__path__):
        names = importlib.import_module(f"amdjax.nn.layers.{info.name}").__all__
        assert names and all(hasattr(nn, name) for name in names), info.name
