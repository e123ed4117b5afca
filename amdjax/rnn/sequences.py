"""Recurrent networks over whole sequences, as one scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, as_array
from amdjax.rnn.cells import Weights, check_activation, gru_step, lstm_step, project_input, rnn_step

__all__ = ["gru", "lstm", "rnn"]


def rnn(
    weights: Weights,
    x: ArrayLike,
    h: ArrayLike | None = None,
    *,
    activation: str = "tanh",
    reverse: bool = False,
    time_major: bool = True,
) -> tuple[Array, Array]:
    """A layer of a plain recurrent network over a sequence.

    Args:
      weights: as for `rnn_cell`.
      x: inputs of shape `(time, ..., n)`; `(batch, time, n)` unless `time_major`.
      h: hidden state at the start, `(..., m)`; None means zeros.
      activation: "tanh" or "relu".
      reverse: whether to go from the last step to the first.
      time_major: whether time is the first axis rather than the second.

    Returns:
      The hidden states of all steps, shaped like `x` with m features, and the one at the end.

    Raises:
      ValueError: the shapes do not fit, or there is no such activation.

        >>> from amdjax import rnn
        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 1)
        >>> y, h = rnn.rnn(weights, jnp.ones((7, 2, 3)))
        >>> y.shape, h.shape
        ((7, 2, 5), (2, 5))
    """
    check_activation("rnn", activation)
    step = lambda weights, z, h: rnn_step(weights, z, h, activation)
    return _scan("rnn", 1, step, lambda h: h, weights, x, h, reverse, time_major)


def lstm(
    weights: Weights,
    x: ArrayLike,
    state: tuple[ArrayLike, ArrayLike] | None = None,
    *,
    reverse: bool = False,
    time_major: bool = True,
) -> tuple[Array, tuple[Array, Array]]:
    """A layer of long short-term memory over a sequence.

    Args:
      weights: as for `lstm_cell`.
      x: inputs of shape `(time, ..., n)`; `(batch, time, n)` unless `time_major`.
      state: hidden state and memory at the start, each `(..., m)`; None means zeros.
      reverse: whether to go from the last step to the first.
      time_major: whether time is the first axis rather than the second.

    Returns:
      The hidden states of all steps, shaped like `x` with m features, and the pair of hidden state
      and memory at the end.

    Raises:
      ValueError: the shapes do not fit.

        >>> from amdjax import rnn
        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 4)
        >>> y, (h, c) = rnn.lstm(weights, jnp.ones((7, 2, 3)))
        >>> y.shape, h.shape, c.shape
        ((7, 2, 5), (2, 5), (2, 5))
    """
    return _scan("lstm", 4, lstm_step, lambda s: s[0], weights, x, state, reverse, time_major)


def gru(
    weights: Weights,
    x: ArrayLike,
    h: ArrayLike | None = None,
    *,
    reverse: bool = False,
    time_major: bool = True,
) -> tuple[Array, Array]:
    """A layer of gated recurrent units over a sequence.

    Args:
      weights: as for `gru_cell`.
      x: inputs of shape `(time, ..., n)`; `(batch, time, n)` unless `time_major`.
      h: hidden state at the start, `(..., m)`; None means zeros.
      reverse: whether to go from the last step to the first.
      time_major: whether time is the first axis rather than the second.

    Returns:
      The hidden states of all steps, shaped like `x` with m features, and the one at the end.

    Raises:
      ValueError: the shapes do not fit.

        >>> from amdjax import rnn
        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 3)
        >>> y, h = rnn.gru(weights, jnp.ones((7, 2, 3)))
        >>> y.shape, h.shape
        ((7, 2, 5), (2, 5))
    """
    return _scan("gru", 3, gru_step, lambda h: h, weights, x, h, reverse, time_major)


def _scan(
    name: str,
    gates: int,
    step: Callable[..., Any],
    output: Callable[[Any], Array],
    weights: Weights,
    x: ArrayLike,
    state: Any,
    reverse: bool,
    time_major: bool,
) -> tuple[Array, Any]:
    x = as_array(name, x, 1)
    if x.ndim < (2 if time_major else 3):
        form = "(time, ..., n)" if time_major else "(batch, time, n)"
        raise ValueError(f"{name}: x must have shape {form}, got {x.shape}.")
    if not time_major:
        x = jnp.swapaxes(x, 0, 1)
    # One large product for all steps instead of a small one in each.
    projected = project_input(name, weights, x, gates)
    hidden = weights.hidden_kernel.shape[0]
    state = _initial(name, state, (*x.shape[1:-1], hidden), projected.dtype, pair=gates == 4)

    def body(state: Any, z: Array) -> tuple[Any, Array]:
        state = step(weights, z, state)
        return state, output(state)

    state, y = lax.scan(body, state, projected, reverse=reverse)
    return (y if time_major else jnp.swapaxes(y, 0, 1)), state


def _initial(name: str, state: Any, shape: tuple[int, ...], dtype: Any, pair: bool) -> Any:
    if state is None:
        zeros = jnp.zeros(shape, dtype)
        return (zeros, zeros) if pair else zeros
    if pair and not (isinstance(state, (tuple, list)) and len(state) == 2):
        raise TypeError(f"{name}: state must be a pair of hidden state and memory, got {state!r}.")
    arrays = [as_array(name, s, 2).astype(dtype) for s in (state if pair else [state])]
    for a in arrays:
        if a.shape != shape:
            raise ValueError(f"{name}: the state must have shape {shape}, got {a.shape}.")
    return tuple(arrays) if pair else arrays[0]
