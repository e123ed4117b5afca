"""Train a small convolutional network on 1,797 scans of handwritten digits (8x8 pixels).

The scans come with scikit-learn, so nothing is downloaded. One compiled function makes a whole
training step: forward pass, gradient, Adam.

    python examples/digits.py --help
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, optim, random

CLASSES = 10


def require(module: str, what: str) -> Any:
    """A package that the example needs but amdjax does not."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        sys.exit(f'{error}\nIt is needed for {what}: pip install "amdjax[examples]"')


def load(seed: int, test_share: float = 0.2) -> tuple[np.ndarray, ...]:
    """Images `(n, 8, 8, 1)` in [0, 1] and labels `(n,)`, for training and for testing."""
    data = require("sklearn.datasets", "the digits").load_digits()
    split = require("sklearn.model_selection", "the digits").train_test_split
    images = data.images[..., None].astype(np.float32) / 16
    labels = data.target.astype(np.int32)
    x, x_test, y, y_test = split(
        images, labels, test_size=test_share, random_state=seed, stratify=labels
    )
    return x, y, x_test, y_test


def make_model(key: Any) -> nn.Sequential:
    """Two convolutions and two dense layers."""
    keys = random.split(key, 4)
    return nn.Sequential(
        [
            # The normalization takes a bias away: only rounding errors would train it.
            nn.Conv(1, 32, (3, 3), use_bias=False, key=keys[0]),
            nn.BatchNorm(32),
            nn.relu,
            nn.Conv(32, 64, (3, 3), use_bias=False, key=keys[1]),
            nn.BatchNorm(64),
            nn.relu,
            nn.MaxPool(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Dense(4 * 4 * 64, 128, key=keys[2]),
            nn.relu,
            nn.Dropout(0.3),
            nn.Dense(128, CLASSES, key=keys[3]),
        ]
    )


def make_train_step(optimizer: optim.GradientTransformation) -> Any:
    """`train_step(model, opt_state, images, labels, key) -> (model, opt_state, loss)`."""

    # The old parameters and optimizer state are not needed again: their memory is reused.
    @partial(amdjax.jit, donate_argnums=(0, 1))
    def train_step(model: Any, opt_state: Any, images: Any, labels: Any, key: Any) -> Any:
        params, rest = nn.partition(model)

        def loss_fn(params: Any) -> Any:
            model = nn.combine(params, rest)
            logits, new_model = nn.apply(model, images, key=key, train=True)
            return nn.softmax_cross_entropy(logits, labels), new_model

        (loss, new_model), grads = amdjax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optim.apply_updates(params, updates)
        # The new running statistics, beside the new parameters.
        return nn.combine(params, nn.partition(new_model)[1]), opt_state, loss

    return train_step


@amdjax.jit
def predict(model: Any, images: Any) -> amdjax.Array:
    """The most probable digit of each image."""
    return jnp.argmax(model(images), axis=-1)


def accuracy(model: Any, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of the images that are recognized."""
    return float(np.mean(np.asarray(predict(model, images)) == labels))


def confusion_matrix(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """How often each digit (row) was taken for each digit (column)."""
    counts = np.zeros((CLASSES, CLASSES), np.int64)
    np.add.at(counts, (labels, predictions), 1)
    return counts


def plot_confusion(counts: np.ndarray, title: str) -> Any:
    """A picture of a confusion matrix, as a matplotlib figure."""
    plt = require("matplotlib.pyplot", "the picture")
    figure, axes = plt.subplots(figsize=(5.5, 5), layout="constrained")
    # Rows are scaled to shares, so that rare confusions remain visible beside the diagonal.
    axes.imshow(counts / np.maximum(counts.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if row == column else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=color)
    axes.set(title=title, xlabel="predicted", ylabel="true")
    axes.set(xticks=range(CLASSES), yticks=range(CLASSES))
    return figure


def progress(total: int, description: str) -> Any:
    """A progress bar, on a terminal."""
    tqdm = require("tqdm", "the progress bar").tqdm
    # `disable=None` means: not when the output goes to a file.
    return tqdm(total=total, desc=description, unit="step", leave=False, disable=None)


def train(
    data: tuple[np.ndarray, ...],
    *,
    epochs: int = 15,
    steps: int | None = None,
    batch: int = 64,
    seed: int = 0,
    log: Any = print,
) -> tuple[Any, float]:
    """Train a network; return it and its accuracy on the test images."""
    x, y, x_test, y_test = data
    per_epoch = len(x) // batch
    total = min(epochs * per_epoch, steps or sys.maxsize)
    init_key, order_key, key = random.split(random.key(seed), 3)
    model = make_model(init_key)
    optimizer = optim.adam(optim.cosine_decay_schedule(3e-3, total))
    opt_state = optimizer.init(nn.partition(model)[0])
    train_step = make_train_step(optimizer)
    log(f"{nn.count_parameters(model):,} parameters, {len(x):,} training images, {total} steps")

    done = 0
    for epoch in range(1, epochs + 1):
        losses, started = [], time.perf_counter()
        order = random.fold_in(order_key, epoch)
        batches = nn.data.batches((x, y), batch, key=order, drop_remainder=True)
        with progress(min(per_epoch, total - done), f"epoch {epoch}/{epochs}") as bar:
            for images, labels in itertools.islice(batches, total - done):
                step_key = random.fold_in(key, done)
                model, opt_state, loss = train_step(model, opt_state, images, labels, step_key)
                losses.append(loss)
                done += 1
                bar.update()
        seconds = time.perf_counter() - started
        correct = accuracy(model, x_test, y_test)
        log(
            f"epoch {epoch:2}  loss {float(np.mean(losses)):.4f}  test accuracy {correct:7.2%}"
            f"  {seconds:5.2f} s"
        )
        if done == total:
            break
    return model, correct


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images")
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--batch", type=int, default=64, help="images in one step")
    parser.add_argument("--seed", type=int, default=0, help="of split, parameters and dropout")
    parser.add_argument("--output", type=Path, default=Path("digits_confusion.png"),
                        help="where to save the confusion matrix")  # fmt: skip
    parser.add_argument("--no-plot", action="store_true", help="save no picture")
    args = parser.parse_args(argv)
    for name in ("epochs", "steps", "batch"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"argument --{name}: must be at least 1, got {getattr(args, name)}")
    if not args.no_plot and not args.output.parent.is_dir():
        parser.error(f"argument --output: there is no folder {args.output.parent}")
    return args


def main(argv: list[str] | None = None) -> None:
    """Train, report, draw."""
    args = parse_args(argv)
    started = time.perf_counter()
    if not args.no_plot:
        require("matplotlib", "the picture, which --no-plot omits").use("Agg")
    data = load(args.seed)
    if args.batch > len(data[0]):
        sys.exit(f"--batch must be at most {len(data[0])}, the number of training images")
    model, correct = train(
        data, epochs=args.epochs, steps=args.steps, batch=args.batch, seed=args.seed
    )
    seconds = time.perf_counter() - started
    print(f"{correct:.2%} of the test images recognized, {seconds:.1f} s in all")
    if args.no_plot:
        return
    counts = confusion_matrix(data[3], np.asarray(predict(model, data[2])))
    plot_confusion(counts, f"{correct:.2%} of {len(data[2])} test images").savefig(args.output)
    print(f"confusion matrix: {args.output}")


if __name__ == "__main__":
    main()
