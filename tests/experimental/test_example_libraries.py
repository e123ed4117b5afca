"""`example_libraries`: networks that train, with JAX's initial values and steps."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jit, random
from amdjax.example_libraries import optimizers, stax

# Ten steps on |x - (1, -2)|² from (3, 4), recorded from jax.example_libraries.
RECORDED = {
    "sgd": ((0.1,), [1.2147484, -1.355755]),
    "momentum": ((0.1, 0.5), [0.9349094, -2.1952717]),
    "nesterov": ((0.1, 0.5), [0.97880238, -2.0635929]),
    "adagrad": ((0.5,), [1.8953369, 2.8392501]),
    "rmsprop": ((0.1,), [1.6027967, 2.3599796]),
    "rmsprop_momentum": ((0.1,), [-0.026364326, -2.5934043]),
    "adam": ((0.5,), [0.14773664, -0.72518396]),
    "adamax": ((0.5,), [0.46296799, -0.032974035]),
    "sm3": ((0.5,), [1.8953369, 2.8392501]),
}


@pytest.mark.parametrize("name", RECORDED)
def test_optimizers_make_jax_steps(name):
    args, want = RECORDED[name]
    init, update, get_params = getattr(optimizers, name)(*args)
    loss = lambda p: jnp.sum((p["x"] - jnp.array([1.0, -2.0])) ** 2)
    step = jit(lambda i, state: update(i, grad(loss)(get_params(state)), state))
    state = init({"x": jnp.array([3.0, 4.0])})
    for i in range(10):
        state = step(i, state) if name != "sm3" else update(i, grad(loss)(get_params(state)), state)
    np.testing.assert_allclose(get_params(state)["x"], want, rtol=2e-5)
    unpacked = optimizers.unpack_optimizer_state(state)
    again = optimizers.pack_optimizer_state(unpacked)
    np.testing.assert_array_equal(get_params(again)["x"], get_params(state)["x"])


def test_optimizers_refuse_other_trees():
    init, update, _ = optimizers.sgd(0.1)
    with pytest.raises(TypeError, match="tree structure"):
        update(0, [jnp.ones(2)], init({"x": jnp.ones(2)}))
    with pytest.raises(TypeError):
        optimizers.sgd(jnp.ones(2))
    with pytest.raises(ValueError, match="one shorter"):
        optimizers.piecewise_constant([1.0], [1.0])


def test_schedules():
    for schedule, want in (
        (optimizers.constant(0.1), [0.1, 0.1, 0.1]),
        (optimizers.exponential_decay(0.1, 3, 2.0), [0.1, 0.1 * 2 ** (5 / 3), 0.1 * 2 ** (10 / 3)]),
        (optimizers.inverse_time_decay(0.1, 3, 2.0), [0.1, 0.1 / (1 + 10 / 3), 0.1 / (1 + 20 / 3)]),
        (optimizers.inverse_time_decay(0.1, 3, 2.0, True), [0.1, 0.1 / 3, 0.1 / 7]),
        (optimizers.polynomial_decay(1.0, 8, 0.5, 2.0), [1.0, 0.5 + 0.5 * 9 / 64, 0.5]),
        (optimizers.piecewise_constant([4, 8], [1.0, 0.5, 0.1]), [1.0, 0.5, 0.1]),
    ):
        np.testing.assert_allclose([float(schedule(i)) for i in (0, 5, 10)], want, rtol=1e-6)
    clipped = optimizers.clip_grads([jnp.array([3.0]), jnp.array([4.0])], 1.0)
    np.testing.assert_allclose(np.ravel(clipped), [0.6, 0.8], rtol=1e-6)


LAYERS = {
    "dense": (stax.Dense(5), (3, 4)),
    "conv": (stax.Conv(5, (3, 2), (2, 1), "SAME"), (2, 8, 9, 3)),
    "transposed": (stax.ConvTranspose(5, (3, 2), (2, 1), "SAME"), (2, 4, 5, 3)),
    "norm": (stax.BatchNorm(), (2, 4, 5, 3)),
    "max": (stax.MaxPool((2, 2), (2, 2)), (2, 5, 6, 3)),
    "mean": (stax.AvgPool((3, 3), (2, 2), "SAME"), (2, 5, 6, 3)),
    "sum": (stax.SumPool((2, 2), spec="NCHW"), (2, 3, 5, 6)),
    "flat": (stax.Flatten, (2, 3, 4)),
    "dropout": (stax.Dropout(0.9), (30, 40)),
    "fan": (stax.serial(stax.FanOut(2), stax.parallel(stax.Relu, stax.Tanh), stax.FanInConcat()),
            (2, 3)),
    "sum of two": (stax.serial(stax.FanOut(2), stax.parallel(stax.Dense(4), stax.Identity),
                   stax.FanInSum), (2, 4)),
    "of the shape": (stax.shape_dependent(lambda shape: stax.Dense(shape[-1] * 2)), (2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_the_shape_they_say(name):
    (init, apply), shape = LAYERS[name]
    out, params = init(random.key(0), shape)
    x = random.normal(random.key(1), shape)
    y = apply(params, x, rng=random.key(2))
    assert y.shape == tuple(out)
    assert jnp.isfinite(y).all()


def test_means_of_windows_at_the_edge():
    _, apply = stax.AvgPool((3, 3), (1, 1), "SAME")
    np.testing.assert_allclose(apply((), jnp.ones((1, 4, 4, 2))), 1, rtol=1e-6)


def test_dropout():
    _, apply = stax.Dropout(0.8)
    y = apply((), jnp.ones(10000), rng=random.key(0))
    assert set(np.unique(y)) == {np.float32(0), np.float32(1.25)}
    assert abs(float(y.mean()) - 1) < 0.02
    assert (stax.Dropout(0.8, "test")[1]((), jnp.ones(3), rng=random.key(0)) == 1).all()
    with pytest.raises(ValueError, match="PRNG key"):
        apply((), jnp.ones(3))


def test_initial_values_are_those_of_jax():
    init, _ = stax.serial(stax.Dense(2), stax.Relu, stax.Dense(1))
    _, params = init(amdjax.random.PRNGKey(0), (-1, 3))
    np.testing.assert_allclose(np.asarray(params[0][0])[0], WEIGHTS, rtol=1e-5)


WEIGHTS = [0.1364276, -0.52342767]
