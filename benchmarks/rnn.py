"""Recurrent networks as a scan over time."""

from __future__ import annotations

import numpy as np

from .lib import Torch
from .workload import array_function


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
]
