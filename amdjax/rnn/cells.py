"""One step of a recurrent network."""

from __future__ import annotations

from typing import Any, NamedTuple

import amdjax.numpy as jnp
from amdjax import random
from amdjax.core.array import Array
from amdjax.nn import initializers
from amdjax.nn._arguments import is_integer
from amdjax.nn._random import checked_key
from amdjax.nn.functions import relu, sigmoid
from amdjax.numpy._util import ArrayLike, as_arrays

__all__ = ["Weights", "gru_cell", "init_weights", "lstm_cell", "rnn_cell"]

ACTIVATIONS = {"tanh": jnp.tanh, "relu": relu}
INPUT_MODES = ("linear", "skip")


class Weights(NamedTuple):
    """What a recurrent layer has learned, in one direction.

    With n input features, m hidden features and g gates; the gates stand side by side on the last
    axis, in the order given by the cell. The hidden state has p features, which are m unless there
    is a projection.

    Args:
      input_kernel: of shape `(n, g * m)`; None adds the input itself to each gate, where n is m.
      hidden_kernel: of shape `(p, g * m)`.
      input_bias: of shape `(g * m,)`, or None.
      hidden_bias: of shape `(g * m,)`, or None.
      peepholes: of shape `(3 * m,)`, or None: what the memory of an LSTM adds to its input, forget
        and output gate (Gers & Schmidhuber, 2000).
      projection: of shape `(m, p)`, or None: by what the output of an LSTM is multiplied (Sak et
        al., 2014).
    """

    input_kernel: Array | None
    hidden_kernel: Array
    input_bias: Array | None = None
    hidden_bias: Array | None = None
    peepholes: Array | None = None
    projection: Array | None = None


def init_weights(
    key: Any, in_features: int, hidden_features: int, gates: int, *, use_bias: bool = True,
    projected_features: int | None = None, peepholes: bool = False, input_mode: str = "linear",
    dtype: Any = None,
) -> Weights:  # fmt: skip
    """Random weights: kernels by Glorot & Bengio (2010), orthogonal ones for the hidden state.

    Args:
      key: key of the random start.
      gates: 1 for `rnn_cell`, 3 for `gru_cell`, 4 for `lstm_cell`.
      use_bias: whether there are biases; they start at zero, those of an LSTM's forget gate at one,
        so that it starts open (Jozefowicz et al., 2015).
      projected_features: features of an LSTM's output, if it is projected.
      peepholes: whether the gates of an LSTM see its memory, at first with weight zero.
      input_mode: "linear", or "skip" for no input kernel.
      dtype: dtype; None means the default float.

    Returns:
      The `Weights`.

    Raises:
      ValueError: for a number of features that is no positive integer, an unknown input mode, or
        what only an LSTM has.

        >>> rnn.init_weights(amdjax.random.key(0), 3, 5, 4).hidden_kernel.shape
        (5, 20)
    """
    return new_weights(
        "init_weights", key, in_features, hidden_features, gates, use_bias=use_bias,
        projected_features=projected_features, peepholes=peepholes, input_mode=input_mode,
        dtype=dtype,
    )  # fmt: skip


def new_weights(
    name: str,
    key: Any,
    in_features: int,
    hidden_features: int,
    gates: int,
    *,
    use_bias: bool = True,
    projected_features: int | None = None,
    peepholes: bool = False,
    input_mode: str = "linear",
    dtype: Any = None,
) -> Weights:
    """`init_weights` for a function or layer of this name, which errors begin with."""
    sizes = {"in_features": in_features, "hidden_features": hidden_features}
    if projected_features is not None:
        sizes["projected_features"] = projected_features
    for size, value in sizes.items():
        if not is_integer(value) or value < 1:
            raise ValueError(f"{name}: {size} must be a positive integer, got {value!r}.")
    if gates != 4 and (peepholes or projected_features is not None):
        raise ValueError(f"{name}: peepholes and projected_features are an LSTM's alone.")
    if input_mode not in INPUT_MODES:
        raise ValueError(f"{name}: input_mode must be one of {INPUT_MODES}, got {input_mode!r}.")
    if input_mode == "skip" and in_features != hidden_features:
        raise ValueError(
            f"{name}: in_features must be hidden_features where input_mode='skip', got "
            f"{in_features} and {hidden_features}."
        )
    wide = gates * hidden_features
    input_key, *gate_keys = random.split(checked_key(name, key), 1 + gates)
    orthogonal = initializers.orthogonal()
    square = (projected_features or hidden_features, hidden_features)
    hidden = jnp.concatenate([orthogonal(k, square, dtype) for k in gate_keys], axis=1)
    glorot = initializers.glorot_uniform()
    kernel = None if input_mode == "skip" else glorot(input_key, (in_features, wide), dtype)
    bias = zeros = jnp.zeros(wide, dtype) if use_bias else None
    if gates == 4 and zeros is not None:
        bias = zeros.at[hidden_features : 2 * hidden_features].set(1)
    holes = jnp.zeros(3 * hidden_features, dtype) if peepholes else None
    projection = None
    if projected_features is not None:
        narrow = (hidden_features, projected_features)
        projection = glorot(random.fold_in(input_key, 1), narrow, dtype)
    return Weights(kernel, hidden, bias, zeros, holes, projection)


