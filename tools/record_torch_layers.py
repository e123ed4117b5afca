"""Record what layers of PyTorch compute, for tests/nn/test_interop.py.

    python tools/record_torch_layers.py

Writes tests/nn/recorded/torch_layers.npz: for each case the state dict ("case/weight"), the input
("case:x") and the result ("case:y"), in float64. PyTorch (the CPU build) is needed for this alone.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import nn

FILE = Path(__file__).resolve().parents[1] / "tests" / "nn" / "recorded" / "torch_layers.npz"

CASES = {
    "linear": (lambda: nn.Linear(3, 4), (2, 3)),
    "linear without bias": (lambda: nn.Linear(3, 4, bias=False), (2, 3)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 7)),
    "conv2d": (lambda: nn.Conv2d(3, 5, (3, 2), dilation=(1, 2), padding=(1, 0)), (2, 3, 6, 7)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2, groups=2, bias=False), (1, 2, 3, 4, 5)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(3, 4, 3, stride=2), (2, 3, 5)),
    "conv_transpose2d": (
        lambda: nn.ConvTranspose2d(
            4, 6, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 0), groups=2
        ),
        (2, 4, 4, 3),
    ),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 3, 2, dilation=2), (1, 2, 3, 2, 3)),
    "batch_norm1d": (lambda: nn.BatchNorm1d(3).eval(), (4, 3)),
    "batch_norm2d": (lambda: nn.BatchNorm2d(3, affine=False).eval(), (2, 3, 4, 2)),
    "layer_norm": (lambda: nn.LayerNorm(5), (2, 3, 5)),
    "group_norm": (lambda: nn.GroupNorm(2, 6), (2, 6, 3)),
    "rms_norm": (lambda: nn.RMSNorm(5, eps=1e-6), (2, 5)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
    "prelu": (lambda: nn.PReLU(3), (4, 3)),
    "embedding": (lambda: nn.Embedding(7, 3), None),
    "lstm": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), (5, 2, 3)),
    "lstm projected": (lambda: nn.LSTM(3, 4, proj_size=2), (5, 2, 3)),
    "gru": (lambda: nn.GRU(3, 4, num_layers=2, bias=False), (5, 2, 3)),
    "rnn": (lambda: nn.RNN(3, 4, nonlinearity="relu", bidirectional=True), (5, 2, 3)),
    "gru_cell": (lambda: nn.GRUCell(3, 4), (2, 3)),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (2, 5, 8)),
    "attention without bias": (
        lambda: nn.MultiheadAttention(8, 2, bias=False, batch_first=True),
        (2, 5, 8),
    ),
    "cross attention": (
        lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True),
        (2, 5, 8),
    ),
    "network": (
        lambda: nn.Sequential(
            OrderedDict(
                stem=nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
                blocks=nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)),
                head=nn.Sequential(nn.Flatten(), nn.Linear(36, 3)),
            )
        ).eval(),
        (2, 2, 5, 5),
    ),
}


def record() -> dict[str, np.ndarray]:
    """All cases' arrays by name."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for case, (make, shape) in CASES.items():
        layer = make().double()
        state = layer.state_dict()
        for name, tensor in state.items():
            if tensor.is_floating_point():
                values = rng.standard_normal(tensor.shape) / 2
                state[name] = torch.from_numpy(abs(values) + 0.5 if "var" in name else values)
        layer.load_state_dict(state)
        x = rng.integers(0, 7, (2, 4)) if shape is None else rng.standard_normal(shape)
        inputs = [torch.from_numpy(x)] * (3 if isinstance(layer, nn.MultiheadAttention) else 1)
        if case == "cross attention":
            context = rng.standard_normal((2, 4, 6))
            arrays[f"{case}:context"] = context
            inputs[1:] = [torch.from_numpy(context)] * 2
        y = layer(*inputs)
        y = y[0] if isinstance(y, tuple) else y
        arrays |= {f"{case}/{name}": t.numpy() for name, t in layer.state_dict().items()}
        arrays |= {f"{case}:x": x, f"{case}:y": y.detach().numpy()}
    return arrays


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FILE, **record())
    print(FILE, FILE.stat().st_size, "bytes")
