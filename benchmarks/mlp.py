"""A three-layer perceptron."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .training import cross_entropy, training_step

SIZES = (784, 512, 512, 10)


def _model(rng: np.random.Generator, quick: bool) -> tuple:
    params = [
        {
            "w": rng.standard_normal((n, m), dtype=np.float32) / np.float32(n**0.5),
            "b": np.zeros(m, np.float32),
        }
        for n, m in pairwise(SIZES)
    ]
    batch = 16 if quick else 128
    x = rng.standard_normal((batch, SIZES[0]), dtype=np.float32)
    return params, x, rng.integers(0, SIZES[-1], batch, dtype=np.int32)


def _loss(l, params, x, labels):
    for layer in params[:-1]:
        x = l.nn.relu(x @ layer["w"] + layer["b"])
    return cross_entropy(l, x @ params[-1]["w"] + params[-1]["b"], labels)


def _loss_torch(t, params, x, labels):
    for layer in params[:-1]:
        x = t.relu(t.addmm(layer["b"], x, layer["w"]))
    logits = t.addmm(params[-1]["b"], x, params[-1]["w"])
    return t.nn.functional.cross_entropy(logits, labels.long())


STEP = training_step("MLP 784-512-512-10 step, batch 128", _model, _loss, _loss_torch)
