"""LSTMs with all weights in one vector, in the order of cuDNN.

`amdjax.rnn` has layers; these functions are for programs that were written for
`jax.experimental.rnn`. They run on every device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax, random
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.errors import public_surface as _public_surface
from amdjax.nn.functions import sigmoid as sigmoid, tanh as tanh

Shape = tuple[int, ...]
Weights = dict[int, Array]


def _shapes(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> list[Shape]:
    """The shapes of all weights: the matrices of each layer and direction, then their biases."""
    directions = 2 if bidirectional else 1
    matrices: list[Shape] = []
    for layer in range(num_layers * directions):
        inputs = input_size if layer < directions else hidden_size * directions
        matrices += [(4 * hidden_size, inputs), (4 * hidden_size, hidden_size)]
    return matrices + [(4 * hidden_size,)] * len(matrices)


def get_num_params_in_lstm(
    input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> int:
    """The number of weights of an LSTM.

    Args:
      input_size: features of the inputs.
      hidden_size: features of the state.
      num_layers: layers, one upon the other.
      bidirectional: whether each also runs backwards.

    Returns:
      The length of the vector of weights.

        >>> from amdjax.experimental import rnn
        >>> rnn.get_num_params_in_lstm(1, 1, 1, False)
        16
    """
    return sum(map(math.prod, _shapes(input_size, hidden_size, num_layers, bidirectional)))


def init_lstm_weight(
    rng: Array, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Array:
    """Uniform initial weights, float32.

    Args:
      rng: a key.
      input_size: features of the inputs.
      hidden_size: features of the state.
      num_layers: layers, one upon the other.
      bidirectional: whether each also runs backwards.

    Returns:
      The vector of weights.

        >>> from amdjax.experimental import rnn
        >>> rnn.init_lstm_weight(amdjax.random.key(0), 1, 1, 1, False).shape
        (16,)
    """
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    k = np.sqrt(1.0 / hidden_size)
    return random.uniform(rng, (count,), np.float32, minval=-k, maxval=k)


def _split(weights: Array, shapes: list[Shape]) -> list[Array]:
    starts = np.cumsum([0, *map(math.prod, shapes)])
    parts = zip(starts[:-1], starts[1:], shapes, strict=True)
    return [weights[a:b].reshape(shape) for a, b, shape in parts]


def unpack_lstm_weights(
    weights: Array, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[Weights, Weights, Weights, Weights]:
    """The matrices and biases in a vector of weights.

    Args:
      weights: the vector.
      input_size: features of the inputs.
      hidden_size: features of the state.
      num_layers: layers, one upon the other.
      bidirectional: whether each also runs backwards.

    Returns:
      For inputs and state the matrices, of shape `(4 · hidden, features)`, then the biases; by the
      number of the layer, of which each direction is one. Gates: input, forget, cell, output.
    """
    parts = _split(weights, _shapes(input_size, hidden_size, num_layers, bidirectional))
    half = len(parts) // 2
    pick = lambda start: dict(enumerate(parts[start : half * (1 + start // half) : 2]))
    return pick(0), pick(1), pick(half), pick(half + 1)


def swap_lstm_gates(
    weights: Array, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Array:
    """The weights with cell and output gate exchanged, the order of some other libraries.

    Args:
      weights: the vector.
      input_size: features of the inputs.
      hidden_size: features of the state.
      num_layers: layers, one upon the other.
      bidirectional: whether each also runs backwards.

    Returns:
      The vector, rearranged.
    """
    shapes = _shapes(input_size, hidden_size, num_layers, bidirectional)
    swapped = []
    for part in _split(jnp.asarray(weights), shapes):
        first, second, cell, output = jnp.split(part, 4)
        swapped.append(jnp.concatenate([first, second, output, cell]).ravel())
    return jnp.concatenate(swapped)


def _layer(x: Array, h: Array, c: Array, params: Any, lengths: Array, reverse: bool) -> Any:
    """One layer in one direction, times first: sequences that have ended keep their state."""
    w_ih, w_hh, b_ih, b_hh = params
    projected = x @ w_ih.T + (b_ih + b_hh)[None, None]

    def step(state: Any, inputs: Any) -> Any:
        h, c = state
        gates, t = inputs
        i, f, g, o = jnp.split(gates + h @ w_hh.T, 4, axis=-1)
        new_c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        new_h = sigmoid(o) * tanh(new_c)
        going = (t < lengths)[:, None]
        state = jnp.where(going, new_h, h), jnp.where(going, new_c, c)
        return state, jnp.where(going, new_h, 0)

    return lax.scan(step, (h, c), (projected, jnp.arange(x.shape[0])), reverse=reverse)


@composite(static_argnames=("input_size", "hidden_size", "num_layers", "dropout",
                            "bidirectional"))  # fmt: skip
def lstm_ref(
    x: Array,
    h_0: Array,
    c_0: Array,
    W_ih: Weights,
    W_hh: Weights,
    b_ih: Weights,
    b_hh: Weights,
    seq_lengths: Array,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
) -> tuple[Array, Array, Array]:
    """An LSTM, given its matrices; see `lstm`.

    Args:
      x: inputs, of shape `(batch, times, input_size)`.
      h_0: states, of shape `(layers · directions, batch, hidden_size)`.
      c_0: cells, of the same shape.
      W_ih: the matrices of the inputs, as `unpack_lstm_weights` returns them.
      W_hh: those of the state.
      b_ih: the biases of the inputs.
      b_hh: those of the state.
      seq_lengths: of the sequences, int32, of shape `(batch,)`.
      input_size: features of the inputs.
      hidden_size: features of the state.
      num_layers: layers, one upon the other.
      dropout: must be 0.
      bidirectional: whether each also runs backwards.

    Returns:
      Outputs, of shape `(batch, times, hidden_size · directions)` and zero beyond a sequence's
      length; the last states; the last cells.

    Raises:
      NotImplementedError: `seq_lengths` is not int32, or `dropout` is not 0.
    """
    if seq_lengths.dtype != np.int32:
        raise NotImplementedError(f"`seq_lengths` can only be int32, got {seq_lengths.dtype}.")
    if dropout != 0.0:
        raise NotImplementedError(f"Dropout not supported in lstm, got {dropout}.")
    directions = 2 if bidirectional else 1
    y = jnp.swapaxes(x, 0, 1)
    states, cells = [], []
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            n = layer * directions + direction
            params = W_ih[n], W_hh[n], b_ih[n], b_hh[n]
            (h, c), out = _layer(y, h_0[n], c_0[n], params, seq_lengths, direction == 1)
            states.append(h)
            cells.append(c)
            outs.append(out)
        y = jnp.concatenate(outs, axis=-1)
    return jnp.swapaxes(y, 0, 1), jnp.stack(states), jnp.stack(cells)


def lstm(
    x: Array,
    h_0: Array,
    c_0: Array,
    weights: Array,
    seq_lengths: Array,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any = None,
) -> tuple[Array, Array, Array]:
    """An LSTM of several layers.

    Args:
      x: inputs, of shape `(batch, times, input_size)`.
      h_0: states, of shape `(layers · directions, batch, hidden_size)`.
      c_0: cells, of the same shape.
      weights: the vector that `init_lstm_weight` makes.
      seq_lengths: of the sequences, int32, of shape `(batch,)`.
      input_size: features of the inputs.
      hidden_size: features of the state.
      num_layers: layers, one upon the other.
      dropout: must be 0.
      bidirectional: whether each also runs backwards.
      precision: accepted.

    Returns:
      Outputs, of shape `(batch, times, hidden_size · directions)` and zero beyond a sequence's
      length; the last states; the last cells.

    Raises:
      NotImplementedError: `seq_lengths` is not int32, or `dropout` is not 0.

        >>> from amdjax.experimental import rnn
        >>> weights = rnn.init_lstm_weight(amdjax.random.key(0), 3, 4, 2, True)
        >>> state = jnp.zeros((4, 2, 4))
        >>> y, h, c = rnn.lstm(jnp.ones((2, 5, 3)), state, state, weights,
        ...                    jnp.array([5, 3]), 3, 4, 2, 0.0, True)
        >>> y.shape, h.shape
        ((2, 5, 8), (4, 2, 4))
    """
    unpacked = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    return lstm_ref(
        x, h_0, c_0, *unpacked, seq_lengths, input_size, hidden_size, num_layers, dropout,
        bidirectional,
    )  # fmt: skip


_public_surface(globals())
