"""Recurrent networks: a scan over time, and layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .lib import Torch
from .nn import both
from .workload import Inputs, Workload, array_function


def _inputs(rng: np.random.Generator, quick: bool) -> tuple:
    time, batch, features, hidden = (16, 4, 16, 32) if quick else (128, 64, 128, 256)
    scale = np.float32(1 / hidden**0.5)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    wx, wh = draw(features, 4 * hidden) * scale, draw(hidden, 4 * hidden) * scale
    return draw(time, batch, features), wx, wh, draw(4 * hidden) * scale


def _lstm(l, x, wx, wh, b):
    batch, hidden = x.shape[1], wh.shape[0]

    def cell(carry, x_t):
        h, c = carry
        i, f, g, o = l.np.split(x_t @ wx + h @ wh + b, 4, axis=-1)
        c = l.nn.sigmoid(f) * c + l.nn.sigmoid(i) * l.np.tanh(g)
        h = l.nn.sigmoid(o) * l.np.tanh(c)
        return (h, c), h

    zeros = l.np.zeros((batch, hidden), x.dtype)
    return l.lax.scan(cell, (zeros, zeros), x)[1]


def _lstm_torch(t, x, wx, wh, b):
    zeros = x.new_zeros(1, x.shape[1], wh.shape[1])
    weights = (wx, wh, b, t.zeros_like(b))
    return t.lstm(x, (zeros, zeros), weights, True, 1, 0.0, True, False, False)[0]


def _layout(lib: Torch, args: tuple) -> tuple:
    if len(args) == 1:
        return args
    x, wx, wh, b = args
    return x, wx.T.contiguous(), wh.T.contiguous(), b


def _canonical(result):
    if not isinstance(result, tuple):
        return result
    x, wx, wh, b = result
    return x, wx.T, wh.T, b


_SHARED = dict(torch_layout=_layout, torch_canonical=_canonical)

SHAPES = ((128, 64, 512), (32, 100, 256), (8, 1, 1024))  # steps, batch, features in and out
GATES = {"LSTM": 4, "GRU": 3}


def _drawn(cell: str, directions: int, shape: tuple[int, int, int]) -> Inputs:
    def make(rng: np.random.Generator, quick: bool) -> tuple:
        time, batch, features = (min(n, 8) for n in shape) if quick else shape
        wide, scale = GATES[cell] * features, np.float32(1 / features**0.5)
        kernels = [(features, wide), (features, wide), (wide,), (wide,)] * directions
        draw = lambda size: rng.standard_normal(size, dtype=np.float32)
        return draw((time, batch, features)), *(draw(size) * scale for size in kernels)

    return make


def _layer(cell: str) -> Any:
    """The layer, in one direction or both: amdjax's own, written out for JAX."""

    def run(l: Any, x: Any, *weights: Any) -> Any:
        y = [
            _direction(l, cell, x, weights[i : i + 4], reverse=i > 0)
            for i in range(0, len(weights), 4)
        ]
        return y[0] if len(y) == 1 else l.np.concatenate(y, axis=-1)

    return run


def _direction(l: Any, cell: str, x: Any, weights: Any, reverse: bool) -> Any:
    if l.name == "amdjax":
        from amdjax import rnn

        return getattr(rnn, cell.lower())(rnn.Weights(*weights), x, reverse=reverse)[0]
    wx, wh, b, d = weights
    sigmoid, tanh = l.nn.sigmoid, l.np.tanh

    def lstm(state: Any, z: Any) -> Any:
        h, c = state
        i, f, g, o = l.np.split(z + h @ wh + d, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
        return (h, c), h

    def gru(h: Any, z: Any) -> Any:
        (ir, iz, i), (hr, hz, n) = (l.np.split(a, 3, axis=-1) for a in (z, h @ wh + d))
        z = sigmoid(iz + hz)
        h = (1 - z) * tanh(i + sigmoid(ir + hr) * n) + z * h
        return h, h

    zeros = l.np.zeros((x.shape[1], wh.shape[0]), x.dtype)
    step, start = (lstm, (zeros, zeros)) if cell == "LSTM" else (gru, zeros)
    return l.lax.scan(step, start, x @ wx + b, reverse=reverse)[1]


def _layer_torch(cell: str) -> Any:
    def run(t: Torch, x: Any, *weights: Any) -> Any:
        both = len(weights) > 4
        zeros = x.new_zeros(1 + both, x.shape[1], weights[1].shape[1])
        start = (zeros, zeros) if cell == "LSTM" else zeros
        return getattr(t, cell.lower())(x, start, weights, True, 1, 0.0, True, both, False)[0]

    return run


def _turned(args: Any) -> Any:
    """Kernels transposed, which are what follows the inputs and has two axes."""
    if not isinstance(args, tuple):
        return args
    return args[0], *(w.T if w.ndim == 2 else w for w in args[1:])


def _layers() -> list[Workload]:
    rows = []
    for cell, directions in (("LSTM", 1), ("LSTM", 2), ("GRU", 1)):
        for shape in SHAPES:
            name = f"{'bi-' if directions == 2 else ''}{cell} {'×'.join(map(str, shape))}"
            rows += both(
                name, _drawn(cell, directions, shape), _layer(cell), _layer_torch(cell),
                tuple(range(1 + 4 * directions)),
                torch_layout=lambda lib, args: tuple(x.contiguous() for x in _turned(args)),
                torch_canonical=_turned,
            )  # fmt: skip
    return rows


WORKLOADS = [
    array_function(
        "LSTM by scan, 128×64×256", _inputs, _lstm, _lstm_torch, tolerance=1e-4, **_SHARED
    ),
    array_function(
        "LSTM by scan gradient, 128×64×256",
        _inputs,
        _lstm,
        _lstm_torch,
        argnums=(0, 1, 2, 3),
        tolerance=1e-3,
        **_SHARED,
    ),
    *_layers(),
]
