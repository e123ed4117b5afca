"""What is done with each library: it trains or samples, from fixed seeds, and returns numbers.

Each function imports its library itself and returns a dictionary of arrays. The code is written
for JAX, and knows nothing of amdjax but in `optax_modules`.
"""

# ruff: noqa: D103
from __future__ import annotations

import sys
from typing import Any


def data(seed: int = 0, count: int = 64) -> Any:
    """Points in four dimensions and a label for each of three classes."""
    import numpy as np

    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 4)).astype(np.float32)
    w = random.normal(size=(4, 3)).astype(np.float32)
    return x, (x @ w + 0.1 * random.normal(size=(count, 3))).argmax(1)


def optax_training() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import optax

    x, y = data()
    params = {"w": 0.1 * jax.random.normal(jax.random.key(0), (4, 3)), "b": jnp.zeros(3)}
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.05, 5, 40)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    def loss(params: Any) -> Any:
        logits = x @ params["w"] + params["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    state, losses = optimizer.init(params), []
    for _ in range(40):
        params, state, value = step(params, state)
        losses.append(value)
    return {"losses": jnp.stack(losses), **params}


def optax_optimizers() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import optax

    found = {}
    for name in ("sgd", "lion", "adafactor", "rmsprop", "lamb", "adabelief", "yogi", "adagrad"):
        optimizer = getattr(optax, name)(1e-2)
        params = {"a": jnp.linspace(-1.0, 1.0, 6).reshape(2, 3), "b": jnp.ones(2)}

        def step(carry: Any, _: Any, optimizer: Any = optimizer) -> Any:
            params, state = carry
            loss = lambda p: jnp.sum(jnp.cos(p["a"]) ** 2) + jnp.sum(p["b"] ** 4)
            updates, state = optimizer.update(jax.grad(loss)(params), state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), None, 20)
        found[f"{name}_a"], found[f"{name}_b"] = params["a"], params["b"]
    return found


def optax_modules() -> dict[str, Any]:
    """Modules of amdjax as parameters; on JAX itself, a dataclass with the same fields."""
    import dataclasses

    import jax
    import jax.numpy as jnp
    import optax

    if "amdjax" in sys.modules:
        from amdjax import nn

        class Affine(nn.Module):
            kernel: Any
            bias: Any

            def __call__(self, x: Any) -> Any:
                return x @ self.kernel + self.bias
    else:

        @jax.tree_util.register_dataclass
        @dataclasses.dataclass
        class Affine:  # type: ignore[no-redef]
            kernel: Any
            bias: Any

            def __call__(self, x: Any) -> Any:
                return x @ self.kernel + self.bias

    x = jnp.sin(jnp.arange(24.0)).reshape(8, 3)
    layers = [
        Affine(jnp.cos(jnp.arange(12.0)).reshape(3, 4), jnp.zeros(4)),
        Affine(jnp.sin(jnp.arange(8.0)).reshape(4, 2), jnp.ones(2)),
    ]
    is_kernel = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    labels = lambda params: jax.tree.map(lambda p: "ab"[p.ndim - 1], params)
    optimizer = optax.chain(
        optax.add_decayed_weights(1e-2, is_kernel),
        optax.multi_transform({"a": optax.sgd(0.1, 0.9), "b": optax.adam(0.02)}, labels),
    )
    state = optimizer.init(layers)

    @jax.jit
    def step(layers: Any, state: Any) -> Any:
        loss = lambda l: jnp.mean((l[1](jnp.tanh(l[0](x))) - jnp.cos(x[:, :2])) ** 2)
        value, grads = jax.value_and_grad(loss)(layers)
        updates, state = optimizer.update(grads, state, layers)
        return optax.apply_updates(layers, updates), state, value

    losses = []
    for _ in range(20):
        layers, state, value = step(layers, state)
        losses.append(value)
    return {"losses": jnp.stack(losses), "kernel": layers[0].kernel, "bias": layers[1].bias}


