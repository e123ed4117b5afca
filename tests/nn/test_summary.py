"""What `nn.summary` counts, against counts by hand."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, random

pytestmark = pytest.mark.cpu_only("nothing is computed")
KEY = random.key(0)


def rows(summary):
    return {row.path: row for row in summary.rows}


def test_layers_of_a_network():
    net = nn.Sequential(
        [
            nn.Conv(2, 4, 3, strides=2, key=KEY),
            nn.BatchNorm(4),
            nn.Flatten(),
            nn.Dense(64, 5, key=KEY),
        ]
    )
    x = amdjax.ShapeDtypeStruct((3, 8, 8, 2), jnp.float32)
    found = nn.summary(net, x, train=True)
    by = rows(found)
    assert list(by) == ["", *(f".layers[{i}]" for i in range(4))]
    conv, dense = by[".layers[0]"], by[".layers[3]"]
    elements = 3 * 4 * 4 * 4
    assert conv.flops == elements * (2 * 3 * 3 * 2 + 1) and conv.output == "float32[3,4,4,4]"
    assert dense.flops == 3 * 5 * (2 * 64 + 1) and dense.parameters == 64 * 5 + 5
    assert by[".layers[2]"].flops == 0 and by[".layers[1]"].parameters == 8
    assert found.parameters == nn.count_parameters(net) == by[""].parameters
    assert found.flops == by[""].flops == sum(r.flops for r in found.rows[1:])
    assert str(found).splitlines()[0].split() == ["layer", "class", "output", "parameters", "FLOPs"]
    assert f"{dense.flops:,}" in str(found)


class Looped(nn.Module):
    inner: nn.Dense
    unused: nn.Dense

    def __call__(self, x, flag):
        x = lax.scan(lambda x, _: (self.inner(x), None), x, length=5)[0]
        x = lax.cond(flag, self.inner, lambda x: x, x)
        x = amdjax.jit(lambda layer, x: layer(x))(self.inner, x)
        return amdjax.checkpoint(jnp.tanh)(x)


def test_loops_and_branches():
    model = Looped(nn.Dense(4, 4, use_bias=False, key=KEY), nn.Dense(2, 2, key=KEY))
    found = nn.summary(model, jnp.ones((3, 4)), amdjax.ShapeDtypeStruct((), jnp.bool_))
    once = 3 * 4 * 2 * 4
    assert abs(found.flops - (7 * once + 12)) <= 2  # and what the branch costs
    assert found.parameters == 16 + 6


def test_nothing_is_computed():
    def refuse(x):
        raise AssertionError("it ran")

    net = nn.Sequential([lambda x: amdjax.pure_callback(refuse, x, x), nn.Dense(2, 2, key=KEY)])
    huge = amdjax.ShapeDtypeStruct((1 << 24, 1 << 20, 2), jnp.float32)
    assert nn.summary(net, huge).rows[-1].flops == 5 * 2 * (1 << 44)


def test_methods_containers_and_keys():
    pair = {"a": nn.Dense(2, 3, key=KEY), "b": nn.Dropout(0.5)}
    method = lambda pair, x: pair["b"](pair["a"](x))
    found = nn.summary(pair, np.ones((4, 2), np.float32), method=method, key=KEY, train=True)
    assert list(rows(found)) == ["['a']", "['b']"]
    assert found.flops == sum(r.flops for r in found.rows)
    with pytest.raises(ValueError, match=r"Dropout \(model\['b'\]\): a key"):
        nn.summary(pair, np.ones((4, 2), np.float32), method=method, train=True)