def project_input(name: str, weights: Weights, x: Array, gates: int) -> Array:
    """The input's share in the gates, `(..., gates * m)`; the hidden state has no part in it.

    The hidden bias is in it, too, but for a GRU, which multiplies that of its candidate.
    """
    check_weights(name, weights, x, gates)
    kernel = weights.input_kernel
    z = jnp.concatenate([x] * gates, axis=-1) if kernel is None else x @ kernel
    z = _biased(z, weights.input_bias)
    return z if gates == 3 else _biased(z, weights.hidden_bias)


def check_weights(name: str, weights: Weights, x: Array, gates: int) -> None:
    """Raise an error for weights that are none, or do not fit each other and the input."""
    if not isinstance(weights, Weights):
        raise TypeError(f"{name}: weights must be rnn.Weights, got {weights!r}.")
    m, rest = divmod(weights.hidden_kernel.shape[-1], gates)
    wide, n = gates * m, x.shape[-1]
    p = m if weights.projection is None else weights.projection.shape[-1]
    if rest or (weights.input_kernel is None and n != m):
        raise ValueError(
            f"{name}: weights must hold hidden_kernel of shape (p, {gates} * m), with m the "
            f"features of x where there is no input_kernel, got {weights.hidden_kernel.shape} and "
            f"x of shape {x.shape}."
        )
    if gates != 4 and (weights.peepholes is not None or weights.projection is not None):
        raise ValueError(f"{name}: peepholes and projection of weights are an LSTM's alone.")
    wanted = {
        "input_kernel": (n, wide), "hidden_kernel": (p, wide), "input_bias": (wide,),
        "hidden_bias": (wide,), "peepholes": (3 * m,), "projection": (m, p),
    }  # fmt: skip
    for field, shape in wanted.items():
        array = getattr(weights, field)
        if array is not None and array.shape != shape:
            raise ValueError(
                f"{name}: weights must hold {field} of shape {shape} where x has shape "
                f"{x.shape} and there are {gates} gate(s) of {m} features, got {array.shape}."
            )


def _biased(y: Array, bias: Array | None) -> Array:
    return y if bias is None else y + bias


def rnn_step(weights: Weights, projected: Array, h: Array, activation: str = "tanh") -> Array:
    """`rnn_cell` after the projection of its input."""
    return ACTIVATIONS[activation](projected + h @ weights.hidden_kernel)


def lstm_step(
    weights: Weights, projected: Array, state: tuple[Array, Array]
) -> tuple[Array, Array]:
    """`lstm_cell` after the projection of its input."""
    h, c = state
    i, f, g, o = jnp.split(projected + h @ weights.hidden_kernel, 4, axis=-1)
    holes = weights.peepholes
    if holes is None:
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
    else:
        to_i, to_f, to_o = jnp.split(holes, 3)
        c = sigmoid(f + to_f * c) * c + sigmoid(i + to_i * c) * jnp.tanh(g)
        o = o + to_o * c
    h = sigmoid(o) * jnp.tanh(c)
    return (h if weights.projection is None else h @ weights.projection), c


def gru_step(weights: Weights, projected: Array, h: Array) -> Array:
    """`gru_cell` after the projection of its input."""
    hidden = _biased(h @ weights.hidden_kernel, weights.hidden_bias)
    input_r, input_z, input_n = jnp.split(projected, 3, axis=-1)
    hidden_r, hidden_z, hidden_n = jnp.split(hidden, 3, axis=-1)
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
      activation: `f`, "tanh" or "relu".

    Returns:
      The next hidden state.

    Raises:
      ValueError: the shapes do not fit, or there is no such activation.

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
      state: hidden state and memory, of shapes `(..., p)` and `(..., m)`.

    Returns:
      The next hidden state and memory.

    Raises:
      TypeError: `state` is no pair.
      ValueError: the shapes do not fit.

        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 4)
        >>> h, c = rnn.lstm_cell(weights, jnp.ones((2, 3)), (jnp.zeros((2, 5)), jnp.zeros((2, 5))))
        >>> h.shape, c.shape
        ((2, 5), (2, 5))
    """
    if not (isinstance(state, (tuple, list)) and len(state) == 2):
        raise TypeError(
            f"lstm_cell: state must be a pair of hidden state and memory, got {state!r}."
        )
    x, h, c = as_arrays("lstm_cell", x, *state)
    return lstm_step(weights, project_input("lstm_cell", weights, x, 4), (h, c))


def gru_cell(weights: Weights, x: ArrayLike, h: ArrayLike) -> Array:
    """A step of a gated recurrent unit (Cho et al., 2014), resetting after the product.

    Args:
      weights: with three gates: reset, update, candidate.

    Returns:
      The next hidden state.

    Raises:
      ValueError: the shapes do not fit.

        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 3)
        >>> rnn.gru_cell(weights, jnp.ones((2, 3)), jnp.zeros((2, 5))).shape
        (2, 5)
    """
    x, h = as_arrays("gru_cell", x, h)
    return gru_step(weights, project_input("gru_cell", weights, x, 3), h)
