"""ResNet-18 (He et al., 2015), NHWC."""

from __future__ import annotations

from functools import partial

import numpy as np

from .lib import JaxLike, Torch, map_leaves
from .training import _batch_to_torch, _torch_kernel, cross_entropy, training_step
from .workload import Prepared, Workload

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
EPSILON = 1e-5


def _conv_params(rng: np.random.Generator, size: int, n: int, m: int) -> dict:
    fan_in = size * size * n
    kernel = rng.standard_normal((size, size, n, m), dtype=np.float32)
    return {
        "kernel": kernel * np.float32((2 / fan_in) ** 0.5),
        "scale": np.ones(m, np.float32),
        "bias": np.zeros(m, np.float32),
    }


def _params(rng: np.random.Generator) -> dict:
    stem, blocks, channels = _conv_params(rng, 7, 3, 64), [], 64
    for width, first_stride in STAGES:
        for stride in (first_stride, 1):
            block = {
                "conv1": _conv_params(rng, 3, channels, width),
                "conv2": _conv_params(rng, 3, width, width),
            }
            if stride != 1 or channels != width:
                block["shortcut"] = _conv_params(rng, 1, channels, width)
            blocks.append(block)
            channels = width
    head = {
        "w": rng.standard_normal((512, 1000), dtype=np.float32) / np.float32(512**0.5),
        "b": np.zeros(1000, np.float32),
    }
    return {"stem": stem, "blocks": blocks, "head": head}


def _model(rng: np.random.Generator, quick: bool) -> tuple:
    batch, size = (2, 64) if quick else (8, 224)
    images = rng.standard_normal((batch, size, size, 3), dtype=np.float32)
    return _params(rng), images, rng.integers(0, 1000, batch, dtype=np.int32)


def _conv(l, p, x, stride):
    pad = (p["kernel"].shape[0] - 1) // 2
    return l.lax.conv_general_dilated(
        x,
        p["kernel"],
        (stride, stride),
        [(pad, pad)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _norm(l, p, x, train):
    if not train:
        # Running mean 0 and variance 1: the arithmetic of inference without carrying state.
        return x * (p["scale"] * l.lax.rsqrt(l.np.float32(1 + EPSILON))) + p["bias"]
    mean = l.np.mean(x, axis=(0, 1, 2))
    variance = l.np.mean(l.np.square(x - mean), axis=(0, 1, 2))
    return (x - mean) * l.lax.rsqrt(variance + EPSILON) * p["scale"] + p["bias"]


def _forward(l, params, x, train):
    def unit(p, x, stride):
        return _norm(l, p, _conv(l, p, x, stride), train)

    x = l.nn.relu(unit(params["stem"], x, 2))
    x = l.lax.reduce_window(
        x, -l.np.inf, l.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]
    )
    for i, block in enumerate(params["blocks"]):
        stride = 2 if i in (2, 4, 6) else 1
        shortcut = unit(block["shortcut"], x, stride) if "shortcut" in block else x
        x = unit(block["conv2"], l.nn.relu(unit(block["conv1"], x, stride)), 1)
        x = l.nn.relu(x + shortcut)
    return l.np.mean(x, axis=(1, 2)) @ params["head"]["w"] + params["head"]["b"]


def _loss(l, params, x, labels):
    return cross_entropy(l, _forward(l, params, x, True), labels)


def _forward_torch(t, params, x, train, statistics):
    f = t.nn.functional

    def unit(p, x, stride):
        y = f.conv2d(x, p["kernel"], None, stride, (p["kernel"].shape[-1] - 1) // 2)
        m = y.shape[1]
        mean, variance = (None, None) if train else (statistics[0][:m], statistics[1][:m])
        return f.batch_norm(y, mean, variance, p["scale"], p["bias"], train, 0.1, EPSILON)

    x = f.max_pool2d(t.relu(unit(params["stem"], x, 2)), 3, 2, 1)
    for i, block in enumerate(params["blocks"]):
        stride = 2 if i in (2, 4, 6) else 1
        shortcut = unit(block["shortcut"], x, stride) if "shortcut" in block else x
        x = unit(block["conv2"], t.relu(unit(block["conv1"], x, stride)), 1)
        x = t.relu(x + shortcut)
    return t.addmm(params["head"]["b"], x.mean((2, 3)), params["head"]["w"])


def _loss_torch(t, params, x, labels):
    logits = _forward_torch(t, params, x, True, None)
    return t.nn.functional.cross_entropy(logits, labels.long())


def _inference(lib: JaxLike) -> Prepared:
    params, images, _ = _model(np.random.default_rng(0), lib.quick)
    args = lib.arrays((params, images))
    forward = lib.jit(lambda params, x: _forward(lib, params, x, False))
    return Prepared(lambda: forward(*args))


def _inference_torch(lib: Torch) -> Prepared:
    params, images, _ = _model(np.random.default_rng(0), lib.quick)
    params = map_leaves(partial(_torch_kernel, lib), lib.arrays(params))
    x = _batch_to_torch(lib, lib.arrays(images))
    statistics = lib.arrays((np.zeros(512, np.float32), np.ones(512, np.float32)))
    forward = lib.compile(partial(_forward_torch, lib.torch))

    def run():
        with lib.torch.no_grad():
            return forward(params, x, False, statistics)

    return Prepared(run)


INFERENCE = Workload("ResNet-18 inference, 8×224²", _inference, _inference_torch, 1e-3)
# A rounding that flips one ReLU or one maximum moves a whole bias gradient: in float32 both JAX
# and PyTorch are up to 3e-2 away from float64 here (and 1e-5 at the quick size).
STEP = training_step("ResNet-18 training step, 8×224²", _model, _loss, _loss_torch, tolerance=0.1)
