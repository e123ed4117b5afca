"""Modules of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import amdjax.numpy as jnp
from amdjax import random
from amdjax.core.array import Array
from amdjax.nn._arguments import check_rate, is_integer
from amdjax.nn._random import checked_key
from amdjax.nn._scope import is_training
from amdjax.nn._torch import TorchTensor
from amdjax.nn.module import Module, static
from amdjax.nn.regularization import dropout
from amdjax.numpy._util import ArrayLike, as_array
from amdjax.rnn.cells import (
    Weights,
    check_activation,
    gru_cell,
    lstm_cell,
    new_weights,
    rnn_cell,
)
from amdjax.rnn.parameters import Parameters
from amdjax.rnn.sequences import gru, lstm, rnn

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]


class _Recurrent(Module):
    weights: tuple[Weights, ...]
    rate: float = static()
    reverse: bool = static()
    bidirectional: bool = static()
    time_major: bool = static()

    returns_state = True
    _gates: ClassVar[int]

    def __init__(
        self, in_features: int, hidden_features: int, *, key: Any, layers: int = 1,
        rate: float = 0.0, use_bias: bool = True, reverse: bool = False,
        bidirectional: bool = False, input_mode: str = "linear", time_major: bool = True,
        projected_features: int | None = None, peepholes: bool = False, dtype: Any = None,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        if not is_integer(layers) or layers < 1:
            raise ValueError(f"{name}: layers must be a positive integer, got {layers!r}.")
        check_rate(name, rate)
        if reverse and bidirectional:
            raise ValueError(f"{name}: reverse must be False where bidirectional=True.")
        directions = 2 if bidirectional else 1
        options: dict[str, Any] = {
            "gates": self._gates, "use_bias": use_bias, "dtype": dtype, "peepholes": peepholes,
            "projected_features": projected_features,
        }  # fmt: skip
        keys = random.split(checked_key(name, key), layers * directions)
        features = projected_features or hidden_features
        self.weights = tuple(
            new_weights(name, k, in_features, hidden_features, input_mode=input_mode, **options)
            if i < directions
            else new_weights(name, k, features * directions, hidden_features, **options)
            for i, k in enumerate(keys)
        )
        self.rate, self.reverse, self.time_major = rate, reverse, time_major
        self.bidirectional = bidirectional

    def _sequence(self) -> Callable[..., tuple[Array, Any]]:
        raise NotImplementedError

    @property
    def params(self) -> Parameters:
        """The weights by layer, direction and gate; `replace(weights=...)` takes them back."""
        directions = ("forward", "reverse") if self.bidirectional else ("forward",)
        directions = ("reverse",) if self.reverse else directions
        return Parameters(self.weights, directions)

    def __call__(
        self, x: ArrayLike, state: Sequence[Any] | None = None, *, lengths: ArrayLike | None = None,
        key: Any = None, train: bool | None = None,
    ) -> tuple[Array, tuple[Any, ...]]:  # fmt: skip
        """All layers over a sequence.

        Args:
          x: inputs of shape `(time, ..., in_features)`; `(batch, time, in_features)` unless
            `time_major`.
          state: one state for each layer, or for each of its two directions, the forward one first;
            None means zeros.
          lengths: how many steps each sequence has, as for `lstm`; None means all.
          key: key of the dropout between layers; None for one of the `nn.apply` around the call.
          train: whether there is dropout; None means as `nn.apply` says.

        Returns:
          The hidden states of the last layer, those of both directions side by side, and the
          states at the end in the order of `state`.

        Raises:
          ValueError: dropout without a key, or shapes that do not fit.
        """
        name = type(self).__name__
        count, directions = len(self.weights), 2 if self.bidirectional else 1
        if state is not None and len(state) != count:
            raise ValueError(
                f"{name}: state must hold one entry for each of {count // directions} layer(s)"
                f"{' and direction' if self.bidirectional else ''}."
            )
        layers = count // directions
        noisy = is_training(train) and self.rate > 0 and layers > 1
        keys = random.split(self.next_key(key), layers) if noisy else [None] * layers
        run = partial(self._sequence(), lengths=lengths, time_major=self.time_major)
        starts = [None] * count if state is None else list(state)
        ends: list[Any] = []
        y = as_array(name, x)
        for i, layer_key in enumerate(keys):
            if noisy and i > 0:
                y = dropout(layer_key, y, self.rate)
            parts = []
            for d in range(directions):
                n = i * directions + d
                part, end = run(self.weights[n], y, starts[n], reverse=self.reverse or d == 1)
                parts.append(part)
                ends.append(end)
            y = jnp.concatenate(parts, axis=-1) if self.bidirectional else parts[0]
        return y, tuple(ends)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of PyTorch's layer of this name, as `Module.torch_tensors` says."""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        tensors: list[TorchTensor] = []
        for i in range(len(self.weights)):
            layer, direction = divmod(i, len(directions))
            find = lambda module, i=i: module.weights[i]
            tensors += _torch_tensors(find, f"_l{layer}{directions[direction]}")
        return tuple(tensors)


