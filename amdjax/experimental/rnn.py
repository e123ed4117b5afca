"""LSTMs with all weights in one vector, in the order of cuDNN.

`amdjax.rnn` has layers; these functions are for programs that were written for
`jax.experimental.rnn`. They run on every device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import random, rnn as layers
from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.core.docs import Family as _Family, Phrases as _Phrases, complete as _complete
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.nn.functions import sigmoid as sigmoid, tanh as tanh
from amdjax.transforms import custom_vjp as custom_vjp, vjp

__all__ = [
    "get_num_params_in_lstm", "init_lstm_weight", "lstm", "lstm_bwd", "lstm_fwd", "lstm_ref",
    "swap_lstm_gates", "unpack_lstm_weights",
]  # fmt: skip

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

    Returns:
      For inputs and state the matrices, of shape `(4 · hidden, features)`, then the biases; by the
      number of the layer, of which each direction is one. Gates: input, forget, cell, output.

        >>> from amdjax.experimental import rnn
        >>> weights = rnn.init_lstm_weight(amdjax.random.key(0), 3, 4, 1, False)
        >>> matrices, *_ = rnn.unpack_lstm_weights(weights, 3, 4, 1, False)
        >>> matrices[0].shape
        (16, 3)
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

    Returns:
      The vector, rearranged.

        >>> from amdjax.experimental import rnn
        >>> weights = rnn.init_lstm_weight(amdjax.random.key(0), 3, 4, 1, False)
        >>> rnn.swap_lstm_gates(weights, 3, 4, 1, False).shape == weights.shape
        True
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
    weights = layers.Weights(w_ih.T, w_hh.T, b_ih, b_hh)
    y, state = layers.lstm(weights, x, (h, c), lengths=lengths, reverse=reverse)
    return state, y


@composite(static_argnames=("input_size", "hidden_size", "num_layers", "dropout",
                            "bidirectional"))  # fmt: skip
def lstm_ref(
    x: Array, h_0: Array, c_0: Array, W_ih: Weights, W_hh: Weights, b_ih: Weights, b_hh: Weights,
    seq_lengths: Array, input_size: int, hidden_size: int, num_layers: int, dropout: float,
    bidirectional: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """An LSTM, given its matrices; see `lstm`.

    Args:
      W_ih: the matrices of the inputs, as `unpack_lstm_weights` returns them.
      W_hh: those of the state.
      b_ih: the biases of the inputs.
      b_hh: those of the state.

        >>> from amdjax.experimental import rnn
        >>> weights = rnn.init_lstm_weight(amdjax.random.key(0), 3, 4, 1, False)
        >>> x, state, lengths = jnp.ones((2, 5, 3)), jnp.zeros((1, 2, 4)), jnp.array([5, 3])
        >>> parts = rnn.unpack_lstm_weights(weights, 3, 4, 1, False)
        >>> rnn.lstm_ref(x, state, state, *parts, lengths, 3, 4, 1, 0.0, False)[0].shape
        (2, 5, 4)
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
    x: Array, h_0: Array, c_0: Array, weights: Array, seq_lengths: Array, input_size: int,
    hidden_size: int, num_layers: int, dropout: float, bidirectional: bool, precision: Any = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """An LSTM of several layers.

    Args:
      weights: the vector that `init_lstm_weight` makes.

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


_OPTIONS = "input_size", "hidden_size", "num_layers", "dropout", "bidirectional"
_NO_SPACE = ShapedArray((0,), np.float32)


def rnn_abstract_eval(
    x_aval: Any, h_0_aval: Any, c_0_aval: Any, w_aval: Any, seq_lengths_aval: Any,
    input_size: int, hidden_size: int, num_layers: int, dropout: float, bidirectional: bool,
    cudnn_allow_tf32: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The types of outputs, last states, last cells and of what is kept for the derivative."""
    directions = 2 if bidirectional else 1
    outputs = ShapedArray((*x_aval.shape[:2], directions * hidden_size), x_aval.dtype)
    return outputs, h_0_aval, c_0_aval, _NO_SPACE