def optax_line_search() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import optax

    # In float32 one ulp of the first point moves the last by 5 % on JAX itself.
    jax.config.update("jax_enable_x64", True)

    def rosenbrock(x: Any) -> Any:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    solver = optax.lbfgs()
    x = jnp.array([-1.0, 1.5, 0.5])
    state = solver.init(x)
    value_and_grad = optax.value_and_grad_from_state(rosenbrock)
    for _ in range(25):
        value, grad = value_and_grad(x, state=state)
        updates, state = solver.update(grad, state, x, value=value, grad=grad, value_fn=rosenbrock)
        x = optax.apply_updates(x, updates)
    return {"x": x}


def equinox_mlp() -> dict[str, Any]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    x, y = data()
    model = eqx.nn.MLP(4, 3, 16, 2, key=jax.random.PRNGKey(1))
    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_value_and_grad
    def loss(model: Any, x: Any, y: Any) -> Any:
        logits = jax.vmap(model)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    @eqx.filter_jit
    def step(model: Any, state: Any) -> Any:
        value, grads = loss(model, x, y)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(model, updates), state, value

    losses = []
    for _ in range(20):
        model, state, value = step(model, state)
        losses.append(value)
    return {"losses": jnp.stack(losses), "logits": jax.vmap(model)(x[:4])}


def equinox_layers() -> dict[str, Any]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(2), 8)
    image = jax.random.normal(keys[0], (3, 12, 12))
    conv = eqx.nn.Conv2d(3, 8, 3, padding=1, key=keys[1])
    pooled = eqx.nn.MaxPool2d(2, 2)(jax.nn.relu(conv(image)))
    norm = eqx.nn.LayerNorm(8)
    cell = eqx.nn.GRUCell(8, 8, key=keys[2])
    sequence = jax.vmap(norm)(pooled.reshape(8, -1).T)
    hidden, _ = jax.lax.scan(lambda h, v: (cell(v, h), None), jnp.zeros(8), sequence)
    attention = eqx.nn.MultiheadAttention(2, 8, key=keys[3])
    mixed = attention(sequence, sequence, sequence)
    dropped = eqx.nn.Dropout(0.5)(mixed, key=keys[4])
    batch_norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(8, "batch", mode="batch")
    normed, state = jax.vmap(batch_norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
        sequence, state
    )
    return {
        "pooled": pooled,
        "hidden": hidden,
        "mixed": mixed,
        "dropped": dropped,
        "normed": normed,
    }


def flax_linen() -> dict[str, Any]:
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax
    from flax.training import train_state

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            x = nn.Conv(8, (3, 3), use_bias=False)(x)
            x = nn.BatchNorm(use_running_average=not train)(x)
            x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
            x = x.reshape(x.shape[0], -1)
            x = nn.Dropout(0.25, deterministic=not train)(nn.Dense(16)(x))
            return nn.Dense(3)(nn.gelu(x))

    net = Net()
    x = jax.random.normal(jax.random.key(3), (16, 8, 8, 1))
    y = jnp.arange(16) % 3
    variables = net.init(jax.random.key(4), x, train=False)
    state = train_state.TrainState.create(
        apply_fn=net.apply, params=variables["params"], tx=optax.adam(1e-3)
    )
    statistics = variables["batch_stats"]

    @jax.jit
    def step(state: Any, statistics: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, changed = state.apply_fn(
                {"params": params, "batch_stats": statistics}, x, train=True,
                rngs={"dropout": key}, mutable=["batch_stats"],
            )  # fmt: skip
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
            return losses.mean(), changed["batch_stats"]

        (value, statistics), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads), statistics, value

    losses = []
    for i in range(8):
        state, statistics, value = step(state, statistics, jax.random.key(10 + i))
        losses.append(value)
    out = net.apply({"params": state.params, "batch_stats": statistics}, x, train=False)
    return {"losses": jnp.stack(losses), "logits": out}