def _torch_tensors(find: Callable[[Any], Weights], suffix: str) -> Iterator[TorchTensor]:
    """The entries of PyTorch's state dict that are one `Weights`; the gates' order is the same."""
    for name, field in (
        ("weight_ih", "input_kernel"),
        ("weight_hh", "hidden_kernel"),
        ("bias_ih", "input_bias"),
        ("bias_hh", "hidden_bias"),
        ("weight_hr", "projection"),
    ):
        where = lambda layer, field=field: getattr(find(layer), field)
        yield TorchTensor(name + suffix, where, None if "bias" in name else (1, 0))


class LSTM(_Recurrent):
    """Layers of long short-term memory.

    Args:
      projected_features: features of each layer's output, if it is projected.
      peepholes: whether the gates see the memory.

        >>> layer = rnn.LSTM(3, 5, layers=2, bidirectional=True, key=amdjax.random.key(0))
        >>> y, states = layer(jnp.ones((7, 2, 3)), lengths=jnp.array([7, 4]))
        >>> y.shape, len(states)
        ((7, 2, 10), 4)
    """

    _gates = 4

    def _sequence(self) -> Callable[..., tuple[Array, Any]]:
        return lstm


class GRU(_Recurrent):
    """Layers of gated recurrent units.

    >>> rnn.GRU(3, 5, key=amdjax.random.key(0))(jnp.ones((7, 2, 3)))[0].shape
    (7, 2, 5)
    """

    _gates = 3

    def __init__(self, in_features: int, hidden_features: int, **kwargs: Any) -> None:
        super().__init__(in_features, hidden_features, **kwargs)

    def _sequence(self) -> Callable[..., tuple[Array, Any]]:
        return gru


class RNN(_Recurrent):
    """Layers of plain recurrent networks.

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


class _Cell(Module):
    weights: Weights

    _gates: ClassVar[int]

    def __init__(self, in_features: int, hidden_features: int, *, key: Any, **options: Any) -> None:
        name = type(self).__name__
        options["gates"] = self._gates
        self.weights = new_weights(name, key, in_features, hidden_features, **options)

    def _zeros(self, x: ArrayLike) -> list[Array]:
        """A state for `x`: hidden state and memory."""
        x = as_array(type(self).__name__, x, 1)
        p, wide = self.weights.hidden_kernel.shape
        dtype = jnp.result_type(x, self.weights.hidden_kernel)
        return [jnp.zeros((*x.shape[:-1], n), dtype) for n in (p, wide // self._gates)]

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of PyTorch's cell of this name, as `Module.torch_tensors` says."""
        return tuple(_torch_tensors(lambda cell: cell.weights, ""))


class LSTMCell(_Cell):
    """A step of a long short-term memory, for loops of one's own.

    Args:
      projected_features: features of the hidden state, if it is projected.
      peepholes: whether the gates see the memory.

        >>> h, c = rnn.LSTMCell(3, 5, key=amdjax.random.key(0))(jnp.ones((2, 3)))
        >>> h.shape, c.shape
        ((2, 5), (2, 5))
    """

    _gates = 4

    def __call__(
        self, x: ArrayLike, state: tuple[ArrayLike, ArrayLike] | None = None
    ) -> tuple[Array, Array]:
        """`lstm_cell` with these weights; a state of None means zeros."""
        start: Any = tuple(self._zeros(x)) if state is None else state
        return lstm_cell(self.weights, x, start)


class GRUCell(_Cell):
    """A step of a gated recurrent unit, for loops of one's own.

    >>> rnn.GRUCell(3, 5, key=amdjax.random.key(0))(jnp.ones((2, 3))).shape
    (2, 5)
    """

    _gates = 3

    def __call__(self, x: ArrayLike, h: ArrayLike | None = None) -> Array:
        """`gru_cell` with these weights; a state of None means zeros."""
        return gru_cell(self.weights, x, self._zeros(x)[0] if h is None else h)


class RNNCell(_Cell):
    """A step of a plain recurrent network, for loops of one's own.

    >>> rnn.RNNCell(3, 5, activation="relu", key=amdjax.random.key(0))(jnp.ones((2, 3))).shape
    (2, 5)
    """

    activation: str = static()

    _gates = 1

    def __init__(
        self, in_features: int, hidden_features: int, *, activation: str = "tanh", **kwargs: Any
    ) -> None:
        check_activation("RNNCell", activation)
        super().__init__(in_features, hidden_features, **kwargs)
        self.activation = activation

    def __call__(self, x: ArrayLike, h: ArrayLike | None = None) -> Array:
        """`rnn_cell` with these weights; a state of None means zeros."""
        start = self._zeros(x)[0] if h is None else h
        return rnn_cell(self.weights, x, start, activation=self.activation)
