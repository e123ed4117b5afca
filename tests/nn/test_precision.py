"""Mixed precision: what is cast and what is not, and the scale of losses."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, optim, random

KEY = random.key(0)
HALF = nn.Policy(compute_dtype=jnp.bfloat16)


class Seen(nn.Module):
    """Notes the dtypes that a layer is called in."""

    inner: nn.Sequential
    log: list = nn.static(default_factory=list)

    def __call__(self, x, flags):
        self.log.append(
            (x.dtype, self.inner[0].kernel.dtype, self.inner[1].mean.dtype, flags.dtype)
        )
        return self.inner(x), flags


def network():
    return nn.Sequential([nn.Dense(3, 4, key=KEY), nn.BatchNorm(4)])


def test_what_is_cast():
    model, x = Seen(network(), []), random.normal(KEY, (8, 3))
    (y, flags), after = nn.apply(model, x, jnp.arange(3), train=True, policy=HALF)
    assert model.log == [(jnp.bfloat16, jnp.bfloat16, np.float32, np.int32)]
    assert y.dtype == np.float32 and flags.dtype == np.int32
    assert after.inner[0].kernel is model.inner[0].kernel
    assert after.inner[1].mean.dtype == np.float32
    exact = np.asarray(model.inner[0](x), np.float64)
    np.testing.assert_allclose(after.inner[1].mean, 0.1 * exact.mean(0), atol=2**-8 * 0.1)
    wide = nn.Policy(param_dtype=jnp.float16).cast_to_param(model)
    assert wide.inner[0].kernel.dtype == np.float16 and wide.inner[1].mean.dtype == np.float32


def test_numbers_of_python_stay():
    scale = lambda layer, x, factor: (layer[0](x) * factor, factor)
    y, factor = nn.apply(network(), jnp.ones((2, 3)), factor=0.5, method=scale, policy=HALF)[0]
    assert type(factor) is float and y.dtype == np.float32


def test_gradients_are_those_of_the_parameters_dtype():
    params, rest = nn.partition(network())
    loss = lambda params: nn.apply(nn.combine(params, rest), jnp.ones((4, 3)), policy=HALF)[0].sum()
    grads = amdjax.jit(amdjax.grad(loss))(params)
    assert {x.dtype for x in amdjax.tree.leaves(grads)} == {np.dtype("float32")}


def test_refusals():
    with pytest.raises(TypeError, match="compute_dtype must be a floating dtype, got int32"):
        nn.Policy(compute_dtype=jnp.int32)
    with pytest.raises(ValueError, match="factor above 1"):
        nn.DynamicLossScale(factor=0.5)


def test_all_finite():
    check = lambda *leaves: bool(nn.all_finite(list(leaves)))
    assert check(jnp.ones(2), 3, jnp.int32(1)) and check()
    assert not check(jnp.array([1, jnp.nan])) and not check(1.0, jnp.complex64(complex(0, jnp.inf)))


@pytest.mark.parametrize("x", [3.0, 3j, np.float16(3), np.complex64(3j), jnp.ones(2, jnp.bfloat16)])
def test_all_that_has_a_gradient_is_scaled(x):
    scale = nn.DynamicLossScale(8.0)
    scaled = scale.scale({"x": x, "count": 3})
    np.testing.assert_array_equal(np.asarray(scaled["x"], complex), 8 * np.asarray(x, complex))
    assert scaled["count"] == 3
    back = scale.unscale(scaled)["x"]
    np.testing.assert_array_equal(np.asarray(back, complex), np.asarray(x, complex))
    if hasattr(x, "dtype"):
        assert scaled["x"].dtype == back.dtype == x.dtype


def test_the_scale_grows_and_shrinks():
    scale, seen = nn.DynamicLossScale(4.0, period=2, minimum=1.0), []
    adjust = amdjax.jit(lambda scale, finite: scale.adjust(finite))
    for finite in [True, True, True, False, True, True, False, False, False, False, False]:
        scale = adjust(scale, finite)
        seen.append(float(scale.value))
    assert seen == [4, 8, 8, 4, 4, 8, 4, 2, 1, 1, 1]
    most = nn.DynamicLossScale(2.0**127, period=1).adjust(True)
    assert most.value == 2.0**127
    assert nn.count_parameters(scale) == 0


def test_scaling_is_exact_and_keeps_dtypes():
    scale = nn.DynamicLossScale(2.0**15)
    tree = {
        "a": jnp.float16(1.5) * jnp.ones(2, jnp.float16),
        "n": jnp.int32(3),
        "b": jnp.float32(0.1),
    }
    scaled = scale.scale({"b": tree["b"], "n": tree["n"]})
    assert scaled["b"] == np.float32(0.1) * 2**15 and scaled["n"] == 3
    back = scale.unscale(scale.scale(tree["b"]))
    assert back == tree["b"] and scale.scale(tree)["a"].dtype == np.float16


def test_a_small_gradient_survives_float16():
    policy = nn.Policy(compute_dtype=jnp.float16)
    layer, x = nn.Dense(1, 1, use_bias=False, key=KEY), jnp.full((1, 1), 2.0**-10)
    scale = nn.DynamicLossScale(2.0**15)

    def grad(scale):
        def loss(layer):
            y, _ = nn.apply(layer, x, policy=policy)
            return scale(y.sum() * 2.0**-16)

        return amdjax.grad(loss)(layer).kernel.item()

    assert grad(lambda y: y) == 0.0
    assert grad(scale.scale) / 2**15 == 2.0**-26


def test_a_step_that_overflows_is_left_out():
    params = {"w": jnp.float32(1)}
    optimizer, scale = optim.sgd(0.1), nn.DynamicLossScale(2.0**15)

    @amdjax.jit
    def step(params, scale, factor):
        grads = amdjax.grad(lambda p: scale.scale((p["w"] * factor).astype(jnp.float16)))(params)
        grads = scale.unscale(grads)
        finite = nn.all_finite(grads)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        new = optim.apply_updates(params, updates)
        keep = amdjax.tree.map(lambda a, b: jnp.where(finite, a, b), new, params)
        return keep, scale.adjust(finite)

    same, scale = step(params, scale, jnp.float32(jnp.inf))
    assert same["w"] == 1 and scale.value == 2.0**14
    new, scale = step(params, scale, jnp.float32(1))
    np.testing.assert_allclose(new["w"], 0.9)