def rnn_bwd_abstract_eval(
    dy_aval: Any, dhn_aval: Any, dcn_aval: Any, x_aval: Any, h0_aval: Any, c0_aval: Any,
    w_aval: Any, y_aval: Any, reserve_space_aval: Any, seq_lengths_aval: Any, input_size: int,
    hidden_size: int, num_layers: int, dropout: float, bidirectional: bool, cudnn_allow_tf32: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The types of the gradients in inputs, first states, first cells and weights."""
    return x_aval, h0_aval, c0_aval, w_aval


rnn_fwd_p = Primitive("rnn_fwd", multiple_results=True)
rnn_fwd_p.def_abstract_eval(rnn_abstract_eval)
rnn_bwd_p = Primitive("rnn_bwd", multiple_results=True)
rnn_bwd_p.def_abstract_eval(rnn_bwd_abstract_eval)


def _forward(*args: Any, cudnn_allow_tf32: bool, **options: Any) -> list[Any]:
    return [*lstm(*args, **options), jnp.zeros(_NO_SPACE.shape, _NO_SPACE.dtype)]


def _backward(
    dy: Any, dh: Any, dc: Any, x: Any, h_0: Any, c_0: Any, w: Any, y: Any, space: Any,
    seq_lengths: Any, *, cudnn_allow_tf32: bool, **options: Any,
) -> list[Any]:  # fmt: skip
    run = lambda x, h_0, c_0, w: lstm(x, h_0, c_0, w, seq_lengths, **options)
    return list(vjp(run, x, h_0, c_0, w)[1]((dy, dh, dc)))


rnn_fwd_p.lowering = Decompose(_forward)
rnn_bwd_p.lowering = Decompose(_backward)


def lstm_fwd(
    x: Array, h_0: Array, c_0: Array, w: Array, seq_lengths: Array, input_size: int,
    hidden_size: int, num_layers: int, dropout: float, bidirectional: bool, precision: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The forward half of `lstm`'s derivative, for a `custom_vjp` of your own.

    Args:
      x: as for `lstm`, and so are the others.
      h_0: the first states.
      c_0: the first cells.
      w: the vector of weights.
      seq_lengths: of the sequences.

    Returns:
      What `lstm` returns, and what `lstm_bwd` needs.

        >>> from amdjax.experimental import rnn
        >>> weights = rnn.init_lstm_weight(amdjax.random.key(0), 3, 4, 1, False)
        >>> x, state, lengths = jnp.ones((2, 5, 3)), jnp.zeros((1, 2, 4)), jnp.array([5, 3])
        >>> (y, h, c), kept = rnn.lstm_fwd(x, state, state, weights, lengths, 3, 4, 1, 0.0, False)
        >>> y.shape
        (2, 5, 4)
    """
    options = dict(zip(_OPTIONS, (input_size, hidden_size, num_layers, dropout, bidirectional)))
    *results, space = rnn_fwd_p.bind(x, h_0, c_0, w, seq_lengths, cudnn_allow_tf32=True, **options)
    return tuple(results), (x, h_0, c_0, w, seq_lengths, results[0], space)


def lstm_bwd(
    input_size: int, hidden_size: int, num_layers: int, dropout: float, bidirectional: bool,
    precision: Any, residuals: Any, gradients: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The backward half of `lstm`'s derivative.

    Args:
      residuals: the second of what `lstm_fwd` returns.
      gradients: those of outputs, last states and last cells.

    Returns:
      The gradients of inputs, first states, first cells and weights, and zeros for the lengths.

        >>> from amdjax.experimental import rnn
        >>> weights = rnn.init_lstm_weight(amdjax.random.key(0), 3, 4, 1, False)
        >>> x, state, lengths = jnp.ones((2, 5, 3)), jnp.zeros((1, 2, 4)), jnp.array([5, 3])
        >>> results, kept = rnn.lstm_fwd(x, state, state, weights, lengths, 3, 4, 1, 0.0, False)
        >>> rnn.lstm_bwd(3, 4, 1, 0.0, False, None, kept, results)[0].shape
        (2, 5, 3)
    """
    x, h_0, c_0, w, seq_lengths, y, space = residuals
    options = dict(zip(_OPTIONS, (input_size, hidden_size, num_layers, dropout, bidirectional)))
    found = rnn_bwd_p.bind(
        *gradients, x, h_0, c_0, w, y, space, seq_lengths, cudnn_allow_tf32=True, **options
    )
    return (*found, jnp.zeros_like(seq_lengths))


_PHRASES = _Phrases(
    {
        "input_size": "features of the inputs.",
        "hidden_size": "features of the state.",
        "num_layers": "layers, one upon the other.",
        "bidirectional": "whether each also runs backwards.",
        "dropout": "must be 0.",
        "precision": "accepted.",
        "seq_lengths": "of the sequences, int32, of shape `(batch,)`.",
        "x": "inputs, of shape `(batch, times, input_size)`.",
        "h_0": "states, of shape `(layers · directions, batch, hidden_size)`.",
        "c_0": "cells, of the same shape.",
    }
)
_LSTM = _Family(
    "lstm lstm_ref",
    "Outputs, of shape `(batch, times, hidden_size · directions)` and zero beyond a sequence's\n"
    "  length; the last states; the last cells.",
    "NotImplementedError: `seq_lengths` is not int32, or `dropout` is not 0.",
)
_complete(globals(), [_LSTM], _PHRASES)
_public_surface(globals())
