"""Transformations around others, and what they remember."""

import functools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, optim

GRAD = {"w": jnp.array([1.0, -2.0]), "b": jnp.array([3.0])}


def network():
    keys = amdjax.random.split(amdjax.random.key(0))
    return nn.Sequential([nn.Dense(2, 3, key=keys[0]), nn.Dense(3, 1, key=keys[1])])


def test_a_module_is_a_mask_though_it_can_be_called():
    model = network()
    mask = amdjax.tree.map(lambda p: p.ndim > 1, model)
    assert callable(mask)
    grads = amdjax.tree.map(jnp.ones_like, model)
    masked = optim.masked(optim.trace(0.9), mask)
    state = masked.init(model)
    assert [x.shape for x in amdjax.tree.leaves(state)] == [(2, 3), (3, 1)]
    updates, _ = masked.update(grads, masked.update(grads, state, model)[1], model)
    np.testing.assert_allclose(updates.layers[0].kernel, 1.9 * np.ones((2, 3)), rtol=1e-6)
    np.testing.assert_allclose(updates.layers[0].bias, np.ones(3))
    decay = optim.adamw(0.1, weight_decay=1.0, mask=mask)
    zeros = amdjax.tree.map(jnp.zeros_like, model)
    updates, _ = decay.update(zeros, decay.init(model), model)
    np.testing.assert_allclose(updates.layers[0].kernel, -0.1 * model.layers[0].kernel, rtol=1e-6)
    assert not np.any(updates.layers[0].bias)


def test_a_module_holds_labels():
    model = network()
    labels = amdjax.tree.map(lambda p: "fast" if p.ndim > 1 else "still", model)
    optimizer = optim.partition({"fast": optim.sgd(1.0), "still": optim.scale(0.0)}, labels)
    grads = amdjax.tree.map(jnp.ones_like, model)
    updates, _ = optimizer.update(grads, optimizer.init(model), model)
    assert np.all(updates.layers[1].kernel == -1) and not np.any(updates.layers[1].bias)
    with pytest.raises(ValueError, match="slow"):
        optim.partition({"fast": optim.sgd(1.0)}, lambda p: "slow").init(model)


def test_masks_of_upper_parts():
    params = {"a": {"x": jnp.ones(2), "y": jnp.ones(3)}, "b": jnp.ones(1)}
    half = optim.masked(optim.scale(0.5), {"a": True, "b": False})
    updates, _ = half.update(params, half.init(params))
    assert (updates["a"]["y"][0], updates["b"][0]) == (0.5, 1)


def test_multi_steps_leaves_the_inner_state_alone():
    calls = []

    def update(grads, state, params=None):
        amdjax.debug.callback(lambda: calls.append(1))
        return grads, state + 1

    counted = optim.GradientTransformation(lambda p: jnp.zeros((), int), update)
    optimizer = optim.MultiSteps(counted, 3)
    step, state = amdjax.jit(optimizer.update), optimizer.init(GRAD)
    for i in range(6):
        updates, state = step(GRAD, state)
        assert bool(optimizer.has_updated(state)) == (i % 3 == 2)
        np.testing.assert_allclose(updates["w"], GRAD["w"] if i % 3 == 2 else [0, 0], rtol=1e-6)
    amdjax.effects_barrier()
    assert int(state.inner_opt_state) == 2 == len(calls)


def test_multi_steps_adds_narrow_gradients_in_float32():
    optimizer = optim.MultiSteps(optim.sgd(1.0), 300, use_grad_mean=False)
    grads, step = jnp.ones(1, jnp.bfloat16), amdjax.jit(optimizer.update)
    state = optimizer.init(grads)
    for _ in range(300):
        updates, state = step(grads, state)
    assert updates.dtype == jnp.bfloat16 and float(updates[0]) == -300


def test_injected_numbers_can_be_changed():
    optimizer = optim.inject_hyperparams(optim.sgd)(lambda count: 0.1 * count, momentum=0.5)
    state = optimizer.init(GRAD)
    step = amdjax.jit(optimizer.update)
    _, state = step(GRAD, state, GRAD)
    state.hyperparams["momentum"] = jnp.float32(0.0)
    updates, state = step(GRAD, state, GRAD)
    np.testing.assert_allclose(updates["w"], -0.1 * GRAD["w"], rtol=1e-6)
    assert float(state.hyperparams["learning_rate"]) == pytest.approx(0.1)
    kept = optim.inject_hyperparams(optim.adafactor, static_args="min_dim_size_to_factor")
    assert "min_dim_size_to_factor" not in kept(0.1).init(GRAD).hyperparams
    with pytest.raises(ValueError, match="rate"):
        optim.inject_hyperparams(optim.sgd, static_args="rate")


