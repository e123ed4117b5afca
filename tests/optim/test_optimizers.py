"""Optimizers against NumPy implementations of the papers' formulas."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import optim

RNG = np.random.default_rng(0)
SHAPES = {"w": (3, 4), "b": (4,)}
STEPS = 5


def tree(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


PARAMS = tree(0)
GRADS = [tree(1 + i) for i in range(STEPS)]


def sgd(g, p, s, t, lr=0.1):
    return -lr * g


def momentum(g, p, s, t, lr=0.1, decay=0.9):
    s["v"] = g + decay * s.get("v", 0)
    return -lr * s["v"]


def nesterov(g, p, s, t, lr=0.1, decay=0.9):
    s["v"] = g + decay * s.get("v", 0)
    return -lr * (g + decay * s["v"])


def adam(g, p, s, t, lr=0.1, b1=0.8, b2=0.95, eps=1e-6, decay=0.0):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g**2
    mean, square = s["m"] / (1 - b1**t), s["v"] / (1 - b2**t)
    return -lr * (mean / (np.sqrt(square) + eps) + decay * p)


def uncorrected(g, p, s, t, lr=0.1, b1=0.8, b2=0.95, eps=1e-6, decay=0.0):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g**2
    return -lr * (s["m"] / (np.sqrt(s["v"]) + eps) + decay * p)


def amsgrad(g, p, s, t, lr=0.1, b1=0.8, b2=0.95, eps=1e-6):
    """As in PyTorch: the largest is corrected."""
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g**2
    s["x"] = np.maximum(s.get("x", 0), s["v"])
    mean, square = s["m"] / (1 - b1**t), s["x"] / (1 - b2**t)
    return -lr * mean / (np.sqrt(square) + eps)


def radam(g, p, s, t, lr=0.1, b1=0.8, b2=0.999, eps=1e-6):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g**2
    mean, most = s["m"] / (1 - b1**t), 2 / (1 - b2) - 1
    rho = most - 2 * t * b2**t / (1 - b2**t)
    if rho < 5:
        return -lr * mean
    ratio = (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)
    return -lr * np.sqrt(ratio) * mean / (np.sqrt(s["v"] / (1 - b2**t)) + eps)


def nadam(g, p, s, t, lr=0.1, b1=0.8, b2=0.95, eps=1e-6):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g**2
    mean = b1 * s["m"] / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
    return -lr * mean / (np.sqrt(s["v"] / (1 - b2**t)) + eps)


def rmsprop(g, p, s, t, lr=0.1, decay=0.8, eps=1e-6, centered=False, momentum=0.0):
    s["v"] = decay * s.get("v", 0) + (1 - decay) * g**2
    s["m"] = decay * s.get("m", 0) + (1 - decay) * g
    spread = s["v"] - s["m"] ** 2 if centered else s["v"]
    update = -lr * g / np.sqrt(spread + eps)
    s["u"] = momentum * s.get("u", 0) + update
    return s["u"]


def lion(g, p, s, t, lr=0.1, b1=0.8, b2=0.9, decay=0.02):
    m = s.get("m", 0)
    s["m"] = b2 * m + (1 - b2) * g
    return -lr * (np.sign(b1 * m + (1 - b1) * g) + decay * p)


ADAM = {"b1": 0.8, "b2": 0.95, "eps": 1e-6}
CASES = {
    "sgd": (optim.sgd(0.1), sgd),
    "momentum": (optim.sgd(0.1, 0.9), momentum),
    "nesterov": (optim.sgd(0.1, 0.9, nesterov=True), nesterov),
    "adam": (optim.adam(0.1, **ADAM), adam),
    "adam uncorrected": (optim.adam(0.1, **ADAM, bias_correction=False), uncorrected),
    "adamw uncorrected": (optim.adamw(0.1, **ADAM, weight_decay=0.3, bias_correction=False),
                          lambda *a: uncorrected(*a, decay=0.3)),
    "amsgrad, largest corrected": (optim.amsgrad(0.1, **ADAM, correct_largest=True), amsgrad),
    "nadam": (optim.adam(0.1, **ADAM, nesterov=True), nadam),
    "adamw": (optim.adamw(0.1, **ADAM, weight_decay=0.3),
              lambda *a: adam(*a, decay=0.3)),
    "rmsprop": (optim.rmsprop(0.1, 0.8, 1e-6), rmsprop),
    "rmsprop centered": (optim.rmsprop(0.1, 0.8, 1e-6, centered=True),
                         lambda *a: rmsprop(*a, centered=True)),
    "rmsprop momentum": (optim.rmsprop(0.1, 0.8, 1e-6, momentum=0.5),
                         lambda *a: rmsprop(*a, momentum=0.5)),
    "lion": (optim.lion(0.1, 0.8, 0.9, weight_decay=0.02), lion),
}  # fmt: skip


def run(optimizer, params, grads, jit):
    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    step = amdjax.jit(step, donate_argnums=(0, 1)) if jit else step
    params = amdjax.tree.map(jnp.asarray, params)
    state = optimizer.init(params)
    for g in grads:
        params, state = step(params, state, g)
    return params


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name, jit):
    optimizer, reference = CASES[name]
    result = run(optimizer, PARAMS, GRADS, jit)
    for leaf in SHAPES:
        p, memory = PARAMS[leaf].astype(np.float64), {}
        for t, grads in enumerate(GRADS, 1):
            p = p + reference(grads[leaf].astype(np.float64), p, memory, t)
        np.testing.assert_allclose(result[leaf], p, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "optimizer,reference",
    [
        (optim.radam(0.1, 0.8, 0.999, 1e-6), radam),
        (optim.adam(0.1, 0.8, 0.999, 1e-6), lambda *a: adam(*a, b2=0.999)),
    ],
)
def test_first_steps_of_slow_means_are_exact(optimizer, reference):
    """`1 - b2**t` is known to few digits where it is computed so in float32."""
    grads = [np.float32([1.5, -0.25, 3.0]) * (0.9**t + t % 3) for t in range(12)]
    params = np.zeros(3, np.float32)
    state, memory = optimizer.init(params), {}
    for t, g in enumerate(grads, 1):
        update, state = optimizer.update(g, state)
        expected = reference(g.astype(np.float64), 0, memory, t)
        np.testing.assert_allclose(update, expected, rtol=1e-4 if reference is radam else 2e-6)


@pytest.mark.parametrize("name", CASES)
def test_structure_and_dtypes_stay(name):
    optimizer, _ = CASES[name]
    params = {"a": jnp.ones(3, jnp.bfloat16), "b": (jnp.ones(2), None)}
    state = optimizer.init(params)
    updates, new_state = optimizer.update(params, state, params)
    assert amdjax.tree.structure(updates) == amdjax.tree.structure(params)
    assert amdjax.tree.structure(new_state) == amdjax.tree.structure(state)
    dtypes = lambda tree: [x.dtype for x in amdjax.tree.leaves(tree)]
    assert dtypes(new_state) == dtypes(state)
    assert dtypes(optim.apply_updates(params, updates)) == dtypes(params)


@pytest.mark.parametrize("name", [n for n in CASES if n != "lion"])
def test_finds_a_minimum(name):
    optimizer, _ = CASES[name]
    target = jnp.array([1.0, -2.0, 0.5])
    loss = lambda p: jnp.sum((p - target) ** 2)
    decay = 0.3 if name == "adamw" else 0.0

    @amdjax.jit
    def step(carry):
        p, state = carry
        updates, state = optimizer.update(amdjax.grad(loss)(p), state, p)
        return optim.apply_updates(p, updates), state

    p = jnp.zeros(3)
    carry = p, optimizer.init(p)
    for _ in range(150):
        carry = step(carry)
    assert loss(carry[0]) < 0.1 + decay


def test_learning_rate_schedule_counts_updates():
    optimizer = optim.sgd(lambda count: 1.0 / (count + 1))
    g = jnp.ones(1)
    state, seen = optimizer.init(g), []
    for _ in range(3):
        updates, state = optimizer.update(g, state)
        seen.append(float(updates[0]))
    np.testing.assert_allclose(seen, [-1, -1 / 2, -1 / 3], rtol=1e-6)


def test_learning_rate_may_be_traced():
    step = amdjax.jit(lambda lr, g: optim.sgd(lr).update(g, optim.sgd(lr).init(g))[0])
    assert step(0.5, jnp.ones(1))[0] == -0.5


@pytest.mark.parametrize("size", [300.0, 1e-4])
def test_norms_of_sixteen_bits(size):
    """float16 holds neither the square of 300 nor that of 0.0001."""
    half = {"w": jnp.full(4, size, jnp.float16)}
    wide = {"w": half["w"].astype(jnp.float32)}
    np.testing.assert_allclose(optim.global_norm(half), optim.global_norm(wide), rtol=1e-6)
    bound = float(size) / 2
    for part in (
        optim.clip_by_global_norm(bound), optim.clip_by_block_rms(bound),
        optim.scale_by_trust_ratio(), optim.scale_by_param_block_rms(),
    ):  # fmt: skip
        # Updates of parameters a thousandth as large, so that a product of both can be held.
        (got,), (want,) = (
            amdjax.tree.leaves(part.update(x, optim.EmptyState(), {"w": x["w"] / 1000})[0])
            for x in (half, wide)
        )
        assert got.dtype == np.float16
        np.testing.assert_allclose(np.float32(got), want, rtol=2e-3, atol=1e-7)
    skip, _ = optim.skip_large_updates(half, 0, None, 5 * size**2)
    assert not skip


def test_clip_by_global_norm():
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    clip = optim.clip_by_global_norm(1.0)
    clipped, _ = clip.update(grads, clip.init(grads))
    np.testing.assert_allclose(optim.global_norm(clipped), 1, rtol=1e-6)
    loose = optim.clip_by_global_norm(10.0)
    same, _ = loose.update(grads, loose.init(grads))
    np.testing.assert_array_equal(same["b"], grads["b"])
    zero, _ = clip.update({"a": jnp.zeros(2)}, optim.EmptyState())
    np.testing.assert_array_equal(zero["a"], [0, 0])


def test_weight_decay_mask():
    mask = lambda params: amdjax.tree.map(lambda p: p.ndim > 1, params)
    optimizer = optim.adamw(1.0, weight_decay=0.5, mask=mask)
    params = {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}
    zeros = amdjax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    np.testing.assert_allclose(updates["w"], -0.5 * np.ones((2, 2)))
    np.testing.assert_array_equal(updates["b"], [0, 0])


def test_masked_state_covers_only_its_parameters():
    params = {"w": jnp.ones(2), "b": jnp.ones(3)}
    inner = optim.masked(optim.trace(0.9), {"w": True, "b": False})
    state = inner.init(params)
    assert [x.shape for x in amdjax.tree.leaves(state)] == [(2,)]
    updates, _ = inner.update(params, state)
    assert updates["b"] is params["b"]


def test_complex_parameters():
    optimizer = optim.adam(0.1)
    p = jnp.array([1 + 1j], jnp.complex64)
    state = optimizer.init(p)
    assert state[0].nu.dtype == jnp.float32
    updates, _ = optimizer.update(jnp.array([3 - 4j], jnp.complex64), state, p)
    np.testing.assert_allclose(updates, [-0.1 * (3 - 4j) / 5], rtol=1e-5)


def test_vmap_over_learning_rates():
    def train(lr):
        p, optimizer = jnp.float32(1.0), optim.adam(lr)
        state = optimizer.init(p)
        for _ in range(3):
            updates, state = optimizer.update(2 * p, state, p)
            p = optim.apply_updates(p, updates)
        return p

    rates = jnp.array([0.0, 0.1, 0.2])
    together = amdjax.vmap(train)(rates)
    np.testing.assert_allclose(together, [train(r) for r in rates], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: optim.adam(0.1, b1=1.0), "b1"),
        (lambda: optim.adamw(0.1, b2=-0.1), "b2"),
        (lambda: optim.rmsprop(0.1, decay=2), "decay"),
        (lambda: optim.lion(0.1, b1=1.5), "b1"),
        (lambda: optim.sgd(-1.0), "learning_rate"),
        (lambda: optim.clip_by_global_norm(0.0), "max_norm"),
        (lambda: optim.clip(-1.0), "max_delta"),
        (lambda: optim.cosine_decay_schedule(1.0, 0), "decay_steps"),
        (lambda: optim.linear_schedule(1.0, 0.0, 0), "transition_steps"),
        (lambda: optim.exponential_decay(1.0, 10, 0.0), "decay_rate"),
        (lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10), "decay_steps"),
        (lambda: optim.piecewise_constant_schedule(1.0, {1: -1.0}), "boundaries_and_scales"),
        (lambda: optim.join_schedules([optim.constant_schedule(1.0)], [1]), "boundaries"),
    ],
)
def test_bad_arguments_are_named(make, argument):
    with pytest.raises(ValueError, match=argument):
        make()


def test_missing_params_and_foreign_state():
    decay = optim.adamw(0.1)
    g = jnp.ones(2)
    with pytest.raises(ValueError, match="params must be given"):
        decay.update(g, decay.init(g))
    with pytest.raises(TypeError, match="argument 1"):
        optim.chain(optim.sgd(0.1), 3)
    with pytest.raises(ValueError, match="state"):
        optim.sgd(0.1).update(g, ())
