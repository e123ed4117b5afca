"""Inputs and weights of recurrent layers that a recording and its test draw alike."""

import numpy as np

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 3, 4


def draw(number, shapes, dtype):
    """An array for each name, in the order of names."""
    rng = np.random.default_rng((number, 1))
    return {n: rng.uniform(-0.6, 0.6, shapes[n]).astype(dtype) for n in sorted(shapes)}


def inputs(case):
    """What a layer is called with, and the cotangents of what it returns."""
    rng = np.random.default_rng((case["number"], 2))
    directions = 2 if case["bidirectional"] else 1
    out = case["projected"] or HIDDEN
    time_major, dtype = case["time_major"], case["dtype"]
    sequence = lambda n: (STEPS, BATCH, n) if time_major else (BATCH, STEPS, n)
    normal = lambda shape: rng.standard_normal(shape).astype(dtype)
    wide = (out, HIDDEN) if case["cell"] == "LSTM" else (out,)
    states = [(case["layers"] * directions, BATCH, n) for n in wide]
    return {
        "x": normal(sequence(FEATURES)),
        "state": [normal(s) for s in states],
        "lengths": np.array([3, 4, 1]) if case["lengths"] else None,
        "cotangents": [normal(sequence(out * directions)), *map(normal, states)],
    }