def test_zero_nans_remembers_where():
    cleaned = optim.zero_nans()
    grads = GRAD | {"b": jnp.array([jnp.nan])}
    updates, state = cleaned.update(grads, cleaned.init(GRAD))
    assert updates["b"][0] == 0
    assert {k: bool(v) for k, v in state.found_nan.items()} == {"w": False, "b": True}


def test_apply_if_finite_gives_up_in_the_end():
    optimizer = optim.apply_if_finite(optim.sgd(1.0), 1)
    state, bad = optimizer.init(GRAD), GRAD | {"b": jnp.array([jnp.inf])}
    seen = []
    for grads in (GRAD, bad, bad, GRAD):
        updates, state = optimizer.update(grads, state)
        seen.append(float(updates["w"][0]))
    assert seen == [-1, 0, -1, -1]
    assert (int(state.total_notfinite), int(state.notfinite_count)) == (2, 0)


def test_narrow_means_do_not_narrow_the_update():
    """The mean is rounded when it is stored, after the update is made of it."""
    optimizer = optim.scale_by_adam(mu_dtype=jnp.bfloat16)
    g = jnp.array([10.03])  # a tenth of which bfloat16 rounds to 1.0
    updates, state = optimizer.update(g, optimizer.init(g))
    assert state.mu.dtype == jnp.bfloat16 and updates.dtype == jnp.float32
    assert float(state.mu[0]) == 1.0 and abs(updates[0] - 1) < 1e-4


def test_a_variance_rounded_below_zero_is_none():
    optimizer = optim.rmsprop(0.1, 0.5, centered=True, eps_in_sqrt=False)
    g = jnp.float32([1.1, 0.3, 1e-4])
    state = optimizer.init(g)
    for _ in range(60):
        updates, state = optimizer.update(g, state)
        assert not np.any(np.isnan(updates))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop_of_pytorch(momentum, centered):
    """`square.sqrt().add_(eps)`, then `buf.mul_(momentum).addcdiv_(grad, avg)`, times the rate."""
    optimizer = optim.rmsprop(0.01, 0.99, eps_in_sqrt=False, centered=centered, momentum=momentum)
    rng, params = np.random.default_rng(0), jnp.zeros(5)
    state, square, mean, buf, expected = optimizer.init(params), 0.0, 0.0, 0.0, np.zeros(5)
    for _ in range(20):
        g = rng.standard_normal(5).astype(np.float32)
        square, mean = 0.99 * square + 0.01 * g.astype(float) ** 2, 0.99 * mean + 0.01 * g
        buf = momentum * buf + g / (np.sqrt(square - mean**2 * centered) + 1e-8)
        expected = expected - 0.01 * buf
        updates, state = optimizer.update(g, state)
        params = optim.apply_updates(params, updates)
    np.testing.assert_allclose(params, expected, rtol=5e-6, atol=1e-7)


def test_counts_stay_at_the_largest():
    state = optim.ScaleByScheduleState(jnp.array(2**31 - 1))
    _, state = optim.scale_by_schedule(lambda count: 1.0).update(GRAD, state)
    assert int(state.count) == 2**31 - 1