def flax_linen_recurrent() -> dict[str, Any]:
    import flax.linen as nn
    import jax

    x = jax.random.normal(jax.random.key(5), (4, 10, 6))
    lstm = nn.RNN(nn.OptimizedLSTMCell(8))
    params = lstm.init(jax.random.key(6), x)
    attention = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=8)
    attended = attention.init_with_output(jax.random.key(7), x, x)[0]
    return {"states": jax.jit(lstm.apply)(params, x), "attended": attended}


def flax_nnx() -> dict[str, Any]:
    import jax.numpy as jnp
    import optax
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: Any):
            self.first = nnx.Linear(4, 16, use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)
            self.last = nnx.Linear(16, 3, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))

    x, y = data()
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any) -> Any:
        def loss(model: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    losses = [step(model, optimizer) for _ in range(10)]
    model.eval()
    return {"losses": jnp.stack(losses), "logits": model(jnp.asarray(x[:4]))}


def haiku_training() -> dict[str, Any]:
    import haiku as hk
    import jax
    import jax.numpy as jnp
    import optax

    x, y = data()

    def forward(x: Any, train: bool) -> Any:
        x = jax.nn.relu(hk.Linear(16)(x))
        x = hk.BatchNorm(True, True, 0.9)(x, is_training=train)
        x = hk.dropout(hk.next_rng_key(), 0.1, x) if train else x
        return hk.Linear(3)(x)

    net = hk.transform_with_state(forward)
    params, state = net.init(jax.random.PRNGKey(8), x, True)
    optimizer = optax.sgd(0.1, momentum=0.9)
    opt_state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, opt_state: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, new = net.apply(params, state, key, x, True)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

        (value, state_), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt_state_ = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), state_, opt_state_, value

    losses = []
    for key in jax.random.split(jax.random.PRNGKey(9), 10):
        params, state, opt_state, value = step(params, state, opt_state, key)
        losses.append(value)
    return {"losses": jnp.stack(losses)}


def haiku_recurrent() -> dict[str, Any]:
    import haiku as hk
    import jax

    def unrolled(x: Any) -> Any:
        core = hk.LSTM(8)
        outs, state = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.LayerNorm(-1, True, True)(outs), state.cell

    net = hk.without_apply_rng(hk.transform(unrolled))
    x = jax.random.normal(jax.random.PRNGKey(10), (6, 3, 5))
    params = net.init(jax.random.PRNGKey(11), x)
    outs, cell = jax.jit(net.apply)(params, x)
    return {"outs": outs, "cell": cell}


def chex_checks() -> dict[str, Any]:
    import chex
    import jax
    import jax.numpy as jnp

    @chex.dataclass
    class Pair:
        a: chex.Array
        b: chex.Array

    pair = jax.tree.map(lambda x: 2 * x, Pair(a=jnp.arange(3.0), b=jnp.ones((2, 2))))
    chex.assert_shape(pair.a, (3,))
    chex.assert_tree_all_finite(pair)
    chex.assert_trees_all_close(pair, Pair(a=jnp.arange(3.0) * 2, b=2 * jnp.ones((2, 2))))
    try:
        chex.assert_rank(pair.b, 1)
    except AssertionError:
        refused = 1.0
    return {"a": pair.a, "b": pair.b, "refused": refused}


def distrax_distributions() -> dict[str, Any]:
    import distrax
    import jax
    import jax.numpy as jnp

    mixture = distrax.MixtureSameFamily(
        distrax.Categorical(logits=jnp.array([0.0, 1.0])),
        distrax.Normal(jnp.array([-1.0, 2.0]), jnp.array([0.5, 1.0])),
    )
    flow = distrax.Transformed(
        distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.ones(2)),
        distrax.Block(distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(0.1, 2.0)]), 1),
    )
    samples, log_prob = flow.sample_and_log_prob(seed=jax.random.PRNGKey(12), sample_shape=(5,))
    drawn = mixture.sample(seed=jax.random.PRNGKey(13), sample_shape=(6,))
    slope = jax.grad(lambda m: distrax.Normal(m, 1.0).kl_divergence(distrax.Normal(0.0, 2.0)))(0.3)
    return {
        "samples": samples, "log_prob": log_prob, "drawn": drawn,
        "mixture": mixture.log_prob(drawn), "slope": slope,
    }  # fmt: skip


