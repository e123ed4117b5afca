"""Record what PyTorch's recurrent layers give, for `tests/rnn/test_torch.py`.

    python tools/record_torch_rnn.py        # writes tests/rnn/torch.npz; needs PyTorch

Options are drawn at random; inputs and weights follow from the number of a case by
`tests/support/recurrent_cases.py`, so that the file holds results and gradients alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.recurrent_cases import FEATURES, HIDDEN, STEPS, draw, inputs  # noqa: E402

CASES = 48


def options(number: int) -> dict[str, Any]:
    """The options of a case."""
    rng = np.random.default_rng(number)
    coin = lambda: bool(rng.integers(2))
    cell = ("LSTM", "GRU", "RNN", "LSTM")[number % 4]
    out = {
        "number": number, "cell": cell, "dtype": "float64" if number % 3 else "float32",
        "layers": int(rng.integers(1, 4)), "bidirectional": coin(), "use_bias": coin(),
        "time_major": coin(), "lengths": coin(), "projected": None, "activation": None,
    }  # fmt: skip
    if cell == "LSTM" and coin():
        out["projected"] = 2
    if cell == "RNN":
        out["activation"] = "relu" if coin() else "tanh"
    return out


def module(case: dict[str, Any]) -> torch.nn.RNNBase:
    """PyTorch's layer with drawn weights."""
    kwargs: dict[str, Any] = dict(
        num_layers=case["layers"], bidirectional=case["bidirectional"], bias=case["use_bias"],
        batch_first=not case["time_major"], dtype=getattr(torch, case["dtype"]),
    )  # fmt: skip
    if case["projected"]:
        kwargs["proj_size"] = case["projected"]
    if case["activation"]:
        kwargs["nonlinearity"] = case["activation"]
    net = getattr(torch.nn, case["cell"])(FEATURES, HIDDEN, **kwargs)
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters()}
    drawn = draw(case["number"], shapes, case["dtype"])
    net.load_state_dict({name: torch.tensor(a) for name, a in drawn.items()})
    return net


def results(case: dict[str, Any]) -> np.ndarray:
    """Outputs, last states and all gradients, one after the other."""
    net, given = module(case), inputs(case)
    x, lengths = torch.tensor(given["x"], requires_grad=True), given["lengths"]
    state = [torch.tensor(s, requires_grad=True) for s in given["state"]]
    fed: Any = x
    if lengths is not None:
        fed = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(lengths), batch_first=not case["time_major"], enforce_sorted=False
        )
    y, last = net(fed, tuple(state) if len(state) == 2 else state[0])
    if lengths is not None:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(
            y, batch_first=not case["time_major"], total_length=STEPS
        )
    outs = [y, *(last if isinstance(last, tuple) else [last])]
    loss = sum((torch.tensor(c) * out).sum() for c, out in zip(given["cotangents"], outs))
    loss.backward()
    parameters = dict(net.named_parameters())
    slopes = [x.grad, *(s.grad for s in state), *(parameters[n].grad for n in sorted(parameters))]
    return np.concatenate([a.detach().numpy().ravel() for a in (*outs, *slopes)])


if __name__ == "__main__":
    cases = [options(number) for number in range(CASES)]
    arrays = {json.dumps(case): results(case) for case in cases}
    np.savez_compressed(ROOT / "tests" / "rnn" / "torch.npz", **arrays)
