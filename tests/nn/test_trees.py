"""Networks taken apart and put together: filters of `partition`, `tree_at`, counting."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, random

pytestmark = pytest.mark.cpu_only("trees are taken apart on no device")
KEY = random.key(0)


def network():
    k1, k2 = random.split(KEY)
    return nn.Sequential([nn.Dense(2, 3, key=k1), nn.BatchNorm(3), nn.Dense(3, 1, key=k2)])


def paths(tree):
    return [amdjax.tree_util.keystr(path) for path, _ in amdjax.tree.leaves_with_path(tree)]


KERNELS = [".layers[0].kernel", ".layers[2].kernel"]
NORM = [f".layers[1].{name}" for name in ("scale", "bias", "mean", "variance")]


@pytest.mark.parametrize(
    ("filter", "chosen"),
    [
        (lambda x: x.ndim == 2, KERNELS),
        (lambda path, x: getattr(path[-1], "name", "") == "kernel", KERNELS),
        (nn.BatchNorm, NORM),
        (amdjax.Array, paths(network())),
        (jnp.integer, []),
        (jnp.float32, paths(network())),
        (np.dtype("float32"), paths(network())),
        ("int32", []),
        (True, paths(network())),
    ],
    ids=["leaf", "path", "module", "class", "kind", "dtype", "np.dtype", "name", "bool"],
)
def test_partition_by(filter, chosen):
    net = network()
    first, rest = nn.partition(net, filter)
    assert paths(first) == chosen
    assert sorted(paths(first) + paths(rest)) == sorted(paths(net))
    assert repr(nn.combine(first, rest)) == repr(net)


def test_partition_by_a_tree_of_bools():
    tree = {"a": [1.0, 2.0], "b": {"c": 3.0}}
    assert nn.partition(tree, {"a": [True, False], "b": True}) == (
        {"a": [1.0, None], "b": {"c": 3.0}},
        {"a": [None, 2.0], "b": {"c": None}},
    )
    with pytest.raises(TypeError, match="filter must be a function"):
        nn.partition(tree, {"a": 1, "b": True})
    with pytest.raises(ValueError):
        nn.partition(tree, {"b": True})


def test_freezing():
    params, rest = nn.partition(network())
    frozen, trained = nn.partition(params, nn.BatchNorm)
    loss = lambda trained: nn.combine(trained, frozen, rest)(jnp.ones((4, 2))).sum()
    assert paths(amdjax.grad(loss)(trained)) == [
        p for i in (0, 2) for p in (f".layers[{i}].kernel", f".layers[{i}].bias")
    ]


def test_state_may_hold_modules_and_trees():
    class Teacher(nn.Module):
        teacher: nn.Dense = nn.state()
        counts: dict = nn.state()
        student: nn.Dense

    model = Teacher(nn.Dense(2, 3, key=KEY), {"a": jnp.zeros(2)}, nn.Dense(2, 3, key=KEY))
    assert paths(nn.partition(model)[0]) == [".student.kernel", ".student.bias"]


def test_shared_arrays_count_once():
    layer = nn.Dense(2, 3, key=KEY)
    assert nn.count_parameters([layer, layer, nn.Dense(2, 3, key=KEY)]) == 18
    assert nn.count_parameters({"w": 1.0, "n": 3, "k": KEY}) == 1


def test_tree_at():
    net = network()
    bigger = nn.tree_at(lambda n: n.layers[0].kernel, net, replace_fn=lambda w: 2 * w)
    np.testing.assert_array_equal(bigger[0].kernel, 2 * net[0].kernel)
    assert bigger[2].kernel is net[2].kernel
    swapped = nn.tree_at(lambda n: [n.layers[0].bias, n.layers[2]], net, [None, nn.Flatten()])
    assert swapped[0].bias is None and isinstance(swapped[2], nn.Flatten)
    again = nn.tree_at(lambda n: n.layers[0].bias, swapped, jnp.ones(3))
    np.testing.assert_array_equal(again[0].bias, np.ones(3))
    shorter = nn.tree_at(lambda n: n.layers, net, replace_fn=lambda layers: layers[:1])
    assert len(shorter) == 1 and shorter[0].kernel is net[0].kernel
    assert nn.tree_at(lambda t: t, 3, 4) == 4
    one = jnp.ones(())
    assert nn.tree_at(lambda t: t[1], [one, one], 5) == [one, 5]  # by place, not by identity


@pytest.mark.parametrize(
    ("where", "options", "error", "words"),
    [
        (lambda n: 3, {"replace": 1}, ValueError, "where must return parts"),
        (lambda n: [n.layers[0], n.layers[0].bias], {"replace": [1, 2]}, ValueError, "within"),
        (lambda n: [n.layers[0], n.layers[0]], {"replace": [1, 2]}, ValueError, "each once"),
        (lambda n: [n.layers[0], n.layers[1]], {"replace": [1]}, ValueError, "2 parts, got 1"),
        (lambda n: [n.layers[0], n.layers[1]], {"replace": 1}, ValueError, "must be a list"),
        (lambda n: n.layers[0].kernel.T, {"replace": 1}, TypeError, "where .* no attribute 'T'"),
        (lambda n: n.layers[0].kernel + 1, {"replace": 1}, TypeError, "where .*'leaf' and 'int'"),
        (lambda n: n.layers[0].nothing, {"replace": 1}, AttributeError, "'Dense' object has no"),
        (3, {"replace": 1}, TypeError, "where must be a function"),
        (lambda n: n.layers[0], {}, TypeError, "either replace or replace_fn"),
        (lambda n: n.layers[0], {"replace": 1, "replace_fn": id}, TypeError, "either"),
    ],
)
def test_tree_at_refuses(where, options, error, words):
    with pytest.raises(error, match=words):
        nn.tree_at(where, network(), **options)


@pytest.mark.parametrize("extra", [jnp.int32(1), KEY], ids=["integer", "key"])
def test_a_forgotten_partition_is_named(extra):
    loss = lambda tree: tree["net"](jnp.ones((4, 2))).sum()
    for transform in (amdjax.grad, amdjax.jacrev):
        with pytest.raises(TypeError, match=r"nn\.partition"):
            transform(loss)({"net": network(), "extra": extra})