def numpyro_nuts() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    # In float32 one ulp of the data gives another chain on JAX itself: trajectories branch.
    jax.config.update("jax_enable_x64", True)
    x, _ = data(1, 30)
    y = 0.5 + x[:, 0] - 2.0 * x[:, 1]

    def model(x: Any, y: Any = None) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.0))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        mean = intercept + x[:, :2] @ slope
        numpyro.sample("y", dist.Normal(mean, scale + 0.1), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=30, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(14), jnp.asarray(x), jnp.asarray(y))
    return {name: values[:3] for name, values in mcmc.get_samples().items()} | {
        f"mean_{name}": values.mean(0) for name, values in mcmc.get_samples().items()
    }


def numpyro_svi() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    flips = jnp.array([1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])

    def model(flips: Any) -> None:
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        with numpyro.plate("flips", len(flips)):
            numpyro.sample("flip", dist.Bernoulli(p), obs=flips)

    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    result = svi.run(jax.random.PRNGKey(15), 100, flips, progress_bar=False)
    return {"losses": result.losses, **result.params}


def diffrax_equations() -> dict[str, Any]:
    import diffrax
    import jax
    import jax.numpy as jnp

    def oscillator(t: Any, y: Any, args: Any) -> Any:
        return jnp.stack([y[1], args * (1 - y[0] ** 2) * y[1] - y[0]])

    def solve(mu: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(oscillator), diffrax.Tsit5(), 0.0, 3.0, 0.1, jnp.array([1.0, 0.0]),
            args=mu, saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 3.0, 7)),
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        ).ys  # fmt: skip

    slope = jax.grad(lambda mu: solve(mu)[-1].sum())(0.8)
    noise = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, (), jax.random.PRNGKey(16))
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: 0.3, noise)
    )
    path = diffrax.diffeqsolve(
        terms, diffrax.Euler(), 0.0, 1.0, 0.05, 1.0, saveat=diffrax.SaveAt(t1=True)
    ).ys
    return {"path": solve(0.8), "slope": slope, "stochastic": path}


def lineax_solves() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import lineax as lx

    a = jax.random.normal(jax.random.PRNGKey(17), (5, 5))
    spd = a @ a.T + jnp.eye(5)
    b = jnp.arange(5.0)
    positive = lx.MatrixLinearOperator(spd, lx.positive_semidefinite_tag)

    def solved(matrix: Any) -> Any:
        return lx.linear_solve(lx.MatrixLinearOperator(matrix), b, lx.LU()).value

    return {
        "lu": solved(spd),
        "qr": lx.linear_solve(lx.MatrixLinearOperator(a[:, :3]), b, lx.QR()).value,
        "cholesky": lx.linear_solve(positive, b, lx.Cholesky()).value,
        "cg": lx.linear_solve(positive, b, lx.CG(1e-5, 1e-5)).value,
        "slope": jax.grad(lambda m: solved(m).sum())(spd),
    }


