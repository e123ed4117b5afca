"""Recurrent networks over whole sequences, as one scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.pytree import tree_map
from amdjax.numpy._util import ArrayLike, as_array
from amdjax.rnn.cells import Weights, check_activation, gru_step, lstm_step, project_input, rnn_step

__all__ = ["gru", "lstm", "rnn"]


def rnn(
    weights: Weights, x: ArrayLike, h: ArrayLike | None = None, *, activation: str = "tanh",
    lengths: ArrayLike | None = None, reverse: bool = False, time_major: bool = True,
) -> tuple[Array, Array]:  # fmt: skip
    """A layer of a plain recurrent network over a sequence.

    Args:
      weights: as for `rnn_cell`.

    Returns:
      The hidden states of all steps, shaped like `x` with m features, and the one at the end.

    Raises:
      TypeError: `lengths` are no integers.
      ValueError: the shapes do not fit, or there is no such activation.

        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 1)
        >>> y, h = rnn.rnn(weights, jnp.ones((7, 2, 3)))
        >>> y.shape, h.shape
        ((7, 2, 5), (2, 5))
    """
    check_activation("rnn", activation)
    step = lambda weights, z, h: rnn_step(weights, z, h, activation)
    return scan_steps("rnn", 1, step, weights, x, h, lengths, reverse, time_major)


def lstm(
    weights: Weights, x: ArrayLike, state: tuple[ArrayLike, ArrayLike] | None = None, *,
    lengths: ArrayLike | None = None, reverse: bool = False, time_major: bool = True,
) -> tuple[Array, tuple[Array, Array]]:  # fmt: skip
    """A layer of long short-term memory over a sequence.

    Args:
      weights: as for `lstm_cell`.
      state: hidden state and memory at the start, `(..., p)` and `(..., m)`; None means zeros.

    Returns:
      The hidden states of all steps, shaped like `x` with p features, and the pair of hidden state
      and memory at the end.

    Raises:
      TypeError: `lengths` are no integers, or `state` is no pair.
      ValueError: the shapes do not fit.

        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 4)
        >>> y, (h, c) = rnn.lstm(weights, jnp.ones((7, 2, 3)))
        >>> y.shape, h.shape, c.shape
        ((7, 2, 5), (2, 5), (2, 5))
    """
    return scan_steps("lstm", 4, lstm_step, weights, x, state, lengths, reverse, time_major)


def gru(
    weights: Weights, x: ArrayLike, h: ArrayLike | None = None, *, lengths: ArrayLike | None = None,
    reverse: bool = False, time_major: bool = True,
) -> tuple[Array, Array]:  # fmt: skip
    """A layer of gated recurrent units over a sequence.

    Args:
      weights: as for `gru_cell`.

    Returns:
      The hidden states of all steps, shaped like `x` with m features, and the one at the end.

    Raises:
      TypeError: `lengths` are no integers.
      ValueError: the shapes do not fit.

        >>> weights = rnn.init_weights(amdjax.random.key(0), 3, 5, 3)
        >>> y, h = rnn.gru(weights, jnp.ones((7, 2, 3)))
        >>> y.shape, h.shape
        ((7, 2, 5), (2, 5))
    """
    return scan_steps("gru", 3, gru_step, weights, x, h, lengths, reverse, time_major)


def scan_steps(
    name: str, gates: int, step: Callable[..., Any], weights: Weights, inputs: ArrayLike,
    state: Any, lengths: ArrayLike | None, reverse: bool, time_major: bool,
) -> tuple[Array, Any]:  # fmt: skip
    x = as_array(name, inputs, 1)
    if x.ndim < (2 if time_major else 3):
        form = "(time, ..., n)" if time_major else "(batch, time, n)"
        raise ValueError(f"{name}: x must have shape {form}, got {x.shape}.")
    if not time_major:
        x = jnp.swapaxes(x, 0, 1)
    going = None if lengths is None else _going(name, lengths, x)
    if going is not None:
        # What lies beyond the end must not reach gradients either, not even as 0 * NaN.
        x = jnp.where(going, x, 0)
    # One large product for all steps instead of a small one in each.
    projected = project_input(name, weights, x, gates)
    state = _initial(name, weights, state, x.shape[1:-1], projected.dtype, gates)

    def body(state: Any, now: tuple[Array, Array | None]) -> tuple[Any, Array]:
        z, going = now
        new = step(weights, z, state)
        if going is None:
            return new, _output(new)
        new = tree_map(lambda a, b: jnp.where(going, a, b), new, state)
        return new, jnp.where(going, _output(new), 0)

    state, y = lax.scan(body, state, (projected, going), reverse=reverse)
    return (y if time_major else jnp.swapaxes(y, 0, 1)), state


def _output(state: Any) -> Array:
    return state[0] if isinstance(state, tuple) else state


def _going(name: str, lengths: ArrayLike, x: Array) -> Array:
    """Which steps each sequence has, `(time, ..., 1)`."""
    lengths = as_array(name, lengths)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise TypeError(f"{name}: lengths must be integers, got {lengths.dtype}.")
    if lengths.shape != x.shape[1:-1]:
        raise ValueError(
            f"{name}: lengths must have the shape {x.shape[1:-1]} of the batch, got "
            f"{lengths.shape}."
        )
    times = jnp.arange(x.shape[0]).reshape(-1, *[1] * lengths.ndim)
    return (times < lengths)[..., None]


def _initial(
    name: str, weights: Weights, state: Any, batch: tuple[int, ...], dtype: Any, gates: int
) -> Any:
    hidden = weights.hidden_kernel.shape
    pair = gates == 4
    shapes = [(*batch, hidden[0]), (*batch, hidden[1] // gates)][: 1 + pair]
    if state is None:
        arrays = [jnp.zeros(shape, dtype) for shape in shapes]
        return tuple(arrays) if pair else arrays[0]
    if pair and not (isinstance(state, (tuple, list)) and len(state) == 2):
        raise TypeError(f"{name}: state must be a pair of hidden state and memory, got {state!r}.")
    arrays = [as_array(name, s, 2).astype(dtype) for s in (state if pair else [state])]
    for a, shape in zip(arrays, shapes):
        if a.shape != shape:
            raise ValueError(f"{name}: the state must have shape {shape}, got {a.shape}.")
    return tuple(arrays) if pair else arrays[0]
