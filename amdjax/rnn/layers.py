"""Modules of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from amdjax import random
from amdjax.core.array import Array
from amdjax.nn._scope import is_training
from amdjax.nn.module import Module, static
from amdjax.nn.regularization import dropout
from amdjax.numpy._util import ArrayLike, as_array
from amdjax.rnn.cells import Weights, check_activation, init_weights
from amdjax.rnn.sequences import gru, lstm, rnn

__all__ = ["GRU", "LSTM", "RNN"]


class _Recurrent(Module):
    weights: tuple[Weights, ...]
    rate: float = static()
    reverse: bool = static()
    time_major: bool = static()

    returns_state = True
    _gates: ClassVar[int]

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: Any,
        layers: int = 1,
        rate: float = 0.0,
        use_bias: bool = True,
        reverse: bool = False,
        time_major: bool = True,
        dtype: Any = None,
    ) -> None:
        if not isinstance(layers, int) or layers < 1:
            name = type(self).__name__
            raise ValueError(f"{name}: layers must be a positive integer, got {layers!r}.")
        sizes = [in_features] + [hidden_features] * (layers - 1)
        make = partial(init_weights, gates=self._gates, use_bias=use_bias, dtype=dtype)
        keys = random.split(key, layers)
        self.weights = tuple(make(k, n, hidden_features) for k, n in zip(keys, sizes))
        self.rate, self.reverse, self.time_major = rate, reverse, time_major

    def _sequence(self) -> Callable[..., tuple[Array, Any]]:
        raise NotImplementedError

    def __call__(
        self,
        x: ArrayLike,
        state: Sequence[Any] | None = None,
        *,
        key: Any = None,
        train: bool | None = None,
    ) -> tuple[Array, tuple[Any, ...]]:
        """All layers over a sequence.

        Args:
          x: inputs of shape `(time, ..., in_features)`; `(batch, time, in_features)` unless
            `time_major`.
          state: one state for each layer; None means zeros.
          key: key of the dropout between layers; None for one of the `nn.apply` around the call.
          train: whether there is dropout; None means as `nn.apply` says.

        Returns:
          The hidden states of the last layer, and each layer's state at the end.

        Raises:
          ValueError: dropout without a key, or shapes that do not fit.
        """
        name = type(self).__name__
        count = len(self.weights)
        if state is not None and len(state) != count:
            raise ValueError(f"{name}: state must hold one entry for each of {count} layer(s).")
        noisy = is_training(train) and self.rate > 0 and count > 1
        keys = random.split(self.next_key(key), count) if noisy else [None] * count
        states, run, y = [], self._sequence(), as_array(name, x)
        for i, (weights, layer_key) in enumerate(zip(self.weights, keys)):
            if noisy and i > 0:
                y = dropout(layer_key, y, self.rate)
            start = None if state is None else state[i]
            y, end = run(weights, y, start, reverse=self.reverse, time_major=self.time_major)
            states.append(end)
        return y, tuple(states)


class LSTM(_Recurrent):
    """Layers of long short-term memory.

    Args:
      in_features: number of input features.
      hidden_features: number of hidden features.
      key: key of the weights' random start.
      layers: how many layers, each fed by the one before.
      rate: probability of dropout between layers.
      use_bias: whether there are biases.
      reverse: whether to go from the last step to the first.
      time_major: whether time is the first axis rather than the second.
      dtype: dtype of the weights; None means the default float.

        >>> from amdjax import rnn
        >>> layer = rnn.LSTM(3, 5, layers=2, key=amdjax.random.key(0))
        >>> y, states = layer(jnp.ones((7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 5), 2)
    """

    _gates = 4

    def _sequence(self) -> Callable[..., tuple[Array, Any]]:
        return lstm


class GRU(_Recurrent):
    """Layers of gated recurrent units.

    Args:
      in_features: number of input features.
      hidden_features: number of hidden features.
      key: key of the weights' random start.
      layers: how many layers, each fed by the one before.
      rate: probability of dropout between layers.
      use_bias: whether there are biases.
      reverse: whether to go from the last step to the first.
      time_major: whether time is the first axis rather than the second.
      dtype: dtype of the weights; None means the default float.

        >>> from amdjax import rnn
        >>> rnn.GRU(3, 5, key=amdjax.random.key(0))(jnp.ones((7, 2, 3)))[0].shape
        (7, 2, 5)
    """

    _gates = 3

    def _sequence(self) -> Callable[..., tuple[Array, Any]]:
        return gru


class RNN(_Recurrent):
    """Layers of plain recurrent networks.

    Args:
      in_features: number of input features.
      hidden_features: number of hidden features.
      key: key of the weights' random start.
      layers: how many layers, each fed by the one before.
      rate: probability of dropout between layers.
      use_bias: whether there are biases.
      reverse: whether to go from the last step to the first.
      time_major: whether time is the first axis rather than the second.
      dtype: dtype of the weights; None means the default float.
      activation: "tanh" or "relu".

        >>> from amdjax import rnn
        >>> rnn.RNN(3, 5, key=amdjax.random.key(0))(jnp.ones((7, 2, 3)))[0].shape
        (7, 2, 5)
    """

    activation: str = static()

    _gates = 1

    def __init__(
        self, in_features: int, hidden_features: int, *, activation: str = "tanh", **kwargs: Any
    ) -> None:
        check_activation("RNN", activation)
        super().__init__(in_features, hidden_features, **kwargs)
        self.activation = activation

    def _sequence(self) -> Callable[..., tuple[Array, Any]]:
        return partial(rnn, activation=self.activation)