def optimistix_solves() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import optimistix as optx

    def residuals(y: Any, args: Any) -> Any:
        return jnp.stack([10.0 * (y[1] - y[0] ** 2), args - y[0]])

    def root(target: Any) -> Any:
        f = lambda y, args: y - 0.5 * jnp.tanh(y + args)
        return optx.fixed_point(
            lambda y, args: 0.5 * jnp.tanh(y + args), optx.FixedPointIteration(1e-6, 1e-6),
            jnp.zeros(2), target,
        ).value + 0 * f(jnp.zeros(2), target)  # fmt: skip

    least = optx.least_squares(
        residuals, optx.LevenbergMarquardt(1e-6, 1e-6), jnp.array([-1.0, 1.0]), jnp.array(1.0)
    )
    least_bfgs = optx.minimise(
        lambda y, args: jnp.sum(residuals(y, args) ** 2), optx.BFGS(1e-6, 1e-6),
        jnp.array([0.5, 0.5]), jnp.array(1.0),
    )  # fmt: skip
    newton = optx.root_find(
        lambda y, args: y**3 - args, optx.Newton(1e-6, 1e-6), jnp.array(1.0), jnp.array(2.0)
    )
    return {
        "least_squares": least.value, "bfgs": least_bfgs.value, "newton": newton.value,
        "fixed_point": root(jnp.array([0.1, 0.2])),
        "slope": jax.grad(lambda t: root(t).sum())(jnp.array([0.1, 0.2])),
    }  # fmt: skip


def jaxopt_solvers() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import jaxopt

    x, y = data(2)
    labels = (y == 0).astype("float32")

    def logistic(w: Any, strength: Any) -> Any:
        margins = x @ w
        return jnp.mean(jnp.logaddexp(0.0, margins) - labels * margins) + strength * jnp.sum(w**2)

    def fitted(strength: Any) -> Any:
        solver = jaxopt.LBFGS(fun=logistic, maxiter=50)
        return solver.run(jnp.zeros(4), strength=strength).params

    lasso = jaxopt.ProximalGradient(
        lambda w, data: jnp.mean((data[0] @ w - data[1]) ** 2), jaxopt.prox.prox_lasso, maxiter=200
    )
    simplex = jaxopt.projection.projection_simplex(jnp.array([0.3, 1.2, -0.5]))
    return {
        "lbfgs": fitted(0.1),
        "slope": jax.jacobian(fitted)(0.1),
        "lasso": lasso.run(jnp.zeros(4), 0.05, (x, labels)).params,
        "simplex": simplex,
    }


def blackjax_sampling() -> dict[str, Any]:
    import blackjax
    import jax
    import jax.numpy as jnp

    def log_density(z: Any) -> Any:
        return -0.5 * jnp.sum((z["a"] - 1.0) ** 2) - 0.5 * (z["b"] / 2.0) ** 2

    start = {"a": jnp.zeros(2), "b": jnp.array(0.5)}
    found = {}
    for name, sampler in (
        ("hmc", blackjax.hmc(log_density, 0.2, jnp.ones(3), 10)),
        ("nuts", blackjax.nuts(log_density, 0.3, jnp.ones(3))),
    ):
        step = jax.jit(sampler.step)
        state = sampler.init(start)
        for key in jax.random.split(jax.random.PRNGKey(18), 10):
            state, _ = step(key, state)
        found[f"{name}_a"], found[f"{name}_b"] = state.position["a"], state.position["b"]
    return found


def jraph_network() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import jraph

    graph = jraph.GraphsTuple(
        nodes=jax.random.normal(jax.random.PRNGKey(19), (4, 3)),
        edges=jnp.arange(5.0)[:, None],
        senders=jnp.array([0, 1, 2, 3, 0]), receivers=jnp.array([1, 2, 3, 0, 2]),
        n_node=jnp.array([4]), n_edge=jnp.array([5]), globals=jnp.ones((1, 2)),
    )  # fmt: skip
    w = jax.random.normal(jax.random.PRNGKey(20), (3 + 3 + 1 + 2, 3))

    def run(w: Any) -> Any:
        net = jraph.GraphNetwork(
            update_edge_fn=lambda e, s, r, g: jnp.tanh(jnp.concatenate([e, s, r, g], 1) @ w),
            update_node_fn=lambda n, s, r, g: n + r,
            update_global_fn=lambda n, e, g: g + n.sum() + e.sum(),
        )
        return net(graph)

    out = jax.jit(run)(w)
    slope = jax.grad(lambda w: run(w).globals.sum())(w)
    return {"nodes": out.nodes, "edges": out.edges, "globals": out.globals, "slope": slope}


