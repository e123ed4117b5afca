"""One step of a recurrent network."""

from __future__ import annotations

from typing import Any, NamedTuple

import amdjax.numpy as jnp
from amdjax import random
from amdjax.core.array import Array
from amdjax.nn import initializers
from amdjax.nn.functions import relu, sigmoid
from amdjax.numpy._util import ArrayLike, as_arrays

__all__ = ["Weights", "gru_cell", "init_weights", "lstm_cell", "rnn_cell"]

ACTIVATIONS = {"tanh": jnp.tanh, "relu": relu}


class Weights(NamedTuple):
    """What a recurrent layer has learned.

    With n input features, m hidden features and g gates; the gates stand side by side on the last
    axis, in the order given by the cell.

    Args:
      input_kernel: of shape `(n, g * m)`.
      hidden_kernel: of shape `(m, g * m)`.
      input_bias: of shape `(g * m,)`, or None.
      hidden_bias: of shape `(g * m,)`, or None.
    """

    input_kernel: Array
    hidden_kernel: Array
    input_bias: Array | None = None
    hidden_bias: Array | None = None


def init_weights(
    key: Any,
    in_features: int,
    hidden_features: int,
    gates: int,
    *,
    use_bias: bool = True,
    dtype: Any = None,
) -> Weights:
    """Random weights: kernels by Glorot & Bengio (2010), orthogonal ones for the hidden state.

    Args:
      key: key of the random start.
      in_features: number of input features.
      hidden_features: number of hidden features.
      gates: 1 for `rnn_cell`, 3 for `gru_cell`, 4 for `lstm_cell`.
      use_bias: whether there are biases; they start at zero, those of an LSTM's forget gate at one,
        so that it starts open (Jozefowicz et al., 2015).
      dtype: dtype; None means the default float.

    Returns:
      The `Weights`.

    Raises:
      ValueError: for a number of features that is no positive integer.

    Example:
      >>> from amdjax import rnn
      >>> rnn.init_weights(amdjax.random.key(0), 3, 5, 4).hidden_kernel.shape
      (5, 20)
    """
    for name, value in (("in_features", in_features), ("hidden_features", hidden_features)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"init_weights: {name} must be a positive integer, got {value!r}.")
    input_key, *gate_keys = random.split(key, 1 + gates)
    orthogonal = initializers.orthogonal()
    square = (hidden_features, hidden_features)
    hidden = jnp.concatenate([orthogonal(k, square, dtype) for k in gate_keys], axis=1)
    kernel = initializers.glorot_uniform()(input_key, (in_features, gates * hidden_features), dtype)
    if not use_bias:
        return Weights(kernel, hidden)
    zeros = jnp.zeros(gates * hidden_features, dtype)
    bias = zeros.at[hidden_features : 2 * hidden_features].set(1) if gates == 4 else zeros
    return Weights(kernel, hidden, bias, zeros)


def project_input(name: str, weights: Weights, x: Array, gates: int) -> Array:
    """The input's share in the gates, `(..., gates * m)`; the hidden state has no part in it."""
    kernel = weights.input_kernel
    features = gates * weights.hidden_kernel.shape[0]
    if kernel.shape != (x.shape[-1], features) or weights.hidden_kernel.shape[1] != features:
        raise ValueError(
            f"{name}: weights must hold an input_kernel of shape (n, {gates} * m) and a "
            f"hidden_kernel of shape (m, {gates} * m) where x has shape (..., n), got "
            f"{kernel.shape}, {weights.hidden_kernel.shape} and x of shape {x.shape}."
        )
    return _biased(x @ kernel, weights.input_bias)


def _biased(y: Array, bias: Array | None) -> Array:
    return y if bias is None else y + bias


def _project_hidden(weights: Weights, h: Array) -> Array:
    return _biased(h @ weights.hidden_kernel, weights.hidden_bias)


