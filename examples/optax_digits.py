"""Compare optimizers of Optax on a small network for handwritten digits.

The program is written for JAX and Optax; its first import makes `jax` mean amdjax.

    pip install --no-deps optax    # without JAX
    pip install absl-py scikit-learn
    python examples/optax_digits.py --help
"""

from __future__ import annotations

import argparse
from typing import Any

import amdjax.as_jax  # noqa: F401  before whatever imports JAX

# isort: split
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from sklearn.datasets import load_digits
except ImportError as error:
    raise SystemExit(f"{error}. What this example needs to be installed:\n{__doc__}") from None


def make_params(key: Any, sizes: tuple[int, ...] = (64, 64, 10)) -> Any:
    """Weights and biases of dense layers."""
    keys = jax.random.split(key, len(sizes) - 1)
    initialize = jax.nn.initializers.he_normal()
    return [
        {"w": initialize(k, (m, n)), "b": jnp.zeros(n)} for k, m, n in zip(keys, sizes, sizes[1:])
    ]


def scores(params: Any, x: Any) -> Any:
    """Scores `(n, 10)` of images `(n, 64)`."""
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def train(optimizer: Any, x: Any, y: Any, steps: int, seed: int) -> tuple[Any, Any]:
    """Parameters after a number of steps on batches of 128, and the losses; one compiled loop."""

    def step(carry: Any, key: Any) -> Any:
        params, state = carry
        chosen = jax.random.randint(key, (128,), 0, len(x))

        def loss(params: Any) -> Any:
            given = scores(params, x[chosen])
            return optax.softmax_cross_entropy_with_integer_labels(given, y[chosen]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    key, params_key = jax.random.split(jax.random.key(seed))
    params = make_params(params_key)
    carry = params, optimizer.init(params)
    (params, _), losses = jax.jit(lambda c, k: jax.lax.scan(step, c, k))(
        carry, jax.random.split(key, steps)
    )
    return params, losses


def main() -> None:
    """Train with each optimizer and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    digits = load_digits()
    images = jnp.asarray(digits.data.astype(np.float32) / 16)
    labels = jnp.asarray(digits.target.astype(np.int32))
    x, y, x_test, y_test = images[:1400], labels[:1400], images[1400:], labels[1400:]
    decay = optax.cosine_decay_schedule(1.0, options.steps)
    for name, optimizer in {
        "sgd with momentum": optax.sgd(lambda i: 0.1 * decay(i), momentum=0.9, nesterov=True),
        "adamw, clipped": optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(lambda i: 3e-3 * decay(i))
        ),
        "lion": optax.lion(lambda i: 1e-3 * decay(i)),
    }.items():
        params, losses = train(optimizer, x, y, options.steps, options.seed)
        right = (scores(params, x_test).argmax(-1) == y_test).mean()
        print(
            f"{name:18} loss {losses[0]:.3f} -> {losses[-10:].mean():.3f}, "
            f"{100 * float(right):.1f}% of the test images recognized"
        )


if __name__ == "__main__":
    main()