def ott_transport() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from ott.geometry import pointcloud
    from ott.solvers import linear

    x = jax.random.normal(jax.random.PRNGKey(21), (12, 2))
    y = jax.random.normal(jax.random.PRNGKey(22), (10, 2)) + 1.0

    def cost(x: Any) -> Any:
        return linear.solve(pointcloud.PointCloud(x, y, epsilon=0.1)).reg_ot_cost

    out = linear.solve(pointcloud.PointCloud(x, y, epsilon=0.1))
    return {
        "cost": cost(x), "slope": jax.grad(cost)(x), "plan": out.matrix.sum(0),
        "iterations": jnp.sum(out.errors > -1),
    }  # fmt: skip


def penzai_network() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from penzai import pz

    xs = pz.nx.wrap(jnp.arange(6.0).reshape(2, 3)).tag("batch", "features")
    mean = pz.nx.nmap(jnp.mean)(xs.untag("features"))
    mlp = pz.nn.Sequential(
        [
            pz.nn.Linear.from_config(
                "l", jax.random.key(23), input_axes={"features": 3}, output_axes={"hidden": 4}
            ),
            pz.nn.Elementwise(jax.nn.tanh),
        ]
    )
    out = mlp(xs)
    return {"mean": mean.unwrap("batch"), "out": out.unwrap("batch", "hidden")}


def einops_arrays() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from einops import einsum, rearrange, reduce, repeat

    x = jnp.arange(24.0).reshape(2, 3, 4)

    def f(x: Any) -> Any:
        y = rearrange(x, "b h w -> (b h) w")
        return einsum(y, reduce(x, "b h w -> w", "mean"), "n w, w -> n").sum()

    return {
        "patches": rearrange(x, "b h (w k) -> b (h w) k", k=2),
        "repeated": repeat(x, "b h w -> b (h r) w", r=2),
        "slope": jax.jit(jax.grad(f))(x),
    }


def jaxtyping_annotations() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from jaxtyping import Array, Float, Int, jaxtyped

    assert isinstance(jnp.ones((2, 3)), Float[Array, "a b"])
    assert not isinstance(jnp.ones((2, 3)), Int[Array, "a b"])
    assert not isinstance(jnp.ones((2, 3)), Float[Array, "a a"])

    @jax.jit
    @jaxtyped(typechecker=None)
    def f(x: Any, y: Any) -> Any:
        assert isinstance(x, Float[Array, "n"])
        assert isinstance(y, Float[Array, "n"])
        assert not isinstance(x, Float[Array, "4"])
        return (x * y).sum()

    return {"sum": f(jnp.arange(3.0), jnp.ones(3))}


def orbax_checkpoints() -> dict[str, Any]:
    import tempfile

    import jax
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    tree = {"w": jax.random.normal(jax.random.PRNGKey(24), (3, 2)), "step": jnp.array(7)}
    with tempfile.TemporaryDirectory() as folder:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(f"{folder}/one", tree)
        with ocp.StandardCheckpointer() as checkpointer:
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
            return checkpointer.restore(f"{folder}/one", abstract)


USES: dict[str, list[Any]] = {
    "optax": [optax_training, optax_optimizers, optax_modules, optax_line_search],
    "equinox": [equinox_mlp, equinox_layers],
    "flax": [flax_linen, flax_linen_recurrent, flax_nnx],
    "dm-haiku": [haiku_training, haiku_recurrent],
    "chex": [chex_checks],
    "distrax": [distrax_distributions],
    "numpyro": [numpyro_nuts, numpyro_svi],
    "diffrax": [diffrax_equations],
    "lineax": [lineax_solves],
    "optimistix": [optimistix_solves],
    "jaxopt": [jaxopt_solvers],
    "blackjax": [blackjax_sampling],
    "jraph": [jraph_network],
    "ott-jax": [ott_transport],
    "penzai": [penzai_network],
    "einops": [einops_arrays],
    "jaxtyping": [jaxtyping_annotations],
    "orbax-checkpoint": [orbax_checkpoints],
}
