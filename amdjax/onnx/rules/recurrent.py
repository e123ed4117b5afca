"""Recurrent networks: RNN, LSTM, GRU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import nn
from amdjax.rnn.cells import Weights
from amdjax.rnn.sequences import gru, lstm, rnn, scan_steps

from ..registry import rule

Function = Callable[[Any], Any]

#: Activations by name: a function of x and of as many numbers as it has defaults, which are said
#: by activation_alpha and activation_beta, in this order.
_ACTIVATIONS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "Relu": (nn.relu, ()),
    "Tanh": (jnp.tanh, ()),
    "Sigmoid": (nn.sigmoid, ()),
    "Softsign": (nn.soft_sign, ()),
    "Softplus": (nn.softplus, ()),
    "LeakyRelu": (nn.leaky_relu, (0.01,)),
    "ThresholdedRelu": (lambda x, alpha: jnp.where(x >= alpha, x, 0), (1.0,)),
    "Elu": (nn.elu, (1.0,)),
    "Affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "ScaledTanh": (lambda x, alpha, beta: nn.scaled_tanh(x, beta, alpha), (1.0, 1.0)),
    "HardSigmoid": (lambda x, alpha, beta: jnp.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
}


class _Direction(NamedTuple):
    """What one direction of a layer computes with."""

    weights: Weights
    state: tuple[Any, ...]
    names: tuple[str, ...]
    functions: tuple[Function, ...]
    reverse: bool


class _Layer(NamedTuple):
    """Operands and attributes that the three operators share."""

    x: Any
    w: Any
    r: Any
    b: Any
    lengths: Any
    initial: tuple[Any, ...]
    peepholes: Any
    order: tuple[int, ...]  # the place of each of our gates in the operator's
    defaults: tuple[str, ...]
    direction: str
    activations: Sequence[str] | None
    alpha: Sequence[float] | None
    beta: Sequence[float] | None
    layout: int
    hidden_size: int | None

    def run(self, call: Any, step: Callable[[_Direction], Any]) -> tuple[Any, ...]:
        """Outputs of all directions: those of all steps, and the states at the end."""
        if self.hidden_size not in (None, self.r.shape[-1]):
            raise call.error(
                f"hidden_size is {self.hidden_size}, but R has shape {tuple(self.r.shape)}"
            )
        found = [step(d) for d in self._directions(call)]
        axis = 2 if self.layout else 1
        states = zip(*(s if isinstance(s, tuple) else (s,) for _, s in found))
        return jnp.stack([y for y, _ in found], axis), *(jnp.stack(s, axis - 1) for s in states)

    def steps(self, run: Callable[..., Any], direction: _Direction, *state: Any, **how: Any) -> Any:
        """All steps in a direction."""
        return run(
            direction.weights, self.x, *state, lengths=self.lengths, reverse=direction.reverse,
            time_major=not self.layout, **how,
        )  # fmt: skip

    def scan(self, name: str, step: Callable[..., Any], direction: _Direction, state: Any) -> Any:
        """All steps in a direction, by a cell of our own."""
        return scan_steps(
            name, len(self.order), step, direction.weights, jnp.asarray(self.x), state,
            self.lengths, direction.reverse, not self.layout,
        )  # fmt: skip

    def _directions(self, call: Any) -> Iterator[_Direction]:
        kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if self.direction not in kinds:
            raise call.error(f"direction must be one of {list(kinds)}, got {self.direction!r}")
        reverse = kinds[self.direction]
        if self.w.shape[0] != len(reverse):
            raise call.error(
                f"W must have {len(reverse)} direction(s) where direction is {self.direction!r}, "
                f"got shape {tuple(self.w.shape)}"
            )
        names = tuple(self.activations or self.defaults * len(reverse))
        if len(names) != len(self.defaults) * len(reverse):
            raise call.error(
                f"activations must be {len(self.defaults)} a direction, got {list(names)}"
            )
        functions = _functions(call, names, self.alpha, self.beta)
        n = len(self.defaults)
        for i, backward in enumerate(reverse):
            at = (slice(None), i) if self.layout else (i,)
            state = tuple(s if s is None else jnp.asarray(s)[at] for s in self.initial)
            here = slice(i * n, (i + 1) * n)
            yield _Direction(self._weights(i), state, names[here], functions[here], backward)

    def _weights(self, i: int) -> Weights:
        gates = self._gates
        biases = (None, None)
        if self.b is not None:
            halves = jnp.split(jnp.asarray(self.b)[i], 2)
            biases = gates(halves[0]), gates(halves[1])
        holes = None
        if self.peepholes is not None:
            to_i, to_o, to_f = jnp.split(jnp.asarray(self.peepholes)[i], 3)
            holes = jnp.concatenate([to_i, to_f, to_o])
        w, r = gates(jnp.asarray(self.w)[i]).T, gates(jnp.asarray(self.r)[i]).T
        return Weights(w, r, *biases, holes)

    def _gates(self, array: Any) -> Any:
        """The parts of axis 0 in our order of gates."""
        parts = array.reshape(len(self.order), -1, *array.shape[1:])
        return parts[np.array(self.order)].reshape(array.shape)


def _functions(
    call: Any, names: Sequence[str], alpha: Sequence[float] | None, beta: Sequence[float] | None
) -> tuple[Function, ...]:
    """Activations by name, with the numbers that are theirs: each takes the next of those given."""
    given = [iter(() if v is None else np.ravel(v).tolist()) for v in (alpha, beta)]
    known = {name.lower(): entry for name, entry in _ACTIVATIONS.items()}
    found = []
    for name in names:
        if name.lower() not in known:
            raise call.error(f"activations must be of {list(_ACTIVATIONS)}, got {name!r}")
        function, defaults = known[name.lower()]
        numbers = [next(v, default) for v, default in zip(given, defaults)]
        found.append(lambda x, f=function, numbers=numbers: f(x, *numbers))
    return tuple(found)


def _bounded(x: Any, clip: float | None) -> Any:
    return x if clip is None else jnp.clip(x, -clip, clip)


@rule("RNN")
def rnn_layer(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, *, node: Any,
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    layout: int = 0, output_sequence: int = 1,
) -> Any:  # fmt: skip
    """`h = f(x W + h R + b)`."""
    layer = _Layer(
        x, w, r, b, lengths, (h,), None, (0,), ("Tanh",), direction, activations, activation_alpha,
        activation_beta, layout, hidden_size,
    )  # fmt: skip

    def run(d: _Direction) -> Any:
        name, (f,) = d.names[0].lower(), d.functions
        if clip is None and name in ("tanh", "relu"):
            return layer.steps(rnn, d, d.state[0], activation=name)
        step = lambda weights, z, h: f(_bounded(z + h @ weights.hidden_kernel, clip))
        return layer.scan("RNN", step, d, d.state[0])

    return layer.run(node, run)


@rule("LSTM")
def lstm_layer(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None,
    p: Any = None, *, node: Any, activations: Any = None, activation_alpha: Any = None,
    activation_beta: Any = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, input_forget: int = 0, layout: int = 0,
    output_sequence: int = 1,
) -> Any:  # fmt: skip
    """Long short-term memory; gates lie in the order i, o, f, c."""
    layer = _Layer(
        x, w, r, b, lengths, (h, c), p, (0, 2, 3, 1), ("Sigmoid", "Tanh", "Tanh"), direction,
        activations, activation_alpha, activation_beta, layout, hidden_size,
    )  # fmt: skip

    def run(d: _Direction) -> Any:
        state = _both(d.state)
        usual = tuple(n.lower() for n in d.names) == ("sigmoid", "tanh", "tanh")
        if usual and clip is None and not input_forget:
            return layer.steps(lstm, d, state)
        return layer.scan("LSTM", _lstm_step(d.functions, clip, bool(input_forget)), d, state)

    return layer.run(node, run)


def _both(state: tuple[Any, ...]) -> Any:
    """Hidden state and memory at the start, of which one alone may be given; the other is 0."""
    h, c = state
    if h is None and c is None:
        return None
    return (jnp.zeros_like(c) if h is None else h, jnp.zeros_like(h) if c is None else c)


def _lstm_step(functions: Sequence[Function], clip: float | None, coupled: bool) -> Any:
    f, g, h_of = functions

    def step(weights: Weights, z: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        h, c = state
        i, forget, new, o = jnp.split(z + h @ weights.hidden_kernel, 4, axis=-1)
        holes = [0, 0, 0] if weights.peepholes is None else jnp.split(weights.peepholes, 3)
        i = f(_bounded(i + holes[0] * c, clip))
        forget = 1 - i if coupled else f(_bounded(forget + holes[1] * c, clip))
        c = forget * c + i * g(_bounded(new, clip))
        o = f(_bounded(o + holes[2] * c, clip))
        return o * h_of(c), c

    return step


@rule("GRU")
def gru_layer(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, *, node: Any,
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 1,
) -> Any:  # fmt: skip
    """Gated recurrent units; gates lie in the order z, r, h."""
    layer = _Layer(
        x, w, r, b, lengths, (h,), None, (1, 0, 2), ("Sigmoid", "Tanh"), direction, activations,
        activation_alpha, activation_beta, layout, hidden_size,
    )  # fmt: skip

    def run(d: _Direction) -> Any:
        usual = tuple(n.lower() for n in d.names) == ("sigmoid", "tanh")
        if usual and clip is None and linear_before_reset:
            return layer.steps(gru, d, d.state[0])
        if linear_before_reset:
            step = _gru_step(d.functions, clip)
        else:
            step = _gru_step_reset_first(d.functions, clip, d.weights)
        return layer.scan("GRU", step, d, d.state[0])

    return layer.run(node, run)


def _gru_step(functions: Sequence[Function], clip: float | None) -> Any:
    f, g = functions

    def step(weights: Weights, projected: Any, h: Any) -> Any:
        bias = 0 if weights.hidden_bias is None else weights.hidden_bias
        to_r, to_z, to_n = jnp.split(projected, 3, axis=-1)
        from_r, from_z, from_n = jnp.split(h @ weights.hidden_kernel + bias, 3, axis=-1)
        r, z = f(_bounded(to_r + from_r, clip)), f(_bounded(to_z + from_z, clip))
        n = g(_bounded(to_n + r * from_n, clip))
        return n + z * (h - n)

    return step


def _gru_step_reset_first(
    functions: Sequence[Function], clip: float | None, learned: Weights
) -> Any:
    """The cell of Cho et al. (2014), which resets the hidden state before its product."""
    f, g = functions
    split = 2 * (learned.hidden_kernel.shape[-1] // 3)
    gates, kernel = jnp.split(learned.hidden_kernel, [split], -1)
    bias = 0 if learned.hidden_bias is None else learned.hidden_bias

    def step(weights: Weights, projected: Any, h: Any) -> Any:
        to_gates, to_n = jnp.split(projected + bias, [split], -1)
        r, z = jnp.split(f(_bounded(to_gates + h @ gates, clip)), 2, axis=-1)
        n = g(_bounded(to_n + (r * h) @ kernel, clip))
        return n + z * (h - n)

    return step
