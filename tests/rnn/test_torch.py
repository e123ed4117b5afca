"""Recurrent layers, values and gradients, against what PyTorch gave (tools/record_torch_rnn.py)."""

import json
from pathlib import Path

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import random, rnn
from tests.support.recurrent_cases import FEATURES, HIDDEN, draw, inputs

RECORDED = np.load(Path(__file__).with_name("torch.npz"))


def layer(case):
    options = {"projected_features": case["projected"]} if case["projected"] else {}
    if case["activation"]:
        options["activation"] = case["activation"]
    net = getattr(rnn, case["cell"])(
        FEATURES, HIDDEN, layers=case["layers"], bidirectional=case["bidirectional"],
        use_bias=case["use_bias"], time_major=case["time_major"], dtype=case["dtype"],
        key=random.key(0), **options,
    )  # fmt: skip
    shapes = {name: a.shape for name, a in rnn.to_torch(net).items()}
    return rnn.from_torch(net, draw(case["number"], shapes, case["dtype"]))


@pytest.mark.parametrize("name", RECORDED.files)
def test_values_and_gradients(name):
    case = json.loads(name)
    given, pair = inputs(case), case["cell"] == "LSTM"

    def run(net, x, state):
        states = [tuple(s) if pair else s[0] for s in zip(*state)]
        y, ends = net(x, states, lengths=given["lengths"])
        return [y, *map(jnp.stack, zip(*ends) if pair else [ends])]

    with amdjax.enable_x64(case["dtype"] == "float64"):
        net = layer(case)
        outs, pull = amdjax.vjp(amdjax.jit(run), net, given["x"], given["state"])
        slopes, dx, dstate = pull([jnp.asarray(c) for c in given["cotangents"]])
        named = rnn.to_torch(slopes)
        arrays = [*outs, dx, *dstate, *(named[n] for n in sorted(named))]
        assert {a.dtype for a in arrays} == {np.dtype(case["dtype"])}
        got = np.concatenate([np.ravel(a) for a in arrays])
    tolerance = 1e-10 if case["dtype"] == "float64" else 1e-5
    np.testing.assert_allclose(got, RECORDED[name], rtol=tolerance, atol=tolerance)