def rnn_step(weights: Weights, projected: Array, h: Array, activation: str = "tanh") -> Array:
    """`rnn_cell` after the projection of its input."""
    return ACTIVATIONS[activation](projected + _project_hidden(weights, h))


def lstm_step(
    weights: Weights, projected: Array, state: tuple[Array, Array]
) -> tuple[Array, Array]:
    """`lstm_cell` after the projection of its input."""
    h, c = state
    i, f, g, o = jnp.split(projected + _project_hidden(weights, h), 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
    return sigmoid(o) * jnp.tanh(c), c


def gru_step(weights: Weights, projected: Array, h: Array) -> Array:
    """`gru_cell` after the projection of its input."""
    input_r, input_z, input_n = jnp.split(projected, 3, axis=-1)
    hidden_r, hidden_z, hidden_n = jnp.split(_project_hidden(weights, h), 3, axis=-1)
    r, z = sigmoid(input_r + hidden_r), sigmoid(input_z + hidden_z)
    n = jnp.tanh(input_n + r * hidden_n)
    return n + z * (h - n)


def check_activation(name: str, activation: str) -> None:
    """Raise ValueError for an activation that plain recurrent networks do not have."""
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"{name}: activation must be one of {tuple(ACTIVATIONS)}, got {activation!r}."
        )


def rnn_cell(weights: Weights, x: ArrayLike, h: ArrayLike, *, activation: str = "tanh") -> Array:
    """A step of a plain recurrent network (Elman, 1990): `f(x W + b + h U + d)`.

    Args:
      weights: with one gate.
      x: input of shape `(..., n)`.
      h: hidden state of shape `(..., m)`.
      activation: `f`, "tanh" or "relu".

    Returns:
      The next hidden state.

    Raises:
      ValueError: the shapes do not fit, or there is no such activation.

        >>> from amdjax import rnn
        >>> weights = rnn.Weights(jnp.ones((2, 1)), jnp.ones((1, 1)))
        >>> rnn.rnn_cell(weights, jnp.array([0.5, 0.5]), jnp.array([1.0]), activation="relu")
        Array([2.], dtype=float32)
    """
    x, h = as_arrays("rnn_cell", x, h)
    check_activation("rnn_cell", activation)
    return rnn_step(weights, project_input("rnn_cell", weights, x, 1), h, activation)


def lstm_cell(
    weights: Weights, x: ArrayLike, state: tuple[ArrayLike, ArrayLike]
) -> tuple[Array, Array]:
    """A step of a long short-term memory (Hochreiter & Schmidhuber, 1997; Gers et al., 2000).

    Args:
      weights: with four gates: input, forget, candidate, output.
      x: input of shape `(..., n)`.
      state: hidden state and memory, each of shape `(..., m)`.

    Returns:
      The next hidden state and memory.

    Raises:
      ValueError: the shapes do not fit.

        >>> from amdjax import rnn
        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 4)
        >>> h, c = rnn.lstm_cell(weights, jnp.ones((2, 3)), (jnp.zeros((2, 5)), jnp.zeros((2, 5))))
        >>> h.shape, c.shape
        ((2, 5), (2, 5))
    """
    x, h, c = as_arrays("lstm_cell", x, *state)
    return lstm_step(weights, project_input("lstm_cell", weights, x, 4), (h, c))


def gru_cell(weights: Weights, x: ArrayLike, h: ArrayLike) -> Array:
    """A step of a gated recurrent unit (Cho et al., 2014), resetting after the product.

    Args:
      weights: with three gates: reset, update, candidate.
      x: input of shape `(..., n)`.
      h: hidden state of shape `(..., m)`.

    Returns:
      The next hidden state.

    Raises:
      ValueError: the shapes do not fit.

        >>> from amdjax import rnn
        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 3)
        >>> rnn.gru_cell(weights, jnp.ones((2, 3)), jnp.zeros((2, 5))).shape
        (2, 5)
    """
    x, h = as_arrays("gru_cell", x, h)
    return gru_step(weights, project_input("gru_cell", weights, x, 3), h)