def test_more_arguments_reach_those_who_take_them():
    seen = []

    def update(grads, state, params=None, *, value):
        seen.append(value)
        return grads, state

    asks = optim.GradientTransformationExtraArgs(lambda p: (), update)
    wrapped = optim.chain(
        optim.sgd(0.1),
        optim.masked(optim.apply_if_finite(asks, 1), True),
        optim.partition({"all": asks}, dict.fromkeys(GRAD, "all")),
    )
    assert isinstance(wrapped, optim.GradientTransformationExtraArgs)
    wrapped.update(GRAD, wrapped.init(GRAD), GRAD, value=4.0)
    assert len(seen) >= 2


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: optim.masked(3, True), TypeError, "masked: inner"),
        (lambda: optim.partition({"a": 3}, "a"), TypeError, r"transforms\['a'\]"),
        (lambda: optim.MultiSteps(optim.sgd(0.1), 0), ValueError, "every_k_schedule"),
        (lambda: optim.apply_if_finite(3, 1), TypeError, "apply_if_finite: inner"),
        (lambda: optim.clip_by_block_rms(0.0), ValueError, "threshold"),
        (lambda: optim.scale_by_lbfgs(0), ValueError, "memory_size"),
        (lambda: optim.adadelta(1.0, rho=1.0), ValueError, "rho"),
        (lambda: optim.lamb(0.1).update(GRAD, optim.lamb(0.1).init(GRAD)), ValueError, "params"),
        (lambda: optim.scale_by_factored_rms().update(GRAD, None), ValueError, "params"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(make, error, said):
    with pytest.raises(error, match=said):
        make()


class TestLBFGS:
    def rosenbrock(self, p):
        x, y = p["x"], p["y"]
        return jnp.sum(100 * (y - x**2) ** 2 + (1 - x) ** 2)

    start = staticmethod(lambda: {"x": jnp.array([-1.2, 2.0]), "y": jnp.array([1.0, -1.0])})

    @pytest.mark.parametrize("search", ["zoom", "backtracking"])
    def test_finds_the_minimum(self, search):
        backtrack = optim.scale_by_backtracking_linesearch(30, store_grad=True)
        options = {} if search == "zoom" else {"linesearch": backtrack}
        optimizer = optim.lbfgs(**options)
        known = optim.value_and_grad_from_state(self.rosenbrock)

        @amdjax.jit
        def step(carry, _):
            p, state = carry
            value, grad = known(p, state=state)
            updates, state = optimizer.update(
                grad, state, p, value=value, grad=grad, value_fn=self.rosenbrock
            )
            return (optim.apply_updates(p, updates), state), value

        p = self.start()
        (p, _), values = amdjax.lax.scan(step, (p, optimizer.init(p)), length=60)
        np.testing.assert_allclose(np.concatenate([p["x"], p["y"]]), np.ones(4), atol=1e-3)
        assert np.all(np.diff(values) <= 1e-6 * np.abs(values[1:]) + 1e-12)

    def test_backtracking_keeps_armijo(self):
        search = optim.scale_by_backtracking_linesearch(90, slope_rtol=0.1)
        p = self.start()
        value, grad = amdjax.value_and_grad(self.rosenbrock)(p)
        down = amdjax.tree.map(jnp.negative, grad)
        given = {"value": value, "grad": grad, "value_fn": self.rosenbrock}
        updates, state = search.update(down, search.init(p), p, **given)
        slope = -sum(np.sum(g**2) for g in grad.values())
        assert state.value <= value + 0.1 * state.learning_rate * slope
        assert float(state.value) == float(self.rosenbrock(optim.apply_updates(p, updates)))
        assert state.num_linesearch_steps > 5

    def test_no_step_where_there_is_no_number(self):
        nowhere = lambda p: jnp.where(p[0] == 1.0, 1.0, jnp.nan)
        for search in (
            optim.scale_by_backtracking_linesearch(5),
            optim.scale_by_zoom_linesearch(5),
        ):
            p = jnp.ones(1)
            updates, _ = search.update(-p, search.init(p), p, value=1.0, grad=p, value_fn=nowhere)
            assert float(updates[0]) == 0

    def test_steps_that_leave_the_domain_are_shortened(self):
        """Logarithms of negative numbers are NaN, and no minimum lies there."""
        f = lambda p: jnp.sum(3 * p - jnp.log(p))
        optimizer, p = optim.lbfgs(), jnp.array([0.1, 5.0])
        state, known = optimizer.init(p), optim.value_and_grad_from_state(f)
        for _ in range(12):
            value, grad = known(p, state=state)
            updates, state = optimizer.update(grad, state, p, value=value, grad=grad, value_fn=f)
            p = optim.apply_updates(p, updates)
        np.testing.assert_allclose(p, [1 / 3, 1 / 3], rtol=1e-3)

    def test_further_arguments_reach_the_function(self):
        f = lambda p, center: jnp.sum((p - center) ** 2)
        optimizer, p = optim.lbfgs(), jnp.zeros(2)
        center = jnp.array([1.0, 2.0])
        grad = amdjax.grad(f)(p, center)
        given = {"value": f(p, center), "grad": grad, "value_fn": f, "center": center}
        updates, _ = optimizer.update(grad, optimizer.init(p), p, **given)
        assert f(p + updates, center) < f(p, center)

    def test_a_state_without_gradient_is_told(self):
        optimizer = optim.lbfgs(linesearch=optim.scale_by_backtracking_linesearch(3))
        with pytest.raises(ValueError, match="line search with a gradient"):
            optim.value_and_grad_from_state(jnp.sum)(jnp.ones(2), state=optimizer.init(jnp.ones(2)))


def test_skips_are_functions_of_gradients():
    skip = functools.partial(optim.skip_large_updates, max_squared_norm=14.5)
    assert not skip(GRAD, 0, None)[0] and skip(GRAD | {"c": jnp.ones(1)}, 0, None)[0]
    assert skip({"w": jnp.array([jnp.nan])}, 0, None)[0]  # not smaller, either
    assert not optim.skip_not_finite(GRAD, 0, None)[0]
