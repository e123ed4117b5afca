"""Writes tests/nn/recorded_losses.json: what PyTorch's losses and their gradients are.

    python tools/record_torch_losses.py

Each case is a loss of `amdjax.nn`, arguments in float64 that hold ties and corners on purpose, the
losses of all examples, their mean and sum, and the gradients of the mean and of a weighted sum.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

TARGET = pathlib.Path(__file__).resolve().parents[1] / "tests" / "nn" / "recorded_losses.json"
RNG = np.random.default_rng(0)
Case = tuple[str, dict[str, Any], list[np.ndarray], Callable[..., torch.Tensor]]


def cross_entropies() -> Iterator[Case]:
    """Class numbers and probabilities, over one to five axes."""
    for shape, axis in [((5,), 0), ((4, 5), 1), ((3, 5, 2), 1), ((2, 5, 3, 2), 1),
                        ((2, 4, 2, 1, 2), 1)]:  # fmt: skip
        classes = shape[axis]
        x, w = RNG.standard_normal(shape), RNG.random(classes) + 0.1
        labels = RNG.integers(0, classes, (*shape[:axis], *shape[axis + 1 :]))
        if labels.ndim:
            labels.flat[0], labels.flat[1] = -100, 2
        for weight in (None, w):
            tw = None if weight is None else torch.tensor(weight)
            for smoothing in (0.0, 0.1):
                for ignored in (None, 2) if labels.ndim else (None,):
                    options = {"axis": axis, "weight": weight, "label_smoothing": smoothing,
                               "ignore_index": ignored}  # fmt: skip
                    # PyTorch knows one number to ignore; it does not take others.
                    known = np.where(labels == 2, -100, labels) if ignored else labels
                    yield (
                        "softmax_cross_entropy",
                        options,
                        [x, labels],
                        (
                            lambda x, labels, known=known, tw=tw, s=smoothing, **kw: (
                                F.cross_entropy(
                                    x, torch.tensor(known), weight=tw, label_smoothing=s, **kw
                                )
                            )
                        ),
                    )
                if labels.ndim:
                    p = np.moveaxis(RNG.dirichlet(np.ones(classes), labels.shape), -1, axis)
                    options = {"axis": axis, "weight": weight, "label_smoothing": smoothing}
                    yield (
                        "softmax_cross_entropy",
                        options,
                        [x, p],
                        (
                            lambda x, p, tw=tw, s=smoothing, **kw: F.cross_entropy(
                                x, p, weight=tw, label_smoothing=s, **kw
                            )
                        ),
                    )
            yield (
                "nll_loss",
                {"axis": axis, "weight": weight},
                [x, labels],
                (lambda x, labels, tw=tw, **kw: F.nll_loss(x, labels, weight=tw, **kw)),
            )


def probabilities() -> Iterator[Case]:
    """Divergences and decisions between yes and no."""
    q, p = RNG.dirichlet(np.ones(3), 4), RNG.dirichlet(np.ones(3), 4)
    for log in (False, True):
        yield (
            "kl_divergence",
            {"log_targets": log},
            [np.log(q), np.log(p) if log else p],
            (
                lambda q, p, reduction, log=log: (
                    F.kl_div(q, p, reduction="none", log_target=log).sum(-1)
                    if reduction == "none"
                    else F.kl_div(
                        q, p, log_target=log, reduction=reduction.replace("mean", "batchmean")
                    )
                )
            ),
        )
    p, labels = RNG.random((4, 3)), np.round(RNG.random((4, 3)))
    p[0], labels[0] = [1e-6, 1 - 1e-6, 0.5], [1, 0, 0.3]
    weight, pos_weight = RNG.random((4, 3)), RNG.random(3) + 1
    x = 10 * RNG.standard_normal((4, 3))
    for w in (None, weight):
        tw = None if w is None else torch.tensor(w)
        yield (
            "binary_cross_entropy",
            {"weight": w},
            [p, labels],
            (lambda p, y, tw=tw, **kw: F.binary_cross_entropy(p, y, weight=tw, **kw)),
        )
        for pos in (None, pos_weight):
            tp = None if pos is None else torch.tensor(pos)
            yield (
                "sigmoid_cross_entropy",
                {"weight": w, "pos_weight": pos},
                [x, labels],
                (
                    lambda x, y, tw=tw, tp=tp, **kw: F.binary_cross_entropy_with_logits(
                        x, y, weight=tw, pos_weight=tp, **kw
                    )
                ),
            )
    for alpha, gamma in ((0.25, 2.0), (None, 0.5), (0.7, 0.0)):
        yield (
            "focal_loss",
            {"alpha": alpha, "gamma": gamma},
            [x / 5, labels],
            (lambda x, y, alpha=alpha, gamma=gamma, **kw: focal(x, y, alpha, gamma, **kw)),
        )


def focal(
    x: torch.Tensor, y: torch.Tensor, alpha: float | None, gamma: float, reduction: str
) -> torch.Tensor:
    """The formula of Lin et al. (2017), which PyTorch itself does not have."""
    p = torch.sigmoid(x) * y + torch.sigmoid(-x) * (1 - y)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none") * (1 - p) ** gamma
    if alpha is not None:
        loss = loss * (alpha * y + (1 - alpha) * (1 - y))
    return loss if reduction == "none" else getattr(loss, reduction)()


def numbers() -> Iterator[Case]:
    """Distances and likelihoods; the first row is met exactly, the second at the bends."""
    x, y = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))
    x[0], x[1, :2] = y[0], y[1, :2] + [1, -1]
    yield "mse", {}, [x, y], F.mse_loss
    yield "mae", {}, [x, y], F.l1_loss
    for delta in (1.0, 0.3):
        yield (
            "huber",
            {"delta": delta},
            [x, y],
            (lambda x, y, d=delta, **kw: F.huber_loss(x, y, delta=d, **kw)),
        )
    for beta in (1.0, 0.4, 0.0):
        yield (
            "smooth_l1",
            {"beta": beta},
            [x, y],
            (lambda x, y, b=beta, **kw: F.smooth_l1_loss(x, y, beta=b, **kw)),
        )
    counts = RNG.integers(0, 6, (4, 3))
    for full in (False, True):
        for log in (False, True):
            options = {"log_predictions": log, "full": full}
            yield (
                "poisson_nll_loss",
                options,
                [x if log else np.abs(x) + 0.1, counts],
                (
                    lambda x, y, log=log, full=full, **kw: F.poisson_nll_loss(
                        x, y.double(), log_input=log, full=full, **kw
                    )
                ),
            )
        variance = RNG.random((4, 3))
        variance[2, 0] = 1e-9
        yield (
            "gaussian_nll_loss",
            {"full": full},
            [x, y, variance],
            (lambda x, y, v, full=full, **kw: F.gaussian_nll_loss(x, y, v, full=full, **kw)),
        )


def margins() -> Iterator[Case]:
    """Hinges; some margins are kept exactly."""
    x, y, z = (RNG.standard_normal((4, 3)) for _ in range(3))
    signs = np.where(RNG.random((4, 3)) > 0.5, 1, -1)
    y[0], x[0] = [0.5, 1.0, -0.5], [1.5, 0.0, -1.5]
    yield "soft_margin_loss", {}, [x, signs], F.soft_margin_loss
    yield "hinge_embedding_loss", {}, [np.abs(x), signs], F.hinge_embedding_loss
    yield (
        "margin_ranking_loss",
        {"margin": 1.0},
        [x, y, signs],
        (lambda x, y, s, **kw: F.margin_ranking_loss(x, y, s, margin=1.0, **kw)),
    )
    scores, labels = x.copy(), np.array([0, 2, 1, 1])
    scores[0] = [1, 0, 2]
    for p in (1, 2):
        for w in (None, RNG.random(3)):
            tw = None if w is None else torch.tensor(w)
            yield (
                "multi_margin_loss",
                {"p": p, "weight": w},
                [scores, labels],
                (lambda x, y, p=p, tw=tw, **kw: F.multi_margin_loss(x, y, p=p, weight=tw, **kw)),
            )
    several = np.array([[0, -1, 1], [2, 1, -1], [-1, 0, 0], [0, 1, 2]])
    yield "multilabel_margin_loss", {}, [x, several], F.multilabel_margin_loss
    w = RNG.random(3)
    yield (
        "multilabel_soft_margin_loss",
        {"weight": w},
        [x, (signs > 0) * 1],
        (lambda x, y, **kw: F.multilabel_soft_margin_loss(x, y, weight=torch.tensor(w), **kw)),
    )
    yield (
        "cosine_embedding_loss",
        {"margin": 0.1},
        [x, y, signs[:, 0]],
        (lambda x, y, s, **kw: F.cosine_embedding_loss(x, y, s, margin=0.1, **kw)),
    )
    for p in (2.0, 1.0, 3.0):
        for swap in (False, True):
            yield (
                "triplet_margin_loss",
                {"p": p, "swap": swap},
                [x, y, z],
                (
                    lambda x, y, z, p=p, swap=swap, **kw: F.triplet_margin_loss(
                        x, y, z, p=p, swap=swap, **kw
                    )
                ),
            )


def ctc() -> Iterator[Case]:
    """Repeated labels, no labels, no times, and what no alignment fits."""
    for time, batch, classes, longest in ((7, 6, 4, 3), (12, 5, 5, 4), (3, 4, 3, 0)):
        x = RNG.standard_normal((time, batch, classes))
        labels = RNG.integers(1, classes, (batch, longest))
        lengths, counts = RNG.integers(2, time + 1, batch), RNG.integers(0, longest + 1, batch)
        lengths[0], counts[0], lengths[-1] = time, longest, 0
        if longest:
            labels[0, :2], labels[1], lengths[2], counts[2] = 1, 2, 1, longest
        options = {"zero_infinity": True}
        yield (
            "ctc_loss",
            options,
            [x, lengths, labels, counts],
            (
                lambda x, lengths, labels, counts, **kw: F.ctc_loss(
                    F.log_softmax(x, -1), labels, lengths, counts, zero_infinity=True, **kw
                )
            ),
        )


def recorded(case: Case) -> dict[str, Any]:
    """A case with PyTorch's answers; integers and signs have no gradient."""
    name, options, arrays, fn = case
    answers: dict[str, Any] = {}
    for reduction in ("none", "mean", "sum"):
        args = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        loss = fn(*args, reduction=reduction)
        answers[reduction] = loss.detach().numpy()
        if reduction == "sum":
            continue
        weights = torch.cos(torch.arange(loss.numel(), dtype=loss.dtype)).reshape(loss.shape)
        (loss * weights).sum().backward()
        zeros = lambda a: torch.zeros_like(a) if a.grad is None else a.grad
        answers[f"{reduction}_gradients"] = [zeros(a).numpy() for a in args if a.requires_grad]
    return {"loss": name, "options": options, "args": arrays, **answers}


def main() -> None:
    """Record all cases."""
    cases = [c for make in (cross_entropies, probabilities, numbers, margins, ctc) for c in make()]
    found = [json.dumps(recorded(case), default=lambda a: a.tolist()) for case in cases]
    TARGET.write_text("[\n" + ",\n".join(found) + "\n]\n")
    print(f"{len(found)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
