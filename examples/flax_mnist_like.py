"""Train an unmodified Flax network on 1,797 scans of handwritten digits (8x8 pixels).

The program is written for JAX, Flax and Optax; its first import makes `jax` mean amdjax.

    pip install --no-deps flax optax    # without JAX
    pip install absl-py msgpack PyYAML rich scikit-learn typing_extensions
    python examples/flax_mnist_like.py --help
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import amdjax.as_jax  # noqa: F401  before whatever imports JAX

# isort: split
try:
    import flax.linen as nn
    import jax
    import numpy as np
    import optax
    from flax.training.train_state import TrainState
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError as error:
    raise SystemExit(f"{error}. What this example needs to be installed:\n{__doc__}") from None


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        """Scores `(n, 10)` of images `(n, 8, 8, 1)`."""
        for features in (32, 64):
            x = nn.Conv(features, (3, 3), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(len(x), -1)))
        x = nn.Dropout(0.3, deterministic=not train)(x)
        return nn.Dense(10)(x)


class State(TrainState):
    """Parameters and optimizer, and the running averages of the normalizations."""

    batch_stats: Any


@jax.jit
def step(state: State, x: Any, y: Any, key: Any) -> tuple[State, Any]:
    """One step of training on a batch; the loss before it."""

    def loss(params: Any) -> Any:
        scores, changed = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, x, train=True,
            mutable=["batch_stats"], rngs={"dropout": key},
        )  # fmt: skip
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, y)
        return losses.mean(), changed["batch_stats"]

    (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, batch_stats=stats), value


@jax.jit
def predict(state: State, x: Any) -> Any:
    """The digits in images."""
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    return state.apply_fn(variables, x, train=False).argmax(-1)


def main() -> None:
    """Train, and say how many of the test images are recognized."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3, help="of learning, its maximum")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    digits = load_digits()
    images = digits.images[..., None].astype(np.float32) / 16
    x, x_test, y, y_test = train_test_split(
        images, digits.target.astype(np.int32), test_size=0.2, random_state=options.seed
    )
    steps = len(x) // options.batch
    net = Net()
    key, init_key = jax.random.split(jax.random.key(options.seed))
    variables = net.init(init_key, x[:1], train=False)
    schedule = optax.cosine_onecycle_schedule(options.epochs * steps, options.rate)
    state = State.create(
        apply_fn=net.apply, params=variables["params"], tx=optax.adamw(schedule),
        batch_stats=variables["batch_stats"],
    )  # fmt: skip
    random = np.random.default_rng(options.seed)
    for epoch in range(1, options.epochs + 1):
        start, losses = time.perf_counter(), []
        order = random.permutation(len(x))
        for i in range(steps):
            chosen = order[i * options.batch : (i + 1) * options.batch]
            key, step_key = jax.random.split(key)
            state, loss = step(state, x[chosen], y[chosen], step_key)
            losses.append(float(loss))
        seconds = time.perf_counter() - start
        print(f"epoch {epoch:2}  loss {np.mean(losses):.4f}  {seconds:.1f} s")
    right = (predict(state, x_test) == y_test).mean()
    print(f"{100 * float(right):.1f}% of the test images recognized, on {jax.devices()[0]}")


if __name__ == "__main__":
    main()
