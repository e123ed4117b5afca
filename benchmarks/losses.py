"""Losses and activations of `amdjax.nn`, forward and with gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .layers import both
from .workload import Inputs, Workload, normal, together

SCORES = normal(4096, 1000, quick=(64, 100))
MATRIX = normal(2048, 1024, quick=(64, 128))


def drawn(make: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray], inputs: Inputs):
    """One more argument of the shape of the first."""

    def both_of(rng: np.random.Generator, quick: bool) -> tuple:
        x = inputs(rng, quick)
        return (*x, make(rng, x[0].shape).astype(np.float32))

    return both_of


def _numbers(classes: int, quick: int) -> Inputs:
    """A class number for each of the rows before, 4096 of them."""

    def make(rng: np.random.Generator, is_quick: bool) -> tuple:
        return (rng.integers(0, quick if is_quick else classes, 64 if is_quick else 4096),)

    return make


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(0.01, 0.99, shape)


def _bits(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 2, shape)


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return 2 * rng.integers(0, 2, shape) - 1


def _row_signs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return _signs(rng, shape[:1])


def _counts(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.poisson(3.0, shape)


def _distributions(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.dirichlet(np.ones(shape[-1]), shape[0])


NUMBERED = together(SCORES, _numbers(1000, 100))
TWO = together(MATRIX, MATRIX)


def _weights(rng: np.random.Generator, quick: bool) -> tuple:
    return (rng.uniform(0.5, 1.5, 100 if quick else 1000).astype(np.float32),)


def _probabilities(rng: np.random.Generator, quick: bool) -> tuple:
    shape = (64, 128) if quick else (2048, 1024)
    return (_uniform(rng, shape).astype(np.float32), _bits(rng, shape).astype(np.float32))


def _label_lists(rng: np.random.Generator, quick: bool) -> tuple:
    """Scores of 80 classes, and up to 8 labels an image."""
    rows, classes = (16, 80) if quick else (256, 80)
    labels = np.full((rows, classes), -1, np.int64)
    for row in labels:
        count = rng.integers(1, 9)
        row[:count] = rng.choice(classes, count, replace=False)
    return rng.standard_normal((rows, classes), dtype=np.float32), labels


def _speech(rng: np.random.Generator, quick: bool) -> tuple:
    """Logits of 32 classes over time, and lengths and labels."""
    time, batch, longest = (20, 2, 5) if quick else (400, 32, 80)
    logits = rng.standard_normal((time, batch, 32), dtype=np.float32)
    labels = rng.integers(1, 32, (batch, longest))
    lengths = rng.integers(time * 3 // 4, time + 1, batch)
    return logits, lengths, labels, rng.integers(longest // 2, longest + 1, batch)


def _ctc(l: Any, logits: Any, lengths: Any, labels: Any, counts: Any) -> Any:
    return l.nn.ctc_loss(logits, lengths, labels, counts)


def _ctc_torch(t: Any, logits: Any, lengths: Any, labels: Any, counts: Any) -> Any:
    log_p = t.nn.functional.log_softmax(logits, -1)
    return t.nn.functional.ctc_loss(log_p, labels, lengths, counts)


def _focal_torch(t: Any, x: Any, y: Any) -> Any:
    f = t.nn.functional
    losses = f.binary_cross_entropy_with_logits(x, y, reduction="none")
    p = t.sigmoid(x)
    right = p * y + (1 - p) * (1 - y)
    return (losses * (1 - right) ** 2 * (0.25 * y + 0.75 * (1 - y))).mean()


def _kl_torch(t: Any, x: Any, y: Any) -> Any:
    return t.nn.functional.kl_div(x, y, reduction="batchmean")


def _loss(name: str, inputs: Inputs, ours: str, theirs: str, **options: Any) -> list[Workload]:
    """A loss under its names, with options that both know by one name."""

    def fn(l: Any, *args: Any) -> Any:
        return getattr(l.nn, ours)(*args, **options)

    def fn_torch(t: Any, *args: Any) -> Any:
        return getattr(t.nn.functional, theirs)(*args, **options)

    return both(name, inputs, fn, fn_torch)


def _weighted(l: Any, x: Any, y: Any, w: Any) -> Any:
    return l.nn.softmax_cross_entropy(x, y, weight=w)


def _weighted_torch(t: Any, x: Any, y: Any, w: Any) -> Any:
    return t.nn.functional.cross_entropy(x, y, w)


def _classification() -> list[Workload]:
    entropy = ("softmax_cross_entropy", "cross_entropy")
    bits, signs = drawn(_bits, MATRIX), drawn(_signs, MATRIX)
    return [
        *_loss("cross-entropy, 4096×1000", NUMBERED, *entropy),
        *_loss("cross-entropy smoothed, 4096×1000", NUMBERED, *entropy, label_smoothing=0.1),
        *_loss("cross-entropy ignoring, 4096×1000", NUMBERED, *entropy, ignore_index=7),
        *_loss("cross-entropy of distributions", drawn(_distributions, SCORES), *entropy),
        *both("cross-entropy weighted, 4096×1000", together(NUMBERED, _weights), _weighted,
            _weighted_torch,
       ),
        *_loss("nll loss, 4096×1000", NUMBERED, "nll_loss", "nll_loss"),
        *_loss(
            "sigmoid cross-entropy", bits, "sigmoid_cross_entropy",
            "binary_cross_entropy_with_logits",
        ),
        *_loss(
            "binary cross-entropy", _probabilities, "binary_cross_entropy", "binary_cross_entropy"
        ),
        *both("focal loss", bits, lambda l, x, y: l.nn.focal_loss(x, y), _focal_torch),
        *both(
            "kl divergence", drawn(_distributions, SCORES),
            lambda l, x, y: l.nn.kl_divergence(x, y), _kl_torch,
        ),
        *both("ctc loss, 400×32×32", _speech, _ctc, _ctc_torch),
        *_loss("soft margin", signs, "soft_margin_loss", "soft_margin_loss"),
        *_loss("multi margin, 4096×1000", NUMBERED, "multi_margin_loss", "multi_margin_loss"),
        *_loss(
            "multilabel margin, 256×80", _label_lists, "multilabel_margin_loss",
            "multilabel_margin_loss",
        ),
        *_loss(
            "multilabel soft margin", bits, "multilabel_soft_margin_loss",
            "multilabel_soft_margin_loss",
        ),
        *_loss("hinge embedding", signs, "hinge_embedding_loss", "hinge_embedding_loss"),
    ]  # fmt: skip


def _regression() -> list[Workload]:
    pair_signs, pair_rows = drawn(_signs, TWO), drawn(_row_signs, TWO)
    positive = drawn(_uniform, TWO)
    return [
        *_loss("margin ranking", pair_signs, "margin_ranking_loss", "margin_ranking_loss"),
        *_loss("cosine embedding", pair_rows, "cosine_embedding_loss", "cosine_embedding_loss"),
        *_loss(
            "triplet margin", together(TWO, MATRIX), "triplet_margin_loss", "triplet_margin_loss"
        ),
        *_loss("mse", TWO, "mse", "mse_loss"),
        *_loss("mae", TWO, "mae", "l1_loss"),
        *_loss("huber", TWO, "huber", "huber_loss", delta=0.5),
        *_loss("smooth l1", TWO, "smooth_l1", "smooth_l1_loss", beta=0.5),
        *_loss("poisson nll", drawn(_counts, MATRIX), "poisson_nll_loss", "poisson_nll_loss"),
        *_loss("gaussian nll", positive, "gaussian_nll_loss", "gaussian_nll_loss"),
    ]  # fmt: skip


SAME = (
    "relu",
    "relu6",
    "softplus",
    "sigmoid",
    "silu",
    "mish",
    "elu",
    "leaky_relu",
    "celu",
    "selu",
    "glu",
    "tanh",
)
# Names of ours, then of PyTorch's where they differ
ACTIVATIONS = {
    **{name: name for name in SAME},
    "soft_sign": "softsign",
    "log_sigmoid": "logsigmoid",
    "hard_tanh": "hardtanh",
    "hard_sigmoid": "hardsigmoid",
    "hard_silu": "hardswish",
}  # fmt: skip
GATED = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}


def _activation(name: str, l: Any, x: Any) -> Any:
    return getattr(l.nn, name)(x)


def _activation_torch(name: str, options: dict[str, Any], t: Any, x: Any) -> Any:
    return getattr(t.nn.functional, name)(x, **options)


def _gated_torch(name: str, options: dict[str, Any], t: Any, x: Any) -> Any:
    first, second = x.chunk(2, -1)
    return first * getattr(t.nn.functional, name)(second, **options)


def _squareplus_torch(t: Any, x: Any) -> Any:
    return (x + t.sqrt(x * x + 4)) / 2


def _gelu_exact(l: Any, x: Any) -> Any:
    return l.nn.gelu(x, approximate=False)


def _activations() -> list[Workload]:
    theirs: dict[str, Any] = {
        ours: partial(_activation_torch, name, {}) for ours, name in ACTIVATIONS.items()
    }
    approximate = dict(approximate="tanh")
    for name in ("softmax", "log_softmax"):
        theirs[name] = partial(_activation_torch, name, dict(dim=-1))
    for name, activation in GATED.items():
        options = approximate if name == "geglu" else {}
        theirs[name] = partial(_gated_torch, activation, options)
    theirs["gelu"] = partial(_activation_torch, "gelu", approximate)
    theirs["squareplus"] = _squareplus_torch
    found = [both(f"{n}, 2048×1024", MATRIX, partial(_activation, n), f) for n, f in theirs.items()]
    exact = partial(_activation_torch, "gelu", {})
    found.append(both("gelu by erf, 2048×1024", MATRIX, _gelu_exact, exact))
    return [row for rows in found for row in rows]


WORKLOADS = [*_classification(), *_regression(), *_activations()]
